//! Wall-clock time as people and scripts read it. What has to be measured is measured by
//! [`std::time::Instant`], which nobody sets.

use jiff::Timestamp;
use tapswitch_control::UnixTime;

/// Now, in RFC 3339 with milliseconds, UTC. Two such texts sort as their times.
pub(crate) fn now_text() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Microseconds since 1970, zero before.
pub(crate) fn now_us() -> u64 {
    u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default()
}

/// Now, as policies have it.
pub(crate) fn unix_time() -> UnixTime {
    UnixTime(now_us() / 1000)
}
