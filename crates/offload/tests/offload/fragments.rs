//! Fragmented datagrams: reassembly results in the datagram.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on lengths that they chose"
)]

use crate::common::judge::judge_checksums;
use crate::common::{Ip, Train, Upper, cut, cut_with, datagrams};
use proptest::prelude::*;
use proptest::sample::Index;
use tapswitch_offload::{OffloadError, SplitOptions, Verdict, complete_checksum, verify};
use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ipv6, read_u16, read_u32, write_u16};

proptest! {
    #[test]
    fn what_is_cut_can_be_put_together(train in datagrams(), split in any::<Index>()) {
        let (meta, frame) = (train.meta(), train.frame());
        let headers_len = train.headers_len();
        let (headers, payload) = frame.split_at(headers_len + split.index(train.payload_len + 1));
        let frames = cut(&meta, headers, payload).unwrap();
        let expected = completed(&train);
        if frames.len() == 1 {
            let whole = if train.is_partial { expected } else { frame };
            prop_assert_eq!(&frames[0], &whole);
        } else {
            prop_assert_eq!(joined(&train, &frames), expected);
        }
    }
}

#[test]
fn fragments_of_ipv4_count_in_units_of_eight() {
    let train = Train::ufo_v4();
    let frames = cut(&train.meta(), &train.frame(), &[]).unwrap();
    let fields: Vec<_> = frames.iter().map(|f| (read_u16(f, 16), read_u16(f, 20))).collect();
    // The first contains the UDP header; "don't fragment" is cleared.
    assert_eq!(fields, [(1468, 0x2000), (1468, 0x20b5), (1468, 0x216a), (752, 0x021f)]);
    assert!(frames.iter().all(|frame| read_u16(frame, 18) == 0xfffe), "one identification");
    for frame in &frames {
        assert_eq!(Sum::of(&frame[14..34]).partial(), 0xffff);
        assert_eq!(verify(frame, &[]).network, Verdict::Valid);
        assert_eq!(verify(frame, &[]).transport, Verdict::Unknown);
    }
}

#[test]
fn fragments_of_ipv6_have_a_header_more() {
    let train = Train::ufo_v6();
    let frames = cut(&train.meta(), &train.frame(), &[]).unwrap();
    let fields: Vec<_> = frames.iter().map(|f| (read_u16(f, 18), f[20], read_u16(f, 56))).collect();
    let expected = [(1456, 44, 1), (1456, 44, 1449), (1456, 44, 2897), (740, 44, 4344)];
    assert_eq!(fields, expected);
    assert!(frames.iter().all(|frame| frame[54..56] == [17, 0]));
    assert!(frames.iter().all(|frame| frame[58..62] == frames[0][58..62]));
}

#[test]
fn each_datagram_of_ipv6_has_its_own_identification() {
    let identification = |train: &Train, fragment_seed| {
        let options = SplitOptions { fragment_seed, ..SplitOptions::default() };
        let frames = cut_with(&train.long_meta(), &options, &train.frame(), &[]).unwrap();
        read_u32(&frames[0], 58)
    };
    let train = Train::ufo_v6();
    let first = identification(&train, 1);
    assert_eq!(identification(&train, 2), first.wrapping_add(1));
    assert_ne!(identification(&train.clone().sized(5000, 1448), 1), first);
}

#[test]
fn options_behind_a_routing_header_travel_in_the_first_fragment() {
    let options = ipv6::DESTINATION_OPTIONS;
    let mut train = Train::ufo_v6();
    train.ip = Ip::V6 { extensions: vec![ipv6::HOP_BY_HOP, options, ipv6::ROUTING, options] };
    let frames = cut(&train.meta(), &train.frame(), &[]).unwrap();
    assert_eq!(frames.len(), 4);
    for (index, frame) in frames.iter().enumerate() {
        // Fixed header, three repeated ones, the fragment header.
        assert_eq!((frame[20], frame[54], frame[62], frame[70]), (0, options, 43, 44));
        assert_eq!(frame[78], options);
        assert_eq!(read_u16(frame, 80) & 0xfff8, 1448 * index as u16);
    }
    assert_eq!(frames[0][86], 17, "UDP behind the options");
    assert_eq!(joined(&train, &frames), completed(&train));
}

#[test]
fn each_lie_has_its_name() {
    use OffloadError as E;
    let check = |train: &Train, error: OffloadError| {
        assert_eq!(cut(&train.meta(), &train.frame(), &[]), Err(error), "{train:?}");
    };
    check(&Train::ufo_v4().sized(5000, 1449), E::FragmentSize);
    check(&Train::ufo_v4().sized(5000, 4), E::FragmentSize);
    let mut routed = Train::ufo_v6().sized(5000, 8);
    let extensions = vec![ipv6::ROUTING, ipv6::DESTINATION_OPTIONS];
    routed.ip = Ip::V6 { extensions };
    check(&routed, E::FragmentSize);
    check(&Train::ufo_v4().sized(65_508, 1448), E::DatagramTooLong);
    check(&Train::ufo_v6().sized(65_528, 1448), E::DatagramTooLong);
    check(&Train::ufo_v6().sized(65_527, 65_528), E::SegmentTooLong);
    let mut hops = Train::ufo_v6().sized(65_519, 65_520);
    hops.ip = Ip::V6 { extensions: vec![ipv6::HOP_BY_HOP] };
    check(&hops, E::SegmentTooLong);
    assert!(cut(&Train::ufo_v4().sized(65_507, 8).meta(), &[0; 100], &[]).is_err());
    let mut fragment = Train::ufo_v6();
    fragment.ip = Ip::V6 { extensions: vec![ipv6::FRAGMENT] };
    let mut first = fragment.frame();
    first[56..58].fill(0);
    assert_eq!(cut(&fragment.meta(), &first, &[]), Err(E::Fragment));
    let meta = NetHeader { gso_type: GsoType(GsoType::UDP.0 | GsoType::ECN), ..fragment.meta() };
    assert!(cut(&meta, &Train::ufo_v4().frame(), &[]).is_err());
}

#[test]
fn the_longest_datagrams_are_cut() {
    for train in [Train::ufo_v4().sized(65_507, 8), Train::ufo_v6().sized(65_527, 65_520)] {
        let frames = cut(&train.meta(), &train.frame(), &[]).unwrap();
        assert_eq!(joined(&train, &frames), completed(&train));
    }
}

/// The datagram with its checksum complete.
fn completed(train: &Train) -> Vec<u8> {
    let partial = Train { is_partial: true, ..train.clone() };
    let mut meta = NetHeader { gso_type: GsoType::NONE, ..partial.meta() };
    let mut frame = partial.frame();
    complete_checksum(&mut meta, &mut frame, &[]).unwrap();
    assert_eq!(meta.flags & NetHeaderFlags::NEEDS_CSUM, 0);
    judge_checksums(&frame[train.network_at()..]);
    frame
}

/// The result of reassembling fragments in order.
fn joined(train: &Train, frames: &[Vec<u8>]) -> Vec<u8> {
    assert!(matches!(train.upper, Upper::Ufo));
    let at = train.network_at();
    let mut datagram = Vec::new();
    let mut repeated = 0;
    for (index, frame) in frames.iter().enumerate() {
        let is_last = index + 1 == frames.len();
        let (headers_end, offset, has_more) = match train.ip {
            Ip::V4 { .. } => {
                let field = read_u16(frame, at + 6);
                assert_eq!(usize::from(read_u16(frame, at + 2)), frame.len() - at);
                (train.upper_at(), usize::from(field & 0x1fff) * 8, field & 0x2000 != 0)
            }
            Ip::V6 { .. } => {
                let header = fragment_header(frame, at);
                let field = read_u16(frame, header + 2);
                assert_eq!(usize::from(read_u16(frame, at + 4)), frame.len() - at - 40);
                (header + 8, usize::from(field & 0xfff8), field & 1 != 0)
            }
        };
        assert_eq!(has_more, !is_last);
        if index == 0 {
            repeated = headers_end;
            datagram = frame[..headers_end].to_vec();
        }
        assert_eq!(datagram.len() - repeated, offset, "fragment {index}");
        datagram.extend(&frame[headers_end..]);
    }
    undo(train, datagram, repeated)
}

/// Removes the fragment's fields from a datagram.
fn undo(train: &Train, mut datagram: Vec<u8>, repeated: usize) -> Vec<u8> {
    let at = train.network_at();
    match train.ip {
        Ip::V4 { dont_fragment, .. } => {
            let total = (datagram.len() - at) as u16;
            write_u16(&mut datagram, at + 2, total);
            write_u16(&mut datagram, at + 6, u16::from(dont_fragment) << 14);
            write_u16(&mut datagram, at + 10, 0);
            let checksum = Sum::of(&datagram[at..train.upper_at()]).checksum();
            write_u16(&mut datagram, at + 10, checksum);
        }
        Ip::V6 { .. } => {
            let header = repeated - 8;
            let next = datagram[header];
            let mut next_at = at + 6;
            let mut walked = at + 40;
            while walked < header {
                next_at = walked;
                walked += 8;
            }
            assert_eq!(datagram[next_at], ipv6::FRAGMENT);
            datagram[next_at] = next;
            datagram.drain(header..repeated);
            let len = (datagram.len() - at - 40) as u16;
            write_u16(&mut datagram, at + 4, len);
        }
    }
    datagram
}

/// Offset of the fragment header after extension headers of 8 bytes each.
fn fragment_header(frame: &[u8], at: usize) -> usize {
    let (mut next, mut header) = (frame[at + 6], at + 40);
    while next != ipv6::FRAGMENT {
        next = frame[header];
        header += 8;
    }
    header
}
