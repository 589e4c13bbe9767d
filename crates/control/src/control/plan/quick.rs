//! Quick proof of a change, with bounded work while others wait.
//!
//! A plan traces frames of all policies, however long that takes. Here the work is bounded and
//! depends on what the policy's frames meet, not on the total state: a trial shares unchanged state
//! with the control plane, only desired rules are used, and rules are looked up by hash. Frames of
//! the policy itself are traced first, then those of its intersections, and with the remaining
//! budget those of other policies. Existing problems are not attributed to the change.
//!
//! **What is left out is reported.** If some frames cannot be traced, or are too many, the others
//! are traced, but the change does not count as proved; if none can be, there is no proof.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use super::frames::{Bystanders, FEWEST_SENDERS, MAX_HOSTS};
use super::overlaps::SOME_OVERLAPS;
use super::{MAX_PROBLEMS, Proof};
use crate::control::Control;
use crate::control::roster::PolicyEntry;
use crate::place::Place;
use crate::proof::{Model, Sample, Trouble};
use crate::{PolicyError, TapPolicy, WhenMissing};

/// The verdict on a change, or why the change is invalid.
pub type Judged = Result<Verdict, PolicyError>;

/// Checks changes, and returns their verdicts in order.
pub type Look<'a> = dyn Fn(&[Change<'_>]) -> Vec<Verdict> + Sync + 'a;

/// Verdict on a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The proof; `None` if nothing could be traced.
    pub proof: Option<Proof>,
    /// Why the proof is missing or incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproved: Option<String>,
    /// There is no proof because the switches concerned are not connected yet: the change takes
    /// effect when they are.
    #[serde(skip)]
    pub is_early: bool,
}

impl Verdict {
    fn unproved(reason: impl Into<String>) -> Self {
        Self { unproved: Some(reason.into()), ..Self::default() }
    }

    /// The first problem, if there is one.
    pub fn counterexample(&self) -> Option<&str> {
        self.proof.as_ref()?.problems.first().map(String::as_str)
    }
}

/// A change of a policy.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Adds a policy.
    Add(&'a TapPolicy),
    /// Replaces the policy of its name.
    Replace(&'a TapPolicy),
    /// Deletes the policy of this name.
    Delete(&'a str),
}

impl Change<'_> {
    /// Name of the policy.
    fn name(&self) -> &str {
        match self {
            Self::Add(policy) | Self::Replace(policy) => &policy.name,
            Self::Delete(name) => name,
        }
    }
}

impl Control {
    /// Checks a change. Takes some milliseconds at most, whatever the state.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(&mut self, change: Change<'_>) -> Result<Verdict, PolicyError> {
        match self.try_out(&[change], |change, look| look(change)) {
            Ok(mut verdicts) => verdicts.pop().unwrap_or_else(|| Ok(Verdict::default())),
            Err(reason) => Ok(Verdict::unproved(reason)),
        }
    }

    /// Checks each of several changes that are made together, much faster than one by one. `None`
    /// if one of them does harm, or all together are too expensive: then each must be checked
    /// before it is made. Most of the time is spent in checking, which `share_out` may distribute
    /// over several threads.
    pub fn judge_together(
        &mut self,
        changes: &[Change<'_>],
        share_out: impl FnOnce(&[Change<'_>], &Look<'_>) -> Vec<Verdict>,
    ) -> Option<Vec<Judged>> {
        let verdicts = self.try_out(changes, share_out).ok()?;
        let is_right = |verdict: &Judged| {
            verdict.as_ref().map_or(true, |verdict| verdict.counterexample().is_none())
        };
        verdicts.iter().all(is_right).then_some(verdicts)
    }

    /// Tries all these changes and returns each one's result; or why they cannot be tried.
    fn try_out(
        &mut self,
        changes: &[Change<'_>],
        share_out: impl FnOnce(&[Change<'_>], &Look<'_>) -> Vec<Verdict>,
    ) -> Result<Vec<Judged>, String> {
        // Evaluates pending input first, which is not part of the changes, and forgets what the
        // last trial found.
        self.settle();
        let now = self.trial();
        let mut then = now.clone();
        let made: Vec<_> = changes.iter().map(|change| then.make(*change)).collect();
        if let Some(reason) = then.excess() {
            return Err(reason);
        }
        then.foresee();
        let sound: Vec<_> =
            changes.iter().zip(&made).filter(|(_, made)| made.is_ok()).map(|(at, _)| *at).collect();
        let bystanders = then.bystanders();
        let look = |changes: &[Change<'_>]| {
            let verdicts = changes.iter().map(|change| now.compare(&then, *change, &bystanders));
            verdicts.collect()
        };
        let mut verdicts = share_out(&sound, &look).into_iter();
        let mut next = || verdicts.next().unwrap_or_else(|| Verdict::unproved(NOT_LOOKED_AT));
        let judged = made.into_iter().map(|made| made.map(|()| next())).collect();
        self.keep_orders(&now);
        self.keep_orders(&then);
        drop(now);
        self.keep_foreseen(then);
        Ok(judged)
    }

    /// Keeps the results of a trial, which the change takes over.
    fn keep_foreseen(&mut self, trial: Self) {
        for (id, tried) in trial.switches.into_own_entries() {
            if let Some(foreseen) = tried.into_foreseen()
                && let Some(own) = self.switches.get_mut(&id)
            {
                own.set_foreseen(Some(foreseen));
                self.foreseen.push(id);
            }
        }
    }

    /// Drops the remaining results of trials. A change right after its trial has taken them over;
    /// as long as they exist, maps are shared with them, and changes are kept beside the maps.
    pub(in crate::control) fn forget_foreseen(&mut self) {
        for id in std::mem::take(&mut self.foreseen) {
            if let Some(switch) = self.switches.get_mut(&id) {
                switch.set_foreseen(None);
            }
        }
    }

    /// Builds the lookup orders of switches that the trial needed, so that the next trial shares
    /// them.
    fn keep_orders(&self, trial: &Self) {
        let looked_up = trial.switches.own_entries().filter(|(_, at)| at.desired().is_prepared());
        for (id, _) in looked_up {
            if let Some(own) = self.switches.get(id) {
                own.desired().prepare();
            }
        }
    }

    /// Makes a change, like [`Self::add_policy`], [`Self::replace_policy`] and
    /// [`Self::delete_policy`], for a caller that waits.
    ///
    /// # Errors
    /// What is wrong with it. Nothing has changed then.
    pub fn make(&mut self, change: Change<'_>) -> Result<(), PolicyError> {
        match change {
            Change::Add(policy) => self.add_policy(policy.clone(), WhenMissing::Refuse),
            Change::Replace(policy) => self.replace_policy(policy.clone(), WhenMissing::Refuse),
            Change::Delete(name) => self.delete_policy(name),
        }
    }

    /// A copy of the control plane for trying a change, in which switches have their desired rules.
    fn trial(&self) -> Self {
        let mut trial = Self { is_trial: true, ..self.clone() };
        trial.wait_for_no_links();
        trial.foresee();
        trial
    }

    /// Runs until switches would have the desired rules and have confirmed them.
    fn foresee(&mut self) {
        loop {
            self.settle();
            let awaited = self.turns.awaited().clone();
            if awaited.is_empty() {
                return;
            }
            for id in awaited {
                self.with_switch(id, |switch, _, now| switch.confirm_all(now));
            }
        }
    }

    /// Why a trial would take too long, if so: too many rules would change.
    fn excess(&self) -> Option<String> {
        let mut rules = 0;
        for entry in self.policies.dirty.iter().filter_map(|id| self.policies.get(*id)) {
            if entry.policy.rewritten().is_some() && !self.is_rewriting {
                // The first policy whose copies have addresses of their own changes rules at all
                // switches.
                rules += self
                    .switches
                    .values()
                    .map(|switch| switch.desired().rules().count())
                    .sum::<usize>();
            }
            let (applied, is_narrow) = self.where_applied(entry);
            let applied = applied.iter().filter_map(|at| Some((*at, self.switches.get(at)?)));
            let count = applied.map(|(at, switch)| {
                switch.desired().prepare();
                let tap = entry.tap(self.cells_at((entry, is_narrow), at), Vec::new());
                switch.count_new_rules(&tap, &self.limits)
            });
            rules += count.sum::<usize>();
            if rules > MAX_RULES {
                let most = format!("up to {MAX_RULES} are examined{AS_PLAN}");
                return Some(format!("it takes {rules} rules; {most}"));
            }
        }
        None
    }

    /// Traces the frames of a change, before and after it.
    fn compare(&self, then: &Self, change: Change<'_>, bystanders: &Bystanders) -> Verdict {
        let abouts = self.abouts(then, change.name());
        let Some(own) = abouts.first() else { return Verdict::default() };
        if let Some(reason) = own.untagged() {
            // A better explanation than a frame that is not copied.
            return Verdict::unproved(reason);
        }
        // A flooded frame passes all switches several times.
        let floods = MAX_PASSES / (8 * self.switches.len().max(1));
        let stations = then.stations(own, (bystanders, floods.clamp(FEWEST_SENDERS, MAX_HOSTS)));
        let remedy = match change {
            Change::Add(_) | Change::Replace(_) => AS_PLAN,
            // After a deletion there is nothing left for a dry run to check.
            Change::Delete(_) => "",
        };
        let mut following = Following::new(self, then, remedy);
        if let Some(trouble) = then.unseen_part(own) {
            following.leave_out_for(trouble);
        }
        let is_whole = following.follow(&then.samples_about(&abouts, &stations), MAX_PASSES);
        if is_whole {
            let common = then.overlaps(&abouts, SOME_OVERLAPS);
            following.leave_out(common.left_out().map(|reason| reason + following.remedy));
            following.follow(&then.samples_in(&common.regions, &stations), PASSES_IN_COMMON);
            let many = then.policies.count() > MAX_OTHERS;
            let passes = if many { PASSES_BESIDE } else { MAX_PASSES };
            following
                .follow_beside(&then.samples_of(then.beside(own).into_iter(), &stations), passes);
        }
        following.verdict()
    }

    /// Other policies: all if there are few, else some with senders in common.
    fn beside(&self, own: &PolicyEntry) -> Vec<&PolicyEntry> {
        let is_own = |entry: &&PolicyEntry| entry.id == own.id;
        if self.policies.count() <= MAX_OTHERS {
            return self.policies.iter().filter(|entry| !is_own(entry)).collect();
        }
        let named = own.cells.included().filter(|region| region.sender().is_some());
        let near = named.flat_map(|region| self.policies.near(&region));
        near.filter(|entry| !is_own(entry)).take(MAX_BESIDE).collect()
    }
}

/// Frames being traced before and after a change.
struct Following<'a> {
    now: &'a Control,
    then: &'a Control,
    /// Remaining total budget.
    passes_left: usize,
    proof: Proof,
    /// Why the result is incomplete.
    reason: Option<String>,
    /// The reason applies only to switches that are not connected yet.
    is_early: bool,
    /// The frames being traced do not belong to the change.
    is_beside: bool,
    /// Remedy if there are too many.
    remedy: &'static str,
}

impl<'a> Following<'a> {
    const fn new(now: &'a Control, then: &'a Control, remedy: &'static str) -> Self {
        let proof = Proof { is_proved: false, checked: 0, problems: Vec::new() };
        let (passes_left, reason, is_early, is_beside) = (MAX_PASSES, None, true, false);
        Self { now, then, passes_left, proof, reason, is_early, is_beside, remedy }
    }

    fn leave_out(&mut self, reason: Option<String>) {
        self.is_early &= reason.is_none();
        self.reason = self.reason.take().or(reason);
    }

    fn leave_out_for(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Early(reason) => _ = self.reason.get_or_insert(reason),
            Trouble::Unknown(reason) | Trouble::Wrong(reason) => self.leave_out(Some(reason)),
        }
    }

    /// Traces frames of the change within a budget of passages. Returns whether that sufficed.
    fn follow(&mut self, frames: &[(Place, Sample)], passes: usize) -> bool {
        let is_whole = self.follow_all(frames, passes);
        let remedy = self.remedy;
        self.leave_out(
            (!is_whole).then(|| format!("its frames have too many possible paths{remedy}")),
        );
        is_whole
    }

    /// The same for other frames: those without a verdict do not matter.
    fn follow_beside(&mut self, frames: &[(Place, Sample)], passes: usize) {
        self.is_beside = true;
        self.follow_all(frames, passes);
    }

    fn follow_all(&mut self, frames: &[(Place, Sample)], passes: usize) -> bool {
        let passes = passes.min(self.passes_left);
        let left = Cell::new(passes);
        let models = [self.now, self.then].map(|control| Model::new(control, &left));
        let is_whole = frames.iter().all(|frame| {
            self.proof.problems.len() >= MAX_PROBLEMS || self.follow_one(frame, &models, &left)
        });
        self.passes_left -= passes - left.get();
        is_whole
    }

    /// Returns whether the budget sufficed.
    fn follow_one(
        &mut self,
        frame: &(Place, Sample),
        [before, after]: &[Model<'_>; 2],
        left: &Cell<usize>,
    ) -> bool {
        let result = self.then.check((before, after), frame);
        let as_before = match result {
            Err(Trouble::Wrong(_)) => self.now.check((before, before), frame),
            _ => Ok(()),
        };
        if left.get() == 0 {
            return false;
        }
        match (result, as_before) {
            (Ok(()), _) => self.proof.checked += 1,
            (_, Err(Trouble::Wrong(problem))) => {
                self.leave_out(Some(format!(
                    "something is already wrong without the change: {problem}"
                )));
            }
            (Err(Trouble::Wrong(problem)), Ok(())) => {
                self.proof.checked += 1;
                self.proof.problems.push(problem);
            }
            (_, Err(unknown)) | (Err(unknown), _) if !self.is_beside => {
                self.leave_out_for(unknown);
            }
            _ => {}
        }
        true
    }

    fn verdict(self) -> Verdict {
        let Self { mut proof, reason, is_early, .. } = self;
        if !proof.problems.is_empty() {
            // A problem counts whatever else is unknown.
            return Verdict { proof: Some(proof), ..Verdict::default() };
        }
        proof.is_proved = reason.is_none();
        let is_any = proof.checked > 0 || proof.is_proved;
        let proof = is_any.then_some(proof);
        Verdict { is_early: proof.is_none() && is_early, proof, unproved: reason }
    }
}

/// Reason for no verdict if a part of the work was not done.
const NOT_LOOKED_AT: &str = "it was not examined";
/// Remedy.
const AS_PLAN: &str = "; a dry run examines all of it";
/// Maximum rules in a trial: about a microsecond each, as when they are applied.
const MAX_RULES: usize = 250_000;
/// Maximum passages of switches: about a microsecond each.
const MAX_PASSES: usize = 100_000;
/// The same for frames of intersections.
const PASSES_IN_COMMON: usize = 30_000;
/// The same for frames of other policies, if there are many.
const PASSES_BESIDE: usize = 1000;
/// Maximum other policies whose frames are traced: all of them, or this many with senders in
/// common.
const MAX_OTHERS: usize = 32;
const MAX_BESIDE: usize = 4;

#[cfg(test)]
mod tests;
