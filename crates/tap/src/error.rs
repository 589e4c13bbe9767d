//! Why something about a tap device failed.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::DeviceName;

/// Why a tap device could not be made or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The clone device is missing (`ENOENT`, `ENODEV`, `ENXIO`).
    #[error(
        "/dev/net/tun: {source}; load the module with `modprobe tun`, or create the node: \
         mkdir -p /dev/net && mknod /dev/net/tun c 10 200"
    )]
    NoTun {
        /// What open(2) said.
        source: io::Error,
    },
    /// The clone device cannot be opened.
    #[error(
        "/dev/net/tun: {source}; it must be readable and writable by this user (mode 0666 is \
         usual) and permitted by the container's device rules"
    )]
    Open {
        /// What open(2) said.
        source: io::Error,
    },
    /// `EPERM` or `EACCES`.
    #[error(
        "{name}: not permitted; making a tap device needs CAP_NET_ADMIN (run as root), or let root \
         prepare it: `ip tuntap add {name} mode tap user USER`"
    )]
    NotPermitted {
        /// The device.
        name: DeviceName,
    },
    /// `EBUSY`.
    #[error(
        "{name}: the name is taken by another interface, or another program has the device open; \
         choose another name or remove it with `ip link del {name}`"
    )]
    NameTaken {
        /// The device.
        name: DeviceName,
    },
    /// `EINVAL`: the interface is there, but of another kind.
    #[error(
        "{name}: exists, but not as a tap device with multi-queue {}; change that setting or \
         remove it with `ip link del {name}`", if *multi_queue { "on" } else { "off" }
    )]
    Mismatch {
        /// The device.
        name: DeviceName,
        /// How it was to be opened.
        multi_queue: bool,
    },
    /// `E2BIG`.
    #[error("{name}: Linux has at most 256 queues per tap device; {queues} were asked for")]
    TooManyQueues {
        /// The device.
        name: DeviceName,
        /// As asked for.
        queues: u16,
    },
    /// Any other refusal.
    #[error("{name}: {call}: {source}")]
    Ioctl {
        /// The device.
        name: DeviceName,
        /// Name of the ioctl(2) or other call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl CreateError {
    pub(crate) fn open(errno: Errno) -> Self {
        let source = errno.into();
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => Self::NoTun { source },
            _ => Self::Open { source },
        }
    }
}

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

/// Why a frame was not sent. It is the caller's to count and drop; only [`Self::Gone`] is final.
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
    /// The interface was deleted; the file descriptor is of no more use (`EBADFD`).
    #[error("the tap device was deleted")]
    Gone,
    /// The kernel has no memory for the frame now (`ENOBUFS`, `ENOMEM`).
    #[error("the kernel is out of memory")]
    NoMemory,
    /// The kernel takes no more now (`EAGAIN`): wait until it is writable.
    #[error("the queue is full")]
    Full,
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
            _ => Self::Other { errno: errno.raw_os_error() },
        }
    }
}
