//! What is read of a queue while it waits for another port.
//!
//! A kernel without `IFF_BACKPRESSURE` (Linux before 7.3) drops what does not fit a tap device's
//! ring, whatever is behind it, and so does a packet socket. So these are read on while they are
//! paused, into memory that is bounded by bytes and not by packets. Frames that stood there for
//! long are marked (ECN), so that their senders slow down before it is full. When it is, the queue
//! is left to fill: what the kernel drops then, it counts.

use std::time::Instant;

use tapswitch_datapath::{Codel, mark_ce};
use tapswitch_wire::NetHeader;

use crate::store::{Pool, Store};

/// Frames of one queue that were read before their time.
#[derive(Debug)]
pub(crate) struct Ahead {
    frames: Store<Early>,
    budget: usize,
    codel: Codel,
    /// Frames that were marked.
    marked: u64,
    origin: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Early {
    meta: NetHeader,
    /// Where the frame starts.
    start: usize,
    at: Instant,
}

impl Ahead {
    /// Room for `budget` bytes, about.
    pub(crate) fn new(budget: usize) -> Self {
        let (frames, codel) = (Store::default(), Codel::default());
        Self { frames, budget, codel, marked: 0, origin: Instant::now() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// True when nothing more shall be read.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= self.budget
    }

    /// Frames that were marked so far.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// Puts the frame in `buf[start..]` behind all others, headroom and all.
    pub(crate) fn push(&mut self, pool: &mut Pool, meta: NetHeader, buf: &[u8], start: usize) {
        let early = Early { meta, start, at: Instant::now() };
        self.frames.push(pool, buf.len(), early, |bytes| bytes.copy_from_slice(buf));
    }

    /// The first frame as it was read, with its metadata and where it starts; marked if it is time
    /// for that. It stays until [`Self::pop`].
    pub(crate) fn front(&mut self, now: Instant) -> Option<(NetHeader, &mut [u8], usize)> {
        let backlog = self.frames.len();
        let (bytes, early) = self.frames.front()?;
        let Early { meta, start, at } = *early;
        let ns =
            |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (now, sojourn) = (ns(now - self.origin), ns(now.saturating_duration_since(at)));
        if self.codel.dequeued(now, sojourn, backlog) && mark_ce(&mut bytes[start..]) {
            self.marked += 1;
        }
        Some((meta, bytes, start))
    }

    /// Takes the first frame out.
    pub(crate) fn pop(&mut self, pool: &mut Pool) {
        self.frames.pop(pool);
    }
}
