//! Sampling for a bucket that makes one copy of every N frames ([`Shape::Sample`]).
//!
//! Of each run of N copies exactly one is taken, at a random position in the run: the ratio is
//! exact, and no pattern in the traffic, such as alternating requests and answers, decides which
//! ones. Each worker has runs of its own.
//!
//! [`Shape::Sample`]: tapswitch_openflow::Shape::Sample

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::counters::WorkerIndex;
use crate::random::Random;

/// Picks the copies of one bucket.
#[derive(Debug)]
pub(crate) struct Sampler {
    every: u32,
    slots: Box<[Slot]>,
}

/// Written by one worker alone.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    /// Copies of this run so far.
    seen: AtomicU32,
    /// Position of the copy to take.
    pick: AtomicU32,
    random: AtomicU64,
}

impl Sampler {
    /// Takes one copy of `every`, for `workers`; `seed` distinguishes it from other samplers.
    pub(crate) fn new(every: u32, seed: u64, workers: usize) -> Self {
        let slot = |worker: u64| {
            let seed = Random::new(seed).state().wrapping_add(worker);
            let random = AtomicU64::new(Random::new(seed).state());
            Slot { random, ..Slot::default() }
        };
        Self { every: every.max(1), slots: (0..workers as u64).map(slot).collect() }
    }

    /// Decides on the next copy. Only the worker `worker` may call this.
    pub(crate) fn takes(&self, worker: WorkerIndex) -> bool {
        let Some(slot) = self.slots.get(worker.0) else { return true };
        let seen = slot.seen.load(Ordering::Relaxed);
        if seen == 0 {
            slot.pick.store(slot.random_below(self.every), Ordering::Relaxed);
        }
        let next = if seen + 1 == self.every { 0 } else { seen + 1 };
        slot.seen.store(next, Ordering::Relaxed);
        seen == slot.pick.load(Ordering::Relaxed)
    }
}

impl Slot {
    fn random_below(&self, bound: u32) -> u32 {
        let mut random = Random::at(self.random.load(Ordering::Relaxed));
        let number = random.below(bound);
        self.random.store(random.state(), Ordering::Relaxed);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerIndex = WorkerIndex(0);

    #[test]
    fn of_each_run_one_is_taken() {
        for every in [1, 2, 7, 100] {
            let sampler = Sampler::new(every, 1, 1);
            for _ in 0..50 {
                assert_eq!((0..every).filter(|_| sampler.takes(WORKER)).count(), 1);
            }
        }
    }

    #[test]
    fn a_pattern_in_the_traffic_does_not_decide() {
        let sampler = Sampler::new(2, 1, 1);
        let taken: Vec<bool> = (0..2000).map(|_| sampler.takes(WORKER)).collect();
        let of_questions = taken.iter().step_by(2).filter(|taken| **taken).count();
        assert!((400..600).contains(&of_questions), "{of_questions} of 1000");
    }

    #[test]
    fn workers_and_buckets_pick_for_themselves() {
        let picks = |seed, worker| -> Vec<bool> {
            let sampler = Sampler::new(10, seed, 2);
            (0..200).map(|_| sampler.takes(WorkerIndex(worker))).collect()
        };
        assert_ne!(picks(1, 0), picks(1, 1));
        assert_ne!(picks(1, 0), picks(2, 0));
        assert_eq!(picks(1, 0), picks(1, 0));
        assert!(picks(1, 2).iter().all(|taken| *taken), "a worker that is not there");
    }
}
