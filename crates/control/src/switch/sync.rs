//! Sending differences, and what comes of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use tapswitch_openflow::{Body, ErrorKind, FlowModFlags, GroupId};

use super::{Link, Switch};
use crate::group::{self, GroupKey};
use crate::held::group_of;
use crate::outbox::{Before, Failure, Request};
use crate::overlap::{Change, Closure, PolicyId, Tap, TapRegion};
use crate::rule::{FlowId, Rule};
use crate::shared::Shared;
use crate::text::switch_name;
use crate::translate::{Goal, arrival_rules, copies_rule, region_rules};
use crate::{BudgetError, Event, Limits, Millis, PolicyState, Ticket};

impl Switch {
    /// Makes the switch hold what it shall, as far as it does not.
    ///
    /// Policies that go, go first: then a rule that stays where it was keeps its policies, and its
    /// counters count for the same ones all along.
    pub(crate) fn flush(&mut self, limits: &Limits, now: Millis) {
        if let Link::Read(read) = &mut self.link {
            if self.held_since.is_some() {
                return;
            }
            let read = std::mem::take(&mut **read);
            return self.adopt(read, limits, now);
        }
        if !matches!(self.link, Link::Up) {
            return;
        }
        if self.outbox.is_full() && !self.is_trial {
            // What is decided until it has followed goes out as one difference: nobody is sent what
            // is replaced before it leaves.
            return;
        }
        self.shrink(limits);
        self.retry(now);
        if !self.stale.is_empty() {
            self.change_taps(limits, now);
        }
        if self.desired.has_changed() {
            self.send_difference(Vec::new(), limits, now);
        }
        if self.questions.iter().any(|(barrier, _)| barrier.is_none()) && !self.is_trial {
            // Their rules are gone already, or on their way out.
            let barrier = self.outbox.send(Body::BarrierRequest, Request::Barrier);
            self.await_questions(barrier);
        }
        if self.outbox.queue_len() > limits.max_waiting {
            let reason = "it does not do what it is told".to_owned();
            self.signals.events.push(Event::SwitchMisbehaved { switch: self.id, reason });
        }
    }

    /// How a policy that shall be applied here is doing.
    pub(crate) fn tap_state(&self, policy: PolicyId) -> PolicyState {
        if let Some(reason) = self.failed.get(&policy) {
            PolicyState::Failed { reason: reason.clone() }
        } else if let Some(error) = self.over_budget.get(&policy) {
            PolicyState::Failed { reason: error.to_string() }
        } else if self.installing.contains_key(&policy) || !self.is_applied(policy) {
            PolicyState::Installing
        } else {
            PolicyState::Active
        }
    }

    /// Everything before a barrier is done, or was refused.
    pub(super) fn handle_barrier(&mut self, barrier: Ticket, now: Millis) {
        self.outbox.handle_barrier(barrier);
        for failure in std::mem::take(&mut self.failures) {
            self.handle_failure(failure, now);
        }
        for awaited in [&mut self.installing, &mut self.moving] {
            let done = awaited.extract_if(|_, awaited| *awaited <= barrier);
            self.signals.news.extend(done.map(|(id, _)| id));
        }
        self.confirm_carries(barrier);
        self.confirm_floods(barrier);
        self.ask_hosts(barrier);
        if self.is_trial {
            // Nobody counts in it.
            return self.idle_groups.clear();
        }
        let (reached, later) =
            std::mem::take(&mut self.idle_groups).into_iter().partition(|(at, _)| *at <= barrier);
        self.idle_groups = later;
        let reached: Vec<(Ticket, GroupId)> = reached;
        for (_, group) in reached {
            self.ledger.close_group(group, now);
            self.ask_last(group);
        }
    }

    /// When the next barrier must have been reached.
    pub(super) fn barrier_deadline(&self) -> Option<Millis> {
        Some(self.outbox.unconfirmed_since()?.plus(BARRIER_WAIT))
    }

    /// Complains about a switch that confirms nothing: policies and changes wait for it, and names
    /// of policies are in use meanwhile. What a switch that is not connected does is not waited
    /// for.
    pub(super) fn handle_no_barrier(&mut self, now: Millis) {
        if self.barrier_deadline().is_some_and(|at| at <= now) {
            self.outbox.wait_again(now);
            let seconds = BARRIER_WAIT.0 / 1000;
            let reason = format!(
                "it is connected but has not confirmed changes within {seconds} s \
                 (OFPT_BARRIER_REQUEST): see its log, or restart it"
            );
            self.signals.events.push(Event::SwitchMisbehaved { switch: self.id, reason });
        }
    }

    /// The last counters of a group were read, or cannot be.
    pub(super) fn delete_group(&mut self, group: GroupId) {
        self.ledger.finish_group(group);
        self.held.forget_group(group, None);
        self.outbox.send(Body::GroupMod(group::delete(group)), Request::Deletion);
    }

    /// Makes the desired rules anew, from all that is known. What is applied stays so, as far as it
    /// is wanted: to find out once more what all policies have in common takes long where they are
    /// many, and others wait meanwhile.
    pub(super) fn start_over(&mut self, limits: &Limits) {
        self.desired = Shared::default();
        self.insert_all();
        self.insert_applied();
        self.stale.clear();
        self.shrink(limits);
        let applied = self.closure.taps().keys();
        let mut candidates: Vec<_> = applied.chain(self.wanted.keys()).copied().collect();
        self.remove_unwanted(&candidates, limits);
        // The room of those that went counts.
        self.narrow_wide(limits);
        candidates.extend(std::mem::take(&mut self.stale));
        self.add_missing(candidates, limits);
    }

    /// The rules of the policies that are applied, for a switch that is told everything anew.
    fn insert_applied(&mut self) {
        let copies = self.closure.regions().flat_map(|tap| self.copy_rules(tap));
        let arrivals = self.arrivals.regions().flat_map(|tap| self.arrival_rules(tap));
        let rules: Vec<_> = copies.chain(arrivals).collect();
        rules.into_iter().for_each(|rule| self.desired.insert(rule));
    }

    /// Where there is room again, wide policies are added anew, as others are.
    fn narrow_wide(&mut self, limits: &Limits) {
        let half = limits.half_of_room();
        let has_room = self.closure.region_count() < half.max_regions
            && self.desired.tap_count() < half.max_tap_rules;
        if has_room {
            self.closure.wide().into_iter().for_each(|id| self.drop_tap(id));
            self.apply_changes();
        }
    }

    /// Sends the difference, and a barrier behind it.
    pub(super) fn send_difference(
        &mut self,
        mut idle_groups: Vec<GroupId>,
        limits: &Limits,
        now: Millis,
    ) -> Ticket {
        if self.is_trial {
            return self.assume_difference();
        }
        let difference = self.held.reconcile(&mut self.desired);
        for (id, key, next) in difference.groups {
            let body = Body::GroupMod(key.add(id, &next));
            let ticket = self.outbox.send(body, Request::Group(id, key.clone()));
            self.ledger.open_group(id, &key, ticket);
        }
        for (id, rule, before) in difference.adds {
            self.send_rule(&id, &rule, (before, now));
        }
        for id in difference.deletes {
            self.send_deletion(&id, now);
        }
        let barrier = self.outbox.send(Body::BarrierRequest, Request::Barrier);
        idle_groups.extend(difference.idle_groups);
        self.idle_groups.extend(idle_groups.into_iter().map(|group| (barrier, group)));
        self.await_carries(barrier);
        self.await_floods(barrier);
        self.await_questions(barrier);
        self.give_up_at.get_or_insert(now.plus(limits.final_counts_wait));
        barrier
    }

    fn await_questions(&mut self, barrier: Ticket) {
        for (at, _) in &mut self.questions {
            at.get_or_insert(barrier);
        }
    }

    /// Takes it that the difference is sent, and puts in the barrier behind it.
    fn assume_difference(&mut self) -> Ticket {
        self.desired.take_changed();
        self.desired.take_idle_groups();
        let barrier = self.outbox.send(Body::BarrierRequest, Request::Barrier);
        self.await_carries(barrier);
        self.await_floods(barrier);
        barrier
    }

    /// Adds a rule, or replaces it. A rule that makes copies for other policies is not replaced but
    /// deleted first: its counters are theirs. Nothing is missed meanwhile, for such a rule has
    /// just become, or still is, the shadow of one with the same match and a higher priority. A
    /// rule that begins to count must not go on where one stands that counted for nobody.
    fn send_rule(
        &mut self,
        id: &Arc<FlowId>,
        rule: &Rule<GroupId>,
        (before, now): (Before, Millis),
    ) {
        self.refused.forget(id);
        let goal = self.desired.find(id).and_then(|goal| group_of(&goal.outcome).cloned());
        // One that only forwards counts for nobody.
        let goal = goal.filter(|key| !key.is_fork());
        if self.ledger.counts_for_others(id, goal.as_deref()) {
            self.send_deletion(id, now);
        }
        let mut add = rule.add(id);
        add.flags.set(FlowModFlags::RESET_COUNTS, goal.is_some() && !self.ledger.counts(id));
        let request = Request::Rule(id.clone(), goal.clone(), before);
        let ticket = self.outbox.send(Body::FlowMod(add), request);
        if let Some(key) = goal {
            self.ledger.open_rule(id, &key, ticket);
        }
    }

    /// Sends a rule before it is known what the switch holds.
    pub(super) fn send_early(&mut self, (id, rule): (Arc<FlowId>, Rule<GroupId>)) {
        self.outbox.send(Body::FlowMod(rule.add(&id)), Request::Rule(id, None, Before::Nothing));
    }

    fn send_deletion(&mut self, id: &Arc<FlowId>, now: Millis) {
        self.refused.forget(id);
        self.outbox.send(Body::FlowMod(id.delete()), Request::Deletion);
        self.ledger.close_rule(id, now);
    }

    fn is_applied(&self, policy: PolicyId) -> bool {
        self.closure.taps().contains_key(&policy)
    }

    /// Those of the policies that are wanted here and not applied.
    pub(super) fn missing(&self, candidates: &[PolicyId]) -> impl Iterator<Item = &Tap> {
        let is_missing =
            |tap: &&Tap| !self.is_applied(tap.id) && !self.failed.contains_key(&tap.id);
        candidates.iter().filter_map(|id| self.wanted.get(id)).filter(is_missing)
    }

    /// Goes from the policies that are applied to those that are wanted: first those that go, then
    /// those that come.
    fn change_taps(&mut self, limits: &Limits, now: Millis) {
        let mut candidates: Vec<_> = std::mem::take(&mut self.stale).into_iter().collect();
        // What did not fit may fit now.
        candidates.extend(self.over_budget.keys());
        let moved = self.remove_unwanted(&candidates, limits);
        if self.desired.has_changed() {
            let barrier = self.send_difference(Vec::new(), limits, now);
            self.moving.extend(moved.into_iter().map(|id| (id, barrier)));
        }
        candidates.extend(std::mem::take(&mut self.stale));
        let new = self.add_missing(candidates, limits);
        if !new.is_empty() {
            let barrier = self.send_difference(Vec::new(), limits, now);
            self.installing.extend(new.into_iter().map(|id| (id, barrier)));
        }
    }

    /// Takes away what is not wanted any more or was refused, and follows monitors and senders that
    /// moved. Returns the policies of those.
    fn remove_unwanted(&mut self, candidates: &[PolicyId], limits: &Limits) -> Vec<PolicyId> {
        let mut moved = Vec::new();
        for id in candidates {
            let Some(applied) = self.closure.taps().get(id) else { continue };
            let wanted = self.wanted.get(id).filter(|_| !self.failed.contains_key(id));
            match wanted {
                None => self.drop_tap(*id),
                Some(wanted) if !wanted.copies_as(applied) => {
                    let wanted = wanted.clone();
                    self.drop_tap(*id);
                    if self.add_tap(&wanted, limits).is_err() {
                        // With the room of what went. Where there is none just now, either, it is
                        // tried again as if it came.
                        self.growth = self.count_growth();
                        let _ = self.add_tap(&wanted, limits);
                    }
                    moved.push(*id);
                }
                Some(wanted) if wanted.aims != applied.aims => {
                    let aims = wanted.aims.clone();
                    self.closure.move_monitors(*id, &aims);
                    self.arrivals.move_monitors(*id, &aims);
                    moved.push(*id);
                }
                Some(_) => {}
            }
        }
        self.signals.news.extend(candidates);
        self.make_room(candidates, limits);
        self.mend_wide(limits);
        self.apply_changes();
        moved
    }

    /// Adds what is wanted and missing, as far as the budget goes: what has a higher priority
    /// first, then what came first. Returns what was added.
    fn add_missing(&mut self, mut candidates: Vec<PolicyId>, limits: &Limits) -> Vec<PolicyId> {
        candidates.sort_unstable();
        candidates.dedup();
        let before = std::mem::take(&mut self.over_budget);
        self.signals.news.extend(&candidates);
        let mut missing: Vec<_> = self.missing(&candidates).cloned().collect();
        missing.sort_by_key(|tap| Reverse(tap.priority));
        let mut added = Vec::new();
        self.crowd = self.ways.count();
        while !missing.is_empty() {
            let (fitting, others): (Vec<_>, Vec<_>) =
                missing.into_iter().partition(|tap| self.add_if_it_fits(tap, &before, limits));
            added.extend(fitting.iter().map(|tap| tap.id));
            // Beside what came, others may do with less.
            missing = if fitting.is_empty() { Vec::new() } else { others };
        }
        added
    }

    /// Adds a policy, or notes why it does not fit. Returns whether it does.
    fn add_if_it_fits(
        &mut self,
        tap: &Tap,
        before: &BTreeMap<PolicyId, BudgetError>,
        limits: &Limits,
    ) -> bool {
        let added = self.add_tap(tap, limits);
        let is_added = added.is_ok();
        match added {
            Ok(()) => _ = self.over_budget.remove(&tap.id),
            Err(error) => {
                self.drop_tap(tap.id);
                let outgrown =
                    |before: &&BudgetError| matches!(before, BudgetError::Outgrown { .. });
                let known = before.get(&tap.id).filter(outgrown).cloned();
                self.over_budget.insert(tap.id, known.unwrap_or(error));
            }
        }
        self.apply_changes();
        is_added
    }

    /// Tries those again that did not fit, if hosts went since. Others can make hosts come and go
    /// by forged addresses, and shall not have that done again and again: so a second passes
    /// between two times.
    fn retry(&mut self, now: Millis) {
        self.retry_at = None;
        if self.over_budget.is_empty() || self.ways.count() >= self.crowd {
            return;
        }
        match self.retried.map_or(now, |last| last.plus(BETWEEN_RETRIES)) {
            at if at > now => self.retry_at = Some(at),
            _ => {
                self.retried = Some(now);
                self.stale.extend(self.over_budget.keys());
            }
        }
    }

    /// Gives up policies while there are too many rules: hosts may come after policies. The newest
    /// go first, however small; those that fit beside what is left come back at once, and it is as
    /// if they had never gone: rules are only counted until it is known which policies stay, for to
    /// make those of thousands of hosts takes long.
    fn shrink(&mut self, limits: &Limits) {
        let (max, mut may_return) = (limits.max_tap_rules, true);
        while self.desired.tap_count() > max && !self.closure.taps().is_empty() {
            for id in self.give_up_newest(limits).into_iter().rev() {
                let tap = self.wanted.get(&id).filter(|_| may_return).cloned();
                if tap.is_none_or(|tap| self.add_tap(&tap, limits).is_err()) {
                    self.drop_tap(id);
                    self.over_budget.insert(id, BudgetError::Outgrown { max });
                    // There may be room now for one that went before.
                    self.crowd = usize::MAX;
                    self.signals.news.insert(id);
                }
                self.growth = self.count_growth();
            }
            self.apply_changes();
            // Those that two regions ask for are counted twice, so there may be more than counted.
            may_return = false;
        }
    }

    /// Takes policies away, the newest first, until there are no more rules than may be.
    fn give_up_newest(&mut self, limits: &Limits) -> Vec<PolicyId> {
        let mut gone = Vec::new();
        while self.tap_count() > limits.max_tap_rules
            && let Some((_, first)) = self.closure.first_to_give_way()
        {
            self.drop_tap(first);
            gone.push(first);
            self.growth = self.count_growth();
            if self.tap_count() <= limits.max_tap_rules {
                // Wide ones may need more now.
                self.mend_wide(limits);
                self.growth = self.count_growth();
            }
        }
        gone
    }

    /// How many rules make copies, with those that are counted and not made yet.
    pub(super) fn tap_count(&self) -> usize {
        self.desired.tap_count().saturating_add_signed(self.growth)
    }

    /// By how many rules what changed in the closures will be more than before.
    pub(super) fn count_growth(&self) -> isize {
        self.growth_of(&self.closure, &self.arrivals)
    }

    /// The same of what would be in their place.
    pub(super) fn growth_of(&self, closure: &Closure, arrivals: &Closure) -> isize {
        let copies = |tap: &TapRegion| {
            region_rules(tap, &self.wiring).len() + self.ways.count_reached(&tap.region)
        };
        let is_group = |(_, goal): &&(FlowId, Goal)| group_of(&goal.outcome).is_some();
        let arriving = |tap: &TapRegion| self.arrival_rules(tap).iter().filter(is_group).count();
        growth(closure, copies) + growth(arrivals, arriving)
    }

    /// Makes the desired rules follow the closures. What goes, goes first: it may make room for
    /// what comes in its place.
    fn apply_changes(&mut self) {
        self.growth = 0;
        let arrivals = self.arrivals.take_changes();
        self.replace_rules(&arrivals, Self::arrival_rules);
        let copies = self.closure.take_changes();
        self.replace_rules(&copies, Self::copy_rules);
    }

    fn replace_rules(
        &mut self,
        changes: &[Change],
        rules: impl Fn(&Self, &TapRegion) -> Vec<(FlowId, Goal)>,
    ) {
        for old in changes.iter().filter_map(|(old, _)| old.as_ref()) {
            rules(self, old).iter().for_each(|rule| self.desired.remove(rule));
        }
        for new in changes.iter().filter_map(|(_, new)| new.as_ref()) {
            rules(self, new).into_iter().for_each(|rule| self.desired.insert(rule));
        }
    }

    /// The rules of a region for what comes in.
    fn copy_rules(&self, tap: &TapRegion) -> Vec<(FlowId, Goal)> {
        let mut rules = region_rules(tap, &self.wiring);
        let reached = self.ways.reached(&tap.region).into_iter();
        rules.extend(reached.map(|(key, route)| copies_rule(tap, key, route)));
        rules
    }

    /// The rules of a region for what goes out to hosts of the switch.
    fn arrival_rules(&self, tap: &TapRegion) -> Vec<(FlowId, Goal)> {
        let here = self.ways.reached(&tap.region).into_iter();
        let here = here.filter(|(_, route)| route.exit.beyond.is_none());
        here.flat_map(|(key, route)| arrival_rules(tap, key, route.exit)).collect()
    }

    /// The switch refused something. A policy that it concerns is given up as a whole: the newest,
    /// since what was there before worked without it.
    fn handle_failure(&mut self, failure: Failure, now: Millis) {
        let Failure { ticket, request, kind } = failure;
        self.refusals += 1;
        let (key, what) = match request {
            Request::Rule(id, key, before) => {
                let what = format!("a rule of table {} with priority {}", id.table, id.priority);
                // What it was to replace is there still, and goes when nothing is wanted there.
                match self.ledger.cancel_rule(&id, ticket) || before == Before::Another {
                    true => self.held.distrust_rule(id.clone()),
                    false => _ = self.held.forget_rule(&id),
                }
                let is_of_policies = key.as_ref().is_some_and(|key| !key.members.is_empty());
                if !is_of_policies && !self.note_refused((id, kind), now) {
                    return;
                }
                (key, what)
            }
            Request::Group(id, key) => {
                self.held.forget_group(id, Some(&key));
                self.ledger.cancel_group(id);
                if key.is_fork() {
                    return self.give_up_forks(kind);
                }
                (Some(key), format!("group {id}"))
            }
            _ => (None, "a deletion".to_owned()),
        };
        if self.forking.is_none() && key.as_ref().is_some_and(|key| !key.next().is_empty()) {
            // It went on to a group that was refused, and is there without that group soon.
            return;
        }
        self.blame(key.as_deref(), &what, kind);
    }

    fn blame(&mut self, key: Option<&GroupKey>, what: &str, kind: ErrorKind) {
        let reason = format!("switch {} refused {what}: {kind}", switch_name(self.id));
        let members = key.iter().flat_map(|key| key.members.iter());
        match members.map(|member| member.policy).max() {
            Some(policy) => {
                let remedy = match kind {
                    ErrorKind::OFPFMFC_TABLE_FULL | ErrorKind::OFPGMFC_OUT_OF_GROUPS => {
                        "; it is full: delete other policies, or give this one fewer ports and \
                         addresses"
                    }
                    _ => "; see its log, then delete the policy and add it again",
                };
                self.failed.entry(policy).or_insert_with(|| reason + remedy);
                self.stale.insert(policy);
            }
            None => self.signals.events.push(Event::RuleRefused { switch: self.id, reason }),
        }
    }
}

/// By how many rules what changed in a closure makes more; regions without members make none that
/// copy.
fn growth(closure: &Closure, count: impl Fn(&TapRegion) -> usize) -> isize {
    let count = |tap: Option<&TapRegion>| {
        let tap = tap.filter(|tap| !tap.members.is_empty());
        tap.map_or(0, &count).cast_signed()
    };
    closure.changes().map(|(old, new)| count(new) - count(old)).sum()
}

/// How long a switch may take to confirm any of what it was sent: many thousand times as long as it
/// needs for that.
const BARRIER_WAIT: Millis = Millis(30_000);
/// Hosts that come and go cost no more translations than one in this time.
const BETWEEN_RETRIES: Millis = Millis(1000);
