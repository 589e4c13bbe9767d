//! Checks which error each fault produces, and that its text names the position.

use tapswitch_openflow::multipart::*;
use tapswitch_openflow::*;
use tapswitch_wire::EtherType;

use crate::{encode, set_len};

/// Bytes of a message of this type with this body.
fn framed(message_type: MessageType, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![VERSION, message_type as u8, 0, 0, 0, 0, 0, 7];
    bytes.extend_from_slice(body);
    set_len(&mut bytes);
    bytes
}

/// Bytes of a flow-mod with this command, and this match and instructions.
fn flow_mod(command: u8, rest: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 40];
    body[17] = command;
    body.extend_from_slice(rest);
    framed(MessageType::FlowMod, &body)
}

/// Bytes of a flow-mod that applies this action.
fn flow_mod_with_action(action: &[u8]) -> Vec<u8> {
    let len = action.len() as u8 + 8;
    let mut rest = vec![0, 1, 0, 4, 0, 0, 0, 0, 0, 4, 0, len, 0, 0, 0, 0];
    rest.extend_from_slice(action);
    flow_mod(0, &rest)
}

#[track_caller]
fn check_bytes(bytes: &[u8], kind: ErrorKind, text: &str) {
    match Message::decode(bytes) {
        Err(DecodeError::Message(error)) => {
            assert_eq!((error.kind, error.text.as_str()), (kind, text));
            assert_eq!(error.xid, 7);
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check_body(body: Body, kind: ErrorKind) {
    let message = Message { xid: 7, body };
    assert_eq!(Message::decode(&encode(&message)).as_ref(), Ok(&message), "it can be read");
    assert_eq!(message.check().map_err(|error| error.kind), Err(kind));
}

#[test]
fn headers() {
    let mut bytes = framed(MessageType::EchoRequest, &[]);
    bytes[0] = 1;
    let text = "header at byte 0: version 0x01 is not 0x04";
    check_bytes(&bytes, ErrorKind::OFPBRC_BAD_VERSION, text);
    let mut bytes = framed(MessageType::EchoRequest, &[]);
    bytes[1] = 30;
    check_bytes(&bytes, ErrorKind::OFPBRC_BAD_TYPE, "header at byte 1: unknown type 30");
}

#[test]
fn features_of_tables_that_do_not_add_up() {
    let start = [0, 12, 0, 0, 0, 0, 0, 0];
    for (features, text) in [
        (vec![0; 64], "at byte 18: length 0 is below 2"),
        ([&[0, 80][..], &[0; 62]].concat(), "at byte 18: 78 bytes expected, 62 left"),
        (vec![0], "at byte 16: 2 bytes expected, 1 left"),
    ] {
        check_bytes(
            &framed(MessageType::MultipartRequest, &[&start[..], &features].concat()),
            ErrorKind::OFPTFFC_BAD_LEN,
            &format!("multipart_request: table_features {text}"),
        );
    }
}

#[test]
fn unknown_commands_and_types() {
    let any = [0, 1, 0, 4, 0, 0, 0, 0];
    check_bytes(
        &flow_mod(9, &any),
        ErrorKind::OFPFMFC_BAD_COMMAND,
        "flow_mod at byte 25: unknown command 9",
    );
    check_bytes(
        &framed(MessageType::GroupMod, &[0, 9, 0, 0, 0, 0, 0, 1]),
        ErrorKind::OFPGMFC_BAD_COMMAND,
        "group_mod at byte 8: unknown command 9",
    );
    check_bytes(
        &framed(MessageType::GroupMod, &[0, 0, 9, 0, 0, 0, 0, 1]),
        ErrorKind::OFPGMFC_BAD_TYPE,
        "group_mod at byte 10: unknown type of group 9",
    );
    check_bytes(
        &framed(MessageType::MeterMod, &[0, 9, 0, 0, 0, 0, 0, 1]),
        ErrorKind::OFPMMFC_BAD_COMMAND,
        "meter_mod at byte 8: unknown command 9",
    );
    check_bytes(
        &framed(MessageType::RoleRequest, &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ErrorKind::OFPRRFC_BAD_ROLE,
        "role_request at byte 8: unknown role 9",
    );
    check_bytes(
        &framed(MessageType::MultipartRequest, &[0, 99, 0, 0, 0, 0, 0, 0]),
        ErrorKind::OFPBRC_BAD_MULTIPART,
        "multipart_request at byte 16: unknown type of multipart 99",
    );
}

#[test]
fn matches_that_cannot_be_read() {
    check_bytes(
        &flow_mod(0, &[0, 0, 0, 4, 0, 0, 0, 0]),
        ErrorKind::OFPBMC_BAD_TYPE,
        "flow_mod: match at byte 48: type 0 is not OFPMT_OXM",
    );
    check_bytes(
        &flow_mod(0, &[0, 1, 0, 3, 0, 0, 0, 0]),
        ErrorKind::OFPBMC_BAD_LEN,
        "flow_mod: match at byte 52: length 3 is below 4",
    );
    check_bytes(
        &flow_mod(0, &[0, 1, 0, 11, 0x80, 0, 22, 3, 10, 0, 0, 0, 0, 0, 0, 0]),
        ErrorKind::OFPBMC_BAD_LEN,
        "flow_mod: match: oxm ipv4_src at byte 52: length 3, expected 4",
    );
    check_bytes(
        &flow_mod(0, &[0, 1, 0, 16, 0x80, 0, 1, 8, 0, 0, 0, 1, 0, 0, 0, 1]),
        ErrorKind::OFPBMC_BAD_MASK,
        "flow_mod: match: oxm in_port at byte 52: the field cannot have a mask",
    );
}

#[test]
fn buckets_that_do_not_add_up() {
    let bucket = |len: u8, actions: &[u8]| {
        let mut body = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, len, 0, 0];
        body.extend([0xff; 8]);
        body.extend([0; 4]);
        body.extend(actions);
        framed(MessageType::GroupMod, &body)
    };
    for (bytes, text) in [
        (bucket(0, &[]), "group_mod: bucket at byte 18: length 0 is below 2"),
        (bucket(17, &[0]), "group_mod: bucket at byte 16: the length is not a multiple of eight"),
        (bucket(32, &[0; 8]), "group_mod: bucket at byte 18: 30 bytes expected, 22 left"),
        (bucket(8, &[]), "group_mod: bucket at byte 24: 4 bytes expected, 0 left"),
    ] {
        check_bytes(&bytes, ErrorKind::OFPGMFC_BAD_BUCKET, text);
    }
    let text = "group_mod: bucket: action at byte 36: 28 bytes expected, 4 left";
    check_bytes(&bucket(24, &[0, 0, 0, 32, 0, 0, 0, 1]), ErrorKind::OFPBAC_BAD_LEN, text);
}

#[test]
fn actions_that_cannot_be_read() {
    check_bytes(
        &flow_mod_with_action(&[0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0]),
        ErrorKind::OFPBIC_BAD_LEN,
        "flow_mod: instruction at byte 56: the length is not a multiple of eight",
    );
    check_bytes(
        &flow_mod_with_action(&[0, 0, 0, 8, 0, 0, 0, 1]),
        ErrorKind::OFPBAC_BAD_LEN,
        "flow_mod: instruction: action at byte 72: 2 bytes expected, 0 left",
    );
    check_bytes(
        &flow_mod_with_action(&[0, 18, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ErrorKind::OFPBAC_BAD_LEN,
        "flow_mod: instruction: action at byte 72: 8 bytes left over",
    );
    check_bytes(
        &flow_mod_with_action(&[0, 25, 0, 16, 0x80, 0, 22, 3, 10, 0, 0, 0, 0, 0, 0, 0]),
        ErrorKind::OFPBAC_BAD_SET_LEN,
        "flow_mod: instruction: action: set_field: oxm ipv4_src at byte 68: length 3, expected 4",
    );
    check_bytes(
        &flow_mod_with_action(&[0, 25, 0, 16, 0x80, 0, 1, 8, 0, 0, 0, 1, 0, 0, 0, 1]),
        ErrorKind::OFPBAC_BAD_SET_ARGUMENT,
        "flow_mod: instruction: action: set_field: oxm in_port at byte 68: \
         the field cannot have a mask",
    );
}

#[test]
fn clear_actions_has_no_actions() {
    let any = [0, 1, 0, 4, 0, 0, 0, 0];
    let clear = [0, 5, 0, 24, 0, 0, 0, 0];
    let output = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    check_bytes(
        &flow_mod(0, &[&any[..], &clear, &output].concat()),
        ErrorKind::OFPBIC_BAD_LEN,
        "flow_mod: instruction at byte 64: 16 bytes left over",
    );
}

#[test]
fn flow_mods_that_no_switch_can_carry_out() {
    let add = || FlowMod::new(FlowModCommand::Add);
    let check = |flow_mod, kind| check_body(Body::FlowMod(flow_mod), kind);
    let with = |instruction| FlowMod { instructions: vec![instruction], ..add() };
    check(FlowMod { table_id: TableId::ALL, ..add() }, ErrorKind::OFPFMFC_BAD_TABLE_ID);
    check(
        FlowMod { flags: FlowModFlags::from_bits_retain(1 << 9), ..add() },
        ErrorKind::OFPFMFC_BAD_FLAGS,
    );
    check(
        FlowMod { match_fields: Match::new().with(Oxm::TcpDst(80)), ..add() },
        ErrorKind::OFPBMC_BAD_PREREQ,
    );
    check(with(Instruction::GotoTable(TableId(0))), ErrorKind::OFPBIC_BAD_TABLE_ID);
    check(with(Instruction::Meter(0)), ErrorKind::OFPMMFC_INVALID_METER);
    let to_table = Action::output(PortNo::TABLE);
    check(with(Instruction::ApplyActions(vec![to_table])), ErrorKind::OFPBAC_BAD_OUT_PORT);
    let set_pcp = Action::SetField(Oxm::VlanPcp(1));
    check(with(Instruction::ApplyActions(vec![set_pcp])), ErrorKind::OFPBAC_MATCH_INCONSISTENT);
    let twice = vec![Instruction::ClearActions, Instruction::ClearActions];
    check(FlowMod { instructions: twice, ..add() }, ErrorKind::OFPBIC_UNSUP_INST);
    let unknown = Instruction::Unknown { kind: 9, data: vec![0; 4] };
    check(with(unknown), ErrorKind::OFPBIC_UNKNOWN_INST);
    let experimenter = Action::Experimenter { experimenter: 1, data: vec![] };
    check(with(Instruction::WriteActions(vec![experimenter])), ErrorKind::OFPBAC_BAD_EXPERIMENTER);
    let unknown = Action::Unknown { kind: 99, data: vec![0; 4] };
    check(with(Instruction::WriteActions(vec![unknown])), ErrorKind::OFPBAC_BAD_TYPE);
}

#[test]
fn groups_and_meters_that_no_switch_can_have() {
    let group = |group_type, group_id, buckets| {
        let command = GroupModCommand::Add;
        Body::GroupMod(GroupMod { command, group_type, group_id, buckets })
    };
    let bucket = || Bucket::new(vec![Action::output(PortNo(1))]);
    let invalid = ErrorKind::OFPGMFC_INVALID_GROUP;
    check_body(group(GroupType::All, GroupId::ALL, vec![]), invalid);
    check_body(group(GroupType::Indirect, GroupId(1), vec![]), invalid);
    let heavy = || vec![Bucket { weight: 1, watch_port: PortNo(1), ..bucket() }];
    for group_type in [GroupType::All, GroupType::Indirect, GroupType::FastFailover] {
        check_body(group(group_type, GroupId(1), heavy()), invalid);
    }
    let select = Message { xid: 7, body: group(GroupType::Select, GroupId(1), heavy()) };
    assert_eq!(select.check(), Ok(()), "only such a group has shares");
    let delete = |group_id, buckets| {
        let (command, group_type) = (GroupModCommand::Delete, GroupType::All);
        Body::GroupMod(GroupMod { command, group_type, group_id, buckets })
    };
    for group_id in [GroupId(1), GroupId::ALL] {
        check_body(delete(group_id, vec![bucket()]), invalid);
        let message = Message { xid: 7, body: delete(group_id, vec![]) };
        assert_eq!(message.check(), Ok(()), "{group_id}");
    }
    let fast = group(GroupType::FastFailover, GroupId(1), vec![bucket()]);
    check_body(fast, ErrorKind::OFPGMFC_BAD_WATCH);
    let bad = Bucket::new(vec![Action::PushVlan(EtherType::IPV4)]);
    check_body(group(GroupType::All, GroupId(1), vec![bad]), ErrorKind::OFPBAC_BAD_ARGUMENT);

    let meter = |flags, meter_id, kind| {
        let bands = vec![MeterBand { rate: 1, burst_size: 1, kind }];
        Body::MeterMod(MeterMod { command: MeterModCommand::Add, flags, meter_id, bands })
    };
    let invalid = ErrorKind::OFPMMFC_INVALID_METER;
    check_body(meter(MeterFlags::KBPS, 0, MeterBandKind::Drop), invalid);
    check_body(meter(MeterFlags::KBPS, METER_ALL, MeterBandKind::Drop), invalid);
    let both = MeterFlags::KBPS | MeterFlags::PKTPS;
    check_body(meter(both, 1, MeterBandKind::Drop), ErrorKind::OFPMMFC_BAD_FLAGS);
    let unknown = MeterBandKind::Unknown { kind: 9, data: vec![] };
    check_body(meter(MeterFlags::KBPS, 1, unknown.clone()), ErrorKind::OFPMMFC_BAD_BAND);
    // A deletion uses only the id.
    let delete = |meter_id| {
        let bands = vec![MeterBand { rate: 1, burst_size: 1, kind: unknown.clone() }];
        let command = MeterModCommand::Delete;
        Body::MeterMod(MeterMod { command, flags: both, meter_id, bands })
    };
    check_body(delete(0), invalid);
    for meter_id in [1, METER_ALL] {
        let message = Message { xid: 1, body: delete(meter_id) };
        assert_eq!(message.check().map_err(|error| error.kind), Ok(()), "{meter_id}");
    }
}

#[test]
fn configuration_that_no_switch_can_have() {
    let config = |flags, miss_send_len| {
        Body::SetConfig(SwitchConfig { flags: ConfigFlags(flags), miss_send_len })
    };
    check_body(config(3, 0), ErrorKind::OFPSCFC_BAD_FLAGS);
    check_body(config(0, 0xfff0), ErrorKind::OFPSCFC_BAD_LEN);
    let table_mod = TableMod { table_id: TableId(0), config: 4 };
    check_body(Body::TableMod(table_mod), ErrorKind::OFPTMFC_BAD_CONFIG);
    let port_mod = |port_no, config, advertise| {
        Body::PortMod(PortMod {
            port_no,
            hw_addr: Default::default(),
            config: PortConfig::empty(),
            mask: PortConfig::from_bits_retain(config),
            advertise: PortFeatures::from_bits_retain(advertise),
        })
    };
    check_body(port_mod(PortNo::ANY, 0, 0), ErrorKind::OFPPMFC_BAD_PORT);
    check_body(port_mod(PortNo(1), 2, 0), ErrorKind::OFPPMFC_BAD_CONFIG);
    check_body(port_mod(PortNo(1), 1, 1 << 16), ErrorKind::OFPPMFC_BAD_ADVERTISE);
    let mut packet_out = PacketOut::new(vec![0; 60], vec![]);
    packet_out.in_port = PortNo::FLOOD;
    check_body(Body::PacketOut(packet_out), ErrorKind::OFPBRC_BAD_PORT);
    let property = TableFeaturesProperty::Unknown { kind: 99, data: vec![] };
    let table = TableFeatures { properties: vec![property], ..TableFeatures::default() };
    let request = MultipartRequest::new(MultipartRequestBody::TableFeatures(vec![table]));
    check_body(Body::MultipartRequest(request), ErrorKind::OFPTFFC_BAD_TYPE);
}

#[test]
fn an_error_quotes_the_message() {
    let bytes = flow_mod(9, &[0; 100]);
    let Err(DecodeError::Message(error)) = Message::decode(&bytes) else {
        panic!("it is wrong");
    };
    let reply = error.reply(&bytes);
    let expected =
        ErrorMessage { kind: ErrorKind::OFPFMFC_BAD_COMMAND, data: bytes[..64].to_vec() };
    assert_eq!(reply, Message { xid: 7, body: Body::Error(expected) });
}
