//! The management socket: `show` and `policy` talk to a running process over a Unix socket.
//!
//! One request and one answer per connection, each a line of JSON:
//! `{"show":"ports"}` → `{"ok":[…]}` or `{"error":"…"}`. The socket belongs to its owner alone
//! (mode 0600): who may talk to it may see and copy traffic.

mod client;
mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tapswitch_control::TapPolicy;
use tapswitch_controller::How;
use tapswitch_switch::PortSpec;

pub(crate) use client::{AskError, ask, ask_within, sockets};
pub(crate) use server::{Management, Services};

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Say which parts of tapswitch the process has.
    Parts,
    /// Show something.
    Show(Topic),
    /// Put a policy in force.
    ApplyPolicy(Box<TapPolicy>, How),
    /// What adding it would do.
    PlanPolicy(Box<TapPolicy>),
    /// What putting it in the place of the one of its name would do.
    PlanReplacement(Box<TapPolicy>),
    /// List all policies.
    Policies,
    /// Show one policy.
    Policy(String),
    /// Delete a policy, also by force.
    DeletePolicy(String, bool),
    /// What that would do.
    PlanDeletion(String),
    /// The records of the audit log behind this one, as many as go at a time.
    Audit { after: u64 },
    /// Add a port to the switch.
    AddPort(Box<PortSpec>),
    /// Take the port of this number away.
    RemovePort(u32),
}

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topic {
    Switch,
    Ports,
    Flows,
    Groups,
    Meters,
    Workers,
    Drops,
    Taps,
    Hosts,
    Switches,
    Links,
    Controller,
}

impl Request {
    /// Which part of tapswitch answers this.
    pub(crate) fn part(&self) -> Part {
        match self {
            Self::Show(Topic::Hosts | Topic::Switches | Topic::Links | Topic::Controller) => {
                Part::Controller
            }
            Self::Show(_) | Self::AddPort(_) | Self::RemovePort(_) | Self::Parts => Part::Switch,
            _ => Part::Controller,
        }
    }
}

/// A part of tapswitch that a process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    Switch,
    Controller,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Switch => "switch",
            Self::Controller => "controller",
        })
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// What was asked for.
    Ok(serde_json::Value),
    /// Why not.
    Error(String),
}

/// Where sockets are when nothing else is said.
pub(crate) fn default_path(name: &str) -> PathBuf {
    // A name may have dots.
    Path::new(DIRECTORY).join(format!("{name}.sock"))
}

const DIRECTORY: &str = "/run/tapswitch";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_own_socket() {
        assert_eq!(default_path("br0"), Path::new("/run/tapswitch/br0.sock"));
        assert_eq!(default_path("lab.br0"), Path::new("/run/tapswitch/lab.br0.sock"));
        assert_eq!(default_path("lab.br1"), Path::new("/run/tapswitch/lab.br1.sock"));
    }
}
