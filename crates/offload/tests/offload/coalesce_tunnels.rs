//! Coalescing of packets in tunnels, and that segmentation reverses it.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "helpers of tests")]

use crate::packets::around::{Around, Kind};
use crate::packets::{
    ACK, C_TAG, Checksum, Frame, Ip, Packet, S_TAG, check_round_trip, coalesce, coalesce_inside,
    counts, damaged, frames, interleave, shuffle, wire_packets,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tapswitch_helpers::cases;
use tapswitch_offload::coalesce::Tunnels;
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ipv6, read_u16, tcp};

#[test]
fn packets_in_every_kind_of_tunnel_become_a_train() {
    for around in Around::of_every_kind() {
        for packet in Packet::of_every_kind() {
            for tags in [&[][..], &[S_TAG, C_TAG]] {
                let mut packets = packet.clone().inside(&around).tagged(tags).stream(10);
                packets[9].payload.truncate(33);
                let made = check_round_trip(&frames(&packets));
                assert_eq!(made.len(), 1, "{around:?}, {packet:?}");
                assert_eq!(made[0].meta.wire_packets(933), 10);
            }
        }
    }
}

#[test]
fn tags_inside_are_repeated() {
    let around = Around { tags: vec![C_TAG, C_TAG], ..Around::v4(Kind::Vxlan) };
    let packets = Packet::tcp_v6().inside(&around).stream(4);
    assert_eq!(check_round_trip(&frames(&packets)).len(), 1);
}

#[test]
fn a_train_says_in_which_tunnel_it_is_and_what_is_left_to_do() {
    let packet = Packet::tcp_v4().inside(&Around::v4(Kind::Vxlan)).tagged(&[S_TAG]);
    let made = coalesce(&frames(&packet.stream(3))).remove(0);
    let expected = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM | NetHeaderFlags::UDP_TUNNEL_CSUM,
        gso_type: GsoType(GsoType::TCPV4.0 | GsoType::UDP_TUNNEL_IPV4),
        hdr_len: 120,
        gso_size: 100,
        csum_start: 88,
        csum_offset: 16,
    };
    assert_eq!(made.meta, expected);
    assert_eq!((made.long.outer_transport, made.long.inner_network), (38, 68));
    let from = |at: usize| made.bytes.len() - at;
    assert_eq!(usize::from(read_u16(&made.bytes, 20)), from(18), "outer IP");
    assert_eq!(usize::from(read_u16(&made.bytes, 42)), from(38), "UDP");
    assert_eq!(usize::from(read_u16(&made.bytes, 70)), from(68), "inner IP");
    let without = Around::v6(Kind::Geneve { options: 1, ethernet: true }).without_checksum();
    let made = coalesce(&frames(&Packet::udp_v6().inside(&without).stream(2))).remove(0);
    let bits = GsoType::UDP_L4.0 | GsoType::UDP_TUNNEL_IPV6;
    assert_eq!((made.meta.gso_type.0, made.meta.flags), (bits, NetHeaderFlags::NEEDS_CSUM));
}

#[test]
fn trains_that_metadata_has_no_words_for_are_made_for_those_that_ask() {
    for around in Around::of_every_kind() {
        let sent = frames(&Packet::tcp_v4().inside(&around).stream(3));
        let count = |tunnels| coalesce_inside(tunnels, &sent).len();
        let of_udp = if around.is_udp() { 1 } else { 3 };
        assert_eq!((count(Tunnels::Udp), count(Tunnels::All)), (of_udp, 1), "{around:?}");
        let made = coalesce(&sent).remove(0).long;
        let is_told = made.is_tunnelled() && made.inner_network != 0;
        assert_eq!(is_told, around.is_udp());
    }
}

#[test]
fn who_does_not_ask_gets_trains_of_the_outer_datagrams() {
    let packets = Packet::tcp_v4().inside(&Around::v4(Kind::Vxlan)).stream(3);
    let made = coalesce_inside(Tunnels::None, &frames(&packets)).remove(0);
    assert_eq!((made.frames, made.meta.gso_type), (3, GsoType::UDP_L4));
    let around = Around::v4(Kind::Vxlan).without_checksum();
    let packets = Packet::tcp_v4().inside(&around).stream(3);
    assert_eq!(coalesce_inside(Tunnels::None, &frames(&packets)).len(), 3);
}

#[test]
fn what_differs_around_a_packet_ends_a_train() {
    type Change = fn(&mut Around);
    let of_all: &[Change] = &[|a| a.tos ^= 1, |a| a.tos ^= 0x40, |a| a.ttl -= 1];
    let of_v4: &[Change] = &[
        |a| set_v4(a, |id, _| *id = id.wrapping_sub(1)),
        |a| set_v4(a, |id, _| *id = id.wrapping_add(1)),
        |a| set_v4(a, |_, fragment| *fragment = 0x4000),
        |a| set_v4(a, |_, fragment| *fragment = 0x8000),
        |a| set_v4(a, |_, fragment| *fragment = 0x2000),
        |a| a.ip = Ip::V4 { id: 0xffff, fragment: 0, options: 1 },
    ];
    let of_sums: &[Change] = &[|a| a.checksum = Checksum::Wrong];
    for around in Around::of_every_kind() {
        let is_v4 = matches!(around.ip, Ip::V4 { .. });
        let has_sum = around.checksum == Checksum::Right && around.kind != Kind::Ip;
        let changes = of_all.iter().chain(if is_v4 { of_v4 } else { &[] });
        let changes = changes.chain(if has_sum { of_sums } else { &[] });
        for (index, change) in changes.enumerate() {
            let mut packets = Packet::tcp_v4().inside(&around).stream(5);
            packets[2].around.iter_mut().for_each(change);
            let made = check_round_trip(&frames(&packets));
            assert_eq!(made[0].frames, 2, "change {index} of {around:?}");
        }
    }
}

#[test]
fn tunnels_tell_flows_apart() {
    type Change = fn(&mut Around);
    let changes: &[Change] = &[
        |a| a.id += 1,
        |a| a.flow += 1,
        |a| a.checksum = Checksum::None,
        |a| a.tags = vec![C_TAG],
        |a| a.kind = Kind::Ip,
    ];
    for kind in [Kind::Vxlan, Kind::Gre { key: true, ethernet: true }] {
        for around in [Around::v4(kind), Around::v6(kind)] {
            for (index, change) in changes.iter().enumerate() {
                let mut other = around.clone();
                change(&mut other);
                let [first, second] = [&around, &other].map(|a| Packet::tcp_v4().inside(a));
                let packets = [&first, &second, &first.next(), &second.next()].map(Packet::clone);
                let sent = frames(&packets);
                assert_eq!(counts(&packets), [2, 2], "change {index} of {around:?}");
                let made = coalesce(&sent);
                let cut =
                    made.iter().flat_map(|made| wire_packets(&(made.meta, made.bytes.clone())));
                let expected = [0, 2, 1, 3].map(|i: usize| sent[i].1.clone());
                assert_eq!(cut.collect::<Vec<_>>(), expected);
            }
        }
    }
}

#[test]
fn flows_in_one_tunnel_do_not_disturb_each_other() {
    let flow = |i: u8| {
        let packet = Packet::of_every_kind()[usize::from(i % 4)].clone().of_flow(i);
        packet.inside(&Around::v4(Kind::Vxlan)).stream(4)
    };
    let flows: Vec<_> = (0..20).map(flow).collect();
    let packets: Vec<_> = (0..4).flat_map(|i| flows.iter().map(move |f| f[i].clone())).collect();
    let made = coalesce(&frames(&packets));
    assert_eq!(made.len(), 20);
    assert!(made.iter().enumerate().all(|(i, made)| (made.first, made.frames) == (i, 4)));
}

#[test]
fn what_ends_a_train_without_a_tunnel_ends_it_inside_one() {
    type Change = fn(&mut Packet);
    let changes: &[Change] = &[
        |p| p.tos ^= 1,
        |p| p.ttl -= 1,
        |p| p.checksum = Checksum::Wrong,
        |p| p.padding = 3,
        |p| p.payload.push(1),
        |p| p.payload.clear(),
        |p| p.ip = Ip::V4 { id: 7, fragment: 0x4000, options: 0 },
        |p| p.ip = Ip::V4 { id: 0, fragment: 0x2000, options: 0 },
        |p| p.ip = Ip::V4 { id: 0, fragment: 0x4000, options: 1 },
        |p| *p = p.clone().flags(ACK | tcp::CWR),
    ];
    for around in Around::of_every_kind() {
        for (index, change) in changes.iter().enumerate() {
            let mut packets = Packet::tcp_v4().inside(&around).stream(5);
            change(&mut packets[2]);
            let made = check_round_trip(&frames(&packets));
            assert_eq!(made[0].frames, 2, "change {index} inside {around:?}");
        }
        let mut packets = Packet::tcp_v6().inside(&around).stream(5);
        packets[2] = packets[2].clone().flags(ACK | tcp::PSH);
        assert_eq!(counts(&packets), [3, 2]);
    }
}

#[test]
fn nobody_vouches_for_a_checksum_inside() {
    for around in Around::of_every_kind() {
        let packet = Packet::tcp_v4().inside(&around).with(Checksum::Vouched);
        let mut sent = frames(&packet.stream(3));
        assert_eq!(coalesce(&sent).len(), 1);
        sent[1].1[packet.upper_at() + 16] ^= 1;
        assert_ne!(coalesce(&sent).len(), 1, "{around:?}");
    }
}

#[test]
fn a_checksum_inside_may_be_partial_and_one_outside_may_not() {
    for around in Around::of_every_kind() {
        for packet in Packet::of_every_kind() {
            let packets = packet.inside(&around).with(Checksum::Partial).stream(4);
            let mut sent = frames(&packets);
            assert_eq!(check_round_trip(&sent).len(), 1, "{around:?}");
            for (meta, _) in &mut sent {
                (meta.csum_start, meta.csum_offset) = (34, 6);
            }
            assert_eq!(coalesce(&sent).len(), 4);
        }
    }
}

#[test]
fn received_trains_in_tunnels_stay_alone() {
    for around in Around::of_every_kind() {
        let train = Packet { gso_size: 50, ..Packet::tcp_v4().with(Checksum::Partial) };
        assert_eq!(counts(&train.inside(&around).stream(2)), [1, 1]);
    }
}

#[test]
fn what_a_tunnel_carries_besides_flows_is_in_nobodys_way() {
    let packets = Packet::tcp_v4().inside(&Around::v4(Kind::Vxlan)).stream(4);
    let inner_type_at = packets[0].network_at() - 2;
    let mut sent = frames(&packets);
    let insert = |sent: &mut Vec<Frame>, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = sent[0].1.clone();
        change(&mut frame);
        sent.insert(2, (NetHeader::PLAIN, frame));
    };
    insert(&mut sent, &|frame| frame[inner_type_at + 1] = 6);
    insert(&mut sent, &|frame| frame[inner_type_at + 2 + 9] = 1);
    insert(&mut sent, &|frame| frame.truncate(45));
    let counts = |sent: &[Frame]| coalesce(sent).iter().map(|m| m.frames).collect::<Vec<_>>();
    assert_eq!(counts(&sent), [4, 1, 1, 1]);
    // A fragment may be of any flow.
    insert(&mut sent, &|frame| frame[inner_type_at + 2 + 6] = 0x20);
    assert_eq!(counts(&sent), [2, 1, 1, 1, 1, 2]);
}

#[test]
fn trains_in_tunnels_have_a_largest_length_too() {
    for (packet, size, expected) in [
        // 20, 8, 8, 14, 20 and 32 bytes of headers after Ethernet.
        (Packet::tcp_v4(), 32_716, 2),
        (Packet::tcp_v4(), 32_717, 1),
        (Packet::udp_v4(), 10, 64),
    ] {
        let packets = packet.sized(size).inside(&Around::v4(Kind::Vxlan)).stream(70);
        let packets = &packets[..if size > 10 { 3 } else { 70 }];
        assert_eq!(check_round_trip(&frames(packets))[0].frames, expected, "{size}");
    }
}

#[test]
fn many_shapes_of_headers_are_told_apart_and_more_are_forgotten() {
    let shape = |i: usize| Packet::tcp_v4().of_flow(i as u8).tagged(&vec![C_TAG; i]).stream(3);
    for (shapes, expected) in [(12, 12), (13, 39)] {
        let flows: Vec<_> = (0..shapes).map(shape).collect();
        let packets: Vec<_> =
            (0..3).flat_map(|i| flows.iter().map(move |f| f[i].clone())).collect();
        assert_eq!(check_round_trip(&frames(&packets)).len(), expected);
    }
}

/// Packets that oddities put in another tunnel get a flow of their own, whose order counts alone.
#[test]
fn packets_with_any_two_oddities_survive_a_round_trip() {
    for around in Around::of_every_kind() {
        let packets = Packet::udp_v6().inside(&around).of_flow(0).stream(4);
        for (first, second) in (0..18).flat_map(|first| (0..18).map(move |second| (first, second)))
        {
            let mut packets = packets.clone();
            make_odd(&mut packets[0], first);
            make_odd(&mut packets[1], second);
            packets[2] = packets[0].clone();
            check_round_trip(&frames(&packets));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(500)))]

    #[test]
    fn cutting_undoes_coalescing(packets in batches()) {
        check_round_trip(&frames(&packets));
    }

    #[test]
    fn any_bytes_are_survived(sent in damaged(batches(), 150)) {
        let made = coalesce(&sent);
        prop_assert_eq!(made.iter().map(|made| made.frames).sum::<usize>(), sent.len());
    }
}

/// Up to five interleaved flows of a few packets, each in its own tunnel, some packets unusual,
/// lost, duplicated or out of order.
fn batches() -> impl Strategy<Value = Vec<Packet>> {
    let kinds = (select(Packet::of_every_kind().to_vec()), select(Around::of_every_kind()));
    let flows = vec((kinds, 0usize..3, 1usize..300, 1usize..12), 1..6);
    let oddities = vec((any::<Index>(), 0u8..18), 0..6);
    let shuffles = vec((any::<Index>(), any::<Index>(), 0u8..3), 0..4);
    (flows, oddities, vec(any::<Index>(), 60), shuffles).prop_map(
        |(flows, oddities, order, shuffles)| {
            let flows =
                flows.into_iter().zip(0..).map(|(((packet, around), depth, size, n), i)| {
                    let around = Around { tags: vec![C_TAG; depth], ..around };
                    packet.inside(&around).of_flow(i).sized(size).stream(n)
                });
            let mut packets = interleave(flows, &order);
            for (index, oddity) in oddities {
                make_odd(index.get_mut(&mut packets), oddity);
            }
            shuffle(&mut packets, shuffles);
            packets
        },
    )
}

fn make_odd(packet: &mut Packet, oddity: u8) {
    let Some(around) = &mut packet.around else { return };
    match oddity {
        0 => packet.checksum = Checksum::Wrong,
        1 => packet.checksum = Checksum::Vouched,
        2 => packet.checksum = Checksum::Partial,
        3 => packet.padding = 7,
        4 => packet.tos ^= 3,
        5 => packet.payload.truncate(1),
        6 => packet.payload.clear(),
        7 => packet.payload.push(1),
        8 => *packet = packet.clone().flags(ACK | tcp::PSH),
        9 => around.tos ^= 3,
        10 => around.ttl -= 1,
        11 => {
            around.id ^= 1;
            *packet = packet.clone().of_flow(packet.flow ^ OF_ANOTHER_ID);
        }
        12 => set_v4(around, |id, _| *id = 0),
        13 => set_v4(around, |_, fragment| *fragment ^= 0x4000),
        14 => set_v4(around, |_, fragment| *fragment = 0x2000),
        15 if around.checksum == Checksum::Right => around.checksum = Checksum::Wrong,
        16 => {
            around.ip = Ip::V6 { label: 9, extensions: vec![ipv6::DESTINATION_OPTIONS] };
            *packet = packet.clone().of_flow(packet.flow | WITH_EXTENSIONS);
        }
        _ => around.ip = Ip::V4 { id: 5, fragment: 0, options: 2 },
    }
}

fn set_v4(around: &mut Around, action: impl FnOnce(&mut u16, &mut u16)) {
    if let Ip::V4 { id, fragment, .. } = &mut around.ip {
        action(id, fragment);
    }
}

#[test]
fn a_late_packet_ends_its_flows_train() {
    for around in Around::of_every_kind() {
        for packet in Packet::of_every_kind() {
            let mut packets = packet.inside(&around).stream(5);
            packets.swap(0, 1);
            packets[1].payload.truncate(8);
            check_round_trip(&frames(&packets));
            packets[1].payload.clear();
            check_round_trip(&frames(&packets));
        }
    }
}

/// Bits of flows that are in another tunnel than their other packets.
const OF_ANOTHER_ID: u8 = 0x40;
const WITH_EXTENSIONS: u8 = 0x80;
