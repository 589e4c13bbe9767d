//! Flow tables: rules by priority and masked match, looked up by tuple space search (Srinivasan,
//! Suri, Varghese: "Packet Classification using Tuple Space Search", 1999).
//!
//! All rules with the same mask form a *tuple*, a hash table over masked keys. A lookup tries the
//! tuples from the highest priority down and stops when no later one can win. It also returns the
//! bits of the key that it looked at: a cached outcome is valid for every frame with the same bits.
//!
//! Tables have versions: a change makes new tuples where necessary and shares the rest, so that
//! workers continue with their version.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tapswitch_openflow::{Action, FlowModFlags, GroupId, Instruction, Match, PortNo, TableId};
use tapswitch_wire::FlowKey;

use crate::counters::{Counters, Millis, WorkerIndex, bump};
use crate::field::MatchKey;

mod priorities;
mod slots;

use priorities::Priorities;
use slots::Slots;

/// Flow tables of a switch, numbered from 0.
pub const TABLE_COUNT: u8 = 254;

/// One rule.
#[derive(Clone, Debug)]
pub struct FlowEntry {
    /// Its table.
    pub table_id: TableId,
    /// Higher wins.
    pub priority: u16,
    /// The match, as the controller sent it.
    pub matching: Match,
    /// The match, as bits of the key.
    pub key: MatchKey,
    /// The controller's own identifier.
    pub cookie: u64,
    /// Options.
    pub flags: FlowModFlags,
    /// Seconds without a frame until the rule is removed; 0 for never.
    pub idle_timeout: u16,
    /// Seconds until the rule is removed; 0 for never.
    pub hard_timeout: u16,
    /// When it was added.
    pub created: Millis,
    /// What happens to its frames.
    pub instructions: Arc<[Instruction]>,
    /// Frames that it matched; kept when its instructions change.
    pub counters: Arc<Counters>,
    /// Lookup counters of its table.
    pub table_counters: Arc<TableCounters>,
}

impl FlowEntry {
    /// True if the rule has this exact match and priority.
    pub fn is_same_rule(&self, key: &MatchKey, priority: u16) -> bool {
        self.priority == priority && self.key == *key
    }

    /// True if one of the rule's actions outputs to `port`, or `port` is the wildcard.
    pub fn outputs_to(&self, port: PortNo) -> bool {
        port == PortNo::ANY
            || self.actions().any(|a| matches!(a, Action::Output { port: to, .. } if *to == port))
    }

    /// True if one of the rule's actions is the group, or `group` is the wildcard.
    pub fn uses_group(&self, group: GroupId) -> bool {
        group == GroupId::ANY
            || self.actions().any(|a| matches!(a, Action::Group(id) if *id == group))
    }

    /// The groups that the rule's actions name, each once.
    pub(crate) fn groups(&self) -> BTreeSet<GroupId> {
        let groups = self.actions().filter_map(|action| match action {
            Action::Group(id) => Some(*id),
            _ => None,
        });
        groups.collect()
    }

    /// The meter that frames of the rule pass first, if any (OpenFlow 1.3.5 §5.9).
    pub fn meter(&self) -> Option<u32> {
        self.instructions.iter().find_map(|instruction| match instruction {
            Instruction::Meter(id) => Some(*id),
            _ => None,
        })
    }

    /// True for the table-miss rule (OpenFlow 1.3.5 §5.4).
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.key.mask == FlowKey::default()
    }

    /// When the rule expires, by its timeouts and its last frame.
    pub fn expires(&self) -> Option<Millis> {
        let after = |from: Millis, seconds: u16| {
            (seconds > 0).then(|| Millis(from.0 + u64::from(seconds) * 1000))
        };
        let idle_from = self.created.max(self.counters.totals().last_used);
        let idle = after(idle_from, self.idle_timeout);
        [after(self.created, self.hard_timeout), idle].into_iter().flatten().min()
    }

    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.instructions.iter().flat_map(|instruction| match instruction {
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                actions.as_slice()
            }
            _ => &[],
        })
    }
}

/// One version of a flow table.
#[derive(Clone, Debug)]
pub struct FlowTable {
    /// Ordered by highest priority.
    tuples: Vec<Arc<Tuple>>,
    count: usize,
    counters: Arc<TableCounters>,
}

impl FlowTable {
    /// An empty table with counters for `workers` writers.
    pub fn new(workers: usize) -> Self {
        Self { tuples: Vec::new(), count: 0, counters: Arc::new(TableCounters::new(workers)) }
    }

    /// The rule of highest priority that matches `key`. Adds to `consulted` every bit of the key
    /// that the result depends on.
    pub fn lookup(&self, key: &FlowKey, consulted: &mut FlowKey) -> Option<&Arc<FlowEntry>> {
        let mut best: Option<&Arc<FlowEntry>> = None;
        for tuple in &self.tuples {
            if best.is_some_and(|best| best.priority >= tuple.max_priority) {
                break;
            }
            consulted.unite(&tuple.mask);
            if let Some(found) = tuple.lookup(key)
                && best.is_none_or(|best| found.priority > best.priority)
            {
                best = Some(found);
            }
        }
        best
    }

    /// The rule with exactly this match and priority.
    pub fn find(&self, key: &MatchKey, priority: u16) -> Option<&Arc<FlowEntry>> {
        let tuple = self.tuples.iter().find(|tuple| tuple.mask == key.mask)?;
        tuple.rules(&key.value)?.iter().find(|rule| rule.priority == priority)
    }

    /// All rules, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<FlowEntry>> {
        self.tuples.iter().flat_map(|tuple| tuple.slots.iter().flatten())
    }

    /// Number of rules.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Lookup counters.
    pub fn counters(&self) -> &Arc<TableCounters> {
        &self.counters
    }

    /// Adds a rule; returns the one with the same match and priority that it replaces.
    pub(crate) fn insert(&mut self, entry: Arc<FlowEntry>) -> Option<Arc<FlowEntry>> {
        let mask = entry.key.mask;
        let index = self.tuples.iter().position(|tuple| tuple.mask == mask).unwrap_or_else(|| {
            self.tuples.push(Arc::new(Tuple::new(mask)));
            self.tuples.len() - 1
        });
        let replaced = Arc::make_mut(&mut self.tuples[index]).insert(entry);
        self.count += usize::from(replaced.is_none());
        self.sort();
        replaced
    }

    /// Removes a rule.
    pub(crate) fn remove(&mut self, entry: &FlowEntry) -> bool {
        let mask = &entry.key.mask;
        let Some(index) = self.tuples.iter().position(|tuple| tuple.mask == *mask) else {
            return false;
        };
        let tuple = Arc::make_mut(&mut self.tuples[index]);
        let removed = tuple.remove(&entry.key.value, entry.priority);
        if tuple.slots.is_empty() {
            self.tuples.remove(index);
        }
        self.count -= usize::from(removed);
        self.sort();
        removed
    }

    fn sort(&mut self) {
        self.tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.max_priority));
    }
}

/// All rules with one mask.
#[derive(Clone, Debug)]
struct Tuple {
    mask: FlowKey,
    slots: Slots,
    priorities: Priorities,
    /// The highest priority among them.
    max_priority: u16,
}

impl Tuple {
    fn new(mask: FlowKey) -> Self {
        Self { mask, slots: Slots::new(), priorities: Priorities::default(), max_priority: 0 }
    }

    fn lookup(&self, key: &FlowKey) -> Option<&Arc<FlowEntry>> {
        self.rules(&key.masked(&self.mask))?.first()
    }

    fn rules(&self, value: &FlowKey) -> Option<&[Arc<FlowEntry>]> {
        self.slots.find(value)
    }

    /// Returns the rule that was replaced.
    fn insert(&mut self, entry: Arc<FlowEntry>) -> Option<Arc<FlowEntry>> {
        let priority = entry.priority;
        let replaced = self.slots.change(entry.key.value, |rules| {
            match rules.binary_search_by(|rule| priority.cmp(&rule.priority)) {
                Ok(same) => Some(std::mem::replace(&mut rules[same], entry)),
                Err(place) => {
                    rules.insert(place, entry);
                    None
                }
            }
        });
        if replaced.is_none() {
            self.priorities.add(priority);
            self.max_priority = self.priorities.highest();
        }
        replaced
    }

    fn remove(&mut self, value: &FlowKey, priority: u16) -> bool {
        let is_there = self.slots.change(*value, |rules| {
            let index = rules.iter().position(|rule| rule.priority == priority);
            index.map(|index| rules.remove(index)).is_some()
        });
        if is_there {
            self.priorities.remove(priority);
            self.max_priority = self.priorities.highest();
        }
        is_there
    }
}

/// Lookup counters of one table.
#[derive(Debug)]
pub struct TableCounters {
    slots: Box<[TableSlot]>,
}

impl TableCounters {
    fn new(workers: usize) -> Self {
        Self { slots: (0..workers).map(|_| TableSlot::default()).collect() }
    }

    /// Counts `lookups`, and how many of them found a rule. Only the worker `worker` may call this.
    pub(crate) fn add(&self, worker: WorkerIndex, lookups: u64, matches: u64) {
        if let Some(slot) = self.slots.get(worker.0) {
            bump(&slot.lookups, lookups);
            bump(&slot.matches, matches);
        }
    }

    /// Frames looked up, and those that matched a rule.
    pub fn totals(&self) -> (u64, u64) {
        let sum = |field: fn(&TableSlot) -> &AtomicU64| {
            self.slots.iter().map(|slot| field(slot).load(Ordering::Relaxed)).sum()
        };
        (sum(|slot| &slot.lookups), sum(|slot| &slot.matches))
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct TableSlot {
    lookups: AtomicU64,
    matches: AtomicU64,
}
