//! What frames that are followed one after the other have in common: most of them differ in what
//! only the rules that copy look at, and many meet the same one of those.
//!
//! Behind that rule, which is met where a frame comes in, nothing looks at addresses of IP and at
//! ports. Where something does, or such a rule is met on the way, each frame is followed by itself.

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

/// What was found out of a network that stays as it is.
#[derive(Default)]
pub(super) struct Known {
    walks: RefCell<Map<Alike, Walked>>,
    /// By where the group is: those of rules stay as long as the network, those that these go on
    /// to as long as this.
    groups: RefCell<Map<*const GroupKey, Rc<Made>>>,
}

/// What frames have in common that arrive alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alike {
    from: Place,
    /// But for what only rules that copy look at.
    sample: Sample,
    /// With copies: what they meet, and which monitor of those that share flows gets them.
    copies: Option<(Met, usize)>,
}

/// The rule that frames meet among those that copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Met {
    /// They do not come there, or meet none.
    Nothing,
    /// One that lets them pass.
    Way,
    /// One of those of this group.
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

/// Where frames arrive, and how many times they passed switches.
#[derive(Clone, Debug)]
pub(super) struct Walked {
    pub(super) arrivals: BTreeMap<Arrival, usize>,
    pub(super) passes: usize,
}

/// What a group does.
pub(super) struct Made {
    pub(super) buckets: Vec<Vec<Action>>,
    /// The groups that those go on to, numbered as in their actions.
    pub(super) next: Vec<GroupKey>,
}

impl Alike {
    pub(super) fn new(from: Place, sample: &Sample, copies: Option<(Met, usize)>) -> Self {
        Self { from, sample: sample.without_copies(), copies }
    }
}

impl Known {
    /// Where frames like this one arrive, if one of them was followed.
    pub(super) fn walked(&self, alike: &Alike) -> Option<Walked> {
        self.walks.borrow().get(alike).cloned()
    }

    /// A frame was followed, and all like it arrive there.
    pub(super) fn note(&self, alike: Alike, walked: Walked) {
        self.walks.borrow_mut().insert(alike, walked);
    }

    /// What a group of the network does, or one that such a group goes on to.
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
