//! Engines: ways to move frames between a queue and memory, behind one type.
//!
//! | engine | moves frames by | needs | choose it |
//! |---|---|---|---|
//! | [`Drain`] | one read(2) or write(2) each | nothing | by default |
//! | [`Uring`] | one io_uring_enter(2) for many | Linux 6.4 | where system calls are expensive |
//! | [`Vhost`] | rings that a kernel thread serves | `/dev/vhost-net` | with a core to spare |
//!
//! **The contract**, the same for all engines:
//!
//! - [`Engine::recv`] replaces the contents of a [`Burst`] by queued frames, until none is left
//!   (`EAGAIN`) or the burst is full. [`Uring`] ends a burst earlier, while its frames are still in
//!   the cache. So only an empty burst shows that none is left. It never blocks and never
//!   allocates. It never returns a part of a frame.
//! - [`Engine::send`] sends frames in the given order, and reports each one that was not sent with
//!   the reason. A refused frame does not affect the others. If the queue is full or gone, the call
//!   ends and reports the position: the frames from there on were not tried, so the caller can
//!   continue with them in order.
//! - The caller owns the memory of the frames, and may reuse it when the call returns.
//! - [`Engine::flush`] submits frames that an engine may have delayed to batch them. Call it after
//!   the last send of a round. [`Engine::wait`] includes it.
//! - [`Engine::wait`] sleeps until there may be a frame to receive. With poll(2), epoll(7) or
//!   tokio's `AsyncFd`, use the descriptor of [`AsFd`]: flush, wait until it is readable, then
//!   receive until a burst stays empty.
//!
//! **Why an enum and not a trait.** The set is closed: a tun file has no other interfaces. An enum
//! keeps `send` generic over iterators, so that frames pass from a burst without an intermediate
//! list; it needs no type parameter in every type that has a port, and costs one branch per burst.

mod drain;
mod uring;
mod vhost;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

pub use drain::Drain;
pub use uring::Uring;
pub use vhost::{Vhost, VhostConfig, VhostError};

use crate::{Burst, BurstSize, Outgoing, Queue, RecvError, SendError};

/// A queue with a way to move frames. See the module documentation for the contract.
///
/// [`Self::recv`] and [`Self::send`] are inlined, so that a loop that calls both makes its system
/// calls itself. Keep it so: with some processors (AMD with the kernel's "Safe RET" mitigation), a
/// function around a system call costs 0.3 µs.
///
/// ```no_run
/// use tapswitch_tap::{Burst, Config, Device, Engine, EngineKind};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tap = Device::create(&Config::new("tap0".parse()?))?;
/// let queue = tap.into_queues().remove(0);
/// let mut engine = Engine::open(queue, EngineKind::Auto)?;
/// let mut burst = Burst::new(engine.burst_size());
/// loop {
///     engine.wait(None)?;
///     while engine.recv(&mut burst)? > 0 {
///         for mut frame in &mut burst {
///             println!("{} bytes, {:?}", frame.bytes_mut().len(), frame.header());
///         }
///         for refused in engine.send(&burst).refused {
///             println!("frame {}: {}", refused.index, refused.error);
///         }
///     }
///     engine.flush()?;
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "made once for a queue, and seldom moved")]
pub enum Engine {
    /// read(2) and write(2).
    Drain(Drain),
    /// io_uring.
    Uring(Uring),
    /// Rings that a kernel thread serves.
    Vhost(Vhost),
}

/// Selects an [`Engine`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// The engine that measured fastest: [`Self::Drain`].
    #[default]
    Auto,
    /// [`Drain`].
    Drain,
    /// [`Uring`], Linux 6.4.
    Uring,
    /// [`Vhost`] with [`VhostConfig::DEFAULT`], Linux 4.0 with the module `vhost_net`.
    Vhost,
}

impl Engine {
    /// Opens an engine on `queue`.
    ///
    /// # Errors
    /// [`OpenError`], which returns the queue, if the engine is not available on this machine.
    /// `Auto` and `Drain` never fail.
    pub fn open(queue: Queue, kind: EngineKind) -> Result<Self, OpenError> {
        match kind {
            EngineKind::Auto | EngineKind::Drain => Ok(Self::Drain(Drain::new(queue))),
            EngineKind::Uring => Uring::open(queue).map(Self::Uring),
            EngineKind::Vhost => Vhost::open(queue, VhostConfig::DEFAULT).map(Self::Vhost),
        }
    }

    /// Replaces the contents of `burst` by queued frames, until none is left or it is full, or
    /// earlier. Returns their number; only 0 means that no frame is queued.
    ///
    /// # Errors
    /// [`RecvError::Gone`], or [`RecvError::Lost`] once for each lost frame. Frames received before
    /// the error are returned first, and the error by the next call.
    #[expect(clippy::inline_always, reason = "no return between system calls: see `drain`")]
    #[inline(always)]
    pub fn recv(&mut self, burst: &mut Burst) -> Result<usize, RecvError> {
        match self {
            Self::Drain(engine) => engine.recv(burst),
            Self::Uring(engine) => engine.recv(burst),
            Self::Vhost(engine) => engine.recv(burst),
        }
    }

    /// Sends `frames` in order: a [`Burst`] (`&burst`), some of its frames
    /// (`burst.iter().filter(..)`), or [`Outgoing`] frames from anywhere. The result lists the
    /// frames that were not sent.
    #[expect(clippy::inline_always, reason = "no return between system calls: see `drain`")]
    #[inline(always)]
    pub fn send<'a, I>(&mut self, frames: I) -> Sent<'_>
    where
        I: IntoIterator,
        I::Item: Into<Outgoing<'a>>,
    {
        match self {
            Self::Drain(engine) => engine.send(frames),
            Self::Uring(engine) => engine.send(frames),
            Self::Vhost(engine) => engine.send(frames),
        }
    }

    /// Submits the frames that were sent. No effect on engines that delay nothing.
    ///
    /// # Errors
    /// If the kernel refuses.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Drain(_) | Self::Uring(_) | Self::Vhost(_) => Ok(()),
        }
    }

    /// Flushes, then sleeps until there may be a frame to receive, at most for `timeout` (`None`:
    /// no limit). Returns `false` on timeout. Also returns true if the device was deleted;
    /// [`Self::recv`] reports that.
    ///
    /// # Errors
    /// `EINTR` if a signal handler ran ([`io::ErrorKind::Interrupted`]).
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.flush()?;
        match self {
            Self::Drain(engine) => engine.wait(timeout),
            Self::Uring(engine) => engine.wait(timeout),
            Self::Vhost(engine) => engine.wait(timeout),
        }
    }

    /// The kind of this engine, never `Auto`.
    pub fn kind(&self) -> EngineKind {
        match self {
            Self::Drain(_) => EngineKind::Drain,
            Self::Uring(_) => EngineKind::Uring,
            Self::Vhost(_) => EngineKind::Vhost,
        }
    }

    /// The burst size that suits this engine.
    pub fn burst_size(&self) -> BurstSize {
        match self {
            Self::Drain(_) | Self::Vhost(_) => BurstSize::DEFAULT,
            Self::Uring(_) => Uring::BURST_SIZE,
        }
    }

    /// The queue of this engine.
    pub fn queue(&self) -> &Queue {
        match self {
            Self::Drain(engine) => engine.queue(),
            Self::Uring(engine) => engine.queue(),
            Self::Vhost(engine) => engine.queue(),
        }
    }

    /// Closes the engine and returns the queue.
    pub fn into_queue(self) -> Queue {
        match self {
            Self::Drain(engine) => engine.into_queue(),
            Self::Uring(engine) => engine.into_queue(),
            Self::Vhost(engine) => engine.into_queue(),
        }
    }
}

impl AsFd for Engine {
    /// Readable when there may be a frame to receive. For waiting only, not for reading.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Drain(engine) => engine.as_fd(),
            Self::Uring(engine) => engine.as_fd(),
            Self::Vhost(engine) => engine.as_fd(),
        }
    }
}

impl AsRawFd for Engine {
    /// As [`AsFd`], for interfaces that need a number (tokio's `AsyncFd`).
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Result of one [`Engine::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "frames may not have been sent"]
pub struct Sent<'e> {
    /// Number of frames that the kernel accepted.
    pub count: usize,
    /// Frames that were refused individually, or because the interface is down. The others were
    /// sent.
    pub refused: &'e [Refused],
    /// The frame at which the call ended because the queue is full ([`SendError::Full`]), gone
    /// ([`SendError::Gone`]) or broken ([`SendError::Broken`]). This frame and the following ones
    /// were not sent.
    pub stopped: Option<Refused>,
}

impl Sent<'_> {
    /// True if all frames were sent.
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && self.stopped.is_none()
    }
}

/// A frame that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its position among the frames passed to the call.
    pub index: usize,
    /// The reason.
    pub error: SendError,
}

/// Error of [`Engine::open`].
#[derive(Debug, Error)]
#[error("{source}")]
pub struct OpenError {
    /// The queue, unchanged.
    pub queue: Queue,
    /// The reason.
    pub source: EngineError,
}

/// Why an engine is not available.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The kernel has no io_uring (`ENOSYS`).
    #[error(
        "io_uring: not available; it needs Linux 5.1 with CONFIG_IO_URING and, in a container, a \
         seccomp profile that permits it; use EngineKind::Drain"
    )]
    UringMissing,
    /// `EPERM`.
    #[error(
        "io_uring: not permitted; kernel.io_uring_disabled is {disabled}: if it is 0, the \
         container's seccomp profile forbids it; otherwise allow it with `sysctl -w \
         kernel.io_uring_disabled=0`, or use EngineKind::Drain"
    )]
    UringForbidden {
        /// Value of the setting.
        disabled: String,
    },
    /// `EOPNOTSUPP`.
    #[error(
        "io_uring: this kernel's tun devices have no nonblocking reads (RWF_NOWAIT, Linux 6.4); \
         use EngineKind::Drain"
    )]
    UringBlocks,
    /// Any other error.
    #[error("io_uring: {source}; use EngineKind::Drain")]
    Uring {
        /// Error of the kernel.
        source: io::Error,
    },
    /// The [`Vhost`] engine is not available.
    #[error(transparent)]
    Vhost(#[from] VhostError),
}

/// Result of a send in progress, kept across calls so that none of them allocates.
#[derive(Debug, Default)]
struct SendLog {
    count: usize,
    refused: Vec<Refused>,
    stopped: Option<Refused>,
}

impl SendLog {
    fn begin(&mut self) {
        (self.count, self.stopped) = (0, None);
        self.refused.clear();
    }

    /// Records the outcome of the frame at `index`. Returns `false` if it ends the call.
    #[inline]
    fn note(&mut self, index: usize, outcome: Result<(), SendError>) -> bool {
        match outcome {
            Ok(()) => {
                self.count += 1;
                true
            }
            Err(error) => self.refuse(index, error),
        }
    }

    /// Records that the frame at `index` was not sent. Returns `false` if that ends the call.
    #[cold]
    fn refuse(&mut self, index: usize, error: SendError) -> bool {
        match error {
            SendError::Full | SendError::Gone | SendError::Broken { .. } => {
                self.stopped = Some(Refused { index, error });
            }
            _ => self.pass_over(index, error),
        }
        self.stopped.is_none()
    }

    /// Records that the frame at `index` was not sent, although later ones may have been.
    fn pass_over(&mut self, index: usize, error: SendError) {
        self.refused.push(Refused { index, error });
    }

    fn report(&self) -> Sent<'_> {
        Sent { count: self.count, refused: &self.refused, stopped: self.stopped }
    }
}

/// Sleeps until `fd` is readable or broken, at most for `timeout`; returns whether it is.
fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = countable(timeout);
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], timeout.as_ref())? > 0)
}

/// A timeout that the kernel cannot represent means no limit.
fn countable(timeout: Option<Duration>) -> Option<Timespec> {
    Timespec::try_from(timeout?).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn one_may_wait_for_longer_than_the_kernel_can_count() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        for timeout in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::ZERO] {
            assert!(wait_readable(reader.as_fd(), Some(timeout)).unwrap(), "{timeout:?}");
        }
    }
}
