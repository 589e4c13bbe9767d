//! Options for congestion, at this port or at ports it sends to: `stall=MS`,
//! `drain-ahead=on|off|KIB` and `pause=on|off|auto`.

use std::fmt;
use std::time::Duration;

/// A port's settings for back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// How long senders wait for this port while it takes nothing. Then it is stalled, and frames
    /// for it are dropped until it has taken the queued ones. Zero: nobody waits.
    pub stall: Duration,
    /// Limit in bytes of frames read ahead from this port's queues while they wait for another
    /// port; zero for none. Used only if the kernel would drop frames that are not read: a guest,
    /// or a tap device with `IFF_BACKPRESSURE`, waits instead.
    pub ahead: usize,
    /// Whether this port's queues wait for other ports that are full.
    pub pause: Pausing,
}

/// Whether a port's queues wait for other ports that are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pausing {
    /// As [`Self::On`], until a bridge sends LLDP (IEEE 802.1AB) on an existing interface or a
    /// tunnel; as [`Self::Off`] from then on. Many hosts are behind such a port: none of them can
    /// be made to wait separately, and all would wait because of one.
    #[default]
    Auto,
    /// They wait, and so do their senders.
    On,
    /// They do not wait: a full port queues a bounded number of their frames, and drops the rest.
    Off,
}

impl Default for Pressure {
    fn default() -> Self {
        Self { stall: DEFAULT_STALL, ahead: DEFAULT_AHEAD, pause: Pausing::Auto }
    }
}

impl Pressure {
    /// Sets the option `key`. Returns `None` if it is not one of these options, and the expected
    /// values if `value` is invalid.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), &'static str>> {
        match key {
            "stall" => Some(parse_stall(value).map(|stall| self.stall = stall).ok_or(STALL)),
            "drain-ahead" => Some(parse_ahead(value).map(|len| self.ahead = len).ok_or(AHEAD)),
            "pause" => Some(parse_pause(value).map(|pause| self.pause = pause).ok_or(PAUSE)),
            _ => None,
        }
    }
}

/// The options that differ from the defaults, each after a comma.
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
/// Long enough for a guest that the host has descheduled, short enough to avoid TCP retransmissions
/// (RFC 6298 §2.4; Linux waits for at least 200 ms).
const DEFAULT_STALL: Duration = Duration::from_millis(50);
const MAX_STALL_MS: u64 = 10_000;
const KIB: usize = 1024;
/// Sixty trains of maximum length, or 2,700 full packets: four times a tap device's ring of
/// packets, and not enough to add much delay at gigabits per second.
const DEFAULT_AHEAD: usize = 4 * 1024 * KIB;
const MAX_AHEAD_KIB: usize = 1024 * 1024;
