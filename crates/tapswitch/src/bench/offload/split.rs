//! Segmenting a train of 64 KiB, with separate headers and in place, compared with one copy of the
//! payload within the cache, which is the limit for its cost.

use std::hint::black_box;

use tapswitch_offload::{InPlace, OffloadError, Segments};
use tapswitch_wire::checksum::Sum;

use super::candidate::{Candidate, Cell, Part};
use super::train::{Kind, SEGMENT_LEN, SEGMENTS, Train};

/// All candidates.
///
/// # Errors
/// If a train cannot be segmented.
pub(super) fn candidates() -> Result<Vec<Candidate>, OffloadError> {
    let mut all = Vec::new();
    for kind in Kind::all() {
        let train = kind.train(1000);
        // If it succeeds once it always does: the train is not changed.
        Segments::new(&train.meta, &train.bytes, &[])?;
        InPlace::new(&train.meta, &mut train.bytes.clone(), 0)?;
        all.push(copying(kind, &train));
        all.push(summing(kind, &train));
        all.push(beside(kind, &train));
        all.push(in_place(kind, &train));
    }
    Ok(all)
}

fn cell(kind: Kind, way: &str, is_baseline: bool) -> Cell {
    let (subject, way) = (kind.to_string(), way.to_owned());
    Cell { part: Part::Split, subject, way, units: SEGMENTS, is_baseline }
}

fn copying(kind: Kind, train: &Train) -> Candidate {
    let payload = train.bytes[train.headers_len..].to_vec();
    let mut to = vec![0; payload.len()];
    Candidate::new(cell(kind, "one copy", true), move || {
        black_box(&mut to[..]).copy_from_slice(black_box(&payload));
    })
}

/// The single pass over the payload that segmentation cannot avoid.
fn summing(kind: Kind, train: &Train) -> Candidate {
    let (bytes, start) = (train.bytes.clone(), train.headers_len);
    Candidate::new(cell(kind, "its sums alone", false), move || {
        for payload in black_box(&bytes[start..]).chunks(SEGMENT_LEN) {
            black_box(Sum::of(payload).checksum());
        }
    })
}

fn beside(kind: Kind, train: &Train) -> Candidate {
    let train = train.clone();
    let mut headers = [0; 128];
    Candidate::new(cell(kind, "segments", false), move || {
        let segments = Segments::new(black_box(&train.meta), black_box(&train.bytes), &[]);
        let Ok(mut segments) = segments else {
            return;
        };
        while let Some(segment) = segments.next(&mut headers) {
            black_box((segment, &headers));
        }
    })
}

/// The first packet's headers replace those of the train, which are restored for the next
/// iteration; the changed payload does not matter.
fn in_place(kind: Kind, train: &Train) -> Candidate {
    let Train { meta, mut bytes, headers_len } = train.clone();
    let headers = bytes[..headers_len].to_vec();
    Candidate::new(cell(kind, "in place", false), move || {
        bytes[..headers_len].copy_from_slice(&headers);
        let Ok(mut packets) = InPlace::new(black_box(&meta), black_box(&mut bytes), 0) else {
            return;
        };
        while let Some(packet) = packets.next(0) {
            black_box(packet);
        }
    })
}
