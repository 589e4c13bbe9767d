//! What a trial made of a switch, to be taken over when the change is made.
//!
//! A policy is tried before it is made: its regions are found then, and its rules made, which takes
//! as long as to make them again. What they are made from is not copied but marked, so that it is
//! known whether any of it has changed since. If so, all is found and made anew.

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

/// What a switch shall hold, and what that is made from, as it was.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    closure: Seen<Closure>,
    arrivals: Seen<Closure>,
    desired: History,
    ways: Seen<Ways>,
    wiring: Seen<Wiring>,
}

/// What a switch shall hold: as it was at some time, with what it carries since then. Before a
/// policy is added to it, its copies are carried, which a trial and the change itself do alike.
#[derive(Clone, Debug)]
pub(super) struct History {
    start: Seen<Desired>,
    steps: Vec<(u16, Option<Carry>)>,
}

/// A history up to some time.
#[derive(Clone, Debug)]
pub(super) struct Chronicle {
    history: History,
    end: Seen<Desired>,
}

/// A policy that is tried alone.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    tap: Tap,
    before: Basis,
    made: Option<Made>,
}

/// What came of it.
#[derive(Clone, Debug)]
struct Made {
    after: Basis,
    /// Rules that the switch would be told of.
    changed: Set<Arc<FlowId>>,
    idle_groups: Vec<Arc<GroupKey>>,
}

/// What comes of a policy if nothing changes before.
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
    /// What came of the policy that was tried, if nothing else did.
    pub(crate) fn into_foreseen(mut self) -> Option<Foreseen> {
        let Tried { tap, before, made } = self.tried.take()?;
        let Made { after, changed, idle_groups } = made?;
        let is_all = self.is_as(&after);
        let Self { closure, arrivals, desired, .. } = self;
        let foreseen = Foreseen { tap, before, closure, arrivals, desired, changed, idle_groups };
        is_all.then_some(foreseen)
    }

    /// A trial found this; or none did.
    pub(crate) fn set_foreseen(&mut self, foreseen: Option<Foreseen>) {
        self.foreseen = foreseen.map(Arc::new);
    }

    /// The rules that are foreseen.
    #[cfg(test)]
    pub(crate) fn foreseen_rules(&self) -> Option<*const Desired> {
        self.foreseen.as_ref().map(|it| std::ptr::from_ref(&*it.desired))
    }

    /// Whether it is foreseen that a policy fits, whatever its copies are called on their way.
    pub(super) fn foresees(&self, tap: &Tap) -> bool {
        let foreseen = self.foreseen.as_ref();
        foreseen.is_some_and(|it| it.tap.is_as_large_as(tap) && self.is_as(&it.before))
    }

    /// Applies a policy as it was foreseen. Returns false, and has done nothing, if it was not.
    pub(super) fn take_foreseen(&mut self, tap: &Tap) -> bool {
        let Some(foreseen) = self.foreseen.take().and_then(Arc::into_inner) else { return false };
        if foreseen.tap != *tap || !self.is_as(&foreseen.before) {
            return false;
        }
        self.closure = foreseen.closure;
        self.arrivals = foreseen.arrivals;
        self.desired = foreseen.desired;
        // Nobody shares them any more with what was before.
        self.closure.join();
        self.arrivals.join();
        self.desired.take_over(foreseen.changed, foreseen.idle_groups);
        true
    }

    /// In a trial, notes that this policy was added to what was there.
    pub(super) fn note_tried(&mut self, tap: &Tap, before: Basis) {
        self.tried = Some(Tried { tap: tap.clone(), before, made: None });
    }

    /// In a trial, takes it that the switch was told what changed.
    pub(super) fn take_told(&mut self) {
        let (changed, idle_groups) = self
            .with_history(|this| (this.desired.take_changed(), this.desired.take_idle_groups()));
        let after = self.basis();
        if let Some(tried) = &mut self.tried {
            // If it is told more, it is not as it was after the first.
            tried.made.get_or_insert(Made { after, changed, idle_groups });
        }
    }

    /// Notes that copies are carried so, after this.
    pub(super) fn note_carry(&mut self, before: History, step: (u16, Option<Carry>)) {
        let History { start, mut steps } = before;
        steps.push(step);
        let history = History { start, steps };
        self.chronicle = Some(Chronicle { history, end: self.desired.seen() });
    }

    /// How what the switch shall hold came to be, as far as that is known.
    pub(super) fn history(&self) -> History {
        match self.current_chronicle().filter(|it| it.history.steps.len() < MAX_STEPS) {
            Some(chronicle) => chronicle.history.clone(),
            None => History { start: self.desired.seen(), steps: Vec::new() },
        }
    }

    /// The same when changes are taken of what it shall hold.
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
        Basis {
            closure: self.closure.seen(),
            arrivals: self.arrivals.seen(),
            desired: self.history(),
            ways: self.ways.seen(),
            wiring: self.wiring.seen(),
        }
    }

    fn is_as(&self, basis: &Basis) -> bool {
        self.closure.is_as(&basis.closure)
            && self.arrivals.is_as(&basis.arrivals)
            && self.history() == basis.desired
            && !self.desired.has_changed()
            && self.ways.is_as(&basis.ways)
            && self.wiring.is_as(&basis.wiring)
    }
}

/// Steps of a history that are kept: one policy makes a few.
const MAX_STEPS: usize = 16;
