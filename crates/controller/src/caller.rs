//! Callers and their roles.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Role of a caller; each includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "a new role changes who may do what: see each use")]
pub enum Role {
    /// May read.
    Viewer,
    /// May add and delete policies.
    Operator,
    /// May read the audit log.
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

/// A caller as named in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Name of a token, `unix:USER` for a local user, or `local`.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Address: an IP address, or `unix`.
    pub from: String,
}

impl Caller {
    /// A local user on the management socket.
    pub fn unix(user: &str) -> Self {
        Self { name: format!("unix:{user}"), role: Role::Admin, from: "unix".to_owned() }
    }

    /// The author of the configuration file.
    pub(crate) fn configuration() -> Self {
        Self { name: CONFIGURATION.to_owned(), ..Self::controller() }
    }

    /// The controller itself, for events triggered by time.
    pub(crate) fn controller() -> Self {
        let name = || CONTROLLER.to_owned();
        Self { name: name(), role: Role::Admin, from: name() }
    }
}

/// Owner of policies from the configuration file.
pub(crate) const CONFIGURATION: &str = "configuration";
const CONTROLLER: &str = "controller";
/// A caller from this machine without a token.
pub(crate) const LOCAL: &str = "local";
/// An unknown owner, or a caller with a wrong token.
pub(crate) const NOBODY: &str = "unknown";
/// Reserved names, which tokens must not have.
pub(crate) const RESERVED: [&str; 4] = [CONFIGURATION, CONTROLLER, LOCAL, NOBODY];
