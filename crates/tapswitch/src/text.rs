//! Escaping of names that others chose, for a terminal and for a shell.
//!
//! A user with a user namespace can choose names of interfaces and programs: Linux forbids '/', ':'
//! and white space in the name of an interface, and nothing in that of a program. Output may appear
//! on root's terminal, and a printed command in root's shell.

use std::borrow::Cow;

use rustix::io::Errno;
use tapswitch_switch::{MORE_FILES, shell_word};

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
    word.chars().all(is_harmless).then(|| shell_word(word).into_owned())
}

/// An error's text, with the remedy if the process or the system has too many open files and the
/// text has none: any call that makes a descriptor can fail so, deep inside any command.
pub(crate) fn with_remedy(error: &str) -> Cow<'_, str> {
    let codes = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    let is_out = codes.iter().any(|code| error.contains(&format!("(os error {code})")));
    if !is_out || error.contains("LimitNOFILE=") {
        return Cow::Borrowed(error);
    }
    Cow::Owned(format!("{error}; {MORE_FILES}"))
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
    fn who_lacks_descriptors_is_told_what_to_raise_once() {
        let lacking = std::io::Error::from(Errno::MFILE);
        let text = with_remedy(&format!("u0: SIOCGIFINDEX: {lacking}")).into_owned();
        assert!(text.starts_with("u0: SIOCGIFINDEX: Too many open files"), "{text}");
        assert!(text.ends_with("(`ulimit -n`, LimitNOFILE= of systemd)"), "{text}");
        assert_eq!(with_remedy(&text), text);
        let other = std::io::Error::from(Errno::ACCESS).to_string();
        assert_eq!(with_remedy(&other), other);
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_in_a_command() {
        assert_eq!(quoted("a b").as_deref(), Some("'a b'"));
        assert_eq!(quoted("a\u{1b}b"), None);
    }
}
