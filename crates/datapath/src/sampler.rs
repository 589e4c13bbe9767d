//! One copy of every so many, by a bucket's own wish ([`Shape::Sample`]).
//!
//! Of each run of so many copies exactly one is taken, at a random place in the run: the ratio is
//! exact, and no pattern in the traffic, such as question and answer in turns, decides which ones.
//! Each worker has runs of its own. The numbers are the same at each start: this is no secret.
//!
//! [`Shape::Sample`]: tapswitch_openflow::Shape::Sample

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::counters::WorkerIndex;

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
    /// The one to take.
    pick: AtomicU32,
    random: AtomicU64,
}

impl Sampler {
    /// One copy of `every`, for `workers`; `seed` tells it from others.
    pub(crate) fn new(every: u32, seed: u64, workers: usize) -> Self {
        let slot = |worker: u64| {
            let random = AtomicU64::new(mix(seed ^ worker.wrapping_mul(GOLDEN)));
            Slot { random, ..Slot::default() }
        };
        Self { every: every.max(1), slots: (0..workers as u64).map(slot).collect() }
    }

    /// Decides about the next copy. Only the worker `worker` may call this.
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
        let state = self.random.load(Ordering::Relaxed).wrapping_add(GOLDEN);
        self.random.store(state, Ordering::Relaxed);
        // The upper half of a product is evenly spread but for 1 in 2^32 / bound.
        let product = (mix(state) >> 32) * u64::from(bound);
        u32::try_from(product >> 32).unwrap_or(0)
    }
}

/// The output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// 2^64 divided by the golden ratio, odd: the step of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

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
