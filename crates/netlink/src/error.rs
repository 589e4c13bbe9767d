//! Why something about a link failed.

use std::fmt;
use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::NamespaceError;

/// Why something about a link failed. Names the interface, the namespace, the cause and a remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No such interface.
    #[error(
        "interface {name}: not found in namespace {namespace}; \
         `ip link` run there lists its interfaces"
    )]
    NotFound {
        /// Name or index of the interface.
        name: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// The name is taken, or the address is there already.
    #[error(
        "cannot {action} in namespace {namespace}: it already exists; choose another or remove the \
         old one first"
    )]
    Exists {
        /// What was tried.
        action: String,
        /// Where.
        namespace: String,
    },
    /// Not permitted.
    #[error(
        "cannot {action} in namespace {namespace}: not permitted; \
         needs CAP_NET_ADMIN, run as root"
    )]
    NotPermitted {
        /// What was tried.
        action: String,
        /// Where.
        namespace: String,
    },
    /// The kernel refuses, with its own words if it has any.
    #[error("cannot {action} in namespace {namespace}: {reason} ({source})")]
    Refused {
        /// What was tried.
        action: String,
        /// Where.
        namespace: String,
        /// The kernel's message (`NLMSGERR_ATTR_MSG`), or "the kernel refuses".
        reason: String,
        /// The kernel's number.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl LinkError {
    /// Sorts what the kernel answered to `action`, which concerned the interface `name`.
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

    /// `EPERM` that says more than that a privilege is missing.
    pub(crate) fn not_permitted(action: String, namespace: String, reason: &str) -> Self {
        let (reason, source) = (reason.to_owned(), Errno::PERM.into());
        Self::Refused { action, namespace, reason, source }
    }
}

/// What went wrong with one request, before anybody put a name to it.
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
