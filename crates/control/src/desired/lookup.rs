//! The rules of a switch in the order in which it looks at them, for whoever follows frames.
//!
//! Most rules name one sender or one destination, so those of one priority are found by the
//! addresses of a frame, however many there are. The order is made when it is asked for. What
//! changes from then on is kept beside it until that is much: a trial changes a few rules of many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use tapswitch_openflow::{Oxm, TableId};
use tapswitch_wire::MacAddr;

use crate::rule::FlowId;
use crate::translate::Goal;

/// The order, if it was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup {
    order: OnceLock<Arc<Order>>,
    /// Rules that came, went or changed since.
    changed: HashSet<Arc<FlowId>>,
}

/// By table: the rules of each priority, the highest first.
#[derive(Debug, Default)]
struct Order(HashMap<TableId, BTreeMap<Reverse<u16>, Rank>>);

/// Rules of one priority.
#[derive(Debug, Default)]
struct Rank {
    /// Those that name no address, or many.
    any: Vec<(Arc<FlowId>, Goal)>,
    /// The others by the one sender and the one destination that each names.
    named: HashMap<Ends, Vec<(Arc<FlowId>, Goal)>>,
}

/// The addresses that a frame has, or that a rule names.
type Ends = (Option<MacAddr>, Option<MacAddr>);

impl Lookup {
    /// The rule came, went or changed; so many are there.
    pub(super) fn note_change(&mut self, id: &Arc<FlowId>, rule_count: usize) {
        if self.order.get().is_none() {
            return;
        }
        self.changed.insert(id.clone());
        if self.changed.len() > MAX_CHANGED.max(rule_count / CHANGED_PART) {
            *self = Self::default();
        }
    }

    /// Of these rules, the first one that a frame meets in a table which is for these addresses, of
    /// those that are met.
    pub(super) fn find<'a>(
        &'a self,
        rules: &'a HashMap<Arc<FlowId>, Goal>,
        (table, ends): (TableId, (MacAddr, MacAddr)),
        is_met: impl Fn(&FlowId, &Goal) -> bool,
    ) -> Option<&'a Goal> {
        let order = self.order.get_or_init(|| Arc::new(Order::new(rules)));
        let is_known =
            |(id, goal): &(Arc<FlowId>, Goal)| is_met(id, goal) && !self.changed.contains(id);
        let known = order.find(table, ends, is_known);
        let changed = self.changed.iter().filter(|id| id.table == table);
        let changed = changed.filter_map(|id| Some((id, rules.get(id)?)));
        let changed = changed.filter(|(id, goal)| is_met(id, goal));
        let first = changed.max_by_key(|(id, _)| id.priority);
        match (known, first) {
            (Some((known, _)), Some((first, goal))) if known.priority <= first.priority => {
                Some(goal)
            }
            (None, Some((_, goal))) | (Some((_, goal)), _) => Some(goal),
            (None, None) => None,
        }
    }
}

impl Order {
    fn new(rules: &HashMap<Arc<FlowId>, Goal>) -> Self {
        let mut order = Self::default();
        for (id, goal) in rules {
            let rank =
                order.0.entry(id.table).or_default().entry(Reverse(id.priority)).or_default();
            let rules = match ends(id) {
                (None, None) => &mut rank.any,
                ends => rank.named.entry(ends).or_default(),
            };
            rules.push((id.clone(), goal.clone()));
        }
        order
    }

    fn find(
        &self,
        table: TableId,
        (src, dst): (MacAddr, MacAddr),
        is_met: impl Fn(&(Arc<FlowId>, Goal)) -> bool,
    ) -> Option<&(Arc<FlowId>, Goal)> {
        let ends = [(None, Some(dst)), (Some(src), None), (Some(src), Some(dst))];
        self.0.get(&table)?.values().find_map(|rank| {
            let ends = if rank.named.is_empty() { &[][..] } else { &ends };
            let named = ends.iter().filter_map(|ends| rank.named.get(ends)).flatten();
            rank.any.iter().chain(named).find(|rule| is_met(rule))
        })
    }
}

/// The one sender and the one destination that a rule is for.
fn ends(id: &FlowId) -> Ends {
    let only = |mac: &tapswitch_openflow::Masked<MacAddr>| mac.mask.is_none().then_some(mac.value);
    id.matching().iter().fold((None, None), |(src, dst), field| match field {
        Oxm::EthSrc(mac) => (only(mac), dst),
        Oxm::EthDst(mac) => (src, only(mac)),
        _ => (src, dst),
    })
}

/// Changed rules that are looked at one by one, at least, and as a part of all of them at most.
const MAX_CHANGED: usize = 32;
const CHANGED_PART: usize = 64;
