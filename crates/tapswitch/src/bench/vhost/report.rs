//! The results, as tables and as data.

use comfy_table::Table;
use serde::Serialize;

use crate::bench::machine::Machine;
use crate::bench::paired::Ratio;
use crate::table::{print, table};

use super::loader::Load;
use super::results::{Judged, Row};
use super::stage::Cores;
use super::{VhostArgs, idle, latency, ovs_dpdk, pairs};

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    cores: Cores,
    rounds: u64,
    window_ms: u128,
    /// Versions of Open vSwitch and of DPDK, which the guests use as well.
    peers: Vec<String>,
    pub(super) rates: Vec<Row>,
    pub(super) pairs: Vec<pairs::Row>,
    pub(super) idle: Vec<idle::Row>,
    pub(super) latency: Vec<latency::Row>,
}

impl Report {
    /// A report without results.
    pub(super) fn new(args: &VhostArgs, cores: Cores) -> Self {
        Self {
            machine: Machine::look(),
            cores,
            rounds: args.rounds(),
            window_ms: args.window().length.as_millis(),
            peers: ovs_dpdk::versions(),
            rates: Vec::new(),
            pairs: Vec::new(),
            idle: Vec::new(),
            latency: Vec::new(),
        }
    }

    pub(super) fn print(&self) {
        say!("{}", self.headline());
        for peer in &self.peers {
            say!("{peer}");
        }
        for same in self.kinds() {
            print_rates(same);
        }
        self.print_pairs();
        self.print_idle();
        self.print_latency();
    }

    /// The rates by type of guests.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &[Row]> {
        self.rates.chunk_by(|a, b| (a.rings, a.flows, a.load) == (b.rings, b.flows, b.load))
    }

    fn print_pairs(&self) {
        let mut shown = table(&[
            "TWO PAIRS, ONE MONITOR",
            "THREADS ",
            "MPPS ",
            "TO OVS ",
            "95 % ",
            "TO ONE THREAD ",
            "95 % ",
            "GOAL ",
            "",
            "LEDGER",
        ]);
        for row in &self.pairs {
            shown.add_row(row.cells());
        }
        print_if_any(&shown);
        if !self.pairs.is_empty() && self.cores.second == self.cores.guests {
            say!(
                "the second thread shares its core with the guests, as the machine has only two \
                 cores"
            );
        }
    }

    fn print_idle(&self) {
        let mut shown = table(&["FOUR SILENT GUESTS", "% OF A CORE ", "GOAL ", ""]);
        for row in &self.idle {
            let verdict = row.met.map(|met| if met { "met" } else { "missed" });
            shown.add_row([
                row.candidate.name().to_owned(),
                format!("{:.2}", row.percent),
                row.goal.map(|goal| format!("< {goal}")).unwrap_or_default(),
                verdict.unwrap_or_default().to_owned(),
            ]);
        }
        print_if_any(&shown);
    }

    fn print_latency(&self) {
        let headings = ["ROUND TRIP, 64 BYTES", "SWITCH IS", "MEDIAN, µs ", "99 %, µs ", "LOST "];
        let mut shown = table(&headings);
        for row in &self.latency {
            shown.add_row([
                row.candidate.name().to_owned(),
                if row.busy { "busy" } else { "idle" }.to_owned(),
                format!("{:.1}", row.p50_us),
                format!("{:.1}", row.p99_us),
                row.lost.to_string(),
            ]);
        }
        print_if_any(&shown);
    }

    /// The machine, number of rounds and length of the measurements.
    pub(super) fn headline(&self) -> String {
        let Machine { processor, cores, kernel, .. } = &self.machine;
        let (rounds, window) = (self.rounds, self.window_ms);
        format!(
            "{processor}, {cores} cores, Linux {kernel}; {rounds} rounds of {window} ms, medians"
        )
    }
}

fn print_if_any(shown: &Table) {
    if !shown.is_empty() {
        say!();
        print(shown, "");
    }
}

fn print_rates(rows: &[Row]) {
    let Some(first) = rows.first() else { return };
    say!("\n{}", first.kind());
    let mut shown = table(&[
        "BYTES ",
        "TASK",
        "SWITCH",
        "MPPS ",
        "GB/S ",
        "TO BARE ",
        "TO OVS ",
        "95 % ",
        "GOAL ",
        "",
        "TO MIRROR ",
        "TO PLAIN ",
        "95 % ",
        "GOAL ",
        "",
        "SWITCH CPU % ",
        "GUESTS CPU % ",
        "LOST ",
        "LEDGER",
    ]);
    for row in rows {
        shown.add_row(row.cells());
    }
    print(&shown, "nothing was measured");
}

impl pairs::Row {
    fn cells(&self) -> Vec<String> {
        let [to_ovs, ovs_interval, ..] = self.to_ovs.cells();
        let mut cells = vec![
            Some(self.candidate.name().to_owned()),
            Some(self.workers.to_string()),
            Some(format!("{:.2}", self.mpps)),
            to_ovs,
            ovs_interval,
        ];
        cells.extend(self.to_one.cells());
        cells.push(Some(ledger(self.adds_up)));
        cells.into_iter().map(Option::unwrap_or_default).collect()
    }
}

fn ledger(adds_up: bool) -> String {
    if adds_up { "adds up" } else { "does not add up" }.to_owned()
}

impl Row {
    /// The common properties of all rows of a table.
    pub(super) fn kind(&self) -> String {
        let flows = self.flows;
        let flows = if flows == 1 { "one flow".to_owned() } else { format!("{flows} flows") };
        let load = if self.load == Load::Trains { ", TCP trains" } else { "" };
        format!("{} rings, {flows}{load}", self.rings.name())
    }

    fn cells(&self) -> Vec<String> {
        let median = |ratio: Option<Ratio>| ratio.map(|ratio| ratio.median_text());
        let [to_ovs, to_plain] = [self.to_ovs, self.to_plain].map(Judged::cells);
        let percent = |share: f64| Some(format!("{:.0}", share * 100.0));
        let expected = self.ledger.sent * (1 + self.task.copies());
        let lost = expected.saturating_sub(self.ledger.received + self.ledger.copied);
        let mut cells = vec![
            Some(self.size.to_string()),
            Some(self.task.name().to_owned()),
            Some(self.candidate.name().to_owned()),
            Some(format!("{:.3}", self.mpps)),
            Some(format!("{:.1}", self.gbps)),
            median(self.to_bare),
        ];
        cells.extend(to_ovs);
        cells.push(median(self.to_mirror));
        cells.extend(to_plain);
        cells.extend([percent(self.switch_core), percent(self.guests_core)]);
        cells.push(Some(lost.to_string()));
        cells.push(self.adds_up.map(ledger));
        cells.into_iter().map(Option::unwrap_or_default).collect()
    }
}

impl Judged {
    fn cells(self) -> [Option<String>; 4] {
        [
            self.ratio.map(|ratio| ratio.median_text()),
            self.ratio.and_then(|ratio| ratio.interval_text()),
            self.goal.map(|goal| format!("{goal:.2}")),
            self.verdict.map(|verdict| verdict.name().to_owned()),
        ]
    }
}
