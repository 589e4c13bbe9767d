//! The rules of a tuple by their masked keys: a hash table in shards, each shared by all versions
//! of the table that have the same in it.
//!
//! Workers hold the version before, so whatever a change touches is copied first. Of one hash table
//! that would be all of it, and a controller that adds rules one by one, a barrier behind each,
//! would wait longer for each. Of shards it is one of them, and the list of shards: both are about
//! as long as the square root of the number of keys, see [`KEYS_MAX`].

use std::sync::Arc;

use hashbrown::HashTable;
use tapswitch_wire::FlowKey;

use super::FlowEntry;
use crate::hash::hash_words;

/// Slots, by their keys.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// A power of two of them, one at least.
    shards: Vec<Arc<HashTable<Slot>>>,
    count: usize,
}

/// The rules with one mask and one value, highest priority first.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    value: FlowKey,
    pub(super) rules: Vec<Arc<FlowEntry>>,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { shards: vec![Arc::default()], count: 0 }
    }

    /// Changes the rules of a key, of which there may be none yet.
    pub(super) fn change<T>(
        &mut self,
        value: FlowKey,
        change: impl FnOnce(&mut Vec<Arc<FlowEntry>>) -> T,
    ) -> T {
        let hash = hash_words(value.words());
        let shard = shard_of(hash, self.shards.len());
        let slots = Arc::make_mut(&mut self.shards[shard]);
        let before = slots.len();
        let is_it = |slot: &Slot| slot.value == value;
        let empty = || Slot { value, rules: Vec::new() };
        let mut slot = slots.entry(hash, is_it, hash_of).or_insert_with(empty);
        let outcome = change(&mut slot.get_mut().rules);
        if slot.get().rules.is_empty() {
            slot.remove();
        }
        self.count = self.count + slots.len() - before;
        if self.count > KEYS_MAX * self.shards.len() * self.shards.len() {
            self.split();
        }
        outcome
    }

    /// The slot of a key.
    pub(super) fn find(&self, value: &FlowKey) -> Option<&Slot> {
        let hash = hash_words(value.words());
        let shard = &self.shards[shard_of(hash, self.shards.len())];
        shard.find(hash, |slot| slot.value == *value)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.shards.iter().flat_map(|shard| shard.iter())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Makes twice as many shards.
    fn split(&mut self) {
        let count = 2 * self.shards.len();
        let mut shards = vec![HashTable::new(); count];
        for slot in self.iter() {
            let hash = hash_of(slot);
            shards[shard_of(hash, count)].insert_unique(hash, slot.clone(), hash_of);
        }
        self.shards = shards.into_iter().map(Arc::new).collect();
    }
}

fn hash_of(slot: &Slot) -> u64 {
    hash_words(slot.value.words())
}

/// By bits in the middle: hash tables go by those at both ends.
fn shard_of(hash: u64, count: usize) -> usize {
    (hash >> 24) as usize & (count - 1)
}

/// Keys that each shard has at most, by their mean, for each shard that there is: to copy a slot
/// costs a few times what it costs to share a shard once more.
const KEYS_MAX: usize = 1;

#[cfg(test)]
mod tests {
    use tapswitch_openflow::{FlowModFlags, Match, TableId};

    use super::super::TableCounters;
    use super::*;
    use crate::counters::{Counters, Millis};
    use crate::field::MatchKey;

    fn rule() -> Arc<FlowEntry> {
        let key = MatchKey { value: FlowKey::default(), mask: FlowKey::default() };
        Arc::new(FlowEntry {
            table_id: TableId(0),
            priority: 1,
            matching: Match::default(),
            key,
            cookie: 0,
            flags: FlowModFlags::empty(),
            idle_timeout: 0,
            hard_timeout: 0,
            created: Millis(0),
            instructions: Arc::default(),
            counters: Arc::new(Counters::new(1)),
            table_counters: Arc::new(TableCounters::new(1)),
        })
    }

    fn key(number: u32) -> FlowKey {
        FlowKey { in_port: number.to_be_bytes(), ..FlowKey::default() }
    }

    #[test]
    fn a_change_copies_about_as_much_as_the_square_root_of_all() {
        let mut slots = Slots::new();
        let (mut copied, mut most) = (0, 0);
        for number in 0..40_000 {
            let before = slots.clone();
            slots.change(key(number), |rules| rules.extend([rule()]));
            if slots.shards.len() > before.shards.len() {
                continue;
            }
            let is_new = |(new, old): &(&Arc<_>, &Arc<_>)| !Arc::ptr_eq(new, old);
            let pairs = slots.shards.iter().zip(&before.shards).filter(is_new);
            let here = pairs.map(|(_, old)| old.len()).sum::<usize>();
            (copied, most) = (copied + here, most.max(here + slots.shards.len()));
        }
        assert!(most < 1024 && copied / 40_000 < 256, "{most} {copied}");
        assert_eq!((slots.count, slots.iter().count()), (40_000, 40_000));
    }

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let mut slots = Slots::new();
        for number in 0..1000 {
            slots.change(key(number), |rules| rules.extend([rule()]));
        }
        let before = slots.clone();
        for number in (0..1000).step_by(2) {
            slots.change(key(number), Vec::clear);
        }
        for number in 0..1000 {
            assert_eq!(slots.find(&key(number)).is_some(), number % 2 == 1);
            assert!(before.find(&key(number)).is_some(), "who holds a version keeps it");
        }
        assert_eq!((slots.count, before.count), (500, 1000));
        slots.change(key(5000), Vec::clear);
        assert_eq!(slots.count, 500, "nothing was made of nothing");
    }
}
