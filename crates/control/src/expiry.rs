//! Expiry of policies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::UnixTime;
use crate::text::{ParseTextError, as_text};

/// Expiry: `30m`, or `2026-11-22T18:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Seconds after the policy was added.
    After(u64),
    /// At this time of day.
    At(UnixTime),
}

impl Expiry {
    /// The absolute time, for a policy added `now`.
    pub fn time(self, now: UnixTime) -> UnixTime {
        match self {
            Self::After(seconds) => UnixTime(now.0.saturating_add(seconds.saturating_mul(1000))),
            Self::At(time) => time,
        }
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => time.fmt(f),
            Self::After(0) => f.write_str("0s"),
            Self::After(seconds) => {
                let mut rest = *seconds;
                for (unit, len) in UNITS {
                    if rest >= len {
                        write!(f, "{}{unit}", rest / len)?;
                        rest %= len;
                    }
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Expiry {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let after = seconds(text).filter(|seconds| *seconds <= MAX_SECONDS).map(Self::After);
        let expiry = after.or_else(|| text.parse().ok().map(Self::At));
        expiry.ok_or_else(|| ParseTextError::new(text, EXPECTED))
    }
}

impl Serialize for Expiry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Expiry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// Parses `1h30m` to seconds; each unit at most once, larger ones first.
fn seconds(text: &str) -> Option<u64> {
    let (mut rest, mut sum, mut is_any) = (text, 0u64, false);
    for (unit, len) in UNITS {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (count, behind) = rest.split_at(digits);
        if let Some(behind) = behind.strip_prefix(unit) {
            sum = sum.checked_add(count.parse::<u64>().ok()?.checked_mul(len)?)?;
            (rest, is_any) = (behind, true);
        }
    }
    (is_any && rest.is_empty()).then_some(sum)
}

const UNITS: [(char, u64); 5] =
    [('w', 7 * 86_400), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
/// Ten years: anything longer is a mistake.
const MAX_SECONDS: u64 = 10 * 366 * 86_400;
const EXPECTED: &str =
    "a duration as in 30m, 2h30m or 7d, or a time as in 2026-11-22T18:00:00Z (RFC 3339)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_times_are_read_and_shown() {
        for (text, seconds) in [("30m", 1800), ("2h30m", 9000), ("1w1d", 691_200), ("0s", 0)] {
            let expiry: Expiry = text.parse().unwrap();
            assert_eq!((expiry, expiry.to_string().as_str()), (Expiry::After(seconds), text));
        }
        let time: Expiry = "2026-11-22T18:00:00+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2026-11-22T17:00:00Z");
        assert_eq!("90m".parse::<Expiry>().unwrap().to_string(), "1h30m");
        for text in ["", "30", "m", "30m2h", "1y", "-1m", "9999w", "2026-11-22", "soon"] {
            assert_eq!(text.parse::<Expiry>().unwrap_err().expected, EXPECTED, "{text}");
        }
    }

    #[test]
    fn spans_begin_when_the_policy_is_added() {
        assert_eq!(Expiry::After(60).time(UnixTime(5000)), UnixTime(65_000));
        assert_eq!(Expiry::At(UnixTime(7)).time(UnixTime(5000)), UnixTime(7));
    }
}
