//! Users and groups by name or number, as `/etc/passwd` and `/etc/group` have them (passwd(5),
//! group(5)). Other sources of names are not asked: their users have numbers too.

use std::fs;
use std::str::FromStr;

/// A user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User(pub(crate) u32);

/// A group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) u32);

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number(text, "/etc/passwd").map(Self)
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number(text, "/etc/group").map(Self)
    }
}

impl User {
    /// Number and name, if it has one.
    pub(crate) fn text(self) -> String {
        named(self.0, "/etc/passwd")
    }

    /// The name, if it has one.
    pub(crate) fn name(self) -> Option<String> {
        name(self.0, "/etc/passwd")
    }
}

impl Group {
    /// Number and name, if it has one.
    pub(crate) fn text(self) -> String {
        named(self.0, "/etc/group")
    }
}

fn number(text: &str, file: &str) -> Result<u32, String> {
    // The last number stands for "nobody in particular" in the kernel.
    if let Ok(number) = text.parse::<u32>() {
        return if number == u32::MAX {
            Err(format!("{text} is no number of anybody"))
        } else {
            Ok(number)
        };
    }
    let lines = fs::read_to_string(file).unwrap_or_default();
    let found = lines.lines().filter_map(entry).find(|(name, _)| *name == text);
    found
        .map(|(_, number)| number)
        .ok_or_else(|| format!("'{text}' is not in {file}; give a number"))
}

fn named(number: u32, file: &str) -> String {
    match name(number, file) {
        Some(name) => format!("{number} ({name})"),
        None => number.to_string(),
    }
}

fn name(number: u32, file: &str) -> Option<String> {
    let lines = fs::read_to_string(file).unwrap_or_default();
    let found = lines.lines().filter_map(entry).find(|(_, other)| *other == number);
    found.map(|(name, _)| name.to_owned())
}

/// Name and number of a line: the first and third field in both files.
fn entry(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    Some((name, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_and_a_number() {
        assert_eq!(entry("root:x:0:0:root:/root:/bin/sh"), Some(("root", 0)));
        assert_eq!(entry("# comment"), None);
        assert_eq!(entry("x:y:z"), None);
    }

    #[test]
    fn numbers_need_no_name() {
        assert_eq!("4242424".parse(), Ok(User(4_242_424)));
        assert_eq!("root".parse(), Ok(User(0)));
        assert!("4294967295".parse::<User>().is_err());
        assert!("no-such-user".parse::<User>().unwrap_err().contains("/etc/passwd"));
        assert!("no-such-group".parse::<Group>().unwrap_err().contains("/etc/group"));
        assert_eq!(User(4_242_424).text(), "4242424");
        assert_eq!(Group(0).text(), "0 (root)");
    }
}
