//! Why a frame did not pass.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use tapswitch_wire::ethernet;
use thiserror::Error;

use crate::{Kind, Prefix};

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
    /// On a device with [`Config::napi_fragments`](crate::Config::napi_fragments), also a piece
    /// that is empty or longer than a page.
    #[error("the kernel refuses the frame or its metadata")]
    Rejected,
    /// The frame of a tap device is shorter than its Ethernet header of 14 bytes, or what was sent
    /// is shorter than the [`Prefix`] in front of a frame (`EINVAL`).
    #[error("the frame is too short: {len} bytes; the minimum is {least}")]
    TooShort {
        /// Length in bytes of what was sent, with the prefix.
        len: usize,
        /// The least that there must be, with the prefix.
        least: usize,
    },
    /// A tun device was to send what begins like no IP packet, and no protocol information says
    /// what else it is (`EINVAL`). It has some when it was made with
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
    /// What `errno` means for what was sent to a device of this kind, prefix and frame in `parts`:
    /// `EINVAL` says nothing of the cause.
    #[cold]
    pub(crate) fn of(errno: Errno, kind: Kind, prefix: Prefix, parts: &[IoSlice<'_>]) -> Self {
        if errno != Errno::INVAL {
            return Self::new(errno);
        }
        let shortest_frame = if kind == Kind::Tap { ethernet::HEADER_LEN } else { 0 };
        let (len, least) =
            (parts.iter().map(|part| part.len()).sum(), prefix.len() + shortest_frame);
        if len < least {
            return Self::TooShort { len, least };
        }
        let is_read = kind == Kind::Tun && !prefix.packet_info;
        let first = parts.iter().flat_map(|part| part.iter()).nth(prefix.len());
        let is_ip = matches!(first.map(|byte| byte >> 4), Some(4 | 6));
        if is_read && !is_ip { Self::NotIp } else { Self::Rejected }
    }

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
