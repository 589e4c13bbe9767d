//! Segmented trains, one rule per test.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common::{ACK, C_TAG, Ip, LEGACY_TAG, S_TAG, Train, cut, cut_with, with_zero_checksum};
use tapswitch_offload::{
    IdRule, OffloadError, Segments, SplitOptions, TRAIN_LEN_MAX, Verdict, complete_checksum, verify,
};
use tapswitch_wire::tags::MAX_TAGS;
use tapswitch_wire::{GsoType, MetadataError, NetHeader, ipv6, parse, read_u16, read_u32, tcp};

const ECN: u8 = GsoType::ECN;

#[test]
fn lengths_are_those_of_each_packet() {
    let train = Train::tcp_v4();
    let frames = cut_contiguous(&train);
    let lengths: Vec<_> = frames.iter().map(|frame| read_u16(frame, 16)).collect();
    assert_eq!(lengths, [1500, 1500, 1500, 776]);
    let frames = cut_contiguous(&Train::tcp_v6());
    let lengths: Vec<_> = frames.iter().map(|frame| read_u16(frame, 18)).collect();
    assert_eq!(lengths, [1480, 1480, 1480, 756]);
    let train = Train::udp_v4();
    let frames = cut_contiguous(&train);
    let lengths: Vec<_> = frames.iter().map(|frame| read_u16(frame, 38)).collect();
    assert_eq!(lengths, [1456, 1456, 1456, 732]);
}

#[test]
fn identification_and_sequence_go_on_and_wrap() {
    let frames = cut_contiguous(&Train::tcp_v4());
    let identifications: Vec<_> = frames.iter().map(|frame| read_u16(frame, 18)).collect();
    assert_eq!(identifications, [0xfffe, 0xffff, 0, 1]);
    let sequences: Vec<_> = frames.iter().map(|frame| read_u32(frame, 38)).collect();
    assert_eq!(sequences, [0xffff_fc00, 0x1a8, 0x750, 0xcf8]);
}

#[test]
fn identification_goes_on_without_dont_fragment_too() {
    let mut train = Train::udp_v4();
    train.ip = Ip::V4 { options: 0, dont_fragment: false, identification: 7 };
    let frames = cut_contiguous(&train);
    let identifications: Vec<_> = frames.iter().map(|frame| read_u16(frame, 18)).collect();
    assert_eq!(identifications, [7, 8, 9, 10]);
}

#[test]
fn a_fixed_identification_stays_where_nothing_fragments() {
    let fixed = SplitOptions { id: IdRule::Fixed, ..SplitOptions::default() };
    for (dont_fragment, expected) in [(true, [7, 7, 7, 7]), (false, [7, 8, 9, 10])] {
        let mut train = Train::tcp_v4();
        train.ip = Ip::V4 { options: 0, dont_fragment, identification: 7 };
        let frames = cut_with(&train.long_meta(), &fixed, &train.frame(), &[]).unwrap();
        assert_eq!(frames.iter().map(|frame| read_u16(frame, 18)).collect::<Vec<_>>(), expected);
        assert!(frames.iter().all(|frame| verify(frame, &[]).network == Verdict::Valid));
    }
}

#[test]
fn fin_and_psh_come_last_and_cwr_comes_first_where_the_metadata_says_so() {
    const CWR: u8 = tcp::CWR;
    let last = ACK | tcp::FIN | tcp::PSH;
    for (bits, expected) in [
        (ECN, [ACK | CWR, ACK, ACK, last]),
        // A bit of a counter, which all packets have (RFC 9768 §3.2.2).
        (0, [ACK | CWR, ACK | CWR, ACK | CWR, last | CWR]),
    ] {
        let train = Train::tcp_v4().flags(last | CWR).gso_bits(bits);
        let frames = cut_contiguous(&train);
        let flags: Vec<_> = frames.iter().map(|frame| frame[47]).collect();
        assert_eq!(flags, expected);
        assert!(frames.iter().all(|frame| verify(frame, &[]).transport == Verdict::Valid));
    }
}

/// "BIG TCP": the length in the IP header is zero, because the field is too small.
#[test]
fn trains_longer_than_an_ip_header_can_say_are_cut() {
    for (train, length_at) in [(Train::tcp_v4(), 16), (Train::tcp_v6(), 18)] {
        let train = train.sized(200_000, 1448);
        let mut whole = train.frame();
        whole[length_at..length_at + 2].fill(0);
        let frames = cut(&train.meta(), &whole, &[]).unwrap();
        assert_eq!(frames.len(), 200_000_usize.div_ceil(1448));
        for frame in frames {
            let verdicts = verify(&frame, &[]);
            assert_ne!(verdicts.network, Verdict::Invalid);
            assert_eq!(verdicts.transport, Verdict::Valid);
        }
    }
}

/// AccECN's counter (RFC 9768 §3.1.1) has three bits, in two bytes.
#[test]
fn all_packets_show_the_counter_of_accurate_ecn() {
    for counter in 0..8_u8 {
        let train = Train::tcp_v4().flags(ACK | tcp::PSH | counter << 6);
        let mut whole = train.frame();
        whole[46] |= counter >> 2;
        let frames = cut(&train.meta(), &whole, &[]).unwrap();
        for frame in frames {
            assert_eq!((frame[46] & 7, frame[47] >> 6), (counter >> 2, counter & 3));
            assert_eq!(verify(&frame, &[]).transport, Verdict::Valid);
        }
    }
}

#[test]
fn tags_options_and_extension_headers_are_repeated() {
    let mut v4 = Train::tcp_v4().tagged(&[S_TAG, LEGACY_TAG, C_TAG, S_TAG, C_TAG, C_TAG]);
    v4.ip = Ip::V4 { options: 10, dont_fragment: true, identification: 0 };
    let mut v6 = Train::udp_v6().tagged(&[C_TAG]);
    v6.ip = Ip::V6 {
        extensions: vec![
            ipv6::HOP_BY_HOP,
            ipv6::DESTINATION_OPTIONS,
            ipv6::ROUTING,
            ipv6::DESTINATION_OPTIONS,
        ],
    };
    for train in [v4, v6] {
        let (whole, network) = (train.frame(), train.network_at());
        for frame in cut_contiguous(&train) {
            assert_eq!(frame[..network], whole[..network]);
            let options = network + 20..train.upper_at() + 4;
            assert_eq!(frame[options.clone()], whole[options]);
            let layout = parse(&frame).unwrap().layout;
            assert_eq!(usize::from(layout.end), train.headers_len());
        }
    }
}

#[test]
fn payload_may_begin_in_the_headers_part() {
    let train = Train::tcp_v4().tagged(&[S_TAG, C_TAG]);
    let (meta, frame) = (train.meta(), train.frame());
    let expected = cut(&meta, &frame, &[]).unwrap();
    let headers_len = train.headers_len();
    for in_headers in [0, 1, 1447, 1448, 1449, 3 * 1448, train.payload_len] {
        let (headers, payload) = frame.split_at(headers_len + in_headers);
        let mut segments = Segments::new(&meta, headers, payload).unwrap();
        assert_eq!(segments.remaining(), 4);
        let mut room = [0; 128];
        let first = segments.next(&mut room).unwrap();
        let expected_first = if in_headers == 0 { 1448 } else { in_headers };
        assert_eq!(first.payload[0].len(), expected_first.min(1448));
        assert_eq!(cut(&meta, headers, payload).unwrap(), expected, "{in_headers} bytes");
    }
}

#[test]
fn nothing_is_written_behind_the_headers_and_nothing_lost_for_want_of_room() {
    let train = Train::udp_v6();
    let frame = train.frame();
    let mut segments = Segments::new(&train.meta(), &frame, &[]).unwrap();
    let headers_len = segments.headers_len();
    assert_eq!(headers_len, train.headers_len());
    assert_eq!(segments.next(&mut vec![0; headers_len - 1]), None);
    assert_eq!(segments.remaining(), 4, "too little room costs no packet");
    let mut room = [0xee; 256];
    assert!(segments.next(&mut room).is_some());
    assert!(room[headers_len..].iter().all(|byte| *byte == 0xee));
}

#[test]
fn a_train_of_one_packet_keeps_everything_but_the_checksum() {
    let flags = ACK | tcp::FIN | tcp::PSH | tcp::CWR;
    for payload_len in [0, 1, 1447, 1448] {
        let train = Train::tcp_v4().sized(payload_len, 1448).flags(flags);
        let mut whole = train.frame();
        whole.extend([0; 3]); // Ethernet padding is not payload here
        let frames = cut(&train.sized(payload_len, 2000).meta(), &whole, &[]).unwrap();
        let mut meta = NetHeader { gso_type: GsoType::NONE, ..Train::tcp_v4().meta() };
        complete_checksum(&mut meta, &mut whole, &[]).unwrap();
        assert_eq!(frames, [whole]);
    }
    let mut complete = Train::tcp_v4().sized(100, 1448);
    complete.is_partial = false;
    assert_eq!(cut_contiguous(&complete), [complete.frame()]);
}

#[test]
fn a_datagram_never_says_that_it_has_no_checksum() {
    for (train, zero) in
        [(Train::udp_v4(), 0xffff), (Train::udp_v6(), 0xffff), (Train::tcp_v4(), 0)]
    {
        let frames = cut(&train.meta(), &with_zero_checksum(&train), &[]).unwrap();
        let at = train.upper_at() + usize::from(train.meta().csum_offset);
        assert_eq!(read_u16(&frames[0], at), zero);
    }
}

#[test]
fn a_tcp_train_without_partial_checksum_gets_the_same_checksums() {
    for train in [Train::tcp_v4(), Train::tcp_v6()] {
        let mut without = train.clone();
        without.is_partial = false;
        assert_eq!(cut_contiguous(&without), cut_contiguous(&train));
    }
}

#[test]
fn lengths_in_the_headers_are_not_believed() {
    let train = Train::tcp_v4();
    let mut lying = train.frame();
    lying[16..18].copy_from_slice(&[0, 0]);
    assert_eq!(cut(&train.meta(), &lying, &[]).unwrap(), cut_contiguous(&train));
    lying[16..18].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(cut(&train.meta(), &lying, &[]).unwrap(), cut_contiguous(&train));
    let mut meta = train.meta();
    meta.hdr_len = 3;
    assert_eq!(cut(&meta, &train.frame(), &[]).unwrap(), cut_contiguous(&train));
}

#[test]
fn each_lie_has_its_name() {
    use OffloadError as E;
    let train = Train::tcp_v4();
    let meta = train.meta();
    check(&train, NetHeader::PLAIN, E::NotATrain);
    check(&train, gso(meta, GsoType(2)), MetadataError::GsoType.into());
    check(&train, NetHeader { gso_size: 0, ..meta }, MetadataError::GsoSize.into());
    let long = Train::tcp_v4().sized(65_000, 7);
    check(&long, long.meta(), MetadataError::GsoSize.into());
    check(&train, NetHeader { csum_start: 9, ..meta }, MetadataError::Checksum.into());
    check(&train, gso(meta, GsoType::TCPV6), E::Protocol);
    check(&train, gso(meta, GsoType::UDP_L4), E::Protocol);
    check(&train, gso(meta, GsoType::UDP), E::Protocol);
    check(&train, NetHeader { csum_start: 38, ..meta }, E::ChecksumPlace);
    check(&train, NetHeader { csum_offset: 6, ..meta }, E::ChecksumPlace);
    let mut udp = Train::udp_v4();
    udp.is_partial = false;
    check(&udp, udp.meta(), E::ChecksumMissing);
    let long = Train::udp_v6().sized(70_000, 65_528);
    check(&long, long.meta(), E::SegmentTooLong);
    let huge = Train::tcp_v6().sized(TRAIN_LEN_MAX, 1448);
    check(&huge, huge.meta(), E::TrainTooLong);
}

#[test]
fn headers_that_cannot_be_repeated_are_refused() {
    let train = Train::tcp_v4();
    let changed = |at: usize, value: u8| {
        let mut frame = train.frame();
        frame[at] = value;
        cut(&train.meta(), &frame, &[]).unwrap_err()
    };
    assert_eq!(changed(20, 0x20), OffloadError::Fragment, "more fragments");
    assert_eq!(changed(21, 0x01), OffloadError::Headers, "a later fragment");
    assert_eq!(changed(14, 0x65), OffloadError::Headers, "not IPv4 at all");
    assert_eq!(changed(12, 0x86), OffloadError::Protocol, "another type");
    assert_eq!(changed(46, 0x40), OffloadError::Headers, "TCP of 16 bytes");
    let extended = |extension: u8, body: u8| {
        let mut train = Train::tcp_v6();
        train.ip = Ip::V6 { extensions: vec![extension] };
        let mut frame = train.frame();
        frame[56] = body;
        cut(&train.meta(), &frame, &[]).unwrap_err()
    };
    assert_eq!(extended(ipv6::FRAGMENT, 0), OffloadError::Fragment);
    let mobility = extended(135, 0);
    assert_eq!(mobility, OffloadError::Unsupported("an IPv6 extension header"));
    let jumbo = extended(ipv6::HOP_BY_HOP, ipv6::OPTION_JUMBO);
    assert_eq!(jumbo, OffloadError::Unsupported("an IPv6 jumbogram"));
    assert_eq!(snap(), OffloadError::Unsupported("802.3 framing"));
}

#[test]
fn stacks_of_tags_are_walked_to_a_depth_and_no_further() {
    let train = |depth| Train::tcp_v4().tagged(&vec![C_TAG; depth]);
    assert_eq!(cut_contiguous(&train(MAX_TAGS)).len(), 4);
    let deeper = train(MAX_TAGS + 1);
    assert_eq!(cut(&deeper.meta(), &deeper.frame(), &[]), Err(OffloadError::Protocol));
    let absurd = [&train(0).frame()[..12], &C_TAG.to_be_bytes().repeat(16_000)].concat();
    assert!(cut(&train(0).meta(), &absurd, &[]).is_err());
    for len in 12..train(3).network_at() {
        let cut_short = &train(3).frame()[..len];
        assert!(cut(&train(3).meta(), cut_short, &[]).is_err(), "{len} bytes");
    }
}

#[test]
fn headers_cut_short_are_refused() {
    for train in [Train::tcp_v4(), Train::udp_v6()] {
        let frame = train.frame();
        for len in 0..train.headers_len() {
            let (headers, payload) = frame.split_at(len);
            assert!(cut(&train.meta(), headers, payload).is_err(), "{len} bytes of headers");
        }
    }
}

#[test]
fn messages_name_what_lied_and_what_to_do() {
    assert_eq!(
        OffloadError::from(MetadataError::GsoSize).to_string(),
        "invalid metadata: train of packets without payload, or of more than 8192 packets; drop \
         the frame"
    );
    assert_eq!(
        OffloadError::Unsupported("UFO in a tunnel").to_string(),
        "UFO in a tunnel cannot be cut; have the sender turn that offload off"
    );
}

fn cut_contiguous(train: &Train) -> Vec<Vec<u8>> {
    cut(&train.meta(), &train.frame(), &[]).unwrap()
}

fn check(train: &Train, meta: NetHeader, error: OffloadError) {
    assert_eq!(cut(&meta, &train.frame(), &[]), Err(error));
}

fn gso(meta: NetHeader, gso_type: GsoType) -> NetHeader {
    NetHeader { gso_type, ..meta }
}

/// The error for a TCP train in an 802.3 frame, whose length field would have to change, too.
fn snap() -> OffloadError {
    let train = Train::tcp_v4();
    let mut frame = train.frame();
    frame.splice(12..12, [0x05, 0xdc, 0xaa, 0xaa, 3, 0, 0, 0]);
    let mut meta = train.meta();
    meta.csum_start += 8;
    cut(&meta, &frame, &[]).unwrap_err()
}
