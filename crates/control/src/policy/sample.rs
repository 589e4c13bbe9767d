//! Sampling ratio of a policy.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::{ParseTextError, as_text};

/// One of every so many frames, as text `1/10`. A train counts as one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sample(pub NonZeroU32);

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.0)
    }
}

impl FromStr for Sample {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let every = text.strip_prefix("1/").unwrap_or(text);
        let is_number = every.bytes().all(|byte| byte.is_ascii_digit());
        let every = is_number.then(|| every.parse().ok()).flatten();
        every.map(Self).ok_or_else(|| ParseTextError::new(text, EXPECTED))
    }
}

impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Sample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

const EXPECTED: &str = "a sampling ratio, as in 1/10 or 10";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_shown() {
        for text in ["1/10", "10"] {
            assert_eq!(text.parse::<Sample>().unwrap().to_string(), "1/10");
        }
        for text in ["", "0", "1/0", "2/3", "1/", "-1", "1/x"] {
            assert_eq!(text.parse::<Sample>().unwrap_err().expected, EXPECTED, "{text}");
        }
    }
}
