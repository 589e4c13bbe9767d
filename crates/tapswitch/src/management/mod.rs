//! The management socket: `show` and `policy` talk to a running process over a Unix socket.
//!
//! One request and one answer per connection, each a line of JSON: `{"show":"ports"}` →
//! `{"ok":[…]}` or `{"error":"…"}`. Only the owner may connect (mode 0600), because access to the
//! socket allows to see and copy traffic.

mod args;
mod client;
mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tapswitch_control::TapPolicy;
use tapswitch_controller::How;
use tapswitch_switch::PortSpec;

pub(crate) use args::{AskArgs, ServeArgs, SocketArgs};
pub(crate) use client::{AskError, ask, ask_within, sockets};
pub(crate) use server::{Management, Services};

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Return the parts of tapswitch that the process has.
    Parts,
    /// Return the identity of the network namespace that the process runs in: device and inode.
    Namespace,
    /// Return the state of a topic.
    Show(Topic),
    /// Apply a policy.
    ApplyPolicy(Box<TapPolicy>, How),
    /// Return the changes that adding the policy would make.
    PlanPolicy(Box<TapPolicy>),
    /// Return the changes that replacing the policy of the same name would make.
    PlanReplacement(Box<TapPolicy>),
    /// Return all policies.
    Policies,
    /// Return one policy.
    Policy(String),
    /// Delete a policy, optionally by force.
    DeletePolicy(String, bool),
    /// Return the changes that deleting it would make.
    PlanDeletion(String),
    /// Return the next records of the audit log after this one.
    Audit { after: u64 },
    /// Add a port to the switch.
    AddPort(Box<PortSpec>),
    /// Remove the port with this number.
    RemovePort(u32),
}

/// Topics of `show`.
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
    /// The part of tapswitch that answers this.
    pub(crate) fn part(&self) -> Part {
        match self {
            Self::Show(Topic::Hosts | Topic::Switches | Topic::Links | Topic::Controller) => {
                Part::Controller
            }
            Self::Show(_) | Self::AddPort(_) | Self::RemovePort(_) => Part::Switch,
            Self::Parts | Self::Namespace => Part::Switch,
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
    /// The requested data.
    Ok(serde_json::Value),
    /// The reason for a failure.
    Error(String),
}

/// Default path of a socket.
fn default_path(name: &str) -> PathBuf {
    // A name may contain dots.
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
