//! The form that copies have, where they are taken, and how they travel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ParseTextError, word_of};

/// What becomes of the VLAN tags of copies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Tagging {
    /// Copies have the tags of what was copied.
    #[default]
    Keep,
    /// Copies have lost the two outermost tags, as far as there are any; those that a switch makes
    /// which is not ours, the outermost one.
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
        word_of([Self::Keep, Self::Strip], text, "keep or strip")
    }
}

/// Where in the fabric a frame is copied (an observation point, RFC 7011 §2): before or after what
/// rules of others rewrite in it between the two. Those of the controller rewrite nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// Where a host sends it: as it comes in, before any rewrite.
    Ingress,
    /// At the switch of the host that it is for: as it goes out, after all rewrites on the way.
    Egress,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

impl FromStr for Point {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        word_of([Self::Ingress, Self::Egress], text, "ingress or egress")
    }
}

/// How copies travel to a monitor at another switch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// With one more tag (802.1ad) on the way.
    #[default]
    Svlan,
    /// Copied at [`Point::Egress`], and on the way with an address of the monitor's in the place of
    /// that host's, which is put back at the monitor's switch.
    Rewrite,
}

impl Transport {
    pub(crate) fn is_svlan(&self) -> bool {
        *self == Self::Svlan
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Svlan => "svlan",
            Self::Rewrite => "rewrite",
        })
    }
}

impl FromStr for Transport {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        word_of([Self::Svlan, Self::Rewrite], text, "svlan or rewrite")
    }
}
