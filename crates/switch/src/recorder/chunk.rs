//! A chunk of the buffer: blocks of packets, and the claims they are counted for.
//!
//! ```text
//! bytes:   block  block  block  block  block
//! shares:    a      a      b      a      b      counts of each block, and its lot
//! lots:    a: a bucket of a group and its port, b: another one
//! ```
//! A worker notes the counts of each block without access to shared counters. They are added to the
//! queued counters lot by lot, before the chunk becomes visible to others, and settled in the same
//! way.

use std::time::Duration;

use tapswitch_datapath::{Claim, OwnedClaim, Traffic, WorkerIndex};
use tapswitch_pcapng as pcapng;

/// Blocks of packets.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// One per block.
    shares: Vec<Share>,
    lots: Vec<Lot>,
    /// The lot of the next blocks.
    current: usize,
    /// Lots before this one are queued completely.
    queued: usize,
}

/// What a block counts when it is written. The frame is counted with its last block.
#[derive(Clone, Copy, Debug)]
struct Share {
    lot: u32,
    frames: u32,
    packets: u32,
    bytes: u32,
}

/// Blocks with the same claim.
#[derive(Debug)]
pub(super) struct Lot {
    claim: OwnedClaim,
    /// Traffic that is not counted as queued yet.
    fresh: Traffic,
    /// Traffic that was taken out and is not settled yet.
    taken: Traffic,
}

impl Chunk {
    pub(super) fn new() -> Self {
        let (bytes, shares) = (Vec::with_capacity(CHUNK_LEN), Vec::with_capacity(SHARE_COUNT));
        Self { bytes, shares, lots: Vec::new(), current: 0, queued: 0 }
    }

    /// Time of its first packet, by the buffer's clock.
    pub(super) fn first_time(&self) -> Option<u64> {
        pcapng::packet_time(&self.bytes)
    }

    /// Age of its first packet at `now`.
    pub(super) fn age(&self, now: u64) -> Duration {
        Duration::from_nanos(self.first_time().map_or(0, |first| now.saturating_sub(first)))
    }

    /// The next blocks are counted for `claim`.
    pub(super) fn begin(&mut self, claim: &Claim<'_>) {
        let first = self.lots.len().saturating_sub(LOOK_BACK);
        match self.lots[first..].iter().position(|lot| lot.claim.is(claim)) {
            Some(position) => self.current = first + position,
            None => self.begin_lot(claim.owned()),
        }
    }

    /// As [`Self::begin`], always with a new lot.
    pub(super) fn begin_lot(&mut self, claim: OwnedClaim) {
        self.current = self.lots.len();
        self.lots.push(Lot { claim, fresh: Traffic::default(), taken: Traffic::default() });
    }

    /// The claim of the last block.
    pub(super) fn claim(&self) -> Option<&OwnedClaim> {
        self.lots.get(self.current).map(|lot| &lot.claim)
    }

    /// Adds a block, which is a packet of a frame.
    pub(super) fn note_block(&mut self) {
        let lot = u32::try_from(self.current).unwrap_or(u32::MAX);
        self.shares.push(Share { lot, frames: 0, packets: 0, bytes: 0 });
        self.add(Traffic::packets(1));
    }

    /// Adds to the counts of the last block.
    pub(super) fn add(&mut self, traffic: Traffic) {
        if let (Some(share), Some(lot)) = (self.shares.last_mut(), self.lots.get_mut(self.current))
        {
            // Counts of a single frame fit into 32 bits.
            let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
            share.frames += number(traffic.frames);
            share.packets += number(traffic.packets);
            share.bytes += number(traffic.bytes);
            lot.fresh += traffic;
        }
    }

    /// Adds the new counts to the queued ones, as `worker`. The chunk may then become visible to
    /// others.
    pub(super) fn queue(&mut self, worker: WorkerIndex) {
        for lot in &mut self.lots[self.queued..] {
            let fresh = std::mem::take(&mut lot.fresh);
            if !fresh.is_empty() {
                lot.claim.wait(worker, fresh);
            }
        }
        self.queued = self.lots.len().saturating_sub(LOOK_BACK);
    }

    /// Takes out the block at `index`.
    pub(super) fn take(&mut self, index: usize) {
        let Some(Share { lot, frames, packets, bytes }) = self.shares.get(index) else { return };
        if let Some(lot) = self.lots.get_mut(*lot as usize) {
            let (frames, packets, bytes) = (*frames, *packets, *bytes);
            lot.taken +=
                Traffic { frames: frames.into(), packets: packets.into(), bytes: bytes.into() };
        }
    }

    pub(super) fn lots_mut(&mut self) -> &mut Vec<Lot> {
        &mut self.lots
    }

    /// Empties the chunk.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.shares.clear();
        self.lots.clear();
        (self.current, self.queued) = (0, 0);
    }
}

impl Lot {
    /// Settles the traffic that was taken out.
    pub(super) fn settle(&mut self, by: &mut impl FnMut(&OwnedClaim, Traffic)) {
        let taken = std::mem::take(&mut self.taken);
        if !taken.is_empty() {
            by(&self.claim, taken);
        }
    }
}

/// Bytes of a chunk: a few trains of maximum length.
pub(super) const CHUNK_LEN: usize = 256 * 1024;
/// Number of blocks without reallocation.
const SHARE_COUNT: usize = CHUNK_LEN / 128;
/// Lots to search before a new one is added: flows of several buckets alternate.
const LOOK_BACK: usize = 8;
