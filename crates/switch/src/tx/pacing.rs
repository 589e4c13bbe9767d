//! Shared state of a port's workers: the rate of its link, and the socket buffer length derived
//! from it.
//!
//! A socket buffer has a length in bytes, for links of any rate: what keeps a 10 Gb/s link busy
//! delays a packet by a third of a second at 20 Mb/s, and a full port that makes its senders wait
//! always has a full buffer. The delay is what matters. So we measure how much the port took
//! between two moments at which it was full, which is the rate of its link, and limit the socket to
//! what leaves in [`HOLD_TIME`]; the rest waits where its sender notices it. The highest rate of
//! the last seconds counts, as links are shared and workers are descheduled.
//!
//! A socket starts at [`START_LEN`], which is short, and grows within milliseconds if it was full
//! and its link is fast. Starting long does not work: a TCP connection over a slow link fills a
//! long socket for seconds, without the port being full often enough to measure its rate.
//!
//! When the link becomes slower and the socket is shortened, it takes nothing until the excess has
//! left, and a port that takes nothing for a while counts as stalled, with some contracts after a
//! few milliseconds. So it is shortened in steps, each of which leaves in [`STEP_TIME`], and then
//! takes frames for as long before the next step.
//!
//! A link that was idle between two full moments gives no rate. If a port was not full for
//! [`GAP_MAX`], measuring starts again.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// State of one port, shared by its workers.
#[derive(Debug)]
pub(crate) struct Pacing {
    /// Per ring, the number of queued frames it took. A port without rings counts as one ring.
    taken: Box<[AtomicU64]>,
    /// Bytes that the port took.
    sent: AtomicU64,
    pace: Mutex<Pace>,
}

// Relaxed throughout: nothing else depends on these numbers.
impl Pacing {
    /// A port with at most `count` rings.
    pub(crate) fn of_rings(count: usize) -> Self {
        let taken = (0..count).map(|_| AtomicU64::default()).collect();
        Self { taken, sent: AtomicU64::default(), pace: Mutex::default() }
    }

    pub(super) fn taken(&self, ring: usize) -> u64 {
        self.taken.get(ring).map_or(0, |taken| taken.load(Ordering::Relaxed))
    }

    /// Counts that a ring took a queued frame. Returns the new count.
    pub(super) fn note_taken(&self, ring: usize) -> u64 {
        self.taken.get(ring).map_or(0, |taken| taken.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Counts a sent frame of `len` bytes.
    #[inline]
    pub(super) fn note_sent(&self, len: usize) {
        self.sent.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Notes that the port is full. Returns the new length of its socket's buffer, within `lens`,
    /// if it changes.
    pub(super) fn note_full(&self, lens: RangeInclusive<usize>, now: Instant) -> Option<usize> {
        // Another worker holds the lock, and does this.
        let mut pace = self.pace.try_lock().ok()?;
        pace.note_full(self.sent.load(Ordering::Relaxed), lens, now)
    }

    /// Maximum length of the batches of a queue that waited for this port: what its link takes in
    /// [`BATCH_TIME`], or any length while its rate is unknown. A batch may become a single train,
    /// and whatever comes later waits for all of it.
    pub(super) fn batch_len(&self) -> usize {
        let rate = self.pace.lock().ok().and_then(|pace| pace.rate());
        rate.map_or(usize::MAX, |rate| bytes_in(rate, BATCH_TIME))
    }
}

/// A port without rings.
impl Default for Pacing {
    fn default() -> Self {
        Self::of_rings(1)
    }
}

/// The rate of a port.
#[derive(Debug, Default)]
struct Pace {
    /// When the port was last full.
    full_at: Option<Instant>,
    /// The start of the sample: bytes taken until then, and the time.
    before: Option<(u64, Instant)>,
    /// The highest rates, in bytes per second, of the current and of the previous period.
    fastest: [u64; 2],
    /// Start of the current period.
    since: Option<Instant>,
    /// The last rate.
    latest: u64,
    /// The last length that was set.
    told: Option<usize>,
    /// The earliest time of the next shortening.
    next_step: Option<Instant>,
}

impl Pace {
    /// Notes that the port is full, after `sent` bytes in total.
    fn note_full(&mut self, sent: u64, lens: RangeInclusive<usize>, now: Instant) -> Option<usize> {
        let has_idled = self.full_at.is_none_or(|at| now - at > GAP_MAX);
        self.full_at = Some(now);
        let Some((sent_before, at)) = self.before.filter(|_| !has_idled) else {
            self.before = Some((sent, now));
            return None;
        };
        let (bytes, time) = (sent.saturating_sub(sent_before), now - at);
        if bytes >= SAMPLE_LEN && time >= SAMPLE_TIME {
            self.before = Some((sent, now));
            self.note_rate(per_second(bytes, time), now);
        }
        self.follow(lens, now)
    }

    /// The new length of the socket, if it changes.
    fn follow(&mut self, lens: RangeInclusive<usize>, now: Instant) -> Option<usize> {
        let told = self.told.unwrap_or(START_LEN);
        let wanted = len_of(self.rate()?, HOLD_TIME).clamp(*lens.start(), *lens.end());
        let is_early = self.next_step.is_some_and(|at| now < at);
        if wanted.abs_diff(told) <= told / 8 || (wanted < told && is_early) {
            return None;
        }
        // The link may be slower now than at its highest rate.
        self.told = Some(wanted.max(told.saturating_sub(len_of(self.latest, STEP_TIME))));
        self.next_step = Some(now + 2 * STEP_TIME);
        self.told
    }

    /// The highest recent rate, if known.
    fn rate(&self) -> Option<u64> {
        self.fastest.into_iter().max().filter(|&rate| rate > 0)
    }

    fn note_rate(&mut self, rate: u64, now: Instant) {
        let age = self.since.map(|since| now - since);
        if age.is_none_or(|age| age >= FASTEST_TIME) {
            let is_old = age.is_none_or(|age| age >= 2 * FASTEST_TIME);
            self.fastest = [0, if is_old { 0 } else { self.fastest[0] }];
            self.since = Some(now);
        }
        self.fastest[0] = self.fastest[0].max(rate);
        self.latest = rate;
    }
}

/// The buffer length for the bytes that leave in `time`. The kernel doubles the value to cover its
/// own overhead per frame, which is negligible for trains.
fn len_of(rate: u64, time: Duration) -> usize {
    bytes_in(rate, time) / 2
}

/// Bytes that leave in `time`.
fn bytes_in(rate: u64, time: Duration) -> usize {
    let len = u128::from(rate) * time.as_micros() / 1_000_000;
    usize::try_from(len).unwrap_or(usize::MAX)
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Initial length of a port's sockets: two trains, as the kernel doubles it.
pub(super) const START_LEN: usize = 64 * 1024;
/// How long a packet waits in the socket. It covers the milliseconds for which a worker may be
/// descheduled, so that the link does not idle.
const HOLD_TIME: Duration = Duration::from_millis(4);
/// How long a batch of a queue that waits for the port takes to leave: several times the interval
/// at which full ports are retried.
const BATCH_TIME: Duration = Duration::from_micros(500);
/// How long a socket takes nothing while it is shortened: less than the bound of any contract.
const STEP_TIME: Duration = Duration::from_millis(1);
/// Bytes of a rate sample: partly sent trains at both ends are a small part of it.
const SAMPLE_LEN: u64 = 128 * 1024;
/// Minimum time of a rate sample.
const SAMPLE_TIME: Duration = Duration::from_millis(2);
/// A full port is retried more often than this.
const GAP_MAX: Duration = Duration::from_millis(50);
/// How long a maximum rate counts, and one more period of the same length.
const FASTEST_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const LENS: RangeInclusive<usize> = 16 * 1024..=4096 * 1024;

    /// A port with a simulated clock.
    #[derive(Default)]
    struct Trial {
        pace: Pace,
        sent: u64,
        time: Duration,
        origin: Option<Instant>,
    }

    impl Trial {
        /// The port is full each millisecond for `time`, at `rate` bytes per second. Returns the
        /// last length that was set.
        fn pass(&mut self, rate: u64, time: Duration) -> Option<usize> {
            let origin = *self.origin.get_or_insert_with(Instant::now);
            let mut told = None;
            for _ in 0..time.as_millis() {
                self.time += Duration::from_millis(1);
                self.sent += rate / 1000;
                told = self.pace.note_full(self.sent, LENS, origin + self.time).or(told);
            }
            told
        }
    }

    #[test]
    fn a_socket_holds_what_its_link_takes_in_a_while() {
        let mut trial = Trial::default();
        assert_eq!(trial.pass(62_500_000, Duration::from_secs(1)), Some(125_000), "500 Mb/s");
        assert_eq!(trial.pass(62_500_000, Duration::from_secs(1)), None, "it is known");
    }

    /// The excess above the new length leaves while nothing is taken: within the bound of a sender
    /// that waits for at most two milliseconds, whatever the port's own bound is.
    #[test]
    fn it_becomes_shorter_by_what_leaves_before_the_port_has_stalled() {
        let mut trial = Trial::default();
        let mut last = trial.pass(50_000_000, Duration::from_secs(1)).unwrap();
        let mut told = None;
        for _ in 0..5000 {
            told = trial.pass(5_000_000, Duration::from_millis(1));
            // The kernel doubles both.
            let above = told.map_or(0, |told| 2 * last.saturating_sub(told));
            assert!(above <= 5_000_000 / 500, "{last} to {told:?}: more than 2 ms of it");
            last = told.unwrap_or(last);
        }
        assert_eq!(told, None, "it is as short as it shall be");
        assert!(last < 20_000, "{last}: more than 4 ms of 5 MB/s, or the least");
    }

    #[test]
    fn the_socket_of_a_slow_link_is_never_long() {
        let mut trial = Trial::default();
        for _ in 0..100 {
            let told = trial.pass(2_500_000, Duration::from_millis(100)).unwrap_or_default();
            assert!(told < START_LEN, "{told}");
        }
        assert!(trial.pace.told.unwrap() < 20_000, "4 ms of 20 Mb/s, or the least");
    }

    #[test]
    fn it_is_never_shorter_nor_longer_than_it_may_be() {
        let mut trial = Trial::default();
        let least = trial.pass(1_000_000, Duration::from_secs(250)).unwrap();
        assert!(LENS.contains(&least) && least < LENS.start() / 4 * 5, "{least}");
        assert_eq!(trial.pass(4_000_000_000, Duration::from_secs(1)), Some(*LENS.end()));
    }

    #[test]
    fn a_link_that_becomes_slower_is_noticed_after_a_while() {
        let mut trial = Trial::default();
        trial.pass(62_500_000, Duration::from_secs(1));
        assert_eq!(trial.pass(12_500_000, Duration::from_secs(1)), None);
        let told = trial.pass(12_500_000, 2 * FASTEST_TIME).unwrap();
        assert!((25_000..29_000).contains(&told), "{told}");
    }

    /// Bursts of ten milliseconds, four per second: the rate within the bursts counts.
    #[test]
    fn a_link_that_was_idle_is_not_a_slow_one() {
        let mut trial = Trial::default();
        let mut told = None;
        for _ in 0..40 {
            told = trial.pass(125_000_000, Duration::from_millis(10)).or(told);
            trial.time += Duration::from_millis(240);
        }
        assert_eq!(told, Some(250_000));
    }

    #[test]
    fn workers_that_share_a_port_add_up() {
        let pacing = Pacing::default();
        let start = Instant::now();
        assert_eq!(pacing.batch_len(), usize::MAX, "the rate is unknown");
        assert_eq!(pacing.note_full(LENS, start), None);
        for _ in 0..100 {
            pacing.note_sent(10_000);
        }
        let told = pacing.note_full(LENS, start + Duration::from_millis(20));
        assert_eq!(told, Some(100_000), "4 ms at 50 MB/s, which the kernel doubles");
        assert_eq!(pacing.batch_len(), 25_000, "half a millisecond");
        assert_eq!((pacing.note_taken(0), pacing.taken(0)), (1, 1));
    }
}
