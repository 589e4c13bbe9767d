//! The policies: adding, deleting, telling how they are doing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tapswitch_openflow::{DatapathId, Delivery, Match};

use super::Control;
use super::accounts::Accounts;
use super::lifetime::{Deadline, Rest};
use crate::overlap::{Aim, PolicyId, Tap};
use crate::proof::Sample;
use crate::region::Cells;
use crate::resolve::{Place, Switches, list, resolve};
use crate::routes::Routes;
use crate::{
    Event, HopReport, MonitorError, MonitorSpec, PathReport, PolicyError, PolicyReport,
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
        policy.check_fields()?;
        if self.policies.find(&policy.name).is_some() {
            return Err(PolicyError::Duplicate { name: policy.name });
        }
        let max = self.limits.max_policies;
        if self.policies.entries.len() >= max {
            return Err(PolicyError::TooMany { max });
        }
        let cells = policy.cells()?;
        let mut entry = self.policies.prepare(policy, cells, &self.switches);
        self.clock.start(&mut entry, self.now)?;
        if missing == WhenMissing::Refuse && entry.rests_until.is_none() {
            self.check_now(&entry)?;
        }
        self.clock.watch(&entry, self.now);
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
        let PolicyEntry { id, policy, carried, .. } = entries.remove(index);
        self.policies.deletions.push(Deletion { id, policy, carried, is_drained: false });
        self.has_moved = true;
        Ok(())
    }

    /// All policies in the order in which they were added, by the counters that came last.
    pub fn policies(&self) -> Vec<PolicyReport> {
        let accounts = Accounts::new(&self.switches, self.tags(), None);
        self.policies.entries.iter().map(|entry| self.report_policy(entry, &accounts)).collect()
    }

    /// One policy, by the counters that came last.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn policy(&self, name: &str) -> Result<PolicyReport, PolicyError> {
        let entry = self.policies.find(name).ok_or_else(|| self.policies.unknown(name))?;
        Ok(self.report_policy(entry, &Accounts::new(&self.switches, self.tags(), Some(entry.id))))
    }

    /// The ways that the copies of a policy take: from each switch that no other one sends them
    /// through, as far as that is known and up to a number that people can look at.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn policy_paths(&self, name: &str) -> Result<Vec<PathReport>, PolicyError> {
        let entry = self.policies.find(name).ok_or_else(|| self.policies.unknown(name))?;
        let places = entry.found_places().filter(|(_, place)| *place != Place::CONTROLLER);
        let paths = places.flat_map(|(_, place)| {
            let carriers = self.routes.carriers(place);
            let outer = self.routes.sources(place).filter(move |id| !carriers.contains(id));
            let mut starts: Vec<_> = outer.collect();
            if starts.is_empty() {
                starts.push(place.switch);
            }
            starts.into_iter().map(move |from| self.report_path(from, place))
        });
        Ok(paths.take(MAX_PATHS).collect())
    }

    fn report_path(&self, from: DatapathId, to: Place) -> PathReport {
        // Out, in, out, in, and at last the monitor's port.
        let places = self.routes.path(from, to);
        let (first, rest) = places.split_first().map_or((None, &[][..]), |(a, b)| (Some(*a), b));
        let hop = |in_port: Option<Place>, out: Place| HopReport {
            switch: out.switch,
            in_port: in_port.map(|place| place.port.0),
            out_port: out.port.0,
        };
        let first = first.map(|out| hop(None, out));
        let pairs = rest.chunks_exact(2).filter_map(|pair| match pair {
            [entered, left] => Some(hop(Some(*entered), *left)),
            _ => None,
        });
        let monitor = match self.switches.get(&to.switch) {
            Some(switch) => switch.monitor_port(to.port),
            None => crate::MonitorPort::unnamed(to),
        };
        PathReport { monitor, hops: first.into_iter().chain(pairs).collect() }
    }

    /// Whether a policy could be in force now.
    fn check_now(&self, entry: &PolicyEntry) -> Result<(), PolicyError> {
        for place in &entry.places {
            place.clone()?;
        }
        for id in entry.switches(&self.routes, &self.switches) {
            let Some(switch) = self.switches.get(&id) else { continue };
            let exits = entry.found_places().filter_map(|(slot, place)| {
                let exit = self.routes.exit(id, place)?;
                Some(Aim { slot, exit, tag: 0 })
            });
            switch.check_budget(&entry.tap(exits.collect()), &self.limits)?;
        }
        Ok(())
    }

    fn report_policy(&self, entry: &PolicyEntry, accounts: &Accounts<'_>) -> PolicyReport {
        let state = entry.current_state(&self.switches, &self.routes);
        let places: Vec<_> = entry.found_places().map(|(_, place)| place).collect();
        accounts.report((entry.id, &entry.policy), state, &places)
    }

    /// Draws the conclusions of how switches are doing. Tells of policies that are doing otherwise
    /// than before.
    pub(super) fn update_states(&mut self) {
        for entry in &mut self.policies.entries {
            let state = entry.current_state(&self.switches, &self.routes);
            if entry.state.as_ref() != Some(&state) {
                self.events.extend(entry.event(&state));
                entry.state = Some(state);
            }
        }
    }

    /// Carries nothing any more for deleted policies that no switch makes copies for, and tells of
    /// those whose last counters came.
    pub(super) fn finish_deletions(&mut self) {
        let connected = || self.switches.values().filter(|switch| !switch.is_down());
        for deletion in self.policies.deletions.iter_mut().filter(|gone| !gone.is_drained) {
            deletion.is_drained = !connected().any(|switch| switch.ledger.is_open(deletion.id));
            self.has_moved |= deletion.is_drained && !deletion.carried.is_empty();
        }
        let (tags, moved) = (&self.tags, self.has_moved);
        let is_carried = |(tag, _): &(u16, Place)| {
            !tags.is_shared(*tag) && connected().any(|switch| switch.ledger.is_carrying(*tag))
        };
        let is_finished = |gone: &mut Deletion| {
            gone.is_drained
                && (gone.carried.is_empty() || !moved)
                && !gone.carried.values().any(is_carried)
        };
        let finished: Vec<_> = self.policies.deletions.extract_if(.., is_finished).collect();
        for Deletion { id, policy, .. } in finished {
            let accounts = Accounts::new(&self.switches, &self.tags, Some(id));
            let report = accounts.report((id, &policy), PolicyState::Deleted, &[]);
            self.events.push_back(Event::PolicyDeleted(Box::new(report)));
            self.release_tags(id);
            self.switches.values_mut().for_each(|switch| switch.ledger.forget_policy(id));
        }
    }
}

/// All policies.
#[derive(Clone, Debug, Default)]
pub(super) struct Policies {
    entries: Vec<PolicyEntry>,
    /// Deleted ones whose last counters are to come.
    deletions: Vec<Deletion>,
    last_id: u64,
}

/// A policy and how it is doing.
#[derive(Clone, Debug)]
pub(super) struct PolicyEntry {
    pub(super) id: PolicyId,
    pub(super) policy: TapPolicy,
    name: Arc<str>,
    cells: Arc<Cells>,
    /// Where its monitors are, in their order.
    pub(super) places: Vec<Result<Place, MonitorError>>,
    /// By monitor: the identifier of copies for it between switches, and where they go.
    pub(super) carried: BTreeMap<u8, (u16, Place)>,
    /// When it ends.
    pub(super) ends_at: Option<Deadline>,
    /// What its schedule waits for.
    pub(super) rests_until: Option<Rest>,
    /// As it was told last.
    pub(super) state: Option<PolicyState>,
}

/// A policy that is going.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    id: PolicyId,
    policy: TapPolicy,
    carried: BTreeMap<u8, (u16, Place)>,
    /// No switch makes copies for it any more.
    is_drained: bool,
}

impl Policies {
    pub(super) fn iter(&self) -> impl Iterator<Item = &PolicyEntry> {
        self.entries.iter()
    }

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
        let mut monitors = self.entries.iter().flat_map(|entry| entry.policy.monitor.iter());
        monitors.any(|monitor| matches!(monitor, MonitorSpec::Mac(_) | MonitorSpec::Ip(_)))
    }

    /// The copies that must be carried between switches: their identifier, where they go, and what
    /// they are owed.
    pub(super) fn carried(&self) -> Vec<(u16, Place, Delivery)> {
        let there = self.entries.iter().map(|entry| (&entry.carried, entry.policy.delivery));
        let going = self.deletions.iter().filter(|deletion| !deletion.is_drained);
        let going = going.map(|deletion| (&deletion.carried, deletion.policy.delivery));
        let all = there.chain(going).flat_map(|(carried, delivery)| {
            carried.values().map(move |(tag, place)| (*tag, *place, delivery))
        });
        all.collect()
    }

    fn prepare(&mut self, policy: TapPolicy, cells: Cells, switches: &Switches) -> PolicyEntry {
        self.last_id += 1;
        PolicyEntry {
            id: PolicyId(self.last_id),
            name: policy.name.as_str().into(),
            cells: cells.into(),
            places: policy.monitor.iter().map(|monitor| resolve(monitor, switches)).collect(),
            carried: BTreeMap::new(),
            ends_at: None,
            rests_until: None,
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
    /// The policy with its monitors there.
    pub(super) fn tap(&self, aims: Vec<Aim>) -> Tap {
        let (name, cells) = (self.name.clone(), self.cells.clone());
        let (delivery, part) = (Some(self.policy.delivery), self.policy.part());
        let priority = self.policy.priority;
        Tap { id: self.id, name, priority, aims, delivery, part, cells }
    }

    /// The monitors of which it is known where they are.
    pub(super) fn found_places(&self) -> impl Iterator<Item = (u8, Place)> {
        let places = (0..).zip(&self.places);
        places.filter_map(|(slot, place)| Some((slot, *place.as_ref().ok()?)))
    }

    /// What its frames match: one match for each of its regions.
    pub(super) fn matches(&self) -> impl Iterator<Item = Match> {
        self.cells.regions().map(|region| region.matching())
    }

    /// Whether a frame that a host sends is to be copied.
    pub(super) fn wants(&self, sample: &Sample) -> bool {
        self.rests_until.is_none()
            && self.cells.holds_where(|region| sample.has(&region.matching()))
    }

    /// The switches where it is applied: all from which one of its monitors can be reached.
    pub(super) fn switches(&self, routes: &Routes, all: &Switches) -> BTreeSet<DatapathId> {
        if self.found_places().any(|(_, place)| place == Place::CONTROLLER) {
            return all.keys().copied().collect();
        }
        let places = self.found_places().map(|(_, place)| place);
        places.flat_map(|place| routes.sources(place).chain([place.switch])).collect()
    }

    /// How it is doing now: as the worst of the switches.
    pub(super) fn current_state(&self, switches: &Switches, routes: &Routes) -> PolicyState {
        if let Some(rest) = &self.rests_until {
            return PolicyState::Resting { reason: rest.to_string() };
        }
        let applied = self.switches(routes, switches);
        if applied.is_empty() {
            let reason = self.places.iter().find_map(|place| place.as_ref().err());
            let reason = reason.map(ToString::to_string).unwrap_or_default();
            return PolicyState::Pending { reason };
        }
        let up = applied.iter().filter_map(|id| switches.get(id)).filter(|switch| switch.is_up());
        let mut state = PolicyState::Active;
        for switch in up {
            match switch.tap_state(self.id) {
                failed @ PolicyState::Failed { .. } => return failed,
                PolicyState::Active => {}
                other => state = other,
            }
        }
        state
    }

    /// What to tell when it is doing so.
    fn event(&self, state: &PolicyState) -> Option<Event> {
        let name = self.policy.name.clone();
        Some(match state.clone() {
            PolicyState::Active => Event::PolicyActive { name },
            PolicyState::Pending { reason } => Event::PolicyPending { name, reason },
            PolicyState::Failed { reason } => Event::PolicyFailed { name, reason },
            PolicyState::Resting { reason } => Event::PolicyResting { name, reason },
            PolicyState::Installing | PolicyState::Deleted => return None,
        })
    }
}

/// Ways that are told of one policy.
const MAX_PATHS: usize = 64;
