//! What a switch is sent, and what is waited for.
//!
//! Everything that is sent has a [`Ticket`]. Questions are answered by it; changes are answered
//! only when they fail, so they are kept until a barrier says that they did not.
//!
//! A switch is sent so many changes ahead of what it confirmed, and no more ([`WINDOW`]): it does
//! one after the other, and what must not be late, such as a frame that shows that a link works,
//! goes before the changes that wait here but would wait behind those that wait there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tapswitch_openflow::{Body, ErrorKind, GroupId};

use crate::group::GroupKey;
use crate::rule::FlowId;
use crate::{Millis, StatsToken};

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
    /// Add a rule, or replace the one that is there; with its group, if it makes copies.
    Rule(Arc<FlowId>, Option<Arc<GroupKey>>, Before),
    /// Add a group.
    Group(GroupId, Arc<GroupKey>),
    /// Delete a rule or a group.
    Deletion,
    /// Say when all before is done.
    Barrier,
    /// Say when all frames before, by which links are found, have left.
    Sweep,
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
    /// Tell the rules that are ours, to compare them with what was sent.
    ComparedRules,
    /// Tell the groups, for the same.
    ComparedGroups,
    /// Tell the counters of the rules that make copies.
    RuleStats(StatsToken),
    /// Tell the counters of all groups.
    GroupStats(StatsToken),
    /// Tell those of the rules once more.
    RuleStatsAgain(StatsToken),
    /// Tell the counters of all groups, for the sake of those that carry copies of others.
    CarriedStats(StatsToken),
    /// Tell the counters of all ports.
    PortStats(StatsToken),
    /// Tell the last counters of a group.
    LastGroupStats(GroupId),
    /// Tell all rules, for somebody who looks.
    ShownRules(StatsToken),
    /// Tell all groups, for somebody who looks.
    ShownGroups(StatsToken),
    /// Tell the counters of all groups, for somebody who looks.
    ShownCounters(StatsToken),
}

/// What the switch has in the place of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    Another,
}

impl Request {
    /// Who waits for the counters that it asks for.
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

    /// Whether it asks for counters of what the switch is known to hold.
    pub(crate) const fn asks_counters(&self) -> bool {
        matches!(self, Self::LastGroupStats(_)) || self.token().is_some()
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
    /// What does not wait for changes.
    urgent: VecDeque<(Ticket, Body)>,
    waiting: BTreeMap<Ticket, Request>,
    last: Ticket,
    /// Changes since the last barrier that was put in.
    unfenced: usize,
    /// Barriers that are not answered.
    barrier_count: usize,
    ahead: Ahead,
}

/// Changes that went out and are not confirmed.
#[derive(Clone, Debug, Default)]
struct Ahead {
    count: usize,
    /// Those behind the last barrier that went out.
    unfenced: usize,
    /// The barriers that went out, and how many changes each is to confirm.
    fences: VecDeque<(Ticket, usize)>,
    /// Since when the first of them is waited for.
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

    /// The barrier was reached, or will not be: either way the switch has come that far.
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
    /// Sends something.
    pub(crate) fn send(&mut self, body: Body, request: Request) -> Ticket {
        if self.unfenced == FENCE {
            self.push(Body::BarrierRequest, Request::Barrier);
        }
        self.push(body, request)
    }

    /// Sends something that nothing is to be heard of, before all changes that wait.
    pub(crate) fn send_unanswered(&mut self, body: Body) {
        let ticket = self.next_ticket();
        self.urgent.push_back((ticket, body));
    }

    /// Asks for a sign that what was sent by [`Self::send_unanswered`] is done. Changes that wait
    /// are not confirmed by it.
    pub(crate) fn sweep(&mut self) {
        self.send_unanswered(Body::BarrierRequest);
        self.waiting.insert(self.last, Request::Sweep);
    }

    /// What goes out next; changes only if all switches together have room for them, too.
    pub(crate) fn poll(&mut self, has_room: bool, now: Millis) -> Option<(Ticket, Body)> {
        if let Some(urgent) = self.urgent.pop_front() {
            return Some(urgent);
        }
        if self.queue.is_empty() && self.ahead.unfenced > 0 {
            // Nobody waits for these changes, but they take up room until they are confirmed.
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

    /// Messages that wait for the switch to follow.
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Whether so much waits that what comes next had better wait elsewhere.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= WINDOW
    }

    /// Whether a change is next that the switch would follow.
    pub(crate) fn is_held(&self) -> bool {
        let next = self.queue.front();
        next.is_some_and(|(_, body)| body.is_modification()) && self.ahead.count < WINDOW
    }

    /// What went out will not be confirmed, for this is a trial of what comes next.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead = Ahead::default();
    }

    /// Nothing to send, behind the ticket that was given last.
    pub(crate) fn done(&self) -> Self {
        Self { last: self.last, ..Self::default() }
    }

    /// The ticket that was given last.
    pub(crate) const fn last(&self) -> Ticket {
        self.last
    }

    /// Whether there are changes, or barriers, that are not confirmed, whether they went out or
    /// not.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.barrier_count > 0 || self.unfenced > 0
    }

    /// Whether the switch has not answered all that it was asked, or will be.
    pub(crate) fn is_behind(&self) -> bool {
        let is_question = |request: &Request| !request.is_change() && *request != Request::Sweep;
        self.waiting.values().any(is_question)
    }

    /// The last barrier that went out and was not reached.
    pub(crate) fn sent_barrier(&self) -> Option<Ticket> {
        self.ahead.fences.back().map(|(barrier, _)| *barrier)
    }

    /// Since when a barrier is waited for that went out, and none was reached.
    pub(crate) fn unconfirmed_since(&self) -> Option<Millis> {
        (!self.ahead.fences.is_empty()).then_some(self.ahead.since)
    }

    /// It is waited for anew.
    pub(crate) const fn wait_again(&mut self, now: Millis) {
        self.ahead.since = now;
    }

    /// Changes that went out and are not confirmed.
    pub(crate) const fn ahead(&self) -> usize {
        self.ahead.count
    }

    /// An answer, or an error, came: to what? It is not waited for any more.
    pub(crate) fn take(&mut self, ticket: Ticket, now: Millis) -> Option<Request> {
        let request = self.waiting.remove(&ticket);
        if request == Some(Request::Barrier) {
            self.barrier_count -= 1;
            self.ahead.handle_barrier(ticket, now);
        }
        request
    }

    /// All changes before the barrier are done.
    pub(crate) fn handle_barrier(&mut self, barrier: Ticket) {
        let later = self.waiting.split_off(&barrier);
        let before = std::mem::replace(&mut self.waiting, later);
        let questions = before.into_iter().filter(|(_, request)| !request.is_change());
        self.waiting.extend(questions);
    }

    /// Counters that were asked for by these tokens, and did not come, are not waited for any more.
    pub(crate) fn forget_counters(&mut self, is_gone: impl Fn(StatsToken) -> bool) {
        self.waiting.retain(|_, request| !request.token().is_some_and(&is_gone));
    }

    /// The connection is lost: returns what will not be answered.
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

/// Changes that a switch is sent ahead of what it confirmed: some milliseconds of its time.
const WINDOW: usize = 1024;
/// Changes behind which a barrier is put in, so that they are confirmed while others are on their
/// way.
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
