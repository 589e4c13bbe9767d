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
            let remedy =
                "combine fewer port ranges with `and` and `or`, or split it into several policies";
            return Self::new(at, "this is too complex to compute what it matches", remedy);
        };
        Self::new(
            at,
            format!(
                "this takes at least {needed} rules, more than the {MAX_SIZE} that a policy may \
                 have: an OpenFlow 1.3 rule matches a single port, and one of several alternatives"
            ),
            "give the protocol and direction, use narrower ranges, or split it into several \
             policies",
        )
    }

    pub(super) fn nothing() -> Self {
        let remedy = "operands of `and` contradict each other; use `or`, or leave one out";
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
