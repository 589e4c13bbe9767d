//! The form that copies have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::ParseTextError;

/// What becomes of the VLAN tags of copies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Tagging {
    /// Copies have the tags of what was copied.
    #[default]
    Keep,
    /// Copies have lost the two outermost tags, as far as there are any. OpenFlow has one action
    /// that takes one tag away, and no way to say "all of them".
    Strip,
}

impl Tagging {
    pub(crate) fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

impl fmt::Display for Tagging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "keep",
            Self::Strip => "strip",
        })
    }
}

impl FromStr for Tagging {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Keep, Self::Strip];
        let found = all.into_iter().find(|word| word.to_string() == text);
        found.ok_or_else(|| ParseTextError::new(text, "keep or strip"))
    }
}
