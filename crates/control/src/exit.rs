//! Exits of a switch: to a port of its own, or through other switches to a port of one of them.

use std::sync::Arc;

use tapswitch_openflow::{DatapathId, PortNo};

use crate::place::Place;

/// An exit of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Exit {
    /// Output port of this switch.
    pub(crate) port: PortNo,
    /// Final port, if it is on another switch.
    pub(crate) beyond: Option<Place>,
    /// Final ports among which flows are spread; `beyond` or `port` is the first of them.
    pub(crate) spread: Option<Spread>,
}

impl Exit {
    /// An exit at a port of the switch itself.
    pub(crate) const fn here(port: PortNo) -> Self {
        Self { port, beyond: None, spread: None }
    }

    /// The same exit, with several final ports.
    pub(crate) const fn spread(self, spread: Option<Spread>) -> Self {
        Self { spread, ..self }
    }

    /// Ports of this switch among which flows are spread.
    pub(crate) fn spread_here(self) -> Option<Spread> {
        self.spread.filter(|_| self.beyond.is_none())
    }

    /// Whether a frame that leaves by `original` reaches the final port, or one of several.
    pub(crate) fn is_reached_by(self, original: Self) -> bool {
        match (self.spread, self.beyond, original.beyond) {
            (None, None, _) => self == original,
            // On any path.
            (None, Some(end), _) => original.beyond == Some(end),
            (Some(spread), None, None) => spread.ports().contains(&original.port),
            (Some(spread), Some(end), Some(to)) => {
                end.switch == to.switch && spread.ports().contains(&to.port)
            }
            (Some(_), ..) => false,
        }
    }

    /// The final port, seen from `switch`.
    pub(crate) fn end(self, switch: DatapathId) -> Place {
        self.beyond.unwrap_or(Place { switch, port: self.port })
    }
}

/// Ports of one switch; each flow uses one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spread {
    ports: [PortNo; MAX_SPREAD],
    count: u8,
}

impl Spread {
    /// The first of these, up to the maximum; `None` for fewer than two.
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

/// Maximum ports of a spread.
pub(crate) const MAX_SPREAD: usize = 8;

/// Route to a host: one exit, or several among which the switch itself chooses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    /// The only exit, or the one used by a switch that cannot choose.
    pub(crate) exit: Exit,
    /// The alternatives, if any.
    pub(crate) fork: Option<Fork>,
}

impl Route {
    /// The route without its alternatives.
    pub(crate) const fn single(&self) -> Self {
        Self { exit: self.exit, fork: None }
    }
}

impl From<Exit> for Route {
    fn from(exit: Exit) -> Self {
        Self { exit, fork: None }
    }
}

/// Ports to other switches; the switch chooses one that is live.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fork {
    pub(crate) kind: ForkKind,
    pub(crate) ports: Arc<[PortNo]>,
}

/// How one of several ports is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ForkKind {
    /// By a hash of the flow; all are equally near.
    Balance,
    /// The first live one; the others are detours.
    FailOver,
}

/// Flood ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Flood {
    /// All ports of the switch.
    #[default]
    All,
    /// These: edges, and links of the spanning tree.
    Ports(Arc<[PortNo]>),
}

impl Flood {
    /// The ports as OpenFlow output ports.
    pub(crate) fn ports(&self) -> &[PortNo] {
        match self {
            Self::All => &[PortNo::FLOOD],
            Self::Ports(ports) => ports,
        }
    }
}
