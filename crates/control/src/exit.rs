//! Ways out of a switch: to a port of its own, or through others to a port of another one.

use std::sync::Arc;

use tapswitch_openflow::{DatapathId, PortNo};

use crate::place::Place;

/// A way out of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Exit {
    /// The port of this switch.
    pub(crate) port: PortNo,
    /// Where it ends, when that is on another switch.
    pub(crate) beyond: Option<Place>,
    /// The ports among which flows are shared where it ends; the end above is the first of them.
    pub(crate) spread: Option<Spread>,
}

impl Exit {
    /// A port of the switch itself.
    pub(crate) const fn here(port: PortNo) -> Self {
        Self { port, beyond: None, spread: None }
    }

    /// The same, ending at several ports.
    pub(crate) const fn spread(self, spread: Option<Spread>) -> Self {
        Self { spread, ..self }
    }

    /// The ports of this switch among which flows are shared.
    pub(crate) fn spread_here(self) -> Option<Spread> {
        self.spread.filter(|_| self.beyond.is_none())
    }

    /// Whether a frame that leaves by `original` reaches the end, or one of several.
    pub(crate) fn is_reached_by(self, original: Self) -> bool {
        match (self.spread, self.beyond, original.beyond) {
            (None, None, _) => self == original,
            // On whatever way it goes there.
            (None, Some(end), _) => original.beyond == Some(end),
            (Some(spread), None, None) => spread.ports().contains(&original.port),
            (Some(spread), Some(end), Some(to)) => {
                end.switch == to.switch && spread.ports().contains(&to.port)
            }
            (Some(_), ..) => false,
        }
    }

    /// Where it ends, seen from `switch`.
    pub(crate) fn end(self, switch: DatapathId) -> Place {
        self.beyond.unwrap_or(Place { switch, port: self.port })
    }
}

/// Ports of one switch, each flow of which takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spread {
    ports: [PortNo; MAX_SPREAD],
    count: u8,
}

impl Spread {
    /// These, as many as there is room for; `None` when there are not several.
    pub(crate) fn new(ports: &[PortNo]) -> Option<Self> {
        let mut spread = Self { ports: [PortNo(0); MAX_SPREAD], count: 0 };
        for (place, port) in spread.ports.iter_mut().zip(ports) {
            *place = *port;
            spread.count += 1;
        }
        (spread.count > 1).then_some(spread)
    }

    /// The ports.
    pub(crate) fn ports(&self) -> &[PortNo] {
        self.ports.get(..usize::from(self.count)).unwrap_or_default()
    }
}

/// Ports among which flows are shared.
pub(crate) const MAX_SPREAD: usize = 8;

/// How a switch forwards to a host: by one exit, or by several of which it picks one itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    /// The only one, or the one that a switch takes which cannot pick.
    pub(crate) exit: Exit,
    /// Where it leaves, if not always there.
    pub(crate) fork: Option<Fork>,
}

impl Route {
    /// The same by its one exit.
    pub(crate) const fn single(&self) -> Self {
        Self { exit: self.exit, fork: None }
    }
}

impl From<Exit> for Route {
    fn from(exit: Exit) -> Self {
        Self { exit, fork: None }
    }
}

/// Ports to other switches, of which a switch itself picks one that has a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fork {
    pub(crate) kind: ForkKind,
    pub(crate) ports: Arc<[PortNo]>,
}

/// How one of several ports is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ForkKind {
    /// By the flow: all are equally near.
    Balance,
    /// The first one that has a link: the others are detours.
    FailOver,
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
