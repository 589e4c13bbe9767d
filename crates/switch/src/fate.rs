//! The outcome of a packet-in: whether the frame reached a controller, and if not, why.
//!
//! A worker creates a [`FrameFate`] for each frame that it sends to the controllers (`egress`); the
//! server and the controllers' connections report the outcome of its packets. So the port's
//! counters and the ledger of copies distinguish delivered frames from lost ones, although frames
//! wait in several queues on the way.
//!
//! ```text
//! a frame ── FrameFate ─┬─ a packet ── PacketFate ─┬─ a controller
//!                       └─ a packet of the train   └─ another one that wants it
//! ```
//! A packet is delivered when the connection of one of the controllers that want it has accepted
//! it. A frame is delivered when all of its packets are. The outcome is counted when the last
//! reference is dropped, so no path through the queues can omit it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tapswitch_datapath::{DropReason, PacketInReceipt};

use crate::clock;
use crate::credits::Credit;

/// The outcome of one frame.
#[derive(Debug)]
pub(crate) struct FrameFate(Mutex<Option<PacketInReceipt>>);

impl FrameFate {
    /// For a frame with this receipt; `None` if the frame is already counted.
    pub(crate) fn new(receipt: Option<PacketInReceipt>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(receipt)))
    }

    /// Notes that a packet of the frame is lost.
    pub(crate) fn lose(&self, reason: DropReason) {
        if let Some(receipt) = self.take() {
            receipt.dropped(reason);
        }
    }

    fn take(&self) -> Option<PacketInReceipt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for FrameFate {
    fn drop(&mut self) {
        if let Some(receipt) = self.take() {
            receipt.delivered(clock::coarse());
        }
    }
}

/// The outcome of one packet of a frame, for all controllers that want it.
#[derive(Debug)]
pub(crate) struct PacketFate {
    frame: Arc<FrameFate>,
    has_arrived: AtomicBool,
    was_refused: AtomicBool,
    /// Space that it uses on its way.
    _credit: Credit,
}

// Relaxed: flags, which the last owner to drop the packet sees completely.
impl PacketFate {
    pub(crate) fn new(frame: &Arc<FrameFate>, credit: Credit) -> Arc<Self> {
        let (has_arrived, was_refused) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { frame: frame.clone(), has_arrived, was_refused, _credit: credit })
    }

    /// Notes that a controller's connection has accepted it.
    pub(crate) fn arrived(&self) {
        self.has_arrived.store(true, Ordering::Relaxed);
    }

    /// Notes that a queue on its way is full.
    pub(crate) fn refused(&self) {
        self.was_refused.store(true, Ordering::Relaxed);
    }
}

impl Drop for PacketFate {
    fn drop(&mut self) {
        if !*self.has_arrived.get_mut() {
            self.frame.lose(match *self.was_refused.get_mut() {
                true => DropReason::ControllerQueueFull,
                // The controller no longer wants such packets, or has disconnected.
                false => DropReason::NoController,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_datapath::{PacketInClaim, Port, Traffic, WorkerIndex};
    use tapswitch_openflow::PortNo;
    use tapswitch_wire::MacAddr;

    use super::*;
    use crate::credits::Credits;

    fn packet(frame: &Arc<FrameFate>) -> Arc<PacketFate> {
        PacketFate::new(frame, Credits::new(2).take(PortNo(1), &[], 1).unwrap())
    }

    /// A port's consumed frames and its drops by either reason, after `action` with a frame.
    fn outcome(action: impl FnOnce(Arc<FrameFate>)) -> [u64; 3] {
        let port = Arc::new(Port::new(PortNo(1), "p1".to_owned(), MacAddr::ZERO, 1500, 1));
        let claim = PacketInClaim::new(WorkerIndex(0), &port, Traffic::frame(60, 1));
        action(FrameFate::new(Some(claim.wait())));
        let dropped = |reason| port.counters.drops().count(reason);
        let [full, gone] = [DropReason::ControllerQueueFull, DropReason::NoController].map(dropped);
        [port.counters.consumed(), full, gone]
    }

    #[test]
    fn a_packet_arrives_where_one_controller_takes_it() {
        let of = |action: fn(Arc<PacketFate>)| outcome(|frame| action(packet(&frame)));
        assert_eq!(of(|packet| packet.arrived()), [1, 0, 0]);
        let one_of_two = |packet: Arc<PacketFate>| {
            packet.refused();
            packet.arrived();
        };
        assert_eq!(of(one_of_two), [1, 0, 0]);
        assert_eq!(of(|packet| packet.refused()), [0, 1, 0]);
        assert_eq!(of(drop), [0, 0, 1], "nobody was there");
    }

    #[test]
    fn a_train_is_one_frame_and_needs_all_of_its_packets() {
        let of = |arrives: [bool; 3]| {
            outcome(|frame| {
                for arrives in arrives {
                    let packet = packet(&frame);
                    if arrives { packet.arrived() } else { packet.refused() }
                }
            })
        };
        assert_eq!(of([true; 3]), [1, 0, 0]);
        assert_eq!(of([true, false, false]), [0, 1, 0]);
    }
}
