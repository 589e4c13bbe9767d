//! Errors of receiving and sending frames.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use tapswitch_wire::ethernet;
use thiserror::Error;

use crate::{Kind, Prefix};

/// Error of receiving a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The interface was deleted; the file descriptor is unusable (`EBADFD`).
    #[error("the tap device was deleted")]
    Gone,
    /// The kernel dequeued a frame but could not deliver it: the frame is lost. `EINVAL` means that
    /// the buffer is shorter than the header.
    #[error("a frame was lost: {}", io::Error::from_raw_os_error(*errno))]
    Lost {
        /// Error number of the kernel.
        errno: i32,
    },
    /// The rings of a vhost-net engine are inconsistent; nothing more will be received.
    #[error("the vhost-net engine is broken: {what}; open a new one")]
    Broken {
        /// The inconsistency.
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

/// Error of sending a frame. The caller decides whether to count and drop it; only [`Self::Gone`]
/// and [`Self::Broken`] are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The interface is down (`EIO`).
    #[error("the interface is down")]
    Down,
    /// The metadata does not fit the frame, or this kernel does not support it (`EINVAL`). Some
    /// releases (6.6.44, 6.10.3) refuse trains that others accept, so fall back per train type. On
    /// a device with [`Config::napi_fragments`](crate::Config::napi_fragments), also an empty
    /// part or one longer than a page.
    #[error("the kernel refuses the frame or its metadata")]
    Rejected,
    /// The frame for a tap device is shorter than its Ethernet header of 14 bytes, or the buffer is
    /// shorter than the [`Prefix`] (`EINVAL`).
    #[error("the frame is too short: {len} bytes; the minimum is {least}")]
    TooShort {
        /// Length in bytes that was sent, with the prefix.
        len: usize,
        /// Minimum length, with the prefix.
        least: usize,
    },
    /// The packet for a tun device is neither IPv4 nor IPv6, and no protocol information names
    /// another protocol (`EINVAL`). A device has protocol information with
    /// [`Config::packet_info`](crate::Config::packet_info).
    #[error(
        "the packet is neither IPv4 nor IPv6; a tun device takes others only with protocol \
         information that names them (Outgoing::with_protocol, FrameMut::set_packet_info)"
    )]
    NotIp,
    /// The interface was deleted; the file descriptor is unusable (`EBADFD`).
    #[error("the tap device was deleted")]
    Gone,
    /// The kernel is out of memory for the frame (`ENOBUFS`, `ENOMEM`).
    #[error("the kernel is out of memory")]
    NoMemory,
    /// The send buffer is full (`EAGAIN`): wait until the file is writable.
    #[error("the queue is full")]
    Full,
    /// The queue is detached, and the device uses NAPI (`EBUSY`). Without NAPI, a detached queue
    /// can send.
    #[error("the queue is detached")]
    Detached,
    /// The rings of a vhost-net engine are inconsistent; nothing more will be sent.
    #[error("the vhost-net engine is broken: {what}; open a new one")]
    Broken {
        /// The inconsistency.
        what: &'static str,
    },
    /// Any other error.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Other {
        /// Error number of the kernel.
        errno: i32,
    },
}

impl SendError {
    /// Converts the errno of a write to a device of this kind, with prefix and frame in `parts`:
    /// `EINVAL` has several causes.
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
