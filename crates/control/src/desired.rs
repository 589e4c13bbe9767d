//! The rules that a switch should have, and which of them changed.
//!
//! Two regions may produce rules with the same table, priority and match for frames to one host.
//! Then either a third region inside both produces the same match with a higher priority, so that
//! neither is ever hit; or wide policies have no such region, and both make the same copies. One of
//! the two is kept, independently of the order, and the other is remembered: it becomes active when
//! the third is removed.

use std::sync::Arc;

use tapswitch_openflow::{Oxm, TableId};

mod lookup;

use crate::group::GroupKey;
use crate::hash::{Map, Set};
use crate::rule::{FlowId, Outcome, TAPS};
use crate::shared::Branched;
use crate::translate::Goal;
pub(crate) use lookup::Fields;
use lookup::Lookup;

/// The rules that a switch should have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    rules: Branched<Arc<FlowId>, Goal>,
    /// The rules in lookup order.
    lookup: Lookup,
    /// Rules in conflict with one that is kept.
    doubles: Map<Arc<FlowId>, Vec<Goal>>,
    /// Number of rules, and of groups that output to it, for each group.
    group_uses: Branched<Arc<GroupKey>, usize>,
    /// Rules added, removed or changed since last taken.
    changed: Set<Arc<FlowId>>,
    /// Groups that lost their last rule since last taken.
    idle_groups: Vec<Arc<GroupKey>>,
    /// Number of rules that copy, including those in conflict with one that is kept.
    tap_count: usize,
    /// Number of groups that only fork.
    fork_count: usize,
    /// Number of rules outside [`TAPS`] that match IP addresses or ports.
    close_count: usize,
}

impl Desired {
    /// Adds a rule.
    pub(crate) fn insert(&mut self, (id, rule): (FlowId, Goal)) {
        self.tap_count += usize::from(copies(&rule));
        match self.rules.get_key_value(&id) {
            None => self.put(Arc::new(id), rule),
            Some((id, kept)) if kept.cookie.0 >= rule.cookie.0 => {
                self.doubles.entry(id.clone()).or_default().push(rule);
            }
            Some((id, kept)) => {
                let (id, kept) = (id.clone(), kept.clone());
                self.doubles.entry(id.clone()).or_default().push(kept);
                self.take(&id);
                self.put(id, rule);
            }
        }
    }

    /// Removes a rule.
    pub(crate) fn remove(&mut self, (id, rule): &(FlowId, Goal)) {
        if let Some(doubles) = self.doubles.get_mut(id)
            && let Some(index) = doubles.iter().position(|double| double == rule)
        {
            doubles.swap_remove(index);
            self.forget_empty(id);
            self.tap_count -= usize::from(copies(rule));
        } else if self.rules.get(id) == Some(rule)
            && let Some(id) = self.take(id)
        {
            self.put_next(id);
            self.tap_count -= usize::from(copies(rule));
        }
    }

    /// Marks an unchanged rule as one that may differ on the switch.
    pub(crate) fn touch(&mut self, id: Arc<FlowId>) {
        self.changed.insert(id);
    }

    /// Rules added, removed or changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Set<Arc<FlowId>> {
        std::mem::take(&mut self.changed)
    }

    /// Groups that no rule uses any more, since the last call.
    pub(crate) fn take_idle_groups(&mut self) -> Vec<Arc<GroupKey>> {
        let mut idle = std::mem::take(&mut self.idle_groups);
        idle.retain(|key| !self.group_uses.contains_key(key));
        idle
    }

    /// Called on a trial's state that replaces ours, after which no other copy is left: merges the
    /// changes into the base, and marks them as not sent.
    pub(crate) fn take_over(&mut self, changed: Set<Arc<FlowId>>, idle: Vec<Arc<GroupKey>>) {
        self.rules.join();
        self.group_uses.join();
        self.lookup.join(&changed, &self.rules);
        self.changed = changed;
        self.idle_groups = idle;
    }

    /// Whether anything changed.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty() || !self.idle_groups.is_empty()
    }

    /// The rule with this id.
    pub(crate) fn find(&self, id: &FlowId) -> Option<&Goal> {
        self.rules.get(id)
    }

    /// Ids of all rules.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Arc<FlowId>> {
        self.rules.keys()
    }

    /// Builds the lookup order before copies are made, so that they share it.
    pub(crate) fn prepare(&self) {
        self.lookup.prepare(&self.rules);
    }

    /// Whether the lookup order is built.
    pub(crate) fn is_prepared(&self) -> bool {
        self.lookup.is_prepared()
    }

    /// The first rule of a table that a frame hits, among those for which `counts` holds.
    pub(crate) fn first_met(
        &self,
        table: TableId,
        frame: &impl Fields,
        counts: impl Fn(&Goal) -> bool,
    ) -> Option<(&Arc<FlowId>, &Goal)> {
        self.lookup.find(&self.rules, (table, frame), counts)
    }

    /// All rules.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&Arc<FlowId>, &Goal)> {
        self.rules.iter()
    }

    /// Number of rules that copy. Of rules in conflict each counts, so that a policy takes the same
    /// room whatever else there is.
    pub(crate) const fn tap_count(&self) -> usize {
        self.tap_count
    }

    /// Number of groups that only fork.
    pub(crate) const fn fork_count(&self) -> usize {
        self.fork_count
    }

    /// Whether rules outside [`TAPS`] match IP addresses or ports.
    pub(crate) const fn looks_closely(&self) -> bool {
        self.close_count > 0
    }

    /// Whether a group is used.
    pub(crate) fn uses(&self, key: &GroupKey) -> bool {
        self.group_uses.contains_key(key)
    }

    fn put(&mut self, id: Arc<FlowId>, mut rule: Goal) {
        if let Outcome::Group(key) = &mut rule.outcome {
            self.use_group(key);
        }
        self.close_count += usize::from(is_close(&id));
        self.lookup.note_added(&id, self.rules.len());
        self.changed.insert(id.clone());
        self.rules.insert_new(id, rule);
    }

    fn take(&mut self, id: &FlowId) -> Option<Arc<FlowId>> {
        let (id, rule) = self.rules.remove_entry(id)?;
        if let Outcome::Group(key) = &rule.outcome {
            self.leave_group(key);
        }
        self.close_count -= usize::from(is_close(&id));
        self.lookup.note_removed(&id, self.rules.len());
        self.changed.insert(id.clone());
        Some(id)
    }

    /// Activates one of the conflicting rules after a removal.
    fn put_next(&mut self, id: Arc<FlowId>) {
        let Some(doubles) = self.doubles.get_mut(&id) else {
            return;
        };
        let next = (0..doubles.len()).max_by_key(|&index| doubles.get(index).map(|d| d.cookie.0));
        if let Some(index) = next {
            let next = doubles.swap_remove(index);
            self.forget_empty(&id);
            self.put(id, next);
        }
    }

    fn forget_empty(&mut self, id: &FlowId) {
        if self.doubles.get(id).is_some_and(Vec::is_empty) {
            self.doubles.remove(id);
        }
    }

    /// Counts a use of a group, and shares one value among equal groups.
    fn use_group(&mut self, key: &mut Arc<GroupKey>) {
        let (known, uses) = self.group_uses.change(key.clone(), |uses| uses.unwrap_or(&0) + 1);
        let is_first = *uses == 1;
        *key = known;
        if is_first {
            self.fork_count += usize::from(key.is_fork());
            for next in key.next() {
                self.use_group(&mut Arc::new(next));
            }
        }
    }

    fn leave_group(&mut self, key: &Arc<GroupKey>) {
        match self.group_uses.get(key).copied() {
            None => {}
            Some(1) => {
                self.group_uses.remove_entry(key);
                self.fork_count -= usize::from(key.is_fork());
                self.idle_groups.push(key.clone());
                for next in key.next() {
                    self.leave_group(&Arc::new(next));
                }
            }
            Some(uses) => _ = self.group_uses.insert(key.clone(), uses - 1),
        }
    }
}

/// Whether the frames of a rule are copied.
fn copies(rule: &Goal) -> bool {
    matches!(&rule.outcome, Outcome::Group(key) if !key.is_fork())
}

/// Whether a rule outside the copying table matches IP addresses or ports. Rules for neighbour
/// discovery match the ICMPv6 type, which callers distinguish themselves.
fn is_close(id: &FlowId) -> bool {
    let looks = |field: &Oxm| {
        !matches!(
            field,
            Oxm::InPort(_)
                | Oxm::EthSrc(_)
                | Oxm::EthDst(_)
                | Oxm::EthType(_)
                | Oxm::VlanVid(_)
                | Oxm::IpProto(_)
                | Oxm::Icmpv6Type(_)
        )
    };
    id.table != TAPS && id.matching().iter().any(looks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Exit, Fork, ForkKind, Route};
    use crate::group::Path;
    use crate::overlap::{Aim, Member, PolicyId, Slot};
    use crate::place::Place;
    use crate::policy::Part;
    use crate::rule::{Cookie, FORWARD, Kind, Rule};
    use tapswitch_openflow::{DatapathId, Match, PortNo};

    fn group(port: u32) -> Arc<GroupKey> {
        let exit = Exit::here(PortNo(3));
        let aim = Aim { slot: Slot::only(0), exit, tag: 0, is_sink: false };
        let member = Member { policy: PolicyId(1), aim, delivery: None, part: Part::default() };
        Arc::new(GroupKey {
            members: [member].into(),
            path: Path::To(Exit::here(PortNo(port)).into()),
        })
    }

    fn copy(priority: u16, port: u32) -> (FlowId, Goal) {
        let outcome = Outcome::Group(group(port));
        (FlowId::new(FORWARD, priority, Match::new()), Rule::new(Kind::TapHost, 0, outcome))
    }

    fn taken(desired: &mut Desired) -> usize {
        desired.take_changed().len()
    }

    #[test]
    fn a_group_is_idle_when_its_last_rule_goes() {
        let mut desired = Desired::default();
        desired.insert(copy(1, 1));
        desired.insert(copy(2, 1));
        assert_eq!((taken(&mut desired), desired.tap_count()), (2, 2));
        desired.remove(&copy(1, 1));
        assert_eq!(desired.take_idle_groups(), []);
        desired.remove(&copy(2, 1));
        desired.insert(copy(2, 2));
        assert_eq!(desired.take_idle_groups(), [group(1)]);
        desired.remove(&copy(2, 2));
        desired.insert(copy(2, 2));
        assert_eq!(desired.take_idle_groups(), [], "in use again");
        assert_eq!((taken(&mut desired), desired.tap_count()), (2, 1));
    }

    #[test]
    fn a_fork_is_used_by_rules_and_by_groups_that_go_on_to_it() {
        let beyond = Some(Place { switch: DatapathId(9), port: PortNo(1) });
        let fork = Fork { kind: ForkKind::Balance, ports: [PortNo(1), PortNo(2)].into() };
        let route = Route {
            exit: Exit { port: PortNo(1), beyond, spread: None },
            fork: Some(fork.clone()),
        };
        let copying =
            Arc::new(GroupKey { members: group(1).members.clone(), path: Path::To(route) });
        let forking = Arc::new(GroupKey::forking(fork.clone()));
        let rule = |priority, key: &Arc<GroupKey>| {
            let outcome = Outcome::Group(key.clone());
            (FlowId::new(FORWARD, priority, Match::new()), Rule::new(Kind::TapHost, 0, outcome))
        };
        let mut desired = Desired::default();
        desired.insert(rule(1, &copying));
        desired.insert(rule(2, &forking));
        assert_eq!((desired.fork_count(), desired.tap_count()), (1, 1));
        assert!(desired.uses(&forking));
        desired.remove(&rule(2, &forking));
        assert_eq!(desired.take_idle_groups(), []);
        desired.remove(&rule(1, &copying));
        assert_eq!(desired.take_idle_groups(), [copying, forking], "the one before the other");
        assert_eq!((desired.fork_count(), desired.tap_count()), (0, 0));
        assert!(!desired.uses(&GroupKey::forking(fork)));
    }

    #[test]
    fn of_two_rules_in_one_place_one_is_kept_whatever_the_order() {
        let marked = |mark, port| {
            let (id, rule) = copy(1, port);
            (id, Rule { cookie: Cookie::new(Kind::TapHost, mark), ..rule })
        };
        let (low, high) = (marked(1, 1), marked(2, 2));
        for (first, second) in [(&low, &high), (&high, &low)] {
            let mut desired = Desired::default();
            desired.insert(first.clone());
            desired.insert(second.clone());
            assert_eq!((desired.find(&low.0), desired.tap_count()), (Some(&high.1), 2));
            desired.remove(&high);
            assert_eq!((desired.find(&low.0), desired.tap_count()), (Some(&low.1), 1));
            desired.remove(&low);
            assert!(desired.rules.len() == 0 && desired.doubles.is_empty());
        }
    }
}
