//! Placement of policies: they are applied on each switch that can reach their monitors; copies are
//! tagged in transit through other switches.
//!
//! **Only what changed.** A policy is placed again when it is added, when its monitors, its senders
//! or the links may have changed, and when a path that it waits for was opened; a switch that
//! reconnects gets its current policies.
//!
//! **Two phases.** Copying starts when every switch on the path has confirmed that it carries the
//! copies, and they are carried until every copying switch has reported its last counters. So no
//! frame is partly tapped while policies, links and monitors change.
//!
//! **Everywhere, or at the senders.** In general a policy is applied at all switches where its
//! frames could come in. A rule at each of a thousand switches for each of a hundred thousand
//! policies exceeds what switches hold; so beyond [`Limits::max_places`], and always in fabrics of
//! hundreds of switches, a policy whose senders are all known hosts is applied at their switches
//! only, to their frames, and follows them.
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
use crate::resolve::{Found, Places, hosts_of, list, resolve, settled, unwatched};
use crate::routes::Routes;
use crate::shared::Forked;
use crate::switch::Switch;
use crate::tags::{End, Use};
use crate::text::switch_name;
use crate::{Event, PolicyState};

impl Control {
    /// Locates monitors and senders of changed policies, and updates the policies of switches.
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

    /// Links changed: marks policies whose copies take another path, come from other switches, or
    /// pass a switch that was lost or came back.
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

    /// Locates a policy's monitors, and decides where it is applied.
    fn find_places(&mut self, id: PolicyId) {
        let Some(entry) = self.policies.get(id) else { return };
        let monitors = settled(&entry.policy.monitor, None, &self.switches);
        let places = monitors.iter().zip(&entry.places).map(|(monitor, before)| {
            let before: Vec<_> = before.iter().flat_map(Places::ports).collect();
            resolve(monitor, &before, &self.switches)
        });
        let places: Vec<_> = places.collect();
        let unwatched = monitors
            .iter()
            .zip(&places)
            .find_map(|(monitor, found)| unwatched(monitor, found.as_ref().ok()?, &self.switches));
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
        (entry.places, entry.unwatched) = (places, unwatched);
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

    /// The switches where a policy is applied, and whether these are only its senders' switches.
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

    /// Describes switches that cannot reach a monitor of a policy although its frames may come in
    /// there; `None` if there are none.
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

    /// Whether copies of a policy pass one of these switches.
    fn passes(&self, entry: &PolicyEntry, switches: &BTreeSet<DatapathId>) -> bool {
        !switches.is_empty()
            && entry.found_places().any(|(_, to)| {
                let mut from = entry.applied.iter();
                from.any(|from| self.copy_routes.behind(*from, to).any(|at| switches.contains(&at)))
            })
    }

    /// Describes where a policy's copies have no path except through a disconnected switch, so that
    /// nobody knows whether they arrive; `None` if there is no such place.
    fn unwatched(&self, entry: &PolicyEntry, inlets: &[DatapathId]) -> Option<String> {
        if entry.unwatched.is_some() {
            // It says the same of the last switch.
            return None;
        }
        let only = self.only_through(entry, inlets)?;
        Some(format!("{only}, so it is unknown whether they arrive; {REPAIR_PATH}"))
    }

    /// Describes a disconnected switch on the only path of a policy's copies from one of these
    /// switches; `None` if there is none.
    fn only_through(&self, entry: &PolicyEntry, inlets: &[DatapathId]) -> Option<String> {
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
                 connected",
                switch_name(from),
                switch_name(through)
            ))
        })
    }

    /// Switches where frames of a policy may come in and be copied, connected or not.
    pub(super) fn inlets(&self, entry: &PolicyEntry) -> BTreeSet<DatapathId> {
        match (entry.policy.awaited_by(), self.senders(entry)) {
            (Some(mac), _) => self.with_mac(mac).collect(),
            (None, Some(senders)) => senders,
            (None, None) => self.switches.keys().copied().collect(),
        }
    }

    /// Describes links that do not take a policy's tagged copies, with the remedy; `None` if there
    /// are none.
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

    /// The switches of all senders of a policy, if all are known hosts.
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

    /// What a policy copies at a switch: where it is applied at its senders only, frames of the
    /// senders there.
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

    /// Switches of hosts with this MAC address.
    fn with_mac(&self, mac: MacAddr) -> impl Iterator<Item = DatapathId> {
        self.having(move |hosts| hosts.with_mac(mac).next().is_some())
    }

    /// One host with this MAC address at each of them.
    fn first_with_mac(&self, mac: MacAddr) -> impl Iterator<Item = (DatapathId, HostKey)> {
        let first = move |switch: &Switch| Some(switch.hosts.with_mac(mac).next()?.0);
        self.switches.iter().filter_map(move |(at, switch)| Some((*at, first(switch)?)))
    }

    /// Switches of hosts with this IP address.
    fn with_address(&self, ip: IpAddr) -> impl Iterator<Item = DatapathId> {
        self.having(move |hosts| hosts.with_address(ip).next().is_some())
    }

    /// Switches with such hosts.
    fn having(&self, has_it: impl Fn(&Hosts) -> bool) -> impl Iterator<Item = DatapathId> {
        let switches = self.switches.iter().filter(move |(_, switch)| has_it(&switch.hosts));
        switches.map(|(id, _)| *id)
    }

    /// Assigns identifiers to copies between switches.
    fn assign_tags(&mut self, id: PolicyId) {
        // One monitor per switch is a typical number.
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

    /// Updates which copies in transit each switch carries.
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

    /// The same for an identifier that only got more users. There may be hundreds of others, which
    /// are not inspected. Returns false, without effect, if they have to be.
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
            // Copies still use the former path.
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

    /// The switches that carry copies of these users with this identifier, and how.
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

    /// Whether all switches that make copies with this identifier have confirmed that they send
    /// them by the current path.
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

    /// Updates a policy on all switches.
    fn tell_all(&mut self, id: PolicyId) {
        let Some(entry) = self.policies.get_mut(id) else { return };
        entry.waits = false;
        let applied: Vec<_> = entry.applied.iter().copied().collect();
        applied.into_iter().for_each(|at| self.tell(id, at));
    }

    /// Updates all policies on a switch that reconnected or whose ports changed.
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

    /// Updates a policy on one switch.
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

    /// Sets or removes a policy on a switch.
    pub(super) fn want(&mut self, at: DatapathId, id: PolicyId, tap: Option<Tap>) {
        let switch = self.switches.get_mut(&at).filter(|switch| switch.is_up());
        if switch.is_some_and(|switch| switch.want(id, tap)) {
            self.touched.insert(at);
        }
    }

    /// Updates a policy's state at a switch.
    pub(super) fn note_state(&mut self, id: PolicyId, at: DatapathId) {
        let Some(entry) = self.policies.get(id) else { return };
        let Some(switch) = self.switches.get(&at) else { return };
        if !entry.applied.contains(&at) || !switch.is_up() {
            return;
        }
        let state = match switch.tap_state(id) {
            PolicyState::Installing if entry.waits => self.waiting_state(entry, at),
            state => state,
        };
        if let Some(entry) = self.policies.get_mut(id) {
            entry.note_state(at, state);
            self.policies.news.insert(id);
        }
    }

    /// State of a policy at a switch that makes no copies because a path is not open. It may open
    /// at any moment, or nobody knows when: then a replacement is given up, as the policy to be
    /// replaced may have a path that is open.
    fn waiting_state(&self, entry: &PolicyEntry, at: DatapathId) -> PolicyState {
        if let Some(reason) = self.refusal(entry, at) {
            return PolicyState::Failed { reason };
        }
        let Some(only) = self.only_through(entry, &[at]) else { return PolicyState::Installing };
        let reason = format!("{only}, and are not made until it is; {REPAIR_PATH}");
        match self.policies.is_heir(entry.id) {
            true => PolicyState::Failed { reason },
            false => PolicyState::Partial { reason },
        }
    }

    /// Why copies that a switch makes for a policy are not carried, if another switch rejected
    /// that.
    fn refusal(&self, entry: &PolicyEntry, from: DatapathId) -> Option<String> {
        entry.found_places().find_map(|(slot, to)| {
            let tag = self.tags.find((entry.id, slot))?;
            let mut behind = self.copy_routes.behind(from, to);
            behind.find_map(|id| self.switches.get(&id)?.carry_refusal(tag))
        })
    }

    /// Exits of a switch for the copies of a policy, and whether a path is not open yet. A new
    /// policy starts only when all paths are open; later a new path is used once it is open.
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

    /// Copies with this identifier are carried now.
    pub(super) fn touch_waiting(&mut self, tag: u16) {
        for (id, _) in self.tags.users(tag) {
            let waits = self.policies.get(id).is_some_and(|entry| entry.waits);
            self.policies.dirty.extend(waits.then_some(id));
        }
    }

    /// Exit of a switch for a monitor, if the path is open.
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
            // A disconnected switch carried it before, or cannot be changed now.
            switch.is_some_and(|(switch, exit)| switch.is_carrying(tag, exit))
        };
        behind.all(is_carrying).then_some(Aim { slot, exit, tag, is_sink })
    }

    /// Whether the port takes copies only.
    pub(super) fn is_sink(&self, place: Place) -> bool {
        let at = self.switches.get(&place.switch);
        place == Place::CONTROLLER || at.is_some_and(|switch| switch.ports.is_sink(place.port))
    }

    /// The exit from a switch to a monitor, at that switch or another one.
    fn exit(&self, from: DatapathId, to: Found) -> Option<Exit> {
        Some(self.copy_routes.exit(from, to.place)?.spread(to.spread))
    }

    /// The hosts that receive a policy's copies changed; these never time out.
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

    /// Releases the identifiers of a deleted policy, when nothing counts for it any more.
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

/// Hosts that receive copies, with the number of policies.
#[derive(Clone, Debug, Default)]
pub(super) struct MonitorHosts(Forked<(DatapathId, HostKey), usize>);

impl MonitorHosts {
    /// Those of one switch.
    fn at(&self, switch: DatapathId) -> BTreeSet<HostKey> {
        let first = HostKey { mac: MacAddr::ZERO, vlan: None };
        let last = HostKey { mac: MacAddr::BROADCAST, vlan: Some(u16::MAX) };
        self.0.range((switch, first)..=(switch, last)).map(|((_, key), _)| *key).collect()
    }

    /// Updates the hosts of one policy. Returns the switches affected.
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

const REPAIR_PATH: &str = "find out why it does not connect, or add a link around it";
/// Number of switches above which policies with known senders are never applied everywhere, so that
/// each costs the same, and little.
const MAX_SPREAD: usize = 200;
