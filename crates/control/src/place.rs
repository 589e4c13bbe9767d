//! Ports of all switches of a fabric.

use std::fmt;

use tapswitch_openflow::{DatapathId, PortNo};

use crate::text::switch_name;

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) switch: DatapathId,
    pub(crate) port: PortNo,
}

impl Place {
    /// The controller, as seen from any switch.
    pub(crate) const CONTROLLER: Self =
        Self { switch: DatapathId(u64::MAX), port: PortNo::CONTROLLER };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::CONTROLLER => f.write_str("the controller"),
            Self { switch, port } => write!(f, "{}/{port}", switch_name(switch)),
        }
    }
}
