//! What a change would do: the messages that switches would get, and whether it is proved that all
//! frames go where they should.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tapswitch_openflow::{Body, DatapathId, ErrorKind, FlowModCommand, GroupModCommand, PortNo};
use tapswitch_wire::MacAddr;

mod quick;
mod replacement;

pub use quick::Verdict;

use super::Control;
use super::roster::PolicyEntry;
use crate::hosts::HostKey;
use crate::proof::{Arrival, Model, Sample, text};
use crate::resolve::Place;
use crate::switch::Switch;
use crate::text::{as_switch_name, switch_name};
use crate::{PolicyError, PolicyState, Tagging, TapPolicy, Transmit, WhenMissing};

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
    /// What adding a policy would do, without doing it.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn plan_policy(&self, policy: TapPolicy) -> Result<Plan, PolicyError> {
        let name = policy.name.clone();
        let mut then = self.trial();
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
        let report = then.policy(name)?;
        let mut proof = self.prove(then);
        match report.state {
            PolicyState::Active | PolicyState::Resting { .. } => {}
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
        Ok(Plan { changes, proof, notes: report.notes })
    }

    /// A copy of all, to try what comes next.
    fn trial(&self) -> Self {
        let mut trial = self.clone();
        trial.turns.forget_ahead();
        trial.switches.values_mut().for_each(Switch::forget_ahead);
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
        let (id, _) = self.switches.iter().find(|(_, switch)| switch.is_waiting())?;
        let name = switch_name(*id);
        Some(format!("switch {name} has just connected and is not taken over yet; try again soon"))
    }

    /// Follows frames through what switches hold now and `then`.
    fn prove(&self, then: &Self) -> Proof {
        if let Some(reason) = self.unsettled() {
            return Proof { problems: vec![reason], ..Proof::default() };
        }
        let (before, after) = (self.model(), then.model());
        let mut proof = Proof::default();
        for (from, sample) in then.samples() {
            proof.checked += 1;
            if let Err(problem) = then.check((&before, &after), from, &sample) {
                proof.problems.push(problem);
                if proof.problems.len() >= MAX_PROBLEMS {
                    break;
                }
            }
        }
        proof
    }

    fn model(&self) -> Model<'_> {
        let switches = self.switches.iter().filter(|(_, switch)| switch.is_up());
        let switches = switches.map(|(id, switch)| {
            let ports = switch.ports.iter().filter(|(_, port)| port.is_up);
            (*id, switch.desired(), ports.map(|(number, _)| number).collect())
        });
        let links = self.links().into_iter().flat_map(|link| {
            let [a, b] =
                [link.a, link.b].map(|end| Place { switch: end.switch, port: PortNo(end.port) });
            [(a, b), (b, a)]
        });
        Model::new(switches, links.collect())
    }

    /// Frames to follow, and where they come in.
    fn samples(&self) -> Vec<(Place, Sample)> {
        self.samples_of(self.policies.iter())
    }

    /// Frames that these policies are about.
    fn samples_of<'a>(
        &self,
        policies: impl Iterator<Item = &'a PolicyEntry>,
    ) -> Vec<(Place, Sample)> {
        let hosts = self.some_hosts();
        let macs = hosts.iter().map(|(key, _)| key.mac);
        let macs: BTreeSet<_> = macs.chain([NOBODY, MacAddr::BROADCAST]).collect();
        let fields: Vec<_> = policies.flat_map(PolicyEntry::matches).collect();
        let mut samples = Vec::new();
        for fields in &fields {
            for (key, place) in &hosts {
                for mac in &macs {
                    let sample = Sample::new(fields, (*key, *mac));
                    let from = self.place_of((sample.src, sample.vlan)).unwrap_or(*place);
                    if !samples.contains(&(from, sample.clone())) {
                        samples.push((from, sample));
                    }
                }
            }
            if samples.len() >= MAX_SAMPLES {
                break;
            }
        }
        samples
    }

    /// A host of each switch, of the first few, where no monitor is; where none is known, one that
    /// could be. After those, hosts that are monitors themselves.
    fn some_hosts(&self) -> Vec<(HostKey, Place)> {
        let monitors: BTreeSet<_> =
            self.policies.iter().flat_map(PolicyEntry::monitor_ports).collect();
        let up = || self.switches.iter().filter(|(_, switch)| switch.is_up());
        let known = |switch: &Switch, is_monitor: bool| {
            let at = |port| Place { switch: switch.id(), port };
            let mut hosts = switch.hosts.iter().map(|(key, host)| (key, at(host.port)));
            hosts.find(|(_, place)| monitors.contains(place) == is_monitor)
        };
        let possible = |switch: &Switch| {
            let [.., a, b] = switch.id().0.to_be_bytes();
            let mac = MacAddr([0x02, 0xff, 0xff, 0xff, a, b]);
            let edges = switch.ports.iter().filter(|(port, _)| switch.is_edge(*port));
            let places = edges.map(|(port, _)| Place { switch: switch.id(), port });
            let free = places.min_by_key(|place| monitors.contains(place))?;
            Some((HostKey { mac, vlan: None }, free))
        };
        let hosts =
            up().filter_map(|(_, switch)| known(switch, false).or_else(|| possible(switch)));
        let others = up().filter_map(|(_, switch)| known(switch, true));
        hosts.chain(others).take(MAX_HOSTS).collect()
    }

    /// Where a host is, if that is known.
    fn place_of(&self, (mac, vlan): (MacAddr, Option<u16>)) -> Option<Place> {
        let key = HostKey { mac, vlan };
        let mut up = self.switches.iter().filter(|(_, switch)| switch.is_up());
        up.find_map(|(id, switch)| {
            let port = switch.hosts.find(key)?.port;
            Some(Place { switch: *id, port })
        })
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
        let wanting: Vec<_> = self.policies.iter().filter(|entry| entry.wants(sample)).collect();
        for pick in 0..wanting.iter().map(|entry| entry.share_count()).max().unwrap_or(1) {
            let mut expected = originals.clone();
            for (place, tags) in self.copies(&wanting, (from, sample, pick), &originals) {
                let is_stripped = tags == Tagging::Strip && sample.vlan.is_some();
                *expected.entry(Arrival { place, is_stripped }).or_insert(0) += 1;
            }
            let arrivals = after.walk(from, sample, Some(pick))?;
            if arrivals != expected {
                let (arrivals, expected) = (text(&arrivals), text(&expected));
                return Err(format!(
                    "{sample} that comes in at {from} would arrive {arrivals}, not {expected}"
                ));
            }
        }
        Ok(())
    }

    /// The monitors that get a copy of a frame, for it does not arrive there anyway, and with which
    /// tags: one from each switch that copies. Of those that share flows, it is the one with the
    /// number `pick`, counted in a ring.
    fn copies(
        &self,
        wanting: &[&PolicyEntry],
        (from, sample, pick): (Place, &Sample, usize),
        originals: &BTreeMap<Arrival, usize>,
    ) -> Vec<(Place, Tagging)> {
        let mut copies = BTreeMap::new();
        let is_to_itself = self.place_of((sample.dst, sample.vlan)) == Some(from);
        for entry in wanting {
            let Some(at) = self.copied_at(entry, from, sample) else { continue };
            for places in entry.places.iter().flatten() {
                let all: Vec<_> = places.ports().collect();
                // Whichever it is that has the original, or sent it to itself, the others get no
                // copy.
                let has_original = |place: &Place| {
                    originals.contains_key(&(*place).into()) || *place == from && is_to_itself
                };
                if all.iter().any(has_original) {
                    continue;
                }
                let is_reached = |place: &&Place| self.routes.exit(at, **place).is_some();
                let reached: Vec<_> = all.iter().filter(is_reached).collect();
                let Some(place) = reached.get(pick % reached.len().max(1)) else { continue };
                if **place != Place::CONTROLLER && (**place != from || at != from.switch) {
                    let tags = copies.entry((at, **place)).or_insert(entry.policy.tags);
                    *tags = entry.policy.tags.min(*tags);
                }
            }
        }
        copies.into_iter().map(|((_, place), tags)| (place, tags)).collect()
    }

    /// The switch that copies a frame for a policy: where it comes in, or where it goes out to its
    /// host.
    fn copied_at(&self, entry: &PolicyEntry, from: Place, sample: &Sample) -> Option<DatapathId> {
        if entry.policy.rewritten().is_none() {
            return Some(from.switch);
        }
        let key = HostKey { mac: sample.dst, vlan: sample.vlan };
        let mut applied = entry.applied.iter();
        applied
            .find(|at| self.switches.get(at).is_some_and(|at| at.hosts.find(key).is_some()))
            .copied()
    }
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

/// An address that nobody has: locally administered, and never given by us.
const NOBODY: MacAddr = MacAddr([0x02, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe]);
/// Switches whose hosts take part; more are like them.
const MAX_HOSTS: usize = 16;
/// Frames that are followed.
const MAX_SAMPLES: usize = 20_000;
/// Problems that are told.
const MAX_PROBLEMS: usize = 10;
