//! Discovery of the links between switches by LLDP.
//!
//! Each port of each switch is probed: the switch sends a signed LLDP frame from it, and the switch
//! that receives it sends it to the controller as a packet-in. Two ports form a **link** when each
//! has received the other's probes. A port that has received nothing for [`Discovery::probe_wait`]
//! is an **edge**, for hosts. With slow switches it takes longer until silence is conclusive
//! ([`sweeps`]). Until then, and while only one direction works, a port is **closed**: no host is
//! learned there and nothing is sent there, as it may close a loop. A port that receives its own
//! probes is closed, too: it has a loop, or a host that reflects probes to be taken for a switch,
//! so that its traffic is not copied.
//!
//! A link joins exactly two ports. A port that receives probes of several others, as behind a hub,
//! is closed until it has heard only one for [`Discovery::link_timeout`], and so are the ports that
//! hear it: otherwise the ends of the link would change with each probe.
//!
//! A link is removed at once when a switch reports its port down, else when no probe has arrived
//! for [`Discovery::link_timeout`]. Then it may be the connection to a switch that has failed, and
//! not the link ([`doubts`]). Ports with a link are probed often, edges rarely. A link that fails
//! repeatedly is **held** for a while: its ends are closed, unless the link is needed
//! ([`damping`], [`held`]).

use std::collections::{BTreeMap, BTreeSet};

use tapswitch_openflow::{DatapathId, PortNo};

mod damping;
mod doubts;
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

/// Role of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Unknown yet, only one direction works, or a link that is held.
    Closed,
    /// For hosts.
    Edge,
    /// Linked to this port of another switch.
    Link(Place),
}

/// Counts of LLDP frames that proved no link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unproven {
    /// With our TLV and an invalid signature, or received at the port that sent it.
    pub(crate) forged: u64,
    /// Our own, with a number that is no longer remembered or from an earlier run of the
    /// controller.
    pub(crate) late: u64,
    /// LLDP of other systems.
    pub(crate) foreign: u64,
}

/// A probe to send from a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProbeOut {
    pub(crate) from: Place,
    pub(crate) frame: Vec<u8>,
}

/// The current time on three clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Millis,
    /// Advances only while input is being processed: what has not arrived by this clock is missing,
    /// not just unread.
    pub(crate) listened: Millis,
    /// Nanoseconds since an arbitrary origin.
    pub(crate) ns: u64,
}

/// All ports that are up, and what was heard at each.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    discovery: Discovery,
    signer: Signer,
    ports: BTreeMap<Place, Port>,
    /// For each port: the ports that hear it.
    hearers: BTreeMap<Place, BTreeSet<Place>>,
    /// When each port is due to be probed, opened or given up.
    due: BTreeSet<(Millis, Place)>,
    last_number: u64,
    /// Disconnected switches. Their links are kept until the other ends report otherwise.
    frozen: BTreeSet<DatapathId>,
    unproven: BTreeMap<DatapathId, Unproven>,
    /// The longest recent transit time of a probe over a known link in nanoseconds, and when it was
    /// measured.
    slowest: (u64, Millis),
    sweeps: Sweeps,
    /// Ports whose silence is not conclusive yet.
    searched: BTreeSet<Place>,
    /// The sweep after which all links of the latest switches have been heard.
    newest: SweepNo,
    damping: Damping,
    held: Held,
}

#[derive(Clone, Debug)]
struct Port {
    since: Millis,
    /// The sweep after which silence since `since` is conclusive; `None` until a probe was sent.
    silent_after: Option<SweepNo>,
    /// The last probes, latest first.
    sent: [Sent; REMEMBERED],
    /// When it is due next.
    due: Millis,
    /// The port heard here last.
    heard: Option<Heard>,
    /// Another port heard here before, not too long ago.
    other: Option<Heard>,
    /// The port heard here last, if it fell silent and nothing else is known.
    lost: Option<Heard>,
    /// The role reported last.
    role: Role,
    /// The other end of the link, held or not.
    linked: Option<Place>,
}

/// A probe that was sent.
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
    /// The shortest transit time in nanoseconds, from controller to controller.
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

    /// The switch has disconnected. It continues to forward.
    pub(crate) fn freeze(&mut self, switch: DatapathId, now: Millis) -> bool {
        self.due.retain(|(_, place)| place.switch != switch);
        self.handle_swept(switch, now);
        let is_new = self.frozen.insert(switch);
        self.restore_lost(switch, now) || is_new
    }

    /// Forgets a disconnected switch, except for the ports that others hear: it may continue to
    /// forward, and must not be taken for hosts. Returns whether links or edges changed.
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

    /// Sets the ports of a switch that are up. Returns whether links or edges changed.
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
                lost: None,
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

    /// Processes a received LLDP frame. Returns whether links changed.
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
            // Probe the other direction soon, too.
            self.look_again(at, now);
        }
        let others = lost.into_iter().filter(|other| *other != probe.from);
        let affected: Vec<_> = others.chain([at, probe.from]).collect();
        self.update_roles(&affected, now)
    }

    /// Returns the probes to send now, and whether links or edges changed.
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

    /// When [`Self::handle_timeout`] or the next sweep is due.
    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        let due = self.due.first().map(|(at, _)| *at);
        due.into_iter().chain(self.sweeps.poll_timeout()).min()
    }

    /// Whether a sweep is due: all switches are to be asked for a barrier.
    pub(crate) fn is_sweep_due(&self, now: Millis) -> bool {
        self.sweeps.is_due(now)
    }

    /// A sweep of these switches starts.
    pub(crate) fn start_sweep(&mut self, switches: &BTreeSet<DatapathId>, now: Millis) {
        let is_over = self.sweeps.start(switches, now);
        self.look_at_searched(is_over, now);
    }

    /// A switch has answered the sweep.
    pub(crate) fn handle_swept(&mut self, switch: DatapathId, now: Millis) {
        let is_over = self.sweeps.handle_answer(switch, now);
        self.look_at_searched(is_over, now);
    }

    /// Whether all working links of the known switches have been heard.
    pub(crate) fn is_searched(&self) -> bool {
        self.sweeps.is_over(self.newest)
    }

    /// Role of a port.
    pub(crate) fn role(&self, place: Place) -> Role {
        self.ports.get(&place).map_or(Role::Closed, |port| port.role)
    }

    /// Roles of a switch's ports.
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

    /// Each link once, with its latency in nanoseconds: the time from the controller through both
    /// switches back to it, which is an upper bound for the link.
    pub(crate) fn links(&self) -> impl Iterator<Item = (Place, Place, u64)> {
        self.ports.iter().filter_map(|(place, port)| match (port.role, port.heard) {
            (Role::Link(peer), Some(heard)) if *place < peer => Some((*place, peer, heard.latency)),
            _ => None,
        })
    }

    /// The links as a graph. Links of disconnected switches have a high cost, as their state is
    /// unknown; links with an end in `avoided` have a still higher one.
    pub(crate) fn graph(&self, avoided: &BTreeSet<Place>) -> Graph {
        let cost = |ends: [Place; 2]| match ends {
            ends if ends.iter().any(|end| avoided.contains(end)) => AVOIDED_COST,
            ends if ends.iter().any(|end| self.frozen.contains(&end.switch)) => UNSURE_COST,
            _ => COST,
        };
        let links = self.links().filter(|(a, b, _)| a.switch != b.switch);
        Graph::new(links.map(|(a, b, _)| (a, b, cost([a, b]))))
    }

    /// Recomputes the roles of a switch's ports, which may have changed before they are due.
    /// Returns whether any changed.
    pub(crate) fn update_switch(&mut self, switch: DatapathId, now: Millis) -> bool {
        let places: Vec<_> = self.of_switch(switch).map(|(place, _)| place).collect();
        self.update_roles(&places, now)
    }

    /// Whether the roles of all ports of the switch are determined, as far as possible.
    pub(crate) fn is_settled(&self, switch: DatapathId, now: Millis) -> bool {
        let wait = self.discovery.probe_wait;
        let is_told = |port: &Port| port.heard.is_some() || self.is_silence(port);
        let is_old = |port: &Port| now.since(port.since) >= wait && is_told(port);
        let is_settled = |port: &Port| port.role != Role::Closed || is_old(port);
        self.of_switch(switch).all(|(_, port)| is_settled(port))
    }

    /// Disconnected switches.
    pub(crate) const fn frozen(&self) -> &BTreeSet<DatapathId> {
        &self.frozen
    }

    /// Whether the switch is disconnected.
    pub(crate) fn is_frozen(&self, switch: DatapathId) -> bool {
        self.frozen.contains(&switch)
    }

    /// Whether the port receives its own probes.
    pub(crate) fn is_reflecting(&self, place: Place) -> bool {
        self.heard(place).is_some_and(|heard| heard.from == place)
    }

    /// The ports heard at this port, if there are several.
    pub(crate) fn sharing(&self, place: Place) -> Option<[Place; 2]> {
        let port = self.ports.get(&place)?;
        Some([port.heard?.from, port.other?.from])
    }

    /// Counts of frames from a switch that proved no link.
    pub(crate) fn unproven(&self, switch: DatapathId) -> Unproven {
        self.unproven.get(&switch).copied().unwrap_or_default()
    }

    /// The switch is connected again: its ports are probed from now on. Nobody could report what
    /// arrived there meanwhile, so silence proves nothing.
    fn thaw(&mut self, switch: DatapathId, Clock { now, listened, .. }: Clock) -> bool {
        if !self.frozen.remove(&switch) {
            return false;
        }
        let places: Vec<_> = self.of_switch(switch).map(|(place, _)| place).collect();
        for place in places {
            if let Some(port) = self.ports.get_mut(&place) {
                port.due = now;
                port.heard = port.heard.map(|heard| Heard { at: listened, ..heard });
                if port.role == Role::Closed && port.heard.is_none() {
                    (port.since, port.silent_after) = (now, None);
                }
                self.due.insert((now, place));
            }
            self.hear_anew(place, listened);
        }
        true
    }

    fn of_switch(&self, switch: DatapathId) -> impl Iterator<Item = (Place, &Port)> {
        let first = Place { switch, port: PortNo(0) };
        let last = Place { switch, port: PortNo(u32::MAX) };
        self.ports.range(first..=last).map(|(place, port)| (*place, port))
    }

    /// Removes a port; no port hears it any more.
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

    /// A port received its own probe. It is closed while this continues, unless it also hears
    /// another switch: then someone on the cable reflects probes to disrupt the link.
    fn handle_reflected(&mut self, at: Place, heard: Heard, now: Millis) -> bool {
        self.count(at.switch, Unproved::Forged);
        match self.heard(at) {
            Some(before) if before.from != at => return false,
            Some(_) => {}
            // Probe it as often as a link, to notice the end of it.
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

    /// Sets the port heard here, or none. Returns the ports heard before.
    fn hear(&mut self, place: Place, heard: Option<Heard>) -> Vec<Place> {
        let before = self.all_heard(place);
        let is_other =
            |it: &&Heard| it.from != place && heard.is_some_and(|heard| heard.from != it.from);
        let other = before.iter().find(is_other).copied();
        if let Some(port) = self.ports.get_mut(&place) {
            (port.heard, port.other, port.lost) = (heard, other, None);
        }
        let before: Vec<_> = before.into_iter().map(|heard| heard.from).collect();
        self.update_hearers(place, &before);
        before
    }

    /// Updates the reverse index after `place` changed what it hears.
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

    /// Whether silence at a port is conclusive.
    fn is_silence(&self, port: &Port) -> bool {
        port.silent_after.is_some_and(|sweep| self.sweeps.is_over(sweep))
    }

    /// Reschedules ports whose silence a finished sweep has made conclusive.
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

    /// Looks at a port at this time at the latest, or when its switch is connected again.
    fn look_again(&mut self, place: Place, at: Millis) {
        if let Some(port) = self.ports.get_mut(&place)
            && !self.frozen.contains(&place.switch)
            && at < port.due
        {
            self.due.remove(&(port.due, place));
            port.due = at;
            self.due.insert((at, place));
        }
    }

    /// Forgets the port heard here if it was heard too long ago: several of its probes are missing
    /// although we processed input. Probes that we sent late are not counted as missing.
    fn forget_late(&mut self, place: Place, clock: Clock) -> bool {
        let Some(heard) = self.heard(place) else { return false };
        if self.frozen.contains(&heard.from.switch) || !self.is_late(heard, clock) {
            return self.forget_other(place, clock);
        }
        let affected = self.hear(place, None);
        if let Some(port) = self.ports.get_mut(&place) {
            // It may be a host now: treated like a new port.
            (port.since, port.silent_after) = (clock.now, None);
            port.lost = Some(heard);
        }
        self.update_roles(&[&[place], &affected[..]].concat(), clock.now)
    }

    /// The same for the other port heard here. A disconnected one sends no probes; it does not come
    /// back by itself, and its port was last told to be closed.
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

    /// Silence after which a link is given up. It is longer while probes take long because switches
    /// or the controller are busy.
    fn patience(&self, now: Millis) -> Millis {
        let slow = Millis(self.slowest_ns(now) / NANOS_PER_MILLI * TIMES_SLOWEST);
        self.discovery.link_timeout.max(slow.min(MAX_PATIENCE))
    }

    /// The longest transit time, halved for each second since it was measured.
    fn slowest_ns(&self, now: Millis) -> u64 {
        let (took, at) = self.slowest;
        took >> (now.since(at).0 / 1000).min(63)
    }

    fn update_roles(&mut self, places: &[Place], now: Millis) -> bool {
        places.iter().filter(|place| self.update_role(**place, now)).count() > 0
    }

    /// Recomputes the role of a port. Returns whether it changed.
    fn update_role(&mut self, place: Place, now: Millis) -> bool {
        let Some(port) = self.ports.get(&place) else { return false };
        let is_young = now.since(port.since) < self.discovery.probe_wait;
        let is_unsure = is_young || !self.is_silence(port) || self.is_doubtful(place, port);
        let role = match self.heard(place).map(|heard| heard.from) {
            _ if place.port == PortNo::LOCAL => Role::Edge,
            Some(peer) if peer == place => Role::Closed,
            Some(peer) if self.hears_alone(place, peer) && self.hears_alone(peer, place) => {
                Role::Link(peer)
            }
            None if !is_unsure && !self.hearers.contains_key(&place) => Role::Edge,
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
        port.lost = port.lost.filter(|_| role == Role::Closed);
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
    /// Interval until a port is due again.
    fn interval(&self, port: &Port, is_searched: bool, now: Millis) -> Millis {
        let age = now.since(port.since);
        match port.heard {
            Some(_) => self.link_interval,
            None if age < self.probe_wait => {
                Millis((self.probe_wait.0 - age.0).min(self.probe_wait.0 / 3)).max(Millis(1))
            }
            // Rare enough that the first probes, which may take long, are still remembered.
            None if !is_searched => Millis((age.0 / 4).max(self.probe_wait.0 / 3).max(1)),
            None => self.edge_interval,
        }
    }
}

/// Cost of a link.
const COST: u32 = 1;
/// Cost of a link in unknown state: more than any detour.
const UNSURE_COST: u32 = 1 << 20;
/// Cost of a link to avoid: more than all paths of unknown state.
const AVOIDED_COST: u32 = 1 << 31;
/// Probes of a port that are remembered: for a link, those of four seconds.
const REMEMBERED: usize = 16;
/// A link is given up after a silence of this many times the longest transit time.
const TIMES_SLOWEST: u64 = 4;
/// Upper bound for that.
const MAX_PATIENCE: Millis = Millis(10_000);
const NANOS_PER_MILLI: u64 = 1_000_000;
/// Consecutive probes that must be missing before a link is given up.
const MISSED: usize = 2;

#[cfg(test)]
#[path = "fabric/tests.rs"]
mod tests;
