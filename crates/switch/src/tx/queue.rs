//! Egress queues: frames queued for a full port, and the senders that wait for them.
//!
//! ```text
//! a frame whose port is full, or already has queued frames
//!   original path, lossless copy ── queued; its receive queue is paused until all such have left
//!   copy: best effort, sampled ──── a random one of every N is queued; nobody waits
//! the port takes nothing for as long as the senders of one bound wait at most
//!   ───────────────────────────── stalled for these: they resume, and their frames are dropped
//!                                 by that name until all they waited for have left
//! ```
//! Each contract has a bound of its own: a sender that waits for 20 ms is not delayed by one that
//! waits for ten seconds, and resuming it loses none of the other's frames. Senders with the same
//! bound wait together.
//!
//! Frames with waiting senders leave before all others: copies that arrive faster than the port
//! takes them would otherwise block a path through the same port for as long as they do. Each of
//! the two kinds stays in order.
//!
//! A port with `pause=off` never waits: its frames are queued like copies.
//!
//! Each worker has its own queues. Which of them gets the room that a port makes is random, so a
//! port is stuck only if it takes nothing from any worker. Each ring of a guest and each socket of
//! a tunnel counts as a port here: see [`super::lanes`].
//!
//! Queued frames with waiting senders are bounded by the number of senders: each is paused after
//! its current batch, so there is room for one batch per receive queue of the worker
//! ([`room_for`]), plus [`ROOM`] for senders that cannot be paused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tapswitch_datapath::{Claim, DropReason, Frame, HEADROOM, Receipt};
use tapswitch_openflow::Delivery;
use tapswitch_vhost::Part;
use tapswitch_wire::{Layout, NetHeader};

use super::pacing::Pacing;
use super::pressure_sampler::PressureSampler;
use crate::beyond::Beyond;
use crate::store::{Pool, Store};

/// Frames that one worker has queued for a port or one of its rings.
#[derive(Debug)]
pub(super) struct EgressQueue {
    /// Frames with waiting senders.
    held: Store<Waiting>,
    /// Frames without.
    kept: Store<Waiting>,
    /// One for each bound of the frames in `held`.
    waits: Vec<Waiters>,
    /// When the port last took a frame, or began to refuse.
    progress: Instant,
    /// State shared with the other workers.
    pacing: Arc<Pacing>,
    /// The ring of this queue.
    ring: usize,
    /// The ring's count of frames taken, when last looked at.
    taken_before: u64,
    sampler: PressureSampler,
}

/// Senders with the same bound.
#[derive(Debug)]
struct Waiters {
    /// How long the port may take nothing.
    bound: Duration,
    /// Number of their frames in the queue.
    frames: usize,
    /// Start of the wait; `None` once the port has stalled for them.
    since: Option<Instant>,
}

/// A queued frame, stored behind [`HEADROOM`] bytes.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) meta: NetHeader,
    pub(super) layout: Layout,
    /// Packets of a train that were sent before the port was full. The receipt covers the others.
    pub(super) done: u32,
    /// Bytes of each packet to send; `None` for all.
    pub(super) snaplen: Option<usize>,
    /// Whether and how long a sender waits for it.
    admission: Admission,
    pub(super) receipt: Receipt,
}

/// How a frame for a full port is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Queued; its sender waits, unless the port takes nothing for this long.
    Held(Duration),
    /// Queued; nobody waits.
    Kept,
}

impl EgressQueue {
    pub(super) fn new(pacing: Arc<Pacing>, ring: usize, now: Instant) -> Self {
        let taken_before = pacing.taken(ring);
        // A different seed for each queue.
        let sampler = PressureSampler::new(taken_before);
        Self {
            held: Store::default(),
            kept: Store::default(),
            waits: Vec::new(),
            progress: now,
            taken_before,
            pacing,
            ring,
            sampler,
        }
    }

    /// Decides about a frame of `len` bytes. `stall` is how long senders wait for this port, `room`
    /// the limit in bytes of queued frames with waiting senders.
    ///
    /// # Errors
    /// Why the frame is not queued.
    pub(super) fn admit(
        &mut self,
        delivery: Option<Delivery>,
        len: usize,
        stall: Duration,
        room: usize,
        now: Instant,
    ) -> Result<Admission, DropReason> {
        let stall = match delivery {
            None => stall,
            Some(Delivery::Lossless { stall_ms: 0 }) => stall,
            Some(Delivery::Lossless { stall_ms }) => Duration::from_millis(stall_ms.into()),
            Some(Delivery::BestEffort) => {
                return self.admit_some(len, BEST_EFFORT_EVERY_MAX, DropReason::EgressFull);
            }
            Some(Delivery::SampleOnPressure) => {
                return self.admit_some(len, SAMPLE_EVERY_MAX, DropReason::SampledOut);
            }
        };
        if stall.is_zero() {
            return self.admit_copy(len);
        }
        let wait = self.waits.iter().find(|wait| wait.bound == stall);
        if wait.is_some_and(|wait| wait.since.is_none()) {
            return Err(DropReason::EgressStalled);
        }
        if self.held.len() + len > room {
            return Err(DropReason::EgressFull);
        }
        if wait.is_none() {
            self.waits.push(Waiters { bound: stall, frames: 0, since: Some(now) });
        }
        if self.held.is_empty() {
            self.progress = now;
        }
        Ok(Admission::Held(stall))
    }

    /// Decides about a copy without a waiting sender. Under pressure only one of every N is
    /// admitted, with N up to `every_max`; `reason` is that of the others.
    fn admit_some(
        &mut self,
        len: usize,
        every_max: u32,
        reason: DropReason,
    ) -> Result<Admission, DropReason> {
        let is_pressed = self.kept.len() > COPY_ROOM / 2;
        if self.sampler.picks(is_pressed, every_max) { self.admit_copy(len) } else { Err(reason) }
    }

    /// Decides about a frame without a waiting sender.
    fn admit_copy(&self, len: usize) -> Result<Admission, DropReason> {
        let has_room = self.kept.is_empty() || self.kept.len() + len <= COPY_ROOM;
        if has_room { Ok(Admission::Kept) } else { Err(DropReason::EgressFull) }
    }

    /// Appends an admitted frame, whose remaining bytes are `beyond`, to the queue of its kind.
    /// `done` packets of it have been sent.
    pub(super) fn push(
        &mut self,
        admission: Admission,
        pool: &mut Pool,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        done: u32,
        claim: &Claim<'_>,
    ) {
        let receipt = claim.wait(claim.traffic(frame).behind(done));
        let (meta, layout) = (frame.meta, *frame.layout());
        let snaplen = claim.snaplen();
        let waiting = Waiting { meta, layout, done, snaplen, admission, receipt };
        if let Some(wait) = self.wait_of(admission) {
            wait.frames += 1;
        }
        let frames = match admission {
            Admission::Held(_) => &mut self.held,
            Admission::Kept => &mut self.kept,
        };
        frames.push(pool, HEADROOM + frame.len(), waiting, |bytes| {
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
        self.first().front()
    }

    /// Removes the first frame, because it was sent or never will be.
    pub(super) fn pop(&mut self, pool: &mut Pool, now: Instant) -> Option<Waiting> {
        self.note_progress(now);
        let waiting = self.first().pop(pool)?;
        if let Some(wait) = self.wait_of(waiting.admission) {
            wait.frames -= 1;
        }
        Some(waiting)
    }

    /// The senders that wait for a frame with this admission.
    fn wait_of(&mut self, admission: Admission) -> Option<&mut Waiters> {
        let Admission::Held(bound) = admission else { return None };
        self.waits.iter_mut().find(|wait| wait.bound == bound)
    }

    /// The queue of the next frame to send.
    fn first(&mut self) -> &mut Store<Waiting> {
        if self.held.is_empty() { &mut self.kept } else { &mut self.held }
    }

    /// Notes that part of the first frame was sent.
    pub(super) fn note_progress(&mut self, now: Instant) {
        self.progress = now;
        self.taken_before = self.pacing.note_taken(self.ring);
    }

    /// Returns whether the port has taken frames of other workers since the last call: it is then
    /// not stuck, and may have room for ours soon.
    pub(super) fn notice_others(&mut self, now: Instant) -> bool {
        let taken = self.pacing.taken(self.ring);
        let have_moved = taken != self.taken_before;
        if have_moved {
            (self.progress, self.taken_before) = (now, taken);
        }
        have_moved
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.kept.is_empty()
    }

    /// True while senders wait.
    pub(super) fn is_held(&self) -> bool {
        self.waits.iter().any(|wait| wait.since.is_some())
    }

    /// True while senders with this bound wait.
    pub(super) fn is_held_for(&self, bound: Duration) -> bool {
        self.waits.iter().any(|wait| wait.bound == bound && wait.since.is_some())
    }

    /// True if the first frame has waited for long.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        !self.is_empty() && now - self.progress >= DOUBT_TIME
    }

    /// Checks the bounds, after an attempt to send queued frames. Returns `true` once when the port
    /// has stalled for some of the senders.
    pub(super) fn follow(&mut self, now: Instant) -> bool {
        self.waits.retain(|wait| wait.frames > 0);
        self.sampler.relax(self.kept.len(), now);
        let (progress, mut has_stalled) = (self.progress, false);
        for wait in &mut self.waits {
            if wait.is_over(progress, now) {
                (wait.since, has_stalled) = (None, true);
            }
        }
        has_stalled
    }

    /// True if the queue has no more purpose.
    pub(super) fn is_over(&self) -> bool {
        self.is_empty() && self.sampler.is_idle()
    }
}

impl Waiters {
    /// Whether the wait is over at `now`, if the port last took a frame at `progress`.
    fn is_over(&self, progress: Instant, now: Instant) -> bool {
        self.since.is_some_and(|since| {
            let is_stuck = now - progress.max(since) >= self.bound;
            let is_late = now - since >= self.bound * PAUSE_MAX;
            is_stuck || is_late
        })
    }
}

/// Limit in bytes of frames with waiting senders per lane, for a worker with this many receive
/// queues: a batch of each, plus room for controllers' packets, and for rules that send a frame to
/// one port several times.
pub(crate) const fn room_for(queues: usize) -> usize {
    ROOM + queues.saturating_mul(BATCH_ROOM)
}

const ROOM: usize = 8 * 1024 * 1024;
/// Bytes that a worker reads from a queue before it checks for pressure, including the overhead of
/// queueing them.
pub(crate) const BATCH_ROOM: usize = 256 * 1024;
/// Limit in bytes of frames without waiting senders.
const COPY_ROOM: usize = 512 * 1024;
/// At least one of this many sampled copies is taken: few enough for the sample of a very slow
/// monitor to be random, too.
const SAMPLE_EVERY_MAX: u32 = 4096;
/// The same for best-effort copies. What is queued for a slower monitor costs nothing, and one that
/// has stopped gets all copies again soon after it continues.
const BEST_EFFORT_EVERY_MAX: u32 = 64;
/// A port that takes a little now and then must not block senders for ever: a pause ends after this
/// many times its bound.
const PAUSE_MAX: u32 = 20;
/// A frame that has been the first for this long is stuck: the default bound of a port.
pub(super) const DOUBT_TIME: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use tapswitch_datapath::{Port, WorkerIndex};
    use tapswitch_openflow::PortNo;
    use tapswitch_wire::{MacAddr, parse};

    use super::*;

    /// A queue with a simulated clock, and the lengths of the frames that left it.
    struct Trial {
        port: Arc<Port>,
        pool: Pool,
        queue: EgressQueue,
        now: Instant,
    }

    impl Trial {
        fn new() -> Self {
            let port = Port::new(PortNo(1), "p1".to_owned(), MacAddr::ZERO, 1500, 1);
            let now = Instant::now();
            let (pool, queue) = (Pool::default(), EgressQueue::new(Arc::default(), 0, now));
            Self { port: Arc::new(port), pool, queue, now }
        }

        fn offer(&mut self, delivery: Option<Delivery>, len: usize) -> Result<(), DropReason> {
            let admission = self.queue.admit(delivery, len, STALL, room_for(1), self.now)?;
            let mut buf = vec![0; HEADROOM + len];
            let layout = parse(&buf[HEADROOM..]).unwrap().layout;
            let frame = Frame::new(NetHeader::PLAIN, layout, &mut buf, HEADROOM, 0);
            let claim = Claim::new(WorkerIndex(0), &self.port);
            self.queue.push(admission, &mut self.pool, &frame, Beyond::NONE, 0, &claim);
            Ok(())
        }

        /// The port takes this many frames. Returns how many of them have length `len`.
        fn take(&mut self, frames: usize, len: usize) -> usize {
            let mut count = 0;
            for _ in 0..frames {
                let Some((bytes, _)) = self.queue.front() else { break };
                count += usize::from(bytes.len() == HEADROOM + len);
                let waiting = self.queue.pop(&mut self.pool, self.now);
                waiting.into_iter().for_each(|it| it.receipt.dropped(DropReason::PortRemoved));
            }
            self.queue.follow(self.now);
            count
        }
    }

    const STALL: Duration = Duration::from_millis(50);
    const COPY: Option<Delivery> = Some(Delivery::BestEffort);
    const MS: Duration = Duration::from_millis(1);

    fn lossless(stall_ms: u16) -> Option<Delivery> {
        Some(Delivery::Lossless { stall_ms })
    }

    /// For ten seconds, twice as many copies as the port takes, and a path through the same port.
    #[test]
    fn copies_do_not_hold_up_a_path_that_shares_their_port() {
        let mut trial = Trial::new();
        let (mut kept, mut arrived) = (0, 0);
        for _ in 0..10_000 {
            kept += (0..4).filter(|_| trial.offer(COPY, 1514).is_ok()).count();
            assert_eq!(trial.offer(None, 1000), Ok(()));
            trial.now += Duration::from_millis(1);
            arrived += trial.take(2, 1000);
        }
        assert_eq!(arrived, 10_000);
        assert!((9_000..11_000).contains(&kept), "{kept} copies in what the path leaves");
    }

    /// For ten seconds, four copies where the port takes two.
    #[test]
    fn copies_for_a_slow_monitor_do_not_stand_in_line() {
        let mut trial = Trial::new();
        let (mut left, mut standing) = (0, 0);
        for _ in 0..10_000 {
            let refused = (0..4).filter_map(|_| trial.offer(COPY, 60_000).err());
            assert!(refused.into_iter().all(|reason| reason == DropReason::EgressFull));
            trial.now += MS;
            left += trial.take(2, 60_000);
            standing += u32::from(trial.queue.kept.len() > COPY_ROOM / 2);
        }
        assert!(left > 16_000, "it gets nearly as much as it takes: {left}");
        assert!(standing < 4000, "the queue is long for {standing} of 10000 ms");
        trial.now += Duration::from_secs(1);
        for _ in 0..100 {
            trial.take(2, 60_000);
            trial.now += 5 * MS;
        }
        assert!(trial.queue.is_over(), "it gets all again");
    }

    /// A port takes a frame every 10 ms, for a second all from the other worker.
    #[test]
    fn a_port_that_takes_what_another_worker_has_is_not_stalled() {
        let (mut lucky, mut other) = (Trial::new(), Trial::new());
        other.queue = EgressQueue::new(lucky.queue.pacing.clone(), 0, other.now);
        assert_eq!(other.offer(None, 1000), Ok(()));
        for _ in 0..90 {
            assert_eq!(lucky.offer(None, 1000), Ok(()));
            lucky.now += Duration::from_millis(10);
            other.now = lucky.now;
            assert_eq!(lucky.take(1, 1000), 1);
            assert!(other.queue.notice_others(other.now), "it has room now and then");
            assert!(!other.queue.follow(other.now));
        }
        // From here on it takes nothing from any worker.
        other.now += STALL;
        assert!(!other.queue.notice_others(other.now) && other.queue.follow(other.now));
    }

    /// One worker's ring moves, while another worker's ring of the same guest does not.
    #[test]
    fn a_ring_that_takes_nothing_is_stalled_whatever_others_take() {
        let (mut moving, mut stopped) = (Trial::new(), Trial::new());
        let pacing = Arc::new(Pacing::of_rings(2));
        moving.queue = EgressQueue::new(pacing.clone(), 0, moving.now);
        stopped.queue = EgressQueue::new(pacing, 1, stopped.now);
        assert_eq!(stopped.offer(None, 1000), Ok(()));
        for _ in 0..5 {
            assert_eq!((moving.offer(None, 1000), moving.take(1, 1000)), (Ok(()), 1));
            stopped.now += STALL / 5;
            assert!(!stopped.queue.notice_others(stopped.now));
        }
        assert!(stopped.queue.follow(stopped.now));
    }

    #[test]
    fn a_port_that_takes_nothing_is_stalled_until_those_that_waited_have_left() {
        let mut trial = Trial::new();
        assert_eq!((trial.offer(None, 1000), trial.offer(COPY, 1514)), (Ok(()), Ok(())));
        trial.now += STALL;
        assert!(trial.queue.follow(trial.now));
        assert_eq!(trial.offer(None, 1000), Err(DropReason::EgressStalled));
        assert_eq!(trial.take(1, 1000), 1);
        assert_eq!(trial.offer(None, 1000), Ok(()), "only a copy waits");
        assert_eq!(trial.take(9, 1514), 1);
        assert!(trial.queue.is_over());
    }

    #[test]
    fn each_waits_as_long_as_its_own_contract_says() {
        let mut trial = Trial::new();
        assert_eq!(trial.offer(lossless(10_000), 1000), Ok(()));
        trial.now += 5 * MS;
        assert_eq!(trial.offer(lossless(20), 500), Ok(()));
        trial.now += 19 * MS;
        assert!(!trial.queue.follow(trial.now), "it began to wait 19 ms ago");
        trial.now += MS;
        assert!(trial.queue.follow(trial.now));
        assert_eq!(trial.offer(lossless(20), 500), Err(DropReason::EgressStalled));
        assert_eq!(trial.offer(lossless(10_000), 1000), Ok(()), "that is not what it agreed to");
        assert!(trial.queue.is_held_for(10_000 * MS) && !trial.queue.is_held_for(20 * MS));
        // The sender with the longer bound may still wait.
        assert_eq!((trial.take(2, 500), trial.offer(lossless(20), 500)), (1, Ok(())));
        assert!(trial.queue.is_held_for(10_000 * MS) && trial.queue.is_held_for(20 * MS));
    }

    /// The port takes a frame every 10 ms, so one of the two always has frames queued.
    #[test]
    fn those_of_different_bounds_do_not_prolong_each_others_waits() {
        let mut trial = Trial::new();
        assert_eq!(trial.offer(None, 1000), Ok(()));
        for _ in 0..300 {
            for (bound, delivery) in [(STALL, None), (20 * MS, lossless(20))] {
                if !trial.queue.is_held_for(bound) {
                    assert_eq!(trial.offer(delivery, 1000), Ok(()));
                }
            }
            trial.now += 10 * MS;
            trial.take(1, 1000);
            assert!(trial.queue.waits.iter().all(|wait| wait.since.is_some()), "it is slow");
        }
    }
}
