//! What a change would do: the messages that switches would get, and whether it is proved that all
//! frames go where they should.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tapswitch_openflow::{Body, DatapathId, ErrorKind, FlowModCommand, GroupModCommand, PortNo};

mod frames;
mod gone;
mod quick;

pub use quick::{Change, Judged, Verdict};

use super::Control;
use super::roster::PolicyEntry;
use crate::desired::Desired;
use crate::place::Place;
use crate::proof::{Arrival, Model, Network, Sample, text};
use crate::switch::Switch;
use crate::text::{as_switch_name, switch_name};
use crate::{
    Point, PolicyError, PolicyReport, PolicyState, Tagging, TapPolicy, Transmit, WhenMissing,
};
use frames::MAX_HOSTS;

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What each switch would be told.
    pub changes: Vec<SwitchChange>,
    /// Whether all frames go where they should then.
    pub proof: Proof,
    /// What is not as the policy asks, or not known.
    pub notes: Vec<String>,
}

/// What one switch would be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchChange {
    /// Which one.
    #[serde(with = "as_switch_name")]
    pub switch: DatapathId,
    /// Rules and groups that come or change, as `ovs-ofctl` prints them.
    pub add: Vec<String>,
    /// Rules and groups that go.
    pub remove: Vec<String>,
}

/// Whether all frames go where they should.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Whether nothing was found that does not.
    pub is_proved: bool,
    /// Ways of frames that were followed from port to port.
    pub checked: usize,
    /// What would go wrong, and where.
    pub problems: Vec<String>,
}

impl Control {
    /// What a change would do, without doing it.
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

    /// What adding a policy would do, without doing it.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn plan_policy(&self, policy: TapPolicy) -> Result<Plan, PolicyError> {
        let name = policy.name.clone();
        let mut then = self.rehearsal();
        // What waits to be sent anyway is no part of it.
        then.rehearse();
        then.add_policy(policy, WhenMissing::Refuse)?;
        let changes = then.rehearse();
        self.plan(&then, &name, changes)
    }

    /// What is to be told of these changes, after which all is as `then`.
    fn plan(
        &self,
        then: &Self,
        name: &str,
        changes: Vec<SwitchChange>,
    ) -> Result<Plan, PolicyError> {
        let PolicyReport { state, mut notes, .. } = then.policy(name)?;
        let mut proof =
            then.policies.find(name).map(|own| self.prove(then, own)).unwrap_or_default();
        match state {
            PolicyState::Active | PolicyState::Resting { .. } => {}
            PolicyState::Partial { reason } => notes.push(reason),
            PolicyState::Failed { reason } | PolicyState::Pending { reason } => {
                proof.problems.push(reason);
            }
            PolicyState::Installing | PolicyState::Deleted => {
                proof
                    .problems
                    .push("a switch on the way of its copies is not connected".to_owned());
            }
        }
        proof.is_proved = proof.problems.is_empty();
        Ok(Plan { changes, proof, notes })
    }

    /// A copy of all, to try what comes next, and to note what switches would be told.
    fn rehearsal(&self) -> Self {
        let mut trial = self.clone();
        let awaited = self.turns.awaited().iter();
        let sent = awaited.filter_map(|id| Some((*id, self.switches.get(id)?.sent_barrier()?)));
        trial.turns.forget_ahead();
        trial.switches.values_mut().for_each(Switch::forget_ahead);
        // They say yes to what they were told before, too.
        for (switch, barrier) in sent {
            trial.handle_reply(switch, barrier, &Body::BarrierReply, self.now);
        }
        trial
    }

    /// Does everything with switches that say yes to all, and returns what they were told.
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

    /// Why frames cannot be followed now, if so: what a switch holds is not known before it is
    /// taken over.
    fn unsettled(&self) -> Option<String> {
        let name = switch_name(*self.agenda.unsettled().first()?);
        Some(format!("switch {name} has just connected and is not taken over yet; try again soon"))
    }

    /// Follows frames of all policies through what switches hold now and `then`, when the one that
    /// it is `about` has changed.
    fn prove(&self, then: &Self, about: &PolicyEntry) -> Proof {
        if let Some(reason) = self.unsettled() {
            return Proof { problems: vec![reason], ..Proof::default() };
        }
        let passes_left = Cell::new(usize::MAX);
        let [before, after] = [self, then].map(|control| Model::new(control, &passes_left));
        let (mut proof, mut is_unrouted) = (Proof::default(), false);
        let stations = then.stations(about, (&then.bystanders(), MAX_HOSTS));
        let policies = then.policies.iter().chain([about]);
        for (from, sample) in then.samples_of(policies, &stations) {
            if then.is_unrouted(&sample) {
                is_unrouted = true;
                continue;
            }
            proof.checked += 1;
            if let Err(problem) = then.check((&before, &after), from, &sample) {
                proof.problems.push(problem);
                if proof.problems.len() >= MAX_PROBLEMS {
                    break;
                }
            }
        }
        proof.problems.extend((is_unrouted && proof.checked == 0).then(|| UNROUTED.to_owned()));
        proof
    }

    fn check(
        &self,
        (before, after): (&Model<'_>, &Model<'_>),
        from: Place,
        sample: &Sample,
    ) -> Result<(), String> {
        let originals = before.walk(from, sample, None)?;
        if after.walk(from, sample, None)? != originals {
            return Err(format!("{sample} that comes in at {from} would be forwarded otherwise"));
        }
        let wanting = self.policies.wanting(sample);
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
                return Err(format!(
                    "{sample} that comes in at {from} would arrive {arrivals}, not {expected}"
                ));
            }
        }
        Ok(())
    }

    /// The monitors that get a copy of a frame, for it does not arrive there anyway, and with which
    /// tags: one from each switch that copies. Of those that share flows, it is the one that gets
    /// each frame for another policy, else the one with the number `pick`, counted in a ring.
    fn copies(
        &self,
        wanting: &[&PolicyEntry],
        (from, sample, pick): (Place, &Sample, usize),
        originals: &BTreeMap<Arrival, usize>,
    ) -> Vec<(Place, Tagging)> {
        let dst = sample.receiver();
        let is_to_itself = self.place_of(dst) == Some(from);
        // Whichever it is that has the original, or sent it to itself, the others get no copy.
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

    /// Whether a frame for one host is flooded from there, for not every switch knows every host:
    /// it may meet switches that do, and arrive twice, or beside its copy.
    fn is_flooded(&self, from: Place, sample: &Sample) -> bool {
        let key = sample.receiver();
        let knows = || self.switches.get(&from.switch).is_some_and(|at| at.knows_way(key));
        self.is_vast && sample.dst.is_unicast() && !knows()
    }

    /// The switch that copies a frame for a policy: where it comes in, or where it goes out to its
    /// host.
    fn copied_at(&self, entry: &PolicyEntry, from: Place, sample: &Sample) -> Option<DatapathId> {
        if entry.policy.observed_at() == Point::Ingress {
            // Where there are many, one is applied where its senders are, and that is told.
            let is_copied = !entry.is_narrow
                || entry.applied.contains(&from.switch) && {
                    let cells = self.cells_at((entry, true), from.switch);
                    cells.holds_where(|region| sample.is_in(region))
                };
            return is_copied.then_some(from.switch);
        }
        let key = sample.receiver();
        let mut applied = entry.applied.iter();
        let has_host =
            |at: &DatapathId| self.switches.get(at).is_some_and(|at| at.hosts.find(key).is_some());
        applied.find(|at| has_host(at) && self.routes.connects(from.switch, **at)).copied()
    }
}

impl Network for Control {
    fn rules(&self, switch: DatapathId) -> Option<&Desired> {
        self.switches.get(&switch).filter(|switch| switch.is_up()).map(Switch::desired)
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

/// Where a frame arrives, however often and in what form.
fn places(arrivals: &BTreeMap<Arrival, usize>) -> BTreeSet<Place> {
    arrivals.keys().map(|arrival| arrival.place).collect()
}

/// Notes what a switch is told.
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

/// Why no frames can be followed just now.
const UNROUTED: &str = "switches are just being told the ways to its hosts; try again soon";
/// Problems that are told.
const MAX_PROBLEMS: usize = 10;
