//! Engines: ways to move frames between a queue and memory, behind one type.
//!
//! | engine | moves frames by | needs | choose it |
//! |---|---|---|---|
//! | [`Drain`] | one read(2) or write(2) each | nothing | always, unless you measured |
//! | [`Uring`] | one io_uring_enter(2) for many | Linux 6.4 | where system calls are dear |
//! | [`Vhost`] | rings that a kernel thread serves | `/dev/vhost-net` | with a core to spare |
//!
//! **The contract**, the same for all:
//!
//! - [`Engine::recv`] replaces what a [`Burst`] holds by the frames that wait, until there are no
//!   more (`EAGAIN`) or the burst is full. It never blocks and never allocates. No frame is handed
//!   over in part.
//! - [`Engine::send`] sends frames in the order given, and says of each one that was not sent why.
//!   A frame that is refused for its own sake does not hold up the others. A queue that is full or
//!   gone ends the call, and the answer says where: what follows was not tried, so one can go on
//!   from there, and the order is kept.
//! - The memory of frames is the caller's, and free again when a call returns.
//! - [`Engine::flush`] sets off what an engine may have kept back to join it with more. Call it
//!   after the last send of a round. [`Engine::wait`] does it too.
//! - [`Engine::wait`] sleeps until there may be something to receive; the same is had from poll(2),
//!   epoll(7) or tokio's `AsyncFd` by the descriptor of [`AsFd`]: flush, then wait until it is
//!   readable, then receive until a burst stays empty.
//!
//! **Why an enum and not a trait.** The set is closed: there are no other ways into a tun file. An
//! enum keeps `send` generic over iterators, so that frames pass from a burst without a list being
//! made, needs no type parameter in everything that has a port, and costs one branch per burst.

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

/// A queue with a way to move frames. See the module's text for the contract.
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

/// Which [`Engine`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// The one that measured fastest: [`Self::Drain`].
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
    /// Puts an engine on `queue`.
    ///
    /// # Errors
    /// [`OpenError`], which holds the queue, when this machine does not have that engine. `Auto`
    /// and `Drain` never fail.
    pub fn open(queue: Queue, kind: EngineKind) -> Result<Self, OpenError> {
        match kind {
            EngineKind::Auto | EngineKind::Drain => Ok(Self::Drain(Drain::new(queue))),
            EngineKind::Uring => Uring::open(queue).map(Self::Uring),
            EngineKind::Vhost => Vhost::open(queue, VhostConfig::DEFAULT).map(Self::Vhost),
        }
    }

    /// Replaces what `burst` holds by the frames that wait, until there are no more or it is full.
    /// Answers how many; with 0 there is nothing now.
    ///
    /// # Errors
    /// [`RecvError::Gone`], or [`RecvError::Lost`] once for each frame that was lost. Frames that
    /// were received before are handed over first and the error by the next call.
    #[inline]
    pub fn recv(&mut self, burst: &mut Burst) -> Result<usize, RecvError> {
        match self {
            Self::Drain(engine) => engine.recv(burst),
            Self::Uring(engine) => engine.recv(burst),
            Self::Vhost(engine) => engine.recv(burst),
        }
    }

    /// Sends `frames` in order: a [`Burst`] (`&burst`), some of its frames
    /// (`burst.iter().filter(..)`), or [`Outgoing`] frames from anywhere. The answer says which
    /// were not sent.
    #[inline]
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

    /// Sets off what was sent. Without effect on engines that keep nothing back.
    ///
    /// # Errors
    /// When the kernel refuses.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Drain(_) | Self::Uring(_) | Self::Vhost(_) => Ok(()),
        }
    }

    /// Flushes, then sleeps until there may be something to receive, for `timeout` at most (`None`:
    /// for ever). Answers `false` when the time is over. True also when the device was deleted:
    /// [`Self::recv`] says so.
    ///
    /// # Errors
    /// `EINTR` when a signal handler ran ([`io::ErrorKind::Interrupted`]).
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

    /// The size of burst that suits this engine.
    pub fn burst_size(&self) -> BurstSize {
        match self {
            Self::Drain(_) | Self::Vhost(_) => BurstSize::DEFAULT,
            Self::Uring(_) => Uring::BURST_SIZE,
        }
    }

    /// The queue that it works on.
    pub fn queue(&self) -> &Queue {
        match self {
            Self::Drain(engine) => engine.queue(),
            Self::Uring(engine) => engine.queue(),
            Self::Vhost(engine) => engine.queue(),
        }
    }

    /// Ends the engine and gives back the queue.
    pub fn into_queue(self) -> Queue {
        match self {
            Self::Drain(engine) => engine.into_queue(),
            Self::Uring(engine) => engine.into_queue(),
            Self::Vhost(engine) => engine.into_queue(),
        }
    }
}

impl AsFd for Engine {
    /// Readable when there may be something to receive. Not for reading: only for waiting.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Drain(engine) => engine.as_fd(),
            Self::Uring(engine) => engine.as_fd(),
            Self::Vhost(engine) => engine.as_fd(),
        }
    }
}

impl AsRawFd for Engine {
    /// As [`AsFd`], for who wants a number (tokio's `AsyncFd`).
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// What became of the frames of one [`Engine::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "frames may not have been sent"]
pub struct Sent<'e> {
    /// Number of frames that the kernel took.
    pub count: usize,
    /// The frames that it refused for their own sake, or while the interface is down. The rest
    /// were sent nevertheless.
    pub refused: &'e [Refused],
    /// The frame at which the call ended: the queue is full ([`SendError::Full`]), gone
    /// ([`SendError::Gone`]) or broken ([`SendError::Broken`]). This frame and those behind it were
    /// not sent.
    pub stopped: Option<Refused>,
}

impl Sent<'_> {
    /// True when all frames were sent.
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && self.stopped.is_none()
    }
}

/// A frame that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its position among the frames that were to be sent.
    pub index: usize,
    /// Why.
    pub error: SendError,
}

/// Why an engine could not be put on a queue.
#[derive(Debug, Error)]
#[error("{source}")]
pub struct OpenError {
    /// The queue, unharmed.
    pub queue: Queue,
    /// What is in the way.
    pub source: EngineError,
}

/// What is in the way of an engine.
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
        /// The setting.
        disabled: String,
    },
    /// `EOPNOTSUPP`.
    #[error(
        "io_uring: this kernel's tun devices have no nonblocking reads (RWF_NOWAIT, Linux 6.4); \
         use EngineKind::Drain"
    )]
    UringBlocks,
    /// Any other refusal.
    #[error("io_uring: {source}; use EngineKind::Drain")]
    Uring {
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no [`Vhost`] to be had.
    #[error(transparent)]
    Vhost(#[from] VhostError),
}

/// What an engine notes while it sends, kept so that nothing is allocated per call.
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

    /// Notes what became of the frame at `index`. Answers `false` when that ends the call.
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

    /// Notes that the frame at `index` was not sent. Answers `false` when that ends the call.
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

    /// Notes that the frame at `index` was not sent, though those behind it may have been.
    fn pass_over(&mut self, index: usize, error: SendError) {
        self.refused.push(Refused { index, error });
    }

    fn report(&self) -> Sent<'_> {
        Sent { count: self.count, refused: &self.refused, stopped: self.stopped }
    }
}

/// Sleeps until `fd` is readable or broken, for `timeout` at most; answers whether it is.
fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = countable(timeout);
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], timeout.as_ref())? > 0)
}

/// What is longer than the kernel can count is for ever.
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
