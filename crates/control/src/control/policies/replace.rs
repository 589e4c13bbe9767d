//! Replaces a policy by another one of the same name.
//!
//! **Make before break.** The new policy, the *heir*, is at first a separate one beside the old:
//! frames that match both are copied once to each distinct monitor, as with any two policies. When
//! all switches have confirmed the heir's rules, the old policy is deleted with the copies that
//! only it makes. So copies common to both have neither gap nor duplicate. If the heir fails, or
//! ends before it is in force, the old policy stays. If the old one ends meanwhile, the heir gets
//! the name at once.
//!
//! A change without effect on copies, such as a later expiry or another reason, changes no rule:
//! the policy continues with its counts.

use std::collections::BTreeSet;

use super::WhenMissing;
use crate::control::Control;
use crate::control::roster::{Deletion, PolicyEntry};
use crate::overlap::PolicyId;
use crate::{Event, PolicyError, PolicyReport, PolicyState, TapPolicy};

impl Control {
    /// Replaces the policy of the same name. [`Event::PolicyReplaced`] or
    /// [`Event::PolicyNotReplaced`] reports the result; until then reports describe the old one.
    ///
    /// # Errors
    /// What is wrong with the policy, or that there is none of its name. Nothing has changed then.
    pub fn replace_policy(
        &mut self,
        policy: TapPolicy,
        missing: WhenMissing,
    ) -> Result<(), PolicyError> {
        policy.check_fields()?;
        let old = self.policies.find(&policy.name);
        let old = old.ok_or_else(|| self.policies.unknown(&policy.name))?;
        let cells = policy.cells()?;
        let mut heir =
            self.policies.prepare(policy, cells, (Some(&old.policy.monitor), &self.switches));
        let old = old.id;
        self.clock.start(&mut heir, self.now)?;
        if missing == WhenMissing::Refuse && heir.rests_until.is_none() {
            self.check_now(&heir)?;
        }
        self.drop_heir_of(old);
        if !self.amend(old, &heir) {
            self.clock.watch(&heir, self.now);
            self.policies.insert_heir(heir, old);
        }
        Ok(())
    }

    /// Applies changes that affect no copy. Returns whether there are no others.
    fn amend(&mut self, old: PolicyId, heir: &PolicyEntry) -> bool {
        let Some(entry) = self.policies.get_mut(old).filter(|entry| entry.copies_as(heir)) else {
            return false;
        };
        entry.policy.clone_from(&heir.policy);
        (entry.ends_at, entry.rests_until) = (heir.ends_at, heir.rests_until.clone());
        self.clock.watch(entry, self.now);
        self.policies.dirty.insert(old);
        let name = heir.policy.name.clone();
        self.events.push_back(Event::PolicyReplaced { name });
        true
    }

    /// Lets heirs that are in force take over, and drops those that cannot.
    pub(in crate::control) fn finish_replacements(&mut self) {
        let heirs: Vec<_> = self.policies.heirs.iter().map(|(id, old)| (*id, *old)).collect();
        for (id, old) in heirs {
            let state = self.policies.get(id).and_then(|entry| entry.state.clone());
            match state {
                None | Some(PolicyState::Installing | PolicyState::Deleted) => {}
                Some(
                    PolicyState::Active | PolicyState::Partial { .. } | PolicyState::Resting { .. },
                ) => self.inherit(id),
                Some(PolicyState::Pending { reason } | PolicyState::Failed { reason }) => {
                    if let Some(name) = self.drop_heir_of(old) {
                        self.events.push_back(Event::PolicyNotReplaced { name, reason });
                    }
                }
            }
        }
    }

    fn inherit(&mut self, heir: PolicyId) {
        let old = self.policies.inherit(heir);
        if let Some(old) = old {
            self.retire(old, Some(Event::PolicySuperseded));
        }
        if let Some(entry) = self.policies.get(heir) {
            let name = entry.policy.name.clone();
            self.events.push_back(Event::PolicyReplaced { name });
        }
    }

    /// Drops the heir of a policy. Returns its name.
    pub(in crate::control) fn drop_heir_of(&mut self, old: PolicyId) -> Option<String> {
        let has_name = self.policies.get(old).is_none();
        let heir = self.policies.disinherit(old)?;
        let name = heir.policy.name.clone();
        self.retire(heir, has_name.then_some(Event::PolicyDeleted));
        Some(name)
    }

    /// Deletes a policy, whose last counters follow.
    pub(in crate::control) fn retire(
        &mut self,
        gone: PolicyEntry,
        last: Option<fn(Box<PolicyReport>) -> Event>,
    ) {
        let PolicyEntry { id, policy, carried, applied, counting, known_at, monitor_hosts, .. } =
            gone;
        applied.into_iter().for_each(|at| self.want(at, id, None));
        self.watch_hosts(&monitor_hosts, &BTreeSet::new());
        let deletion = Deletion { policy, carried, counting, known_at, is_drained: false, last };
        self.policies.deletions.insert(id, deletion);
        self.ended.insert(id);
    }
}

impl PolicyEntry {
    /// Whether both copy the same frames to the same monitors under the same contract.
    fn copies_as(&self, other: &Self) -> bool {
        let (a, b) = (&self.policy, &other.policy);
        let terms = |policy: &TapPolicy| {
            let way = (policy.observed_at(), policy.transport);
            (policy.delivery, policy.part(), policy.priority, way)
        };
        self.cells == other.cells && a.monitor == b.monitor && terms(a) == terms(b)
    }
}
