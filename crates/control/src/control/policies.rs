//! The policies: adding, deleting, telling how they are doing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tapswitch_openflow::{Delivery, PortNo};

use super::Control;
use crate::ledger::{Copies, Tally};
use crate::overlap::{PolicyId, Tap};
use crate::region::Region;
use crate::resolve::{Place, Switches, list, resolve};
use crate::switch::Switch;
use crate::text::switch_name;
use crate::{
    Copied, Counts, Event, MonitorError, MonitorPort, MonitorSpec, PolicyError, PolicyReport,
    PolicyState, TapPolicy,
};

/// What to do with a policy whose monitor cannot be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenMissing {
    /// Refuse it: somebody waits for the answer.
    Refuse,
    /// Let it wait: it is from a configuration, and switches and hosts come and go.
    Wait,
}

impl Control {
    /// Adds a policy. [`Event::PolicyActive`], or another about this policy, says how it went.
    ///
    /// # Errors
    /// What is wrong with the policy. Nothing has changed then.
    pub fn add_policy(
        &mut self,
        policy: TapPolicy,
        missing: WhenMissing,
    ) -> Result<(), PolicyError> {
        policy.check()?;
        if self.policies.find(&policy.name).is_some() {
            return Err(PolicyError::Duplicate { name: policy.name });
        }
        let max = self.limits.max_policies;
        if self.policies.entries.len() >= max {
            return Err(PolicyError::TooMany { max });
        }
        let entry = self.policies.prepare(policy, &self.switches);
        if missing == WhenMissing::Refuse {
            let place = entry.place.clone()?;
            if let Some(switch) = self.switches.get(&place.switch) {
                switch.check_budget(&entry.tap(place.port), &self.limits)?;
            }
        }
        self.policies.entries.push(entry);
        self.has_moved = true;
        Ok(())
    }

    /// Deletes a policy. [`Event::PolicyDeleted`] tells its last counts.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn delete_policy(&mut self, name: &str) -> Result<(), PolicyError> {
        let entries = &mut self.policies.entries;
        let Some(index) = entries.iter().position(|entry| entry.policy.name == name) else {
            return Err(self.policies.unknown(name));
        };
        let PolicyEntry { id, policy, .. } = entries.remove(index);
        self.policies.deletions.push(Deletion { id, policy });
        self.has_moved = true;
        Ok(())
    }

    /// All policies in the order in which they were added, by the counters that came last.
    pub fn policies(&self) -> Vec<PolicyReport> {
        let tallies = Tallies::new(&self.switches);
        self.policies.entries.iter().map(|entry| entry.report(&self.switches, &tallies)).collect()
    }

    /// One policy, by the counters that came last.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn policy(&self, name: &str) -> Result<PolicyReport, PolicyError> {
        let entry = self.policies.find(name).ok_or_else(|| self.policies.unknown(name))?;
        Ok(entry.report(&self.switches, &Tallies::new(&self.switches)))
    }
}

/// All policies.
#[derive(Debug, Default)]
pub(super) struct Policies {
    entries: Vec<PolicyEntry>,
    /// Deleted ones whose last counters are to come.
    deletions: Vec<Deletion>,
    last_id: u64,
}

/// A policy and how it is doing.
#[derive(Debug)]
pub(super) struct PolicyEntry {
    id: PolicyId,
    pub(super) policy: TapPolicy,
    name: Arc<str>,
    regions: Arc<[Region]>,
    /// Where its monitor is.
    pub(super) place: Result<Place, MonitorError>,
    /// As it was told last.
    pub(super) state: Option<PolicyState>,
}

/// A policy that is going.
#[derive(Debug)]
pub(super) struct Deletion {
    pub(super) id: PolicyId,
    pub(super) policy: TapPolicy,
}

impl Policies {
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PolicyEntry> {
        self.entries.iter_mut()
    }

    /// Those that are there, and those that are going.
    pub(super) fn ids(&self) -> impl Iterator<Item = PolicyId> {
        let going = self.deletions.iter().map(|deletion| deletion.id);
        self.entries.iter().map(|entry| entry.id).chain(going)
    }

    /// Whether a monitor is named by the host behind its port.
    pub(super) fn name_hosts(&self) -> bool {
        let mut monitors = self.entries.iter().map(|entry| &entry.policy.monitor);
        monitors.any(|monitor| matches!(monitor, MonitorSpec::Mac(_) | MonitorSpec::Ip(_)))
    }

    /// The deletions for which nothing counts any more.
    pub(super) fn take_finished(&mut self, is_open: impl Fn(PolicyId) -> bool) -> Vec<Deletion> {
        self.deletions.extract_if(.., |deletion| !is_open(deletion.id)).collect()
    }

    fn prepare(&mut self, policy: TapPolicy, switches: &Switches) -> PolicyEntry {
        self.last_id += 1;
        PolicyEntry {
            id: PolicyId(self.last_id),
            name: policy.name.as_str().into(),
            regions: policy.regions().into(),
            place: resolve(&policy.monitor, switches),
            state: None,
            policy,
        }
    }

    fn find(&self, name: &str) -> Option<&PolicyEntry> {
        self.entries.iter().find(|entry| entry.policy.name == name)
    }

    fn unknown(&self, name: &str) -> PolicyError {
        let known = match self.entries.is_empty() {
            true => "there are none".to_owned(),
            false => format!("there are: {}", list(self.entries.iter().map(|entry| &entry.name))),
        };
        PolicyError::Unknown { name: name.to_owned(), known }
    }
}

impl PolicyEntry {
    /// The policy with its monitor at this port.
    pub(super) fn tap(&self, monitor: PortNo) -> Tap {
        let (name, regions) = (self.name.clone(), self.regions.clone());
        let delivery = Some(self.policy.delivery);
        Tap { id: self.id, name, monitor, delivery, regions }
    }

    /// How it is doing now.
    pub(super) fn current_state(&self, switches: &Switches) -> PolicyState {
        match &self.place {
            Err(error) => PolicyState::Pending { reason: error.to_string() },
            Ok(place) => switches
                .get(&place.switch)
                .map_or(PolicyState::Installing, |switch| switch.tap_state(self.id)),
        }
    }

    /// What to tell when it is doing so.
    pub(super) fn event(&self, state: &PolicyState) -> Option<Event> {
        let name = self.policy.name.clone();
        Some(match state.clone() {
            PolicyState::Active => Event::PolicyActive { name },
            PolicyState::Pending { reason } => Event::PolicyPending { name, reason },
            PolicyState::Failed { reason } => Event::PolicyFailed { name, reason },
            PolicyState::Installing | PolicyState::Deleted => return None,
        })
    }

    fn report(&self, switches: &Switches, tallies: &Tallies) -> PolicyReport {
        let place = self.place.as_ref().ok();
        let monitor = place.and_then(|place| monitor_port(switches, *place));
        let state = self.current_state(switches);
        tallies.report(self.id, self.policy.clone(), (state, monitor), switches)
    }
}

/// The last report of a policy.
pub(super) fn report_deleted(id: PolicyId, policy: TapPolicy, switches: &Switches) -> PolicyReport {
    Tallies::new(switches).report(id, policy, (PolicyState::Deleted, None), switches)
}

/// What all policies matched and copied, on all switches.
struct Tallies {
    by_policy: HashMap<PolicyId, Sums>,
}

#[derive(Default)]
struct Sums {
    matched: Counts,
    copies: BTreeMap<Place, Copies>,
}

impl Tallies {
    fn new(switches: &Switches) -> Self {
        let mut by_policy: HashMap<_, Sums> = HashMap::new();
        for (id, switch) in switches {
            for (policy, Tally { matched, copies }) in switch.ledger.tallies() {
                let sums = by_policy.entry(policy).or_default();
                sums.matched += matched;
                for (port, copies) in copies {
                    *sums.copies.entry(Place { switch: *id, port }).or_default() += &copies;
                }
            }
        }
        Self { by_policy }
    }

    fn report(
        &self,
        id: PolicyId,
        policy: TapPolicy,
        (state, monitor): (PolicyState, Option<MonitorPort>),
        switches: &Switches,
    ) -> PolicyReport {
        let none = Sums::default();
        let sums = self.by_policy.get(&id).unwrap_or(&none);
        let copied = sums.copies.iter().filter_map(|(place, copies)| {
            Some(report_copies(monitor_port(switches, *place)?, copies))
        });
        let copied: Vec<_> = copied.collect();
        let accounted = copied.iter().map(Copied::accounted).fold(0, u64::saturating_add);
        let is_lost = |switch: &Switch| {
            switch.ledger.is_incomplete(id) || switch.is_down() && switch.ledger.is_open(id)
        };
        PolicyReport {
            matched: sums.matched,
            adds_up: sums.matched.packets == accounted,
            notes: notes(&policy, (monitor.as_ref(), &copied), switches),
            copied,
            is_complete: !switches.values().any(is_lost),
            policy,
            state,
            monitor,
        }
    }
}

fn report_copies(monitor: MonitorPort, copies: &Copies) -> Copied {
    let Copies { copied, delivered, flooded, in_flight, dropped } = copies.clone();
    Copied { monitor, counts: copied, delivered, flooded, in_flight, dropped }
}

/// What is not as the policy asks, or not known, on switches that are not ours.
fn notes(
    policy: &TapPolicy,
    (monitor, copied): (Option<&MonitorPort>, &[Copied]),
    switches: &Switches,
) -> Vec<String> {
    let is_other = |port: &&MonitorPort| switches.get(&port.switch).is_some_and(Switch::is_other);
    let mut notes = Vec::new();
    if let Some(port) = monitor.filter(is_other)
        && policy.delivery != Delivery::BestEffort
    {
        let name = switch_name(port.switch);
        notes.push(format!(
            "switch {name} is no tapswitch and knows no contracts: copies are best-effort, not {}",
            policy.delivery
        ));
    }
    let ports: BTreeSet<_> =
        monitor.into_iter().chain(copied.iter().map(|to| &to.monitor)).collect();
    notes.extend(ports.into_iter().filter(is_other).map(|port| note_on_drops(port, switches)));
    notes
}

fn note_on_drops(port: &MonitorPort, switches: &Switches) -> String {
    let switch = switches.get(&port.switch);
    let dropped = switch.and_then(|switch| switch.tx_dropped(PortNo(port.port)));
    let (name, number) = (switch_name(port.switch), port.port);
    let known = format!(
        "switch {name} tells of copies only that they were handed to port {number}, not what the \
         port did with them"
    );
    match dropped {
        Some(count) => format!("{known}; it dropped {count} frames of all that left there"),
        None => known,
    }
}

fn monitor_port(switches: &Switches, place: Place) -> Option<MonitorPort> {
    switches.get(&place.switch).map(|switch| switch.monitor_port(place.port))
}
