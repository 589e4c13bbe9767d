//! How a worker sends: unchanged where the port takes the frame as it is, else cut and completed.
//!
//! 1. The frame is contiguous with room in front (nearly all): its metadata is written in front of
//!    it, one system call.
//! 2. A copy with headers of its own: header and payload as an iovec pair.
//! 3. A train that was coalesced: an iovec of its headers and payloads.
//! 4. A partial checksum that the port does not take: completed in the frame's own headers, sent,
//!    and restored, as the next port may take it.
//! 5. A frame from a guest: headers from our memory and payload from the guest's, by one writev(2).
//!    If it must be completed or cut first, it is copied as a whole.
//! 6. A frame to a guest is copied into its buffers: see [`guest`].
//! 7. A train of a kind that the port does not take (see [`takes`]): cut into packets, each an
//!    iovec, a batch of headers at a time. A packet socket takes a batch by one sendmmsg(2). A tap
//!    device has no such call: a cut train costs one write(2) per packet, including the receiver's
//!    stack, which dominates. The payload is never copied. It is read once, for the checksum,
//!    unless the port takes partial ones: see [`TxPort::packet_checksums`].
//! 8. A copy that is truncated: see [`part`].
//! 9. A file takes frames into its buffer: see [`record`].
//! 10. A frame for a full port, or for one with queued frames, is copied to a queue: see [`queue`]
//!     and [`lanes`].

mod device;
mod doubt;
mod fault;
mod guest;
mod lanes;
mod pacing;
mod part;
mod ports;
mod pressure_sampler;
mod queue;
mod record;
mod takes;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapswitch_datapath::{DropReason, Frame, HEADROOM};
use tapswitch_netdev::MAX_PACKETS;
use tapswitch_offload::{ChecksumRule, Segments, SplitOptions, complete_checksum};
use tapswitch_tunnel as tunnel;
use tapswitch_wire::{NET_HEADER_LEN, NetHeader};

use crate::Pressure;
use crate::beyond::Beyond;

pub(crate) use device::{BareTap, GreTx, TxDevice};
use fault::SendFault;
pub(crate) use guest::GuestTx;
use lanes::Lanes;
pub(crate) use pacing::Pacing;
pub(crate) use ports::{TxPorts, Wait, number as port_number};
pub(crate) use queue::BATCH_ROOM;
use queue::Waiting;
pub(crate) use takes::Takes;

/// A port as one worker sends to it.
#[derive(Debug)]
pub(crate) struct TxPort {
    device: TxDevice,
    /// Offloads that the port takes now.
    takes: Takes,
    /// Offloads that it takes when none has been refused recently.
    offered: Takes,
    /// Until when `takes` leaves out a refused kind.
    cut_until: Option<Instant>,
    /// The last frame found the port congested, for which the frame itself may be the reason.
    is_in_doubt: bool,
    /// Headers of packets that a train was cut into, each behind room for a network header. Grows
    /// only for headers longer than any before.
    headers: Vec<u8>,
    /// A guest's frame, copied as a whole.
    fetched: Vec<u8>,
    /// A truncated packet, behind headroom.
    part: Vec<u8>,
    /// Queued frames and their state; `None` while the port takes every frame.
    lanes: Option<Box<Lanes>>,
    /// How long senders wait for this port.
    stall: Duration,
    /// State of the port that its workers share.
    pacing: Arc<Pacing>,
    /// Bytes sent that are not yet added to `pacing`.
    untold: usize,
    /// Packets of the last train that were sent before one failed.
    cut_done: u32,
}

impl TxPort {
    pub(crate) fn new(device: TxDevice, takes: Takes) -> Self {
        Self {
            device,
            takes,
            offered: takes,
            cut_until: None,
            is_in_doubt: false,
            headers: Vec::new(),
            fetched: Vec::new(),
            part: Vec::new(),
            lanes: None,
            stall: Pressure::default().stall,
            pacing: Arc::default(),
            untold: 0,
            cut_done: 0,
        }
    }

    /// Sets how long senders wait for this port.
    pub(crate) fn with_stall(self, stall: Duration) -> Self {
        Self { stall, ..self }
    }

    /// Sets the state shared with the other workers of the port.
    pub(crate) fn with_pacing(self, pacing: Arc<Pacing>) -> Self {
        Self { pacing, ..self }
    }

    /// Sets the initial buffer length of the port's new sockets. One worker does this, as they are
    /// shared.
    pub(crate) fn begin(&self) {
        if self.device.socket_lens().is_some() {
            self.device.set_socket_len(pacing::START_LEN);
        }
    }

    /// Counts a sent frame of `len` bytes.
    #[inline]
    fn note_sent(&mut self, len: usize) {
        self.untold += len;
        if self.untold >= TOLD_LEN {
            self.tell_sent();
        }
    }

    /// Adds the bytes sent to the shared state, if a socket's length depends on it.
    #[inline(never)]
    fn tell_sent(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if self.device.socket_lens().is_some() {
            self.pacing.note_sent(untold);
        }
    }

    /// The port is full: adapts its socket's length to the rate of its link.
    #[cold]
    fn note_full(&mut self, now: Instant) {
        self.tell_sent();
        let lens = self.device.socket_lens();
        let len = lens.and_then(|lens| self.pacing.note_full(lens, now));
        if let Some(len) = len {
            self.device.set_socket_len(len);
        }
    }

    /// Sends `frame`, whose remaining bytes are `beyond`, ignoring queued frames.
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn send(&mut self, frame: &mut Frame<'_>, beyond: Beyond<'_>) -> Result<(), DropReason> {
        if matches!(self.device, TxDevice::Guest(_)) {
            return self.send_to_guest(frame, beyond);
        }
        if !self.takes.takes(frame) {
            return self.send_finished(frame, beyond);
        }
        match self.device.send(frame, beyond) {
            Err(SendFault::Rejected) if frame.meta.is_train() => {
                // A train that cannot be cut either is invalid itself, and says nothing about its
                // kind.
                self.send_cut_complete(frame, beyond)?;
                self.note_refused(frame);
                Ok(())
            }
            Err(SendFault::Congested) => Err(self.congested(frame, beyond)),
            // An IP packet of maximum length plus tags: longer than a packet socket takes.
            Err(SendFault::Oversize) if frame.meta.is_train() => self.send_cut(frame, beyond, 0),
            sent => sent.map_err(DropReason::from),
        }
    }

    /// Sends to a guest, whose session determines which frames it takes. If its buffers are too
    /// small for a train, the next one may still fit, so the kind is not cut.
    #[inline(never)]
    fn send_to_guest(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), DropReason> {
        let TxDevice::Guest(guest) = &mut self.device else { return Err(DropReason::PortDown) };
        if !guest.takes(frame) {
            return self.send_finished(frame, beyond);
        }
        match guest.send(frame, beyond) {
            Err(SendFault::Rejected) if frame.meta.is_train() => self.send_cut(frame, beyond, 0),
            sent => sent.map_err(DropReason::from),
        }
    }

    /// Completes or cuts the frame as the port requires, and sends it.
    #[inline(never)]
    fn send_finished(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), DropReason> {
        if self.is_asked_again() {
            return self.send(frame, beyond);
        }
        match frame.meta.is_train() {
            true => self.send_cut(frame, beyond, 0),
            false => self.send_completed(frame, beyond),
        }
    }

    /// Completes the frame's checksum for the time of the send.
    fn send_completed(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), DropReason> {
        let rest = beyond.rest(frame, &mut self.fetched);
        let undone = frame.meta;
        let mut meta = undone;
        let field = usize::from(undone.csum_start) + usize::from(undone.csum_offset);
        // Four bytes, for SCTP's CRC; bytes behind a shorter checksum are restored unchanged.
        let behind = frame.head().len().checked_sub(field).ok_or(DropReason::CannotSegment)?;
        let mut partial = [0; 4];
        let partial = &mut partial[..behind.min(4)];
        partial.copy_from_slice(&frame.head()[field..field + partial.len()]);
        complete_checksum(&mut meta, frame.head_mut(), rest)
            .map_err(|_| DropReason::CannotSegment)?;
        frame.meta = meta;
        // A guest that has changed the payload since garbles only its own frame.
        let sent = self.device.send(frame, beyond);
        frame.meta = undone;
        frame.head_mut()[field..field + partial.len()].copy_from_slice(partial);
        Ok(sent?)
    }

    /// Cuts the train and sends its packets in order, except the first `done`, which were sent
    /// before. The first failure ends the train: the receiver misses its end, not its middle. Only
    /// packets that are too long do not keep a shorter last one, as if they had come one by one.
    /// `cut_done` is then the number of packets sent.
    #[inline(never)]
    fn send_cut(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        done: u32,
    ) -> Result<(), DropReason> {
        self.cut_to(frame, beyond, done, usize::MAX, self.packet_checksums())
    }

    /// As [`Self::send_cut`], with all checksums complete.
    #[cold]
    fn send_cut_complete(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), DropReason> {
        self.cut_to(frame, beyond, 0, usize::MAX, ChecksumRule::Complete)
    }

    /// The checksums of packets that a train was cut into: partial if the port would take the
    /// checksum of a single packet, so that neither the switch nor the receiver reads the payload
    /// for it. A device that has just refused a train may have refused its checksum.
    fn packet_checksums(&self) -> ChecksumRule {
        let is_partial = match &self.device {
            TxDevice::Guest(guest) => guest.takes_checksum(),
            _ => self.takes.checksum && self.cut_until.is_none(),
        };
        if is_partial { ChecksumRule::Partial } else { ChecksumRule::Complete }
    }

    /// As [`Self::send_cut`], but only the first `snaplen` bytes of each packet, and with these
    /// checksums. A truncated packet has a complete one.
    fn cut_to(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        done: u32,
        snaplen: usize,
        checksum: ChecksumRule,
    ) -> Result<(), DropReason> {
        match self.device {
            TxDevice::Vxlan(_) => {
                self.cut::<{ tunnel::MAX_PACKETS }>(frame, beyond, done, snaplen, checksum)
            }
            _ => self.cut::<CUT_COUNT>(frame, beyond, done, snaplen, checksum),
        }
    }

    /// As [`Self::cut_to`], `COUNT` packets at a time.
    fn cut<const COUNT: usize>(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        done: u32,
        snaplen: usize,
        checksum: ChecksumRule,
    ) -> Result<(), DropReason> {
        let mut parts = [&[][..]; PIECES_MAX];
        let mut packets = segments(&mut parts, frame, beyond, &mut self.fetched, checksum)?;
        let meta = packets.net_header();
        let place_len = NET_HEADER_LEN + packets.headers_len();
        if self.headers.len() < COUNT * place_len {
            self.headers.resize(COUNT * place_len, 0);
        }
        for _ in 0..done {
            packets.next(&mut self.headers[NET_HEADER_LEN..place_len]);
        }
        let mut done = done;
        loop {
            let mut batch = [CutPacket::default(); COUNT];
            let mut count = 0;
            for place in self.headers.chunks_exact_mut(place_len).take(COUNT) {
                let (header, headers) = place.split_at_mut(NET_HEADER_LEN);
                let Some(packet) = packets.next(headers) else { break };
                header.copy_from_slice(&meta.encode());
                batch[count].meta = meta;
                batch[count].headers = &place[..NET_HEADER_LEN + packet.headers_len];
                batch[count].payload = packet.payload;
                batch[count].len = packet.frame_len();
                batch[count].truncate(snaplen);
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            let (sent, outcome) = self.device.send_packets(&batch[..count]);
            done += u32::try_from(sent).unwrap_or_default();
            if let Err(fault) = outcome {
                let behind = u32::try_from(count - sent).unwrap_or_default() + packets.remaining();
                if fault == SendFault::Oversize && behind > 1 {
                    let last = done + behind - 1;
                    return self.send_last::<COUNT>(frame, beyond, (done, last), snaplen, checksum);
                }
                self.cut_done = done;
                return Err(fault.into());
            }
        }
    }

    /// Sends packet `last` of a train, whose other packets are too long for the port from packet
    /// `done` on.
    #[cold]
    fn send_last<const COUNT: usize>(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        (done, last): (u32, u32),
        snaplen: usize,
        checksum: ChecksumRule,
    ) -> Result<(), DropReason> {
        let sent = self.cut::<COUNT>(frame, beyond, last, snaplen, checksum);
        self.cut_done = done + u32::from(sent.is_ok());
        // A full port gets it later.
        Err(sent.err().filter(|why| *why == DropReason::EgressFull).unwrap_or(DropReason::Oversize))
    }

    /// Returns and resets the number of packets sent of the frame that failed last.
    fn take_cut_done(&mut self) -> u32 {
        std::mem::take(&mut self.cut_done)
    }

    /// Sends a queued frame.
    fn send_waiting(&mut self, bytes: &mut [u8], waiting: &Waiting) -> Result<(), DropReason> {
        self.begin_record(&waiting.receipt.claim())?;
        let Waiting { meta, layout, done, snaplen, .. } = *waiting;
        let mut frame = Frame::new(meta, layout, bytes, HEADROOM, 0);
        if let Some(snaplen) = snaplen {
            return self.send_part(&mut frame, Beyond::NONE, snaplen, done);
        }
        match done {
            0 => self.send(&mut frame, Beyond::NONE),
            done => self.send_cut(&frame, Beyond::NONE, done),
        }
    }
}

/// The packets of a train. The payload behind its head is in `parts`, or is copied to `fetched`.
fn segments<'a>(
    parts: &'a mut [&'a [u8]; PIECES_MAX],
    frame: &'a Frame<'_>,
    beyond: Beyond<'_>,
    fetched: &'a mut Vec<u8>,
    checksum: ChecksumRule,
) -> Result<Segments<'a>, DropReason> {
    let count = if beyond.is_empty() {
        gather(parts, frame.parts()).ok_or(DropReason::CannotSegment)?
    } else {
        parts[0] = beyond.join(frame, fetched);
        1
    };
    let (meta, options) = (frame.meta.into(), SplitOptions { checksum, ..SplitOptions::default() });
    Segments::with(&meta, &options, frame.head(), &parts[..count])
        .map_err(|_| DropReason::CannotSegment)
}

/// Puts `items` into `places`. Returns their number, or `None` if there is no room for all.
fn gather<T>(places: &mut [T], items: impl Iterator<Item = T>) -> Option<usize> {
    let mut count = 0;
    for item in items {
        *places.get_mut(count)? = item;
        count += 1;
    }
    Some(count)
}

/// A packet that a train was cut into.
#[derive(Clone, Copy, Debug, Default)]
struct CutPacket<'a> {
    /// Its metadata: plain, or a partial checksum. The same for all packets of a train.
    meta: NetHeader,
    /// The metadata as a network header, followed by the packet's own headers.
    headers: &'a [u8],
    payload: [&'a [u8]; 2],
    /// Length in bytes of the whole packet, which may be truncated here.
    len: usize,
}

impl<'a> CutPacket<'a> {
    /// Truncates the packet to `len` bytes.
    fn truncate(&mut self, len: usize) {
        let headers_len = self.headers.len().min(NET_HEADER_LEN.saturating_add(len));
        let mut room = len - (headers_len - NET_HEADER_LEN);
        self.headers = &self.headers[..headers_len];
        for part in &mut self.payload {
            *part = &part[..part.len().min(room)];
            room -= part.len();
        }
    }

    /// The packet's pieces without the network header.
    fn bare(&self) -> [IoSlice<'a>; 3] {
        self.bare_pieces().map(IoSlice::new)
    }

    fn bare_pieces(&self) -> [&'a [u8]; 3] {
        let headers = self.headers.get(NET_HEADER_LEN..).unwrap_or_default();
        [headers, self.payload[0], self.payload[1]]
    }

    /// The packet's pieces with the network header.
    fn with_header(&self) -> [IoSlice<'a>; 3] {
        [self.headers, self.payload[0], self.payload[1]].map(IoSlice::new)
    }

    /// Number of non-empty pieces.
    fn count(&self) -> usize {
        if self.payload[1].is_empty() { 2 } else { 3 }
    }
}

/// Most pieces that a frame is sent in: metadata, headers, the shared part of its first packet, and
/// the payloads of the other packets of a batch.
const PIECES_MAX: usize = 3 + crate::gro::BATCH_COUNT;

/// Bytes sent before the shared state is updated, so that workers do not contend for it on each
/// small frame. It is a small part of a rate sample ([`pacing`]).
const TOLD_LEN: usize = 8 * 1024;
/// Packets whose headers are built before they are sent: a train of 64 KiB takes three rounds, and
/// the stack and headers of one round fit into the first-level cache.
const CUT_COUNT: usize = MAX_PACKETS;
const _: () = assert!(CUT_COUNT <= tunnel::GRE_MAX_PACKETS);

#[cfg(test)]
mod tests;
