//! How a worker sends to a guest: directly into the buffers that the guest has made available.
//!
//! A worker holds a guest's ring from the first frame to that guest until its burst ends, and
//! notifies the guest once for all frames. Cost of a frame: its buffers are looked up among
//! descriptors that were fetched in batches, and header and frame are copied there once, from
//! wherever they are.
//!
//! If a guest runs several queue pairs, each worker has its own, as far as they go. A worker with
//! several pairs spreads frames over them by flow; each may be full separately ([`super::lanes`]).
//!
//! A worker never waits for another one while it holds rings: it releases them first
//! ([`TxPorts::hold`](super::TxPorts)). So workers that send to the same guests in different orders
//! cannot deadlock.

use std::sync::Arc;

use tapswitch_datapath::Frame;
use tapswitch_vhost::{
    self as vhost, Features, Held, Part, Queue, RawHeader, Running, Undelivered,
};
use tapswitch_wire::{NetHeader, NetHeaderFlags};

use super::device::{Transmit, flow, until_one_fails};
use super::{CutPacket, SendFault, Takes};
use crate::beyond::Beyond;

/// A guest as one worker sends to it.
#[derive(Debug)]
pub(crate) struct GuestTx {
    device: Arc<vhost::Device>,
    /// The first queue pair of this worker.
    own: usize,
    /// Distance between its pairs.
    step: usize,
    /// The ring, during a burst.
    held: Option<Held>,
    /// The pair of that ring.
    pair: usize,
    /// The worker's other rings, if the guest runs several of its pairs.
    others: Vec<OtherRing>,
    /// The guest's violation in this burst.
    fault: Option<vhost::RingError>,
}

/// A ring in addition to the first one.
#[derive(Debug)]
struct OtherRing {
    pair: usize,
    /// `None` while the session thread holds it.
    held: Option<Held>,
}

/// A guest's violation. The guest is cut off later, by a caller that holds no ring: stopping a
/// device waits for the holders of its rings.
#[derive(Debug)]
pub(crate) struct Fault {
    device: Arc<vhost::Device>,
    /// The next session may be another guest's, or this one's second attempt.
    session: vhost::SessionNumber,
    text: String,
}

impl Fault {
    /// Ends the guest's session. The caller holds no ring.
    pub(crate) fn cut_off(self) {
        self.device.reset(self.session, self.text);
    }
}

/// A handle without rings.
impl Clone for GuestTx {
    fn clone(&self) -> Self {
        Self::new(self.device.clone(), self.own, self.step)
    }
}

impl GuestTx {
    /// Uses queue pair `own` and every `step`th behind it, as far as the guest runs them.
    pub(crate) fn new(device: Arc<vhost::Device>, own: usize, step: usize) -> Self {
        Self { device, own, step, held: None, pair: own, others: Vec::new(), fault: None }
    }

    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the rings for a burst, unless the first is held by another thread.
    pub(super) fn try_hold(&mut self) -> bool {
        self.take(Queue::try_lock)
    }

    /// Takes the rings for a burst, waiting for the first. The caller holds no other ring.
    pub(super) fn hold(&mut self) {
        self.take(|queue| Some(queue.lock()));
    }

    /// Takes the worker's own rings that the guest runs; if it runs none of them, the first one
    /// that it runs.
    fn take(&mut self, take: impl Fn(&Queue) -> Option<Held>) -> bool {
        let Self { device, own, step, held, pair, others, .. } = self;
        let all = |from: usize, step| {
            let queue = |index| device.receive_queue(index).map(|queue| (index, queue));
            (from..).step_by(step).map_while(queue)
        };
        let mut running = all(*own, *step).filter(|(_, queue)| queue.is_running());
        let first = running.next().or_else(|| all(0, 1).find(|(_, queue)| queue.is_running()));
        let Some((index, queue)) = first.or_else(|| all(*own, *step).next()) else { return false };
        (*pair, *held) = (index, take(queue));
        if held.is_some() {
            // Not waited for: frames for a ring that the session thread holds are queued.
            let other =
                |(pair, queue): (_, &Arc<Queue>)| OtherRing { pair, held: queue.try_lock() };
            others.extend(running.map(other));
        }
        held.is_some()
    }

    /// Number of rings, both held ones and those that the session thread holds.
    #[inline]
    pub(super) fn ring_count(&self) -> usize {
        1 + self.others.len()
    }

    /// The pair of the ring at this index.
    pub(super) fn pair_at(&self, place: usize) -> usize {
        let other = place.checked_sub(1).and_then(|at| self.others.get(at));
        other.map_or(self.pair, |other| other.pair)
    }

    /// The ring for a frame: the same for all frames of a flow while the guest runs the same pairs
    /// (virtio 1.2 §5.1.6.5.5).
    #[inline]
    fn ring_for(&mut self, headers: &[u8]) -> Result<&mut Running, SendFault> {
        match self.others.is_empty() {
            true => self.first_ring(),
            false => self.ring_of(flow(headers)),
        }
    }

    #[inline]
    fn first_ring(&mut self) -> Result<&mut Running, SendFault> {
        let Self { device, held, pair, .. } = self;
        let ring = held.as_mut().and_then(|held| held.as_mut());
        ring.ok_or_else(|| no_ring(device, *pair))
    }

    #[inline(never)]
    fn ring_of(&mut self, flow: u32) -> Result<&mut Running, SendFault> {
        match (flow as usize % self.ring_count()).checked_sub(1) {
            None => self.first_ring(),
            Some(at) => {
                let held = self.others.get_mut(at).and_then(|other| other.held.as_mut());
                // The session thread holds it or has just stopped it: retried later, on this or
                // another ring.
                held.and_then(|held| held.as_mut()).ok_or(SendFault::Full)
            }
        }
    }

    /// Ends a burst: notifies the guest of its frames, and releases the rings. Returns the guest's
    /// violation, if any.
    pub(super) fn end_burst(&mut self) -> Option<Fault> {
        let (mut session, mut was_lost) = (None, false);
        let others = self.others.drain(..).filter_map(|other| other.held);
        for mut held in self.held.take().into_iter().chain(others) {
            let Some(ring) = held.as_mut() else { continue };
            ring.publish();
            was_lost |= ring.memory_was_lost();
            session = Some(ring.session());
        }
        let session = session?;
        let fault = self.fault.take().map(|fault| fault.to_string());
        let text = fault.or_else(|| was_lost.then(|| vhost::MEMORY_LOST.to_owned()))?;
        Some(Fault { device: self.device.clone(), session, text })
    }

    /// Whether the guest takes this frame as it is.
    #[inline]
    pub(super) fn takes(&self, frame: &Frame<'_>) -> bool {
        let features = || self.held.as_ref()?.as_ref().map(Running::features);
        frame.meta == NetHeader::PLAIN
            || features().is_none_or(|features| Takes::from(features).takes(frame))
    }

    /// Whether the guest takes partial checksums.
    pub(super) fn takes_checksum(&self) -> bool {
        let ring = self.held.as_ref().and_then(|held| held.as_ref());
        ring.is_some_and(|ring| ring.features().contains(Features::GUEST_CSUM))
    }

    /// Copies the frame into the guest's next buffers.
    #[inline]
    pub(super) fn send(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>) -> Result<(), SendFault> {
        let (head, len) = (frame.head(), frame.len());
        let first = std::iter::once(Part::Ours(head));
        // Packets, small ones and large ones: other frames are in up to four places, and
        // looking into all of them takes as long as a copy.
        if head.len() == len {
            return self.deliver(head, &frame.meta, len, first);
        }
        if let Some(end) = beyond.single().filter(|end| head.len() + end.len() == len) {
            return self.deliver(head, &frame.meta, len, [Part::Ours(head), end].into_iter());
        }
        let parts = first.chain(frame.parts().map(Part::Ours)).chain(beyond.parts());
        self.deliver(head, &frame.meta, len, parts)
    }

    /// Copies a packet of a cut train into the guest's next buffers.
    fn send_packet(&mut self, packet: &CutPacket<'_>) -> Result<(), SendFault> {
        let pieces = packet.bare_pieces();
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.deliver(pieces[0], &packet.meta, len, pieces.into_iter().map(Part::Ours))
    }

    #[inline]
    fn deliver<'p>(
        &mut self,
        headers: &[u8],
        meta: &NetHeader,
        len: usize,
        parts: impl Iterator<Item = Part<'p>>,
    ) -> Result<(), SendFault> {
        let ring = self.ring_for(headers)?;
        match ring.deliver(header_for(ring.features(), meta), len, parts) {
            Ok(()) => Ok(()),
            Err(Undelivered::Full) => Err(SendFault::Full),
            // A guest whose interface is down is not waited for: it may never come up.
            Err(Undelivered::Unready) => Err(SendFault::Down),
            Err(Undelivered::TooLong) => Err(SendFault::Rejected),
            Err(Undelivered::Ring(fault)) => {
                self.fault.get_or_insert(fault);
                Err(SendFault::Failed)
            }
        }
    }
}

impl Transmit for GuestTx {
    #[inline]
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        self.send(frame, Beyond::NONE)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        self.send(frame, beyond)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        until_one_fails(packets, |packet| self.send_packet(packet))
    }
}

/// Why this pair's queue, which is held, has no ring: the VMM is changing something and will
/// restart it soon, or it is down.
#[cold]
fn no_ring(device: &vhost::Device, pair: usize) -> SendFault {
    let comes_back = device.receive_queue(pair).is_some_and(|queue| queue.is_running());
    if comes_back { SendFault::Full } else { SendFault::Down }
}

/// The network header of a frame that a guest takes. Verified checksums are reported only if the
/// guest negotiated checksums at all (virtio 1.2 §5.1.6.4.1).
#[inline]
fn header_for(features: Features, meta: &NetHeader) -> RawHeader {
    if *meta == NetHeader::PLAIN {
        return RawHeader::default();
    }
    let told = match features.contains(Features::GUEST_CSUM) {
        true => NetHeaderFlags::NEEDS_CSUM | NetHeaderFlags::DATA_VALID,
        false => 0,
    };
    NetHeader { flags: meta.flags & told, ..*meta }.encode().into()
}

impl From<Features> for Takes {
    #[inline]
    fn from(features: Features) -> Self {
        let checksum = features.contains(Features::GUEST_CSUM);
        // All packets of a train have partial checksums.
        let takes = |wanted| checksum && features.contains(wanted);
        Self {
            checksum,
            tcp_v4: takes(Features::GUEST_TSO4),
            tcp_v6: takes(Features::GUEST_TSO6),
            tcp_ecn: takes(Features::GUEST_ECN),
            cwr_on_all: true,
            udp: takes(Features::GUEST_USO4.union(Features::GUEST_USO6)),
            hidden: false,
        }
    }
}
