//! News for the hub, queued while the hub has no room.
//!
//! A connection never waits for the hub, as it could not answer echo requests meanwhile, and the
//! switch would take the controller for dead. The queue is bounded by dropping what may be lost.
//! Packet-ins arrive as fast as hosts send; the frame of a dropped one is forwarded all the same,
//! and another one reveals its host. Discovery probes come before other packet-ins. There are no
//! more replies than requests, and no other message may be lost; if too many of these are queued,
//! reading stops. Until then they do not displace packet-ins: when a policy is deleted, a switch
//! sends thousands of flow-removed at once, and dropped probes would make links seem dead.

use std::collections::VecDeque;

use tapswitch_openflow::{Body, PacketIn};
use tapswitch_wire::EtherType;
use tokio::sync::mpsc;

use crate::news::{Input, News};

/// Queued news.
#[derive(Debug)]
pub(super) struct Backlog {
    to_hub: mpsc::Sender<Input>,
    waiting: VecDeque<Input>,
    /// Number of packet-ins among them, including probes.
    frames: usize,
    /// Packet-ins were dropped since the queue was last empty.
    is_told: bool,
}

impl Backlog {
    pub(super) const fn new(to_hub: mpsc::Sender<Input>) -> Self {
        Self { to_hub, waiting: VecDeque::new(), frames: 0, is_told: false }
    }

    /// Queues an input. Returns whether dropping of packet-ins has just begun.
    pub(super) fn push(&mut self, input: Input) -> bool {
        if let Some(frame) = frame_of(&input) {
            if self.frames >= most_before(frame) {
                return !std::mem::replace(&mut self.is_told, true);
            }
            self.frames += 1;
        }
        self.waiting.push_back(input);
        self.send_as_many_as_fit();
        false
    }

    /// Whether more may be read.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Sends some of the queue as soon as the hub has room; waits forever if it is empty.
    pub(super) async fn send_some(&mut self) {
        if self.waiting.is_empty() {
            return std::future::pending().await;
        }
        match self.to_hub.reserve().await {
            Ok(room) => {
                if let Some(input) = take(&mut self.waiting, &mut self.frames) {
                    room.send(input);
                }
            }
            // Without a hub there are no orders either, and the connection ends.
            Err(_) => (self.frames, self.waiting) = (0, VecDeque::new()),
        }
        self.send_as_many_as_fit();
    }

    /// Sends the whole queue.
    pub(super) async fn send_all(&mut self) {
        while !self.waiting.is_empty() {
            self.send_some().await;
        }
    }

    fn send_as_many_as_fit(&mut self) {
        while !self.waiting.is_empty()
            && let Ok(room) = self.to_hub.try_reserve()
            && let Some(input) = take(&mut self.waiting, &mut self.frames)
        {
            room.send(input);
        }
        self.is_told &= !self.waiting.is_empty();
    }
}

/// Removes the oldest input, and updates the number of packet-ins.
fn take(waiting: &mut VecDeque<Input>, frames: &mut usize) -> Option<Input> {
    let input = waiting.pop_front()?;
    *frames -= usize::from(frame_of(&input).is_some());
    Some(input)
}

/// The packet-in of this input, if it is one.
fn frame_of(input: &Input) -> Option<&PacketIn> {
    match input {
        Input::News { news: News::Message(Body::PacketIn(shown)), .. } => Some(shown),
        _ => None,
    }
}

/// Number of queued packet-ins from which on this one is dropped.
fn most_before(frame: &PacketIn) -> usize {
    match EtherType::of(&frame.data) {
        Some(EtherType::LLDP) => MAX_PROBES,
        _ => MAX_FRAMES,
    }
}

/// Maximum packet-ins in the queue, the same for probes, and the maximum of all input before
/// reading stops.
///
/// A switch with a thousand ports sends a thousand probes at once, in port order: with less room,
/// those of the same ports would be dropped each time, and their links would seem dead.
const MAX_FRAMES: usize = 256;
const MAX_PROBES: usize = 3072;
const MAX_WAITING: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::news::ConnectionId;
    use tapswitch_openflow::{BufferId, DatapathId, Match, PacketInReason, TableId};

    fn input(body: Body) -> Input {
        let (connection, switch) = (ConnectionId::next(), DatapathId(1));
        Input::News { connection, session: 0, switch, news: News::Message(body) }
    }

    fn shown(eth_type: EtherType) -> Input {
        let mut data = vec![0; 60];
        data[12..14].copy_from_slice(&eth_type.0.to_be_bytes());
        input(Body::PacketIn(PacketIn {
            buffer_id: BufferId::NO_BUFFER,
            total_len: 60,
            reason: PacketInReason::NO_MATCH,
            table_id: TableId(0),
            cookie: 0,
            match_fields: Match::new(),
            data,
        }))
    }

    #[tokio::test]
    async fn frames_are_passed_over_before_anything_else_is() {
        let (to_hub, mut hub) = mpsc::channel(1);
        let mut backlog = Backlog::new(to_hub);
        let told = (0..1000).filter(|_| backlog.push(shown(EtherType::ARP))).count();
        assert_eq!((told, backlog.waiting.len()), (1, MAX_FRAMES), "it is told once");
        (0..1000).for_each(|_| _ = backlog.push(shown(EtherType::LLDP)));
        assert_eq!(backlog.waiting.len(), MAX_FRAMES + 1000, "those of a large switch");
        (0..MAX_PROBES).for_each(|_| _ = backlog.push(shown(EtherType::LLDP)));
        assert_eq!(backlog.waiting.len(), MAX_PROBES);
        assert!(backlog.has_room());
        (0..MAX_WAITING).for_each(|_| _ = backlog.push(input(Body::BarrierReply)));
        assert_eq!(backlog.waiting.len(), MAX_PROBES + MAX_WAITING, "nothing of it is lost");
        assert!(!backlog.has_room());

        let reading = tokio::spawn(async move {
            let mut count = 0;
            while hub.recv().await.is_some() {
                count += 1;
            }
            count
        });
        backlog.send_all().await;
        assert!(!backlog.push(shown(EtherType::ARP)) && backlog.has_room());
        backlog.send_all().await;
        drop(backlog);
        assert_eq!(reading.await.unwrap(), 1 + MAX_PROBES + MAX_WAITING + 1);
    }

    #[tokio::test]
    async fn what_is_no_frame_keeps_no_frame_out() {
        let (to_hub, mut hub) = mpsc::channel(1);
        let mut backlog = Backlog::new(to_hub);
        // One of them is being sent.
        (0..MAX_WAITING).for_each(|_| _ = backlog.push(input(Body::BarrierReply)));
        for eth_type in [EtherType::ARP, EtherType::LLDP] {
            assert!(!backlog.push(shown(eth_type)), "there is room for {eth_type:?}");
        }
        assert_eq!((backlog.waiting.len(), backlog.frames), (MAX_WAITING + 1, 2));
        let reading = tokio::spawn(async move { while hub.recv().await.is_some() {} });
        backlog.send_all().await;
        assert_eq!(backlog.frames, 0);
        drop(backlog);
        reading.await.unwrap();
    }
}
