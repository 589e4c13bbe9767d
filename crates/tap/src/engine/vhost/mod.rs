//! The vhost-net engine: rings in our own memory, and a kernel thread at their other end.
//!
//! **How it works.** `/dev/vhost-net` was made for virtual machines: the guest's virtio driver puts
//! buffers into rings, and a thread of the kernel moves frames between them and a queue of a tap
//! device. Here this process is the guest: it has the rings, in memory that is mapped to itself,
//! and no machine around them. Frames then pass without any system call: the thread copies what the
//! kernel sends into our buffers, and takes what we send out of them, up to 64 small frames at once
//! straight into the receive path. What costs a call is to wake a side that sleeps.
//!
//! | module | what |
//! |---|---|
//! | `ring` | the driver's side of a virtqueue, and why no wake-up is lost |
//! | `memory` | memory that the thread shares, mapped twice so that frames never wrap |
//! | `rx`, `tx` | frames in the two rings |
//! | `worker` | the kernel thread: negotiation, start, end |
//!
//! **Sleeping and waking.** While frames come, [`Vhost::recv`] makes no call and the thread sends
//! no signal. When there are none it looks whether the device is still there, asks for a signal,
//! and looks once more (`ring`). So a burst that stays empty is the point from which the descriptor
//! may be waited on, as with the other engines. A loop that never sleeps says so:
//! [`Vhost::set_polling`].
//!
//! **Metadata.** The tap device supplies the 12-byte header, not vhost-net
//! (`VHOST_NET_F_VIRTIO_NET_HDR` is off), so it is the same as what read(2) gives, but for
//! `num_buffers`, which is set to zero again.
//!
//! **The price.** One more thread per queue, and memory: 4 MiB. Since Linux 6.4 the thread is one
//! of this process (`vhost-PID` among its threads), counted in its CPU time, its cgroup and its
//! limit of processes; before, and with [`VhostConfig::kernel_thread`], it is a thread of the
//! kernel, counted in the cgroup alone. It works while there is traffic and sleeps when there is
//! none. Prefer this engine when there is a core to spare for it: the copies then run beside the
//! caller's work instead of inside it. On a machine whose cores are all busy, or for an idle port,
//! [`Drain`](crate::Drain) does the same with less.
//!
//! **What is different from write(2).** A frame that was sent is with the thread; what becomes of
//! it nobody says. With metadata that only the kernel finds fault with it is dropped and counted
//! there (`rx_frame_errors`). On an interface that is down so is a train (`rx_dropped`), while a
//! frame shorter than a page gets past that test and is received (Linux 6.1 to 7.3): who must not
//! send then, watches the interface. What can be told from the frame alone is refused at once
//! ([`SendError::Rejected`], [`SendError::TooShort`]): kernels before 5.11 stop at such a frame for
//! ever. And the ring can be full ([`SendError::Full`]): then the descriptor becomes readable when
//! half of it is free.
//!
//! **Kernels.** Every Linux since 4.0 has what is needed here (`VIRTIO_F_VERSION_1`,
//! `VIRTIO_NET_F_MRG_RXBUF`, `VIRTIO_RING_F_EVENT_IDX`), if the module is loaded. Frames are sent
//! in batches since 4.20.
//!
//! **Quirks**, and what is done about them:
//!
//! - A tun device has no Ethernet header, but the batches assume one. They are used only while the
//!   send buffer of the queue is unlimited (`INT_MAX`), so a tun queue has one byte less as long as
//!   the engine lives. Linux sets that for all queues of a device at once (`TUNSETSNDBUF`), so on a
//!   multi-queue device it stays when an engine ends, and whoever makes the send buffer of a tun
//!   device unlimited breaks every engine on it.
//! - The thread knows neither protocol information nor other header lengths than 12: such a queue
//!   is refused ([`VhostError::Layout`]).
//! - Only the process that opened the engine may use it: not a child of fork(2).
//! - A device that is deleted makes the descriptor readable for nobody. [`Engine::wait`] notices;
//!   who waits by himself sees it the next time that he calls [`Vhost::recv`].
//!
//! **Speed** was not measured on a machine with the module, only in an emulated one, where copies
//! are dearer than system calls: there [`Drain`](crate::Drain) wins. Measure before you choose it.
//!
//! **Not done here:** tunnel headers of 24 bytes (`VHOST_SET_FEATURES_ARRAY`, Linux 6.17),
//! `VIRTIO_F_IN_ORDER` (6.18), zero-copy sending (experimental in the kernel, and off), tap-like
//! `macvtap` back ends.
//!
//! **Read first:** virtio 1.2 §2.7 and §5.1.6, Linux `drivers/vhost/net.c`,
//! `include/uapi/linux/vhost.h`.
//!
//! [`Engine::wait`]: crate::Engine::wait

#[cfg(test)]
mod device;
mod error;
mod ioctl;
mod memory;
mod ring;
mod rx;
#[cfg(test)]
mod tests;
mod tx;
mod worker;

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tapswitch_wire::NET_HEADER_LEN;
use tapswitch_wire::ethernet::HEADER_LEN as ETHERNET_LEN;

pub use error::VhostError;

use super::{OpenError, SendLog, Sent, countable};
use crate::frame::Source;
use crate::{
    Burst, GsoType, HeaderLen, Kind, MAX_FRAME_LEN, NetHeader, Outgoing, Prefix, Queue, RecvError,
    SendError,
};
use ring::Broken;
use rx::Receiver;
use tx::Transmitter;
use worker::{Failure, Worker};

/// Moves frames by rings that a kernel thread serves, without system calls. See
/// [`Engine`](crate::Engine) for the contract.
#[derive(Debug)]
pub struct Vhost {
    /// Before the memory that it works on: fields are dropped in this order.
    worker: Worker,
    receiver: Receiver,
    sender: Transmitter,
    queue: Queue,
    /// Length of the shortest frame in bytes.
    shortest: usize,
    is_polling: bool,
    /// A send was refused for want of room, and nobody was told yet that there is some.
    is_blocked: bool,
    /// What happened behind the frames that the last call handed over.
    pending: Option<RecvError>,
    /// Why nothing works any more.
    broken: Option<Broken>,
    log: SendLog,
}

/// How large the rings are and how the kernel thread behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VhostConfig {
    /// Buffers of 2 KiB for frames that are received: a frame of up to 2036 bytes takes one, the
    /// longest 33. A power of two from 64 to 32768. When they are full, frames wait in the queue of
    /// the device.
    pub receive_buffers: u16,
    /// Frames that the kernel thread may be behind with sending; a power of two up to 32768.
    pub send_frames: u16,
    /// Bytes of them, headers included; a power of two of at least 128 KiB.
    pub send_bytes: usize,
    /// How long the kernel thread goes on looking for work before it sleeps, in steps of 1 µs:
    /// saves kicks and latency, and burns CPU time. Zero: not at all (Linux 4.7).
    pub busy_poll: Duration,
    /// Whether to have a thread of the kernel instead of one of this process, which some measured
    /// to be faster. Without effect unless Linux is 6.17 or later and was built to have the choice
    /// (`CONFIG_VHOST_ENABLE_FORK_OWNER_CONTROL`).
    pub kernel_thread: bool,
}

impl VhostConfig {
    /// 1024 buffers to receive (2 MiB), 1024 frames of together 2 MiB to send, no busy polling, the
    /// kind of thread that the kernel prefers.
    pub const DEFAULT: Self = Self {
        receive_buffers: 1024,
        send_frames: 1024,
        send_bytes: 2 << 20,
        busy_poll: Duration::ZERO,
        kernel_thread: false,
    };

    /// Changes [`Self::receive_buffers`].
    #[must_use]
    pub const fn receive_buffers(self, receive_buffers: u16) -> Self {
        Self { receive_buffers, ..self }
    }

    /// Changes [`Self::send_frames`].
    #[must_use]
    pub const fn send_frames(self, send_frames: u16) -> Self {
        Self { send_frames, ..self }
    }

    /// Changes [`Self::send_bytes`].
    #[must_use]
    pub const fn send_bytes(self, send_bytes: usize) -> Self {
        Self { send_bytes, ..self }
    }

    /// Changes [`Self::busy_poll`].
    #[must_use]
    pub const fn busy_poll(self, busy_poll: Duration) -> Self {
        Self { busy_poll, ..self }
    }

    /// Changes [`Self::kernel_thread`].
    #[must_use]
    pub const fn kernel_thread(self, kernel_thread: bool) -> Self {
        Self { kernel_thread, ..self }
    }

    fn check(&self) -> Result<(), VhostError> {
        let is_ring = |size: u16| size.is_power_of_two();
        let is_valid = is_ring(self.receive_buffers)
            && self.receive_buffers >= rx::MIN_BUFFERS
            && is_ring(self.send_frames)
            && self.send_bytes.is_power_of_two()
            && (MIN_SEND_BYTES..=MAX_SEND_BYTES).contains(&self.send_bytes);
        if is_valid { Ok(()) } else { Err(VhostError::Config { config: *self }) }
    }
}

impl Default for VhostConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Vhost {
    /// An engine on `queue`, which nobody else may read any more. The kernel thread starts at once.
    /// Takes a millisecond.
    ///
    /// # Errors
    /// [`OpenError`] with a [`VhostError`]; the queue in it is unharmed.
    pub fn open(queue: Queue, config: VhostConfig) -> Result<Self, OpenError> {
        match Parts::start(&queue, &config) {
            Ok(Parts { worker, receiver, sender }) => Ok(Self {
                worker,
                receiver,
                sender,
                shortest: if queue.kind() == Kind::Tun { 1 } else { ETHERNET_LEN },
                queue,
                is_polling: false,
                is_blocked: false,
                pending: None,
                broken: None,
                log: SendLog::default(),
            }),
            Err(error) => Err(OpenError { queue, source: error.into() }),
        }
    }

    /// As [`Engine::recv`](crate::Engine::recv).
    ///
    /// # Errors
    /// As [`Engine::recv`](crate::Engine::recv), and [`RecvError::Broken`].
    // Per frame: one used entry, one copy. Per burst: one look at an index, one store to another.
    // Rare: a kick, when the thread ran out of buffers; calls, when there is no frame at all.
    #[inline]
    pub fn recv(&mut self, burst: &mut Burst) -> Result<usize, RecvError> {
        burst.begin(PREFIX);
        if self.pending.is_some() || self.broken.is_some() {
            return Err(self.take_error());
        }
        self.fill(burst);
        if burst.is_empty() {
            self.rest(burst)?;
        }
        if self.receiver.release() {
            self.worker.kick_receiver();
        }
        Ok(burst.len())
    }

    /// As [`Engine::send`](crate::Engine::send).
    #[inline]
    pub fn send<'a, I>(&mut self, frames: I) -> Sent<'_>
    where
        I: IntoIterator,
        I::Item: Into<Outgoing<'a>>,
    {
        self.log.begin();
        self.is_blocked = false;
        for (index, frame) in frames.into_iter().enumerate() {
            let outcome = self.send_frame(&frame.into());
            if !self.log.note(index, outcome) {
                break;
            }
        }
        self.publish();
        self.log.report()
    }

    /// Sleeps until there may be something to receive or, after [`SendError::Full`], to send, for
    /// `timeout` at most (`None`: for ever); answers `false` when the time is over. A device that
    /// is deleted ends the sleep, too.
    ///
    /// # Errors
    /// `EINTR` when a signal handler ran.
    pub fn wait(&mut self, timeout: Option<Duration>) -> std::io::Result<bool> {
        // What is wrong is for `recv` to say.
        if self.pending.is_some() || !self.receiver.arm().unwrap_or(false) {
            return Ok(true);
        }
        let timeout = countable(timeout);
        let mut fds = [
            PollFd::from_borrowed_fd(self.worker.call(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.worker.error(), PollFlags::IN),
            // Never there, but of the kind that wakes when the device goes. Errors are always told.
            PollFd::from_borrowed_fd(self.queue.as_fd(), PollFlags::PRI),
        ];
        Ok(poll(&mut fds, timeout.as_ref())? > 0)
    }

    /// Says whether the caller never sleeps. Then an empty [`Self::recv`] costs one load, and asks
    /// for no signal; that the device is gone is noticed only now and then. Waiting on the
    /// descriptor is in vain meanwhile, and until the next empty [`Self::recv`].
    pub fn set_polling(&mut self, is_polling: bool) {
        self.is_polling = is_polling;
    }

    /// Number of frames that were sent and that the kernel thread is not yet done with.
    ///
    /// # Errors
    /// [`SendError::Broken`].
    pub fn unsent(&mut self) -> Result<usize, SendError> {
        self.sender.pending().map(usize::from).map_err(|broken| self.break_down(broken))
    }

    /// The queue that it works on, not to be read or written meanwhile.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Ends the kernel thread and gives back the queue. Frames that wait in the device stay there;
    /// what the thread had already brought is lost, and so is what it was not yet done with: see
    /// [`Self::unsent`].
    pub fn into_queue(self) -> Queue {
        let Self { worker, queue, .. } = self;
        worker.end(&queue);
        queue
    }

    /// Copies frames until there are no more or the burst is full.
    #[inline]
    fn fill(&mut self, burst: &mut Burst) {
        let longest = NET_HEADER_LEN + burst.size().max_frame_len;
        while let Some(room) = burst.room(PREFIX) {
            let packet = match self.receiver.next() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(broken) => return self.broken = Some(broken),
            };
            let len = packet.len();
            match room.get_mut(..len) {
                Some(place) if len <= longest => place.copy_from_slice(packet),
                _ => return self.pending = Some(TOO_LONG),
            }
            if !burst.commit(PREFIX, len) {
                return self.pending = Some(TOO_LONG);
            }
        }
    }

    /// Nothing came. Finds out why, and prepares for sleep: what comes from here on is signalled.
    /// What came meanwhile is received.
    #[cold]
    fn rest(&mut self, burst: &mut Burst) -> Result<(), RecvError> {
        if self.pending.is_some() || self.broken.is_some() {
            return Err(self.take_error());
        }
        if self.is_polling && !self.worker.is_time_to_check() {
            return Ok(());
        }
        self.worker.check(&self.queue).map_err(|error| self.failed(error))?;
        if self.is_polling {
            return Ok(());
        }
        match self.receiver.arm() {
            Ok(true) => self.unblock(),
            Ok(false) => self.fill(burst),
            Err(broken) => self.broken = Some(broken),
        }
        if self.broken.is_some() { Err(self.take_error()) } else { Ok(()) }
    }

    /// The signal that there is room may be the one that was just taken: gives it once more.
    fn unblock(&mut self) {
        if !self.is_blocked {
            return;
        }
        match self.sender.arm() {
            Ok(true) => {}
            Ok(false) => {
                self.is_blocked = false;
                self.worker.call_ourselves();
            }
            Err(broken) => self.broken = Some(broken),
        }
    }

    /// Queues one frame.
    ///
    /// 1. From a burst: one copy.
    /// 2. From elsewhere: its header, then one copy per piece.
    #[inline]
    fn send_frame(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        let header = frame.header();
        self.check(&header, frame.frame_len())?;
        if let Some(packet) = frame.packet_for(PREFIX) {
            return self.push(packet.len(), |room| room.copy_from_slice(packet));
        }
        match &frame.0 {
            Source::Whole(frame) => self.push_parts(&header, &[IoSlice::new(frame.bytes())]),
            Source::Parts { parts, .. } => self.push_parts(&header, parts),
        }
    }

    fn push_parts(&mut self, header: &NetHeader, parts: &[IoSlice<'_>]) -> Result<(), SendError> {
        if parts.len() > Outgoing::MAX_PARTS {
            return Err(SendError::new(Errno::MSGSIZE));
        }
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        self.push(NET_HEADER_LEN + len, |room| {
            let (place, mut rest) = room.split_at_mut(NET_HEADER_LEN);
            place.copy_from_slice(&header.encode());
            for part in parts {
                let (place, behind) = rest.split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = behind;
            }
        })
    }

    #[inline]
    fn push(&mut self, len: usize, fill: impl Fn(&mut [u8])) -> Result<(), SendError> {
        match self.sender.push(len, &fill) {
            Ok(true) => Ok(()),
            Ok(false) => self.push_when_full(len, &fill),
            Err(broken) => Err(self.break_down(broken)),
        }
    }

    /// Asks for a signal when there is room. If there is some by now, uses it.
    #[cold]
    fn push_when_full(&mut self, len: usize, fill: impl Fn(&mut [u8])) -> Result<(), SendError> {
        match self.sender.arm() {
            Ok(true) => {
                self.is_blocked = true;
                return Err(SendError::Full);
            }
            Ok(false) => {}
            Err(broken) => return Err(self.break_down(broken)),
        }
        match self.sender.push(len, fill) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.is_blocked = true;
                self.worker.call_ourselves();
                Err(SendError::Full)
            }
            Err(broken) => Err(self.break_down(broken)),
        }
    }

    /// Refuses what cannot be true, whoever may be to blame: older kernels stop at such a frame.
    #[inline]
    fn check(&self, header: &NetHeader, frame_len: usize) -> Result<(), SendError> {
        if let Some(broken) = self.broken {
            return Err(broken.into());
        }
        let checksum_end = usize::from(header.csum_start) + usize::from(header.csum_offset) + 2;
        let is_true = (self.shortest..=MAX_FRAME_LEN).contains(&frame_len)
            && usize::from(header.hdr_len) <= frame_len
            && (!header.needs_checksum() || checksum_end <= frame_len)
            && (!header.is_train() || header.gso_size > 0 && is_known(header.gso_type));
        if is_true { Ok(()) } else { Err(self.why_not(frame_len)) }
    }

    #[cold]
    fn why_not(&self, frame_len: usize) -> SendError {
        if frame_len >= self.shortest {
            return SendError::Rejected;
        }
        let [len, least] = [frame_len, self.shortest].map(|len| PREFIX.len() + len);
        SendError::TooShort { len, least }
    }

    #[inline]
    fn publish(&mut self) {
        if self.sender.publish() {
            self.worker.kick_sender();
        }
    }

    #[cold]
    fn take_error(&mut self) -> RecvError {
        if let Some(error) = self.pending.take() {
            return error;
        }
        self.broken.map_or(RecvError::Gone, RecvError::from)
    }

    fn failed(&mut self, failure: Failure) -> RecvError {
        match failure {
            Failure::Gone => RecvError::Gone,
            Failure::Stopped => {
                self.broken = Some(Broken::Stopped);
                Broken::Stopped.into()
            }
        }
    }

    #[cold]
    fn break_down(&mut self, broken: Broken) -> SendError {
        self.broken = Some(broken);
        broken.into()
    }
}

impl AsFd for Vhost {
    /// An eventfd(2): readable when there may be something to receive or, after
    /// [`SendError::Full`], to send.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.call()
    }
}

/// What is put together before the queue is given away.
struct Parts {
    worker: Worker,
    receiver: Receiver,
    sender: Transmitter,
}

impl Parts {
    fn start(queue: &Queue, config: &VhostConfig) -> Result<Self, VhostError> {
        config.check()?;
        if queue.prefix() != PREFIX {
            return Err(VhostError::Layout { prefix: queue.prefix() });
        }
        let memory = |source| VhostError::Memory { source };
        let mut receiver = Receiver::new(config.receive_buffers, 0).map_err(memory)?;
        let sender = Transmitter::new(config.send_frames, 0, config.send_bytes).map_err(memory)?;
        receiver.release();
        let worker = Worker::start(queue, config, &receiver, &sender)?;
        Ok(Self { worker, receiver, sender })
    }
}

/// The kinds of trains that fit the header of 12 bytes.
const fn is_known(gso_type: GsoType) -> bool {
    matches!(gso_type.kind(), GsoType::TCPV4 | GsoType::TCPV6 | GsoType::UDP | GsoType::UDP_L4)
}

/// What vhost-net knows to lie in front of a frame.
const PREFIX: Prefix = Prefix { packet_info: false, net_header: HeaderLen::V1 };
/// A frame that is longer than the burst allows.
const TOO_LONG: RecvError = RecvError::Lost { errno: Errno::MSGSIZE.raw_os_error() };
/// Room for the longest frame.
const MIN_SEND_BYTES: usize = (NET_HEADER_LEN + MAX_FRAME_LEN).next_power_of_two();
/// So that twice that is an address space on any machine.
const MAX_SEND_BYTES: usize = 1 << 29;
