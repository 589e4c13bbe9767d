//! The datapath's outputs: ports through the worker's own handles, controllers and the MAC table
//! through reports to the agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tapswitch_datapath::{
    Claim, DropReason, Egress, Frame, PacketInClaim, PacketInOrigin, Sent, Sighting,
};
use tapswitch_offload::{Segments, complete_checksum};
use tapswitch_openflow::{CONTROLLER_MAX_LEN, PortNo};

use crate::beyond::Beyond;
use crate::credits::is_probe;
use crate::fate::{FrameFate, PacketFate};
use crate::shared::{Report, Shared};
use crate::tx::TxPorts;

/// The outputs of one worker.
pub(crate) struct WorkerEgress<'a> {
    ports: &'a mut TxPorts,
    shared: &'a Shared,
    /// The end of the current frame.
    beyond: Beyond<'a>,
}

impl<'a> WorkerEgress<'a> {
    #[inline]
    pub(crate) fn new(ports: &'a mut TxPorts, shared: &'a Shared) -> Self {
        Self { ports, shared, beyond: Beyond::NONE }
    }

    /// The same outputs for a frame whose remaining bytes are `beyond`.
    #[inline]
    pub(crate) fn with_beyond(self, beyond: Beyond<'a>) -> Self {
        Self { beyond, ..self }
    }

    /// Reports the frame as one packet with its checksum completed.
    fn report_packet(
        &self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        claim: Option<&PacketInClaim<'_>>,
    ) -> Result<(), DropReason> {
        let (mut headers, mut room) = (frame.head().to_vec(), Vec::new());
        let (mut meta, rest) = (frame.meta, self.beyond.join(frame, &mut room));
        complete_checksum(&mut meta, &mut headers, rest).map_err(|_| DropReason::CannotSegment)?;
        let fate = FrameFate::new(claim.map(PacketInClaim::wait));
        let part = self.wanted_part(origin);
        let _ = self.report((origin, part), frame.len(), [&headers, rest, &[]], &fate);
        Ok(())
    }

    /// Reports the packets of a train. Who is content with a part of a packet only inspects the
    /// traffic and gets the first one; a controller that gets whole packets must be able to forward
    /// them all.
    fn report_train(
        &self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        claim: Option<&PacketInClaim<'_>>,
    ) -> Result<(), DropReason> {
        let mut room = Vec::new();
        let mut packets =
            Segments::new(&frame.meta, frame.head(), self.beyond.join(frame, &mut room))
                .map_err(|_| DropReason::CannotSegment)?;
        let mut headers = vec![0; packets.headers_len()];
        let fate = FrameFate::new(claim.map(PacketInClaim::wait));
        let part = self.wanted_part(origin);
        while let Some(packet) = packets.next(&mut headers) {
            let [first, second] = packet.payload;
            let headers = &headers[..packet.headers_len];
            let pieces = [headers, first, second];
            let told = self.report((origin, part), packet.frame_len(), pieces, &fate);
            if told.is_err() || part.len_of(packet.frame_len()) < packet.frame_len() {
                break;
            }
        }
        Ok(())
    }

    /// The part of each packet that is reported: all of it, as packets are not buffered (OpenFlow
    /// 1.3.5 §7.4.1), unless all controllers only look or the bucket truncates.
    fn wanted_part(&self, origin: &PacketInOrigin) -> Part {
        let looks = self.shared.starts_suffice.load(Ordering::Relaxed);
        let start = Some(origin.max_len).filter(|len| looks && *len <= CONTROLLER_MAX_LEN);
        Part { start: start.map(usize::from), kept: origin.snaplen.map(usize::from) }
    }

    /// Reports this part of one packet of a frame. If the frame's ingress port has too many reports
    /// pending, the packet is dropped and counted.
    fn report(
        &self,
        (origin, part): (&PacketInOrigin, Part),
        total_len: usize,
        parts: [&[u8]; 3],
        frame: &Arc<FrameFate>,
    ) -> Result<(), DropReason> {
        let Some(credit) = self.shared.credits.take(origin.in_port, parts[0], 1) else {
            frame.lose(DropReason::ControllerQueueFull);
            return Err(DropReason::ControllerQueueFull);
        };
        let len = part.len_of(total_len).min(MAX_DATA_LEN);
        let mut data = Vec::with_capacity(len);
        for part in parts {
            let room = len - data.len();
            data.extend_from_slice(&part[..part.len().min(room)]);
        }
        let packet = PacketFate::new(frame, credit);
        let is_start = part.start.is_some_and(|len| len < total_len);
        let (origin, fate) = (*origin, packet.clone());
        let told = self.shared.report(Report::PacketIn { origin, total_len, data, is_start, fate });
        told.inspect_err(|_| packet.refused())
    }
}

impl Egress for WorkerEgress<'_> {
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn transmit(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        self.ports.send(port, frame, self.beyond, claim)
    }

    #[cold]
    fn transmit_part(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
        snaplen: usize,
    ) -> Result<Sent, DropReason> {
        self.ports.send_part(port, frame, self.beyond, claim, snaplen)
    }

    #[cold]
    fn packet_in(
        &mut self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        claim: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason> {
        if !self.shared.has_controller.load(Ordering::Relaxed) {
            return Err(DropReason::NoController);
        }
        if is_probe(frame.head()) {
            self.ports.note_bridge();
        }
        match frame.meta.is_train() {
            true => self.report_train(origin, frame, claim)?,
            false => self.report_packet(origin, frame, claim)?,
        }
        Ok(Sent::Later)
    }

    #[cold]
    fn learn(&mut self, sighting: Sighting) {
        // If there is no room, a later frame is used for learning.
        if let Some(credit) = self.shared.credits.take(sighting.port, &[], 1) {
            let _ = self.shared.report(Report::Sighting(sighting, credit));
        }
    }
}

/// The part of a packet that controllers get, in bytes; `None` is all of it.
#[derive(Clone, Copy)]
struct Part {
    /// For controllers that only look.
    start: Option<usize>,
    /// What the bucket keeps, for any controller.
    kept: Option<usize>,
}

impl Part {
    /// Its length of a packet of `len` bytes.
    fn len_of(self, len: usize) -> usize {
        self.start.into_iter().chain(self.kept).fold(len, usize::min)
    }
}

/// A message has at most 65,535 bytes, of which a packet-in with the match fields that we send
/// needs less than 128 (OpenFlow 1.3.5 §7.4.1). A longer packet cannot be sent whole, nor back.
const MAX_DATA_LEN: usize = 65_535 - 128;

#[cfg(test)]
mod tests;
