//! Counters that cost a store: one slot per worker, written by that worker alone.
//!
//! A slot has a single writer, so adding is a plain load and store (no locked instruction), and a
//! reader that sums the slots sees every finished frame. Each slot has cache lines of its own, so
//! that workers do not slow each other down.
//!
//! Threads that are not workers ([`WorkerIndex::NONE`]), such as the writer of a file, share one
//! more slot, which they change by locked instructions, once for many frames. It is allocated when
//! first used, since most counters never need it.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::DropReason;
use crate::traffic::Traffic;

/// Index of the worker that counts. Workers are numbered from zero without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerIndex(pub usize);

impl WorkerIndex {
    /// Not a worker. Any number of threads may count with it at once.
    pub const NONE: Self = Self(usize::MAX);
}

/// Milliseconds since an origin of the caller's choice, monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Time since `earlier`; zero if that is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Traffic of one object, such as a rule or a bucket, and when it was last used.
///
/// A train counts as one frame with all of its bytes, and as the packets that it makes.
pub struct Counters {
    slots: Slots<Slot>,
}

impl Counters {
    /// All zero, for `workers` writers.
    pub fn new(workers: usize) -> Self {
        Self { slots: Slots::new(workers) }
    }

    /// The same, for an object that was used at `last_used`.
    pub(crate) fn used(workers: usize, last_used: Millis) -> Self {
        let counters = Self::new(workers);
        if let Some(slot) = counters.slots.workers.first() {
            slot.last_used.store(last_used.0, Ordering::Relaxed);
        }
        counters
    }

    /// Adds frames, the last of them at `now`. Only the worker `worker` may call this.
    pub fn add(&self, worker: WorkerIndex, traffic: Traffic, now: Millis) {
        match self.slots.of(worker) {
            Some(slot) => slot.add(traffic, now, bump),
            None => self.slots.shared().add(traffic, now, bump_shared),
        }
    }

    /// The sums over all writers.
    pub fn totals(&self) -> Totals {
        self.slots.iter().fold(Totals::default(), |sum, slot| Totals {
            frames: sum.frames + slot.frames.load(Ordering::Relaxed),
            packets: sum.packets + slot.packets.load(Ordering::Relaxed),
            bytes: sum.bytes + slot.bytes.load(Ordering::Relaxed),
            last_used: sum.last_used.max(Millis(slot.last_used.load(Ordering::Relaxed))),
        })
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.totals(), f)
    }
}

/// Sums of [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames; a train is one.
    pub frames: u64,
    /// Packets that these frames make on the wire; a train is many.
    pub packets: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Time of the last frame; zero for never.
    pub last_used: Millis,
}

/// A number that goes up and down, such as waiting frames.
pub struct Gauge {
    slots: Slots<GaugeSlot>,
}

impl Gauge {
    /// All zero, for `workers` writers.
    pub fn new(workers: usize) -> Self {
        Self { slots: Slots::new(workers) }
    }

    /// Adds. Only the worker `worker` may call this.
    pub fn add(&self, worker: WorkerIndex, traffic: Traffic) {
        match self.slots.of(worker) {
            Some(slot) => slot.add(traffic, bump),
            None => self.slots.shared().add(traffic, bump_shared),
        }
    }

    /// Subtracts what this worker added or, if it is not a worker, what somebody handed over to it.
    /// Only the worker `worker` may call this.
    pub fn sub(&self, worker: WorkerIndex, traffic: Traffic) {
        let Traffic { frames, packets, bytes } = traffic;
        let [frames, packets, bytes] = [frames, packets, bytes].map(u64::wrapping_neg);
        self.add(worker, Traffic { frames, packets, bytes });
    }

    /// Current frames, over all workers; a train is one.
    pub fn frames(&self) -> u64 {
        self.sum(|slot| &slot.frames)
    }

    /// Packets that these frames make on the wire.
    pub fn packets(&self) -> u64 {
        self.sum(|slot| &slot.packets)
    }

    /// Bytes of these frames.
    pub fn bytes(&self) -> u64 {
        self.sum(|slot| &slot.bytes)
    }

    /// Reads what was subtracted before what was added: otherwise frames that pass meanwhile could
    /// make the difference negative.
    fn sum(&self, counter: impl Fn(&GaugeSlot) -> &AtomicU64) -> u64 {
        // Acquire: what was subtracted had been handed over before.
        let shared =
            self.slots.shared.get().map_or(0, |slot| counter(slot).load(Ordering::Acquire));
        let workers = self.slots.workers.iter();
        workers.map(|slot| counter(slot).load(Ordering::Relaxed)).fold(shared, u64::wrapping_add)
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauge")
            .field("frames", &self.frames())
            .field("packets", &self.packets())
            .field("bytes", &self.bytes())
            .finish()
    }
}

/// Drops by reason.
pub struct DropCounters {
    slots: Slots<DropSlot>,
}

impl DropCounters {
    /// All zero, for `workers` writers.
    pub fn new(workers: usize) -> Self {
        Self { slots: Slots::new(workers) }
    }

    /// Adds one frame. Only the worker `worker` may call this.
    #[inline]
    pub fn add(&self, worker: WorkerIndex, reason: DropReason) {
        self.add_all(worker, reason, 1);
    }

    /// Adds several frames. Only the worker `worker` may call this.
    #[inline]
    pub fn add_all(&self, worker: WorkerIndex, reason: DropReason, count: u64) {
        match self.slots.of(worker) {
            Some(slot) => bump(&slot.0[reason.index()], count),
            None => bump_shared(&self.slots.shared().0[reason.index()], count),
        }
    }

    /// Frames that were dropped for `reason`, over all workers.
    pub fn count(&self, reason: DropReason) -> u64 {
        self.slots.iter().map(|slot| slot.0[reason.index()].load(Ordering::Relaxed)).sum()
    }

    /// Frames that were dropped for any reason.
    pub fn total(&self) -> u64 {
        self.by_reason().map(|(_, count)| count).sum()
    }

    /// The reasons with a non-zero count.
    pub fn by_reason(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .into_iter()
            .map(|reason| (reason, self.count(reason)))
            .filter(|&(_, count)| count > 0)
    }
}

impl fmt::Debug for DropCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.by_reason()).finish()
    }
}

/// One slot per worker, and one for all others.
pub(crate) struct Slots<T> {
    workers: Box<[T]>,
    shared: OnceLock<Box<T>>,
}

impl<T: Default> Slots<T> {
    /// Empty slots for `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| T::default()).collect(), shared: OnceLock::new() }
    }

    /// The slot of a worker, for [`bump`].
    #[inline]
    pub(crate) fn of(&self, worker: WorkerIndex) -> Option<&T> {
        self.workers.get(worker.0)
    }

    /// The slot of all others, for [`bump_shared`].
    #[cold]
    pub(crate) fn shared(&self) -> &T {
        self.shared.get_or_init(Box::default)
    }

    /// All slots that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.workers.iter().chain(self.shared.get().map(|slot| &**slot))
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Slot {
    frames: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    last_used: AtomicU64,
}

impl Slot {
    #[inline]
    fn add(&self, traffic: Traffic, now: Millis, add: impl Fn(&AtomicU64, u64)) {
        add(&self.frames, traffic.frames);
        add(&self.packets, traffic.packets);
        add(&self.bytes, traffic.bytes);
        self.last_used.store(now.0, Ordering::Relaxed);
    }
}

#[derive(Default)]
#[repr(align(64))]
struct GaugeSlot {
    frames: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl GaugeSlot {
    #[inline]
    fn add(&self, traffic: Traffic, add: impl Fn(&AtomicU64, u64)) {
        add(&self.frames, traffic.frames);
        add(&self.packets, traffic.packets);
        add(&self.bytes, traffic.bytes);
    }
}

#[repr(align(64))]
struct DropSlot([AtomicU64; DropReason::COUNT]);

impl Default for DropSlot {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Adds to a counter that other threads may write as well. A reader of the new value sees what the
/// writer had seen before.
pub(crate) fn bump_shared(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up() {
        let counters = Counters::new(2);
        counters.add(WorkerIndex(0), Traffic::frame(100, 1), Millis(7));
        counters.add(WorkerIndex(1), Traffic::frame(50, 1), Millis(5));
        counters.add(WorkerIndex(1), Traffic::frame(3050, 3), Millis(6));
        let sums = Totals { frames: 3, packets: 5, bytes: 3200, last_used: Millis(7) };
        assert_eq!(counters.totals(), sums);
    }

    #[test]
    fn what_comes_and_goes_is_there_in_between() {
        let gauge = Gauge::new(2);
        let traffic = |frames, bytes| Traffic { frames, packets: frames * 3, bytes };
        gauge.add(WorkerIndex(0), traffic(2, 200));
        gauge.add(WorkerIndex(1), traffic(1, 60));
        gauge.sub(WorkerIndex(0), traffic(1, 100));
        assert_eq!((gauge.frames(), gauge.packets(), gauge.bytes()), (2, 6, 160));
        gauge.sub(WorkerIndex(0), traffic(1, 100));
        gauge.sub(WorkerIndex(1), traffic(1, 60));
        assert_eq!((gauge.frames(), gauge.packets(), gauge.bytes()), (0, 0, 0));
    }

    #[test]
    fn who_is_no_worker_counts_too_however_many_they_are() {
        let (counters, gauge, drops) = (Counters::new(1), Gauge::new(1), DropCounters::new(1));
        let one = Traffic::frame(100, 3);
        (0..4000).for_each(|_| gauge.add(WorkerIndex(0), one));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        gauge.sub(WorkerIndex::NONE, one);
                        counters.add(WorkerIndex::NONE, one, Millis(9));
                        drops.add(WorkerIndex::NONE, DropReason::PortRemoved);
                    }
                });
            }
        });
        assert_eq!((gauge.frames(), gauge.packets(), gauge.bytes()), (0, 0, 0));
        let sums = Totals { frames: 4000, packets: 12_000, bytes: 400_000, last_used: Millis(9) };
        assert_eq!((counters.totals(), drops.total()), (sums, 4000));
    }

    #[test]
    fn drops_are_kept_by_reason() {
        let drops = DropCounters::new(2);
        drops.add(WorkerIndex(0), DropReason::Oversize);
        drops.add(WorkerIndex(1), DropReason::Oversize);
        drops.add(WorkerIndex(1), DropReason::TableMiss);
        assert_eq!((drops.count(DropReason::Oversize), drops.total()), (2, 3));
        let reasons: Vec<_> = drops.by_reason().collect();
        assert_eq!(reasons, [(DropReason::TableMiss, 1), (DropReason::Oversize, 2)]);
    }
}
