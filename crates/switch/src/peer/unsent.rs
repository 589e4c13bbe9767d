//! Packet-ins that a connection has taken and its socket has not.

use std::collections::VecDeque;
use std::sync::Arc;

use tapswitch_channel::{Config, SendError, SwitchConnection};
use tapswitch_openflow::{Body, Oxm, PacketIn, PortNo};

use crate::credits::{Credit, Credits};
use crate::fate::PacketFate;

/// Packet-ins that wait to be written. Each takes up room of the port of its frame.
#[derive(Debug)]
pub(super) struct Unsent {
    credits: Arc<Credits>,
    /// Where each ends, in bytes since the connection began.
    waiting: VecDeque<(u64, Credit)>,
    /// Bytes that were written.
    written: u64,
}

impl Unsent {
    /// Less waits than would make a connection of this kind busy, which then reads no more.
    pub(super) fn new(config: &Config) -> Self {
        let credits = Credits::new(config.max_unsent_len);
        Self { credits, waiting: VecDeque::new(), written: 0 }
    }

    /// Sends a packet-in if the controller wants it, and has read enough of what was sent before.
    pub(super) fn tell(
        &mut self,
        connection: &mut SwitchConnection,
        packet: PacketIn,
        fate: Option<&PacketFate>,
    ) {
        let len = packet.data.len() + HEADERS_LEN_MAX;
        let Some(credit) = self.credits.take(in_port(&packet), &packet.data, len) else {
            return fate.into_iter().for_each(PacketFate::refused);
        };
        match connection.notify(Body::PacketIn(packet)) {
            Ok(true) => {
                fate.into_iter().for_each(PacketFate::arrived);
                let end = self.written + connection.poll_transmit().len() as u64;
                self.waiting.push_back((end, credit));
            }
            Err(SendError::Busy { .. }) => fate.into_iter().for_each(PacketFate::refused),
            _ => {}
        }
    }

    /// `len` bytes more were written.
    pub(super) fn handle_transmitted(&mut self, len: usize) {
        self.written += len as u64;
        while self.waiting.front().is_some_and(|(end, _)| *end <= self.written) {
            self.waiting.pop_front();
        }
    }
}

fn in_port(packet: &PacketIn) -> PortNo {
    let port = |field: &Oxm| match field {
        Oxm::InPort(port) => Some(*port),
        _ => None,
    };
    packet.match_fields.iter().find_map(port).unwrap_or(PortNo::ANY)
}

/// What a packet-in needs at most for itself, with the matches that we send (OpenFlow 1.3.5
/// §7.4.1).
const HEADERS_LEN_MAX: usize = 128;
