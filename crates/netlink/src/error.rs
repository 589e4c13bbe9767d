//! Errors of requests about links.

use std::fmt;
use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::NamespaceError;

/// Error of a request about a link. Names the interface, the namespace, the cause and a remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The interface does not exist.
    #[error(
        "interface {name}: not found in namespace {namespace}; \
         `ip link` run there lists its interfaces"
    )]
    NotFound {
        /// Name or index of the interface.
        name: String,
        /// Namespace that was searched.
        namespace: String,
    },
    /// The name is in use, or the address already exists.
    #[error(
        "cannot {action} in namespace {namespace}: it already exists; choose another or remove the \
         old one first"
    )]
    Exists {
        /// The action that failed.
        action: String,
        /// Namespace.
        namespace: String,
    },
    /// Not permitted.
    #[error(
        "cannot {action} in namespace {namespace}: not permitted; \
         needs CAP_NET_ADMIN, run as root"
    )]
    NotPermitted {
        /// The action that failed.
        action: String,
        /// Namespace.
        namespace: String,
    },
    /// The kernel refuses, with its message if it has one.
    #[error("cannot {action} in namespace {namespace}: {reason} ({source})")]
    Refused {
        /// The action that failed.
        action: String,
        /// Namespace.
        namespace: String,
        /// The kernel's message (`NLMSGERR_ATTR_MSG`), or "the kernel refuses".
        reason: String,
        /// Error number of the kernel.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl LinkError {
    /// Converts the kernel's error for `action`, which concerned the interface `name`.
    pub(crate) fn new(
        action: impl fmt::Display,
        name: &str,
        namespace: &str,
        failure: Failure,
    ) -> Self {
        let (action, namespace) = (action.to_string(), namespace.to_owned());
        match Errno::from_io_error(&failure.source) {
            Some(Errno::NODEV) => Self::NotFound { name: name.to_owned(), namespace },
            Some(Errno::EXIST) => Self::Exists { action, namespace },
            Some(Errno::PERM | Errno::ACCESS) => Self::NotPermitted { action, namespace },
            _ => Self::Refused {
                action,
                namespace,
                reason: failure.message.unwrap_or_else(|| "the kernel refuses".to_owned()),
                source: failure.source,
            },
        }
    }

    /// An `EPERM` with another cause than a missing privilege.
    pub(crate) fn not_permitted(action: String, namespace: String, reason: &str) -> Self {
        let (reason, source) = (reason.to_owned(), Errno::PERM.into());
        Self::Refused { action, namespace, reason, source }
    }
}

/// Error of one request, before it is attributed to an interface.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) source: io::Error,
    /// The kernel's explanation, if it gave one.
    pub(crate) message: Option<String>,
}

impl From<io::Error> for Failure {
    fn from(source: io::Error) -> Self {
        Self { source, message: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_thing_the_cause_and_the_remedy() {
        let failure = |errno: Errno| Failure::from(io::Error::from(errno));
        let text =
            |errno| LinkError::new("set up eth9", "eth9", "blue", failure(errno)).to_string();
        assert_eq!(
            text(Errno::NODEV),
            "interface eth9: not found in namespace blue; `ip link` run there lists its interfaces"
        );
        assert_eq!(
            text(Errno::PERM),
            "cannot set up eth9 in namespace blue: not permitted; needs CAP_NET_ADMIN, run as root"
        );
        assert!(text(Errno::INVAL).starts_with("cannot set up eth9 in namespace blue: the kernel"));
    }
}
