//! Frames from the kernel thread.
//!
//! **Small mergeable buffers.** A frame has 60 bytes to 64 KiB. Without `VIRTIO_NET_F_MRG_RXBUF`
//! every buffer must hold the longest; frames are then 64 KiB apart, each in its own pages and
//! cache sets, and 16 MiB hold 256 small frames. With it (virtio 1.2 §5.1.6.3.2) the kernel thread
//! spreads a frame over as many small buffers as necessary and stores their number in `num_buffers`
//! of the first. Usually a train is then fragmented. Not here: buffers are adjacent in mirrored
//! memory (`memory.rs`) and used in that order, so every frame is contiguous, even one that runs
//! past the end.
//!
//! A buffer has [`BUFFER_LEN`] bytes: a frame of an MTU of 1500 takes one, the longest train 33.

use std::io;
use std::ops::Range;

use tapswitch_wire::NET_HEADER_LEN;

use super::memory::Mapping;
use super::ring::{Broken, Buffer, Ring};
use crate::MAX_FRAME_LEN;

/// The receive ring and its buffers. The device owns all buffers that are not lent to the caller.
#[derive(Debug)]
pub(super) struct Receiver {
    ring: Ring,
    buffers: Mapping,
    /// Number of buffers of returned frames, to be offered again.
    lent: u16,
}

impl Receiver {
    /// Creates a ring of `size` buffers, all offered but not yet published. `size` is a power of
    /// two from [`MIN_BUFFERS`] to 32768.
    pub(super) fn new(size: u16, base: u16) -> io::Result<Self> {
        if size < MIN_BUFFERS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut ring = Ring::new(size, base)?;
        let buffers = Mapping::mirrored(usize::from(size) * BUFFER_LEN)?;
        for _ in 0..size {
            let address = buffers.address() + ring_offset(ring.next_offered()) as u64;
            ring.offer(Buffer { address, len: BUFFER_LEN_U32, is_writable: true });
        }
        // Wakes also a caller that waits before its first receive.
        ring.arm(1).map_err(|broken| io::Error::other(broken.what()))?;
        Ok(Self { ring, buffers, lent: 0 })
    }

    /// Returns the next frame with its header, or `None` if there is none. The header's 12 bytes
    /// are always present. [`Self::release`] returns its buffers to the device.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<&mut [u8]>, Broken> {
        let start = ring_offset(self.ring.next_taken());
        let Some(first_len) = self.ring.take()? else { return Ok(None) };
        let mut len = checked_len(first_len)?;
        if len < NET_HEADER_LEN {
            return Err(Broken::Length { len: first_len });
        }
        self.lent += 1;
        for _ in 1..self.buffer_count(start)? {
            // The previous buffer must be full, or the frame would not be contiguous.
            let next_len = self.ring.take()?.ok_or(Broken::Incomplete)?;
            if len % BUFFER_LEN != 0 {
                return Err(Broken::Length { len: next_len });
            }
            len += checked_len(next_len)?;
            self.lent += 1;
        }
        // SAFETY: the device returned these buffers; they are not offered again before `release`,
        // which takes `&mut self` like this function; and frames do not overlap.
        let packet = unsafe { self.lend(start..start + len) };
        // `num_buffers` only concerns the kernel thread and this module.
        packet[10..NET_HEADER_LEN].fill(0);
        Ok(Some(packet))
    }

    /// # Safety
    /// As [`Mapping::bytes`]; the frame starts in the first copy and is no longer than that.
    #[inline]
    unsafe fn lend(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: the caller's guarantee; both copies together are as long as any such frame.
        unsafe { self.buffers.bytes(range) }
    }

    /// Returns the buffers of all frames so far to the device. Returns whether it must be kicked.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        self.ring.offer_again(self.lent);
        self.lent = 0;
        self.ring.publish()
    }

    /// Requests a signal for the next frame. Returns `false` if one is already available.
    pub(super) fn arm(&mut self) -> Result<bool, Broken> {
        self.ring.arm(1)
    }

    pub(super) const fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) const fn buffers(&self) -> &Mapping {
        &self.buffers
    }

    /// Number of buffers of the frame whose header is at `start`.
    #[inline]
    fn buffer_count(&self, start: usize) -> Result<u16, Broken> {
        // SAFETY: the device returned the buffer, which starts with at least a header.
        let header = unsafe { self.buffers.bytes(start..start + NET_HEADER_LEN) };
        let count = u16::from_ne_bytes([header[10], header[11]]);
        if count == 0 || count > MAX_FRAME_BUFFERS {
            return Err(Broken::Count { count });
        }
        Ok(count)
    }
}

#[inline]
fn checked_len(len: u32) -> Result<usize, Broken> {
    match usize::try_from(len) {
        Ok(bytes) if bytes <= BUFFER_LEN => Ok(bytes),
        _ => Err(Broken::Length { len }),
    }
}

#[inline]
fn ring_offset(slot: u16) -> usize {
    usize::from(slot) * BUFFER_LEN
}

/// Length of one buffer in bytes.
pub(super) const BUFFER_LEN: usize = 2048;
#[expect(clippy::cast_possible_truncation, reason = "2048 fits")]
const BUFFER_LEN_U32: u32 = BUFFER_LEN as u32;
/// Maximum number of buffers of one frame.
#[expect(clippy::cast_possible_truncation, reason = "33 fits")]
const MAX_FRAME_BUFFERS: u16 = (NET_HEADER_LEN + MAX_FRAME_LEN).div_ceil(BUFFER_LEN) as u16;
/// Minimum number of buffers of a ring: the longest frame must fit, or it would block the ring.
pub(super) const MIN_BUFFERS: u16 = MAX_FRAME_BUFFERS.next_power_of_two();

#[cfg(test)]
mod tests;
