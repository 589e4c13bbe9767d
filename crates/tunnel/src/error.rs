//! Errors of a port.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use thiserror::Error;

/// Error of opening a port.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The UDP port is in use (`EADDRINUSE`).
    #[error(
        "{address}: the UDP port is used by another program or a vxlan device of the kernel; find \
         it with `ss -ulnp` or `ip -d link show type vxlan`, or set another with port= (at both \
         ends)"
    )]
    InUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// The local address is not assigned to this host (`EADDRNOTAVAIL`).
    #[error(
        "{address}: not an address of this network namespace; `ip address` lists its addresses"
    )]
    NotLocal {
        /// The requested address.
        address: SocketAddr,
    },
    /// There is no route to the remote (`ENETUNREACH`).
    #[error(
        "{remote}: no route from this network namespace; add one and check it with `ip route get`"
    )]
    NoRoute {
        /// The remote.
        remote: IpAddr,
    },
    /// The route to the remote refuses packets (`EINVAL`, `EACCES`, `EHOSTUNREACH`).
    #[error(
        "{remote}: its route from this network namespace is of type {kind}, which refuses packets; \
         replace it and check it with `ip route get`"
    )]
    Refusing {
        /// The remote.
        remote: IpAddr,
        /// The type of the route: `blackhole`, `prohibit` or `unreachable`.
        kind: &'static str,
    },
    /// The local address has the other IP version, or the remote is not a unicast address.
    #[error("{remote}: {what}")]
    Address {
        /// The remote.
        remote: IpAddr,
        /// The problem.
        what: &'static str,
    },
    /// Raw sockets need a privilege (`EPERM`).
    #[error("{remote}: GRE needs raw sockets: run as root, or with CAP_NET_RAW")]
    Permission {
        /// The remote.
        remote: IpAddr,
    },
    /// Any other error.
    #[error("tunnel to {remote}: {call}: {source}")]
    Io {
        /// The remote.
        remote: IpAddr,
        /// The call that failed.
        call: &'static str,
        /// Error of the kernel.
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

    /// An error of connecting, which looks up the route. Each type of route that refuses packets
    /// has an error of its own (`fib_props` in Linux `net/ipv4/fib_semantics.c`,
    /// `ip6_rt_type_to_error` in `net/ipv6/route.c`).
    pub(crate) fn connect(remote: IpAddr, errno: Errno) -> Self {
        match errno {
            Errno::NETUNREACH => Self::NoRoute { remote },
            Errno::INVAL => Self::Refusing { remote, kind: "blackhole" },
            Errno::ACCESS => Self::Refusing { remote, kind: "prohibit" },
            Errno::HOSTUNREACH => Self::Refusing { remote, kind: "unreachable" },
            _ => Self::new(remote, "connect", errno),
        }
    }

    pub(crate) fn new(remote: IpAddr, call: &'static str, errno: Errno) -> Self {
        Self::Io { remote, call, source: errno.into() }
    }
}

/// Error of receiving a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The buffer has no room for a frame, or is not the one that contains the next frame (see
    /// [`crate::Receiver::recv`]): the frames in it are lost.
    #[error("the buffer is not the one into which the frame was received")]
    Misplaced,
    /// The kernel had a datagram and could not deliver it: it is lost.
    #[error("a datagram was lost: {}", io::Error::from_raw_os_error(*errno))]
    Lost {
        /// Error number of the kernel.
        errno: i32,
    },
}

/// Error of sending a frame. The caller decides whether to count and drop it, or to send it again
/// after [`Self::Full`] or [`Self::Congested`]; no error is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket's send buffer is full (`EAGAIN`): wait until it is writable.
    #[error("the send buffer is full")]
    Full,
    /// The queueing discipline of the underlying interface dropped the datagram, or the kernel is
    /// out of memory (`ENOBUFS`, `ENOMEM`). The socket stays writable, so waiting for that does not
    /// help.
    #[error("the underlying interface dropped the datagram: its queue is full")]
    Congested,
    /// The datagram exceeds the path MTU (`EMSGSIZE`).
    #[error("the datagram is longer than the path's MTU permits")]
    Oversize,
    /// The underlying interface is down (`ENETDOWN`).
    #[error("the underlying interface is down")]
    Down,
    /// The remote is not reachable, or has no listener (`ENETUNREACH`, `EHOSTUNREACH`,
    /// `ECONNREFUSED`).
    #[error("the remote cannot be reached: {}", io::Error::from_raw_os_error(*errno))]
    Unreachable {
        /// Error number of the kernel.
        errno: i32,
    },
    /// The host's firewall refuses it (`EPERM`).
    #[error("the firewall of this host rejects the datagram")]
    Forbidden,
    /// More than [`crate::MAX_PARTS`] parts, or [`crate::MAX_PACKETS`] packets.
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

/// True for the errors that ICMP errors are converted to (`icmp_err_convert` in Linux
/// `net/ipv4/icmp.c`), except "too long".
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
