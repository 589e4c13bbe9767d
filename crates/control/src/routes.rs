//! The ways between switches, and which of several equally short ones is taken.

use std::collections::BTreeMap;

use tapswitch_openflow::{DatapathId, PortNo};

use crate::exit::Exit;
use crate::fabric::{Graph, NextHops};
use crate::resolve::Place;

/// The ways between all switches that are linked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    graph: Graph,
    /// By destination.
    ways: BTreeMap<DatapathId, NextHops>,
}

impl Routes {
    /// The ways by these links.
    pub(crate) fn new(graph: Graph) -> Self {
        let ways = graph.switches().map(|switch| (switch, graph.ways_to(switch))).collect();
        Self { graph, ways }
    }

    /// The way from a switch to a port, of that switch or of another one.
    pub(crate) fn exit(&self, from: DatapathId, to: Place) -> Option<Exit> {
        if from == to.switch || to == Place::CONTROLLER {
            return Some(Exit::here(to.port));
        }
        let port = pick(self.ways.get(&to.switch)?.get(&from)?, to)?;
        Some(Exit { port, beyond: Some(to) })
    }

    /// The switches that reach a port of another one, that one left out.
    pub(crate) fn sources(&self, to: Place) -> impl Iterator<Item = DatapathId> {
        self.ways.get(&to.switch).into_iter().flat_map(|hops| hops.keys().copied())
    }

    /// The switches that frames for a port come through behind this one; that of the port is the
    /// last.
    pub(crate) fn behind(&self, from: DatapathId, to: Place) -> impl Iterator<Item = DatapathId> {
        let next = move |at: &DatapathId| {
            let Exit { port, beyond } = self.exit(*at, to)?;
            beyond?;
            Some(self.graph.peer(Place { switch: *at, port })?.switch)
        };
        std::iter::successors(Some(from), next).skip(1)
    }

    /// The ports that frames for a port leave by and come in by, from one switch on.
    pub(crate) fn path(&self, from: DatapathId, to: Place) -> Vec<Place> {
        let mut path = Vec::new();
        let mut at = from;
        while at != to.switch
            && let Some(exit) = self.exit(at, to)
            && let Some(peer) = self.graph.peer(Place { switch: at, port: exit.port })
        {
            path.extend([Place { switch: at, port: exit.port }, peer]);
            at = peer.switch;
        }
        path.push(to);
        path
    }

    /// Whether the two are linked, through others or not.
    pub(crate) fn connects(&self, a: DatapathId, b: DatapathId) -> bool {
        a == b || self.ways.get(&a).is_some_and(|hops| hops.contains_key(&b))
    }
}

/// One of several ports: the same one each time for the same destination, different ones for
/// different ones.
fn pick(ports: &[PortNo], to: Place) -> Option<PortNo> {
    let mixed =
        (to.switch.0 ^ u64::from(to.port.0) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let index = usize::try_from(mixed).unwrap_or(0).checked_rem(ports.len())?;
    ports.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(switch: u64, port: u32) -> Place {
        Place { switch: DatapathId(switch), port: PortNo(port) }
    }

    /// 1 – 2 – 3 in a line, and 4 on its own. Ports 1 lead down, ports 2 up.
    fn line() -> Routes {
        let links = [(place(1, 2), place(2, 1)), (place(2, 2), place(3, 1))];
        Routes::new(Graph::new(links.map(|(a, b)| (a, b, 1))))
    }

    #[test]
    fn a_way_goes_from_port_to_port() {
        let routes = line();
        let to = place(3, 9);
        let path = [place(1, 2), place(2, 1), place(2, 2), place(3, 1), to];
        assert_eq!(routes.path(DatapathId(1), to), path);
        assert_eq!(routes.exit(DatapathId(3), to), Some(Exit::here(PortNo(9))));
        assert_eq!(routes.exit(DatapathId(4), to), None);
        assert!(routes.connects(DatapathId(1), DatapathId(3)));
        assert!(!routes.connects(DatapathId(1), DatapathId(4)));
    }

    #[test]
    fn those_in_between_and_at_the_end_are_behind() {
        let behind = |from| line().behind(DatapathId(from), place(3, 9)).collect::<Vec<_>>();
        assert_eq!(behind(1), [DatapathId(2), DatapathId(3)]);
        assert_eq!((behind(3), behind(4)), (vec![], vec![]));
    }
}
