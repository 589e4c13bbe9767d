//! Movers that take turns on one queue, a few milliseconds each.
//!
//! They serve the same device and the same flows, and what disturbs the machine disturbs them
//! alike. So they can be told apart by a percent or two where measurements one after the other,
//! each with processes and memory of its own, differ by ten.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::bench::paired;

use super::measure::{Mover, Window, processor_time};
use super::swap::Tally;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Movers of one queue. One alone has every turn, and is not timed here.
pub(super) struct Turns<'a> {
    movers: Vec<Box<dyn Mover>>,
    /// When the first frame of any queue arrived. The queues change their movers together.
    start: &'a OnceLock<Instant>,
    /// The shifts that count.
    counted: Range<u64>,
    shift: Shift,
    shares: Vec<Share>,
}

/// What one mover did in the shifts that count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) tally: Tally,
    /// Processor time in seconds.
    pub(super) processor: f64,
}

/// The time that one mover has, and the state at its begin.
#[derive(Clone, Copy, Debug, Default)]
struct Shift {
    number: u64,
    processor: Duration,
    tally: Tally,
}

impl<'a> Turns<'a> {
    pub(super) fn new(
        movers: Vec<Box<dyn Mover>>,
        start: &'a OnceLock<Instant>,
        window: Window,
    ) -> Self {
        let shares = vec![Share::default(); movers.len()];
        let Window { warm_up_ms, length_ms } = window;
        let counted = warm_up_ms.div_ceil(SHIFT_MS)..(warm_up_ms + length_ms) / SHIFT_MS;
        Self { movers, start, counted, shift: Shift::default(), shares }
    }

    /// By mover; empty shares if there is only one.
    pub(super) fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The number of the current shift.
    fn number(&self, now: Instant) -> u64 {
        let since = self.start.get().map(|start| now.saturating_duration_since(*start));
        let ms = since.unwrap_or_default().as_millis();
        u64::try_from(ms).unwrap_or(u64::MAX) / SHIFT_MS
    }

    /// Ends a shift, and begins the one with this number.
    fn change(&mut self, number: u64, processor: Duration, tally: Tally) {
        let ended = std::mem::replace(&mut self.shift, Shift { number, processor, tally });
        if self.counted.contains(&ended.number) {
            let share = &mut self.shares[whose(ended.number, self.movers.len())];
            share.tally = share.tally.plus(tally.since(ended.tally));
            share.processor += (processor - ended.processor).as_secs_f64();
        }
    }
}

impl Mover for Turns<'_> {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.movers[0].fds()
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        if let [only] = self.movers.as_mut_slice() {
            return only.turn(tally);
        }
        let number = self.number(Instant::now());
        if number != self.shift.number {
            self.change(number, processor_time(), *tally);
        }
        let whose = whose(number, self.movers.len());
        self.movers[whose].turn(tally)
    }
}

impl Share {
    pub(super) fn plus(self, more: Self) -> Self {
        Self { tally: self.tally.plus(more.tally), processor: self.processor + more.processor }
    }

    /// Processor time per packet, in ns.
    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(super) fn nanoseconds_per_packet(self) -> f64 {
        self.processor * 1e9 / self.tally.packets as f64
    }
}

/// Which of `count` movers has the shift with this number.
fn whose(number: u64, count: usize) -> usize {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    paired::turns(count, number / count).nth(number % count).unwrap_or_default()
}

/// Long enough that a mover finds the caches as it left them for nearly all of its shift, and short
/// beside the changes of a machine.
const SHIFT_MS: u64 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movers_alternate_and_only_whole_shifts_of_the_window_count() {
        let start = OnceLock::from(Instant::now());
        let window = Window { warm_up_ms: 20, length_ms: 60 };
        let mut turns = Turns::new(vec![Box::new(Idle), Box::new(Idle)], &start, window);
        assert_eq!(turns.counted, 2..6);
        let packets = |packets| Tally { packets, ..Tally::default() };
        for number in 1..9 {
            // Shift N brings 10 to the power of N packets, and takes N + 1 seconds.
            let (before, seconds) =
                ((0..number).map(|n| 10_u64.pow(n)).sum(), number * (number + 1) / 2);
            turns.change(number.into(), Duration::from_secs(seconds.into()), packets(before));
        }
        let shares: Vec<_> =
            turns.shares().iter().map(|share| (share.tally.packets, share.processor)).collect();
        assert_eq!(shares, [(101_000, 4.0 + 6.0), (10_100, 3.0 + 5.0)], "3 and 5; 2 and 4");
    }

    #[test]
    fn shifts_are_counted_from_the_first_frame() {
        let (start, zero) = (OnceLock::new(), Instant::now());
        let window = Window { warm_up_ms: 0, length_ms: 100 };
        let turns = Turns::new(vec![Box::new(Idle), Box::new(Idle)], &start, window);
        let late = zero + Duration::from_secs(5);
        assert_eq!(turns.number(late), 0, "no frame yet");
        start.set(zero + Duration::from_millis(100)).unwrap();
        let at = |ms| turns.number(zero + Duration::from_millis(ms));
        assert_eq!([0, 100, 112, 113, 200].map(at), [0, 0, 0, 1, 7]);
    }

    #[test]
    fn each_mover_comes_first_as_often() {
        let order: Vec<_> = (0..8).map(|number| whose(number, 2)).collect();
        assert_eq!(order, [0, 1, 1, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn one_mover_alone_is_not_timed() {
        let start = OnceLock::from(Instant::now());
        let window = Window { warm_up_ms: 0, length_ms: 1000 };
        let mut turns = Turns::new(vec![Box::new(Idle)], &start, window);
        assert!(!turns.turn(&mut Tally::default()).unwrap());
        assert_eq!(turns.shares()[0].tally, Tally::default());
    }

    struct Idle;

    impl Mover for Idle {
        fn fds(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }

        fn turn(&mut self, _: &mut Tally) -> Result<bool, Failure> {
            Ok(false)
        }
    }
}
