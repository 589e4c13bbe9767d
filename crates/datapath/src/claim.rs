//! Frames that a port cannot take at once: who wants them sent, and what is counted when they are.
//!
//! [`Egress::transmit`](crate::Egress::transmit) may keep a frame and send it later. It gets a
//! [`Claim`] with each frame, which costs nothing unless it is asked; what keeps a frame makes a
//! [`Receipt`] of it, and settles that when the frame has left, or never will. Until then the frame
//! counts as *queued*, so that at any time each frame is somewhere.

use std::sync::Arc;

use tapswitch_openflow::{Delivery, PortNo};

use crate::counters::{Millis, WorkerIndex};
use crate::group::GroupBucket;
use crate::port::{Port, Traffic};
use crate::program::BucketRef;
use crate::{DropReason, Frame};

/// What has become of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The port has it.
    Now,
    /// It waits for the port. A [`Receipt`] tells how that ends.
    Later,
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

    /// Lets `frame` wait: it is queued until the receipt is settled.
    pub fn wait(&self, frame: &Frame<'_>) -> Receipt {
        let bytes = self.snaplen().map_or_else(|| frame.len(), |len| frame.part_len(len));
        let receipt = Receipt {
            worker: self.worker,
            port: self.port.clone(),
            arrival: self.arrival.cloned(),
            bucket: self.bucket.cloned(),
            traffic: Traffic::frame(bytes, frame.wire_packets()),
        };
        receipt.port.counters.queued().add(self.worker, receipt.traffic);
        if let Some(bucket) = receipt.bucket() {
            bucket.queued.add(self.worker, receipt.traffic);
        }
        receipt
    }
}

/// What is counted for a frame that waits, when it has left or will not.
#[derive(Debug)]
#[must_use = "the frame counts as queued until this is settled"]
pub struct Receipt {
    worker: WorkerIndex,
    port: Arc<Port>,
    arrival: Option<Arc<Port>>,
    bucket: Option<BucketRef>,
    traffic: Traffic,
}

impl Receipt {
    /// The frame has left at `now`. Only the worker that made the receipt may call this.
    pub fn delivered(self, now: Millis) {
        self.settle();
        self.port.counters.add_tx(self.worker, self.traffic);
        if let Some(bucket) = self.bucket() {
            bucket.delivered.add(self.worker, self.traffic, now);
        }
    }

    /// The frame never leaves. Only the worker that made the receipt may call this.
    pub fn dropped(self, reason: DropReason) {
        self.settle();
        let port = if reason.is_egress() { Some(&self.port) } else { self.arrival.as_ref() };
        // A packet of the controller's came in nowhere: it counts where it was to go.
        port.unwrap_or(&self.port).counters.add_drop(self.worker, reason);
        if let Some(bucket) = self.bucket() {
            bucket.drop(self.worker, self.traffic.packets, reason);
        }
    }

    /// First of all: whoever reads what is queued after what came out sees no frame twice.
    fn settle(&self) {
        self.port.counters.queued().sub(self.worker, self.traffic);
        if let Some(bucket) = self.bucket() {
            bucket.queued.sub(self.worker, self.traffic);
        }
    }

    fn bucket(&self) -> Option<&GroupBucket> {
        self.bucket.as_ref().map(BucketRef::bucket)
    }
}
