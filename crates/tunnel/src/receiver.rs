//! Receiving: one system call may bring many datagrams; frames are handed out one by one.
//!
//! **Where a frame goes.** Each frame is to lie behind headroom in the caller's buffer, a *slot*
//! each, though the kernel delivers the datagrams without gaps. So the call is given one piece of
//! memory per slot, as long as the datagrams of the last call were: as long as their length stays
//! the same, which it does in a bulk transfer, each frame is received to where it shall lie, its
//! VXLAN header in the headroom, and nothing is copied. What does not fit the slots goes to a
//! buffer of the receiver's own and is copied when it is asked for, as is what came in another
//! length.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use crate::congestion::pass_on;
use crate::runs::MAX_PACKETS;
use crate::socket::{self, Message};
use crate::vxlan::{HEADER_LEN, frame_of};
use crate::{RecvError, VxlanPort};

/// Receives by a port.
#[derive(Debug)]
pub struct Receiver {
    port: Arc<VxlanPort>,
    /// What found no slot. Datagram behind datagram, at the place that it would have if all were
    /// here.
    spill: Box<[u8]>,
    /// Length of the datagrams that are expected.
    guess: usize,
    batch: Batch,
}

/// How many frames a caller takes behind one another into one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Most frames, this one included, one at least.
    pub count: usize,
    /// It takes them while the next one begins within so many bytes from this one's beginning.
    pub reach: usize,
}

impl Room {
    /// This one only.
    pub const ONE: Self = Self { count: 1, reach: 0 };
}

/// What one system call brought.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// Bytes of all datagrams.
    len: usize,
    /// Length of each but the last one.
    stride: usize,
    /// Where the next one begins.
    at: usize,
    /// Bytes that are in slots.
    slots_end: usize,
    /// Bytes from slot to slot.
    slot_len: usize,
    /// Length of the caller's buffer from the first slot on.
    buf_len: usize,
    /// Where the caller's buffer is to begin, from the first slot on.
    begin: usize,
    /// The datagrams' type of service or traffic class.
    class: u8,
}

impl Receiver {
    /// A receiver by `port`, which is to be its only one: another one would take frames away.
    pub fn new(port: Arc<VxlanPort>) -> Self {
        let spill = vec![0; RECV_BUF_LEN].into();
        Self { port, spill, guess: RECV_BUF_LEN, batch: Batch::default() }
    }

    /// The port.
    pub fn port(&self) -> &Arc<VxlanPort> {
        &self.port
    }

    /// Datagrams that a system call has brought and that [`Self::recv`] has not looked at yet. The
    /// port need not be readable for these.
    #[inline]
    pub fn pending(&self) -> usize {
        let Batch { len, at, stride, .. } = self.batch;
        if at >= len { 0 } else { (len - at).div_ceil(stride) }
    }

    /// Receives one frame into `buf` behind at least `headroom` bytes, and answers where it lies;
    /// `None` when there is none now. Nothing is known of its checksums. Never blocks.
    ///
    /// With a `room` of several frames, those that follow may lie in `buf` already. The caller is
    /// then to ask for them, as often as `room` says, with the same buffer from the next multiple
    /// of [`SLOT_ALIGN`] behind the last frame on.
    ///
    /// What is no frame of the port's VNI is counted ([`crate::Counters`]) and left out; behind
    /// very many of those it is `None` as well, and the port stays readable, so that nobody who
    /// floods it keeps the caller. What routers have marked on the way is marked inside (RFC 6040
    /// §4.2).
    ///
    /// # Errors
    /// [`RecvError`]; the next call goes on behind what was lost.
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

    /// Makes one system call. Answers `false` when nothing is there.
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
            // An earlier datagram found nobody there; said once.
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
            // Acknowledgements between longer ones change nothing.
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

    /// Where the next datagram lies in `buf`; copied there when it found no slot.
    #[inline]
    fn next(
        &mut self,
        buf: &mut [u8],
        headroom: usize,
        spill: &[u8],
    ) -> Result<Range<usize>, RecvError> {
        if self.is_empty() {
            // A datagram of no bytes.
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

    /// The caller goes on behind what ends at `end` of its buffer.
    #[inline]
    fn note_taken(&mut self, end: usize) {
        self.begin += end.next_multiple_of(SLOT_ALIGN);
    }
}

/// Where a system call is to put datagrams.
#[derive(Clone, Copy, Debug)]
struct Slots {
    count: usize,
    /// Bytes from one to the next.
    len: usize,
    headroom: usize,
    /// Length of a datagram that fits one.
    datagram_len: usize,
}

impl Slots {
    /// As many as the caller is going to ask for, and as there is room for.
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

    /// What a call brought. Either each datagram is in a slot of its own, as far as there are
    /// slots, or all are to be gathered.
    fn batch(&self, message: &Message, buf_len: usize) -> Batch {
        let Message { len, stride, class, .. } = *message;
        let stride = stride.filter(|stride| *stride > 0).unwrap_or(len.max(1));
        let is_one = len <= stride;
        let fits = (is_one && len <= self.datagram_len) || stride == self.datagram_len;
        let slots_end = if fits { len.min(self.count * self.datagram_len) } else { 0 };
        let slot_len = self.len;
        Batch { len, stride, at: 0, slots_end, slot_len, buf_len, begin: 0, class }
    }

    /// Puts what is in slots in front of what is not: there is room for it.
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

/// Longest sum of datagrams that one system call brings: an IPv6 packet's payload. With the
/// headroom it is the least length of a buffer to receive into.
pub const RECV_BUF_LEN: usize = 65_535;
/// Slots begin at multiples of so many bytes.
pub const SLOT_ALIGN: usize = 64;
/// Most system calls for one frame, where all that they bring is refused.
const CALLS_MAX: usize = 8;

#[cfg(test)]
mod tests;
