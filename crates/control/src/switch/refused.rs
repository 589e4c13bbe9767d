//! Rejected rules that belong to no policy: routes, hosts, copies in transit. The switch may accept
//! them later, when it has room again.

use std::sync::Arc;

use tapswitch_openflow::ErrorKind;

use super::Switch;
use crate::Millis;
use crate::hash::{Map, Set};
use crate::rule::FlowId;

/// Rejected rules to be sent again.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
    rules: Map<Arc<FlowId>, ErrorKind>,
    /// Rules sent again last; another rejection of these is not reported.
    again: Set<Arc<FlowId>>,
    /// When to send them again, and the delay used before.
    retry_at: Option<Millis>,
    wait: Millis,
    retried: Option<Millis>,
}

impl Refused {
    /// Records a rejected rule. Returns whether it is to be reported.
    fn note(&mut self, (id, kind): (Arc<FlowId>, ErrorKind), now: Millis) -> bool {
        if self.retried.is_none_or(|last| now.since(last) > LONGEST_WAIT) {
            self.wait = FIRST_WAIT;
        }
        self.retry_at.get_or_insert(now.plus(self.wait));
        let is_news = !self.again.remove(&id);
        self.rules.insert(id, kind).is_none() && is_news
    }

    /// The rule is being sent, or is no longer wanted.
    pub(super) fn forget(&mut self, id: &FlowId) {
        self.rules.remove(id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &FlowId> {
        self.rules.keys().map(|id| &**id)
    }

    /// The error for a rejected rule.
    pub(super) fn find(&self, id: &FlowId) -> Option<ErrorKind> {
        self.rules.get(id).copied()
    }

    /// When rules are to be sent again.
    pub(super) const fn due(&self) -> Option<Millis> {
        self.retry_at
    }

    /// Rules to send again now. The delay doubles with each rejection.
    fn take_due(&mut self, now: Millis) -> Vec<Arc<FlowId>> {
        if self.retry_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        (self.retry_at, self.retried) = (None, Some(now));
        self.wait = Millis((self.wait.0 * 2).min(LONGEST_WAIT.0));
        self.again = std::mem::take(&mut self.rules).into_keys().collect();
        self.again.iter().cloned().collect()
    }
}

impl Switch {
    /// Records a rejected rule, to be sent again if it is still wanted. Returns whether it is to be
    /// reported.
    pub(super) fn note_refused(
        &mut self,
        (id, kind): (Arc<FlowId>, ErrorKind),
        now: Millis,
    ) -> bool {
        self.desired.find(&id).is_none() || self.refused.note((id, kind), now)
    }

    /// Sends rejected rules again when they are due.
    pub(super) fn retry_refused(&mut self, now: Millis) {
        for id in self.refused.take_due(now) {
            self.desired.touch(id);
        }
    }
}

const FIRST_WAIT: Millis = Millis(1000);
const LONGEST_WAIT: Millis = Millis(60_000);
