//! Why a frame did not pass.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

/// Why a frame was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The interface was deleted; the file descriptor is of no more use (`EBADFD`).
    #[error("the tap device was deleted")]
    Gone,
    /// The kernel took a frame off the queue and could not hand it over: it is lost. `EINVAL` for
    /// a buffer shorter than the header.
    #[error("a frame was lost: {}", io::Error::from_raw_os_error(*errno))]
    Lost {
        /// The kernel's number.
        errno: i32,
    },
    /// The rings of a vhost-net engine are out of step; nothing more will come.
    #[error("the vhost-net engine is broken: {what}; open a new one")]
    Broken {
        /// What was seen.
        what: &'static str,
    },
}

impl RecvError {
    #[cold]
    pub(crate) fn new(errno: Errno) -> Self {
        match errno {
            Errno::BADFD => Self::Gone,
            _ => Self::Lost { errno: errno.raw_os_error() },
        }
    }
}

/// Why a frame was not sent. It is the caller's to count and drop; only [`Self::Gone`]
/// and [`Self::Broken`] are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The interface is down (`EIO`).
    #[error("the interface is down")]
    Down,
    /// The metadata does not fit the frame, or this kernel does not know it (`EINVAL`). Some
    /// releases (6.6.44, 6.10.3) refuse trains that others take, so fall back per kind of train.
    #[error("the kernel refuses the frame's metadata")]
    Rejected,
    /// A tun device was to send what begins like no IP packet, and no protocol information says
    /// what else it is. It has some when it was made with
    /// [`Config::packet_info`](crate::Config::packet_info).
    #[error(
        "the packet is neither IPv4 nor IPv6; a tun device takes others only with protocol \
         information that names them (Outgoing::with_protocol, FrameMut::set_packet_info)"
    )]
    NotIp,
    /// The interface was deleted; the file descriptor is of no more use (`EBADFD`).
    #[error("the tap device was deleted")]
    Gone,
    /// The kernel has no memory for the frame now (`ENOBUFS`, `ENOMEM`).
    #[error("the kernel is out of memory")]
    NoMemory,
    /// The kernel takes no more now (`EAGAIN`): wait until it is writable.
    #[error("the queue is full")]
    Full,
    /// The queue is detached, and the device uses NAPI (`EBUSY`). Without NAPI, a detached queue
    /// sends.
    #[error("the queue is detached")]
    Detached,
    /// The rings of a vhost-net engine are out of step; nothing more will be sent.
    #[error("the vhost-net engine is broken: {what}; open a new one")]
    Broken {
        /// What was seen.
        what: &'static str,
    },
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
            Errno::IO => Self::Down,
            Errno::INVAL => Self::Rejected,
            Errno::BADFD => Self::Gone,
            Errno::NOBUFS | Errno::NOMEM => Self::NoMemory,
            Errno::AGAIN => Self::Full,
            Errno::BUSY => Self::Detached,
            _ => Self::Other { errno: errno.raw_os_error() },
        }
    }
}
