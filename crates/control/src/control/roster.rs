//! The policies by number and by name, and which of them something concerns.
//!
//! At each change only those policies are looked at that it concerns: with a hundred thousand of
//! them, all others would be most of the work.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tapswitch_openflow::{DatapathId, Delivery, Masked, Oxm};
use tapswitch_wire::MacAddr;

use super::deadline::{Deadline, Rest};
use crate::hosts::HostKey;
use crate::index::{Index, forget, note};
use crate::overlap::{Aim, PolicyId, Senders, Slot, Tap};
use crate::place::Place;
use crate::proof::Sample;
use crate::region::{Cells, MacMask, Region, Sender};
use crate::resolve::{Found, Places, Switches, list_some, resolve, settled};
use crate::rule::FlowId;
use crate::shared::{Forked, Shared};
use crate::{
    Event, MonitorError, MonitorSpec, Monitors, PolicyError, PolicyReport, PolicyState, TapPolicy,
    VidRange,
};

/// All policies.
#[derive(Clone, Debug, Default)]
pub(super) struct Policies {
    entries: Forked<PolicyId, PolicyEntry>,
    by_name: Forked<Arc<str>, PolicyId>,
    /// Those that are to take the place of others, and which; these may have ended meanwhile.
    pub(super) heirs: BTreeMap<PolicyId, PolicyId>,
    /// Deleted ones whose last counters are to come.
    pub(super) deletions: Shared<BTreeMap<PolicyId, Deletion>>,
    last_id: u64,
    /// The oldest ones, which are applied wherever their frames could come in.
    everywhere: Shared<BTreeSet<PolicyId>>,
    /// Those with a monitor at this switch.
    at_switch: Index<DatapathId, PolicyId>,
    /// Those whose monitors may be anywhere.
    roaming: Forked<PolicyId, ()>,
    /// Those that name a host.
    of_mac: Index<MacAddr, PolicyId>,
    of_ip: Index<IpAddr, PolicyId>,
    /// All of them, by who sends their frames.
    of_sender: Senders<PolicyId>,
    /// Those that are applied at a switch.
    applied: Index<DatapathId, PolicyId>,
    /// Whether there is or was one whose copies have other addresses on the way.
    pub(super) has_rewritten: bool,
    /// Those that had too few identifiers left for their copies between switches.
    pub(super) untagged: BTreeSet<PolicyId>,
    /// To be placed anew.
    pub(super) dirty: BTreeSet<PolicyId>,
    /// How they are doing is to be looked up.
    pub(super) news: BTreeSet<PolicyId>,
}

/// A policy and how it is doing.
#[derive(Clone, Debug)]
pub(super) struct PolicyEntry {
    pub(super) id: PolicyId,
    /// With the switches of its monitors' ports said as soon as they are found.
    pub(super) policy: TapPolicy,
    name: Arc<str>,
    pub(super) cells: Arc<Cells>,
    /// Where its monitors are, in their order.
    pub(super) places: Vec<Result<Places, MonitorError>>,
    /// Hosts that get its copies, and their switches.
    pub(super) monitor_hosts: BTreeSet<(DatapathId, HostKey)>,
    /// The switches where it is applied, connected or not.
    pub(super) applied: BTreeSet<DatapathId>,
    /// Whether those are only the switches that its senders are at.
    pub(super) is_narrow: bool,
    /// Those, and others that may still make copies for it.
    pub(super) counting: BTreeSet<DatapathId>,
    /// Those, and others that did.
    pub(super) known_at: BTreeSet<DatapathId>,
    /// Which switches are not linked to a monitor, and what that means.
    pub(super) cut_off: Option<String>,
    /// A way of its copies is not open yet.
    pub(super) waits: bool,
    /// The identifiers of which none was left for its copies between switches.
    pub(super) untagged: Option<VidRange>,
    /// How it is doing at switches where it is not in force.
    pub(super) troubles: BTreeMap<DatapathId, PolicyState>,
    /// By monitor: the identifier of copies for it between switches, and where they go.
    pub(super) carried: BTreeMap<Slot, (u16, Found)>,
    /// When it ends.
    pub(super) ends_at: Option<Deadline>,
    /// What its schedule waits for.
    pub(super) rests_until: Option<Rest>,
    /// As it was told last.
    pub(super) state: Option<PolicyState>,
    /// Why it was not proved, or not all of it, before it was put in force.
    pub(super) unproved: Option<String>,
}

/// A policy that is going.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) policy: TapPolicy,
    pub(super) carried: BTreeMap<Slot, (u16, Found)>,
    /// The switches that may make copies for it.
    pub(super) counting: BTreeSet<DatapathId>,
    /// Those, and others that did.
    pub(super) known_at: BTreeSet<DatapathId>,
    /// No switch makes copies for it any more.
    pub(super) is_drained: bool,
    /// What to tell with its last counts.
    pub(super) last: Option<fn(Box<PolicyReport>) -> Event>,
}

impl Policies {
    pub(super) fn iter(&self) -> impl Iterator<Item = &PolicyEntry> {
        self.entries.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PolicyEntry> {
        self.entries.values_mut()
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is there, or going.
    pub(super) fn is_known(&self, id: PolicyId) -> bool {
        self.entries.contains_key(&id) || self.deletions.contains_key(&id)
    }

    pub(super) fn get(&self, id: PolicyId) -> Option<&PolicyEntry> {
        self.entries.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PolicyId) -> Option<&mut PolicyEntry> {
        self.entries.get_mut(&id)
    }

    pub(super) fn find(&self, name: &str) -> Option<&PolicyEntry> {
        self.entries.get(self.by_name.get(name)?)
    }

    /// The policies whose frames a region may have in common with.
    pub(super) fn near(&self, region: &Region) -> impl Iterator<Item = &PolicyEntry> + use<'_> {
        let near: BTreeSet<_> = self.of_sender.near(region).collect();
        near.into_iter().filter_map(|id| self.entries.get(&id))
    }

    /// The same of several regions, each policy once. It may be all there are.
    pub(super) fn near_any(
        &self,
        regions: impl Iterator<Item = Region>,
    ) -> impl Iterator<Item = &PolicyEntry> {
        let mut seen = BTreeSet::new();
        let near = self.of_sender.near_any(regions).filter(move |id| seen.insert(*id));
        near.filter_map(|id| self.entries.get(&id))
    }

    /// Those that want a frame.
    pub(super) fn wanting(&self, sample: &Sample) -> Vec<&PolicyEntry> {
        let sender = sample.sender();
        let near = self.of_sender.near(&sender).filter_map(|id| self.entries.get(&id));
        // It is asked for each frame that is followed: few of many are put in order.
        let mut wanting: Vec<_> = near.filter(|entry| entry.wants(sample)).collect();
        wanting.sort_unstable_by_key(|entry| entry.id);
        wanting.dedup_by_key(|entry| entry.id);
        wanting
    }

    /// A policy that is not there yet, in the place of one that has monitors `before`, if it is.
    pub(super) fn prepare(
        &self,
        mut policy: TapPolicy,
        cells: Cells,
        (before, all): (Option<&Monitors>, &Switches),
    ) -> PolicyEntry {
        policy.monitor = settled(&policy.monitor, before, all);
        PolicyEntry {
            id: PolicyId(self.last_id + 1),
            name: policy.name.as_str().into(),
            cells: cells.into(),
            places: policy.monitor.iter().map(|monitor| resolve(monitor, &[], all)).collect(),
            monitor_hosts: BTreeSet::new(),
            applied: BTreeSet::new(),
            is_narrow: false,
            counting: BTreeSet::new(),
            known_at: BTreeSet::new(),
            cut_off: None,
            waits: false,
            untagged: None,
            troubles: BTreeMap::new(),
            carried: BTreeMap::new(),
            ends_at: None,
            rests_until: None,
            state: None,
            unproved: None,
            policy,
        }
    }

    /// Adds what was prepared.
    pub(super) fn insert(&mut self, entry: PolicyEntry) {
        let id = entry.id;
        self.last_id = id.0;
        self.has_rewritten |= entry.policy.rewritten().is_some();
        let concerns = Concerns::of(&entry);
        concerns.switches.iter().for_each(|at| note(&mut self.at_switch, at, id));
        concerns.macs.iter().for_each(|mac| note(&mut self.of_mac, mac, id));
        concerns.ips.iter().for_each(|ip| note(&mut self.of_ip, ip, id));
        entry.cells.included().for_each(|region| self.of_sender.insert(&region, id));
        if concerns.roams {
            self.roaming.insert(id, ());
        }
        self.by_name.insert(entry.name.clone(), id);
        self.entries.insert(id, entry);
        self.dirty.insert(id);
    }

    /// Takes a policy out; its name is that of its heir then, if it has one. What it used is freed
    /// when [`Self::deletions`] has it no more.
    pub(super) fn remove(&mut self, id: PolicyId) -> Option<PolicyEntry> {
        let entry = self.take(id)?;
        self.heirs.remove(&id);
        match self.heirs.iter().find(|(_, old)| **old == id) {
            Some((heir, _)) => self.by_name.insert(entry.name.clone(), *heir),
            None => self.by_name.remove(&entry.name),
        };
        Some(entry)
    }

    /// Adds what was prepared, to take the place of another; until then it has no name.
    pub(super) fn insert_heir(&mut self, heir: PolicyEntry, of: PolicyId) {
        let (id, name) = (heir.id, heir.name.clone());
        self.insert(heir);
        self.by_name.insert(name, of);
        self.heirs.insert(id, of);
    }

    /// The policy that this one is to take the place of, if that is still there.
    pub(super) fn heir_of(&self, id: PolicyId) -> Option<PolicyId> {
        self.heirs.get(&id).copied().filter(|old| self.entries.contains_key(old))
    }

    /// Whether a policy is to take the place of another, and does not yet.
    pub(super) fn is_heir(&self, id: PolicyId) -> bool {
        self.heir_of(id).is_some()
    }

    /// Who is to take the place of a policy; else that one itself.
    pub(super) fn latest_mut(&mut self, name: &str) -> Option<&mut PolicyEntry> {
        let id = *self.by_name.get(name)?;
        let heir = self.heirs.iter().find(|(_, old)| **old == id).map(|(heir, _)| *heir);
        self.entries.get_mut(&heir.unwrap_or(id))
    }

    /// It takes the place of the other, which is returned unless it has ended meanwhile.
    pub(super) fn inherit(&mut self, heir: PolicyId) -> Option<PolicyEntry> {
        let old = self.heirs.remove(&heir)?;
        let name = self.entries.get(&heir)?.name.clone();
        self.by_name.insert(name, heir);
        self.take(old)
    }

    /// Whoever was to take the place of this policy does not, and is returned.
    pub(super) fn disinherit(&mut self, of: PolicyId) -> Option<PolicyEntry> {
        let heir = self.heirs.iter().find(|(_, old)| **old == of).map(|(heir, _)| *heir)?;
        match self.is_heir(heir) {
            true => {
                self.heirs.remove(&heir);
                self.take(heir)
            }
            // It has the name by now.
            false => self.remove(heir),
        }
    }

    fn take(&mut self, id: PolicyId) -> Option<PolicyEntry> {
        let entry = self.entries.remove(&id)?;
        let concerns = Concerns::of(&entry);
        concerns.switches.iter().for_each(|at| forget(&mut self.at_switch, at, &id));
        concerns.macs.iter().for_each(|mac| forget(&mut self.of_mac, mac, &id));
        concerns.ips.iter().for_each(|ip| forget(&mut self.of_ip, ip, &id));
        entry.applied.iter().for_each(|at| forget(&mut self.applied, at, &id));
        entry.cells.included().for_each(|region| self.of_sender.remove(&region, id));
        self.roaming.remove(&id);
        self.dirty.remove(&id);
        self.news.remove(&id);
        self.everywhere.remove(&id);
        Some(entry)
    }

    /// The oldest `count` policies are applied wherever their frames could come in.
    pub(super) fn spread(&mut self, count: usize) {
        while self.everywhere.len() > count {
            self.dirty.extend(self.everywhere.pop_last());
        }
        let last = self.everywhere.last().map_or(0, |id| id.0);
        let missing = count - self.everywhere.len();
        let next = self.entries.range(PolicyId(last + 1)..).map(|(id, _)| *id).take(missing);
        for id in next.collect::<Vec<_>>() {
            self.everywhere.insert(id);
            self.dirty.insert(id);
        }
    }

    /// Whether it is one of those that are applied wherever their frames could come in.
    pub(super) fn is_everywhere(&self, id: PolicyId) -> bool {
        self.everywhere.contains(&id)
    }

    /// Ports of a switch changed: monitors may be there now, or not any more.
    pub(super) fn touch_at(&mut self, switch: DatapathId) {
        self.dirty.extend(self.at_switch.get(&switch).into_iter().flatten());
        self.dirty.extend(self.roaming.keys());
    }

    /// A host came, went or moved.
    pub(super) fn touch_mac(&mut self, mac: MacAddr) {
        self.dirty.extend(self.of_mac.get(&mac).into_iter().flatten());
    }

    /// A host has this address, or does not have it any more.
    pub(super) fn touch_ip(&mut self, ip: IpAddr) {
        self.dirty.extend(self.of_ip.get(&ip).into_iter().flatten());
    }

    /// Whether a host with these addresses is named as a monitor.
    pub(super) fn copies_to(&self, mac: MacAddr, addresses: &[IpAddr]) -> bool {
        let is_it = |monitor: &MonitorSpec| match monitor {
            MonitorSpec::Mac(named) => *named == mac,
            MonitorSpec::Ip(named) => addresses.contains(named),
            _ => false,
        };
        let of_ip = addresses.iter().filter_map(|ip| self.of_ip.get(ip));
        let mut near = self.of_mac.get(&mac).into_iter().chain(of_ip).flatten();
        near.any(|id| {
            let monitors = self.get(*id).into_iter().flat_map(|entry| entry.policy.monitor.iter());
            monitors.flat_map(MonitorSpec::members).any(is_it)
        })
    }

    /// The switches that are named by monitors.
    pub(super) fn monitor_switches(&self) -> impl Iterator<Item = DatapathId> {
        self.at_switch.keys().copied()
    }

    /// The policies that are applied at a switch.
    pub(super) fn applied_at(&self, switch: DatapathId) -> impl Iterator<Item = PolicyId> {
        self.applied.get(&switch).into_iter().flatten().copied()
    }

    /// A policy is applied at these switches. Returns those where it was and is no more.
    pub(super) fn set_applied(
        &mut self,
        id: PolicyId,
        applied: BTreeSet<DatapathId>,
    ) -> Vec<DatapathId> {
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        if entry.applied == applied {
            return Vec::new();
        }
        let gone: Vec<_> = entry.applied.difference(&applied).copied().collect();
        for at in &gone {
            entry.troubles.remove(at);
            forget(&mut self.applied, at, &id);
        }
        for at in applied.difference(&entry.applied) {
            note(&mut self.applied, at, id);
        }
        entry.counting.extend(&applied);
        entry.known_at.extend(&applied);
        entry.applied = applied;
        gone
    }

    /// Nothing counts for a policy at a switch any more. Returns the identifiers of its copies, if
    /// it went on to others.
    pub(super) fn stop_counting(&mut self, id: PolicyId, at: DatapathId) -> Vec<u16> {
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        match !entry.applied.contains(&at) && entry.counting.remove(&at) {
            true => entry.carried.values().map(|(tag, _)| *tag).collect(),
            false => Vec::new(),
        }
    }

    /// What must be carried for a policy that is there, or still going: where copies for one of its
    /// monitors go, what they are owed, and the switches that make them.
    pub(super) fn carriage(&self, id: PolicyId, slot: Slot) -> Option<Carriage<'_>> {
        let (carried, policy, from) = match self.entries.get(&id) {
            Some(entry) => (&entry.carried, &entry.policy, &entry.counting),
            None => {
                let gone = self.deletions.get(&id).filter(|gone| !gone.is_drained)?;
                (&gone.carried, &gone.policy, &gone.counting)
            }
        };
        let (_, to) = *carried.get(&slot)?;
        Some(Carriage { to, rewritten: policy.rewritten(), delivery: policy.delivery, from })
    }

    pub(super) fn unknown(&self, name: &str) -> PolicyError {
        let known = match self.entries.is_empty() {
            true => "there are none".to_owned(),
            // There may be very many.
            false => {
                let names = self.iter().map(|entry| &entry.name);
                format!("there are: {}", list_some(self.entries.len(), names))
            }
        };
        PolicyError::Unknown { name: name.to_owned(), known }
    }
}

/// Copies for one monitor on their way between switches.
pub(super) struct Carriage<'a> {
    pub(super) to: Found,
    /// The address that they get back there, if they have another one on the way.
    pub(super) rewritten: Option<MacAddr>,
    pub(super) delivery: Delivery,
    pub(super) from: &'a BTreeSet<DatapathId>,
}

impl PolicyEntry {
    /// The policy with its monitors there.
    pub(super) fn tap(&self, cells: Arc<Cells>, aims: Vec<Aim>) -> Tap {
        let name = self.name.clone();
        let (delivery, part) = (Some(self.policy.delivery), self.policy.part());
        let priority = self.policy.priority;
        let is_at_destination = self.policy.awaited_by().is_some();
        let (id, is_wide) = (self.id, false);
        Tap { id, name, priority, aims, delivery, part, is_at_destination, cells, is_wide }
    }

    /// The monitors of which it is known where they are.
    pub(super) fn found(&self) -> impl Iterator<Item = (Slot, Found)> {
        (0..).zip(&self.places).flat_map(|(monitor, places)| {
            let found = places.iter().flat_map(Places::iter);
            found.map(move |(share, found)| (Slot { monitor, share }, found))
        })
    }

    /// How many monitors share flows at most.
    pub(super) fn share_count(&self) -> usize {
        self.places.iter().flatten().map(|places| places.ports().count()).max().unwrap_or(1)
    }

    /// Each port of its monitors.
    pub(super) fn monitor_ports(&self) -> impl Iterator<Item = Place> {
        self.places.iter().flatten().flat_map(Places::ports)
    }

    /// The same by their ports, of several the first.
    pub(super) fn found_places(&self) -> impl Iterator<Item = (Slot, Place)> {
        self.found().map(|(slot, found)| (slot, found.place))
    }

    /// Whether its frames may meet a rule, by the hosts that it names.
    pub(super) fn may_meet(&self, rule: &FlowId) -> bool {
        let has = |own: Option<MacMask>, named: &Masked<MacAddr>| {
            named.mask.is_some() || own.is_none_or(|own| own.contains(named.value))
        };
        let meets = |region: Region| {
            rule.matching().iter().all(|field| match field {
                Oxm::EthSrc(mac) => has(region.src_mac, mac),
                Oxm::EthDst(mac) => has(region.dst_mac, mac),
                _ => true,
            })
        };
        self.cells.included().any(meets)
    }

    /// Whether a frame that a host sends is to be copied.
    pub(super) fn wants(&self, sample: &Sample) -> bool {
        self.rests_until.is_none() && self.cells.holds_where(|region| sample.is_in(region))
    }

    /// How it is doing at one of its switches.
    pub(super) fn note_state(&mut self, at: DatapathId, state: PolicyState) {
        match state {
            PolicyState::Active => _ = self.troubles.remove(&at),
            state => _ = self.troubles.insert(at, state),
        }
    }

    /// How it is doing now: as the worst of the switches.
    pub(super) fn current_state(&self) -> PolicyState {
        if let Some(rest) = &self.rests_until {
            return PolicyState::Resting { reason: rest.to_string() };
        }
        if self.applied.is_empty() {
            let reason = self.places.iter().find_map(|place| place.as_ref().err());
            let unlinked = match self.policy.awaited_by() {
                Some(mac) => format!(
                    "the switch of dst-mac {mac} is not known yet, or not linked to that of its \
                     monitor"
                ),
                None if self.policy.monitor.iter().all(|it| *it == MonitorSpec::Controller) => {
                    MonitorError::NoSwitch { monitor: MonitorSpec::Controller }.to_string()
                }
                None => {
                    "no switch that its senders are at is linked to that of its monitor".to_owned()
                }
            };
            let reason = reason.map_or(unlinked, ToString::to_string);
            return PolicyState::Pending { reason };
        }
        if let Some(reason) = self.untagged() {
            return PolicyState::Pending { reason };
        }
        let failed = |state: &&PolicyState| matches!(state, PolicyState::Failed { .. });
        let failed = self.troubles.values().find(failed);
        let worst = failed.or_else(|| self.troubles.values().next_back());
        worst.cloned().unwrap_or(PolicyState::Active)
    }

    /// The same as people are told it: copies may be made for some of its monitors alone, or not
    /// everywhere.
    pub(super) fn told_state(&self) -> PolicyState {
        let state = self.current_state();
        let missing = self.places.iter().find_map(|place| place.as_ref().err());
        let missing = missing.map(|missing| {
            let (reached, all) = (self.places.iter().flatten().count(), self.places.len());
            format!("{reached} of {all} monitors reached: {missing}")
        });
        let reasons: Vec<_> = missing.into_iter().chain(self.cut_off.clone()).collect();
        match state {
            PolicyState::Active if !reasons.is_empty() => {
                PolicyState::Partial { reason: reasons.join("; ") }
            }
            state => state,
        }
    }

    /// Why it is not applied for want of identifiers, if so.
    pub(super) fn untagged(&self) -> Option<String> {
        let range = self.untagged?;
        Some(format!(
            "copies for its monitor need a VLAN identifier between switches, and all of {range} \
             are in use for other monitors: delete policies, or let more of them have the same \
             monitors"
        ))
    }

    /// What to tell when it is doing so.
    pub(super) fn event(&self, state: &PolicyState) -> Option<Event> {
        let name = self.policy.name.clone();
        Some(match state.clone() {
            PolicyState::Active => Event::PolicyActive { name },
            PolicyState::Pending { reason } => Event::PolicyPending { name, reason },
            PolicyState::Failed { reason } => Event::PolicyFailed { name, reason },
            PolicyState::Resting { reason } => Event::PolicyResting { name, reason },
            PolicyState::Partial { reason } => Event::PolicyPartial { name, reason },
            PolicyState::Installing | PolicyState::Deleted => return None,
        })
    }
}

/// What a policy depends on.
#[derive(Debug, Default)]
struct Concerns {
    /// Switches that its monitors are at.
    switches: BTreeSet<DatapathId>,
    /// Hosts that it names, as senders or as monitors.
    macs: BTreeSet<MacAddr>,
    ips: BTreeSet<IpAddr>,
    /// Its monitors may be at any switch.
    roams: bool,
}

impl Concerns {
    fn of(entry: &PolicyEntry) -> Self {
        let mut concerns = Self::default();
        for monitor in entry.policy.monitor.iter().flat_map(MonitorSpec::members) {
            match monitor {
                MonitorSpec::Port { switch: Some(at), .. }
                | MonitorSpec::Name { switch: Some(at), .. } => _ = concerns.switches.insert(*at),
                MonitorSpec::Port { .. } | MonitorSpec::Name { .. } => concerns.roams = true,
                MonitorSpec::Mac(mac) => {
                    concerns.roams = true;
                    concerns.macs.insert(*mac);
                }
                MonitorSpec::Ip(ip) => {
                    concerns.roams = true;
                    concerns.ips.insert(*ip);
                }
                MonitorSpec::Controller | MonitorSpec::OneOf(_) => {}
            }
        }
        concerns.macs.extend(entry.policy.awaited_by());
        for region in entry.cells.included() {
            match region.sender() {
                Some(Sender::Mac(mac)) => _ = concerns.macs.insert(mac),
                Some(Sender::Ip(ip)) => _ = concerns.ips.insert(ip),
                None => {}
            }
        }
        concerns
    }
}
