//! Rounds of counters from all switches.
//!
//! Copying goes on while counters are read. What arrived at the ends of paths is requested after
//! all switches have reported what they sent: so copies missing by then are lost, or queued where
//! they are not counted, and not just newer than the last reading.
//!
//! A round reads all rules and groups of all switches, so only one is open at a time. Requests made
//! meanwhile share the next round, which starts when the current one ends.
//!
//! A switch that does not answer does not delay others for long ([`Limits::stats_wait`]): the round
//! ends without it, its former counters remain in use, and this is reported. Copies that it may
//! have counted are not taken for lost meanwhile: see [`super::accounts`].
//!
//! [`Limits::stats_wait`]: crate::Limits::stats_wait

use std::collections::{BTreeMap, BTreeSet};

use tapswitch_openflow::DatapathId;

use super::Control;
use super::accounts::Accounts;
use crate::switch::Switch;
use crate::{Event, Millis, StatsToken};

/// Open requests for counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    open: BTreeMap<StatsToken, Open>,
    /// The ledger round that starts when the open one ends.
    next: Option<StatsToken>,
    last: StatsToken,
    /// Time of the next periodic round.
    next_at: Option<Millis>,
}

/// An open round.
#[derive(Clone, Debug)]
struct Open {
    /// Outstanding replies by switch.
    awaited: BTreeMap<DatapathId, usize>,
    stage: Stage,
    /// Whether a caller waits for the result.
    is_awaited: bool,
    /// Deadline for replies, in time spent processing input: replies may have arrived without being
    /// read.
    deadline: Millis,
}

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Matched and copied frames, followed by carried copies.
    Sent,
    /// Carried copies.
    Carried,
    /// Something outside ledgers.
    Other,
}

impl Rounds {
    /// A new token.
    pub(super) const fn next_token(&mut self) -> StatsToken {
        self.last = StatsToken(self.last.0 + 1);
        self.last
    }

    /// The latest token.
    pub(super) const fn last(&self) -> StatsToken {
        self.last
    }

    /// When [`Control::read_counters`] is due, given the time and the time spent processing input.
    pub(super) fn due(&self, now: Millis, listened: Millis) -> Option<Millis> {
        let deadlines = self.open.values().map(|open| now.plus(open.deadline.since(listened)));
        deadlines.chain(self.next_at).min()
    }

    /// Whether a ledger round is open.
    fn is_reading(&self) -> bool {
        self.open.values().any(|open| open.stage != Stage::Other)
    }

    /// Switches with overdue replies: those in ledger rounds, and the others with their requests.
    fn late(&self, listened: Millis) -> (BTreeSet<DatapathId>, Vec<(DatapathId, StatsToken)>) {
        let (mut silent, mut others) = (BTreeSet::new(), Vec::new());
        for (token, open) in self.open.iter().filter(|(_, open)| open.deadline <= listened) {
            match open.stage {
                Stage::Sent | Stage::Carried => silent.extend(open.awaited.keys()),
                Stage::Other => others.extend(open.awaited.keys().map(|id| (*id, *token))),
            }
        }
        (silent, others)
    }

    /// Ledger rounds no longer wait for this switch.
    fn go_on_without(&mut self, id: DatapathId) {
        let ledgers = self.open.values_mut().filter(|open| open.stage != Stage::Other);
        ledgers.for_each(|open| _ = open.awaited.remove(&id));
    }
}

impl Control {
    /// Requests counters from all switches. [`Event::StatsReady`] reports the result, once for all
    /// callers with the same token.
    pub fn request_stats(&mut self) -> StatsToken {
        if let Some(next) = self.rounds.next {
            return next;
        }
        let token = self.rounds.next_token();
        match self.rounds.is_reading() {
            true => self.rounds.next = Some(token),
            false => self.start_round(token, true, |_| true),
        }
        token
    }

    /// Opens a round with these outstanding replies.
    pub(super) fn await_stats(&mut self, token: StatsToken, awaited: BTreeMap<DatapathId, usize>) {
        self.open(token, (awaited, Stage::Other), true);
    }

    /// A reply arrived, or never will.
    pub(super) fn handle_answered(&mut self, id: DatapathId, token: StatsToken) {
        if let Some(switch) = self.switches.get_mut(&id).filter(|switch| switch.is_silent())
            && switch.hear_answer(token)
        {
            self.events.push_back(Event::CountersBack { switch: id });
        }
        let Some(open) = self.rounds.open.get_mut(&token) else { return };
        let Some(left) = open.awaited.get_mut(&id) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            open.awaited.remove(&id);
            self.end_if_answered(token);
        }
    }

    /// Counters are read periodically while there are policies: what was not read is lost with its
    /// switch.
    pub(super) fn schedule_reading(&mut self) {
        let interval = self.limits.stats_interval.filter(|_| self.policies.count() > 0);
        let next_at = interval.map(|interval| self.now.plus(interval));
        self.rounds.next_at = next_at.and(self.rounds.next_at).or(next_at);
    }

    /// Starts a periodic round if it is due and none is open.
    pub(super) fn read_counters(&mut self) {
        self.end_late_rounds();
        if self.rounds.next_at.take_if(|at| *at <= self.now).is_some() {
            self.schedule_reading();
            if !self.rounds.is_reading() {
                let token = self.rounds.next_token();
                self.start_round(token, false, Switch::has_counters);
            }
        }
    }

    /// Ends rounds without the switches that are overdue.
    fn end_late_rounds(&mut self) {
        let (silent, others) = self.rounds.late(self.clock().listened);
        for (id, token) in others {
            if let Some(switch) = self.switches.get_mut(&id) {
                switch.forget_question(token);
            }
            if let Some(open) = self.rounds.open.get_mut(&token) {
                open.awaited.remove(&id);
            }
        }
        silent.iter().for_each(|id| self.note_silent(*id));
        let open: Vec<_> = self.rounds.open.keys().copied().collect();
        open.into_iter().for_each(|token| self.end_if_answered(token));
    }

    fn note_silent(&mut self, id: DatapathId) {
        self.rounds.go_on_without(id);
        let Some(switch) = self.switches.get_mut(&id) else { return };
        if switch.fall_silent(self.limits.stats_wait, self.now) {
            let seconds = self.limits.stats_wait.0 / 1000;
            let reason = format!(
                "it did not report its counters within {seconds} s: earlier values are used, and \
                 ledgers that need them are incomplete; the request is repeated from time to time, \
                 and when the switch reconnects"
            );
            self.events.push_back(Event::CountersMissing { switch: id, reason });
        }
    }

    fn start_round(&mut self, token: StatsToken, is_awaited: bool, is_asked: fn(&Switch) -> bool) {
        self.ask_silent();
        let awaited = self.ask_each(is_asked, |switch| switch.ask_stats(token));
        self.open(token, (awaited, Stage::Sent), is_awaited);
    }

    /// Polls silent switches separately.
    fn ask_silent(&mut self) {
        let silent = self.switches.iter().filter(|(_, switch)| switch.is_silent());
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            let (token, now) = (self.rounds.next_token(), self.now);
            if self.switches.get_mut(&id).is_some_and(|switch| switch.ask_silent(token, now)) {
                self.turns.add(id);
            }
        }
    }

    fn open(
        &mut self,
        token: StatsToken,
        (awaited, stage): (BTreeMap<DatapathId, usize>, Stage),
        is_awaited: bool,
    ) {
        let deadline = self.clock().listened.plus(self.limits.stats_wait);
        self.rounds.open.insert(token, Open { awaited, stage, is_awaited, deadline });
        self.end_if_answered(token);
    }

    fn end_if_answered(&mut self, token: StatsToken) {
        let Some(Open { awaited, stage, is_awaited, .. }) = self.rounds.open.get(&token) else {
            return;
        };
        let (stage, is_awaited) = (*stage, *is_awaited);
        if !awaited.is_empty() {
            return;
        }
        if stage == Stage::Sent {
            let awaited = self.ask_each(|_| true, |switch| switch.ask_carried(token));
            return self.open(token, (awaited, Stage::Carried), is_awaited);
        }
        self.rounds.open.remove(&token);
        let now = self.now;
        self.switches.values_mut().for_each(|switch| switch.take_counters(token, now));
        if stage == Stage::Carried {
            self.count_early(token);
        }
        if is_awaited {
            self.events.push_back(Event::StatsReady(token));
        }
        if stage == Stage::Carried
            && let Some(next) = self.rounds.next.take()
        {
            self.start_round(next, true, |_| true);
        }
    }

    /// Records the number of copies that had been sent when all switches had reported carried
    /// copies for the first time.
    fn count_early(&mut self, token: StatsToken) {
        let beginning = self.tags.beginning(token);
        if beginning.is_empty() {
            return;
        }
        let accounts = Accounts::new(&self.switches, &self.tags, None);
        let counts = beginning.iter().filter_map(|tag| Some((*tag, accounts.count_sent(*tag)?)));
        for (tag, count) in counts.collect::<Vec<_>>() {
            self.tags.set_early(tag, count);
        }
    }

    /// Sends requests to the switches that take part in rounds. Returns the number of replies of
    /// each.
    pub(super) fn ask_each(
        &mut self,
        is_asked: fn(&Switch) -> bool,
        ask: impl Fn(&mut Switch) -> usize,
    ) -> BTreeMap<DatapathId, usize> {
        let mut awaited = BTreeMap::new();
        let asked = |switch: &Switch| is_asked(switch) && !switch.is_silent();
        for (id, switch) in self.switches.iter_mut().filter(|(_, switch)| asked(switch)) {
            let count = ask(switch);
            if count > 0 {
                awaited.insert(*id, count);
            }
            self.turns.add(*id);
        }
        awaited
    }
}
