//! Errors of starting the server and of requests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tapswitch_control::PolicyError;
use tapswitch_openflow::DatapathId;

use crate::{Leader, StoreError, TlsError, TokenError};

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The address is in use.
    #[error(
        "{address} is already in use, perhaps by another controller; choose another with --listen"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address is not local.
    #[error(
        "{address} is not an address of this machine; choose one that `ip address` lists with \
         --listen"
    )]
    NotHere {
        /// The address.
        address: SocketAddr,
    },
    /// The port requires root.
    #[error("{address}: not permitted; choose a port from 1024 up with --listen, or run as root")]
    NotPermitted {
        /// The address.
        address: SocketAddr,
    },
    /// Another error.
    #[error("cannot listen on {address}: {error}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// No random bytes.
    #[error("cannot create a random name for this controller: {0}")]
    NoRandom(io::Error),
    /// There is no listening address.
    #[error("no address to listen on; name one with --listen, as in 127.0.0.1:6653")]
    Nowhere,
    /// A configured policy is invalid.
    #[error("policy {name}: {error}")]
    Policy {
        /// Its name.
        name: String,
        /// The error.
        error: PolicyError,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// REST cannot bind the address.
    #[error(
        "REST cannot listen on {address}: {error}; choose another with --rest, or `--rest off`"
    )]
    Rest {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// REST would be open to other machines.
    #[error(
        "REST on {address}: access from other machines needs --tokens, and --tls-cert with \
         --tls-key; --insecure allows it without, on a trusted network"
    )]
    Unguarded {
        /// The address.
        address: SocketAddr,
    },
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// There is no certificate for the TLS address.
    #[error("tls:{address} needs a certificate and its key: --tls-cert and --tls-key")]
    NoCertificate {
        /// The address.
        address: SocketAddr,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl BindError {
    pub(crate) const fn rest(address: SocketAddr, error: io::Error) -> Self {
        Self::Rest { address, error }
    }

    pub(crate) fn new(address: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address },
            io::ErrorKind::AddrNotAvailable => Self::NotHere { address },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { address },
            _ => Self::Io { address, error },
        }
    }
}

/// Why a request fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The policy is refused, or does not exist.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy could not be put in force, and was deleted again.
    #[error("policy {name}: {reason}")]
    NotInstalled {
        /// Its name.
        name: String,
        /// The cause.
        reason: String,
    },
    /// Frames would be misdirected.
    #[error(
        "policy {name}: {problem}; a dry run shows more; --force (?force=true) applies it anyway"
    )]
    NotProved {
        /// Its name.
        name: String,
        /// An example frame, and where it would go.
        problem: String,
    },
    /// The policy is from the configuration.
    #[error("policy {name} is from the configuration file: change it there, and restart")]
    Configured {
        /// Its name.
        name: String,
    },
    /// A switch did not answer in time.
    #[error(
        "policy {name}: the switch did not confirm it within {after:?}; the request stays in \
         effect, and `policy show` shows its state"
    )]
    TimedOut {
        /// Its name.
        name: String,
        /// The timeout.
        after: Duration,
    },
    /// A switch did not report its tables in time.
    #[error(
        "switch {:#x} did not report its rules and groups within {after:?}; check the switch, then \
         try again",
        switch.0
    )]
    SwitchSilent {
        /// The switch.
        switch: DatapathId,
        /// The timeout.
        after: Duration,
    },
    /// Expected switches have not connected yet.
    #[error(
        "the controller has just become the leader, and waits for {}, which it knows: try again in \
         a second",
        list(switches)
    )]
    NotHeard {
        /// The switches.
        switches: Vec<DatapathId>,
    },
    /// The policy is being changed by another request.
    #[error(
        "policy {name} is being changed: the earlier request ends when its switches confirm or \
         refuse it, or disconnect, and the audit log has its result; try again then; a deletion \
         need not be repeated, as it waits"
    )]
    Busy {
        /// Its name.
        name: String,
    },
    /// Too many dry runs.
    #[error("the limit of {max} dry runs at a time is reached; try again in some seconds")]
    TooManyPlans {
        /// The maximum.
        max: usize,
    },
    /// The store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another controller leads.
    #[error(
        "this controller is not the leader: ask the leader{}",
        leader.rest.as_ref().map_or_else(String::new, |rest| format!(", its REST is {rest}"))
    )]
    NotLeader {
        /// The leader.
        leader: Leader,
    },
    /// No leader is known.
    #[error(
        "no controller leads at the moment, so policies cannot be changed: one takes over within \
         seconds if etcd answers; check that most of its members run; active policies stay in \
         effect"
    )]
    NoLeader,
    /// The server has stopped.
    #[error("the controller has stopped; start it again")]
    Stopped,
}

/// Lists the first few switches and the number of the others.
fn list(switches: &[DatapathId]) -> String {
    let named = switches.iter().take(MAX_LISTED).map(|switch| format!("switch {:#x}", switch.0));
    let named = named.collect::<Vec<_>>().join(", ");
    match switches.len().saturating_sub(MAX_LISTED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Maximum switches listed in an error.
const MAX_LISTED: usize = 4;
