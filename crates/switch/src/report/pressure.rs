//! Reports of back-pressure, and the balance of all frames.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapswitch_datapath::PortCounters;
use tapswitch_openflow::PortNo;

use super::CountReport;
use crate::pauses::{Account, Accounts};

/// The back-pressure of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureReport {
    /// Frames queued for this port.
    pub queued: CountReport,
    /// Frames read ahead from this port while it waits for another one; not yet counted as
    /// received.
    pub ahead: CountReport,
    /// Ports that had to wait for this one.
    pub holds_up: Vec<PauseReport>,
    /// Ports for which this one had to wait.
    pub waits_for: Vec<PauseReport>,
    /// Number of stalls of this port.
    pub stalls: u64,
    /// Frames received here that were ECN-marked because they waited too long in memory.
    pub marked: u64,
}

/// The pauses of one port because of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseReport {
    /// The other port.
    pub port: String,
    /// Number of finished pauses.
    pub count: u64,
    /// Total time of all pauses so far, in microseconds.
    pub total_us: u64,
    /// Queues that are paused now.
    pub now: u32,
}

impl PressureReport {
    pub(crate) fn of(port: PortNo, counters: &PortCounters, accounts: &Accounts) -> Self {
        Self {
            queued: counters.queued().into(),
            ahead: counters.ahead().into(),
            holds_up: accounts.waiters(port).map(PauseReport::from).collect(),
            waits_for: accounts.culprits(port).map(PauseReport::from).collect(),
            stalls: accounts.stalls(port),
            marked: accounts.marks(port),
        }
    }
}

impl From<(PortNo, Account)> for PauseReport {
    fn from((port, account): (PortNo, Account)) -> Self {
        let Account { count, total, now, .. } = account;
        let total_us = u64::try_from(Duration::as_micros(&total)).unwrap_or(u64::MAX);
        Self { port: port.to_string(), count, total_us, now }
    }
}

/// The balance of a switch, in frames. Each received frame has one outcome, or several if it is
/// copied or flooded: sent, consumed, dropped, or waiting. Removed ports are included.
///
/// Workers count at the end of a burst: the two sides are equal when no frames arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BooksReport {
    /// Received frames, including those lost while they were read, and those read ahead.
    pub received: u64,
    /// Outcomes beyond one per received frame: copies and floods.
    pub copied: u64,
    /// Outcomes of packets sent by controllers. A packet without an ingress port whose egress port
    /// does not exist is not included, as it never was in the switch.
    pub injected: u64,
    /// Sent frames.
    pub sent: u64,
    /// Frames that the switch took for its controllers, or answered itself.
    pub consumed: u64,
    /// Frames that were dropped under a name.
    pub dropped: u64,
    /// Frames queued for a port.
    pub queued: u64,
    /// Frames read ahead from ports that wait for others.
    pub ahead: u64,
}

impl BooksReport {
    /// Missing outcomes; negative if there are more outcomes than frames.
    pub fn unaccounted(&self) -> i64 {
        let Self { received, copied, injected, sent, consumed, dropped, queued, ahead } = *self;
        let ends = received.wrapping_add(copied).wrapping_add(injected);
        let found = [sent, consumed, dropped, queued, ahead].into_iter().fold(0, u64::wrapping_add);
        ends.wrapping_sub(found).cast_signed()
    }

    /// Adds the counters of a port.
    pub(crate) fn add(&mut self, counters: &PortCounters) {
        let (received, ahead) = (counters.rx().frames, counters.ahead().frames());
        self.received += received + ahead;
        self.ahead += ahead;
        self.copied = self.copied.wrapping_add(counters.ends().wrapping_sub(received));
        self.sent += counters.tx().frames;
        self.consumed = self.consumed.wrapping_add(counters.consumed());
        self.dropped += counters.drops().total();
        self.queued += counters.queued().frames();
    }
}
