//! VLAN identifiers of copies on their way between switches.
//!
//! Each monitor of each policy has one of its own, so that what becomes of its copies on the way is
//! known. When there are not enough, policies with the same monitor share one.

use std::collections::{BTreeMap, BTreeSet};

use crate::VidRange;
use crate::overlap::PolicyId;
use crate::resolve::Place;
use crate::text::fnv_1a;

/// A monitor of a policy.
pub(crate) type Use = (PolicyId, u8);

/// The identifiers in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tags {
    by_use: BTreeMap<Use, u16>,
    in_use: BTreeMap<u16, Users>,
    /// The first identifier of copies that go there.
    by_place: BTreeMap<Place, u16>,
}

/// Who has an identifier, and where their copies go.
#[derive(Clone, Debug)]
struct Users {
    to: Place,
    users: BTreeSet<Use>,
}

impl Tags {
    /// The identifier of copies for `to`. `name` makes that the same in each life of the
    /// controller, as far as others leave it free. `None` when there are no more.
    pub(crate) fn assign(
        &mut self,
        user: Use,
        name: &str,
        (to, range): (Place, VidRange),
    ) -> Option<u16> {
        if let Some(tag) = self.find(user) {
            if self.lead_to(tag, to) {
                return Some(tag);
            }
            // It is that of others, whose copies go elsewhere.
            self.remove(user, tag);
        }
        let tag = self.free(user, name, range).or_else(|| self.by_place.get(&to).copied())?;
        self.by_place.entry(to).or_insert(tag);
        self.by_use.insert(user, tag);
        let none = || Users { to, users: BTreeSet::new() };
        self.in_use.entry(tag).or_insert_with(none).users.insert(user);
        Some(tag)
    }

    /// The identifier of copies for this monitor.
    pub(crate) fn find(&self, user: Use) -> Option<u16> {
        self.by_use.get(&user).copied()
    }

    /// Whether others have the same identifier.
    pub(crate) fn is_shared(&self, tag: u16) -> bool {
        self.in_use.get(&tag).is_some_and(|tag| tag.users.len() > 1)
    }

    /// Who has an identifier.
    pub(crate) fn users(&self, tag: u16) -> impl Iterator<Item = Use> {
        self.in_use.get(&tag).into_iter().flat_map(|tag| tag.users.iter().copied())
    }

    /// A policy is gone. Returns the identifiers that nobody has any more.
    pub(crate) fn release(&mut self, policy: PolicyId) -> Vec<u16> {
        let used = self.by_use.range((policy, 0)..=(policy, u8::MAX));
        let used: Vec<_> = used.map(|(user, tag)| (*user, *tag)).collect();
        used.into_iter()
            .filter(|(user, tag)| self.remove(*user, *tag))
            .map(|(_, tag)| tag)
            .collect()
    }

    /// Makes an identifier one of copies for `to`, unless others have it whose copies go elsewhere.
    fn lead_to(&mut self, tag: u16, to: Place) -> bool {
        let Some(users) = self.in_use.get_mut(&tag) else { return false };
        if users.to == to {
            return true;
        }
        if users.users.len() > 1 {
            return false;
        }
        let before = std::mem::replace(&mut users.to, to);
        self.forget_place(before, tag);
        self.by_place.entry(to).or_insert(tag);
        true
    }

    /// Returns whether nobody has it any more.
    fn remove(&mut self, user: Use, tag: u16) -> bool {
        self.by_use.remove(&user);
        let Some(users) = self.in_use.get_mut(&tag) else { return false };
        users.users.remove(&user);
        if !users.users.is_empty() {
            return false;
        }
        let to = users.to;
        self.in_use.remove(&tag);
        self.forget_place(to, tag);
        true
    }

    fn forget_place(&mut self, to: Place, tag: u16) {
        if self.by_place.get(&to) == Some(&tag) {
            self.by_place.remove(&to);
            let other = self.in_use.iter().find(|(other, users)| **other != tag && users.to == to);
            self.by_place.extend(other.map(|(other, _)| (to, *other)));
        }
    }

    fn free(&self, user: Use, name: &str, range: VidRange) -> Option<u16> {
        let ids: Vec<_> = range.ids().collect();
        if self.in_use.len() >= ids.len() {
            return None;
        }
        let hash = fnv_1a(name.bytes().chain([user.1]));
        let start = usize::try_from(hash).unwrap_or(0) % ids.len().max(1);
        let from_start = ids.iter().cycle().skip(start).take(ids.len());
        from_start.copied().find(|id| !self.in_use.contains_key(id))
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_openflow::{DatapathId, PortNo};

    use super::*;

    fn place(port: u32) -> Place {
        Place { switch: DatapathId(1), port: PortNo(port) }
    }

    #[test]
    fn each_has_its_own_until_they_must_be_shared() {
        let range = VidRange::new(8, 2).unwrap();
        let mut tags = Tags::default();
        let mut assign = |policy, port| {
            tags.assign((PolicyId(policy), 0), &format!("p{policy}"), (place(port), range))
        };
        let (a, b) = (assign(1, 1).unwrap(), assign(2, 2).unwrap());
        assert!(a != b && range.contains(a) && range.contains(b));
        assert_eq!((assign(1, 1), assign(3, 2), assign(4, 3)), (Some(a), Some(b), None));
        assert!(tags.is_shared(b) && !tags.is_shared(a));
        assert!(tags.release(PolicyId(2)).is_empty());
        assert_eq!((tags.release(PolicyId(3)), tags.release(PolicyId(3))), (vec![b], vec![]));
        assert_eq!(tags.assign((PolicyId(4), 0), "p4", (place(3), range)), Some(b));
    }

    #[test]
    fn the_same_names_get_the_same() {
        let assign = |ids: [u64; 2]| {
            let mut tags = Tags::default();
            let range = VidRange::default();
            ["web", "dns"]
                .into_iter()
                .zip(ids)
                .map(|(name, id)| tags.assign((PolicyId(id), 0), name, (place(1), range)))
                .collect::<Vec<_>>()
        };
        assert_eq!(assign([1, 2]), assign([8, 5]));
    }
}
