//! Overlapping policies: which frames are copied to whom.
//!
//! A frame may match several policies, but only one rule of a table. Each policy is cells in layers
//! ([`Cells`]): of those that a frame is in, the highest ones say whether it matches. The cells of
//! different policies are closed under intersection: each region of the closure says "these frames
//! match exactly these policies, unless a region that lies deeper says otherwise". Its *depth* is
//! the weighted sum of the levels that its policies have there, so rules prioritised by depth find
//! one where each policy has the highest level that it has for the frame: what that rule says is
//! true of all policies, and the frame is copied once to each distinct monitor of those that it
//! matches.
//!
//! Two regions of one depth may overlap; then they say the same of the frames in both. Regions of
//! one policy need not be intersected with each other. A region may have no members: its frames are
//! excepted from what is around it, and forwarded as without policies.
//!
//! In the worst case `n` policies make `2^n` regions. The closure is bounded: a policy that would
//! burst the bound is refused as a whole. Adding one costs, for each of its cells, a pass over the
//! regions of the same sender and those of any, and what is new a pass over such policies.
//!
//! **Wide policies** need less: what they have in common with regions whose frames go to their
//! monitors anyway gets no region of its own, whatever other monitors those have. The frames are
//! copied all the same, but do not count for each of the wide policies, so it is a last resort.
//! When such a region becomes another's, what is missing then is added ([`Closure::mend`]).
//!
//! So the regions that a frame is in need not have one of all wide policies that it matches, but
//! have one of all others, and of those one from which all copies are made. That one is to be the
//! deepest: a wide policy adds no levels, but one for each copy that only wide ones make there. Any
//! other policy weighs more than all copies that it makes, so what lacks it is never as deep.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tapswitch_openflow::{DatapathId, Delivery, PortNo};

mod senders;

use crate::BudgetError;
use crate::exit::Exit;
use crate::hash::{Map, Set};
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

impl Aim {
    /// The port by which copies leave for another switch, if they do.
    pub(crate) fn way_out(&self) -> Option<PortNo> {
        self.exit.beyond.map(|_| self.exit.port)
    }
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
    /// What it adds to the depth of a region, but for what only wide ones copy there.
    fn depth_in(&self, region: &Region) -> u16 {
        let weight = if self.is_wide { 0 } else { self.aims.len() + 1 };
        let weight = u16::try_from(weight).unwrap_or(u16::MAX);
        self.cells.level_in(region).saturating_mul(weight)
    }

    fn members(&self) -> impl Iterator<Item = Member> {
        let Self { id: policy, delivery, part, .. } = *self;
        self.aims.iter().map(move |aim| Member { policy, aim: *aim, delivery, part })
    }

    /// Whether it takes as much room as another form of it, as far as that is told by what both
    /// say: the identifiers of copies take none.
    pub(crate) fn is_as_large_as(&self, other: &Self) -> bool {
        let ends =
            |tap: &Self| tap.aims.iter().map(|aim| Aim { tag: 0, ..*aim }).collect::<Vec<_>>();
        self.id == other.id && self.copies_as(other) && ends(self) == ends(other)
    }

    /// The same as a wide one, if it can be one: it excepts nothing, and its monitors share no
    /// flows.
    pub(crate) fn widened(&self) -> Option<Self> {
        let can_be = !self.is_wide && self.cells.is_plain() && self.copies().is_some();
        can_be.then(|| Self { is_wide: true, ..self.clone() })
    }

    /// The ports by which its copies leave for other switches.
    pub(crate) fn ways_out(&self) -> BTreeSet<PortNo> {
        self.aims.iter().filter_map(Aim::way_out).collect()
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
type Copies = Arc<[Copied]>;
type Copied = (Exit, Option<Delivery>, Part);

/// The copies that are made for all of these; `None` where a switch picks some of them.
fn copies(members: impl IntoIterator<Item = Member>) -> Option<Copies> {
    let copies: BTreeSet<_> = members.into_iter().map(copied).collect::<Option<_>>()?;
    Some(copies.into_iter().collect())
}

/// The copy that is made for one; `None` where a switch picks.
fn copied(member: Member) -> Option<Copied> {
    let Member { aim: Aim { slot, exit, .. }, delivery, part, .. } = member;
    (slot.share == 0 && exit.spread.is_none()).then_some((exit, delivery, part))
}

/// One region of the closure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TapRegion {
    pub(crate) region: Region,
    /// The weighted sum of the levels of the policies around it.
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
    /// The copies that are made of its frames; `None` where a switch picks some of them. Each wide
    /// policy that comes asks for it.
    pub(crate) copies: Option<Copies>,
}

impl TapRegion {
    /// The ports by which copies of its frames leave for other switches.
    pub(crate) fn ways_out(&self) -> BTreeSet<PortNo> {
        self.members.iter().filter_map(|member| member.aim.way_out()).collect()
    }

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
    before: Map<Region, Option<TapRegion>>,
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
        rule_count: impl Fn(&Self, &Region) -> usize,
    ) -> Result<(), BudgetError> {
        let needed = self.check(&tap, budget, rule_count)?;
        self.insert(tap, needed.regions);
        Ok(())
    }

    /// Adds a policy with the regions that [`Self::check`] found that it adds.
    pub(crate) fn insert(&mut self, tap: Tap, new: Vec<Region>) {
        let id = tap.id;
        tap.cells.regions().for_each(|own| self.taps_of.insert(&own, id));
        self.wide.extend(tap.is_wide.then_some(id));
        self.taps.insert(id, tap);
        // Those that are there become its own, too.
        let known = self.inside(id);
        for region in new {
            let new = self.overlap_of_all(region);
            self.set(region, Some(new));
        }
        for inner in known {
            let around = self.around(&inner).map(|tap| tap.id).chain([id]).collect();
            self.refresh(inner.region, &around);
        }
    }

    /// What a policy would add, if that fits the budget. `rule_count` says how many rules a region
    /// makes beside those that are there.
    pub(crate) fn check(
        &self,
        tap: &Tap,
        budget: Budget,
        rule_count: impl Fn(&Self, &Region) -> usize,
    ) -> Result<Needed, BudgetError> {
        let (max, mut new, mut woken) = (budget.max_regions, Set::default(), Set::default());
        let spared = if tap.is_wide { tap.copies() } else { None };
        let is_spared = |other: &Region| match &spared {
            Some(copies) => self.makes(other, tap.id, copies),
            None => false,
        };
        let unknown = |region: &Region| !self.regions.contains_key(region);
        new.extend(tap.cells.regions().filter(unknown));
        let (used, needed) = (self.regions.len(), new.len());
        if needed > 0 && used + needed > max {
            return Err(BudgetError::Full { switch: budget.switch, used, needed, max });
        }
        for own in tap.cells.regions() {
            // Almost all regions are told apart by having nothing in common.
            let near = self.regions_of.near(&own);
            let near = near.filter_map(|other| Some((other, own.intersect(&other)?)));
            for (other, region) in near.filter(|(other, _)| !is_spared(other)) {
                if self.is_too_deep(&other, tap.depth_in(&region)) {
                    return Err(BudgetError::Policies { switch: budget.switch });
                }
                match self.regions.get(&region) {
                    None => _ = new.insert(region),
                    // Its frames were excepted by all, so that it has no rules that copy.
                    Some(known) if known.members.is_empty() && tap.cells.includes(&region) => {
                        woken.insert(region);
                    }
                    Some(_) => {}
                }
                // At once: where there is no room, there may be very many.
                if used + new.len() > max {
                    return Err(BudgetError::Regions { max });
                }
            }
        }
        let rules = new.iter().chain(&woken).map(|region| rule_count(self, region)).sum();
        match rules <= budget.rules_left {
            true => Ok(Needed { regions: new.into_iter().collect(), rules }),
            false => Err(BudgetError::Rules { left: budget.rules_left, needed: rules }),
        }
    }

    /// Whether a region would be deeper than priorities can tell. What it has in common with others
    /// is a region as well, and no less deep.
    fn is_too_deep(&self, region: &Region, more: u16) -> bool {
        let depth = self.regions.get(region).map_or(0, |known| known.depth);
        more > 0 && depth.saturating_add(more) > MAX_DEPTH
    }

    /// Whether these copies are made of the frames of a region, whatever others are, or a wide
    /// policy is around it anyway.
    fn makes(&self, region: &Region, wide: PolicyId, copies: &Copies) -> bool {
        self.regions.get(region).is_some_and(|tap| {
            let are_made = |made: &Copies| copies.iter().all(|it| made.binary_search(it).is_ok());
            let is_around = || tap.members.iter().any(|member| member.policy == wide);
            tap.copies.as_ref().is_some_and(are_made) || is_around()
        })
    }

    /// Adds the regions that wide policies need, since others went or have other monitors. Returns
    /// those policies for which there is no room any more; they are gone. It is for what changed
    /// since changes were taken last, and looks at nothing else.
    pub(crate) fn mend(
        &mut self,
        budget: Budget,
        rule_count: impl Fn(&Self, &Region) -> usize,
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
        rule_count: impl Fn(&Self, &Region) -> usize,
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

    /// Whether there is something to take.
    pub(crate) fn has_changed(&self) -> bool {
        !self.before.is_empty()
    }

    /// This was a copy, and nobody shares it any more.
    pub(crate) fn join(&mut self) {
        self.taps.join();
        self.regions.join();
        self.taps_of.join();
        self.regions_of.join();
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

    /// The policies that are around a region.
    pub(crate) fn taps_around<'a>(&'a self, region: &'a Region) -> impl Iterator<Item = &'a Tap> {
        let near = self.taps_of.near(region).filter_map(|id| self.taps.get(&id));
        near.filter(|tap| tap.cells.level_in(region) > 0)
    }

    /// The regions whose frames are copied, and are those of a policy that comes, too.
    pub(crate) fn joined_by<'a>(&'a self, tap: &'a Tap) -> impl Iterator<Item = &'a TapRegion> {
        let near = self.regions_of.near_any(tap.cells.regions());
        let joined: BTreeSet<_> = near.filter(|region| tap.cells.includes(region)).collect();
        let joined = joined.into_iter().filter_map(|region| self.regions.get(&region));
        joined.filter(|region| !region.members.is_empty())
    }

    /// Whether there are wide ones.
    pub(crate) fn has_wide(&self) -> bool {
        !self.wide.is_empty()
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
        let around = self.taps_around(&region).map(|tap| tap.id).collect();
        self.region_around(region, &around)
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
            depth = depth.saturating_add(tap.depth_in(&region));
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
        depth = depth.saturating_add(self.count_only_wide(&members));
        let copies = copies(members.iter().copied());
        let (members, excepted) = (members.into(), excepted.into());
        TapRegion { region, depth, members, excepted, mark, is_turned: false, copies }
    }

    /// How many copies only wide policies make, of these.
    fn count_only_wide(&self, members: &[Member]) -> u16 {
        if self.wide.is_empty() {
            return 0;
        }
        let (wide, others): (Vec<_>, Vec<_>) =
            members.iter().copied().partition(|member| self.wide.contains(&member.policy));
        let made = |members: Vec<Member>| members.into_iter().filter_map(copied);
        let (wide, others): (BTreeSet<_>, BTreeSet<_>) =
            (made(wide).collect(), made(others).collect());
        u16::try_from(wide.difference(&others).count()).unwrap_or(u16::MAX)
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

/// How deep a region may lie: so that some eight thousand policies of one monitor each match the
/// same frames.
pub(crate) const MAX_DEPTH: u16 = 16_000;

#[cfg(test)]
mod tests;
