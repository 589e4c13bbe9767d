//! Plan of a change: the messages to switches, and whether it is proved that all frames go where
//! they should.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tapswitch_openflow::{Body, DatapathId, ErrorKind, FlowModCommand, GroupModCommand, PortNo};

mod frames;
mod gone;
mod overlaps;
mod quick;

pub use quick::{Change, Judged, Look, Verdict};

use super::Control;
use super::roster::PolicyEntry;
use crate::desired::Desired;
use crate::place::Place;
use crate::proof::{Arrival, Model, Network, Sample, Trouble, lost_at, text};
use crate::rule::FlowId;
use crate::switch::Switch;
use crate::text::as_switch_name;
use crate::{
    Point, PolicyError, PolicyReport, PolicyState, Tagging, TapPolicy, Transmit, WhenMissing,
};
use frames::MAX_HOSTS;
use overlaps::MOST_OVERLAPS;

/// Effect of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Changes on each switch.
    pub changes: Vec<SwitchChange>,
    /// Whether all frames go where they should afterwards.
    pub proof: Proof,
    /// Deviations from the policy, and unknowns.
    pub notes: Vec<String>,
}

/// Changes on one switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchChange {
    /// The switch.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// Rules and groups added or changed, in the syntax of `ovs-ofctl`.
    pub add: Vec<String>,
    /// Rules and groups removed.
    pub remove: Vec<String>,
}

/// Whether all frames go where they should.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Whether no problem was found, and nothing was left out.
    pub is_proved: bool,
    /// Number of frames traced from port to port.
    pub checked: usize,
    /// Problems: which frame would be misdirected, and where.
    pub problems: Vec<String>,
}

impl Control {
    /// Plans a change without applying it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn plan_change(&self, change: Change<'_>) -> Result<Plan, PolicyError> {
        match change {
            Change::Add(policy) => self.plan_policy(policy.clone()),
            Change::Replace(policy) => self.plan_replacement(policy.clone()),
            Change::Delete(name) => self.plan_deletion(name),
        }
    }

    /// Plans the addition of a policy.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn plan_policy(&self, policy: TapPolicy) -> Result<Plan, PolicyError> {
        let name = policy.name.clone();
        let mut then = self.rehearsal();
        // Messages that are queued anyway are not part of the plan.
        then.rehearse();
        then.add_policy(policy, WhenMissing::Refuse)?;
        let changes = then.rehearse();
        self.plan(&then, &name, changes)
    }

    /// The plan for these changes, which lead to `then`.
    fn plan(
        &self,
        then: &Self,
        name: &str,
        changes: Vec<SwitchChange>,
    ) -> Result<Plan, PolicyError> {
        let PolicyReport { state, mut notes, .. } = then.policy(name)?;
        let mut proof = self.prove(then, name);
        let unseen = then.policies.find(name).and_then(|entry| then.unseen_part(entry));
        notes.extend(unseen.map(|trouble| trouble.to_string()));
        match state {
            PolicyState::Active | PolicyState::Resting { .. } => {}
            PolicyState::Partial { reason } => notes.push(reason),
            PolicyState::Failed { reason } | PolicyState::Pending { reason } => {
                proof.problems.push(reason);
            }
            PolicyState::Installing | PolicyState::Deleted => {
                proof
                    .problems
                    .push("a switch on the path of its copies is not connected".to_owned());
            }
        }
        proof.is_proved = proof.problems.is_empty();
        Ok(Plan { changes, proof, notes })
    }

    /// A copy of the control plane, to try a change and record its messages.
    fn rehearsal(&self) -> Self {
        let mut trial = self.clone();
        let awaited = self.turns.awaited().iter();
        let sent = awaited.filter_map(|id| Some((*id, self.switches.get(id)?.sent_barrier()?)));
        trial.turns.forget_ahead();
        trial.wait_for_no_links();
        trial.switches.values_mut().for_each(Switch::forget_ahead);
        // Earlier messages are confirmed as well.
        for (switch, barrier) in sent {
            trial.handle_reply(switch, barrier, &Body::BarrierReply, self.now);
        }
        trial
    }

    /// Runs until idle with switches that accept everything, and returns what they were sent.
    fn rehearse(&mut self) -> Vec<SwitchChange> {
        let mut told: BTreeMap<DatapathId, SwitchChange> = BTreeMap::new();
        let mut barriers = Vec::new();
        loop {
            while let Some(Transmit { switch, ticket, body }) = self.poll_transmit() {
                match &body {
                    Body::BarrierRequest => barriers.push((switch, ticket)),
                    Body::MultipartRequest(_) => {
                        self.handle_error(switch, ticket, ErrorKind::OFPBRC_BAD_TYPE, self.now);
                    }
                    _ => {
                        let none = SwitchChange { switch, add: Vec::new(), remove: Vec::new() };
                        note(told.entry(switch).or_insert(none), &body);
                    }
                }
            }
            if barriers.is_empty() {
                return told.into_values().collect();
            }
            for (switch, ticket) in std::mem::take(&mut barriers) {
                self.handle_reply(switch, ticket, &Body::BarrierReply, self.now);
            }
        }
    }

    /// Traces frames of all policies through the desired rules, now and `then`, after a change of
    /// the policy with this name; its own frames come first.
    fn prove(&self, then: &Self, name: &str) -> Proof {
        let abouts = self.abouts(then, name);
        let Some(about) = abouts.first() else { return Proof::default() };
        let passes_left = Cell::new(usize::MAX);
        let [before, after] = [self, then].map(|control| Model::new(control, &passes_left));
        let stations = then.stations(about, (&then.bystanders(), MAX_HOSTS));
        let common = then.overlaps(&abouts, MOST_OVERLAPS);
        let mut frames = then.samples_of(abouts.iter().copied(), &stations);
        frames.extend(then.samples_in(&common.regions, &stations));
        frames.extend(then.samples_of(then.policies.iter(), &stations));
        let (mut proof, mut left_out) = (Proof::default(), None);
        for frame in &frames {
            match then.check((&before, &after), frame) {
                Ok(()) => proof.checked += 1,
                Err(Trouble::Unknown(reason)) => _ = left_out.get_or_insert(reason),
                Err(Trouble::Early(reason)) => _ = left_out.get_or_insert(reason + TRY_AGAIN),
                Err(Trouble::Wrong(problem)) => {
                    proof.checked += 1;
                    proof.problems.push(problem);
                    if proof.problems.len() >= MAX_PROBLEMS {
                        break;
                    }
                }
            }
        }
        let left_out = left_out.or_else(|| common.left_out());
        proof.problems.extend(left_out.map(|reason| format!("{LEFT_OUT}: {reason}")));
        proof
    }

    /// The policies affected by a change of this name: the new one, and the old one if it is
    /// another.
    fn abouts<'a>(&'a self, then: &'a Self, name: &str) -> Vec<&'a PolicyEntry> {
        let (new, old) = (then.policies.find(name), self.policies.find(name));
        let old = old.filter(|old| new.is_none_or(|new| new.id != old.id));
        new.into_iter().chain(old).collect()
    }

    /// Checks that a frame arrives where it should.
    fn check(
        &self,
        (before, after): (&Model<'_>, &Model<'_>),
        (from, sample): &(Place, Sample),
    ) -> Result<(), Trouble> {
        let from = *from;
        let wanting = self.policies.wanting(sample);
        if let Some(reason) = self.unseen(&wanting, (from, sample)) {
            return Err(Trouble::Early(reason));
        }
        let originals = before.walk(from, sample, None)?;
        if after.walk(from, sample, None)? != originals {
            let told = format!("{sample} that enters at {from} would be forwarded differently");
            return Err(Trouble::Wrong(told));
        }
        let is_loose = self.is_flooded(from, sample);
        for pick in 0..wanting.iter().map(|entry| entry.share_count()).max().unwrap_or(1) {
            let mut expected = originals.clone();
            for (place, tags) in self.copies(&wanting, (from, sample, pick), &originals) {
                let is_stripped = tags == Tagging::Strip && sample.vlan.is_some();
                *expected.entry(Arrival { place, is_stripped }).or_insert(0) += 1;
            }
            let arrivals = after.walk(from, sample, Some(pick))?;
            let is_right = match is_loose {
                true => places(&arrivals) == places(&expected),
                false => arrivals == expected,
            };
            if !is_right {
                let (arrivals, expected) = (text(&arrivals), text(&expected));
                return Err(Trouble::Wrong(format!(
                    "{sample} that enters at {from} would arrive {arrivals}, not {expected}"
                )));
            }
        }
        Ok(())
    }

    /// Why there is no verdict on copies of a frame, if so: the routes to its receiver are being
    /// updated, or a switch on the path is disconnected.
    fn unseen(&self, wanting: &[&PolicyEntry], (from, sample): (Place, &Sample)) -> Option<String> {
        if self.unrouted.contains(&sample.receiver()) {
            return Some(UNROUTED.to_owned());
        }
        let is_away = |id: &DatapathId| !self.is_settled(*id);
        let away = wanting.iter().find_map(|entry| {
            let at = self.copied_at(entry, from, sample)?;
            let ends = entry.monitor_ports().filter(|place| *place != Place::CONTROLLER);
            let mut passed = ends.flat_map(|place| self.routes.behind(at, place));
            Some(at).filter(is_away).or_else(|| passed.find(is_away))
        });
        away.map(lost_at)
    }

    /// Why there is no verdict on some frames of a policy, if so: they may come in at a switch in
    /// unknown state, or hit a missing rule.
    fn unseen_part(&self, entry: &PolicyEntry) -> Option<Trouble> {
        let is_away = |id: &DatapathId| entry.applied.contains(id) && !self.is_settled(*id);
        let away = self.inlets(entry).into_iter().find(is_away).map(lost_at);
        away.map(Trouble::Early).or_else(|| {
            let mut switches = entry.applied.iter().filter_map(|id| self.switches.get(id));
            switches.find_map(|switch| {
                let rule = switch.lacking().find(|rule| entry.may_meet(rule))?;
                switch.lacks(rule).map(Trouble::Unknown)
            })
        })
    }

    /// Whether the behaviour of a switch is known.
    fn is_settled(&self, id: DatapathId) -> bool {
        self.switches.get(&id).is_some_and(Switch::is_settled)
    }

    /// Monitors that should get a copy of a frame, as the original does not reach them, with the
    /// handling of tags: one copy from each copying switch. Of monitors that share flows, it is the
    /// one that gets each frame for another policy, else that with index `pick` modulo their
    /// number.
    fn copies(
        &self,
        wanting: &[&PolicyEntry],
        (from, sample, pick): (Place, &Sample, usize),
        originals: &BTreeMap<Arrival, usize>,
    ) -> Vec<(Place, Tagging)> {
        let dst = sample.receiver();
        let is_to_itself = self.place_of(dst) == Some(from);
        // If one of them gets the original, or has sent it to itself, the others get no copy.
        let has_original = |place: &Place| {
            originals.contains_key(&(*place).into()) || *place == from && is_to_itself
        };
        let mut aims = Vec::new();
        for entry in wanting {
            let Some(at) = self.copied_at(entry, from, sample) else { continue };
            for places in entry.places.iter().flatten() {
                let all: Vec<_> = places.ports().collect();
                if !all.iter().any(has_original) {
                    let reached = all
                        .into_iter()
                        .filter_map(|place| Some((self.routes.exit(at, place)?, place)));
                    aims.push((at, entry.policy.tags, reached.collect::<Vec<_>>()));
                }
            }
        }
        let alone: BTreeSet<_> = aims
            .iter()
            .filter_map(|(at, _, reached)| match reached[..] {
                [(_, place)] => Some((*at, place)),
                _ => None,
            })
            .collect();
        let mut copies = BTreeMap::new();
        for (at, tags, reached) in aims {
            let served = reached.iter().filter(|(_, place)| alone.contains(&(at, *place))).min();
            let Some((_, place)) = served.or(reached.get(pick % reached.len().max(1))) else {
                continue;
            };
            let kept = copies.entry((at, *place)).or_insert(tags);
            *kept = tags.min(*kept);
        }
        let is_sent = |at, place| place != from || at != from.switch;
        copies.retain(|(at, place), _| is_sent(*at, *place));
        copies.into_iter().map(|((_, place), tags)| (place, tags)).collect()
    }

    /// Whether a unicast frame is flooded, as not every switch has all routes: it may reach
    /// switches with a route, and arrive twice, or beside its copy.
    fn is_flooded(&self, from: Place, sample: &Sample) -> bool {
        let key = sample.receiver();
        let knows = || self.switches.get(&from.switch).is_some_and(|at| at.knows_way(key));
        self.is_vast && sample.dst.is_unicast() && !knows()
    }

    /// The switch that copies a frame for a policy: at the ingress, or at the destination host.
    fn copied_at(&self, entry: &PolicyEntry, from: Place, sample: &Sample) -> Option<DatapathId> {
        if entry.policy.observed_at() == Point::Ingress {
            // With many policies one may be applied at its senders only, which is reported.
            let is_copied = !entry.is_narrow
                || entry.applied.contains(&from.switch) && {
                    let cells = self.cells_at((entry, true), from.switch);
                    cells.holds_where(|region| sample.is_in(region))
                };
            return is_copied.then_some(from.switch);
        }
        let key = sample.receiver();
        let mut applied = entry.applied.iter();
        let is_it =
            |at: DatapathId| self.has_host(at, key) && self.routes.connects(from.switch, at);
        applied.find(|at| is_it(**at)).copied()
    }
}

impl Network for Control {
    fn rules(&self, switch: DatapathId) -> Option<&Desired> {
        self.switches.get(&switch).filter(|switch| switch.is_settled()).map(Switch::desired)
    }

    fn lacks(&self, switch: DatapathId, rule: &FlowId) -> Option<String> {
        self.switches.get(&switch)?.lacks(rule)
    }

    fn flooded(&self, switch: DatapathId) -> Vec<PortNo> {
        let ports = self.switches.get(&switch).into_iter().flat_map(|switch| switch.ports.iter());
        let flooded = ports.filter(|(_, port)| port.is_up && !port.is_sink);
        flooded.map(|(number, _)| number).collect()
    }

    fn peer(&self, at: Place) -> Option<Place> {
        self.fabric.as_ref()?.peer(at)
    }

    fn switch_count(&self) -> usize {
        self.switches.len()
    }
}

/// Places of arrivals, regardless of number and form.
fn places(arrivals: &BTreeMap<Arrival, usize>) -> BTreeSet<Place> {
    arrivals.keys().map(|arrival| arrival.place).collect()
}

/// Records a message to a switch.
fn note(change: &mut SwitchChange, body: &Body) {
    match body {
        Body::FlowMod(flow) => match flow.command {
            FlowModCommand::Add => change.add.push(flow.to_string()),
            _ => change.remove.push(flow.to_string()),
        },
        Body::GroupMod(group) => match group.command {
            GroupModCommand::Delete => change.remove.push(group.to_string()),
            _ => change.add.push(group.to_string()),
        },
        _ => {}
    }
}

/// Reason for no verdict while routes are being updated.
const UNROUTED: &str = "the routes to its hosts are still being installed";
/// Remedy for a caller who only asks; not for a change that was made.
const TRY_AGAIN: &str = "; try again when that is done";
/// Introduction to the reason for an incomplete proof.
const LEFT_OUT: &str = "not all of its frames could be traced";
/// Maximum problems reported.
const MAX_PROBLEMS: usize = 10;
