//! Conversion of packet times from the monotonic clock to the wall clock.
//!
//! The offset between the clocks is read again for each turn of the writer, as the wall clock may
//! be set. A reading is off by some nanoseconds, or by far more if the thread is interrupted
//! between the two clocks. This must not change the order of packets of different turns.

use std::time::{SystemTime, UNIX_EPOCH};

/// The offset of the clocks, and the last time that was returned.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Offset of the wall clock in nanoseconds, wrapping.
    ahead: u64,
    /// The wall time of the last packet.
    last: u64,
}

impl Timeline {
    /// Reads both clocks a few times, and uses the reading that took the shortest time.
    pub(super) fn adjust(&mut self, monotonic: impl Fn() -> u64) {
        let read = || {
            let (before, wall, after) = (monotonic(), wall_time(), monotonic());
            (after.wrapping_sub(before), wall.wrapping_sub(before))
        };
        let (_, ahead) = (0..ATTEMPTS).map(|_| read()).min().unwrap_or_default();
        self.ahead = ahead;
    }

    /// The wall time, in nanoseconds since 1970, of the next packet, which was taken at `time`. It
    /// is not less than the last one, unless the clock was set back.
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

/// Number of readings of both clocks.
const ATTEMPTS: u32 = 3;
/// A clock that is this far behind, in nanoseconds, was set: readings are never that inaccurate.
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
