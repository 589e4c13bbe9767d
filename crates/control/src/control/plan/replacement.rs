//! What putting a policy in the place of another would do.
//!
//! On the way there switches hold rules of both; what is told is where they end up.

use std::collections::HashMap;

use super::{Plan, SwitchChange};
use crate::control::Control;
use crate::group;
use crate::switch::Switch;
use crate::{PolicyError, TapPolicy, WhenMissing};

impl Control {
    /// What replacing the policy of this name would do, without doing it.
    ///
    /// # Errors
    /// As [`Self::replace_policy`].
    pub fn plan_replacement(&self, policy: TapPolicy) -> Result<Plan, PolicyError> {
        let name = policy.name.clone();
        let mut now = self.rehearsal();
        now.rehearse();
        let mut then = now.clone();
        then.replace_policy(policy, WhenMissing::Refuse)?;
        then.rehearse();
        let changes = now.switches.iter().filter_map(|(id, before)| {
            let change = difference(before, then.switches.get(id)?);
            let is_any = !change.add.is_empty() || !change.remove.is_empty();
            is_any.then_some(change)
        });
        now.plan(&then, &name, changes.collect())
    }
}

/// What a switch holds afterwards and not before, and the other way round.
fn difference(before: &Switch, after: &Switch) -> SwitchChange {
    let (old, new) = (held(before), held(after));
    let mut add: Vec<_> = new.keys().filter(|line| !old.contains_key(*line)).cloned().collect();
    let gone = old.iter().filter(|(line, _)| !new.contains_key(*line));
    let mut remove: Vec<_> = gone.map(|(_, deletion)| deletion.clone()).collect();
    add.sort_unstable();
    remove.sort_unstable();
    SwitchChange { switch: before.id(), add, remove }
}

/// What a switch holds of ours: by the message that adds it, the one that deletes it.
fn held(switch: &Switch) -> HashMap<String, String> {
    let rules = switch.held().rules().map(|(id, rule)| (rule.add(id).to_string(), id.delete()));
    let rules = rules.map(|(add, delete)| (add, delete.to_string()));
    let next = |id| switch.held().next(id);
    let groups = switch.held().groups().map(|(key, id)| (key.add(id, next(id)), group::delete(id)));
    let groups = groups.map(|(add, delete)| (add.to_string(), delete.to_string()));
    rules.chain(groups).collect()
}
