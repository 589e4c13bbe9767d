//! The monotonic clock in milliseconds, at the lowest cost.

use rustix::time::{ClockId, clock_gettime};
use tapswitch_datapath::Millis;

/// Milliseconds since boot. The resolution is a scheduler tick (1 to 10 ms), enough for timeouts in
/// seconds; a call costs a few nanoseconds.
#[inline]
#[expect(clippy::cast_sign_loss, reason = "the monotonic clock is never negative")]
pub(crate) fn coarse() -> Millis {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Millis(now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000)
}
