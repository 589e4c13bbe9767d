//! How policies are changed.

use serde::{Deserialize, Serialize};
use tapswitch_control::{PolicyReport, Verdict};

use crate::audit::What;

/// How a policy is put in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct How {
    /// In the place of the one of its name, which must be there; else there must be none.
    pub replaces: bool,
    /// Also when it was found that frames would not go where they should.
    pub by_force: bool,
}

impl How {
    pub(crate) const fn what(self) -> What {
        if self.replaces { What::PolicyReplace } else { What::PolicyAdd }
    }

    /// How the audit log tells that it is accepted.
    pub(crate) const fn accepted(self) -> &'static str {
        accepted(self.by_force)
    }
}

/// How the audit log tells that a change is accepted.
pub(crate) const fn accepted(by_force: bool) -> &'static str {
    if by_force { "accepted, by force" } else { "accepted" }
}

/// A policy that is in force, or was deleted, and what was found out before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// How it is doing, or did at last.
    #[serde(flatten)]
    pub report: PolicyReport,
    /// Whether it was proved that all frames go where they should.
    #[serde(flatten)]
    pub verdict: Verdict,
}
