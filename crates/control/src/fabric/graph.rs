//! Graph of switches and links: spanning tree for floods, and shortest paths.
//!
//! Every result depends on the set of links alone, not on the order of their discovery, so that a
//! restarted controller computes the same rules.

use std::collections::{BTreeMap, BTreeSet};

use tapswitch_openflow::{DatapathId, PortNo};

use super::shortest::{NextHops, Shortest};
use crate::place::Place;

/// Links in both directions: the port at this end, and the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    links: BTreeMap<DatapathId, BTreeMap<PortNo, (Place, u32)>>,
}

impl Graph {
    /// The graph of these links: both ends, in either order, and the cost.
    pub(crate) fn new(links: impl IntoIterator<Item = (Place, Place, u32)>) -> Self {
        let mut graph = Self::default();
        for (a, b, cost) in links {
            graph.links.entry(a.switch).or_default().insert(a.port, (b, cost));
            graph.links.entry(b.switch).or_default().insert(b.port, (a, cost));
        }
        graph
    }

    /// All switches with links.
    pub(crate) fn switches(&self) -> impl Iterator<Item = DatapathId> {
        self.links.keys().copied()
    }

    /// The other end of a link.
    pub(crate) fn peer(&self, at: Place) -> Option<Place> {
        self.links.get(&at.switch)?.get(&at.port).map(|(peer, _)| *peer)
    }

    /// The ports on a spanning tree of each part: cheapest paths from the lowest datapath id, with
    /// ties broken by the lowest switch and port.
    pub(crate) fn tree(&self) -> BTreeSet<Place> {
        let (mut tree, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for root in self.switches() {
            if seen.contains(&root) {
                continue;
            }
            for (switch, ports) in self.ways_to(root) {
                let port = ports.first().copied();
                let link = port.map(|port| Place { switch, port });
                tree.extend(link.and_then(|at| Some([at, self.peer(at)?])).into_iter().flatten());
                seen.insert(switch);
            }
            seen.insert(root);
        }
        tree
    }

    /// The links of a switch: port, other end and cost.
    pub(crate) fn links_of(
        &self,
        switch: DatapathId,
    ) -> impl Iterator<Item = (PortNo, Place, u32)> {
        let links = self.links.get(&switch).into_iter().flatten();
        links.map(|(port, (peer, cost))| (*port, *peer, *cost))
    }

    /// Next hops to a switch from all others that reach it.
    pub(crate) fn ways_to(&self, destination: DatapathId) -> NextHops {
        let shortest = Shortest::new(self);
        let number = shortest.switches().binary_search(&destination).unwrap_or(usize::MAX);
        shortest.ways_to(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(switch: u64, port: u32) -> Place {
        Place { switch: DatapathId(switch), port: PortNo(port) }
    }

    /// A ring of `count` switches; port 1 leads to the next one, port 2 to the previous one.
    fn ring(count: u64) -> Graph {
        Graph::new((0..count).map(|at| (place(at, 1), place((at + 1) % count, 2), 1)))
    }

    #[test]
    fn a_ring_is_cut_once() {
        let tree = ring(5).tree();
        assert_eq!(tree.len(), 8, "four links of five");
        assert!(!tree.contains(&place(2, 1)) && !tree.contains(&place(3, 2)), "far from the root");
    }

    #[test]
    fn ways_of_the_same_length_are_all_told() {
        let ways = ring(4).ways_to(DatapathId(0));
        assert_eq!(*ways[&DatapathId(1)], [PortNo(2)]);
        assert_eq!(*ways[&DatapathId(2)], [PortNo(1), PortNo(2)]);
        assert_eq!(ways.get(&DatapathId(0)), None);
    }

    #[test]
    fn a_dear_link_is_used_only_where_there_is_no_other() {
        let links = [(place(0, 1), place(1, 1), 1000), (place(0, 2), place(2, 1), 1)];
        let more = [(place(2, 2), place(1, 2), 1), (place(1, 3), place(3, 1), 1000)];
        let graph = Graph::new(links.into_iter().chain(more));
        let ways = graph.ways_to(DatapathId(1));
        assert_eq!(*ways[&DatapathId(0)], [PortNo(2)]);
        assert_eq!(*ways[&DatapathId(3)], [PortNo(1)]);
        assert!(!graph.tree().contains(&place(0, 1)));
    }

    #[test]
    fn parts_that_do_not_meet_have_trees_of_their_own() {
        let graph = Graph::new([(place(1, 1), place(2, 1), 1), (place(3, 1), place(4, 1), 1)]);
        assert_eq!(graph.tree().len(), 4);
        assert_eq!(graph.ways_to(DatapathId(1)).len(), 1);
    }

    proptest! {
        #[test]
        fn a_tree_reaches_every_switch_of_its_part_once(
            links in prop::collection::vec((0..12_u64, 0..12_u64), 0..40),
        ) {
            let links = links.into_iter().zip(1..).filter(|((a, b), _)| a != b);
            let links: Vec<_> =
                links.map(|((a, b), port)| (place(a, port), place(b, port), 1)).collect();
            let graph = Graph::new(links.clone());
            let tree = graph.tree();
            let kept = links.into_iter().filter(|(a, ..)| tree.contains(a));
            let kept = Graph::new(kept);
            for switch in graph.links.keys() {
                let (whole, on_tree) = (graph.ways_to(*switch), kept.ways_to(*switch));
                prop_assert!(whole.keys().eq(on_tree.keys()), "the tree reaches as many");
                prop_assert!(on_tree.values().all(|ports| ports.len() == 1), "on one way");
            }
        }

        #[test]
        fn every_step_leads_nearer(links in prop::collection::vec((0..9_u64, 0..9_u64), 0..30)) {
            let links = links.into_iter().zip(1..).filter(|((a, b), _)| a != b);
            let graph =
                Graph::new(links.map(|((a, b), port)| (place(a, port), place(b, port), 1)));
            let ways = graph.ways_to(DatapathId(0));
            for start in ways.keys() {
                for choice in 0..3 {
                    let (mut at, mut steps) = (*start, 0);
                    while at != DatapathId(0) {
                        let ports = &ways[&at];
                        let port = ports[choice % ports.len()];
                        at = graph.peer(Place { switch: at, port }).unwrap().switch;
                        steps += 1;
                        prop_assert!(steps < 9);
                    }
                }
            }
        }
    }
}
