//! The rules of a switch as it looks them up, for whoever follows frames.
//!
//! Rules that look at the same bits of the same fields are together, by what they want of those: of
//! each such kind, those that a frame meets are found at once, however many there are. There are
//! few kinds, and those whose highest rule is below what was found already are left out (tuple
//! space search). The order is made when it is asked for, kept up from then on, and shared by
//! copies. What comes in a copy is kept beside it until that is much: a trial changes a few rules
//! of many.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

use tapswitch_openflow::{Match, OxmField, TableId};

use crate::hash::{Map, Set};
use crate::rule::FlowId;
use crate::shared::Branched;
use crate::translate::Goal;

/// What a rule looks at of a frame.
pub(crate) trait Fields {
    /// The value of a field; none where such frames do not have it.
    fn value(&self, field: OxmField) -> Option<u128>;
}

/// A rule that a frame meets, and what identifies it.
type Met<'a> = (&'a Arc<FlowId>, &'a Goal);

/// The order, if it was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup {
    order: OnceLock<Arc<Order>>,
    /// Rules that came while others had the same order.
    recent: Arc<Order>,
    /// Those that came while others had the same recent ones, too.
    latest: Order,
    /// How many went that are still in an order.
    gone: usize,
}

/// The kinds of rules of each table, those with the highest priorities first. Some of the rules may
/// be gone.
#[derive(Clone, Debug, Default)]
struct Order {
    kinds: Map<TableId, Vec<Kind>>,
    /// How many rules those are.
    len: usize,
}

/// Rules that look at the same bits of the same fields.
#[derive(Clone, Debug)]
struct Kind {
    bits: Box<[(OxmField, u128)]>,
    /// None of their priorities is higher.
    highest: u16,
    /// By what they want there: the highest first.
    rules: Map<Box<[u128]>, Vec<Arc<FlowId>>>,
}

impl Lookup {
    /// The rule came, or is another; so many are there.
    pub(super) fn note_added(&mut self, id: &Arc<FlowId>, rule_count: usize) {
        let Some(order) = self.order.get_mut() else { return };
        // Of rules with fields that no frame of ours has, none is ever met.
        let Some(wants) = Wants::of(id.matching()) else { return };
        // It is there already only if it went while others had the same order.
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

    /// One went; so many are there.
    pub(super) fn note_removed(&mut self, id: &FlowId, rule_count: usize) {
        let Some(order) = self.order.get_mut() else { return };
        if !Arc::get_mut(order).is_some_and(|order| order.remove(id)) {
            self.gone += 1;
            self.start_again_beyond(rule_count);
        }
    }

    /// What came, or went, in a copy that nobody shares any more is put into the order. Of these
    /// changed rules, those that are not there any more went.
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

    /// Makes the order of these rules, for all copies that are made from now on.
    pub(super) fn prepare(&self, rules: &Branched<Arc<FlowId>, Goal>) {
        self.order(rules);
    }

    /// Whether it was made.
    pub(super) fn is_prepared(&self) -> bool {
        self.order.get().is_some()
    }

    fn order(&self, rules: &Branched<Arc<FlowId>, Goal>) -> &Order {
        self.order.get_or_init(|| Arc::new(Order::new(rules.keys())))
    }

    /// Of these rules, the first one that a frame meets in a table, of those that count.
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
        // It may be one of the first now.
        let before = kinds.iter().take(at).take_while(|kind| kind.highest >= highest).count();
        if let Some(moved) = kinds.get_mut(before..=at) {
            moved.rotate_right(1);
        }
    }

    /// Takes rules that it does not have yet.
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

    /// Returns whether it was there.
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

    /// Finds the first rule that a frame meets of those that are higher than `first`.
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

    /// Returns whether it was not there.
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

    /// Takes the rules of another one, which it does not have yet.
    fn absorb(&mut self, other: Self) {
        self.highest = self.highest.max(other.highest);
        for (values, mut rules) in other.rules {
            let own = self.rules.entry(values).or_default();
            own.append(&mut rules);
            own.sort_by_key(|id| Reverse(id.priority));
        }
    }

    /// Returns whether it was there.
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

    /// The rules that a frame meets, the highest first.
    fn met_by(&self, frame: &impl Fields) -> impl Iterator<Item = &Arc<FlowId>> {
        self.wanting(frame, &mut [0; MAX_FIELDS]).into_iter().flatten()
    }

    /// The rules that want what a frame has there.
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

/// What frames meet a match: those with these values at these bits.
struct Wants {
    bits: [(OxmField, u128); MAX_FIELDS],
    values: [u128; MAX_FIELDS],
    len: usize,
}

impl Wants {
    /// None where frames of ours never have all of it.
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

/// Fields that a rule looks at, at most: a port, and the eleven of a region or less.
const MAX_FIELDS: usize = 16;
/// What may change beside the order, at least, and as a part of all rules at most. What is beside
/// it is found about as fast, so to make it anew, for all rules, must be rare: one policy may add a
/// tenth to the rules of a switch that others of its kind filled.
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
        /// Whatever came and went since the order was made, or a copy, and whatever does not count.
        #[test]
        fn the_first_rule_is_found(
            steps in vec((any::<bool>(), ids(), frames()), 1..400),
        ) {
            let (mut rules, mut lookup) = (Branched::default(), Lookup::default());
            let mut other = None;
            for (at, (comes, id, frame)) in steps.into_iter().enumerate() {
                let id = Arc::new(id);
                if comes {
                    let mark = u32::from(id.priority) << 1 | u32::from(at % 3 > 0);
                    lookup.note_added(&id, rules.len());
                    rules.insert(id, Rule::new(Purpose::TapHost, mark, Outcome::Forward));
                } else if rules.remove_entry(&id).is_some() {
                    lookup.note_removed(&id, rules.len());
                }
                match (at % 16, &mut other) {
                    (3, _) => other = Some((rules.clone(), lookup.clone())),
                    (5 | 8, Some((other_rules, other_lookup))) => {
                        std::mem::swap(&mut rules, other_rules);
                        std::mem::swap(&mut lookup, other_lookup);
                    }
                    (11, _) => other = None,
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

    /// A trial of one more policy, where each two have something in common, adds many rules to not
    /// so many more.
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
