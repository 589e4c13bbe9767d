//! Policies: adding, deleting, reporting.

use std::collections::BTreeSet;

use tapswitch_openflow::DatapathId;

mod frames;
mod replace;

use super::Control;
use super::accounts::Accounts;
use super::roster::{Deletion, PolicyEntry};
use crate::overlap::{Aim, PolicyId};
use crate::place::Place;
use crate::resolve::{check, list, settled};
use crate::switch::Switch;
use crate::text::switch_name;
use crate::{
    Event, HopReport, MonitorError, MonitorSpec, PathReport, PolicyError, PolicyReport,
    PolicyState, TapPolicy,
};

/// Handling of a policy whose monitor is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenMissing {
    /// Refuse it: the caller waits for the answer.
    Refuse,
    /// Wait: it comes from a configuration, and switches and hosts come and go.
    Wait,
}

impl Control {
    /// Adds a policy. The result follows as [`Event::PolicyActive`] or another event about the
    /// policy.
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
        if self.policies.count() >= max {
            return Err(PolicyError::TooMany { max });
        }
        let cells = policy.cells()?;
        let mut entry = self.policies.prepare(policy, cells, (None, &self.switches));
        self.clock.start(&mut entry, self.now)?;
        if missing == WhenMissing::Refuse && entry.rests_until.is_none() {
            self.check_now(&entry)?;
        }
        self.clock.watch(&entry, self.now);
        self.policies.insert(entry);
        Ok(())
    }

    /// The policy with its monitors' ports qualified by switch, where unambiguous: as in the
    /// existing policy of this name, else if only one switch has such a port now. The caller should
    /// store it in this form: after a restart, another switch with such a port may connect first.
    pub fn with_switches_said(&self, mut policy: TapPolicy) -> TapPolicy {
        let before = self.policies.find(&policy.name).map(|old| &old.policy.monitor);
        policy.monitor = settled(&policy.monitor, before, &self.switches);
        policy
    }

    /// Checks that the monitors of a policy are available, unless it is paused. This detects the
    /// most frequent error before anything is stored.
    ///
    /// # Errors
    /// Which monitor is unavailable, and why.
    pub fn check_monitors(&self, policy: &TapPolicy) -> Result<(), PolicyError> {
        if self.clock.rest(policy, self.now).is_none() {
            for monitor in &policy.monitor {
                check(monitor, &self.switches)?;
            }
            self.check_there_are_copies(policy)?;
        }
        Ok(())
    }

    /// Fails if all copies go to the controller and no switch is up to make them.
    fn check_there_are_copies(&self, policy: &TapPolicy) -> Result<(), MonitorError> {
        let is_here = |monitor: &MonitorSpec| *monitor == MonitorSpec::Controller;
        let is_alone = !self.switches.values().any(Switch::is_up);
        match is_alone && policy.monitor.iter().all(is_here) {
            true => Err(MonitorError::NoSwitch { monitor: MonitorSpec::Controller }),
            false => Ok(()),
        }
    }

    /// Deletes a policy. [`Event::PolicyDeleted`] reports its last counts.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn delete_policy(&mut self, name: &str) -> Result<(), PolicyError> {
        let id = self.policies.find(name).map(|entry| entry.id);
        id.and_then(|id| self.drop_heir_of(id));
        let Some(entry) = id.and_then(|id| self.policies.remove(id)) else {
            return Err(self.policies.unknown(name));
        };
        self.retire(entry, Some(Event::PolicyDeleted));
        Ok(())
    }

    /// Records in a policy's notes why it was not, or not completely, proved when it was put in
    /// force.
    pub fn note_unproved(&mut self, name: &str, reason: Option<&str>) {
        if let Some(entry) = self.policies.latest_mut(name) {
            entry.unproved = reason.map(str::to_owned);
        }
    }

    /// All policies in the order in which they were added, with the latest counters.
    pub fn policies(&self) -> Vec<PolicyReport> {
        let accounts = Accounts::new(&self.switches, &self.tags, None);
        let entries = self.policies.iter().filter(|entry| !self.policies.is_heir(entry.id));
        entries.map(|entry| self.report_policy(entry, &accounts)).collect()
    }

    /// Whether there is a policy of this name; a deleted one does not count, though its last
    /// counters may be outstanding.
    pub fn has_policy(&self, name: &str) -> bool {
        self.policies.find(name).is_some()
    }

    /// The number of the policy with this name, as in [`PolicyReport::number`].
    pub fn policy_number(&self, name: &str) -> Option<u64> {
        self.policies.find(name).map(|entry| entry.id.0)
    }

    /// One policy, with the latest counters.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn policy(&self, name: &str) -> Result<PolicyReport, PolicyError> {
        let entry = self.policies.find(name).ok_or_else(|| self.policies.unknown(name))?;
        let only = Some((entry.id, &entry.known_at));
        Ok(self.report_policy(entry, &Accounts::new(&self.switches, &self.tags, only)))
    }

    /// Paths of a policy's copies, from each switch that is not on the path of another one; as far
    /// as known, up to a number that people can view.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn policy_paths(&self, name: &str) -> Result<Vec<PathReport>, PolicyError> {
        let entry = self.policies.find(name).ok_or_else(|| self.policies.unknown(name))?;
        let places = entry.found_places().filter(|(_, place)| *place != Place::CONTROLLER);
        let paths = places.flat_map(|(_, place)| {
            let through: BTreeSet<_> = entry
                .applied
                .iter()
                .flat_map(|from| self.copy_routes.behind(*from, place))
                .collect();
            let outer = entry.applied.iter().filter(|id| !through.contains(id)).copied();
            let mut starts: Vec<_> = outer.collect();
            if starts.is_empty() {
                starts.push(place.switch);
            }
            starts.into_iter().map(move |from| self.report_path(from, place))
        });
        Ok(paths.take(MAX_PATHS).collect())
    }

    fn report_path(&self, from: DatapathId, to: Place) -> PathReport {
        // Alternating egress and ingress ports, the last being the monitor's.
        let places = self.copy_routes.path(from, to);
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
        PathReport { monitor: self.named(to), hops: first.into_iter().chain(pairs).collect() }
    }

    /// Whether a policy could be in force now.
    fn check_now(&mut self, entry: &PolicyEntry) -> Result<(), PolicyError> {
        self.check_vlans(entry)?;
        for monitor in &entry.policy.monitor {
            check(monitor, &self.switches)?;
        }
        let (applied, is_narrow) = self.where_applied(entry);
        if let (true, Some(mac)) = (applied.is_empty(), entry.policy.awaited_by()) {
            return Err(PolicyError::UnknownDestination { mac });
        }
        for id in applied {
            let exits = entry.found_places().filter_map(|(slot, place)| {
                let exit = self.copy_routes.exit(id, place)?;
                Some(Aim { slot, exit, tag: 0, is_sink: self.is_sink(place) })
            });
            let exits = exits.collect();
            let tap = entry.tap(self.cells_at((entry, is_narrow), id), exits);
            if let Some(switch) = self.switches.get_mut(&id) {
                switch.check_budget(tap, &self.limits)?;
            }
        }
        Ok(())
    }

    fn report_policy(&self, entry: &PolicyEntry, accounts: &Accounts<'_>) -> PolicyReport {
        let places: Vec<_> = entry.monitor_ports().collect();
        let report = accounts.report(
            (entry.id, &entry.policy, &entry.known_at),
            entry.told_state(),
            &places,
        );
        let only = entry.is_narrow.then(|| note_on_place(&entry.applied));
        let wide = self.note_on_room(entry);
        let notes = report.notes.into_iter().chain(only).chain(wide);
        let unproved = entry
            .unproved
            .as_ref()
            .map(|reason| format!("not everything could be proved when it was applied: {reason}"));
        let notes = notes.chain(self.notes_on_frames(entry)).chain(unproved);
        PolicyReport { notes: notes.collect(), ..report }
    }

    /// A note if switches have no room for all of a policy's intersections.
    fn note_on_room(&self, entry: &PolicyEntry) -> Option<String> {
        let is_wide = |id: &&DatapathId| {
            self.switches.get(*id).is_some_and(|switch| switch.is_wide(entry.id))
        };
        let names: Vec<_> =
            entry.applied.iter().filter(is_wide).map(|id| switch_name(*id)).collect();
        (!names.is_empty()).then(|| {
            format!(
                "switch {} has no room for rules for its overlaps with other policies of its \
                 monitors: each such frame is copied once, and may be counted only for the others",
                list(names.iter())
            )
        })
    }

    /// Updates the states of policies, and reports changes.
    pub(super) fn update_states(&mut self) {
        for id in std::mem::take(&mut self.policies.news) {
            let is_heir = self.policies.is_heir(id);
            let Some(entry) = self.policies.get_mut(id) else { continue };
            let tags = entry.carried.values().map(|(tag, _)| *tag);
            self.unsettled_tags.extend(tags.filter(|tag| self.lingering.contains(tag)));
            let state = entry.told_state();
            if entry.state.as_ref() != Some(&state) {
                if !is_heir {
                    self.events.extend(entry.event(&state));
                }
                entry.state = Some(state);
            }
        }
    }

    /// Stops carrying copies of deleted policies once no switch makes any, and reports policies
    /// whose last counters arrived.
    pub(super) fn finish_deletions(&mut self) {
        for id in std::mem::take(&mut self.ended) {
            self.finish_deletion(id);
        }
    }

    fn finish_deletion(&mut self, id: PolicyId) {
        let Some(deletion) = self.policies.deletions.get_mut(&id) else { return };
        let connected = |at: &DatapathId| self.switches.get(at).filter(|at| !at.is_down());
        if !deletion.is_drained {
            let mut counting = deletion.counting.iter().filter_map(connected);
            if counting.any(|switch| switch.ledger.is_open(id)) {
                return;
            }
            deletion.is_drained = true;
            if !deletion.carried.is_empty() {
                self.unsettled_tags.extend(deletion.carried.values().map(|(tag, _)| *tag));
                // Checked again when switches have stopped carrying its copies.
                self.ended.insert(id);
                return;
            }
        }
        let is_carried = |tag: u16| {
            let mut switches = self.switches.values().filter(|switch| !switch.is_down());
            !self.tags.is_shared(tag) && switches.any(|switch| switch.ledger.is_carrying(tag))
        };
        if deletion.carried.values().any(|(tag, _)| is_carried(*tag)) {
            return;
        }
        let Some(gone) = self.policies.deletions.remove(&id) else { return };
        let Deletion { policy, known_at, last, .. } = gone;
        if let Some(last) = last {
            let accounts = Accounts::new(&self.switches, &self.tags, Some((id, &known_at)));
            let report = accounts.report((id, &policy, &known_at), PolicyState::Deleted, &[]);
            self.events.push_back(last(Box::new(report)));
        }
        self.release_tags(id);
        for at in known_at {
            if let Some(switch) = self.switches.get_mut(&at) {
                switch.ledger.forget_policy(id);
            }
        }
    }
}

/// The note that a policy is not applied everywhere.
fn note_on_place(applied: &BTreeSet<DatapathId>) -> String {
    let names = list(applied.iter().map(|id| switch_name(*id)));
    format!(
        "there are too many policies to apply each at every switch: this one is applied only at \
         the switches of its senders, {names}"
    )
}

/// Maximum paths reported for a policy.
const MAX_PATHS: usize = 64;
