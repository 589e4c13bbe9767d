//! The internet checksum: each loop that the processor supports, and the automatic selection,
//! compared with copying.

use std::hint::black_box;
use std::rc::Rc;

use tapswitch_wire::checksum::{Implementation, Sum};

use super::candidate::{Candidate, Cell, Part};

/// All candidates.
pub(super) fn candidates() -> Vec<Candidate> {
    LENS.into_iter().flat_map(of_len).collect()
}

fn of_len(len: u32) -> Vec<Candidate> {
    let data = Data::new(len);
    let available = Implementation::ALL.into_iter().filter(|which| which.is_available());
    let mut candidates: Vec<_> = available
        .map(|which| {
            let data = data.clone();
            let cell = data.cell(which.to_string(), which == Implementation::Scalar);
            Candidate::new(cell, move || which.sum(black_box(data.bytes())))
        })
        .collect();
    let (chosen, again) = (data.clone(), data.clone());
    candidates.push(Candidate::new(data.cell("the choice".to_owned(), false), move || {
        Sum::of(black_box(chosen.bytes()))
    }));
    let mut to = vec![0; data.len as usize];
    candidates.push(Candidate::new(data.cell("copying".to_owned(), false), move || {
        black_box(&mut to[..]).copy_from_slice(black_box(data.bytes()));
    }));
    candidates.push(copying_into_the_trap(&again));
    candidates
}

/// Copying to where some processors are slow: a few bytes further in the page than the source.
fn copying_into_the_trap(data: &Data) -> Candidate {
    let mut to = vec![0; data.len as usize + PAGE_LEN];
    let ahead = data.bytes().as_ptr().addr().wrapping_sub(to.as_ptr().addr());
    let at = ahead.wrapping_add(8) % PAGE_LEN;
    let cell = data.cell("copying 8 bytes on in the page".to_owned(), false);
    let data = data.clone();
    Candidate::new(cell, move || {
        let to = &mut to[at..at + data.len as usize];
        black_box(to).copy_from_slice(black_box(data.bytes()));
    })
}

/// Bytes at the alignment of a payload that was read into a buffer.
#[derive(Clone, Debug)]
struct Data {
    buf: Rc<[u8]>,
    start: usize,
    len: u32,
}

impl Data {
    fn new(len: u32) -> Self {
        let buf: Rc<[u8]> = (0..=u8::MAX).cycle().take(len as usize + 2 * LINE_LEN).collect();
        let start = buf.as_ptr().align_offset(LINE_LEN) + OFFSET;
        Self { buf, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.start + self.len as usize]
    }

    fn cell(&self, way: String, is_baseline: bool) -> Cell {
        let subject = format!("{} bytes", self.len);
        Cell { part: Part::Checksum, subject, way, units: self.len, is_baseline }
    }
}

/// A long header, a short packet, a segment, a jumbo frame, and two trains.
const LENS: [u32; 6] = [64, 256, 1448, 9000, 32_768, 65_536];
/// Length of a cache line.
const LINE_LEN: usize = 64;
const PAGE_LEN: usize = 4096;
/// Length of the Ethernet, IPv4 and TCP headers before the payload.
const OFFSET: usize = 54;
