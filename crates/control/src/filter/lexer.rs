//! Lexer of filters.

use super::FilterError;

/// A word or sign with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) at: usize,
    /// Empty after the last one.
    pub(super) text: &'a str,
}

impl Token<'_> {
    /// Whether it is a word: a name, a number, an address.
    pub(super) fn is_word(&self) -> bool {
        self.text.chars().next().is_some_and(is_in_word)
    }
}

/// Splits a filter. The longest sign wins.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let len = match rest.find(|c: char| !is_in_word(c)).unwrap_or(rest.len()) {
            0 if rest.starts_with(|c: char| c.is_ascii_whitespace()) => {
                at += 1;
                continue;
            }
            0 => sign_len(rest).ok_or_else(|| strange(rest, at))?,
            len => len,
        };
        let text = rest.get(..len).unwrap_or_default();
        tokens.push(Token { at, text });
        at += len;
    }
    Ok(tokens)
}

fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.:-/\\$".contains(c)
}

fn sign_len(rest: &str) -> Option<usize> {
    SIGNS.iter().find(|sign| rest.starts_with(**sign)).map(|sign| sign.len())
}

fn strange(rest: &str, at: usize) -> FilterError {
    let c = rest.chars().next().unwrap_or_default();
    let remedy = "expected a word, a number, an address or a sign, as in `tcp port 80`";
    FilterError::new(at, format!("unexpected character {c:?}"), remedy)
}

/// Longer ones come first.
const SIGNS: [&str; 20] = [
    "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "(", ")", "[", "]", "!", "=", "<", ">", "&",
    "|", "+", "*",
];
