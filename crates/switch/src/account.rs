//! Users and groups by number or name, from `/etc/passwd` and `/etc/group` (passwd(5), group(5)).
//! Other name services are not queried; their users can be given by number.

use std::fs;

/// The number of a user; `None` if the name is unknown or the number is invalid.
pub fn user(text: &str) -> Option<u32> {
    number(text, "/etc/passwd")
}

/// The number of a group, by the same rules.
pub fn group(text: &str) -> Option<u32> {
    number(text, "/etc/group")
}

/// The name of a number in one of the two files.
pub fn name(number: u32, file: &str) -> Option<String> {
    let lines = fs::read_to_string(file).unwrap_or_default();
    let found = lines.lines().filter_map(entry).find(|(_, other)| *other == number);
    found.map(|(name, _)| name.to_owned())
}

fn number(text: &str, file: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        // The kernel reserves the last number for "no user".
        return Some(number).filter(|number| *number != u32::MAX);
    }
    let lines = fs::read_to_string(file).unwrap_or_default();
    lines.lines().filter_map(entry).find(|(name, _)| *name == text).map(|(_, number)| number)
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
}
