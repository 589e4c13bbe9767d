//! Errors of a port.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

/// Error of opening a port.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The calling thread's namespace has no interface of that name.
    #[error(
        "interface {name}: not found in this network namespace; `ip link` lists its interfaces"
    )]
    NotFound {
        /// The requested name.
        name: String,
    },
    /// The interface does not carry Ethernet frames.
    #[error("interface {name}: {}", not_ethernet(name, *kind))]
    NotEthernet {
        /// Name of the interface.
        name: String,
        /// `ARPHRD_*`.
        kind: u16,
    },
    /// `EPERM`.
    #[error("interface {name}: not permitted; a packet socket needs CAP_NET_RAW, run as root")]
    NotPermitted {
        /// Name of the interface.
        name: String,
    },
    /// The kernel lacks a feature, by version or configuration.
    #[error("interface {name}: this kernel lacks {option}; needs Linux {since} with CONFIG_PACKET")]
    Unsupported {
        /// Name of the interface.
        name: String,
        /// The missing feature.
        option: &'static str,
        /// The first release that has it.
        since: &'static str,
    },
    /// Any other error.
    #[error("interface {name}: {call}: {source}")]
    Io {
        /// Name of the interface.
        name: String,
        /// The call that failed.
        call: &'static str,
        /// Error of the kernel.
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

fn not_ethernet(name: &str, kind: u16) -> String {
    if kind == ARPHRD_LOOPBACK {
        return "is the loopback interface, which cannot be a port; use one end of a veth pair, or \
                a tap device"
            .to_owned();
    }
    format!(
        "is not an Ethernet interface (type {kind} instead of 1); use tun:{name} for a tun device \
         that no program holds, or let its program create a tap device"
    )
}

/// Error of receiving a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The interface went down (`ENETDOWN`). Reported once; reception continues when it is up
    /// again.
    #[error("the interface is down")]
    Down,
    /// The interface was deleted or moved to another namespace; the port is unusable.
    #[error("the interface is gone")]
    Gone,
    /// The frame is longer than the buffer and was lost.
    #[error("a frame of {len} bytes was lost: it does not fit the buffer")]
    Truncated {
        /// Length of the frame in bytes, without a tag that the kernel removed.
        len: usize,
    },
    /// The headroom is less than [`crate::HEADROOM_MIN`] bytes, or there is no buffer after it. No
    /// frame is lost.
    #[error("the buffer has no room")]
    NoRoom,
    /// The kernel dequeued a frame but could not deliver it: it is lost. `EINVAL` means a train
    /// that the header cannot describe.
    #[error("a frame was lost: {}", io::Error::from_raw_os_error(*errno))]
    Lost {
        /// Error number of the kernel.
        errno: i32,
    },
}

/// Error of sending a frame. The caller decides whether to count and drop it; only [`Self::Gone`]
/// is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The interface is down (`ENETDOWN`).
    #[error("the interface is down")]
    Down,
    /// The interface was deleted or moved to another namespace (`ENXIO`).
    #[error("the interface is gone")]
    Gone,
    /// The frame exceeds the MTU (`EMSGSIZE`).
    #[error("the frame is longer than the interface's MTU permits")]
    Oversize,
    /// The metadata does not fit the frame, or this kernel does not support it (`EINVAL`).
    #[error("the kernel refuses the frame's metadata")]
    Rejected,
    /// The socket's send buffer is full (`EAGAIN`): wait until it is writable.
    #[error("the send buffer is full")]
    Full,
    /// The interface's queueing discipline dropped the frame, the kernel is out of memory, or a
    /// train's headers do not match the metadata (`ENOBUFS`, `ENOMEM`). The socket stays writable,
    /// so waiting for that does not help.
    #[error("the interface dropped the frame: its queue is full, or the train is invalid")]
    Congested,
    /// More than [`crate::MAX_PARTS`] parts.
    #[error("the frame is in too many parts")]
    TooManyParts,
    /// Any other error.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Other {
        /// Error number of the kernel.
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

/// `include/uapi/linux/if_arp.h`.
const ARPHRD_LOOPBACK: u16 = 772;

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
        let of_type = |kind| OpenError::NotEthernet { name: "x0".to_owned(), kind }.to_string();
        assert!(of_type(65534).contains("use tun:x0"), "{}", of_type(65534));
        let loopback = of_type(ARPHRD_LOOPBACK);
        assert!(loopback.contains("veth") && !loopback.contains("tun:"), "{loopback}");
        assert!(text(Errno::PERM).ends_with("needs CAP_NET_RAW, run as root"));
        assert!(text(Errno::NOPROTOOPT).contains("lacks PACKET_IGNORE_OUTGOING; needs Linux 4.20"));
    }
}
