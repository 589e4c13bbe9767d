//! One queue of a device: a file descriptor that carries frames.
//!
//! Every read(2) and write(2) moves one frame behind its [`Prefix`], contiguous or scattered. There
//! is no system call that moves several (recvmmsg(2) wants a socket). Gathering costs the
//! kernel about 25 ns per piece, as much as a copy of 1.5 kB in cache: gather large pieces, join
//! small ones.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use tapswitch_wire::LongNetHeader;
use tapswitch_wire::ethernet::{HEADER_LEN, TAG_LEN};

use crate::{Kind, PacketInfo, Prefix, RecvError, SendError};

/// One queue of a device. Several threads may use it at once; each frame stays whole.
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

    /// What its frames are.
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What lies in front of each frame, in what is received as in what is sent. By default that
    /// is the 12 bytes of a [`NetHeader`](crate::NetHeader).
    #[inline]
    pub const fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// Receives one frame that the kernel sends: `[header][frame]` at the start of `buf`. Answers
    /// their length in bytes together, or `None` when there is no frame now, or the queue is
    /// detached. Never blocks, never allocates: one read(2).
    ///
    /// A frame that does not fit is cut *silently*, so an answer of `buf.len()` may be a part of
    /// one; [`RECV_BUF_LEN`] is never filled. The header's `hdr_len` is a hint only: on forwarded
    /// frames it is whatever part of the frame lay together in the kernel's memory.
    ///
    /// # Errors
    /// [`RecvError::Gone`], or [`RecvError::Lost`] once per frame that the kernel lost.
    #[inline]
    pub fn recv(&self, buf: &mut [u8]) -> Result<Option<usize>, RecvError> {
        received(rustix::io::read(&self.fd, buf))
    }

    /// As [`Self::recv`], into several buffers one after the other: one readv(2).
    ///
    /// # Errors
    /// As [`Self::recv`].
    #[inline]
    pub fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, RecvError> {
        received(rustix::io::readv(&self.fd, bufs))
    }

    /// Sends one frame to the kernel: `[header][frame]`. Never blocks, never allocates: one
    /// write(2). `num_buffers` of the header is ignored. A detached queue sends too, but for one of
    /// a device with NAPI.
    ///
    /// # Errors
    /// [`SendError`]; the frame was not sent, and the queue stays usable unless it is
    /// [`SendError::Gone`].
    #[inline]
    pub fn send(&self, header_and_frame: &[u8]) -> Result<(), SendError> {
        match rustix::io::write(&self.fd, header_and_frame) {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.why_not(errno, &[IoSlice::new(header_and_frame)])),
        }
    }

    /// As [`Self::send`], from several buffers one after the other (at most 1024): one writev(2).
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

    /// Sends one frame by a call of the caller's own, such as a writev(2) of memory that nobody can
    /// borrow.
    ///
    /// # Errors
    /// As [`Self::send`], from what the call answers: it says nothing of the frame, so that one
    /// that is too short or no IP packet is [`SendError::Rejected`], too.
    #[inline]
    pub fn send_by(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Result<(), SendError> {
        write(self.fd.as_fd()).map(drop).map_err(SendError::new)
    }

    /// Another handle of the same queue (dup(2)), so that it can be owned in two places.
    ///
    /// # Errors
    /// When the process has too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        let fd = self.fd.try_clone()?;
        Ok(Self::new(fd, self.kind, self.prefix))
    }

    /// Why the kernel did not take what lies in `parts`. A frame is taken whole or not at all, so
    /// the length that a call answers says nothing new.
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

#[inline]
fn received(outcome: rustix::io::Result<usize>) -> Result<Option<usize>, RecvError> {
    match outcome {
        Ok(len) => Ok(Some(len)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(RecvError::new(errno)),
    }
}

/// Longest frame in bytes that a device delivers: the largest IP packet (`tso_max_size` is
/// 65536, so there is no "BIG TCP"), an Ethernet header and four tags.
pub const MAX_FRAME_LEN: usize = 65_535 + HEADER_LEN + 4 * TAG_LEN;

/// Length of a buffer that [`Queue::recv`] never fills: the longest prefix, the longest frame and
/// one byte more.
pub const RECV_BUF_LEN: usize = PacketInfo::LEN + LongNetHeader::LEN + MAX_FRAME_LEN + 1;
