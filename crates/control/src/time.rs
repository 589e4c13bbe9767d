//! Time, as given by the caller.

use std::fmt;
use std::str::FromStr;

use crate::ParseTextError;

/// Monotonic milliseconds since an origin chosen by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Time since `earlier`; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The time after a duration.
    #[must_use]
    pub const fn plus(self, wait: Self) -> Self {
        Self(self.0.saturating_add(wait.0))
    }
}

/// Time of day: milliseconds since 1970-01-01T00:00:00Z without leap seconds, given by the caller.
/// As text: RFC 3339 in UTC with second precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub u64);

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0 / 1000).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{}", time.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl FromStr for UnixTime {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time: Option<jiff::Timestamp> = text.parse().ok();
        let ms = time.and_then(|time| u64::try_from(time.as_millisecond()).ok());
        ms.map(Self).ok_or_else(|| ParseTextError::new(text, EXPECTED))
    }
}

const EXPECTED: &str = "a time since 1970, as in 2026-11-22T18:00:00Z (RFC 3339)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_read_and_shown() {
        for text in ["1970-01-01T00:00:00Z", "2026-11-22T18:00:00Z", "2024-02-29T23:59:59Z"] {
            assert_eq!(text.parse::<UnixTime>().unwrap().to_string(), text);
        }
        for text in ["", "2026-11-22", "18:00", "1969-12-31T23:59:59Z", "2026-02-30T00:00:00Z"] {
            assert!(text.parse::<UnixTime>().is_err(), "{text}");
        }
        assert_eq!(UnixTime(u64::MAX).to_string(), "9999-12-30T22:00:00Z");
    }
}
