//! What waits for a port that is full, lane by lane.
//!
//! A guest receives by several rings, which processors of its own empty, and one of them may be
//! full while others are not. So may one of the sockets of a VXLAN tunnel. What goes by one ring or
//! socket is a *lane*, and each lane that is full has a [queue](EgressQueue) of its own: frames of
//! the others go their way. Any other port is one lane.
//!
//! Which lane a frame takes is a matter of its flow, and of how many rings the guest ran when the
//! first frame had to wait. It stays so until nothing waits any more, whatever rings come and go
//! meanwhile: so no frame overtakes another one of its flow. What waits in a lane leaves by the
//! ring that its flow goes by then.
//!
//! Each lane has the room of a port: a ring that nobody empties must not use up that of others.

use std::time::Instant;

use tapswitch_datapath::{DropReason, Frame, HEADROOM, Millis};
use tapswitch_openflow::Delivery;

use super::TxPort;
use super::device::flow;
use super::queue::EgressQueue;
use crate::store::Pool;

/// The lanes of a port for which something waits.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Flows are shared out among so many.
    count: usize,
    /// Those where something waits, or of which something is remembered: one at least.
    full: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    number: usize,
    queue: EgressQueue,
}

/// What has become of queues since they were looked at last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// The port has taken something of another worker.
    pub(super) has_moved: bool,
    /// A lane has taken nothing for too long.
    pub(super) has_stalled: bool,
    /// Senders wait.
    pub(super) is_held: bool,
}

impl Lanes {
    /// So many, in none of which anything waits yet.
    pub(super) fn new(count: usize) -> Self {
        Self { count, full: Vec::new() }
    }

    /// The queue of a lane, which is made if need be.
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

    /// The queue of a lane, if it has one.
    pub(super) fn queue(&self, number: usize) -> Option<&EgressQueue> {
        self.full.iter().find(|lane| lane.number == number).map(|lane| &lane.queue)
    }

    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut EgressQueue> {
        self.full.iter_mut().map(|lane| &mut lane.queue)
    }

    /// True when no frame waits.
    pub(super) fn is_empty(&self) -> bool {
        self.full.iter().all(|lane| lane.queue.is_empty())
    }

    /// Looks at the time, after an attempt to send what waits, and forgets the queues that are
    /// over.
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

    /// True when nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        self.full.is_empty()
    }
}

impl TxPort {
    /// The lane of a frame of which so many bytes are to go out, or all. The rings of a guest for
    /// which nothing waits are held.
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

    /// True when a frame has to go behind others in its lane, or is a copy that may be left out.
    pub(super) fn is_in_line(&self, lane: usize, delivery: Option<Delivery>) -> bool {
        let queue = self.lanes.as_ref().and_then(|lanes| lanes.queue(lane));
        queue.is_some_and(|it| !it.is_empty() || delivery == Some(Delivery::SampleOnPressure))
    }

    /// True when frames wait in a lane, or something is remembered of them.
    pub(super) fn is_full(&self, lane: usize) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.queue(lane).is_some())
    }

    /// Sends what waits in a lane, as far as the port takes it. Returns whether it took anything.
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
