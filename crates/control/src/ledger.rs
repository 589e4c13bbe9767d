//! Ledger of one switch: frames matched by each policy, and copies to each monitor.
//!
//! OpenFlow counts per rule and per bucket. The *matched* frames of a policy are those of all rules
//! whose frames match it; its *copied* frames, by monitor, are those of the buckets that reach the
//! monitor in the groups of these rules. Each frame that hits a rule passes its group, so at rest
//! both numbers are equal. (A frame sent by the monitor itself counts in both but is not delivered:
//! OpenFlow sends nothing back to the ingress port.)
//!
//! A tapswitch also reports the outcome of copies: delivered, queued, or dropped for a reason.
//! Flooded frames are listed separately: they reach the monitor as the original, and their outcome
//! at a single port is only in that port's counters. Of other switches it is only known that they
//! handed a copy to the monitor's port.
//!
//! **No counts are lost when rules are deleted.** The switch reports the last counters of a deleted
//! rule (flow-removed); a group is deleted after its counters were read and none of its copies is
//! queued. Until then they are *closing*. Afterwards they are *settled*: added to their policies'
//! tallies and forgotten. The queue of a policy that stays may take its time ([`kept`]). Copies
//! still queued when their group, their policy or the switch is gone are dropped with an unknown
//! outcome.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::AddAssign;
use std::sync::Arc;

use tapswitch_openflow::multipart::FlowStats;
use tapswitch_openflow::{FlowRemoved, GroupId, PortNo};

mod bucket;
mod kept;
mod reading;

use crate::exit::Exit;
use crate::group::{GroupKey, Path};
use crate::hash::Map;
use crate::overlap::{Aim, Member, PolicyId, Slot, have_same_monitors, monitors_of};
use crate::report::Counts;
use crate::rule::FlowId;
use crate::{Millis, Ticket};
use bucket::BucketMeter;
pub(crate) use bucket::{BucketValue, Copies, OUTCOME_UNKNOWN};
pub(crate) use kept::Living;
use reading::Reading;

/// Frames matched and copied for one policy on one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) matched: Counts,
    /// Matched packets by monitor, since each became one.
    pub(crate) monitors: BTreeMap<u8, Span>,
    pub(crate) copies: BTreeMap<Way, Copies>,
    /// Whether a rule has matched frames lately, or may have.
    pub(crate) is_moving: bool,
}

/// Bounds of the packets that had been matched when the copies were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Span {
    /// Whether `count` is within the bounds.
    pub(crate) const fn contains(self, count: u64) -> bool {
        self.least <= count && count <= self.most
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        self.least = self.least.saturating_add(other.least);
        self.most = self.most.saturating_add(other.most);
    }
}

/// Path of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Way {
    /// The policy's monitor.
    pub(crate) slot: Slot,
    pub(crate) exit: Exit,
    /// Their identifier in transit; `None` at a port of the switch itself, and for originals that
    /// reach the monitor anyway.
    pub(crate) tag: Option<u16>,
}

/// Counters of one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    rules: Map<Arc<FlowId>, RuleMeter>,
    /// Deleted rules whose last counters are outstanding, oldest first: a rule may be added and
    /// deleted again meanwhile.
    closing: Map<Arc<FlowId>, VecDeque<Closing>>,
    groups: Map<GroupId, GroupMeter>,
    settled: HashMap<PolicyId, Tally>,
    /// Copies in transit carried by deleted groups, by identifier and port.
    carried: HashMap<u16, BTreeMap<PortNo, Copies>>,
    /// Number of the above rules and groups of each policy.
    open_counts: Map<PolicyId, usize>,
    /// Groups that carry copies in transit, by identifier.
    carrying: HashMap<u16, BTreeSet<GroupId>>,
    /// Unused groups whose queued copies are waited for as long as it takes.
    kept: BTreeSet<GroupId>,
    /// Policies and identifiers that nothing counts for any more, since last taken.
    ends: (Vec<PolicyId>, Vec<u16>),
    /// Policies with last counters that never arrived.
    incomplete: HashSet<PolicyId>,
    /// Time of the last round of counters.
    read_at: Millis,
}

#[derive(Clone, Debug)]
struct RuleMeter {
    members: Arc<[Member]>,
    reading: Reading,
    asked: Asked,
    /// Time of the round in which its counter was first read, or last found changed.
    moved_at: Option<Millis>,
}

/// Which replies apply to a rule or group.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// When it was created: replies to older requests do not apply.
    born: Ticket,
    /// The latest request that was answered.
    read: Ticket,
}

#[derive(Clone, Debug)]
struct Closing {
    members: Arc<[Member]>,
    reading: Reading,
    since: Millis,
}

#[derive(Clone, Debug)]
struct GroupMeter {
    key: Arc<GroupKey>,
    buckets: Vec<BucketMeter>,
    asked: Asked,
    /// Since when its last counters are awaited.
    closing_since: Option<Millis>,
    /// Whether the switch has reported, since then, that copies are queued.
    is_told_waiting: bool,
    /// Members that it no longer counts for: deleted policies whose queued copies were given up.
    left: Vec<PolicyId>,
}

impl GroupMeter {
    fn new(key: &Arc<GroupKey>, born: Ticket) -> Self {
        Self {
            key: key.clone(),
            buckets: vec![BucketMeter::default(); key.bucket_count()],
            asked: Asked::new(born),
            closing_since: None,
            is_told_waiting: false,
            left: Vec::new(),
        }
    }

    /// The members that it counts for.
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.key.members.iter().filter(|member| !self.left.contains(&member.policy))
    }
}

impl Asked {
    fn new(born: Ticket) -> Self {
        Self { born, read: Ticket::default() }
    }

    /// A reply to this request arrived. Returns whether it applies.
    fn handle_answer(&mut self, asked: Ticket) -> bool {
        let is_news = self.born.max(self.read) < asked;
        if is_news && asked != Ticket::LAST {
            self.read = asked;
        }
        is_news
    }
}

impl Ledger {
    /// Whether the rule counts for other policies than those of `key`: then it must be deleted
    /// before it is added for these, so that its last counters are reported.
    pub(crate) fn counts_for_others(&self, id: &FlowId, key: Option<&GroupKey>) -> bool {
        let members = key.map_or(&[][..], |key| &key.members);
        self.rules.get(id).is_some_and(|meter| !have_same_monitors(&meter.members, members))
    }

    /// Whether the rule counts for any policy.
    pub(crate) fn counts(&self, id: &FlowId) -> bool {
        self.rules.contains_key(id)
    }

    /// A rule is being added or replaced; if replaced, its counters continue.
    pub(crate) fn open_rule(&mut self, id: &Arc<FlowId>, key: &GroupKey, born: Ticket) {
        let members = key.members.clone();
        match self.rules.contains_key(id) {
            true => self.hand_over(id, members),
            false => {
                let (reading, asked) = (Reading::default(), Asked::new(born));
                self.insert_rule(id, RuleMeter { members, reading, asked, moved_at: None });
            }
        }
    }

    /// Takes over a rule that the switch had before. Its group's counters were read between `stats`
    /// and `later`, the packets of the second reading, if there was one. If the rule was not at
    /// rest meanwhile, the common starting point is uncertain by the difference.
    pub(crate) fn adopt_rule(
        &mut self,
        id: &Arc<FlowId>,
        key: &GroupKey,
        stats: &FlowStats,
        later: Option<Counts>,
    ) {
        let counts = Counts::known(stats.packet_count, stats.byte_count);
        let members = key.members.clone();
        match self.rules.get_mut(id) {
            Some(meter) => {
                meter.reading.handle_value(counts);
                let goes_on = have_same_monitors(&meter.members, &members);
                match later.filter(|later| !goes_on && later.packets > counts.packets) {
                    Some(later) => self.adopt_from_others(id, members, later),
                    None => self.hand_over(id, members),
                }
            }
            None => {
                let later = later.map(|later| later.packets);
                if later != Some(counts.packets) {
                    self.incomplete.extend(members.iter().map(|member| member.policy));
                }
                let reading = Reading::from_base(counts).doubted(later.unwrap_or_default());
                let asked = Asked::new(Ticket::default());
                self.insert_rule(id, RuleMeter { members, reading, asked, moved_at: None });
            }
        }
    }

    /// Hands a rule over that matched packets while its group was read. They may have been counted
    /// for the former members or for the new ones, so the counts of both are uncertain by their
    /// number.
    fn adopt_from_others(&mut self, id: &Arc<FlowId>, members: Arc<[Member]>, later: Counts) {
        let Some(meter) = self.rules.get_mut(id) else { return };
        let reading = meter.reading.continued().doubted(later.packets);
        meter.reading.handle_later_value(later);
        self.incomplete.extend(members.iter().map(|member| member.policy));
        self.hand_over(id, members);
        if let Some(meter) = self.rules.get_mut(id) {
            meter.reading = reading;
        }
    }

    /// A rule is being deleted: its last counters will follow.
    pub(crate) fn close_rule(&mut self, id: &Arc<FlowId>, since: Millis) {
        if let Some(RuleMeter { members, reading, .. }) = self.rules.remove(id) {
            let closing = Closing { members, reading, since };
            self.closing.entry(id.clone()).or_default().push_back(closing);
        }
    }

    /// The message sent as `born` failed: if it was to add the rule, the rule does not exist.
    /// Returns whether the switch may still have the rule as before.
    pub(crate) fn cancel_rule(&mut self, id: &FlowId, born: Ticket) -> bool {
        let is_older = |meter: &RuleMeter| meter.asked.born != born;
        if self.rules.get(id).is_some_and(is_older) {
            return true;
        }
        if let Some(meter) = self.rules.remove(id) {
            self.count_out(&*meter.members);
        }
        false
    }

    /// The counters that follow were read by this time.
    pub(crate) const fn begin_round(&mut self, now: Millis) {
        self.read_at = now;
    }

    /// Counters of a rule, read before those of its group; the second reading shows how much it may
    /// have matched in between.
    pub(crate) fn handle_first_rule_counts(&mut self, id: &FlowId, counts: Counts, asked: Ticket) {
        self.read_rule((id, asked), |reading| reading.handle_value(counts));
    }

    /// Counters of a rule, read after those of its group.
    pub(crate) fn handle_later_rule_counts(&mut self, id: &FlowId, counts: Counts, asked: Ticket) {
        self.read_rule((id, asked), |reading| reading.handle_later_value(counts));
    }

    /// Changes the rule's reading, if the reply applies to it.
    fn read_rule(&mut self, (id, asked): (&FlowId, Ticket), read: impl FnOnce(&mut Reading)) {
        let Some(meter) = self.rules.get_mut(id) else { return };
        if !meter.asked.handle_answer(asked) {
            return;
        }
        let before = meter.reading.total();
        read(&mut meter.reading);
        if meter.moved_at.is_none() || meter.reading.total() != before {
            meter.moved_at = Some(self.read_at);
        }
    }

    /// A rule was removed with these last counters. Returns whether we deleted it.
    pub(crate) fn handle_removed(&mut self, id: &FlowId, removed: &FlowRemoved) -> bool {
        let last = Counts::known(removed.packet_count, removed.byte_count);
        let closing = self.closing.get_mut(id).and_then(VecDeque::pop_front);
        if self.closing.get(id).is_some_and(VecDeque::is_empty) {
            self.closing.remove(id);
        }
        let was_closing = closing.is_some();
        let gone = match closing {
            Some(closing) => Some((closing.members, closing.reading)),
            None => self.rules.remove(id).map(|meter| (meter.members, meter.reading)),
        };
        if let Some((members, mut reading)) = gone {
            reading.handle_value(last);
            self.settle_rule(&members, &reading);
        }
        was_closing
    }

    /// A group is being added.
    pub(crate) fn open_group(&mut self, id: GroupId, key: &Arc<GroupKey>, born: Ticket) {
        self.count_in(&key.members);
        if let Some(old) = self.take_group(id) {
            self.settle_group(old);
        }
        if let Some(tag) = key.carried_tag() {
            self.carrying.entry(tag).or_default().insert(id);
        }
        self.groups.insert(id, GroupMeter::new(key, born));
    }

    /// Takes over a group that the switch had before. Returns whether it has counts that are not
    /// ours.
    pub(crate) fn adopt_group(
        &mut self,
        id: GroupId,
        key: &Arc<GroupKey>,
        values: &[BucketValue],
    ) -> bool {
        let is_known = self.groups.get(&id).is_some_and(|meter| meter.key == *key);
        if is_known {
            self.handle_group_values(id, values, Ticket::LAST);
            return false;
        }
        self.read_for_others(id, key, values);
        self.open_group(id, key, Ticket::default());
        if let Some(meter) = self.groups.get_mut(&id) {
            for (bucket, base) in meter.buckets.iter_mut().zip(values) {
                *bucket = BucketMeter::from_base(base);
            }
        }
        values.iter().any(|base| base.processed.packets > 0)
    }

    /// Credits the copies of a group so far to its former members, if a group with the same buckets
    /// but other members replaces it. That includes the same policies with a monitor at another
    /// port: a flooding group reaches all ports, so its buckets stay the same.
    fn read_for_others(&mut self, id: GroupId, key: &GroupKey, values: &[BucketValue]) {
        let is_same = |meter: &&GroupMeter| {
            let old = &meter.key;
            old.group_type() == key.group_type() && old.buckets(&[]) == key.buckets(&[])
        };
        if self.groups.get(&id).filter(is_same).is_some() {
            self.handle_group_values(id, values, Ticket::LAST);
        }
    }

    /// No rule uses the group any more; its last counters are requested.
    pub(crate) fn close_group(&mut self, id: GroupId, since: Millis) {
        if let Some(meter) = self.groups.get_mut(&id) {
            (meter.closing_since, meter.is_told_waiting) = (Some(since), false);
        }
    }

    /// A group was not created.
    pub(crate) fn cancel_group(&mut self, id: GroupId) {
        if let Some(meter) = self.take_group(id) {
            self.count_out(meter.members());
        }
    }

    /// Counters of a group, in reply to the request `asked`.
    pub(crate) fn handle_group_values(
        &mut self,
        id: GroupId,
        values: &[BucketValue],
        asked: Ticket,
    ) {
        if let Some(meter) = self.groups.get_mut(&id)
            && meter.asked.handle_answer(asked)
        {
            for (bucket, value) in meter.buckets.iter_mut().zip(values) {
                bucket.handle_value(value);
            }
        }
    }

    /// Whether the group carries copies in transit.
    pub(crate) fn is_carrier(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_some_and(|meter| meter.key.carried_tag().is_some())
    }

    /// Whether any copies in transit are carried.
    pub(crate) fn carries(&self) -> bool {
        !self.carrying.is_empty()
    }

    /// The last counters of a group were read, or never will be.
    pub(crate) fn finish_group(&mut self, id: GroupId) {
        if let Some(meter) = self.take_group(id) {
            self.settle_group(meter);
        }
    }

    /// The connection was lost: outstanding last counters will not arrive.
    pub(crate) fn handle_disconnected(&mut self) {
        for closing in std::mem::take(&mut self.closing).into_values().flatten() {
            self.give_up(&closing.members, &closing.reading);
        }
    }

    /// Settles rules and groups that no longer exist with their last known counters.
    pub(crate) fn retain(
        &mut self,
        has_rule: impl Fn(&FlowId) -> bool,
        has_group: impl Fn(GroupId) -> bool,
    ) {
        let lost: Vec<_> = self.rules.extract_if(|id, _| !has_rule(id)).collect();
        for (_, meter) in lost {
            self.give_up(&meter.members, &meter.reading);
        }
        let lost: Vec<_> = self.groups.keys().filter(|id| !has_group(**id)).copied().collect();
        for id in lost {
            if let Some(meter) = self.take_group(id) {
                self.give_up_group(meter);
            }
        }
    }

    /// Gives up on the last counters of rules deleted before `since`.
    pub(crate) fn give_up_before(&mut self, since: Millis) {
        let is_late = |closing: &Closing| closing.since < since;
        let mut late = Vec::new();
        for queue in self.closing.values_mut() {
            let count = queue.iter().take_while(|closing| is_late(closing)).count();
            late.extend(queue.drain(..count));
        }
        self.closing.retain(|_, queue| !queue.is_empty());
        for closing in late {
            self.give_up(&closing.members, &closing.reading);
        }
    }

    /// Forgets the tallies of all other policies, which were reported before.
    pub(crate) fn retain_policies(&mut self, is_alive: impl Fn(PolicyId) -> bool) {
        self.settled.retain(|policy, _| is_alive(*policy));
        self.incomplete.retain(|policy| is_alive(*policy));
    }

    /// Forgets a policy's tallies, which were reported before.
    pub(crate) fn forget_policy(&mut self, policy: PolicyId) {
        self.settled.remove(&policy);
        self.incomplete.remove(&policy);
    }

    /// Since when the oldest last counters are outstanding.
    pub(crate) fn closing_since(&self) -> Option<Millis> {
        let rules = self.closing.values().filter_map(VecDeque::front).map(|closing| closing.since);
        rules.chain(self.groups.values().filter_map(|meter| meter.closing_since)).min()
    }

    /// Whether anything counts for the policy, or last counters are outstanding.
    pub(crate) fn is_open(&self, policy: PolicyId) -> bool {
        self.open_counts.contains_key(&policy)
    }

    /// Ids of the groups that count.
    pub(crate) fn group_ids(&self) -> impl Iterator<Item = GroupId> {
        self.groups.keys().copied()
    }

    /// Whether anything has ever been counted for the policy.
    pub(crate) fn knows(&self, policy: PolicyId) -> bool {
        let was_open = || self.settled.contains_key(&policy) || self.incomplete.contains(&policy);
        self.is_open(policy) || was_open()
    }

    /// Policies with last counters that never arrived, or may have been lost with the connection.
    pub(crate) fn incomplete(&self, is_down: bool) -> impl Iterator<Item = PolicyId> {
        let open = is_down.then(|| self.open_counts.keys()).into_iter().flatten();
        self.incomplete.iter().chain(open).copied()
    }

    /// Whether [`Self::take_ends`] returns anything.
    pub(crate) const fn has_ends(&self) -> bool {
        !self.ends.0.is_empty() || !self.ends.1.is_empty()
    }

    /// Policies and identifiers that nothing counts for any more, since the last call.
    pub(crate) fn take_ends(&mut self) -> (Vec<PolicyId>, Vec<u16>) {
        std::mem::take(&mut self.ends)
    }

    /// Tallies of every policy, or of one.
    pub(crate) fn tallies(&self, only: Option<PolicyId>) -> HashMap<PolicyId, Tally> {
        let is_asked = |members: &[Member]| {
            only.is_none_or(|only| members.iter().any(|member| member.policy == only))
        };
        let mut tallies = match only {
            None => self.settled.clone(),
            Some(only) => {
                self.settled.get(&only).map(|tally| (only, tally.clone())).into_iter().collect()
            }
        };
        let closing = self.closing.values().flatten();
        let closing = closing.map(|closing| (&closing.members, &closing.reading, true));
        let rules = self.rules.values();
        let rules = rules.map(|meter| (&meter.members, &meter.reading, self.is_moving(meter)));
        for (members, reading, is_moving) in closing.chain(rules) {
            if is_asked(members) {
                add_matched(&mut tallies, members, (reading, is_moving));
            }
        }
        for meter in self.groups.values().filter(|meter| is_asked(&meter.key.members)) {
            add_copied(&mut tallies, meter, |policy| !meter.left.contains(&policy));
        }
        tallies.retain(|policy, _| only.is_none_or(|only| *policy == only));
        tallies
    }

    /// Whether a rule has matched frames lately, or may have.
    fn is_moving(&self, meter: &RuleMeter) -> bool {
        meter.moved_at.is_none_or(|at| self.read_at.since(at) < AT_REST_AFTER)
    }

    /// Outcome of carried copies with this identifier.
    pub(crate) fn carried(&self, tag: u16) -> Copies {
        let mut sum = Copies::default();
        self.carried_by_port(tag).values().for_each(|copies| sum += copies);
        sum
    }

    /// The same by egress port.
    pub(crate) fn carried_by_port(&self, tag: u16) -> BTreeMap<PortNo, Copies> {
        let mut sums = self.carried.get(&tag).cloned().unwrap_or_default();
        self.carriers(tag).for_each(|meter| add_carried(&mut sums, meter));
        sums
    }

    /// Whether copies with this identifier were ever carried.
    pub(crate) fn has_carried(&self, tag: u16) -> bool {
        self.carried.contains_key(&tag) || self.carrying.contains_key(&tag)
    }

    /// Whether copies with this identifier are carried, or last counters are outstanding.
    pub(crate) fn is_carrying(&self, tag: u16) -> bool {
        self.carriers(tag).next().is_some()
    }

    /// Forgets an identifier that becomes free for reuse.
    pub(crate) fn forget_carried(&mut self, tag: u16) {
        self.carried.remove(&tag);
    }

    fn carriers(&self, tag: u16) -> impl Iterator<Item = &GroupMeter> {
        self.carrying.get(&tag).into_iter().flatten().filter_map(|id| self.groups.get(id))
    }

    fn take_group(&mut self, id: GroupId) -> Option<GroupMeter> {
        let meter = self.groups.remove(&id)?;
        self.kept.remove(&id);
        if let Some(tag) = meter.key.carried_tag()
            && let Some(groups) = self.carrying.get_mut(&tag)
        {
            groups.remove(&id);
            if groups.is_empty() {
                self.carrying.remove(&tag);
                self.ends.1.push(tag);
            }
        }
        Some(meter)
    }

    fn insert_rule(&mut self, id: &Arc<FlowId>, meter: RuleMeter) {
        self.count_in(&meter.members);
        self.rules.insert(id.clone(), meter);
    }

    /// Reassigns a rule's counters to these members. If they are other policies, they start from
    /// the current values; the same policies may have other ports.
    fn hand_over(&mut self, id: &FlowId, members: Arc<[Member]>) {
        let Some(mut meter) = self.rules.remove_entry(id) else {
            return;
        };
        self.count_in(&members);
        if have_same_monitors(&meter.1.members, &members) {
            self.count_out(&*meter.1.members);
        } else {
            self.settle_rule(&meter.1.members, &meter.1.reading);
            meter.1.reading = meter.1.reading.continued();
        }
        meter.1.members = members;
        self.rules.insert(meter.0, meter.1);
    }

    fn settle_rule(&mut self, members: &[Member], reading: &Reading) {
        add_matched(&mut self.settled, members, (reading, false));
        self.count_out(members);
    }

    /// The outcome of copies still queued will not be reported.
    fn settle_group(&mut self, mut meter: GroupMeter) {
        meter.buckets.iter_mut().for_each(BucketMeter::lose_track);
        if let Some(tag) = meter.key.carried_tag() {
            add_carried(self.carried.entry(tag).or_default(), &meter);
        }
        add_copied(&mut self.settled, &meter, |policy| !meter.left.contains(&policy));
        self.count_out(meter.members());
    }

    fn give_up(&mut self, members: &[Member], reading: &Reading) {
        self.incomplete.extend(members.iter().map(|member| member.policy));
        self.settle_rule(members, reading);
    }

    fn give_up_group(&mut self, meter: GroupMeter) {
        self.incomplete.extend(meter.members().map(|member| member.policy));
        self.settle_group(meter);
    }

    fn count_in(&mut self, members: &[Member]) {
        for member in members {
            *self.open_counts.entry(member.policy).or_default() += 1;
        }
    }

    fn count_out<'a>(&mut self, members: impl IntoIterator<Item = &'a Member>) {
        for member in members {
            if let Some(count) = self.open_counts.get_mut(&member.policy) {
                *count -= 1;
                if *count == 0 {
                    self.open_counts.remove(&member.policy);
                    self.ends.0.push(member.policy);
                }
            }
        }
    }
}

fn add_matched(
    tallies: &mut HashMap<PolicyId, Tally>,
    members: &[Member],
    (reading, is_moving): (&Reading, bool),
) {
    for aims in members.chunk_by(|a, b| a.policy == b.policy) {
        let Some(first) = aims.first() else { continue };
        let tally = tallies.entry(first.policy).or_default();
        tally.matched += reading.total();
        tally.is_moving |= is_moving;
        for (_, monitor) in monitors_of(aims) {
            *tally.monitors.entry(monitor).or_default() += reading.span();
        }
    }
}

/// Adds the copies of the policies that `is_meant`.
fn add_copied(
    tallies: &mut HashMap<PolicyId, Tally>,
    meter: &GroupMeter,
    is_meant: impl Fn(PolicyId) -> bool,
) {
    let each = meter.key.bucket_of_each().into_iter();
    for (member, exit, index) in each.filter(|(member, ..)| is_meant(member.policy)) {
        let Some(bucket) = meter.buckets.get(index) else { continue };
        let Aim { slot, tag, .. } = member.aim;
        // The outcome of originals in transit is in no ledger.
        let is_path = index < meter.key.original_count();
        let is_original = is_path && (tag != 0 || matches!(meter.key.path, Path::Flood(_)));
        let copies = if is_original { bucket.copies().flooded() } else { bucket.copies() };
        let tag = meter.key.tag_of(exit).filter(|_| !is_original);
        let sums = &mut tallies.entry(member.policy).or_default().copies;
        *sums.entry(Way { slot, exit, tag }).or_default() += &copies;
    }
}

fn add_carried(sums: &mut BTreeMap<PortNo, Copies>, meter: &GroupMeter) {
    for (port, bucket) in meter.key.carry_ports().into_iter().zip(&meter.buckets) {
        *sums.entry(port).or_default() += &bucket.copies();
    }
}

/// How long a rule must not have matched anything to be at rest. Open vSwitch updates the counters
/// of rules and groups only every half second.
const AT_REST_AFTER: Millis = Millis(2000);
