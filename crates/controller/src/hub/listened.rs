//! The time for which the hub would have heard.

use std::time::{Duration, Instant};

/// How much of the time the hub waited for inputs, and would have been told of what came: not while
/// it had work to do itself, or others kept it waiting for longer than it had to. This clock always
/// goes, if slowly ([`BUSY_PART`]), for there may be work at all times.
#[derive(Debug)]
pub(super) struct Listened {
    waited: Duration,
    start: Instant,
}

impl Listened {
    pub(super) fn new() -> Self {
        Self { waited: Duration::ZERO, start: Instant::now() }
    }

    /// It waited since then, until `due`, or until there was an input. Nobody knows since when that
    /// was there.
    pub(super) fn add(&mut self, since: Instant, due: Option<Instant>) {
        let now = Instant::now();
        let is_in_time = due.is_some_and(|due| now.saturating_duration_since(due) < SLACK);
        let waited = now.duration_since(since);
        self.waited += if is_in_time { waited } else { waited.min(SLACK) };
    }

    pub(super) fn total(&self, now: Instant) -> Duration {
        let busy = now.duration_since(self.start).saturating_sub(self.waited);
        self.waited + busy / BUSY_PART
    }
}

/// By how much somebody who waits is woken late though nothing keeps him.
const SLACK: Duration = Duration::from_millis(20);
/// One of so many parts of the time for which the hub was busy counts as listened.
const BUSY_PART: u32 = 8;
