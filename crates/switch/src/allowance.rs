//! A rate limit: a number of events per period, such as lines of the log.

use std::time::{Duration, Instant};

/// A number of events per period, which begins with the first event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    count: u32,
    time: Duration,
    since: Option<Instant>,
    taken: u32,
}

impl Allowance {
    pub(crate) fn new(count: u32, time: Duration) -> Self {
        Self { count, time, since: None, taken: 0 }
    }

    /// Takes one. Returns `false` if the limit is exceeded.
    pub(crate) fn take(&mut self) -> bool {
        if self.time_left().is_zero() {
            (self.since, self.taken) = (Some(Instant::now()), 0);
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= self.count
    }

    /// True if the last call was the first to exceed the limit.
    pub(crate) fn was_last(&self) -> bool {
        self.taken == self.count.saturating_add(1)
    }

    /// The time until the next period.
    pub(crate) fn time_left(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| self.time.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_and_comes_back() {
        let mut one = Allowance::new(2, Duration::from_secs(3600));
        assert_eq!(
            [(); 4].map(|()| (one.take(), one.was_last())),
            [(true, false), (true, false), (false, true), (false, false)]
        );
        assert!(one.time_left() > Duration::from_secs(3000));
        let mut next = Allowance { time: Duration::ZERO, ..one };
        assert!(next.time_left().is_zero() && next.take());
    }
}
