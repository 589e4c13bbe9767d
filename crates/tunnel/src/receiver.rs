//! Receiving: one system call may return many datagrams; frames are returned one by one.
//!
//! **Placement.** Each frame is to be placed after headroom in the caller's buffer, in a *slot*,
//! although the kernel delivers the datagrams without gaps. So the call gets one iovec per slot, as
//! long as the datagrams of the last call were: while their length stays the same, as in a bulk
//! transfer, each frame is received in place, with its VXLAN header in the headroom, and nothing is
//! copied. Datagrams that do not fit the slots go to a buffer of the receiver and are copied on
//! demand, as are datagrams of another length.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use crate::congestion::pass_on;
use crate::runs::MAX_PACKETS;
use crate::socket::{self, Message};
use crate::vxlan::{HEADER_LEN, frame_of};
use crate::{RecvError, VxlanPort};

/// Receives from a port.
#[derive(Debug)]
pub struct Receiver {
    port: Arc<VxlanPort>,
    /// Datagrams without a slot, contiguous, each at the offset that it would have if all were
    /// here.
    spill: Box<[u8]>,
    /// Expected length of the datagrams.
    guess: usize,
    batch: Batch,
}

/// How many frames a caller can take in sequence into one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Maximum number of frames, including the current one; at least one.
    pub count: usize,
    /// Maximum distance in bytes from the start of the current frame to the start of the next one.
    pub reach: usize,
}

impl Room {
    /// Only the current frame.
    pub const ONE: Self = Self { count: 1, reach: 0 };
}

/// Result of one system call.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// Length of all datagrams in bytes.
    len: usize,
    /// Length of each but the last one.
    stride: usize,
    /// Offset of the next one.
    at: usize,
    /// Number of bytes that are in slots.
    slots_end: usize,
    /// Distance between slots in bytes.
    slot_len: usize,
    /// Length of the caller's buffer from the first slot on.
    buf_len: usize,
    /// Expected start of the caller's buffer, relative to the first slot.
    begin: usize,
    /// Type of service or traffic class of the datagrams.
    class: u8,
}

impl Receiver {
    /// Creates the receiver of `port`, which must be its only one: another one would take frames
    /// away.
    pub fn new(port: Arc<VxlanPort>) -> Self {
        let spill = vec![0; RECV_BUF_LEN].into();
        Self { port, spill, guess: RECV_BUF_LEN, batch: Batch::default() }
    }

    /// The port.
    pub fn port(&self) -> &Arc<VxlanPort> {
        &self.port
    }

    /// Number of datagrams that a system call has returned and that [`Self::recv`] has not examined
    /// yet. They are available even if the port is not readable.
    #[inline]
    pub fn pending(&self) -> usize {
        let Batch { len, at, stride, .. } = self.batch;
        if at >= len { 0 } else { (len - at).div_ceil(stride) }
    }

    /// Receives one frame into `buf` after at least `headroom` bytes, and returns its position;
    /// `None` if none is queued. Its checksums are not verified. Never blocks.
    ///
    /// With a `room` of several frames, the following ones may already be in `buf`. The caller must
    /// then ask for them, within the limits of `room`, with the same buffer from the next multiple
    /// of [`SLOT_ALIGN`] after the last frame on.
    ///
    /// Datagrams that are no frame of the port's VNI are counted ([`crate::Counters`]) and skipped;
    /// after very many of them the result is `None` as well and the port stays readable, so that a
    /// flood cannot occupy the caller. Marks of routers are propagated to the inner packet (RFC
    /// 6040 §4.2).
    ///
    /// # Errors
    /// [`RecvError`]; the next call continues after the lost datagram.
    #[inline]
    pub fn recv(
        &mut self,
        buf: &mut [u8],
        headroom: usize,
        room: Room,
    ) -> Result<Option<Range<usize>>, RecvError> {
        let mut calls = 0;
        loop {
            if self.batch.is_empty() {
                calls += 1;
                if calls > CALLS_MAX || !self.fill(buf, headroom, room)? {
                    return Ok(None);
                }
            }
            let datagram = self.batch.next(buf, headroom, &self.spill)?;
            if let Err(refusal) = frame_of(&buf[datagram.clone()], self.port.vni()) {
                self.port.tally.note_refused(refusal);
                continue;
            }
            let frame = datagram.start + HEADER_LEN..datagram.end;
            if !pass_on(&mut buf[frame.clone()], self.batch.class) {
                self.port.tally.note_congested();
                continue;
            }
            self.batch.note_taken(datagram.end);
            return Ok(Some(frame));
        }
    }

    /// Makes one system call. Returns `false` if nothing is queued.
    fn fill(&mut self, buf: &mut [u8], headroom: usize, room: Room) -> Result<bool, RecvError> {
        if headroom < HEADER_LEN || buf.len() < headroom - HEADER_LEN + RECV_BUF_LEN {
            return Err(RecvError::Misplaced);
        }
        let slots = Slots::plan(self.guess, buf.len(), headroom, room);
        let message = match slots.receive(&self.port, buf, &mut self.spill) {
            Ok(message) if message.is_cut => {
                return Err(RecvError::Lost { errno: Errno::MSGSIZE.raw_os_error() });
            }
            Ok(message) => message,
            Err(Errno::AGAIN) => return Ok(false),
            // An earlier datagram was not delivered; reported once.
            Err(errno) if crate::error::is_unreachable(errno) => {
                self.port.tally.note_unreachable(1);
                return Ok(false);
            }
            Err(errno) => return Err(RecvError::Lost { errno: errno.raw_os_error() }),
        };
        self.batch = slots.batch(&message, buf.len());
        if self.batch.slots_end == 0 {
            slots.gather(buf, &mut self.spill, message.len);
        }
        self.guess = match message.stride {
            Some(stride) => stride.clamp(HEADER_LEN, RECV_BUF_LEN),
            // Occasional short datagrams, such as acknowledgements, do not change the expected
            // length.
            None => self.guess.max(message.len),
        };
        let count = if message.len == 0 { 1 } else { message.len.div_ceil(self.batch.stride) };
        self.port.tally.note_received(count);
        Ok(true)
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.at >= self.len
    }

    /// Position of the next datagram in `buf`; copied there if it had no slot.
    #[inline]
    fn next(
        &mut self,
        buf: &mut [u8],
        headroom: usize,
        spill: &[u8],
    ) -> Result<Range<usize>, RecvError> {
        if self.is_empty() {
            // An empty datagram.
            return Ok(headroom - HEADER_LEN..headroom - HEADER_LEN);
        }
        let at = self.at;
        let len = self.stride.min(self.len - at);
        if at < self.slots_end {
            if self.buf_len.checked_sub(buf.len()) != Some(self.begin) {
                self.at = self.slots_end;
                return Err(RecvError::Misplaced);
            }
            self.at += len;
            let slot = at / self.stride * self.slot_len;
            let start = slot - self.begin + headroom - HEADER_LEN;
            return Ok(start..start + len);
        }
        self.at += len;
        let place = headroom - HEADER_LEN..headroom - HEADER_LEN + len;
        let slot = buf.get_mut(place.clone()).ok_or(RecvError::Misplaced)?;
        slot.copy_from_slice(&spill[at..at + len]);
        Ok(place)
    }

    /// The caller continues after position `end` of its buffer.
    #[inline]
    fn note_taken(&mut self, end: usize) {
        self.begin += end.next_multiple_of(SLOT_ALIGN);
    }
}

/// Placement of datagrams for one system call.
#[derive(Clone, Copy, Debug)]
struct Slots {
    count: usize,
    /// Distance between slots in bytes.
    len: usize,
    headroom: usize,
    /// Maximum length of a datagram in a slot.
    datagram_len: usize,
}

impl Slots {
    /// As many slots as the caller will ask for, and as fit the buffer.
    fn plan(guess: usize, buf_len: usize, headroom: usize, room: Room) -> Self {
        let start = headroom - HEADER_LEN;
        let datagram_len = guess.min(buf_len - start);
        let len = (start + datagram_len).next_multiple_of(SLOT_ALIGN);
        let within_reach = room.reach.div_ceil(len);
        let behind_first = (buf_len - start - datagram_len) / len;
        let count = room.count.min(MAX_PACKETS).min(within_reach).min(1 + behind_first).max(1);
        Self { count, len, headroom, datagram_len }
    }

    fn receive(
        &self,
        port: &VxlanPort,
        buf: &mut [u8],
        spill: &mut [u8],
    ) -> rustix::io::Result<Message> {
        let mut parts = [const { None }; MAX_PACKETS + 1];
        let start = self.headroom - HEADER_LEN;
        for (part, slot) in parts.iter_mut().zip(buf.chunks_mut(self.len).take(self.count)) {
            *part = slot.get_mut(start..start + self.datagram_len);
        }
        let rest = self.count * self.datagram_len;
        parts[self.count] = spill.get_mut(rest..);
        let mut parts = parts.map(|part| IoSliceMut::new(part.unwrap_or_default()));
        socket::recv(port, &mut parts[..=self.count])
    }

    /// Describes the result of a call. Either each datagram is in its slot, as far as there are
    /// slots, or all must be gathered.
    fn batch(&self, message: &Message, buf_len: usize) -> Batch {
        let Message { len, stride, class, .. } = *message;
        let stride = stride.filter(|stride| *stride > 0).unwrap_or(len.max(1));
        let is_one = len <= stride;
        let fits = (is_one && len <= self.datagram_len) || stride == self.datagram_len;
        let slots_end = if fits { len.min(self.count * self.datagram_len) } else { 0 };
        let slot_len = self.len;
        Batch { len, stride, at: 0, slots_end, slot_len, buf_len, begin: 0, class }
    }

    /// Moves the contents of the slots before the rest, for which there is room.
    #[cold]
    fn gather(&self, buf: &[u8], spill: &mut [u8], len: usize) {
        let start = self.headroom - HEADER_LEN;
        let places = spill.chunks_mut(self.datagram_len).zip(buf.chunks(self.len));
        let mut left = len;
        for (place, slot) in places.take(self.count) {
            let len = left.min(place.len());
            place[..len].copy_from_slice(&slot[start..start + len]);
            left -= len;
        }
    }
}

/// Maximum total length of the datagrams of one system call: an IPv6 packet's payload. With the
/// headroom it is the minimum length of a receive buffer.
pub const RECV_BUF_LEN: usize = 65_535;
/// Alignment of slots in bytes.
pub const SLOT_ALIGN: usize = 64;
/// Maximum number of system calls for one frame, if all datagrams are refused.
const CALLS_MAX: usize = 8;

#[cfg(test)]
mod tests;
