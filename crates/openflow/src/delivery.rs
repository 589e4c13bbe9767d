//! What a copy is owed when its monitor cannot take it at once: the contract of a TAP.
//!
//! OpenFlow 1.3 has no word for it, so it is an experimenter's action (§7.2.5) in a bucket: behind the
//! experimenter's number [`EXPERIMENTER`], four 16-bit fields: 1 for this action, the contract, its
//! stall bound in milliseconds, zero. A bucket without it is a path of its own and no copy.

use crate::Action;

/// The experimenter of our own actions: "taps" in ASCII, which nobody has registered.
pub const EXPERIMENTER: u32 = 0x7461_7073;

/// A delivery contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Nobody waits for the copy: what the monitor's queue does not take is dropped, and counted.
    #[default]
    BestEffort,
    /// Whoever sends what is copied waits for the monitor, but not longer than this at a time.
    Lossless {
        /// Milliseconds; zero for as long as the monitor's port allows.
        stall_ms: u16,
    },
    /// Nobody waits; while the monitor cannot keep up it gets one copy of every so many, evenly.
    SampleOnPressure,
}

impl Delivery {
    /// The action that says so.
    pub fn action(self) -> Action {
        let (kind, stall_ms) = match self {
            Self::BestEffort => (kind::BEST_EFFORT, 0),
            Self::Lossless { stall_ms } => (kind::LOSSLESS, stall_ms),
            Self::SampleOnPressure => (kind::SAMPLE_ON_PRESSURE, 0),
        };
        let data = [DELIVER, kind, stall_ms, 0].map(u16::to_be_bytes).concat();
        Action::Experimenter { experimenter: EXPERIMENTER, data }
    }

    /// What `action` says, if it is such an action and as it should be.
    pub fn of(action: &Action) -> Option<Self> {
        let Action::Experimenter { experimenter: EXPERIMENTER, data } = action else { return None };
        let (fields, []) = data.as_chunks() else { return None };
        match fields.iter().map(|field| u16::from_be_bytes(*field)).collect::<Vec<_>>()[..] {
            [DELIVER, kind::BEST_EFFORT, 0, 0] => Some(Self::BestEffort),
            [DELIVER, kind::LOSSLESS, stall_ms, 0] => Some(Self::Lossless { stall_ms }),
            [DELIVER, kind::SAMPLE_ON_PRESSURE, 0, 0] => Some(Self::SampleOnPressure),
            _ => None,
        }
    }
}

const DELIVER: u16 = 1;

mod kind {
    pub(super) const BEST_EFFORT: u16 = 1;
    pub(super) const LOSSLESS: u16 = 2;
    pub(super) const SAMPLE_ON_PRESSURE: u16 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
