//! State of one switch: what it has, what it should have, and what it was sent.
//!
//! Connection states: *down*; *reading*, while its tables are read; *read*, until the difference to
//! the desired state is sent; *up*. While it is down, all state is kept: the switch continues to
//! forward by its rules, and after a reconnect only the difference is sent.
//!
//! Changes to hosts and ports update the desired rules at once and incrementally; changes to
//! policies are translated when the caller asks for messages ([`Switch::flush`]), so that a burst
//! takes one translation.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use tapswitch_openflow::{
    Action, Body, DatapathId, ErrorKind, FlowRemoved, FlowRemovedReason, GroupId, MultipartRequest,
    MultipartRequestBody, PacketIn, PacketOut, PortNo, PortStatus,
};
use tapswitch_wire::MacAddr;

mod check;
mod counters;
mod detail;
mod floods;
mod foreseen;
mod forks;
mod lacks;
mod read_back;
mod refused;
mod report;
mod room;
mod signals;
mod silence;
mod sync;
mod wiring;

use crate::desired::Desired;
use crate::exit::Exit;
use crate::held::Held;
use crate::hosts::{Evidence, Host, HostKey, Hosts, Seen, Sighting};
use crate::learn;
use crate::ledger::{Ledger, Living};
use crate::outbox::{Failure, Outbox, Request};
use crate::overlap::{Closure, PolicyId, Tap};
use crate::ports::Ports;
use crate::question::question;
use crate::rule::{Cookie, FlowId, Kind};
use crate::shared::{Forked, Shared};
use crate::translate::{Station, Wiring, read_source, source_rule};
use crate::ways::Ways;
use crate::{BudgetError, Event, Limits, Millis, MonitorPort, StatsToken, Ticket};
use counters::Round;
use detail::{PortReading, Shown};
use floods::Fading;
pub(crate) use foreseen::Foreseen;
use foreseen::{Chronicle, Tried};
use forks::Forking;
use read_back::ReadBack;
use refused::Refused;
use room::LastFitted;
pub(crate) use signals::{HostSignals, Signals};
use silence::Silence;
use wiring::Carried;

/// One switch.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    id: DatapathId,
    link: Link,
    /// Whether it is a tapswitch, which supports contracts and ledgers of copies.
    is_ours: bool,
    /// Whether its description is known.
    is_described: bool,
    pub(crate) ports: Shared<Ports>,
    pub(crate) hosts: Shared<Hosts>,
    /// Routes to its own and other switches' hosts.
    ways: Shared<Ways>,
    /// Which forks it supports.
    forking: Forking,
    /// Roles of its ports.
    wiring: Shared<Wiring>,
    /// Ports by which it may still flood although they are closed now.
    fading: Fading,
    /// Copies in transit that it carries, by identifier.
    carries: Shared<BTreeMap<u16, Carried>>,
    /// Since when changes are held back, because the roles of its ports are not known yet.
    held_since: Option<Millis>,
    /// When the connection was last lost.
    lost_at: Millis,
    /// Ports with links, according to the rules that it had.
    remembered_links: BTreeSet<PortNo>,
    /// These and closed ports, until the ports are wired.
    remembered_cables: BTreeSet<PortNo>,
    /// Copies in transit that it carries until it is taken over: to which ports, and whether the
    /// tag is removed.
    remembered_carries: Shared<BTreeMap<u16, (Vec<PortNo>, bool)>>,
    /// Hosts that receive copies.
    monitors: BTreeSet<HostKey>,
    /// Policies to be applied.
    wanted: Forked<PolicyId, Tap>,
    /// Current and former ones to be compared with what is applied.
    stale: BTreeSet<PolicyId>,
    /// Policies applied by the rules in `desired`.
    closure: Shared<Closure>,
    /// Policies that copy at the egress.
    arrivals: Shared<Closure>,
    /// Additional rules due to pending changes in both closures.
    growth: isize,
    /// Policies that exceed the budget.
    over_budget: BTreeMap<PolicyId, BudgetError>,
    /// Number of hosts when these last failed to fit.
    crowd: usize,
    /// When these were last retried after hosts had gone, and when they are next.
    retried: Option<Millis>,
    retry_at: Option<Millis>,
    /// Policies that the switch rejected, and why.
    failed: HashMap<PolicyId, String>,
    /// Policies that are in force once this barrier is answered.
    installing: HashMap<PolicyId, Ticket>,
    /// Policies whose copies take another path once this barrier is answered.
    moving: HashMap<PolicyId, Ticket>,
    /// Unused groups with copies still queued.
    waiting_groups: Vec<GroupId>,
    /// When to read these again.
    ask_again_at: Option<Millis>,
    /// Last counters of its ports.
    port_readings: Shared<HashMap<PortNo, PortReading>>,
    /// Rounds of counters with answers outstanding.
    rounds: BTreeMap<StatsToken, Round>,
    /// Set since it failed to answer in time.
    silence: Option<Silence>,
    /// Details for display.
    shown: Shown,
    /// Groups whose last counters can be requested once this barrier is answered.
    idle_groups: Vec<(Ticket, GroupId)>,
    /// Hosts to be probed for presence once this barrier, if sent yet, is answered.
    questions: Vec<(Option<Ticket>, (HostKey, PortNo))>,
    /// Hosts without a source rule, since they are being probed.
    probed: BTreeSet<HostKey>,
    /// Rejections since the last barrier.
    failures: Vec<Failure>,
    desired: Shared<Desired>,
    held: Shared<Held>,
    pub(crate) ledger: Shared<Ledger>,
    outbox: Shared<Outbox>,
    pub(crate) signals: Signals,
    repair_at: Option<Millis>,
    /// Rules deleted by others and not restored yet.
    removed: HashSet<FlowId>,
    give_up_at: Option<Millis>,
    refusals: u64,
    /// Rejected rules to be sent again.
    refused: Refused,
    /// Number of rules and groups repaired after unexpected changes.
    drifted: u64,
    /// In a trial only the desired state counts, not the messages.
    is_trial: bool,
    /// The last result of fitting a policy.
    last_fitted: Option<Arc<LastFitted>>,
    /// The copies carried since the desired state changed otherwise.
    chronicle: Option<Chronicle>,
    /// In a trial: the policy added last.
    tried: Option<Tried>,
    /// Result of a trial of one more policy, for when that is added.
    foreseen: Option<Arc<Foreseen>>,
}

/// State of the connection.
#[derive(Clone, Debug)]
enum Link {
    Down,
    Reading(Box<ReadBack>),
    Read(Box<ReadBack>),
    Up,
}

impl Switch {
    /// A switch without any known state.
    pub(crate) fn new(id: DatapathId) -> Self {
        Self {
            id,
            link: Link::Down,
            is_ours: false,
            is_described: false,
            ports: Shared::default(),
            hosts: Shared::default(),
            ways: Shared::default(),
            forking: Forking::default(),
            wiring: Shared::default(),
            fading: Fading::new(),
            carries: Shared::default(),
            held_since: None,
            lost_at: Millis(0),
            remembered_links: BTreeSet::new(),
            remembered_cables: BTreeSet::new(),
            remembered_carries: Shared::default(),
            monitors: BTreeSet::new(),
            wanted: Forked::default(),
            stale: BTreeSet::new(),
            closure: Shared::default(),
            arrivals: Shared::default(),
            growth: 0,
            over_budget: BTreeMap::new(),
            crowd: 0,
            retried: None,
            retry_at: None,
            failed: HashMap::new(),
            installing: HashMap::new(),
            moving: HashMap::new(),
            waiting_groups: Vec::new(),
            ask_again_at: None,
            port_readings: Shared::default(),
            rounds: BTreeMap::new(),
            silence: None,
            shown: Shown::default(),
            idle_groups: Vec::new(),
            questions: Vec::new(),
            probed: BTreeSet::new(),
            failures: Vec::new(),
            desired: Shared::default(),
            held: Shared::default(),
            ledger: Shared::default(),
            outbox: Shared::default(),
            signals: Signals::default(),
            repair_at: None,
            removed: HashSet::new(),
            give_up_at: None,
            refusals: 0,
            refused: Refused::default(),
            drifted: 0,
            is_trial: false,
            last_fitted: None,
            chronicle: None,
            tried: None,
            foreseen: None,
        }
    }

    /// The switch has connected.
    pub(crate) fn handle_connected(&mut self, limits: &Limits, now: Millis) {
        self.handle_lost();
        self.failed.clear();
        self.forking = Forking::default();
        self.start_reading(true, limits, now);
    }

    /// The connection was lost.
    pub(crate) fn handle_disconnected(&mut self, now: Millis) {
        self.handle_lost();
        self.lost_at = now;
        self.signals.events.push(Event::SwitchDown { switch: self.id });
    }

    /// Processes a reply.
    pub(crate) fn handle_reply(
        &mut self,
        ticket: Ticket,
        body: &Body,
        limits: &Limits,
        now: Millis,
    ) {
        match (self.outbox.take(ticket, now), body) {
            (Some(Request::Barrier), Body::BarrierReply) => self.handle_barrier(ticket, now),
            (Some(Request::Sweep), _) => self.signals.swept = true,
            (Some(request), Body::MultipartReply(reply)) => {
                let is_taken = self.handle_counters(ticket, &request, reply, (limits, now))
                    || self.handle_compared(&request, reply, now);
                if !is_taken {
                    self.handle_read(&request, reply, limits);
                }
            }
            _ => {}
        }
    }

    /// Processes an error.
    pub(crate) fn handle_error(
        &mut self,
        ticket: Ticket,
        kind: ErrorKind,
        (limits, now): (&Limits, Millis),
    ) {
        match self.outbox.take(ticket, now) {
            None => {}
            Some(Request::Sweep) => self.signals.swept = true,
            Some(request @ (Request::Rule(..) | Request::Group(..) | Request::Deletion)) => {
                self.failures.push(Failure { ticket, request, kind });
            }
            Some(request) if request.asks_counters() => self.handle_no_counters(&request),
            Some(request) => self.handle_unreadable(&request, kind, limits),
        }
    }

    /// Processes a packet-in. Returns what it reveals about a host.
    pub(crate) fn handle_packet_in(&mut self, packet_in: &PacketIn) -> Option<Sighting> {
        let cookie = Cookie(packet_in.cookie);
        if self.is_down() || !cookie.is_ours() {
            return None;
        }
        if cookie.is(Kind::TapHost) || cookie.is(Kind::TapAnywhere) {
            self.handle_copy(packet_in, cookie);
            if !self.wiring.asks {
                return None;
            }
        }
        learn::sighting(packet_in).filter(|sighting| self.may_have_hosts(sighting.port))
    }

    /// Records an accepted sighting of a host.
    pub(crate) fn handle_sighting(&mut self, sighting: &Sighting, limits: &Limits, now: Millis) {
        if self.is_down() || !self.may_have_hosts(sighting.port) {
            return;
        }
        let (seen, renamed) = self.hosts.handle_sighting(sighting, limits, now);
        let claimed = match sighting.evidence {
            Some(Evidence::Claim(address)) => renamed.contains(&address).then_some(address),
            _ => None,
        };
        self.signals.hosts.renamed.extend(renamed);
        if self.is_rival(sighting, seen == Seen::New, claimed) {
            self.hosts.note_conflict();
        }
        if seen == (Seen::Hurried { is_first: true }) {
            self.tell_crowd(sighting.port, limits);
        }
        if let Seen::Moved { from } = seen {
            self.remove_source(sighting.key, from);
            self.probed.remove(&sighting.key);
        }
        if matches!(seen, Seen::New | Seen::Moved { .. }) {
            self.insert_source(sighting.key, sighting.port);
            self.set_way(sighting.key, Some(Exit::here(sighting.port).into()));
            self.note_moved(sighting.key);
            self.tell_host(sighting.key, sighting.port, seen);
        }
        self.note_talk(sighting.key, sighting.to);
    }

    /// Whether a new host, or a claimed address, is in conflict with another host, behind another
    /// port, that receives copies.
    fn is_rival(&self, sighting: &Sighting, is_new: bool, claimed: Option<IpAddr>) -> bool {
        let is_monitor = |(key, host): (HostKey, &Host)| {
            let is_elsewhere = key != sighting.key && host.port != sighting.port;
            is_elsewhere && self.monitors.contains(&key)
        };
        is_new && self.hosts.with_mac(sighting.key.mac).any(is_monitor)
            || claimed.is_some_and(|address| self.hosts.with_address(address).any(is_monitor))
    }

    /// Probes a host for presence once its frames are sent to the controller: an earlier reply
    /// would only be forwarded, and hosts are faster than rule changes.
    pub(crate) fn ask_host(&mut self, key: HostKey) {
        let Some(port) = self.hosts.find(key).map(|host| host.port) else { return };
        self.remove_source(key, port);
        self.probed.insert(key);
        self.questions.push((None, (key, port)));
    }

    /// Assigns the barrier to probes whose source rules have been deleted.
    fn ask_hosts(&mut self, barrier: Ticket) {
        let is_reached = |at: &Option<Ticket>| at.is_some_and(|at| at <= barrier);
        let mut reached: Vec<_> =
            self.questions.extract_if(.., |(at, _)| is_reached(at)).map(|(_, host)| host).collect();
        reached.retain(|(key, _)| self.send_questions(*key));
        self.signals.hosts.asked.extend(reached);
    }

    /// Probes a host. Returns whether it has an address to ask for.
    pub(crate) fn send_questions(&mut self, key: HostKey) -> bool {
        let Some(host) = self.hosts.find(key) else { return false };
        let asked: Vec<_> = host.all_addresses().take(MAX_ASKED).collect();
        asked.iter().for_each(|address| self.send_question(key, *address));
        !asked.is_empty()
    }

    /// Asks a host for one of its addresses, by ARP or neighbour solicitation.
    pub(crate) fn send_question(&mut self, key: HostKey, address: IpAddr) {
        if let Some(port) = self.hosts.find(key).map(|host| host.port)
            && self.is_up()
        {
            let actions = vec![Action::output(port)];
            let packet = PacketOut::new(question(key, address), actions);
            self.send_unanswered(Body::PacketOut(packet));
        }
    }

    /// A host loses an address.
    pub(crate) fn lose_address(&mut self, key: HostKey, address: IpAddr) {
        self.hosts.release(key, address);
        self.signals.hosts.renamed.insert(address);
    }

    /// Gives an address to a host that another host had.
    pub(crate) fn take_address(
        &mut self,
        key: HostKey,
        address: IpAddr,
        limits: &Limits,
        now: Millis,
    ) {
        let renamed = self.hosts.claim(key, address, limits, now);
        self.signals.hosts.renamed.extend(renamed);
    }

    /// A probed host has answered; its frames are no longer sent to the controller.
    pub(crate) fn know_again(&mut self, key: HostKey, port: PortNo) {
        self.questions.retain(|(_, asked)| *asked != (key, port));
        if self.probed.remove(&key) && self.hosts.find(key).is_some_and(|host| host.port == port) {
            self.insert_source(key, port);
        }
    }

    /// Whether a host that receives copies may still be behind its port.
    pub(crate) fn keeps_host(&self, key: HostKey, port: PortNo) -> bool {
        self.is_up() && self.may_have_hosts(port) && self.monitors.contains(&key)
    }

    fn may_have_hosts(&self, port: PortNo) -> bool {
        self.ports.is_up(port) && self.is_edge(port)
    }

    /// Records that a host sends to another one, to which the switch may need a route.
    fn note_talk(&mut self, from: HostKey, to: MacAddr) {
        let to = HostKey { mac: to, ..from };
        if to.mac.is_unicast() {
            self.signals.hosts.talks.insert((from, to));
        }
    }

    /// Hosts with a route.
    pub(crate) fn known_hosts(&self) -> impl Iterator<Item = HostKey> {
        self.ways.iter().map(|(key, _)| key)
    }

    /// Whether there is a route to a host.
    pub(crate) fn knows_way(&self, key: HostKey) -> bool {
        self.ways.knows(key)
    }

    /// A port was added, removed or changed.
    pub(crate) fn handle_port_status(&mut self, status: &PortStatus, limits: &Limits) {
        let port = status.desc.port_no;
        let was_up = self.ports.is_up(port);
        if self.ports.handle_status(status, limits.max_ports) {
            self.forget_behind(port);
        }
        let is_up = self.ports.is_up(port);
        if was_up != is_up {
            let at = MonitorPort { name: status.desc.name.to_string(), ..self.monitor_port(port) };
            self.signals.events.push(Event::PortChanged { at, is_up });
        }
        self.signals.ports_moved = true;
    }

    /// Processes a flow-removed.
    pub(crate) fn handle_flow_removed(
        &mut self,
        removed: &FlowRemoved,
        limits: &Limits,
        now: Millis,
    ) {
        let cookie = Cookie(removed.cookie);
        if self.is_down() || !cookie.is_ours() {
            return;
        }
        let id = FlowId::new(removed.table_id, removed.priority, removed.match_fields.clone());
        let is_idle = removed.reason == FlowRemovedReason::IDLE_TIMEOUT;
        self.note_removed(&id);
        if self.ledger.handle_removed(&id, removed) {
            return;
        }
        let was_held = self.held.forget_rule(&id);
        if cookie.is(Kind::Source) && is_idle {
            self.handle_idle_host(&id);
        } else if was_held {
            // Deleted by others, who may continue; so check again later.
            self.removed.insert(id);
            self.repair_at.get_or_insert(now.plus(limits.repair_delay));
        }
    }

    /// Processes timers that are due.
    pub(crate) fn handle_timeout(&mut self, living: &Living<'_>, limits: &Limits, now: Millis) {
        self.handle_slow_reading(limits, now);
        self.handle_no_barrier(now);
        if self.repair_due().is_some_and(|at| at <= now) {
            self.repair_at = None;
            self.start_reading(false, limits, now);
        }
        self.retry_refused(now);
        // Whether they fit is checked in the next flush.
        self.retry_at = self.retry_at.filter(|at| *at > now);
        if self.give_up_at.is_some_and(|at| at <= now) {
            self.give_up(limits.final_counts_wait, living, now);
        }
        if self.ask_again_at.is_some_and(|at| at <= now) {
            self.ask_again_at = None;
            for group in std::mem::take(&mut self.waiting_groups) {
                self.ask_last(group);
            }
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        let retry_at = self.retry_at.filter(|_| self.is_up());
        let asked = [self.reading_deadline(), self.barrier_deadline(), self.ask_again_at];
        let own = [self.give_up_at, self.refused.due(), self.repair_due(), retry_at];
        asked.into_iter().chain(own).flatten().min()
    }

    /// The next message to send; a change only if `has_room`.
    pub(crate) fn poll_transmit(&mut self, has_room: bool, now: Millis) -> Option<(Ticket, Body)> {
        self.outbox.poll(has_room, now)
    }

    /// Whether a change is next that the switch's own window allows.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.outbox.is_held()
    }

    /// Clears the window in a trial, in which nothing is confirmed.
    pub(crate) fn forget_ahead(&mut self) {
        self.outbox.forget_ahead();
    }

    /// From here on only the desired state is computed, no messages.
    pub(crate) const fn begin_trial(&mut self) {
        self.is_trial = true;
    }

    /// In a trial: treats all messages, sent or queued, as confirmed.
    pub(crate) fn confirm_all(&mut self, now: Millis) {
        self.begin_trial();
        let last = self.outbox.last();
        self.outbox = self.outbox.done().into();
        self.handle_barrier(last, now);
    }

    /// Whether there are unconfirmed changes, sent or queued.
    pub(crate) fn is_awaited(&self) -> bool {
        self.outbox.is_awaited()
    }

    /// The last unanswered barrier.
    pub(crate) fn sent_barrier(&self) -> Option<Ticket> {
        self.outbox.sent_barrier()
    }

    /// Number of unconfirmed changes that were sent.
    pub(crate) fn ahead(&self) -> usize {
        self.outbox.ahead()
    }

    /// Sets or removes a policy to be applied. Contracts and shapes are dropped if the switch does
    /// not support them. Returns whether it changed.
    pub(crate) fn want(&mut self, id: PolicyId, tap: Option<Tap>) -> bool {
        let tap = tap.map(|tap| self.in_its_words(tap));
        if self.wanted.get(&id) == tap.as_ref() {
            return false;
        }
        match tap {
            Some(tap) => _ = self.wanted.insert(id, tap),
            None => _ = self.wanted.remove(&id),
        }
        self.stale.insert(id);
        true
    }

    /// The policy as this switch can express it: only our own switches know delivery contracts and
    /// parts of packets.
    pub(super) fn in_its_words(&self, tap: Tap) -> Tap {
        match self.is_ours {
            true => tap,
            false => Tap { delivery: None, part: tap.part.plain(), ..tap },
        }
    }

    /// Policies to be applied.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = PolicyId> {
        self.wanted.keys().copied()
    }

    /// Sets the hosts that receive copies; they never time out.
    pub(crate) fn set_monitors(&mut self, monitors: BTreeSet<HostKey>) {
        let changed = self.monitors.symmetric_difference(&monitors);
        let hosts = changed.filter_map(|key| Some((*key, self.hosts.find(*key)?.port)));
        let hosts: Vec<_> = hosts.collect();
        for (key, port) in &hosts {
            self.remove_source(*key, *port);
        }
        self.monitors = monitors;
        for (key, port) in hosts {
            self.insert_source(key, port);
        }
    }

    /// Whether the switch is connected and has been read.
    pub(crate) const fn is_up(&self) -> bool {
        match &self.link {
            Link::Up | Link::Read(_) => true,
            Link::Reading(read) => !read.is_first,
            Link::Down => false,
        }
    }

    /// Policies and identifiers that nothing counts for any more, as in the ledger.
    pub(crate) fn take_ends(&mut self) -> (Vec<PolicyId>, Vec<u16>) {
        match self.ledger.has_ends() {
            true => self.ledger.take_ends(),
            // Avoids copying the ledger if there are none.
            false => Default::default(),
        }
    }

    /// Whether it is being read again, with changes held back meanwhile.
    pub(crate) const fn is_reread(&self) -> bool {
        self.is_up() && !matches!(self.link, Link::Up)
    }

    /// The desired rules.
    pub(crate) fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The desired rules, for tests that corrupt them.
    #[cfg(test)]
    pub(crate) fn desired_mut(&mut self) -> &mut Desired {
        &mut self.desired
    }

    /// What it has of ours, assuming that all sent messages took effect.
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Whether it is known to be no tapswitch.
    pub(crate) const fn is_other(&self) -> bool {
        self.is_described && !self.is_ours
    }

    /// Since when the switch is disconnected.
    pub(crate) fn lost_at(&self) -> Option<Millis> {
        self.is_down().then_some(self.lost_at)
    }

    /// Whether the switch is disconnected.
    pub(crate) const fn is_down(&self) -> bool {
        matches!(self.link, Link::Down)
    }

    fn handle_lost(&mut self) {
        self.distrust_floods();
        (self.link, self.silence) = (Link::Down, None);
        self.shown = Shown::default();
        self.take_all_counters();
        let lost = self.outbox.clear();
        self.signals.swept |= lost.contains(&Request::Sweep);
        self.signals.answered.extend(lost.iter().filter_map(Request::token));
        self.waiting_groups.clear();
        self.ask_again_at = None;
        self.ledger.handle_disconnected();
        self.distrust_carries();
        self.held_since = None;
        self.installing.clear();
        self.moving.clear();
        self.idle_groups.clear();
        self.questions.clear();
        self.failures.clear();
        self.refused = Refused::default();
        self.repair_at = None;
        self.removed.clear();
        self.signals.ports_moved = true;
    }

    /// A host's rule timed out: the host is forgotten unless it receives copies.
    fn handle_idle_host(&mut self, id: &FlowId) {
        let Some((key, port)) = read_source(id) else {
            return;
        };
        if self.hosts.find(key).is_none_or(|host| host.port != port) {
            return;
        }
        match self.monitors.contains(&key) {
            true => self.desired.touch(id.clone().into()),
            false => self.forget_host(key),
        }
    }

    pub(crate) fn forget_hosts(&mut self) {
        let all: Vec<_> = self.hosts.iter().map(|(key, _)| key).collect();
        all.into_iter().for_each(|key| self.forget_host(key));
    }

    fn forget_behind(&mut self, port: PortNo) {
        self.hosts.behind(port).into_iter().for_each(|key| self.forget_host(key));
    }

    /// Limits the hosts behind a port to `max` until `until`, except those that receive copies.
    /// Returns the removed hosts: those seen last.
    pub(crate) fn thin_out(&mut self, port: PortNo, max: usize, until: Millis) -> Vec<HostKey> {
        let excess = self.hosts.bound(port, max, until);
        let hosts = self
            .hosts
            .iter()
            .filter(|(key, host)| host.port == port && !self.monitors.contains(key));
        let mut hosts: Vec<_> = hosts.map(|(key, host)| (host.last_seen, key)).collect();
        hosts.sort_unstable();
        let gone: Vec<_> = hosts.into_iter().rev().take(excess).map(|(_, key)| key).collect();
        gone.iter().for_each(|key| self.forget_host(*key));
        gone
    }

    /// The host is no longer behind a port of this switch.
    pub(crate) fn forget_host(&mut self, key: HostKey) {
        let Some(host) = self.hosts.remove(key) else {
            return;
        };
        self.remove_source(key, host.port);
        self.probed.remove(&key);
        self.set_way(key, None);
        let (HostKey { mac, vlan }, at) = (key, self.monitor_port(host.port));
        self.signals.events.push(Event::HostGone { mac, vlan, at });
        self.signals.hosts.renamed.extend(host.all_addresses());
        self.signals.hosts.moved.insert(key);
    }

    /// A host was added or has moved to another port.
    fn note_moved(&mut self, key: HostKey) {
        let addresses = self.hosts.find(key).into_iter().flat_map(Host::all_addresses);
        self.signals.hosts.renamed.extend(addresses);
        self.signals.hosts.moved.insert(key);
    }

    fn tell_host(&mut self, HostKey { mac, vlan }: HostKey, port: PortNo, seen: Seen) {
        let at = self.monitor_port(port);
        self.signals.events.push(match seen {
            Seen::Moved { from } => {
                Event::HostMoved { mac, vlan, from: self.monitor_port(from), at }
            }
            _ => Event::HostSeen { mac, vlan, at },
        });
    }

    /// Reports that new hosts arrive too fast at a port.
    fn tell_crowd(&mut self, port: PortNo, limits: &Limits) {
        let Limits { host_burst, host_interval, .. } = limits;
        let reason = format!(
            "more than {host_burst} new hosts at once at {}; frames to hosts that appear faster \
             than one per {} ms are flooded: find out why there are so many source addresses there",
            self.monitor_port(port),
            host_interval.0
        );
        self.signals.events.push(Event::Crowded { switch: self.id, reason });
    }

    /// Restores a host from one of our rules.
    /// Lets the switch recognise a host, unless it is being probed.
    fn insert_source(&mut self, key: HostKey, port: PortNo) {
        if !self.probed.contains(&key) {
            let rule = source_rule(self.station(key, port));
            self.desired.insert(rule);
        }
    }

    fn remove_source(&mut self, key: HostKey, port: PortNo) {
        let rule = source_rule(self.station(key, port));
        self.desired.remove(&rule);
    }

    fn station(&self, key: HostKey, port: PortNo) -> Station {
        Station { key, port, is_monitor: self.monitors.contains(&key) }
    }

    fn ask(&mut self, body: MultipartRequestBody, request: Request) {
        self.outbox.send(Body::MultipartRequest(MultipartRequest::new(body)), request);
    }
}

/// Maximum addresses of a host to probe.
const MAX_ASKED: usize = 4;
