//! Which ports of switches are linked to which, found by LLDP.
//!
//! Each port of each switch is probed: the switch sends a signed frame out of it, and whichever
//! switch of ours gets it sends it up. Two ports are a **link** when each was heard by the other.
//! A port that nothing was heard from for [`Discovery::probe_wait`] is an **edge**: for hosts. If
//! switches are slow, the silence must last until it means something ([`sweeps`]). Until then, and
//! while only one direction is heard, a port is **closed**: nothing is learned from it and nothing
//! goes there, since it may close a loop. So is a port that gets its own frames back: what is there
//! is a loop, or a host that wants to be taken for a switch, whose frames nobody would copy.
//!
//! A link is a cable between two ports. A port at which several others are heard, as on a hub, is
//! closed until only one has been heard there for [`Discovery::link_timeout`], and so is what hears
//! it: which two of them were the ends of a link would change with each frame.
//!
//! A link is gone at once when the switch says that a port is down, and otherwise when nothing was
//! heard for [`Discovery::link_timeout`]. Ports with a link are probed often, edges now and then. A
//! link that goes again and again is **held** for a while: its ends are closed, unless it is needed
//! ([`damping`], [`held`]).

use std::collections::{BTreeMap, BTreeSet};

use tapswitch_openflow::{DatapathId, PortNo};

mod damping;
mod graph;
mod held;
mod lldp;
mod parts;
mod shortest;
mod sweeps;

use damping::Damping;
pub(crate) use graph::Graph;
use held::Held;
pub(crate) use lldp::NEAREST_BRIDGE;
use lldp::{Probe, Signer, Unproved};
pub(crate) use parts::Parts;
pub(crate) use shortest::Shortest;
use sweeps::{SweepNo, Sweeps};

use crate::place::Place;
use crate::{Discovery, Millis};

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is not known yet, only one direction works, or a link there is held.
    Closed,
    /// Hosts are there.
    Edge,
    /// Another switch is there.
    Link(Place),
}

/// Frames that proved no link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unproven {
    /// With our mark and a wrong signature, or back at the port where it left.
    pub(crate) forged: u64,
    /// Ours, of a number that is not remembered any more, or of an earlier life.
    pub(crate) late: u64,
    /// LLDP of others.
    pub(crate) foreign: u64,
}

/// A frame to send out of a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProbeOut {
    pub(crate) from: Place,
    pub(crate) frame: Vec<u8>,
}

/// The time, by three clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Millis,
    /// Goes only while what comes in is taken in. What did not come by it is not merely waiting.
    pub(crate) listened: Millis,
    /// Nanoseconds, of any origin.
    pub(crate) ns: u64,
}

/// All ports that carry frames, and what was heard where.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    discovery: Discovery,
    signer: Signer,
    ports: BTreeMap<Place, Port>,
    /// By port: the ports that hear it.
    hearers: BTreeMap<Place, BTreeSet<Place>>,
    /// When which port is to be looked at: probed, opened, given up.
    due: BTreeSet<(Millis, Place)>,
    last_number: u64,
    /// Switches that are not connected: what was known of their links is believed for as long as
    /// the other ends say nothing else.
    frozen: BTreeSet<DatapathId>,
    unproven: BTreeMap<DatapathId, Unproven>,
    /// The longest that a frame took lately over a link that was known, in nanoseconds, and when.
    slowest: (u64, Millis),
    sweeps: Sweeps,
    /// Ports of which it is not known yet what silence there means.
    searched: BTreeSet<Place>,
    /// The sweep after which the links of the switches that came last have been heard.
    newest: SweepNo,
    damping: Damping,
    held: Held,
}

#[derive(Clone, Debug)]
struct Port {
    since: Millis,
    /// The sweep after which it means something that nothing was heard since then; none while
    /// nothing was sent out of it.
    silent_after: Option<SweepNo>,
    /// The last frames, the latest first.
    sent: [Sent; REMEMBERED],
    /// When it is looked at next.
    due: Millis,
    /// Who was heard here, and when last.
    heard: Option<Heard>,
    /// Who else was heard here before that, and not too long ago.
    other: Option<Heard>,
    /// As it was told last.
    role: Role,
    /// The other end of a link that there is, held or not.
    linked: Option<Place>,
}

/// A frame that was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    number: u64,
    at: Millis,
    at_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    from: Place,
    at: Millis,
    /// The shortest that a frame took, in nanoseconds, from the controller to the controller.
    latency: u64,
}

impl Fabric {
    /// No ports.
    pub(crate) fn new(discovery: Discovery) -> Self {
        Self {
            signer: Signer::new(&discovery.key),
            discovery,
            ports: BTreeMap::new(),
            hearers: BTreeMap::new(),
            due: BTreeSet::new(),
            last_number: 0,
            frozen: BTreeSet::new(),
            unproven: BTreeMap::new(),
            slowest: (0, Millis(0)),
            sweeps: Sweeps::default(),
            searched: BTreeSet::new(),
            newest: SweepNo::default(),
            damping: Damping::default(),
            held: Held::default(),
        }
    }

    /// The switch is not connected any more. It forwards on.
    pub(crate) fn freeze(&mut self, switch: DatapathId, now: Millis) -> bool {
        self.due.retain(|(_, place)| place.switch != switch);
        self.handle_swept(switch, now);
        self.frozen.insert(switch)
    }

    /// A switch that is not connected is not remembered any more, but for the ports that others
    /// hear: it may forward on, and must not be taken for hosts there. Returns whether links or
    /// edges changed.
    pub(crate) fn forget(&mut self, switch: DatapathId, now: Millis) -> bool {
        self.unproven.remove(&switch);
        let ports: Vec<_> = self.of_switch(switch).map(|(place, _)| place).collect();
        let (heard, others) =
            ports.into_iter().partition::<Vec<_>, _>(|place| self.hearers.contains_key(place));
        if heard.is_empty() {
            self.frozen.remove(&switch);
        }
        others.into_iter().filter(|place| self.remove(*place, now)).count() > 0
    }

    /// These are all ports of the switch that carry frames. Returns whether links or edges changed.
    pub(crate) fn set_ports(
        &mut self,
        switch: DatapathId,
        up: &BTreeSet<PortNo>,
        clock: Clock,
    ) -> bool {
        let now = clock.now;
        let known: BTreeSet<_> = self.of_switch(switch).map(|(place, _)| place.port).collect();
        let mut changed = self.thaw(switch, clock);
        for &port in known.difference(up) {
            changed |= self.remove(Place { switch, port }, now);
        }
        for &port in up.difference(&known) {
            let place = Place { switch, port };
            let role = if port == PortNo::LOCAL { Role::Edge } else { Role::Closed };
            let sent = [Sent::default(); REMEMBERED];
            let port = Port {
                since: now,
                silent_after: None,
                sent,
                due: now,
                heard: None,
                other: None,
                role,
                linked: None,
            };
            self.ports.insert(place, port);
            self.due.insert((now, place));
            changed = true;
        }
        if changed {
            self.newest = self.sweeps.want();
        }
        changed
    }

    /// A frame of LLDP came in. Returns whether links changed.
    pub(crate) fn handle_lldp(
        &mut self,
        at: Place,
        frame: &[u8],
        Clock { now, listened, ns }: Clock,
    ) -> bool {
        let probe = match self.signer.read(frame) {
            Ok(probe) => probe,
            Err(unproved) => {
                self.count(at.switch, unproved);
                return false;
            }
        };
        let sent = self.ports.get(&probe.from).into_iter().flat_map(|port| port.sent);
        let Some(sent) = sent.into_iter().find(|sent| sent.number == probe.number) else {
            self.count(at.switch, Unproved::Late);
            return false;
        };
        if !self.ports.contains_key(&at) {
            return false;
        }
        let took = ns.saturating_sub(sent.at_ns);
        if probe.from == at {
            let heard = Heard { from: at, at: listened, latency: took };
            return self.handle_reflected(at, heard, now);
        }
        let before = self.all_heard(at).into_iter().find(|heard| heard.from == probe.from);
        let latency = before.map_or(took, |before| before.latency.min(took));
        if before.is_some() && took > self.slowest_ns(now) {
            self.slowest = (took, now);
        }
        let heard = Heard { from: probe.from, at: listened, latency };
        let lost = self.hear(at, Some(heard));
        if before.is_none() {
            // The other direction is to be known soon, too.
            self.look_again(at, now);
        }
        let others = lost.into_iter().filter(|other| *other != probe.from);
        let affected: Vec<_> = others.chain([at, probe.from]).collect();
        self.update_roles(&affected, now)
    }

    /// What is to be sent now. Returns whether links or edges changed, too.
    pub(crate) fn handle_timeout(&mut self, clock: Clock) -> (Vec<ProbeOut>, bool) {
        let Clock { now, listened, ns } = clock;
        let mut out = Vec::new();
        let mut changed = false;
        let is_over = self.sweeps.handle_timeout(now);
        self.look_at_searched(is_over, now);
        while let Some(&(at, place)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            changed |= self.forget_late(place, clock);
            let Some(port) = self.ports.get_mut(&place) else { continue };
            let is_searched = port.silent_after.is_some_and(|sweep| self.sweeps.is_over(sweep));
            let interval = self.discovery.interval(port, is_searched, now);
            port.due = now.plus(interval);
            self.due.insert((port.due, place));
            if port.heard.is_none() || listened.since(port.sent[0].at).0 >= interval.0 / 2 {
                self.last_number += 1;
                let number = self.last_number;
                port.sent.rotate_right(1);
                port.sent[0] = Sent { number, at: listened, at_ns: ns };
                let frame = self.signer.frame(Probe { from: place, number });
                out.push(ProbeOut { from: place, frame });
                if port.heard.is_none() && port.silent_after.is_none() {
                    port.silent_after = Some(self.sweeps.want());
                    self.searched.insert(place);
                }
            }
            changed |= self.update_role(place, now);
        }
        (out, changed)
    }

    /// When [`Self::handle_timeout`] is due, or the next sweep.
    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        let due = self.due.first().map(|(at, _)| *at);
        due.into_iter().chain(self.sweeps.poll_timeout()).min()
    }

    /// Whether all switches are to be asked for a sign that they have done what they were told.
    pub(crate) fn is_sweep_due(&self, now: Millis) -> bool {
        self.sweeps.is_due(now)
    }

    /// These are asked for it.
    pub(crate) fn start_sweep(&mut self, switches: &BTreeSet<DatapathId>, now: Millis) {
        let is_over = self.sweeps.start(switches, now);
        self.look_at_searched(is_over, now);
    }

    /// A switch gave that sign.
    pub(crate) fn handle_swept(&mut self, switch: DatapathId, now: Millis) {
        let is_over = self.sweeps.handle_answer(switch, now);
        self.look_at_searched(is_over, now);
    }

    /// Whether all links of the switches that are known have been heard, if they work.
    pub(crate) fn is_searched(&self) -> bool {
        self.sweeps.is_over(self.newest)
    }

    /// What the port is for.
    pub(crate) fn role(&self, place: Place) -> Role {
        self.ports.get(&place).map_or(Role::Closed, |port| port.role)
    }

    /// What the ports of a switch are for.
    pub(crate) fn roles(&self, switch: DatapathId) -> impl Iterator<Item = (PortNo, Role)> {
        self.of_switch(switch).map(|(place, port)| (place.port, port.role))
    }

    /// The other end of a link.
    pub(crate) fn peer(&self, at: Place) -> Option<Place> {
        let Role::Link(peer) = self.role(at) else { return None };
        let (low, high) = (at.min(peer), at.max(peer));
        let port = self.ports.get(&low)?;
        (port.role == Role::Link(high) && port.heard.is_some()).then_some(peer)
    }

    /// All links, each once, and how long a frame takes there, in nanoseconds: the time from the
    /// controller through both switches back to it, so no less than the link takes.
    pub(crate) fn links(&self) -> impl Iterator<Item = (Place, Place, u64)> {
        self.ports.iter().filter_map(|(place, port)| match (port.role, port.heard) {
            (Role::Link(peer), Some(heard)) if *place < peer => Some((*place, peer, heard.latency)),
            _ => None,
        })
    }

    /// The links as a graph. Those of switches that are not connected are dear: nobody knows
    /// whether they work. Those with an end that is to be avoided are still dearer.
    pub(crate) fn graph(&self, avoided: &BTreeSet<Place>) -> Graph {
        let cost = |ends: [Place; 2]| match ends {
            ends if ends.iter().any(|end| avoided.contains(end)) => AVOIDED_COST,
            ends if ends.iter().any(|end| self.frozen.contains(&end.switch)) => UNSURE_COST,
            _ => COST,
        };
        let links = self.links().filter(|(a, b, _)| a.switch != b.switch);
        Graph::new(links.map(|(a, b, _)| (a, b, cost([a, b]))))
    }

    /// Finds out again what the ports of a switch are for: their time may be over before they are
    /// looked at. Returns whether that is news.
    pub(crate) fn update_switch(&mut self, switch: DatapathId, now: Millis) -> bool {
        let places: Vec<_> = self.of_switch(switch).map(|(place, _)| place).collect();
        self.update_roles(&places, now)
    }

    /// Whether it is known what all ports of the switch are for, as far as that can be known.
    pub(crate) fn is_settled(&self, switch: DatapathId, now: Millis) -> bool {
        let wait = self.discovery.probe_wait;
        let is_told = |port: &Port| port.heard.is_some() || self.is_silence(port);
        let is_old = |port: &Port| now.since(port.since) >= wait && is_told(port);
        let is_settled = |port: &Port| port.role != Role::Closed || is_old(port);
        self.of_switch(switch).all(|(_, port)| is_settled(port))
    }

    /// The switches that are not connected.
    pub(crate) const fn frozen(&self) -> &BTreeSet<DatapathId> {
        &self.frozen
    }

    /// Whether the switch is not connected.
    pub(crate) fn is_frozen(&self, switch: DatapathId) -> bool {
        self.frozen.contains(&switch)
    }

    /// Whether the port got back what left there.
    pub(crate) fn is_reflecting(&self, place: Place) -> bool {
        self.heard(place).is_some_and(|heard| heard.from == place)
    }

    /// The ports that were heard at one port, if there are several.
    pub(crate) fn sharing(&self, place: Place) -> Option<[Place; 2]> {
        let port = self.ports.get(&place)?;
        Some([port.heard?.from, port.other?.from])
    }

    /// Frames from a switch that proved no link.
    pub(crate) fn unproven(&self, switch: DatapathId) -> Unproven {
        self.unproven.get(&switch).copied().unwrap_or_default()
    }

    /// The switch is connected: its ports are probed from now on.
    fn thaw(&mut self, switch: DatapathId, Clock { now, listened, .. }: Clock) -> bool {
        if !self.frozen.remove(&switch) {
            return false;
        }
        let places: Vec<_> = self.of_switch(switch).map(|(place, _)| place).collect();
        for place in places {
            if let Some(port) = self.ports.get_mut(&place) {
                port.due = now;
                port.heard = port.heard.map(|heard| Heard { at: listened, ..heard });
                self.due.insert((now, place));
            }
        }
        true
    }

    fn of_switch(&self, switch: DatapathId) -> impl Iterator<Item = (Place, &Port)> {
        let first = Place { switch, port: PortNo(0) };
        let last = Place { switch, port: PortNo(u32::MAX) };
        self.ports.range(first..=last).map(|(place, port)| (*place, port))
    }

    /// Forgets a port. What it was heard by hears it no more.
    fn remove(&mut self, place: Place, now: Millis) -> bool {
        let lost = self.hear(place, None);
        let Some(port) = self.ports.remove(&place) else { return false };
        self.charge(place, port.linked, now);
        self.due.remove(&(port.due, place));
        let hearers = self.hearers.remove(&place).unwrap_or_default();
        let mut affected: Vec<_> = lost.into_iter().chain(hearers.iter().copied()).collect();
        for hearer in hearers {
            affected.extend(self.hear(hearer, None));
            if let Some(port) = self.ports.get_mut(&hearer) {
                (port.since, port.silent_after) = (now, None);
            }
            self.look_again(hearer, now);
        }
        self.update_roles(&affected, now);
        true
    }

    /// A port got back what left there. It is closed for as long as that goes on, unless a switch
    /// is heard there, too: then somebody on the cable would only want to disturb.
    fn handle_reflected(&mut self, at: Place, heard: Heard, now: Millis) -> bool {
        self.count(at.switch, Unproved::Forged);
        match self.heard(at) {
            Some(before) if before.from != at => return false,
            Some(_) => {}
            // From now on it is looked at as often as a link, so that its end is noticed.
            None => self.look_again(at, now),
        }
        self.hear(at, Some(heard));
        self.update_role(at, now)
    }

    fn heard(&self, place: Place) -> Option<Heard> {
        self.ports.get(&place)?.heard
    }

    fn all_heard(&self, place: Place) -> Vec<Heard> {
        let port = self.ports.get(&place);
        port.into_iter().flat_map(|port| [port.heard, port.other]).flatten().collect()
    }

    /// A port hears this from now on, or nobody. Returns whom it heard before.
    fn hear(&mut self, place: Place, heard: Option<Heard>) -> Vec<Place> {
        let before = self.all_heard(place);
        let is_other =
            |it: &&Heard| it.from != place && heard.is_some_and(|heard| heard.from != it.from);
        let other = before.iter().find(is_other).copied();
        if let Some(port) = self.ports.get_mut(&place) {
            (port.heard, port.other) = (heard, other);
        }
        let before: Vec<_> = before.into_iter().map(|heard| heard.from).collect();
        self.update_hearers(place, &before);
        before
    }

    /// A port hears others than before.
    fn update_hearers(&mut self, place: Place, before: &[Place]) {
        for from in before {
            if let Some(hearers) = self.hearers.get_mut(from) {
                hearers.remove(&place);
                if hearers.is_empty() {
                    self.hearers.remove(from);
                }
            }
        }
        for Heard { from, .. } in self.all_heard(place) {
            self.hearers.entry(from).or_default().insert(place);
        }
    }

    /// Whether it means something that nothing was heard at a port.
    fn is_silence(&self, port: &Port) -> bool {
        port.silent_after.is_some_and(|sweep| self.sweeps.is_over(sweep))
    }

    /// Ports of which a sweep tells what silence there means are looked at again.
    fn look_at_searched(&mut self, is_over: bool, now: Millis) {
        if !is_over {
            return;
        }
        let searched = std::mem::take(&mut self.searched).into_iter();
        let (known, searched) = searched.partition::<BTreeSet<_>, _>(|place| {
            self.ports.get(place).is_none_or(|port| self.is_silence(port))
        });
        self.searched = searched;
        known.into_iter().for_each(|place| self.look_again(place, now));
    }

    fn look_again(&mut self, place: Place, at: Millis) {
        if let Some(port) = self.ports.get_mut(&place)
            && at < port.due
        {
            self.due.remove(&(port.due, place));
            port.due = at;
            self.due.insert((at, place));
        }
    }

    /// Forgets whom a port heard too long ago: several of its frames did not come, though we
    /// listened. Frames that were not sent, since we were late ourselves, are not missed.
    fn forget_late(&mut self, place: Place, clock: Clock) -> bool {
        let Some(heard) = self.heard(place) else { return false };
        if self.frozen.contains(&heard.from.switch) || !self.is_late(heard, clock) {
            return self.forget_other(place, clock);
        }
        let affected = self.hear(place, None);
        if let Some(port) = self.ports.get_mut(&place) {
            // It may be a host that is there now: found out as for a new port.
            (port.since, port.silent_after) = (clock.now, None);
        }
        self.update_roles(&[&[place], &affected[..]].concat(), clock.now)
    }

    /// The same of who else was heard. One that is away is not probed from: it does not come back
    /// by itself, and what it was told last is that its port is closed.
    fn forget_other(&mut self, place: Place, clock: Clock) -> bool {
        let Some(port) = self.ports.get(&place) else { return false };
        let Some(other) = port.other else { return false };
        let is_frozen = self.frozen.contains(&other.from.switch);
        let is_old = clock.listened.since(other.at) >= self.patience(clock.now);
        if !(is_frozen && is_old || self.is_late(other, clock)) {
            return false;
        }
        let affected: Vec<_> = self.all_heard(place).iter().map(|heard| heard.from).collect();
        if let Some(port) = self.ports.get_mut(&place) {
            port.other = None;
        }
        self.update_hearers(place, &affected);
        self.update_roles(&[&[place], &affected[..]].concat(), clock.now)
    }

    fn is_late(&self, heard: Heard, Clock { now, listened, .. }: Clock) -> bool {
        let (link_timeout, link_interval) = (self.patience(now), self.discovery.link_interval);
        let sent = self.ports.get(&heard.from).map_or(&[][..], |port| &port.sent);
        let is_missed =
            |sent: &&Sent| sent.at > heard.at && listened.since(sent.at).0 >= link_interval.0 / 2;
        let missed = sent.iter().filter(is_missed).count();
        listened.since(heard.at) >= link_timeout && missed >= MISSED
    }

    /// For how long nothing must be heard. Where switches, or we, have so much to do that frames
    /// take long, silence means less.
    fn patience(&self, now: Millis) -> Millis {
        let slow = Millis(self.slowest_ns(now) / NANOS_PER_MILLI * TIMES_SLOWEST);
        self.discovery.link_timeout.max(slow.min(MAX_PATIENCE))
    }

    /// The longest that a frame took: each second, half as much is believed of it.
    fn slowest_ns(&self, now: Millis) -> u64 {
        let (took, at) = self.slowest;
        took >> (now.since(at).0 / 1000).min(63)
    }

    fn update_roles(&mut self, places: &[Place], now: Millis) -> bool {
        places.iter().filter(|place| self.update_role(**place, now)).count() > 0
    }

    /// Finds out again what a port is for. Returns whether that is news.
    fn update_role(&mut self, place: Place, now: Millis) -> bool {
        let Some(port) = self.ports.get(&place) else { return false };
        let is_young = now.since(port.since) < self.discovery.probe_wait || !self.is_silence(port);
        let role = match self.heard(place).map(|heard| heard.from) {
            _ if place.port == PortNo::LOCAL => Role::Edge,
            Some(peer) if peer == place => Role::Closed,
            Some(peer) if self.hears_alone(place, peer) && self.hears_alone(peer, place) => {
                Role::Link(peer)
            }
            None if !is_young && !self.hearers.contains_key(&place) => Role::Edge,
            _ => Role::Closed,
        };
        let linked = if let Role::Link(peer) = role { Some(peer) } else { None };
        let Some(port) = self.ports.get_mut(&place) else { return false };
        let before = std::mem::replace(&mut port.linked, linked);
        if linked.is_none() {
            self.charge(place, before, now);
        }
        let (is_held, is_new) = linked.map_or((false, false), |peer| self.hold(place, peer, now));
        let role = if is_held { Role::Closed } else { role };
        let Some(port) = self.ports.get_mut(&place) else { return false };
        std::mem::replace(&mut port.role, role) != role || is_new
    }

    fn hears_alone(&self, place: Place, peer: Place) -> bool {
        let port = self.ports.get(&place).filter(|port| port.other.is_none());
        port.and_then(|port| port.heard).is_some_and(|heard| heard.from == peer)
    }

    fn count(&mut self, switch: DatapathId, unproved: Unproved) {
        let counts = self.unproven.entry(switch).or_default();
        match unproved {
            Unproved::Foreign => counts.foreign += 1,
            Unproved::Forged => counts.forged += 1,
            Unproved::Late => counts.late += 1,
        }
    }
}

impl Discovery {
    /// How long until a port is looked at again.
    fn interval(&self, port: &Port, is_searched: bool, now: Millis) -> Millis {
        let age = now.since(port.since);
        match port.heard {
            Some(_) => self.link_interval,
            None if age < self.probe_wait => {
                Millis((self.probe_wait.0 - age.0).min(self.probe_wait.0 / 3)).max(Millis(1))
            }
            // Seldom enough to remember the first ones, which may be on their way for long.
            None if !is_searched => Millis((age.0 / 4).max(self.probe_wait.0 / 3).max(1)),
            None => self.edge_interval,
        }
    }
}

/// What a link costs.
const COST: u32 = 1;
/// What a link costs of which nobody knows whether it works: more than any way around.
const UNSURE_COST: u32 = 1 << 20;
/// What does not pass there costs more than all ways that may not work.
const AVOIDED_COST: u32 = 1 << 31;
/// Frames of a port that may still be on their way: those of four seconds, for a link.
const REMEMBERED: usize = 16;
/// Links are silent for so many times the longest that a frame took, before they are given up.
const TIMES_SLOWEST: u64 = 4;
/// However long frames take.
const MAX_PATIENCE: Millis = Millis(10_000);
const NANOS_PER_MILLI: u64 = 1_000_000;
/// Frames in a row that must not come until a link is given up.
const MISSED: usize = 2;

#[cfg(test)]
#[path = "fabric/tests.rs"]
mod tests;
