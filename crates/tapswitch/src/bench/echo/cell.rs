//! The measurements: every meaningful combination.

use serde::Serialize;

use super::means::Means;
use super::swap::Layer;
use super::traffic::Traffic;

/// One measurement of one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Cell {
    pub(super) layer: Layer,
    pub(super) traffic: Traffic,
    pub(super) queues: u16,
    /// All offloads enabled, or none.
    pub(super) offloads: bool,
    pub(super) means: Means,
}

impl Cell {
    /// All of them, in the order of the report. Candidates of the same task are consecutive, so
    /// that changes of the machine affect all of them alike.
    pub(super) fn all(means: &[Means], queues: &[u16]) -> impl Iterator<Item = Self> {
        let layers = [Layer::Tap, Layer::Tun].into_iter();
        let tasks = layers.flat_map(move |layer| {
            [Traffic::Tcp, Traffic::Udp].into_iter().flat_map(move |traffic| {
                queues.iter().flat_map(move |&queues| {
                    [false, true].map(|offloads| (layer, traffic, queues, offloads))
                })
            })
        });
        tasks.flat_map(move |(layer, traffic, queues, offloads)| {
            let able = means.iter().filter(move |means| means.knows(layer));
            able.map(move |&means| Self { layer, traffic, queues, offloads, means })
        })
    }

    /// The same with another candidate.
    pub(super) fn by(self, means: Means) -> Self {
        Self { means, ..self }
    }

    /// The same tasks by the bare loop, each with the candidates that can share its device.
    pub(super) fn shared(
        means: &[Means],
        queues: &[u16],
    ) -> impl Iterator<Item = (Self, Vec<Means>)> {
        Self::all(&[Means::Bare], queues).map(|cell| {
            let able = |means: &&Means| means.shares() && means.knows(cell.layer);
            (cell, means.iter().filter(able).copied().collect())
        })
    }

    /// The same without offloads.
    pub(super) fn without_offloads(self) -> Self {
        Self { offloads: false, ..self }
    }

    /// Number of flows of the traffic: enough to reach every queue.
    pub(super) fn flows(self) -> usize {
        if self.queues == 1 { 1 } else { usize::from(self.queues) * FLOWS_PER_QUEUE }
    }

    /// Description without the candidate.
    pub(super) fn task(self) -> String {
        let Self { layer, traffic, queues, offloads, .. } = self;
        let queues = if queues == 1 { "1 queue".to_owned() } else { format!("{queues} queues") };
        let (layer, traffic) = (layer.name(), traffic.name());
        format!("{layer}, {traffic}, {queues}, offloads {}", if offloads { "on" } else { "off" })
    }
}

/// Default steering hashes flows: with this many, an unused queue is unlikely.
const FLOWS_PER_QUEUE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_combination_is_there_once() {
        let means = [Means::Bare, Means::Drain, Means::Uring, Means::TunRs];
        let all: Vec<_> = Cell::all(&means, &[1, 2]).collect();
        let taps = all.iter().filter(|cell| cell.layer == Layer::Tap);
        assert_eq!(taps.count(), 2 * 2 * 2 * 3, "three candidates on tap devices");
        assert_eq!(all.len(), 2 * 2 * 2 * (3 + 3), "and three on tun devices");
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted, all, "in order, each once");
    }
}
