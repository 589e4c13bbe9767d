//! One queue of a device: a file descriptor that carries frames.
//!
//! Each read(2) or write(2) moves one frame after its [`Prefix`], contiguous or scattered. No
//! system call moves several (recvmmsg(2) needs a socket). A vectored write costs the kernel about
//! 25 ns per part, as much as copying 1.5 kB in cache: gather large parts, join small ones.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use tapswitch_wire::LongNetHeader;
use tapswitch_wire::ethernet::{HEADER_LEN, TAG_LEN};

use crate::{Kind, PacketInfo, Prefix, RecvError, SendError};

/// One queue of a device. Several threads may use it concurrently; each frame stays intact.
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
    kind: Kind,
    prefix: Prefix,
}

impl Queue {
    pub(crate) const fn new(fd: OwnedFd, kind: Kind, prefix: Prefix) -> Self {
        Self { fd, kind, prefix }
    }

    /// Whether it carries Ethernet frames or IP packets.
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Layout of the metadata before each frame, received or sent. The default is the 12 bytes of a
    /// [`NetHeader`](crate::NetHeader).
    #[inline]
    pub const fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// Receives one frame from the kernel: `[header][frame]` at the start of `buf`. Returns their
    /// total length in bytes, or `None` if no frame is queued or the queue is detached. Never
    /// blocks or allocates: one read(2).
    ///
    /// A frame that does not fit is truncated *silently*, so a length of `buf.len()` may mean a
    /// part of a frame; [`RECV_BUF_LEN`] is never filled. The header's `hdr_len` is only a hint: on
    /// forwarded frames it is the length of the linear part of the kernel's buffer.
    ///
    /// # Errors
    /// [`RecvError::Gone`], or [`RecvError::Lost`] once per frame that the kernel lost.
    #[expect(clippy::inline_always, reason = "no return between system calls: see `Drain`")]
    #[inline(always)]
    pub fn recv(&self, buf: &mut [u8]) -> Result<Option<usize>, RecvError> {
        received(rustix::io::read(&self.fd, buf))
    }

    /// As [`Self::recv`], into several buffers in sequence: one readv(2).
    ///
    /// # Errors
    /// As [`Self::recv`].
    #[inline]
    pub fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, RecvError> {
        received(rustix::io::readv(&self.fd, bufs))
    }

    /// Sends one frame to the kernel: `[header][frame]`. Never blocks or allocates: one write(2).
    /// The header's `num_buffers` is ignored. A detached queue can send as well, unless the device
    /// uses NAPI.
    ///
    /// # Errors
    /// [`SendError`]; the frame was not sent, and the queue stays usable except after
    /// [`SendError::Gone`].
    #[expect(clippy::inline_always, reason = "no return between system calls: see `Drain`")]
    #[inline(always)]
    pub fn send(&self, header_and_frame: &[u8]) -> Result<(), SendError> {
        match rustix::io::write(&self.fd, header_and_frame) {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.why_not(errno, &[IoSlice::new(header_and_frame)])),
        }
    }

    /// As [`Self::send`], from at most 1024 buffers in sequence: one writev(2).
    ///
    /// # Errors
    /// As [`Self::send`].
    #[inline]
    pub fn send_vectored(&self, parts: &[IoSlice<'_>]) -> Result<(), SendError> {
        match rustix::io::writev(&self.fd, parts) {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.why_not(errno, parts)),
        }
    }

    /// Sends one frame by a system call of the caller, such as a writev(2) from memory that cannot
    /// be borrowed.
    ///
    /// # Errors
    /// As [`Self::send`], derived from the call's errno alone: a frame that is too short or not an
    /// IP packet is reported as [`SendError::Rejected`].
    #[inline]
    pub fn send_by(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Result<(), SendError> {
        write(self.fd.as_fd()).map(drop).map_err(SendError::new)
    }

    /// Duplicates the file descriptor of the queue (dup(2)), to own it in two places.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        let fd = self.fd.try_clone()?;
        Ok(Self::new(fd, self.kind, self.prefix))
    }

    /// Explains why the kernel refused the frame in `parts`. A frame is written whole or not at
    /// all, so the length that a call returns adds nothing.
    #[cold]
    pub(crate) fn why_not(&self, errno: Errno, parts: &[IoSlice<'_>]) -> SendError {
        SendError::of(errno, self.kind, self.prefix, parts)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<Queue> for OwnedFd {
    fn from(queue: Queue) -> Self {
        queue.fd
    }
}

#[expect(clippy::inline_always, reason = "no return between system calls: see `Drain`")]
#[inline(always)]
fn received(outcome: rustix::io::Result<usize>) -> Result<Option<usize>, RecvError> {
    match outcome {
        Ok(len) => Ok(Some(len)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(RecvError::new(errno)),
    }
}

/// Length in bytes of the longest frame that a device delivers: the largest IP packet
/// (`tso_max_size` is 65536, so there is no "BIG TCP"), an Ethernet header and four tags.
pub const MAX_FRAME_LEN: usize = 65_535 + HEADER_LEN + 4 * TAG_LEN;

/// Buffer length that [`Queue::recv`] never fills: the longest prefix, the longest frame and one
/// byte.
pub const RECV_BUF_LEN: usize = PacketInfo::LEN + LongNetHeader::LEN + MAX_FRAME_LEN + 1;
