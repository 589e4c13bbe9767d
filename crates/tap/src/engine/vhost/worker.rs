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

/// A running kernel thread. Stops on drop, which must precede freeing the rings' memory.
#[derive(Debug)]
pub(super) struct Worker {
    device: OwnedFd,
    /// eventfd(2)s: kicks for the thread, one per ring; its call to us; its error signal.
    receiver_kick: OwnedFd,
    sender_kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
    /// Iterations of a loop that never sleeps since the device was last checked.
    unchecked: Cell<u16>,
}

/// Why the thread no longer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The device was deleted.
    Gone,
    /// The thread found an error in a ring.
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

    /// Stops the thread and restores the queue. The limit of the send buffer stays if the device
    /// can have several queues: `TUNSETSNDBUF` applies to all of them, and without the limit the
    /// threads of the others would treat packets as Ethernet frames.
    pub(super) fn end(self, queue: &Queue) {
        drop(self);
        let is_alone = || interface(queue).is_ok_and(|(_, it)| !it.contains(Flags::MULTI_QUEUE));
        if queue.kind() == Kind::Tun && send_buffer_len(queue) == Ok(UNLIMITED - 1) && is_alone() {
            // The device exists: it answered just now.
            let _ = set_send_buffer_len(queue, UNLIMITED);
        }
    }

    /// Wakes the thread, which ran out of receive buffers and has some again.
    #[cold]
    pub(super) fn kick_receiver(&self) {
        signal(&self.receiver_kick);
    }

    /// Wakes the sleeping thread, which has frames to send.
    #[cold]
    pub(super) fn kick_sender(&self) {
        signal(&self.sender_kick);
    }

    /// Makes the descriptor that the thread signals readable.
    #[cold]
    pub(super) fn call_ourselves(&self) {
        signal(&self.call);
    }

    /// The eventfds that wake the thread: for receiving, for sending.
    #[cfg(test)]
    pub(super) fn kicks(&self) -> [BorrowedFd<'_>; 2] {
        [self.receiver_kick.as_fd(), self.sender_kick.as_fd()]
    }

    /// The eventfd that the thread signals.
    pub(super) fn call(&self) -> BorrowedFd<'_> {
        self.call.as_fd()
    }

    /// Readable if the thread found an error in a ring.
    pub(super) fn error(&self) -> BorrowedFd<'_> {
        self.error.as_fd()
    }

    /// True once in 1024 calls.
    pub(super) fn is_time_to_check(&self) -> bool {
        self.unchecked.set(self.unchecked.get().wrapping_add(1) % 1024);
        self.unchecked.get() == 0
    }

    /// Consumes pending signals, and checks device and rings.
    pub(super) fn check(&self, queue: &Queue) -> Result<(), Failure> {
        let at_once = Timespec::default();
        let mut fds = [
            PollFd::from_borrowed_fd(self.call(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.error(), PollFlags::IN),
            PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::empty()),
        ];
        if poll(&mut fds, Some(&at_once)).is_err() {
            // Interrupted by a signal handler: signals of the thread stay pending, and cause a
            // spurious wake-up.
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
            // Non-blocking. Another reader could only be one that was given the descriptor, which
            // is harmless.
            let _ = io::read(&self.call, &mut [0; 8]);
        }
        Ok(())
    }

    /// Creates a worker without rings.
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

    /// Registers only the buffers: the addresses of the rings are set separately, and an invalid
    /// descriptor can reach no other memory of this process.
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
    /// Removes the rings from the thread, which no longer uses them when the calls return. The
    /// calls fail only in a child of fork(2), whose memory the thread does not access.
    fn drop(&mut self) {
        for ring in [RECEIVE, SEND] {
            let _ = ioctl::set_backend(&self.device, ring, None);
        }
    }
}

/// With an unlimited send buffer the thread takes frames in batches, and treats them as Ethernet
/// frames. On a tun device, limits the send buffer by the smallest possible amount. That affects
/// every queue of the device.
fn limit_batches(queue: &Queue) -> Result<(), VhostError> {
    if queue.kind() == Kind::Tap {
        return Ok(());
    }
    let len = send_buffer_len(queue).map_err(VhostError::call("TUNGETSNDBUF"))?;
    let set = set_send_buffer_len(queue, len.min(UNLIMITED - 1));
    set.map_err(VhostError::call("TUNSETSNDBUF"))
}

/// Opens the device and negotiates features; the thread then runs without rings.
fn negotiate(config: &VhostConfig) -> Result<OwnedFd, VhostError> {
    let device = ioctl::open().map_err(VhostError::open)?;
    let offered = ioctl::features(&device).map_err(VhostError::call("VHOST_GET_FEATURES"))?;
    if offered & FEATURES != FEATURES {
        return Err(VhostError::Features { missing: FEATURES & !offered });
    }
    if config.kernel_thread {
        match ioctl::set_kernel_thread(&device) {
            // The kernel does not have this option. Before Linux 6.17, it requires an owner first.
            Ok(()) | Err(Errno::NOTTY | Errno::PERM) => {}
            Err(errno) => return Err(VhostError::call("VHOST_SET_FORK_FROM_OWNER")(errno)),
        }
    }
    ioctl::set_owner(&device).map_err(VhostError::call("VHOST_SET_OWNER"))?;
    let set = ioctl::set_features(&device, FEATURES);
    set.map_err(VhostError::call("VHOST_SET_FEATURES"))?;
    Ok(device)
}

/// Increments an eventfd(2). Fails only if the counter would overflow: then it is readable anyway.
fn signal(event: &OwnedFd) {
    let _ = io::write(event, &1_u64.to_ne_bytes());
}

/// Send buffer length in bytes that means no limit: `INT_MAX`.
const UNLIMITED: u32 = i32::MAX.unsigned_abs();
/// Receive ring.
const RECEIVE: u32 = 0;
/// Send ring.
const SEND: u32 = 1;

/// `VIRTIO_NET_F_MRG_RXBUF`, `VIRTIO_RING_F_EVENT_IDX` and, where it does not change the byte
/// order, `VIRTIO_F_VERSION_1`. The first or the last makes the header 12 bytes long.
const FEATURES: u64 = 1 << 15 | 1 << 29 | if cfg!(target_endian = "little") { 1 << 32 } else { 0 };
