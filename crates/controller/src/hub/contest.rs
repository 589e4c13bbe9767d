//! Two connections with the same datapath id.
//!
//! Usually it is one switch that restarted, or whose old connection was cut off unnoticed by us.
//! Then the newer connection wins. But two switches may have the same datapath id by mistake, and
//! would replace each other forever; so the older connection is probed first. If it answers, it
//! stays, and the newer one is refused at each attempt.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tapswitch_openflow::DatapathId;

use super::{Connected, Hub, Name};
use crate::news::{ConnectionId, News, Order};

/// A newer connection of a connected switch.
pub(super) struct Contest {
    new: Connected,
    /// Deadline for the older one to answer.
    until: Instant,
}

impl Hub {
    /// A switch has connected. If it was connected already, the older connection is probed, unless
    /// it has no time to answer.
    pub(super) fn handle_ready(&mut self, id: DatapathId, new: Connected) {
        let Some(old) = self.switches.get(&id) else {
            tracing::info!("{} connected from {}", Name(id), new.peer);
            return self.accept(id, new);
        };
        // A switch that is relayed to us, and connects itself, or through another controller, is no
        // second one.
        if self.takeover_after.is_zero() || old.through.is_some() {
            return self.take_the_place(id, new);
        }
        let under_way = self.contests.get(&id).map(|contest| contest.until);
        if under_way.is_none() {
            // What it sends after another connection is a sign of life for all of them.
            old.orders.is_heard.store(false, Ordering::Relaxed);
        }
        let until = under_way.unwrap_or(new.since + self.takeover_after);
        if let Some(other) = self.contests.insert(id, Contest { new, until }) {
            // It may have closed itself.
            let _ = other.new.orders.close.send(format!("{} connected again", Name(id)));
        }
        self.order(id, Order::Echo);
    }

    fn accept(&mut self, id: DatapathId, new: Connected) {
        self.seat.note_switch(id, true);
        self.switches.insert(id, new);
        self.ask_for_role(id);
    }

    /// Input from a connection that is not the current one of its switch.
    pub(super) fn handle_contender(&mut self, id: DatapathId, from: ConnectionId, news: &News) {
        let is_its = self.contests.get(&id).is_some_and(|it| it.new.connection == from);
        match news {
            News::Closed { .. } if is_its => _ = self.contests.remove(&id),
            // It became connected to us meanwhile.
            News::Relayed { .. } if is_its => self.send_back(id),
            _ => {}
        }
    }

    /// Refuses the relay of a connected switch.
    fn send_back(&mut self, id: DatapathId) {
        if let Some(contest) = self.contests.remove(&id) {
            // It may have closed itself.
            let _ = contest.new.orders.close.send(format!("{} is connected itself", Name(id)));
        }
    }

    /// The older connection has answered.
    pub(super) fn refuse_newer(&mut self, id: DatapathId) {
        if let Some(contest) = self.contests.remove(&id) {
            self.refuse(id, contest.new);
        }
    }

    /// There are two switches.
    fn refuse(&mut self, id: DatapathId, new: Connected) {
        let Some(old) = self.switches.get_mut(&id) else { return self.accept(id, new) };
        let (name, peer, other) = (Name(id), new.peer, old.peer);
        let remedy = "give one of the two another datapath ID (option --datapath-id, default 0x1)";
        let reason =
            format!("{name} is already connected from {other}, which still answers; {remedy}");
        // It may have closed itself.
        let _ = new.orders.close.send(reason);
        // It reconnects every other second.
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

    /// When the next older connection's time is over.
    pub(super) fn contest_due(&self) -> Option<Instant> {
        self.contests.values().map(|contest| contest.until).min()
    }

    /// Replaces older connections that are silent or have ended. One with much unread input may not
    /// have come to the echo yet.
    pub(super) fn end_contests(&mut self) {
        let now = Instant::now();
        let is_over = |id: &DatapathId, contest: &mut Contest| {
            contest.until <= now || !self.switches.contains_key(id)
        };
        let over: Vec<_> = self.contests.extract_if(is_over).collect();
        for (id, contest) in over {
            let old = self.switches.get(&id);
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
                let why = match old.through {
                    Some(_) => ", through which it was relayed",
                    None => reason(self.takeover_after),
                };
                tracing::info!("{name}: {peer} replaces {}{why}", old.peer);
                // It may have ended by itself.
                let _ = old.orders.close.send(format!("{name} connected again, from {peer}"));
                // It is taken over when it has reported its role.
                if old.is_ours && !self.seat.is_alone() {
                    self.control.handle_disconnected(id);
                }
            }
            None => tracing::info!("{name} connected from {peer}"),
        }
        self.accept(id, new);
    }
}

/// Why a newer connection replaces an older one that had this time to answer.
const fn reason(time: Duration) -> &'static str {
    match time.is_zero() {
        true => " at once, as it is newer",
        false => ", which does not answer",
    }
}

/// Interval of reporting two switches with one datapath id.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use tapswitch_helpers::Log;

    use super::*;
    use crate::hub::tests::{connected, hub};

    #[tokio::test]
    async fn why_a_connection_is_replaced_is_logged() {
        for (time, why) in [
            (Duration::ZERO, "at once, as it is newer"),
            (Duration::from_nanos(1), ", which does not answer"),
        ] {
            let (mut hub, _keeper) = hub();
            hub.takeover_after = time;
            let (log, _logging) = Log::start();
            let (first, _sent) = connected();
            let (second, _sent_too) = connected();
            hub.handle(first);
            hub.handle(second);
            std::thread::sleep(time);
            hub.end_contests();
            let [line] = &log.lines_with("replaces")[..] else { panic!("it is told once") };
            assert!(line.ends_with(why), "{line}");
        }
    }

    #[tokio::test]
    async fn who_connects_again_and_again_does_not_make_the_older_one_seem_silent() {
        let (mut hub, _keeper) = hub();
        hub.takeover_after = Duration::from_secs(3600);
        let [(first, _a), (second, _b), (third, _c)] = [connected(), connected(), connected()];
        hub.handle(first);
        let current = hub.switches[&DatapathId(1)].connection;
        hub.handle(second);
        hub.switches[&DatapathId(1)].orders.is_heard.store(true, Ordering::Relaxed);
        hub.handle(third);
        hub.contests.get_mut(&DatapathId(1)).unwrap().until = Instant::now();
        hub.end_contests();
        assert_eq!(hub.switches[&DatapathId(1)].connection, current, "it was heard");
        assert!(hub.contests.is_empty());
    }
}
