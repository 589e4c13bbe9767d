//! Delays between connection attempts.

use std::time::Duration;

/// Delays between connection attempts: none before the first retry, then a delay that doubles up to
/// a maximum, starting again after a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    /// Delay before the next attempt.
    next: Duration,
}

impl Backoff {
    /// Waits `first` before the second retry, then twice as long each time, at most `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        let next = Duration::ZERO;
        Self { first, max, next }
    }

    /// Records a failed attempt or lost connection; returns the delay before the next attempt.
    pub fn handle_failure(&mut self) -> Duration {
        let delay = self.next;
        self.next = match delay.is_zero() {
            true => self.first.min(self.max),
            false => delay.saturating_mul(2).min(self.max),
        };
        delay
    }

    /// Records a working connection: after the next loss, the first retry is immediate.
    pub const fn handle_success(&mut self) {
        self.next = Duration::ZERO;
    }
}

impl Default for Backoff {
    /// Immediate, then from 100 ms to 2 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays_ms(backoff: &mut Backoff, count: usize) -> Vec<u128> {
        (0..count).map(|_| backoff.handle_failure().as_millis()).collect()
    }

    #[test]
    fn the_time_doubles_up_to_the_bound() {
        let mut backoff = Backoff::default();
        assert_eq!(delays_ms(&mut backoff, 8), [0, 100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn success_starts_again() {
        let mut backoff = Backoff::default();
        delays_ms(&mut backoff, 5);
        backoff.handle_success();
        assert_eq!(delays_ms(&mut backoff, 3), [0, 100, 200]);
    }
}
