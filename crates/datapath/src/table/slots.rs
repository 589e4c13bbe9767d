//! The rules of a tuple by their masked keys: a tree by the bits of their hashes, whose nodes are
//! shared by all versions of the table in which they are the same (Bagwell: "Ideal Hash Trees",
//! 2001).
//!
//! Workers hold the previous version, so everything that a change touches is copied first. Of a
//! hash table that would be all of it, and a controller that adds rules one by one, each followed
//! by a barrier, would wait longer for each. Of a tree it is the path from the root to a leaf,
//! whose length grows with the logarithm of the number of keys.

use std::array;
use std::slice;
use std::sync::Arc;

use tapswitch_wire::FlowKey;

use super::FlowEntry;
use crate::hash::hash_words;

/// Slots by key.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    root: Node,
    count: usize,
}

/// The rules with one mask and one value, which is the value of their keys; at least one, highest
/// priority first. Most slots have a single rule, which is where a lookup looks first.
#[derive(Clone, Debug)]
enum Slot {
    One(Arc<FlowEntry>),
    Several(Arc<Vec<Arc<FlowEntry>>>),
}

#[derive(Clone, Debug)]
enum Node {
    /// By the next bits of the hash.
    Branch(Arc<[Self; FANOUT]>),
    /// With their hashes, which are compared first.
    Leaf(Arc<[(u64, Slot)]>),
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { root: Node::Leaf(Arc::default()), count: 0 }
    }

    /// Changes the rules of a key, which may have none yet.
    pub(super) fn change<T>(
        &mut self,
        value: FlowKey,
        change: impl FnOnce(&mut Vec<Arc<FlowEntry>>) -> T,
    ) -> T {
        let hash = hash_words(value.words());
        let (outcome, before, after) = self.root.change(hash, 0, |slots| {
            let before = slots.len();
            let outcome = change_slot(slots, hash, &value, change);
            (outcome, before, slots.len())
        });
        self.count = self.count + after - before;
        if self.count == 0 {
            *self = Self::new();
        }
        outcome
    }

    /// The rules of a key.
    pub(super) fn find(&self, value: &FlowKey) -> Option<&[Arc<FlowEntry>]> {
        let hash = hash_words(value.words());
        let (mut node, mut depth) = (&self.root, 0);
        loop {
            match node {
                Node::Branch(children) => node = &children[index(hash, depth)],
                Node::Leaf(slots) => {
                    let is_it =
                        |(theirs, slot): &&(u64, Slot)| *theirs == hash && slot.is_of(value);
                    return slots.iter().find(is_it).map(|(_, slot)| slot.rules());
                }
            }
            depth += 1;
        }
    }

    /// The rules of each key, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[Arc<FlowEntry>]> {
        let (mut nodes, mut slots) = (vec![&self.root], NO_SLOTS.iter());
        std::iter::from_fn(move || {
            loop {
                if let Some((_, slot)) = slots.next() {
                    return Some(slot.rules());
                }
                match nodes.pop()? {
                    Node::Branch(children) => nodes.extend(&**children),
                    Node::Leaf(leaf) => slots = leaf.iter(),
                }
            }
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Node {
    /// Changes the leaf of a hash, `depth` nodes below the root.
    fn change<T>(
        &mut self,
        hash: u64,
        depth: u32,
        change: impl FnOnce(&mut Vec<(u64, Slot)>) -> T,
    ) -> T {
        match self {
            Self::Branch(children) => {
                let child = &mut Arc::make_mut(children)[index(hash, depth)];
                child.change(hash, depth + 1, change)
            }
            Self::Leaf(leaf) => {
                let mut slots = leaf.to_vec();
                // A leaf that no other version has is now ours, and need not be copied again.
                *leaf = Arc::default();
                let outcome = change(&mut slots);
                *self = match slots.len() > LEAF_COUNT_MAX && depth < DEPTH_MAX {
                    true => Self::split(slots, depth),
                    false => Self::Leaf(slots.into()),
                };
                outcome
            }
        }
    }

    /// Makes a branch of a leaf.
    fn split(slots: Vec<(u64, Slot)>, depth: u32) -> Self {
        let mut leaves = array::from_fn::<_, FANOUT, _>(|_| Vec::new());
        for (hash, slot) in slots {
            leaves[index(hash, depth)].push((hash, slot));
        }
        Self::Branch(Arc::new(leaves.map(|leaf| Self::Leaf(leaf.into()))))
    }
}

/// Changes the rules of a key in its leaf. Slots keep their order there, so that small tables are
/// listed in the order of insertion.
fn change_slot<T>(
    slots: &mut Vec<(u64, Slot)>,
    hash: u64,
    value: &FlowKey,
    change: impl FnOnce(&mut Vec<Arc<FlowEntry>>) -> T,
) -> T {
    let is_it = |(theirs, slot): &(u64, Slot)| *theirs == hash && slot.is_of(value);
    let at = slots.iter().position(is_it);
    let mut rules = at.map_or_else(Vec::new, |at| slots.remove(at).1.into_rules());
    let outcome = change(&mut rules);
    if let Some(slot) = Slot::of(rules) {
        slots.insert(at.unwrap_or(slots.len()), (hash, slot));
    }
    outcome
}

impl Slot {
    /// `None` when there are no rules.
    fn of(mut rules: Vec<Arc<FlowEntry>>) -> Option<Self> {
        match rules.len() {
            0 | 1 => rules.pop().map(Self::One),
            _ => Some(Self::Several(Arc::new(rules))),
        }
    }

    fn into_rules(self) -> Vec<Arc<FlowEntry>> {
        match self {
            Self::One(rule) => vec![rule],
            Self::Several(rules) => Arc::unwrap_or_clone(rules),
        }
    }

    fn rules(&self) -> &[Arc<FlowEntry>] {
        match self {
            Self::One(rule) => slice::from_ref(rule),
            Self::Several(rules) => rules,
        }
    }

    fn is_of(&self, value: &FlowKey) -> bool {
        self.rules().first().is_some_and(|rule| rule.key.value == *value)
    }
}

/// Index of the child for a hash in a branch `depth` nodes below the root: the highest bits first.
fn index(hash: u64, depth: u32) -> usize {
    (hash << (depth * INDEX_BITS) >> (u64::BITS - INDEX_BITS)) as usize
}

const NO_SLOTS: &[(u64, Slot)] = &[];
/// Bits of a hash that select a child.
const INDEX_BITS: u32 = 4;
/// Children of a branch.
const FANOUT: usize = 1 << INDEX_BITS;
/// Depth at which all bits of a hash are used up.
const DEPTH_MAX: u32 = u64::BITS / INDEX_BITS;
/// Maximum slots of a leaf before it becomes a branch: about as many as a branch has children, so
/// that both cost the same to copy.
const LEAF_COUNT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use tapswitch_openflow::{FlowModFlags, Match, TableId};

    use super::super::TableCounters;
    use super::*;
    use crate::counters::{Counters, Millis};
    use crate::field::MatchKey;

    fn rule(number: u32) -> Arc<FlowEntry> {
        let key = MatchKey { value: key(number), mask: FlowKey::default() };
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

    /// Nodes of a version that an earlier one does not share, and slots in them.
    fn news(new: &Node, old: &Node) -> (usize, usize) {
        match (new, old) {
            (Node::Branch(children), Node::Branch(others)) if Arc::ptr_eq(children, others) => {
                (0, 0)
            }
            (Node::Leaf(slots), Node::Leaf(others)) if Arc::ptr_eq(slots, others) => (0, 0),
            (Node::Branch(children), Node::Branch(others)) => {
                let news = children.iter().zip(&**others).map(|(new, old)| news(new, old));
                news.fold((1, FANOUT), |sum, news| (sum.0 + news.0, sum.1 + news.1))
            }
            (Node::Branch(_), _) => (1 + FANOUT, FANOUT + LEAF_COUNT_MAX),
            (Node::Leaf(slots), _) => (1, slots.len()),
        }
    }

    #[test]
    fn a_change_copies_the_way_to_one_leaf() {
        let mut slots = Slots::new();
        let (mut nodes_max, mut items) = (0, 0);
        for number in 0..40_000 {
            let before = slots.clone();
            slots.change(key(number), |rules| rules.extend([rule(number)]));
            let (nodes, here) = news(&slots.root, &before.root);
            (nodes_max, items) = (nodes_max.max(nodes), items + here);
        }
        // Three or four branches and a leaf; or a leaf's children in its place.
        assert!(nodes_max <= 5 + FANOUT, "{nodes_max} nodes");
        assert!(items / 40_000 <= 5 * FANOUT, "{} items", items / 40_000);
        assert_eq!((slots.count, slots.iter().count()), (40_000, 40_000));
    }

    /// An attacker may choose such keys.
    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let mut node = Node::Leaf(Arc::default());
        for number in 0..100 {
            node.change(7, 0, |slots| {
                change_slot(slots, 7, &key(number), |rules| rules.extend([rule(number)]));
            });
        }
        let count = node.change(7, 0, |slots| {
            change_slot(slots, 7, &key(50), Vec::clear);
            assert!(slots.iter().all(|(_, slot)| !slot.is_of(&key(50))));
            slots.len()
        });
        assert_eq!(count, 99);
    }

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let mut slots = Slots::new();
        for number in 0..1000 {
            slots.change(key(number), |rules| rules.extend([rule(number)]));
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
