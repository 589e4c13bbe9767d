//! Tallies: what a worker counts during a burst, added to the shared counters at its end.
//!
//! A tally is stored in its frame's program, so counting touches no further memory; a shared
//! counter is several pointers away.

use std::cell::Cell;

use crate::traffic::Traffic;

/// Traffic that is not in the shared counters yet.
#[derive(Debug, Default)]
pub(crate) struct Tally(Cell<Traffic>);

impl Tally {
    /// Counts one frame of `len` bytes that makes `packets` on the wire.
    #[inline]
    pub(crate) fn add(&self, len: usize, packets: u32) {
        let Traffic { frames, packets: sum, bytes } = self.0.get();
        self.0.set(Traffic {
            frames: frames + 1,
            packets: sum + u64::from(packets),
            bytes: bytes + len as u64,
        });
    }

    /// True if nothing is to be added.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.get().frames == 0
    }

    /// The tallied traffic.
    pub(crate) fn sum(&self) -> Traffic {
        self.0.get()
    }

    /// Returns the tallied traffic and resets it.
    pub(crate) fn take(&self) -> Traffic {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_gone() {
        let tally = Tally::default();
        assert!(tally.is_empty());
        tally.add(100, 1);
        tally.add(3000, 2);
        assert!(!tally.is_empty());
        assert_eq!(tally.take(), Traffic { frames: 2, packets: 3, bytes: 3100 });
        assert_eq!(tally.take(), Traffic::default());
    }
}
