//! Errors in filters: position, cause and remedy.

use crate::region::{MAX_SIZE, TooMany};

/// Why a filter is rejected. Its author has to change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {what}; {remedy}")]
pub struct FilterError {
    at: usize,
    what: String,
    remedy: String,
}

impl FilterError {
    pub(super) fn new(at: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { at, what: what.into(), remedy: remedy.into() }
    }

    /// OpenFlow has no field for `what`.
    pub(super) fn no_match(at: usize, what: &str, remedy: &str) -> Self {
        Self::new(at, format!("OpenFlow 1.3 cannot match {what}"), remedy)
    }

    pub(super) fn too_many(at: usize, too_many: TooMany) -> Self {
        let TooMany::Regions { needed } = too_many else {
            let remedy = "ask for less: join fewer ranges of ports by `and` and `or`, or make \
                          several policies of it";
            return Self::new(at, "this takes too long to find out what it matches", remedy);
        };
        Self::new(
            at,
            format!(
                "this takes {needed} rules or more, of {MAX_SIZE} that one policy may have: \
                 OpenFlow 1.3 matches one port at a time, and one of several things at a time"
            ),
            "ask for less: name protocol and direction, use narrower ranges, or make several \
             policies of it",
        )
    }

    pub(super) fn nothing() -> Self {
        let remedy = "parts that are joined by `and` contradict each other; join them by `or`, or \
                      leave one out";
        Self::new(0, "no frame can match this", remedy)
    }

    /// Byte offset in the filter.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// How to fix it.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}
