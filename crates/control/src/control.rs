//! All switches and all policies.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tapswitch_openflow::{Body, DatapathId, ErrorKind, FeaturesReply};

mod accounts;
mod agenda;
mod checks;
mod claims;
mod contests;
mod crowds;
mod deadline;
mod details;
mod floods;
mod inquiries;
mod lifetime;
mod moves;
mod placing;
mod plan;
mod policies;
mod relocations;
mod roster;
mod rounds;
mod routing;
mod turns;
mod wiring;

pub use plan::{Change, Judged, Look, Plan, Proof, SwitchChange, Verdict};
pub use policies::WhenMissing;

use crate::fabric::Fabric;
use crate::group::Carry;
use crate::hosts::HostKey;
use crate::outbox::Ticket;
use crate::overlap::PolicyId;
use crate::place::Place;
use crate::resolve::Switches;
use crate::routes::Routes;
use crate::shared::{Forked, Shared};
use crate::switch::{HostSignals, Signals, Switch};
use crate::tags::{Tags, Use};
use crate::{Event, HostReport, Limits, Millis, MonitorPort, SwitchReport};
use agenda::Agenda;
use checks::Checks;
use claims::Claims;
use contests::Contests;
use floods::Floods;
use lifetime::Clock;
use moves::Moves;
use placing::MonitorHosts;
use roster::Policies;
use rounds::Rounds;
use routing::{Located, Talks};
use turns::Turns;

/// The control plane: what is known of switches and hosts, and the TAP policies.
///
/// Methods are of four kinds:
///
/// - getters, taking `&self`;
/// - `handle_*`: what came from switches, and the passing of time;
/// - commands: policies that come and go, requests for counters;
/// - `poll_*`: what goes out. After any of the above, take from [`Self::poll_transmit`] until there
///   is nothing, then from [`Self::poll_event`], and call [`Self::handle_timeout`] no later than
///   [`Self::poll_timeout`] says.
///
/// Numbers of transactions belong to connections. What is sent here has a [`Ticket`] instead, by
/// which the caller tells what an answer or an error is about.
#[derive(Clone, Debug)]
pub struct Control {
    limits: Limits,
    switches: Switches,
    /// Switches that something happened to since conclusions were drawn.
    touched: BTreeSet<DatapathId>,
    /// Switches for which messages may wait.
    turns: Turns,
    /// Switches that something is due at, or under way.
    agenda: Agenda,
    policies: Policies,
    events: VecDeque<Event>,
    /// Requests for counters.
    rounds: Rounds,
    /// Which switch is asked next whether it holds what it was told.
    checks: Checks,
    /// Links between switches, where they are looked for.
    fabric: Option<Shared<Fabric>>,
    routes: Shared<Routes>,
    /// The same for copies, which go around links that do not take them.
    copy_routes: Shared<Routes>,
    /// The switch that each host is at.
    located: Shared<Located>,
    /// Hosts that may be at several switches, which are not linked.
    parted: Shared<BTreeSet<HostKey>>,
    talks: Shared<Talks>,
    /// There are so many hosts that not every switch knows all of them.
    is_vast: bool,
    /// Copies may have other addresses on the way.
    is_rewriting: bool,
    /// Hosts whose ways are to be found out.
    unrouted: BTreeSet<HostKey>,
    /// Ways that were told since time passed.
    told_ways: usize,
    tags: Tags,
    /// By identifier, the switches that carry copies which have it.
    carriers: Forked<u16, BTreeMap<DatapathId, Carry>>,
    /// Identifiers of which that is to be looked up again.
    unsettled_tags: BTreeSet<u16>,
    /// Those that copies of more policies have, and whose.
    joined_tags: BTreeMap<u16, Vec<Use>>,
    /// Those of copies that still go a way which they shall not go any more.
    lingering: BTreeSet<u16>,
    monitor_hosts: MonitorHosts,
    /// Those of which it is to be found out where they are.
    contests: Contests,
    moves: Shared<Moves>,
    /// Addresses of which it is to be found out who has them.
    claims: Claims,
    /// Switches that came, went, or have other ports.
    shaken: BTreeSet<DatapathId>,
    /// Deleted policies that may have come to their end.
    ended: BTreeSet<PolicyId>,
    /// The latest time that was told.
    now: Millis,
    /// The same in nanoseconds, of an origin of its own.
    now_ns: u64,
    /// How much of the time what came in was taken in.
    listened: Option<Millis>,
    /// Links or edges changed.
    has_rewired: bool,
    /// When that is looked at, at the earliest, and for how long it was not then.
    rewire_at: Millis,
    rewire_pause: Millis,
    /// When a link that was used went last.
    lost_at: Millis,
    /// The ports that floods take between switches.
    tree: Shared<BTreeSet<Place>>,
    /// The links by which they go until all switches know of it.
    floods: Shared<Floods>,
    /// Ends of links by which no S-tags leave, and so no copies that have one.
    untagged_ends: Shared<BTreeSet<Place>>,
    /// Switches that were not connected when links were looked at last.
    away: Shared<BTreeSet<DatapathId>>,
    /// The links that were told of.
    told_links: Shared<BTreeMap<(Place, Place), (MonitorPort, MonitorPort)>>,
    /// The time of day, for policies that end or pause by it.
    clock: Clock,
    /// Switches are not told anything: this is to find out what they would hold.
    is_trial: bool,
}

/// A message to a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub switch: DatapathId,
    /// What the answer, or an error, is to be told by.
    pub ticket: Ticket,
    /// What it says.
    pub body: Body,
}

impl Control {
    /// No switches, no policies.
    pub fn new(limits: Limits) -> Self {
        Self {
            fabric: limits.discovery.clone().map(|discovery| Fabric::new(discovery).into()),
            routes: Shared::default(),
            copy_routes: Shared::default(),
            located: Shared::default(),
            parted: Shared::default(),
            talks: Shared::default(),
            is_vast: false,
            is_rewriting: false,
            unrouted: BTreeSet::new(),
            told_ways: 0,
            tags: Tags::default(),
            carriers: Forked::default(),
            unsettled_tags: BTreeSet::new(),
            joined_tags: BTreeMap::new(),
            lingering: BTreeSet::new(),
            monitor_hosts: MonitorHosts::default(),
            contests: Contests::new(contests::PACE),
            moves: Shared::default(),
            claims: Claims::new(claims::PACE),
            shaken: BTreeSet::new(),
            ended: BTreeSet::new(),
            now_ns: 0,
            listened: None,
            has_rewired: false,
            rewire_at: Millis(0),
            rewire_pause: Millis(0),
            lost_at: Millis(0),
            tree: Shared::default(),
            floods: Shared::default(),
            untagged_ends: Shared::default(),
            away: Shared::default(),
            told_links: Shared::default(),
            limits,
            switches: Switches::default(),
            touched: BTreeSet::new(),
            turns: Turns::default(),
            agenda: Agenda::default(),
            policies: Policies::default(),
            events: VecDeque::new(),
            rounds: Rounds::default(),
            checks: Checks::default(),
            now: Millis(0),
            clock: Clock::default(),
            is_trial: false,
        }
    }

    /// A switch connected. If it was connected already, the connection from before counts no more.
    pub fn handle_connected(&mut self, features: &FeaturesReply, now: Millis) {
        self.now = now;
        let id = features.datapath_id;
        self.make_room(id);
        let switch = self.switches.get_or_insert_with(id, || {
            // It is told the ways to all hosts.
            self.unrouted.extend(self.located.keys());
            Switch::new(id)
        });
        let before = switch.ahead();
        switch.handle_connected(&self.limits, now);
        self.turns.recount(before, switch.ahead());
        self.turns.note_awaited(id, switch.is_awaited());
        if self.fabric.is_some() {
            switch.hold(now);
        }
        self.agenda.note(switch);
        self.touched.insert(id);
        switch.ledger.retain_policies(|policy| self.policies.is_known(policy));
        self.collect_signals(id);
        self.schedule_checks();
    }

    /// The connection to a switch is lost.
    pub fn handle_disconnected(&mut self, switch: DatapathId) {
        self.with_switch(switch, |switch, _, now| switch.handle_disconnected(now));
    }

    /// The answer to what was sent with this ticket. Multiparts are whole.
    pub fn handle_reply(&mut self, switch: DatapathId, ticket: Ticket, body: &Body, now: Millis) {
        self.now = now;
        self.with_switch(switch, |switch, limits, now| {
            switch.handle_reply(ticket, body, limits, now);
        });
    }

    /// What was sent with this ticket failed.
    pub fn handle_error(
        &mut self,
        switch: DatapathId,
        ticket: Ticket,
        kind: ErrorKind,
        now: Millis,
    ) {
        self.now = now;
        self.with_switch(switch, |switch, limits, now| {
            switch.handle_error(ticket, kind, (limits, now));
        });
    }

    /// A message that nobody asked for.
    pub fn handle_message(&mut self, switch: DatapathId, body: &Body, now: Millis) {
        self.now = now;
        if let Body::PacketIn(packet_in) = body {
            if !self.handle_lldp(switch, packet_in) {
                self.handle_packet_in(switch, packet_in);
            }
            return;
        }
        self.with_switch(switch, |switch, limits, now| match body {
            Body::FlowRemoved(removed) => switch.handle_flow_removed(removed, limits, now),
            Body::PortStatus(status) => switch.handle_port_status(status, limits),
            _ => {}
        });
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Millis) {
        self.now = now;
        self.told_ways = 0;
        for id in self.agenda.due(now) {
            self.with_switch(id, Switch::handle_timeout);
        }
        self.settle_contests();
        self.settle_claims();
        self.read_counters();
        self.check_next();
        self.probe();
        self.handle_lifetimes();
    }

    /// What is sent next. Conclusions are drawn when nothing else waits, not for each message.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        loop {
            while let Some(id) = self.turns.next() {
                if let Some(transmit) = self.poll_switch(id) {
                    return Some(transmit);
                }
            }
            self.settle();
            self.turns.next()?;
        }
    }

    fn poll_switch(&mut self, id: DatapathId) -> Option<Transmit> {
        let Some(switch) = self.switches.get_mut(&id) else {
            self.turns.end(id, false);
            return None;
        };
        let before = switch.ahead();
        let outgoing = switch.poll_transmit(self.turns.has_room(), self.now);
        self.turns.recount(before, switch.ahead());
        self.turns.note_awaited(id, switch.is_awaited());
        let Some((ticket, body)) = outgoing else {
            self.turns.end(id, switch.waits_for_room());
            return None;
        };
        if body == Body::BarrierRequest {
            self.agenda.note(switch);
        }
        Some(Transmit { switch: id, ticket, body })
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.settle();
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Millis> {
        let probe = self.fabric.as_ref().and_then(|fabric| fabric.poll_timeout());
        debug_assert_eq!(
            self.agenda.next(),
            self.switches.values().filter_map(Switch::poll_timeout).min(),
            "each change of a switch is noted"
        );
        let rewiring = Some(self.rewire_at).filter(|at| *at > self.now);
        let routing = (!self.unrouted.is_empty()).then_some(self.now);
        let rounds = self.rounds.due(self.now, self.clock().listened);
        let own = [self.agenda.next(), self.clock.due(), rounds, self.checks.due()];
        let waits = [probe, rewiring, routing, self.contests.due(), self.claims.due()];
        waits.into_iter().chain(own).flatten().min()
    }

    /// The switches, connected or remembered.
    pub fn switches(&self) -> Vec<SwitchReport> {
        self.switches.values().map(|switch| self.report_switch(switch)).collect()
    }

    /// Whether a switch is connected and has told its ports.
    pub fn is_up(&self, switch: DatapathId) -> bool {
        self.switches.get(&switch).is_some_and(Switch::is_up)
    }

    /// Whether it is known what its ports are for as well.
    pub fn is_taken_over(&self, switch: DatapathId) -> bool {
        self.switches.get(&switch).is_some_and(|switch| switch.is_up() && !switch.is_held())
    }

    /// The switches that are named by monitors, whether or not they were ever connected.
    pub fn monitor_switches(&self) -> impl Iterator<Item = DatapathId> {
        self.policies.monitor_switches()
    }

    /// The hosts of all switches.
    pub fn hosts(&self) -> Vec<HostReport> {
        self.switches.values().flat_map(Switch::host_reports).collect()
    }

    /// Forgets the switch that has not been connected for longest, and its hosts, if there are too
    /// many for another one.
    fn make_room(&mut self, id: DatapathId) {
        if self.switches.contains_key(&id) || self.switches.len() < self.limits.max_switches {
            return;
        }
        let lost = self.switches.iter().filter_map(|(id, switch)| Some((switch.lost_at()?, *id)));
        let Some((_, oldest)) = lost.min() else { return };
        self.with_switch(oldest, |switch, _, _| switch.forget_hosts());
        self.switches.remove(&oldest);
        self.agenda.remove(oldest);
        if let Some(fabric) = &mut self.fabric {
            self.has_rewired |= fabric.forget(oldest, self.now);
        }
    }

    fn with_switch(&mut self, id: DatapathId, handle: impl FnOnce(&mut Switch, &Limits, Millis)) {
        if let Some(switch) = self.switches.get_mut(&id) {
            let before = switch.ahead();
            handle(switch, &self.limits, self.now);
            self.turns.recount(before, switch.ahead());
            self.turns.note_awaited(id, switch.is_awaited());
            self.agenda.note(switch);
            self.touched.insert(id);
            self.collect_signals(id);
        }
    }

    fn collect_signals(&mut self, id: DatapathId) {
        let Some(switch) = self.switches.get_mut(&id) else {
            return;
        };
        let signals = std::mem::take(&mut switch.signals);
        let (closed, uncarried) = switch.take_ends();
        let Signals { ports_moved, hosts, opened, begun, news, shut, swept, answered, events } =
            signals;
        if ports_moved {
            self.update_ports(id);
            self.policies.touch_at(id);
            self.shaken.insert(id);
            // What a switch that is not connected counts is not waited for.
            self.ended.extend(self.policies.deletions.keys());
        }
        if swept {
            self.handle_swept(id);
        }
        if shut {
            self.note_shut(id);
        }
        let left = self.collect_hosts(id, hosts);
        for tag in opened {
            self.touch_waiting(tag);
        }
        for tag in begun {
            self.tags.begin(tag, self.rounds.last());
        }
        for policy in news {
            self.note_state(policy, id);
        }
        for policy in closed {
            self.ended.insert(policy);
            self.unsettled_tags.extend(self.policies.stop_counting(policy, id));
        }
        for tag in uncarried {
            self.ended.extend(self.tags.users(tag).map(|(policy, _)| policy));
        }
        self.events.extend(events.into_iter().map(|event| with_origin(event, &left)));
        for token in answered {
            self.handle_answered(id, token);
        }
    }

    /// Returns where hosts were that moved.
    fn collect_hosts(
        &mut self,
        id: DatapathId,
        HostSignals { moved, talks, known, remembered, renamed, asked }: HostSignals,
    ) -> HashMap<HostKey, MonitorPort> {
        let mut left = HashMap::new();
        for host in remembered {
            self.forget_if_elsewhere(host, id);
        }
        for host in moved {
            self.policies.touch_mac(host.mac);
            left.extend(self.relocate(host, id).map(|from| (host, from)));
        }
        for (from, to) in talks {
            self.note_talk(from, to);
        }
        for key in known {
            self.note_known(key, id);
        }
        for address in renamed {
            self.policies.touch_ip(address);
        }
        for (key, port) in asked {
            self.contests.note_asked((key, Place { switch: id, port }), self.now);
        }
        left
    }

    /// Draws the conclusions of all that came in: where monitors are, what switches shall hold, how
    /// policies are doing.
    fn settle(&mut self) {
        self.schedule_reading();
        loop {
            self.thin_crowds();
            self.weigh_hosts();
            self.note_rewriting();
            self.rewire();
            self.route_hosts();
            self.place_policies();
            for id in std::mem::take(&mut self.touched) {
                if let Some(switch) = self.switches.get_mut(&id) {
                    if self.is_trial {
                        switch.begin_trial();
                    }
                    switch.flush(&self.limits, self.now);
                    self.turns.note_awaited(id, switch.is_awaited());
                    self.agenda.note(switch);
                    self.collect_signals(id);
                    self.turns.add(id);
                }
            }
            self.update_states();
            self.finish_replacements();
            self.finish_deletions();
            let is_settled = self.policies.dirty.is_empty() && self.unsettled_tags.is_empty();
            if is_settled && self.shaken.is_empty() && self.touched.is_empty() {
                return;
            }
        }
    }
}

/// A host that came to one switch and left another has moved.
fn with_origin(event: Event, left: &HashMap<HostKey, MonitorPort>) -> Event {
    match event {
        Event::HostSeen { mac, vlan, at } => match left.get(&HostKey { mac, vlan }) {
            Some(from) => Event::HostMoved { mac, vlan, from: from.clone(), at },
            None => Event::HostSeen { mac, vlan, at },
        },
        other => other,
    }
}
