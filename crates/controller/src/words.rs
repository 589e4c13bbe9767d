//! Parser errors in terms of the document.

/// Replaces names of Rust types in a parser's error: authors of documents do not know `u8`.
pub fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" | "u64" | "usize" | "i64" => "a whole number, 0 or more, without quotes",
        "a string" => "text; write it in quotes: \"...\"",
        "a boolean" => "true or false, without quotes",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// The texts in backticks: the names that a parser lists in its message.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_in_backticks() {
        assert_eq!(quoted("one of `a`, `b` or `c d`").collect::<Vec<_>>(), ["a", "b", "c d"]);
        assert_eq!(quoted("there are no fields").count(), 0);
    }

    #[test]
    fn types_of_data_are_said_in_words() {
        let number = "invalid value: integer `300`, expected u8";
        let told = "invalid value: integer `300`, expected a number from 0 to 255";
        assert_eq!(in_words(number), told);
        assert_eq!(in_words("unknown field `a`, expected `b`"), "unknown field `a`, expected `b`");
        assert_eq!(in_words("EOF while parsing"), "EOF while parsing");
    }
}
