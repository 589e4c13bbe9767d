//! Verification of valid and wrong checksums.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on lengths that they chose"
)]

use crate::common::{
    C_TAG, Ip, LEGACY_TAG, S_TAG, Train, Upper, cut, damaged, partial_trains, trains,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tapswitch_offload::{Checksums, Verdict, verify};
use tapswitch_wire::checksum::{Sum, pseudo_header_v6};
use tapswitch_wire::{ipv6, write_u16};

const UNKNOWN: Checksums = Checksums { network: Verdict::Unknown, transport: Verdict::Unknown };

proptest! {
    #[test]
    fn packets_of_a_train_are_valid_and_damage_is_seen(
        train in partial_trains(),
        split in any::<Index>(),
        damage in any::<Index>(),
        bit in 0u32..8,
        padding in 0usize..20,
    ) {
        let network = match train.ip {
            Ip::V4 { .. } => Verdict::Valid,
            Ip::V6 { .. } => Verdict::Absent,
        };
        let valid = Checksums { network, transport: Verdict::Valid };
        for packet in cut(&train.meta(), &train.frame(), &[]).unwrap().iter_mut().take(3) {
            packet.extend(vec![0xff; padding]);
            let headers_len = train.headers_len();
            let at = headers_len + split.index(packet.len() - headers_len + 1);
            let (headers, payload) = packet.split_at(at);
            prop_assert_eq!(verify(headers, payload), valid);
            // One wrong bit in the payload or ports is always detected.
            let from = train.upper_at();
            let behind = packet.len() - padding;
            let candidates = (from..from + 4).chain(headers_len..behind).collect::<Vec<_>>();
            let damaged = *damage.get(&candidates);
            packet[damaged] ^= 1 << bit;
            let invalid = Checksums { network, transport: Verdict::Invalid };
            prop_assert_eq!(verify(packet, &[]), invalid);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), split in any::<Index>()) {
        let (headers, payload) = bytes.split_at(split.index(bytes.len() + 1));
        let _ = verify(headers, payload);
    }

    #[test]
    fn no_damage_makes_it_panic(
        train in trains(),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        len in any::<Index>(),
        split in any::<Index>(),
    ) {
        let frame = damaged(&train, &damage, len);
        let (headers, payload) = frame.split_at(split.index(frame.len() + 1));
        let _ = verify(headers, payload);
    }
}

#[test]
fn an_ipv4_header_is_judged_apart() {
    let mut packet = packet(&Train::tcp_v4().tagged(&[S_TAG, LEGACY_TAG, C_TAG]));
    packet[26 + 8] ^= 1;
    let expected = Checksums { network: Verdict::Invalid, transport: Verdict::Valid };
    assert_eq!(verify(&packet, &[]), expected, "a time to live that is not what it was");
}

#[test]
fn udp_without_a_checksum_is_for_ipv4_only() {
    for (train, expected) in
        [(Train::udp_v4(), Verdict::Absent), (Train::udp_v6(), Verdict::Invalid)]
    {
        let mut packet = packet(&train);
        write_u16(&mut packet, train.upper_at() + 6, 0);
        assert_eq!(verify(&packet, &[]).transport, expected);
    }
}

#[test]
fn udp_says_itself_how_much_it_covers() {
    let train = Train::udp_v6().sized(100, 1448);
    let mut frame = packet(&train);
    frame.extend([1, 2, 3, 4]);
    write_u16(&mut frame, 18, 112);
    assert_eq!(verify(&frame, &[]).transport, Verdict::Valid, "4 bytes behind the datagram");
    write_u16(&mut frame, train.upper_at() + 4, 113);
    assert_eq!(verify(&frame, &[]).transport, Verdict::Unknown, "longer than its packet");
    write_u16(&mut frame, train.upper_at() + 4, 7);
    assert_eq!(verify(&frame, &[]).transport, Verdict::Unknown, "shorter than its header");
}

#[test]
fn what_cannot_be_told_is_unknown() {
    let transport = |train: &Train, at: usize, value: u8| {
        let mut packet = packet(train);
        packet[at] = value;
        verify(&packet, &[]).transport
    };
    let train = Train::tcp_v4();
    assert_eq!(transport(&train, 20, 0x20), Verdict::Unknown, "a first fragment");
    assert_eq!(transport(&train, 21, 0x01), Verdict::Unknown, "a later fragment");
    assert_eq!(transport(&train, 23, 132), Verdict::Unknown, "SCTP");
    assert_eq!(transport(&train, 16, 0xff), Verdict::Unknown, "longer than the frame");
    assert_eq!(transport(&train, 16, 0), Verdict::Invalid, "shorter than it was");
    let mut routed = Train::udp_v6();
    routed.ip = Ip::V6 { extensions: vec![ipv6::HOP_BY_HOP, ipv6::ROUTING] };
    assert_eq!(transport(&routed, 65, 0), Verdict::Valid);
    assert_eq!(transport(&routed, 65, 1), Verdict::Unknown, "one more address to go to");
    let fragments = cut(&Train::ufo_v6().meta(), &Train::ufo_v6().frame(), &[]).unwrap();
    assert!(fragments.iter().all(|fragment| verify(fragment, &[]).transport == Verdict::Unknown));
    assert_eq!(verify(&[0; 60], &[]), UNKNOWN);
    assert_eq!(verify(&[0; 13], &[]), UNKNOWN);
    assert_eq!(verify(&packet(&train)[..30], &[]), UNKNOWN, "cut short in IPv4");
}

#[test]
fn icmp_has_checksums_too() {
    let mut echo = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    echo.extend([0x45, 0, 0, 29, 0, 1, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    echo.extend([8, 0, 0, 0, 0, 1, 0, 1, 0xaa]);
    let checksum = Sum::of(&echo[34..]).checksum();
    write_u16(&mut echo, 36, checksum);
    assert_eq!(verify(&echo, &[]).transport, Verdict::Valid);
    let mut echo6 = packet(&Train::udp_v6().sized(9, 1448));
    echo6[20] = 58;
    echo6[54..62].copy_from_slice(&[128, 0, 0, 0, 0, 1, 0, 1]);
    let sum = pseudo_header_v6(&echo6[22..38], &echo6[38..54], 58, 17);
    let checksum = sum.add_bytes(&echo6[54..]).checksum();
    write_u16(&mut echo6, 56, checksum);
    assert_eq!(verify(&echo6, &[]).transport, Verdict::Valid);
    echo6[56] ^= 1;
    assert_eq!(verify(&echo6, &[]).transport, Verdict::Invalid);
}

/// The first packet of a train; the whole for a train of one.
fn packet(train: &Train) -> Vec<u8> {
    assert!(!matches!(train.upper, Upper::Ufo));
    cut(&train.meta(), &train.frame(), &[]).unwrap().swap_remove(0)
}
