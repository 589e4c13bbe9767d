//! Whether a change does what it should, as far as that can be found out while others wait.
//!
//! A plan follows frames of all policies, however long that takes. Here the work is bounded
//! beforehand: where everything is too much, only frames that the policy itself is about are
//! followed, and where that is too much, nothing is said. What was not right before is not blamed
//! on the change.

use serde::{Deserialize, Serialize};

use super::{MAX_PROBLEMS, Proof};
use crate::control::Control;
use crate::control::roster::PolicyEntry;
use crate::proof::Sample;
use crate::resolve::Place;
use crate::{PolicyError, TapPolicy, WhenMissing};

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

impl Control {
    /// Whether adding the policy, or replacing the one of its name, does what it should. It takes
    /// some milliseconds at most, whatever there is.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn judge_policy(
        &self,
        policy: &TapPolicy,
        is_replacement: bool,
    ) -> Result<Verdict, PolicyError> {
        let rules: usize = self.switches.values().map(|switch| switch.desired().len()).sum();
        if rules > MAX_RULES {
            let reason = format!("there are {rules} rules; up to {MAX_RULES} are looked at");
            return Ok(Verdict::unproved(reason + AS_PLAN));
        }
        if let Some(reason) = self.unsettled() {
            return Ok(Verdict::unproved(reason));
        }
        let mut then = self.trial();
        match is_replacement {
            false => then.add_policy(policy.clone(), WhenMissing::Refuse)?,
            true => then.replace_policy(policy.clone(), WhenMissing::Refuse)?,
        }
        then.rehearse();
        if let Some(reason) = then.policies.find(&policy.name).and_then(PolicyEntry::untagged) {
            // In better words than those of a frame that is not copied.
            return Ok(Verdict::unproved(reason));
        }
        Ok(self.judge(&then, &policy.name, rules))
    }

    fn judge(&self, then: &Self, name: &str, rules: usize) -> Verdict {
        let hosts = then.some_hosts().len();
        // Each of the frames is looked up three times on its way.
        let cost = |regions: usize| {
            let frames = regions.saturating_mul(hosts).saturating_mul(hosts + 2);
            frames.saturating_mul(3 * rules.max(1))
        };
        let is_own = |entry: &&PolicyEntry| entry.policy.name == name;
        let count = |entries: &mut dyn Iterator<Item = &PolicyEntry>| {
            entries.map(|entry| entry.matches().count()).sum::<usize>()
        };
        let samples = if cost(count(&mut then.policies.iter())) <= MAX_LOOKS {
            then.samples()
        } else if cost(count(&mut then.policies.iter().filter(is_own))) <= MAX_LOOKS {
            then.samples_of(then.policies.iter().filter(is_own))
        } else {
            return Verdict::unproved(format!("its frames have too many ways{AS_PLAN}"));
        };
        self.follow(then, &samples)
    }

    /// Follows frames through what switches hold now and `then`.
    fn follow(&self, then: &Self, samples: &[(Place, Sample)]) -> Verdict {
        let (before, after) = (self.model(), then.model());
        let mut proof = Proof::default();
        for (from, sample) in samples {
            proof.checked += 1;
            let Err(problem) = then.check((&before, &after), *from, sample) else { continue };
            if let Err(problem) = self.check((&before, &before), *from, sample) {
                return Verdict::unproved(format!("not all is as it should be already: {problem}"));
            }
            proof.problems.push(problem);
            if proof.problems.len() >= MAX_PROBLEMS {
                break;
            }
        }
        proof.is_proved = proof.problems.is_empty();
        Verdict { proof: Some(proof), unproved: None }
    }
}

/// What else can be done.
const AS_PLAN: &str = "; a dry run looks at all of it";
/// Rules of all switches that are copied and sorted for it: a microsecond each.
const MAX_RULES: usize = 4000;
/// Rules that frames are compared with: some tens of nanoseconds each.
const MAX_LOOKS: usize = 200_000;

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
