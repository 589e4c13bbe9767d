//! Groups that copy: type ALL, the original path first, then the monitors.
//!
//! A group never changes. What would have to change gets a new group, the rules are pointed there,
//! and the old one goes after its counters were read: no copy is lost to the ledger.
//!
//! **Each monitor exactly once.** A bucket exists for each monitor that the original path does not
//! reach anyway. Flooding reaches every port, so the group of what is flooded has one bucket only;
//! the same holds for the port of the destination. (Open vSwitch can be told, beyond OpenFlow 1.3,
//! to leave a port out of flooding: such a port gets no copies of what is flooded.)
//!
//! **Contracts.** On a switch of ours each copy's bucket says what the copy is owed, also when that
//! is best effort: without a word it would be a path for which senders wait. Two policies with one
//! monitor share its bucket, and the stronger contract counts. What reaches the monitor along the
//! original path is the original, and has no contract.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tapswitch_openflow::{
    Action, Bucket, Delivery, GroupId, GroupMod, GroupModCommand, GroupType, PortNo,
};

use crate::overlap::Member;

/// Where a frame goes without any TAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Path {
    /// To the port of its destination.
    Port(PortNo),
    /// Everywhere.
    Flood,
}

/// What a group does, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    /// The policies whose frames reach it: each has its own ledger.
    pub(crate) members: Arc<[Member]>,
    pub(crate) path: Path,
}

impl GroupKey {
    /// The actions of each bucket.
    pub(crate) fn buckets(&self) -> Vec<Vec<Action>> {
        let path = match self.path {
            Path::Port(port) => port,
            Path::Flood => PortNo::FLOOD,
        };
        let copies = self.own_buckets().into_iter().map(|monitor| {
            let contract = self.contract(monitor).map(Delivery::action);
            contract.into_iter().chain([Action::output(monitor)]).collect()
        });
        [vec![Action::output(path)]].into_iter().chain(copies).collect()
    }

    /// Each policy's monitor, and the bucket that counts the copies to it.
    pub(crate) fn bucket_of_each(&self) -> Vec<(Member, usize)> {
        let own = self.own_buckets();
        let bucket = |monitor| own.binary_search(&monitor).map_or(0, |at| at + 1);
        self.members.iter().map(|member| (*member, bucket(member.monitor))).collect()
    }

    /// The group-mod that adds the group.
    pub(crate) fn add(&self, group_id: GroupId) -> GroupMod {
        GroupMod {
            command: GroupModCommand::Add,
            group_type: GroupType::All,
            group_id,
            buckets: self.buckets().into_iter().map(Bucket::new).collect(),
        }
    }

    /// What copies to this monitor are owed: the most that one of their policies asks for.
    fn contract(&self, monitor: PortNo) -> Option<Delivery> {
        let members = self.members.iter().filter(|member| member.monitor == monitor);
        members.filter_map(|member| member.delivery).reduce(Delivery::or_stronger)
    }

    /// The monitors that the path does not reach, each once, in order.
    fn own_buckets(&self) -> Vec<PortNo> {
        let is_reached = |monitor: PortNo| match self.path {
            Path::Port(port) => port == monitor,
            Path::Flood => true,
        };
        let monitors = self.members.iter().map(|member| member.monitor);
        let mut own: Vec<_> = monitors.filter(|monitor| !is_reached(*monitor)).collect();
        own.sort_unstable();
        own.dedup();
        own
    }
}

/// The group-mod that deletes a group.
pub(crate) const fn delete(group_id: GroupId) -> GroupMod {
    let (command, group_type) = (GroupModCommand::Delete, GroupType::All);
    GroupMod { command, group_type, group_id, buckets: Vec::new() }
}

/// The numbers of the groups on one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupIds {
    by_key: HashMap<Arc<GroupKey>, GroupId>,
    /// Numbers of our range that are in use, by us or by others.
    taken: HashSet<GroupId>,
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
const RANGE_START: u32 = 0x7470_0000;
/// How many numbers are ours: more than rules that we make on a switch.
const RANGE_LEN: u32 = 1 << 20;
const _: () = assert!(RANGE_LEN.is_power_of_two() && RANGE_START & (RANGE_LEN - 1) == 0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlap::PolicyId;

    fn key(path: Path, monitors: &[u32]) -> GroupKey {
        let member = |(policy, monitor): (u64, &u32)| Member {
            policy: PolicyId(policy),
            monitor: PortNo(*monitor),
            delivery: None,
        };
        GroupKey { members: (1..).zip(monitors).map(member).collect(), path }
    }

    fn ports(key: &GroupKey) -> Vec<String> {
        key.buckets().iter().map(|actions| actions[0].to_string()).collect()
    }

    fn buckets(key: &GroupKey) -> Vec<usize> {
        key.bucket_of_each().iter().map(|(_, bucket)| *bucket).collect()
    }

    #[test]
    fn each_monitor_gets_one_copy() {
        let to_2 = key(Path::Port(PortNo(2)), &[4, 3, 4]);
        assert_eq!(ports(&to_2), ["output:2", "output:3", "output:4"]);
        assert_eq!(buckets(&to_2), [2, 1, 2]);

        let to_monitor = key(Path::Port(PortNo(3)), &[3, 4]);
        assert_eq!(ports(&to_monitor), ["output:3", "output:4"]);
        assert_eq!(buckets(&to_monitor), [0, 1]);

        let flooded = key(Path::Flood, &[3, 4]);
        assert_eq!(ports(&flooded), ["FLOOD"]);
        assert_eq!(buckets(&flooded), [0, 0]);
    }

    #[test]
    fn a_shared_bucket_has_the_strongest_contract_and_the_path_has_none() {
        let member = |policy, monitor, delivery| Member {
            policy: PolicyId(policy),
            monitor: PortNo(monitor),
            delivery: Some(delivery),
        };
        let lossless = |stall_ms| Delivery::Lossless { stall_ms };
        let members = [
            member(1, 3, Delivery::BestEffort),
            member(2, 3, lossless(20)),
            member(3, 3, lossless(10)),
            member(4, 4, Delivery::SampleOnPressure),
            member(5, 2, lossless(9)),
            member(6, 5, Delivery::BestEffort),
        ];
        let to_2 = GroupKey { members: members.into(), path: Path::Port(PortNo(2)) };
        let texts: Vec<_> =
            to_2.buckets().into_iter().map(|actions| Bucket::new(actions).to_string()).collect();
        assert_eq!(
            texts,
            [
                "actions=output:2",
                "actions=deliver:lossless(20 ms),output:3",
                "actions=deliver:sample-on-pressure,output:4",
                "actions=deliver:best-effort,output:5",
            ]
        );
        let flooded = GroupKey { path: Path::Flood, ..to_2.clone() };
        assert_eq!(flooded.buckets(), [vec![Action::output(PortNo::FLOOD)]]);
        assert_eq!(to_2.add(GroupId(RANGE_START)).check(), Ok(()));
    }

    #[test]
    fn groups_are_ones_that_switches_take() {
        assert_eq!(key(Path::Flood, &[3]).add(GroupId(RANGE_START)).check(), Ok(()));
        assert_eq!(delete(GroupId(RANGE_START)).check(), Ok(()));
    }

    #[test]
    fn numbers_in_use_are_avoided_and_others_not_used_again_soon() {
        let mut ids = GroupIds::default();
        ids.avoid(GroupId(RANGE_START));
        let a = Arc::new(key(Path::Flood, &[3]));
        let b = Arc::new(key(Path::Flood, &[4]));
        assert_eq!(ids.allocate(&a), GroupId(RANGE_START | 1));
        assert_eq!(ids.retire(&a), Some(GroupId(RANGE_START | 1)));
        ids.release(GroupId(RANGE_START | 1));
        assert_eq!(ids.allocate(&b), GroupId(RANGE_START | 2));
        assert_eq!((ids.find(&a), ids.find(&b)), (None, Some(GroupId(RANGE_START | 2))));
        assert!(is_in_range(GroupId(RANGE_START | 2)) && !is_in_range(GroupId(1)));
    }
}
