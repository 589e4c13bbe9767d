//! Names of network interfaces.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The name of a network interface, validated by the rules of Linux (`dev_valid_name` in
/// `net/core/dev.c`) and a few stricter ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(Box<str>);

impl DeviceName {
    /// Maximum length in bytes (`IFNAMSIZ` less the terminating zero).
    pub const MAX_LEN: usize = libc::IFNAMSIZ - 1;

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Wraps a name from the kernel without validation.
    pub(crate) fn from_kernel(name: String) -> Self {
        Self(name.into())
    }
}

impl FromStr for DeviceName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let refuse = |reason| Err(NameError { name: name.to_owned(), reason });
        match name {
            "" => refuse("is empty"),
            "." | ".." => refuse("is a directory's"),
            "all" | "default" => refuse("means every interface in /proc/sys/net"),
            _ if name.len() > Self::MAX_LEN => refuse("is longer than 15 bytes"),
            _ if name.contains(['/', ':']) => refuse("contains '/' or ':'"),
            // `Config::numbered` takes those.
            _ if name.contains('%') => refuse("contains '%', which asks the kernel to number it"),
            _ if name.contains(|c: char| c.is_whitespace() || c.is_control()) => {
                refuse("contains white space or a control character")
            }
            // Linux checks bytes as if each were a Latin-1 character.
            _ if name.bytes().any(|byte| byte == 0xa0) => {
                refuse("contains a letter with the byte 0xa0, which Linux takes for white space")
            }
            _ => Ok(Self(name.into())),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that the kernel completes with a number: `%d` stands for the first free one
/// (`dev_alloc_name` in `net/core/dev.c`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePattern(Box<str>);

impl NamePattern {
    /// The pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamePattern {
    type Err = NameError;

    fn from_str(pattern: &str) -> Result<Self, NameError> {
        let refuse = |reason| Err(NameError { name: pattern.to_owned(), reason });
        let Some((before, behind)) = pattern.split_once("%d") else {
            return refuse("has no '%d' for the kernel to number");
        };
        if pattern.len() > DeviceName::MAX_LEN {
            return refuse("is longer than 15 bytes");
        }
        // The shortest name that it can become must be valid.
        match format!("{before}0{behind}").parse::<DeviceName>() {
            Ok(_) => Ok(Self(pattern.into())),
            Err(error) => refuse(error.reason),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not a valid interface name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("interface name {name:?} {reason}; use 1 to 15 letters, digits, '-', '_' or '.'")]
pub struct NameError {
    name: String,
    reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names_pass() {
        for name in ["a", "tap0", "vm-17.eth_0", "fifteen-bytes-x", "ärger"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn illegal_names_are_refused_with_the_reason() {
        for (name, reason) in [
            ("", "empty"),
            (".", "directory"),
            ("..", "directory"),
            ("all", "every interface"),
            ("sixteen-bytes-xy", "longer than 15 bytes"),
            ("a/b", "'/'"),
            ("eth0:1", "':'"),
            ("tap%d", "number"),
            ("a b", "white space"),
            ("a\tb", "white space"),
            ("a\u{a0}b", "white space"),
            ("voilà", "0xa0"),
            ("a\0", "control"),
        ] {
            let error = name.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains(reason), "{name:?}: {error}");
        }
    }

    #[test]
    fn a_pattern_has_one_place_for_a_number() {
        for pattern in ["tap%d", "%d", "a%db", "twelve-bytes%d"] {
            assert_eq!(pattern.parse::<NamePattern>().unwrap().as_str(), pattern);
        }
        for (pattern, reason) in [
            ("tap0", "no '%d'"),
            ("", "no '%d'"),
            ("tap%d%d", "number"),
            ("a/%d", "'/'"),
            ("fifteen-bytes-x%d", "longer than 15 bytes"),
            ("fourteen-bytes%d", "longer than 15 bytes"),
        ] {
            let error = pattern.parse::<NamePattern>().unwrap_err().to_string();
            assert!(error.contains(reason), "{pattern:?}: {error}");
        }
    }
}
