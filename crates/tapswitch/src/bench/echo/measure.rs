//! The measurement of one thread that moves frames, by whatever means.
//!
//! All candidates share it: clock, counters, window. The clock is read once per turn of at most 64
//! frames. The window opens some time after the first frame of any queue and has a fixed length;
//! after it frames are moved until no more arrive, so that senders end in an orderly way and
//! everything can be counted.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::swap::Tally;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Times of the measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Window {
    /// From the first frame on.
    pub(super) warm_up_ms: u64,
    pub(super) length_ms: u64,
}

/// Results of one thread.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Within the window.
    pub(super) tally: Tally,
    pub(super) seconds: f64,
    /// Processor time of the thread, in seconds.
    pub(super) processor: f64,
    /// From the first to the last frame.
    pub(super) whole: Tally,
}

/// A way to move frames.
pub(super) trait Mover: Send {
    /// Descriptors that are readable if there are frames.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Moves the queued frames, at most 64. Returns false if there were none.
    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure>;
}

/// Moves frames until the window is over and no more arrive.
pub(super) fn measure(
    mover: &mut dyn Mover,
    start: &OnceLock<Instant>,
    window: Window,
) -> Result<Sample, Failure> {
    let mut watch = Watch::new(start, window, Instant::now());
    let mut tally = Tally::default();
    loop {
        let is_busy = mover.turn(&mut tally)?;
        if let Some(sample) = watch.look(Instant::now(), is_busy, tally)? {
            return Ok(sample);
        }
        if !is_busy {
            wait(mover)?;
        }
    }
}

/// Opens and closes the window of one thread.
struct Watch<'a> {
    /// Time of the first frame of any queue.
    start: &'a OnceLock<Instant>,
    opens: Duration,
    length: Duration,
    born: Instant,
    quiet_since: Instant,
    opened: Option<Mark>,
    closed: Option<Mark>,
}

impl<'a> Watch<'a> {
    fn new(start: &'a OnceLock<Instant>, window: Window, born: Instant) -> Self {
        let opens = Duration::from_millis(window.warm_up_ms);
        let length = Duration::from_millis(window.length_ms);
        Self { start, opens, length, born, quiet_since: born, opened: None, closed: None }
    }

    /// Updates the window after a turn; returns true when everything is over.
    fn look(
        &mut self,
        now: Instant,
        is_busy: bool,
        tally: Tally,
    ) -> Result<Option<Sample>, Failure> {
        if is_busy {
            self.quiet_since = now;
            self.start.get_or_init(|| now);
        }
        let Some(&start) = self.start.get() else { return self.expect_more(now) };
        match (&self.opened, &self.closed) {
            (None, _) if now.saturating_duration_since(start) >= self.opens => {
                self.opened = Some(Mark::at(now, tally));
            }
            (Some(opened), None) if now - opened.at >= self.length => {
                self.closed = Some(Mark::at(now, tally));
            }
            (Some(opened), Some(closed)) if self.is_over(now, closed) => {
                return Ok(Some(opened.until(closed, tally)));
            }
            _ => {}
        }
        Ok(None)
    }

    fn is_over(&self, now: Instant, closed: &Mark) -> bool {
        now - self.quiet_since >= QUIET || now - closed.at >= LINGER
    }

    fn expect_more(&self, now: Instant) -> Result<Option<Sample>, Failure> {
        if now - self.born <= PATIENCE {
            return Ok(None);
        }
        Err(format!("no frame came within {PATIENCE:?}").into())
    }
}

/// Waits briefly for frames.
fn wait(mover: &dyn Mover) -> Result<(), Failure> {
    let fds = mover.fds();
    let mut fds: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: MOMENT_NS }))?;
    Ok(())
}

/// An end of the window.
struct Mark {
    at: Instant,
    processor: Duration,
    tally: Tally,
}

impl Mark {
    fn at(at: Instant, tally: Tally) -> Self {
        Self { at, processor: processor_time(), tally }
    }

    fn until(&self, end: &Self, whole: Tally) -> Sample {
        Sample {
            tally: end.tally.since(self.tally),
            seconds: (end.at - self.at).as_secs_f64(),
            processor: (end.processor - self.processor).as_secs_f64(),
            whole,
        }
    }
}

/// CPU time of the calling thread, user and system.
pub(super) fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// If no frame arrives for this long, nobody sends any more.
const QUIET: Duration = Duration::from_millis(100);
/// A sender that continues longer than this is not waited for.
const LINGER: Duration = Duration::from_secs(5);
/// How long the first frame may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a thread sleeps before it reads the clock again.
const MOMENT_NS: i64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_counts_and_the_end_is_waited_for() {
        let (start, zero) = (OnceLock::new(), Instant::now());
        let mut watch = Watch::new(&start, WINDOW, zero);
        let mut look = |ms, is_busy, frames| {
            let tally = Tally { frames, ..Tally::default() };
            watch.look(zero + Duration::from_millis(ms), is_busy, tally).unwrap()
        };
        assert!(look(0, false, 0).is_none());
        assert!(look(5000, true, 1).is_none(), "the first frame");
        assert!(look(5200, true, 100).is_none(), "the window opens");
        assert!(look(6199, true, 900).is_none());
        assert!(look(6300, true, 1100).is_none(), "it closes, late");
        assert!(look(6350, true, 1101).is_none(), "frames come still");
        assert!(look(6449, false, 1101).is_none());
        let sample = look(6450, false, 1101).unwrap();
        assert_eq!((sample.tally.frames, sample.whole.frames), (1000, 1101));
        assert!((sample.seconds - 1.1).abs() < 1e-9, "the time that it was open: {sample:?}");
    }

    #[test]
    fn a_thread_that_gets_no_frame_ends_with_the_others() {
        let (start, zero) = (OnceLock::from(Instant::now()), Instant::now());
        let mut watch = Watch::new(&start, WINDOW, zero);
        let ends = [200, 5000, 5001].map(|ms| {
            let now = zero + Duration::from_millis(ms);
            watch.look(now, false, Tally::default()).unwrap()
        });
        assert!(ends[0].is_none() && ends[1].is_none());
        let sample = ends[2].unwrap();
        assert_eq!(sample.whole, Tally::default());
        assert!(sample.seconds > 1.0, "also of a window where nothing came: {sample:?}");
    }

    #[test]
    fn a_sender_that_never_ends_is_not_waited_for() {
        let (start, zero) = (OnceLock::new(), Instant::now());
        let mut watch = Watch::new(&start, WINDOW, zero);
        let busy_until = |ms| watch.look(zero + Duration::from_millis(ms), true, Tally::default());
        let ends: Vec<_> = [0, 200, 1200, 6199, 6200].map(busy_until).into_iter().collect();
        assert!(ends[..4].iter().all(|end| matches!(end, Ok(None))));
        assert!(matches!(ends[4], Ok(Some(_))));
    }

    #[test]
    fn frames_that_never_come_are_not_waited_for() {
        let (start, zero) = (OnceLock::new(), Instant::now());
        let mut watch = Watch::new(&start, WINDOW, zero);
        let late = zero + PATIENCE + Duration::from_millis(1);
        let error = watch.look(late, false, Tally::default()).unwrap_err();
        assert_eq!(error.to_string(), "no frame came within 10s");
    }

    const WINDOW: Window = Window { warm_up_ms: 200, length_ms: 1000 };
}
