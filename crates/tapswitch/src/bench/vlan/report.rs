//! The results, as a table and as data.

use serde::Serialize;

use crate::bench::machine::Machine;
use crate::bench::paired::{Paired, Ratio, Verdict};
use crate::table::{print, table};

use super::stage::{Cores, LinkKind};
use super::workload::{Traffic, Workload};
use super::{Total, VlanArgs};

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    cores: Cores,
    link: LinkKind,
    gro: String,
    rounds: u64,
    window_ms: u64,
    rows: Vec<Row>,
}

/// One traffic with one number of tags.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    traffic: Traffic,
    flows: usize,
    tags: usize,
    unit: &'static str,
    /// Received payload.
    median: f64,
    /// Ratio to the rate without tags.
    to_untagged: Option<Ratio>,
    /// Goal of that ratio.
    goal: Option<f64>,
    verdict: Option<Verdict>,
    /// Wire packets per frame on the link.
    link_train_len: f64,
    /// Wire packets per frame at the receiver.
    host_train_len: f64,
    /// CPU time of both switches for each wire packet that reached the receiver, including the
    /// kernel's work on their behalf, such as its stack after a write.
    switch_ns_per_packet: f64,
    /// Ratio of the CPU time to that without tags. It excludes other load on the machine, so it is
    /// more stable than the ratio of rates.
    cost_to_untagged: Option<Ratio>,
    /// Frames that a switch dropped.
    dropped_frames: u64,
    /// Bytes of datagrams that did not arrive.
    lost_bytes: u64,
}

impl Row {
    pub(super) fn new(
        workload: Workload,
        tags: usize,
        [rates, costs]: [&Paired; 2],
        total: Total,
    ) -> Self {
        let Workload { traffic, flows } = workload;
        let to_untagged = (tags > 0).then(|| rates.ratio(tags, 0));
        // The paper is about stacked tags.
        let goal = (tags > 1).then(|| traffic.goal());
        let passage = total.passage;
        Self {
            traffic,
            flows,
            tags,
            unit: traffic.unit(),
            median: rates.rate(tags),
            to_untagged,
            goal,
            verdict: to_untagged.zip(goal).map(|(ratio, goal)| ratio.verdict(goal)),
            link_train_len: quotient(passage.link_packets, passage.link_frames),
            host_train_len: quotient(passage.host_packets, passage.host_frames),
            switch_ns_per_packet: costs.rate(tags),
            cost_to_untagged: (tags > 0).then(|| costs.ratio(tags, 0)),
            dropped_frames: passage.drops,
            lost_bytes: total.lost,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
fn quotient(sum: u64, count: u64) -> f64 {
    sum as f64 / count.max(1) as f64
}

impl Report {
    pub(super) fn new(args: &VlanArgs, cores: Cores, rows: Vec<Row>) -> Self {
        let (rounds, window_ms, link) = (args.rounds, args.window, args.link);
        let gro = args.gro.clone();
        Self { machine: Machine::look(), cores, link, gro, rounds, window_ms, rows }
    }

    pub(super) fn print(&self) {
        let Machine { processor, cores, kernel, .. } = &self.machine;
        say!(
            "{processor}, {cores} cores, Linux {kernel}; {} rounds of {} ms, medians",
            self.rounds,
            self.window_ms
        );
        let mut rows = table(&[
            "TRAFFIC",
            "FLOWS ",
            "TAGS ",
            "RATE ",
            "",
            "TO UNTAGGED ",
            "95 % ",
            "GOAL ",
            "",
            "TRAIN, LINK ",
            "TRAIN, HOST ",
            "NS/PACKET ",
            "TO UNTAGGED ",
            "95 % ",
            "DROPS ",
        ]);
        for row in &self.rows {
            rows.add_row(row.cells());
        }
        print(&rows, "nothing was measured");
    }
}

impl Row {
    fn cells(&self) -> [String; 15] {
        let median = |ratio: Option<Ratio>| ratio.map(|ratio| ratio.median_text());
        let interval = |ratio: Option<Ratio>| ratio?.interval_text();
        [
            Some(self.traffic.name().to_owned()),
            Some(self.flows.to_string()),
            Some(self.tags.to_string()),
            Some(format!("{:.2}", self.median)),
            Some(self.unit.to_owned()),
            median(self.to_untagged),
            interval(self.to_untagged),
            self.goal.map(|goal| format!("{goal:.2}")),
            self.verdict.map(|verdict| verdict.name().to_owned()),
            Some(format!("{:.2}", self.link_train_len)),
            Some(format!("{:.2}", self.host_train_len)),
            Some(format!("{:.0}", self.switch_ns_per_packet)),
            median(self.cost_to_untagged),
            interval(self.cost_to_untagged),
            Some(self.dropped_frames.to_string()),
        ]
        .map(Option::unwrap_or_default)
    }
}
