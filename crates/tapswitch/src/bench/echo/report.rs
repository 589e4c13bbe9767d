//! All results, as text and as data.

use comfy_table::Table;
use serde::Serialize;

use crate::bench::machine::Machine;
use crate::bench::paired::Ratio;
use crate::table::{print, table};

use super::means::Means;
use super::results::{ForwardRow, Row, TurnRow, WriteRow};
use super::stage::Cores;

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) cores: Cores,
    pub(super) rounds: u64,
    pub(super) seconds: f64,
    pub(super) echo: Vec<Row>,
    pub(super) turns: Vec<TurnRow>,
    pub(super) forward: Vec<ForwardRow>,
    pub(super) write: Vec<WriteRow>,
}

impl Report {
    /// Prints the report.
    pub(super) fn print(&self) {
        say!("{}", self.headline());
        self.print_echo();
        self.print_turns();
        self.print_forward();
        self.print_write();
    }

    /// The machine, number of rounds and length of the measurements.
    pub(super) fn headline(&self) -> String {
        let Machine { processor, cores, kernel, .. } = &self.machine;
        let (rounds, seconds) = (self.rounds, self.seconds);
        let rounds = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
        format!("{processor}, {cores} cores, Linux {kernel}; medians of {rounds} of {seconds} s")
    }

    fn print_echo(&self) {
        if self.echo.is_empty() {
            return;
        }
        let mut rows = table(&[
            "ECHO",
            "CANDIDATE",
            "KPPS ",
            "KTRAINS/S ",
            "GB/S ",
            "CPU % ",
            "NS/PACKET ",
            "TO BARE ",
            "95 % ",
            "TO TUN-RS ",
            "TO OFF ",
        ]);
        for row in &self.echo {
            rows.add_row([
                row.cell.task(),
                row.cell.means.name().to_owned(),
                format!("{:.0}", row.packets_per_second / 1e3),
                format!("{:.1}", row.trains_per_second / 1e3),
                format!("{:.2}", row.gbps),
                format!("{:.0}{}", row.processor_percent, if row.saturated { "" } else { " *" }),
                format!("{:.0}", row.nanoseconds_per_packet),
                ratio(row.to_bare),
                interval(row.to_bare),
                ratio(row.to_tun_rs),
                ratio(row.to_no_offloads),
            ]);
        }
        print(&rows, "");
        if self.echo.iter().any(|row| !row.saturated) {
            say!("* the echo was not busy all the time: the bottleneck is elsewhere");
        }
        if self.echo.iter().any(|row| row.singly) {
            say!("some senders sent single datagrams: this kernel sends no trains there");
        }
    }

    fn print_turns(&self) {
        let mut rows = table(&[
            "BY TURNS ON ONE DEVICE",
            "CANDIDATE",
            "NS/PACKET ",
            "BARE LOOP ",
            "TO BARE ",
            "95 % ",
            "GOAL",
        ]);
        for row in &self.turns {
            rows.add_row([
                row.cell.task(),
                row.cell.means.name().to_owned(),
                format!("{:.0}", row.nanoseconds),
                format!("{:.0}", row.bare_nanoseconds),
                row.to_bare.median_text(),
                interval(Some(row.to_bare)),
                row.verdict.name().to_owned(),
            ]);
        }
        print_if_any(&rows);
    }

    fn print_forward(&self) {
        let mut rows = table(&[
            "TCP BETWEEN TWO TUN DEVICES",
            "GB/S ",
            "CPU % ",
            "TO BARE ",
            "TO TUN-RS ",
            "TO VETH ",
        ]);
        for row in &self.forward {
            rows.add_row([
                row.means.map_or("no forwarder, a veth pair", Means::name).to_owned(),
                format!("{:.2}", row.gbps),
                row.processor_percent.map_or("-".to_owned(), |percent| format!("{percent:.0}")),
                ratio(row.to_bare),
                ratio(row.to_tun_rs),
                ratio(row.to_veth),
            ]);
        }
        print_if_any(&rows);
    }

    fn print_write(&self) {
        let mut rows = table(&["WRITE OF 60 BYTES", "NS ", "TO THE KERNEL'S CHOICE "]);
        for row in &self.write {
            rows.add_row([
                row.choice.name().to_owned(),
                format!("{:.0}", row.nanoseconds),
                ratio(row.to_kernel),
            ]);
        }
        print_if_any(&rows);
    }
}

fn print_if_any(rows: &Table) {
    if !rows.is_empty() {
        say!();
        print(rows, "");
    }
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or("-".to_owned(), |ratio| ratio.median_text())
}

/// The interval of the true ratio, with 95 % confidence.
fn interval(ratio: Option<Ratio>) -> String {
    ratio.and_then(|ratio| ratio.interval_text()).unwrap_or("-".to_owned())
}
