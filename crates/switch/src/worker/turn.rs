//! Turns: the limit of what a queue may bring before other queues and the tables are looked at.
//!
//! A turn is counted in small frames. A train of 64 KiB takes three system calls like a frame of a
//! hundred bytes, but as much time as a dozen of those, mostly for copying. If a train counted as
//! one frame, a turn of 128 trains would exceed what a TCP connection has in flight, and its
//! acknowledgements would wait in another queue until all of them are through: sender and worker
//! would alternate instead of overlapping (cost: `docs/benchmarks.md`, "From tap to tap").
//!
//! A guest may split a frame into a thousand pieces of one byte, each of which is looked up and
//! copied separately: pieces beyond two per frame are counted.
//!
//! A train of many tiny packets is counted by its packets, as a port that does not take trains
//! needs a system call for each, and the sender chooses their size. Such a train ends a batch and a
//! turn.

use tapswitch_wire::NetHeader;

/// The rest of a queue's turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    left: usize,
}

impl Turn {
    /// A full turn.
    #[inline]
    pub(super) fn new() -> Self {
        Self { left: BURST_COUNT }
    }

    /// Small frames that are left.
    #[inline]
    pub(super) fn left(self) -> usize {
        self.left
    }

    #[inline]
    pub(super) fn is_over(self) -> bool {
        self.left == 0
    }

    /// Subtracts frames of this [`weight`]; a read without a frame counts as one.
    #[inline]
    pub(super) fn note(&mut self, frames: usize, weight: usize) {
        self.left = self.left.saturating_sub(frames.max(1) + weight / BYTES_PER_FRAME);
    }

    /// Grants the queue at least this many frames, whatever it has brought.
    #[inline]
    pub(super) fn keep(&mut self, frames: usize) {
        self.left = self.left.max(frames);
    }

    #[inline]
    pub(super) fn end(&mut self) {
        self.left = 0;
    }
}

/// Gives each of `count` queues a turn, starting at `next`, until they have brought `most` frames.
/// With many busy queues, other work is done before all have had theirs, and the next call
/// continues behind the last one. `turn` returns the frames that a queue brought; this returns the
/// sum.
#[inline]
pub(super) fn around(
    next: &mut usize,
    count: usize,
    most: usize,
    mut turn: impl FnMut(usize) -> usize,
) -> usize {
    let mut total = 0;
    for _ in 0..count {
        // Queues may have been removed since.
        let at = if *next < count { *next } else { 0 };
        *next = at + 1;
        total += turn(at);
        if total >= most {
            break;
        }
    }
    total
}

/// True for a train of packets so small that its byte count underestimates its cost.
#[inline]
pub(super) fn is_crowded(meta: &NetHeader) -> bool {
    meta.is_train() && meta.gso_size < CROWDED_SIZE
}

/// The cost of a frame of `len` bytes, in bytes: its length, or [`BYTES_PER_FRAME`] for each of its
/// packets if it is crowded.
#[inline]
pub(super) fn weight(meta: &NetHeader, len: usize) -> usize {
    match is_crowded(meta) {
        true => len / usize::from(meta.gso_size.max(1)) * BYTES_PER_FRAME,
        false => len,
    }
}

/// The cost in bytes of `pieces` that hold `frames`; two pieces per frame, header and data, are
/// free.
#[inline]
pub(super) fn weight_of_pieces(frames: usize, pieces: usize) -> usize {
    pieces.saturating_sub(2 * frames) * BYTES_PER_PIECE
}

/// Small frames per turn. At two microseconds a frame, a change of the tables takes effect within a
/// quarter of a millisecond.
pub(crate) const BURST_COUNT: usize = 128;
/// Bytes that take as long as a small frame: a turn is eight trains of 64 KiB.
const BYTES_PER_FRAME: usize = 4096;
/// Sixteen pieces take as long as a small frame.
const BYTES_PER_PIECE: usize = BYTES_PER_FRAME / 16;
/// A train with less payload per packet than this is crowded. No honest sender uses such packets
/// for bulk data: the smallest MTU of IPv4 leaves 536 bytes of TCP payload.
const CROWDED_SIZE: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of batches of `frames` and `bytes` in a turn.
    fn batches(frames: usize, bytes: usize) -> usize {
        let mut turn = Turn::new();
        let mut count = 0;
        while !turn.is_over() {
            turn.note(frames, bytes);
            count += 1;
        }
        count
    }

    #[test]
    fn a_turn_is_many_small_frames_or_few_trains() {
        assert_eq!(batches(1, 60), BURST_COUNT);
        assert_eq!(batches(16, 16 * 60), BURST_COUNT / 16);
        assert_eq!(batches(1, 65_536), 8);
        assert_eq!(batches(0, 0), BURST_COUNT, "asking in vain ends, too");
    }

    #[test]
    fn a_train_of_tiny_packets_is_a_turn() {
        let train = NetHeader { gso_type: tapswitch_wire::GsoType::TCPV4, ..NetHeader::PLAIN };
        for (gso_size, turns) in [(0, 1), (1, 1), (255, 1), (256, 8), (1448, 8)] {
            let meta = NetHeader { gso_size, ..train };
            assert_eq!(batches(1, weight(&meta, 65_536)), turns, "{gso_size}");
        }
        assert_eq!(weight(&NetHeader { gso_size: 1, ..NetHeader::PLAIN }, 60), 60, "no train");
    }

    #[test]
    fn frames_in_many_pieces_are_a_turn_sooner() {
        let turns = |frames, pieces| batches(frames, weight_of_pieces(frames, pieces));
        assert_eq!(turns(32, 64), BURST_COUNT / 32, "a header and a frame each");
        assert_eq!(turns(1, 1024), 2);
        assert_eq!(turns(32, 32 * 18), 2, "Linux's longest");
        assert_eq!(weight_of_pieces(32, 0), 0);
    }

    #[test]
    fn many_busy_queues_take_turns_with_everybody_else() {
        let (mut next, mut order) = (0, Vec::new());
        let mut look = |count, frames| {
            let before = order.len();
            let total = around(&mut next, count, 256, |at| {
                order.push(at);
                frames
            });
            (total, order[before..].to_vec())
        };
        assert_eq!(look(5, BURST_COUNT), (256, vec![0, 1]));
        assert_eq!(look(5, BURST_COUNT), (256, vec![2, 3]));
        assert_eq!(look(5, BURST_COUNT), (256, vec![4, 0]));
        assert_eq!(look(5, 1), (5, vec![1, 2, 3, 4, 0]), "all of them, when that is little");
        assert_eq!(look(1, 1), (1, vec![0]), "the others are gone");
        assert_eq!(look(0, 1), (0, vec![]));
    }

    #[test]
    fn what_was_handed_over_is_read_in_any_case() {
        let mut turn = Turn::new();
        turn.note(BURST_COUNT, 0);
        turn.keep(3);
        assert_eq!((turn.is_over(), turn.left()), (false, 3));
        turn.end();
        assert!(turn.is_over());
    }
}
