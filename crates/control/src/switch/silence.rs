//! Switches that do not answer requests for counters in time.
//!
//! Others do not wait for such a switch: it is left out of common rounds, and its last counters
//! remain. It is polled separately with increasing intervals, and included again once it has
//! answered such a poll completely.

use super::Switch;
use crate::{Millis, StatsToken};

/// State of polling a silent switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// Time of the next poll, and the interval after it.
    ask_at: Millis,
    pause: Millis,
    /// Last poll, and the number of outstanding replies.
    asked: Option<(StatsToken, usize)>,
}

impl Switch {
    /// Whether it failed to answer in time and has not answered since.
    pub(crate) const fn is_silent(&self) -> bool {
        self.silence.is_some()
    }

    /// Whether its counters are older than those of others.
    pub(crate) const fn is_stale(&self) -> bool {
        self.is_down() || self.is_silent()
    }

    /// It did not answer within `wait`. Its requests are forgotten, or they would accumulate.
    /// Returns whether this is new.
    pub(crate) fn fall_silent(&mut self, wait: Millis, now: Millis) -> bool {
        self.outbox.forget_counters(|_| true);
        let is_news = self.silence.is_none();
        self.silence.get_or_insert(Silence { ask_at: now.plus(wait), pause: wait, asked: None });
        is_news
    }

    /// Forgets an overdue request.
    pub(crate) fn forget_question(&mut self, token: StatsToken) {
        self.outbox.forget_counters(|asked| asked == token);
    }

    /// Polls a silent switch if it is time. Returns whether it did. The replies only prove that it
    /// is alive, as they belong to no round.
    pub(crate) fn ask_silent(&mut self, token: StatsToken, now: Millis) -> bool {
        let Some(silence) = self.silence.filter(|silence| silence.ask_at <= now) else {
            return false;
        };
        self.outbox.forget_counters(|_| true);
        let pause = Millis(silence.pause.0.saturating_mul(2)).min(MAX_PAUSE);
        let asked = Some((token, self.ask_counters(token)));
        self.silence = Some(Silence { ask_at: now.plus(pause), pause, asked });
        true
    }

    /// It answered a request. Returns whether it is no longer silent.
    pub(crate) fn hear_answer(&mut self, token: StatsToken) -> bool {
        let asked = self.silence.as_mut().and_then(|silence| silence.asked.as_mut());
        let Some((_, left)) = asked.filter(|(asked, _)| *asked == token) else { return false };
        *left = left.saturating_sub(1);
        let is_over = *left == 0;
        if is_over {
            self.silence = None;
        }
        is_over
    }
}

/// Maximum interval between polls.
const MAX_PAUSE: Millis = Millis(3_600_000);
