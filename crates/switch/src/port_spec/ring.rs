//! The options of the ring in which the kernel keeps frames for a tap device's reader:
//! `backpressure=on,txqueuelen=10`.

use std::fmt;
use std::num::NonZeroU32;

use super::Fault;

/// What the ring of a tap device shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSpec {
    /// What becomes of frames that it has no room for.
    pub backpressure: Backpressure,
    /// Frames that it holds, one ring for each queue; a train is one. `None` leaves a device with
    /// what it has, which is 1000 for one that is made.
    pub length: Option<NonZeroU32>,
}

/// Whether a full ring makes packets wait in the queueing discipline in front of it
/// (`IFF_BACKPRESSURE`, Linux 7.3) instead of dropping them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backpressure {
    /// Where the kernel has it.
    #[default]
    Auto,
    /// It must; a kernel that has it not is an error.
    On,
    /// They are dropped.
    Off,
}

impl RingSpec {
    /// Takes an option. Returns `false` when it is none of a ring's.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, Fault> {
        let bad = |expected| Fault::BadValue { key: key.into(), value: value.into(), expected };
        match key {
            "backpressure" => {
                let wish = parse_backpressure(value);
                self.backpressure = wish.ok_or_else(|| bad("on, off or auto"))?;
            }
            "txqueuelen" => {
                let length = value.parse().ok().filter(|length| *length <= LENGTH_MAX);
                self.length = Some(length.ok_or_else(|| bad(LENGTH_EXPECTED))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// As options, each behind a comma.
impl fmt::Display for RingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.backpressure {
            Backpressure::Auto => {}
            Backpressure::On => f.write_str(",backpressure=on")?,
            Backpressure::Off => f.write_str(",backpressure=off")?,
        }
        self.length.map_or(Ok(()), |length| write!(f, ",txqueuelen={length}"))
    }
}

fn parse_backpressure(text: &str) -> Option<Backpressure> {
    match text {
        "auto" => Some(Backpressure::Auto),
        "on" => Some(Backpressure::On),
        "off" => Some(Backpressure::Off),
        _ => None,
    }
}

const LENGTH_EXPECTED: &str = "a number of frames from 1 to 1000000";
/// Eight megabytes of pointers a queue. Linux refuses a ring that it has no memory for, but
/// only when it is made.
const LENGTH_MAX: NonZeroU32 = NonZeroU32::new(1_000_000).expect("it is not zero");
