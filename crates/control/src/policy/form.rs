//! Form of the copies, observation point, and transport.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ParseTextError, word_of};

/// Handling of VLAN tags in copies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Tagging {
    /// Copies keep the tags of the frame.
    #[default]
    Keep,
    /// Copies lose the two outermost tags, if present; those made by a foreign switch lose only the
    /// outermost one.
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

/// Observation point in the fabric (RFC 7011 §2): before or after other controllers' rules rewrite
/// the frame on its path. Our own rules rewrite nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// At the sending host's switch: as received, before any rewrite.
    Ingress,
    /// At the destination host's switch: as sent, after all rewrites on the path.
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
    /// With an additional 802.1ad tag.
    #[default]
    Svlan,
    /// Copied at [`Point::Egress`]; the destination address is replaced on the way by one of the
    /// monitor's, and restored at the monitor's switch.
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
