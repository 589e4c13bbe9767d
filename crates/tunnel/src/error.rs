//! Why something about a port failed.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use thiserror::Error;

/// Why a port could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Something else is bound to the UDP port (`EADDRINUSE`).
    #[error(
        "{address}: the UDP port is used by another program or a vxlan device of the kernel; find \
         it with `ss -ulnp` or `ip -d link show type vxlan`, or set another with port= (at both \
         ends)"
    )]
    InUse {
        /// What was to be bound.
        address: SocketAddr,
    },
    /// The local address is none of this host's (`EADDRNOTAVAIL`).
    #[error(
        "{address}: not an address of this network namespace; `ip address` lists its addresses"
    )]
    NotLocal {
        /// What was to be bound.
        address: SocketAddr,
    },
    /// No route leads to the remote (`ENETUNREACH`, `EHOSTUNREACH`).
    #[error(
        "{remote}: no route from this network namespace; add one and check it with `ip route get`"
    )]
    NoRoute {
        /// The other end.
        remote: IpAddr,
    },
    /// The local address is of the other IP version, or the remote is no address of a host.
    #[error("{remote}: {what}")]
    Address {
        /// The other end.
        remote: IpAddr,
        /// What is wrong.
        what: &'static str,
    },
    /// Raw sockets are not for everybody (`EPERM`).
    #[error("{remote}: GRE needs raw sockets: run as root, or with CAP_NET_RAW")]
    Permission {
        /// The other end.
        remote: IpAddr,
    },
    /// Any other refusal.
    #[error("tunnel to {remote}: {call}: {source}")]
    Io {
        /// The other end.
        remote: IpAddr,
        /// What was tried.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn bind(remote: IpAddr, address: SocketAddr, errno: Errno) -> Self {
        match errno {
            Errno::ADDRINUSE => Self::InUse { address },
            Errno::ADDRNOTAVAIL => Self::NotLocal { address },
            _ => Self::new(remote, "bind", errno),
        }
    }

    pub(crate) fn raw(remote: IpAddr, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Permission { remote },
            _ => Self::new(remote, "socket", errno),
        }
    }

    pub(crate) fn new(remote: IpAddr, call: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::NETUNREACH | Errno::HOSTUNREACH => Self::NoRoute { remote },
            _ => Self::Io { remote, call, source: errno.into() },
        }
    }
}

/// Why a frame was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The caller gave no room for a frame, or not the room that the next one lies in (see
    /// [`crate::Receiver::recv`]): what lay there is lost.
    #[error("the buffer is not the one into which the frame was received")]
    Misplaced,
    /// The kernel had a datagram and could not hand it over: it is lost.
    #[error("a datagram was lost: {}", io::Error::from_raw_os_error(*errno))]
    Lost {
        /// The kernel's number.
        errno: i32,
    },
}

/// Why a frame was not sent. It is the caller's to count and drop, or to send again when it was
/// [`Self::Full`] or [`Self::Congested`]; none is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket's send buffer is full (`EAGAIN`): wait until it is writable.
    #[error("the send buffer is full")]
    Full,
    /// The queueing discipline of the interface underneath dropped the datagram, or the kernel is
    /// out of memory (`ENOBUFS`, `ENOMEM`). The socket stays writable, so waiting for that does not
    /// help.
    #[error("the underlying interface dropped the datagram: its queue is full")]
    Congested,
    /// The datagram is longer than the path takes (`EMSGSIZE`).
    #[error("the datagram is longer than the path's MTU permits")]
    Oversize,
    /// The interface underneath is down (`ENETDOWN`).
    #[error("the underlying interface is down")]
    Down,
    /// No way leads to the remote, or nobody listens there (`ENETUNREACH`, `EHOSTUNREACH`,
    /// `ECONNREFUSED`).
    #[error("the remote cannot be reached: {}", io::Error::from_raw_os_error(*errno))]
    Unreachable {
        /// The kernel's number.
        errno: i32,
    },
    /// The host's own firewall does not let it pass (`EPERM`).
    #[error("the firewall of this host rejects the datagram")]
    Forbidden,
    /// More than [`crate::MAX_PARTS`] parts, or [`crate::MAX_PACKETS`] packets.
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
            Errno::AGAIN => Self::Full,
            Errno::NOBUFS | Errno::NOMEM => Self::Congested,
            Errno::MSGSIZE => Self::Oversize,
            Errno::NETDOWN => Self::Down,
            Errno::PERM => Self::Forbidden,
            errno if is_unreachable(errno) => Self::Unreachable { errno: errno.raw_os_error() },
            _ => Self::Other { errno: errno.raw_os_error() },
        }
    }
}

/// True for what ICMP errors become (`icmp_err_convert` in Linux `net/ipv4/icmp.c`), too long ones
/// excepted.
pub(crate) fn is_unreachable(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::OPNOTSUPP
            | Errno::ACCESS
            | Errno::PROTO
    )
}
