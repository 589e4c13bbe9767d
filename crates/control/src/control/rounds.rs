//! Asking all switches for counters.
//!
//! Copies go on while counters are read. What arrived at the ends of their ways is asked for when
//! all switches have told what they sent: so what has not arrived by then is lost, or waits where
//! nobody counts it, and is not merely younger than the last look.

use std::collections::BTreeMap;

use super::Control;
use crate::switch::Switch;
use crate::{Event, Millis, StatsToken};

/// Questions for counters that are not answered yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    open: BTreeMap<StatsToken, Open>,
    last: StatsToken,
    /// When all are asked again, though nobody wants to know.
    next_at: Option<Millis>,
}

/// A question, and what is to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    answers_left: usize,
    /// Whether what was carried is asked for then.
    asks_carried: bool,
    /// Whether somebody wants to know when they came.
    is_awaited: bool,
}

impl Rounds {
    /// A token that was never used.
    pub(super) const fn next_token(&mut self) -> StatsToken {
        self.last = StatsToken(self.last.0 + 1);
        self.last
    }

    /// When [`Control::read_counters`] is due.
    pub(super) const fn due(&self) -> Option<Millis> {
        self.next_at
    }
}

impl Control {
    /// Asks all switches for counters. [`Event::StatsReady`] says when they came.
    pub fn request_stats(&mut self) -> StatsToken {
        self.start_round(true, |_| true)
    }

    /// So many answers will come to what was asked by this token.
    pub(super) fn await_stats(&mut self, token: StatsToken, count: usize) {
        self.open(token, Open { answers_left: count, asks_carried: false, is_awaited: true });
    }

    /// One of the answers came, or will not come.
    pub(super) fn handle_answered(&mut self, token: StatsToken) {
        if let Some(open) = self.rounds.open.get_mut(&token) {
            open.answers_left = open.answers_left.saturating_sub(1);
            self.end_if_answered(token);
        }
    }

    /// Counters are read from time to time while there are policies, though nobody wants to know: a
    /// switch that is lost takes with it what was not read.
    pub(super) fn schedule_reading(&mut self) {
        let interval = self.limits.stats_interval.filter(|_| self.policies.count() > 0);
        let next_at = interval.map(|interval| self.now.plus(interval));
        self.rounds.next_at = next_at.and(self.rounds.next_at).or(next_at);
    }

    /// Does so if it is time, and the last time is over.
    pub(super) fn read_counters(&mut self) {
        if self.rounds.next_at.take_if(|at| *at <= self.now).is_some() {
            self.schedule_reading();
            if self.rounds.open.values().all(|open| open.is_awaited) {
                self.start_round(false, Switch::has_counters);
            }
        }
    }

    fn start_round(&mut self, is_awaited: bool, is_asked: fn(&Switch) -> bool) -> StatsToken {
        let token = self.rounds.next_token();
        let answers_left = self.ask_each(is_asked, |switch| switch.ask_stats(token));
        self.open(token, Open { answers_left, asks_carried: true, is_awaited });
        token
    }

    fn open(&mut self, token: StatsToken, open: Open) {
        self.rounds.open.insert(token, open);
        self.end_if_answered(token);
    }

    fn end_if_answered(&mut self, token: StatsToken) {
        let Some(open) = self.rounds.open.get(&token).copied() else { return };
        if open.answers_left > 0 {
            return;
        }
        if open.asks_carried {
            let answers_left = self.ask_each(|_| true, |switch| switch.ask_carried(token));
            return self.open(token, Open { answers_left, asks_carried: false, ..open });
        }
        self.rounds.open.remove(&token);
        self.switches.values_mut().for_each(|switch| switch.take_counters(token));
        if open.is_awaited {
            self.events.push_back(Event::StatsReady(token));
        }
    }

    /// Returns how many answers will come.
    fn ask_each(
        &mut self,
        is_asked: fn(&Switch) -> bool,
        ask: impl Fn(&mut Switch) -> usize,
    ) -> usize {
        let mut count = 0;
        for (id, switch) in self.switches.iter_mut().filter(|(_, switch)| is_asked(switch)) {
            count += ask(switch);
            self.turns.add(*id);
        }
        count
    }
}
