//! The sampler for copies that nobody waits for: which of them a slow monitor gets.
//!
//! It takes one of every N copies at random, each independently, so that the sample represents the
//! traffic; the gaps that a full queue leaves do not. Taking every Nth copy would alias with
//! requests and responses that alternate, and could give one TAP of a port all copies and another
//! none. Random choice gives each TAP its share and needs no state per TAP. N depends on the
//! monitor's queue: it doubles when the queue fills up, and shrinks by a quarter when the queue has
//! been nearly empty for a while.
//!
//! This goes for `sample-on-pressure` and for best-effort copies. A queue that is always full would
//! deliver few more of the latter than one that is nearly empty, but each of them would be stored,
//! would no longer be in the cache when it leaves, and would make a rate-limited link wake up the
//! worker's processor: a monitor with half the rate of a TCP flow cost it 19 to 36 %.

use std::time::{Duration, Instant};

use tapswitch_datapath::Random;

/// Picks one of every `every` copies.
#[derive(Debug)]
pub(super) struct PressureSampler {
    /// N: one of this many copies is taken.
    every: u32,
    random: Random,
    /// Copies taken since `every` was raised, as the effect must show before it is raised again.
    taken: u32,
    relaxed: Option<Instant>,
}

impl PressureSampler {
    /// A sampler that takes every copy at first; `seed` makes its choices differ from others'.
    pub(super) fn new(seed: u64) -> Self {
        Self { every: 1, random: Random::new(seed), taken: 0, relaxed: None }
    }

    /// Whether one copy is taken. If its queue is pressed, N may be doubled, up to `every_max`.
    pub(super) fn picks(&mut self, is_pressed: bool, every_max: u32) -> bool {
        if self.every > 1 && self.random.below(self.every) > 0 {
            return false;
        }
        self.taken += 1;
        if is_pressed && self.taken >= SETTLE_COUNT && self.every < every_max {
            (self.every, self.taken) = (self.every * 2, 0);
        }
        true
    }

    /// Takes more copies again if the queue has been nearly empty for a while.
    pub(super) fn relax(&mut self, len: usize, now: Instant) {
        if self.every == 1 {
            return;
        }
        let is_pressed = len > LITTLE_LEN;
        let since = *self.relaxed.get_or_insert(now);
        if is_pressed {
            self.relaxed = None;
        } else if now - since >= RELAX_TIME {
            (self.every, self.relaxed) = (self.every - self.every.div_ceil(4), Some(now));
            self.every = self.every.max(1);
        }
    }

    /// True when every copy is taken.
    pub(super) fn is_idle(&self) -> bool {
        self.every == 1
    }
}

/// Copies that are taken before `every` is raised again.
const SETTLE_COUNT: u32 = 16;
/// A queue with at most this many bytes is nearly empty.
const LITTLE_LEN: usize = 64 * 1024;
/// How long a queue must be nearly empty before `every` is reduced.
const RELAX_TIME: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 4096;

    #[test]
    fn a_pressed_monitor_gets_one_copy_of_every_so_many() {
        let mut sampler = PressureSampler::new(1);
        assert!((0..100).all(|_| sampler.picks(false, MAX)), "nothing presses");
        let taken = (0..1000).filter(|_| sampler.picks(true, MAX)).count();
        assert!(taken < 150, "{taken}");
        assert!(!sampler.is_idle());
    }

    /// Two TAPs with the same monitor, one for requests and one for responses, which alternate.
    #[test]
    fn each_of_several_taps_gets_its_part_whatever_the_pattern() {
        for every in [2, 4, 64] {
            let mut sampler = PressureSampler { every, ..PressureSampler::new(1) };
            let mut taken = [0; 2];
            for copy in 0..every * 1000 {
                taken[copy as usize % 2] += u32::from(sampler.picks(false, MAX));
            }
            assert!(taken.iter().all(|count| (400..600).contains(count)), "{every}: {taken:?}");
        }
    }

    #[test]
    fn no_more_are_left_out_than_may_be() {
        let mut sampler = PressureSampler::new(1);
        let taken = (0..100_000).filter(|_| sampler.picks(true, 64)).count();
        assert_eq!(sampler.every, 64);
        assert!((1400..1800).contains(&taken), "{taken}");
    }

    #[test]
    fn it_gets_all_again_when_it_keeps_up() {
        let mut sampler = PressureSampler::new(1);
        assert!((0..100_000).any(|_| !sampler.picks(true, MAX)));
        let start = Instant::now();
        let mut ticks = 0..;
        while !sampler.is_idle() {
            let tick = ticks.next().unwrap();
            assert!(tick < 1000, "for ever: {sampler:?}");
            sampler.relax(0, start + RELAX_TIME * tick);
        }
        assert!(sampler.picks(false, MAX));
    }
}
