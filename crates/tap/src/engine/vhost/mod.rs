//! The vhost-net engine: rings in our own memory, served by a kernel thread.
//!
//! **How it works.** `/dev/vhost-net` was made for virtual machines: the guest's virtio driver puts
//! buffers into rings, and a kernel thread moves frames between them and a queue of a tap device.
//! Here this process takes the place of the guest, with the rings in its own memory. Frames pass
//! without system calls: the thread copies what the kernel transmits into our buffers, and passes
//! our frames directly to the receive path, up to 64 small frames at once. Only waking a sleeping
//! side costs a system call.
//!
//! | module | what |
//! |---|---|
//! | `ring` | the driver's side of a virtqueue, and why no wake-up is lost |
//! | `memory` | memory shared with the thread, mapped twice so that frames never wrap |
//! | `rx`, `tx` | frames in the two rings |
//! | `worker` | the kernel thread: negotiation, start, end |
//!
//! **Sleeping and waking.** While frames arrive, [`Vhost::recv`] makes no system call and the
//! thread sends no signal. If there are none, it checks that the device still exists, asks for a
//! signal, and checks the ring again (`ring`). So after a burst that stays empty, the caller may
//! wait for the descriptor, as with the other engines. A loop that never sleeps should call
//! [`Vhost::set_polling`].
//!
//! **Metadata.** The tap device supplies the 12-byte header, not vhost-net
//! (`VHOST_NET_F_VIRTIO_NET_HDR` is off), so it is the same as with read(2), except `num_buffers`,
//! which is reset to zero.
//!
//! **Cost.** One thread per queue, and 4 MiB of memory. Since Linux 6.4 the thread belongs to this
//! process (`vhost-PID` among its threads) and counts towards its CPU time, cgroup and process
//! limit; before, and with [`VhostConfig::kernel_thread`], it is a separate kernel thread that
//! counts towards the cgroup alone. It runs while there is traffic and sleeps otherwise. Prefer
//! this engine if a core is free for it: the copies then run in parallel with the caller. On a
//! machine whose cores are all busy, or for an idle port, [`Drain`](crate::Drain) costs less.
//!
//! **Differences from write(2).** A sent frame is queued for the thread, and its outcome is not
//! reported. The kernel drops a frame with metadata that it finds invalid (`rx_frame_errors`).
//! While the interface is down it drops trains (`rx_dropped`), but a frame shorter than a page
//! passes that check and is received (Linux 6.1 to 7.3): a caller that must not send then has to
//! monitor the interface. Errors that are visible in the frame itself are reported immediately
//! ([`SendError::Rejected`], [`SendError::TooShort`]), because kernels before 5.11 stop permanently
//! at such a frame. If the ring is full ([`SendError::Full`]), the descriptor becomes readable when
//! half of it is free.
//!
//! **Kernels.** Every Linux since 4.0 has the required features (`VIRTIO_F_VERSION_1`,
//! `VIRTIO_NET_F_MRG_RXBUF`, `VIRTIO_RING_F_EVENT_IDX`) if the module is loaded. Frames are sent in
//! batches since 4.20.
//!
//! **Pitfalls**, and how this module handles them:
//!
//! - The batches assume an Ethernet header, which a tun device does not have. The kernel uses them
//!   only while the send buffer of the queue is unlimited (`INT_MAX`), so on a tun queue the limit
//!   is one byte less while the engine exists. Linux applies that to all queues of the device
//!   (`TUNSETSNDBUF`), so on a multi-queue device it stays after the engine ends. A program that
//!   makes the send buffer of a tun device unlimited breaks every engine on it.
//! - The thread supports neither protocol information nor header lengths other than 12: such a
//!   queue is refused ([`VhostError::Layout`]).
//! - Only the process that opened the engine may use it, not a child of fork(2).
//! - Deleting the device does not make the descriptor readable. [`Engine::wait`] detects it; a
//!   caller with its own wait detects it in the next [`Vhost::recv`].
//!
//! **Speed** was not measured on a machine with the module, only in an emulated one, where copies
//! cost more than system calls: there [`Drain`](crate::Drain) is faster. Measure before choosing
//! it.
//!
//! **Out of scope:** tunnel headers of 24 bytes (`VHOST_SET_FEATURES_ARRAY`, Linux 6.17),
//! `VIRTIO_F_IN_ORDER` (6.18), zero-copy transmit (experimental in the kernel, and off), and
//! `macvtap` back ends.
//!
//! **References:** virtio 1.2 §2.7 and §5.1.6, Linux `drivers/vhost/net.c`,
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

/// Moves frames through rings that a kernel thread serves, without system calls. See
/// [`Engine`](crate::Engine) for the contract.
#[derive(Debug)]
pub struct Vhost {
    /// Before the memory that it uses: fields are dropped in this order.
    worker: Worker,
    receiver: Receiver,
    sender: Transmitter,
    queue: Queue,
    /// Minimum length of a frame in bytes.
    shortest: usize,
    is_polling: bool,
    /// True if a send was refused because the ring was full, and the caller was not woken since.
    is_blocked: bool,
    /// Error that occurred after the frames that the last call returned.
    pending: Option<RecvError>,
    /// Why the engine no longer works.
    broken: Option<Broken>,
    log: SendLog,
}

/// Ring sizes and behaviour of the kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VhostConfig {
    /// Number of 2 KiB receive buffers: a frame of up to 2036 bytes takes one, the longest 33. A
    /// power of two from 64 to 32768. When they are full, frames wait in the queue of the device.
    pub receive_buffers: u16,
    /// Number of frames in the send ring; a power of two up to 32768.
    pub send_frames: u16,
    /// Bytes in the send ring, headers included; a power of two of at least 128 KiB.
    pub send_bytes: usize,
    /// How long the kernel thread polls before it sleeps, in steps of 1 µs: saves kicks and
    /// latency, and costs CPU time. Zero disables polling (Linux 4.7).
    pub busy_poll: Duration,
    /// Uses a kernel thread instead of a thread of this process, which some measured to be faster.
    /// No effect unless Linux is 6.17 or later with `CONFIG_VHOST_ENABLE_FORK_OWNER_CONTROL`.
    pub kernel_thread: bool,
}

impl VhostConfig {
    /// 1024 receive buffers (2 MiB), 1024 frames and 2 MiB in the send ring, no busy polling, the
    /// kernel's default type of thread.
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
    /// Opens an engine on `queue`, which no one else may read from then on, and starts the kernel
    /// thread. Takes about 1 ms.
    ///
    /// # Errors
    /// [`OpenError`] with a [`VhostError`]; it returns the queue unchanged.
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
    // Per frame: one used entry, one copy. Per burst: one load of an index, one store to another.
    // Rare: a kick, if the thread ran out of buffers; system calls, if there is no frame at all.
    #[inline]
    pub fn recv(&mut self, burst: &mut Burst) -> Result<usize, RecvError> {
        burst.begin(self.queue.kind(), PREFIX);
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

    /// Sleeps until there may be a frame to receive or, after [`SendError::Full`], room to send, at
    /// most for `timeout` (`None`: no limit); returns `false` on timeout. Deleting the device also
    /// ends the sleep.
    ///
    /// # Errors
    /// `EINTR` if a signal handler ran.
    pub fn wait(&mut self, timeout: Option<Duration>) -> std::io::Result<bool> {
        // `recv` reports errors.
        if self.pending.is_some() || !self.receiver.arm().unwrap_or(false) {
            return Ok(true);
        }
        let timeout = countable(timeout);
        let mut fds = [
            PollFd::from_borrowed_fd(self.worker.call(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.worker.error(), PollFlags::IN),
            // An event that never occurs, but a deleted device wakes its waiters. Errors are always
            // reported.
            PollFd::from_borrowed_fd(self.queue.as_fd(), PollFlags::PRI),
        ];
        Ok(poll(&mut fds, timeout.as_ref())? > 0)
    }

    /// Sets whether the caller never sleeps. If true, an empty [`Self::recv`] costs one load and
    /// requests no signal, and a deleted device is detected only occasionally. Waiting on the
    /// descriptor does not work meanwhile, nor after that until the next empty [`Self::recv`].
    pub fn set_polling(&mut self, is_polling: bool) {
        self.is_polling = is_polling;
    }

    /// Number of sent frames that the kernel thread has not finished yet.
    ///
    /// # Errors
    /// [`SendError::Broken`].
    pub fn unsent(&mut self) -> Result<usize, SendError> {
        self.sender.pending().map(usize::from).map_err(|broken| self.break_down(broken))
    }

    /// The queue of this engine, which must not be read or written meanwhile.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Stops the kernel thread and returns the queue. Frames queued in the device stay there;
    /// frames already in the receive ring and frames that the thread has not finished sending are
    /// lost: see [`Self::unsent`].
    pub fn into_queue(self) -> Queue {
        let Self { worker, queue, .. } = self;
        worker.end(&queue);
        queue
    }

    /// Copies frames until none is left or the burst is full.
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

    /// Handles an empty ring: finds errors, and prepares to sleep by requesting a signal for the
    /// next frame. Receives frames that arrived meanwhile.
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

    /// The signal for room in the ring may have been consumed just now: raises it again.
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
    /// 2. From elsewhere: its header, then one copy per part.
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

    /// Requests a signal for room in the ring. Uses room that became available meanwhile.
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

    /// Refuses invalid metadata whatever its origin: older kernels stop at such a frame.
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
    /// An eventfd(2): readable when there may be a frame to receive or, after [`SendError::Full`],
    /// room to send.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.call()
    }
}

/// What is created before the queue is taken over.
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

/// The train types that a 12-byte header can describe.
const fn is_known(gso_type: GsoType) -> bool {
    matches!(gso_type.kind(), GsoType::TCPV4 | GsoType::TCPV6 | GsoType::UDP | GsoType::UDP_L4)
}

/// The only frame layout that vhost-net supports.
const PREFIX: Prefix = Prefix { packet_info: false, net_header: HeaderLen::V1 };
/// A frame longer than the burst allows.
const TOO_LONG: RecvError = RecvError::Lost { errno: Errno::MSGSIZE.raw_os_error() };
/// Room for the longest frame.
const MIN_SEND_BYTES: usize = (NET_HEADER_LEN + MAX_FRAME_LEN).next_power_of_two();
/// So that twice its size fits the address space of any machine.
const MAX_SEND_BYTES: usize = 1 << 29;
