//! Users and groups by name or ID, from `/etc/passwd` and `/etc/group` (passwd(5), group(5)). Other
//! sources of names are not consulted: their users can be given by ID.

use std::str::FromStr;

use tapswitch_switch::account;

/// A user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User(pub(crate) u32);

/// A group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) u32);

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        known(text, account::user(text), "/etc/passwd").map(Self)
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        known(text, account::group(text), "/etc/group").map(Self)
    }
}

impl User {
    /// ID and name, if it has one.
    pub(crate) fn text(self) -> String {
        named(self.0, "/etc/passwd")
    }

    /// The name, if it has one.
    pub(crate) fn name(self) -> Option<String> {
        account::name(self.0, "/etc/passwd")
    }
}

impl Group {
    /// ID and name, if it has one.
    pub(crate) fn text(self) -> String {
        named(self.0, "/etc/group")
    }
}

fn known(text: &str, number: Option<u32>, file: &str) -> Result<u32, String> {
    number.ok_or_else(|| match text.parse::<u32>() {
        Ok(_) => format!("{text} is not a valid ID"),
        Err(_) => format!("'{text}' is not in {file}; give a number"),
    })
}

fn named(number: u32, file: &str) -> String {
    match account::name(number, file) {
        Some(name) => format!("{number} ({name})"),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
