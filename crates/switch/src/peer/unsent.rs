//! Packet-ins that a connection has taken but not yet written to its socket.

use std::collections::VecDeque;
use std::sync::Arc;

use tapswitch_channel::{Config, SendError, SwitchConnection};
use tapswitch_openflow::{Body, Oxm, PacketIn, PortNo};

use crate::credits::{Credit, Credits};
use crate::fate::PacketFate;

/// Packet-ins that wait to be written. Each uses space of its frame's ingress port.
#[derive(Debug)]
pub(super) struct Unsent {
    credits: Arc<Credits>,
    /// Where each ends, in bytes since the start of the connection.
    waiting: VecDeque<(u64, Credit)>,
    /// Bytes written so far.
    written: u64,
}

impl Unsent {
    /// The limit is below the one that makes a connection busy, which then stops reading.
    pub(super) fn new(config: &Config) -> Self {
        let credits = Credits::new(config.max_unsent_len);
        Self { credits, waiting: VecDeque::new(), written: 0 }
    }

    /// Sends a packet-in if the controller wants it, and has read enough of the earlier ones.
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

    /// Notes that `len` more bytes were written.
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

/// Limit of a packet-in's own bytes, with the match fields that we send (OpenFlow 1.3.5 §7.4.1).
const HEADERS_LEN_MAX: usize = 128;
