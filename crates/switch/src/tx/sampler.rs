//! Which copies a monitor gets that cannot keep up, by the contract `sample-on-pressure`.
//!
//! One of every so many, evenly: so that what it sees stands for what it does not see, which the
//! ends of bursts that a full queue leaves do not. How many depends on the monitor's queue: twice
//! as many are left out when it fills up, a quarter less when it has been nearly empty for a while.

use std::time::{Duration, Instant};

use tapswitch_datapath::DropReason;

/// Picks one copy of every so many.
#[derive(Debug)]
pub(super) struct Sampler {
    /// One copy of this many is taken.
    every: u32,
    /// Copies since the last one that was taken.
    seen: u32,
    /// Copies that were taken since `every` was raised: what that does must show first.
    taken: u32,
    relaxed: Option<Instant>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { every: 1, seen: 0, taken: 0, relaxed: None }
    }
}

impl Sampler {
    /// Decides about one copy, for a queue that holds `len` of `room` bytes.
    ///
    /// # Errors
    /// When it is left out.
    pub(super) fn pick(&mut self, len: usize, room: usize) -> Result<(), DropReason> {
        self.seen += 1;
        if self.seen < self.every {
            return Err(DropReason::SampledOut);
        }
        (self.seen, self.taken) = (0, self.taken + 1);
        if len > room / 2 && self.taken >= SETTLE_COUNT {
            (self.every, self.taken) = ((self.every * 2).min(EVERY_MAX), 0);
        }
        Ok(())
    }

    /// Takes more again when the queue has been nearly empty for a while.
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

/// Copies taken before more are left out again.
const SETTLE_COUNT: u32 = 16;
/// At most this many copies make one that is taken.
const EVERY_MAX: u32 = 4096;
/// A queue with no more than this is nearly empty.
const LITTLE_LEN: usize = 64 * 1024;
/// How long it must be.
const RELAX_TIME: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pressed_monitor_gets_one_copy_of_every_so_many() {
        let mut sampler = Sampler::default();
        assert!((0..100).all(|_| sampler.pick(0, 100).is_ok()), "nothing presses");
        let picks = |sampler: &mut Sampler, count: u32| -> Vec<u32> {
            (0..count).filter(|_| sampler.pick(80, 100).is_ok()).collect()
        };
        let taken = picks(&mut sampler, 1000);
        let last = taken.last_chunk::<3>().unwrap();
        assert!(taken.len() < 120 && last[2] - last[1] == last[1] - last[0], "{taken:?}");
        assert!(!sampler.is_idle());
    }

    #[test]
    fn it_gets_all_again_when_it_keeps_up() {
        let mut sampler = Sampler::default();
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
