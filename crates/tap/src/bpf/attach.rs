//! Giving a device a program, or taking it off. The kernel takes any program for any device: one
//! that was made for Ethernet frames would misread each packet of a tun device, and nothing would
//! tell.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use thiserror::Error;

use super::headers::Link;
use crate::{Kind, ioctl};

/// Why a device did not get an eBPF program, or was not left without one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The file is no queue of a device.
    #[error("file descriptor {fd} {what}")]
    NotAQueue {
        /// Its number.
        fd: i32,
        /// What it is.
        what: &'static str,
    },
    /// The program reads another kind of frames than the device has.
    #[error(
        "{name} is a {is} device, whose frames the program would misread; load one built with {}",
        wanted(*is)
    )]
    OtherKind {
        /// The device.
        name: String,
        /// What it is.
        is: Kind,
    },
    /// Any other refusal.
    #[error("{name}: {call}: {source}; this needs Linux 4.16 or newer")]
    Refused {
        /// The device.
        name: String,
        /// Name of the ioctl(2).
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// A call that sets a program, or none, and its name.
#[derive(Clone, Copy)]
pub(crate) struct Setter {
    pub(crate) name: &'static str,
    pub(crate) call: fn(BorrowedFd<'_>, Option<BorrowedFd<'_>>) -> rustix::io::Result<()>,
}

impl Setter {
    /// Gives the device of `queue` a program that reads frames which start so.
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

    /// Leaves the device of `queue` without such a program.
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

/// Name and kind of the device that a file is a queue of.
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

/// What frames of such devices start with.
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
