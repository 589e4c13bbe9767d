//! Times of packets by the wall clock, from those of the monotonic clock that they were taken at.
//!
//! How far the two clocks are apart is read again for each turn of the writer, for the wall clock
//! may be set. A reading is some nanoseconds off, and of a thread that is interrupted between both
//! clocks far more. Packets of two turns must not change places by that.

use std::time::{SystemTime, UNIX_EPOCH};

/// Where the clocks are, and what was told last.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Nanoseconds that the wall clock is ahead, wrapping.
    ahead: u64,
    /// The last time that a packet was given.
    last: u64,
}

impl Timeline {
    /// Reads both clocks: of some attempts, the one that took the shortest time.
    pub(super) fn adjust(&mut self, monotonic: impl Fn() -> u64) {
        let read = || {
            let (before, wall, after) = (monotonic(), wall_time(), monotonic());
            (after.wrapping_sub(before), wall.wrapping_sub(before))
        };
        let (_, ahead) = (0..ATTEMPTS).map(|_| read()).min().unwrap_or_default();
        self.ahead = ahead;
    }

    /// The wall time, in nanoseconds since 1970, of a packet that was taken at `time` and is the
    /// next one: not before the one before, unless the clock was set back.
    pub(super) fn wall_time(&mut self, time: u64) -> u64 {
        let time = time.wrapping_add(self.ahead);
        let back = self.last.saturating_sub(time);
        self.last = if back < SET_BACK { time.max(self.last) } else { time };
        self.last
    }
}

/// Nanoseconds since 1970.
pub(super) fn wall_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Readings of both clocks.
const ATTEMPTS: u32 = 3;
/// A clock that is this much behind, in nanoseconds, was set: readings are not that wrong.
const SET_BACK: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_stay_in_order_however_the_clocks_are_read() {
        let mut timeline = Timeline { ahead: 1_000_000_000, last: 0 };
        assert_eq!(timeline.wall_time(500), 1_000_000_500);
        timeline.ahead -= 10;
        assert_eq!(timeline.wall_time(505), 1_000_000_500, "ten nanoseconds before the last one");
        assert_eq!(timeline.wall_time(511), 1_000_000_501);
        timeline.ahead += 700;
        assert_eq!(timeline.wall_time(520), 1_000_001_210);
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let mut timeline = Timeline { ahead: 5_000_000_000, last: 0 };
        assert_eq!(timeline.wall_time(0), 5_000_000_000);
        timeline.ahead -= 1_000_000_000;
        assert_eq!(timeline.wall_time(1), 4_000_000_001);
        timeline.ahead += 9_000_000_000;
        assert_eq!(timeline.wall_time(2), 13_000_000_002);
    }

    #[test]
    fn both_clocks_are_read() {
        let mut timeline = Timeline::default();
        let before = wall_time();
        timeline.adjust(|| 42);
        let told = timeline.wall_time(42);
        assert!((before..=wall_time()).contains(&told), "{told}");
    }
}
