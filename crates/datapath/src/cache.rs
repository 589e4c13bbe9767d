//! The flow cache in front of the tables: programs by exact key, then by masked key.
//!
//! Each worker has its own cache. An entry belongs to the epoch in which it was created and is void
//! in any other, so a rule change need not find and remove entries. The cache is bounded: when it
//! is full it is emptied, which costs each live flow one walk.

use std::rc::Rc;

use hashbrown::HashTable;
use tapswitch_wire::FlowKey;

use crate::hash::hash_words;
use crate::program::{Program, Walked};

/// Programs of one worker.
#[derive(Debug)]
pub(crate) struct FlowCache {
    exact: Box<[Slot]>,
    /// Of one epoch: the first walk in another epoch clears them, so that no void entry is searched
    /// or occupies memory.
    tuples: Vec<Tuple>,
    tuples_epoch: u64,
    masked_count: usize,
}

#[derive(Debug)]
struct Slot {
    key: FlowKey,
    epoch: u64,
    program: Option<Rc<Program>>,
}

#[derive(Debug)]
struct Tuple {
    mask: FlowKey,
    entries: HashTable<Entry>,
}

#[derive(Debug)]
struct Entry {
    value: FlowKey,
    program: Rc<Program>,
}

impl FlowCache {
    pub(crate) fn new() -> Self {
        let empty = || Slot { key: FlowKey::default(), epoch: 0, program: None };
        Self {
            exact: (0..EXACT_SLOTS).map(|_| empty()).collect(),
            tuples: Vec::new(),
            tuples_epoch: 0,
            masked_count: 0,
        }
    }

    /// The program for exactly this key.
    #[inline]
    pub(crate) fn find_exact(&self, key: &FlowKey, hash: u64, epoch: u64) -> Option<&Rc<Program>> {
        let [first, second] = places(hash);
        let slot = &self.exact[first];
        if slot.epoch == epoch && slot.key == *key {
            return slot.program.as_ref();
        }
        let slot = &self.exact[second];
        if slot.epoch == epoch && slot.key == *key { slot.program.as_ref() } else { None }
    }

    /// The program of a masked key that covers this one. It is stored for exactly this key.
    pub(crate) fn find_masked(
        &mut self,
        key: &FlowKey,
        hash: u64,
        epoch: u64,
    ) -> Option<Rc<Program>> {
        if self.tuples_epoch != epoch {
            return None;
        }
        let found = self.tuples.iter().find_map(|tuple| {
            let value = key.masked(&tuple.mask);
            let hash = hash_words(value.words());
            let entry = tuple.entries.find(hash, |entry| entry.value == value)?;
            Some(entry.program.clone())
        })?;
        self.insert_exact(key, hash, epoch, found.clone());
        Some(found)
    }

    /// Stores the result of a walk, as far as it is valid for other frames.
    pub(crate) fn insert(
        &mut self,
        key: &FlowKey,
        hash: u64,
        epoch: u64,
        walked: Walked,
    ) -> Rc<Program> {
        let program = Rc::new(walked.program);
        if let Some(mask) = walked.mask {
            self.insert_masked(key, mask, epoch, program.clone());
            self.insert_exact(key, hash, epoch, program.clone());
        }
        program
    }

    /// Number of programs by masked key, void ones included.
    pub(crate) fn masked_count(&self) -> usize {
        self.masked_count
    }

    fn insert_exact(&mut self, key: &FlowKey, hash: u64, epoch: u64, program: Rc<Program>) {
        let [first, second] = places(hash);
        let second_is_free = self.exact[second].epoch != epoch;
        let place = if self.exact[first].epoch == epoch && second_is_free { second } else { first };
        self.exact[place] = Slot { key: *key, epoch, program: Some(program) };
    }

    fn insert_masked(&mut self, key: &FlowKey, mask: FlowKey, epoch: u64, program: Rc<Program>) {
        if self.tuples_epoch != epoch || self.masked_count >= MAX_MASKED {
            self.clear_masked();
            self.tuples_epoch = epoch;
        }
        let known = self.tuples.iter().position(|tuple| tuple.mask == mask);
        let index = known.unwrap_or_else(|| self.add_tuple(mask));
        let value = key.masked(&mask);
        let hash = hash_words(value.words());
        let entries = &mut self.tuples[index].entries;
        let entry = Entry { value, program };
        match entries.find_mut(hash, |entry| entry.value == value) {
            Some(present) => *present = entry,
            None => {
                entries.insert_unique(hash, entry, |entry| hash_words(entry.value.words()));
                self.masked_count += 1;
            }
        }
    }

    /// Adds a new mask, and returns its index.
    fn add_tuple(&mut self, mask: FlowKey) -> usize {
        if self.tuples.len() >= MAX_TUPLES {
            self.clear_masked();
        }
        self.tuples.push(Tuple { mask, entries: HashTable::new() });
        self.tuples.len() - 1
    }

    fn clear_masked(&mut self) {
        self.tuples.clear();
        self.masked_count = 0;
    }
}

/// The two slots where a key with this hash may be.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
fn places(hash: u64) -> [usize; 2] {
    [hash as usize % EXACT_SLOTS, (hash >> 32) as usize % EXACT_SLOTS]
}

/// Exact keys: 4,096 of 144 bytes, more than half a megabyte of second-level cache when all are in
/// use.
const EXACT_SLOTS: usize = 4096;
/// Masked keys.
const MAX_MASKED: usize = 65_536;
/// Masks to try before a walk is cheaper.
const MAX_TUPLES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(mask: FlowKey) -> Walked {
        Walked { program: Program::default(), mask: Some(mask) }
    }

    /// A mask of bits of the flow label.
    fn mask(label: u8) -> FlowKey {
        FlowKey { flow_label: [0, 0, 0, label], ..FlowKey::default() }
    }

    /// Inserts a key that equals its mask.
    fn insert(cache: &mut FlowCache, epoch: u64, label: u8) {
        cache.insert(&mask(label), u64::from(label), epoch, walked(mask(label)));
    }

    #[test]
    fn a_known_mask_has_room_however_many_there_are() {
        let mut cache = FlowCache::new();
        let masks = 1..=u8::try_from(MAX_TUPLES).unwrap_or(u8::MAX);
        masks.for_each(|label| insert(&mut cache, 1, label));
        assert_eq!(cache.masked_count(), MAX_TUPLES);
        cache.insert(&FlowKey::default(), 0, 1, walked(mask(1)));
        assert_eq!(cache.masked_count(), MAX_TUPLES + 1);
        insert(&mut cache, 1, u8::MAX);
        assert_eq!(cache.masked_count(), 1, "one mask too many");
    }

    #[test]
    fn what_an_older_epoch_left_goes_with_the_first_walk_of_a_newer_one() {
        let mut cache = FlowCache::new();
        (1..10).for_each(|label| insert(&mut cache, 1, label));
        assert!(cache.find_masked(&mask(1), 0, 2).is_none());
        insert(&mut cache, 2, 1);
        assert_eq!((cache.masked_count(), cache.tuples.len()), (1, 1));
        assert!(cache.find_masked(&mask(1), 0, 2).is_some());
        assert!(cache.find_masked(&mask(2), 0, 2).is_none());
    }
}
