//! Hosts that move repeatedly, because two have the same address, or frames return by an external
//! loop.
//!
//! Each move costs rules at all switches with a route, and one forged frame causes it. So after
//! [`MAX_MOVES`] moves a host is treated like one that receives copies: a move is accepted only if
//! it is silent at its old port (`contests.rs`). This ends after [`CALM`] without a reported move.

use std::collections::BTreeMap;

use crate::Millis;
use crate::hosts::HostKey;

/// Hosts that moved recently.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves(BTreeMap<HostKey, Recent>);

/// Number of moves, and until when they count.
#[derive(Clone, Copy, Debug)]
struct Recent {
    count: usize,
    until: Millis,
}

/// Assessment of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Normal.
    Usual,
    /// The host moves too often.
    Restless {
        /// It has just become so.
        is_news: bool,
    },
}

impl Moves {
    /// Records that a host is seen elsewhere.
    pub(super) fn note(&mut self, key: HostKey, now: Millis) -> Pace {
        if self.0.len() >= MAX_HOSTS && !self.0.contains_key(&key) {
            self.0.retain(|_, recent| recent.until > now);
            if self.0.len() >= MAX_HOSTS {
                return Pace::Restless { is_news: false };
            }
        }
        let fresh = Recent { count: 0, until: now.plus(CALM) };
        let recent = self.0.entry(key).or_insert(fresh);
        if recent.until <= now {
            *recent = fresh;
        }
        recent.count = recent.count.saturating_add(1);
        if recent.count <= MAX_MOVES {
            return Pace::Usual;
        }
        recent.until = fresh.until;
        Pace::Restless { is_news: recent.count == MAX_MOVES + 1 }
    }
}

/// Moves of a host within [`CALM`] that are accepted at once.
pub(super) const MAX_MOVES: usize = 5;
/// Time without moves after which they are forgotten.
pub(super) const CALM: Millis = Millis(10_000);
/// Maximum hosts tracked; beyond it, moves of others are verified first, too.
const MAX_HOSTS: usize = 8192;

#[cfg(test)]
mod tests {
    use tapswitch_wire::MacAddr;

    use super::*;

    fn key(number: u16) -> HostKey {
        let [high, low] = number.to_be_bytes();
        HostKey { mac: MacAddr([2, 0, 0, 0, high, low]), vlan: None }
    }

    #[test]
    fn a_host_that_moves_again_and_again_is_restless_until_it_is_calm() {
        let mut moves = Moves::default();
        let mut paces = |times: &[u64]| {
            times.iter().map(|at| moves.note(key(1), Millis(*at))).collect::<Vec<_>>()
        };
        assert_eq!(paces(&[0, 1, 2, 3, 4]), [Pace::Usual; MAX_MOVES]);
        assert_eq!(paces(&[5]), [Pace::Restless { is_news: true }]);
        assert_eq!(paces(&[9000, 18_000, 27_000]), [Pace::Restless { is_news: false }; 3]);
        assert_eq!(paces(&[37_000]), [Pace::Usual]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut moves = Moves::default();
        let paces: Vec<_> = (0..9000).map(|number| moves.note(key(number), Millis(0))).collect();
        assert_eq!(paces.iter().filter(|pace| **pace == Pace::Usual).count(), MAX_HOSTS);
        assert_eq!(moves.note(key(9000), CALM), Pace::Usual);
        assert_eq!(moves.0.len(), 1);
    }
}
