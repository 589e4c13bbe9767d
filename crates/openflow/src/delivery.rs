//! Delivery contract of a TAP: what happens to a copy that its monitor cannot take at once.
//!
//! OpenFlow 1.3 has none, so it is an experimenter action (§7.2.5) in a bucket. Layout after the
//! experimenter id [`EXPERIMENTER`]: four 16-bit fields: 1 for this action, the contract, its stall
//! bound in milliseconds, zero. A bucket without the action is a forwarding path, not a copy.
//!
//! The text form is `best-effort`, `lossless`, `lossless:50` or `sample-on-pressure`.

use std::fmt;
use std::str::FromStr;

/// Manufacturer of a tapswitch (`mfr_desc` of `OFPMP_DESC`, §7.3.5.1). Such a switch supports the
/// extensions of [`EXPERIMENTER`]; they must not be sent to others.
pub const MANUFACTURER: &str = "tapswitch";
/// Experimenter id of our actions: "taps" in ASCII, unregistered.
pub const EXPERIMENTER: u32 = 0x7461_7073;

/// A delivery contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// Never makes the sender wait. While the monitor's queue fills up, a random part of the copies
    /// is dropped and counted as lost.
    #[default]
    BestEffort,
    /// The sender of the original waits for the monitor, for at most this time in one go.
    Lossless {
        /// Milliseconds; zero for the limit of the monitor's port.
        stall_ms: u16,
    },
    /// Never makes the sender wait. While the monitor is too slow it receives a random one of every
    /// so many copies; the others count as sampled out.
    SampleOnPressure,
}

impl Delivery {
    /// Data of the action after the experimenter id.
    pub(crate) fn to_data(self) -> Vec<u8> {
        let (kind, stall_ms) = match self {
            Self::BestEffort => (kind::BEST_EFFORT, 0),
            Self::Lossless { stall_ms } => (kind::LOSSLESS, stall_ms),
            Self::SampleOnPressure => (kind::SAMPLE_ON_PRESSURE, 0),
        };
        [DELIVER, kind, stall_ms, 0].map(u16::to_be_bytes).concat()
    }

    /// Decodes the data of an action; `None` if it is another action or malformed.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        let (fields, []) = data.as_chunks() else { return None };
        match fields.iter().map(|field| u16::from_be_bytes(*field)).collect::<Vec<_>>()[..] {
            [DELIVER, kind::BEST_EFFORT, 0, 0] => Some(Self::BestEffort),
            [DELIVER, kind::LOSSLESS, stall_ms, 0] => Some(Self::Lossless { stall_ms }),
            [DELIVER, kind::SAMPLE_ON_PRESSURE, 0, 0] => Some(Self::SampleOnPressure),
            _ => None,
        }
    }

    /// The contract that satisfies both, where two TAPs share a bucket: lossless is stronger than
    /// sample-on-pressure, which is stronger than best-effort. Of two stall bounds the larger one
    /// counts; a bound left to the port counts as the default of ports, 50 ms.
    #[must_use]
    pub fn or_stronger(self, other: Self) -> Self {
        if other.strength() > self.strength() { other } else { self }
    }

    /// Ordering key: greater for the stronger contract, and unique.
    fn strength(self) -> (u16, u16, u16) {
        match self {
            Self::BestEffort => (0, 0, 0),
            Self::SampleOnPressure => (1, 0, 0),
            Self::Lossless { stall_ms: 0 } => (2, DEFAULT_STALL_MS, 0),
            Self::Lossless { stall_ms } => (2, stall_ms, 1),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BestEffort => f.write_str("best-effort"),
            Self::Lossless { stall_ms: 0 } => f.write_str("lossless"),
            Self::Lossless { stall_ms } => write!(f, "lossless:{stall_ms}"),
            Self::SampleOnPressure => f.write_str("sample-on-pressure"),
        }
    }
}

impl FromStr for Delivery {
    type Err = ParseDeliveryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ParseDeliveryError { text: text.to_owned() };
        match text {
            "best-effort" => Ok(Self::BestEffort),
            "lossless" => Ok(Self::Lossless { stall_ms: 0 }),
            "sample-on-pressure" => Ok(Self::SampleOnPressure),
            _ => {
                let digits = text.strip_prefix("lossless:").ok_or_else(unknown)?;
                let stall_ms = digits.parse().ok().filter(|ms| *ms > 0).ok_or_else(unknown)?;
                Ok(Self::Lossless { stall_ms })
            }
        }
    }
}

/// The text is not a valid contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: expected a contract: best-effort, lossless, lossless:50 (a stall of at most 50 ms; \
     1 to 65535) or sample-on-pressure"
)]
#[non_exhaustive]
pub struct ParseDeliveryError {
    /// The text.
    pub text: String,
}

/// Default time for which a port may hold up senders.
const DEFAULT_STALL_MS: u16 = 50;
const DELIVER: u16 = 1;

mod kind {
    pub(super) const BEST_EFFORT: u16 = 1;
    pub(super) const LOSSLESS: u16 = 2;
    pub(super) const SAMPLE_ON_PRESSURE: u16 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;

    #[test]
    fn an_action_says_what_it_was_made_for() {
        let lossless = Delivery::Lossless { stall_ms: 20 };
        for delivery in [Delivery::BestEffort, lossless, Delivery::SampleOnPressure] {
            assert_eq!(Delivery::of(&delivery.action()), Some(delivery));
        }
        assert_eq!(Delivery::of(&Action::DecNwTtl), None);
        for data in [vec![], vec![0, 1, 0, 1], vec![0, 1, 0, 9, 0, 0, 0, 0], vec![0; 9]] {
            let action = Action::Experimenter { experimenter: EXPERIMENTER, data };
            assert_eq!(Delivery::of(&action), None);
        }
    }

    #[test]
    fn contracts_are_written_as_they_are_read() {
        for text in
            ["best-effort", "lossless", "lossless:1", "lossless:65535", "sample-on-pressure"]
        {
            assert_eq!(text.parse::<Delivery>().unwrap().to_string(), text);
        }
        for text in ["", "lossless:", "lossless:0", "lossless:65536", "lossless:-1", "Lossless"] {
            let error = text.parse::<Delivery>().unwrap_err().to_string();
            assert!(error.contains("expected a contract"), "{error}");
        }
        let shown = |delivery: Delivery| delivery.action().to_string();
        assert_eq!(shown(Delivery::Lossless { stall_ms: 50 }), "deliver:lossless(50 ms)");
        assert_eq!(shown(Delivery::Lossless { stall_ms: 0 }), "deliver:lossless");
        assert_eq!(shown(Delivery::SampleOnPressure), "deliver:sample-on-pressure");
    }

    #[test]
    fn of_two_contracts_the_stronger_counts_whichever_comes_first() {
        let lossless = |stall_ms| Delivery::Lossless { stall_ms };
        let rising = [
            Delivery::BestEffort,
            Delivery::SampleOnPressure,
            lossless(1),
            lossless(0),
            lossless(50),
            lossless(51),
        ];
        for (at, weaker) in rising.into_iter().enumerate() {
            for stronger in rising.into_iter().skip(at) {
                assert_eq!(weaker.or_stronger(stronger), stronger);
                assert_eq!(stronger.or_stronger(weaker), stronger);
            }
        }
    }
}
