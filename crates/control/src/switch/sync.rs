//! Sends differences to a switch, and processes the results.

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
use crate::translate::{Goal, arrival_rules, copies_rules, region_rules};
use crate::{BudgetError, Event, Limits, Millis, PolicyState, Ticket};

impl Switch {
    /// Sends what the switch lacks of the desired state.
    ///
    /// Policies are removed first: so a rule that stays keeps its policies, and its counters apply
    /// to the same ones throughout.
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
            // Decisions made until it has caught up are sent as one difference, without messages
            // that would be obsolete before they are sent.
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
            // Their rules are deleted already, or the deletion is queued.
            let barrier = self.outbox.send(Body::BarrierRequest, Request::Barrier);
            self.await_questions(barrier);
        }
        if self.outbox.queue_len() > limits.max_waiting {
            let reason = "it does not do what it is told".to_owned();
            self.signals.events.push(Event::SwitchMisbehaved { switch: self.id, reason });
        }
    }

    /// State of a policy on this switch.
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

    /// Everything before the barrier took effect or was rejected.
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
            // No group counts anything.
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

    /// When the next barrier is overdue.
    pub(super) fn barrier_deadline(&self) -> Option<Millis> {
        Some(self.outbox.unconfirmed_since()?.plus(BARRIER_WAIT))
    }

    /// Reports a switch that confirms nothing: policies and changes wait for it, and policy names
    /// stay in use. A disconnected switch is not waited for.
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

    /// Rebuilds the desired rules from all state. Applied policies remain as far as they are
    /// wanted: computing the intersections of many policies again would block the controller.
    pub(super) fn start_over(&mut self, limits: &Limits) {
        self.desired = Shared::default();
        self.insert_all();
        self.insert_applied();
        self.stale.clear();
        self.shrink(limits);
        let applied = self.closure.taps().keys();
        let mut candidates: Vec<_> = applied.chain(self.wanted.keys()).copied().collect();
        self.remove_unwanted(&candidates, limits);
        // Includes the room of removed ones.
        self.narrow_wide(limits);
        candidates.extend(std::mem::take(&mut self.stale));
        self.add_missing(candidates, limits);
    }

    /// Adds the rules of the applied policies, for a switch that is sent everything again.
    fn insert_applied(&mut self) {
        let copies = self.closure.regions().flat_map(|tap| self.copy_rules(tap));
        let arrivals = self.arrivals.regions().flat_map(|tap| self.arrival_rules(tap));
        let rules: Vec<_> = copies.chain(arrivals).collect();
        rules.into_iter().for_each(|rule| self.desired.insert(rule));
    }

    /// If there is room again, adds wide policies again as ordinary ones.
    fn narrow_wide(&mut self, limits: &Limits) {
        let half = limits.half_of_room();
        let has_room = self.closure.region_count() < half.max_regions
            && self.desired.tap_count() < half.max_tap_rules;
        if has_room {
            self.closure.wide().into_iter().for_each(|id| self.drop_tap(id));
            self.apply_changes();
        }
    }

    /// Sends the difference, followed by a barrier.
    pub(super) fn send_difference(
        &mut self,
        mut idle_groups: Vec<GroupId>,
        limits: &Limits,
        now: Millis,
    ) -> Ticket {
        if self.is_trial {
            return self.assume_difference();
        }
        let difference = self.with_history(|this| this.held.reconcile(&mut this.desired));
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

    /// Assumes that the difference was sent, and adds the barrier.
    fn assume_difference(&mut self) -> Ticket {
        self.take_told();
        let barrier = self.outbox.send(Body::BarrierRequest, Request::Barrier);
        self.await_carries(barrier);
        self.await_floods(barrier);
        barrier
    }

    /// Adds or replaces a rule. A rule that counts for other policies is deleted first, as its
    /// counters are theirs. No frame is missed meanwhile: such a rule is shadowed by one with the
    /// same match and a higher priority, now or already before. A rule that starts to count must
    /// not inherit the counters of one that counted for none.
    fn send_rule(
        &mut self,
        id: &Arc<FlowId>,
        rule: &Rule<GroupId>,
        (before, now): (Before, Millis),
    ) {
        self.refused.forget(id);
        let goal = self.desired.find(id).and_then(|goal| group_of(&goal.outcome).cloned());
        // A rule that only forwards counts for none.
        let goal = goal.filter(|key| !key.is_fork());
        let mut counts = self.ledger.counts(id);
        if counts && self.ledger.counts_for_others(id, goal.as_deref()) {
            self.send_deletion(id, now);
            counts = false;
        }
        let mut add = rule.add(id);
        add.flags.set(FlowModFlags::RESET_COUNTS, goal.is_some() && !counts);
        let request = Request::Rule(id.clone(), goal.clone(), before);
        let ticket = self.outbox.send(Body::FlowMod(add), request);
        if let Some(key) = goal {
            self.ledger.open_rule(id, &key, ticket);
        }
    }

    /// Sends a rule before the tables of the switch have been read.
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

    /// Policies that are wanted here but not applied.
    pub(super) fn missing(&self, candidates: &[PolicyId]) -> impl Iterator<Item = &Tap> {
        let is_missing =
            |tap: &&Tap| !self.is_applied(tap.id) && !self.failed.contains_key(&tap.id);
        candidates.iter().filter_map(|id| self.wanted.get(id)).filter(is_missing)
    }

    /// Applies the wanted policies: removals first, then additions.
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
        self.foreseen = None;
        if !new.is_empty() {
            let barrier = self.send_difference(Vec::new(), limits, now);
            self.installing.extend(new.into_iter().map(|id| (id, barrier)));
        }
    }

    /// Removes policies that are unwanted or were rejected, and follows moved monitors and senders.
    /// Returns the policies of the latter.
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
                        // With the room of removed policies. If it does not fit now either, it is
                        // retried like a new one.
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

    /// Adds missing policies as far as the budget allows: by priority, then by age. Returns the
    /// added ones.
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
            // After the additions, others may need less.
            missing = if fitting.is_empty() { Vec::new() } else { others };
        }
        added
    }

    /// Adds a policy, or records why it does not fit. Returns whether it fits.
    fn add_if_it_fits(
        &mut self,
        tap: &Tap,
        before: &BTreeMap<PolicyId, BudgetError>,
        limits: &Limits,
    ) -> bool {
        if self.take_foreseen(tap) {
            self.over_budget.remove(&tap.id);
            return true;
        }
        let basis = self.is_trial.then(|| self.basis());
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
        if let Some(basis) = basis.filter(|_| is_added) {
            self.note_tried(tap, basis);
        }
        is_added
    }

    /// Retries policies that did not fit, if hosts have gone since. Others can make hosts come and
    /// go by forging addresses, so this happens at most once a second.
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

    /// Removes policies while there are too many rules, as hosts may arrive after policies. The
    /// newest go first, however small; those that fit beside the rest are added back at once as if
    /// they had never been removed. Until it is decided which policies stay, rules are only
    /// counted, because building those for thousands of hosts is slow.
    fn shrink(&mut self, limits: &Limits) {
        let max = limits.max_tap_rules;
        if self.desired.tap_count() <= max {
            return;
        }
        for id in self.give_up_newest(limits).into_iter().rev() {
            let tap = self.wanted.get(&id).cloned();
            if tap.is_none_or(|tap| self.add_tap(&tap, limits).is_err()) {
                self.drop_tap(id);
                self.over_budget.insert(id, BudgetError::Outgrown { max });
                // There may be room now for a policy removed earlier.
                self.crowd = usize::MAX;
                self.signals.news.insert(id);
            }
            self.growth = self.count_growth();
        }
        self.apply_changes();
    }

    /// Removes policies, the newest first, until the number of rules is within its limit.
    fn give_up_newest(&mut self, limits: &Limits) -> Vec<PolicyId> {
        let mut gone = Vec::new();
        while self.tap_count() > limits.max_tap_rules
            && let Some((_, first)) = self.closure.first_to_give_way()
        {
            self.drop_tap(first);
            gone.push(first);
            self.growth = self.count_growth();
            if self.tap_count() <= limits.max_tap_rules {
                // Wide policies may need more now.
                self.mend_wide(limits);
                self.growth = self.count_growth();
            }
        }
        gone
    }

    /// Number of copying rules, including counted ones that are not built yet.
    pub(super) fn tap_count(&self) -> usize {
        self.desired.tap_count().saturating_add_signed(self.growth)
    }

    /// Number of additional rules due to pending changes in the closures.
    pub(super) fn count_growth(&self) -> isize {
        self.growth_of(&self.closure, &self.arrivals)
    }

    /// The same for other closures in their place.
    pub(super) fn growth_of(&self, closure: &Closure, arrivals: &Closure) -> isize {
        let copies = |tap: &TapRegion| {
            region_rules(tap, &self.wiring).len() + self.ways.count_reached(&tap.region)
        };
        let is_group = |(_, goal): &&(FlowId, Goal)| group_of(&goal.outcome).is_some();
        let arriving = |tap: &TapRegion| self.arrival_rules(tap).iter().filter(is_group).count();
        growth(closure, copies) + growth(arrivals, arriving)
    }

    /// Updates the desired rules from the closures. Removals come first, as they may make room for
    /// additions.
    fn apply_changes(&mut self) {
        self.growth = 0;
        // Taking changes from a closure invalidates results of trials, even if there are none.
        if self.arrivals.has_changed() {
            let arrivals = self.arrivals.take_changes();
            self.replace_rules(&arrivals, Self::arrival_rules);
        }
        if self.closure.has_changed() {
            let copies = self.closure.take_changes();
            self.replace_rules(&copies, Self::copy_rules);
        }
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

    /// Rules of a region for incoming frames.
    fn copy_rules(&self, tap: &TapRegion) -> Vec<(FlowId, Goal)> {
        let mut rules = region_rules(tap, &self.wiring);
        rules.extend(copies_rules(tap, self.ways.reached(&tap.region)));
        rules
    }

    /// Rules of a region for frames that leave for hosts of the switch.
    fn arrival_rules(&self, tap: &TapRegion) -> Vec<(FlowId, Goal)> {
        let here = self.ways.reached(&tap.region).into_iter();
        let here = here.filter(|(_, route)| route.exit.beyond.is_none());
        here.flat_map(|(key, route)| arrival_rules(tap, key, route.exit)).collect()
    }

    /// Processes a rejection. The policy concerned is given up as a whole: the newest one, since
    /// the earlier ones worked without it.
    fn handle_failure(&mut self, failure: Failure, now: Millis) {
        let Failure { ticket, request, kind } = failure;
        self.refusals += 1;
        let (key, what) = match request {
            Request::Rule(id, key, before) => {
                let what = format!("a rule of table {} with priority {}", id.table, id.priority);
                // The rule that it should have replaced still exists, and is deleted when none is
                // wanted there.
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
            // It uses a group that was rejected, and will soon be without it.
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

/// Number of additional rules due to pending changes in a closure; regions without members have no
/// copying rules.
fn growth(closure: &Closure, count: impl Fn(&TapRegion) -> usize) -> isize {
    let count = |tap: Option<&TapRegion>| {
        let tap = tap.filter(|tap| !tap.members.is_empty());
        tap.map_or(0, &count).cast_signed()
    };
    closure.changes().map(|(old, new)| count(new) - count(old)).sum()
}

/// Time for a switch to confirm any message: many thousand times what it needs.
const BARRIER_WAIT: Millis = Millis(30_000);
/// Minimum time between two retries, whatever hosts come and go.
const BETWEEN_RETRIES: Millis = Millis(1000);
