//! Checks switches in turn for unexpected changes.
//!
//! All are checked at an even pace: a small fabric once in [`Limits::check_interval`], a large one
//! more slowly, as its controller and switches have other work to do.
//!
//! [`Limits::check_interval`]: crate::Limits::check_interval

use std::ops::Bound;

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::Millis;

/// Scheduler of the checks.
#[derive(Clone, Debug, Default)]
pub(super) struct Checks {
    /// Time of the next check.
    next_at: Option<Millis>,
    /// The switch checked last.
    last: Option<DatapathId>,
}

impl Checks {
    /// When [`Control::check_next`] is due.
    pub(super) const fn due(&self) -> Option<Millis> {
        self.next_at
    }
}

impl Control {
    /// Starts the schedule if it is not running.
    pub(super) fn schedule_checks(&mut self) {
        if self.checks.next_at.is_none() {
            self.checks.next_at = self.pause_between_checks(0).map(|pause| self.now.plus(pause));
        }
    }

    /// Checks the next possible switch if it is time.
    pub(super) fn check_next(&mut self) {
        if self.checks.next_at.take_if(|at| *at <= self.now).is_none() {
            return;
        }
        let rules = self.ask_next().unwrap_or_default();
        if self.switches.values().any(|switch| !switch.is_down()) {
            self.checks.next_at =
                self.pause_between_checks(rules).map(|pause| self.now.plus(pause));
        }
    }

    /// Returns the number of its rules.
    fn ask_next(&mut self) -> Option<usize> {
        let last = self.checks.last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.switches.range((last, Bound::Unbounded)).map(|(id, _)| *id);
        let others = self.switches.keys().copied();
        for id in behind.chain(others).take(self.switches.len()).collect::<Vec<_>>() {
            let Some(switch) = self.switches.get_mut(&id) else { continue };
            if switch.ask_to_compare() {
                self.checks.last = Some(id);
                self.turns.add(id);
                self.agenda.note(switch);
                return self.switches.get(&id).map(|switch| switch.held().rule_count());
            }
        }
        None
    }

    /// Pause after a switch with this many rules.
    fn pause_between_checks(&self, rules: usize) -> Option<Millis> {
        let interval = self.limits.check_interval?;
        let even = interval.0 / (self.switches.len() as u64).max(1);
        Some(Millis(even.max(MIN_PAUSE.0).max(rules as u64 / RULES_PER_MS)))
    }
}

/// At most four switches a second: a thousand in about four minutes.
const MIN_PAUSE: Millis = Millis(250);
/// Rules compared in a hundredth of a millisecond, so that checks take at most a hundredth of the
/// controller's time.
const RULES_PER_MS: u64 = 10;
