//! Who waits for whom, and whether every frame is accounted for.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapswitch_datapath::PortCounters;
use tapswitch_openflow::PortNo;

use super::CountReport;
use crate::pauses::{Account, Accounts};

/// A port and back-pressure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureReport {
    /// What waits to go out here.
    pub queued: CountReport,
    /// What came in here and was read ahead, while it waits for another port: not received yet.
    pub ahead: CountReport,
    /// Those that had to wait for this port.
    pub holds_up: Vec<PauseReport>,
    /// Those that this port had to wait for.
    pub waits_for: Vec<PauseReport>,
    /// Times that this port took nothing for longer than others wait for it.
    pub stalls: u64,
    /// Frames that came in here and were marked (ECN), because they stood in memory for too long.
    pub marked: u64,
}

/// How one port had to wait for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseReport {
    /// The other port.
    pub port: String,
    /// Times that are over.
    pub count: u64,
    /// How long it took in all up to now, in microseconds.
    pub total_us: u64,
    /// Queues that wait now.
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

/// The books of a switch, in frames: each frame that comes in has one end or, when it is copied or
/// flooded, several; and each end is where a frame was sent, taken, dropped, or waits. Ports that
/// were taken away are in the sums.
///
/// Workers count at the ends of their bursts: the two sides are equal when no frames come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BooksReport {
    /// Frames that came in, those included that were lost while they were read, or read ahead.
    pub received: u64,
    /// Ends that these have beyond one each: copies and floods.
    pub copied: u64,
    /// Ends of packets that controllers sent. What came in by no port, as they say, and was to
    /// leave by one that is not there, is not among them: it never was in the switch.
    pub injected: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Frames that the switch took for its controllers, or answered itself.
    pub consumed: u64,
    /// Frames that were dropped under a name.
    pub dropped: u64,
    /// Frames that wait for a port.
    pub queued: u64,
    /// Frames that were read ahead, of ports that wait for others.
    pub ahead: u64,
}

impl BooksReport {
    /// Ends that are nowhere; less than zero when there is more than came in.
    pub fn unaccounted(&self) -> i64 {
        let Self { received, copied, injected, sent, consumed, dropped, queued, ahead } = *self;
        let ends = received.wrapping_add(copied).wrapping_add(injected);
        let found = [sent, consumed, dropped, queued, ahead].into_iter().fold(0, u64::wrapping_add);
        ends.wrapping_sub(found).cast_signed()
    }

    /// Adds what a port has counted.
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
