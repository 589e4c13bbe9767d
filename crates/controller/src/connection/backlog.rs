//! What a connection has to tell the hub, while that has no room for more.
//!
//! A connection does not wait for the hub: it would not answer its switch meanwhile, which then
//! takes the controller for dead. What waits is bounded by what may be lost. Frames that the switch
//! shows come as fast as hosts send; one that is passed over is forwarded all the same, and another
//! one tells of its host. Probes of links come before those. Answers are as many as was asked, and
//! nothing of the rest may be lost: with too much of that nothing more is read.

use std::collections::VecDeque;

use tapswitch_openflow::{Body, PacketIn};
use tapswitch_wire::EtherType;
use tokio::sync::mpsc;

use crate::news::{Input, News};

/// What waits for the hub.
#[derive(Debug)]
pub(super) struct Backlog {
    to_hub: mpsc::Sender<Input>,
    waiting: VecDeque<Input>,
    /// Frames were passed over since all was told last.
    is_told: bool,
}

impl Backlog {
    pub(super) const fn new(to_hub: mpsc::Sender<Input>) -> Self {
        Self { to_hub, waiting: VecDeque::new(), is_told: false }
    }

    /// Tells this behind all that waits. Returns whether frames begin to be passed over.
    pub(super) fn push(&mut self, input: Input) -> bool {
        if self.waiting.len() >= most_before(&input) {
            return !std::mem::replace(&mut self.is_told, true);
        }
        self.waiting.push_back(input);
        self.send_as_many_as_fit();
        false
    }

    /// Whether more may be read.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Tells some of what waits as soon as the hub has room; waits for ever if there is nothing.
    pub(super) async fn send_some(&mut self) {
        if self.waiting.is_empty() {
            return std::future::pending().await;
        }
        match self.to_hub.reserve().await {
            Ok(room) => {
                if let Some(input) = self.waiting.pop_front() {
                    room.send(input);
                }
            }
            // Without a hub, there are no orders either, and the connection ends.
            Err(_) => self.waiting.clear(),
        }
        self.send_as_many_as_fit();
    }

    /// Tells all that waits.
    pub(super) async fn send_all(&mut self) {
        while !self.waiting.is_empty() {
            self.send_some().await;
        }
    }

    fn send_as_many_as_fit(&mut self) {
        while !self.waiting.is_empty()
            && let Ok(room) = self.to_hub.try_reserve()
            && let Some(input) = self.waiting.pop_front()
        {
            room.send(input);
        }
        self.is_told &= !self.waiting.is_empty();
    }
}

/// How much may wait before this is passed over.
fn most_before(input: &Input) -> usize {
    match input {
        Input::News { news: News::Message(Body::PacketIn(shown)), .. } => match is_probe(shown) {
            true => MAX_PROBES,
            false => MAX_FRAMES,
        },
        _ => usize::MAX,
    }
}

fn is_probe(shown: &PacketIn) -> bool {
    EtherType::of(&shown.data) == Some(EtherType::LLDP)
}

/// Frames that may wait, probes beside them, and all that may wait before nothing more is read.
const MAX_FRAMES: usize = 256;
const MAX_PROBES: usize = 512;
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
}
