//! The control plane of a fabric: all switches and all policies.

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
use crate::ledger::Living;
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

/// The control plane: state of switches and hosts, and the TAP policies.
///
/// There are four kinds of methods:
///
/// - getters, taking `&self`;
/// - `handle_*`: input from switches, and the passing of time;
/// - commands: adding and deleting policies, requesting counters;
/// - `poll_*`: output. After any of the above, call [`Self::poll_transmit`] until it returns
///   `None`, then [`Self::poll_event`] likewise, and call [`Self::handle_timeout`] no later than
///   [`Self::poll_timeout`].
///
/// Transaction ids belong to connections. Messages have a [`Ticket`] instead, by which the caller
/// reports the reply or error for a message.
#[derive(Clone, Debug)]
pub struct Control {
    limits: Limits,
    switches: Switches,
    /// Switches with input since the last [`Self::settle`].
    touched: BTreeSet<DatapathId>,
    /// Switches that may have messages to send.
    turns: Turns,
    /// Switches with a timer or unfinished work.
    agenda: Agenda,
    policies: Policies,
    events: VecDeque<Event>,
    /// Requests for counters.
    rounds: Rounds,
    /// Which switch is checked next for unexpected changes.
    checks: Checks,
    /// Links between switches, if discovery is on.
    fabric: Option<Shared<Fabric>>,
    routes: Shared<Routes>,
    /// Routes of copies, which avoid links that do not take them.
    copy_routes: Shared<Routes>,
    /// The switch of each host.
    located: Shared<Located>,
    /// Hosts that may be at several switches which are not connected.
    parted: Shared<BTreeSet<HostKey>>,
    talks: Shared<Talks>,
    /// There are so many hosts that not every switch has routes to all of them.
    is_vast: bool,
    /// Copies may travel with other addresses.
    is_rewriting: bool,
    /// Hosts whose routes have to be computed.
    unrouted: BTreeSet<HostKey>,
    /// Routes sent since the last timeout.
    told_ways: usize,
    tags: Tags,
    /// By identifier: the switches that carry such copies.
    carriers: Forked<u16, BTreeMap<DatapathId, Carry>>,
    /// Identifiers whose carriers have to be computed.
    unsettled_tags: BTreeSet<u16>,
    /// Identifiers that got more users, and which.
    joined_tags: BTreeMap<u16, Vec<Use>>,
    /// Identifiers of copies that are still sent by an obsolete path.
    lingering: BTreeSet<u16>,
    monitor_hosts: MonitorHosts,
    /// Hosts whose location is in question.
    contests: Contests,
    moves: Shared<Moves>,
    /// Addresses whose holder is in question.
    claims: Claims,
    /// Switches that were added, removed, or whose ports changed.
    shaken: BTreeSet<DatapathId>,
    /// Deleted policies that may be finished.
    ended: BTreeSet<PolicyId>,
    /// The latest time given.
    now: Millis,
    /// The same in nanoseconds, with another origin.
    now_ns: u64,
    /// Time during which input was being processed.
    listened: Option<Millis>,
    /// Links or edges changed.
    has_rewired: bool,
    /// Earliest time for handling that, and the current delay.
    rewire_at: Millis,
    rewire_pause: Millis,
    /// Time of the last failure of a used link.
    lost_at: Millis,
    /// Link ports of the flood tree.
    tree: Shared<BTreeSet<Place>>,
    /// Links that carry floods until all switches have the new tree.
    floods: Shared<Floods>,
    /// Ends of links that send no S-tags, and so no tagged copies.
    untagged_ends: Shared<BTreeSet<Place>>,
    /// Switches that were disconnected when links were last handled.
    away: Shared<BTreeSet<DatapathId>>,
    /// Links that were reported.
    told_links: Shared<BTreeMap<(Place, Place), (MonitorPort, MonitorPort)>>,
    /// The time of day, for expiry and schedules.
    clock: Clock,
    /// Trial: the desired state is computed, and nothing is sent.
    is_trial: bool,
    /// Switches that hold the result of a trial for the next change.
    foreseen: Vec<DatapathId>,
}

/// A message to a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The switch.
    pub switch: DatapathId,
    /// Identifies the message in a reply or an error.
    pub ticket: Ticket,
    /// The message.
    pub body: Body,
}

impl Control {
    /// A control plane without switches and policies.
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
            foreseen: Vec::new(),
        }
    }

    /// A switch has connected. If it was connected already, the former connection is void.
    pub fn handle_connected(&mut self, features: &FeaturesReply, now: Millis) {
        self.now = now;
        let id = features.datapath_id;
        self.make_room(id);
        let switch = self.switches.get_or_insert_with(id, || {
            // It gets the routes to all hosts.
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

    /// The connection to a switch was lost.
    pub fn handle_disconnected(&mut self, switch: DatapathId) {
        self.with_switch(switch, |switch, _, now| switch.handle_disconnected(now));
    }

    /// Processes the reply to a message. Multipart replies must be complete.
    pub fn handle_reply(&mut self, switch: DatapathId, ticket: Ticket, body: &Body, now: Millis) {
        self.now = now;
        self.with_switch(switch, |switch, limits, now| {
            switch.handle_reply(ticket, body, limits, now);
        });
    }

    /// Processes the error for a message.
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

    /// Processes an unsolicited message.
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

    /// Processes timers that are due.
    pub fn handle_timeout(&mut self, now: Millis) {
        self.now = now;
        self.told_ways = 0;
        for id in self.agenda.due(now) {
            self.handle_switch_timeout(id);
        }
        self.settle_contests();
        self.settle_claims();
        self.read_counters();
        self.check_next();
        self.probe();
        self.handle_lifetimes();
    }

    /// The next message to send. Input is evaluated when no messages are left, not for each input.
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

    /// The next event.
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

    /// Switches, connected or remembered.
    pub fn switches(&self) -> Vec<SwitchReport> {
        self.switches.values().map(|switch| self.report_switch(switch)).collect()
    }

    /// Whether a switch is connected and its ports are known.
    pub fn is_up(&self, switch: DatapathId) -> bool {
        self.switches.get(&switch).is_some_and(Switch::is_up)
    }

    /// Whether the roles of its ports are known, too.
    pub fn is_taken_over(&self, switch: DatapathId) -> bool {
        self.switches.get(&switch).is_some_and(|switch| switch.is_up() && !switch.is_held())
    }

    /// Switches named by monitors, whether or not they ever connected.
    pub fn monitor_switches(&self) -> impl Iterator<Item = DatapathId> {
        self.policies.monitor_switches()
    }

    /// The hosts of all switches.
    pub fn hosts(&self) -> Vec<HostReport> {
        self.switches.values().flat_map(Switch::host_reports).collect()
    }

    /// Forgets the switch that has been disconnected for longest, with its hosts, if there is no
    /// room for another switch.
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

    /// Processes the timers of a switch that are due.
    fn handle_switch_timeout(&mut self, id: DatapathId) {
        let is_there = |policy| self.policies.get(policy).is_some();
        let is_used = |tag| self.tags.users(tag).any(|(policy, _)| is_there(policy));
        let living = Living { is_there: &is_there, is_used: &is_used };
        if let Some(switch) = self.switches.get_mut(&id) {
            let before = switch.ahead();
            switch.handle_timeout(&living, &self.limits, self.now);
            self.note_handled(id, before);
        }
    }

    fn with_switch(&mut self, id: DatapathId, handle: impl FnOnce(&mut Switch, &Limits, Millis)) {
        if let Some(switch) = self.switches.get_mut(&id) {
            let before = switch.ahead();
            handle(switch, &self.limits, self.now);
            self.note_handled(id, before);
        }
    }

    /// A switch, with `before` unconfirmed changes, has processed input.
    fn note_handled(&mut self, id: DatapathId, before: usize) {
        if let Some(switch) = self.switches.get_mut(&id) {
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
            // Counters of a disconnected switch are not waited for.
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

    /// Returns the former ports of hosts that moved.
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

    /// Evaluates all input: locates monitors, updates the desired state of switches and the states
    /// of policies.
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
                return self.forget_foreseen();
            }
        }
    }
}

/// Turns the event of a new host into a move if the host left another switch.
fn with_origin(event: Event, left: &HashMap<HostKey, MonitorPort>) -> Event {
    match event {
        Event::HostSeen { mac, vlan, at } => match left.get(&HostKey { mac, vlan }) {
            Some(from) => Event::HostMoved { mac, vlan, from: from.clone(), at },
            None => Event::HostSeen { mac, vlan, at },
        },
        other => other,
    }
}
