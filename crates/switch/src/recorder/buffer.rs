//! The buffer between workers and writer: blocks in chunks of memory.
//!
//! ```text
//!            per burst                       full, or collected by the writer
//!  free ───> a worker's own chunk ─── desk ──────────────────────────> writer ───> free
//! ```
//! A worker takes its chunk from its desk for a burst, so it adds packets without synchronisation;
//! the lock is taken twice per burst. If all chunks are in use, the port is full. Times of blocks
//! are nanoseconds on the monotonic clock since the buffer was created, so their order is the order
//! of events.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::chunk::{CHUNK_LEN, Chunk};

/// Blocks on their way to the writer, bounded.
#[derive(Debug)]
pub(super) struct Buffer {
    state: Mutex<State>,
    wake: Condvar,
    base: Instant,
    /// Maximum number of chunks.
    count_max: usize,
    /// Set when unwritten packets are to be dropped.
    is_given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    desks: Vec<Desk>,
    free: Vec<Chunk>,
    /// Number of existing chunks.
    count: usize,
    /// Chunks held by the writer, which may have to keep them until a burst has ended.
    collected: usize,
    /// The last [`Collected::complete_until`] that the writer got.
    known_until: u64,
    waits: Waits,
    is_over: bool,
}

/// The chunks of one worker.
#[derive(Debug, Default)]
struct Desk {
    full: VecDeque<Chunk>,
    open: Option<Chunk>,
    /// Set during a burst of the worker: the time of the first block in its chunk, which may be
    /// from an earlier burst, or else the start of the burst.
    busy_since: Option<u64>,
}

/// What the writer waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    No,
    ForAny,
    ForFull,
}

/// The data that the writer gets.
#[derive(Debug)]
pub(super) struct Collected {
    /// Chunks with their workers; those of one worker are in order.
    pub(super) chunks: Vec<(usize, Chunk)>,
    /// No more packets older than this will arrive.
    pub(super) complete_until: u64,
    /// No more packets will arrive.
    pub(super) is_over: bool,
}

impl Buffer {
    /// A buffer of about `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        let count_max = (len / CHUNK_LEN).max(2);
        let (state, wake, base) = (Mutex::default(), Condvar::new(), Instant::now());
        Self { state, wake, base, count_max, is_given_up: AtomicBool::new(false) }
    }

    /// Nanoseconds since the buffer was created.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins a burst of `worker`: returns its chunk, if there is one. A chunk that the writer has
    /// missed for a while, because it always collected during a burst, is passed to the writer: the
    /// packets of other workers wait for its blocks.
    pub(super) fn begin(&self, worker: usize) -> Option<Chunk> {
        let now = self.now();
        let mut state = self.lock();
        let desk = state.desk(worker);
        let is_late = |open: &mut Chunk| open.age(now) >= GATHER_TIME;
        let late = desk.open.take_if(is_late);
        let (has_late, open) = (late.is_some(), desk.open.take());
        desk.full.extend(late);
        desk.busy_since = Some(open.as_ref().and_then(Chunk::first_time).unwrap_or(now));
        if has_late && state.waits != Waits::No {
            self.wake.notify_one();
        }
        open.or_else(|| state.take(self.count_max))
    }

    /// Takes a full chunk, and returns an empty one, if there is one.
    pub(super) fn exchange(&self, worker: usize, full: Option<Chunk>) -> Option<Chunk> {
        let mut state = self.lock();
        let desk = state.desk(worker);
        desk.full.extend(full);
        if state.waits != Waits::No {
            self.wake.notify_one();
        }
        state.take(self.count_max)
    }

    /// Ends a burst of `worker`, which returns its chunk.
    pub(super) fn end(&self, worker: usize, open: Option<Chunk>) {
        let mut state = self.lock();
        let desk = state.desk(worker);
        (desk.open, desk.busy_since) = (open, None);
        if state.waits == Waits::ForAny {
            self.wake.notify_one();
        }
    }

    /// Waits up to `longest` until there is something to write; then for [`GATHER_TIME`] more, to
    /// gather small amounts. It does not gather if nothing can arrive, because the writer holds all
    /// chunks and may write them.
    pub(super) fn wait(&self, longest: Duration) {
        let is_idle = |state: &State| state.is_empty() && !state.is_released();
        let state = self.wait_while(self.lock(), Waits::ForAny, longest, is_idle);
        let gathers = |state: &State| !state.has_full() && !state.is_stuck(self.count_max);
        drop(self.wait_while(state, Waits::ForFull, GATHER_TIME, gathers));
    }

    fn wait_while<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        what: Waits,
        longest: Duration,
        is_to_wait: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        state.waits = what;
        let wait = |state: &mut State| !state.is_over && is_to_wait(state);
        let outcome = self.wake.wait_timeout_while(state, longest, wait);
        let (mut state, _) = outcome.unwrap_or_else(PoisonError::into_inner);
        state.waits = Waits::No;
        state
    }

    /// Waits for `time`, or until the end of the input.
    pub(super) fn pause(&self, time: Duration) {
        drop(self.wait_while(self.lock(), Waits::No, time, |_| true));
    }

    /// Takes all chunks that no worker holds for a burst.
    pub(super) fn collect(&self) -> Collected {
        let mut state = self.lock();
        let complete_until = state.complete_until();
        let mut chunks = Vec::new();
        for (worker, desk) in state.desks.iter_mut().enumerate() {
            let open = desk.open.take_if(|open| !open.bytes.is_empty());
            chunks.extend(desk.full.drain(..).chain(open).map(|chunk| (worker, chunk)));
        }
        (state.known_until, state.collected) = (complete_until, state.collected + chunks.len());
        Collected { chunks, complete_until, is_over: state.is_over }
    }

    /// Takes back chunks that have been written.
    pub(super) fn give_back(&self, chunks: impl Iterator<Item = Chunk>) {
        let mut state = self.lock();
        for mut chunk in chunks {
            chunk.clear();
            state.collected = state.collected.saturating_sub(1);
            if state.free.len() < FREE_COUNT { state.free.push(chunk) } else { state.count -= 1 }
        }
    }

    /// Ends the input.
    pub(super) fn close(&self) {
        self.lock().is_over = true;
        self.wake.notify_one();
    }

    /// Lets the writer drop what is not written.
    pub(super) fn give_up(&self) {
        // Relaxed: nothing else depends on it.
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// True if unwritten packets are to be dropped.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// True if the input has ended.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Bytes of the chunks in use.
    pub(super) fn len(&self) -> usize {
        let state = self.lock();
        (state.count - state.free.len()) * CHUNK_LEN
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn desk(&mut self, worker: usize) -> &mut Desk {
        if self.desks.len() <= worker {
            self.desks.resize_with(worker + 1, Desk::default);
        }
        &mut self.desks[worker]
    }

    fn take(&mut self, count_max: usize) -> Option<Chunk> {
        if let Some(chunk) = self.free.pop() {
            return Some(chunk);
        }
        let is_new = self.count < count_max;
        self.count += usize::from(is_new);
        is_new.then(Chunk::new)
    }

    /// The time before which no more packets will arrive.
    fn complete_until(&self) -> u64 {
        self.desks.iter().filter_map(|desk| desk.busy_since).min().unwrap_or(u64::MAX)
    }

    /// True if the writer can now write packets that had to wait for a burst.
    fn is_released(&self) -> bool {
        self.collected > 0 && self.complete_until() > self.known_until
    }

    /// True if nothing can arrive until the writer returns chunks, which it can write.
    fn is_stuck(&self, count_max: usize) -> bool {
        self.is_released() && self.collected == count_max
    }

    fn has_full(&self) -> bool {
        self.desks.iter().any(|desk| !desk.full.is_empty())
    }

    fn is_empty(&self) -> bool {
        let has_open = |desk: &Desk| desk.open.as_ref().is_some_and(|open| !open.bytes.is_empty());
        !self.has_full() && !self.desks.iter().any(has_open)
    }
}

/// Free chunks to keep after a flood.
const FREE_COUNT: usize = 8;
/// Limits a trickle of packets to a hundred writes per second.
const GATHER_TIME: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use tapswitch_pcapng as pcapng;

    use super::*;

    #[test]
    fn what_a_worker_has_for_a_burst_is_left_to_it() {
        let buffer = Buffer::new(4 * CHUNK_LEN);
        let mut chunk = buffer.begin(1).unwrap();
        chunk.bytes.push(1);
        let collected = buffer.collect();
        assert!(collected.chunks.is_empty() && collected.complete_until < u64::MAX);
        buffer.end(1, Some(chunk));
        let collected = buffer.collect();
        let [(1, chunk)] = &collected.chunks[..] else { panic!("{collected:?}") };
        assert_eq!(chunk.bytes, [1]);
        assert_eq!((collected.complete_until, collected.is_over), (u64::MAX, false));
        assert_eq!(buffer.len(), CHUNK_LEN);
        buffer.give_back(collected.chunks.into_iter().map(|(_, chunk)| chunk));
        assert_eq!((buffer.len(), buffer.collect().chunks.len()), (0, 0));
    }

    #[test]
    fn nothing_is_complete_while_a_worker_has_older_blocks() {
        let buffer = Buffer::new(4 * CHUNK_LEN);
        let burst = |worker| {
            let mut chunk = buffer.begin(worker).unwrap();
            pcapng::packet(&mut chunk.bytes, buffer.now(), 100, &[&[1; 20]]);
            buffer.end(worker, Some(chunk));
        };
        burst(0);
        burst(1);
        let _next = buffer.begin(0);
        let collected = buffer.collect();
        let [(1, later)] = &collected.chunks[..] else { panic!("{collected:?}") };
        assert!(collected.complete_until < later.first_time().unwrap());
    }

    #[test]
    fn a_chunk_that_the_writer_never_meets_goes_to_it() {
        let buffer = Buffer::new(4 * CHUNK_LEN);
        let mut chunk = buffer.begin(0).unwrap();
        pcapng::packet(&mut chunk.bytes, 0, 100, &[&[1; 20]]);
        buffer.end(0, Some(chunk));
        while buffer.now() < u64::try_from(GATHER_TIME.as_nanos()).unwrap() {
            std::thread::yield_now();
        }
        assert!(buffer.begin(0).unwrap().bytes.is_empty());
        assert_eq!(buffer.collect().chunks.len(), 1);
    }

    #[test]
    fn there_are_no_more_chunks_than_there_is_room_for() {
        let buffer = Buffer::new(3 * CHUNK_LEN);
        let mut chunk = buffer.begin(0);
        for _ in 0..2 {
            chunk = buffer.exchange(0, chunk);
            assert!(chunk.is_some());
        }
        assert!(buffer.exchange(0, chunk).is_none());
        assert!(buffer.begin(1).is_none());
        let collected = buffer.collect();
        assert_eq!(collected.chunks.len(), 3);
        buffer.give_back(collected.chunks.into_iter().map(|(_, chunk)| chunk));
        assert!(buffer.exchange(0, None).is_some());
    }

    #[test]
    fn what_a_flood_has_filled_is_given_back() {
        let buffer = Buffer::new(100 * CHUNK_LEN);
        let mut chunk = buffer.begin(0);
        (0..50).for_each(|_| chunk = buffer.exchange(0, chunk.take()));
        buffer.end(0, chunk);
        let collected = buffer.collect();
        buffer.give_back(collected.chunks.into_iter().map(|(_, chunk)| chunk));
        let state = buffer.lock();
        assert_eq!((state.free.len(), state.count), (FREE_COUNT, FREE_COUNT + 1));
    }

    /// The burst adds no packets, as the writer holds all chunks.
    #[test]
    fn the_writer_is_woken_by_the_end_of_a_burst_that_it_had_to_wait_for() {
        let buffer = Arc::new(Buffer::new(2 * CHUNK_LEN));
        let mut chunk = buffer.begin(0);
        for _ in 0..2 {
            chunk.as_mut().unwrap().bytes.push(1);
            chunk = buffer.exchange(0, chunk);
        }
        assert_eq!((chunk.is_none(), buffer.collect().chunks.len()), (true, 2));
        assert!(!buffer.lock().is_released(), "the burst goes on");
        let (woken, is_woken) = mpsc::channel();
        let writer = buffer.clone();
        std::thread::spawn(move || {
            writer.wait(Duration::from_secs(600));
            woken.send(writer.collect().complete_until)
        });
        buffer.end(0, None);
        assert_eq!(is_woken.recv_timeout(Duration::from_secs(60)), Ok(u64::MAX));
    }

    #[test]
    fn the_writer_gathers_nothing_where_nothing_can_come() {
        let buffer = Buffer::new(2 * CHUNK_LEN);
        let mut chunk = buffer.begin(0);
        chunk.as_mut().unwrap().bytes.push(1);
        chunk = buffer.exchange(0, chunk);
        buffer.end(0, None);
        let is_stuck = || buffer.lock().is_stuck(2);
        let _burst = buffer.begin(1);
        chunk.as_mut().unwrap().bytes.push(1);
        buffer.end(0, chunk);
        assert_eq!((buffer.collect().chunks.len(), is_stuck()), (2, false), "it must wait");
        buffer.end(1, None);
        assert!(is_stuck());
        buffer.give_back([Chunk::new()].into_iter());
        assert!(!is_stuck(), "there is room again");
    }

    #[test]
    fn the_writer_is_woken_by_what_comes_and_by_the_end() {
        let buffer = Arc::new(Buffer::new(CHUNK_LEN));
        let writer = buffer.clone();
        let thread = std::thread::spawn(move || {
            let mut chunks = 0;
            while !writer.is_over() {
                writer.wait(Duration::from_secs(600));
                chunks += writer.collect().chunks.len();
            }
            chunks + writer.collect().chunks.len()
        });
        let mut chunk = buffer.begin(0).unwrap();
        chunk.bytes.push(1);
        buffer.end(0, Some(chunk));
        buffer.close();
        assert_eq!(thread.join().unwrap(), 1);
    }
}
