//! Damping of flapping links.
//!
//! Whenever a link changes, routes are computed and switches updated; a flapping link would do this
//! all the time, and each time frames in transit are lost. So a port is **charged** for each link
//! that it loses, and its charge fades over time. A link whose port exceeds the threshold is
//! **held**: both ends are closed until most of the charge has faded, which is counted from the
//! last failure, whether the link was in use or not. This is route flap damping (RFC 2439) with
//! linear decay. If no other link connects its ends, it is used nevertheless ([`super::held`]).
//!
//! One or two failures have no effect: the link is used again as soon as it is back. In the long
//! run the role of a port changes no more often than its charge fades, once in [`CHARGE`].

use std::collections::HashMap;

use crate::Millis;
use crate::place::Place;

/// Remaining charges of ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Damping(HashMap<Place, Charge>);

#[derive(Clone, Copy, Debug)]
struct Charge {
    /// When the charge has faded completely.
    fades_at: Millis,
    /// It exceeded the threshold, and is still above [`RELEASED`].
    is_held: bool,
}

impl Damping {
    /// A port lost a link. Returns whether its links become held.
    pub(super) fn charge(&mut self, port: Place, now: Millis) -> bool {
        self.make_room(now);
        if self.0.len() >= MAX_CHARGED && !self.0.contains_key(&port) {
            return false;
        }
        let was_held = self.held_until(port, now).is_some();
        let charge = self.0.entry(port).or_insert(Charge { fades_at: now, is_held: false });
        let most = now.plus(MAX_CHARGE);
        charge.fades_at = charge.fades_at.max(now).plus(CHARGE).min(most);
        charge.is_held = was_held || charge.fades_at.since(now) > HELD;
        charge.is_held && !was_held
    }

    /// Until when the links of a port are held, if they are.
    pub(super) fn held_until(&self, port: Place, now: Millis) -> Option<Millis> {
        let charge = self.0.get(&port).filter(|charge| charge.is_held)?;
        let until = Millis(charge.fades_at.0.saturating_sub(RELEASED.0));
        (until > now).then_some(until)
    }

    fn make_room(&mut self, now: Millis) {
        if self.0.len() >= MAX_CHARGED {
            self.0.retain(|_, charge| charge.fades_at > now);
        }
    }
}

/// Charge for one failure, as the time in which it fades.
const CHARGE: Millis = Millis(10_000);
/// Threshold above which links are held: at the third failure, unless the first was long ago.
const HELD: Millis = Millis(20_000);
/// Charge at which they are released: half a minute after the last failure at most; another failure
/// does not hold them again at once.
const RELEASED: Millis = Millis(10_000);
/// Maximum charge.
const MAX_CHARGE: Millis = Millis(40_000);
/// Maximum ports with a charge; others are not charged. With that many flapping links, damping
/// single ones does not help.
const MAX_CHARGED: usize = 4096;

#[cfg(test)]
mod tests {
    use tapswitch_openflow::{DatapathId, PortNo};

    use super::*;

    fn port(number: u32) -> Place {
        Place { switch: DatapathId(1), port: PortNo(number) }
    }

    #[test]
    fn the_third_loss_in_a_row_holds_links_and_half_a_minute_of_calm_ends_that() {
        let (mut damping, at) = (Damping::default(), |ms: u64| Millis(1_000_000 + ms));
        assert!(!damping.charge(port(1), at(0)) && !damping.charge(port(1), at(100)));
        assert_eq!(damping.held_until(port(1), at(100)), None);
        assert!(damping.charge(port(1), at(200)), "and that is told");
        assert_eq!(damping.held_until(port(1), at(200)), Some(at(20_000)));
        assert_eq!(damping.held_until(port(2), at(200)), None, "of this port alone");
        assert_eq!(damping.held_until(port(1), at(20_000)), None);
        for ms in 1000..2000 {
            assert!(!damping.charge(port(1), at(ms)), "it is held already");
        }
        assert_eq!(damping.held_until(port(1), at(1999)), Some(at(31_999)));
    }

    #[test]
    fn what_goes_seldom_is_not_held() {
        let mut damping = Damping::default();
        for minute in 1..100 {
            assert!(!damping.charge(port(1), Millis(minute * CHARGE.0)));
        }
    }

    #[test]
    fn once_released_one_more_loss_holds_nothing() {
        let mut damping = Damping::default();
        (0..9).for_each(|ms| _ = damping.charge(port(1), Millis(ms)));
        let released = damping.held_until(port(1), Millis(9)).unwrap();
        assert!(!damping.charge(port(1), released));
        assert!(damping.charge(port(1), released.plus(Millis(1))));
    }

    #[test]
    fn ports_that_are_remembered_have_a_bound() {
        let mut damping = Damping::default();
        (0..5000).for_each(|number| _ = damping.charge(port(number), Millis(1)));
        assert_eq!(damping.0.len(), MAX_CHARGED);
        damping.charge(port(5000), Millis(1).plus(CHARGE));
        assert_eq!(damping.0.len(), 1, "all others have faded");
    }
}
