//! A piece of the buffer: blocks of packets, and on whose behalf they wait.
//!
//! ```text
//! bytes:   block  block  block  block  block
//! shares:    a      a      b      a      b      what each counts, and for whom
//! lots:    a: a bucket of a group and its port, b: another one
//! ```
//! A worker notes with each block what it counts, without a look at anything that others share. All
//! of it is queued when others may see the chunk, lot by lot, and so it is settled.

use std::time::Duration;

use tapswitch_datapath::{Claim, OwnedClaim, Traffic, WorkerIndex};
use tapswitch_pcapng as pcapng;

/// Blocks of packets.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// One for each block.
    shares: Vec<Share>,
    lots: Vec<Lot>,
    /// The lot of the next blocks.
    current: usize,
    /// Lots in front of this one have nothing that is not queued.
    queued: usize,
}

/// What a block counts when it is written. The frame that it is the last one of counts with it.
#[derive(Clone, Copy, Debug)]
struct Share {
    lot: u32,
    frames: u32,
    packets: u32,
    bytes: u32,
}

/// Blocks that count for the same.
#[derive(Debug)]
pub(super) struct Lot {
    claim: OwnedClaim,
    /// What is not queued yet.
    fresh: Traffic,
    /// What has been taken out, and is to be settled.
    taken: Traffic,
}

impl Chunk {
    pub(super) fn new() -> Self {
        let (bytes, shares) = (Vec::with_capacity(CHUNK_LEN), Vec::with_capacity(SHARE_COUNT));
        Self { bytes, shares, lots: Vec::new(), current: 0, queued: 0 }
    }

    /// When its first packet came, on the clock of the buffer.
    pub(super) fn first_time(&self) -> Option<u64> {
        pcapng::packet_time(&self.bytes)
    }

    /// How long its first packet has been there at `now`.
    pub(super) fn age(&self, now: u64) -> Duration {
        Duration::from_nanos(self.first_time().map_or(0, |first| now.saturating_sub(first)))
    }

    /// The next blocks count for `claim`.
    pub(super) fn begin(&mut self, claim: &Claim<'_>) {
        let first = self.lots.len().saturating_sub(LOOK_BACK);
        match self.lots[first..].iter().position(|lot| lot.claim.is(claim)) {
            Some(position) => self.current = first + position,
            None => self.begin_lot(claim.owned()),
        }
    }

    /// The same in the first lot of a chunk.
    pub(super) fn begin_lot(&mut self, claim: OwnedClaim) {
        self.current = self.lots.len();
        self.lots.push(Lot { claim, fresh: Traffic::default(), taken: Traffic::default() });
    }

    /// For whom the last block counts.
    pub(super) fn claim(&self) -> Option<&OwnedClaim> {
        self.lots.get(self.current).map(|lot| &lot.claim)
    }

    /// There is another block, a packet of a frame.
    pub(super) fn note_block(&mut self) {
        let lot = u32::try_from(self.current).unwrap_or(u32::MAX);
        self.shares.push(Share { lot, frames: 0, packets: 0, bytes: 0 });
        self.add(Traffic::packets(1));
    }

    /// The last block counts so much more.
    pub(super) fn add(&mut self, traffic: Traffic) {
        if let (Some(share), Some(lot)) = (self.shares.last_mut(), self.lots.get_mut(self.current))
        {
            // Of one frame, so all of it is less than that.
            let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
            share.frames += number(traffic.frames);
            share.packets += number(traffic.packets);
            share.bytes += number(traffic.bytes);
            lot.fresh += traffic;
        }
    }

    /// Counts what is new as queued, as `worker`. Others may see the chunk from then on.
    pub(super) fn queue(&mut self, worker: WorkerIndex) {
        for lot in &mut self.lots[self.queued..] {
            let fresh = std::mem::take(&mut lot.fresh);
            if !fresh.is_empty() {
                lot.claim.wait(worker, fresh);
            }
        }
        self.queued = self.lots.len().saturating_sub(LOOK_BACK);
    }

    /// The block at `index` is taken out.
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

    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.shares.clear();
        self.lots.clear();
        (self.current, self.queued) = (0, 0);
    }
}

impl Lot {
    /// Settles what was taken out.
    pub(super) fn settle(&mut self, by: &mut impl FnMut(&OwnedClaim, Traffic)) {
        let taken = std::mem::take(&mut self.taken);
        if !taken.is_empty() {
            by(&self.claim, taken);
        }
    }
}

/// Bytes of a chunk: a few of the longest trains.
pub(super) const CHUNK_LEN: usize = 256 * 1024;
/// Blocks for which there is room without another allocation.
const SHARE_COUNT: usize = CHUNK_LEN / 128;
/// Lots that are looked at before there is another one: flows of several buckets take turns.
const LOOK_BACK: usize = 8;
