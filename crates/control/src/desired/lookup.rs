//! Lookup of the first rule that a frame hits.
//!
//! Rules that match the same bits of the same fields form a kind, and are hashed by the values of
//! these bits: one lookup per kind, however many rules it has. There are few kinds, and those whose
//! highest priority is below the best match are skipped (tuple space search). The order is built on
//! first use, updated from then on, and shared by copies. Changes in a copy are kept beside the
//! shared order until they are many: a trial changes few of many rules.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

use tapswitch_openflow::{Match, OxmField, TableId};

use crate::hash::{Map, Set};
use crate::rule::FlowId;
use crate::shared::Branched;
use crate::translate::Goal;

/// Access to the fields of a frame.
pub(crate) trait Fields {
    /// The value of a field; `None` if such frames do not have it.
    fn value(&self, field: OxmField) -> Option<u128>;
}

/// A rule that a frame hits, with its id.
type Met<'a> = (&'a Arc<FlowId>, &'a Goal);

/// The lookup order, if it has been needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup {
    order: OnceLock<Arc<Order>>,
    /// Rules added while the order was shared.
    recent: Arc<Order>,
    /// Rules added while `recent` was shared, too.
    latest: Order,
    /// Number of removed rules that are still in one of the orders.
    gone: usize,
}

/// Kinds of rules by table, highest priority first. Some of the rules may have been removed.
#[derive(Clone, Debug, Default)]
struct Order {
    kinds: Map<TableId, Vec<Kind>>,
    /// Number of rules.
    len: usize,
}

/// Rules that match the same bits of the same fields.
#[derive(Clone, Debug)]
struct Kind {
    bits: Box<[(OxmField, u128)]>,
    /// Upper bound of their priorities.
    highest: u16,
    /// By the matched values: the highest priority first.
    rules: Map<Box<[u128]>, Vec<Arc<FlowId>>>,
}

impl Lookup {
    /// A rule was added or changed; `rule_count` is the total.
    pub(super) fn note_added(&mut self, id: &Arc<FlowId>, rule_count: usize) {
        let Some(order) = self.order.get_mut() else { return };
        // A rule that matches fields which our frames do not have is never hit.
        let Some(wants) = Wants::of(id.matching()) else { return };
        // Only a rule that was removed while the order was shared may still be present.
        let may_be_there = self.gone > 0;
        if may_be_there && self.recent.has(id, &wants) {
            return;
        }
        if let Some(own) = Arc::get_mut(order) {
            return own.insert(id, &wants);
        }
        if may_be_there && order.has(id, &wants) {
            return;
        }
        let recent = Arc::get_mut(&mut self.recent);
        recent.unwrap_or(&mut self.latest).insert(id, &wants);
        self.start_again_beyond(rule_count);
    }

    /// A rule was removed; `rule_count` is the total.
    pub(super) fn note_removed(&mut self, id: &FlowId, rule_count: usize) {
        let Some(order) = self.order.get_mut() else { return };
        if !Arc::get_mut(order).is_some_and(|order| order.remove(id)) {
            self.gone += 1;
            self.start_again_beyond(rule_count);
        }
    }

    /// Merges the changes of a copy into the order, if that is not shared any more. The removed
    /// rules are those of `changed` that are not in `rules`.
    pub(super) fn join(&mut self, changed: &Set<Arc<FlowId>>, rules: &Branched<Arc<FlowId>, Goal>) {
        let Some(order) = self.order.get_mut().and_then(Arc::get_mut) else { return };
        if Arc::get_mut(&mut self.recent).is_none() {
            return;
        }
        let recent = Arc::try_unwrap(std::mem::take(&mut self.recent)).unwrap_or_default();
        order.absorb(recent);
        order.absorb(std::mem::take(&mut self.latest));
        if self.gone > 0 {
            let gone = changed.iter().filter(|id| !rules.contains_key(&***id));
            let removed = gone.filter(|id| order.remove(id)).count();
            self.gone = self.gone.saturating_sub(removed);
        }
    }

    fn start_again_beyond(&mut self, rule_count: usize) {
        if self.recent.len + self.latest.len + self.gone
            > MAX_CHANGED.max(rule_count / CHANGED_PART)
        {
            *self = Self::default();
        }
    }

    /// Builds the order, which all later copies share.
    pub(super) fn prepare(&self, rules: &Branched<Arc<FlowId>, Goal>) {
        self.order(rules);
    }

    /// Whether the order is built.
    pub(super) fn is_prepared(&self) -> bool {
        self.order.get().is_some()
    }

    fn order(&self, rules: &Branched<Arc<FlowId>, Goal>) -> &Order {
        self.order.get_or_init(|| Arc::new(Order::new(rules.keys())))
    }

    /// The first of these rules that a frame hits in a table, among those for which `counts` holds.
    pub(super) fn find<'a>(
        &self,
        rules: &'a Branched<Arc<FlowId>, Goal>,
        (table, frame): (TableId, &impl Fields),
        counts: impl Fn(&Goal) -> bool,
    ) -> Option<Met<'a>> {
        let order = self.order(rules);
        let met = |id: &FlowId| rules.get_key_value(id).filter(|(_, goal)| counts(goal));
        let mut first = None;
        for order in [order, &self.recent, &self.latest] {
            order.find((table, frame), &met, &mut first);
        }
        first
    }
}

impl Order {
    fn new<'a>(ids: impl Iterator<Item = &'a Arc<FlowId>>) -> Self {
        let mut order = Self::default();
        for id in ids {
            if let Some(wants) = Wants::of(id.matching()) {
                order.insert(id, &wants);
            }
        }
        order
    }

    fn has(&self, id: &FlowId, wants: &Wants) -> bool {
        let kinds = self.kinds.get(&id.table);
        let kind = kinds.and_then(|kinds| kinds.iter().find(|kind| *kind.bits == *wants.bits()));
        kind.is_some_and(|kind| kind.has(id, wants.values()))
    }

    fn insert(&mut self, id: &Arc<FlowId>, wants: &Wants) {
        let kinds = self.kinds.entry(id.table).or_default();
        let known = kinds.iter().position(|kind| *kind.bits == *wants.bits());
        let at = known.unwrap_or_else(|| {
            let bits = wants.bits().into();
            kinds.push(Kind { bits, highest: 0, rules: Map::default() });
            kinds.len() - 1
        });
        let Some(kind) = kinds.get_mut(at) else { return };
        if !kind.insert(id, wants.values()) {
            return;
        }
        self.len += 1;
        let highest = kind.highest;
        // It may rank higher now.
        let before = kinds.iter().take(at).take_while(|kind| kind.highest >= highest).count();
        if let Some(moved) = kinds.get_mut(before..=at) {
            moved.rotate_right(1);
        }
    }

    /// Adds the rules of another order, none of which are present.
    fn absorb(&mut self, other: Self) {
        self.len += other.len;
        for (table, new) in other.kinds {
            let kinds = self.kinds.entry(table).or_default();
            for new in new {
                match kinds.iter_mut().find(|kind| kind.bits == new.bits) {
                    Some(kind) => kind.absorb(new),
                    None => kinds.push(new),
                }
            }
            kinds.sort_by_key(|kind| Reverse(kind.highest));
        }
    }

    /// Returns whether it was present.
    fn remove(&mut self, id: &FlowId) -> bool {
        let Some(wants) = Wants::of(id.matching()) else { return false };
        let kinds = self.kinds.entry(id.table).or_default();
        let Some(at) = kinds.iter().position(|kind| *kind.bits == *wants.bits()) else {
            return false;
        };
        let gone = kinds.get_mut(at).map(|kind| (kind.remove(id, wants.values()), kind.is_empty()));
        let (was_there, is_empty) = gone.unwrap_or_default();
        if is_empty {
            kinds.remove(at);
        }
        self.len -= usize::from(was_there);
        was_there
    }

    /// Updates `first` if the frame hits a rule of a higher priority.
    fn find<'a>(
        &self,
        (table, frame): (TableId, &impl Fields),
        met: &impl Fn(&FlowId) -> Option<Met<'a>>,
        first: &mut Option<Met<'a>>,
    ) {
        for kind in self.kinds.get(&table).into_iter().flatten() {
            let is_higher = |priority| first.is_none_or(|(found, _)| priority > found.priority);
            if !is_higher(kind.highest) {
                return;
            }
            let mut near = kind.met_by(frame).take_while(|id| is_higher(id.priority));
            *first = near.find_map(|id| met(id)).or(*first);
        }
    }
}

impl Kind {
    fn has(&self, id: &FlowId, values: &[u128]) -> bool {
        self.rules.get(values).is_some_and(|rules| rules.iter().any(|other| **other == *id))
    }

    /// Returns whether it was absent.
    fn insert(&mut self, id: &Arc<FlowId>, values: &[u128]) -> bool {
        match self.rules.get_mut(values) {
            None => _ = self.rules.insert(values.into(), vec![id.clone()]),
            Some(rules) if rules.contains(id) => return false,
            Some(rules) => {
                let is_before =
                    |other: &Arc<FlowId>| Reverse(other.priority) <= Reverse(id.priority);
                rules.insert(rules.partition_point(is_before), id.clone());
            }
        }
        self.highest = self.highest.max(id.priority);
        true
    }

    /// Adds the rules of another one, none of which are present.
    fn absorb(&mut self, other: Self) {
        self.highest = self.highest.max(other.highest);
        for (values, mut rules) in other.rules {
            let own = self.rules.entry(values).or_default();
            own.append(&mut rules);
            own.sort_by_key(|id| Reverse(id.priority));
        }
    }

    /// Returns whether it was present.
    fn remove(&mut self, id: &FlowId, values: &[u128]) -> bool {
        let Some(rules) = self.rules.get_mut(values) else { return false };
        let before = rules.len();
        rules.retain(|other| **other != *id);
        let was_there = rules.len() < before;
        if rules.is_empty() {
            self.rules.remove(values);
        }
        was_there
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Rules that a frame hits, the highest first.
    fn met_by(&self, frame: &impl Fields) -> impl Iterator<Item = &Arc<FlowId>> {
        self.wanting(frame, &mut [0; MAX_FIELDS]).into_iter().flatten()
    }

    /// Rules for the values that a frame has.
    fn wanting(
        &self,
        frame: &impl Fields,
        values: &mut [u128; MAX_FIELDS],
    ) -> Option<&Vec<Arc<FlowId>>> {
        for (value, (field, mask)) in values.iter_mut().zip(&self.bits) {
            *value = frame.value(*field)? & mask;
        }
        self.rules.get(values.get(..self.bits.len())?)
    }
}

/// A match as values of masked fields.
struct Wants {
    bits: [(OxmField, u128); MAX_FIELDS],
    values: [u128; MAX_FIELDS],
    len: usize,
}

impl Wants {
    /// `None` if our frames never have all of these fields.
    fn of(fields: &Match) -> Option<Self> {
        let len = fields.fields.len();
        let (bits, values) = ([(OxmField::InPort, 0); MAX_FIELDS], [0; MAX_FIELDS]);
        let mut wants = Self { bits, values, len };
        wants.bits.get(..len)?;
        for ((bits, wanted), field) in wants.bits.iter_mut().zip(&mut wants.values).zip(fields) {
            let (field, value, mask) = field.parts()?;
            let mask = mask.unwrap_or(u128::MAX);
            (*bits, *wanted) = ((field, mask), value & mask);
        }
        Some(wants)
    }

    fn bits(&self) -> &[(OxmField, u128)] {
        self.bits.get(..self.len).unwrap_or_default()
    }

    fn values(&self) -> &[u128] {
        self.values.get(..self.len).unwrap_or_default()
    }
}

/// Maximum number of fields in a rule: a port, and at most eleven of a region.
const MAX_FIELDS: usize = 16;
/// Minimum number of changes beside the order; above it, changes are limited to a fraction of all
/// rules. Lookups in changes cost about the same, so rebuilding the order, over all rules, must be
/// rare: one policy may add a tenth to the rules of a switch that many others filled.
const MAX_CHANGED: usize = 256;
const CHANGED_PART: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tapswitch_openflow::{Masked, Oxm};
    use tapswitch_wire::EtherType;

    use super::*;
    use crate::rule::{Kind as Purpose, Outcome, Rule, TAPS};

    /// Type, tag and port.
    type Frame = [u16; 3];

    impl Fields for Frame {
        fn value(&self, field: OxmField) -> Option<u128> {
            let [eth_type, vid, port] = *self;
            match field {
                OxmField::EthType => Some(eth_type.into()),
                OxmField::VlanVid => Some(vid.into()),
                OxmField::TcpDst => (eth_type == 0).then_some(port.into()),
                _ => None,
            }
        }
    }

    fn frames() -> impl Strategy<Value = Frame> {
        (0..2u16, 0..4u16, 0..3u16).prop_map(|(eth_type, vid, port)| [eth_type, vid, port])
    }

    fn ids() -> impl Strategy<Value = FlowId> {
        let vids = (0..4u16, 0..4u16).prop_map(|(vid, mask)| Masked::with_mask(vid & mask, mask));
        let fields = (
            proptest::option::of((0..2u16).prop_map(|kind| Oxm::EthType(EtherType(kind)))),
            proptest::option::of(vids.prop_map(Oxm::VlanVid)),
            proptest::option::of((0..3u16).prop_map(Oxm::TcpDst)),
            proptest::option::weighted(0.1, Just(Oxm::IpDscp(0))),
        );
        (0..4u16, fields).prop_map(|(priority, (a, b, c, d))| {
            FlowId::new(TAPS, priority, [a, b, c, d].into_iter().flatten().collect())
        })
    }

    fn meets(frame: &Frame, id: &FlowId) -> bool {
        id.matching().iter().all(|field| {
            let (field, wanted, mask) = field.parts().unwrap();
            let mask = mask.unwrap_or(u128::MAX);
            frame.value(field).is_some_and(|value| value & mask == wanted & mask)
        })
    }

    proptest! {
        /// For any additions and removals since the order was built or copied, or was joined with
        /// them when no other has it any more, and any filter.
        #[test]
        fn the_first_rule_is_found(
            steps in vec((any::<bool>(), ids(), frames()), 1..400),
        ) {
            let (mut rules, mut lookup) = (Branched::default(), Lookup::default());
            let (mut other, mut changed) = (None, Set::default());
            for (at, (comes, id, frame)) in steps.into_iter().enumerate() {
                let id = Arc::new(id);
                changed.insert(id.clone());
                if comes {
                    let mark = u32::from(id.priority) << 1 | u32::from(at % 3 > 0);
                    lookup.note_added(&id, rules.len());
                    rules.insert(id, Rule::new(Purpose::TapHost, mark, Outcome::Forward));
                } else if rules.remove_entry(&id).is_some() {
                    lookup.note_removed(&id, rules.len());
                }
                match (at % 16, &mut other) {
                    (3, _) => other = Some((rules.clone(), lookup.clone(), changed.clone())),
                    (5 | 8, Some((other_rules, other_lookup, other_changed))) => {
                        std::mem::swap(&mut rules, other_rules);
                        std::mem::swap(&mut lookup, other_lookup);
                        std::mem::swap(&mut changed, other_changed);
                    }
                    (11, _) => other = None,
                    // With the other one, or without.
                    (6 | 13, _) => {
                        rules.join();
                        lookup.join(&std::mem::take(&mut changed), &rules);
                    }
                    _ => {}
                }
                let counts = |goal: &Goal| goal.cookie.number() & 1 > 0;
                let found = lookup.find(&rules, (TAPS, &frame), counts).map(|(_, goal)| goal);
                let met = rules.iter().filter(|(id, goal)| counts(goal) && meets(&frame, id));
                let first = met.map(|(id, _)| id.priority).max();
                prop_assert_eq!(found.map(|goal| goal.cookie.number() >> 1), first.map(u32::from));
            }
        }
    }

    /// A trial of one more policy that intersects all others adds many rules to not so many more.
    #[test]
    fn what_comes_in_a_copy_does_not_have_the_order_made_anew_until_it_is_half_of_all() {
        let rule = |number: u16| {
            let id = FlowId::new(TAPS, number % 7, Match::new().with(Oxm::TcpDst(number)));
            (Arc::new(id), Rule::new(Purpose::TapHost, 0, Outcome::Forward))
        };
        let (mut rules, lookup) = (Branched::default(), Lookup::default());
        for (id, goal) in (0..2000).map(rule) {
            rules.insert(id, goal);
        }
        lookup.prepare(&rules);
        let mut copy = lookup.clone();
        for (id, goal) in (2000..3000).map(rule) {
            copy.note_added(&id, rules.len());
            rules.insert(id, goal);
        }
        assert!(copy.is_prepared());
        let frame: Frame = [0, 0, 2500];
        let found = copy.find(&rules, (TAPS, &frame), |_| true).map(|(id, _)| id.priority);
        assert_eq!(found, Some(2500 % 7));
        for number in 0..1000 {
            let (id, _) = rule(number);
            rules.remove_entry(&id);
            copy.note_removed(&id, rules.len());
        }
        assert!(!copy.is_prepared());
    }
}
