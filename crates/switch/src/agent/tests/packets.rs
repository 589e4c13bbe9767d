//! Tests of packet-out and packet-in.

use tapswitch_openflow::{BufferId, Masked, Oxm, PacketInReason, PacketOut};

use super::super::packet_in;
use super::*;

fn packet() -> PacketOut {
    PacketOut::new(vec![0; 60], output(1))
}

#[test]
fn a_packet_out_is_handed_on() {
    let mut agent = agent();
    for in_port in [PortNo::CONTROLLER, PortNo(2)] {
        let packet = PacketOut { in_port, ..packet() };
        let outcome = send(&mut agent, Body::PacketOut(packet.clone()));
        assert_eq!(outcome.packet_out, Some(packet));
        assert!(outcome.replies.is_empty() && outcome.events.is_empty());
    }
    let to_tables = PacketOut::new(vec![0; 60], vec![Action::output(PortNo::TABLE)]);
    assert!(send(&mut agent, Body::PacketOut(to_tables)).packet_out.is_some());
}

#[test]
fn packets_that_cannot_be_sent_are_refused() {
    let mut agent = agent();
    let local = PacketOut { in_port: PortNo::LOCAL, ..packet() };
    for (packet, kind) in [
        (PacketOut { in_port: PortNo(9), ..packet() }, ErrorKind::OFPBRC_BAD_PORT),
        (PacketOut { in_port: PortNo::FLOOD, ..packet() }, ErrorKind::OFPBRC_BAD_PORT),
        (local, ErrorKind::OFPBRC_BAD_PORT),
        (PacketOut { buffer_id: BufferId(1), ..packet() }, ErrorKind::OFPBRC_BUFFER_UNKNOWN),
        (PacketOut { data: vec![0; 13], ..packet() }, ErrorKind::OFPBRC_BAD_PACKET),
        (PacketOut { data: vec![], ..packet() }, ErrorKind::OFPBRC_BAD_PACKET),
        (PacketOut { actions: output(0), ..packet() }, ErrorKind::OFPBAC_BAD_OUT_PORT),
        (
            PacketOut { actions: vec![Action::Group(GroupId(1))], ..packet() },
            ErrorKind::OFPBAC_BAD_OUT_GROUP,
        ),
    ] {
        assert_eq!(refusal(&mut agent, Body::PacketOut(packet.clone())), kind, "{packet:?}");
    }
}

#[test]
fn a_packet_in_tells_why_and_where() {
    let origin = PacketInOrigin {
        reason: PacketInReason::NO_MATCH,
        in_port: PortNo(2),
        table_id: TableId(3),
        cookie: 4,
        max_len: 10,
        snaplen: None,
        metadata: 0,
        tunnel_id: 0,
    };
    let message = packet_in(&origin, 1500, vec![1; 10]);
    assert_eq!((message.buffer_id, message.total_len), (BufferId::NO_BUFFER, 1500));
    assert_eq!((message.reason, message.table_id), (PacketInReason::NO_MATCH, TableId(3)));
    assert_eq!((message.cookie, message.data.len()), (4, 10));
    let fields = Match::new().with(Oxm::InPort(PortNo(2)));
    assert_eq!(message.match_fields, fields);
    let origin = PacketInOrigin { metadata: 5, tunnel_id: 6, ..origin };
    let fields = fields.with(Oxm::Metadata(Masked::exact(5)));
    let fields = fields.with(Oxm::TunnelId(Masked::exact(6)));
    assert_eq!(packet_in(&origin, 1500, Vec::new()).match_fields, fields);
}
