//! Why something about a port failed.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

/// Why a port could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No interface of that name in the namespace of the calling thread.
    #[error(
        "interface {name}: not found in this network namespace; `ip link` lists its interfaces"
    )]
    NotFound {
        /// As given.
        name: String,
    },
    /// The interface does not carry Ethernet frames.
    #[error(
        "interface {name}: is not an Ethernet interface (type {kind} instead of 1); use tun:{name} \
         for a tun device that no program holds, or let its program create a tap device; `lo` \
         cannot be a port"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// `ARPHRD_*`.
        kind: u16,
    },
    /// `EPERM`.
    #[error("interface {name}: not permitted; a packet socket needs CAP_NET_RAW, run as root")]
    NotPermitted {
        /// The interface.
        name: String,
    },
    /// The kernel is too old or built without it.
    #[error("interface {name}: this kernel lacks {option}; needs Linux {since} with CONFIG_PACKET")]
    Unsupported {
        /// The interface.
        name: String,
        /// What is missing.
        option: &'static str,
        /// The first Linux that has it.
        since: &'static str,
    },
    /// Any other refusal.
    #[error("interface {name}: {call}: {source}")]
    Io {
        /// The interface.
        name: String,
        /// What was tried.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn new(name: &str, call: &'static str, errno: Errno) -> Self {
        let name = name.to_owned();
        match errno {
            Errno::NODEV | Errno::NXIO => Self::NotFound { name },
            Errno::PERM | Errno::ACCESS => Self::NotPermitted { name },
            Errno::NOPROTOOPT => Self::Unsupported { name, option: call, since: "4.20" },
            Errno::AFNOSUPPORT => Self::Unsupported { name, option: call, since: "2.2" },
            _ => Self::Io { name, call, source: errno.into() },
        }
    }
}

/// Why a frame was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The interface went down (`ENETDOWN`). Told once; frames come again when it is up again.
    #[error("the interface is down")]
    Down,
    /// The interface was deleted or moved to another namespace; the port is of no more use.
    #[error("the interface is gone")]
    Gone,
    /// The frame is longer than the buffer and lost.
    #[error("a frame of {len} bytes was lost: it does not fit the buffer")]
    Truncated {
        /// Length of the frame in bytes, without a tag that the kernel took off.
        len: usize,
    },
    /// The caller gave less than [`crate::HEADROOM_MIN`] bytes of headroom, or no buffer behind it.
    /// No frame is lost.
    #[error("the buffer has no room")]
    NoRoom,
    /// The kernel took a frame off the queue and could not hand it over: it is lost. `EINVAL` for
    /// a train that the header has no words for.
    #[error("a frame was lost: {}", io::Error::from_raw_os_error(*errno))]
    Lost {
        /// The kernel's number.
        errno: i32,
    },
}

/// Why a frame was not sent. It is the caller's to count and drop; only [`Self::Gone`] is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The interface is down (`ENETDOWN`).
    #[error("the interface is down")]
    Down,
    /// The interface was deleted or moved to another namespace (`ENXIO`).
    #[error("the interface is gone")]
    Gone,
    /// Longer than the MTU permits (`EMSGSIZE`).
    #[error("the frame is longer than the interface's MTU permits")]
    Oversize,
    /// The metadata does not fit the frame, or this kernel does not know it (`EINVAL`).
    #[error("the kernel refuses the frame's metadata")]
    Rejected,
    /// The socket's send buffer is full (`EAGAIN`): wait until it is writable.
    #[error("the send buffer is full")]
    Full,
    /// The interface's queueing discipline dropped the frame, the kernel is out of memory, or it
    /// found a train's headers not to be what the metadata says (`ENOBUFS`, `ENOMEM`). The socket
    /// stays writable, so waiting for that does not help.
    #[error("the interface dropped the frame: its queue is full, or the train is invalid")]
    Congested,
    /// More than [`crate::MAX_PARTS`] parts.
    #[error("the frame is in too many parts")]
    TooManyParts,
    /// Anything else.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Other {
        /// The kernel's number.
        errno: i32,
    },
}

impl SendError {
    #[cold]
    pub(crate) fn new(errno: Errno) -> Self {
        match errno {
            Errno::NETDOWN => Self::Down,
            Errno::NXIO | Errno::NODEV => Self::Gone,
            Errno::MSGSIZE => Self::Oversize,
            Errno::INVAL => Self::Rejected,
            Errno::AGAIN => Self::Full,
            Errno::NOBUFS | Errno::NOMEM => Self::Congested,
            _ => Self::Other { errno: errno.raw_os_error() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_thing_the_cause_and_the_remedy() {
        let text = |errno| OpenError::new("eth9", "PACKET_IGNORE_OUTGOING", errno).to_string();
        assert_eq!(
            text(Errno::NODEV),
            "interface eth9: not found in this network namespace; `ip link` lists its interfaces"
        );
        assert!(text(Errno::PERM).ends_with("needs CAP_NET_RAW, run as root"));
        assert!(text(Errno::NOPROTOOPT).contains("lacks PACKET_IGNORE_OUTGOING; needs Linux 4.20"));
    }
}
