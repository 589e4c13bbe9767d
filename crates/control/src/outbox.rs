//! What a switch is sent, and what is waited for.
//!
//! Everything that is sent has a [`Ticket`]. Questions are answered by it; changes are answered
//! only when they fail, so they are kept until a barrier says that they did not.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tapswitch_openflow::{Body, ErrorKind, GroupId};

use crate::StatsToken;
use crate::group::GroupKey;
use crate::rule::FlowId;

/// Number of something that was sent to one switch. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Greater than all.
    pub(crate) const LAST: Self = Self(u64::MAX);
}

/// What was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Add or replace a rule; with its group, if it makes copies.
    Rule(Arc<FlowId>, Option<Arc<GroupKey>>),
    /// Add a group.
    Group(GroupId, Arc<GroupKey>),
    /// Delete a rule or a group.
    Deletion,
    /// Say when all before is done.
    Barrier,
    /// Tell what kind of switch it is.
    Description,
    /// Tell the ports.
    Ports,
    /// Tell the rules that are ours.
    Rules,
    /// Tell the groups.
    Groups,
    /// Tell the counters of all groups, when reading what the switch holds.
    GroupCounters,
    /// Tell what groups it can have.
    GroupFeatures,
    /// Tell what became of copies, when reading what the switch holds.
    GroupLedgers,
    /// Tell the rules that make copies once more, when reading what the switch holds.
    RulesAgain,
    /// Tell the counters of the rules that make copies.
    RuleStats(Option<StatsToken>),
    /// Tell the counters of all groups.
    GroupStats(Option<StatsToken>),
    /// Tell the counters of all ports.
    PortStats(Option<StatsToken>),
    /// Tell the last counters of a group.
    LastGroupStats(GroupId),
    /// Tell all rules, for somebody who looks.
    ShownRules(StatsToken),
    /// Tell all groups, for somebody who looks.
    ShownGroups(StatsToken),
    /// Tell the counters of all groups, for somebody who looks.
    ShownCounters(StatsToken),
}

impl Request {
    /// Who waits for the counters that it asks for.
    pub(crate) const fn token(&self) -> Option<StatsToken> {
        match self {
            Self::RuleStats(token) | Self::GroupStats(token) | Self::PortStats(token) => *token,
            Self::ShownRules(token) | Self::ShownGroups(token) | Self::ShownCounters(token) => {
                Some(*token)
            }
            _ => None,
        }
    }

    /// Whether it asks for counters of what the switch is known to hold.
    pub(crate) const fn asks_counters(&self) -> bool {
        let is_for_none = matches!(self, Self::RuleStats(None) | Self::GroupStats(None));
        let asks_last = matches!(self, Self::LastGroupStats(_) | Self::PortStats(_));
        asks_last || is_for_none || self.token().is_some()
    }

    /// Whether it is answered only when it fails.
    const fn is_change(&self) -> bool {
        matches!(self, Self::Rule(..) | Self::Group(..) | Self::Deletion)
    }
}

/// Something that a switch would not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) ticket: Ticket,
    pub(crate) request: Request,
    pub(crate) kind: ErrorKind,
}

/// What one switch is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<(Ticket, Body)>,
    waiting: BTreeMap<Ticket, Request>,
    last: Ticket,
}

impl Outbox {
    /// Sends something.
    pub(crate) fn send(&mut self, body: Body, request: Request) -> Ticket {
        self.last = Ticket(self.last.0 + 1);
        self.queue.push_back((self.last, body));
        self.waiting.insert(self.last, request);
        self.last
    }

    /// Sends something that nothing is to be heard of.
    pub(crate) fn send_unanswered(&mut self, body: Body) {
        self.last = Ticket(self.last.0 + 1);
        self.queue.push_back((self.last, body));
    }

    /// What goes out next.
    pub(crate) fn poll(&mut self) -> Option<(Ticket, Body)> {
        self.queue.pop_front()
    }

    /// An answer, or an error, came: to what? It is not waited for any more.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Request> {
        self.waiting.remove(&ticket)
    }

    /// All changes before the barrier are done.
    pub(crate) fn handle_barrier(&mut self, barrier: Ticket) {
        let later = self.waiting.split_off(&barrier);
        let before = std::mem::replace(&mut self.waiting, later);
        let questions = before.into_iter().filter(|(_, request)| !request.is_change());
        self.waiting.extend(questions);
    }

    /// The connection is lost: returns what will not be answered.
    pub(crate) fn clear(&mut self) -> Vec<Request> {
        self.queue.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_confirms_changes_and_leaves_questions() {
        let mut outbox = Outbox::default();
        let change = outbox.send(Body::BarrierRequest, Request::Deletion);
        let question = outbox.send(Body::BarrierRequest, Request::Ports);
        let barrier = outbox.send(Body::BarrierRequest, Request::Barrier);
        let later = outbox.send(Body::BarrierRequest, Request::Deletion);
        assert_eq!(outbox.take(barrier), Some(Request::Barrier));
        outbox.handle_barrier(barrier);
        assert_eq!(outbox.take(change), None);
        assert_eq!(outbox.take(question), Some(Request::Ports));
        assert_eq!(outbox.take(later), Some(Request::Deletion));
    }
}
