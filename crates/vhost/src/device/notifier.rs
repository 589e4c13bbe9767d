//! Checks of the descriptors that a VMM passes for notifications in both directions.
//!
//! A worker waits for one and signals the other while it serves other guests, too. So only eventfds
//! are accepted: polling or signalling one ([`crate::call`]) never blocks. Any other file may
//! block: a file on FUSE, or an epoll instance that contains one, for as long as the guest's owner
//! likes.
//!
//! The kind of a descriptor is read once, when it arrives, from `/proc/self/fd`. This reads a name
//! that the kernel keeps, without accessing the file itself; names of files in file systems begin
//! differently. If `/proc` is not mounted, nothing is accepted: all other properties of an eventfd
//! (its inode, which many kinds of files share, or its answer to a write) are shared by other
//! kinds, and a write to those may have unknown effects.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::OFlags;

/// Checks that `file` is an eventfd, and makes it non-blocking.
pub(super) fn take(file: File) -> Result<OwnedFd, NotifierError> {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if name.map_err(NotifierError::Unknown)? != OsStr::new(EVENTFD) {
        return Err(NotifierError::Kind);
    }
    let flags = rustix::fs::fcntl_getfl(&file).map_err(io::Error::from)?;
    rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
    Ok(file.into())
}

/// Why a descriptor cannot be used for notifications.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotifierError {
    /// It is not an eventfd.
    #[error("not an eventfd, and other files may block; use a VMM that passes eventfds")]
    Kind,
    /// There is none: the VMM expects polling.
    #[error(
        "missing, and the switch does not poll rings; let the VMM pass an eventfd, as QEMU does \
         with ioeventfd=on"
    )]
    Missing,
    /// Its kind cannot be determined.
    #[error("of unknown type ({0}); mount /proc, which tells whether it is an eventfd")]
    Unknown(io::Error),
    /// The kernel refused.
    #[error("unusable: {0}")]
    Kernel(#[from] io::Error),
}

/// The kernel's name for eventfds.
const EVENTFD: &str = "anon_inode:[eventfd]";
