//! Serialisation of values that people write as text.
//!
//! Such a value is read through its `FromStr` from a TOML or JSON string, or from a number by its
//! decimal digits (`vlan = 100`, `monitor = 3`).

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};
use tapswitch_openflow::DatapathId;

/// A text is not a valid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: expected {expected}")]
#[non_exhaustive]
pub struct ParseTextError {
    /// The text.
    pub text: String,
    /// The expected form.
    pub expected: &'static str,
}

impl ParseTextError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// A number of things, of which one is called `one`: `1 packet`, `2 packets`, `2 policies`.
#[must_use]
pub fn counted(count: impl fmt::Display + PartialEq + From<u8> + Copy, one: &str) -> String {
    match one.strip_suffix('y') {
        _ if count == 1.into() => format!("1 {one}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {one}s"),
    }
}

/// The item of `all` with this text form.
pub(crate) fn word_of<T: fmt::Display, const N: usize>(
    all: [T; N],
    text: &str,
    expected: &'static str,
) -> Result<T, ParseTextError> {
    let found = all.into_iter().find(|word| word.to_string() == text);
    found.ok_or_else(|| ParseTextError::new(text, expected))
}

/// Text form of a datapath id: `0x1`.
pub(crate) fn switch_name(switch: DatapathId) -> String {
    format!("{:#x}", switch.0)
}

/// Parses a datapath id: hexadecimal after `0x`, or all sixteen digits.
///
/// # Errors
/// The text is not a datapath id.
pub fn parse_switch_name(text: &str) -> Result<DatapathId, ParseTextError> {
    let digits = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => Some(digits),
        None => (text.len() == 16).then_some(text),
    };
    let is_hex = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits
        .filter(is_hex)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .map(DatapathId)
        .ok_or_else(|| ParseTextError::new(text, "a datapath id in hexadecimal, as in 0x1"))
}

/// `#[serde(with)]` for types with `Display` and `FromStr`.
pub(crate) mod as_text {
    use super::*;

    pub(crate) fn serialize<T: fmt::Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        deserializer.deserialize_any(TextVisitor(PhantomData))
    }
}

/// `#[serde(with)]` for optional fields of such types, together with `default`.
pub(crate) mod as_optional_text {
    use super::*;

    pub(crate) fn serialize<T: fmt::Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        deserializer.deserialize_option(OptionVisitor(PhantomData))
    }
}

/// `#[serde(with)]` for lists of such types.
pub(crate) mod as_texts {
    use serde::ser::SerializeSeq;
    use serde::{Deserialize, de};

    use super::*;

    pub(crate) fn serialize<T: fmt::Display, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(values.len()))?;
        values.iter().try_for_each(|value| seq.serialize_element(&value.to_string()))?;
        seq.end()
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
    }
}

/// `#[serde(with)]` for datapath ids.
pub(crate) mod as_switch_name {
    use serde::Deserialize;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        switch: &DatapathId,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&switch_name(*switch))
    }

    pub(crate) fn deserialize<'de, D>(deserializer: D) -> Result<DatapathId, D::Error>
    where
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        parse_switch_name(&text).map_err(D::Error::custom)
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

struct OptionVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for OptionVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        as_text::deserialize(deserializer).map(Some)
    }
}

/// 32-bit FNV-1a hash, the same in each run of the controller.
pub(crate) fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_named_in_hexadecimal() {
        for (text, id) in [("0x1", 1), ("0Xff", 255), ("00000000000000ab", 0xab)] {
            assert_eq!(parse_switch_name(text), Ok(DatapathId(id)), "{text}");
        }
        for text in ["", "1", "0x", "0x+1", "0xg", "0x11111111111111111", "mon0"] {
            assert!(parse_switch_name(text).is_err(), "{text}");
        }
        assert_eq!(switch_name(DatapathId(0xab)), "0xab");
    }
}
