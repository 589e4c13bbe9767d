//! Reads the counters of a switch.
//!
//! Frames pass while counters are read. A rule's counter is read before those of its group, and
//! again after them: the number of copies must be between the two.
//!
//! Copies in transit are read separately ([`Switch::ask_carried`]), after the counters of all
//! switches that may have sent them, so that they have had time to arrive.
//!
//! A round of counters takes effect when all switches have answered completely
//! ([`Switch::take_counters`]); until then readers see the previous one.

use tapswitch_openflow::multipart::{FlowStats, FlowStatsRequest};
use tapswitch_openflow::{
    BucketLedger, GroupId, LedgerRequest, MultipartReply, MultipartReplyBody, MultipartRequestBody,
    PortNo,
};

use super::Switch;
use crate::ledger::{BucketValue, Living};
use crate::outbox::Request;
use crate::rule::{Cookie, FlowId, OUR_TAPS};
use crate::{Counts, Limits, Millis, StatsToken, Ticket};

/// Replies to one round of requests, collected until it is complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    rules: Option<(Ticket, RuleCounts)>,
    groups: Option<(Ticket, Values)>,
    again: Option<(Ticket, RuleCounts)>,
    carried: Option<(Ticket, Values)>,
}

type RuleCounts = Vec<(FlowId, Counts)>;
type Values = Vec<(GroupId, Vec<BucketValue>)>;

impl Switch {
    /// Requests counters in a common round. Returns the number of replies.
    pub(crate) fn ask_stats(&mut self, token: StatsToken) -> usize {
        let count = self.ask_counters(token);
        if count > 0 {
            self.rounds.insert(token, Round::default());
        }
        count
    }

    /// Requests counters. Returns the number of replies.
    pub(super) fn ask_counters(&mut self, token: StatsToken) -> usize {
        if !self.is_up() {
            return 0;
        }
        self.ask(MultipartRequestBody::Flow(our_taps()), Request::RuleStats(token));
        self.ask_groups(GroupId::ALL, Request::GroupStats(token));
        self.ask(MultipartRequestBody::Flow(our_taps()), Request::RuleStatsAgain(token));
        if self.is_ours {
            return 3;
        }
        self.ask(MultipartRequestBody::PortStats(PortNo::ANY), Request::PortStats(token));
        4
    }

    /// Requests the counters of copies in transit. Returns the number of replies.
    pub(crate) fn ask_carried(&mut self, token: StatsToken) -> usize {
        if !self.is_up() || !self.ledger.carries() {
            return 0;
        }
        self.ask_groups(GroupId::ALL, Request::CarriedStats(token));
        self.rounds.entry(token).or_default();
        1
    }

    /// Whether any counter is of interest.
    pub(crate) fn has_counters(&self) -> bool {
        self.is_up() && (!self.closure.taps().is_empty() || self.ledger.carries())
    }

    /// Requests the last counters of an unused group.
    pub(super) fn ask_last(&mut self, group: GroupId) {
        self.ask_groups(group, Request::LastGroupStats(group));
    }

    /// Processes requested counters. Returns whether the request was for counters.
    pub(super) fn handle_counters(
        &mut self,
        ticket: Ticket,
        request: &Request,
        reply: &MultipartReply,
        (limits, now): (&Limits, Millis),
    ) -> bool {
        match (request, &reply.body) {
            (Request::RuleStats(token), MultipartReplyBody::Flow(rules)) => {
                self.note(*token, |round| round.rules = Some((ticket, rule_counts(rules))));
            }
            (Request::GroupStats(token), body) => {
                self.note(*token, |round| round.groups = Some((ticket, group_values(body))));
            }
            (Request::RuleStatsAgain(token), MultipartReplyBody::Flow(rules)) => {
                self.note(*token, |round| round.again = Some((ticket, rule_counts(rules))));
            }
            (Request::CarriedStats(token), body) => {
                self.note(*token, |round| round.carried = Some((ticket, group_values(body))));
            }
            (Request::LastGroupStats(group), body) => {
                for (told, values) in group_values(body) {
                    self.ledger.handle_group_values(told, &values, ticket);
                }
                self.handle_last_counters(*group, limits, now);
            }
            (Request::PortStats(_), MultipartReplyBody::PortStats(ports)) => {
                self.handle_port_stats(ports, now);
            }
            (request, body) if self.handle_shown(request, body) => {}
            _ => return false,
        }
        self.signals.answered.extend(request.token());
        true
    }

    /// Records a reply, unless its round has taken effect already.
    fn note(&mut self, token: StatsToken, note: impl FnOnce(&mut Round)) {
        if let Some(round) = self.rounds.get_mut(&token) {
            note(round);
        }
    }

    /// The switch rejected a request for counters.
    pub(super) fn handle_no_counters(&mut self, request: &Request) {
        self.signals.answered.extend(request.token());
        if let Request::LastGroupStats(group) = request {
            self.delete_group(*group);
        }
    }

    /// The replies of this round take effect.
    pub(crate) fn take_counters(&mut self, token: StatsToken, now: Millis) {
        if let Some(round) = self.rounds.remove(&token) {
            self.ledger.begin_round(now);
            self.take_round(round);
        }
    }

    /// All rounds take effect: there will be no more replies.
    pub(super) fn take_all_counters(&mut self) {
        let rounds = std::mem::take(&mut self.rounds);
        rounds.into_values().for_each(|round| self.take_round(round));
    }

    fn take_round(&mut self, round: Round) {
        if let Round { rules: Some(rules), groups: Some(groups), again: Some(again), .. } = round {
            for (id, counts) in rules.1 {
                self.ledger.handle_first_rule_counts(&id, counts, rules.0);
            }
            self.take_values(groups, false);
            for (id, counts) in again.1 {
                self.ledger.handle_later_rule_counts(&id, counts, again.0);
            }
        }
        if let Some(carried) = round.carried {
            self.take_values(carried, true);
        }
    }

    /// Applies the counters of groups that carry copies, or of the others.
    fn take_values(&mut self, (asked, groups): (Ticket, Values), of_carriers: bool) {
        for (group, values) in groups {
            if self.ledger.is_carrier(group) == of_carriers {
                self.ledger.handle_group_values(group, &values, asked);
            }
        }
    }

    /// Counters of an unused group: they are its last if no copy is queued.
    fn handle_last_counters(&mut self, group: GroupId, limits: &Limits, now: Millis) {
        if !self.ledger.has_waiting(group) && !self.held.is_next(group) {
            return self.delete_group(group);
        }
        self.ledger.note_waiting(group);
        self.waiting_groups.push(group);
        // It may wait for hours for a disk.
        let wait = match self.ledger.is_kept(group) {
            true => limits.final_counts_wait,
            false => limits.waiting_interval,
        };
        let at = now.plus(wait);
        self.ask_again_at = Some(self.ask_again_at.map_or(at, |known| known.min(at)));
    }

    /// Gives up on last counters that are overdue. They may arrive while other replies are
    /// outstanding or unread, but not forever.
    pub(super) fn give_up(&mut self, wait: Millis, living: &Living<'_>, now: Millis) {
        let waits = if self.outbox.is_behind() { PATIENCE } else { 1 };
        let since = Millis(now.0.saturating_sub(waits * wait.0) + 1);
        self.ledger.give_up_before(since);
        let mut late = self.ledger.late_groups(since);
        // What they output to goes after them.
        late.sort_unstable_by_key(|group| (self.held.is_next(*group), *group));
        let is_away = self.lost_at().is_some_and(|since| now.since(since) >= AWAY_WAIT);
        for group in late {
            let is_next = self.held.is_next(group);
            if is_away || !self.ledger.try_keep(group, (is_next, living), now) {
                self.ledger.note_lost(group);
                self.waiting_groups.retain(|waiting| *waiting != group);
                self.delete_group(group);
            }
        }
        let soon = now.plus(Millis(wait.0 / 4));
        self.give_up_at = self.ledger.closing_since().map(|since| since.plus(wait).max(soon));
    }

    /// Requests the counters of one group or all; from a tapswitch, the ledgers.
    fn ask_groups(&mut self, group_id: GroupId, request: Request) {
        match self.is_ours {
            true => self.ask_ledgers(group_id, request),
            false => self.ask(MultipartRequestBody::Group(group_id), request),
        }
    }

    /// Requests ledgers from a tapswitch.
    pub(super) fn ask_ledgers(&mut self, group_id: GroupId, request: Request) {
        let body = LedgerRequest { group_id }.experimenter();
        self.ask(MultipartRequestBody::Experimenter(body), request);
    }
}

/// Counters of groups, from standard statistics or ledgers.
fn group_values(body: &MultipartReplyBody) -> Values {
    match body {
        MultipartReplyBody::Group(groups) => {
            groups.iter().map(|stats| (stats.group_id, BucketValue::of_stats(stats))).collect()
        }
        MultipartReplyBody::Experimenter(body) => {
            // An unreadable reply has no effect; the last values remain.
            let ledgers = BucketLedger::all_of(body).unwrap_or_default();
            BucketValue::of_ledgers(&ledgers).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Counters of our rules.
fn rule_counts(rules: &[FlowStats]) -> RuleCounts {
    let ours = rules.iter().filter(|stats| Cookie(stats.cookie).is_ours());
    let counts = ours.map(|stats| {
        let id = FlowId::new(stats.table_id, stats.priority, stats.match_fields.clone());
        (id, Counts::known(stats.packet_count, stats.byte_count))
    });
    counts.collect()
}

/// Request for our copying rules.
pub(super) fn our_taps() -> FlowStatsRequest {
    let (cookie, cookie_mask) = OUR_TAPS;
    FlowStatsRequest { cookie, cookie_mask, ..FlowStatsRequest::default() }
}

/// Time for a switch to come back and report what became of queued copies. It may have ended.
const AWAY_WAIT: Millis = Millis(10_000);
/// Last counters are awaited this many times longer while other replies are outstanding.
const PATIENCE: u64 = 15;
