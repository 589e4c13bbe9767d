//! The read-ahead buffer of a receive queue that is paused.
//!
//! A receive queue (`rx`) owns one if its device would drop frames during a pause. The worker fills
//! it while the queue waits for a port that is full, and forwards from it first afterwards.
//!
//! A kernel without `IFF_BACKPRESSURE` (Linux before 7.3) drops frames that do not fit a tap
//! device's ring, and so does a packet socket. So the worker reads on, into memory that is bounded
//! by bytes instead of packets. Frames that waited too long are marked (ECN), so that their senders
//! slow down before the buffer is full. When it is full, the worker stops reading, and the kernel
//! drops and counts what does not fit the device's ring.
//!
//! **When the queue is empty for CoDel.** An empty buffer is not enough: frames that left it may
//! still be queued at the port, and a frame arriving now would wait for those. A sender of long
//! trains may have one there and one here, and keep a standing queue for any time. So the queue
//! counts as empty for [`Codel`] when a frame was forwarded without passing this buffer, as nothing
//! waited in front of it; or when no frame had to wait for a whole interval.

use std::time::{Duration, Instant};

use tapswitch_datapath::{Codel, mark_ce};
use tapswitch_wire::NetHeader;

use crate::store::{Pool, Store};

/// The frames of one receive queue that wait here, oldest first.
#[derive(Debug)]
pub(crate) struct Ahead {
    frames: Store<Early>,
    budget: usize,
    codel: Codel,
    /// Number of frames marked so far.
    marked: u64,
    origin: Instant,
    /// When the last frame left, if the buffer is empty.
    empty_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Early {
    meta: NetHeader,
    /// Offset of the frame.
    start: usize,
    at: Instant,
}

impl Ahead {
    /// A buffer of about `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        let (frames, codel) = (Store::default(), Codel::default());
        Self { frames, budget, codel, marked: 0, origin: Instant::now(), empty_since: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// True if no more frames are to be read.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= self.budget
    }

    /// Number of frames marked so far.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// Notes that a frame of the queue was forwarded without passing this buffer.
    pub(crate) fn note_passed(&mut self) {
        self.codel.emptied();
    }

    /// Appends the frame in `buf[start..]`, which was read at `now`, with its headroom.
    pub(crate) fn push(
        &mut self,
        pool: &mut Pool,
        meta: NetHeader,
        buf: &[u8],
        start: usize,
        now: Instant,
    ) {
        let empty = self.empty_since.take().map(|since| now.saturating_duration_since(since));
        if empty.is_some_and(|time| time >= Duration::from_nanos(Codel::INTERVAL_NS)) {
            self.codel.emptied();
        }
        let early = Early { meta, start, at: now };
        self.frames.push(pool, buf.len(), early, |bytes| bytes.copy_from_slice(buf));
    }

    /// The first frame, with its metadata and the offset where it starts; marked if CoDel asks for
    /// it. It stays until [`Self::pop`].
    pub(crate) fn front(&mut self, now: Instant) -> Option<(NetHeader, &mut [u8], usize)> {
        let backlog = self.frames.len();
        let (bytes, early) = self.frames.front()?;
        let Early { meta, start, at } = *early;
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (now, sojourn) = (ns(now - self.origin), ns(now.saturating_duration_since(at)));
        if self.codel.dequeued(now, sojourn, backlog) && mark_ce(&mut bytes[start..]) {
            self.marked += 1;
        }
        Some((meta, bytes, start))
    }

    /// Removes the first frame, which is forwarded at `now`.
    pub(crate) fn pop(&mut self, pool: &mut Pool, now: Instant) {
        self.frames.pop(pool);
        self.empty_since = self.is_empty().then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_frames::tcp_train;

    /// A queue with a simulated clock; the sender is ECN-capable.
    struct Scene {
        ahead: Ahead,
        pool: Pool,
        origin: Instant,
        frame: Vec<u8>,
    }

    impl Scene {
        fn new() -> Self {
            let (_, mut frame) = tcp_train(60_000, 1400);
            frame[15] |= 0b10;
            let ahead = Ahead::new(1 << 20);
            let origin = ahead.origin;
            Self { ahead, pool: Pool::default(), origin, frame }
        }

        fn at(&self, ms: u64) -> Instant {
            self.origin + Duration::from_millis(ms)
        }

        fn come(&mut self, ms: u64) {
            let now = self.at(ms);
            self.ahead.push(&mut self.pool, NetHeader::PLAIN, &self.frame, 0, now);
        }

        /// Forwards the first frame. Returns whether it is marked.
        fn go(&mut self, ms: u64) -> bool {
            let (now, before) = (self.at(ms), self.ahead.marked());
            assert!(self.ahead.front(now).is_some());
            self.ahead.pop(&mut self.pool, now);
            self.ahead.marked() > before
        }

        /// From `from_ms` on, for `time_ms`, a frame arrives every 10 ms and waits for 30. Returns
        /// how many are marked.
        fn burst(&mut self, from_ms: u64, time_ms: u64) -> usize {
            let mut marks = 0;
            for ms in (from_ms..from_ms + time_ms).step_by(10) {
                self.come(ms);
                if ms >= from_ms + 30 {
                    marks += usize::from(self.go(ms));
                }
            }
            let end = from_ms + time_ms.next_multiple_of(10);
            marks + (0..3).filter(|frame| self.go(end + frame * 10)).count()
        }
    }

    #[test]
    fn a_queue_that_stands_is_marked_by_the_control_law() {
        const MS: u64 = 1_000_000;
        let mut codel = Codel::default();
        let is_marked = |ms: &u64| codel.dequeued(ms * MS, 30 * MS, 60_000);
        let expected = (30..1_030).step_by(10).filter(is_marked).count();
        assert!(expected > 20, "the law has {expected} marks in a second");
        assert_eq!(Scene::new().burst(0, 1_000), expected);
        let mut marked_before = Scene::new();
        marked_before.frame[15] |= 0b11;
        assert_eq!(marked_before.burst(0, 1_000), 0, "somebody else did that");
    }

    /// The other half of the queue is in front of the port.
    #[test]
    fn trains_that_wait_one_by_one_stand_all_the_same() {
        let mut scene = Scene::new();
        let marks = (0..1_000).step_by(50).filter(|&ms| {
            scene.come(ms);
            let is_marked = scene.go(ms + 40);
            assert!(scene.ahead.is_empty());
            is_marked
        });
        let marks: Vec<_> = marks.collect();
        let each = (300..1_000).step_by(50);
        assert_eq!(marks, [100, 200].into_iter().chain(each).collect::<Vec<_>>());
    }

    #[test]
    fn short_bursts_are_not_marked_and_longer_ones_are_once() {
        let mut scene = Scene::new();
        for (time_ms, marks) in [(60, 0), (120, 1)] {
            for second in 0..20 {
                scene.ahead.note_passed();
                let from_ms = time_ms * 1_000 + second * 1_000;
                assert_eq!(scene.burst(from_ms, time_ms), marks, "{time_ms} ms, {second}");
            }
        }
    }

    /// Another sender keeps the port full all the time.
    #[test]
    fn a_queue_that_nothing_came_into_for_long_does_not_stand() {
        let mut scene = Scene::new();
        let mut bursts = (0..20).map(|second| scene.burst(second * 1_000, 60));
        assert!(bursts.all(|marks| marks == 0));
    }
}
