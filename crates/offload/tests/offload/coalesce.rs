//! Coalescing of a batch of packets, one rule per test, and that segmentation reverses it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use crate::packets::{
    ACK, C_TAG, Checksum, ECE, Ip, LEGACY_TAG, Made, Packet, RST, S_TAG, SYN, URG, Upper,
    check_round_trip, coalesce, counts, damaged, frames, interleave, routed_on, shuffle,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tapswitch_helpers::cases;
use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ipv6, read_u16, tcp, write_u16};

#[test]
fn packets_that_follow_each_other_become_a_train() {
    for packet in Packet::of_every_kind() {
        for tags in [&[][..], &[C_TAG], &[S_TAG, C_TAG], &[S_TAG, LEGACY_TAG, C_TAG, C_TAG, S_TAG]]
        {
            let packets = packet.clone().tagged(tags).stream(10);
            let made = check_round_trip(&frames(&packets));
            assert_eq!(made.len(), 1, "{packet:?}");
            assert_eq!(made[0].meta.wire_packets(1000), 10);
        }
    }
}

#[test]
fn a_train_says_what_is_left_to_do() {
    let packets = Packet::tcp_v4().tagged(&[S_TAG]).stream(3);
    let made = coalesce(&frames(&packets)).remove(0);
    let expected = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 70,
        gso_size: 100,
        csum_start: 38,
        csum_offset: 16,
    };
    assert_eq!(made.meta, expected);
    assert_eq!(usize::from(read_u16(&made.bytes, 20)), made.bytes.len() - 18);
    let packets = Packet::udp_v6().stream(3);
    let made = coalesce(&frames(&packets)).remove(0);
    assert_eq!((made.meta.gso_type, made.meta.csum_offset), (GsoType::UDP_L4, 6));
    assert_eq!((read_u16(&made.bytes, 18), read_u16(&made.bytes, 58)), (308, 308));
}

#[test]
fn a_frame_that_stays_alone_is_not_touched() {
    for checksum in [Checksum::Right, Checksum::Wrong, Checksum::Vouched, Checksum::Partial] {
        for packet in Packet::of_every_kind() {
            let sent = frames(&[packet.with(checksum)]);
            let made = coalesce(&sent).remove(0);
            assert_eq!((made.frames, made.meta, made.bytes), (1, sent[0].0, sent[0].1.clone()));
        }
    }
}

#[test]
fn a_shorter_packet_is_the_last_and_a_longer_one_the_first() {
    for packet in Packet::of_every_kind() {
        let mut packets = packet.stream(3);
        packets[2].payload.truncate(99);
        packets.push(packets[2].next());
        assert_eq!(counts(&packets), [3, 1]);
        let mut packets = packet.stream(2);
        packets[1] = packets[1].clone().sized(101);
        packets.extend(packets[1].next().stream(2));
        assert_eq!(counts(&packets), [1, 3]);
        check_round_trip(&frames(&packets));
    }
}

#[test]
fn flows_do_not_disturb_each_other() {
    let flows: Vec<_> = (0..40u8).map(|i| kind(i).of_flow(i).stream(4)).collect();
    let packets: Vec<_> = (0..4).flat_map(|i| flows.iter().map(move |f| f[i].clone())).collect();
    let made = check_round_trip(&frames(&packets));
    assert_eq!(made.len(), 40);
    assert!(made.iter().enumerate().all(|(i, made)| (made.first, made.frames) == (i, 4)));
}

#[test]
fn tags_tell_flows_apart() {
    let plain = Packet::tcp_v4();
    for other in [&[][..], &[C_TAG + 1], &[C_TAG ^ 0x2000], &[S_TAG], &[C_TAG, C_TAG]] {
        let [first, second] = [plain.clone().tagged(&[C_TAG]), plain.clone().tagged(other)];
        let packets = [&first, &second, &first.next(), &second.next()].map(Packet::clone);
        assert_eq!(counts(&packets), [2, 2], "{other:x?}");
    }
}

#[test]
fn what_differs_ends_a_train() {
    type Change = fn(&mut Packet);
    let of_all: &[Change] = &[
        |p| p.tos ^= 1,
        |p| p.tos ^= 0x40,
        |p| p.ttl -= 1,
        |p| p.checksum = Checksum::Wrong,
        |p| p.padding = 3,
    ];
    let of_v4: &[Change] = &[
        |p| set_v4(p, |id, _| *id = id.wrapping_sub(1)),
        |p| set_v4(p, |id, _| *id = id.wrapping_add(1)),
        |p| set_v4(p, |_, fragment| *fragment = 0),
        |p| set_v4(p, |_, fragment| *fragment = 0xc000),
        |p| set_v4(p, |_, fragment| *fragment = 0x2000),
        |p| p.ip = Ip::V4 { id: 0, fragment: 0x4000, options: 1 },
    ];
    let of_tcp: &[Change] = &[
        |p| set_tcp(p, |tcp| *tcp.0 += 1),
        |p| set_tcp(p, |tcp| *tcp.0 -= 1),
        |p| set_tcp(p, |tcp| *tcp.1 += 1),
        |p| set_tcp(p, |tcp| *tcp.2 += 1),
        |p| set_tcp(p, |tcp| *tcp.3 = 1),
        |p| set_tcp(p, |tcp| tcp.4[7] ^= 1),
        |p| set_tcp(p, |tcp| tcp.4.truncate(8)),
        |p| set_tcp(p, |tcp| tcp.4.extend([1; 4])),
        |p| *p = p.clone().flags(ACK | tcp::CWR),
        |p| *p = p.clone().flags(ACK | SYN),
        |p| *p = p.clone().flags(ACK | RST),
        |p| *p = p.clone().flags(ACK | URG),
        |p| *p = p.clone().flags(ACK | ECE),
        |p| *p = p.clone().flags(0),
        |p| p.payload.clear(),
    ];
    let of_udp: &[Change] = &[|p| p.checksum = Checksum::None, |p| p.payload.clear()];
    for packet in Packet::of_every_kind() {
        let is_v4 = matches!(packet.ip, Ip::V4 { .. });
        let is_tcp = matches!(packet.upper, Upper::Tcp { .. });
        let of_upper = if is_tcp { of_tcp } else { of_udp };
        let changes = of_all.iter().chain(of_upper).chain(if is_v4 { of_v4 } else { &[] });
        for (index, change) in changes.enumerate() {
            let mut packets = packet.stream(5);
            change(&mut packets[2]);
            let made = check_round_trip(&frames(&packets));
            let counts: Vec<_> = made.iter().map(|made| made.frames).collect();
            assert_eq!(counts[0], 2, "change {index} of {packet:?}");
        }
    }
}

#[test]
fn psh_and_fin_end_a_train_and_stay_on_its_last_packet() {
    for flags in [tcp::PSH, tcp::FIN, tcp::FIN | tcp::PSH] {
        let mut packets = Packet::tcp_v4().stream(5);
        packets[2] = packets[2].clone().flags(ACK | flags);
        let made = check_round_trip(&frames(&packets));
        assert_eq!(made.iter().map(|made| made.frames).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(made[0].bytes[47], ACK | flags);
        packets.remove(0);
        packets.remove(0);
        assert_eq!(counts(&packets), [1, 2], "no train begins with it");
    }
}

#[test]
fn packets_of_a_train_all_have_cwr_or_none_has() {
    let of = |count: usize, cwr: usize| {
        let mut packets = Packet::tcp_v6().stream(count);
        packets[..cwr].iter_mut().for_each(|p| *p = p.clone().flags(ACK | tcp::CWR));
        check_round_trip(&frames(&packets))
    };
    let made = of(4, 4);
    assert_eq!((made.len(), made[0].meta.gso_type), (1, GsoType::TCPV6), "CWR is not the first's");
    let counts = |made: Vec<Made>| made.iter().map(|made| made.frames).collect::<Vec<_>>();
    assert_eq!(counts(of(4, 1)), [1, 3]);
    assert_eq!(counts(of(6, 3)), [3, 3]);
}

#[test]
fn packets_of_a_train_have_the_same_counter_of_accurate_ecn() {
    let packet = Packet::tcp_v4().with(Checksum::Partial);
    let at = packet.upper_at() + tcp::field::DATA_OFFSET;
    let of = |counters: [u8; 4]| {
        let mut sent = frames(&packet.stream(4));
        for ((_, frame), counter) in sent.iter_mut().zip(counters) {
            frame[at] |= counter >> 2;
            frame[at + 1] |= counter << 6;
        }
        check_round_trip(&sent).iter().map(|made| made.frames).collect::<Vec<_>>()
    };
    for counter in 0..8 {
        assert_eq!(of([counter; 4]), [4]);
        for bit in [1, 2, 4] {
            let other = counter ^ bit;
            assert_eq!(of([counter, counter, other, other]), [2, 2], "{counter} and {other}");
        }
    }
}

#[test]
fn a_received_train_with_cwr_goes_on_where_all_its_packets_have_it() {
    for (ecn, flags, expected) in [
        (0, ACK | tcp::CWR, 1),
        (0, ACK, 2),
        (GsoType::ECN, ACK | tcp::CWR, 2),
        (GsoType::ECN, ACK, 2),
    ] {
        let train = Packet { gso_size: 100, ..Packet::tcp_v4().sized(300).flags(ACK | tcp::CWR) };
        let train = train.with(Checksum::Partial);
        let next = Packet { gso_size: 0, ..train.next() }.sized(100).flags(flags);
        let mut sent = frames(&[train, next]);
        sent[0].0.gso_type.0 |= ecn;
        assert_eq!(check_round_trip(&sent).len(), expected, "{ecn:x} {flags:x}");
        let mut sent = frames(&[
            Packet::tcp_v4().flags(flags),
            Packet { gso_size: 100, ..Packet::tcp_v4().next().sized(300) }
                .flags(ACK | tcp::CWR)
                .with(Checksum::Partial),
        ]);
        sent[1].0.gso_type.0 |= ecn;
        assert_eq!(check_round_trip(&sent).len(), expected, "behind: {ecn:x} {flags:x}");
    }
}

#[test]
fn a_fixed_identification_makes_no_train() {
    let mut packets = Packet::tcp_v4().stream(4);
    packets.iter_mut().for_each(|packet| set_v4(packet, |id, _| *id = 0));
    assert_eq!(counts(&packets), [1; 4]);
}

#[test]
fn checksums_are_judged_by_whoever_knows() {
    for packet in Packet::of_every_kind() {
        for states in [
            [Checksum::Right, Checksum::Vouched],
            [Checksum::Partial, Checksum::Partial],
            [Checksum::Vouched, Checksum::Partial],
            [Checksum::Partial, Checksum::Right],
        ] {
            let mut packets = packet.stream(4);
            let states = states.iter().cycle();
            packets.iter_mut().zip(states).for_each(|(packet, state)| packet.checksum = *state);
            assert_eq!(check_round_trip(&frames(&packets)).len(), 1);
        }
        let mut packets = packet.stream(3);
        packets[0].checksum = Checksum::Wrong;
        assert_eq!(counts(&packets), [1, 2], "{packet:?}");
        packets.iter_mut().for_each(|packet| packet.checksum = Checksum::Partial);
        let mut sent = frames(&packets);
        sent[1].1[packet.upper_at() + packet.checksum_offset()] ^= 1;
        assert_eq!(check_round_trip(&sent).len(), 3, "a partial checksum that is none");
        packets.iter_mut().for_each(|packet| packet.checksum = Checksum::Vouched);
        let mut sent = frames(&packets);
        sent[1].0 = NetHeader { flags: NetHeaderFlags::NEEDS_CSUM, csum_start: 20, ..sent[1].0 };
        assert_eq!(coalesce(&sent).len(), 3, "a partial checksum elsewhere");
    }
}

#[test]
fn an_ipv4_checksum_that_is_wrong_makes_no_train() {
    let mut sent = frames(&Packet::udp_v4().stream(3));
    sent[1].1[24] ^= 1;
    assert_eq!(check_round_trip(&sent).len(), 3);
}

#[test]
fn trains_have_a_largest_length() {
    for (packet, size, expected) in [
        // 52 bytes of headers after Ethernet, 65,483 of payload.
        (Packet::tcp_v4(), 1448, 45),
        (Packet::tcp_v4(), 9000, 7),
        (Packet::tcp_v4().tagged(&[C_TAG]), 1448, 45),
        (Packet::udp_v4(), 1472, 44),
        (Packet::udp_v4(), 10, 64),
        (Packet::tcp_v4(), 10, 100),
        (Packet::tcp_v4(), 65_483, 1),
        (Packet::tcp_v4(), 32_741, 2),
        (Packet::tcp_v4(), 32_742, 1),
        (Packet::tcp_v4().tagged(&[C_TAG]), 32_741, 1),
    ] {
        let packets = packet.clone().sized(size).stream(100);
        assert_eq!(check_round_trip(&frames(&packets))[0].frames, expected, "{size}");
    }
}

#[test]
fn no_train_has_more_packets_than_metadata_may_say() {
    let packets = Packet::tcp_v4().sized(1).stream(4100);
    let made = check_round_trip(&frames(&packets));
    assert_eq!(made.iter().map(|made| made.frames).collect::<Vec<_>>(), [4096, 4]);
    let train = Packet { gso_size: 1, ..Packet::tcp_v4().sized(3000).with(Checksum::Partial) };
    assert_eq!(counts(&[train.clone(), train.next()]), [1, 1]);
    let train = Packet { gso_size: 1, ..Packet::tcp_v4().sized(5000).with(Checksum::Partial) };
    assert_eq!(counts(&[train.clone(), Packet { gso_size: 0, ..train.next() }.sized(1)]), [1, 1]);
}

#[test]
fn a_train_goes_on_behind_a_train() {
    for packet in [Packet::tcp_v4(), Packet::tcp_v6()] {
        for checksum in [Checksum::Partial, Checksum::None] {
            let train =
                |packet: Packet, len, gso_size| Packet { gso_size, checksum, ..packet.sized(len) };
            let first = train(packet.clone(), 500, 100);
            let second = train(first.next(), 300, 100);
            let third = Packet { gso_size: 0, ..second.next() };
            let third = third.sized(100).with(Checksum::Right);
            let made = check_round_trip(&frames(&[first.clone(), second, third]));
            assert_eq!((made.len(), made[0].meta.wire_packets(900)), (1, 9));
            let other = train(first.next(), 300, 99);
            assert_eq!(check_round_trip(&frames(&[first, other])).len(), 2);
            let short = train(packet.clone(), 450, 100);
            let next = train(short.next(), 300, 100);
            assert_eq!(check_round_trip(&frames(&[short, next])).len(), 2);
        }
    }
    let train = Packet { gso_size: 100, ..Packet::udp_v4().sized(300).with(Checksum::Partial) };
    assert_eq!(counts(&[train.clone(), train.next()]), [1, 1]);
}

#[test]
fn a_packet_behind_a_train_says_its_own_length_and_not_the_trains() {
    for packet in [Packet::tcp_v4(), Packet::tcp_v6()] {
        let train = Packet { gso_size: 1000, ..packet.sized(3000).with(Checksum::Partial) };
        let first = Packet { gso_size: 0, ..train.next() }.sized(1000).with(Checksum::Right);
        let mut sent = frames(&[train, first.clone(), first.next(), first.next().next()]);
        assert_eq!(check_round_trip(&sent).len(), 1, "honest");
        let is_v4 = matches!(first.ip, Ip::V4 { .. });
        let field = first.network_at() + if is_v4 { 2 } else { 4 };
        let lie = read_u16(&sent[0].1, field);
        let (bytes, ip) = (&mut sent[2].1, first.network_at());
        write_u16(bytes, field, lie);
        if is_v4 {
            write_u16(bytes, ip + 10, 0);
            let checksum = Sum::of(&bytes[ip..ip + 20]).checksum();
            write_u16(bytes, ip + 10, checksum);
        }
        let made = check_round_trip(&sent);
        assert_eq!(made.iter().map(|made| made.frames).collect::<Vec<_>>(), [2, 1, 1], "{lie}");
    }
}

#[test]
fn what_cannot_be_told_ends_all_trains_and_what_is_foreign_none() {
    let fragment = |packet: &Packet| Packet {
        ip: Ip::V4 { id: 9, fragment: 0x2001, options: 0 },
        ..packet.clone()
    };
    let packets = Packet::tcp_v4().stream(4);
    let odd = fragment(&packets[1]);
    let with_odd = [&packets[0], &packets[1], &odd, &packets[2], &packets[3]].map(Packet::clone);
    assert_eq!(counts(&with_odd), [2, 1, 2]);
    let mut sent = frames(&packets);
    let mut arp = sent[0].1[..42].to_vec();
    arp[12..14].copy_from_slice(&[8, 6]);
    sent.insert(2, (NetHeader::PLAIN, arp));
    let mut icmp = sent[0].1.clone();
    icmp[23] = 1;
    sent.insert(2, (NetHeader::PLAIN, icmp));
    sent.insert(2, (NetHeader::PLAIN, vec![1, 2, 3]));
    let made = coalesce(&sent);
    assert_eq!(made.iter().map(|made| made.frames).collect::<Vec<_>>(), [4, 1, 1, 1]);
}

#[test]
fn extension_headers_are_repeated_or_in_the_way() {
    for (chain, expected) in [
        (&[ipv6::HOP_BY_HOP, ipv6::ROUTING, ipv6::DESTINATION_OPTIONS][..], 1),
        (&[ipv6::DESTINATION_OPTIONS; 8], 1),
        (&[ipv6::FRAGMENT], 3),
        (&[51], 3),
        (&[135], 3),
    ] {
        for mut packet in [Packet::tcp_v6(), Packet::udp_v6()] {
            packet.ip = Ip::V6 { label: 1, extensions: chain.to_vec() };
            assert_eq!(check_round_trip(&frames(&packet.stream(3))).len(), expected, "{chain:?}");
        }
    }
}

#[test]
fn what_is_routed_on_stays_alone() {
    let sent = routed_on();
    let made = coalesce(&sent);
    assert_eq!(made.len(), sent.len(), "its checksums are for another destination");
    assert!(made.iter().all(|made| made.frames == 1));
}

#[test]
fn a_place_outside_the_buffer_stays_alone() {
    use tapswitch_offload::Coalescer;
    use tapswitch_offload::coalesce::Place;
    let (meta, mut buf) = frames(&[Packet::tcp_v4()]).remove(0);
    let end = buf.len();
    let places = [(0, end), (0, end + 1), (9, 8), (usize::MAX, 0), (0, 0)];
    let batch = places.map(|(start, end)| Place { meta, start, end });
    let mut coalescer = Coalescer::new(1);
    assert_eq!(coalescer.coalesce(&mut buf, &batch).map(|unit| unit.first).sum::<usize>(), 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(500)))]

    #[test]
    fn cutting_undoes_coalescing(packets in batches()) {
        check_round_trip(&frames(&packets));
    }

    #[test]
    fn any_bytes_are_survived(sent in damaged(batches(), usize::MAX)) {
        let made = coalesce(&sent);
        prop_assert_eq!(made.iter().map(|made| made.frames).sum::<usize>(), sent.len());
    }
}

/// Up to five interleaved flows of a few packets, some of them unusual, lost, duplicated or out of
/// order.
fn batches() -> impl Strategy<Value = Vec<Packet>> {
    let flows = vec((0u8..4, 0usize..4, 1usize..300, 1usize..12), 1..6);
    let oddities = vec((any::<Index>(), 0u8..16), 0..6);
    let order = vec(any::<Index>(), 60);
    let shuffles = vec((any::<Index>(), any::<Index>(), 0u8..3), 0..4);
    (flows, oddities, order, shuffles).prop_map(|(flows, oddities, order, shuffles)| {
        let flows = flows.into_iter().zip(0..).map(|((which, depth, size, count), i)| {
            let tags = [S_TAG, LEGACY_TAG, C_TAG];
            kind(which).tagged(&tags[..depth]).of_flow(i).sized(size).stream(count)
        });
        let mut packets = interleave(flows, &order);
        for (index, oddity) in oddities {
            make_odd(index.get_mut(&mut packets), oddity);
        }
        shuffle(&mut packets, shuffles);
        packets
    })
}

fn make_odd(packet: &mut Packet, oddity: u8) {
    match oddity {
        0 => packet.checksum = Checksum::Wrong,
        1 => packet.checksum = Checksum::Vouched,
        2 => packet.checksum = Checksum::Partial,
        3 if matches!(packet.upper, Upper::Udp) => packet.checksum = Checksum::None,
        4 => packet.padding = 7,
        5 => packet.tos ^= 3,
        6 => packet.ttl -= 1,
        7 => set_v4(packet, |id, _| *id = 0),
        8 => set_v4(packet, |_, fragment| *fragment = 0x2000),
        9 => *packet = packet.clone().flags(ACK | tcp::PSH),
        10 => *packet = packet.clone().flags(ACK | tcp::CWR),
        11 => *packet = packet.clone().flags(SYN),
        12 => packet.payload.truncate(1),
        13 => packet.payload.clear(),
        14 => set_tcp(packet, |tcp| *tcp.3 = 5),
        _ => packet.payload.push(1),
    }
}

fn kind(which: u8) -> Packet {
    Packet::of_every_kind()[usize::from(which % 4)].clone()
}

fn set_v4(packet: &mut Packet, action: impl FnOnce(&mut u16, &mut u16)) {
    if let Ip::V4 { id, fragment, .. } = &mut packet.ip {
        action(id, fragment);
    }
}

/// Sequence number, acknowledgement, window, urgent pointer, options.
type TcpFields<'a> = (&'a mut u32, &'a mut u32, &'a mut u16, &'a mut u16, &'a mut Vec<u8>);

fn set_tcp(packet: &mut Packet, action: impl FnOnce(TcpFields<'_>)) {
    if let Upper::Tcp { seq, ack, window, urgent, options, .. } = &mut packet.upper {
        action((seq, ack, window, urgent, options));
    }
}
