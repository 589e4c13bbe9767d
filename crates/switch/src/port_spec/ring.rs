//! The options of a tap device's rings, in which the kernel keeps frames for the reader:
//! `backpressure=on,txqueuelen=10`.

use std::fmt;
use std::num::NonZeroU32;

use super::Fault;

/// Settings of a tap device's rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSpec {
    /// What happens to frames that do not fit.
    pub backpressure: Backpressure,
    /// Frames per ring, one ring per queue; a train counts as one. `None` keeps the device's
    /// setting, which is 1000 for a new one.
    pub length: Option<NonZeroU32>,
}

/// Whether packets that do not fit a ring wait in the qdisc in front of it (`IFF_BACKPRESSURE`,
/// Linux 7.3) instead of being dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backpressure {
    /// If the kernel supports it.
    #[default]
    Auto,
    /// Always; an error if the kernel does not support it.
    On,
    /// Never: packets are dropped.
    Off,
}

impl RingSpec {
    /// Takes an option. Returns `false` if it is not one of a ring.
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

/// As options, each after a comma.
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
/// Eight megabytes of pointers per queue. Linux refuses a ring for lack of memory, but only when
/// the device is opened.
const LENGTH_MAX: NonZeroU32 = NonZeroU32::new(1_000_000).expect("it is not zero");
