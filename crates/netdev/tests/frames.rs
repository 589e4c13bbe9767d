//! Frames pass a port byte-identical, in both directions, with their tags and metadata.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::IoSlice;

use tapswitch_netdev::{Config, HEADROOM_MIN, MAX_PACKETS, MAX_PARTS, RecvError, SendError};
use tapswitch_wire::{EtherType, GsoType, NetHeader, NetHeaderFlags, Tag, ip_proto, write_u16};

mod common;
use common::{Wire, drain, eventually, frame, is_ours, is_root, join, receive, send};

const C_TAG: Tag = Tag::new(EtherType::VLAN, 0x0064);
const S_TAG: Tag = Tag::new(EtherType::SERVICE_VLAN, 0x00c8);

#[test]
fn frames_of_all_sizes_survive_both_ways() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    for (from, to) in [(&wire.a, &wire.b), (&wire.b, &wire.a)] {
        for len in [18, 60, 61, 64, 65, 1513, 1514] {
            let sent = frame(&[], len);
            send(from, &NetHeader::PLAIN, &sent).unwrap();
            assert_eq!(receive(to, |_, frame| is_ours(frame)), (NetHeader::PLAIN, sent));
        }
    }
}

#[test]
fn tags_are_put_back_exactly() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let tag = |tpid, tci| Tag::new(EtherType(tpid), tci);
    for tags in [
        &[C_TAG][..],
        &[S_TAG],
        &[S_TAG, C_TAG],
        &[C_TAG, C_TAG],
        &[S_TAG, S_TAG, C_TAG],
        &[tag(0x9100, 7), C_TAG],
        // A priority tag, all bits set, all bits clear.
        &[tag(0x8100, 0xe000)],
        &[tag(0x88a8, 0xffff)],
        &[tag(0x8100, 0)],
    ] {
        let sent = frame(tags, 200);
        send(&wire.a, &NetHeader::PLAIN, &sent).unwrap();
        let (header, received) = receive(&wire.b, |_, frame| is_ours(frame));
        assert_eq!(received, sent, "{tags:?}");
        assert_eq!(header, NetHeader::PLAIN);
    }
}

#[test]
fn packets_are_sent_together_in_order() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let sent: Vec<_> = (0..MAX_PACKETS).map(|index| frame(&[S_TAG, C_TAG], 64 + index)).collect();
    // In three parts, two, and one.
    let cuts = |index: usize| [[14, 40], [14, 14], [0, 0]][index % 3];
    let pieces = |(index, frame): (usize, &'_ Vec<u8>)| {
        let [first, second] = cuts(index);
        [0..first, first..second, second..frame.len()]
    };
    let ranges: Vec<_> = sent.iter().enumerate().map(pieces).collect();
    let packets: Vec<_> = sent
        .iter()
        .zip(&ranges)
        .map(|(frame, ranges)| ranges.clone().map(|range| IoSlice::new(&frame[range])))
        .collect();
    assert_eq!(wire.a.send_packets(&NetHeader::PLAIN, &packets), (packets.len(), Ok(())));
    assert_eq!(wire.a.send_packets(&NetHeader::PLAIN, &packets[..1]), (1, Ok(())));
    assert_eq!(wire.a.send_packets(&NetHeader::PLAIN, &[]), (0, Ok(())));
    for expected in sent.iter().chain([&sent[0]]) {
        let (header, received) = receive(&wire.b, |_, frame| is_ours(frame));
        assert_eq!((header, &received), (NetHeader::PLAIN, expected));
    }
    let too_many = [&packets[..], &packets[..1]].concat();
    assert_eq!(
        wire.a.send_packets(&NetHeader::PLAIN, &too_many),
        (0, Err(SendError::TooManyParts))
    );
}

#[test]
fn a_packet_that_is_not_sent_holds_up_those_behind_it() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let sent = [100, 200, 2000, 300].map(|len| frame(&[], len));
    let packets = [0, 1, 2, 3].map(|index: usize| [&sent[index][..], &[], &[]].map(IoSlice::new));
    assert_eq!(wire.a.send_packets(&NetHeader::PLAIN, &packets), (2, Err(SendError::Oversize)));
    send(&wire.a, &NetHeader::PLAIN, &frame(&[], 60)).unwrap();
    let lengths = [(); 3].map(|()| receive(&wire.b, |_, frame| is_ours(frame)).1.len());
    assert_eq!(lengths, [100, 200, 60]);
}

#[test]
fn metadata_survives_under_any_stack_of_tags() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let udp_trains = wire.a.capabilities().send_udp_trains;
    for tags in [&[][..], &[C_TAG], &[S_TAG], &[S_TAG, C_TAG], &[S_TAG, S_TAG, C_TAG]] {
        let cases = [
            (ip_proto::TCP, GsoType::NONE, 100),
            (ip_proto::UDP, GsoType::NONE, 100),
            (ip_proto::TCP, GsoType::TCPV4, 5500),
            (ip_proto::UDP, GsoType::UDP_L4, 5500),
        ];
        for (protocol, gso_type, payload_len) in cases {
            if gso_type == GsoType::UDP_L4 && !udp_trains {
                continue;
            }
            let (header, sent) = ip_frame(tags, protocol, gso_type, payload_len);
            send(&wire.a, &header, &sent).unwrap();
            let (got, received) = receive(&wire.b, |_, frame| is_ours(frame));
            // The kernel reports the length of its linear buffer instead.
            let expected = NetHeader { hdr_len: got.hdr_len, ..header };
            assert_eq!((got, received.len()), (expected, sent.len()), "{tags:?}");
            assert!(received == sent, "{tags:?} {header:?}: other bytes");
        }
    }
}

#[test]
fn a_port_does_not_see_what_it_sends() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let other = wire.left.port("a", &Config::default());
    send(&wire.a, &NetHeader::PLAIN, &frame(&[], 100)).unwrap();
    receive(&wire.b, |_, frame| is_ours(frame));
    // It would have been received before the other frame arrived.
    assert_eq!(drain(&wire.a).filter(|(_, frame)| is_ours(frame)).count(), 0);
    assert_eq!(drain(&other).filter(|(_, frame)| is_ours(frame)).count(), 0);
}

#[test]
fn a_port_sees_its_own_interface_only() {
    if !is_root() {
        return;
    }
    let mut wire = Wire::new();
    join(&mut wire.left, "c", &mut wire.right, "d");
    let config = Config::default();
    let (c, d) = (wire.left.port("c", &config), wire.right.port("d", &config));
    send(&c, &NetHeader::PLAIN, &frame(&[], 100)).unwrap();
    receive(&d, |_, frame| is_ours(frame));
    assert_eq!(drain(&wire.b).filter(|(_, frame)| is_ours(frame)).count(), 0);
}

#[test]
fn a_frame_in_parts_is_one_frame() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let sent = frame(&[S_TAG, C_TAG], 800);
    let parts = sent.chunks(800 / MAX_PARTS).map(IoSlice::new).collect::<Vec<_>>();
    assert_eq!(parts.len(), MAX_PARTS);
    wire.a.send(&NetHeader::PLAIN, &parts).unwrap();
    assert_eq!(receive(&wire.b, |_, frame| is_ours(frame)).1, sent);
    let too_many = [&parts[..], &[IoSlice::new(b"x")]].concat();
    assert_eq!(wire.a.send(&NetHeader::PLAIN, &too_many), Err(SendError::TooManyParts));
}

#[test]
fn a_frame_past_the_queueing_discipline_arrives_too() {
    if !is_root() {
        return;
    }
    let wire = Wire::with(&Config::default().qdisc_bypass(true).promiscuous(false));
    let sent = frame(&[C_TAG], 100);
    send(&wire.a, &NetHeader::PLAIN, &sent).unwrap();
    assert_eq!(receive(&wire.b, |_, frame| is_ours(frame)).1, sent);
}

#[test]
fn the_frame_lies_behind_the_headroom() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    for (tags, start) in [(&[][..], 64), (&[C_TAG], 60), (&[S_TAG, C_TAG], 60)] {
        let sent = frame(tags, 100);
        send(&wire.a, &NetHeader::PLAIN, &sent).unwrap();
        let mut buf = vec![0; 2000];
        let received = eventually("our frame", || {
            wire.b.recv(&mut buf, 64).unwrap().filter(|got| is_ours(&buf[got.frame.clone()]))
        });
        assert_eq!(received.frame.start, start);
        assert_eq!(buf[received.frame], sent);
    }
}

#[test]
fn a_frame_that_does_not_fit_is_told() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let sent = frame(&[], 1000);
    let mut buf = vec![0; HEADROOM_MIN + sent.len()];
    let next = |buf: &mut [u8]| {
        send(&wire.a, &NetHeader::PLAIN, &sent).unwrap();
        // Frames of the kernel itself are shorter than either buffer.
        eventually("a long frame", || match wire.b.recv(buf, HEADROOM_MIN) {
            Ok(Some(received)) => (received.frame.len() == 1000).then_some(Ok(())),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        })
    };
    assert_eq!(next(&mut buf), Ok(()), "an exact fit fits");
    buf.pop();
    assert_eq!(next(&mut buf), Err(RecvError::Truncated { len: 1000 }));
    assert_eq!(wire.b.recv(&mut buf, HEADROOM_MIN - 1), Err(RecvError::NoRoom));
    let all = buf.len();
    assert_eq!(wire.b.recv(&mut buf, all), Err(RecvError::NoRoom));
}

#[test]
fn the_mtu_counts_with_room_for_one_customer_tag() {
    if !is_root() {
        return;
    }
    let mut wire = Wire::new();
    assert_eq!(wire.a.mtu().unwrap(), 1500);
    let try_len = |tags: &[Tag], len| send(&wire.a, &NetHeader::PLAIN, &frame(tags, len));
    assert_eq!(try_len(&[], 1515), Err(SendError::Oversize));
    assert_eq!(try_len(&[C_TAG], 1518), Ok(()));
    assert_eq!(try_len(&[C_TAG], 1519), Err(SendError::Oversize));
    assert_eq!(try_len(&[S_TAG], 1518), Err(SendError::Oversize), "not for a service tag");
    wire.left.netlink.set_mtu("a", 1504).unwrap();
    wire.right.netlink.set_mtu("b", 1504).unwrap();
    let sent = frame(&[S_TAG], 1518);
    eventually("all before it", || Some(drain(&wire.b).count()));
    send(&wire.a, &NetHeader::PLAIN, &sent).unwrap();
    assert_eq!(receive(&wire.b, |_, frame| frame.len() == 1518 && is_ours(frame)).1, sent);
}

#[test]
fn wrong_metadata_is_told_apart() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let good = partial_checksum(&[]);
    let train = NetHeader { gso_type: GsoType::TCPV4, gso_size: 50, ..good };
    for bad in [
        NetHeader { gso_type: GsoType(2), gso_size: 50, ..good },
        NetHeader { gso_size: 0, ..train },
        NetHeader { csum_start: 2000, ..good },
        NetHeader { hdr_len: 2000, ..good },
    ] {
        let outcome = send(&wire.a, &bad, &frame(&[], 200));
        assert_eq!(outcome, Err(SendError::Rejected), "{bad:?}");
    }
}

/// TCP or UDP over IPv4 after `tags`, with a partial checksum; a train of packets of 1000 bytes
/// unless `gso_type` is none. The kernel checks the headers of trains.
fn ip_frame(
    tags: &[Tag],
    protocol: u8,
    gso_type: GsoType,
    payload_len: u16,
) -> (NetHeader, Vec<u8>) {
    let is_tcp = protocol == ip_proto::TCP;
    let (transport_len, csum_offset) = if is_tcp { (20, 16) } else { (8, 6) };
    let partial = partial_checksum(tags);
    let header = NetHeader {
        gso_type,
        gso_size: if gso_type == GsoType::NONE { 0 } else { 1000 },
        hdr_len: partial.csum_start + transport_len,
        csum_offset,
        ..partial
    };
    let mut frame = frame(tags, usize::from(header.hdr_len + payload_len));
    let ip = 14 + 4 * tags.len();
    write_u16(&mut frame, ip - 2, EtherType::IPV4.0);
    frame[ip..ip + 20].fill(0);
    frame[ip] = 0x45;
    write_u16(&mut frame, ip + 2, 20 + transport_len + payload_len);
    frame[ip + 8..ip + 10].copy_from_slice(&[64, protocol]);
    frame[ip + 12..ip + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    if is_tcp {
        frame[ip + 20 + 12] = 5 << 4;
    } else {
        write_u16(&mut frame, ip + 20 + 4, transport_len + payload_len);
    }
    (header, frame)
}

/// The metadata of a TCP segment after `tags` with a partial checksum.
fn partial_checksum(tags: &[Tag]) -> NetHeader {
    let tags_len = u16::try_from(4 * tags.len()).unwrap();
    NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        csum_start: 34 + tags_len,
        csum_offset: 16,
        hdr_len: 54 + tags_len,
        ..NetHeader::PLAIN
    }
}
