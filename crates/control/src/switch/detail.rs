//! Details of a switch for display, requested on demand.

use std::collections::HashMap;
use std::sync::Arc;

use tapswitch_openflow::multipart::{
    FlowStats, FlowStatsRequest, GroupDesc, GroupStats, PortStats,
};
use tapswitch_openflow::{
    Bucket, GroupId, Instruction, MultipartReplyBody, MultipartRequestBody, PortNo,
};

use super::Switch;
use crate::detail::{
    BucketReport, GroupReport, PortCounters, PortDetail, PortLoad, Purpose, RuleReport, Standing,
    SwitchDetails,
};
use crate::group::{GroupKey, is_in_range};
use crate::held::{does, group_of};
use crate::outbox::Request;
use crate::rule::{Cookie, FlowId, Kind, Outcome};
use crate::{Counts, Millis, StatsToken};

/// Replies collected for display.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    rules: Option<Vec<FlowStats>>,
    groups: Option<Vec<GroupDesc>>,
    counters: Vec<GroupStats>,
}

/// Counters of a port, and when they were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortReading {
    counters: PortCounters,
    at: Millis,
    load: Option<PortLoad>,
}

impl Switch {
    /// Requests all tables. Returns the number of replies.
    pub(crate) fn ask_details(&mut self, token: StatsToken) -> usize {
        if !self.is_up() {
            return 0;
        }
        self.shown = Shown::default();
        let all = FlowStatsRequest::default();
        self.ask(MultipartRequestBody::Flow(all), Request::ShownRules(token));
        self.ask(MultipartRequestBody::GroupDesc, Request::ShownGroups(token));
        self.ask(MultipartRequestBody::Group(GroupId::ALL), Request::ShownCounters(token));
        self.ask_ports(token) + 3
    }

    /// Requests the counters of all ports. Returns the number of replies.
    pub(crate) fn ask_ports(&mut self, token: StatsToken) -> usize {
        if !self.is_up() {
            return 0;
        }
        let ports = MultipartRequestBody::PortStats(PortNo::ANY);
        self.ask(ports, Request::PortStats(token));
        1
    }

    /// Processes a reply for display. Returns whether the request was for that.
    pub(super) fn handle_shown(&mut self, request: &Request, body: &MultipartReplyBody) -> bool {
        match (request, body) {
            (Request::ShownRules(_), MultipartReplyBody::Flow(rules)) => {
                self.shown.rules = Some(rules.clone());
            }
            (Request::ShownGroups(_), MultipartReplyBody::GroupDesc(groups)) => {
                self.shown.groups = Some(groups.clone());
            }
            (Request::ShownCounters(_), MultipartReplyBody::Group(counters)) => {
                self.shown.counters.clone_from(counters);
            }
            _ => return false,
        }
        true
    }

    /// Records the counters of all ports.
    pub(super) fn handle_port_stats(&mut self, ports: &[PortStats], now: Millis) {
        let known = ports.iter().filter(|port| self.ports.find(port.port_no).is_some());
        let readings = known.map(|port| {
            let before = self.port_readings.get(&port.port_no);
            (port.port_no, PortReading::new(port, before, now))
        });
        self.port_readings = readings.collect::<HashMap<_, _>>().into();
    }

    /// Frames dropped at a port's egress, for switches without ledgers.
    pub(crate) fn tx_dropped(&self, port: PortNo) -> Option<u64> {
        let reading = self.port_readings.get(&port).filter(|_| !self.is_ours)?;
        reading.counters.tx_dropped
    }

    /// Known load of its ports.
    pub(crate) fn loads(&self) -> impl Iterator<Item = (PortNo, PortLoad)> {
        self.port_readings.iter().filter_map(|(port, reading)| Some((*port, reading.load?)))
    }

    /// All known details. The collected replies are consumed.
    pub(crate) fn take_details(&mut self) -> SwitchDetails {
        let Shown { rules, groups, counters } = std::mem::take(&mut self.shown);
        SwitchDetails {
            ports: self.port_details().collect(),
            rules: self.rule_reports(rules),
            groups: self.group_reports(groups, &counters),
        }
    }

    fn port_details(&self) -> impl Iterator<Item = PortDetail> {
        self.port_reports().map(|(number, port)| {
            let reading = self.port_readings.get(&number);
            PortDetail {
                port,
                counters: reading.map(|reading| reading.counters),
                load: reading.and_then(|reading| reading.load),
            }
        })
    }

    fn rule_reports(&self, told: Option<Vec<FlowStats>>) -> Vec<RuleReport> {
        let was_told = told.is_some();
        let id_of = |stats: &FlowStats| {
            FlowId::new(stats.table_id, stats.priority, stats.match_fields.clone())
        };
        let told = told.into_iter().flatten();
        let mut told: HashMap<_, _> = told.map(|stats| (id_of(&stats), stats)).collect();
        let ids: HashMap<_, _> = self.held.groups().collect();
        let id = |key: &Arc<GroupKey>| ids.get(key).copied().unwrap_or(GroupId::ANY);
        let mut reports = Vec::new();
        for (rule, goal) in self.desired.rules() {
            let wanted = goal.outcome.map_group(id);
            let stats = told.remove(rule.as_ref());
            let standing = match &stats {
                None if !was_told => Standing::Unread,
                None => Standing::Missing,
                Some(stats) if Outcome::read(&stats.instructions).as_ref() == Some(&wanted) => {
                    Standing::InPlace
                }
                Some(_) => Standing::Other,
            };
            let key = group_of(&goal.outcome);
            let policies = key.map(|key| self.policies_of(key)).unwrap_or_default();
            let does = actions(&wanted.instructions());
            let told = Told::of(stats.as_ref());
            reports.push(rule_report(rule, (goal.cookie, policies), does, standing, told));
        }
        reports.extend(told.iter().map(|(rule, stats)| unwanted_rule(rule, stats)));
        reports
    }

    fn group_reports(
        &self,
        told: Option<Vec<GroupDesc>>,
        counters: &[GroupStats],
    ) -> Vec<GroupReport> {
        let was_told = told.is_some();
        let told = told.into_iter().flatten().map(|group| (group.group_id, group));
        let mut told: HashMap<_, _> = told.collect();
        let counters: HashMap<_, _> =
            counters.iter().map(|stats| (stats.group_id, stats)).collect();
        let mut reports = Vec::new();
        for (key, id) in self.held.groups() {
            let group = told.remove(&id);
            let standing = match &group {
                None if !was_told => Standing::Unread,
                None => Standing::Missing,
                Some(group) if does(group, key, self.held.next(id)) => Standing::InPlace,
                Some(_) => Standing::Other,
            };
            let group = group.unwrap_or_else(|| wanted_group(id, key, self.held.next(id)));
            let policies = self.policies_of(key);
            reports.push(group_report(&group, counters.get(&id).copied(), policies, standing));
        }
        for (id, group) in told {
            let standing = if is_in_range(id) { Standing::Surplus } else { Standing::Foreign };
            let counted = counters.get(&id).copied();
            reports.push(group_report(&group, counted, Vec::new(), standing));
        }
        reports
    }

    /// Names of the policies that a group serves.
    fn policies_of(&self, key: &GroupKey) -> Vec<String> {
        let taps = self.closure.taps();
        let named = key.members.iter().filter_map(|member| taps.get(&member.policy));
        let mut names: Vec<_> = named.map(|tap| tap.name.to_string()).collect();
        names.dedup();
        names
    }
}

impl PortReading {
    fn new(port: &PortStats, before: Option<&Self>, now: Millis) -> Self {
        let known = |count: u64| (count != u64::MAX).then_some(count);
        let counters = PortCounters {
            rx_packets: known(port.rx_packets),
            rx_bytes: known(port.rx_bytes),
            rx_dropped: known(port.rx_dropped),
            rx_errors: known(port.rx_errors),
            tx_packets: known(port.tx_packets),
            tx_bytes: known(port.tx_bytes),
            tx_dropped: known(port.tx_dropped),
            tx_errors: known(port.tx_errors),
        };
        let fresh = Self { counters, at: now, load: None };
        match before {
            // Too short for a meaningful rate; the next reading continues from the earlier one.
            Some(before) if now.since(before.at) < LOAD_SPAN_MIN => *before,
            Some(before) => Self { load: fresh.load_since(before), ..fresh },
            None => fresh,
        }
    }

    fn load_since(&self, before: &Self) -> Option<PortLoad> {
        let millis = self.at.since(before.at).0;
        let rate = |now: Option<u64>, then: Option<u64>| {
            let bytes = u128::from(now?.checked_sub(then?)?);
            u64::try_from(bytes * 1000 / u128::from(millis.max(1))).ok()
        };
        let (now, then) = (&self.counters, &before.counters);
        let rx = rate(now.rx_bytes, then.rx_bytes)?;
        let tx = rate(now.tx_bytes, then.tx_bytes)?;
        // Over a long time it would not be the current rate.
        (millis <= LOAD_SPAN_MAX.0).then_some(PortLoad { rx, tx })
    }
}

/// A rule as reported by the switch.
#[derive(Default)]
struct Told {
    counts: Option<Counts>,
    age_s: Option<u32>,
}

impl Told {
    fn of(stats: Option<&FlowStats>) -> Self {
        let counts = stats.and_then(|stats| counts(stats.packet_count, stats.byte_count));
        Self { counts, age_s: stats.map(|stats| stats.duration_sec) }
    }
}

fn counts(packets: u64, bytes: u64) -> Option<Counts> {
    (packets != u64::MAX).then(|| Counts::known(packets, bytes))
}

/// A rule that the switch has but should not have, or one of another owner.
fn unwanted_rule(id: &FlowId, stats: &FlowStats) -> RuleReport {
    let cookie = Cookie(stats.cookie);
    let standing = if cookie.is_ours() { Standing::Surplus } else { Standing::Foreign };
    let does = actions(&stats.instructions);
    rule_report(id, (cookie, Vec::new()), does, standing, Told::of(Some(stats)))
}

fn rule_report(
    id: &FlowId,
    (cookie, policies): (Cookie, Vec<String>),
    actions: String,
    standing: Standing,
    Told { counts, age_s }: Told,
) -> RuleReport {
    let (table, priority, matches) = (id.table.0, id.priority, id.matching().to_string());
    let purpose = purpose(cookie);
    RuleReport { table, priority, matches, actions, purpose, policies, standing, counts, age_s }
}

fn purpose(cookie: Cookie) -> Purpose {
    let kinds = [
        (Kind::Source, Purpose::Host),
        (Kind::Destination, Purpose::Way),
        (Kind::Port, Purpose::Port),
        (Kind::Carry, Purpose::Carry),
        (Kind::TapAnywhere, Purpose::Copies),
        (Kind::TapHost, Purpose::Copies),
    ];
    let of_ours = kinds.iter().find(|(kind, _)| cookie.is(*kind));
    match of_ours {
        Some((_, purpose)) => *purpose,
        None if cookie.is_ours() => Purpose::Base,
        None => Purpose::Foreign,
    }
}

fn actions(instructions: &[Instruction]) -> String {
    let texts: Vec<_> = instructions.iter().map(ToString::to_string).collect();
    if texts.is_empty() { "drop".to_owned() } else { texts.join(",") }
}

fn wanted_group(id: GroupId, key: &GroupKey, next: &[GroupId]) -> GroupDesc {
    let add = key.add(id, next);
    GroupDesc { group_type: add.group_type, group_id: id, buckets: add.buckets }
}

fn group_report(
    group: &GroupDesc,
    counted: Option<&GroupStats>,
    policies: Vec<String>,
    standing: Standing,
) -> GroupReport {
    let bucket = |(index, bucket): (usize, &Bucket)| {
        let counted = counted.and_then(|stats| stats.bucket_stats.get(index));
        BucketReport {
            actions: bucket.to_string().trim_start_matches("actions=").to_owned(),
            counts: counted.and_then(|stats| counts(stats.packet_count, stats.byte_count)),
        }
    };
    GroupReport {
        group: group.group_id.0,
        kind: group.group_type.to_string(),
        buckets: group.buckets.iter().enumerate().map(bucket).collect(),
        policies,
        standing,
        rules: counted.map(|stats| stats.ref_count),
        counts: counted.and_then(|stats| counts(stats.packet_count, stats.byte_count)),
    }
}

/// Minimum and maximum time between two readings for a rate.
const LOAD_SPAN_MIN: Millis = Millis(200);
const LOAD_SPAN_MAX: Millis = Millis(30_000);
