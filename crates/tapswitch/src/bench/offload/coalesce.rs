//! Making trains of the packets of a batch, which lie in one buffer as a worker reads them: once
//! with checksums that the metadata vouches for, once with such that must be verified.

use std::hint::black_box;

use tapswitch_offload::coalesce::{Coalescer, Place};
use tapswitch_offload::{OffloadError, Segments};
use tapswitch_wire::{NetHeader, NetHeaderFlags};

use super::candidate::{Candidate, Cell, Part};
use super::train::{Kind, SEGMENTS};

/// All of them.
///
/// # Errors
/// When a train cannot be cut.
pub(super) fn candidates() -> Result<Vec<Candidate>, OffloadError> {
    let mut all = Vec::new();
    for kind in Kind::all() {
        for flows in [1, FLOWS] {
            let batch = Batch::new(kind, flows)?;
            all.push(batch.candidate(kind, flows, "vouched for", NetHeaderFlags::DATA_VALID));
            all.push(batch.candidate(kind, flows, "verified", 0));
        }
    }
    Ok(all)
}

/// Packets in one buffer.
#[derive(Clone, Debug)]
struct Batch {
    buf: Vec<u8>,
    places: Vec<Place>,
    /// Length of the headers of each.
    headers_len: usize,
}

impl Batch {
    /// The packets of one train, or as many by turns from trains of several flows.
    fn new(kind: Kind, flows: u16) -> Result<Self, OffloadError> {
        let trains: Vec<_> = (0..flows).map(|flow| kind.train(1000 + flow)).collect();
        let cut = trains.iter().map(|train| Segments::new(&train.meta, &train.bytes, &[]));
        let mut flows = cut.collect::<Result<Vec<_>, _>>()?;
        let headers_len = trains[0].headers_len;
        let mut batch = Self { buf: Vec::new(), places: Vec::new(), headers_len };
        let mut headers = [0; 128];
        for index in (0..flows.len()).cycle().take(SEGMENTS as usize) {
            if let Some(segment) = flows[index].next(&mut headers) {
                batch.push(&[&headers[..segment.headers_len], &segment.payload.concat()].concat());
            }
        }
        Ok(batch)
    }

    /// Puts a frame behind the others, with headroom in front.
    fn push(&mut self, frame: &[u8]) {
        let start = self.buf.len().next_multiple_of(HEADROOM) + HEADROOM;
        self.buf.resize(start, 0);
        self.buf.extend(frame);
        self.places.push(Place { meta: NetHeader::PLAIN, start, end: self.buf.len() });
    }

    /// Headers are changed in the first packet of each flow; they are put back for the next turn.
    fn candidate(&self, kind: Kind, flows: u16, way: &str, flags: u8) -> Candidate {
        let Self { mut buf, mut places, headers_len } = self.clone();
        places.iter_mut().for_each(|place| place.meta.flags = flags);
        let firsts: Vec<_> = places.iter().take(flows.into()).map(|place| place.start).collect();
        let headers: Vec<_> =
            firsts.iter().map(|first| buf[*first..first + headers_len].to_vec()).collect();
        let mut coalescer = Coalescer::new(places.len());
        let flows = if flows == 1 { "1 flow".to_owned() } else { format!("{flows} flows") };
        let cell = Cell {
            part: Part::Coalesce,
            subject: format!("{kind}, {flows}"),
            way: way.to_owned(),
            units: SEGMENTS,
            is_baseline: false,
        };
        Candidate::new(cell, move || {
            for (first, headers) in firsts.iter().zip(&headers) {
                buf[*first..first + headers.len()].copy_from_slice(headers);
            }
            for unit in coalescer.coalesce(black_box(&mut buf), black_box(&places)) {
                black_box(unit);
            }
        })
    }
}

/// Flows whose packets come by turns.
const FLOWS: u16 = 9;
/// In front of each frame.
const HEADROOM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_become_trains_again_vouched_for_or_verified() {
        for kind in Kind::all() {
            for (flows, flags) in [(1, NetHeaderFlags::DATA_VALID), (FLOWS, 0)] {
                let Batch { mut buf, mut places, .. } = Batch::new(kind, flows).unwrap();
                places.iter_mut().for_each(|place| place.meta.flags = flags);
                let mut coalescer = Coalescer::new(places.len());
                let units = coalescer.coalesce(&mut buf, &places);
                let frames: Vec<_> = units.map(|unit| unit.frames()).collect();
                let expected = vec![SEGMENTS as usize / usize::from(flows); flows.into()];
                assert_eq!(frames, expected, "{kind}, {flows} flows");
            }
        }
    }
}
