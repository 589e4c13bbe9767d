//! Ways out of a switch: to a port of its own, or through others to a port of another one.

use std::sync::Arc;

use tapswitch_openflow::{DatapathId, PortNo};

use crate::resolve::Place;

/// A way out of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Exit {
    /// The port of this switch.
    pub(crate) port: PortNo,
    /// Where it ends, when that is on another switch.
    pub(crate) beyond: Option<Place>,
}

impl Exit {
    /// A port of the switch itself.
    pub(crate) const fn here(port: PortNo) -> Self {
        Self { port, beyond: None }
    }

    /// Where it ends, seen from `switch`.
    pub(crate) fn end(self, switch: DatapathId) -> Place {
        self.beyond.unwrap_or(Place { switch, port: self.port })
    }
}

/// Where frames go that go everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Flood {
    /// Out of all ports of the switch.
    #[default]
    All,
    /// Out of these: edges, and links of the spanning tree.
    Ports(Arc<[PortNo]>),
}

impl Flood {
    /// The ports as OpenFlow names them.
    pub(crate) fn ports(&self) -> &[PortNo] {
        match self {
            Self::All => &[PortNo::FLOOD],
            Self::Ports(ports) => ports,
        }
    }
}
