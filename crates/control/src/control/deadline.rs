//! When a policy ends, and what one that rests by its schedule waits for.

use std::fmt;

use crate::{Millis, UnixTime};

/// When a policy ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deadline {
    /// By the monotonic time.
    Span(Millis),
    /// By the time of day.
    Time(UnixTime),
}

/// What a policy that rests waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The time of day is not known.
    Unknown,
    /// Its hours begin then.
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
