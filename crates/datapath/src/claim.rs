//! Frames that a port cannot take at once: for which port and bucket they wait, and what is counted
//! when they have left.
//!
//! [`Egress::transmit`](crate::Egress::transmit) may keep a frame and send it later. It gets a
//! [`Claim`] with each frame, which costs nothing unless it is used. Code that keeps a frame makes
//! a [`Receipt`] from it, and settles that when the frame has left or never will. Until then the
//! frame counts as *queued*, so that at any time each frame is accounted for.
//!
//! If a port's frames are carried on by somebody else, as those of a file are, an [`OwnedClaim`]
//! stands for any number of frames.
//!
//! A frame for the controllers leaves by no port, and may be lost on its way to them. It has a
//! claim of its own, [`PacketInClaim`], and if it has to wait a [`PacketInReceipt`].
//!
//! The packets of a cut train have ends of their own: those that were sent count as sent, whatever
//! becomes of the others. The frame, and its bytes, count with the last one.

use std::sync::Arc;

use tapswitch_openflow::{Delivery, PortNo};

use crate::counters::{Millis, WorkerIndex};
use crate::group::{BucketRef, GroupBucket};
use crate::port::Port;
use crate::traffic::Traffic;
use crate::{DropReason, Frame};

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The port has taken it.
    Now,
    /// It waits for the port, or for a controller. A [`Receipt`], an [`OwnedClaim`] or a
    /// [`PacketInReceipt`] reports how that ends. Or it has ended already: see [`Claim::consumed`].
    Later,
    /// Not all of its packets were sent: the frame counts as dropped.
    InPart(Loss),
}

/// The packets of a dropped frame. Those in neither number have been counted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Packets that were sent.
    pub sent: u32,
    /// Packets that were not.
    pub dropped: u32,
    /// The reason of the drop.
    pub reason: DropReason,
}

/// The ports and the bucket that a frame counts for when it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub(crate) worker: WorkerIndex,
    /// Egress port.
    pub(crate) port: &'a Arc<Port>,
    pub(crate) bucket: Option<&'a BucketRef>,
    /// Ingress port; none for a packet of the controller.
    pub(crate) arrival: Option<&'a Arc<Port>>,
}

impl<'a> Claim<'a> {
    /// For a packet of `worker` to `port`, without an ingress port.
    pub fn new(worker: WorkerIndex, port: &'a Arc<Port>) -> Self {
        Self { worker, port, bucket: None, arrival: None }
    }

    /// The contract of a copy; `None` for a path of its own.
    #[inline]
    pub fn delivery(&self) -> Option<Delivery> {
        self.bucket.and_then(|bucket| bucket.bucket().delivery)
    }

    /// Bytes of each packet that the copy keeps; `None` for all.
    pub fn snaplen(&self) -> Option<usize> {
        self.bucket.and_then(BucketRef::snaplen)
    }

    /// Ingress port; `None` for a packet of the controller.
    pub fn in_port(&self) -> Option<PortNo> {
        self.arrival.map(|port| port.number)
    }

    /// What `frame` counts when it is sent whole.
    pub fn traffic(&self, frame: &Frame<'_>) -> Traffic {
        let bytes = self.snaplen().map_or_else(|| frame.len(), |len| frame.part_len(len));
        Traffic::frame(bytes, frame.wire_packets())
    }

    /// Queues a frame of `traffic`: it counts as queued until the receipt is settled.
    pub fn wait(&self, traffic: Traffic) -> Receipt {
        let (claim, arrival) = (self.owned(), self.arrival.cloned());
        claim.wait(self.worker, traffic);
        Receipt { worker: self.worker, claim, arrival, traffic }
    }

    /// Counts the first packets of a frame whose other packets wait.
    pub fn sent(&self, packets: u32, now: Millis) {
        let traffic = Traffic::packets(packets.into());
        count_sent(self.worker, self.port, self.bucket.map(BucketRef::bucket), traffic, now);
    }

    /// The port has consumed the frame, for example a request that it answers itself, and sends
    /// nothing. A copy counts as delivered.
    pub fn consumed(&self, frame: &Frame<'_>, now: Millis) {
        self.port.counters.add_consumed(self.worker);
        if let Some(bucket) = self.bucket {
            bucket.bucket().delivered.add(self.worker, self.traffic(frame), now);
        }
    }

    /// This claim in an owned form.
    pub fn owned(&self) -> OwnedClaim {
        OwnedClaim { port: self.port.clone(), bucket: self.bucket.cloned() }
    }
}

/// The ports and the bucket that waiting frames count for.
#[derive(Clone, Debug)]
pub struct OwnedClaim {
    port: Arc<Port>,
    bucket: Option<BucketRef>,
}

impl OwnedClaim {
    /// True if `claim` counts for the same ports and bucket.
    #[inline]
    pub fn is(&self, claim: &Claim<'_>) -> bool {
        let is_same = |own: &BucketRef, other: &BucketRef| {
            Arc::ptr_eq(&own.group, &other.group) && own.index == other.index
        };
        Arc::ptr_eq(&self.port, claim.port)
            && match (&self.bucket, claim.bucket) {
                (Some(own), Some(other)) => is_same(own, other),
                (None, None) => true,
                _ => false,
            }
    }

    /// Queues frames. Only the worker `worker` may call this.
    pub fn wait(&self, worker: WorkerIndex, traffic: Traffic) {
        self.port.counters.queued().add(worker, traffic);
        if let Some(bucket) = self.bucket() {
            bucket.queued.add(worker, traffic);
        }
    }

    /// Some of the frames have left at `now`. Only the worker `worker` may call this;
    /// [none](WorkerIndex::NONE) is allowed.
    pub fn delivered(&self, worker: WorkerIndex, traffic: Traffic, now: Millis) {
        self.settle(worker, traffic);
        count_sent(worker, &self.port, self.bucket(), traffic, now);
    }

    /// Some of the frames never leave, for a reason of the egress port. Only the worker `worker`
    /// may call this; [none](WorkerIndex::NONE) is allowed.
    pub fn dropped(&self, worker: WorkerIndex, traffic: Traffic, reason: DropReason) {
        self.drop_at(&self.port, worker, traffic, reason);
    }

    fn drop_at(&self, port: &Port, worker: WorkerIndex, traffic: Traffic, reason: DropReason) {
        self.settle(worker, traffic);
        port.counters.add_drops(worker, reason, traffic.frames);
        if let Some(bucket) = self.bucket() {
            bucket.drop(worker, traffic, reason);
        }
    }

    /// Comes first, so that a reader that reads the queued frames after the sent ones sees no frame
    /// twice.
    fn settle(&self, worker: WorkerIndex, traffic: Traffic) {
        self.port.counters.queued().sub(worker, traffic);
        if let Some(bucket) = self.bucket() {
            bucket.queued.sub(worker, traffic);
        }
    }

    fn bucket(&self) -> Option<&GroupBucket> {
        self.bucket.as_ref().map(BucketRef::bucket)
    }
}

fn count_sent(
    worker: WorkerIndex,
    port: &Port,
    bucket: Option<&GroupBucket>,
    traffic: Traffic,
    now: Millis,
) {
    port.counters.add_tx(worker, traffic);
    if let Some(bucket) = bucket {
        bucket.delivered.add(worker, traffic, now);
    }
}

/// A waiting frame: counts it when it has left or never will.
#[derive(Debug)]
#[must_use = "the frame counts as queued until this is settled"]
pub struct Receipt {
    worker: WorkerIndex,
    claim: OwnedClaim,
    arrival: Option<Arc<Port>>,
    traffic: Traffic,
}

impl Receipt {
    /// The frame has left at `now`. Only the worker that made the receipt may call this.
    pub fn delivered(self, now: Millis) {
        self.claim.delivered(self.worker, self.traffic, now);
    }

    /// The next packets of the frame have left at `now`. Only the worker that made the receipt may
    /// call this.
    pub fn delivered_part(&mut self, packets: u32, now: Millis) {
        let part = self.take_part(packets);
        self.claim.delivered(self.worker, part, now);
    }

    /// The frame, or the rest of it, never leaves. Only the worker that made the receipt may call
    /// this.
    pub fn dropped(self, reason: DropReason) {
        let port = if reason.is_egress() { Some(&self.claim.port) } else { self.arrival.as_ref() };
        // A packet of the controller has no ingress port: it counts at its egress port.
        let port = port.unwrap_or(&self.claim.port);
        self.claim.drop_at(port, self.worker, self.traffic, reason);
    }

    /// Somebody else carries the frame on, and it counts as waiting there.
    pub fn handed_over(self) {
        self.claim.settle(self.worker, self.traffic);
    }

    /// The same for the next packets of the frame.
    pub fn handed_over_part(&mut self, packets: u32) {
        let part = self.take_part(packets);
        self.claim.settle(self.worker, part);
    }

    /// The waiting traffic.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The claim of the frame.
    pub fn claim(&self) -> Claim<'_> {
        let OwnedClaim { port, bucket } = &self.claim;
        let (bucket, arrival) = (bucket.as_ref(), self.arrival.as_ref());
        Claim { worker: self.worker, port, bucket, arrival }
    }

    fn take_part(&mut self, packets: u32) -> Traffic {
        let part = Traffic::packets(u64::from(packets).min(self.traffic.packets));
        self.traffic.packets -= part.packets;
        part
    }
}

/// What a frame for the controllers counts for.
#[derive(Clone, Copy, Debug)]
pub struct PacketInClaim<'a> {
    pub(crate) worker: WorkerIndex,
    /// The ingress port, real or named by a controller's packet-out; none if that port does not
    /// exist.
    pub(crate) port: Option<&'a Arc<Port>>,
    pub(crate) bucket: Option<&'a BucketRef>,
    pub(crate) traffic: Traffic,
}

impl<'a> PacketInClaim<'a> {
    /// For a frame from `port` that was read by `worker`.
    pub fn new(worker: WorkerIndex, port: &'a Arc<Port>, traffic: Traffic) -> Self {
        Self { worker, port: Some(port), bucket: None, traffic }
    }

    /// The switch has consumed the frame, which waits for a controller until the receipt is
    /// settled.
    pub fn wait(&self) -> PacketInReceipt {
        self.consume();
        if let Some(bucket) = self.bucket {
            bucket.bucket().queued.add(self.worker, self.traffic);
        }
        let (port, bucket) = (self.port.cloned(), self.bucket.cloned());
        PacketInReceipt { port, bucket, traffic: self.traffic }
    }

    /// A controller has the frame.
    pub(crate) fn delivered(&self, now: Millis) {
        self.consume();
        if let Some(bucket) = self.bucket {
            bucket.bucket().delivered.add(self.worker, self.traffic, now);
        }
    }

    fn consume(&self) {
        if let Some(port) = self.port {
            port.counters.add_consumed(self.worker);
        }
    }
}

/// A frame on its way to the controllers: counts it when it has arrived or never will. Any thread
/// may settle it.
#[derive(Debug)]
#[must_use = "the copy counts as queued until this is settled"]
pub struct PacketInReceipt {
    port: Option<Arc<Port>>,
    bucket: Option<BucketRef>,
    traffic: Traffic,
}

impl PacketInReceipt {
    /// A controller has the frame at `now`.
    pub fn delivered(self, now: Millis) {
        if let Some(bucket) = self.take_out() {
            bucket.delivered.add(WorkerIndex::NONE, self.traffic, now);
        }
    }

    /// No controller gets the frame.
    pub fn dropped(self, reason: DropReason) {
        if let Some(port) = &self.port {
            port.counters.lose_consumed(WorkerIndex::NONE, reason);
        }
        if let Some(bucket) = self.take_out() {
            bucket.drop(WorkerIndex::NONE, self.traffic, reason);
        }
    }

    /// Comes first, as for frames that wait for a port.
    fn take_out(&self) -> Option<&GroupBucket> {
        let bucket = self.bucket.as_ref()?.bucket();
        bucket.queued.sub(WorkerIndex::NONE, self.traffic);
        Some(bucket)
    }
}
