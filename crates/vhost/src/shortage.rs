//! Since when a guest has provided too few receive buffers.
//!
//! Noted only by a frame that finds too few of them, and when a driver provides its first ones, so
//! delivering frames costs nothing for it. That a shortage is over is concluded: either the
//! position of the ring has changed when a frame meets the next one, or no frame has met it for
//! [`NEWS`], because those that waited were delivered; waiting frames are tried again far more
//! often.
//!
//! One thread at a time notes, as it holds the ring; any thread may read.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A guest has provided too few receive buffers for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// How long this has been so.
    pub age: Duration,
    /// It has provided none since its driver started the ring.
    pub is_unready: bool,
}

/// The shortage at a ring, if any, in milliseconds since boot.
#[derive(Debug, Default)]
pub(crate) struct ShortageNote {
    /// When a frame first met it; 0 if there is none.
    since: AtomicU64,
    /// When a frame last met it.
    last: AtomicU64,
    /// Position of the ring then.
    position: AtomicU32,
    is_unready: AtomicBool,
}

impl ShortageNote {
    /// Notes that a frame has found too few buffers in a ring at this position.
    #[cold]
    pub(crate) fn begin(&self, position: u32, is_unready: bool) {
        self.begin_at(now_ms(), position, is_unready);
    }

    fn begin_at(&self, now: u64, position: u32, is_unready: bool) {
        let is_same = self.position.load(Ordering::Relaxed) == position
            && self.read_at(now).is_some_and(|shortage| shortage.is_unready == is_unready);
        if !is_same {
            self.position.store(position, Ordering::Relaxed);
            self.is_unready.store(is_unready, Ordering::Relaxed);
            self.since.store(now, Ordering::Relaxed);
        }
        self.last.store(now, Ordering::Relaxed);
    }

    /// Notes that there are buffers, or no ring.
    #[cold]
    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// The shortage, if there is one.
    pub(crate) fn read(&self) -> Option<Shortage> {
        self.read_at(now_ms())
    }

    fn read_at(&self, now: u64) -> Option<Shortage> {
        let since = Some(self.since.load(Ordering::Relaxed)).filter(|since| *since > 0)?;
        let is_unready = self.is_unready.load(Ordering::Relaxed);
        let is_news = now.saturating_sub(self.last.load(Ordering::Relaxed)) <= NEWS;
        let age = Duration::from_millis(now.saturating_sub(since));
        (is_unready || is_news).then_some(Shortage { age, is_unready })
    }
}

/// Milliseconds since boot, never 0; the resolution is a scheduler tick.
#[expect(clippy::cast_sign_loss, reason = "the monotonic clock is never negative")]
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1)
}

/// Milliseconds after which a shortage that no frame has met again is over.
const NEWS: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(note: &ShortageNote, now: u64) -> Option<(u64, bool)> {
        note.read_at(now).map(|it| (it.age.as_millis().try_into().unwrap(), it.is_unready))
    }

    #[test]
    fn a_shortage_lasts_while_frames_meet_it_at_one_position() {
        let note = ShortageNote::default();
        assert_eq!(seen(&note, 5000), None);
        (5000..=9000).step_by(10).for_each(|now| note.begin_at(now, 7, false));
        assert_eq!(seen(&note, 9005), Some((4005, false)));
        assert_eq!(seen(&note, 9000 + NEWS + 1), None, "what waited was delivered");
        note.begin_at(9020, 8, false);
        assert_eq!(seen(&note, 9021), Some((1, false)), "buffers came, too few again");
        note.begin_at(9020 + NEWS + 1, 8, false);
        assert_eq!(seen(&note, 9020 + NEWS + 2), Some((1, false)), "a whole round of the ring");
        note.end();
        assert_eq!(seen(&note, 9020 + NEWS + 2), None);
    }

    /// Frames for it are dropped and not tried again, so none may come for long.
    #[test]
    fn a_driver_that_has_not_started_yet_is_told_until_it_has() {
        let note = ShortageNote::default();
        for now in [1000, 61_000] {
            note.begin_at(now, 0, true);
            assert_eq!(seen(&note, now), Some((now - 1000, true)));
        }
        note.begin_at(62_000, 0, false);
        assert_eq!(seen(&note, 62_000), Some((0, false)));
    }
}
