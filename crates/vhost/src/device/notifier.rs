//! What a VMM hands over to notify of a ring, and to be notified by.
//!
//! A worker waits for the one and signals the other, and it serves other guests, too. So these are
//! eventfds and nothing else: asking one whether it can be read, or signalling it
//! ([`crate::call`]), is done at once. Of any other file it may be for somebody else to say when it
//! is done: of a file of FUSE, or an epoll instance that such a file is in, for the guest's owner.
//!
//! What a descriptor is, is asked once, when it comes, of `/proc/self/fd`. That looks at a name
//! which the kernel keeps, and at nothing of the file itself; whatever lies in a file system has a
//! name that begins otherwise. Where `/proc` is not mounted nothing is taken: all else that can be
//! asked of an eventfd (its inode, which many kinds of files share, or what it answers to a write)
//! is true of others as well, of some of which nobody knows what else a write does to them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::OFlags;

/// The eventfd, set to be without waiting.
pub(super) fn take(file: File) -> Result<OwnedFd, NotifierError> {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if name.map_err(NotifierError::Unknown)? != OsStr::new(EVENTFD) {
        return Err(NotifierError::Kind);
    }
    let flags = rustix::fs::fcntl_getfl(&file).map_err(io::Error::from)?;
    rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
    Ok(file.into())
}

/// Why a ring is not notified of by what was handed over.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotifierError {
    /// It is something else.
    #[error("not an eventfd, and other files may block; use a VMM that passes eventfds")]
    Kind,
    /// Nothing is handed over: the ring is to be looked at all the time.
    #[error(
        "missing, and the switch does not poll rings; let the VMM pass an eventfd, as QEMU does \
         with ioeventfd=on"
    )]
    Missing,
    /// It cannot be told.
    #[error("of unknown type ({0}); mount /proc, which tells whether it is an eventfd")]
    Unknown(io::Error),
    /// The kernel refused.
    #[error("unusable: {0}")]
    Kernel(#[from] io::Error),
}

/// What the kernel calls eventfds.
const EVENTFD: &str = "anon_inode:[eventfd]";
