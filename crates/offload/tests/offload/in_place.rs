//! Segmentation in place, and of payload in many parts: the packets are the same.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on lengths that they chose"
)]

use crate::common::{Train, cut_in_place, cut_with, datagrams, trains, tunnelled_trains};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tapswitch_offload::{ChecksumRule, IdRule, InPlace, OffloadError, SplitOptions};

proptest! {
    #[test]
    fn in_place_makes_the_same_packets(
        train in any_train(),
        options in any_options(),
        headroom in 8usize..40,
        prefix in any::<Index>(),
    ) {
        let (meta, frame) = (train.long_meta(), train.frame());
        let expected = cut_with(&meta, &options, &frame, &[]).unwrap();
        let prefix = prefix.index(headroom - 7);
        let packets = cut_in_place(&meta, &options, &frame, headroom, prefix).unwrap();
        prop_assert_eq!(packets, expected);
    }

    #[test]
    fn parts_make_the_same_packets_or_are_refused(
        train in any_train(),
        options in any_options(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let (meta, frame) = (train.long_meta(), train.frame());
        let expected = cut_with(&meta, &options, &frame, &[]).unwrap();
        let (headers, payload) = frame.split_at(train.headers_len());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(payload.len() + 1)).collect();
        cuts.extend([0, payload.len()]);
        cuts.sort_unstable();
        let parts: Vec<_> = cuts.windows(2).map(|pair| &payload[pair[0]..pair[1]]).collect();
        let is_scattered = is_scattered(&train, &expected, &parts);
        match cut_with(&meta, &options, headers, &parts) {
            Ok(frames) => {
                prop_assert!(!is_scattered);
                prop_assert_eq!(frames, expected);
            }
            Err(error) => {
                prop_assert_eq!(error, OffloadError::Scattered);
                prop_assert!(is_scattered, "{:?}", parts.iter().map(|p| p.len()));
            }
        }
    }

    #[test]
    fn a_part_for_each_packet_is_fine(train in trains(), options in any_options()) {
        let (meta, frame) = (train.long_meta(), train.frame());
        let expected = cut_with(&meta, &options, &frame, &[]).unwrap();
        let (headers, payload) = frame.split_at(train.headers_len());
        let parts: Vec<_> = payload.chunks(usize::from(train.gso_size)).collect();
        prop_assert_eq!(cut_with(&meta, &options, headers, &parts).unwrap(), expected);
    }
}

#[test]
fn too_little_room_costs_no_packet() {
    let train = Train::tcp_v4();
    let mut buf = [vec![0; 10], train.frame()].concat();
    let mut packets = InPlace::new(&train.meta(), &mut buf, 10).unwrap();
    assert!(packets.next(11).is_none());
    assert_eq!(packets.remaining(), 4);
    assert_eq!(packets.next(10).unwrap().len(), 10 + 66 + 1448);
}

#[test]
fn fragments_of_ipv6_need_room_in_front() {
    let train = Train::ufo_v6();
    let buf = [vec![0xee; 7], train.frame()].concat();
    let mut lent = buf.clone();
    let error = InPlace::new(&train.meta(), &mut lent, 7).unwrap_err();
    assert_eq!((error, lent), (OffloadError::Headroom, buf));
    assert!(InPlace::new(&train.meta(), &mut [], 1).is_err());
}

/// Whether a packet's payload is in more than two non-empty parts.
fn is_scattered(train: &Train, packets: &[Vec<u8>], parts: &[&[u8]]) -> bool {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let size = usize::from(train.gso_size);
    let first = packets[0].len().min(size + train.headers_len());
    let mut from = 0;
    let mut to = if matches!(train.upper, crate::common::Upper::Ufo) {
        size - (train.headers_len() - unfragmentable(train))
    } else {
        first - train.headers_len()
    };
    while from < total {
        let (mut at, mut touched) = (0, 0);
        for part in parts {
            let is_touched = !part.is_empty() && at < to && at + part.len() > from;
            touched += usize::from(is_touched);
            at += part.len();
        }
        if touched > 2 {
            return true;
        }
        (from, to) = (to, to + size);
    }
    false
}

/// Start of the headers that only the first fragment contains.
fn unfragmentable(train: &Train) -> usize {
    match &train.ip {
        crate::common::Ip::V4 { .. } => train.upper_at(),
        crate::common::Ip::V6 { extensions } => {
            let routing = extensions.iter().position(|number| *number == 43);
            let behind = routing.map_or(&[][..], |at| &extensions[at..]);
            let options = behind.iter().position(|number| *number == 60);
            let fragmentable = options.map_or(0, |at| behind.len() - at);
            train.upper_at() - 8 * fragmentable
        }
    }
}

fn any_train() -> impl Strategy<Value = Train> {
    prop_oneof![trains(), datagrams(), tunnelled_trains()]
}

fn any_options() -> impl Strategy<Value = SplitOptions> {
    let rule = |is_fixed| if is_fixed { IdRule::Fixed } else { IdRule::Increment };
    let checksum = select(&[ChecksumRule::Complete, ChecksumRule::Partial][..]);
    (any::<bool>(), any::<bool>(), any::<u32>(), checksum).prop_map(
        move |(id, outer_id, fragment_seed, checksum)| SplitOptions {
            id: rule(id),
            outer_id: rule(outer_id),
            fragment_seed,
            checksum,
        },
    )
}
