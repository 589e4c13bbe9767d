//! Whether a switch still holds what it was told, while nobody says otherwise.
//!
//! Switches say when some rules go, not when others go, when one is changed, or comes from somebody
//! else. So each is asked from time to time, and nothing waits for the answer. What is not as it
//! shall be is a suspicion only, for rules go by themselves while the answer is on its way: the
//! switch is read again then, which also repairs it, and what is still different is told.

use std::collections::HashSet;

use tapswitch_openflow::multipart::{FlowStats, FlowStatsRequest, GroupDesc};
use tapswitch_openflow::{MultipartReply, MultipartReplyBody, MultipartRequestBody};

use super::{Link, Switch};
use crate::held::Drift;
use crate::outbox::Request;
use crate::rule::{FlowId, OURS};
use crate::{Event, Millis};

impl Switch {
    /// Asks for what it holds, to compare that with what it was told. Returns whether it is asked:
    /// not while it is being told something, for then that differs.
    pub(crate) fn ask_to_compare(&mut self) -> bool {
        if !matches!(self.link, Link::Up) || self.outbox.is_awaited() || self.repair_at.is_some() {
            return false;
        }
        self.ask(MultipartRequestBody::Flow(our_rules()), Request::ComparedRules);
        self.ask(MultipartRequestBody::GroupDesc, Request::ComparedGroups);
        true
    }

    /// Compares what it holds with what it was told. Returns whether that was the question.
    ///
    /// An answer from before something that it was told since is never taken for one from behind
    /// it: that is confirmed after this answer.
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

    /// What differs from what it was told, for certain. Rules that go by themselves are no drift:
    /// they may have gone since.
    pub(super) fn find_drift(&mut self, rules: &[FlowStats], groups: &[GroupDesc]) -> Drift {
        let mut drift = self.held.compare_rules(rules).lasting();
        let removed = std::mem::take(&mut self.removed);
        let told: HashSet<_> = rules.iter().map(id_of).collect();
        drift.added.retain(|id| !removed.contains(id));
        drift.missing.extend(removed.into_iter().filter(|id| !told.contains(id)));
        drift.groups = self.held.count_other_groups(groups);
        drift
    }

    /// Tells of it, and counts it.
    pub(super) fn tell_drift(&mut self, drift: &Drift) {
        if !drift.is_none() {
            self.drifted += drift.count();
            let reason = drift.to_string();
            self.signals.events.push(Event::Drifted { switch: self.id, reason });
        }
    }
}

/// All rules of ours.
pub(super) fn our_rules() -> FlowStatsRequest {
    let (cookie, cookie_mask) = OURS;
    FlowStatsRequest { cookie, cookie_mask, ..FlowStatsRequest::default() }
}

/// What identifies a rule that is told.
pub(super) fn id_of(stats: &FlowStats) -> FlowId {
    FlowId::new(stats.table_id, stats.priority, stats.match_fields.clone())
}
