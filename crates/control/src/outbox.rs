//! Messages to one switch, and outstanding replies.
//!
//! Every message has a [`Ticket`]. Requests are answered with it; changes are answered only if they
//! fail, so they are kept until a barrier confirms them.
//!
//! Only a limited number of changes is sent ahead of confirmation ([`WINDOW`]): the switch
//! processes them one by one, and urgent messages, such as probes that keep links alive, overtake
//! changes that are queued here but not those queued in the switch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tapswitch_openflow::{Body, ErrorKind, GroupId};

use crate::group::GroupKey;
use crate::rule::FlowId;
use crate::{Millis, StatsToken};

/// Number of a message to one switch; increasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Greater than all others.
    pub(crate) const LAST: Self = Self(u64::MAX);
}

/// Kind of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Add or replace a rule; with its group, if it copies.
    Rule(Arc<FlowId>, Option<Arc<GroupKey>>, Before),
    /// Add a group.
    Group(GroupId, Arc<GroupKey>),
    /// Delete a rule or a group.
    Deletion,
    /// Barrier for changes.
    Barrier,
    /// Barrier for discovery probes.
    Sweep,
    /// Request the description.
    Description,
    /// Request the ports.
    Ports,
    /// Request our rules.
    Rules,
    /// Request the groups.
    Groups,
    /// Request the counters of all groups, while taking over.
    GroupCounters,
    /// Request the group features.
    GroupFeatures,
    /// Request the ledgers, while taking over.
    GroupLedgers,
    /// Request the copying rules again, while taking over.
    RulesAgain,
    /// Request our rules for comparison.
    ComparedRules,
    /// Request the groups for comparison.
    ComparedGroups,
    /// Request the counters of copying rules.
    RuleStats(StatsToken),
    /// Request the counters of all groups.
    GroupStats(StatsToken),
    /// Request the counters of copying rules again.
    RuleStatsAgain(StatsToken),
    /// Request the counters of all groups, for copies in transit.
    CarriedStats(StatsToken),
    /// Request the counters of all ports.
    PortStats(StatsToken),
    /// Request the last counters of a group.
    LastGroupStats(GroupId),
    /// Request all rules for display.
    ShownRules(StatsToken),
    /// Request all groups for display.
    ShownGroups(StatsToken),
    /// Request the counters of all groups for display.
    ShownCounters(StatsToken),
}

/// What the switch has in the place of a rule to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    Another,
}

impl Request {
    /// Token of the round or display request.
    pub(crate) const fn token(&self) -> Option<StatsToken> {
        match self {
            Self::RuleStats(token)
            | Self::GroupStats(token)
            | Self::RuleStatsAgain(token)
            | Self::CarriedStats(token)
            | Self::PortStats(token)
            | Self::ShownRules(token)
            | Self::ShownGroups(token)
            | Self::ShownCounters(token) => Some(*token),
            _ => None,
        }
    }

    /// Whether it requests counters of what the switch is known to have.
    pub(crate) const fn asks_counters(&self) -> bool {
        matches!(self, Self::LastGroupStats(_)) || self.token().is_some()
    }

    /// Whether it is answered only on failure.
    const fn is_change(&self) -> bool {
        matches!(self, Self::Rule(..) | Self::Group(..) | Self::Deletion)
    }
}

/// A rejected message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) ticket: Ticket,
    pub(crate) request: Request,
    pub(crate) kind: ErrorKind,
}

/// Messages to one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<(Ticket, Body)>,
    /// Messages that overtake changes.
    urgent: VecDeque<(Ticket, Body)>,
    waiting: BTreeMap<Ticket, Request>,
    last: Ticket,
    /// Changes queued since the last barrier.
    unfenced: usize,
    /// Unanswered barriers.
    barrier_count: usize,
    ahead: Ahead,
}

/// Changes sent but not confirmed.
#[derive(Clone, Debug, Default)]
struct Ahead {
    count: usize,
    /// Changes sent since the last barrier.
    unfenced: usize,
    /// Barriers sent, with the number of changes that each confirms.
    fences: VecDeque<(Ticket, usize)>,
    /// Since when the first of them is outstanding.
    since: Millis,
}

impl Ahead {
    fn add_change(&mut self) {
        self.count += 1;
        self.unfenced += 1;
    }

    fn add_barrier(&mut self, barrier: Ticket, now: Millis) {
        if self.fences.is_empty() {
            self.since = now;
        }
        self.fences.push_back((barrier, std::mem::take(&mut self.unfenced)));
    }

    /// The barrier was answered or failed: either way the switch has processed everything before
    /// it.
    fn handle_barrier(&mut self, barrier: Ticket, now: Millis) {
        self.since = now;
        while let Some(&(fence, count)) = self.fences.front()
            && fence <= barrier
        {
            self.fences.pop_front();
            self.count -= count;
        }
    }
}

impl Outbox {
    /// Queues a message.
    pub(crate) fn send(&mut self, body: Body, request: Request) -> Ticket {
        if self.unfenced == FENCE {
            self.push(Body::BarrierRequest, Request::Barrier);
        }
        self.push(body, request)
    }

    /// Queues a message without a reply ahead of all changes.
    pub(crate) fn send_unanswered(&mut self, body: Body) {
        let ticket = self.next_ticket();
        self.urgent.push_back((ticket, body));
    }

    /// Queues a barrier for the messages of [`Self::send_unanswered`]. It does not confirm queued
    /// changes.
    pub(crate) fn sweep(&mut self) {
        self.send_unanswered(Body::BarrierRequest);
        self.waiting.insert(self.last, Request::Sweep);
    }

    /// The next message to send; a change only if the total window of all switches has room
    /// (`has_room`).
    pub(crate) fn poll(&mut self, has_room: bool, now: Millis) -> Option<(Ticket, Body)> {
        if let Some(urgent) = self.urgent.pop_front() {
            return Some(urgent);
        }
        if self.queue.is_empty() && self.ahead.unfenced > 0 {
            // No barrier is queued for these changes, but they occupy the window until confirmed.
            self.push(Body::BarrierRequest, Request::Barrier);
        }
        let (_, next) = self.queue.front()?;
        if next.is_modification() && !(has_room && self.ahead.count < WINDOW) {
            return None;
        }
        let (ticket, body) = self.queue.pop_front()?;
        match &body {
            Body::BarrierRequest => self.ahead.add_barrier(ticket, now),
            body if body.is_modification() => self.ahead.add_change(),
            _ => {}
        }
        Some((ticket, body))
    }

    /// Number of queued messages.
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the queue is so long that new changes should be held back.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= WINDOW
    }

    /// Whether the next message is a change that the window allows.
    pub(crate) fn is_held(&self) -> bool {
        let next = self.queue.front();
        next.is_some_and(|(_, body)| body.is_modification()) && self.ahead.count < WINDOW
    }

    /// Clears the window in a trial, in which nothing is confirmed.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead = Ahead::default();
    }

    /// An empty outbox that continues after the last ticket.
    pub(crate) fn done(&self) -> Self {
        Self { last: self.last, ..Self::default() }
    }

    /// The last ticket.
    pub(crate) const fn last(&self) -> Ticket {
        self.last
    }

    /// Whether changes or barriers are unconfirmed, sent or queued.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.barrier_count > 0 || self.unfenced > 0
    }

    /// Whether requests are unanswered, sent or queued.
    pub(crate) fn is_behind(&self) -> bool {
        let is_question = |request: &Request| !request.is_change() && *request != Request::Sweep;
        self.waiting.values().any(is_question)
    }

    /// The last barrier sent and not answered.
    pub(crate) fn sent_barrier(&self) -> Option<Ticket> {
        self.ahead.fences.back().map(|(barrier, _)| *barrier)
    }

    /// Since when a sent barrier has been outstanding without any answered.
    pub(crate) fn unconfirmed_since(&self) -> Option<Millis> {
        (!self.ahead.fences.is_empty()).then_some(self.ahead.since)
    }

    /// Restarts that wait.
    pub(crate) const fn wait_again(&mut self, now: Millis) {
        self.ahead.since = now;
    }

    /// Number of changes sent but not confirmed.
    pub(crate) const fn ahead(&self) -> usize {
        self.ahead.count
    }

    /// Takes the request that a reply or error is for.
    pub(crate) fn take(&mut self, ticket: Ticket, now: Millis) -> Option<Request> {
        let request = self.waiting.remove(&ticket);
        if request == Some(Request::Barrier) {
            self.barrier_count -= 1;
            self.ahead.handle_barrier(ticket, now);
        }
        request
    }

    /// Confirms all changes before the barrier.
    pub(crate) fn handle_barrier(&mut self, barrier: Ticket) {
        let later = self.waiting.split_off(&barrier);
        let before = std::mem::replace(&mut self.waiting, later);
        let questions = before.into_iter().filter(|(_, request)| !request.is_change());
        self.waiting.extend(questions);
    }

    /// Forgets outstanding counter requests with these tokens.
    pub(crate) fn forget_counters(&mut self, is_gone: impl Fn(StatsToken) -> bool) {
        self.waiting.retain(|_, request| !request.token().is_some_and(&is_gone));
    }

    /// The connection was lost: returns the requests that will not be answered.
    pub(crate) fn clear(&mut self) -> Vec<Request> {
        let last = self.last;
        let lost = std::mem::replace(self, Self { last, ..Self::default() });
        lost.waiting.into_values().collect()
    }

    fn push(&mut self, body: Body, request: Request) -> Ticket {
        match &body {
            Body::BarrierRequest if request == Request::Barrier => {
                (self.unfenced, self.barrier_count) = (0, self.barrier_count + 1);
            }
            body if body.is_modification() => self.unfenced += 1,
            _ => {}
        }
        let ticket = self.next_ticket();
        self.queue.push_back((ticket, body));
        self.waiting.insert(ticket, request);
        ticket
    }

    const fn next_ticket(&mut self) -> Ticket {
        self.last = Ticket(self.last.0 + 1);
        self.last
    }
}

/// Maximum unconfirmed changes: some milliseconds of the switch's time.
const WINDOW: usize = 1024;
/// Changes after which a barrier is inserted, so that they are confirmed while others are in
/// transit.
const FENCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(0);

    #[test]
    fn a_barrier_confirms_changes_and_leaves_questions() {
        let mut outbox = Outbox::default();
        let change = outbox.send(Body::BarrierRequest, Request::Deletion);
        let question = outbox.send(Body::BarrierRequest, Request::Ports);
        let barrier = outbox.send(Body::BarrierRequest, Request::Barrier);
        let later = outbox.send(Body::BarrierRequest, Request::Deletion);
        assert_eq!(outbox.take(barrier, NOW), Some(Request::Barrier));
        outbox.handle_barrier(barrier);
        assert_eq!(outbox.take(change, NOW), None);
        assert_eq!(outbox.take(question, NOW), Some(Request::Ports));
        assert_eq!(outbox.take(later, NOW), Some(Request::Deletion));
    }

    fn change() -> Body {
        Body::GroupMod(crate::group::delete(GroupId(1)))
    }

    #[test]
    fn a_switch_is_sent_no_more_changes_than_it_follows() {
        let mut outbox = Outbox::default();
        (0..10 * WINDOW).for_each(|_| _ = outbox.send(change(), Request::Deletion));
        let (mut sent, mut max_ahead) = (0, 0);
        let mut barriers = VecDeque::new();
        loop {
            while let Some((ticket, body)) = outbox.poll(true, NOW) {
                match body {
                    Body::BarrierRequest => barriers.push_back((ticket, sent)),
                    _ => sent += 1,
                }
            }
            let Some((barrier, before)) = barriers.pop_front() else { break };
            max_ahead = max_ahead.max(sent - before);
            assert_eq!(outbox.take(barrier, NOW), Some(Request::Barrier));
            outbox.handle_barrier(barrier);
        }
        assert_eq!((sent, max_ahead), (10 * WINDOW, WINDOW - FENCE));
    }

    #[test]
    fn what_is_urgent_goes_before_changes_that_wait() {
        let mut outbox = Outbox::default();
        (0..=WINDOW).for_each(|_| _ = outbox.send(change(), Request::Deletion));
        while outbox.poll(true, NOW).is_some() {}
        outbox.send_unanswered(Body::BarrierRequest);
        assert!(outbox.poll(true, NOW).is_some_and(|(_, body)| body == Body::BarrierRequest));
        assert_eq!(outbox.poll(true, NOW), None);
    }

    #[test]
    fn every_change_is_confirmed_in_the_end() {
        let mut outbox = Outbox::default();
        outbox.send(change(), Request::Deletion);
        let sent: Vec<_> = std::iter::from_fn(|| outbox.poll(true, NOW)).collect();
        let [_, (barrier, Body::BarrierRequest)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(outbox.ahead(), 1);
        assert_eq!(outbox.take(*barrier, NOW), Some(Request::Barrier));
        assert_eq!(outbox.ahead(), 0);
    }

    #[test]
    fn a_new_connection_begins_with_nothing_ahead() {
        let mut outbox = Outbox::default();
        (0..=WINDOW).for_each(|_| _ = outbox.send(change(), Request::Deletion));
        while outbox.poll(true, NOW).is_some() {}
        outbox.clear();
        outbox.send(change(), Request::Deletion);
        assert!(outbox.poll(true, NOW).is_some());
    }

    #[test]
    fn a_switch_is_waited_for_since_it_confirmed_something() {
        let mut outbox = Outbox::default();
        let since = |outbox: &Outbox| outbox.unconfirmed_since().map(|at| at.0);
        let [first, second] = [1, 2].map(|_| outbox.send(Body::BarrierRequest, Request::Barrier));
        assert_eq!(since(&outbox), None, "nothing went out");
        outbox.poll(true, Millis(10));
        outbox.poll(true, Millis(20));
        assert_eq!(since(&outbox), Some(10));
        outbox.take(first, Millis(30));
        assert_eq!(since(&outbox), Some(30));
        outbox.take(second, Millis(40));
        assert_eq!(since(&outbox), None);
    }
}
