//! Periodic check that a switch still has what it was sent.
//!
//! Switches report the removal of some rules only, and neither changes nor additions by others. So
//! each is read from time to time; nothing waits for the answer. A difference is only a suspicion,
//! as rules time out while the answer is in transit: the switch is then read again as a whole,
//! which also repairs it, and remaining differences are reported.

use std::collections::HashSet;

use tapswitch_openflow::multipart::{FlowStats, FlowStatsRequest, GroupDesc};
use tapswitch_openflow::{MultipartReply, MultipartReplyBody, MultipartRequestBody};

use super::{Link, Switch};
use crate::held::Drift;
use crate::outbox::Request;
use crate::rule::{FlowId, OURS};
use crate::{Event, Millis};

impl Switch {
    /// When it is to be read again, as others changed it: not before what was read is taken over.
    pub(super) fn repair_due(&self) -> Option<Millis> {
        self.repair_at.filter(|_| matches!(self.link, Link::Up))
    }

    /// Requests rules and groups for comparison. Returns false if changes are pending, since they
    /// would differ.
    pub(crate) fn ask_to_compare(&mut self) -> bool {
        if !matches!(self.link, Link::Up) || self.outbox.is_awaited() || self.repair_at.is_some() {
            return false;
        }
        self.ask(MultipartRequestBody::Flow(our_rules()), Request::ComparedRules);
        self.ask(MultipartRequestBody::GroupDesc, Request::ComparedGroups);
        true
    }

    /// Compares the reply with what was sent. Returns whether the request was for comparison.
    ///
    /// A reply from before a change is never mistaken for a later one, as the change is confirmed
    /// after this reply.
    pub(super) fn handle_compared(
        &mut self,
        request: &Request,
        reply: &MultipartReply,
        now: Millis,
    ) -> bool {
        let is_other = match (request, &reply.body) {
            (Request::ComparedRules, MultipartReplyBody::Flow(rules)) => {
                !self.held.compare_rules(rules).is_none()
            }
            (Request::ComparedGroups, MultipartReplyBody::GroupDesc(groups)) => {
                self.held.count_other_groups(groups) > 0
            }
            _ => return false,
        };
        if is_other && matches!(self.link, Link::Up) && !self.outbox.is_awaited() {
            self.repair_at.get_or_insert(now);
        }
        true
    }

    /// Differences that cannot be explained by timeouts.
    pub(super) fn find_drift(&mut self, rules: &[FlowStats], groups: &[GroupDesc]) -> Drift {
        let mut drift = self.held.compare_rules(rules).lasting();
        let removed = std::mem::take(&mut self.removed);
        let told: HashSet<_> = rules.iter().map(id_of).collect();
        drift.added.retain(|id| !removed.contains(id));
        drift.missing.extend(removed.into_iter().filter(|id| !told.contains(id)));
        drift.groups = self.held.count_other_groups(groups);
        drift
    }

    /// Reports and counts differences.
    pub(super) fn tell_drift(&mut self, drift: &Drift) {
        if !drift.is_none() {
            self.drifted += drift.count();
            let reason = drift.to_string();
            self.signals.events.push(Event::Drifted { switch: self.id, reason });
        }
    }
}

/// Request for all our rules.
pub(super) fn our_rules() -> FlowStatsRequest {
    let (cookie, cookie_mask) = OURS;
    FlowStatsRequest { cookie, cookie_mask, ..FlowStatsRequest::default() }
}

/// Id of a rule in a reply.
pub(super) fn id_of(stats: &FlowStats) -> FlowId {
    FlowId::new(stats.table_id, stats.priority, stats.match_fields.clone())
}
