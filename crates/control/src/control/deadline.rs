//! End of a policy's life, and of a pause by its schedule.

use std::fmt;

use crate::{Millis, UnixTime};

/// End of a policy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deadline {
    /// In monotonic time.
    Span(Millis),
    /// In time of day.
    Time(UnixTime),
}

/// What a policy paused by its schedule waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The time of day is unknown.
    Unknown,
    /// Its hours start then, if ever.
    Until(Option<UnixTime>),
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("its schedule cannot start until the time of day is known")
            }
            Self::Until(None) => f.write_str("its schedule has no hours"),
            Self::Until(Some(time)) => write!(f, "its schedule resumes at {time}"),
        }
    }
}
