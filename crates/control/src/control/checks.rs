//! Asking one switch after the other whether it still holds what it was told.
//!
//! All of them in turn, evenly: a fabric of a few switches is through once in
//! [`Limits::check_interval`], a large one when it is, for its controller and its switches have
//! something else to do.
//!
//! [`Limits::check_interval`]: crate::Limits::check_interval

use std::ops::Bound;

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::Millis;

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Checks {
    /// When the next one is asked.
    next_at: Option<Millis>,
    /// The last one that was.
    last: Option<DatapathId>,
}

impl Checks {
    /// When [`Control::check_next`] is due.
    pub(super) const fn due(&self) -> Option<Millis> {
        self.next_at
    }
}

impl Control {
    /// There is a switch to ask, perhaps the first one.
    pub(super) fn schedule_checks(&mut self) {
        if self.checks.next_at.is_none() {
            self.checks.next_at = self.pause_between_checks(0).map(|pause| self.now.plus(pause));
        }
    }

    /// Asks the next switch that can be asked, if it is time.
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

    /// Returns how many rules it has.
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

    /// How long to wait behind a switch with so many rules.
    fn pause_between_checks(&self, rules: usize) -> Option<Millis> {
        let interval = self.limits.check_interval?;
        let even = interval.0 / (self.switches.len() as u64).max(1);
        Some(Millis(even.max(MIN_PAUSE.0).max(rules as u64 / RULES_PER_MS)))
    }
}

/// At most four switches are asked in a second: a thousand in some four minutes.
const MIN_PAUSE: Millis = Millis(250);
/// Rules that are read and compared in a hundredth of this time: a hundredth of the controller is
/// busy with it at most.
const RULES_PER_MS: u64 = 10;
