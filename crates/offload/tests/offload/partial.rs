//! Packets with partial checksums: once completed, they are those with complete checksums.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common::{
    C_TAG, S_TAG, Train, Tunnel, Upper, cut_with, damaged, datagrams, partial_trains, trains,
    tunnelled_trains, with_zero_checksum,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tapswitch_offload::{ChecksumRule, IdRule, InPlace, Segments, SplitOptions, complete_checksum};
use tapswitch_wire::{LongNetHeader, NetHeader, NetHeaderFlags, read_u16, write_u16};

const PARTIAL: SplitOptions = SplitOptions {
    id: IdRule::Increment,
    outer_id: IdRule::Increment,
    fragment_seed: 0,
    checksum: ChecksumRule::Partial,
};
const COMPLETE: SplitOptions = SplitOptions { checksum: ChecksumRule::Complete, ..PARTIAL };

proptest! {
    #[test]
    fn completing_the_packets_gives_complete_packets(
        train in any_train(),
        split in any::<Index>(),
    ) {
        let (meta, frame) = (train.long_meta(), train.frame());
        let split = train.headers_len() + split.index(train.payload_len + 1);
        let (headers, payload) = frame.split_at(split);
        let expected = cut_with(&meta, &COMPLETE, headers, &[payload]).unwrap();
        let told = packet_meta(&meta, headers, payload);
        let is_fragmented = matches!(train.upper, Upper::Ufo) && expected.len() > 1;
        prop_assert_eq!(told, expected_meta(&train.meta(), is_fragmented));
        let mut packets = cut_with(&meta, &PARTIAL, headers, &[payload]).unwrap();
        packets.iter_mut().for_each(|packet| complete(told, packet));
        let expected: Vec<_> = expected.into_iter().map(|p| one_zero(told, p)).collect();
        prop_assert!(packets == expected);
    }

    /// With whatever the checksum field of the train has.
    #[test]
    fn completing_the_packets_of_a_damaged_train_gives_the_same(
        train in any_train(),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        len in any::<Index>(),
    ) {
        let (meta, frame) = (train.long_meta(), damaged(&train, &damage, len));
        let expected = cut_with(&meta, &COMPLETE, &frame, &[]);
        let packets = cut_with(&meta, &PARTIAL, &frame, &[]);
        prop_assert_eq!(packets.as_ref().err(), expected.as_ref().err());
        let (Ok(mut packets), Ok(expected)) = (packets, expected) else { return Ok(()) };
        let told = packet_meta(&meta, &frame, &[]);
        packets.iter_mut().for_each(|packet| complete(told, packet));
        let expected: Vec<_> = expected.into_iter().map(|p| one_zero(told, p)).collect();
        prop_assert!(packets == expected);
    }

    #[test]
    fn no_header_depends_on_the_payload(
        train in prop_oneof![partial_trains(), tunnelled_trains()],
        byte in any::<u8>(),
    ) {
        let (meta, frame) = (train.long_meta(), train.frame());
        let (headers, payload) = frame.split_at(train.headers_len());
        let other = vec![byte; payload.len()];
        let headers_of = |payload: &[u8]| {
            let packets = cut_with(&meta, &PARTIAL, headers, &[payload]).unwrap();
            packets.iter().map(|packet| packet[..headers.len()].to_vec()).collect::<Vec<_>>()
        };
        prop_assert!(headers_of(payload) == headers_of(&other));
    }
}

/// A complete TCP checksum of zero is sent as zero when a train is cut, and as all ones when a
/// partial one is completed, as in Linux: to TCP both are the same number.
#[test]
fn a_checksum_that_becomes_zero_is_the_same_number() {
    for train in [Train::tcp_v4(), Train::udp_v4(), Train::tcp_v6(), Train::udp_v6()] {
        let (meta, frame) = (train.long_meta(), with_zero_checksum(&train));
        let field = usize::from(meta.base.csum_start + meta.base.csum_offset);
        let cut = cut_with(&meta, &COMPLETE, &frame, &[]).unwrap().swap_remove(0);
        assert_eq!(read_u16(&cut, field) % 0xffff, 0, "it is zero");
        let mut packet = cut_with(&meta, &PARTIAL, &frame, &[]).unwrap().swap_remove(0);
        complete(packet_meta(&meta, &frame, &[]), &mut packet);
        assert_eq!(read_u16(&packet, field), 0xffff);
    }
}

/// The checksum of each is written from scratch, and so it is of the right kind for every port.
#[test]
fn a_train_with_no_partial_checksum_becomes_complete_packets() {
    let train = Train { is_partial: false, ..Train::tcp_v4() };
    let packets = cut_with(&train.long_meta(), &PARTIAL, &train.frame(), &[]).unwrap();
    let expected = cut_with(&train.long_meta(), &COMPLETE, &train.frame(), &[]).unwrap();
    assert!(packets == expected);
    assert_eq!(packet_meta(&train.long_meta(), &train.frame(), &[]), NetHeader::PLAIN);
}

#[test]
fn the_metadata_says_where_the_checksum_is() {
    let vxlan = |train: Train| {
        let inner = train.ip.clone();
        train.inside(Tunnel::vxlan_v4(true, inner))
    };
    let tagged = Train::udp_v6().tagged(&[S_TAG, C_TAG]);
    for (train, place) in
        [(Train::tcp_v4(), (34, 16)), (tagged, (62, 6)), (vxlan(Train::tcp_v4()), (84, 16))]
    {
        let told = packet_meta(&train.long_meta(), &train.frame(), &[]);
        assert_eq!((told.flags, told.is_train()), (NetHeaderFlags::NEEDS_CSUM, false));
        assert_eq!((told.csum_start, told.csum_offset), place);
    }
}

/// The metadata of the packets, which is the same when they are cut in place.
fn packet_meta(meta: &LongNetHeader, headers: &[u8], payload: &[u8]) -> NetHeader {
    let parts = [payload];
    let told = Segments::with(meta, &PARTIAL, headers, &parts).unwrap().net_header();
    let mut buf = [&[0; 8], headers, payload].concat();
    assert_eq!(InPlace::with(meta, &PARTIAL, &mut buf, 8).unwrap().net_header(), told);
    let plain = Segments::with(meta, &COMPLETE, headers, &parts).unwrap().net_header();
    assert_eq!(plain, NetHeader::PLAIN);
    told
}

fn expected_meta(train: &NetHeader, is_fragmented: bool) -> NetHeader {
    if !train.needs_checksum() || is_fragmented {
        return NetHeader::PLAIN;
    }
    let NetHeader { csum_start, csum_offset, .. } = *train;
    NetHeader { flags: NetHeaderFlags::NEEDS_CSUM, csum_start, csum_offset, ..NetHeader::PLAIN }
}

fn complete(told: NetHeader, packet: &mut [u8]) {
    complete_checksum(&mut told.clone(), packet, &[]).unwrap();
}

/// The packet with a checksum of zero written as [`complete_checksum`] does.
fn one_zero(told: NetHeader, mut packet: Vec<u8>) -> Vec<u8> {
    let field = usize::from(told.csum_start + told.csum_offset);
    if told.needs_checksum() && read_u16(&packet, field) == 0 {
        assert_ne!(told.csum_offset, 6, "UDP has no checksum of zero");
        write_u16(&mut packet, field, 0xffff);
    }
    packet
}

fn any_train() -> impl Strategy<Value = Train> {
    prop_oneof![trains(), datagrams(), tunnelled_trains()]
}
