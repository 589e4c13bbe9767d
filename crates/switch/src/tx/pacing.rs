//! What the workers that send by one port tell each other of it: what it takes, and with it, how
//! much its socket may hold.
//!
//! A socket has a length in bytes, for links of any rate: what keeps one of 10 Gb/s busy holds up a
//! packet by a third of a second at 20 Mb/s, and a full port that makes its senders wait has all of
//! it full, always. Time is what counts. So from one moment at which the port was full to another
//! we note what it took, which is what its link takes; and its socket may hold as much of that as
//! goes out in [`HOLD_TIME`], the rest waits where its sender feels it. The fastest of the last
//! seconds counts, as links are shared and workers are kept from running.
//!
//! A socket is short at first, [`START_LEN`], and is made longer when it was full and its link is
//! fast, which takes milliseconds. The other way round does not work: a TCP of a slow link fills a
//! long socket for seconds, and is never told so often that it is full that its rate is known.
//!
//! One that becomes shorter, since its link has become slower, takes nothing until so much of it
//! has left, and a port that takes nothing for long is stalled, for some a few milliseconds are
//! long. So it becomes shorter step by step, each of which leaves in [`STEP_TIME`], and then takes
//! for as long before the next one.
//!
//! Full moments tell nothing about a link that was idle in between. A port that was not full for
//! [`GAP_MAX`] begins anew.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One port, as its workers share it.
#[derive(Debug)]
pub(crate) struct Pacing {
    /// How often each of its rings took something that waited; what has none counts as one.
    taken: Box<[AtomicU64]>,
    /// Bytes that it took.
    sent: AtomicU64,
    pace: Mutex<Pace>,
}

// Relaxed in all of them: numbers that nothing else depends on.
impl Pacing {
    /// A port that may have so many rings.
    pub(crate) fn of_rings(count: usize) -> Self {
        let taken = (0..count).map(|_| AtomicU64::default()).collect();
        Self { taken, sent: AtomicU64::default(), pace: Mutex::default() }
    }

    pub(super) fn taken(&self, ring: usize) -> u64 {
        self.taken.get(ring).map_or(0, |taken| taken.load(Ordering::Relaxed))
    }

    /// A ring took something that waited. Returns how often it has.
    pub(super) fn note_taken(&self, ring: usize) -> u64 {
        self.taken.get(ring).map_or(0, |taken| taken.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// It took a frame of `len` bytes.
    #[inline]
    pub(super) fn note_sent(&self, len: usize) {
        self.sent.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// It is full. Returns how long its socket's buffer is to be from now on, within `lens`, if
    /// that is another length than before.
    pub(super) fn note_full(&self, lens: RangeInclusive<usize>, now: Instant) -> Option<usize> {
        // Another worker has it: it does this.
        let mut pace = self.pace.try_lock().ok()?;
        pace.note_full(self.sent.load(Ordering::Relaxed), lens, now)
    }
}

/// One without rings.
impl Default for Pacing {
    fn default() -> Self {
        Self::of_rings(1)
    }
}

/// How fast a port is.
#[derive(Debug, Default)]
struct Pace {
    /// When the port was full last.
    full_at: Option<Instant>,
    /// What it had taken, and when, as it was full before.
    before: Option<(u64, Instant)>,
    /// The fastest so far in bytes a second, and that of the time before.
    fastest: [u64; 2],
    /// Since when it counts.
    since: Option<Instant>,
    /// The last one.
    latest: u64,
    /// What was told last.
    told: Option<usize>,
    /// From when on the socket may become shorter still.
    next_step: Option<Instant>,
}

impl Pace {
    /// The port is full, and has taken `sent` bytes up to now.
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

    /// How long the socket is to be from now on, if that is another length.
    fn follow(&mut self, lens: RangeInclusive<usize>, now: Instant) -> Option<usize> {
        let told = self.told.unwrap_or(START_LEN);
        let fastest = self.fastest.into_iter().max().filter(|&rate| rate > 0)?;
        let wanted = len_of(fastest, HOLD_TIME).clamp(*lens.start(), *lens.end());
        let is_early = self.next_step.is_some_and(|at| now < at);
        if wanted.abs_diff(told) <= told / 8 || (wanted < told && is_early) {
            return None;
        }
        // The link may be slower by now than it was at its fastest.
        self.told = Some(wanted.max(told.saturating_sub(len_of(self.latest, STEP_TIME))));
        self.next_step = Some(now + 2 * STEP_TIME);
        self.told
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

/// The number for bytes that go out in this time: the kernel doubles it, for what it has to do with
/// each frame besides, which is next to nothing of a train.
fn len_of(rate: u64, time: Duration) -> usize {
    let len = u128::from(rate) * time.as_micros() / 2_000_000;
    usize::try_from(len).unwrap_or(usize::MAX)
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// How long a port's sockets are at first: two trains, as the kernel doubles it.
pub(super) const START_LEN: usize = 64 * 1024;
/// How long a packet waits in the socket. Workers are kept from running for some milliseconds now
/// and then, in which the link shall not be idle.
const HOLD_TIME: Duration = Duration::from_millis(20);
/// For how long a socket takes nothing as it becomes shorter: less than any contract bears.
const STEP_TIME: Duration = Duration::from_millis(1);
/// A rate is told from this many bytes: the trains that are half out at either end are the lesser
/// part of it.
const SAMPLE_LEN: u64 = 128 * 1024;
/// And from this much time.
const SAMPLE_TIME: Duration = Duration::from_millis(2);
/// A port that is full is asked again sooner than this.
const GAP_MAX: Duration = Duration::from_millis(50);
/// For how long a rate counts, and once more as long.
const FASTEST_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const LENS: RangeInclusive<usize> = 16 * 1024..=4096 * 1024;

    /// A port with a clock.
    #[derive(Default)]
    struct Trial {
        pace: Pace,
        sent: u64,
        time: Duration,
        origin: Option<Instant>,
    }

    impl Trial {
        /// Full each millisecond for that long, at so many bytes a second. Returns what was told
        /// last.
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
        assert_eq!(trial.pass(62_500_000, Duration::from_secs(1)), Some(625_000), "500 Mb/s");
        assert_eq!(trial.pass(62_500_000, Duration::from_secs(1)), None, "it is known");
    }

    /// What is in it above its new length leaves while nobody is let in: soon enough for who waits
    /// for two milliseconds at most, whatever the port's own bound is.
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
        assert!(last < 60_000, "{last}: more than 20 ms of 5 MB/s");
    }

    #[test]
    fn the_socket_of_a_slow_link_is_never_long() {
        let mut trial = Trial::default();
        for _ in 0..100 {
            let told = trial.pass(2_500_000, Duration::from_millis(100)).unwrap_or_default();
            assert!(told < START_LEN, "{told}");
        }
        assert!(trial.pace.told.unwrap() < 30_000, "20 ms of 20 Mb/s");
    }

    #[test]
    fn it_is_never_shorter_nor_longer_than_it_may_be() {
        let mut trial = Trial::default();
        let least = trial.pass(1_000_000, Duration::from_secs(250)).unwrap();
        assert!(LENS.contains(&least) && least < LENS.start() / 4 * 5, "{least}");
        assert_eq!(trial.pass(2_000_000_000, Duration::from_secs(1)), Some(*LENS.end()));
    }

    #[test]
    fn a_link_that_becomes_slower_is_noticed_after_a_while() {
        let mut trial = Trial::default();
        trial.pass(62_500_000, Duration::from_secs(1));
        assert_eq!(trial.pass(12_500_000, Duration::from_secs(1)), None);
        let told = trial.pass(12_500_000, 2 * FASTEST_TIME).unwrap();
        assert!((125_000..142_000).contains(&told), "{told}");
    }

    /// Bursts of ten milliseconds, four in a second: the link is as fast as it is in them.
    #[test]
    fn a_link_that_was_idle_is_not_a_slow_one() {
        let mut trial = Trial::default();
        let mut told = None;
        for _ in 0..40 {
            told = trial.pass(125_000_000, Duration::from_millis(10)).or(told);
            trial.time += Duration::from_millis(240);
        }
        assert_eq!(told, Some(1_250_000));
    }

    #[test]
    fn workers_that_share_a_port_add_up() {
        let pacing = Pacing::default();
        let start = Instant::now();
        assert_eq!(pacing.note_full(LENS, start), None);
        for _ in 0..100 {
            pacing.note_sent(10_000);
        }
        let told = pacing.note_full(LENS, start + Duration::from_millis(20));
        assert_eq!(told, Some(500_000), "20 ms at 50 MB/s, which the kernel doubles");
        assert_eq!((pacing.note_taken(0), pacing.taken(0)), (1, 1));
    }
}
