//! Policies by number and name, and indices of what affects them.
//!
//! A change inspects only the policies that it affects: with a hundred thousand of them, inspecting
//! all would dominate the cost.

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
    /// Replacements, and the policies to be replaced, which may have ended meanwhile.
    pub(super) heirs: BTreeMap<PolicyId, PolicyId>,
    /// Deleted policies with outstanding last counters.
    pub(super) deletions: Shared<BTreeMap<PolicyId, Deletion>>,
    last_id: u64,
    /// The oldest ones, which are applied wherever their frames could come in.
    everywhere: Shared<BTreeSet<PolicyId>>,
    /// By a switch of their monitors.
    at_switch: Index<DatapathId, PolicyId>,
    /// Policies with monitors that may be anywhere.
    roaming: Forked<PolicyId, ()>,
    /// By a host that they name.
    of_mac: Index<MacAddr, PolicyId>,
    of_ip: Index<IpAddr, PolicyId>,
    /// By sender.
    of_sender: Senders<PolicyId>,
    /// By a switch where they are applied.
    applied: Index<DatapathId, PolicyId>,
    /// Whether any policy has, or had, copies that travel with other addresses.
    pub(super) has_rewritten: bool,
    /// Policies without enough identifiers for copies between switches.
    pub(super) untagged: BTreeSet<PolicyId>,
    /// Policies to be placed again.
    pub(super) dirty: BTreeSet<PolicyId>,
    /// Policies whose states have to be updated.
    pub(super) news: BTreeSet<PolicyId>,
}

/// A policy and its state.
#[derive(Clone, Debug)]
pub(super) struct PolicyEntry {
    pub(super) id: PolicyId,
    /// Its monitors' ports are qualified by switch once they are found.
    pub(super) policy: TapPolicy,
    name: Arc<str>,
    pub(super) cells: Arc<Cells>,
    /// Locations of its monitors, in their order.
    pub(super) places: Vec<Result<Places, MonitorError>>,
    /// Hosts that receive its copies, with their switches.
    pub(super) monitor_hosts: BTreeSet<(DatapathId, HostKey)>,
    /// Switches where it is applied, connected or not.
    pub(super) applied: BTreeSet<DatapathId>,
    /// Whether these are only its senders' switches.
    pub(super) is_narrow: bool,
    /// These, and others that may still copy for it.
    pub(super) counting: BTreeSet<DatapathId>,
    /// These, and others that have copied for it.
    pub(super) known_at: BTreeSet<DatapathId>,
    /// Description of switches that cannot reach a monitor.
    pub(super) cut_off: Option<String>,
    /// A monitor at a disconnected switch.
    pub(super) unwatched: Option<MonitorError>,
    /// A path of its copies is not open yet.
    pub(super) waits: bool,
    /// The identifiers that were exhausted, if it lacks any.
    pub(super) untagged: Option<VidRange>,
    /// States at switches where it is not in force.
    pub(super) troubles: BTreeMap<DatapathId, PolicyState>,
    /// By monitor: identifier and destination of copies between switches.
    pub(super) carried: BTreeMap<Slot, (u16, Found)>,
    /// When it expires.
    pub(super) ends_at: Option<Deadline>,
    /// What its schedule waits for.
    pub(super) rests_until: Option<Rest>,
    /// The state reported last.
    pub(super) state: Option<PolicyState>,
    /// Why it was not, or not completely, proved before it was put in force.
    pub(super) unproved: Option<String>,
}

/// A policy being deleted.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) policy: TapPolicy,
    pub(super) carried: BTreeMap<Slot, (u16, Found)>,
    /// Switches that may still copy for it.
    pub(super) counting: BTreeSet<DatapathId>,
    /// These, and others that have copied for it.
    pub(super) known_at: BTreeSet<DatapathId>,
    /// No switch copies for it any more.
    pub(super) is_drained: bool,
    /// The event that reports its last counts.
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

    /// Whether it exists or is being deleted.
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

    /// Policies whose frames may intersect a region.
    pub(super) fn near(&self, region: &Region) -> impl Iterator<Item = &PolicyEntry> + use<'_> {
        let near: BTreeSet<_> = self.of_sender.near(region).collect();
        near.into_iter().filter_map(|id| self.entries.get(&id))
    }

    /// The same for several regions, each policy once. May return all policies.
    pub(super) fn near_any(
        &self,
        regions: impl Iterator<Item = Region>,
    ) -> impl Iterator<Item = &PolicyEntry> {
        let mut seen = BTreeSet::new();
        let near = self.of_sender.near_any(regions).filter(move |id| seen.insert(*id));
        near.filter_map(|id| self.entries.get(&id))
    }

    /// Policies that match a frame.
    pub(super) fn wanting(&self, sample: &Sample) -> Vec<&PolicyEntry> {
        let sender = sample.sender();
        let near = self.of_sender.near(&sender).filter_map(|id| self.entries.get(&id));
        // Called for each traced frame: only the few that match are sorted.
        let mut wanting: Vec<_> = near.filter(|entry| entry.wants(sample)).collect();
        wanting.sort_unstable_by_key(|entry| entry.id);
        wanting.dedup_by_key(|entry| entry.id);
        wanting
    }

    /// A policy to be added; if it is to replace one, that has the monitors `before`.
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
            unwatched: None,
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

    /// Adds a prepared policy.
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

    /// Removes a policy; its name passes to its replacement, if any. Its resources are released
    /// when it leaves [`Self::deletions`].
    pub(super) fn remove(&mut self, id: PolicyId) -> Option<PolicyEntry> {
        let entry = self.take(id)?;
        self.heirs.remove(&id);
        match self.heirs.iter().find(|(_, old)| **old == id) {
            Some((heir, _)) => self.by_name.insert(entry.name.clone(), *heir),
            None => self.by_name.remove(&entry.name),
        };
        Some(entry)
    }

    /// Adds a prepared policy as a replacement; until it takes over it has no name.
    pub(super) fn insert_heir(&mut self, heir: PolicyEntry, of: PolicyId) {
        let (id, name) = (heir.id, heir.name.clone());
        self.insert(heir);
        self.by_name.insert(name, of);
        self.heirs.insert(id, of);
    }

    /// The policy that this one is to replace, if it still exists.
    pub(super) fn heir_of(&self, id: PolicyId) -> Option<PolicyId> {
        self.heirs.get(&id).copied().filter(|old| self.entries.contains_key(old))
    }

    /// Whether a policy is a replacement that has not taken over.
    pub(super) fn is_heir(&self, id: PolicyId) -> bool {
        self.heir_of(id).is_some()
    }

    /// The replacement of the policy with this name, if any, else the policy itself.
    pub(super) fn latest_mut(&mut self, name: &str) -> Option<&mut PolicyEntry> {
        let id = *self.by_name.get(name)?;
        let heir = self.heirs.iter().find(|(_, old)| **old == id).map(|(heir, _)| *heir);
        self.entries.get_mut(&heir.unwrap_or(id))
    }

    /// The replacement takes over. Returns the replaced policy, unless it has ended meanwhile.
    pub(super) fn inherit(&mut self, heir: PolicyId) -> Option<PolicyEntry> {
        let old = self.heirs.remove(&heir)?;
        let name = self.entries.get(&heir)?.name.clone();
        self.by_name.insert(name, heir);
        self.take(old)
    }

    /// Cancels the replacement of a policy and returns it.
    pub(super) fn disinherit(&mut self, of: PolicyId) -> Option<PolicyEntry> {
        let heir = self.heirs.iter().find(|(_, old)| **old == of).map(|(heir, _)| *heir)?;
        match self.is_heir(heir) {
            true => {
                self.heirs.remove(&heir);
                self.take(heir)
            }
            // It has the name already.
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

    /// Sets the number of oldest policies that are applied wherever their frames could come in.
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

    /// Whether it is applied wherever its frames could come in.
    pub(super) fn is_everywhere(&self, id: PolicyId) -> bool {
        self.everywhere.contains(&id)
    }

    /// Ports of a switch changed: monitors may have appeared or gone.
    pub(super) fn touch_at(&mut self, switch: DatapathId) {
        self.dirty.extend(self.at_switch.get(&switch).into_iter().flatten());
        self.dirty.extend(self.roaming.keys());
    }

    /// A host was added, removed or moved.
    pub(super) fn touch_mac(&mut self, mac: MacAddr) {
        self.dirty.extend(self.of_mac.get(&mac).into_iter().flatten());
    }

    /// A host got or lost this address.
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

    /// Switches named by monitors.
    pub(super) fn monitor_switches(&self) -> impl Iterator<Item = DatapathId> {
        self.at_switch.keys().copied()
    }

    /// Policies applied at a switch.
    pub(super) fn applied_at(&self, switch: DatapathId) -> impl Iterator<Item = PolicyId> {
        self.applied.get(&switch).into_iter().flatten().copied()
    }

    /// Sets the switches where a policy is applied. Returns those where it no longer is.
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

    /// Nothing counts for a policy at a switch any more. Returns the identifiers of its copies to
    /// other switches.
    pub(super) fn stop_counting(&mut self, id: PolicyId, at: DatapathId) -> Vec<u16> {
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        match !entry.applied.contains(&at) && entry.counting.remove(&at) {
            true => entry.carried.values().map(|(tag, _)| *tag).collect(),
            false => Vec::new(),
        }
    }

    /// How copies of a policy, current or being deleted, are carried: destination, contract, and
    /// the switches that make them.
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

/// Copies for one monitor in transit.
pub(super) struct Carriage<'a> {
    pub(super) to: Found,
    /// The destination address restored there, if they travel with another one.
    pub(super) rewritten: Option<MacAddr>,
    pub(super) delivery: Delivery,
    pub(super) from: &'a BTreeSet<DatapathId>,
}

impl PolicyEntry {
    /// The policy for a switch, with these exits.
    pub(super) fn tap(&self, cells: Arc<Cells>, aims: Vec<Aim>) -> Tap {
        let name = self.name.clone();
        let (delivery, part) = (Some(self.policy.delivery), self.policy.part());
        let priority = self.policy.priority;
        let is_at_destination = self.policy.awaited_by().is_some();
        let (id, is_wide) = (self.id, false);
        Tap { id, name, priority, aims, delivery, part, is_at_destination, cells, is_wide }
    }

    /// Monitors with a known location.
    pub(super) fn found(&self) -> impl Iterator<Item = (Slot, Found)> {
        (0..).zip(&self.places).flat_map(|(monitor, places)| {
            let found = places.iter().flat_map(Places::iter);
            found.map(move |(share, found)| (Slot { monitor, share }, found))
        })
    }

    /// Maximum number of monitors that share flows.
    pub(super) fn share_count(&self) -> usize {
        self.places.iter().flatten().map(|places| places.ports().count()).max().unwrap_or(1)
    }

    /// All ports of its monitors.
    pub(super) fn monitor_ports(&self) -> impl Iterator<Item = Place> {
        self.places.iter().flatten().flat_map(Places::ports)
    }

    /// Ports of its monitors; of several that share flows, the first.
    pub(super) fn found_places(&self) -> impl Iterator<Item = (Slot, Place)> {
        self.found().map(|(slot, found)| (slot, found.place))
    }

    /// Whether its frames may hit a rule, judged by the hosts that both name.
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

    /// Whether a frame from a host is to be copied.
    pub(super) fn wants(&self, sample: &Sample) -> bool {
        self.rests_until.is_none() && self.cells.holds_where(|region| sample.is_in(region))
    }

    /// Records its state at a switch.
    pub(super) fn note_state(&mut self, at: DatapathId, state: PolicyState) {
        match state {
            PolicyState::Active => _ = self.troubles.remove(&at),
            state => _ = self.troubles.insert(at, state),
        }
    }

    /// Its current state: the worst of all switches.
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
        let any = |is_it: fn(&&PolicyState) -> bool| self.troubles.values().find(is_it);
        let worst = any(|state| matches!(state, PolicyState::Failed { .. }))
            .or_else(|| any(|state| **state == PolicyState::Installing))
            .or_else(|| any(|_| true));
        worst.cloned().unwrap_or(PolicyState::Active)
    }

    /// The state as reported: copies may be made only for some monitors, or not everywhere.
    pub(super) fn told_state(&self) -> PolicyState {
        let state = self.current_state();
        let missing = self.places.iter().find_map(|place| place.as_ref().err());
        let missing = missing.map(|missing| {
            let (reached, all) = (self.places.iter().flatten().count(), self.places.len());
            format!("{reached} of {all} monitors reached: {missing}")
        });
        let unwatched = self.unwatched.as_ref().map(ToString::to_string);
        let reasons = missing.into_iter().chain(unwatched).chain(self.cut_off.clone());
        let reasons: Vec<_> = reasons.collect();
        match state {
            PolicyState::Active if !reasons.is_empty() => {
                PolicyState::Partial { reason: reasons.join("; ") }
            }
            state => state,
        }
    }

    /// Why it is not applied, if it lacks identifiers.
    pub(super) fn untagged(&self) -> Option<String> {
        let range = self.untagged?;
        Some(format!(
            "copies for its monitor need a VLAN identifier between switches, and all of {range} \
             are in use for other monitors: delete policies, or let more of them have the same \
             monitors"
        ))
    }

    /// The event for this state.
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

/// Dependencies of a policy.
#[derive(Debug, Default)]
struct Concerns {
    /// Switches of its monitors.
    switches: BTreeSet<DatapathId>,
    /// Hosts that it names as senders or monitors.
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
