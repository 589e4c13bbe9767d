//! Cache of traces: most frames differ only in fields that copying rules match, and many hit the
//! same copying rule.
//!
//! After that rule, which is hit at the ingress, nothing matches IP addresses and ports. Otherwise,
//! or if such a rule is hit later, each frame is traced separately.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tapswitch_openflow::{Action, GroupId};

use super::{Arrival, Sample};
use crate::group::GroupKey;
use crate::hash::Map;
use crate::place::Place;
use crate::rule::Outcome;
use crate::translate::Goal;

/// Results for a network that does not change.
#[derive(Default)]
pub(super) struct Known {
    walks: RefCell<Map<Alike, Walked>>,
    /// By address of the group: groups of rules live as long as the network, groups that these
    /// output to as long as this map.
    groups: RefCell<Map<*const GroupKey, Rc<Made>>>,
}

/// What equivalent frames have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alike {
    from: Place,
    /// Without the fields that only copying rules match.
    sample: Sample,
    /// When tracing copies: the copying rule, and the index among monitors that share flows.
    copies: Option<(Met, usize)>,
}

/// The copying rule that a frame hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Met {
    /// None, or the frame does not reach the table.
    Nothing,
    /// One that only forwards.
    Way,
    /// One with this group.
    Group(*const GroupKey),
    /// This one.
    Other(*const Goal),
}

impl From<&Goal> for Met {
    fn from(goal: &Goal) -> Self {
        match &goal.outcome {
            Outcome::Forward => Self::Way,
            Outcome::Group(key) => Self::Group(Arc::as_ptr(key)),
            _ => Self::Other(std::ptr::from_ref(goal)),
        }
    }
}

/// Arrivals of a frame, and the number of passages.
#[derive(Clone, Debug)]
pub(super) struct Walked {
    pub(super) arrivals: BTreeMap<Arrival, usize>,
    pub(super) passes: usize,
}

/// Content of a group.
pub(super) struct Made {
    pub(super) buckets: Vec<Vec<Action>>,
    /// The groups that it outputs to, numbered as in the actions.
    pub(super) next: Vec<GroupKey>,
}

impl Alike {
    pub(super) fn new(from: Place, sample: &Sample, copies: Option<(Met, usize)>) -> Self {
        Self { from, sample: sample.without_copies(), copies }
    }
}

impl Known {
    /// The result for frames like this one, if one was traced.
    pub(super) fn walked(&self, alike: &Alike) -> Option<Walked> {
        self.walks.borrow().get(alike).cloned()
    }

    /// Stores the result for all equivalent frames.
    pub(super) fn note(&self, alike: Alike, walked: Walked) {
        self.walks.borrow_mut().insert(alike, walked);
    }

    /// Content of a group of the network, or of one that such a group outputs to.
    pub(super) fn made(&self, key: &GroupKey) -> Rc<Made> {
        let at = std::ptr::from_ref(key);
        if let Some(known) = self.groups.borrow().get(&at) {
            return known.clone();
        }
        let next = key.next();
        let numbers: Vec<_> = (0..).take(next.len()).map(GroupId).collect();
        let buckets = key.buckets(&numbers).into_iter().map(|bucket| bucket.actions).collect();
        let made = Rc::new(Made { buckets, next });
        self.groups.borrow_mut().insert(at, made.clone());
        made
    }
}
