//! Admission of policies to the limited number of rules of a switch.

use std::collections::BTreeSet;

use tapswitch_openflow::{DatapathId, PortNo};

use super::Switch;
use super::foreseen::Inputs;
use crate::overlap::{Budget, Closure, Needed, PolicyId, Tap, TapRegion};
use crate::region::Region;
use crate::shared::Shared;
use crate::translate::{Wiring, region_rule_count};
use crate::ways::Ways;
use crate::{BudgetError, Limits};

/// Usage of a switch.
#[derive(Clone, Copy)]
struct Room<'a> {
    switch: DatapathId,
    closure: &'a Closure,
    arrivals: &'a Closure,
    /// Number of copying rules.
    rule_count: usize,
}

impl Room<'_> {
    const fn left(&self, limits: &Limits) -> Budget {
        let rules_left = limits.max_tap_rules.saturating_sub(self.rule_count);
        Budget { switch: self.switch, max_regions: limits.max_regions, rules_left }
    }

    /// Whether nothing exceeds its limit.
    fn is_within(&self, limits: &Limits) -> bool {
        let Limits { max_tap_rules, max_regions, .. } = *limits;
        let regions = self.closure.region_count().max(self.arrivals.region_count());
        self.rule_count <= max_tap_rules && regions <= max_regions
    }
}

/// A policy in the form that fits, and what it adds.
#[derive(Clone, Debug)]
struct Fitted {
    tap: Tap,
    coming: Needed,
    /// For copies at the egress.
    arriving: Needed,
}

impl Fitted {
    fn insert(self, closure: &mut Closure, arrivals: &mut Closure) {
        if self.tap.is_at_destination {
            arrivals.insert(self.tap.clone(), self.arriving.regions);
        }
        closure.insert(self.tap, self.coming.regions);
    }
}

/// The result of fitting a policy, and the inputs. It is needed several times before the policy is
/// added.
#[derive(Clone, Debug)]
pub(super) struct LastFitted {
    asked: Tap,
    inputs: Inputs,
    rule_count: usize,
    fitted: Fitted,
}

/// A copy of the applied policies, to try changes.
#[derive(Clone)]
struct Applied {
    closure: Shared<Closure>,
    arrivals: Shared<Closure>,
}

impl Applied {
    fn remove(&mut self, id: PolicyId) {
        self.closure.remove(id);
        self.arrivals.remove(id);
    }
}

impl Switch {
    /// Whether a policy fits beside the applied ones, without those of lower priorities.
    pub(crate) fn check_budget(&mut self, tap: Tap, limits: &Limits) -> Result<(), BudgetError> {
        let tap = self.in_its_words(tap);
        if self.foresees(&tap) {
            return Ok(());
        }
        match self.fitted(&tap, self.room(), limits) {
            Ok(fitted) => {
                self.note_fitted(tap, fitted);
                Ok(())
            }
            Err(_) if self.with_way_for(&tap, self.applied(), limits).is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Number of rules that a policy would add, including its intersections, if it fits.
    pub(crate) fn count_new_rules(&self, tap: &Tap, limits: &Limits) -> usize {
        match self.last_fitted().filter(|last| last.asked.cells == tap.cells) {
            // With room for all intersections, the number does not depend on the monitors.
            Some(last) if self.is_within_half(&last.fitted, limits) => last.fitted.coming.rules,
            _ => self.fitted(tap, self.room(), limits).map_or(0, |fitted| fitted.coming.rules),
        }
    }

    /// Whether the policy is applied as a wide one, for lack of room for its intersections.
    pub(crate) fn is_wide(&self, policy: PolicyId) -> bool {
        self.closure.taps().get(&policy).is_some_and(|tap| tap.is_wide)
    }

    /// Number of hosts in excess for the applied policies, leaving some room.
    pub(crate) fn hosts_without_room(&self, limits: &Limits) -> usize {
        let (rules, max) = (self.desired.tap_count(), limits.max_tap_rules);
        if !self.is_up() || rules <= max {
            return 0;
        }
        let excess = rules - max / 4 * 3;
        self.ways.count().saturating_mul(excess).div_ceil(rules)
    }

    pub(super) fn add_tap(&mut self, tap: &Tap, limits: &Limits) -> Result<(), BudgetError> {
        let last = self.last_fitted().filter(|last| last.asked.is_as_large_as(tap));
        let fitted = match last.map(|last| last.fitted.clone()) {
            // Only the form is that of the known one: identifiers of copies may differ, and so does
            // the name if a policy of the same size was refused, whose number this one has.
            Some(known) => {
                Fitted { tap: Tap { is_wide: known.tap.is_wide, ..tap.clone() }, ..known }
            }
            None => self.fitted(tap, self.room(), limits)?,
        };
        self.last_fitted = None;
        fitted.insert(&mut self.closure, &mut self.arrivals);
        Ok(())
    }

    pub(super) fn drop_tap(&mut self, id: PolicyId) {
        self.closure.remove(id);
        self.arrivals.remove(id);
    }

    /// Adds what wide policies need after other policies were removed or monitors changed. Those
    /// without room are tried again.
    pub(super) fn mend_wide(&mut self, limits: &Limits) {
        if !self.closure.has_wide() {
            return;
        }
        if !self.closure.has_changed() && !self.arrivals.has_changed() {
            return self.growth = 0;
        }
        // Includes the room of removed ones.
        self.growth = self.count_growth();
        let budget = self.room().left(limits);
        let closures = (&mut *self.closure, &mut *self.arrivals);
        for id in mend(closures, budget, (&self.ways, &self.wiring)) {
            self.drop_tap(id);
            self.stale.insert(id);
        }
    }

    /// Removes policies whose room is needed by missing ones of higher priorities. They are tried
    /// again after those.
    pub(super) fn make_room(&mut self, candidates: &[PolicyId], limits: &Limits) {
        let missing = self.missing(candidates).filter(|tap| tap.priority > 0);
        let missing: Vec<_> = missing.cloned().collect();
        if missing.is_empty() {
            return;
        }
        let mut applied = self.applied();
        for tap in missing {
            applied = self.with_way_for(&tap, applied.clone(), limits).unwrap_or(applied);
        }
        let before = self.closure.taps().keys().copied();
        let gone: Vec<_> = before.filter(|id| !applied.closure.taps().contains_key(id)).collect();
        for id in gone {
            self.drop_tap(id);
            // It is tried again after those that need its room.
            self.stale.insert(id);
        }
    }

    /// The applied policies with a new one, without those of lower priorities whose room it needs;
    /// `None` if that does not suffice.
    fn with_way_for(&self, tap: &Tap, mut applied: Applied, limits: &Limits) -> Option<Applied> {
        let is_lower = |(priority, _): &(u8, PolicyId)| *priority < tap.priority;
        // Usually there are none, which makes all that follows useless.
        applied.closure.first_to_give_way().filter(is_lower)?;
        loop {
            let room = self.room_beside(&applied);
            if room.is_within(limits)
                && let Ok(fitted) = self.fitted(tap, room, limits)
            {
                fitted.insert(&mut applied.closure, &mut applied.arrivals);
                return Some(applied);
            }
            let (_, id) = applied.closure.first_to_give_way().filter(is_lower)?;
            applied.remove(id);
            self.mend_beside(&mut applied);
        }
    }

    /// Adds what the remaining wide policies need, even beyond the limits.
    fn mend_beside(&self, Applied { closure, arrivals }: &mut Applied) {
        if closure.has_wide() {
            let all = Budget { switch: self.id, max_regions: usize::MAX, rules_left: usize::MAX };
            mend((closure, arrivals), all, (&self.ways, &self.wiring));
        }
    }

    fn note_fitted(&mut self, asked: Tap, fitted: Fitted) {
        let (inputs, rule_count) = (self.inputs(), self.tap_count());
        let last = LastFitted { asked, inputs, rule_count, fitted };
        self.last_fitted = Some(last.into());
    }

    /// The last result, if its inputs are unchanged.
    fn last_fitted(&self) -> Option<&LastFitted> {
        self.last_fitted
            .as_deref()
            .filter(|last| self.has_inputs(&last.inputs) && self.tap_count() == last.rule_count)
    }

    /// Whether a policy gets all its intersections, as less than half of the room is used.
    fn is_within_half(&self, fitted: &Fitted, limits: &Limits) -> bool {
        let (half, Needed { regions, rules }) =
            (self.room().left(&limits.half_of_room()), &fitted.coming);
        !fitted.tap.is_wide
            && self.closure.region_count() + regions.len() <= half.max_regions
            && *rules <= half.rules_left
    }

    /// The form in which a policy fits beside others. While less than half of the room is used, it
    /// gets all its intersections; beyond that they are left out as far as possible, for policies
    /// that cannot do without.
    fn fitted(&self, tap: &Tap, room: Room<'_>, limits: &Limits) -> Result<Fitted, BudgetError> {
        let (tap, coming) = self.fitted_to_come(tap, room, limits)?;
        let mut arriving = Needed::default();
        if tap.is_at_destination {
            let ways_out = tap.ways_out();
            let rule_count = room.rule_count + coming.rules;
            let left = Room { rule_count, ..room }.left(limits);
            arriving = room.arrivals.check(&tap, left, |arrivals, region| {
                arrival_rule_count(region, (arrivals, &ways_out), &self.ways)
            })?;
            arriving.rules += joined_rule_count((&tap, &ways_out), room.arrivals, &self.ways);
            if arriving.rules > left.rules_left {
                let (left, needed) = (left.rules_left, arriving.rules);
                return Err(BudgetError::Rules { left, needed });
            }
        }
        Ok(Fitted { tap, coming, arriving })
    }

    /// The same without copies at the egress.
    fn fitted_to_come(
        &self,
        tap: &Tap,
        room: Room<'_>,
        limits: &Limits,
    ) -> Result<(Tap, Needed), BudgetError> {
        let rule_count =
            |_: &Closure, region: &Region| copy_rule_count(region, (&self.ways, &self.wiring));
        let check = |tap: &Tap, budget| room.closure.check(tap, budget, rule_count);
        let (half, all) = (room.left(&limits.half_of_room()), room.left(limits));
        if let Ok(needed) = check(tap, half) {
            return Ok((tap.clone(), needed));
        }
        let wide = tap.widened().and_then(|wide| check(&wide, all).ok().map(|it| (wide, it)));
        let Some((wide, needed)) = wide else {
            return check(tap, all).map(|needed| (tap.clone(), needed));
        };
        // It becomes a wide policy only if that takes less, so the check may stop at that number.
        let max_regions = all.max_regions.min(room.closure.region_count() + needed.regions.len());
        match check(tap, Budget { max_regions, ..all }) {
            Ok(whole) => Ok((tap.clone(), whole)),
            Err(_) => Ok((wide, needed)),
        }
    }

    fn applied(&self) -> Applied {
        Applied { closure: self.closure.clone(), arrivals: self.arrivals.clone() }
    }

    /// Current usage.
    fn room(&self) -> Room<'_> {
        let (closure, arrivals) = (&self.closure, &self.arrivals);
        Room { switch: self.id, closure, arrivals, rule_count: self.tap_count() }
    }

    /// Usage with other policies.
    fn room_beside<'a>(&self, Applied { closure, arrivals }: &'a Applied) -> Room<'a> {
        let growth = self.growth_of(closure, arrivals);
        let rule_count = self.desired.tap_count().saturating_add_signed(growth);
        Room { switch: self.id, closure, arrivals, rule_count }
    }
}

/// Adds what wide policies need in both closures. Returns those without room.
fn mend(
    (closure, arrivals): (&mut Closure, &mut Closure),
    budget: Budget,
    (ways, wiring): (&Ways, &Wiring),
) -> Vec<PolicyId> {
    let mut gone = arrivals.mend(budget, |arrivals, region| {
        arrival_rule_count(region, (arrivals, &BTreeSet::new()), ways)
    });
    gone.extend(closure.mend(budget, |_, region| copy_rule_count(region, (ways, wiring))));
    gone
}

/// Number of rules of a region for incoming frames.
fn copy_rule_count(region: &Region, (ways, wiring): (&Ways, &Wiring)) -> usize {
    region_rule_count(region, wiring) + ways.count_reached(region)
}

/// The same for frames that leave for hosts, given also the link ports of a new policy. Includes
/// policies that except the region, so this is an upper bound.
fn arrival_rule_count(
    region: &Region,
    (arrivals, coming): (&Closure, &BTreeSet<PortNo>),
    ways: &Ways,
) -> usize {
    let mut ways_out = coming.clone();
    ways_out.extend(arrivals.taps_around(region).flat_map(Tap::ways_out));
    ways.count_reached_here(region) * (1 + ways_out.len())
}

/// Number of additional rules of existing regions, for the link ports of a new policy.
fn joined_rule_count(
    (tap, ways_out): (&Tap, &BTreeSet<PortNo>),
    arrivals: &Closure,
    ways: &Ways,
) -> usize {
    if ways_out.is_empty() {
        return 0;
    }
    let count = |known: &TapRegion| {
        let more = ways_out.difference(&known.ways_out()).count();
        ways.count_reached_here(&known.region) * more
    };
    arrivals.joined_by(tap).map(count).sum()
}
