//! Random controller messages, most of them with an error.

use std::fmt;

use tapswitch_openflow::multipart::{FlowStatsRequest, QueueStatsRequest, TableFeatures};
use tapswitch_openflow::{
    Action, AsyncConfig, AsyncMask, Body, ConfigFlags, ControllerRole, FlowModCommand, GroupId,
    Header, METER_ALL, Message, MessageType, MeterBand, MeterBandKind, MeterFlags, MeterMod,
    MeterModCommand, MultipartRequest, MultipartRequestBody, PacketOut, PortConfig, PortFeatures,
    PortMod, PortNo, QueueGetConfigRequest, RoleMessage, SwitchConfig, TableId, TableMod,
};
use tapswitch_wire::MacAddr;

use crate::frames::Frame;
use crate::known::Frames;
use crate::pipeline::modification;
use crate::random::Random;
use crate::text::hex;

/// A message without its header.
pub(crate) struct Sent {
    pub(crate) message_type: u8,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    pub(crate) fn random(random: &mut Random) -> Self {
        let mut bytes = Vec::new();
        Message { xid: 0, body: body(random) }.encode(&mut bytes).unwrap();
        let (message_type, mut body) = (bytes[1], bytes.split_off(Header::LEN));
        // Once at most: with two errors, either may be reported.
        if random.chance(70) {
            damage(random, &mut body);
        }
        // If more parts of a request are announced, Open vSwitch reports a while later that none
        // came.
        if message_type == MessageType::MultipartRequest as u8 && body.len() >= 4 {
            body[2..4].fill(0);
        }
        Self { message_type, body }
    }

    /// Whether it modifies existing rules.
    pub(crate) fn modifies_rules(&self) -> bool {
        let commands = [FlowModCommand::Modify as u8, FlowModCommand::ModifyStrict as u8];
        let is_command = |command| commands.contains(command);
        self.message_type == MessageType::FlowMod as u8 && self.body.get(17).is_some_and(is_command)
    }

    /// Whether it sets a miss_send_len of 0. Open vSwitch then reports 128, the default.
    pub(crate) fn sets_no_len(&self) -> bool {
        self.message_type == MessageType::SetConfig as u8 && self.body.ends_with(&[0, 0])
    }

    /// The message with a header.
    fn bytes(&self) -> Vec<u8> {
        let len = u16::try_from(Header::LEN + self.body.len()).unwrap();
        let mut bytes = vec![tapswitch_openflow::VERSION, self.message_type];
        bytes.extend(len.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.body);
        bytes
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Message::decode(&self.bytes()).map(|message| message.body) {
            Ok(Body::FlowMod(flow_mod)) => write!(f, "flow {flow_mod}")?,
            Ok(Body::GroupMod(group_mod)) => write!(f, "group {group_mod}")?,
            Ok(body) => write!(f, "{body:?}")?,
            Err(error) => write!(f, "{error}")?,
        }
        write!(f, "; type {}, behind the header {}", self.message_type, hex(&self.body))
    }
}

/// Truncates, extends or overwrites the body.
fn damage(random: &mut Random, body: &mut Vec<u8>) {
    if body.is_empty() {
        return;
    }
    match random.below(4) {
        0 => body.truncate(random.below(body.len() + 1)),
        1 => body.resize(body.len() + random.pick(&[1, 4, 8]), 0),
        _ => {
            let at = random.below(body.len());
            let any = random.bytes(1)[0];
            body[at] = random.pick(&[0, 1, 0xff, any, 8, 16]);
        }
    }
}

fn body(random: &mut Random) -> Body {
    match random.below(20) {
        0..6 => modification(random),
        6 => packet_out(random),
        7..11 => request(random),
        11 => meter_mod(random),
        12 => Body::RoleRequest(RoleMessage {
            role: random.pick(&[
                ControllerRole::NoChange,
                ControllerRole::Equal,
                ControllerRole::Equal,
                ControllerRole::Master,
                ControllerRole::Slave,
            ]),
            generation_id: random.pick(&[0, 1, 5, 6, u64::MAX]),
        }),
        13 => Body::TableMod(TableMod {
            table_id: TableId(random.pick(&[0, 1, 255])),
            config: random.pick(&[0, 3]),
        }),
        14 => Body::QueueGetConfigRequest(QueueGetConfigRequest {
            port: PortNo(random.pick(&[1, u32::MAX, 77])),
        }),
        15 => port_mod(random),
        16 => random.pick(&[Body::GetAsyncRequest, Body::GetConfigRequest]),
        17 => Body::SetAsync(async_config(random)),
        18 => request_of_tables(random),
        _ => Body::SetConfig(SwitchConfig {
            flags: ConfigFlags(random.pick(&[0, 0, 1, 3])),
            miss_send_len: random.pick(&[128, 0xffff, 0xffe6]),
        }),
    }
}

fn packet_out(random: &mut Random) -> Body {
    let Frame { port, bytes } = Frame::random(random, Frames::of(&[]));
    let in_port = random.pick(&[PortNo(port), PortNo::CONTROLLER]);
    let actions = vec![Action::output(random.pick(&[PortNo(3), PortNo::CONTROLLER]))];
    Body::PacketOut(PacketOut { in_port, ..PacketOut::new(bytes, actions) })
}

/// With the address of no port: a successful port-mod would affect later messages.
fn port_mod(random: &mut Random) -> Body {
    Body::PortMod(PortMod {
        port_no: PortNo(random.pick(&[1, 3, 77, PortNo::CONTROLLER.0, PortNo::ANY.0])),
        hw_addr: MacAddr([2, 0, 0, 0, 0, 77]),
        config: PortConfig::NO_FWD,
        mask: PortConfig::NO_FWD,
        advertise: PortFeatures::empty(),
    })
}

fn async_config(random: &mut Random) -> AsyncConfig {
    let mut mask = || AsyncMask {
        packet_in: random.pick(&[0, 3, 7]),
        port_status: random.pick(&[0, 7]),
        flow_removed: random.pick(&[0, 5, 15]),
    };
    AsyncConfig { master: mask(), slave: mask() }
}

fn request_of_tables(random: &mut Random) -> Body {
    let tables = match random.below(3) {
        0 => Vec::new(),
        _ => vec![TableFeatures { table_id: TableId(random.pick(&[0, 3])), ..Default::default() }],
    };
    Body::MultipartRequest(MultipartRequest::new(MultipartRequestBody::TableFeatures(tables)))
}

fn meter_mod(random: &mut Random) -> Body {
    let bands = vec![MeterBand { rate: 100, burst_size: 0, kind: MeterBandKind::Drop }];
    let commands = [MeterModCommand::Add, MeterModCommand::Modify, MeterModCommand::Delete];
    let command = random.pick(&commands);
    let meter_id = random.pick(&[1, 2, METER_ALL]);
    Body::MeterMod(MeterMod { command, flags: MeterFlags::KBPS, meter_id, bands })
}

fn request(random: &mut Random) -> Body {
    use MultipartRequestBody::*;
    let rules = FlowStatsRequest::default;
    let group = GroupId(random.pick(&[1, GroupId::ALL.0, 77]));
    let port = PortNo(random.pick(&[1, u32::MAX, 77]));
    let meter = random.pick(&[1, METER_ALL]);
    let body = match random.below(15) {
        0 => Desc,
        1 | 2 => Flow(rules()),
        3 | 4 => Aggregate(rules()),
        5 => Table,
        6 => PortStats(port),
        7 => Queue(QueueStatsRequest { port_no: port, queue_id: random.pick(&[0, u32::MAX]) }),
        8 => Group(group),
        9 => GroupDesc,
        10 => GroupFeatures,
        11 => Meter(meter),
        12 => MeterConfig(meter),
        13 => MeterFeatures,
        _ => PortDesc,
    };
    Body::MultipartRequest(MultipartRequest::new(body))
}
