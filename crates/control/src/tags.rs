//! Identifiers of copies in transit between switches: a VLAN tag or a MAC address.
//!
//! Each monitor of each policy has its own identifier, so that its copies can be accounted for in
//! transit. Once a quarter of the identifiers are in use ([`OWN_PART`]), policies with the same
//! monitor share one: the rest is reserved for monitors without any.
//!
//! Numbers up to 4094 are VLAN ids. Higher ones are the low bytes of an address that the controller
//! assigns to the monitor ([`address`]): copies carry it in place of their destination host's
//! address, so those that share one have the same destination host.

use std::collections::{BTreeMap, BTreeSet};

use tapswitch_openflow::{Action, Masked, Oxm, VID_PRESENT};
use tapswitch_wire::{EtherType, MacAddr};

use crate::overlap::{PolicyId, Slot};
use crate::place::Place;
use crate::shared::Forked;
use crate::text::fnv_1a;
use crate::{StatsToken, VidRange};

/// One monitor of a policy.
pub(crate) type Use = (PolicyId, Slot);

/// Identifiers in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tags {
    by_use: Forked<Use, u16>,
    in_use: Forked<u16, Users>,
    /// The first identifier for each destination.
    by_end: Forked<End, u16>,
    /// How many of those in use are VLAN ids.
    vid_count: usize,
    /// Identifiers with copies in transit before their ledger was first read.
    early: BTreeMap<u16, Early>,
}

/// Copies sent before all counters about them were first read.
#[derive(Clone, Copy, Debug)]
enum Early {
    /// The replies to requests after this token count them.
    Behind(StatsToken),
    /// At most this many.
    AtMost(u64),
}

/// Destination of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) place: Place,
    /// The destination address restored there, if copies have another one in transit.
    pub(crate) rewritten: Option<MacAddr>,
}

/// Users of an identifier, and the destination of their copies.
#[derive(Clone, Debug)]
struct Users {
    to: End,
    users: BTreeSet<Use>,
}

/// The MAC address of copies with this identifier; `None` if it is a VLAN id.
pub(crate) const fn address(id: u16) -> Option<MacAddr> {
    let [high, low] = id.to_be_bytes();
    let [a, b, c, d, ..] = ADDRESSES.0;
    if id < FIRST_ADDRESS { None } else { Some(MacAddr([a, b, c, d, high, low])) }
}

/// The match field for copies with this identifier.
pub(crate) fn field(id: u16) -> Oxm {
    match address(id) {
        Some(mac) => Oxm::EthDst(mac.into()),
        None => Oxm::VlanVid((VID_PRESENT | id).into()),
    }
}

/// The match field for all copies with an address.
pub(crate) fn any_address() -> Oxm {
    Oxm::EthDst(Masked::with_mask(ADDRESSES, ADDRESSES_MASK))
}

/// The identifier in a match field.
pub(crate) fn read(field: &Oxm) -> Option<u16> {
    match field {
        Oxm::VlanVid(vid) if vid.mask.is_none() => Some(vid.value & !VID_PRESENT),
        Oxm::EthDst(mac) if mac.mask.is_none() => {
            let [.., high, low] = mac.value.0;
            let id = u16::from_be_bytes([high, low]);
            (address(id) == Some(mac.value)).then_some(id)
        }
        _ => None,
    }
}

/// Actions that give a copy its identifier.
pub(crate) fn mark(id: u16) -> impl Iterator<Item = Action> {
    let push = Action::PushVlan(EtherType::SERVICE_VLAN);
    let push = address(id).is_none().then_some(push);
    push.into_iter().chain([Action::SetField(field(id))])
}

/// Bytes that these add to the copy.
pub(crate) const fn len(id: u16) -> u16 {
    if id < FIRST_ADDRESS { TAG_LEN } else { 0 }
}

impl Tags {
    /// Assigns an identifier for copies to `to`. It is derived from `name`, so that it is the same
    /// after a restart, unless it is in use. `end_count` is the number of possible destinations.
    /// `None` if there are none left.
    pub(crate) fn assign(
        &mut self,
        user: Use,
        name: &str,
        (to, (range, end_count)): (End, (VidRange, usize)),
    ) -> Option<u16> {
        if let Some(tag) = self.find(user) {
            if self.lead_to(tag, to) {
                return Some(tag);
            }
            // It is shared with copies to another destination.
            self.remove(user, tag);
        }
        let known = self.by_end.get(&to).copied();
        let tag = match known {
            Some(tag) if self.is_scarce((to, range), end_count) => tag,
            known => self.free(user.1, name, (to, range)).or(known)?,
        };
        self.by_end.get_or_insert_with(to, || tag);
        self.by_use.insert(user, tag);
        let is_new_vid = !self.in_use.contains_key(&tag) && address(tag).is_none();
        self.vid_count += usize::from(is_new_vid);
        let none = || Users { to, users: BTreeSet::new() };
        self.in_use.get_or_insert_with(tag, none).users.insert(user);
        Some(tag)
    }

    /// The identifier of a monitor's copies.
    pub(crate) fn find(&self, user: Use) -> Option<u16> {
        self.by_use.get(&user).copied()
    }

    /// The identifiers of a policy's copies, by monitor.
    pub(crate) fn of(&self, policy: PolicyId) -> impl Iterator<Item = (Slot, u16)> {
        let used = self.by_use.range((policy, Slot::MIN)..=(policy, Slot::MAX));
        used.map(|((_, slot), tag)| (*slot, *tag))
    }

    /// Whether the identifier has several users.
    pub(crate) fn is_shared(&self, tag: u16) -> bool {
        self.in_use.get(&tag).is_some_and(|tag| tag.users.len() > 1)
    }

    /// Users of an identifier.
    pub(crate) fn users(&self, tag: u16) -> impl Iterator<Item = Use> {
        self.in_use.get(&tag).into_iter().flat_map(|tag| tag.users.iter().copied())
    }

    /// From now on copies with this identifier are accounted for, though some were sent before.
    /// Copies sent after the sender's counters were read, and received before the receiver's were,
    /// seem to be lost.
    pub(crate) fn begin(&mut self, tag: u16, last: StatsToken) {
        if self.in_use.contains_key(&tag) {
            self.early.insert(tag, Early::Behind(last));
        }
    }

    /// The identifiers whose number of early copies is determined by the reply to the request
    /// `token`.
    pub(crate) fn beginning(&self, token: StatsToken) -> Vec<u16> {
        let is_later = |early: &Early| matches!(early, Early::Behind(last) if *last < token);
        self.early.iter().filter(|(_, early)| is_later(early)).map(|(tag, _)| *tag).collect()
    }

    /// At most `count` copies had been sent by then.
    pub(crate) fn set_early(&mut self, tag: u16, count: u64) {
        self.early.insert(tag, Early::AtMost(count));
    }

    /// Maximum number of copies that may be missing because they were sent too early to be
    /// accounted for.
    pub(crate) fn early(&self, tag: u16) -> u64 {
        match self.early.get(&tag) {
            None => 0,
            Some(Early::Behind(_)) => u64::MAX,
            Some(Early::AtMost(count)) => *count,
        }
    }

    /// Releases the identifiers of a policy. Returns those without users.
    pub(crate) fn release(&mut self, policy: PolicyId) -> Vec<u16> {
        let used: Vec<_> = self.of(policy).collect();
        used.into_iter()
            .filter(|(slot, tag)| self.remove((policy, *slot), *tag))
            .map(|(_, tag)| tag)
            .collect()
    }

    /// Redirects an identifier to `to`, unless it is shared with copies to another destination.
    fn lead_to(&mut self, tag: u16, to: End) -> bool {
        let Some(users) = self.in_use.get_mut(&tag) else { return false };
        if users.to == to {
            return true;
        }
        if users.users.len() > 1 {
            return false;
        }
        let before = std::mem::replace(&mut users.to, to);
        self.forget_end(before, tag);
        self.by_end.get_or_insert_with(to, || tag);
        true
    }

    /// Returns whether the identifier has no users left.
    fn remove(&mut self, user: Use, tag: u16) -> bool {
        self.by_use.remove(&user);
        let Some(users) = self.in_use.get_mut(&tag) else { return false };
        users.users.remove(&user);
        if !users.users.is_empty() {
            return false;
        }
        let to = users.to;
        self.in_use.remove(&tag);
        self.early.remove(&tag);
        self.vid_count -= usize::from(address(tag).is_none());
        self.forget_end(to, tag);
        true
    }

    fn forget_end(&mut self, to: End, tag: u16) {
        if self.by_end.get(&to) == Some(&tag) {
            self.by_end.remove(&to);
            let other = self.in_use.iter().find(|(other, users)| **other != tag && users.to == to);
            if let Some(other) = other.map(|(other, _)| *other) {
                self.by_end.insert(to, other);
            }
        }
    }

    /// The range of identifiers for this kind of destination, and how many are in use.
    fn pool(&self, to: End, range: VidRange) -> ((u16, u16), usize) {
        match to.rewritten {
            None => (range.usable(), self.vid_count),
            Some(_) => ((FIRST_ADDRESS, ADDRESS_COUNT), self.in_use.len() - self.vid_count),
        }
    }

    /// Whether the remaining ones are reserved for destinations without any.
    fn is_scarce(&self, (to, range): (End, VidRange), end_count: usize) -> bool {
        let ((_, count), used) = self.pool(to, range);
        let spare = usize::from(count).saturating_sub(end_count);
        used >= spare.min(usize::from(count / OWN_PART))
    }

    fn free(&self, slot: Slot, name: &str, (to, range): (End, VidRange)) -> Option<u16> {
        let ((first, count), used) = self.pool(to, range);
        if used >= usize::from(count) {
            return None;
        }
        let share = Some(slot.share).filter(|share| *share > 0);
        let hash = fnv_1a(name.bytes().chain([slot.monitor]).chain(share));
        let start = hash % u32::from(count.max(1));
        let start = u16::try_from(start).unwrap_or(0);
        let from_start = (start..count).chain(0..start);
        from_start.map(|id| first + id).find(|id| !self.in_use.contains_key(id))
    }
}

/// One part in this many is free for all.
const OWN_PART: u16 = 4;
/// Length of a copy's tag in bytes.
const TAG_LEN: u16 = 4;
/// First number that is no VLAN id.
const FIRST_ADDRESS: u16 = 4096;
const ADDRESS_COUNT: u16 = u16::MAX - FIRST_ADDRESS;
/// Prefix of the addresses assigned to monitors: locally administered (IEEE 802c-2017 §8.4.4.3,
/// AAI).
const ADDRESSES: MacAddr = MacAddr([0x72, 0x74, 0x70, 0, 0, 0]);
const ADDRESSES_MASK: MacAddr = MacAddr([0xff, 0xff, 0xff, 0xff, 0, 0]);

#[cfg(test)]
mod tests {
    use tapswitch_openflow::{DatapathId, PortNo};

    use super::*;

    fn place(port: u32) -> End {
        End { place: Place { switch: DatapathId(1), port: PortNo(port) }, rewritten: None }
    }

    #[test]
    fn a_monitor_has_an_address_for_each_host_that_copies_are_for() {
        let range = VidRange::new(8, 8).unwrap();
        let mut tags = Tags::default();
        let to = |host: u8| End { rewritten: Some(MacAddr([2, 0, 0, 0, 0, host])), ..place(1) };
        let mut assign = |id, to| {
            tags.assign((PolicyId(id), Slot::only(0)), &format!("p{id}"), (to, (range, 0)))
        };
        let ids = [assign(1, to(1)), assign(2, to(2)), assign(3, place(1)), assign(4, place(1))];
        let [a, b, c, d] = ids.map(Option::unwrap);
        assert!(a != b && c != d && [c, d].iter().all(|id| range.contains(*id)), "{ids:?}");
        for id in [a, b, c, d] {
            assert_eq!((address(id).is_some(), read(&field(id))), (id > 4095, Some(id)));
        }
        assert_eq!(read(&any_address()), None);
        assert_eq!(tags.release(PolicyId(3)), [c]);
        assert!(tags.assign((PolicyId(5), Slot::only(0)), "p5", (place(2), (range, 0))).is_some());
    }

    #[test]
    fn monitors_without_one_do_not_go_short_because_others_have_many() {
        let range = VidRange::new(16, 16).unwrap();
        let mut tags = Tags::default();
        let mut assign = |id, to| {
            tags.assign((PolicyId(id), Slot::only(0)), &format!("p{id}"), (place(to), (range, 0)))
        };
        let first: BTreeSet<_> = (0..100).filter_map(|id| assign(id, 1)).collect();
        assert_eq!(first.len(), 4);
        let others: BTreeSet<_> =
            (0..12).filter_map(|at| assign(100 + u64::from(at), 2 + at)).collect();
        assert_eq!((others.len(), first.is_disjoint(&others)), (12, true));
        assert_eq!(assign(200, 20), None);
    }

    #[test]
    fn each_has_its_own_until_they_must_be_shared() {
        let range = VidRange::new(8, 2).unwrap();
        let mut tags = Tags::default();
        let mut assign = |policy, port| {
            tags.assign(
                (PolicyId(policy), Slot::only(0)),
                &format!("p{policy}"),
                (place(port), (range, 0)),
            )
        };
        let (a, b) = (assign(1, 1).unwrap(), assign(2, 2).unwrap());
        assert!(a != b && range.contains(a) && range.contains(b));
        assert_eq!((assign(1, 1), assign(3, 2), assign(4, 3)), (Some(a), Some(b), None));
        assert!(tags.is_shared(b) && !tags.is_shared(a));
        assert!(tags.release(PolicyId(2)).is_empty());
        assert_eq!((tags.release(PolicyId(3)), tags.release(PolicyId(3))), (vec![b], vec![]));
        assert_eq!(
            tags.assign((PolicyId(4), Slot::only(0)), "p4", (place(3), (range, 0))),
            Some(b)
        );
    }

    #[test]
    fn the_same_names_get_the_same() {
        let assign = |ids: [u64; 2]| {
            let mut tags = Tags::default();
            let range = VidRange::default();
            ["web", "dns"]
                .into_iter()
                .zip(ids)
                .map(|(name, id)| {
                    tags.assign((PolicyId(id), Slot::only(0)), name, (place(1), (range, 0)))
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(assign([1, 2]), assign([8, 5]));
    }
}
