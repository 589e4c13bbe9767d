//! Tests of the packets that a train is cut into for a port that takes partial checksums.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use tapswitch_tap::Queue;
use tapswitch_wire::NetHeaderFlags;
use tapswitch_wire::checksum::pseudo_header_v4;

use super::*;

/// A tap device and an interface.
fn wires() -> impl Iterator<Item = Wire> {
    [Wire::new(), Wire::netdev()].into_iter().flatten()
}

/// Sends `frame` to a port, and returns the `count` packets that arrive.
fn cut(
    wire: &Wire,
    takes: Takes,
    frame: &mut Frame<'_>,
    count: usize,
) -> Vec<(NetHeader, Vec<u8>)> {
    assert_eq!(wire.port(takes).send(frame, Beyond::NONE), Ok(()));
    wire.received(count)
}

/// Checks that packets are partial and, once completed, those that a port without offloads gets.
#[track_caller]
fn check_partial(
    partial: Vec<(NetHeader, Vec<u8>)>,
    complete: &[(NetHeader, Vec<u8>)],
    csum_start: u16,
) {
    assert_eq!(partial.len(), complete.len());
    for ((mut header, mut packet), (plain, complete)) in partial.into_iter().zip(complete) {
        assert_eq!((header.flags, header.is_train()), (NetHeaderFlags::NEEDS_CSUM, false));
        assert_eq!((header.csum_start, header.csum_offset), (csum_start, 16));
        complete_checksum(&mut header, &mut packet, &[]).unwrap();
        assert_eq!(*plain, NetHeader::PLAIN);
        assert!(packet == *complete, "other bytes");
    }
}

#[test]
fn their_checksums_are_partial_and_so_is_the_metadata() {
    let tag = Tag::new(EtherType::SERVICE_VLAN, 5);
    for wire in wires() {
        for payload_len in [1, 2500, 60_001] {
            let (sent, count) = (tcp_train(payload_len, 1000), payload_len.div_ceil(1000));
            let ways = [NONE, Takes::NOTHING].map(|takes| {
                with_frame(&sent, |frame| {
                    let mut scratch = Vec::new();
                    let whole = cut(&wire, takes, frame, count);
                    let mut copy = frame.fork(&mut scratch);
                    assert!(copy.push_tag(tag) && copy.push_tag(tag));
                    [whole, cut(&wire, takes, &mut copy, count)]
                })
            });
            let [[partial, tagged], [complete, complete_tagged]] = ways;
            check_partial(partial, &complete, 34);
            check_partial(tagged, &complete_tagged, 42);
        }
    }
}

/// The checksum inside is partial. The one outside is complete, as it does not depend on whether
/// the other is.
#[test]
fn in_a_tunnel_the_inner_checksum_is_partial() {
    for wire in wires() {
        let (meta, mut train) = vxlan_train(2500, 1000);
        train[40] = 1;
        let sent = (meta, train);
        let packets = |takes| with_frame(&sent, |frame| cut(&wire, takes, frame, 3));
        let complete = packets(Takes::NOTHING);
        for (_, packet) in &complete {
            let len = u16::try_from(packet.len() - 34).unwrap();
            let pseudo = pseudo_header_v4(&packet[26..30], &packet[30..34], 17, len);
            assert!(pseudo.add_bytes(&packet[34..]).is_valid(), "the outer one");
            checked_payload(&packet[OUTER_LEN..]);
        }
        check_partial(packets(NONE), &complete, 34 + 50);
    }
}

/// The kernel completes what the interface does not: byte for byte as the switch would.
#[test]
fn the_kernel_completes_them() {
    let Some(mut wire) = Wire::netdev() else { return };
    wire.netlink.set_feature("near", Feature::TxChecksum, false).unwrap();
    for sent in [tcp_train(60_001, 1000), vxlan_train(5000, 1000)] {
        let count = sent.0.wire_packets(sent.1.len() - usize::from(sent.0.hdr_len)) as usize;
        let packets = |takes| with_frame(&sent, |frame| cut(&wire, takes, frame, count));
        assert!(packets(NONE) == packets(Takes::NOTHING));
    }
}

/// The receiver would take the sum over the rest for that of the packet.
#[test]
fn truncated_packets_are_complete() {
    for wire in wires() {
        let sent = tcp_train(2500, 1000);
        let whole = with_frame(&sent, |frame| cut(&wire, Takes::NOTHING, frame, 3));
        let part = |frame: &mut Frame<'_>| wire.port(NONE).send_part(frame, Beyond::NONE, 100, 0);
        assert_eq!(with_frame(&sent, part), Ok(()));
        for ((header, packet), (_, whole)) in wire.received(3).iter().zip(&whole) {
            assert_eq!((*header, &packet[..]), (NetHeader::PLAIN, &whole[..100]));
        }
    }
}

#[test]
fn a_train_that_was_complete_becomes_complete_packets() {
    for wire in wires() {
        let (meta, train) = tcp_train(2500, 1000);
        let sent = (NetHeader { flags: 0, csum_start: 0, csum_offset: 0, ..meta }, train);
        let packets = |takes| with_frame(&sent, |frame| cut(&wire, takes, frame, 3));
        let packets = packets(NONE);
        assert!(packets.iter().all(|(header, _)| *header == NetHeader::PLAIN));
        packets.iter().for_each(|(_, packet)| drop(checked_payload(packet).to_vec()));
    }
}

/// TCP from one kernel to another, whose port takes no trains. The test relays the frames.
#[test]
fn a_kernel_takes_a_stream_of_them() {
    let (Some(mut near), Some(mut far)) = (Wire::new(), Wire::new()) else { return };
    near.netlink.add_address("eth0", [10, 0, 0, 1].into(), 24).unwrap();
    far.netlink.add_address("eth0", [10, 0, 0, 2].into(), 24).unwrap();
    let is_over = AtomicBool::new(false);
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_be_bytes()[3] ^ 0x5a).collect();
    let [there, back] = [(&near, far.port(NONE)), (&far, near.port(ALL))]
        .map(|(from, port)| (tap_of(from).clone(), port));
    let over = &is_over;
    let trains = std::thread::scope(|scope| {
        let there = scope.spawn(move || relay(&there.0, there.1, over));
        let back = scope.spawn(move || relay(&back.0, back.1, over));
        let received = stream(&near, &far, &sent);
        is_over.store(true, Ordering::Relaxed);
        assert!(received == sent, "other bytes");
        back.join().unwrap();
        there.join().unwrap()
    });
    assert!(trains > 0, "the sender had trains");
    assert_eq!(checksum_errors(&far), 0);
}

/// Sends what the kernel sends at a tap device to `port`. Returns the number of trains.
fn relay(queue: &Queue, mut port: TxPort, is_over: &AtomicBool) -> usize {
    let mut buf = vec![0; HEADROOM + 70_000];
    let start = HEADROOM - NET_HEADER_LEN;
    let (deadline, mut trains) = (Instant::now() + PATIENCE, 0);
    while !is_over.load(Ordering::Relaxed) && Instant::now() < deadline {
        let Some(len) = queue.recv(&mut buf[start..]).unwrap() else {
            std::thread::yield_now();
            continue;
        };
        let meta = NetHeader::decode(buf[start..HEADROOM].try_into().unwrap());
        let bytes = &mut buf[..start + len];
        let layout = parse(&bytes[HEADROOM..]).unwrap().layout;
        trains += usize::from(meta.is_train());
        // A frame for a full port is lost, and TCP sends it again.
        let _ = port.send(&mut Frame::new(meta, layout, bytes, HEADROOM, 0), Beyond::NONE);
    }
    trains
}

fn tap_of(wire: &Wire) -> &Arc<Queue> {
    match &wire.device {
        TxDevice::Tap(queue) => queue,
        _ => panic!("no tap device"),
    }
}

/// Sends `bytes` from one kernel to the other, and returns what arrived.
fn stream(from: &Wire, to: &Wire, bytes: &[u8]) -> Vec<u8> {
    let listener = to.namespace.enter(|| TcpListener::bind("10.0.0.2:80").unwrap()).unwrap();
    let connect = || TcpStream::connect_timeout(&"10.0.0.2:80".parse().unwrap(), PATIENCE).unwrap();
    let mut out = from.namespace.enter(connect).unwrap();
    let (mut into, _) = listener.accept().unwrap();
    out.set_write_timeout(Some(PATIENCE)).unwrap();
    into.set_read_timeout(Some(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || out.write_all(bytes).unwrap());
        let mut received = Vec::new();
        into.read_to_end(&mut received).unwrap();
        received
    })
}

/// TCP segments that the kernel found corrupt.
fn checksum_errors(wire: &Wire) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = wire.namespace.enter(read).unwrap();
    let mut tcp = text.lines().filter(|line| line.starts_with("Tcp:")).map(|it| it.split(' '));
    let (mut names, mut values) = (tcp.next().unwrap(), tcp.next().unwrap());
    let at = names.position(|name| name == "InCsumErrors").unwrap();
    values.nth(at).unwrap().parse().unwrap()
}

/// A limit for tests that fail.
const PATIENCE: Duration = Duration::from_secs(60);
