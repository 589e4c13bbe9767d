//! Properties of every train, checked with another implementation (`etherparse`).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on lengths that they chose"
)]

use crate::common::judge::{judge, judge_checksums};
use crate::common::{cut, damaged, trains};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tapswitch_offload::{complete_checksum, segment_frame_len_max, wire_bytes};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags};

proptest! {
    #[test]
    fn every_train_becomes_valid_packets(train in trains(), split in any::<Index>()) {
        let (meta, frame) = (train.meta(), train.frame());
        let headers_len = train.headers_len();
        let (headers, payload) = frame.split_at(headers_len + split.index(train.payload_len + 1));
        let frames = cut(&meta, headers, payload).unwrap();

        let joined: Vec<u8> = frames.iter().flat_map(|f| &f[headers_len..]).copied().collect();
        prop_assert_eq!(&joined[..], &frame[headers_len..]);
        prop_assert_eq!(frames.len(), meta.wire_packets(train.payload_len) as usize);
        let longest = frames.iter().map(Vec::len).max().unwrap();
        prop_assert_eq!(longest, segment_frame_len_max(&meta, headers_len, frame.len()));
        let total: usize = frames.iter().map(Vec::len).sum();
        prop_assert_eq!(total as u64, wire_bytes(&meta, headers_len, frame.len()));
        for (index, segment) in frames.iter().enumerate() {
            let size = usize::from(train.gso_size);
            let is_full = segment.len() == headers_len + size;
            prop_assert!(is_full || index + 1 == frames.len(), "only the last may be shorter");
            prop_assert_eq!(&segment[..train.network_at()], &frame[..train.network_at()]);
            judge(&train, segment, index, frames.len());
        }
    }

    #[test]
    fn a_completed_checksum_is_valid(train in trains(), split in any::<Index>()) {
        let mut meta = NetHeader { gso_type: GsoType::NONE, ..train.meta() };
        let mut frame = train.frame();
        let headers_len = train.headers_len();
        let split = headers_len + split.index(train.payload_len + 1);
        let (headers, payload) = frame.split_at_mut(split);
        complete_checksum(&mut meta, headers, payload).unwrap();
        if train.is_partial {
            judge_checksums(&frame[train.network_at()..]);
        }
    }

    #[test]
    fn no_bytes_and_no_metadata_make_it_panic(
        meta in metas(),
        bytes in vec(any::<u8>(), 0..300),
        split in any::<Index>(),
    ) {
        let mut bytes = bytes;
        let split = split.index(bytes.len() + 1);
        let (headers, payload) = bytes.split_at_mut(split);
        let _ = cut(&meta, headers, payload);
        let _ = complete_checksum(&mut meta.clone(), headers, payload);
    }

    #[test]
    fn no_damage_to_a_train_makes_it_panic(
        train in trains(),
        meta in metas(),
        use_meta in any::<bool>(),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        len in any::<Index>(),
        split in any::<Index>(),
    ) {
        let frame = damaged(&train, &damage, len);
        let (headers, payload) = frame.split_at(split.index(frame.len() + 1));
        let meta = if use_meta { meta } else { train.meta() };
        if let Ok(frames) = cut(&meta, headers, payload) {
            let payload_len: usize = frames.iter().map(Vec::len).sum::<usize>();
            prop_assert!(payload_len >= frame.len(), "no byte gets lost");
        }
    }
}

fn metas() -> impl Strategy<Value = NetHeader> {
    let known = select(&[0u8, 1, 3, 4, 5, 0x81, 0x84][..]);
    let types = prop_oneof![4 => known, 1 => any::<u8>()];
    let offsets = prop_oneof![Just(6u16), Just(16), any::<u16>()];
    let starts = prop_oneof![14u16..100, any::<u16>()];
    (0u8..4, types, any::<u16>(), 0u16..2000, starts, offsets).prop_map(
        |(flags, gso_type, hdr_len, gso_size, csum_start, csum_offset)| NetHeader {
            flags: flags & (NetHeaderFlags::NEEDS_CSUM | NetHeaderFlags::DATA_VALID),
            gso_type: GsoType(gso_type),
            hdr_len,
            gso_size,
            csum_start,
            csum_offset,
        },
    )
}
