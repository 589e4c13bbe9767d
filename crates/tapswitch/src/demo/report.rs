//! The demonstration's table.

use std::time::Duration;

use serde::Serialize;
use tapswitch_switch::report::TapReport;

use crate::table::{grouped, print, table};

/// All results of the demonstration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DemoReport {
    /// Length of each measurement in seconds.
    pub(crate) seconds: u64,
    pub(crate) without_tap: Window,
    pub(crate) with_tap: Window,
    /// Retransmitted TCP segments.
    pub(crate) tcp_retransmits: u64,
    pub(crate) tcp_back_gbps: f64,
    pub(crate) udp_gbps: f64,
    pub(crate) udp_lost_percent: f64,
    pub(crate) ledger: LedgerReport,
    pub(crate) pcapng: PcapngReport,
    pub(crate) checks: Vec<Check>,
}

/// Traffic of a port during a measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Window {
    /// Bits of frames per second, in units of 10^9.
    pub(crate) gbps: f64,
    /// Packets on the wire per frame.
    pub(crate) train_len: f64,
    /// Frames; a train counts as one.
    pub(crate) frames: u64,
    /// Packets on the wire.
    pub(crate) packets: u64,
}

impl Window {
    #[expect(clippy::cast_precision_loss, reason = "rates are shown with three digits")]
    pub(crate) fn new(frames: u64, packets: u64, bytes: u64, elapsed: Duration) -> Self {
        let gbps = bytes as f64 * 8.0 / elapsed.as_secs_f64() / 1e9;
        Self { gbps, train_len: packets as f64 / frames.max(1) as f64, frames, packets }
    }
}

/// Frames that the TAP matched, and their outcomes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct LedgerReport {
    pub(crate) matched: u64,
    /// Bytes of the matched frames.
    pub(crate) matched_bytes: u64,
    pub(crate) copied: u64,
    pub(crate) dropped: u64,
}

impl LedgerReport {
    /// Sum over the groups of a policy with one monitor.
    pub(crate) fn sum(taps: &[TapReport]) -> Self {
        let copies = || taps.iter().flat_map(|tap| &tap.copies);
        Self {
            matched: taps.iter().map(|tap| tap.matched.frames).sum(),
            matched_bytes: taps.iter().map(|tap| tap.matched.bytes).sum(),
            copied: copies().map(|copy| copy.delivered.frames).sum(),
            dropped: copies().flat_map(|copy| copy.drops.values()).sum(),
        }
    }

    pub(crate) fn adds_up(&self) -> bool {
        self.matched == self.copied + self.dropped
    }
}

/// Contents of the monitor's capture file.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PcapngReport {
    /// Packets that tshark reads.
    pub(crate) packets: u64,
    /// Length of the longest packet in bytes.
    pub(crate) longest: usize,
    /// True when the capture stopped at its limit.
    pub(crate) is_limited: bool,
    /// Packets longer than the wire allows.
    pub(crate) oversize: u64,
    /// Packets with wrong checksums.
    pub(crate) bad_checksums: u64,
}

/// A condition that must hold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) held: bool,
}

impl Check {
    pub(crate) fn new(what: impl Into<String>, held: bool) -> Self {
        Self { what: what.into(), held }
    }
}

impl DemoReport {
    pub(crate) fn all_checks_held(&self) -> bool {
        self.checks.iter().all(|check| check.held)
    }

    /// Prints the table and the checks.
    pub(crate) fn print(&self) {
        let Self { without_tap, with_tap, ledger, pcapng, .. } = self;
        say!();
        let mut rows = table(&["", "WITHOUT TAP ", "WITH TAP ", "RATIO "]);
        let mut row = |what: &str, without: f64, with: f64| {
            let ratio = with / without;
            rows.add_row([
                what.to_owned(),
                format!("{without:.2}"),
                format!("{with:.2}"),
                format!("{ratio:.3}"),
            ]);
        };
        row("TCP sender to receiver, Gb/s", without_tap.gbps, with_tap.gbps);
        row("mean train, packets", without_tap.train_len, with_tap.train_len);
        print(&rows, "");
        say!();
        let mut rows = table(&["", " "]);
        let limited = if pcapng.is_limited { " (its limit)" } else { "" };
        for (what, value) in [
            ("frames matched by the TAP", grouped(ledger.matched)),
            ("frames copied to the monitor", grouped(ledger.copied)),
            ("frames dropped on the way", grouped(ledger.dropped)),
            ("wire-size packets in the pcapng", format!("{}{limited}", grouped(pcapng.packets))),
            ("longest packet, bytes", pcapng.longest.to_string()),
            ("TCP segments retransmitted", grouped(self.tcp_retransmits)),
            ("TCP receiver to sender, Gb/s", format!("{:.2}", self.tcp_back_gbps)),
            ("UDP sender to receiver, Gb/s", format!("{:.2}", self.udp_gbps)),
            ("UDP lost by the hosts, %", format!("{:.2}", self.udp_lost_percent)),
        ] {
            rows.add_row([what.to_owned(), value]);
        }
        print(&rows, "");
        say!();
        for check in &self.checks {
            say!("{} {}", if check.held { "  ok  " } else { "FAILED" }, check.what);
        }
    }
}
