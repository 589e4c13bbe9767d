//! Whether a change does what it should, as far as that can be found out while others wait.
//!
//! A plan follows frames of all policies, however long that takes. Here the work is bounded, and
//! depends on what the policy's frames cross, not on how much there is: a trial shares with the
//! control plane all that the change leaves as it is, switches are only asked what they shall hold,
//! and rules are looked up by the addresses of frames. First the frames of the policy itself are
//! followed, then those that it has in common with others, and with what is left of the bound,
//! frames of other policies. What was not right before is not blamed on the change.
//!
//! **What is left out is said.** Where frames cannot be followed, or are too many, the others are
//! followed, and nothing is called proved; where none can be, there is no proof.

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

/// What was found about a change, or what is wrong with it.
pub type Judged = Result<Verdict, PolicyError>;

/// Looks at changes, and tells of each whether it does what it should, in their order.
pub type Look<'a> = dyn Fn(&[Change<'_>]) -> Vec<Verdict> + Sync + 'a;

/// Whether a change does what it should.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was found; none where nothing could be told.
    pub proof: Option<Proof>,
    /// Why nothing could be told, or not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproved: Option<String>,
    /// Nothing could be told because switches that it is about are not there yet: it is put in
    /// force when they are.
    #[serde(skip)]
    pub is_early: bool,
}

impl Verdict {
    fn unproved(reason: impl Into<String>) -> Self {
        Self { unproved: Some(reason.into()), ..Self::default() }
    }

    /// What would go wrong, if something would.
    pub fn counterexample(&self) -> Option<&str> {
        self.proof.as_ref()?.problems.first().map(String::as_str)
    }
}

/// A change of the policies.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// One more.
    Add(&'a TapPolicy),
    /// One in the place of the one of its name.
    Replace(&'a TapPolicy),
    /// The one of this name goes.
    Delete(&'a str),
}

impl Change<'_> {
    /// Of which policy.
    fn name(&self) -> &str {
        match self {
            Self::Add(policy) | Self::Replace(policy) => &policy.name,
            Self::Delete(name) => name,
        }
    }
}

impl Control {
    /// Whether a change does what it should. It takes some milliseconds at most, whatever there is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(&mut self, change: Change<'_>) -> Result<Verdict, PolicyError> {
        match self.try_out(&[change], |change, look| look(change)) {
            Ok(mut verdicts) => verdicts.pop().unwrap_or_else(|| Ok(Verdict::default())),
            Err(reason) => Ok(Verdict::unproved(reason)),
        }
    }

    /// Whether changes that are made together do what they should, each of them, in much less time
    /// than one after the other. `None` when one of them does not, or all together are too much:
    /// then each is to be judged before it is made. To look at those that can be made takes most of
    /// that time; `share_out` may do it on several threads, part by part.
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

    /// What becomes of each of these changes when all are made; else why that cannot be told.
    fn try_out(
        &mut self,
        changes: &[Change<'_>],
        share_out: impl FnOnce(&[Change<'_>], &Look<'_>) -> Vec<Verdict>,
    ) -> Result<Vec<Judged>, String> {
        // Conclusions of what came in are not part of the changes.
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
        Ok(judged)
    }

    /// Where rules were looked up in copies of switches, the next trial will look them up as well:
    /// it gets their order from here.
    fn keep_orders(&self, trial: &Self) {
        let looked_up = trial.switches.own_entries().filter(|(_, at)| at.desired().is_prepared());
        for (id, _) in looked_up {
            if let Some(own) = self.switches.get(id) {
                own.desired().prepare();
            }
        }
    }

    /// Makes a change, as [`Self::add_policy`], [`Self::replace_policy`] and
    /// [`Self::delete_policy`] do; somebody waits for the answer.
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

    /// A copy of all in which switches hold what they shall, to try what comes next.
    fn trial(&self) -> Self {
        let mut trial = Self { is_trial: true, ..self.clone() };
        trial.wait_for_no_links();
        trial.foresee();
        trial
    }

    /// Goes on until switches would hold what they shall, and would have said so.
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

    /// Why a trial would take too long, if so: switches would hold too much else then.
    fn excess(&self) -> Option<String> {
        let mut rules = 0;
        for entry in self.policies.dirty.iter().filter_map(|id| self.policies.get(*id)) {
            if entry.policy.rewritten().is_some() && !self.is_rewriting {
                // The first one with addresses of its own changes rules at all switches.
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

    /// Follows the frames that a change is about, as they go now and then.
    fn compare(&self, then: &Self, change: Change<'_>, bystanders: &Bystanders) -> Verdict {
        let abouts = self.abouts(then, change.name());
        let Some(own) = abouts.first() else { return Verdict::default() };
        if let Some(reason) = own.untagged() {
            // In better words than those of a frame that is not copied.
            return Verdict::unproved(reason);
        }
        // What is flooded passes all switches several times.
        let floods = MAX_PASSES / (8 * self.switches.len().max(1));
        let stations = then.stations(own, (bystanders, floods.clamp(FEWEST_SENDERS, MAX_HOSTS)));
        let remedy = match change {
            Change::Add(_) | Change::Replace(_) => AS_PLAN,
            // There is nothing to look at any more.
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

    /// Other policies: all if they are few, else some of those that have senders in common with
    /// this one.
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

/// Frames that are followed through what switches hold now and then.
struct Following<'a> {
    now: &'a Control,
    then: &'a Control,
    /// Of all that may be looked at.
    passes_left: usize,
    proof: Proof,
    /// Why not all of it can be told.
    reason: Option<String>,
    /// That is only for switches that are not there yet.
    is_early: bool,
    /// The change is not about those that are followed now.
    is_beside: bool,
    /// What else can be done where there are too many.
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

    /// Follows frames that the change is about, passing switches so often at most. Returns whether
    /// that was enough.
    fn follow(&mut self, frames: &[(Place, Sample)], passes: usize) -> bool {
        let is_whole = self.follow_all(frames, passes);
        let remedy = self.remedy;
        self.leave_out(
            (!is_whole).then(|| format!("its frames have too many possible paths{remedy}")),
        );
        is_whole
    }

    /// The same of frames that it is not about: those of which nothing is known do not matter.
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

    /// Returns whether there were enough passes for it.
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
            // Whatever else is not known, this would go wrong.
            return Verdict { proof: Some(proof), ..Verdict::default() };
        }
        proof.is_proved = reason.is_none();
        let is_any = proof.checked > 0 || proof.is_proved;
        let proof = is_any.then_some(proof);
        Verdict { is_early: proof.is_none() && is_early, proof, unproved: reason }
    }
}

/// Why nothing is told of a change whose part of the work was not done.
const NOT_LOOKED_AT: &str = "it was not examined";
/// What else can be done.
const AS_PLAN: &str = "; a dry run examines all of it";
/// Rules that it may take, to be tried: about a microsecond each, as when it is applied.
const MAX_RULES: usize = 250_000;
/// How often switches may be passed by the frames that are followed: about a microsecond each.
const MAX_PASSES: usize = 100_000;
/// The same for frames that it has in common with others.
const PASSES_IN_COMMON: usize = 30_000;
/// The same for frames of policies beside it, where there are many.
const PASSES_BESIDE: usize = 1000;
/// Other policies whose frames are followed, too: all of them, or so many beside the policy.
const MAX_OTHERS: usize = 32;
const MAX_BESIDE: usize = 4;

#[cfg(test)]
mod tests;
