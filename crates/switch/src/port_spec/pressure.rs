//! What becomes of traffic that a port cannot take, or that the switch cannot take from it, at
//! once: `stall=MS` and `drain-ahead=on|off|KIB`.

use std::fmt;
use std::time::Duration;

/// How a port stands to back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// How long senders wait for this port when it takes nothing; then it is stalled, and frames
    /// for it are dropped until it has taken what waits. Zero: nobody waits.
    pub stall: Duration,
    /// Bytes that are read of this port's queues while they wait for another port, each; zero for
    /// none. Only where the kernel would drop what is not read: a guest, or a tap device with
    /// `IFF_BACKPRESSURE`, is better left waiting.
    pub ahead: usize,
}

impl Default for Pressure {
    fn default() -> Self {
        Self { stall: DEFAULT_STALL, ahead: DEFAULT_AHEAD }
    }
}

impl Pressure {
    /// Sets what `key` stands for. Returns `None` when it is none of these options, and what was
    /// expected when the value is not one.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), &'static str>> {
        match key {
            "stall" => Some(parse_stall(value).map(|stall| self.stall = stall).ok_or(STALL)),
            "drain-ahead" => Some(parse_ahead(value).map(|len| self.ahead = len).ok_or(AHEAD)),
            _ => None,
        }
    }
}

/// The options that differ from what is usual, each behind a comma.
impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stall != DEFAULT_STALL {
            write!(f, ",stall={}", self.stall.as_millis())?;
        }
        match self.ahead {
            DEFAULT_AHEAD => Ok(()),
            0 => f.write_str(",drain-ahead=off"),
            len => write!(f, ",drain-ahead={}", len / KIB),
        }
    }
}

fn parse_stall(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|ms| *ms <= MAX_STALL_MS).map(Duration::from_millis)
}

fn parse_ahead(text: &str) -> Option<usize> {
    match text {
        "on" => Some(DEFAULT_AHEAD),
        "off" => Some(0),
        kib => kib.parse().ok().filter(|kib| (64..=MAX_AHEAD_KIB).contains(kib)).map(|n| n * KIB),
    }
}

const STALL: &str = "milliseconds from 0 to 10000";
const AHEAD: &str = "on, off or a number of KiB from 64 to 1048576";
/// Long enough for a guest that the host's scheduler has put aside, short enough for a TCP not to
/// send again (RFC 6298 §2.4, Linux waits for 200 ms at least).
const DEFAULT_STALL: Duration = Duration::from_millis(50);
const MAX_STALL_MS: u64 = 10_000;
const KIB: usize = 1024;
/// Sixty of the longest trains, or 2,700 full packets: four times the ring that a tap device has
/// for packets, and not so much that it is a delay of its own at gigabits per second.
const DEFAULT_AHEAD: usize = 4 * 1024 * KIB;
const MAX_AHEAD_KIB: usize = 1024 * 1024;
