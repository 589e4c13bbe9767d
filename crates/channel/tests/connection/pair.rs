//! Two ends, a wire between them and a clock.

use std::time::{Duration, Instant};

use tapswitch_channel::*;
use tapswitch_openflow::*;

/// Both ends. Events of the switch are recorded for the test; features requests are answered.
pub(crate) struct Pair {
    pub(crate) controller: ControllerConnection,
    pub(crate) switch: SwitchConnection,
    pub(crate) now: Instant,
    /// Bytes that the wire carries at once.
    pub(crate) chunk_len: usize,
    pub(crate) controller_events: Vec<ControllerEvent>,
    pub(crate) switch_events: Vec<SwitchEvent>,
}

impl Pair {
    /// Two ends before the handshake.
    pub(crate) fn new(config: Config) -> Self {
        let now = Instant::now();
        Self {
            controller: ControllerConnection::new(config, now),
            switch: SwitchConnection::new(config, now),
            now,
            chunk_len: usize::MAX,
            controller_events: Vec::new(),
            switch_events: Vec::new(),
        }
    }

    /// Two ends after the handshake.
    pub(crate) fn ready(config: Config) -> Self {
        let mut pair = Self::new(config);
        pair.exchange();
        let ready = ControllerEvent::Ready { features: features() };
        assert_eq!(pair.take_controller_events(), [ready]);
        assert_eq!(pair.take_switch_events(), [SwitchEvent::Ready]);
        pair
    }

    /// Carries bytes until both ends are idle.
    pub(crate) fn exchange(&mut self) {
        while self.carry_to_switch() | self.carry_to_controller() {}
    }

    /// Carries the controller's pending output; returns whether there was any.
    pub(crate) fn carry_to_switch(&mut self) -> bool {
        let bytes = self.controller.poll_transmit().to_vec();
        self.controller.handle_transmitted(bytes.len(), self.now);
        for chunk in bytes.chunks(self.chunk_len) {
            self.switch.handle_bytes(chunk, self.now);
            self.poll_switch();
        }
        !bytes.is_empty()
    }

    /// Carries the switch's pending output; returns whether there was any.
    pub(crate) fn carry_to_controller(&mut self) -> bool {
        let bytes = self.switch.poll_transmit().to_vec();
        self.switch.handle_transmitted(bytes.len(), self.now);
        self.poll_switch();
        for chunk in bytes.chunks(self.chunk_len) {
            self.controller.handle_bytes(chunk, self.now);
            self.poll_controller();
        }
        !bytes.is_empty()
    }

    /// Advances the clock to the next timer of either end, if that is within `bound`.
    pub(crate) fn step(&mut self, bound: Instant) -> bool {
        let timers = [self.controller.poll_timeout(), self.switch.poll_timeout()];
        let Some(next) = timers.into_iter().flatten().min().filter(|&next| next <= bound) else {
            return false;
        };
        self.now = self.now.max(next);
        self.controller.handle_timeout(self.now);
        self.switch.handle_timeout(self.now);
        self.poll_controller();
        self.poll_switch();
        true
    }

    /// Advances the clock by this much, carrying bytes at once.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.exchange();
        while self.step(end) {
            self.exchange();
        }
        self.now = end;
    }

    pub(crate) fn poll_switch(&mut self) {
        while let Some(event) = self.switch.poll_event() {
            if let SwitchEvent::Request(Message { xid, body: Body::FeaturesRequest }) = event {
                self.switch.reply(xid, Body::FeaturesReply(features())).unwrap();
            } else {
                self.switch_events.push(event);
            }
        }
    }

    pub(crate) fn poll_controller(&mut self) {
        while let Some(event) = self.controller.poll_event() {
            self.controller_events.push(event);
        }
    }

    pub(crate) fn take_controller_events(&mut self) -> Vec<ControllerEvent> {
        std::mem::take(&mut self.controller_events)
    }

    pub(crate) fn take_switch_events(&mut self) -> Vec<SwitchEvent> {
        std::mem::take(&mut self.switch_events)
    }

    /// Sends a request and returns its transaction ID and the events of the switch.
    pub(crate) fn ask(&mut self, body: Body) -> (u32, Vec<SwitchEvent>) {
        let xid = self.controller.send(body).unwrap();
        self.carry_to_switch();
        (xid, self.take_switch_events())
    }

    /// Sends arbitrary bytes to the switch; returns its events.
    pub(crate) fn inject(&mut self, bytes: &[u8]) -> Vec<SwitchEvent> {
        self.switch.handle_bytes(bytes, self.now);
        self.poll_switch();
        self.take_switch_events()
    }

    /// The switch's pending output, as messages.
    pub(crate) fn said_by_switch(&mut self) -> Vec<Message> {
        let bytes = self.switch.poll_transmit().to_vec();
        self.switch.handle_transmitted(bytes.len(), self.now);
        messages(&bytes)
    }
}

pub(crate) fn features() -> FeaturesReply {
    FeaturesReply {
        datapath_id: DatapathId(0x42),
        n_buffers: 0,
        n_tables: 16,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS,
    }
}

pub(crate) fn encode(xid: u32, body: Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message { xid, body }.encode(&mut bytes).unwrap();
    bytes
}

/// Parses these bytes as messages.
pub(crate) fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(len) = frame_len(bytes).unwrap() {
        let (frame, rest) = bytes.split_at(len);
        messages.push(Message::decode(frame).unwrap());
        bytes = rest;
    }
    assert!(bytes.is_empty(), "whole messages");
    messages
}

/// The errors among messages, with their transaction IDs.
pub(crate) fn errors(messages: &[Message]) -> Vec<(u32, ErrorKind)> {
    messages
        .iter()
        .filter_map(|message| match &message.body {
            Body::Error(error) => Some((message.xid, error.kind)),
            _ => None,
        })
        .collect()
}

pub(crate) fn packet_in(reason: PacketInReason) -> Body {
    Body::PacketIn(PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 60,
        reason,
        table_id: TableId(0),
        cookie: 0,
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        data: vec![0; 60],
    })
}

pub(crate) fn flow_mod() -> Body {
    Body::FlowMod(FlowMod::new(FlowModCommand::Add))
}

pub(crate) fn flow_removed() -> Body {
    Body::FlowRemoved(FlowRemoved {
        cookie: 0,
        priority: 0,
        reason: FlowRemovedReason::DELETE,
        table_id: TableId(0),
        duration_sec: 0,
        duration_nsec: 0,
        idle_timeout: 0,
        hard_timeout: 0,
        packet_count: 0,
        byte_count: 0,
        match_fields: Match::new(),
    })
}

pub(crate) fn port_status() -> Body {
    Body::PortStatus(PortStatus {
        reason: PortReason::MODIFY,
        desc: Port::new(PortNo(1), tapswitch_wire::MacAddr::ZERO, "p1", PortState::LINK_DOWN),
    })
}
