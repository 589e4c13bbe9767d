//! Trains in tunnels: outer headers of each packet, and refusals.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on lengths that they chose"
)]

use crate::common::judge::judge;
use crate::common::{C_TAG, Encapsulation, Ip, S_TAG, Train, Tunnel, Upper, cut, cut_with};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use proptest::sample::Index;
use tapswitch_offload::{ChecksumRule, IdRule, OffloadError, SplitOptions, Verdict, verify};
use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{GsoType, LongNetHeader, MetadataError, NetHeader, parse, read_u16};

const DEFAULT: SplitOptions = SplitOptions {
    id: IdRule::Increment,
    outer_id: IdRule::Increment,
    fragment_seed: 0,
    checksum: ChecksumRule::Complete,
};

proptest! {
    #[test]
    fn every_packet_is_valid_inside_and_outside(
        train in crate::common::tunnelled_trains(),
        split in any::<Index>(),
    ) {
        let (meta, frame) = (train.long_meta(), train.frame());
        let headers_len = train.headers_len();
        let (headers, payload) = frame.split_at(headers_len + split.index(train.payload_len + 1));
        let frames = cut_with(&meta, &DEFAULT, headers, &[payload]).unwrap();
        let joined: Vec<u8> = frames.iter().flat_map(|f| &f[headers_len..]).copied().collect();
        prop_assert_eq!(&joined[..], &frame[headers_len..]);
        prop_assert_eq!(frames.len(), meta.base.wire_packets(train.payload_len) as usize);
        for (index, segment) in frames.iter().enumerate() {
            judge(&train, segment, index, frames.len());
            judge_outside(&train, segment, index);
        }
        // Without offsets the headers are found as well.
        prop_assert_eq!(cut(&meta.base, headers, payload).unwrap(), frames);
    }

    #[test]
    fn the_packets_inside_are_those_without_a_tunnel(
        train in crate::common::tunnelled_trains().prop_map(of_several_packets),
    ) {
        let frames = cut_with(&train.long_meta(), &DEFAULT, &train.frame(), &[]).unwrap();
        let mut bare = train.clone();
        (bare.tunnel, bare.tags) = (None, vec![]);
        prop_assert!(frames.len() > 1);
        let expected = cut(&bare.meta(), &bare.frame(), &[]).unwrap();
        for (frame, expected) in frames.iter().zip(&expected) {
            prop_assert_eq!(&frame[train.network_at()..], &expected[bare.network_at()..]);
        }
    }
}

fn of_several_packets(train: Train) -> Train {
    let payload_len = train.payload_len.max(usize::from(train.gso_size) + 1);
    Train { payload_len, ..train }
}

/// Checks the outer headers of one packet.
fn judge_outside(train: &Train, frame: &[u8], index: usize) {
    let tunnel = train.tunnel.as_ref().unwrap();
    let at = 14 + 4 * train.tags.len();
    assert_eq!(frame[..at], train.frame()[..at]);
    let packet = &frame[at..];
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    if let (Some(NetSlice::Ipv4(ip)), Ip::V4 { identification, .. }) = (&sliced.net, &tunnel.ip) {
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(header.identification, identification.wrapping_add(index as u16));
        assert_eq!(usize::from(header.total_len), packet.len());
    }
    let upper = &packet[tunnel.ip.len()..];
    match (&tunnel.encapsulation, &sliced.transport) {
        (Encapsulation::Ip, _) => {}
        (Encapsulation::Gre { has_checksum, .. }, _) => {
            assert!(!has_checksum || Sum::of(upper).partial() == 0xffff);
        }
        (_, Some(TransportSlice::Udp(udp))) => {
            assert_eq!(usize::from(udp.length()), upper.len());
            let expected = match (tunnel.has_checksum(), &tunnel.ip) {
                (true, _) => Verdict::Valid,
                (false, Ip::V4 { .. }) => Verdict::Absent,
                (false, Ip::V6 { .. }) => Verdict::Invalid,
            };
            assert_eq!(verify(frame, &[]).transport, expected);
            assert!(!tunnel.has_checksum() || udp.checksum() != 0);
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn identifications_are_counted_outside_and_inside() {
    let train = vxlan(Train::tcp_v4());
    let ids = |options: SplitOptions| {
        let frames = cut_with(&train.long_meta(), &options, &train.frame(), &[]).unwrap();
        frames.iter().map(|f| (read_u16(f, 18), read_u16(f, 68))).collect::<Vec<_>>()
    };
    let counted = [(0xfffd, 0xfffe), (0xfffe, 0xffff), (0xffff, 0), (0, 1)];
    assert_eq!(ids(DEFAULT), counted);
    let inner_fixed = SplitOptions { id: IdRule::Fixed, ..DEFAULT };
    assert_eq!(ids(inner_fixed), counted.map(|(outer, _)| (outer, 0xfffe)));
    let outer_fixed = SplitOptions { outer_id: IdRule::Fixed, ..DEFAULT };
    assert_eq!(ids(outer_fixed), counted.map(|(_, inner)| (0xfffd, inner)));
}

#[test]
fn a_checksum_that_nobody_spoke_of_is_made_right_too() {
    let mut train = vxlan(Train::tcp_v6());
    train.tunnel.as_mut().unwrap().encapsulation =
        Encapsulation::Vxlan { has_checksum: false, tags: vec![] };
    let mut frame = train.frame();
    frame[40..42].copy_from_slice(&[0xab, 0xcd]);
    for packet in cut(&train.meta(), &frame, &[]).unwrap() {
        assert_eq!(verify(&packet, &[]).transport, Verdict::Valid);
    }
}

#[test]
fn whatever_is_between_is_repeated_when_the_metadata_says_where_it_ends() {
    // An unknown port, and a header of odd length.
    let train = vxlan(Train::udp_v4());
    let mut frame = train.frame();
    frame[36..38].copy_from_slice(&[0x99, 0x99]);
    frame.insert(50, 0xcc);
    let mut meta = train.long_meta();
    meta.inner_network += 1;
    meta.base.csum_start += 1;
    let frames = cut_with(&meta, &DEFAULT, &frame, &[]).unwrap();
    assert_eq!(frames.len(), 4);
    for packet in frames {
        assert_eq!(packet[42..65], frame[42..65]);
        assert_eq!(verify(&packet, &[]).transport, Verdict::Valid);
    }
    let unknown = OffloadError::Unsupported("a UDP tunnel on an unknown port");
    assert_eq!(cut(&meta.base, &frame, &[]), Err(unknown));
}

/// Any port: the metadata contains the position of the inner header, to which only one kind of
/// tunnel leads.
#[test]
fn tunnels_are_found_on_any_port() {
    let bare = |train: Train| {
        let mut train = in_geneve(train);
        let mut frame = train.frame();
        // After the UDP header: 8 bytes of Geneve and 8 of its options.
        frame.drain(42..58);
        train.tunnel = None;
        (NetHeader { csum_start: 42 + train.ip.len() as u16, ..train.meta() }, frame)
    };
    let in_tunnel = |train: Train| (train.meta(), train.frame());
    let trains = [
        in_tunnel(vxlan(Train::tcp_v4())),
        in_tunnel(vxlan(Train::udp_v6())),
        in_tunnel(in_geneve(Train::tcp_v6())),
        bare(Train::tcp_v4()),
        bare(Train::tcp_v6()),
    ];
    for (number, (meta, mut frame)) in trains.into_iter().enumerate() {
        let mut expected = None;
        for port in [9999_u16, 4789, 4790, 6081, 8472] {
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            let mut packets = cut(&meta, &frame, &[]).unwrap();
            assert!(packets.len() > 1);
            for packet in &mut packets {
                assert_eq!(verify(packet, &[]).network, Verdict::Valid);
                // The outer checksum depends on the port, too.
                packet[36..38].fill(0);
                packet[40..42].fill(0);
            }
            let expected = expected.get_or_insert_with(|| packets.clone());
            assert!(packets == *expected, "{number} at port {port}");
        }
        // Not without evidence.
        frame[36..38].copy_from_slice(&9999_u16.to_be_bytes());
        for csum_start in [meta.csum_start + 2, meta.csum_start + 20] {
            let unknown = OffloadError::Unsupported("a UDP tunnel on an unknown port");
            assert_eq!(cut(&NetHeader { csum_start, ..meta }, &frame, &[]), Err(unknown));
        }
    }
}

#[test]
fn a_train_of_one_packet_is_finished_too() {
    for train in [vxlan(Train::tcp_v4()), gre(Train::udp_v6(), true)] {
        let train = train.sized(100, 1448);
        let frames = cut(&train.meta(), &train.frame(), &[]).unwrap();
        assert_eq!(frames.len(), 1);
        judge(&train, &frames[0], 0, 1);
        judge_outside(&train, &frames[0], 0);
    }
}

#[test]
fn each_lie_has_its_name() {
    use OffloadError as E;
    let train = vxlan(Train::tcp_v4()).tagged(&[S_TAG, C_TAG]);
    let good = train.long_meta();
    let check = |meta: LongNetHeader, error: OffloadError| {
        assert_eq!(cut_with(&meta, &DEFAULT, &train.frame(), &[]), Err(error), "{meta:?}");
    };
    let with = |gso_type: u8| NetHeader { gso_type: GsoType(gso_type), ..good.base };
    let tunnel = E::Metadata(MetadataError::Tunnel);
    check(LongNetHeader { outer_transport: good.outer_transport + 4, ..good }, tunnel);
    check(LongNetHeader { inner_network: good.inner_network + 1, ..good }, tunnel);
    let both = GsoType::TCPV4.0 | GsoType::UDP_TUNNEL;
    check(LongNetHeader { base: with(both), ..good }, tunnel);
    check(LongNetHeader::from(with(both)), tunnel);
    check(NetHeader { flags: 0, ..good.base }.into(), E::ChecksumMissing);
    check(with(GsoType::UDP_L4.0 | GsoType::UDP_TUNNEL_IPV4).into(), E::Protocol);
    check(with(GsoType::TCPV6.0).into(), E::Protocol);
    check(with(GsoType::UDP.0).into(), E::Unsupported("UFO in a tunnel"));
    let place = NetHeader { csum_start: good.base.csum_start - 4, ..good.base };
    check(place.into(), E::ChecksumPlace);
    let plain = Train::tcp_v4().tagged(&[S_TAG, C_TAG]);
    let meta = NetHeader { gso_type: good.base.gso_type, ..plain.meta() };
    assert_eq!(cut(&meta, &plain.frame(), &[]), Err(tunnel), "no tunnel at all");
}

#[test]
fn tunnels_that_cannot_be_repeated_are_refused() {
    use OffloadError as E;
    let changed = |train: &Train, at: usize, value: u8| {
        let mut frame = train.frame();
        frame[at] = value;
        cut(&train.meta(), &frame, &[]).unwrap_err()
    };
    let train = gre(Train::tcp_v4(), false);
    assert_eq!(changed(&train, 34, 0x10), E::Unsupported("GRE with sequence numbers"));
    assert_eq!(changed(&train, 35, 0x01), E::Unsupported("this kind of GRE"));
    assert_eq!(changed(&train, 36, 0x88), E::Protocol, "GRE of something else");
    assert_eq!(changed(&train, 20, 0x20), E::Fragment, "a fragment outside");
    assert_eq!(changed(&train, 38 + 6, 0x20), E::Fragment, "a fragment inside");
    let geneve = in_geneve(Train::tcp_v4());
    assert_eq!(changed(&geneve, 42, 0x40), E::Unsupported("a newer version of Geneve"));
    assert_eq!(changed(&geneve, 42, 0x3f), E::Headers, "options that reach into the payload");
    let twice = E::Protocol;
    assert_eq!(changed(&train, 38 + 9, 47), twice, "a tunnel in a tunnel");
}

#[test]
fn headers_cut_short_are_refused() {
    for train in [vxlan(Train::tcp_v4()), gre(Train::udp_v6(), true), in_geneve(Train::tcp_v6())] {
        let frame = train.frame();
        for len in 0..train.headers_len() {
            let (headers, payload) = frame.split_at(len);
            assert!(cut(&train.meta(), headers, payload).is_err(), "{len} bytes of headers");
        }
    }
}

#[test]
fn outer_lengths_bound_the_packets() {
    let train = vxlan(Train::tcp_v4()).sized(140_000, 65_490);
    let bare = Train { tunnel: None, ..train.clone() };
    assert!(cut(&bare.meta(), &bare.frame(), &[]).is_err(), "65,542 bytes of IP");
    let train = train.sized(140_000, 65_440);
    let bare = Train { tunnel: None, ..train.clone() };
    assert!(cut(&bare.meta(), &bare.frame(), &[]).is_ok());
    let error = cut(&train.meta(), &train.frame(), &[]);
    assert_eq!(error, Err(OffloadError::SegmentTooLong));
}

#[test]
fn the_outer_headers_are_what_a_parser_sees() {
    let train = vxlan(Train::tcp_v4()).tagged(&[S_TAG]);
    for packet in cut(&train.meta(), &train.frame(), &[]).unwrap() {
        let layout = parse(&packet).unwrap().layout;
        assert_eq!((layout.tags, layout.transport, layout.end), (1, Some(38), 46));
    }
}

fn vxlan(train: Train) -> Train {
    let inner = train.ip.clone();
    train.inside(Tunnel::vxlan_v4(true, inner))
}

fn gre(train: Train, has_checksum: bool) -> Train {
    let vxlan = Tunnel::vxlan_v4(false, train.ip.clone());
    let encapsulation = Encapsulation::Gre { has_key: false, has_checksum, tags: None };
    train.inside(Tunnel { encapsulation, ..vxlan })
}

fn in_geneve(train: Train) -> Train {
    let vxlan = Tunnel::vxlan_v4(false, train.ip.clone());
    let encapsulation = Encapsulation::Geneve { options: 2, has_checksum: true, tags: None };
    assert!(matches!(train.upper, Upper::Tcp { .. }));
    train.inside(Tunnel { encapsulation, ..vxlan })
}
