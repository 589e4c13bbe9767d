//! Shortest paths between all switches.
//!
//! With a thousand switches there are a million pairs, and all of them are looked at whenever a
//! link comes or goes: so switches are numbers here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
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
}

/// A link from one switch to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) port: PortNo,
    /// The number of the other switch.
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

    /// The switches, by their numbers.
    pub(crate) fn switches(&self) -> &[DatapathId] {
        &self.switches
    }

    /// The links of a switch, in the order of its ports.
    pub(crate) fn links(&self, number: usize) -> &[Step] {
        self.links.get(number).map_or(&[], Vec::as_slice)
    }

    /// What the way to a switch costs from each, by number: [`FAR`] where there is none.
    /// (Dijkstra's algorithm; links cost the same both ways.)
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

    /// The ports of a switch that lead nearer to where the costs are to, all that are equally
    /// short; `ports` is what they are put into.
    pub(crate) fn nearest(&self, from: usize, costs: &[u64], ports: &mut Vec<PortNo>) {
        ports.clear();
        let Some(&own) = costs.get(from).filter(|own| **own < FAR) else { return };
        let is_nearer = |step: &&Step| {
            let on = costs.get(step.peer).copied().unwrap_or(FAR);
            on.saturating_add(step.cost) == own
        };
        ports.extend(self.links(from).iter().filter(is_nearer).map(|step| step.port));
    }

    /// The ways to a switch from all others that reach it.
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

/// More than any way costs.
const FAR: u64 = u64::MAX / 4;
