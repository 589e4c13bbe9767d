//! Tests of packet-ins.

use std::sync::Arc;

use tapswitch_datapath::{
    HEADROOM, MacTable, Pipeline, Port, Station, Traffic, VlanKey, WorkerIndex,
};
use tapswitch_openflow::{CONTROLLER_MAX_LEN_NO_BUFFER, PacketInReason, TableId};
use tapswitch_wire::{MacAddr, NetHeader, parse};
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::test_frames::{HEADERS_LEN, checked_payload, tcp_train};

fn shared() -> (Arc<Shared>, Receiver<Report>) {
    let snapshot = Pipeline::new(2).snapshot().clone();
    let (shared, reports) = Shared::new(snapshot, Arc::<MacTable>::default(), 1);
    shared.has_controller.store(true, Ordering::Relaxed);
    (shared, reports)
}

fn origin(max_len: u16) -> PacketInOrigin {
    let (in_port, table_id) = (PortNo(1), TableId(0));
    PacketInOrigin {
        reason: PacketInReason::ACTION,
        in_port,
        table_id,
        cookie: 0,
        max_len,
        snaplen: None,
        metadata: 0,
        tunnel_id: 0,
    }
}

/// Sends a frame to the controller.
fn packet_in(shared: &Shared, max_len: u16, sent: &(NetHeader, Vec<u8>)) -> Outcome {
    packet_in_for(shared, &origin(max_len), sent, None)
}

fn packet_in_for(
    shared: &Shared,
    origin: &PacketInOrigin,
    (meta, bytes): &(NetHeader, Vec<u8>),
    claim: Option<&PacketInClaim<'_>>,
) -> Outcome {
    let mut buf = [vec![0; HEADROOM], bytes.clone()].concat();
    let layout = parse(bytes).unwrap().layout;
    let frame = Frame::new(*meta, layout, &mut buf, HEADROOM, 0);
    // Once as received, and once as a copy with headers of its own.
    let mut ports = TxPorts::default();
    let mut egress = WorkerEgress::new(&mut ports, shared);
    let whole = egress.packet_in(origin, &frame, claim);
    let mut scratch = Vec::new();
    let copy = egress.packet_in(origin, &frame.fork(&mut scratch), claim);
    assert_eq!(whole, copy);
    assert_eq!(frame.head(), bytes, "the frame itself goes on as it was");
    whole
}

type Outcome = Result<Sent, DropReason>;

/// Length of the packet and the bytes that the controller receives, for the frame and its copy.
fn reported(reports: &mut Receiver<Report>) -> Vec<(usize, Vec<u8>)> {
    let mut packets = Vec::new();
    while let Ok(report) = reports.try_recv() {
        let Report::PacketIn { total_len, data, .. } = report else { panic!("{report:?}") };
        packets.push((total_len, data));
    }
    let copies = packets.split_off(packets.len() / 2);
    assert_eq!(packets, copies);
    packets
}

#[test]
fn a_packet_has_its_checksum_completed() {
    let (shared, mut reports) = shared();
    let sent = tcp_train(700, 0);
    assert_eq!(packet_in(&shared, CONTROLLER_MAX_LEN_NO_BUFFER, &sent), Ok(Sent::Later));
    let [(total_len, data)] = &reported(&mut reports)[..] else { panic!() };
    assert_eq!(*total_len, sent.1.len());
    assert_eq!(checked_payload(data), &sent.1[HEADERS_LEN..]);
}

#[test]
fn a_train_becomes_packets() {
    let (shared, mut reports) = shared();
    let sent = tcp_train(2500, 1000);
    assert_eq!(packet_in(&shared, CONTROLLER_MAX_LEN_NO_BUFFER, &sent), Ok(Sent::Later));
    let packets = reported(&mut reports);
    let payload: Vec<_> = packets.iter().flat_map(|(_, data)| checked_payload(data)).collect();
    assert!(payload.into_iter().eq(&sent.1[HEADERS_LEN..]));
}

/// Lengths of packets, and of the parts that the controller gets.
fn lens(reports: &mut Receiver<Report>) -> Vec<(usize, usize)> {
    reported(reports).iter().map(|(len, data)| (*len, data.len())).collect()
}

/// A controller that sends the data back would otherwise send something else than what came.
#[test]
fn what_is_not_buffered_is_whole_whatever_the_length_asked_for() {
    let (shared, mut reports) = shared();
    let (train, packet) = (tcp_train(2500, 1000), tcp_train(700, 0));
    for max_len in [0, 64, 128, CONTROLLER_MAX_LEN, CONTROLLER_MAX_LEN_NO_BUFFER] {
        assert_eq!(packet_in(&shared, max_len, &train), Ok(Sent::Later));
        let expected = [(1054, 1054), (1054, 1054), (554, 554)];
        assert_eq!(lens(&mut reports), expected, "max_len {max_len}");
        assert_eq!(packet_in(&shared, max_len, &packet), Ok(Sent::Later));
        assert_eq!(lens(&mut reports), [(754, 754)], "max_len {max_len}");
    }
}

#[test]
fn who_only_looks_gets_the_start_of_the_first_packet() {
    let (shared, mut reports) = shared();
    shared.starts_suffice.store(true, Ordering::Relaxed);
    let (train, packet) = (tcp_train(2500, 1000), tcp_train(700, 0));
    for (max_len, sent, expected) in [
        (128, &train, &[(1054, 128)][..]),
        (0, &train, &[(1054, 0)]),
        (1054, &train, &[(1054, 1054), (1054, 1054), (554, 554)]),
        (0xffff, &train, &[(1054, 1054), (1054, 1054), (554, 554)]),
        (128, &packet, &[(754, 128)]),
        (0, &packet, &[(754, 0)]),
        (754, &packet, &[(754, 754)]),
        (5000, &packet, &[(754, 754)]),
    ] {
        assert_eq!(packet_in(&shared, max_len, sent), Ok(Sent::Later));
        assert_eq!(lens(&mut reports), expected, "max_len {max_len}");
    }
}

#[test]
fn a_bucket_that_truncates_does_so_for_any_controller() {
    let (shared, mut reports) = shared();
    let (train, packet) = (tcp_train(2500, 1000), tcp_train(700, 0));
    for looks in [false, true] {
        shared.starts_suffice.store(looks, Ordering::Relaxed);
        let origin = PacketInOrigin { snaplen: Some(100), ..origin(if looks { 256 } else { 64 }) };
        assert_eq!(packet_in_for(&shared, &origin, &train, None), Ok(Sent::Later));
        assert_eq!(lens(&mut reports), [(1054, 100)], "of a train, the first packet");
        assert_eq!(packet_in_for(&shared, &origin, &packet, None), Ok(Sent::Later));
        assert_eq!(lens(&mut reports), [(754, 100)]);
    }
}

#[test]
fn a_frame_too_long_for_a_message_is_cut_to_what_fits() {
    let (shared, mut reports) = shared();
    let mut long = vec![0; 65_535];
    long[12..14].copy_from_slice(&[0x88, 0xb5]);
    packet_in(&shared, CONTROLLER_MAX_LEN_NO_BUFFER, &(NetHeader::PLAIN, long)).unwrap();
    let packets = reported(&mut reports);
    assert_eq!((packets[0].0, packets[0].1.len()), (65_535, MAX_DATA_LEN));
    let message = crate::agent::packet_in(&origin(0xffff), packets[0].0, packets[0].1.clone());
    let body = tapswitch_openflow::Body::PacketIn(message);
    let encoded = tapswitch_openflow::Message { xid: 0, body }.encode(&mut Vec::new());
    assert_eq!(encoded, Ok(()), "it fits a message");
}

#[test]
fn without_a_controller_it_is_dropped_by_name() {
    let (shared, mut reports) = shared();
    shared.has_controller.store(false, Ordering::Relaxed);
    let outcome = packet_in(&shared, 128, &tcp_train(100, 0));
    assert_eq!(outcome, Err(DropReason::NoController));
    assert!(reported(&mut reports).is_empty());
}

#[test]
fn what_a_full_queue_refuses_is_lost_and_counted() {
    let (shared, mut reports) = shared();
    let sent = tcp_train(100, 0);
    let port = Port::new(PortNo(1), "p1".into(), MacAddr::ZERO, 1500, 1).into();
    let claim = PacketInClaim::new(WorkerIndex(0), &port, Traffic::frame(154, 1));
    let lost = || port.counters.drops().count(DropReason::ControllerQueueFull);
    let origin = origin(0);
    let tell = || assert_eq!(packet_in_for(&shared, &origin, &sent, Some(&claim)), Ok(Sent::Later));
    while lost() == 0 {
        tell();
    }
    assert_eq!((lost(), port.counters.consumed()), (2, 512), "so many of a port may wait");
    assert_eq!(reported(&mut reports).len(), 256, "twice");
    tell();
    assert_eq!((lost(), port.counters.consumed()), (2, 2), "the others met no server");
}

#[test]
fn what_cannot_be_cut_is_dropped_by_name() {
    let (shared, mut reports) = shared();
    let (meta, mut frame) = tcp_train(2500, 1000);
    frame[23] = 17; // Not TCP.
    let outcome = packet_in(&shared, 0xffff, &(meta, frame));
    assert_eq!(outcome, Err(DropReason::CannotSegment));
    assert!(reported(&mut reports).is_empty());
}

#[test]
fn a_port_that_is_not_there_takes_nothing() {
    let (shared, _reports) = shared();
    let (meta, bytes) = tcp_train(100, 0);
    let mut buf = [vec![0; HEADROOM], bytes.clone()].concat();
    let layout = parse(&bytes).unwrap().layout;
    let mut frame = Frame::new(meta, layout, &mut buf, HEADROOM, 0);
    let mut ports = TxPorts::default();
    let port = Port::new(PortNo(4), "p4".into(), MacAddr::ZERO, 1500, 1).into();
    let claim = Claim::new(WorkerIndex(0), &port);
    let outcome = WorkerEgress::new(&mut ports, &shared).transmit(PortNo(4), &mut frame, &claim);
    assert_eq!(outcome, Err(DropReason::NoSuchPort));
}

/// A guest that only sends new flows must not block the link probes of other ports.
#[test]
fn a_port_leaves_room_for_what_others_have_to_tell() {
    let (shared, mut reports) = shared();
    let mut buf = [vec![0; HEADROOM], tcp_train(700, 0).1].concat();
    let layout = parse(&buf[HEADROOM..]).unwrap().layout;
    let frame = Frame::new(NetHeader::PLAIN, layout, &mut buf, HEADROOM, 0);
    let mut ports = TxPorts::default();
    let mut egress = WorkerEgress::new(&mut ports, &shared);
    let mut tell = |in_port, count| {
        for _ in 0..count {
            let origin = PacketInOrigin { in_port, ..origin(128) };
            assert_eq!(egress.packet_in(&origin, &frame, None), Ok(Sent::Later));
            let station = Station { vlan: VlanKey::UNTAGGED, mac: MacAddr([2; 6]) };
            egress.learn(Sighting { station, port: in_port });
        }
    };
    (1..=3).for_each(|port| tell(PortNo(port), 5000));
    tell(PortNo(4), 1);
    let mut told = [0; 5];
    while let Ok(report) = reports.try_recv() {
        match report {
            Report::PacketIn { origin, .. } => told[origin.in_port.0 as usize] += 1,
            Report::Sighting(sighting, _) => told[sighting.port.0 as usize] += 1,
            Report::Stalled(_) => panic!("nothing stalls"),
        }
    }
    assert_eq!(told[4], 2, "{told:?}");
    assert!(told[1..4].iter().all(|count| *count > 100), "{told:?}");
    tell(PortNo(1), 200);
    assert!(std::iter::from_fn(|| reports.try_recv().ok()).count() > 300, "there is room again");
}
