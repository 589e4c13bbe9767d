//! The kernel thread that serves the rings: negotiation, start, signals, end.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{self, Errno};

use super::memory::Mapping;
use super::ring::Ring;
use super::rx::Receiver;
use super::tx::Transmitter;
use super::{VhostConfig, VhostError, ioctl};
use crate::ioctl::{interface, send_buffer_len, set_send_buffer_len};
use crate::{Flags, Kind, Queue};

/// A kernel thread at work. Ends on drop, before which the rings' memory must not go.
#[derive(Debug)]
pub(super) struct Worker {
    device: OwnedFd,
    /// eventfd(2)s: ours to the thread, one for each ring; its to us; its when a ring is broken.
    receiver_kick: OwnedFd,
    sender_kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
    /// Turns of a loop that never sleeps since it was last looked after the device.
    unchecked: Cell<u16>,
}

/// Why the thread serves us no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The device was deleted.
    Gone,
    /// The thread found fault with a ring.
    Stopped,
}

impl Worker {
    /// Negotiates, and starts a thread on both rings and `queue`.
    pub(super) fn start(
        queue: &Queue,
        config: &VhostConfig,
        receiver: &Receiver,
        sender: &Transmitter,
    ) -> Result<Self, VhostError> {
        let device = negotiate(config)?;
        let worker = Self::with_events(device).map_err(VhostError::call("eventfd"))?;
        worker.set_memory(receiver.buffers(), sender.buffers())?;
        worker.set_ring(RECEIVE, receiver.ring(), &worker.receiver_kick)?;
        worker.set_ring(SEND, sender.ring(), &worker.sender_kick)?;
        worker.set_busy_poll(config.busy_poll)?;
        limit_batches(queue)?;
        for ring in [RECEIVE, SEND] {
            let started = ioctl::set_backend(&worker.device, ring, Some(queue.as_fd()));
            started.map_err(VhostError::call("VHOST_NET_SET_BACKEND"))?;
        }
        Ok(worker)
    }

    /// Ends the thread, and leaves the queue as it was; but for the limit of the send buffers where
    /// there may be several: `TUNSETSNDBUF` sets those of all queues of the device, and without the
    /// limit the threads of the others would take packets for Ethernet frames.
    pub(super) fn end(self, queue: &Queue) {
        drop(self);
        let is_alone = || interface(queue).is_ok_and(|(_, it)| !it.contains(Flags::MULTI_QUEUE));
        if queue.kind() == Kind::Tun && send_buffer_len(queue) == Ok(UNLIMITED - 1) && is_alone() {
            // It has just been asked: the device is there.
            let _ = set_send_buffer_len(queue, UNLIMITED);
        }
    }

    /// The thread has run out of buffers to receive into, and there are some again.
    #[cold]
    pub(super) fn kick_receiver(&self) {
        signal(&self.receiver_kick);
    }

    /// The thread sleeps, and there are frames to be sent.
    #[cold]
    pub(super) fn kick_sender(&self) {
        signal(&self.sender_kick);
    }

    /// Makes the descriptor that the thread signals by readable.
    #[cold]
    pub(super) fn call_ourselves(&self) {
        signal(&self.call);
    }

    /// What the thread is woken by: for receiving, for sending.
    #[cfg(test)]
    pub(super) fn kicks(&self) -> [BorrowedFd<'_>; 2] {
        [self.receiver_kick.as_fd(), self.sender_kick.as_fd()]
    }

    /// What the thread signals by.
    pub(super) fn call(&self) -> BorrowedFd<'_> {
        self.call.as_fd()
    }

    /// Readable when the thread found fault with a ring.
    pub(super) fn error(&self) -> BorrowedFd<'_> {
        self.error.as_fd()
    }

    /// True once in 1024 times.
    pub(super) fn is_time_to_check(&self) -> bool {
        self.unchecked.set(self.unchecked.get().wrapping_add(1) % 1024);
        self.unchecked.get() == 0
    }

    /// Takes the signals so far, and looks whether device and rings are well.
    pub(super) fn check(&self, queue: &Queue) -> Result<(), Failure> {
        let at_once = Timespec::default();
        let mut fds = [
            PollFd::from_borrowed_fd(self.call(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.error(), PollFlags::IN),
            PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::empty()),
        ];
        if poll(&mut fds, Some(&at_once)).is_err() {
            // A signal came between: signals of the thread stay, and wake us once too often.
            return Ok(());
        }
        let [call, error, queue] = fds.map(|fd| fd.revents());
        if queue.intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(Failure::Gone);
        }
        if error.contains(PollFlags::IN) {
            return Err(Failure::Stopped);
        }
        if call.contains(PollFlags::IN) {
            // Non-blocking; nobody else reads it but who was lent the descriptor, and then all the
            // better.
            let _ = io::read(&self.call, &mut [0; 8]);
        }
        Ok(())
    }

    /// A worker without rings.
    pub(super) fn with_events(device: OwnedFd) -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self {
            device,
            receiver_kick: event()?,
            sender_kick: event()?,
            call: event()?,
            error: event()?,
            unchecked: Cell::new(0),
        })
    }

    /// Only the buffers: the rings' own addresses are given by themselves, and nothing else of this
    /// process is in reach of a descriptor that were wrong.
    fn set_memory(&self, receive: &Mapping, send: &Mapping) -> Result<(), VhostError> {
        let regions = [receive, send].map(|memory| (memory.address(), memory.len() as u64));
        let set = ioctl::set_memory(&self.device, regions);
        set.map_err(VhostError::call("VHOST_SET_MEM_TABLE"))
    }

    fn set_ring(&self, index: u32, ring: &Ring, kick: &OwnedFd) -> Result<(), VhostError> {
        let device = &self.device;
        let size = ioctl::set_ring_size(device, index, ring.size());
        size.map_err(VhostError::call("VHOST_SET_VRING_NUM"))?;
        let base = ioctl::set_ring_base(device, index, 0);
        base.map_err(VhostError::call("VHOST_SET_VRING_BASE"))?;
        let addresses = ioctl::set_ring_addresses(device, index, ring.addresses());
        addresses.map_err(VhostError::call("VHOST_SET_VRING_ADDR"))?;
        let call = ioctl::set_call(device, index, self.call.as_fd());
        call.map_err(VhostError::call("VHOST_SET_VRING_CALL"))?;
        let error = ioctl::set_error(device, index, self.error.as_fd());
        error.map_err(VhostError::call("VHOST_SET_VRING_ERR"))?;
        let kick = ioctl::set_kick(device, index, kick.as_fd());
        kick.map_err(VhostError::call("VHOST_SET_VRING_KICK"))
    }

    fn set_busy_poll(&self, timeout: Duration) -> Result<(), VhostError> {
        let timeout_us = u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX);
        if timeout_us == 0 {
            return Ok(());
        }
        for ring in [RECEIVE, SEND] {
            let set = ioctl::set_busy_poll(&self.device, ring, timeout_us);
            set.map_err(VhostError::call("VHOST_SET_VRING_BUSYLOOP_TIMEOUT"))?;
        }
        Ok(())
    }
}

impl Drop for Worker {
    /// Takes the rings away from the thread, which is done with them when the calls return. They
    /// fail in a child of fork(2) alone, whose memory the thread does not see anyway.
    fn drop(&mut self) {
        for ring in [RECEIVE, SEND] {
            let _ = ioctl::set_backend(&self.device, ring, None);
        }
    }
}

/// The thread takes frames in batches if the send buffer is unlimited, and then for Ethernet
/// frames: makes it limited, by as little as can be, on a device without them. That limits every
/// queue of the device.
fn limit_batches(queue: &Queue) -> Result<(), VhostError> {
    if queue.kind() == Kind::Tap {
        return Ok(());
    }
    let len = send_buffer_len(queue).map_err(VhostError::call("TUNGETSNDBUF"))?;
    let set = set_send_buffer_len(queue, len.min(UNLIMITED - 1));
    set.map_err(VhostError::call("TUNSETSNDBUF"))
}

/// Opens the device and agrees on features; there is a thread then, without rings.
fn negotiate(config: &VhostConfig) -> Result<OwnedFd, VhostError> {
    let device = ioctl::open().map_err(VhostError::open)?;
    let offered = ioctl::features(&device).map_err(VhostError::call("VHOST_GET_FEATURES"))?;
    if offered & FEATURES != FEATURES {
        return Err(VhostError::Features { missing: FEATURES & !offered });
    }
    if config.kernel_thread {
        match ioctl::set_kernel_thread(&device) {
            // A kernel without the choice. Before Linux 6.17, it first wants an owner.
            Ok(()) | Err(Errno::NOTTY | Errno::PERM) => {}
            Err(errno) => return Err(VhostError::call("VHOST_SET_FORK_FROM_OWNER")(errno)),
        }
    }
    ioctl::set_owner(&device).map_err(VhostError::call("VHOST_SET_OWNER"))?;
    let set = ioctl::set_features(&device, FEATURES);
    set.map_err(VhostError::call("VHOST_SET_FEATURES"))?;
    Ok(device)
}

/// Adds to the count of an eventfd(2). Fails only when that is about to overflow: then it is
/// readable anyway.
fn signal(event: &OwnedFd) {
    let _ = io::write(event, &1_u64.to_ne_bytes());
}

/// Length of a send buffer in bytes that means no limit: `INT_MAX`.
const UNLIMITED: u32 = i32::MAX.unsigned_abs();
/// Ring for frames that we receive.
const RECEIVE: u32 = 0;
/// Ring for frames that we send.
const SEND: u32 = 1;

/// `VIRTIO_NET_F_MRG_RXBUF`, `VIRTIO_RING_F_EVENT_IDX` and, where it does not change the byte
/// order, `VIRTIO_F_VERSION_1`. Any of the first and the last makes the header 12 bytes long.
const FEATURES: u64 = 1 << 15 | 1 << 29 | if cfg!(target_endian = "little") { 1 << 32 } else { 0 };
