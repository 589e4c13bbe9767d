//! Shortest paths between all switches.
//!
//! With a thousand switches there are a million pairs, and all of them are looked at whenever a
//! link comes or goes: here switches are numbers, and equal sets of ports are one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::sync::Arc;

use tapswitch_openflow::{DatapathId, PortNo};

use super::Graph;

/// From each switch, the ports that lead one step nearer to a destination: all that are equally
/// short.
pub(crate) type NextHops = BTreeMap<DatapathId, Arc<[PortNo]>>;

/// A graph whose switches are numbers, in the order of their datapath ids.
#[derive(Clone, Debug)]
pub(crate) struct Shortest {
    switches: Vec<DatapathId>,
    links: Vec<Vec<Step>>,
    /// Sets of ports that are there already.
    known: HashSet<Arc<[PortNo]>>,
}

/// A link from one switch to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) port: PortNo,
    /// The number of the other switch.
    pub(crate) peer: usize,
    peer_port: PortNo,
    pub(crate) cost: u64,
}

impl Shortest {
    pub(crate) fn new(graph: &Graph) -> Self {
        let switches: Vec<_> = graph.switches().collect();
        let number = |id: &DatapathId| switches.binary_search(id).ok();
        let links = switches.iter().map(|id| {
            let links = graph.links_of(*id);
            let steps = links.filter_map(|(port, peer, cost)| {
                let (peer, peer_port) = (number(&peer.switch)?, peer.port);
                Some(Step { port, peer, peer_port, cost: cost.into() })
            });
            steps.collect()
        });
        Self { links: links.collect(), switches, known: HashSet::new() }
    }

    /// The switches, by their numbers.
    pub(crate) fn switches(&self) -> &[DatapathId] {
        &self.switches
    }

    /// The links of a switch.
    pub(crate) fn links(&self, number: usize) -> &[Step] {
        self.links.get(number).map_or(&[], Vec::as_slice)
    }

    /// The ways to a switch from all others that reach it, and what they cost from each, by number:
    /// [`FAR`] where there is none. (Dijkstra's algorithm.)
    pub(crate) fn ways_to(&mut self, destination: usize) -> (NextHops, Vec<u64>) {
        let mut costs = vec![FAR; self.switches.len()];
        let mut hops: Vec<Vec<PortNo>> = vec![Vec::new(); self.switches.len()];
        if let Some(cost) = costs.get_mut(destination) {
            *cost = 0;
        }
        let mut queue = BinaryHeap::from([Reverse((0, destination))]);
        while let Some(Reverse((cost, at))) = queue.pop() {
            if costs.get(at).is_none_or(|known| *known < cost) {
                continue;
            }
            for step in self.links.get(at).into_iter().flatten() {
                let through = cost + step.cost;
                let (Some(known), Some(ports)) =
                    (costs.get_mut(step.peer), hops.get_mut(step.peer))
                else {
                    continue;
                };
                if *known < through || step.peer == destination {
                    continue;
                }
                if *known > through {
                    *known = through;
                    ports.clear();
                    queue.push(Reverse((through, step.peer)));
                }
                ports.push(step.peer_port);
            }
        }
        let ways = self.switches.iter().zip(hops).filter(|(_, ports)| !ports.is_empty());
        let known = &mut self.known;
        (ways.map(|(id, ports)| (*id, shared(known, ports))).collect(), costs)
    }
}

/// The set of these ports that is there already, if there is one.
fn shared(known: &mut HashSet<Arc<[PortNo]>>, mut ports: Vec<PortNo>) -> Arc<[PortNo]> {
    ports.sort_unstable();
    if let Some(known) = known.get(ports.as_slice()) {
        return known.clone();
    }
    let ports: Arc<[PortNo]> = ports.into();
    known.insert(ports.clone());
    ports
}

/// More than any way costs.
const FAR: u64 = u64::MAX / 4;
