//! Plans the deletion or replacement of a policy.
//!
//! During the change switches have more rules; the plan describes the final state.

use std::collections::HashMap;

use super::{Plan, SwitchChange};
use crate::control::Control;
use crate::group;
use crate::switch::Switch;
use crate::{PolicyError, TapPolicy, WhenMissing};

impl Control {
    /// Plans the replacement of the policy with this name.
    ///
    /// # Errors
    /// As [`Self::replace_policy`].
    pub fn plan_replacement(&self, policy: TapPolicy) -> Result<Plan, PolicyError> {
        let name = policy.name.clone();
        let (now, then) =
            self.rehearse_change(|then| then.replace_policy(policy, WhenMissing::Refuse))?;
        now.plan(&then, &name, differences(&now, &then))
    }

    /// Plans the deletion of the policy with this name.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn plan_deletion(&self, name: &str) -> Result<Plan, PolicyError> {
        let (now, then) = self.rehearse_change(|then| then.delete_policy(name))?;
        let mut proof = now.prove(&then, name);
        proof.is_proved = proof.problems.is_empty();
        Ok(Plan { changes: differences(&now, &then), proof, notes: Vec::new() })
    }

    /// The state after all pending messages, and the state after the change.
    fn rehearse_change(
        &self,
        change: impl FnOnce(&mut Self) -> Result<(), PolicyError>,
    ) -> Result<(Self, Self), PolicyError> {
        let mut now = self.rehearsal();
        now.rehearse();
        let mut then = now.clone();
        change(&mut then)?;
        then.rehearse();
        Ok((now, then))
    }
}

/// Differences in the tables of all switches.
fn differences(now: &Control, then: &Control) -> Vec<SwitchChange> {
    let changes = now.switches.iter().filter_map(|(id, before)| {
        let change = difference(before, then.switches.get(id)?);
        let is_any = !change.add.is_empty() || !change.remove.is_empty();
        is_any.then_some(change)
    });
    changes.collect()
}

fn difference(before: &Switch, after: &Switch) -> SwitchChange {
    let (old, new) = (held(before), held(after));
    let mut add: Vec<_> = new.keys().filter(|line| !old.contains_key(*line)).cloned().collect();
    let gone = old.iter().filter(|(line, _)| !new.contains_key(*line));
    let mut remove: Vec<_> = gone.map(|(_, deletion)| deletion.clone()).collect();
    add.sort_unstable();
    remove.sort_unstable();
    SwitchChange { switch: before.id(), add, remove }
}

/// Our rules and groups on a switch: the message that adds each, by the one that deletes it.
fn held(switch: &Switch) -> HashMap<String, String> {
    let rules = switch.held().rules().map(|(id, rule)| (rule.add(id).to_string(), id.delete()));
    let rules = rules.map(|(add, delete)| (add, delete.to_string()));
    let next = |id| switch.held().next(id);
    let groups = switch.held().groups().map(|(key, id)| (key.add(id, next(id)), group::delete(id)));
    let groups = groups.map(|(add, delete)| (add.to_string(), delete.to_string()));
    rules.chain(groups).collect()
}
