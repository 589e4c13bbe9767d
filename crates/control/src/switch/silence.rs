//! A switch that does not tell its counters in time.
//!
//! Others do not wait for it: it is not asked with them any more, and what it told last counts on.
//! From time to time it is asked on its own, at first soon, and then less and less often. When it
//! answers all of that it is asked with the others again.

use super::Switch;
use crate::{Millis, StatsToken};

/// How it is found out whether a switch answers again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// When it is asked next, and how long after that once more.
    ask_at: Millis,
    pause: Millis,
    /// What it was asked last, and how many answers are to come.
    asked: Option<(StatsToken, usize)>,
}

impl Switch {
    /// Whether it did not tell its counters in time, and has not done so since.
    pub(crate) const fn is_silent(&self) -> bool {
        self.silence.is_some()
    }

    /// Whether what it told last is older than what others did.
    pub(crate) const fn is_stale(&self) -> bool {
        self.is_down() || self.is_silent()
    }

    /// It did not tell its counters within `wait`. What it was asked is forgotten: nothing would
    /// ever be waited for, and more and more remembered. Returns whether that is news.
    pub(crate) fn fall_silent(&mut self, wait: Millis, now: Millis) -> bool {
        self.outbox.forget_counters(|_| true);
        let is_news = self.silence.is_none();
        self.silence.get_or_insert(Silence { ask_at: now.plus(wait), pause: wait, asked: None });
        is_news
    }

    /// It did not answer this in time, which is of no interest any more.
    pub(crate) fn forget_question(&mut self, token: StatsToken) {
        self.outbox.forget_counters(|asked| asked == token);
    }

    /// Asks a silent switch once more, if it is time. Returns whether it did. The answers are only
    /// a sign of life: those of the others are of another time.
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

    /// It answered something. Returns whether it is silent no more.
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

/// The most time between two questions to a silent switch.
const MAX_PAUSE: Millis = Millis(3_600_000);
