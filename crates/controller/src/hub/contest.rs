//! Two connections that say they are one switch.
//!
//! Mostly that is one switch: it has started again, or its connection was cut off and only it
//! knows. Then the newer connection counts. But two switches may have one datapath id, by mistake,
//! and would throw each other out for ever; so the older connection is asked for a sign of life
//! first. Who answers stays, and the other one is refused, each time that it comes again.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tapswitch_openflow::DatapathId;

use super::{Connected, Hub, Name};
use crate::news::{ConnectionId, News, Order};

/// A newer connection of a switch that is connected.
pub(super) struct Contest {
    new: Connected,
    /// When the older one has had its time to answer.
    until: Instant,
}

impl Hub {
    /// A switch is there. If it was connected already, the older connection is asked whether there
    /// is anybody.
    pub(super) fn handle_ready(&mut self, id: DatapathId, new: Connected) {
        let Some(old) = self.switches.get(&id) else {
            tracing::info!("{} connected from {}", Name(id), new.peer);
            return self.accept(id, new);
        };
        old.orders.is_heard.store(false, Ordering::Relaxed);
        let under_way = self.contests.get(&id).map(|contest| contest.until);
        let until = under_way.unwrap_or(new.since + self.takeover_after);
        if let Some(other) = self.contests.insert(id, Contest { new, until }) {
            // It may have hung up itself.
            let _ = other.new.orders.close.send(format!("{} connected again", Name(id)));
        }
        self.order(id, Order::Echo);
    }

    fn accept(&mut self, id: DatapathId, new: Connected) {
        self.switches.insert(id, new);
        self.ask_for_role(id);
    }

    /// What a connection says that is not the one of its switch.
    pub(super) fn handle_contender(&mut self, id: DatapathId, from: ConnectionId, news: &News) {
        let is_its = self.contests.get(&id).is_some_and(|it| it.new.connection == from);
        if is_its && matches!(news, News::Closed { .. }) {
            self.contests.remove(&id);
        }
    }

    /// The older connection has answered.
    pub(super) fn refuse_newer(&mut self, id: DatapathId) {
        if let Some(contest) = self.contests.remove(&id) {
            self.refuse(id, contest.new);
        }
    }

    /// These are two switches.
    fn refuse(&mut self, id: DatapathId, new: Connected) {
        let Some(old) = self.switches.get_mut(&id) else { return self.accept(id, new) };
        let (name, peer, other) = (Name(id), new.peer, old.peer);
        let remedy = "give one of the two another datapath ID (option --datapath-id, default 0x1)";
        let reason =
            format!("{name} is already connected from {other}, which still answers; {remedy}");
        // It may have hung up itself.
        let _ = new.orders.close.send(reason);
        // It comes again every other second.
        let is_news = old.contested.is_none_or(|told| told.elapsed() >= TOLD_AGAIN_AFTER);
        if is_news {
            old.contested = Some(Instant::now());
            let reason = format!(
                "{peer} has the same datapath ID, and is refused because {other} still answers; \
                 {remedy}"
            );
            self.tell_alarm(id, &reason);
        }
    }

    /// When the next older connection has had its time.
    pub(super) fn contest_due(&self) -> Option<Instant> {
        self.contests.values().map(|contest| contest.until).min()
    }

    /// Newer connections take the place of those that are silent, or have ended. One that has much
    /// to read may not have come to the echo yet.
    pub(super) fn end_contests(&mut self) {
        let now = Instant::now();
        let is_over = |id: &DatapathId, contest: &mut Contest| {
            contest.until <= now || !self.switches.contains_key(id)
        };
        let over: Vec<_> = self.contests.extract_if(is_over).collect();
        for (id, contest) in over {
            // Without time to answer there is no answer.
            let old = self.switches.get(&id).filter(|_| !self.takeover_after.is_zero());
            match old.is_some_and(|old| old.orders.is_heard.load(Ordering::Relaxed)) {
                true => self.refuse(id, contest.new),
                false => self.take_the_place(id, contest.new),
            }
        }
    }

    fn take_the_place(&mut self, id: DatapathId, new: Connected) {
        let (name, peer) = (Name(id), new.peer);
        match self.switches.remove(&id) {
            Some(old) => {
                tracing::info!("{name}: {peer} replaces {}, which does not answer", old.peer);
                // It may have ended by itself.
                let _ = old.orders.close.send(format!("{name} connected again, from {peer}"));
                // It is taken over when it says who is master there.
                if old.is_ours && !self.seat.is_alone() {
                    self.control.handle_disconnected(id);
                }
            }
            None => tracing::info!("{name} connected from {peer}"),
        }
        self.accept(id, new);
    }
}

/// How often it is told that two switches have one datapath id.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);
