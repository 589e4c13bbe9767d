//! Sweeps: when silence at a port is conclusive.
//!
//! A port that has heard nothing has no switch behind it only if its probe has left, and if a
//! switch that received it has had time to report it; a busy switch needs time for both. A
//! **sweep** asks all switches for a barrier. When all have answered, probes sent before it have
//! left. When all have answered a second one, a while later, those probes have been reported if
//! they arrived.

use std::collections::BTreeSet;

use tapswitch_openflow::DatapathId;

use crate::Millis;

/// The number of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SweepNo(u64);

/// Consecutive sweeps, while they are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweeps {
    started: SweepNo,
    /// All sweeps up to this one are over.
    over: SweepNo,
    wanted: SweepNo,
    started_at: Millis,
    /// Earliest start of the next one.
    next_at: Millis,
    /// Switches that have not answered the current sweep.
    awaited: BTreeSet<DatapathId>,
    /// Switches that did not answer in time. They are not waited for until they answer again.
    silent: BTreeSet<DatapathId>,
}

impl Sweeps {
    /// Returns the sweep after which a probe sent now has been reported, if it arrived.
    pub(super) fn want(&mut self) -> SweepNo {
        let last = SweepNo(self.started.0 + 2);
        self.wanted = self.wanted.max(last);
        last
    }

    /// Whether a sweep is over.
    pub(super) fn is_over(&self, sweep: SweepNo) -> bool {
        sweep <= self.over
    }

    /// Whether a switch has not answered in time, and not since.
    pub(super) fn is_silent(&self, switch: DatapathId) -> bool {
        self.silent.contains(&switch)
    }

    /// Whether a sweep is due to start.
    pub(super) fn is_due(&self, now: Millis) -> bool {
        !self.is_under_way() && self.over < self.wanted && now >= self.next_at
    }

    /// Starts a sweep of these switches. Returns whether it is over.
    pub(super) fn start(&mut self, switches: &BTreeSet<DatapathId>, now: Millis) -> bool {
        self.started.0 += 1;
        self.started_at = now;
        self.awaited = switches - &self.silent;
        self.end_if_answered(now)
    }

    /// A switch has answered. Returns whether the sweep is over.
    pub(super) fn handle_answer(&mut self, switch: DatapathId, now: Millis) -> bool {
        self.silent.remove(&switch);
        self.awaited.remove(&switch);
        self.end_if_answered(now)
    }

    /// Stops waiting for switches that have not answered in time. Returns whether the sweep is
    /// over.
    pub(super) fn handle_timeout(&mut self, now: Millis) -> bool {
        let is_late = self.is_under_way() && now.since(self.started_at) >= ANSWER_WAIT;
        if is_late {
            self.silent.append(&mut self.awaited);
        }
        is_late && self.end_if_answered(now)
    }

    /// When [`Self::handle_timeout`] or the next start is due.
    pub(super) fn poll_timeout(&self) -> Option<Millis> {
        match self.is_under_way() {
            true => Some(self.started_at.plus(ANSWER_WAIT)),
            false => (self.over < self.wanted).then_some(self.next_at),
        }
    }

    fn is_under_way(&self) -> bool {
        self.over < self.started
    }

    fn end_if_answered(&mut self, now: Millis) -> bool {
        let is_over = self.is_under_way() && self.awaited.is_empty();
        if is_over {
            self.over = self.started;
            // Where answers take long, probes do, too.
            let took = now.since(self.started_at).0;
            self.next_at = now.plus(Millis((took * TIMES_TAKEN).max(PAUSE.0)));
        }
        is_over
    }
}

/// Time for a switch to answer; beyond it the connection is about to be given up.
const ANSWER_WAIT: Millis = Millis(5000);
/// Minimum pause between two sweeps: time for a frame to reach another switch, and from there the
/// controller.
const PAUSE: Millis = Millis(100);
/// Minimum pause as a multiple of the previous sweep's duration.
const TIMES_TAKEN: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn switches(ids: &[u64]) -> BTreeSet<DatapathId> {
        ids.iter().copied().map(DatapathId).collect()
    }

    #[test]
    fn what_is_sent_is_heard_after_two_more() {
        let mut sweeps = Sweeps::default();
        assert!(!sweeps.is_due(Millis(0)), "nobody wants one");
        let first = sweeps.want();
        sweeps.start(&switches(&[1, 2]), Millis(0));
        let second = sweeps.want();
        sweeps.handle_answer(DatapathId(1), Millis(5));
        sweeps.handle_answer(DatapathId(2), Millis(10));
        assert!(!sweeps.is_over(first) && !sweeps.is_due(Millis(109)));
        for (at, is_over) in [(200, [true, false]), (400, [true, true])] {
            assert!(sweeps.is_due(Millis(at)));
            sweeps.start(&switches(&[1]), Millis(at));
            sweeps.handle_answer(DatapathId(1), Millis(at));
            assert_eq!([first, second].map(|sweep| sweeps.is_over(sweep)), is_over);
        }
        assert_eq!(sweeps.poll_timeout(), None);
    }

    #[test]
    fn a_slow_answer_puts_the_next_off() {
        let mut sweeps = Sweeps::default();
        sweeps.want();
        sweeps.start(&switches(&[1]), Millis(0));
        sweeps.handle_answer(DatapathId(1), Millis(1000));
        assert_eq!(sweeps.poll_timeout(), Some(Millis(3000)));
    }

    #[test]
    fn who_does_not_answer_is_waited_for_once() {
        let mut sweeps = Sweeps::default();
        let last = sweeps.want();
        sweeps.start(&switches(&[1, 2]), Millis(0));
        sweeps.handle_answer(DatapathId(1), Millis(0));
        sweeps.handle_timeout(Millis(4999));
        assert!(!sweeps.is_due(Millis(60_000)));
        sweeps.handle_timeout(Millis(5000));
        sweeps.start(&switches(&[1, 2]), Millis(15_000));
        sweeps.handle_answer(DatapathId(1), Millis(15_000));
        assert!(sweeps.is_over(last));
        // It answers again.
        sweeps.handle_answer(DatapathId(2), Millis(15_000));
        let last = sweeps.want();
        sweeps.start(&switches(&[1, 2]), Millis(16_000));
        sweeps.handle_answer(DatapathId(1), Millis(16_000));
        assert!(!sweeps.is_due(Millis(17_000)) && !sweeps.is_over(last));
    }
}
