//! How much of the time may go into proofs of changes while others wait.
//!
//! A proof takes about as long as the change itself. Where changes come one by one each is proved,
//! and so are the first ones of many; of the others, so many that all together are not kept waiting
//! for much longer, and whoever asked for one of the rest is told that it was not proved.

use std::time::{Duration, Instant};

/// Time for proofs, which is saved up while none is needed.
#[derive(Debug)]
pub(super) struct Proving {
    saved: Duration,
    since: Instant,
    /// What the last proof took: the next one will take as long.
    last: Duration,
}

impl Proving {
    pub(super) const fn new(now: Instant) -> Self {
        Self { saved: MOST, since: now, last: Duration::ZERO }
    }

    /// Whether a change may be proved though others wait.
    pub(super) fn has_time(&mut self, now: Instant) -> bool {
        let share = now.saturating_duration_since(self.since) / PART;
        (self.saved, self.since) = ((self.saved + share).min(MOST), now);
        self.saved >= self.last.min(MOST)
    }

    /// A proof took so long.
    pub(super) const fn spend(&mut self, time: Duration) {
        (self.saved, self.last) = (self.saved.saturating_sub(time), time);
    }
}

/// What is told where there was no time.
pub(super) const NO_TIME: &str = "many changes came at once, and not each was proved; a dry run \
                                  looks at all of it";
/// One of so many parts of the time goes into proofs while others wait.
const PART: u32 = 16;
/// What can be saved up: as long as nobody notices a wait.
const MOST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_changes_the_first_are_proved_and_then_some() {
        let start = Instant::now();
        let mut proving = Proving::new(start);
        let (change, proof) = (Duration::from_micros(400), Duration::from_micros(500));
        let (mut now, mut proved) = (start, 0_u32);
        for number in 0..10_000 {
            let is_proved = proving.has_time(now);
            assert!(is_proved || number >= 100, "{number}");
            if is_proved {
                proving.spend(proof);
                (now, proved) = (now + proof, proved + 1);
            }
            now += change;
        }
        let (all, proofs) = (now - start, proof * proved);
        assert!(proofs <= all / PART + MOST && proofs > all / PART - MOST, "{proofs:?} of {all:?}");
    }

    #[test]
    fn one_that_takes_long_is_proved_now_and_then() {
        let start = Instant::now();
        let mut proving = Proving::new(start);
        assert!(proving.has_time(start));
        proving.spend(Duration::from_secs(1));
        assert!(!proving.has_time(start + Duration::from_millis(500)));
        assert!(proving.has_time(start + Duration::from_secs(1)));
    }
}
