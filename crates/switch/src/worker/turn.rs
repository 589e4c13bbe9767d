//! What one queue may bring before others get their turn and the tables are looked at again.
//!
//! It is counted in small frames. Three system calls move a train of 64 KiB or a hundred bytes, but
//! the former takes as long as a dozen of the latter, most of it to copy its bytes. Counted as one
//! frame, 128 trains are more than a TCP connection has under way at most, and its acknowledgements
//! would wait in another queue until all of them are through: sender and worker would work by turns
//! instead of at the same time (what that costs: `docs/benchmarks.md`, "From tap to tap").
//!
//! A guest's frame may lie in a thousand pieces of a byte each, every one of which is looked up and
//! copied by itself: beyond two for a frame, they count as well.
//!
//! A train of many tiny packets is counted by those: a port that takes no trains takes as many
//! system calls for it, and whoever sends it may choose how many. It ends a batch, and a turn.

use tapswitch_wire::NetHeader;

/// A queue's turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    left: usize,
}

impl Turn {
    /// A whole one.
    #[inline]
    pub(super) fn new() -> Self {
        Self { left: BURST_COUNT }
    }

    /// How many frames it may bring yet, should they be small.
    #[inline]
    pub(super) fn left(self) -> usize {
        self.left
    }

    #[inline]
    pub(super) fn is_over(self) -> bool {
        self.left == 0
    }

    /// It has brought frames of such a [`weight`]; asking in vain is worth a frame.
    #[inline]
    pub(super) fn note(&mut self, frames: usize, weight: usize) {
        self.left = self.left.saturating_sub(frames.max(1) + weight / BYTES_PER_FRAME);
    }

    /// At least so many frames are its own, whatever it has brought.
    #[inline]
    pub(super) fn keep(&mut self, frames: usize) {
        self.left = self.left.max(frames);
    }

    #[inline]
    pub(super) fn end(&mut self) {
        self.left = 0;
    }
}

/// Gives each of `count` queues a turn, from the `next` one on, until they have brought `most`
/// frames: of many busy ones, not all have theirs before somebody else is looked at, and the next
/// look goes on behind the last. `turn` answers how many frames a queue has brought; this, how many
/// all of them have.
#[inline]
pub(super) fn around(
    next: &mut usize,
    count: usize,
    most: usize,
    mut turn: impl FnMut(usize) -> usize,
) -> usize {
    let mut total = 0;
    for _ in 0..count {
        // There may be fewer than there were.
        let at = if *next < count { *next } else { 0 };
        *next = at + 1;
        total += turn(at);
        if total >= most {
            break;
        }
    }
    total
}

/// True for a train of packets so small that its bytes do not tell what it may cost.
#[inline]
pub(super) fn is_crowded(meta: &NetHeader) -> bool {
    meta.is_train() && meta.gso_size < CROWDED_SIZE
}

/// What a frame that lies in `len` bytes may cost, in bytes: its own, or those of as many small
/// frames as the packets that it makes.
#[inline]
pub(super) fn weight(meta: &NetHeader, len: usize) -> usize {
    match is_crowded(meta) {
        true => len / usize::from(meta.gso_size.max(1)) * BYTES_PER_FRAME,
        false => len,
    }
}

/// What `pieces` cost that `frames` lie in, in bytes; nothing for a header and a frame behind it.
#[inline]
pub(super) fn weight_of_pieces(frames: usize, pieces: usize) -> usize {
    pieces.saturating_sub(2 * frames) * BYTES_PER_PIECE
}

/// Small frames in a turn. At two microseconds a frame, a change of the tables is seen within a
/// quarter of a millisecond.
pub(crate) const BURST_COUNT: usize = 128;
/// Bytes that take as long as a small frame: eight trains of 64 KiB are a turn.
const BYTES_PER_FRAME: usize = 4096;
/// Sixteen pieces take as long as a small frame.
const BYTES_PER_PIECE: usize = BYTES_PER_FRAME / 16;
/// Bytes of payload below which the packets of a train are few to no honest sender: a path with the
/// smallest MTU of IPv4 leaves 536 of TCP.
const CROWDED_SIZE: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many batches of `frames` and `bytes` a turn has.
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
