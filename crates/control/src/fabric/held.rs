//! Held links, and which of them are used nevertheless.
//!
//! A flapping link is closed at both ends for a while ([`super::damping`]), provided that others
//! connect its ends. A link that no other replaces is **needed**: it is used whenever it is up, as
//! a path that fails now and then is better than none.

use std::collections::BTreeSet;

use super::{Fabric, Parts};
use crate::Millis;
use crate::place::Place;

/// A link by its ends, lower one first.
pub(super) type Link = (Place, Place);

/// State of held links.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// All held links, up or not, and possibly some that are no longer held.
    links: BTreeSet<Link>,
    /// Those that are used nevertheless.
    needed: BTreeSet<Link>,
    /// Those held since last taken.
    new: BTreeSet<Link>,
    /// Whether a used link failed since [`Fabric::take_lost`].
    has_lost: bool,
}

impl Fabric {
    /// Links that are up and unused, with the latency as in [`Self::links`] and the end of the
    /// hold.
    pub(crate) fn held_links(
        &self,
        now: Millis,
    ) -> impl Iterator<Item = (Place, Place, u64, Millis)> {
        self.ports.iter().filter_map(move |(place, port)| {
            let (peer, heard) = (port.linked?, port.heard?);
            let until = self.unused_until(*place, peer, now)?;
            (*place < peer).then_some((*place, peer, heard.latency, until))
        })
    }

    /// Whether there are held links to check.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.links.is_empty()
    }

    /// Whether a used link failed since [`Self::take_lost`].
    pub(crate) fn has_lost(&self) -> bool {
        self.held.has_lost
    }

    /// Clears [`Self::has_lost`].
    pub(crate) fn take_lost(&mut self) {
        self.held.has_lost = false;
    }

    /// Links held since the last call, until when, and whether they are used nevertheless.
    pub(crate) fn take_newly_held(&mut self, now: Millis) -> Vec<(Place, Place, Millis, bool)> {
        let held = std::mem::take(&mut self.held.new).into_iter();
        let held = held.filter_map(|(a, b)| {
            let is_needed = self.held.needed.contains(&(a, b));
            Some((a, b, self.held_until(a, b, now)?, is_needed))
        });
        held.collect()
    }

    /// Determines which held links are needed, and updates the roles of their ends.
    pub(crate) fn weigh_held(&mut self, now: Millis) {
        let mut links = std::mem::take(&mut self.held.links);
        links.retain(|(a, b)| self.held_until(*a, *b, now).is_some());
        let needed = self.find_needed(&links);
        self.held.links = links;
        let before = std::mem::replace(&mut self.held.needed, needed);
        let changed = (&before ^ &self.held.needed).into_iter();
        let ends: Vec<_> = changed.flat_map(|(a, b)| [a, b]).collect();
        self.update_roles(&ends, now);
    }

    /// Held links needed to connect what other links do not. Of several candidates, links that are
    /// up and links that were needed before are preferred.
    fn find_needed(&self, held: &BTreeSet<Link>) -> BTreeSet<Link> {
        let mut parts = Parts::default();
        for (a, b, _) in self.links().filter(|(a, b, _)| !held.contains(&(*a, *b))) {
            parts.join((a, b));
        }
        let is_there =
            |(a, b): &Link| self.ports.get(a).is_some_and(|port| port.linked == Some(*b));
        let (mut there, gone): (Vec<_>, Vec<_>) = held.iter().copied().partition(is_there);
        there.sort_by_key(|link| !self.held.needed.contains(link));
        let mut needed: BTreeSet<_> = there.into_iter().filter(|it| parts.join(*it)).collect();
        needed.extend(gone.into_iter().filter(|it| parts.are_apart(*it)));
        needed
    }

    /// A port lost its link to `peer`, if it had one.
    pub(super) fn charge(&mut self, place: Place, peer: Option<Place>, now: Millis) {
        let Some(peer) = peer else { return };
        self.held.has_lost |= self.unused_until(place, peer, now).is_none();
        if self.damping.charge(place, now) {
            self.held.links.insert(link(place, peer));
            self.held.new.insert(link(place, peer));
        }
    }

    /// A link is up. Returns whether it is not to be used, and whether this needs a check, as it is
    /// unknown yet whether the link is needed.
    pub(super) fn hold(&mut self, place: Place, peer: Place, now: Millis) -> (bool, bool) {
        let is_unused = self.unused_until(place, peer, now).is_some();
        (is_unused, is_unused && self.held.links.insert(link(place, peer)))
    }

    /// Until when a link is unused, if it is held and not needed.
    fn unused_until(&self, a: Place, b: Place, now: Millis) -> Option<Millis> {
        self.held_until(a, b, now).filter(|_| !self.held.needed.contains(&link(a, b)))
    }

    /// Until when a link is held, if it is.
    fn held_until(&self, a: Place, b: Place, now: Millis) -> Option<Millis> {
        [a, b].into_iter().filter_map(|end| self.damping.held_until(end, now)).max()
    }
}

fn link(a: Place, b: Place) -> Link {
    (a.min(b), a.max(b))
}
