//! Attaching programs to devices. The kernel accepts any program on any device: one for Ethernet
//! frames would silently misread each packet of a tun device.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use thiserror::Error;

use super::headers::Link;
use crate::{Kind, ioctl};

/// Error of attaching or detaching an eBPF program.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The file is not a queue of a device.
    #[error("file descriptor {fd} {what}")]
    NotAQueue {
        /// File descriptor.
        fd: i32,
        /// What it is instead.
        what: &'static str,
    },
    /// The program is for the other type of device.
    #[error(
        "{name} is a {is} device, whose frames the program would misread; load one built with {}",
        wanted(*is)
    )]
    OtherKind {
        /// Name of the device.
        name: String,
        /// Its type.
        is: Kind,
    },
    /// Any other error.
    #[error("{name}: {call}: {source}; this needs Linux 4.16 or newer")]
    Refused {
        /// Name of the device.
        name: String,
        /// Name of the ioctl(2).
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// An ioctl that sets or removes a program, and its name.
#[derive(Clone, Copy)]
pub(crate) struct Setter {
    pub(crate) name: &'static str,
    pub(crate) call: fn(BorrowedFd<'_>, Option<BorrowedFd<'_>>) -> rustix::io::Result<()>,
}

impl Setter {
    /// Attaches a program that reads frames starting with `link` to the device of `queue`.
    pub(crate) fn attach(
        self,
        queue: BorrowedFd<'_>,
        program: BorrowedFd<'_>,
        link: Link,
    ) -> Result<(), AttachError> {
        match device(queue)? {
            (name, is) if link_of(is) != link => Err(AttachError::OtherKind { name, is }),
            (name, _) => self.set(queue, Some(program), name),
        }
    }

    /// Detaches the program from the device of `queue`.
    pub(crate) fn detach(self, queue: impl AsFd) -> Result<(), AttachError> {
        let (name, _) = device(queue.as_fd())?;
        self.set(queue.as_fd(), None, name)
    }

    fn set(
        self,
        queue: BorrowedFd<'_>,
        program: Option<BorrowedFd<'_>>,
        name: String,
    ) -> Result<(), AttachError> {
        let refused =
            |errno: Errno| AttachError::Refused { name, call: self.name, source: errno.into() };
        (self.call)(queue, program).map_err(refused)
    }
}

/// Name and type of the device that a file is a queue of.
fn device(queue: BorrowedFd<'_>) -> Result<(String, Kind), AttachError> {
    let not_a_queue = |what| AttachError::NotAQueue { fd: queue.as_raw_fd(), what };
    let (name, flags) = ioctl::interface(queue).map_err(|errno| match errno {
        Errno::BADFD => {
            not_a_queue("is not a queue of a tun/tap device, or the device was deleted")
        }
        _ => not_a_queue("is not an open /dev/net/tun"),
    })?;
    let kind =
        Kind::from_flags(flags).ok_or(not_a_queue("belongs to neither a tap nor a tun device"))?;
    Ok((name, kind))
}

/// The link layer of such a device's frames.
const fn link_of(kind: Kind) -> Link {
    match kind {
        Kind::Tap => Link::Ethernet,
        Kind::Tun => Link::Ip,
    }
}

const fn wanted(is: Kind) -> &'static str {
    match is {
        Kind::Tap => "FlowHash::ETHERNET, or FilterConfig::ETHERNET",
        Kind::Tun => "FlowHash::IP, or FilterConfig::IP",
    }
}
