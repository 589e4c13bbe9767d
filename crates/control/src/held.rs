//! The tables of a switch, and the difference to the desired ones.
//!
//! As a switch processes messages one by one, their order keeps forwarding intact at each step:
//!
//! 1. new groups, so that rules can refer to them;
//! 2. new and changed rules, inner tables and higher priorities first: no rule becomes effective
//!    before the rules that it depends on;
//! 3. deletions, lower priorities first: flooding rules go before routes, so no routed frame is
//!    flooded meanwhile;
//! 4. unused groups, after their counters were read.

use std::cmp::Reverse;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

use tapswitch_openflow::multipart::{FlowStats, GroupDesc};
use tapswitch_openflow::{Action, Bucket, GroupId, GroupType};

mod order;

use crate::desired::Desired;
use crate::group::{GroupIds, GroupKey, is_in_range};
use crate::hash::{Map, Set};
use crate::outbox::Before;
use crate::rule::{Cookie, FlowId, Outcome, Rule};
use crate::text::counted;
use crate::translate::Goal;
use order::sorted_by;

/// Our rules and groups on the switch, assuming that all sent messages took effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// `None` for a rule with our cookie that we would never send.
    rules: Map<Arc<FlowId>, Option<Rule<GroupId>>>,
    ids: GroupIds,
    /// By group: the groups that its buckets output to.
    next: Map<GroupId, Vec<GroupId>>,
}

/// Deviations of a switch from what it was sent.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    pub(crate) missing: Vec<FlowId>,
    pub(crate) changed: Vec<FlowId>,
    /// Rules with our cookie that it was never sent.
    pub(crate) added: Vec<FlowId>,
    /// Number of missing or changed groups.
    pub(crate) groups: u64,
    /// Number of rules with an idle timeout that are missing or exist again.
    fleeting: u64,
}

impl Drift {
    /// Whether there are no deviations.
    pub(crate) const fn is_none(&self) -> bool {
        self.count() == 0
    }

    /// Number of deviating rules and groups.
    pub(crate) const fn count(&self) -> u64 {
        let rules = self.missing.len() + self.changed.len() + self.added.len();
        rules as u64 + self.groups + self.fleeting
    }

    /// The deviations that timeouts cannot explain.
    pub(crate) fn lasting(self) -> Self {
        Self { fleeting: 0, ..self }
    }

    fn note_missing(&mut self, id: &FlowId, rule: &Rule<GroupId>) {
        match rule.idle_timeout {
            0 => self.missing.push(id.clone()),
            _ => self.fleeting += 1,
        }
    }

    fn note_added(&mut self, id: &FlowId, rule: Option<&Rule<GroupId>>) {
        match rule.is_some_and(|rule| rule.idle_timeout > 0) {
            true => self.fleeting += 1,
            false => self.added.push(id.clone()),
        }
    }
}

impl Display for Drift {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let rules = [
            (&self.missing, "missing"),
            (&self.changed, "changed"),
            (&self.added, "added with this controller's cookie"),
        ];
        let told = rules.iter().filter(|(ids, _)| !ids.is_empty()).map(|(ids, what)| {
            let first = ids.first().map_or_else(String::new, FlowId::to_string);
            match ids.len() {
                1 => format!("1 rule was {what} ({first})"),
                count => format!("{count} rules were {what} (one: {first})"),
            }
        });
        let groups = (self.groups > 0).then(|| counted(self.groups, "group") + " differed");
        let told: Vec<_> = told.chain(groups).collect();
        write!(
            f,
            "its rules or groups differed from what was installed, and are restored: {}; find out \
             what else changes them",
            told.join(", ")
        )
    }
}

/// Messages to send, in this order.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// With the ids of the groups that each outputs to.
    pub(crate) groups: Vec<(GroupId, Arc<GroupKey>, Vec<GroupId>)>,
    pub(crate) adds: Vec<(Arc<FlowId>, Rule<GroupId>, Before)>,
    pub(crate) deletes: Vec<Arc<FlowId>>,
    pub(crate) idle_groups: Vec<GroupId>,
}

impl Held {
    /// Takes over the reported tables. Groups are recognised by the rules that use them: a group
    /// with the content that its rule should have keeps its id. Returns our groups that are of no
    /// use.
    ///
    /// A group without a rule of ours is ours if its id is in `own`.
    pub(crate) fn adopt(
        &mut self,
        rules: &[FlowStats],
        groups: &[GroupDesc],
        own: &Set<GroupId>,
        desired: &Desired,
    ) -> Vec<GroupId> {
        *self = Self::default();
        for rule in rules.iter().filter(|rule| Cookie(rule.cookie).is_ours()) {
            let (id, rule) = read_rule(rule);
            self.rules.insert(Arc::new(id), rule);
        }
        let in_range = groups.iter().filter(|group| is_in_range(group.group_id));
        let by_id: Map<_, _> = in_range.map(|group| (group.group_id, group)).collect();
        by_id.keys().for_each(|id| self.ids.avoid(*id));
        let next = by_id.values().map(|group| (group.group_id, next_of(group)));
        self.next = next.filter(|(_, next)| !next.is_empty()).collect();
        let named: Set<_> = self.named_groups().collect();
        let next = named.iter().filter_map(|id| self.next.get(id)).flatten();
        let mut unused: Set<_> = next.chain(&named).copied().collect();
        unused.extend(own);
        unused.retain(|id| by_id.contains_key(id));
        for id in sorted_adds(desired.ids().cloned().collect()) {
            let meant = desired.find(&id).and_then(|rule| group_of(&rule.outcome));
            let named = self.rules.get(&id).and_then(|rule| group_of(&rule.as_ref()?.outcome));
            let (Some(key), Some(named)) = (meant, named) else { continue };
            self.adopt_group(key, *named, (&by_id, &mut unused));
        }
        let mut unused: Vec<_> = unused.into_iter().collect();
        unused.sort_unstable();
        unused
    }

    /// Takes over a group and those that it outputs to, if they have the desired content and no
    /// other use. Returns whether the key has this id then.
    fn adopt_group(
        &mut self,
        key: &Arc<GroupKey>,
        named: GroupId,
        (by_id, unused): (&Map<GroupId, &GroupDesc>, &mut Set<GroupId>),
    ) -> bool {
        if let Some(known) = self.ids.find(key) {
            return known == named;
        }
        let told = self.next.get(&named).cloned().unwrap_or_default();
        let next = key.next();
        let fits = by_id.get(&named).is_some_and(|group| does(group, key, &told));
        let is_free = fits && told.len() == next.len() && unused.contains(&named);
        let is_whole = is_free
            && next
                .into_iter()
                .zip(told)
                .all(|(next, told)| self.adopt_group(&Arc::new(next), told, (by_id, unused)));
        if is_whole {
            unused.remove(&named);
            self.ids.adopt(key, named);
        }
        is_whole
    }

    /// Computes the messages for the changed part of the desired state, which counts as sent from
    /// here on.
    pub(crate) fn reconcile(&mut self, desired: &mut Desired) -> Difference {
        let changed = desired.take_changed();
        let (wanted, unwanted): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|id| desired.find(id).is_some());
        let mut difference = Difference::default();
        for id in sorted_adds(wanted) {
            if let Some(goal) = desired.find(&id) {
                self.reconcile_rule(id, goal, &mut difference);
            }
        }
        for id in sorted_deletes(unwanted) {
            if self.rules.remove(&id).is_some() {
                difference.deletes.push(id);
            }
        }
        let idle = desired.take_idle_groups();
        difference.idle_groups = idle.iter().filter_map(|key| self.ids.retire(key)).collect();
        difference
    }

    /// Compares reported rules with ours.
    pub(crate) fn compare_rules(&self, rules: &[FlowStats]) -> Drift {
        let mut drift = Drift::default();
        let mut there = Set::with_capacity_and_hasher(rules.len(), Default::default());
        for told in rules.iter().filter(|rule| Cookie(rule.cookie).is_ours()) {
            let (id, told) = read_rule(told);
            match self.rules.get(&id) {
                None => drift.note_added(&id, told.as_ref()),
                Some(Some(held)) if told.as_ref() != Some(held) => drift.changed.push(id.clone()),
                // A rule in an unknown form cannot differ.
                Some(_) => {}
            }
            there.insert(id);
        }
        let missing = self.rules().filter(|(id, _)| !there.contains(&***id));
        missing.for_each(|(id, rule)| drift.note_missing(id, rule));
        drift
    }

    /// Number of groups in use that are missing or have other content.
    pub(crate) fn count_other_groups(&self, groups: &[GroupDesc]) -> u64 {
        let by_id: Map<_, _> = groups.iter().map(|group| (group.group_id, group)).collect();
        let is_other = |(key, id): &(&Arc<GroupKey>, GroupId)| {
            by_id.get(id).is_none_or(|group| !does(group, key, self.next(*id)))
        };
        self.groups().filter(is_other).count() as u64
    }

    /// The switch does not have this rule after all.
    pub(crate) fn forget_rule(&mut self, id: &FlowId) -> bool {
        self.rules.remove(id).is_some()
    }

    /// The switch has this rule in an unknown form.
    pub(crate) fn distrust_rule(&mut self, id: Arc<FlowId>) {
        self.rules.insert(id, None);
    }

    /// The switch does not have this group, or no longer.
    pub(crate) fn forget_group(&mut self, id: GroupId, key: Option<&GroupKey>) {
        if let Some(key) = key.filter(|key| self.ids.find(key) == Some(id)) {
            self.ids.retire(key);
        }
        self.ids.release(id);
        self.next.remove(&id);
    }

    /// Whether another group outputs to this one: a switch may delete both together.
    pub(crate) fn is_next(&self, id: GroupId) -> bool {
        self.next.values().any(|next| next.contains(&id))
    }

    /// The groups that a group outputs to.
    pub(crate) fn next(&self, id: GroupId) -> &[GroupId] {
        self.next.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Ids of our rules.
    pub(crate) fn rule_ids(&self) -> impl Iterator<Item = &Arc<FlowId>> {
        self.rules.keys()
    }

    /// Our rules, except those that we would never send.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&Arc<FlowId>, &Rule<GroupId>)> {
        self.rules.iter().filter_map(|(id, rule)| Some((id, rule.as_ref()?)))
    }

    /// Whether the switch has this rule.
    pub(crate) fn has_rule(&self, id: &FlowId) -> bool {
        self.rules.contains_key(id)
    }

    /// Whether the switch has this rule, with this group.
    pub(crate) fn goes_to(&self, id: &FlowId, key: &GroupKey) -> bool {
        let named = self.rules.get(id).and_then(|rule| group_of(&rule.as_ref()?.outcome));
        named.is_some_and(|named| self.ids.find(key) == Some(*named))
    }

    /// Number of our rules.
    pub(crate) fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Groups in use.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Arc<GroupKey>, GroupId)> {
        self.ids.iter()
    }

    fn reconcile_rule(&mut self, id: Arc<FlowId>, goal: &Goal, difference: &mut Difference) {
        let rule = goal.map_group(|key| self.reconcile_group(key, difference));
        if self.rules.get(&id).and_then(Option::as_ref) != Some(&rule) {
            let before = match self.rules.insert(id.clone(), Some(rule.clone())) {
                Some(_) => Before::Another,
                None => Before::Nothing,
            };
            difference.adds.push((id, rule, before));
        }
    }

    /// Id of a group, added after those that it outputs to.
    fn reconcile_group(&mut self, key: &Arc<GroupKey>, difference: &mut Difference) -> GroupId {
        if let Some(group) = self.ids.find(key) {
            return group;
        }
        let next = key.next().into_iter();
        let next: Vec<_> =
            next.map(|next| self.reconcile_group(&Arc::new(next), difference)).collect();
        let group = self.ids.allocate(key);
        if !next.is_empty() {
            self.next.insert(group, next.clone());
        }
        difference.groups.push((group, key.clone(), next));
        group
    }

    /// Groups that our rules refer to.
    fn named_groups(&self) -> impl Iterator<Item = GroupId> {
        let rules = self.rules.values().flatten();
        rules.filter_map(|rule| group_of(&rule.outcome).copied())
    }
}

pub(crate) fn group_of<G>(outcome: &Outcome<G>) -> Option<&G> {
    match outcome {
        Outcome::Group(group) => Some(group),
        _ => None,
    }
}

/// Whether the group has the desired content and outputs to `next`.
pub(crate) fn does(group: &GroupDesc, key: &GroupKey, next: &[GroupId]) -> bool {
    let wanted = key.buckets(next);
    let is_same = |(told, wanted): (&Bucket, &Bucket)| {
        told.watch_port == wanted.watch_port
            && (key.group_type() != GroupType::Select || told.weight == wanted.weight)
            && texts(&told.actions) == texts(&wanted.actions)
    };
    group.group_type == key.group_type()
        && group.buckets.len() == wanted.len()
        && group.buckets.iter().zip(&wanted).all(is_same)
}

/// The groups that its buckets output to.
fn next_of(group: &GroupDesc) -> Vec<GroupId> {
    let actions = group.buckets.iter().flat_map(|bucket| &bucket.actions);
    let next = actions.filter_map(|action| match action {
        Action::Group(next) => Some(*next),
        _ => None,
    });
    next.collect()
}

/// Normalised actions: `max_len` of an output to a real port has no meaning and is ignored.
fn texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(ToString::to_string).collect()
}

/// Decodes a reported rule; `None` if we would never send it.
fn read_rule(stats: &FlowStats) -> (FlowId, Option<Rule<GroupId>>) {
    let id = FlowId::new(stats.table_id, stats.priority, stats.match_fields.clone());
    let outcome = Outcome::read(&stats.instructions).filter(|_| stats.hard_timeout == 0);
    let rule = outcome.map(|outcome| Rule {
        cookie: Cookie(stats.cookie),
        idle_timeout: stats.idle_timeout,
        is_reported: stats.flags.contains(tapswitch_openflow::FlowModFlags::SEND_FLOW_REM),
        outcome,
    });
    (id, rule)
}

/// Inner tables first, then higher priorities. The match makes the order deterministic.
fn sorted_adds(ids: Vec<Arc<FlowId>>) -> Vec<Arc<FlowId>> {
    sorted_by(ids, |id| Reverse((id.table, id.priority)))
}

/// Outer tables first, then lower priorities.
fn sorted_deletes(ids: Vec<Arc<FlowId>>) -> Vec<Arc<FlowId>> {
    sorted_by(ids, |id| (id.table, id.priority))
}
