//! Clock of the time in which the hub could process input.

use std::time::{Duration, Instant};

/// Time in which the hub waited for input and would have received it: not while it was busy or was
/// woken late. The clock always advances, if slowly ([`BUSY_PART`]), as the hub may be busy all the
/// time.
#[derive(Debug)]
pub(super) struct Listened {
    waited: Duration,
    start: Instant,
}

impl Listened {
    pub(super) fn new() -> Self {
        Self { waited: Duration::ZERO, start: Instant::now() }
    }

    /// The hub waited since then, until `due`, or until an input arrived. When the input became
    /// available is unknown.
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

/// Normal delay of a wake-up.
const SLACK: Duration = Duration::from_millis(20);
/// One part in this many of the busy time counts.
const BUSY_PART: u32 = 8;
