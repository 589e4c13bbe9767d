//! The group table (OpenFlow 1.3.5 §5.6): numbered lists of action buckets.
//!
//! Groups may chain. Loops, and chains longer than the switch follows, are refused when a group is
//! changed, so that no frame can meet one. A group that others lead to may be deleted, and these
//! are deleted with it: our controller deletes groups in any order.

use std::sync::Arc;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use tapswitch_openflow::{
    Action, Bucket, Delivery, GroupId, GroupMod, GroupModCommand, GroupType, PortNo, Shape,
};

use crate::DropReason;
use crate::counters::{Counters, DropCounters, Gauge, Millis, WorkerIndex};
use crate::port::Ports;
use crate::sampler::Sampler;
use crate::traffic::Traffic;

mod check;

/// One group.
#[derive(Debug)]
pub struct Group {
    /// Its number.
    pub id: GroupId,
    /// How it picks buckets.
    pub kind: GroupType,
    /// Its buckets in order.
    pub buckets: Box<[GroupBucket]>,
    /// Frames that reached it.
    pub counters: Arc<Counters>,
    /// When it was added.
    pub created: Millis,
}

/// One bucket and its ledger.
#[derive(Debug)]
pub struct GroupBucket {
    /// Its actions.
    pub spec: Bucket,
    /// The contract of its copies; `None` for a path of its own.
    pub delivery: Option<Delivery>,
    /// Bytes of each packet that its copies keep; `None` for all.
    pub(crate) snaplen: Option<u16>,
    /// Picks the copies to make; `None` for all.
    pub(crate) sampler: Option<Sampler>,
    /// Frames that it processed.
    pub counters: Counters,
    /// Copies that a port has taken.
    pub delivered: Counters,
    /// Dropped copies by reason. For a bucket with one output, processed frames are delivered,
    /// dropped or queued.
    pub drops: DropCounters,
    /// The packets that these make on the wire; the same sum holds for packets.
    pub packet_drops: DropCounters,
    /// Copies that wait for their port.
    pub queued: Gauge,
}

impl Group {
    fn new(spec: &GroupMod, counters: Arc<Counters>, created: Millis, workers: usize) -> Self {
        let id = spec.group_id;
        let bucket = |(index, spec): (u32, &Bucket)| GroupBucket {
            spec: spec.clone(),
            delivery: spec.actions.iter().find_map(Delivery::of),
            snaplen: shapes(spec).find_map(snaplen),
            sampler: shapes(spec).find_map(every).map(|every| {
                let seed = (u64::from(id.0) << 32) | u64::from(index);
                Sampler::new(every, seed, workers)
            }),
            counters: Counters::new(workers),
            delivered: Counters::new(workers),
            drops: DropCounters::new(workers),
            packet_drops: DropCounters::new(workers),
            queued: Gauge::new(workers),
        };
        Self {
            id,
            kind: spec.group_type,
            buckets: (0..).zip(&spec.buckets).map(bucket).collect(),
            counters,
            created,
        }
    }

    /// The groups that its buckets name.
    pub fn chained(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.buckets.iter().flat_map(|bucket| groups_of(&bucket.spec.actions))
    }
}

impl GroupBucket {
    /// Counts dropped copies. Only the worker `worker` may call this; [none](WorkerIndex::NONE) is
    /// allowed.
    pub fn drop(&self, worker: WorkerIndex, traffic: Traffic, reason: DropReason) {
        self.drops.add_all(worker, reason, traffic.frames);
        self.packet_drops.add_all(worker, reason, traffic.packets);
    }
}

/// A bucket of a group, by its index.
#[derive(Clone, Debug)]
pub(crate) struct BucketRef {
    pub(crate) group: Arc<Group>,
    pub(crate) index: u32,
    /// Bytes of each packet that it keeps, by itself or because of an enclosing bucket; zero for
    /// all.
    pub(crate) snaplen: u32,
}

impl BucketRef {
    pub(crate) fn bucket(&self) -> &GroupBucket {
        &self.group.buckets[self.index as usize]
    }

    /// Bytes of each packet that it keeps; `None` for all.
    #[inline]
    pub(crate) fn snaplen(&self) -> Option<usize> {
        (self.snaplen > 0).then_some(self.snaplen as usize)
    }
}

/// All groups at one moment.
///
/// Workers hold the previous version, so everything that a change touches is copied first. The
/// table is split into parts, of which a change copies one: a controller that deletes ten thousand
/// groups one by one would otherwise copy all of them each time.
#[derive(Clone, Debug)]
pub struct GroupTable {
    /// By their numbers.
    parts: [Arc<HashMap<GroupId, Arc<Group>>>; PARTS],
    count: usize,
    /// How often each group is named by others. Most are not, and are deleted without searching all
    /// others.
    named: Arc<HashMap<GroupId, usize>>,
}

impl Default for GroupTable {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Arc::default()), count: 0, named: Arc::default() }
    }
}

impl GroupTable {
    /// The group with this number.
    pub fn find(&self, id: GroupId) -> Option<&Arc<Group>> {
        self.parts[part(id)].get(&id)
    }

    /// Inserts a group, replacing the one with its number.
    fn insert(&mut self, group: Group) {
        self.remove(group.id);
        self.count += 1;
        for id in group.chained() {
            *Arc::make_mut(&mut self.named).entry(id).or_default() += 1;
        }
        Arc::make_mut(&mut self.parts[part(group.id)]).insert(group.id, Arc::new(group));
    }

    fn remove(&mut self, id: GroupId) -> Option<Arc<Group>> {
        self.find(id)?;
        let group = Arc::make_mut(&mut self.parts[part(id)]).remove(&id)?;
        self.count -= 1;
        for id in group.chained() {
            if let Entry::Occupied(mut named) = Arc::make_mut(&mut self.named).entry(id) {
                *named.get_mut() -= 1;
                if *named.get() == 0 {
                    named.remove();
                }
            }
        }
        Some(group)
    }

    /// All groups, in no order.
    fn all(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.parts.iter().flat_map(|part| part.values())
    }

    /// All groups, ordered by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Group>> {
        let mut groups: Vec<_> = self.all().collect();
        groups.sort_by_key(|group| group.id);
        groups.into_iter()
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.count
    }

    /// True if one of the objects that a bucket watches is live, a port or a group, or if it
    /// watches nothing. By the letter of OpenFlow 1.3.5 §6.5 such a bucket is not live; but then no
    /// group of plain buckets could be watched, or select one, so it is here as in Open vSwitch. A
    /// group is live if one of its buckets is, so the search covers all groups that can be reached,
    /// each once.
    pub fn is_live(&self, bucket: &Bucket, ports: &Ports) -> bool {
        let (mut open, mut seen) = (vec![bucket], HashSet::new());
        while let Some(bucket) = open.pop() {
            let (port, group) = (bucket.watch_port, bucket.watch_group);
            let watches_nothing = port == PortNo::ANY && group == GroupId::ANY;
            if watches_nothing || ports.find(port).is_some_and(|port| port.is_live()) {
                return true;
            }
            if seen.insert(group) {
                let buckets = self.find(group).into_iter().flat_map(|group| &group.buckets);
                open.extend(buckets.map(|bucket| &bucket.spec));
            }
        }
        false
    }

    /// Adds, changes or deletes groups, by a change that [has been checked](Self::check_mod).
    /// Returns the deleted groups; rules that use them must be deleted too (OpenFlow 1.3.5 §6.5).
    pub(crate) fn handle_mod(
        &mut self,
        spec: &GroupMod,
        now: Millis,
        workers: usize,
    ) -> Vec<GroupId> {
        if spec.command == GroupModCommand::Delete {
            return self.delete(spec.group_id);
        }
        let known = self.find(spec.group_id).map(|old| (old.counters.clone(), old.created));
        let (counters, created) = known.unwrap_or_else(|| (Arc::new(Counters::new(workers)), now));
        self.insert(Group::new(spec, counters, created, workers));
        Vec::new()
    }

    /// Deletes one group, or all. Groups that chain to a deleted one are deleted too, since they
    /// could no longer be executed.
    fn delete(&mut self, id: GroupId) -> Vec<GroupId> {
        if id == GroupId::ALL {
            return std::mem::take(self).all().map(|group| group.id).collect();
        }
        let mut gone: Vec<_> = self.remove(id).map(|group| group.id).into_iter().collect();
        let mut next = 0;
        while let Some(&dead) = gone.get(next) {
            next += 1;
            let orphans = self.leading_to(dead);
            orphans.iter().for_each(|&id| drop(self.remove(id)));
            gone.extend(orphans);
        }
        gone
    }

    /// The groups that name this one.
    fn leading_to(&self, named: GroupId) -> Vec<GroupId> {
        if !self.named.contains_key(&named) {
            return Vec::new();
        }
        let leads = |group: &&Arc<Group>| group.chained().any(|id| id == named);
        self.all().filter(leads).map(|group| group.id).collect()
    }
}

/// The part of the table that holds a group. Controllers usually number them consecutively.
fn part(id: GroupId) -> usize {
    id.0 as usize % PARTS
}

/// The shapes of the copies of a bucket.
fn shapes(bucket: &Bucket) -> impl Iterator<Item = Shape> + '_ {
    bucket.actions.iter().filter_map(Shape::of)
}

fn snaplen(shape: Shape) -> Option<u16> {
    match shape {
        Shape::Truncate { len } => Some(len),
        Shape::Sample { .. } => None,
    }
}

fn every(shape: Shape) -> Option<u32> {
    match shape {
        Shape::Sample { every } => Some(every),
        Shape::Truncate { .. } => None,
    }
}

/// The groups that `actions` name.
pub(crate) fn groups_of(actions: &[Action]) -> impl Iterator<Item = GroupId> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Group(id) => Some(*id),
        _ => None,
    })
}

/// Longest chain of groups that a frame follows.
pub(crate) const MAX_DEPTH: usize = 16;
/// Parts of a table: with ten thousand groups each has 160.
const PARTS: usize = 64;
/// Groups that the table holds; each costs a few hundred bytes.
pub const MAX_GROUPS: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(next: Option<u32>) -> Bucket {
        Bucket::new(next.map(|id| Action::Group(GroupId(id))).into_iter().collect())
    }

    fn change(table: &mut GroupTable, command: GroupModCommand, id: u32, next: Option<u32>) {
        let (group_id, buckets) = (GroupId(id), vec![bucket(next), bucket(next)]);
        let spec = GroupMod { command, group_type: GroupType::All, group_id, buckets };
        if table.check_mod(&spec).is_ok() {
            table.handle_mod(&spec, Millis(0), 1);
        }
    }

    /// The uses that are counted incrementally equal those found by a search of all groups.
    #[test]
    fn who_is_named_is_known_without_a_look_at_all() {
        let mut table = GroupTable::default();
        let mut random = 1_u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for _ in 0..5000 {
            let (id, target) = (next(200), Some(next(300)).filter(|id| *id < 200));
            let command = match next(4) {
                0 => GroupModCommand::Delete,
                1 => GroupModCommand::Modify,
                _ => GroupModCommand::Add,
            };
            let before = table.clone();
            change(&mut table, command, id, target);
            assert_eq!(table.all().count(), table.count());
            assert_eq!(before.all().count(), before.count(), "the version before stays");
            let mut named: HashMap<GroupId, usize> = HashMap::new();
            for id in table.all().flat_map(|group| group.chained()) {
                *named.entry(id).or_default() += 1;
            }
            assert_eq!(*table.named, named);
            assert!(named.keys().all(|id| table.find(*id).is_some()), "a chain leads nowhere");
        }
        assert!(table.count() > 20);
    }
}
