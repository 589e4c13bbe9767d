//! The sampler of `sample-on-pressure`: which copies a slow monitor gets.
//!
//! It takes one of every N copies at random, each independently, so that the sample represents the
//! traffic; the gaps that a full queue leaves do not. Taking every Nth copy would alias with
//! requests and responses that alternate, and could give one TAP of a port all copies and another
//! none. Random choice gives each TAP its share and needs no state per TAP. N depends on the
//! monitor's queue: it doubles when the queue fills up, and shrinks by a quarter when the queue has
//! been nearly empty for a while.

use std::time::{Duration, Instant};

use tapswitch_datapath::{DropReason, Random};

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

    /// Decides about one copy, for a queue that holds `len` of at most `room` bytes.
    ///
    /// # Errors
    /// If the copy is left out.
    pub(super) fn pick(&mut self, len: usize, room: usize) -> Result<(), DropReason> {
        if self.every > 1 && self.random.below(self.every) > 0 {
            return Err(DropReason::SampledOut);
        }
        self.taken += 1;
        if len > room / 2 && self.taken >= SETTLE_COUNT {
            (self.every, self.taken) = ((self.every * 2).min(EVERY_MAX), 0);
        }
        Ok(())
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
/// Maximum of `every`.
const EVERY_MAX: u32 = 4096;
/// A queue with at most this many bytes is nearly empty.
const LITTLE_LEN: usize = 64 * 1024;
/// How long a queue must be nearly empty before `every` is reduced.
const RELAX_TIME: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pressed_monitor_gets_one_copy_of_every_so_many() {
        let mut sampler = PressureSampler::new(1);
        assert!((0..100).all(|_| sampler.pick(0, 100).is_ok()), "nothing presses");
        let taken = (0..1000).filter(|_| sampler.pick(80, 100).is_ok()).count();
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
                taken[copy as usize % 2] += u32::from(sampler.pick(0, 100).is_ok());
            }
            assert!(taken.iter().all(|count| (400..600).contains(count)), "{every}: {taken:?}");
        }
    }

    #[test]
    fn it_gets_all_again_when_it_keeps_up() {
        let mut sampler = PressureSampler::new(1);
        assert!((0..100_000).any(|_| sampler.pick(80, 100).is_err()));
        let start = Instant::now();
        let mut ticks = 0..;
        while !sampler.is_idle() {
            let tick = ticks.next().unwrap();
            assert!(tick < 1000, "for ever: {sampler:?}");
            sampler.relax(0, start + RELAX_TIME * tick);
        }
        assert_eq!(sampler.pick(0, 100), Ok(()));
    }
}
