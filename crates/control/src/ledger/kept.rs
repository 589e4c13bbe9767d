//! Unused groups with queued copies.
//!
//! A group is deleted when its queue is out, so that the outcome of each copy is known. Most queues
//! are out within milliseconds. That of a file whose disk is full takes as long as the disk: the
//! port's link is down meanwhile, so its policies have no rules, and the copies in memory are
//! written later. The group of a policy that stays is *kept* for them. A deleted policy does not
//! wait: its share is settled, with an unknown outcome, when the usual time is over. So are all
//! shares at a switch that does not come back.
//!
//! At most [`MAX_KEPT`] groups are kept on a switch; the copies of further ones are given up.

use std::collections::BTreeSet;

use tapswitch_openflow::GroupId;

use super::{BucketMeter, GroupMeter, Ledger, add_copied};
use crate::Millis;
use crate::overlap::PolicyId;

/// Tells who needs counts.
pub(crate) struct Living<'a> {
    /// Whether the policy exists, and is not being deleted.
    pub(crate) is_there: &'a dyn Fn(PolicyId) -> bool,
    /// Whether such a policy's copies have this identifier.
    pub(crate) is_used: &'a dyn Fn(u16) -> bool,
}

impl Ledger {
    /// Whether copies of the group are queued for any policy that it counts for.
    pub(crate) fn has_waiting(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_some_and(GroupMeter::has_waiting)
    }

    /// The switch reported that an unused group has queued copies, or that a group outputs to it
    /// that has.
    pub(crate) fn note_waiting(&mut self, id: GroupId) {
        if let Some(meter) = self.groups.get_mut(&id) {
            meter.is_told_waiting = true;
        }
    }

    /// Whether the group is kept although the usual time is over.
    pub(crate) fn is_kept(&self, id: GroupId) -> bool {
        self.kept.contains(&id)
    }

    /// Groups whose last counters have been outstanding since before `since`.
    pub(crate) fn late_groups(&self, since: Millis) -> Vec<GroupId> {
        let is_late = |meter: &GroupMeter| meter.closing_since.is_some_and(|at| at < since);
        self.groups.iter().filter(|(_, meter)| is_late(meter)).map(|(id, _)| *id).collect()
    }

    /// Keeps a late group for the policies that stay, if its copies are queued, or if `is_next`: a
    /// kept group outputs to it. Returns false if it is to be given up.
    pub(crate) fn try_keep(
        &mut self,
        id: GroupId,
        (is_next, living): (bool, &Living<'_>),
        now: Millis,
    ) -> bool {
        let has_room = self.kept.contains(&id) || self.kept.len() < MAX_KEPT;
        let Some(meter) = self.groups.get_mut(&id) else { return false };
        let has_waiting = meter.is_told_waiting && meter.has_waiting() && has_room;
        if !(is_next || has_waiting && meter.is_needed(living)) {
            return false;
        }
        meter.closing_since = Some(now);
        self.kept.insert(id);
        self.let_go(id, living);
        true
    }

    /// The last counters of a group will not be reported.
    pub(crate) fn note_lost(&mut self, id: GroupId) {
        if let Some(meter) = self.groups.get(&id) {
            self.incomplete.extend(meter.members().map(|member| member.policy));
        }
    }

    /// Settles the share of a group's policies that are being deleted.
    fn let_go(&mut self, id: GroupId, living: &Living<'_>) {
        let Some(meter) = self.groups.get_mut(&id) else { return };
        let gone = meter.members().filter(|member| !(living.is_there)(member.policy));
        let gone: Vec<_> = gone.copied().collect();
        if gone.is_empty() {
            return;
        }
        let policies: BTreeSet<_> = gone.iter().map(|member| member.policy).collect();
        let mut last = meter.clone();
        last.buckets.iter_mut().for_each(BucketMeter::lose_track);
        meter.left.extend(&policies);
        add_copied(&mut self.settled, &last, |policy| policies.contains(&policy));
        self.count_out(&gone);
        self.incomplete.extend(policies);
    }
}

impl GroupMeter {
    fn has_waiting(&self) -> bool {
        let counts = self.key.members.is_empty() || self.members().next().is_some();
        counts && self.buckets.iter().any(|bucket| bucket.queued() > 0)
    }

    /// Whether a policy that stays needs its counts.
    fn is_needed(&self, living: &Living<'_>) -> bool {
        match self.key.carried_tag() {
            Some(tag) => (living.is_used)(tag),
            None => self.members().any(|member| (living.is_there)(member.policy)),
        }
    }
}

/// Maximum kept groups of a switch: a few for each full file, and a small part of the groups that a
/// switch may have.
const MAX_KEPT: usize = 1024;
