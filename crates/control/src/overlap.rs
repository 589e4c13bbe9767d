//! Overlapping policies: which frames are copied to whom.
//!
//! A frame may match several policies, but only one rule of a table. Each policy is cells in layers
//! ([`Cells`]): of those that a frame is in, the highest ones say whether it matches. The cells of
//! different policies are closed under intersection: each region of the closure says "these frames
//! match exactly these policies, unless a region that lies deeper says otherwise". Its *depth* is
//! the sum of the levels that its policies have there, so rules prioritised by depth find one where
//! each policy has the highest level that it has for the frame: what that rule says is true of all
//! policies, and the frame is copied once to each distinct monitor of those that it matches.
//!
//! Two regions of one depth may overlap; then they say the same of the frames in both. Regions of
//! one policy need not be intersected with each other. A region may have no members: its frames are
//! excepted from what is around it, and forwarded as without policies.
//!
//! In the worst case `n` policies make `2^n` regions. The closure is bounded: a policy that would
//! burst the bound is refused as a whole. Adding one costs, for each of its cells, a pass over the
//! regions of the same sender and those of any, and what is new a pass over such policies.
//!
//! **Wide policies** need less: what they have in common with regions whose frames have just their
//! monitors gets no region of its own. Those frames are copied all the same, but count for one of
//! the policies only, so it is a last resort. When such a region becomes another's, what is missing
//! then is added ([`Closure::mend`]).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tapswitch_openflow::{DatapathId, Delivery};

mod senders;

use crate::BudgetError;
use crate::exit::Exit;
use crate::policy::Part;
use crate::region::{Cells, Region};
use crate::shared::Forked;
use crate::text::fnv_1a;
pub(crate) use senders::Senders;

/// A policy by its number, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyId(pub(crate) u64);

/// A policy and where its copies go: one for each of its monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member {
    pub(crate) policy: PolicyId,
    pub(crate) aim: Aim,
    /// As in [`Tap`].
    pub(crate) delivery: Option<Delivery>,
    /// As in [`Tap`].
    pub(crate) part: Part,
}

/// One of the monitors of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    /// Which one, in the order of the policy.
    pub(crate) monitor: u8,
    /// Which of those at several switches that share flows, from 1 in their order. They are told
    /// apart where copies are made; others have 0, those that share flows at one switch too.
    pub(crate) share: u8,
}

impl Slot {
    pub(crate) const MIN: Self = Self::only(0);
    pub(crate) const MAX: Self = Self { monitor: u8::MAX, share: u8::MAX };

    /// One that shares its flows with no other switch.
    pub(crate) const fn only(monitor: u8) -> Self {
        Self { monitor, share: 0 }
    }
}

/// Where copies for a monitor leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Aim {
    pub(crate) slot: Slot,
    pub(crate) exit: Exit,
    /// The identifier of the copies on their way to another switch; 0 for a port of this one.
    pub(crate) tag: u16,
    /// Nothing but copies reaches the monitor: floods do not.
    pub(crate) is_sink: bool,
}

/// A policy where it is applied: on the switch where its monitor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tap {
    pub(crate) id: PolicyId,
    pub(crate) name: Arc<str>,
    /// The monitors, in the order of their slots.
    pub(crate) aims: Vec<Aim>,
    /// Lower ones give way where there is no room for all.
    pub(crate) priority: u8,
    /// What its copies are owed; none where the switch has no word for it.
    pub(crate) delivery: Option<Delivery>,
    /// How much of the frames is copied, and in what form; as far as the switch has words for it.
    pub(crate) part: Part,
    /// Its frames are copied where they go out to their host, whatever way they came.
    pub(crate) is_at_destination: bool,
    /// What it matches.
    pub(crate) cells: Arc<Cells>,
    /// There is no room for all that it has in common with others.
    pub(crate) is_wide: bool,
}

impl Member {
    /// Whether both are copies of one policy for one monitor, or for those that share its flows.
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        let whose = |member: &Self| (member.policy, member.aim.slot.monitor);
        whose(self) == whose(other)
    }
}

impl Tap {
    fn members(&self) -> impl Iterator<Item = Member> {
        let Self { id: policy, delivery, part, .. } = *self;
        self.aims.iter().map(move |aim| Member { policy, aim: *aim, delivery, part })
    }

    /// The same as a wide one, if it can be one: it excepts nothing, and its monitors share no
    /// flows.
    pub(crate) fn widened(&self) -> Option<Self> {
        let can_be = !self.is_wide && self.cells.is_plain() && self.copies().is_some();
        can_be.then(|| Self { is_wide: true, ..self.clone() })
    }

    /// Whether the same frames are copied in the same form, wherever they go.
    pub(crate) fn copies_as(&self, other: &Self) -> bool {
        let terms = |tap: &Self| (tap.delivery, tap.part, tap.priority, tap.is_at_destination);
        self.cells == other.cells && terms(self) == terms(other)
    }

    /// As [`TapRegion::copies`].
    fn copies(&self) -> Option<Copies> {
        copies(self.members())
    }
}

/// Where copies go, and in what form, each once and in order: whatever is the same of two policies
/// of one monitor.
type Copies = Arc<[(Exit, Option<Delivery>, Part)]>;

/// The copies that are made for all of these; `None` where a switch picks some of them.
fn copies(members: impl IntoIterator<Item = Member>) -> Option<Copies> {
    let copy = |member: Member| {
        let Member { aim: Aim { slot, exit, .. }, delivery, part, .. } = member;
        (slot.share == 0 && exit.spread.is_none()).then_some((exit, delivery, part))
    };
    let copies: BTreeSet<_> = members.into_iter().map(copy).collect::<Option<_>>()?;
    Some(copies.into_iter().collect())
}

/// One region of the closure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TapRegion {
    pub(crate) region: Region,
    /// The sum of the levels of the policies around it, at least one.
    pub(crate) depth: u16,
    /// The policies that its frames match, in order.
    pub(crate) members: Arc<[Member]>,
    /// The policies around it that it is excepted from, in order.
    pub(crate) excepted: Arc<[PolicyId]>,
    /// A number of the members' names, the same in each life of the controller.
    pub(crate) mark: u32,
    /// Which of two priorities its rules have. It turns when copies go to other monitors than those
    /// of the rules that are there, whose last counters are those others': new rules come beside
    /// them, and no frame misses either.
    pub(crate) is_turned: bool,
    /// The copies that are made of its frames, where that is all that is to be known of it: nothing
    /// is excepted from it, nor are there layers. Each wide policy that comes asks for it.
    pub(crate) copies: Option<Copies>,
}

impl TapRegion {
    /// Whether its rules are in the place of those of `old`, but for other monitors.
    fn replaces(&self, old: &Self) -> bool {
        self.depth == old.depth && !have_same_monitors(&self.members, &old.members)
    }
}

/// The policies' monitors, in order; those that share flows are one.
pub(crate) fn monitors_of(members: &[Member]) -> impl Iterator<Item = (PolicyId, u8)> {
    let aims = members.chunk_by(Member::shares_with).filter_map(<[_]>::first);
    aims.map(|member| (member.policy, member.aim.slot.monitor))
}

/// Whether the same policies have the same monitors.
pub(crate) fn have_same_monitors(a: &[Member], b: &[Member]) -> bool {
    monitors_of(a).eq(monitors_of(b))
}

/// How much one switch may be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Which one.
    pub(crate) switch: DatapathId,
    pub(crate) max_regions: usize,
    /// Rules that may be added.
    pub(crate) rules_left: usize,
}

/// The regions of all policies and of their overlaps. It does not depend on the order in which
/// policies came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closure {
    taps: Forked<PolicyId, Tap>,
    regions: Forked<Region, TapRegion>,
    /// The wide ones.
    wide: BTreeSet<PolicyId>,
    /// Both by who sends their frames.
    taps_of: Senders<PolicyId>,
    regions_of: Senders<Region>,
    /// What regions were before they changed, since that was taken.
    before: HashMap<Region, Option<TapRegion>>,
}

/// What a policy takes beside others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needed {
    /// The regions that it adds.
    pub(crate) regions: Vec<Region>,
    /// The rules that it adds, at those and at others whose frames it is the first to copy.
    pub(crate) rules: usize,
}

/// A region that came, went or became another's: before, and now.
pub(crate) type Change = (Option<TapRegion>, Option<TapRegion>);

impl Closure {
    /// Adds a policy, if it fits.
    #[cfg(test)]
    pub(crate) fn add(
        &mut self,
        tap: Tap,
        budget: Budget,
        rule_count: impl Fn(&Region) -> usize,
    ) -> Result<(), BudgetError> {
        let needed = self.check(&tap, budget, rule_count)?;
        self.insert(tap, needed.regions);
        Ok(())
    }

    /// Adds a policy with the regions that [`Self::check`] found that it adds.
    pub(crate) fn insert(&mut self, tap: Tap, new: Vec<Region>) {
        for region in new {
            let new = self.overlap_of_all(region);
            self.set(region, Some(new));
        }
        let id = tap.id;
        tap.cells.regions().for_each(|own| self.taps_of.insert(&own, id));
        self.wide.extend(tap.is_wide.then_some(id));
        self.taps.insert(id, tap);
        for inner in self.inside(id) {
            let around = self.around(&inner).map(|tap| tap.id).chain([id]).collect();
            self.refresh(inner.region, &around);
        }
    }

    /// What a policy would add, if that fits the budget. `rule_count` says how many rules a region
    /// makes: those for anywhere, and one for each host that it reaches.
    pub(crate) fn check(
        &self,
        tap: &Tap,
        budget: Budget,
        rule_count: impl Fn(&Region) -> usize,
    ) -> Result<Needed, BudgetError> {
        let (max, mut new, mut woken) = (budget.max_regions, HashSet::new(), HashSet::new());
        let spared = if tap.is_wide { tap.copies() } else { None };
        let is_spared = |other: &Region| match &spared {
            Some(copies) => self.makes(other, tap.id, copies),
            None => false,
        };
        let unknown = |region: &Region| !self.regions.contains_key(region);
        // Its frames were excepted by all, so that it has no rules that copy.
        let is_idle = |region: &Region| {
            self.regions.get(region).is_some_and(|known| known.members.is_empty())
                && tap.cells.includes(region)
        };
        new.extend(tap.cells.regions().filter(unknown));
        let (used, needed) = (self.regions.len(), new.len());
        if needed > 0 && used + needed > max {
            return Err(BudgetError::Full { switch: budget.switch, used, needed, max });
        }
        for own in tap.cells.regions() {
            // Almost all regions are told apart by having nothing in common.
            let near = self.regions_of.near(&own);
            let near = near.filter_map(|other| Some((other, own.intersect(&other)?)));
            let overlaps = near.filter(|(other, _)| !is_spared(other)).map(|(_, both)| both);
            for region in overlaps {
                if is_idle(&region) {
                    woken.insert(region);
                } else if unknown(&region) {
                    new.insert(region);
                }
                // At once: where there is no room, there may be very many.
                if used + new.len() > max {
                    return Err(BudgetError::Regions { max });
                }
            }
        }
        let rules = new.iter().chain(&woken).map(rule_count).sum();
        match rules <= budget.rules_left {
            true => Ok(Needed { regions: new.into_iter().collect(), rules }),
            false => Err(BudgetError::Rules { left: budget.rules_left, needed: rules }),
        }
    }

    /// Whether frames of a region are copied just so, or a wide policy is around it anyway.
    fn makes(&self, region: &Region, wide: PolicyId, copies: &Copies) -> bool {
        self.regions.get(region).is_some_and(|tap| {
            let is_around = || tap.members.iter().any(|member| member.policy == wide);
            tap.copies.as_ref() == Some(copies) || is_around()
        })
    }

    /// Adds the regions that wide policies need, since others went or have other monitors. Returns
    /// those policies for which there is no room any more; they are gone. It is for what changed
    /// since changes were taken last, and looks at nothing else.
    pub(crate) fn mend(
        &mut self,
        budget: Budget,
        rule_count: impl Fn(&Region) -> usize,
    ) -> Vec<PolicyId> {
        let mut gone = Vec::new();
        let mut changed: BTreeSet<_> = match self.wide.is_empty() {
            true => BTreeSet::new(),
            false => self.before.keys().copied().collect(),
        };
        while let Some(region) = changed.pop_first() {
            for id in self.wide_near(&region) {
                match self.missing_of(id, &region, budget, &rule_count) {
                    Ok(missing) => {
                        for region in missing {
                            let new = self.overlap_of_all(region);
                            self.set(region, Some(new));
                            changed.insert(region);
                        }
                    }
                    Err(_) => {
                        changed.extend(self.inside(id).into_iter().map(|inner| inner.region));
                        self.remove(id);
                        gone.push(id);
                    }
                }
            }
        }
        gone
    }

    /// Wide policies that may have frames in common with a region.
    fn wide_near(&self, region: &Region) -> BTreeSet<PolicyId> {
        self.taps_of.near(region).filter(|id| self.wide.contains(id)).collect()
    }

    /// What a wide policy has in common with a region that changed, and needs; all that it needs if
    /// the region is its own, for it may have other monitors now.
    fn missing_of(
        &self,
        id: PolicyId,
        region: &Region,
        budget: Budget,
        rule_count: impl Fn(&Region) -> usize,
    ) -> Result<Vec<Region>, BudgetError> {
        let Some(tap) = self.taps.get(&id) else { return Ok(Vec::new()) };
        let is_own = tap.cells.regions().any(|own| own == *region);
        let is_spared = || {
            !self.regions.contains_key(region)
                || tap.copies().is_some_and(|copies| self.makes(region, id, &copies))
        };
        match is_own || !is_spared() {
            true => Ok(self.check(tap, budget, rule_count)?.regions),
            false => Ok(Vec::new()),
        }
    }

    /// Takes a policy away, and the regions that were there because of it.
    pub(crate) fn remove(&mut self, policy: PolicyId) {
        self.wide.remove(&policy);
        let affected = self.inside(policy);
        if let Some(tap) = self.taps.remove(&policy) {
            tap.cells.regions().for_each(|own| self.taps_of.remove(&own, policy));
        }
        for region in affected {
            let around: BTreeSet<_> = self.around(&region).map(|tap| tap.id).collect();
            match self.is_overlap(&region.region, &around) {
                true => self.refresh(region.region, &around),
                false => self.set(region.region, None),
            }
        }
    }

    /// A policy's monitors are elsewhere now.
    pub(crate) fn move_monitors(&mut self, policy: PolicyId, aims: &[Aim]) {
        let Some(tap) = self.taps.get_mut(&policy) else { return };
        tap.aims = aims.to_vec();
        for region in self.inside(policy) {
            let around: BTreeSet<_> = self.around(&region).map(|tap| tap.id).collect();
            self.refresh(region.region, &around);
        }
    }

    /// Which of the policies gives way first: the newest of those of the lowest priority.
    pub(crate) fn first_to_give_way(&self) -> Option<(u8, PolicyId)> {
        let taps = self.taps.values().map(|tap| (tap.priority, Reverse(tap.id)));
        taps.min().map(|(priority, Reverse(id))| (priority, id))
    }

    /// What came, went or changed since changes were taken last: before, and now.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (Option<&TapRegion>, Option<&TapRegion>)> {
        self.before.iter().map(|(region, old)| (old.as_ref(), self.regions.get(region)))
    }

    /// What came, went or changed since this was asked last.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let before = std::mem::take(&mut self.before).into_iter();
        let changes = before.map(|(region, old)| (old, self.regions.get(&region).cloned()));
        changes.filter(|(old, new)| old != new).collect()
    }

    /// The policies.
    pub(crate) const fn taps(&self) -> &Forked<PolicyId, Tap> {
        &self.taps
    }

    /// The wide ones of them.
    pub(crate) fn wide(&self) -> Vec<PolicyId> {
        self.wide.iter().copied().collect()
    }

    /// How many regions there are.
    pub(crate) const fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// All regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &TapRegion> {
        self.regions.values()
    }

    /// The regions that a policy says something about.
    fn inside(&self, policy: PolicyId) -> Vec<TapRegion> {
        let Some(tap) = self.taps.get(&policy) else {
            return Vec::new();
        };
        let near = self.regions_of.near_any(tap.cells.regions());
        let inside: BTreeSet<_> = near.filter(|inner| tap.cells.level_in(inner) > 0).collect();
        inside.iter().filter_map(|inner| self.regions.get(inner).cloned()).collect()
    }

    /// A region with those of the policies that its frames match.
    fn overlap_of_all(&self, region: Region) -> TapRegion {
        let near = self.taps_of.near(&region).filter_map(|id| self.taps.get(&id));
        let around = near.filter(|tap| tap.cells.level_in(&region) > 0).map(|tap| tap.id);
        self.region_around(region, &around.collect())
    }

    /// Makes a region that of these policies, which are around it.
    fn refresh(&mut self, region: Region, around: &BTreeSet<PolicyId>) {
        let new = self.region_around(region, around);
        self.set(region, Some(new));
    }

    /// What policies make of a region that they are around.
    fn region_around(&self, region: Region, around: &BTreeSet<PolicyId>) -> TapRegion {
        let (mut depth, mut members, mut excepted, mut names) = (0u16, vec![], vec![], vec![]);
        for tap in around.iter().filter_map(|id| self.taps.get(id)) {
            depth = depth.saturating_add(tap.cells.level_in(&region));
            match tap.cells.includes(&region) {
                true => {
                    members.extend(tap.members());
                    names.push(&*tap.name);
                }
                false => excepted.push(tap.id),
            }
        }
        names.sort_unstable();
        let mark = hash(&names);
        // One that is excepted has a level, too, and so have layers below.
        let is_plain = names.len() == usize::from(depth);
        let copies = if is_plain { copies(members.iter().copied()) } else { None };
        let (members, excepted) = (members.into(), excepted.into());
        TapRegion { region, depth, members, excepted, mark, is_turned: false, copies }
    }

    /// Whether the region is what cells of these policies have in common, one of each.
    fn is_overlap(&self, region: &Region, around: &BTreeSet<PolicyId>) -> bool {
        let mut common = HashSet::from([Region::default()]);
        for tap in around.iter().filter_map(|id| self.taps.get(id)) {
            let own: Vec<_> = tap.cells.regions().filter(|own| own.covers(region)).collect();
            let pairs = common.iter().flat_map(|a| own.iter().filter_map(|b| a.intersect(b)));
            common = pairs.collect();
        }
        !around.is_empty() && common.contains(region)
    }

    /// The policies around a region that are still there.
    fn around<'a>(&'a self, region: &'a TapRegion) -> impl Iterator<Item = &'a Tap> {
        let members = region.members.chunk_by(|a, b| a.policy == b.policy);
        let members = members.filter_map(|members| Some(members.first()?.policy));
        let ids = members.chain(region.excepted.iter().copied());
        ids.filter_map(|id| self.taps.get(&id))
    }

    fn set(&mut self, region: Region, new: Option<TapRegion>) {
        let told =
            self.before.get(&region).map_or_else(|| self.regions.get(&region), Option::as_ref);
        let new = new.map(|new| {
            let is_turned = told.is_some_and(|told| told.is_turned != new.replaces(told));
            TapRegion { is_turned, ..new }
        });
        let old = match new {
            Some(new) => {
                self.regions_of.insert(&region, region);
                self.regions.insert(region, new)
            }
            None => {
                self.regions_of.remove(&region, region);
                self.regions.remove(&region)
            }
        };
        self.before.entry(region).or_insert(old);
    }
}

/// 32 bits of the names. Two sets of names may share a number: it is for people who read a switch's
/// rules, nothing rests on it.
fn hash(names: &[&str]) -> u32 {
    fnv_1a(names.iter().flat_map(|name| name.bytes().chain([0])))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use tapswitch_openflow::PortNo;

    use super::*;
    use crate::family::Family;
    use crate::region::Frames;
    use crate::region::frames_for_tests::{Expr, expr, keys};

    const BUDGET: Budget = Budget { switch: DatapathId(1), max_regions: 100, rules_left: 1000 };

    fn tap(id: u64, monitor: u32, regions: &[Region]) -> Tap {
        Tap {
            id: PolicyId(id),
            name: format!("p{id}").into(),
            priority: 0,
            aims: vec![aim(monitor)],
            delivery: None,
            part: Part::default(),
            is_at_destination: false,
            cells: Cells::union(regions.iter().copied()).into(),
            is_wide: false,
        }
    }

    fn aim(monitor: u32) -> Aim {
        let exit = Exit::here(PortNo(monitor));
        Aim { slot: Slot::only(0), exit, tag: 0, is_sink: false }
    }

    fn tcp() -> Region {
        Region { family: Some(Family::Ipv4), proto: Some(6), ..Region::default() }
    }

    fn from(prefix: &str) -> Region {
        let src_ip = Some(prefix.parse().unwrap());
        Region { family: Some(Family::Ipv4), src_ip, ..Region::default() }
    }

    fn close(taps: &[Tap]) -> Closure {
        let mut closure = Closure::default();
        for tap in taps {
            closure.add(tap.clone(), BUDGET, |_| 0).unwrap();
        }
        closure
    }

    fn region(closure: &Closure, region: Region) -> &TapRegion {
        closure.regions.get(&region).unwrap()
    }

    fn ids(region: &TapRegion) -> Vec<u64> {
        region.members.iter().map(|member| member.policy.0).collect()
    }

    #[test]
    fn an_overlap_belongs_to_both_and_lies_deeper() {
        let closure = close(&[tap(1, 3, &[tcp()]), tap(2, 4, &[from("10.0.0.0/8")])]);
        assert_eq!(closure.regions.len(), 3);
        let both = region(&closure, tcp().intersect(&from("10.0.0.0/8")).unwrap());
        assert_eq!((ids(both), both.depth), (vec![1, 2], 2));
        let ports = both.members.iter().map(|member| member.aim.exit.port.0);
        assert_eq!(ports.collect::<Vec<_>>(), [3, 4]);
        assert_eq!(ids(region(&closure, tcp())), [1]);
    }

    #[test]
    fn a_policy_inside_another_makes_no_third_region() {
        let taps = [tap(1, 3, &[from("10.0.0.0/8")]), tap(2, 3, &[from("10.1.0.0/16")])];
        let closure = close(&taps);
        assert_eq!(closure.regions.len(), 2);
        let inner = region(&closure, from("10.1.0.0/16"));
        assert_eq!((ids(inner), inner.depth), (vec![1, 2], 2));
    }

    #[test]
    fn both_ways_of_one_policy_need_no_third_region() {
        let there = from("10.0.0.0/8");
        let closure = close(&[tap(1, 3, &[there, there.reversed()]), tap(2, 3, &[tcp()])]);
        assert_eq!(closure.regions.len(), 5);
        assert!(closure.regions().all(|region| region.depth < 3));
    }

    #[test]
    fn an_exception_is_deeper_and_has_no_members() {
        let some = tap(1, 3, &[]);
        let frames = Frames::without(from("10.0.0.0/8"), [tcp()]).unwrap();
        let some = Tap { cells: Cells::new(&frames).unwrap().into(), ..some };
        let closure = close(&[some, tap(2, 4, &[tcp()])]);
        let inner = region(&closure, tcp().intersect(&from("10.0.0.0/8")).unwrap());
        assert_eq!((ids(inner), &*inner.excepted, inner.depth), (vec![2], &[PolicyId(1)][..], 3));
        assert_eq!((closure.regions.len(), ids(region(&closure, tcp()))), (3, vec![2]));
    }

    #[test]
    fn a_policy_beyond_the_budget_leaves_everything_as_it_was() {
        let mut closure = close(&[tap(1, 3, &[tcp()])]);
        closure.take_changes();
        let two = tap(2, 4, &[from("10.0.0.0/8"), from("11.0.0.0/8")]);
        let few = Budget { max_regions: 3, ..BUDGET };
        let refused = closure.add(two.clone(), few, |_| 0);
        assert_eq!(refused, Err(BudgetError::Regions { max: 3 }));
        let few = Budget { max_regions: 2, ..BUDGET };
        let refused = closure.add(two.clone(), few, |_| 0).unwrap_err();
        let told = "switch 0x1 has 1 of 2 combinations in use, and this policy takes 2 more; \
                    delete some policies, or give this one fewer ports and addresses";
        assert_eq!(refused.to_string(), told);
        let few = Budget { rules_left: 10, ..BUDGET };
        let refused = closure.add(two, few, |_| 5);
        assert_eq!(refused, Err(BudgetError::Rules { left: 10, needed: 20 }));
        assert_eq!((closure.taps().len(), closure.take_changes()), (1, vec![]));
    }

    #[test]
    fn wide_policies_share_what_has_their_monitors() {
        let (a, b) = (from("10.0.0.0/8"), tcp());
        let both = a.intersect(&b).unwrap();
        let wide = |id, monitor, region| tap(id, monitor, &[region]).widened().unwrap();
        let mut closure = close(&[tap(1, 3, &[a]), wide(2, 3, b)]);
        assert_eq!((closure.regions.len(), closure.mend(BUDGET, |_| 0)), (2, vec![]));
        closure.move_monitors(PolicyId(1), &[aim(4)]);
        assert_eq!(
            (closure.mend(BUDGET, |_| 0), ids(region(&closure, both))),
            (vec![], vec![1, 2])
        );
        closure.remove(PolicyId(1));
        assert_eq!(closure.regions.len(), 1);
        assert_eq!(close(&[tap(1, 4, &[a]), wide(2, 3, b)]).regions.len(), 3);
        let mut closure = close(&[tap(1, 3, &[a]), wide(2, 3, b)]);
        closure.move_monitors(PolicyId(1), &[aim(4)]);
        let none = Budget { max_regions: 2, ..BUDGET };
        assert_eq!(closure.mend(none, |_| 0), [PolicyId(2)]);
        assert_eq!((closure.taps().len(), closure.regions.len()), (1, 1));
    }

    #[test]
    fn changes_tell_what_was_before() {
        let mut closure = close(&[tap(1, 3, &[tcp()])]);
        let [(None, Some(new))] = &closure.take_changes()[..] else { panic!() };
        assert_eq!((new.region, new.depth), (tcp(), 1));
        closure.add(tap(2, 4, &[tcp()]), BUDGET, |_| 0).unwrap();
        closure.move_monitors(PolicyId(2), &[aim(5)]);
        let [(Some(old), Some(new))] = &closure.take_changes()[..] else { panic!() };
        assert_eq!((old.depth, new.depth, new.members[1].aim), (1, 2, aim(5)));
        closure.remove(PolicyId(2));
        closure.add(tap(2, 5, &[tcp()]), BUDGET, |_| 0).unwrap();
        assert_eq!(closure.take_changes(), []);
    }

    #[test]
    fn marks_depend_on_names_alone() {
        let mark = |a: &[Tap]| region(&close(a), tcp()).mark;
        let (p, q) = (tap(1, 3, &[tcp()]), tap(2, 4, &[tcp()]));
        let renumbered = Tap { id: PolicyId(9), ..p.clone() };
        assert_eq!(mark(&[p.clone(), q.clone()]), mark(&[q.clone(), renumbered]));
        assert_ne!(mark(&[p]), mark(&[q]));
    }

    fn tap_of(id: u64, expr: &Expr) -> Option<Tap> {
        let cells = Cells::new(&expr.frames().ok()?).ok()?;
        Some(Tap { cells: cells.into(), ..tap(id, 3, &[]) })
    }

    proptest! {
        /// However policies came and went, the closure is that of those that are there: all
        /// intersections of one cell each of some of them. For each frame, all of the deepest
        /// regions that it is in name exactly the policies that it matches.
        #[test]
        fn the_closure_is_that_of_what_is_there(
            steps in vec((any::<bool>(), 0..4u64, expr()), 1..10),
        ) {
            let mut closure = Closure::default();
            let mut there: BTreeMap<u64, Expr> = BTreeMap::new();
            for (adds, id, expr) in steps {
                closure.remove(PolicyId(id));
                there.remove(&id);
                // Too many overlaps are refused as a whole.
                if let Some(tap) = tap_of(id, &expr).filter(|_| adds)
                    && closure.add(tap, BUDGET, |_| 0).is_ok()
                {
                    there.insert(id, expr);
                }
            }
            let mut expected: HashSet<Region> = HashSet::new();
            for tap in closure.taps.values() {
                let own = || tap.cells.regions();
                let pairs = own().flat_map(|own| expected.iter().map(move |other| (own, other)));
                let overlaps: Vec<_> = pairs.filter_map(|(own, a)| a.intersect(&own)).collect();
                expected.extend(overlaps.into_iter().chain(own()));
            }
            prop_assert_eq!(closure.regions.keys().copied().collect::<HashSet<_>>(), expected);
            for key in keys() {
                let matching = there.iter().filter(|(_, expr)| expr.contains(&key));
                let matched: Vec<_> = matching.map(|(id, _)| *id).collect();
                let around = closure.regions().filter(|tap| tap.region.contains(&key));
                let around: Vec<_> = around.collect();
                let deepest = around.iter().map(|tap| tap.depth).max();
                prop_assert!(deepest.is_some() || matched.is_empty());
                for tap in around.iter().filter(|tap| Some(tap.depth) == deepest) {
                    prop_assert_eq!(ids(tap), matched.clone(), "{:?}", tap);
                }
            }
        }

        /// Wide policies have fewer regions, but all frames are copied to all monitors: of the
        /// deepest regions that a frame is in, all name the same ones.
        #[test]
        fn wide_policies_copy_as_others_do(
            steps in vec((0..4u8, 0..4u64, vec(3..5u32, 1..3), any::<bool>(), expr()), 1..12),
        ) {
            let mut closure = Closure::default();
            let mut there: BTreeMap<u64, (Expr, Vec<u32>)> = BTreeMap::new();
            for (step, id, monitors, is_wide, expr) in steps {
                let aims: Vec<_> = (0..).zip(&monitors).map(|(slot, port)| {
                    Aim { slot: Slot::only(slot), ..aim(*port) }
                }).collect();
                if step == 0 {
                    closure.move_monitors(PolicyId(id), &aims);
                    there.entry(id).and_modify(|(_, own)| own.clone_from(&monitors));
                } else {
                    closure.remove(PolicyId(id));
                    there.remove(&id);
                }
                prop_assert_eq!(closure.mend(BUDGET, |_| 0), vec![]);
                if let Some(tap) = tap_of(id, &expr).filter(|_| step > 1) {
                    let tap = Tap { aims, ..tap };
                    let wide = tap.widened().filter(|_| is_wide);
                    if closure.add(wide.unwrap_or(tap), BUDGET, |_| 0).is_ok() {
                        there.insert(id, (expr, monitors));
                    }
                }
                for key in keys() {
                    let matching = there.iter().filter(|(_, (expr, _))| expr.contains(&key));
                    let wanted: BTreeSet<_> = matching.flat_map(|(_, (_, own))| own).collect();
                    let around: Vec<_> =
                        closure.regions().filter(|tap| tap.region.contains(&key)).collect();
                    let deepest = around.iter().map(|tap| tap.depth).max();
                    prop_assert!(deepest.is_some() || wanted.is_empty());
                    for tap in around.iter().filter(|tap| Some(tap.depth) == deepest) {
                        let ports = tap.members.iter().map(|member| &member.aim.exit.port.0);
                        let ports: BTreeSet<_> = ports.collect();
                        prop_assert_eq!(&ports, &wanted, "{:?}", tap);
                    }
                }
            }
        }
    }
}
