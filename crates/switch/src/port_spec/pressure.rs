//! What becomes of traffic that a port cannot take, or that the switch cannot take from it, at
//! once: `stall=MS`, `drain-ahead=on|off|KIB` and `pause=on|off|auto`.

use std::fmt;
use std::time::Duration;

/// How a port stands to back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// How long senders wait for this port when it takes nothing; then it is stalled, and frames
    /// for it are dropped until it has taken what waits. Zero: nobody waits.
    pub stall: Duration,
    /// Bytes that are read of this port's queues while they wait for another port, in all; zero for
    /// none. Only where the kernel would drop what is not read: a guest, or a tap device with
    /// `IFF_BACKPRESSURE`, is better left waiting.
    pub ahead: usize,
    /// Whether this port's queues wait for another port that is full.
    pub pause: Pausing,
}

/// Whether a port's queues wait for another port that is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pausing {
    /// As [`Self::On`], until a bridge tells of itself by LLDP (IEEE 802.1AB) at an interface that
    /// was there before or at a tunnel; as [`Self::Off`] from then on. Many hosts are behind such
    /// a port, none of which can be made to wait, and all would for the sake of one.
    #[default]
    Auto,
    /// They wait, so that whoever fills them does.
    On,
    /// They do not: what a full port takes some time later waits there within bounds, and the rest
    /// is dropped there.
    Off,
}

impl Default for Pressure {
    fn default() -> Self {
        Self { stall: DEFAULT_STALL, ahead: DEFAULT_AHEAD, pause: Pausing::Auto }
    }
}

impl Pressure {
    /// Sets what `key` stands for. Returns `None` when it is none of these options, and what was
    /// expected when the value is not one.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), &'static str>> {
        match key {
            "stall" => Some(parse_stall(value).map(|stall| self.stall = stall).ok_or(STALL)),
            "drain-ahead" => Some(parse_ahead(value).map(|len| self.ahead = len).ok_or(AHEAD)),
            "pause" => Some(parse_pause(value).map(|pause| self.pause = pause).ok_or(PAUSE)),
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
        }?;
        match self.pause {
            Pausing::Auto => Ok(()),
            Pausing::On => f.write_str(",pause=on"),
            Pausing::Off => f.write_str(",pause=off"),
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

fn parse_pause(text: &str) -> Option<Pausing> {
    match text {
        "auto" => Some(Pausing::Auto),
        "on" => Some(Pausing::On),
        "off" => Some(Pausing::Off),
        _ => None,
    }
}

const STALL: &str = "milliseconds from 0 to 10000";
const PAUSE: &str = "on, off or auto";
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
