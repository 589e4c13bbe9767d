//! Whether a change does what it should, as far as that can be found out while others wait.
//!
//! A plan follows frames of all policies, however long that takes. Here the work is bounded, and
//! depends on what the policy's frames cross, not on how much there is: a trial shares with the
//! control plane all that the change leaves as it is, switches are only asked what they shall hold,
//! and rules are looked up by the addresses of frames. First the frames of the policy itself are
//! followed; if those are too many, nothing is said. With what is left of the bound, frames of
//! other policies are followed, those first that may be in both. What was not right before is not
//! blamed on the change.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use super::frames::{Bystanders, MAX_HOSTS};
use super::{MAX_PROBLEMS, Proof, UNROUTED};
use crate::control::Control;
use crate::control::roster::PolicyEntry;
use crate::place::Place;
use crate::proof::{Model, Sample};
use crate::{PolicyError, TapPolicy, WhenMissing};

/// What was found about a change, or what is wrong with it.
pub type Judged = Result<Verdict, PolicyError>;

/// Whether a change does what it should.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was found; none where it was not looked.
    pub proof: Option<Proof>,
    /// Why it was not looked, or could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproved: Option<String>,
}

impl Verdict {
    fn unproved(reason: impl Into<String>) -> Self {
        Self { proof: None, unproved: Some(reason.into()) }
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

impl Control {
    /// Whether a change does what it should. It takes some milliseconds at most, whatever there is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(&mut self, change: Change<'_>) -> Result<Verdict, PolicyError> {
        match self.try_out(&[change]) {
            Ok(mut verdicts) => verdicts.pop().unwrap_or_else(|| Ok(Verdict::default())),
            Err(reason) => Ok(Verdict::unproved(reason)),
        }
    }

    /// Whether changes that are made together do what they should, each of them, in much less time
    /// than one after the other. `None` when one of them does not, or all together are too much:
    /// then each is to be judged before it is made.
    pub fn judge_together(&mut self, changes: &[Change<'_>]) -> Option<Vec<Judged>> {
        let verdicts = self.try_out(changes).ok()?;
        let is_right = |verdict: &Judged| {
            verdict.as_ref().map_or(true, |verdict| verdict.counterexample().is_none())
        };
        verdicts.iter().all(is_right).then_some(verdicts)
    }

    /// What becomes of each of these changes when all are made; else why that cannot be told.
    fn try_out(&mut self, changes: &[Change<'_>]) -> Result<Vec<Judged>, String> {
        // Conclusions of what came in are not part of the changes.
        self.settle();
        if let Some(reason) = self.unsettled() {
            return Err(reason);
        }
        let now = self.trial();
        let mut then = now.clone();
        let made: Vec<_> = changes.iter().map(|change| then.make(*change)).collect();
        if let Some(reason) = then.excess() {
            return Err(reason);
        }
        then.foresee();
        let bystanders = then.bystanders();
        let judge = |(change, made): (&Change<'_>, Result<(), _>)| {
            made.map(|()| now.compare(&then, *change, &bystanders))
        };
        let judged = changes.iter().zip(made).map(judge).collect();
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
                let most = format!("up to {MAX_RULES} are looked at{AS_PLAN}");
                return Some(format!("it takes {rules} rules; {most}"));
            }
        }
        None
    }

    /// Follows the frames that a change is about, as they go now and then.
    fn compare(&self, then: &Self, change: Change<'_>, bystanders: &Bystanders) -> Verdict {
        let own = match change {
            Change::Add(policy) | Change::Replace(policy) => then.policies.find(&policy.name),
            // Its frames go on, without their copies.
            Change::Delete(name) => self.policies.find(name),
        };
        let Some(own) = own else { return Verdict::default() };
        if let Some(reason) = own.untagged() {
            // In better words than those of a frame that is not copied.
            return Verdict::unproved(reason);
        }
        // What is flooded passes all switches several times.
        let floods = MAX_PASSES / (8 * self.switches.len().max(1));
        let stations = then.stations(own, (bystanders, floods.clamp(FEWEST_SENDERS, MAX_HOSTS)));
        let mut following = Following::new(self, then);
        let samples = then.samples_of(std::iter::once(own), &stations);
        let is_whole = following.follow(&samples);
        if following.proof.checked == 0 && samples.iter().any(|(_, s)| then.is_unrouted(s)) {
            return Verdict::unproved(UNROUTED);
        }
        if is_whole {
            if then.policies.count() > MAX_OTHERS {
                following.limit(PASSES_BESIDE);
            }
            let others = then.beside(own);
            following.follow(&then.samples_of(others.into_iter(), &stations));
        }
        match (following.reason, is_whole) {
            // Whatever else is not known, this would go wrong.
            _ if !following.proof.problems.is_empty() => following.proof.into(),
            (Some(reason), _) => Verdict::unproved(reason),
            (None, false) => Verdict::unproved(format!("its frames have too many ways{AS_PLAN}")),
            (None, true) => following.proof.into(),
        }
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
    passes_left: Cell<usize>,
    proof: Proof,
    /// Why it cannot be told.
    reason: Option<String>,
}

impl<'a> Following<'a> {
    const fn new(now: &'a Control, then: &'a Control) -> Self {
        let passes_left = Cell::new(MAX_PASSES);
        let proof = Proof { is_proved: false, checked: 0, problems: Vec::new() };
        Self { now, then, passes_left, proof, reason: None }
    }

    /// No more than so many passes are left.
    fn limit(&self, passes: usize) {
        self.passes_left.set(self.passes_left.get().min(passes));
    }

    /// Returns whether that was all.
    fn follow(&mut self, samples: &[(Place, Sample)]) -> bool {
        let (now, then) = (self.now, self.then);
        let [before, after] = [now, then].map(|control| Model::new(control, &self.passes_left));
        for (from, sample) in samples.iter().filter(|(_, sample)| !then.is_unrouted(sample)) {
            let result = then.check((&before, &after), *from, sample);
            if self.passes_left.get() == 0 {
                return false;
            }
            self.proof.checked += 1;
            let Err(problem) = result else { continue };
            if let Err(problem) = now.check((&before, &before), *from, sample) {
                let told = || format!("not all is as it should be already: {problem}");
                self.reason.get_or_insert_with(told);
                continue;
            }
            self.proof.problems.push(problem);
            if self.proof.problems.len() >= MAX_PROBLEMS {
                return true;
            }
        }
        true
    }
}

impl From<Proof> for Verdict {
    fn from(proof: Proof) -> Self {
        let is_proved = proof.problems.is_empty();
        Self { proof: Some(Proof { is_proved, ..proof }), unproved: None }
    }
}

/// What else can be done.
const AS_PLAN: &str = "; a dry run looks at all of it";
/// Rules that it may take, to be tried: about a microsecond each, as when it is applied.
const MAX_RULES: usize = 250_000;
/// How often switches may be passed by the frames that are followed: about a microsecond each.
const MAX_PASSES: usize = 100_000;
/// The same for frames of policies beside it, where there are many.
const PASSES_BESIDE: usize = 1000;
/// Hosts that send, however many switches there are.
const FEWEST_SENDERS: usize = 2;
/// Other policies whose frames are followed, too: all of them, or so many beside the policy.
const MAX_OTHERS: usize = 32;
const MAX_BESIDE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_told_with_null_where_nothing_was_proved() {
        let verdict = Verdict::unproved("too large");
        let text = serde_json::to_string(&verdict).unwrap();
        assert_eq!(text, r#"{"proof":null,"unproved":"too large"}"#);
        assert_eq!(verdict.counterexample(), None);
        let problems = vec!["a frame goes round".to_owned()];
        let proof = Proof { is_proved: false, checked: 1, problems };
        let verdict = Verdict { proof: Some(proof), unproved: None };
        assert_eq!(verdict.counterexample(), Some("a frame goes round"));
    }
}
