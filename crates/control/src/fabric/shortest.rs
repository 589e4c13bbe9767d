//! Shortest paths between all switches.
//!
//! A thousand switches are a million pairs, and all are computed whenever a link changes; so
//! switches are indices here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use tapswitch_openflow::{DatapathId, PortNo};

use super::Graph;

/// For each switch, the ports on a shortest path to a destination: all equally short ones.
pub(crate) type NextHops = BTreeMap<DatapathId, Arc<[PortNo]>>;

/// A graph whose switches are indices, in the order of their datapath ids.
#[derive(Clone, Debug)]
pub(crate) struct Shortest {
    switches: Vec<DatapathId>,
    links: Vec<Vec<Step>>,
}

/// A link from one switch to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) port: PortNo,
    /// Index of the other switch.
    pub(crate) peer: usize,
    pub(crate) cost: u64,
}

impl Shortest {
    pub(crate) fn new(graph: &Graph) -> Self {
        let switches: Vec<_> = graph.switches().collect();
        let number = |id: &DatapathId| switches.binary_search(id).ok();
        let links = switches.iter().map(|id| {
            let links = graph.links_of(*id);
            let steps = links.filter_map(|(port, peer, cost)| {
                Some(Step { port, peer: number(&peer.switch)?, cost: cost.into() })
            });
            steps.collect()
        });
        Self { links: links.collect(), switches }
    }

    /// The switches by index.
    pub(crate) fn switches(&self) -> &[DatapathId] {
        &self.switches
    }

    /// The links of a switch, ordered by port.
    pub(crate) fn links(&self, number: usize) -> &[Step] {
        self.links.get(number).map_or(&[], Vec::as_slice)
    }

    /// Cost of the path to `destination` from each switch, by index; [`FAR`] if there is none.
    /// (Dijkstra's algorithm; links cost the same in both directions.)
    pub(crate) fn costs_to(&self, destination: usize) -> Vec<u64> {
        let mut costs = vec![FAR; self.switches.len()];
        if let Some(cost) = costs.get_mut(destination) {
            *cost = 0;
        }
        let mut queue = BinaryHeap::from([Reverse((0, destination))]);
        while let Some(Reverse((cost, at))) = queue.pop() {
            if costs.get(at).is_none_or(|known| *known < cost) {
                continue;
            }
            for step in self.links(at) {
                let through = cost + step.cost;
                if let Some(known) = costs.get_mut(step.peer).filter(|known| **known > through) {
                    *known = through;
                    queue.push(Reverse((through, step.peer)));
                }
            }
        }
        costs
    }

    /// The ports of a switch on a shortest path to where `costs` lead, all equally short ones;
    /// `ports` receives them.
    pub(crate) fn nearest(&self, from: usize, costs: &[u64], ports: &mut Vec<PortNo>) {
        ports.clear();
        let Some(&own) = costs.get(from).filter(|own| **own < FAR) else { return };
        let is_nearer = |step: &&Step| {
            let on = costs.get(step.peer).copied().unwrap_or(FAR);
            on.saturating_add(step.cost) == own
        };
        ports.extend(self.links(from).iter().filter(is_nearer).map(|step| step.port));
    }

    /// Next hops to a switch from all others that reach it.
    pub(crate) fn ways_to(&self, destination: usize) -> NextHops {
        let costs = self.costs_to(destination);
        let ways = self.switches.iter().enumerate().map(|(from, id)| {
            let mut ports = Vec::new();
            self.nearest(from, &costs, &mut ports);
            (*id, Arc::from(ports))
        });
        ways.filter(|(_, ports): &(_, Arc<[PortNo]>)| !ports.is_empty()).collect()
    }
}

/// More than any path costs.
const FAR: u64 = u64::MAX / 4;
