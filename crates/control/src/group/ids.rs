//! Allocation of group ids.

use std::sync::Arc;

use tapswitch_openflow::GroupId;

use super::GroupKey;
use crate::hash::{Map, Set};

/// Group ids on one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupIds {
    by_key: Map<Arc<GroupKey>, GroupId>,
    /// Ids of our range in use, by us or by others.
    taken: Set<GroupId>,
    /// Start of the search for a free id, so that ids are not reused soon.
    next: u32,
}

impl GroupIds {
    /// The id of an existing group.
    pub(crate) fn find(&self, key: &GroupKey) -> Option<GroupId> {
        self.by_key.get(key).copied()
    }

    /// Allocates a free id. If all million are taken, the switch will reject the group.
    pub(crate) fn allocate(&mut self, key: &Arc<GroupKey>) -> GroupId {
        let from_next = (self.next..RANGE_LEN).chain(0..self.next);
        let mut numbers = from_next.map(|offset| (offset, GroupId(RANGE_START | offset)));
        let free = numbers.find(|(_, id)| !self.taken.contains(id));
        let (offset, id) = free.unwrap_or((self.next, GroupId(RANGE_START | self.next)));
        self.next = (offset + 1) % RANGE_LEN;
        self.adopt(key, id);
        id
    }

    /// Records that the group with this id on the switch is this one.
    pub(crate) fn adopt(&mut self, key: &Arc<GroupKey>, id: GroupId) {
        self.by_key.insert(key.clone(), id);
        self.taken.insert(id);
    }

    /// Marks an id as used by an unknown owner.
    pub(crate) fn avoid(&mut self, id: GroupId) {
        self.taken.insert(id);
    }

    /// The group is no longer used, but still on the switch.
    pub(crate) fn retire(&mut self, key: &GroupKey) -> Option<GroupId> {
        self.by_key.remove(key)
    }

    /// The group was deleted from the switch.
    pub(crate) fn release(&mut self, id: GroupId) {
        self.taken.remove(&id);
    }

    /// Groups in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<GroupKey>, GroupId)> {
        self.by_key.iter().map(|(key, id)| (key, *id))
    }
}

/// Whether an id is in our range.
pub(crate) const fn is_in_range(id: GroupId) -> bool {
    id.0 & !(RANGE_LEN - 1) == RANGE_START
}

/// First id of our range.
pub(super) const RANGE_START: u32 = 0x7470_0000;
/// Size of our range: more than the rules that we add to a switch.
const RANGE_LEN: u32 = 1 << 20;
const _: () = assert!(RANGE_LEN.is_power_of_two() && RANGE_START & (RANGE_LEN - 1) == 0);

#[cfg(test)]
mod tests {
    use tapswitch_openflow::PortNo;

    use super::*;
    use crate::exit::{Fork, ForkKind};

    #[test]
    fn numbers_in_use_are_avoided_and_others_not_used_again_soon() {
        let mut ids = GroupIds::default();
        ids.avoid(GroupId(RANGE_START));
        let key = |port| Fork { kind: ForkKind::Balance, ports: [PortNo(port)].into() };
        let [a, b] = [3, 4].map(|port| Arc::new(GroupKey::forking(key(port))));
        assert_eq!(ids.allocate(&a), GroupId(RANGE_START | 1));
        assert_eq!(ids.retire(&a), Some(GroupId(RANGE_START | 1)));
        ids.release(GroupId(RANGE_START | 1));
        assert_eq!(ids.allocate(&b), GroupId(RANGE_START | 2));
        assert_eq!((ids.find(&a), ids.find(&b)), (None, Some(GroupId(RANGE_START | 2))));
        assert!(is_in_range(GroupId(RANGE_START | 2)) && !is_in_range(GroupId(1)));
    }
}
