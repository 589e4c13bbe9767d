//! Timeouts of rules.
//!
//! A rule is examined when it may have expired, never before; one that was used meanwhile is
//! requeued at its new time. So the cost of an expiry depends on the rules that are due, not on
//! their total number, and rules without timeouts cost nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::counters::Millis;
use crate::table::FlowEntry;

/// Rules by the time when each may expire. Deleted rules stay until then, or until there are many
/// of them.
#[derive(Debug)]
pub(crate) struct Expiry {
    due: BTreeMap<Millis, Vec<Weak<FlowEntry>>>,
    count: usize,
    /// The count at which deleted rules are removed.
    sweep_at: usize,
}

impl Default for Expiry {
    fn default() -> Self {
        Self { due: BTreeMap::new(), count: 0, sweep_at: SWEEP_MIN }
    }
}

impl Expiry {
    /// Adds a rule, if it has a timeout.
    pub(crate) fn insert(&mut self, rule: &Arc<FlowEntry>) {
        let Some(at) = rule.expires() else { return };
        if self.count >= self.sweep_at {
            self.sweep();
        }
        self.due.entry(at).or_default().push(Arc::downgrade(rule));
        self.count += 1;
    }

    /// No rule expires before this time.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.due.keys().next().copied()
    }

    /// Removes and returns the rules that may have expired by `now`, possibly including deleted
    /// ones.
    pub(crate) fn take_due(&mut self, now: Millis) -> Vec<Arc<FlowEntry>> {
        let later = self.due.split_off(&Millis(now.0.saturating_add(1)));
        let due = std::mem::replace(&mut self.due, later);
        self.count -= due.values().map(Vec::len).sum::<usize>();
        due.into_values().flatten().filter_map(|rule| rule.upgrade()).collect()
    }

    /// Rules that come and go faster than their timeouts would fill the memory.
    fn sweep(&mut self) {
        self.due.retain(|_, rules| {
            rules.retain(|rule| rule.strong_count() > 0);
            !rules.is_empty()
        });
        self.count = self.due.values().map(Vec::len).sum();
        self.sweep_at = SWEEP_MIN.max(self.count * 2);
    }
}

/// Below this number a sweep is not worth it.
const SWEEP_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use tapswitch_openflow::{FlowMod, FlowModCommand, Match, Oxm, PortNo, TableId};

    use super::*;
    use crate::Pipeline;

    /// A rule for a port with a timeout in seconds; none for zero.
    fn rule(pipeline: &mut Pipeline, port: u32, hard_timeout: u16) -> Arc<FlowEntry> {
        let match_fields = Match::new().with(Oxm::InPort(PortNo(port)));
        let change = FlowMod { match_fields, hard_timeout, ..FlowMod::new(FlowModCommand::Add) };
        pipeline.handle_flow_mod(&change, Millis(0)).unwrap();
        let table = pipeline.snapshot().table(TableId(0)).unwrap();
        table.iter().find(|rule| rule.matching == change.match_fields).unwrap().clone()
    }

    #[test]
    fn only_rules_that_may_be_over_are_looked_at() {
        let (mut pipeline, mut expiry) = (Pipeline::new(1), Expiry::default());
        let rules =
            [0, 5, 3, 0, 5].map(|timeout| rule(&mut pipeline, u32::from(timeout) + 1, timeout));
        rules.iter().for_each(|rule| expiry.insert(rule));
        assert_eq!((expiry.count, expiry.next()), (3, Some(Millis(3000))));
        assert!(expiry.take_due(Millis(2999)).is_empty());
        let due = expiry.take_due(Millis(4000));
        assert!(due.len() == 1 && Arc::ptr_eq(&due[0], &rules[2]));
        assert_eq!((expiry.count, expiry.next()), (2, Some(Millis(5000))));
    }

    #[test]
    fn rules_that_come_and_go_do_not_pile_up() {
        let (mut pipeline, mut expiry) = (Pipeline::new(1), Expiry::default());
        let stays = rule(&mut pipeline, 1, 9);
        expiry.insert(&stays);
        for _ in 0..10 * SWEEP_MIN {
            expiry.insert(&Arc::new(FlowEntry::clone(&stays)));
        }
        assert!(expiry.count <= SWEEP_MIN, "{}", expiry.count);
        assert!(expiry.take_due(Millis(9000)).iter().any(|rule| Arc::ptr_eq(rule, &stays)));
    }
}
