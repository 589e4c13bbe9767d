//! Frames to the kernel thread.
//!
//! A frame is copied with its header into a ring of bytes in mirrored memory (`memory.rs`):
//! contiguous, one descriptor, and the caller's memory is free at once. Lending the caller's memory
//! instead would save a copy that runs in parallel with the kernel thread's own, and would make the
//! caller wait until the kernel thread has read it.
//!
//! The kernel thread finishes frames in the order of sending. Finished ones are collected when room
//! is needed, not earlier: for a full ring that costs one load of the used index for all of it.

use std::io;

use super::memory::Mapping;
use super::ring::{Broken, Buffer, Ring};

/// The send ring and its bytes.
#[derive(Debug)]
pub(super) struct Transmitter {
    ring: Ring,
    bytes: Mapping,
    /// Number of bytes of the ring; a power of two.
    capacity: usize,
    /// Total bytes taken and freed, modulo the address space.
    head: usize,
    tail: usize,
    /// Bytes taken by each frame in the ring, by position.
    lens: Box<[u32]>,
}

impl Transmitter {
    /// Creates a ring of `size` frames and `capacity` bytes, both powers of two.
    pub(super) fn new(size: u16, base: u16, capacity: usize) -> io::Result<Self> {
        if !capacity.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            ring: Ring::new(size, base)?,
            bytes: Mapping::mirrored(capacity)?,
            capacity,
            head: 0,
            tail: 0,
            lens: vec![0; usize::from(size)].into(),
        })
    }

    /// Queues a frame of `len` bytes, header included, all of which `fill` writes.
    /// [`Self::publish`] passes it to the kernel thread. Returns `false` without a change if there
    /// is no room.
    #[inline]
    pub(super) fn push(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Broken> {
        let taken = len.next_multiple_of(ALIGN);
        if !self.has_room(taken) && !self.collect(taken)? {
            return Ok(false);
        }
        let Ok(buffer_len) = u32::try_from(taken) else { return Ok(false) };
        let start = self.head & (self.capacity - 1);
        // SAFETY: the device owns the bytes between head and tail; this range begins at the head
        // and is no longer than the free part. It lies within the two copies, because it starts in
        // the first.
        fill(unsafe { self.bytes.bytes(start..start + len) });
        self.lens[usize::from(self.ring.next_offered())] = buffer_len;
        self.head = self.head.wrapping_add(taken);
        let address = self.bytes.address() + start as u64;
        self.ring.offer(Buffer { address, len: frame_len(len), is_writable: false });
        Ok(true)
    }

    /// Publishes all queued frames. Returns whether the device must be kicked.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Requests a signal when the device has finished half of its frames, to avoid one signal per
    /// frame. Returns `false` if it already has.
    #[cold]
    pub(super) fn arm(&mut self) -> Result<bool, Broken> {
        let out = self.ring.size() - self.ring.free();
        self.ring.arm(out.div_ceil(2).max(1))
    }

    /// Number of frames that the device is not known to have finished.
    pub(super) fn pending(&mut self) -> Result<u16, Broken> {
        self.collect(0)?;
        Ok(self.ring.size() - self.ring.free())
    }

    pub(super) const fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) const fn buffers(&self) -> &Mapping {
        &self.bytes
    }

    #[inline]
    fn has_room(&self, len: usize) -> bool {
        self.ring.free() > 0 && self.capacity - self.head.wrapping_sub(self.tail) >= len
    }

    /// Takes back all finished frames; returns whether `len` bytes fit now.
    #[cold]
    fn collect(&mut self, len: usize) -> Result<bool, Broken> {
        loop {
            let position = usize::from(self.ring.next_taken());
            if self.ring.take()?.is_none() {
                return Ok(self.has_room(len));
            }
            self.tail = self.tail.wrapping_add(self.lens[position] as usize);
        }
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "what it is rounded up to fits")]
const fn frame_len(len: usize) -> u32 {
    len as u32
}

/// Alignment of frames in bytes: a cache line.
const ALIGN: usize = 64;

#[cfg(test)]
mod tests;
