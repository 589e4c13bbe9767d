//! What waits for a port that is full, and who waits for it.
//!
//! ```text
//! a frame, and the port is full, or others wait already
//!   path of its own, lossless copy ── kept; who brought it is paused until the queue is empty
//!   best-effort copy ─────────────── kept while there is room for it; nobody waits
//!   sampled copy ─────────────────── one of every so many kept; nobody waits
//! the port takes nothing for as long as somebody waits for it at most
//!   ────────────────────────────── stalled: who waits goes on, frames are dropped by that name,
//!                                    until the queue is empty
//! ```
//! What is kept of frames that make their senders wait is bounded by these: each is paused after
//! the batch that it has under way. [`ROOM`] is for what cannot be paused.

use std::time::{Duration, Instant};

use tapswitch_datapath::{Claim, DropReason, Frame, HEADROOM, Receipt};
use tapswitch_openflow::Delivery;
use tapswitch_vhost::Part;
use tapswitch_wire::{Layout, NetHeader};

use super::sampler::Sampler;
use crate::beyond::Beyond;
use crate::store::{Pool, Store};

/// Frames that wait for one port, as one worker sends to it.
#[derive(Debug)]
pub(super) struct EgressQueue {
    frames: Store<Waiting>,
    /// Since when somebody waits; none while nobody does.
    held_since: Option<Instant>,
    /// When the port took something last, or began not to.
    progress: Instant,
    /// How long the port may take nothing while somebody waits.
    bound: Duration,
    stalled: bool,
    sampler: Sampler,
}

/// A frame that waits, behind [`HEADROOM`] bytes.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) meta: NetHeader,
    pub(super) layout: Layout,
    /// Packets of a train that went out before the port was full.
    pub(super) done: usize,
    /// Bytes of each packet that are to go out; none for all.
    pub(super) snaplen: Option<usize>,
    pub(super) receipt: Receipt,
}

/// What comes of a frame for a port that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is kept, and whoever brought it waits.
    Held,
    /// It is kept.
    Kept,
}

impl EgressQueue {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            frames: Store::default(),
            held_since: None,
            progress: now,
            bound: Duration::ZERO,
            stalled: false,
            sampler: Sampler::default(),
        }
    }

    /// Decides about a frame of `len` bytes. `stall` is how long others wait for this port.
    ///
    /// # Errors
    /// Why it is not kept.
    pub(super) fn admit(
        &mut self,
        delivery: Option<Delivery>,
        len: usize,
        stall: Duration,
        now: Instant,
    ) -> Result<Admission, DropReason> {
        let stall = match delivery {
            None => stall,
            Some(Delivery::Lossless { stall_ms: 0 }) => stall,
            Some(Delivery::Lossless { stall_ms }) => Duration::from_millis(stall_ms.into()),
            Some(Delivery::BestEffort) => return self.admit_copy(len),
            Some(Delivery::SampleOnPressure) => {
                self.sampler.pick(self.frames.len(), COPY_ROOM)?;
                return self.admit_copy(len);
            }
        };
        if stall.is_zero() {
            return self.admit_copy(len);
        }
        if self.stalled {
            return Err(DropReason::EgressStalled);
        }
        if self.frames.len() + len > ROOM {
            return Err(DropReason::EgressFull);
        }
        if self.held_since.is_none() {
            (self.held_since, self.bound, self.progress) = (Some(now), stall, now);
        }
        self.bound = self.bound.max(stall);
        Ok(Admission::Held)
    }

    /// Decides about a frame for which nobody waits.
    fn admit_copy(&self, len: usize) -> Result<Admission, DropReason> {
        let has_room = self.frames.is_empty() || self.frames.len() + len <= COPY_ROOM;
        if has_room { Ok(Admission::Kept) } else { Err(DropReason::EgressFull) }
    }

    /// Puts a frame, the end of which is `beyond`, behind all others. `done` packets of it have
    /// left.
    pub(super) fn push(
        &mut self,
        pool: &mut Pool,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        done: usize,
        claim: &Claim<'_>,
    ) {
        let (meta, layout, receipt) = (frame.meta, *frame.layout(), claim.wait(frame));
        let waiting = Waiting { meta, layout, done, snaplen: claim.snaplen(), receipt };
        self.frames.push(pool, HEADROOM + frame.len(), waiting, |bytes| {
            let mut at = HEADROOM;
            let parts = frame.parts().map(Part::Ours);
            let parts = std::iter::once(Part::Ours(frame.head())).chain(parts);
            for part in parts.chain(beyond.parts()) {
                at += part.read(&mut bytes[at..]);
            }
        });
    }

    /// The first frame.
    pub(super) fn front(&mut self) -> Option<(&mut [u8], &mut Waiting)> {
        self.frames.front()
    }

    /// Takes the first frame out, because it left or never will.
    pub(super) fn pop(&mut self, pool: &mut Pool, now: Instant) -> Option<Waiting> {
        self.progress = now;
        self.frames.pop(pool)
    }

    /// Notes that part of the first frame left.
    pub(super) fn note_progress(&mut self, now: Instant) {
        self.progress = now;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// True while senders wait.
    pub(super) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// Looks at the time, after an attempt to send what waits. Returns `true` when the port has
    /// stalled by now, once.
    pub(super) fn follow(&mut self, now: Instant) -> bool {
        if self.frames.is_empty() {
            (self.held_since, self.stalled) = (None, false);
        }
        self.sampler.relax(self.frames.len(), now);
        let Some(since) = self.held_since else { return false };
        let is_stuck = now - self.progress >= self.bound;
        let is_late = now - since >= self.bound * PAUSE_MAX;
        if is_stuck || is_late {
            (self.held_since, self.stalled) = (None, true);
        }
        self.stalled
    }

    /// True when nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        self.frames.is_empty() && self.sampler.is_idle()
    }
}

/// Bytes that wait for one port at most, for each worker.
const ROOM: usize = 8 * 1024 * 1024;
/// Bytes up to which frames are kept for which nobody waits.
const COPY_ROOM: usize = 512 * 1024;
/// A port that takes a little now and then does not make others wait for ever: a pause is over
/// after this many times its bound.
const PAUSE_MAX: u32 = 20;
