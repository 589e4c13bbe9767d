//! The default engine: one read(2) or write(2) per frame, until the kernel has no more.
//!
//! No engine was measured to be faster on a busy queue. A burst of reads followed by a burst of
//! writes costs 2 to 4 % less than alternating them (1.53 instead of 1.58 µs for an echo of 60
//! bytes, Linux 6.18), because the kernel's code for each stays in the cache. Prefix and frame are
//! contiguous: a second part costs the kernel some 50 ns.
//!
//! Everything up to the caller's loop is inlined, as a function that returns after a system call
//! costs some 0.3 µs on processors whose kernel uses up their prediction of returns
//! (`docs/adr/0008-one-function-from-read-to-write.md`).

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::{SendLog, Sent, wait_readable};
use crate::frame::{PrefixBytes, Source, protocol_of};
use crate::{
    Burst, EtherType, Frame, Kind, LongNetHeader, Outgoing, Prefix, Queue, RecvError, SendError,
};

/// Moves frames by read(2) and write(2). See [`Engine`](crate::Engine) for the contract.
#[derive(Debug)]
pub struct Drain {
    queue: Queue,
    layout: Prefix,
    /// Error that occurred after the frames that the last call returned.
    pending: Option<RecvError>,
    log: SendLog,
}

impl Drain {
    /// An engine on `queue`.
    pub fn new(queue: Queue) -> Self {
        let layout = queue.prefix();
        Self { queue, layout, pending: None, log: SendLog::default() }
    }

    /// As [`Engine::recv`](crate::Engine::recv).
    ///
    /// # Errors
    /// As [`Engine::recv`](crate::Engine::recv).
    #[expect(clippy::inline_always, reason = "no return between system calls: see the module")]
    #[inline(always)]
    pub fn recv(&mut self, burst: &mut Burst) -> Result<usize, RecvError> {
        burst.begin(self.queue.kind(), self.layout);
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        match fill(&self.queue, self.layout, burst) {
            None => Ok(burst.len()),
            Some(error) => self.fail(burst, error),
        }
    }

    /// As [`Engine::send`](crate::Engine::send).
    #[expect(clippy::inline_always, reason = "no return between system calls: see the module")]
    #[inline(always)]
    pub fn send<'a, I>(&mut self, frames: I) -> Sent<'_>
    where
        I: IntoIterator,
        I::Item: Into<Outgoing<'a>>,
    {
        self.log.begin();
        for (index, frame) in frames.into_iter().enumerate() {
            let outcome = send_frame(&self.queue, self.layout, &frame.into());
            if !self.log.note(index, outcome) {
                break;
            }
        }
        self.log.report()
    }

    /// As [`Engine::wait`](crate::Engine::wait).
    ///
    /// # Errors
    /// As [`Engine::wait`](crate::Engine::wait).
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        Ok(self.pending.is_some() || wait_readable(self.as_fd(), timeout)?)
    }

    /// The queue of this engine.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns the queue.
    pub fn into_queue(self) -> Queue {
        self.queue
    }

    /// Returns the frames received before `error`, and keeps `error` for the next call; or returns
    /// `error` if there are none.
    #[cold]
    fn fail(&mut self, burst: &Burst, error: RecvError) -> Result<usize, RecvError> {
        if burst.is_empty() {
            return Err(error);
        }
        self.pending = Some(error);
        Ok(burst.len())
    }
}

impl AsFd for Drain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Receives into `burst` until no frame is queued, the burst is full, or an error occurs.
// Per frame: a read(2), and some ten instructions.
#[expect(clippy::inline_always, reason = "no return between system calls: see the module")]
#[inline(always)]
pub(super) fn fill(queue: &Queue, layout: Prefix, burst: &mut Burst) -> Option<RecvError> {
    while let Some(received) = fill_one(queue, layout, burst) {
        if let Err(error) = received {
            return Some(error);
        }
    }
    None
}

/// Receives one frame into `burst` and returns the length of its packet in bytes; `None` if no
/// frame is queued or the burst is full.
#[expect(clippy::inline_always, reason = "no return between system calls: see the module")]
#[inline(always)]
pub(super) fn fill_one(
    queue: &Queue,
    layout: Prefix,
    burst: &mut Burst,
) -> Option<Result<usize, RecvError>> {
    let len = match queue.recv(burst.room(layout)?) {
        Ok(Some(len)) => len,
        Ok(None) => return None,
        Err(error) => return Some(Err(error)),
    };
    Some(match burst.commit(layout, len) {
        true => Ok(len),
        false => Err(RecvError::new(Errno::MSGSIZE)),
    })
}

/// Sends one frame.
///
/// 1. From a burst with the prefix layout of the queue: one write(2).
/// 2. Otherwise the prefix is created: one writev(2), some 25 ns more per part.
#[expect(clippy::inline_always, reason = "no return between system calls: see the module")]
#[inline(always)]
pub(super) fn send_frame(
    queue: &Queue,
    layout: Prefix,
    frame: &Outgoing<'_>,
) -> Result<(), SendError> {
    if let Some(packet) = frame.packet_for(layout) {
        return queue.send(packet);
    }
    send_made(queue, frame)
}

/// Sends a frame whose prefix has to be created.
#[inline(never)]
fn send_made(queue: &Queue, frame: &Outgoing<'_>) -> Result<(), SendError> {
    match &frame.0 {
        Source::Whole(frame) => send_with_other_prefix(queue, frame),
        Source::Parts { header, protocol, parts } => {
            let header = LongNetHeader { base: *header, ..LongNetHeader::default() };
            let of_packet = || protocol_of(parts.iter().map(|part| &**part));
            let prefix = prefix_for(queue, &header, protocol.unwrap_or_else(of_packet))?;
            match parts.len() {
                0..=3 => gather::<4>(queue, &prefix, parts),
                4..=63 => gather::<64>(queue, &prefix, parts),
                _ => gather::<{ Outgoing::MAX_PARTS + 1 }>(queue, &prefix, parts),
            }
        }
    }
}

#[cold]
fn send_with_other_prefix(queue: &Queue, frame: &Frame<'_>) -> Result<(), SendError> {
    let named = frame.packet_info().map(|info| info.protocol).filter(|it| *it != EtherType(0));
    let protocol = named.unwrap_or_else(|| protocol_of([frame.bytes()]));
    let prefix = prefix_for(queue, &frame.long_header(), protocol)?;
    gather::<2>(queue, &prefix, &[IoSlice::new(frame.bytes())])
}

/// A queue without a header takes no frame that needs one. A tun device accepts a packet with
/// protocol 0 and loses it later silently, so such a packet is not sent.
fn prefix_for(
    queue: &Queue,
    header: &LongNetHeader,
    protocol: EtherType,
) -> Result<PrefixBytes, SendError> {
    let layout = queue.prefix();
    if layout.packet_info && queue.kind() == Kind::Tun && protocol == EtherType(0) {
        return Err(SendError::NotIp);
    }
    layout.encode(header, protocol).ok_or(SendError::Rejected)
}

/// Sends a prefix followed by up to `N - 1` parts.
fn gather<const N: usize>(
    queue: &Queue,
    prefix: &PrefixBytes,
    parts: &[IoSlice<'_>],
) -> Result<(), SendError> {
    let mut pieces = [IoSlice::new(&[]); N];
    let (first, rest) = pieces.split_at_mut(1);
    first[0] = IoSlice::new(prefix.bytes());
    let Some(rest) = rest.get_mut(..parts.len()) else {
        return Err(SendError::new(Errno::MSGSIZE));
    };
    rest.copy_from_slice(parts);
    queue.send_vectored(&pieces[..=parts.len()])
}
