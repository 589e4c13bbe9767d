//! Modes and results of policy changes.

use serde::{Deserialize, Serialize};
use tapswitch_control::{PolicyReport, Verdict};

use crate::audit::What;

/// How to put a policy in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct How {
    /// Whether it replaces the policy of its name, which must exist; else there must be none.
    pub replaces: bool,
    /// Whether to proceed even if frames would be misdirected.
    pub by_force: bool,
}

impl How {
    pub(crate) const fn what(self) -> What {
        if self.replaces { What::PolicyReplace } else { What::PolicyAdd }
    }

    /// Result in the audit log on acceptance.
    pub(crate) const fn accepted(self) -> &'static str {
        accepted(self.by_force)
    }
}

/// Result of a change in the audit log on acceptance.
pub(crate) const fn accepted(by_force: bool) -> &'static str {
    if by_force { "accepted, by force" } else { "accepted" }
}

/// A policy that was put in force or deleted, with the verdict before that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Its current or last state.
    #[serde(flatten)]
    pub report: PolicyReport,
    /// Whether it was proved that all frames go where they should.
    #[serde(flatten)]
    pub verdict: Verdict,
}
