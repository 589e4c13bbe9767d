//! Who asks for something, and what they may do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What somebody may do; each may also do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "a new role changes who may do what: see each use")]
pub enum Role {
    /// Look.
    Viewer,
    /// Add and delete policies.
    Operator,
    /// Read the audit log.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// Who asks, as the audit log names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of a token, `unix:USER` for a user of this machine, or `local`.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Where they are: an IP address, or `unix`.
    pub from: String,
}

impl Caller {
    /// A user of this machine, who speaks by a socket that is theirs.
    pub fn unix(user: &str) -> Self {
        Self { name: format!("unix:{user}"), role: Role::Admin, from: "unix".to_owned() }
    }

    /// Whoever wrote the configuration file.
    pub(crate) fn configuration() -> Self {
        Self { name: CONFIGURATION.to_owned(), ..Self::controller() }
    }

    /// The controller itself, where something happens by the clock.
    pub(crate) fn controller() -> Self {
        let name = || CONTROLLER.to_owned();
        Self { name: name(), role: Role::Admin, from: name() }
    }
}

/// Whose policies those of the configuration file are.
pub(crate) const CONFIGURATION: &str = "configuration";
const CONTROLLER: &str = "controller";
/// Who speaks from this machine without a token.
pub(crate) const LOCAL: &str = "local";
/// Whose policies those are of which it is not known, and who shows a wrong token.
pub(crate) const NOBODY: &str = "unknown";
/// What a token must not be called: it would be taken for one of these.
pub(crate) const RESERVED: [&str; 4] = [CONFIGURATION, CONTROLLER, LOCAL, NOBODY];
