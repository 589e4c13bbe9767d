//! The numbers of groups.

use std::sync::Arc;

use tapswitch_openflow::GroupId;

use super::GroupKey;
use crate::hash::{Map, Set};

/// The numbers of the groups on one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupIds {
    by_key: Map<Arc<GroupKey>, GroupId>,
    /// Numbers of our range that are in use, by us or by others.
    taken: Set<GroupId>,
    /// Where the search for a free number goes on; numbers are not used again soon.
    next: u32,
}

impl GroupIds {
    /// The number of a group that is there.
    pub(crate) fn find(&self, key: &GroupKey) -> Option<GroupId> {
        self.by_key.get(key).copied()
    }

    /// Gives a group a number that nobody uses. When all million are taken, the switch will say so.
    pub(crate) fn allocate(&mut self, key: &Arc<GroupKey>) -> GroupId {
        let from_next = (self.next..RANGE_LEN).chain(0..self.next);
        let mut numbers = from_next.map(|offset| (offset, GroupId(RANGE_START | offset)));
        let free = numbers.find(|(_, id)| !self.taken.contains(id));
        let (offset, id) = free.unwrap_or((self.next, GroupId(RANGE_START | self.next)));
        self.next = (offset + 1) % RANGE_LEN;
        self.adopt(key, id);
        id
    }

    /// The group of this number, which the switch has, is the one meant.
    pub(crate) fn adopt(&mut self, key: &Arc<GroupKey>, id: GroupId) {
        self.by_key.insert(key.clone(), id);
        self.taken.insert(id);
    }

    /// The number is used by somebody, whoever that is.
    pub(crate) fn avoid(&mut self, id: GroupId) {
        self.taken.insert(id);
    }

    /// The group is not used any more, but still there.
    pub(crate) fn retire(&mut self, key: &GroupKey) -> Option<GroupId> {
        self.by_key.remove(key)
    }

    /// The group is gone from the switch.
    pub(crate) fn release(&mut self, id: GroupId) {
        self.taken.remove(&id);
    }

    /// The groups that are in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<GroupKey>, GroupId)> {
        self.by_key.iter().map(|(key, id)| (key, *id))
    }
}

/// Whether a number is one that we give.
pub(crate) const fn is_in_range(id: GroupId) -> bool {
    id.0 & !(RANGE_LEN - 1) == RANGE_START
}

/// First of our numbers.
pub(super) const RANGE_START: u32 = 0x7470_0000;
/// How many numbers are ours: more than rules that we make on a switch.
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
