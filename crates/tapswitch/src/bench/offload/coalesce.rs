//! Coalescing the packets of a batch, which are in one buffer as a worker reads them: with
//! checksums that the metadata declares valid, and with checksums that must be verified. Inside
//! VXLAN the inner one must always be verified.

use std::hint::black_box;

use tapswitch_offload::coalesce::{Coalescer, Place, Tunnels};
use tapswitch_offload::{OffloadError, Segments};
use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{NetHeader, NetHeaderFlags, ipv4, udp, write_u16};

use super::candidate::{Candidate, Cell, Part};
use super::train::{Kind, SEGMENTS};

/// All candidates.
///
/// # Errors
/// If a train cannot be segmented.
pub(super) fn candidates() -> Result<Vec<Candidate>, OffloadError> {
    let mut all = Vec::new();
    for kind in Kind::all() {
        for flows in [1, FLOWS] {
            let batch = Batch::new(kind, flows, |frame, _| frame.to_vec())?;
            let subject = subject(kind, flows);
            all.push(batch.candidate(&subject, flows, "vouched for", NetHeaderFlags::DATA_VALID));
            all.push(batch.candidate(&subject, flows, "verified", 0));
        }
    }
    for kind in Kind::all().filter(|kind| kind.tags == 0) {
        for flows in [1, FLOWS] {
            let subject = format!("{} in VXLAN", subject(kind, flows));
            let batch = Batch::new(kind, flows, in_vxlan)?;
            all.push(batch.candidate(&subject, flows, "verified", 0));
        }
    }
    Ok(all)
}

fn subject(kind: Kind, flows: u16) -> String {
    let flows = if flows == 1 { "1 flow".to_owned() } else { format!("{flows} flows") };
    format!("{kind}, {flows}")
}

/// `frame`, the packet at `index` of its flow, in VXLAN over IPv4 as Linux sends it, without a UDP
/// checksum.
fn in_vxlan(frame: &[u8], index: u16) -> Vec<u8> {
    let mut outer =
        vec![2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17];
    outer.extend([0, 0, 10, 9, 0, 1, 10, 9, 0, 2, 0xc0, 1, 0x12, 0xb5, 0, 0, 0, 0]);
    outer.extend([8, 0, 0, 0, 0, 0, 5, 0]);
    let (ip, udp_at) = (14, 34);
    let len = |at: usize| to_u16(outer.len() + frame.len() - at);
    let (ip_len, udp_len) = (len(ip), len(udp_at));
    write_u16(&mut outer, ip + ipv4::field::TOTAL_LENGTH, ip_len);
    write_u16(&mut outer, ip + ipv4::field::IDENTIFICATION, index);
    let checksum = Sum::of(&outer[ip..udp_at]).checksum();
    write_u16(&mut outer, ip + ipv4::field::CHECKSUM, checksum);
    write_u16(&mut outer, udp_at + udp::field::LENGTH, udp_len);
    outer.extend(frame);
    outer
}

/// Packets in one buffer.
#[derive(Clone, Debug)]
struct Batch {
    buf: Vec<u8>,
    places: Vec<Place>,
    /// Length of the headers of each packet.
    headers_len: usize,
}

impl Batch {
    /// The packets of one train, or as many interleaved from trains of several flows, each
    /// converted by `wrap` from the packet and its index in its flow.
    fn new(
        kind: Kind,
        flows: u16,
        wrap: impl Fn(&[u8], u16) -> Vec<u8>,
    ) -> Result<Self, OffloadError> {
        let trains: Vec<_> = (0..flows).map(|flow| kind.train(1000 + flow)).collect();
        let cut = trains.iter().map(|train| Segments::new(&train.meta, &train.bytes, &[]));
        let mut flows = cut.collect::<Result<Vec<_>, _>>()?;
        let headers_len = trains[0].headers_len + wrap(&[], 0).len();
        let mut batch = Self { buf: Vec::new(), places: Vec::new(), headers_len };
        let mut headers = [0; 128];
        let count = flows.len();
        let turns = (0..).flat_map(|turn| (0..count).map(move |flow| (turn, flow)));
        for (turn, flow) in turns.take(SEGMENTS as usize) {
            if let Some(segment) = flows[flow].next(&mut headers) {
                let packet = [&headers[..segment.headers_len], &segment.payload.concat()].concat();
                batch.push(&wrap(&packet, turn));
            }
        }
        Ok(batch)
    }

    /// Appends a frame, with headroom.
    fn push(&mut self, frame: &[u8]) {
        let start = self.buf.len().next_multiple_of(HEADROOM) + HEADROOM;
        self.buf.resize(start, 0);
        self.buf.extend(frame);
        self.places.push(Place { meta: NetHeader::PLAIN, start, end: self.buf.len() });
    }

    /// Coalescing changes the headers of the first packet of each flow; they are restored for the
    /// next iteration.
    fn candidate(&self, subject: &str, flows: u16, way: &str, flags: u8) -> Candidate {
        let Self { mut buf, mut places, headers_len } = self.clone();
        places.iter_mut().for_each(|place| place.meta.flags = flags);
        let firsts: Vec<_> = places.iter().take(flows.into()).map(|place| place.start).collect();
        let headers: Vec<_> =
            firsts.iter().map(|first| buf[*first..first + headers_len].to_vec()).collect();
        let mut coalescer = Coalescer::with_tunnels(places.len(), Tunnels::Udp);
        let cell = Cell {
            part: Part::Coalesce,
            subject: subject.to_owned(),
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

/// Narrows a length that was chosen here.
#[expect(clippy::cast_possible_truncation, reason = "less than 2 KiB")]
fn to_u16(len: usize) -> u16 {
    len as u16
}

/// Number of interleaved flows.
const FLOWS: u16 = 9;
/// Headroom of each frame.
const HEADROOM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_become_trains_again_vouched_for_or_verified() {
        for kind in Kind::all() {
            for (flows, flags) in [(1, NetHeaderFlags::DATA_VALID), (FLOWS, 0)] {
                let Batch { mut buf, mut places, .. } =
                    Batch::new(kind, flows, |frame, _| frame.to_vec()).unwrap();
                places.iter_mut().for_each(|place| place.meta.flags = flags);
                let mut coalescer = Coalescer::new(places.len());
                let units = coalescer.coalesce(&mut buf, &places);
                let frames: Vec<_> = units.map(|unit| unit.frames()).collect();
                let expected = vec![SEGMENTS as usize / usize::from(flows); flows.into()];
                assert_eq!(frames, expected, "{kind}, {flows} flows");
            }
        }
    }

    #[test]
    fn packets_in_vxlan_become_trains_inside_it() {
        for kind in Kind::all().filter(|kind| kind.tags == 0) {
            let Batch { mut buf, places, .. } = Batch::new(kind, FLOWS, in_vxlan).unwrap();
            let mut coalescer = Coalescer::with_tunnels(places.len(), Tunnels::Udp);
            let units: Vec<_> = coalescer.coalesce(&mut buf, &places).collect();
            assert_eq!(units.len(), usize::from(FLOWS), "{kind}");
            assert!(units.iter().all(|unit| unit.long_meta().is_tunnelled()), "{kind}");
        }
    }
}
