//! Shaping of copies before they go to their monitor: truncation and sampling.
//!
//! OpenFlow 1.3 has neither, so both are experimenter actions (§7.2.5) in a bucket, like the
//! delivery contract ([`Delivery`](crate::Delivery)). Layout after the experimenter id
//! ([`EXPERIMENTER`](crate::EXPERIMENTER)): 16 bits for the action, 16 zero bits, and a 32-bit
//! number.
//!
//! The text form is `truncate:128` or `sample:1/10`.

use std::fmt;
use std::str::FromStr;

/// How a bucket's copies are shaped. Each kind occurs at most once in a bucket, at any position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Keeps the first bytes of each packet, counted from its Ethernet header at egress. In a train
    /// this applies to each packet; checksums remain those of the whole packets.
    Truncate {
        /// Bytes to keep: at least [`Self::TRUNCATE_MIN`].
        len: u16,
    },
    /// Sends one of every `every` copies, at a random position among them. A train counts as one
    /// copy.
    Sample {
        /// Sampling interval; 1 for all, never zero.
        every: u32,
    },
}

impl Shape {
    /// Smallest truncation length: the Ethernet header.
    pub const TRUNCATE_MIN: u16 = 14;

    /// Data of the action after the experimenter id.
    pub(crate) fn to_data(self) -> Vec<u8> {
        let (kind, number) = match self {
            Self::Truncate { len } => (TRUNCATE, len.into()),
            Self::Sample { every } => (SAMPLE, every),
        };
        let [a, b] = kind.to_be_bytes();
        [&[a, b, 0, 0], &number.to_be_bytes()[..]].concat()
    }

    /// Decodes the data of an action; `None` if it is another action or malformed.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        let &[a, b, 0, 0, ref number @ ..] = data else { return None };
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let shape = match u16::from_be_bytes([a, b]) {
            TRUNCATE => Self::Truncate { len: number.try_into().ok()? },
            SAMPLE => Self::Sample { every: number },
            _ => return None,
        };
        shape.is_possible().then_some(shape)
    }

    fn is_possible(self) -> bool {
        match self {
            Self::Truncate { len } => len >= Self::TRUNCATE_MIN,
            Self::Sample { every } => every > 0,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncate { len } => write!(f, "truncate:{len}"),
            Self::Sample { every } => write!(f, "sample:1/{every}"),
        }
    }
}

impl FromStr for Shape {
    type Err = ParseShapeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let truncate = |text: &str| text.parse().ok().map(|len| Self::Truncate { len });
        let sample = |text: &str| text.parse().ok().map(|every| Self::Sample { every });
        let shape = match (text.strip_prefix("truncate:"), text.strip_prefix("sample:1/")) {
            (Some(len), _) => truncate(len),
            (_, Some(every)) => sample(every),
            _ => None,
        };
        let shape = shape.filter(|shape| shape.is_possible());
        shape.ok_or_else(|| ParseShapeError { text: text.to_owned() })
    }
}

/// The text is not a valid shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: expected truncate:128 (bytes of each packet, 14 to 65535) or sample:1/10 (one copy \
     of every ten, 1 to 4294967295)"
)]
#[non_exhaustive]
pub struct ParseShapeError {
    /// The text.
    pub text: String,
}

const TRUNCATE: u16 = 2;
const SAMPLE: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Delivery, EXPERIMENTER};

    #[test]
    fn an_action_says_what_it_was_made_for() {
        for shape in [
            Shape::Truncate { len: 14 },
            Shape::Truncate { len: 65_535 },
            Shape::Sample { every: 1 },
            Shape::Sample { every: u32::MAX },
        ] {
            assert_eq!(Shape::of(&shape.action()), Some(shape));
            assert_eq!(shape.to_string().parse(), Ok(shape));
            assert_eq!(shape.action().to_string(), shape.to_string());
            assert_eq!(Delivery::of(&shape.action()), None);
        }
        assert_eq!(Shape::of(&Delivery::BestEffort.action()), None);
        assert_eq!(Shape::of(&Action::DecNwTtl), None);
    }

    #[test]
    fn what_cannot_be_done_is_no_shape() {
        for data in [
            &[][..],
            &[0, 2],
            &[0, 2, 0, 0, 0, 0, 0, 13],
            &[0, 2, 0, 0, 0, 1, 0, 0],
            &[0, 2, 0, 1, 0, 0, 0, 64],
            &[0, 2, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0, 3, 0, 0, 0, 0, 0, 0],
            &[0, 4, 0, 0, 0, 0, 0, 64],
        ] {
            let action = Action::Experimenter { experimenter: EXPERIMENTER, data: data.into() };
            assert_eq!(Shape::of(&action), None, "{data:?}");
        }
        for text in ["", "truncate:", "truncate:13", "truncate:65536", "sample:10", "sample:1/0"] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(error.contains("expected truncate:128"), "{error}");
        }
    }
}
