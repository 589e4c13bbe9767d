//! Queued frames of a full port, by lane.
//!
//! A guest receives by several rings, each emptied by a processor of its own, and one may be full
//! while others are not. The same goes for the sockets of a VXLAN tunnel. Such a ring or socket is
//! a *lane*, and each full lane has a [queue](EgressQueue) of its own; frames for other lanes are
//! sent. Every other port has one lane.
//!
//! A frame's lane depends on its flow, and on the number of rings that ran when the first frame was
//! queued. This number is kept until no frame is queued, whatever rings start and stop meanwhile,
//! so no frame overtakes another of its flow. Queued frames leave by the ring that their flow uses
//! then.
//!
//! Each lane has the room of a port: a ring that nobody empties must not take the others' room.

use std::time::Instant;

use tapswitch_datapath::{DropReason, Frame, HEADROOM, Millis};
use tapswitch_openflow::Delivery;

use super::TxPort;
use super::device::flow;
use super::queue::EgressQueue;
use crate::store::Pool;

/// The lanes of a port with queued frames.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Number of lanes among which flows are distributed.
    count: usize,
    /// Lanes with queued frames or with state to keep: at least one.
    full: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    number: usize,
    queue: EgressQueue,
}

/// Changes of the queues since the last check.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// The port has taken frames of another worker.
    pub(super) has_moved: bool,
    /// A lane has taken nothing for too long.
    pub(super) has_stalled: bool,
    /// Senders wait.
    pub(super) is_held: bool,
}

impl Lanes {
    /// `count` lanes without queued frames.
    pub(super) fn new(count: usize) -> Self {
        Self { count, full: Vec::new() }
    }

    /// The queue of a lane, created if needed.
    pub(super) fn open(
        &mut self,
        number: usize,
        make: impl FnOnce() -> EgressQueue,
    ) -> &mut EgressQueue {
        let place = self.full.iter().position(|lane| lane.number == number);
        let place = place.unwrap_or_else(|| {
            self.full.push(Lane { number, queue: make() });
            self.full.len() - 1
        });
        &mut self.full[place].queue
    }

    /// The queue of a lane, if any.
    pub(super) fn queue(&self, number: usize) -> Option<&EgressQueue> {
        self.full.iter().find(|lane| lane.number == number).map(|lane| &lane.queue)
    }

    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut EgressQueue> {
        self.full.iter_mut().map(|lane| &mut lane.queue)
    }

    /// True if no frame is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.full.iter().all(|lane| lane.queue.is_empty())
    }

    /// Checks the queues' bounds, after an attempt to send queued frames, and removes the queues
    /// that have no more purpose.
    pub(super) fn follow(&mut self, now: Instant) -> Change {
        let mut change = Change::default();
        for queue in self.queues() {
            change.has_moved |= queue.notice_others(now);
            change.has_stalled |= queue.follow(now);
            change.is_held |= queue.is_held();
        }
        self.full.retain(|lane| !lane.queue.is_over());
        change
    }

    /// True if no lane has a queue.
    pub(super) fn is_over(&self) -> bool {
        self.full.is_empty()
    }
}

impl TxPort {
    /// The lane of a frame of which `snaplen` bytes, or all, are sent. A guest without queued
    /// frames must have its rings held.
    pub(super) fn lane_of(&self, frame: &Frame<'_>, snaplen: Option<usize>) -> usize {
        let count = match &self.lanes {
            Some(lanes) => lanes.count,
            None => self.device.ring_count(),
        };
        if count == 1 {
            return 0;
        }
        let head = frame.head();
        let len = head.len().min(snaplen.unwrap_or(usize::MAX));
        flow(&head[..len]) as usize % count
    }

    /// True if a frame must be queued behind others in its lane. A copy that nobody waits for is
    /// queued as long as its lane has a queue: sent at once, copies keep a slow link busy without
    /// pressing the queue, so too many were taken, and a flow with a monitor of half its rate had
    /// two thirds of its own.
    pub(super) fn is_in_line(&self, lane: usize, delivery: Option<Delivery>) -> bool {
        let waits_not = matches!(delivery, Some(Delivery::BestEffort | Delivery::SampleOnPressure));
        let queue = self.lanes.as_ref().and_then(|lanes| lanes.queue(lane));
        queue.is_some_and(|queue| waits_not || !queue.is_empty())
    }

    /// True if a lane has queued frames or state to keep.
    pub(super) fn is_full(&self, lane: usize) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.queue(lane).is_some())
    }

    /// Sends queued frames of a lane, as far as the port takes them. Returns whether it took any.
    pub(super) fn drain(
        &mut self,
        queue: &mut EgressQueue,
        pool: &mut Pool,
        now: Instant,
        at: Millis,
    ) -> bool {
        let (mut has_moved, mut is_stuck) = (false, queue.is_stuck(now));
        while let Some((bytes, waiting)) = queue.front() {
            let mut sent = self.send_waiting(bytes, waiting);
            if std::mem::take(&mut is_stuck) && sent == Err(DropReason::EgressFull) {
                sent = self.send_in_doubt(bytes, waiting);
            }
            let more = self.take_cut_done().saturating_sub(waiting.done);
            if more > 0 {
                waiting.done += more;
                self.settle_part(&mut waiting.receipt, more, at);
            }
            if sent == Err(DropReason::EgressFull) {
                self.note_full(now);
                if more > 0 {
                    queue.note_progress(now);
                    has_moved = true;
                }
                break;
            }
            has_moved = true;
            let len = (bytes.len() - HEADROOM).min(waiting.snaplen.unwrap_or(usize::MAX));
            let Some(waiting) = queue.pop(pool, now) else { break };
            match sent {
                Ok(()) => {
                    self.note_sent(len);
                    self.settle(waiting.receipt, at);
                }
                Err(reason) => waiting.receipt.dropped(reason),
            }
        }
        has_moved
    }
}
