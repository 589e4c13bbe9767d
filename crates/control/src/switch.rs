//! One switch: what is known of it, what it shall hold, and what it was told.
//!
//! States of the connection: *down*; *reading*, while the switch tells what it holds; *read*, until
//! the difference to what it shall hold is sent; *up*. While down, everything is remembered: the
//! switch forwards on by the rules that it has, and when it is back only the difference is sent.
//!
//! Hosts and ports change the desired rules at once, piece by piece; policies change them when the
//! caller asks for what to send ([`Switch::flush`]), so that a burst costs one translation.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use tapswitch_openflow::{
    Action, Body, DatapathId, ErrorKind, FlowRemoved, FlowRemovedReason, GroupId, MultipartRequest,
    MultipartRequestBody, PacketIn, PacketOut, PortNo, PortStatus,
};
use tapswitch_wire::MacAddr;

mod check;
mod counters;
mod detail;
mod floods;
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
use crate::ledger::Ledger;
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
use forks::Forking;
use read_back::ReadBack;
use refused::Refused;
pub(crate) use signals::{HostSignals, Signals};
use silence::Silence;
use wiring::Carried;

/// One switch.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    id: DatapathId,
    link: Link,
    /// Whether it is a switch of ours, which knows contracts and tells what became of copies.
    is_ours: bool,
    /// Whether it told what kind of switch it is.
    is_described: bool,
    pub(crate) ports: Shared<Ports>,
    pub(crate) hosts: Shared<Hosts>,
    /// The ways to its hosts and to those of others.
    ways: Shared<Ways>,
    /// What it can do about several of them.
    forking: Forking,
    /// What its ports are for.
    wiring: Shared<Wiring>,
    /// By which of them floods may still go, though they shall not.
    fading: Fading,
    /// Copies of others that it carries, by their VLAN identifier.
    carries: Shared<BTreeMap<u16, Carried>>,
    /// Since when it is not told anything new, for it is not known yet what its ports are for.
    held_since: Option<Millis>,
    /// When the connection was lost last.
    lost_at: Millis,
    /// Ports that led to other switches, by the rules that it had.
    remembered_links: BTreeSet<PortNo>,
    /// The same, and those of which it was not known what was there, until they are wired.
    remembered_cables: BTreeSet<PortNo>,
    /// Copies of others that it carried already: out of which ports, and whether untagged.
    remembered_carries: Shared<BTreeMap<u16, (Vec<PortNo>, bool)>>,
    /// Hosts to which copies go.
    monitors: BTreeSet<HostKey>,
    /// The policies that shall be applied here.
    wanted: Forked<PolicyId, Tap>,
    /// Those of them, and those before, that are to be compared with what is applied.
    stale: BTreeSet<PolicyId>,
    /// Those that are, by the rules in `desired`.
    closure: Shared<Closure>,
    /// Those that copy what goes out to hosts.
    arrivals: Shared<Closure>,
    /// Rules that what changed in both makes more, while it is found out what fits.
    growth: isize,
    /// Those that do not fit the budget.
    over_budget: BTreeMap<PolicyId, BudgetError>,
    /// Hosts that it knew the way to when it was last seen that those do not fit.
    crowd: usize,
    /// When they were last tried again because hosts had gone, and when they are next.
    retried: Option<Millis>,
    retry_at: Option<Millis>,
    /// Policies that the switch refused, and why.
    failed: HashMap<PolicyId, String>,
    /// Policies that are in force when this barrier is reached.
    installing: HashMap<PolicyId, Ticket>,
    /// Policies whose copies go another way when this barrier is reached.
    moving: HashMap<PolicyId, Ticket>,
    /// Groups that no rule uses, and copies of which wait for a port to take them.
    waiting_groups: Vec<GroupId>,
    /// When to ask for those again.
    ask_again_at: Option<Millis>,
    /// What its ports counted, as it was told last.
    port_readings: Shared<HashMap<PortNo, PortReading>>,
    /// Counters of which some are still to be told.
    rounds: BTreeMap<StatsToken, Round>,
    /// Since it did not tell them in time.
    silence: Option<Silence>,
    /// What it said that it holds, for whoever asked.
    shown: Shown,
    /// Groups whose last counters can be asked for when this barrier is reached.
    idle_groups: Vec<(Ticket, GroupId)>,
    /// Hosts that are asked whether they are there when this barrier is reached, once there is one.
    questions: Vec<(Option<Ticket>, (HostKey, PortNo))>,
    /// What the switch refused since the last barrier.
    failures: Vec<Failure>,
    desired: Shared<Desired>,
    held: Shared<Held>,
    pub(crate) ledger: Shared<Ledger>,
    outbox: Shared<Outbox>,
    pub(crate) signals: Signals,
    repair_at: Option<Millis>,
    /// Rules that somebody else deleted, and that were not put back yet.
    removed: HashSet<FlowId>,
    give_up_at: Option<Millis>,
    refusals: u64,
    /// Rules that it refused, and that are sent again.
    refused: Refused,
    /// Rules and groups that were not as they shall be, and were put right.
    drifted: u64,
    /// What it shall hold is all that matters, not what it is to be told.
    is_trial: bool,
}

/// How far the connection is.
#[derive(Clone, Debug)]
enum Link {
    Down,
    Reading(Box<ReadBack>),
    Read(Box<ReadBack>),
    Up,
}

impl Switch {
    /// A switch of which nothing is known.
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
        }
    }

    /// The switch connected.
    pub(crate) fn handle_connected(&mut self, limits: &Limits, now: Millis) {
        self.handle_lost();
        self.failed.clear();
        self.forking = Forking::default();
        self.start_reading(true, limits, now);
    }

    /// The connection is lost.
    pub(crate) fn handle_disconnected(&mut self, now: Millis) {
        self.handle_lost();
        self.lost_at = now;
        self.signals.events.push(Event::SwitchDown { switch: self.id });
    }

    /// An answer came.
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

    /// What was sent failed.
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

    /// The switch sent something up. Returns what that says of a host.
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

    /// A host was seen, and is believed to be there.
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
        }
        if matches!(seen, Seen::New | Seen::Moved { .. }) {
            self.insert_source(sighting.key, sighting.port);
            self.set_way(sighting.key, Some(Exit::here(sighting.port).into()));
            self.note_moved(sighting.key);
            self.tell_host(sighting.key, sighting.port, seen);
        }
        self.note_talk(sighting.key, sighting.to);
    }

    /// Whether a host that is new, or has claimed an address, has it from another one, elsewhere,
    /// to which copies go.
    fn is_rival(&self, sighting: &Sighting, is_new: bool, claimed: Option<IpAddr>) -> bool {
        let is_monitor = |(key, host): (HostKey, &Host)| {
            let is_elsewhere = key != sighting.key && host.port != sighting.port;
            is_elsewhere && self.monitors.contains(&key)
        };
        is_new && self.hosts.with_mac(sighting.key.mac).any(is_monitor)
            || claimed.is_some_and(|address| self.hosts.with_address(address).any(is_monitor))
    }

    /// Asks a host whether it is still there, as soon as what it sends is shown to the controller:
    /// an answer that comes before is merely forwarded, and hosts are faster than changes.
    pub(crate) fn ask_host(&mut self, key: HostKey) {
        let Some(port) = self.hosts.find(key).map(|host| host.port) else { return };
        self.remove_source(key, port);
        self.questions.push((None, (key, port)));
    }

    /// Asks those whose rules are away by now.
    fn ask_hosts(&mut self, barrier: Ticket) {
        let is_reached = |at: &Option<Ticket>| at.is_some_and(|at| at <= barrier);
        let mut reached: Vec<_> =
            self.questions.extract_if(.., |(at, _)| is_reached(at)).map(|(_, host)| host).collect();
        reached.retain(|(key, _)| self.send_questions(*key));
        self.signals.hosts.asked.extend(reached);
    }

    /// Returns whether there is an address of the host that it can be asked for.
    pub(crate) fn send_questions(&mut self, key: HostKey) -> bool {
        let Some(host) = self.hosts.find(key) else { return false };
        let asked: Vec<_> = host.all_addresses().take(MAX_ASKED).collect();
        asked.iter().for_each(|address| self.send_question(key, *address));
        !asked.is_empty()
    }

    /// Asks a host for one of its addresses.
    pub(crate) fn send_question(&mut self, key: HostKey, address: IpAddr) {
        if let Some(port) = self.hosts.find(key).map(|host| host.port)
            && self.is_up()
        {
            let actions = vec![Action::output(port)];
            let packet = PacketOut::new(question(key, address), actions);
            self.send_unanswered(Body::PacketOut(packet));
        }
    }

    /// A host does not have an address any more.
    pub(crate) fn lose_address(&mut self, key: HostKey, address: IpAddr) {
        self.hosts.release(key, address);
        self.signals.hosts.renamed.insert(address);
    }

    /// A host has an address that another one had.
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

    /// A host that was asked is there; what it sends is shown no more.
    pub(crate) fn know_again(&mut self, key: HostKey, port: PortNo) {
        self.questions.retain(|(_, asked)| *asked != (key, port));
        if self.hosts.find(key).is_some_and(|host| host.port == port) {
            // It may be known again since the switch connected again.
            self.remove_source(key, port);
            self.insert_source(key, port);
        }
    }

    /// Whether a host that copies go to may still be behind its port.
    pub(crate) fn keeps_host(&self, key: HostKey, port: PortNo) -> bool {
        self.is_up() && self.may_have_hosts(port) && self.monitors.contains(&key)
    }

    fn may_have_hosts(&self, port: PortNo) -> bool {
        self.ports.is_up(port) && self.is_edge(port)
    }

    /// A host sends to another one, the way to which the switch may not know.
    fn note_talk(&mut self, from: HostKey, to: MacAddr) {
        let to = HostKey { mac: to, ..from };
        if to.mac.is_unicast() {
            self.signals.hosts.talks.insert((from, to));
        }
    }

    /// The hosts that it knows the way to.
    pub(crate) fn known_hosts(&self) -> impl Iterator<Item = HostKey> {
        self.ways.iter().map(|(key, _)| key)
    }

    /// Whether it knows the way to a host.
    pub(crate) fn knows_way(&self, key: HostKey) -> bool {
        self.ways.knows(key)
    }

    /// A port came, went or changed.
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

    /// A rule is gone.
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
        if self.ledger.handle_removed(&id, removed) {
            return;
        }
        let was_held = self.held.forget_rule(&id);
        if cookie.is(Kind::Source) && is_idle {
            self.handle_idle_host(&id);
        } else if was_held {
            // Somebody else deleted it. Whoever that was may go on, so look again later.
            self.removed.insert(id);
            self.repair_at.get_or_insert(now.plus(limits.repair_delay));
        }
    }

    /// Time passed.
    pub(crate) fn handle_timeout(&mut self, limits: &Limits, now: Millis) {
        self.handle_slow_reading(limits, now);
        self.handle_no_barrier(now);
        if self.repair_at.is_some_and(|at| at <= now) && self.is_up() {
            self.repair_at = None;
            self.start_reading(false, limits, now);
        }
        self.retry_refused(now);
        // Whether they are is looked at when it is told what is new.
        self.retry_at = self.retry_at.filter(|at| *at > now);
        if self.give_up_at.is_some_and(|at| at <= now) {
            self.give_up(limits.final_counts_wait, now);
        }
        if self.ask_again_at.is_some_and(|at| at <= now) {
            self.ask_again_at = None;
            for group in std::mem::take(&mut self.waiting_groups) {
                self.ask_last(group);
            }
        }
    }

    /// When [`Self::handle_timeout`] may have something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        let repair_at = self.repair_at.filter(|_| self.is_up());
        let retry_at = self.retry_at.filter(|_| self.is_up());
        let asked = [self.reading_deadline(), self.barrier_deadline(), self.ask_again_at];
        let own = [self.give_up_at, self.refused.due(), repair_at, retry_at];
        asked.into_iter().chain(own).flatten().min()
    }

    /// What the switch is sent next; changes only if there is room for them.
    pub(crate) fn poll_transmit(&mut self, has_room: bool, now: Millis) -> Option<(Ticket, Body)> {
        self.outbox.poll(has_room, now)
    }

    /// Whether there are changes for it that it has not too many of.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.outbox.is_held()
    }

    /// What it was sent will not be confirmed, for this is a trial of what comes next.
    pub(crate) fn forget_ahead(&mut self) {
        self.outbox.forget_ahead();
    }

    /// From here on it is only found out what it shall hold: it is not told that.
    pub(crate) const fn begin_trial(&mut self) {
        self.is_trial = true;
    }

    /// In a trial, it did all that it was told, and all that it is to be told.
    pub(crate) fn confirm_all(&mut self, now: Millis) {
        self.begin_trial();
        let last = self.outbox.last();
        self.outbox = self.outbox.done().into();
        self.handle_barrier(last, now);
    }

    /// Whether there are changes for it that it did not confirm, sent or not.
    pub(crate) fn is_awaited(&self) -> bool {
        self.outbox.is_awaited()
    }

    /// The last barrier that it was sent and did not reach.
    pub(crate) fn sent_barrier(&self) -> Option<Ticket> {
        self.outbox.sent_barrier()
    }

    /// Changes that it was sent and did not confirm.
    pub(crate) fn ahead(&self) -> usize {
        self.outbox.ahead()
    }

    /// A policy shall be applied here so, or not at all. Contracts and parts of frames are for
    /// switches that know them. Returns whether that is news.
    pub(crate) fn want(&mut self, id: PolicyId, tap: Option<Tap>) -> bool {
        let tap = tap.map(|tap| match self.is_ours {
            true => tap,
            false => Tap { delivery: None, part: tap.part.plain(), ..tap },
        });
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

    /// The policies that shall be applied here.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = PolicyId> {
        self.wanted.keys().copied()
    }

    /// The hosts to which copies go; they are not forgotten however silent they are.
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

    /// Whether the switch is connected and told what it holds.
    pub(crate) const fn is_up(&self) -> bool {
        match &self.link {
            Link::Up | Link::Read(_) => true,
            Link::Reading(read) => !read.is_first,
            Link::Down => false,
        }
    }

    /// What counts for nobody any more, as the ledger says.
    pub(crate) fn take_ends(&mut self) -> (Vec<PolicyId>, Vec<u16>) {
        match self.ledger.has_ends() {
            true => self.ledger.take_ends(),
            // It is not copied for nothing.
            false => Default::default(),
        }
    }

    /// Whether it is being read again, and told nothing meanwhile.
    pub(crate) const fn is_reread(&self) -> bool {
        self.is_up() && !matches!(self.link, Link::Up)
    }

    /// The rules that it shall have.
    pub(crate) fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The same, to be made wrong.
    #[cfg(test)]
    pub(crate) fn desired_mut(&mut self) -> &mut Desired {
        &mut self.desired
    }

    /// What it holds of ours, with all that was sent already done.
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Whether it said that it is not ours.
    pub(crate) const fn is_other(&self) -> bool {
        self.is_described && !self.is_ours
    }

    /// Since when the switch is not connected.
    pub(crate) fn lost_at(&self) -> Option<Millis> {
        self.is_down().then_some(self.lost_at)
    }

    /// Whether the switch is not connected.
    pub(crate) const fn is_down(&self) -> bool {
        matches!(self.link, Link::Down)
    }

    fn handle_lost(&mut self) {
        self.distrust_floods();
        (self.link, self.silence) = (Link::Down, None);
        self.shown = Shown::default();
        self.take_all_counters();
        let lost = self.outbox.clear().into_iter().filter_map(|request| request.token());
        self.signals.answered.extend(lost);
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

    /// Gives up waiting for last counters that should have come: they may well come while it has
    /// more to answer, or we have answers to read; but not forever.
    fn give_up(&mut self, wait: Millis, now: Millis) {
        let waits = if self.outbox.is_behind() { PATIENCE } else { 1 };
        let since = Millis(now.0.saturating_sub(waits * wait.0) + 1);
        self.ledger.give_up_before(since);
        for group in self.ledger.give_up_groups_before(since) {
            self.waiting_groups.retain(|waiting| *waiting != group);
            self.delete_group(group);
        }
        let soon = now.plus(Millis(wait.0 / 4));
        self.give_up_at = self.ledger.closing_since().map(|since| since.plus(wait).max(soon));
    }

    /// A host's rule was idle: the host is forgotten, unless copies go to it.
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

    /// There may be no more hosts behind a port than so many, until then; those that get copies
    /// stay. Returns those that go: who was seen last.
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

    /// The host is not behind any port of this switch.
    pub(crate) fn forget_host(&mut self, key: HostKey) {
        let Some(host) = self.hosts.remove(key) else {
            return;
        };
        self.remove_source(key, host.port);
        self.set_way(key, None);
        let (HostKey { mac, vlan }, at) = (key, self.monitor_port(host.port));
        self.signals.events.push(Event::HostGone { mac, vlan, at });
        self.signals.hosts.renamed.extend(host.all_addresses());
        self.signals.hosts.moved.insert(key);
    }

    /// A host came, or is behind another port.
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

    /// New hosts come too fast behind a port.
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

    /// A host is at a port, by a rule of ours.
    fn insert_source(&mut self, key: HostKey, port: PortNo) {
        let rule = source_rule(self.station(key, port));
        self.desired.insert(rule);
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

/// How many times as long last counters are waited for while other answers are to come.
const PATIENCE: u64 = 15;
/// Addresses that a host is asked for.
const MAX_ASKED: usize = 4;
