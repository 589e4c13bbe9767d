//! Frames that a port cannot take at once: who wants them sent, and what is counted when they are.
//!
//! [`Egress::transmit`](crate::Egress::transmit) may keep a frame and send it later. It gets a
//! [`Claim`] with each frame, which costs nothing unless it is asked; what keeps a frame makes a
//! [`Receipt`] of it, and settles that when the frame has left, or never will. Until then the frame
//! counts as *queued*, so that at any time each frame is somewhere.
//!
//! Where a port keeps what it gets and somebody else carries it on, as a file does, an
//! [`OwnedClaim`] stands for any number of frames.
//!
//! A frame for the controllers leaves by no port, and may be lost on its way to them. It has a
//! claim of its own, [`PacketInClaim`], and where it takes its time a [`PacketInReceipt`].
//!
//! The packets of a train that was cut have ends of their own: those that went are sent, whatever
//! becomes of the others. The frame, and its bytes, count with the last one.

use std::sync::Arc;

use tapswitch_openflow::{Delivery, PortNo};

use crate::counters::{Millis, WorkerIndex};
use crate::group::{BucketRef, GroupBucket};
use crate::port::Port;
use crate::traffic::Traffic;
use crate::{DropReason, Frame};

/// What has become of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The port has it.
    Now,
    /// It waits for the port, or for a controller. A [`Receipt`], an [`OwnedClaim`] or a
    /// [`PacketInReceipt`] tells how that ends. Or it has ended already: see [`Claim::consumed`].
    Later,
    /// Not all of its packets went: the frame counts as dropped.
    InPart(Loss),
}

/// What becomes of a frame that is dropped, by packets. Those in neither number have been counted
/// already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Packets that went.
    pub sent: u32,
    /// Packets that did not.
    pub dropped: u32,
    /// Why not.
    pub reason: DropReason,
}

/// On whose behalf a frame is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub(crate) worker: WorkerIndex,
    /// Where the frame is to go.
    pub(crate) port: &'a Arc<Port>,
    pub(crate) bucket: Option<&'a BucketRef>,
    /// Where the frame came in; none for a packet of the controller's.
    pub(crate) arrival: Option<&'a Arc<Port>>,
}

impl<'a> Claim<'a> {
    /// For a packet that came in nowhere, to go to `port`, sent by `worker`.
    pub fn new(worker: WorkerIndex, port: &'a Arc<Port>) -> Self {
        Self { worker, port, bucket: None, arrival: None }
    }

    /// What the frame is owed when it is a copy; none for a path of its own.
    #[inline]
    pub fn delivery(&self) -> Option<Delivery> {
        self.bucket.and_then(|bucket| bucket.bucket().delivery)
    }

    /// Bytes of each packet that the copy keeps; none for all.
    pub fn snaplen(&self) -> Option<usize> {
        self.bucket.and_then(BucketRef::snaplen)
    }

    /// Where the frame came in; none for a packet of the controller's.
    pub fn in_port(&self) -> Option<PortNo> {
        self.arrival.map(|port| port.number)
    }

    /// What `frame` counts when all of it is sent.
    pub fn traffic(&self, frame: &Frame<'_>) -> Traffic {
        let bytes = self.snaplen().map_or_else(|| frame.len(), |len| frame.part_len(len));
        Traffic::frame(bytes, frame.wire_packets())
    }

    /// Lets a frame wait that counts as `traffic`: it is queued until the receipt is settled.
    pub fn wait(&self, traffic: Traffic) -> Receipt {
        let (claim, arrival) = (self.owned(), self.arrival.cloned());
        claim.wait(self.worker, traffic);
        Receipt { worker: self.worker, claim, arrival, traffic }
    }

    /// Counts the first packets of a frame of which the others wait.
    pub fn sent(&self, packets: u32, now: Millis) {
        let traffic = Traffic::packets(packets.into());
        count_sent(self.worker, self.port, self.bucket.map(BucketRef::bucket), traffic, now);
    }

    /// The port has taken the frame itself, as a question that it answers: nothing goes out. A copy
    /// is where it was to be.
    pub fn consumed(&self, frame: &Frame<'_>, now: Millis) {
        self.port.counters.add_consumed(self.worker);
        if let Some(bucket) = self.bucket {
            bucket.bucket().delivered.add(self.worker, self.traffic(frame), now);
        }
    }

    /// This claim, to be kept.
    pub fn owned(&self) -> OwnedClaim {
        OwnedClaim { port: self.port.clone(), bucket: self.bucket.cloned() }
    }
}

/// On whose behalf frames wait, for as long as they do.
#[derive(Clone, Debug)]
pub struct OwnedClaim {
    port: Arc<Port>,
    bucket: Option<BucketRef>,
}

impl OwnedClaim {
    /// True when what counts for `claim` counts here.
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

    /// Lets frames wait. Only the worker `worker` may call this.
    pub fn wait(&self, worker: WorkerIndex, traffic: Traffic) {
        self.port.counters.queued().add(worker, traffic);
        if let Some(bucket) = self.bucket() {
            bucket.queued.add(worker, traffic);
        }
    }

    /// Some of the frames have left at `now`. Only the worker `worker` may call this, which may be
    /// [none](WorkerIndex::NONE).
    pub fn delivered(&self, worker: WorkerIndex, traffic: Traffic, now: Millis) {
        self.settle(worker, traffic);
        count_sent(worker, &self.port, self.bucket(), traffic, now);
    }

    /// Some of the frames never leave, for a reason that is the egress port's. Only the worker
    /// `worker` may call this, which may be [none](WorkerIndex::NONE).
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

    /// First of all: whoever reads what is queued after what came out sees no frame twice.
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

/// What is counted for a frame that waits, when it has left or will not.
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

    /// The frame, or what is left of it, never leaves. Only the worker that made the receipt may
    /// call this.
    pub fn dropped(self, reason: DropReason) {
        let port = if reason.is_egress() { Some(&self.claim.port) } else { self.arrival.as_ref() };
        // A packet of the controller's came in nowhere: it counts where it was to go.
        let port = port.unwrap_or(&self.claim.port);
        self.claim.drop_at(port, self.worker, self.traffic, reason);
    }

    /// The frame is carried on by somebody for whom it waits from now on.
    pub fn handed_over(self) {
        self.claim.settle(self.worker, self.traffic);
    }

    /// The same of the next packets of the frame.
    pub fn handed_over_part(&mut self, packets: u32) {
        let part = self.take_part(packets);
        self.claim.settle(self.worker, part);
    }

    /// What waits.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// On whose behalf.
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

/// On whose behalf a frame goes to the controllers.
#[derive(Clone, Copy, Debug)]
pub struct PacketInClaim<'a> {
    pub(crate) worker: WorkerIndex,
    /// Where the frame came in, or so a controller says; none where there is no such port.
    pub(crate) port: Option<&'a Arc<Port>>,
    pub(crate) bucket: Option<&'a BucketRef>,
    pub(crate) traffic: Traffic,
}

impl<'a> PacketInClaim<'a> {
    /// For what came in by `port`, read by `worker`.
    pub fn new(worker: WorkerIndex, port: &'a Arc<Port>, traffic: Traffic) -> Self {
        Self { worker, port: Some(port), bucket: None, traffic }
    }

    /// The switch has taken the frame, which waits for a controller until the receipt is settled.
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

/// What is counted for a frame on its way to the controllers, when it is there or will not be. Who
/// settles it may be on any thread.
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

    /// None of them gets it.
    pub fn dropped(self, reason: DropReason) {
        if let Some(port) = &self.port {
            port.counters.lose_consumed(WorkerIndex::NONE, reason);
        }
        if let Some(bucket) = self.take_out() {
            bucket.drop(WorkerIndex::NONE, self.traffic, reason);
        }
    }

    /// First of all, as with frames that wait for a port.
    fn take_out(&self) -> Option<&GroupBucket> {
        let bucket = self.bucket.as_ref()?.bucket();
        bucket.queued.sub(WorkerIndex::NONE, self.traffic);
        Some(bucket)
    }
}
