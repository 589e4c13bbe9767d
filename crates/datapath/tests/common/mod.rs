//! A switch without I/O: a pipeline, one forwarder, and an egress that records what it was given.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a panic fails a test; test data"
)]

use std::net::Ipv4Addr;

use tapswitch_datapath::{
    Arrival, Claim, DropReason, Egress, Forwarder, Frame, HEADROOM, Loss, MacLearning, Millis,
    PacketInClaim, PacketInOrigin, PacketInReceipt, Pipeline, Port, Receipt, Removal, Sent,
    Sighting, View, WorkerIndex,
};
use tapswitch_openflow::{
    Action, Bucket, ErrorKind, FlowMod, FlowModCommand, GroupId, GroupMod, GroupModCommand,
    GroupType, Instruction, Match, Oxm, PortNo, TableId,
};
use tapswitch_wire::checksum::{Sum, pseudo_header_v4};
use tapswitch_wire::{EtherType, MacAddr, NetHeader, ip_proto};

/// What left the switch, in order.
#[derive(Debug, Default)]
pub struct Recorder {
    pub sent: Vec<(u32, Vec<u8>, NetHeader)>,
    pub packet_ins: Vec<(PacketInOrigin, Vec<u8>)>,
    /// Ports that got the first bytes of each packet, and how many.
    pub snaplens: Vec<(u32, usize)>,
    pub sightings: Vec<Sighting>,
    pub refuse: Option<(u32, DropReason)>,
    /// A port that takes only a part of each frame, and which.
    pub part: Option<(u32, Loss)>,
    /// A port that is full, and what waits for it.
    pub full: Option<u32>,
    pub receipts: Vec<Receipt>,
    /// The controller takes its frames later, and what waits for it.
    pub is_told_later: bool,
    pub told: Vec<PacketInReceipt>,
}

impl Egress for Recorder {
    fn transmit(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        match self.refuse {
            Some((refused, reason)) if refused == port.0 => Err(reason),
            _ if self.part.is_some_and(|(part, _)| part == port.0) => {
                Ok(self.part.map_or(Sent::Now, |(_, loss)| Sent::InPart(loss)))
            }
            _ if self.full == Some(port.0) => {
                self.receipts.push(claim.wait(claim.traffic(frame)));
                Ok(Sent::Later)
            }
            _ => {
                self.sent.push((port.0, bytes(frame), frame.meta));
                Ok(Sent::Now)
            }
        }
    }

    fn transmit_part(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
        snaplen: usize,
    ) -> Result<Sent, DropReason> {
        assert_eq!(claim.snaplen(), Some(snaplen));
        self.snaplens.push((port.0, snaplen));
        self.transmit(port, frame, claim)
    }

    fn packet_in(
        &mut self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        claim: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason> {
        self.packet_ins.push((*origin, bytes(frame)));
        let Some(claim) = claim.filter(|_| self.is_told_later) else { return Ok(Sent::Now) };
        self.told.push(claim.wait());
        Ok(Sent::Later)
    }

    fn learn(&mut self, sighting: Sighting) {
        self.sightings.push(sighting);
    }
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    frame.parts().fold(frame.head().to_vec(), |bytes, part| [&bytes, part].concat())
}

pub struct Switch {
    pub pipeline: Pipeline,
    pub forwarder: Forwarder,
    pub macs: MacLearning,
    pub out: Recorder,
    pub now: Millis,
}

impl Switch {
    /// Ports 1 to `ports`, MTU 1500, with an envelope for many tags.
    pub fn new(ports: u32) -> Self {
        let mut pipeline = Pipeline::new(1);
        for number in 1..=ports {
            let mac = MacAddr([2, 0xff, 0, 0, 0, number as u8]);
            let port = Port::new(PortNo(number), format!("p{number}"), mac, 1500, 1);
            assert!(pipeline.set_port(Port { envelope: 64, ..port }));
        }
        Self {
            pipeline,
            forwarder: Forwarder::new(WorkerIndex(0)),
            macs: MacLearning::new(Millis(300_000), 1024),
            out: Recorder::default(),
            now: Millis(1000),
        }
    }

    pub fn flow(&mut self, table: u8, priority: u16, fields: &[Oxm], instructions: &[Instruction]) {
        self.try_flow(table, priority, fields, instructions).unwrap();
    }

    pub fn try_flow(
        &mut self,
        table: u8,
        priority: u16,
        fields: &[Oxm],
        instructions: &[Instruction],
    ) -> Result<Vec<Removal>, ErrorKind> {
        let change = FlowMod {
            table_id: TableId(table),
            priority,
            match_fields: matching(fields),
            instructions: instructions.to_vec(),
            ..FlowMod::new(FlowModCommand::Add)
        };
        self.pipeline.handle_flow_mod(&change, self.now)
    }

    pub fn group(&mut self, id: u32, group_type: GroupType, buckets: Vec<Bucket>) {
        self.try_group(id, group_type, buckets).unwrap();
    }

    pub fn try_group(
        &mut self,
        id: u32,
        group_type: GroupType,
        buckets: Vec<Bucket>,
    ) -> Result<Vec<Removal>, ErrorKind> {
        let command = GroupModCommand::Add;
        let change = GroupMod { command, group_type, group_id: GroupId(id), buckets };
        self.pipeline.handle_group_mod(&change, self.now)
    }

    /// Sends one frame into `port`, as a burst of its own; returns the ports it left by, in order.
    pub fn receive(&mut self, port: u32, frame: &[u8]) -> Vec<u32> {
        self.receive_with(port, frame, NetHeader::PLAIN)
    }

    pub fn receive_with(&mut self, port: u32, frame: &[u8], meta: NetHeader) -> Vec<u32> {
        let ports = self.handle(port, frame, meta);
        self.end_burst();
        ports
    }

    /// Sends one frame of a burst into `port`; returns the ports it left by, in order.
    pub fn handle(&mut self, port: u32, frame: &[u8], meta: NetHeader) -> Vec<u32> {
        self.out.sent.clear();
        let mut buf = [vec![0; HEADROOM], frame.to_vec()].concat();
        let snapshot = self.pipeline.snapshot().clone();
        let mode = snapshot.ports.find(PortNo(port)).and_then(|port| port.mode.as_deref());
        let arrival =
            Arrival { in_port: PortNo(port), meta, buf: &mut buf, start: HEADROOM, beyond_len: 0 };
        let view = View { snapshot: &snapshot, macs: self.macs.table(), now: self.now };
        let arrival = match mode {
            Some(mode) => self.forwarder.admit(view, mode, arrival, None),
            None => Some(arrival),
        };
        if let Some(arrival) = arrival {
            self.forwarder.handle(view, arrival, &mut self.out);
        }
        for sighting in self.out.sightings.drain(..) {
            self.macs.handle_sighting(sighting, self.now);
        }
        self.out.sent.iter().map(|(port, ..)| *port).collect()
    }

    pub fn end_burst(&mut self) {
        self.forwarder.end_burst(self.now);
    }

    pub fn packet_out(&mut self, in_port: PortNo, frame: &[u8], actions: &[Action]) -> Vec<u32> {
        self.out.sent.clear();
        let mut buf = [vec![0; HEADROOM], frame.to_vec()].concat();
        let arrival = Arrival {
            in_port,
            meta: NetHeader::PLAIN,
            buf: &mut buf,
            start: HEADROOM,
            beyond_len: 0,
        };
        let snapshot = self.pipeline.snapshot().clone();
        let view = View { snapshot: &snapshot, macs: self.macs.table(), now: self.now };
        self.forwarder.handle_packet_out(view, arrival, actions, &mut self.out).unwrap();
        self.out.sent.iter().map(|(port, ..)| *port).collect()
    }

    /// The bytes of the last frame that left by `port`.
    pub fn sent(&self, port: u32) -> &[u8] {
        let found = self.out.sent.iter().rev().find(|(to, ..)| *to == port);
        &found.unwrap_or_else(|| panic!("nothing left by port {port}")).1
    }

    pub fn drops(&self, port: u32, reason: DropReason) -> u64 {
        self.port(port).counters.drops().count(reason)
    }

    /// Changes a port.
    pub fn set_port(&mut self, port: u32, change: impl FnOnce(&mut Port)) {
        let mut port = self.port(port);
        change(&mut port);
        assert!(self.pipeline.set_port(port));
    }

    pub fn port(&self, port: u32) -> Port {
        Port::clone(self.pipeline.snapshot().ports.find(PortNo(port)).unwrap())
    }
}

pub fn matching(fields: &[Oxm]) -> Match {
    fields.iter().fold(Match::new(), |matching, field| matching.with(field.clone()))
}

pub fn out(port: u32) -> Action {
    Action::output(PortNo(port))
}

pub fn apply(actions: &[Action]) -> Instruction {
    Instruction::ApplyActions(actions.to_vec())
}

pub fn write(actions: &[Action]) -> Instruction {
    Instruction::WriteActions(actions.to_vec())
}

pub fn goto(table: u8) -> Instruction {
    Instruction::GotoTable(TableId(table))
}

pub fn ip() -> Oxm {
    Oxm::EthType(EtherType::IPV4)
}

pub fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

pub fn host(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// A frame over IPv4 from station 1 to station 2.
#[derive(Clone, Debug)]
pub struct Ip {
    pub src: u8,
    pub dst: u8,
    pub protocol: u8,
    pub src_port: u16,
    pub dst_port: u16,
    pub ttl: u8,
    pub tags: Vec<u32>,
    pub payload: usize,
}

pub fn tcp() -> Ip {
    Ip {
        src: 1,
        dst: 2,
        protocol: ip_proto::TCP,
        src_port: 40_000,
        dst_port: 80,
        ttl: 64,
        tags: Vec::new(),
        payload: 100,
    }
}

pub fn udp() -> Ip {
    Ip { protocol: ip_proto::UDP, ..tcp() }
}

impl Ip {
    pub fn bytes(&self) -> Vec<u8> {
        let transport = self.transport();
        let total_len = (20 + transport.len()) as u16;
        let mut frame = [mac(self.dst).0, mac(self.src).0].concat();
        self.tags.iter().for_each(|tag| frame.extend(tag.to_be_bytes()));
        frame.extend([0x08, 0x00]);
        let start = frame.len();
        frame.extend([0x45, 0x00]);
        frame.extend(total_len.to_be_bytes());
        frame.extend([0, 1, 0x40, 0, self.ttl, self.protocol, 0, 0]);
        frame.extend(host(self.src).octets());
        frame.extend(host(self.dst).octets());
        let checksum = Sum::of(&frame[start..]).checksum();
        frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(transport);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        let (header_len, field) = if self.protocol == ip_proto::TCP { (20, 16) } else { (8, 6) };
        let mut bytes = [self.src_port.to_be_bytes(), self.dst_port.to_be_bytes()].concat();
        bytes.resize(header_len, 0);
        if self.protocol == ip_proto::TCP {
            bytes[12] = 0x50;
        } else {
            bytes[4..6].copy_from_slice(&((8 + self.payload) as u16).to_be_bytes());
        }
        bytes.extend((0..self.payload).map(|i| i as u8));
        let len = bytes.len() as u16;
        let (src, dst) = (host(self.src).octets(), host(self.dst).octets());
        let sum = pseudo_header_v4(&src, &dst, self.protocol, len).add_bytes(&bytes);
        bytes[field..field + 2].copy_from_slice(&sum.checksum().to_be_bytes());
        bytes
    }
}

/// Checks the checksums of an untagged frame over IPv4 without options.
pub fn assert_checksums(frame: &[u8]) {
    let upper = &frame[34..];
    let (src, dst) = (&frame[26..30], &frame[30..34]);
    assert_eq!(Sum::of(&frame[14..34]).partial(), 0xffff, "IPv4 header checksum");
    let sum = pseudo_header_v4(src, dst, frame[23], upper.len() as u16).add_bytes(upper);
    assert_eq!(sum.partial(), 0xffff, "transport checksum");
}
