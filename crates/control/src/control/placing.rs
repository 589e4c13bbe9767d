//! Where policies are applied: on each switch from which their monitors can be reached, with copies
//! tagged on their way through others.
//!
//! **Only what changed.** A policy is placed anew when it came, when its monitors, its senders or
//! the links may be elsewhere, and when a way that it waits for was opened; a switch that comes
//! back is told what is wanted there.
//!
//! **Two phases.** Copies are made only when every switch on their way confirmed that it carries
//! them, and are carried until every switch that made them told its last counters. So no frame is
//! half-tapped while policies, links and monitors come and go.
//!
//! **Everywhere, or where the senders are.** Whoever sends, from wherever: a policy is applied at
//! all switches where such a frame could come in. A rule at each of a thousand switches for each of
//! a hundred thousand policies is more than switches hold; so beyond [`Limits::max_places`], and in
//! a fabric of hundreds of switches, one whose senders are all known hosts is applied where those
//! are, to what they send, and follows them.
//!
//! [`Limits::max_places`]: crate::Limits::max_places

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tapswitch_openflow::DatapathId;
use tapswitch_wire::MacAddr;

use super::Control;
use super::roster::{Carriage, PolicyEntry};
use crate::exit::Exit;
use crate::group::Carry;
use crate::hosts::{HostKey, Hosts};
use crate::overlap::{Aim, PolicyId, Slot, Tap};
use crate::place::Place;
use crate::region::{Cells, Region, Sender};
use crate::resolve::{Found, Places, hosts_of, list, resolve, settled};
use crate::routes::Routes;
use crate::shared::Forked;
use crate::switch::Switch;
use crate::tags::{End, Use};
use crate::text::switch_name;
use crate::{Event, PolicyState};

impl Control {
    /// Looks up where monitors and senders of policies are that something concerned, and tells the
    /// switches what is wanted there.
    pub(super) fn place_policies(&mut self) {
        let switches = self.switches.len();
        let count = self.limits.max_places / switches.max(1);
        self.policies.spread(if switches > MAX_SPREAD { 0 } else { count });
        let dirty = std::mem::take(&mut self.policies.dirty);
        for id in &dirty {
            self.find_places(*id);
        }
        self.place_carries();
        for id in &dirty {
            self.tell_all(*id);
        }
        for switch in std::mem::take(&mut self.shaken) {
            self.tell_anew(switch);
        }
        self.policies.news.extend(dirty);
    }

    /// Links came or went: copies of some policies go another way than before, or come from other
    /// switches, or their way leads through one of those that went or came back.
    pub(super) fn touch_moved(&mut self, before: &Routes, turned: &BTreeSet<DatapathId>) {
        let reaches_as_before = self.copy_routes.reaches_as(before);
        let leads_as_before = |entry: &PolicyEntry| {
            entry.is_narrow
                && entry.found_places().all(|(_, to)| {
                    entry.counting.iter().all(|from| self.copy_routes.leads_as(before, *from, to))
                })
        };
        let is_moved = |entry: &&PolicyEntry| {
            !leads_as_before(entry)
                || self.passes(entry, turned)
                || !reaches_as_before && self.where_applied(entry).0 != entry.applied
        };
        let moved = self.policies.iter().filter(is_moved);
        let moved: Vec<_> = moved.map(|entry| entry.id).collect();
        self.policies.dirty.extend(moved);
    }

    /// Looks up where a policy's monitors are, and where it is applied.
    fn find_places(&mut self, id: PolicyId) {
        let Some(entry) = self.policies.get(id) else { return };
        let monitors = settled(&entry.policy.monitor, None, &self.switches);
        let places = monitors.iter().zip(&entry.places).map(|(monitor, before)| {
            let before: Vec<_> = before.iter().flat_map(Places::ports).collect();
            resolve(monitor, &before, &self.switches)
        });
        let places: Vec<_> = places.collect();
        let mut hosts = BTreeSet::new();
        for (monitor, found) in monitors.iter().zip(&places) {
            for (share, found) in found.iter().flat_map(Places::iter) {
                let Some(at) = self.switches.get(&found.place.switch) else { continue };
                let keys = hosts_of(monitor.sharing(share), found, at).into_iter();
                hosts.extend(keys.map(|key| (at.id(), key)));
            }
        }
        // So is the host at whose switch copies are made.
        let awaited = entry.policy.awaited_by();
        hosts.extend(awaited.into_iter().flat_map(|mac| self.first_with_mac(mac)));
        let relocations = self.relocations(entry, &monitors, &places);
        self.events.extend(relocations);
        let Some(entry) = self.policies.get_mut(id) else { return };
        entry.places = places;
        if entry.policy.monitor != monitors {
            entry.policy.monitor = monitors;
            self.events.push_back(Event::PolicyPinned(Box::new(entry.policy.clone())));
        }
        let before = std::mem::replace(&mut entry.monitor_hosts, hosts.clone());
        self.watch_hosts(&before, &hosts);
        let Some(entry) = self.policies.get(id) else { return };
        let (applied, is_narrow) = self.where_applied(entry);
        let cut_off = self.fabric.as_ref().and_then(|_| self.cut_off(entry));
        let gone = self.policies.set_applied(id, applied);
        gone.into_iter().for_each(|at| self.want(at, id, None));
        if let Some(entry) = self.policies.get_mut(id) {
            (entry.is_narrow, entry.cut_off) = (is_narrow, cut_off);
        }
        self.assign_tags(id);
    }

    /// The switches where a policy is applied, and whether those are only the ones that its senders
    /// are at.
    pub(super) fn where_applied(&self, entry: &PolicyEntry) -> (BTreeSet<DatapathId>, bool) {
        let places: Vec<_> = entry.found_places().map(|(_, place)| place).collect();
        let reaches = |from: &DatapathId| {
            places.iter().any(|place| self.copy_routes.exit(*from, *place).is_some())
        };
        if let Some(mac) = entry.policy.awaited_by() {
            return (self.with_mac(mac).filter(reaches).collect(), false);
        }
        let senders = match self.policies.is_everywhere(entry.id) {
            true => None,
            false => self.senders(entry),
        };
        if let Some(senders) = senders {
            return (senders.into_iter().filter(reaches).collect(), true);
        }
        if places.contains(&Place::CONTROLLER) {
            return (self.switches.keys().copied().collect(), false);
        }
        let from =
            places.into_iter().flat_map(|to| self.copy_routes.sources(to).chain([to.switch]));
        (from.collect(), false)
    }

    /// Which switches are not linked to a monitor of a policy though its frames may come in there,
    /// and what that means; none if there are none.
    pub(super) fn cut_off(&self, entry: &PolicyEntry) -> Option<String> {
        let is_there = |id: &DatapathId| {
            self.switches.get(id).is_some_and(|switch| switch.is_up() && !switch.is_held())
        };
        let inlets: Vec<_> = self.inlets(entry).into_iter().filter(is_there).collect();
        let apart = entry.found_places().find_map(|(_, to)| {
            let apart = inlets.iter().filter(|from| self.copy_routes.exit(**from, to).is_none());
            let apart: Vec<_> = apart.map(|from| switch_name(*from)).collect();
            (!apart.is_empty()).then(|| {
                format!(
                    "frames that come in at {} are not copied to monitor {to}: there is no path of \
                     links to it; look for a missing or broken link (show links)",
                    list(apart.iter())
                )
            })
        });
        let stopped = apart.or_else(|| self.stopped(entry, &inlets));
        stopped.or_else(|| self.unwatched(entry, &inlets))
    }

    /// Whether copies of a policy pass one of these switches on their way.
    fn passes(&self, entry: &PolicyEntry, switches: &BTreeSet<DatapathId>) -> bool {
        !switches.is_empty()
            && entry.found_places().any(|(_, to)| {
                let mut from = entry.applied.iter();
                from.any(|from| self.copy_routes.behind(*from, to).any(|at| switches.contains(&at)))
            })
    }

    /// Where copies of a policy have no way but through a switch that is not connected: whether
    /// they arrive nobody knows. None if there is no such place.
    fn unwatched(&self, entry: &PolicyEntry, inlets: &[DatapathId]) -> Option<String> {
        if self.away.is_empty() {
            return None;
        }
        entry.found_places().find_map(|(_, to)| {
            let away = |from: &DatapathId| {
                self.copy_routes.behind(*from, to).find(|at| self.away.contains(at))
            };
            let (from, through) = inlets.iter().find_map(|from| Some((*from, away(from)?)))?;
            Some(format!(
                "copies from {} for monitor {to} can only go through switch {}, which is not \
                 connected, so it is unknown whether they arrive; find out why it does not \
                 connect, or add a link around it",
                switch_name(from),
                switch_name(through)
            ))
        })
    }

    /// The switches where frames of a policy may come to be copied, connected or not.
    pub(super) fn inlets(&self, entry: &PolicyEntry) -> BTreeSet<DatapathId> {
        match (entry.policy.awaited_by(), self.senders(entry)) {
            (Some(mac), _) => self.with_mac(mac).collect(),
            (None, Some(senders)) => senders,
            (None, None) => self.switches.keys().copied().collect(),
        }
    }

    /// Where copies of a policy that have S-tags on their way cannot leave by a link, and what to
    /// do about it; none if there is no such place.
    fn stopped(&self, entry: &PolicyEntry, inlets: &[DatapathId]) -> Option<String> {
        if self.untagged_ends.is_empty() || entry.policy.rewritten().is_some() {
            return None;
        }
        entry.found_places().find_map(|(_, to)| {
            let ways = inlets.iter().flat_map(|from| self.copy_routes.path(*from, to));
            let end = ways.into_iter().find(|place| self.untagged_ends.contains(place))?;
            Some(format!(
                "copies for monitor {to} cannot pass port {end}: between switches they have \
                 S-tags, which its VLAN mode does not accept; give both ends of the link \
                 mode=provider or no mode, or the policy --transport rewrite with a --dst-mac"
            ))
        })
    }

    /// The switches that all senders of a policy's frames are at, if all are known hosts.
    fn senders(&self, entry: &PolicyEntry) -> Option<BTreeSet<DatapathId>> {
        self.fabric.as_ref()?;
        let mut senders = BTreeSet::new();
        for region in entry.cells.included() {
            let at: Vec<_> = match region.sender()? {
                Sender::Mac(mac) => self.located.with_mac(mac).collect(),
                Sender::Ip(ip) => self.with_address(ip).collect(),
            };
            if at.is_empty() {
                return None;
            }
            senders.extend(at);
        }
        Some(senders)
    }

    /// What a policy copies at a switch: where it is applied only where its senders are, what those
    /// send that are there.
    pub(super) fn cells_at(
        &self,
        (entry, is_narrow): (&PolicyEntry, bool),
        at: DatapathId,
    ) -> Arc<Cells> {
        let is_here = |region: &Region| match region.sender() {
            Some(Sender::Mac(mac)) => self.located.with_mac(mac).any(|switch| switch == at),
            Some(Sender::Ip(ip)) => self.switches.get(&at).is_some_and(|switch| {
                let mut hosts = switch.hosts.with_address(ip);
                hosts.next().is_some()
            }),
            None => true,
        };
        let cells = &entry.cells;
        if !is_narrow || !cells.is_plain() || cells.included().all(|region| is_here(&region)) {
            return cells.clone();
        }
        cells.only(is_here).into()
    }

    /// The switches that a host with this address is at.
    fn with_mac(&self, mac: MacAddr) -> impl Iterator<Item = DatapathId> {
        self.having(move |hosts| hosts.with_mac(mac).next().is_some())
    }

    /// One host with this address of each of them.
    fn first_with_mac(&self, mac: MacAddr) -> impl Iterator<Item = (DatapathId, HostKey)> {
        let first = move |switch: &Switch| Some(switch.hosts.with_mac(mac).next()?.0);
        self.switches.iter().filter_map(move |(at, switch)| Some((*at, first(switch)?)))
    }

    /// The switches that hosts with this address are at.
    fn with_address(&self, ip: IpAddr) -> impl Iterator<Item = DatapathId> {
        self.having(move |hosts| hosts.with_address(ip).next().is_some())
    }

    /// The switches that have such hosts.
    fn having(&self, has_it: impl Fn(&Hosts) -> bool) -> impl Iterator<Item = DatapathId> {
        let switches = self.switches.iter().filter(move |(_, switch)| has_it(&switch.hosts));
        switches.map(|(id, _)| *id)
    }

    /// Gives copies that go between switches their identifiers.
    fn assign_tags(&mut self, id: PolicyId) {
        // One monitor at each switch is what may be expected.
        let (range, end_count) = (self.limits.copy_vids, self.switches.len());
        let Some(entry) = self.policies.get_mut(id) else { return };
        entry.untagged = None;
        for (slot, found) in entry.found().collect::<Vec<_>>() {
            let (user, place) = ((id, slot), found.place);
            let goes_far = place != Place::CONTROLLER
                && entry.applied.iter().any(|from| *from != place.switch);
            let tag = match goes_far {
                true => {
                    let end = End { place, rewritten: entry.policy.rewritten() };
                    self.tags.assign(user, &entry.policy.name, (end, (range, end_count)))
                }
                false => self.tags.find(user),
            };
            entry.untagged = entry.untagged.or((goes_far && tag.is_none()).then_some(range));
            if let Some(tag) = tag {
                match entry.carried.insert(slot, (tag, found)) {
                    None => self.joined_tags.entry(tag).or_default().push(user),
                    Some((before, _)) => self.unsettled_tags.extend([before, tag]),
                }
            }
        }
        if entry.untagged.is_some() {
            self.policies.untagged.insert(id);
        }
    }

    /// Tells the switches which copies of others they carry, as far as that changed.
    fn place_carries(&mut self) {
        for (tag, users) in std::mem::take(&mut self.joined_tags) {
            if self.unsettled_tags.contains(&tag) || !self.place_joined(tag, &users) {
                self.unsettled_tags.insert(tag);
            }
        }
        for tag in std::mem::take(&mut self.unsettled_tags) {
            self.place_carry(tag);
        }
    }

    /// The same where copies of more policies have an identifier, and nothing else is new about it.
    /// There may be a hundred others that have it, which are not looked at. Returns false, and has
    /// done nothing, if they are to be.
    fn place_joined(&mut self, tag: u16, users: &[Use]) -> bool {
        let mut now = self.carriers(tag, users.iter().copied());
        if let Some(known) = self.carriers.get(&tag) {
            if now.iter().any(|(at, new)| known.get(at).is_some_and(|old| old.exit != new.exit)) {
                return false;
            }
            now.retain(|at, carry| {
                known.get(at).is_none_or(|old| {
                    carry.delivery = old.stronger(carry);
                    carry != old
                })
            });
        }
        if !now.is_empty() {
            let changes = now.iter().map(|(at, carry)| (*at, Some(*carry))).collect();
            self.carriers.get_or_insert_with(tag, BTreeMap::new).extend(now);
            self.tell_carries(tag, changes);
        }
        true
    }

    fn place_carry(&mut self, tag: u16) {
        let mut now = self.carriers(tag, self.tags.users(tag));
        let before = self.carriers.remove(&tag).unwrap_or_default();
        if before.keys().all(|at| now.contains_key(at)) || self.is_left(tag) {
            self.lingering.remove(&tag);
        } else {
            // Copies still go the way that they went before.
            before.iter().for_each(|(at, carry)| _ = now.entry(*at).or_insert(*carry));
            self.lingering.insert(tag);
        }
        let gone = before.keys().filter(|at| !now.contains_key(at)).map(|at| (*at, None));
        let new = now.iter().filter(|(at, carry)| before.get(at) != Some(carry));
        let changes = gone.chain(new.map(|(at, carry)| (*at, Some(*carry)))).collect();
        if !now.is_empty() {
            self.carriers.insert(tag, now);
        }
        self.tell_carries(tag, changes);
    }

    fn tell_carries(&mut self, tag: u16, changes: Vec<(DatapathId, Option<Carry>)>) {
        for (at, carry) in changes {
            if let Some(switch) = self.switches.get_mut(&at).filter(|switch| switch.is_up()) {
                switch.set_carry(tag, carry);
                self.touched.insert(at);
            }
        }
    }

    /// The switches that carry copies with this identifier of these users, and where to.
    fn carriers(&self, tag: u16, users: impl Iterator<Item = Use>) -> BTreeMap<DatapathId, Carry> {
        let mut carriers: BTreeMap<DatapathId, Carry> = BTreeMap::new();
        for (id, slot) in users {
            let Some(carriage) = self.policies.carriage(id, slot) else { continue };
            let Carriage { to, rewritten, delivery, from } = carriage;
            for from in from {
                for at in self.copy_routes.behind(*from, to.place) {
                    let Some(exit) = self.exit(at, to) else { continue };
                    let carry = Carry { tag, exit, rewritten, delivery: Some(delivery) };
                    let kept = carriers.entry(at).or_insert(carry);
                    kept.delivery = kept.stronger(&carry);
                }
            }
        }
        carriers
    }

    /// Whether all switches that make copies with this identifier send them the way that they shall
    /// go, and have confirmed that.
    fn is_left(&self, tag: u16) -> bool {
        self.tags.users(tag).all(|(id, slot)| {
            let Some(Carriage { to, from, .. }) = self.policies.carriage(id, slot) else {
                return true;
            };
            from.iter().all(|at| {
                let switch = self.switches.get(at).filter(|switch| switch.is_up());
                let exit = self.exit(*at, to);
                switch.is_none_or(|switch| !switch.sends_otherwise((id, slot), exit))
            })
        })
    }

    /// Tells all switches where a policy is applied.
    fn tell_all(&mut self, id: PolicyId) {
        let Some(entry) = self.policies.get_mut(id) else { return };
        entry.waits = false;
        let applied: Vec<_> = entry.applied.iter().copied().collect();
        applied.into_iter().for_each(|at| self.tell(id, at));
    }

    /// Tells a switch what is wanted there: it came back, or its ports changed.
    fn tell_anew(&mut self, at: DatapathId) {
        let Some(switch) = self.switches.get_mut(&at) else { return };
        let applied: BTreeSet<_> = self.policies.applied_at(at).collect();
        if switch.is_up() {
            let carried = self.carriers.iter();
            let carried =
                carried.filter_map(|(tag, at_switches)| Some((*tag, *at_switches.get(&at)?)));
            switch.set_carries(&carried.collect());
            switch.set_monitors(self.monitor_hosts.at(at));
            let unwanted: Vec<_> =
                switch.wanted().filter(|policy| !applied.contains(policy)).collect();
            unwanted.into_iter().for_each(|policy| self.want(at, policy, None));
            self.touched.insert(at);
        }
        applied.into_iter().for_each(|id| self.tell(id, at));
    }

    /// Tells one switch what is wanted of a policy there.
    fn tell(&mut self, id: PolicyId, at: DatapathId) {
        let Some(entry) = self.policies.get(id) else { return };
        let Some(switch) = self.switches.get(&at).filter(|switch| switch.is_up()) else {
            if let Some(entry) = self.policies.get_mut(id) {
                entry.troubles.remove(&at);
                self.policies.news.insert(id);
            }
            return;
        };
        let (aims, waits) = match entry.rests_until {
            Some(_) => (Vec::new(), false),
            None => self.aims(entry, at, switch),
        };
        let cells = self.cells_at((entry, entry.is_narrow), at);
        let tap = (!aims.is_empty()).then(|| entry.tap(cells, aims));
        self.want(at, id, tap);
        if let Some(entry) = self.policies.get_mut(id) {
            entry.waits |= waits;
            self.note_state(id, at);
        }
    }

    /// A switch shall apply a policy so, or not at all.
    pub(super) fn want(&mut self, at: DatapathId, id: PolicyId, tap: Option<Tap>) {
        let switch = self.switches.get_mut(&at).filter(|switch| switch.is_up());
        if switch.is_some_and(|switch| switch.want(id, tap)) {
            self.touched.insert(at);
        }
    }

    /// Looks up how a policy is doing at a switch.
    pub(super) fn note_state(&mut self, id: PolicyId, at: DatapathId) {
        let Some(entry) = self.policies.get(id) else { return };
        let Some(switch) = self.switches.get(&at) else { return };
        if !entry.applied.contains(&at) || !switch.is_up() {
            return;
        }
        let state = match switch.tap_state(id) {
            PolicyState::Installing if entry.waits => self
                .refusal(entry, at)
                .map_or(PolicyState::Installing, |reason| PolicyState::Failed { reason }),
            state => state,
        };
        if let Some(entry) = self.policies.get_mut(id) {
            entry.note_state(at, state);
            self.policies.news.insert(id);
        }
    }

    /// Why copies of a policy that a switch makes are not carried, if another one refused.
    fn refusal(&self, entry: &PolicyEntry, from: DatapathId) -> Option<String> {
        entry.found_places().find_map(|(slot, to)| {
            let tag = self.tags.find((entry.id, slot))?;
            let mut behind = self.copy_routes.behind(from, to);
            behind.find_map(|id| self.switches.get(&id)?.carry_refusal(tag))
        })
    }

    /// Where a switch sends the copies of a policy, and whether a way is not open yet. At first
    /// none of them goes out as long as that is so; later a new way is taken when it is open.
    fn aims(&self, entry: &PolicyEntry, id: DatapathId, switch: &Switch) -> (Vec<Aim>, bool) {
        let (mut aims, mut waits) = (Vec::new(), false);
        for (slot, found) in entry.found() {
            if let Some(aim) = self.aim((entry, slot), found, id) {
                aims.push(aim);
                continue;
            }
            let place = found.place;
            let is_reached = self.copy_routes.exit(id, place).is_some();
            waits |= is_reached;
            match switch.aim_before(entry.id, slot) {
                Some(before) if before.exit.end(id) == place => aims.push(before),
                _ if is_reached && !switch.applies(entry.id) => return (Vec::new(), true),
                _ => {}
            }
        }
        (aims, waits)
    }

    /// Copies with this identifier can go their way now.
    pub(super) fn touch_waiting(&mut self, tag: u16) {
        for (id, _) in self.tags.users(tag) {
            let waits = self.policies.get(id).is_some_and(|entry| entry.waits);
            self.policies.dirty.extend(waits.then_some(id));
        }
    }

    /// Where a switch sends copies for a monitor, if the way is open.
    fn aim(&self, (entry, slot): (&PolicyEntry, Slot), to: Found, from: DatapathId) -> Option<Aim> {
        let exit = self.exit(from, to)?;
        let is_sink = to.places().into_iter().all(|place| self.is_sink(place));
        if exit.beyond.is_none() {
            return Some(Aim { slot, exit, tag: 0, is_sink });
        }
        let tag = self.tags.find((entry.id, slot))?;
        let mut behind = self.copy_routes.behind(from, to.place);
        let is_carrying = |id: DatapathId| {
            let switch = self.switches.get(&id).zip(self.exit(id, to));
            // One that is not connected carried it before, or it is not told now.
            switch.is_some_and(|(switch, exit)| switch.is_carrying(tag, exit))
        };
        behind.all(is_carrying).then_some(Aim { slot, exit, tag, is_sink })
    }

    /// Whether nothing but copies goes there.
    pub(super) fn is_sink(&self, place: Place) -> bool {
        let at = self.switches.get(&place.switch);
        place == Place::CONTROLLER || at.is_some_and(|switch| switch.ports.is_sink(place.port))
    }

    /// The way from a switch to a monitor, of that switch or of another one.
    fn exit(&self, from: DatapathId, to: Found) -> Option<Exit> {
        Some(self.copy_routes.exit(from, to.place)?.spread(to.spread))
    }

    /// Other hosts get a policy's copies than before: they are not forgotten however silent.
    pub(super) fn watch_hosts(
        &mut self,
        before: &BTreeSet<(DatapathId, HostKey)>,
        now: &BTreeSet<(DatapathId, HostKey)>,
    ) {
        for switch in self.monitor_hosts.change(before, now) {
            if let Some(at) = self.switches.get_mut(&switch).filter(|at| at.is_up()) {
                at.set_monitors(self.monitor_hosts.at(switch));
                self.touched.insert(switch);
            }
        }
    }

    /// Frees what a deleted policy used. Called when nothing counts for it any more.
    pub(super) fn release_tags(&mut self, policy: PolicyId) {
        for tag in self.tags.release(policy) {
            self.carriers.remove(&tag);
            let carried = self.switches.iter().filter(|(_, switch)| switch.ledger.has_carried(tag));
            for at in carried.map(|(at, _)| *at).collect::<Vec<_>>() {
                if let Some(switch) = self.switches.get_mut(&at) {
                    switch.ledger.forget_carried(tag);
                }
            }
            self.policies.dirty.append(&mut self.policies.untagged);
        }
    }
}

/// The hosts that get copies, and for how many policies.
#[derive(Clone, Debug, Default)]
pub(super) struct MonitorHosts(Forked<(DatapathId, HostKey), usize>);

impl MonitorHosts {
    /// Those of one switch.
    fn at(&self, switch: DatapathId) -> BTreeSet<HostKey> {
        let first = HostKey { mac: MacAddr::ZERO, vlan: None };
        let last = HostKey { mac: MacAddr::BROADCAST, vlan: Some(u16::MAX) };
        self.0.range((switch, first)..=(switch, last)).map(|((_, key), _)| *key).collect()
    }

    /// One policy has others. Returns the switches where that is a change.
    fn change(
        &mut self,
        before: &BTreeSet<(DatapathId, HostKey)>,
        now: &BTreeSet<(DatapathId, HostKey)>,
    ) -> BTreeSet<DatapathId> {
        let mut changed = BTreeSet::new();
        for host in now.difference(before) {
            let count = self.0.get_or_insert_with(*host, || 0);
            *count += 1;
            changed.extend((*count == 1).then_some(host.0));
        }
        for host in before.difference(now) {
            let Some(count) = self.0.get_mut(host) else { continue };
            *count -= 1;
            if *count == 0 {
                self.0.remove(host);
                changed.insert(host.0);
            }
        }
        changed
    }
}

/// Switches beyond which no policy is applied everywhere whose senders are known: one costs as much
/// as another then, and little.
const MAX_SPREAD: usize = 200;
