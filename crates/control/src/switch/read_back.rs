//! Reads the tables of a switch, and takes it over.
//!
//! A switch that connects may be new, may have lost its tables, or may have everything from before,
//! from this or an earlier run of the controller. One procedure covers all cases: request its
//! description, ports, rules, groups and counters, accept what is there, and send the difference.
//! Hosts are restored from the rules that recognise them, so that a restarted controller disturbs
//! nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use tapswitch_openflow::multipart::{Desc, FlowStats, GroupDesc, GroupStats};
use tapswitch_openflow::{
    Body, BucketLedger, ErrorKind, GroupId, MANUFACTURER, MultipartReply, MultipartReplyBody,
    MultipartRequestBody, StartsSuffice,
};

use tapswitch_wire::MacAddr;

use super::check::{id_of, our_rules};
use super::counters::{Round, our_taps};
use super::forks::Forking;
use super::{Link, Switch};
use crate::group::is_in_range;
use crate::hash::Set;
use crate::held::{Drift, group_of};
use crate::hosts::Sighting;
use crate::ledger::BucketValue;
use crate::outbox::{Request, Ticket};
use crate::rule::{Cookie, FlowId, Kind};
use crate::shared::Shared;
use crate::translate::{Wiring, base_rules, read_link, read_source, read_way};
use crate::{Counts, Event, Limits, Millis};

/// Replies so far.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBack {
    /// After a connect; otherwise it is read again because others changed it.
    pub(super) is_first: bool,
    since: Millis,
    deadline: Millis,
    /// Whether it is a tapswitch.
    is_ours: Option<bool>,
    has_ports: bool,
    rules: Option<Vec<FlowStats>>,
    groups: Option<Vec<GroupDesc>>,
    counters: Option<Vec<GroupStats>>,
    /// The copying rules, read again after the counters.
    again: Vec<FlowStats>,
    /// Outstanding replies to that.
    agains_left: u8,
    /// Whether its group features are known, or unsupported.
    has_features: bool,
    /// From a tapswitch.
    ledgers: Option<Vec<BucketLedger>>,
    /// Rules that it reported, and then that they are gone.
    gone: Set<FlowId>,
}

impl ReadBack {
    const fn is_whole(&self) -> bool {
        let has_ledgers = match self.is_ours {
            Some(is_ours) => !is_ours || self.ledgers.is_some(),
            None => false,
        };
        let has_groups = self.groups.is_some() && self.counters.is_some() && self.has_features;
        let has_rules = self.rules.is_some() && self.agains_left == 0;
        has_ledgers && has_groups && has_rules && self.has_ports
    }

    /// A rule was removed; if it has not been reported by now, it will not be.
    fn note_removed(&mut self, id: &FlowId) {
        if self.rules.as_ref().is_some_and(|rules| self.gone.len() < rules.len()) {
            self.gone.insert(id.clone());
        }
    }

    /// Drops the rules that are gone.
    fn drop_gone(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        if let Some(rules) = self.rules.as_mut().filter(|_| !gone.is_empty()) {
            rules.retain(|rule| !gone.contains(&id_of(rule)));
        }
    }
}

impl Switch {
    /// A rule was removed while the tables are being read, or before they are taken over.
    pub(super) fn note_removed(&mut self, id: &FlowId) {
        if let Link::Reading(read) | Link::Read(read) = &mut self.link {
            read.note_removed(id);
        }
    }

    /// Requests the tables of the switch.
    pub(super) fn start_reading(&mut self, is_first: bool, limits: &Limits, now: Millis) {
        let deadline = now.plus(limits.read_back_wait);
        let read =
            ReadBack { is_first, since: now, deadline, agains_left: 1, ..ReadBack::default() };
        self.link = Link::Reading(Box::new(read));
        self.outbox.send(Body::BarrierRequest, Request::Barrier);
        self.ask(MultipartRequestBody::Desc, Request::Description);
        self.ask(MultipartRequestBody::PortDesc, Request::Ports);
        self.ask(MultipartRequestBody::Flow(our_rules()), Request::Rules);
        self.ask(MultipartRequestBody::GroupDesc, Request::Groups);
        self.ask(MultipartRequestBody::Group(GroupId::ALL), Request::GroupCounters);
        self.ask(MultipartRequestBody::Flow(our_taps()), Request::RulesAgain);
        self.ask(MultipartRequestBody::GroupFeatures, Request::GroupFeatures);
    }

    /// Processes a reply.
    pub(super) fn handle_read(
        &mut self,
        request: &Request,
        reply: &MultipartReply,
        limits: &Limits,
    ) {
        if let (Request::Ports, MultipartReplyBody::PortDesc(ports)) = (request, &reply.body) {
            // At once: later port status messages are newer.
            let lost = self.ports.handle_description(ports, limits.max_ports);
            lost.into_iter().for_each(|port| self.forget_behind(port));
        }
        let Link::Reading(read) = &mut self.link else {
            return;
        };
        match (request, &reply.body) {
            (Request::Description, MultipartReplyBody::Desc(desc)) => {
                return self.handle_description(desc, limits);
            }
            (Request::GroupLedgers, MultipartReplyBody::Experimenter(body)) => {
                match BucketLedger::all_of(body) {
                    Ok(ledgers) => read.ledgers = Some(ledgers),
                    Err(error) => return self.handle_unreadable(request, error.kind, limits),
                }
            }
            (Request::Ports, MultipartReplyBody::PortDesc(_)) => read.has_ports = true,
            (Request::Rules, MultipartReplyBody::Flow(rules)) => {
                let ours = rules.iter().filter(|rule| Cookie(rule.cookie).is_ours());
                read.rules = Some(ours.cloned().collect());
            }
            (Request::RulesAgain, MultipartReplyBody::Flow(rules)) => {
                read.again.clone_from(rules);
                read.agains_left = read.agains_left.saturating_sub(1);
            }
            (Request::Groups, MultipartReplyBody::GroupDesc(groups)) => {
                let ours = groups.iter().filter(|group| is_in_range(group.group_id));
                read.groups = Some(ours.cloned().collect());
            }
            (Request::GroupFeatures, MultipartReplyBody::GroupFeatures(features)) => {
                read.has_features = true;
                self.forking = Forking::of_features(features);
            }
            (Request::GroupCounters, MultipartReplyBody::Group(groups)) => {
                let ours = groups.iter().filter(|group| is_in_range(group.group_id));
                read.counters = Some(ours.cloned().collect());
            }
            _ => return,
        }
        self.finish_reading(limits);
    }

    /// Processes the description: other switches are not sent extensions. A tapswitch is told that
    /// we only look at packets; one that is too old rejects that, and does not send more anyway.
    fn handle_description(&mut self, desc: &Desc, limits: &Limits) {
        let Link::Reading(read) = &mut self.link else {
            return;
        };
        let is_ours = desc.mfr_desc.content() == MANUFACTURER.as_bytes();
        read.is_ours = Some(is_ours);
        if is_ours {
            read.agains_left += 1;
            self.send_unanswered(Body::Experimenter(StartsSuffice.experimenter()));
            self.ask_ledgers(GroupId::ALL, Request::GroupLedgers);
            self.ask(MultipartRequestBody::Flow(our_taps()), Request::RulesAgain);
        }
        self.finish_reading(limits);
    }

    /// The switch rejected a request, which counts as an empty reply. A switch without groups still
    /// forwards.
    pub(super) fn handle_unreadable(
        &mut self,
        request: &Request,
        kind: ErrorKind,
        limits: &Limits,
    ) {
        let Link::Reading(read) = &mut self.link else {
            return;
        };
        match request {
            // A tapswitch without ledgers is too old for contracts, too.
            Request::Description | Request::GroupLedgers => read.is_ours = Some(false),
            Request::RulesAgain => {
                read.again.clear();
                read.agains_left = read.agains_left.saturating_sub(1);
            }
            Request::Ports => read.has_ports = true,
            Request::Rules => read.rules = Some(Vec::new()),
            Request::Groups => read.groups = Some(Vec::new()),
            Request::GroupCounters => read.counters = Some(Vec::new()),
            Request::GroupFeatures => {
                read.has_features = true;
                self.forking = Forking::NONE;
            }
            _ => return,
        }
        let reason = format!("asked for its rules and groups ({request:?}): {kind}");
        self.signals.events.push(Event::RuleRefused { switch: self.id, reason });
        self.finish_reading(limits);
    }

    /// Reports a switch that does not answer in time.
    pub(super) fn handle_slow_reading(&mut self, limits: &Limits, now: Millis) {
        let wait = limits.read_back_wait;
        if let Link::Reading(read) = &mut self.link
            && read.deadline <= now
        {
            read.deadline = now.plus(wait);
            let seconds = wait.0 / 1000;
            let reason = format!("it did not report its rules and groups within {seconds} s");
            self.signals.events.push(Event::SwitchMisbehaved { switch: self.id, reason });
        }
    }

    /// When the replies are due.
    pub(super) fn reading_deadline(&self) -> Option<Millis> {
        match &self.link {
            Link::Reading(read) => Some(read.deadline),
            _ => None,
        }
    }

    /// Accepts what the switch has, and sends the difference. The switch is up from now on.
    pub(super) fn adopt(&mut self, mut read: ReadBack, limits: &Limits, now: Millis) {
        read.drop_gone();
        // Earlier replies are older than what was read.
        self.rounds.values_mut().for_each(|round| *round = Round::default());
        let rules = read.rules.unwrap_or_default();
        let groups = read.groups.unwrap_or_default();
        let counters: HashMap<_, _> =
            read.counters.iter().flatten().map(|stats| (stats.group_id, stats)).collect();
        let drift = match read.is_first {
            // After a connect, differences are expected.
            true => Drift::default(),
            false => self.find_drift(&rules, &groups),
        };
        let before: HashSet<_> = self.closure.taps().keys().copied().collect();
        self.start_over(limits);
        let own = self.own_groups(&counters);
        let unused = self.held.adopt(&rules, &groups, &own, &self.desired);
        let values = match read.ledgers {
            Some(ledgers) => BucketValue::of_ledgers(&ledgers),
            None => {
                counters.iter().map(|(id, stats)| (*id, BucketValue::of_stats(stats))).collect()
            }
        };
        self.adopt_counters((&rules, &read.again), &groups, &values);
        self.touch_all();
        self.link = Link::Up;
        let barrier = self.send_difference(unused, limits, now);
        // From here on it is changed, and has what it confirms.
        self.remembered_carries = Shared::default();
        let new =
            self.closure.taps().keys().copied().filter(|id| read.is_first || !before.contains(id));
        let new: Vec<_> = new.collect();
        self.signals.news.extend(&new);
        self.installing.extend(new.into_iter().map(|id| (id, barrier)));
        if read.is_first {
            self.signals.events.push(Event::SwitchUp { switch: self.id });
        }
        self.tell_drift(&drift);
    }

    /// Restores hosts as soon as all replies are there: monitors may be named by them.
    fn finish_reading(&mut self, limits: &Limits) {
        if let Link::Reading(read) = &mut self.link
            && read.is_whole()
        {
            let mut read = std::mem::take(read);
            read.drop_gone();
            (self.is_ours, self.is_described) = (read.is_ours == Some(true), true);
            self.search_early(read.rules.as_deref().unwrap_or_default());
            let groups = read.groups.as_deref().unwrap_or_default();
            self.remember_carries(read.rules.as_deref().unwrap_or_default(), groups);
            if read.is_first {
                self.remember_floods(read.rules.as_deref().unwrap_or_default());
            }
            self.adopt_hosts(read.rules.as_deref().unwrap_or_default(), read.since, limits);
            self.link = Link::Read(read);
            self.signals.ports_moved = true;
        }
    }

    /// Restores hosts from the rules that recognise them. A host without its rule timed out, unless
    /// it is being probed, the switch lost all its rules, or the host was seen after the request.
    fn adopt_hosts(&mut self, rules: &[FlowStats], since: Millis, limits: &Limits) {
        let ids = rules.iter().map(|rule| (id_of(rule), Cookie(rule.cookie)));
        let (sources, others): (Vec<_>, Vec<_>) =
            ids.partition(|(_, cookie)| cookie.is(Kind::Source));
        let links = others.iter().filter(|(_, cookie)| cookie.is(Kind::Port));
        self.remembered_links = links.filter_map(|(id, _)| read_link(id)).collect();
        let placed: HashMap<_, _> = sources.iter().filter_map(|(id, _)| read_source(id)).collect();
        let ways = others.iter().filter(|(_, cookie)| cookie.is(Kind::Destination));
        self.signals.hosts.known.extend(ways.filter_map(|(id, _)| read_way(id)));
        let base = base_rules(&Wiring::default());
        let has_base = base.iter().any(|(base, _)| others.iter().any(|(id, _)| id == base));
        let gone: Vec<_> = self
            .hosts
            .iter()
            .filter(|(key, host)| {
                let is_stale = has_base && !placed.contains_key(key) && !self.probed.contains(key);
                !self.ports.is_up(host.port) || is_stale && host.last_seen < since
            })
            .map(|(key, _)| key)
            .collect();
        gone.into_iter().for_each(|key| self.forget_host(key));
        // They arrived one by one.
        let limits = &Limits { host_burst: usize::MAX, ..limits.clone() };
        for (key, port) in placed {
            let known = self.hosts.find(key);
            let is_newer = known.is_some_and(|host| host.last_seen >= since);
            if known.is_none() {
                self.signals.hosts.remembered.insert(key);
            }
            if self.ports.is_up(port) && !is_newer {
                let to = MacAddr::BROADCAST;
                let sighting = Sighting { key, port, evidence: None, to, inner_vlans: None };
                self.hosts.handle_sighting(&sighting, limits, since);
                self.note_moved(key);
            }
        }
    }

    /// Groups of ours that no rule of ours may use: those that we created, and unused ones in our
    /// id range from an earlier run.
    fn own_groups(&self, counters: &HashMap<GroupId, &GroupStats>) -> Set<GroupId> {
        let left = counters.values().filter(|stats| stats.ref_count == 0);
        let known = self.held.groups().map(|(_, id)| id).chain(self.ledger.group_ids());
        left.map(|stats| stats.group_id).chain(known).collect()
    }

    /// Takes over counters that were running before. Rules and groups are read one after the other;
    /// frames in between would be counted in one only, which is detected by reading the rules
    /// twice.
    fn adopt_counters(
        &mut self,
        (rules, again): (&[FlowStats], &[FlowStats]),
        groups: &[GroupDesc],
        values: &BTreeMap<GroupId, Vec<BucketValue>>,
    ) {
        let there: HashSet<_> = groups.iter().map(|group| group.group_id).collect();
        self.ledger.retain(|id| self.held.has_rule(id), |id| there.contains(&id));
        let counts = |stats: &FlowStats| Counts::known(stats.packet_count, stats.byte_count);
        let last: HashMap<_, _> = again.iter().map(|stats| (id_of(stats), counts(stats))).collect();
        for stats in rules {
            let id = id_of(stats);
            let goal = self.desired.find(&id).and_then(|rule| group_of(&rule.outcome));
            let Some(key) = goal.filter(|key| !key.is_fork()) else { continue };
            if self.held.goes_to(&id, key) {
                let later = last.get(&id).copied();
                self.ledger.adopt_rule(&id.into(), key, stats, later);
            } else {
                // A rule to be redirected still counts for its former policies until then, and
                // starts from zero afterwards.
                self.ledger.handle_first_rule_counts(&id, counts(stats), Ticket::LAST);
            }
        }
        for (key, id) in self.held.groups() {
            let values = values.get(&id).map_or(&[][..], Vec::as_slice);
            if self.ledger.adopt_group(id, key, values) {
                self.signals.begun.extend(key.carried_tag());
            }
        }
    }

    /// Marks all rules for comparison.
    fn touch_all(&mut self) {
        let ids = self.desired.ids().chain(self.held.rule_ids());
        let ids: Vec<_> = ids.cloned().collect();
        ids.into_iter().for_each(|id| self.desired.touch(id));
    }
}
