//! The rules that a switch shall have, and which of them changed.
//!
//! Two regions may ask for a rule of the same table, priority and match, for frames to one host:
//! then a third region inside both asks for the same match with a higher priority, so neither is
//! ever met, or wide policies are spared that region, and both make the same copies. One of them is
//! kept, the same one whatever the order, and the other remembered: it is met when the third goes.

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

/// The rules that a switch shall have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    rules: Branched<Arc<FlowId>, Goal>,
    /// The same in the order in which a frame meets them.
    lookup: Lookup,
    /// Rules that are asked for, beside one that is kept.
    doubles: Map<Arc<FlowId>, Vec<Goal>>,
    /// How many rules, and groups that go on to it, use a group.
    group_uses: Branched<Arc<GroupKey>, usize>,
    /// Rules that came, went or changed since they were taken.
    changed: Set<Arc<FlowId>>,
    /// Groups that lost their last rule since they were taken.
    idle_groups: Vec<Arc<GroupKey>>,
    /// Rules that make copies.
    tap_count: usize,
    /// Groups that only fork.
    fork_count: usize,
    /// Rules beside those of [`TAPS`] that look at addresses of IP, or at ports.
    close_count: usize,
}

impl Desired {
    /// The switch shall have this rule.
    pub(crate) fn insert(&mut self, (id, rule): (FlowId, Goal)) {
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

    /// The switch shall not have this rule, which it should have had.
    pub(crate) fn remove(&mut self, (id, rule): &(FlowId, Goal)) {
        if let Some(doubles) = self.doubles.get_mut(id)
            && let Some(index) = doubles.iter().position(|double| double == rule)
        {
            doubles.swap_remove(index);
            self.forget_empty(id);
        } else if self.rules.get(id) == Some(rule)
            && let Some(id) = self.take(id)
        {
            self.put_next(id);
        }
    }

    /// The rule itself is as it was, but the switch may have another.
    pub(crate) fn touch(&mut self, id: Arc<FlowId>) {
        self.changed.insert(id);
    }

    /// What came, went or changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> Set<Arc<FlowId>> {
        std::mem::take(&mut self.changed)
    }

    /// The groups that no rule uses any more, since this was asked last.
    pub(crate) fn take_idle_groups(&mut self) -> Vec<Arc<GroupKey>> {
        let mut idle = std::mem::take(&mut self.idle_groups);
        idle.retain(|key| !self.group_uses.contains_key(key));
        idle
    }

    /// This was a copy, from which these changes were taken: they are to be taken again, from what
    /// nobody shares any more.
    pub(crate) fn take_over(&mut self, changed: Set<Arc<FlowId>>, idle: Vec<Arc<GroupKey>>) {
        self.rules.join();
        self.group_uses.join();
        self.lookup.join(&changed, &self.rules);
        self.changed = changed;
        self.idle_groups = idle;
    }

    /// Whether there is something to take.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty() || !self.idle_groups.is_empty()
    }

    /// The rule that `id` identifies.
    pub(crate) fn find(&self, id: &FlowId) -> Option<&Goal> {
        self.rules.get(id)
    }

    /// What identifies each rule.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Arc<FlowId>> {
        self.rules.keys()
    }

    /// Rules are about to be looked up in copies of this: the order in which they are met is made
    /// once for all.
    pub(crate) fn prepare(&self) {
        self.lookup.prepare(&self.rules);
    }

    /// Whether that was done, or rules were looked up.
    pub(crate) fn is_prepared(&self) -> bool {
        self.lookup.is_prepared()
    }

    /// The first rule that a frame meets in a table, of those that count.
    pub(crate) fn first_met(
        &self,
        table: TableId,
        frame: &impl Fields,
        counts: impl Fn(&Goal) -> bool,
    ) -> Option<(&Arc<FlowId>, &Goal)> {
        self.lookup.find(&self.rules, (table, frame), counts)
    }

    /// All of them.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&Arc<FlowId>, &Goal)> {
        self.rules.iter()
    }

    /// How many of them make copies.
    pub(crate) const fn tap_count(&self) -> usize {
        self.tap_count
    }

    /// How many groups only fork.
    pub(crate) const fn fork_count(&self) -> usize {
        self.fork_count
    }

    /// Whether rules beside those of [`TAPS`] look at addresses of IP, or at ports.
    pub(crate) const fn looks_closely(&self) -> bool {
        self.close_count > 0
    }

    /// Whether a group is used.
    pub(crate) fn uses(&self, key: &GroupKey) -> bool {
        self.group_uses.contains_key(key)
    }

    fn put(&mut self, id: Arc<FlowId>, mut rule: Goal) {
        if let Outcome::Group(key) = &mut rule.outcome {
            self.tap_count += usize::from(!key.is_fork());
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
            self.tap_count -= usize::from(!key.is_fork());
            self.leave_group(key);
        }
        self.close_count -= usize::from(is_close(&id));
        self.lookup.note_removed(&id, self.rules.len());
        self.changed.insert(id.clone());
        Some(id)
    }

    /// Of the doubles of a rule that went, keeps one.
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

    /// Counts one more rule of a group, and makes equal groups one value.
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

/// Whether a rule looks at addresses of IP, or at ports, where copies are not made. Messages that
/// find hosts are told by the type of ICMPv6: whoever asks tells those apart.
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
            assert_eq!(desired.find(&low.0), Some(&high.1));
            desired.remove(&high);
            assert_eq!((desired.find(&low.0), desired.tap_count()), (Some(&low.1), 1));
            desired.remove(&low);
            assert!(desired.rules.len() == 0 && desired.doubles.is_empty());
        }
    }
}
