//! Wall-clock time for people and scripts. Durations are measured by [`std::time::Instant`], which
//! is not affected by clock changes.

use jiff::Timestamp;
use tapswitch_control::UnixTime;

/// Current time in RFC 3339 with milliseconds, UTC. Sorts chronologically.
pub(crate) fn now_text() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Microseconds since 1970; zero before.
pub(crate) fn now_us() -> u64 {
    u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default()
}

/// Current time in the form of policies.
pub(crate) fn unix_time() -> UnixTime {
    UnixTime(now_us() / 1000)
}
