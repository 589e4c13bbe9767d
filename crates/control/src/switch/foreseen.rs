//! Results of trials, which the change itself takes over.
//!
//! Before a policy is added, a trial computes its regions and rules, which is most of the work. The
//! inputs are not copied; their states are identified, to detect whether any of them has changed
//! since. If so, everything is computed again.

use std::sync::Arc;

use super::Switch;
use crate::desired::Desired;
use crate::group::{Carry, GroupKey};
use crate::hash::Set;
use crate::overlap::{Closure, Tap};
use crate::rule::FlowId;
use crate::shared::{Seen, Shared};
use crate::translate::Wiring;
use crate::ways::Ways;

/// Identifies what a switch's rules are made from.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    closure: Seen<Closure>,
    arrivals: Seen<Closure>,
    ways: Seen<Ways>,
    wiring: Seen<Wiring>,
}

/// Identifies a switch's desired state and its inputs.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    inputs: Inputs,
    desired: History,
}

/// Identifies a desired state by an earlier one and the carried copies since. Both a trial and the
/// change itself set up the copies that a switch carries for a policy before they add it; so the
/// states differ, and the histories are equal.
#[derive(Clone, Debug)]
pub(super) struct History {
    start: Seen<Desired>,
    steps: Vec<(u16, Option<Carry>)>,
}

/// A history that ends with a known state.
#[derive(Clone, Debug)]
pub(super) struct Chronicle {
    history: History,
    end: Seen<Desired>,
}

/// A policy that was tried, and the state before.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    tap: Tap,
    before: Basis,
    made: Option<Made>,
}

/// The result of a trial.
#[derive(Clone, Debug)]
struct Made {
    after: Basis,
    /// Rules to be sent.
    changed: Set<Arc<FlowId>>,
    idle_groups: Vec<Arc<GroupKey>>,
}

/// The result of adding a policy, valid while the inputs are as in `before`.
#[derive(Debug)]
pub(crate) struct Foreseen {
    tap: Tap,
    before: Basis,
    closure: Shared<Closure>,
    arrivals: Shared<Closure>,
    desired: Shared<Desired>,
    changed: Set<Arc<FlowId>>,
    idle_groups: Vec<Arc<GroupKey>>,
}

impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        self.start.is(&other.start) && self.steps == other.steps
    }
}

impl Switch {
    /// The result of the trial, if it did nothing but add that policy.
    pub(crate) fn into_foreseen(mut self) -> Option<Foreseen> {
        let Tried { tap, before, made } = self.tried.take()?;
        let Made { after, changed, idle_groups } = made?;
        let is_all = self.is_as(&after);
        let Self { closure, arrivals, desired, .. } = self;
        let foreseen = Foreseen { tap, before, closure, arrivals, desired, changed, idle_groups };
        is_all.then_some(foreseen)
    }

    /// Sets or clears the result of a trial.
    pub(crate) fn set_foreseen(&mut self, foreseen: Option<Foreseen>) {
        self.foreseen = foreseen.map(Arc::new);
    }

    /// Address of the stored desired state.
    #[cfg(test)]
    pub(crate) fn foreseen_rules(&self) -> Option<*const Desired> {
        self.foreseen.as_ref().map(|it| std::ptr::from_ref(&*it.desired))
    }

    /// Whether a valid trial found that the policy fits, with whatever tags for its copies.
    pub(super) fn foresees(&self, tap: &Tap) -> bool {
        let foreseen = self.foreseen.as_ref();
        foreseen.is_some_and(|it| it.tap.is_as_large_as(tap) && self.is_as(&it.before))
    }

    /// Applies a policy by the result of its trial. Returns false, without effect, if there is no
    /// valid one.
    pub(super) fn take_foreseen(&mut self, tap: &Tap) -> bool {
        let Some(foreseen) = self.foreseen.take().and_then(Arc::into_inner) else { return false };
        if foreseen.tap != *tap || !self.is_as(&foreseen.before) {
            return false;
        }
        self.closure = foreseen.closure;
        self.arrivals = foreseen.arrivals;
        self.desired = foreseen.desired;
        // The former state, with which they were shared, is gone.
        self.closure.join();
        self.arrivals.join();
        self.desired.take_over(foreseen.changed, foreseen.idle_groups);
        true
    }

    /// In a trial: records the added policy and the state before.
    pub(super) fn note_tried(&mut self, tap: &Tap, before: Basis) {
        self.tried = Some(Tried { tap: tap.clone(), before, made: None });
    }

    /// In a trial: takes the changes as if they were sent.
    pub(super) fn take_told(&mut self) {
        let (changed, idle_groups) = self
            .with_history(|this| (this.desired.take_changed(), this.desired.take_idle_groups()));
        let after = self.basis();
        if let Some(tried) = &mut self.tried {
            // A second set of changes makes the state differ from that after the first.
            tried.made.get_or_insert(Made { after, changed, idle_groups });
        }
    }

    /// Records a change of carried copies that followed `before`.
    pub(super) fn note_carry(&mut self, before: History, step: (u16, Option<Carry>)) {
        let History { start, mut steps } = before;
        steps.push(step);
        let history = History { start, steps };
        self.chronicle = Some(Chronicle { history, end: self.desired.seen() });
    }

    /// The history of the desired state, or an empty one that starts with it.
    pub(super) fn history(&self) -> History {
        match self.current_chronicle().filter(|it| it.history.steps.len() < MAX_STEPS) {
            Some(chronicle) => chronicle.history.clone(),
            None => History { start: self.desired.seen(), steps: Vec::new() },
        }
    }

    /// Keeps the history while `take` takes changes from the desired state.
    pub(super) fn with_history<T>(&mut self, take: impl FnOnce(&mut Self) -> T) -> T {
        let history = self.current_chronicle().map(|it| it.history.clone());
        let taken = take(self);
        let end = self.desired.seen();
        self.chronicle = history.map(|history| Chronicle { history, end });
        taken
    }

    fn current_chronicle(&self) -> Option<&Chronicle> {
        self.chronicle.as_ref().filter(|it| self.desired.is_as(&it.end))
    }

    pub(super) fn basis(&self) -> Basis {
        Basis { inputs: self.inputs(), desired: self.history() }
    }

    fn is_as(&self, basis: &Basis) -> bool {
        self.has_inputs(&basis.inputs)
            && self.history() == basis.desired
            && !self.desired.has_changed()
    }

    pub(super) fn inputs(&self) -> Inputs {
        Inputs {
            closure: self.closure.seen(),
            arrivals: self.arrivals.seen(),
            ways: self.ways.seen(),
            wiring: self.wiring.seen(),
        }
    }

    /// Whether the inputs are unchanged since then.
    pub(super) fn has_inputs(&self, inputs: &Inputs) -> bool {
        self.closure.is_as(&inputs.closure)
            && self.arrivals.is_as(&inputs.arrivals)
            && self.ways.is_as(&inputs.ways)
            && self.wiring.is_as(&inputs.wiring)
    }
}

/// Maximum length of a history; one policy needs a few steps.
const MAX_STEPS: usize = 16;
