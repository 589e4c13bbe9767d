//! Escaping of names that others chose, for a terminal and for a shell.
//!
//! A user with a user namespace can choose names of interfaces and programs: Linux forbids '/', ':'
//! and white space in the name of an interface, and nothing in that of a program. Output may appear
//! on root's terminal, and a printed command in root's shell.

use std::borrow::Cow;

/// `text` on one line, safe for a terminal: characters that would move the cursor, change colours
/// or the writing direction are escaped by number.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if is_harmless(char) {
            shown.push(char);
        } else {
            shown.extend(char.escape_unicode());
        }
    }
    Cow::Owned(shown)
}

/// The same for text of several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// `word` as one word of a POSIX shell. `None` if it contains unprintable characters.
pub(crate) fn quoted(word: &str) -> Option<String> {
    if !word.chars().all(is_harmless) {
        return None;
    }
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./,=:@%+".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Some(word.to_owned());
    }
    Some(format!("'{}'", word.replace('\'', r"'\''")))
}

fn is_harmless(char: char) -> bool {
    let turns =
        matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(char, '\u{2028}' | '\u{2029}');
    !char.is_control() && !turns && !breaks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_by_its_number() {
        assert_eq!(printable("vm-17.ärger ;#"), "vm-17.ärger ;#");
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable("a\nb\u{9b}c\u{202e}"), "a\\u{a}b\\u{9b}c\\u{202e}");
        assert_eq!(printable_lines("a\nb\r"), "a\nb\\u{d}");
    }

    #[test]
    fn a_shell_takes_a_quoted_word_for_one_word() {
        for word in ["tap0", "/proc/7/ns/net", "vm-1.2_3"] {
            assert_eq!(quoted(word).as_deref(), Some(word));
        }
        for word in [";reboot;#", "$(id)", "it's", "a\"b", "*", "~", "", "ärger"] {
            let script = format!("printf %s {}", quoted(word).unwrap());
            let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), word);
        }
        assert_eq!(quoted("a\u{1b}b"), None);
    }
}
