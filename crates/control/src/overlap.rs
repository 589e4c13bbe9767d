//! Overlapping policies: which frames are copied to which monitors.
//!
//! A frame may match several policies, but only one rule of a table. Each policy consists of
//! layered cells ([`Cells`]): of those that contain a frame, the highest decide. The cells of
//! different policies are closed under intersection: each region of the closure means "these frames
//! match exactly these policies, unless a deeper region says otherwise". Its *depth* is the
//! weighted sum of the levels that its policies have there. So with rules prioritised by depth, a
//! frame hits one in which each policy has the highest level that it has for the frame: this rule
//! is right for all policies, and the frame is copied once to each distinct monitor of the policies
//! that it matches.
//!
//! Two regions of the same depth may overlap; then they agree on the frames in both. Regions of one
//! policy need not be intersected with each other. A region may have no members: its frames are
//! excepted from the regions around it, and forwarded as without policies.
//!
//! In the worst case `n` policies make `2^n` regions. The closure is bounded: a policy that would
//! exceed the bound is refused as a whole. For each of its cells, adding a policy takes a pass over
//! the regions of the same sender and of any sender, and each new region a pass over such policies.
//!
//! **Wide policies** need fewer regions: their intersection with a region whose frames are already
//! copied to all their monitors gets no region of its own, whatever other monitors that region has.
//! These frames are still copied, but not counted for each of the wide policies, so this is a last
//! resort. When such a region changes, missing intersections are added ([`Closure::mend`]).
//!
//! So among the regions of a frame there may be none with all the wide policies that it matches,
//! but there is one with all the others, and among these one that makes all copies. The latter must
//! be the deepest: a wide policy adds no levels, but one for each copy that only wide policies make
//! there. Any other policy weighs more than all copies that it makes, so a region without it is
//! never as deep.

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

/// Number of a policy; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyId(pub(crate) u64);

/// One monitor of a policy, and where its copies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member {
    pub(crate) policy: PolicyId,
    pub(crate) aim: Aim,
    /// As in [`Tap`].
    pub(crate) delivery: Option<Delivery>,
    /// As in [`Tap`].
    pub(crate) part: Part,
}

/// A monitor of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    /// Index in the order of the policy.
    pub(crate) monitor: u8,
    /// Index, from 1, among monitors at several switches that share flows; where copies are made
    /// they are distinct. 0 for others, also for those that share flows at one switch.
    pub(crate) share: u8,
}

impl Slot {
    pub(crate) const MIN: Self = Self::only(0);
    pub(crate) const MAX: Self = Self { monitor: u8::MAX, share: u8::MAX };

    /// A monitor that shares its flows with no other switch.
    pub(crate) const fn only(monitor: u8) -> Self {
        Self { monitor, share: 0 }
    }
}

/// The exit of copies for a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Aim {
    pub(crate) slot: Slot,
    pub(crate) exit: Exit,
    /// Identifier of the copies in transit to another switch; 0 for a port of this one.
    pub(crate) tag: u16,
    /// The monitor receives copies only, no floods.
    pub(crate) is_sink: bool,
}

impl Aim {
    /// The port by which copies leave for another switch, if they do.
    pub(crate) fn way_out(&self) -> Option<PortNo> {
        self.exit.beyond.map(|_| self.exit.port)
    }
}

/// A policy as applied on one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tap {
    pub(crate) id: PolicyId,
    pub(crate) name: Arc<str>,
    /// The monitors, ordered by slot.
    pub(crate) aims: Vec<Aim>,
    /// Policies with a lower priority yield if there is no room for all.
    pub(crate) priority: u8,
    /// Delivery contract; `None` if the switch does not support it.
    pub(crate) delivery: Option<Delivery>,
    /// Form of the copies, as far as the switch supports it.
    pub(crate) part: Part,
    /// Frames are copied where they leave for their destination host, wherever they came from.
    pub(crate) is_at_destination: bool,
    /// Frames that match.
    pub(crate) cells: Arc<Cells>,
    /// There is no room for all its intersections.
    pub(crate) is_wide: bool,
}

impl Member {
    /// Whether both belong to one monitor of one policy, or share its flows.
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        let whose = |member: &Self| (member.policy, member.aim.slot.monitor);
        whose(self) == whose(other)
    }
}

impl Tap {
    /// What the policy adds to the depth of a region, apart from copies that only wide policies
    /// make.
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
    /// say: the identifiers of copies take none, nor does the name.
    pub(crate) fn is_as_large_as(&self, other: &Self) -> bool {
        let ends =
            |tap: &Self| tap.aims.iter().map(|aim| Aim { tag: 0, ..*aim }).collect::<Vec<_>>();
        self.id == other.id && self.copies_as(other) && ends(self) == ends(other)
    }

    /// The policy as a wide one, if that is possible: it has no exceptions, and its monitors share
    /// no flows.
    pub(crate) fn widened(&self) -> Option<Self> {
        let can_be = !self.is_wide && self.cells.is_plain() && self.copies().is_some();
        can_be.then(|| Self { is_wide: true, ..self.clone() })
    }

    /// Ports by which its copies leave for other switches.
    pub(crate) fn ways_out(&self) -> BTreeSet<PortNo> {
        self.aims.iter().filter_map(Aim::way_out).collect()
    }

    /// Whether the same frames are copied in the same form, to any monitors.
    pub(crate) fn copies_as(&self, other: &Self) -> bool {
        let terms = |tap: &Self| (tap.delivery, tap.part, tap.priority, tap.is_at_destination);
        self.cells == other.cells && terms(self) == terms(other)
    }

    /// As [`TapRegion::copies`].
    fn copies(&self) -> Option<Copies> {
        copies(self.members())
    }
}

/// Destinations and forms of copies, sorted and unique: what two policies with one monitor have in
/// common.
type Copies = Arc<[Copied]>;
type Copied = (Exit, Option<Delivery>, Part);

/// The copies for these members; `None` if a switch chooses among several destinations.
fn copies(members: impl IntoIterator<Item = Member>) -> Option<Copies> {
    let copies: BTreeSet<_> = members.into_iter().map(copied).collect::<Option<_>>()?;
    Some(copies.into_iter().collect())
}

/// The copy for one member; `None` if a switch chooses.
fn copied(member: Member) -> Option<Copied> {
    let Member { aim: Aim { slot, exit, .. }, delivery, part, .. } = member;
    (slot.share == 0 && exit.spread.is_none()).then_some((exit, delivery, part))
}

/// One region of the closure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TapRegion {
    pub(crate) region: Region,
    /// Weighted sum of the levels of the policies around it.
    pub(crate) depth: u16,
    /// Policies that its frames match, sorted.
    pub(crate) members: Arc<[Member]>,
    /// Policies around it that except its frames, sorted.
    pub(crate) excepted: Arc<[PolicyId]>,
    /// Hash of the members' names, the same in each run of the controller.
    pub(crate) mark: u32,
    /// Selects one of two priorities for its rules. It toggles when copies go to other monitors
    /// than those of the existing rules, whose last counters belong to the former monitors: new
    /// rules are added beside them, and no frame misses both.
    pub(crate) is_turned: bool,
    /// Copies of its frames; `None` if a switch chooses some of them. Stored, as it is needed for
    /// each wide policy added.
    pub(crate) copies: Option<Copies>,
}

impl TapRegion {
    /// Ports by which copies of its frames leave for other switches.
    pub(crate) fn ways_out(&self) -> BTreeSet<PortNo> {
        self.members.iter().filter_map(|member| member.aim.way_out()).collect()
    }

    /// Whether its rules would replace those of `old`, with other monitors.
    fn replaces(&self, old: &Self) -> bool {
        self.depth == old.depth && !have_same_monitors(&self.members, &old.members)
    }
}

/// The policies' monitors in order; those that share flows count as one.
pub(crate) fn monitors_of(members: &[Member]) -> impl Iterator<Item = (PolicyId, u8)> {
    let aims = members.chunk_by(Member::shares_with).filter_map(<[_]>::first);
    aims.map(|member| (member.policy, member.aim.slot.monitor))
}

/// Whether both have the same policies with the same monitors.
pub(crate) fn have_same_monitors(a: &[Member], b: &[Member]) -> bool {
    monitors_of(a).eq(monitors_of(b))
}

/// Limits of one switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// The switch.
    pub(crate) switch: DatapathId,
    pub(crate) max_regions: usize,
    /// Number of rules that may be added.
    pub(crate) rules_left: usize,
}

/// The regions of all policies and their intersections, independent of the order in which policies
/// were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closure {
    taps: Forked<PolicyId, Tap>,
    regions: Forked<Region, TapRegion>,
    /// Wide policies.
    wide: BTreeSet<PolicyId>,
    /// Indices by sender.
    taps_of: Senders<PolicyId>,
    regions_of: Senders<Region>,
    /// Former state of the regions changed since the last [`Self::take_changes`].
    before: Map<Region, Option<TapRegion>>,
}

/// What a policy needs in addition to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needed {
    /// Regions that it adds.
    pub(crate) regions: Vec<Region>,
    /// Rules that it adds, for those and for regions whose frames it is the first to copy.
    pub(crate) rules: usize,
}

/// Former and current state of a region that was added, removed or changed.
pub(crate) type Change = (Option<TapRegion>, Option<TapRegion>);

impl Closure {
    /// Adds a policy if it fits.
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

    /// Adds a policy with the regions determined by [`Self::check`].
    pub(crate) fn insert(&mut self, tap: Tap, new: Vec<Region>) {
        let id = tap.id;
        tap.cells.regions().for_each(|own| self.taps_of.insert(&own, id));
        self.wide.extend(tap.is_wide.then_some(id));
        self.taps.insert(id, tap);
        // Existing regions within it become its own, too.
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

    /// Regions and rules that a policy would add, if they fit the budget. `rule_count` is the
    /// number of additional rules of a region.
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
            // Almost all pairs of regions are disjoint.
            let near = self.regions_of.near(&own);
            let near = near.filter_map(|other| Some((other, own.intersect(&other)?)));
            for (other, region) in near.filter(|(other, _)| !is_spared(other)) {
                if self.is_too_deep(&other, tap.depth_in(&region)) {
                    return Err(BudgetError::Policies { switch: budget.switch });
                }
                match self.regions.get(&region) {
                    None => _ = new.insert(region),
                    // A region without members, whose frames all policies except, has no copying
                    // rules yet.
                    Some(known) if known.members.is_empty() && tap.cells.includes(&region) => {
                        woken.insert(region);
                    }
                    Some(_) => {}
                }
                // Checked at once, as there may be very many.
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

    /// Whether a region would be deeper than priorities allow. Its intersections are regions as
    /// well, and no less deep.
    fn is_too_deep(&self, region: &Region, more: u16) -> bool {
        let depth = self.regions.get(region).map_or(0, |known| known.depth);
        more > 0 && depth.saturating_add(more) > MAX_DEPTH
    }

    /// Whether the frames of a region are copied as in `copies` already, whatever else, or the wide
    /// policy is a member.
    fn makes(&self, region: &Region, wide: PolicyId, copies: &Copies) -> bool {
        self.regions.get(region).is_some_and(|tap| {
            let are_made = |made: &Copies| copies.iter().all(|it| made.binary_search(it).is_ok());
            let is_around = || tap.members.iter().any(|member| member.policy == wide);
            tap.copies.as_ref().is_some_and(are_made) || is_around()
        })
    }

    /// Adds the regions that wide policies need after changes to other policies or monitors.
    /// Returns the policies removed because there is no room any more. Considers only what changed
    /// since [`Self::take_changes`].
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

    /// Wide policies that may intersect a region.
    fn wide_near(&self, region: &Region) -> BTreeSet<PolicyId> {
        self.taps_of.near(region).filter(|id| self.wide.contains(id)).collect()
    }

    /// Regions that a wide policy needs because of a changed region; all that it needs if the
    /// region is its own, whose monitors may have changed.
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

    /// Removes a policy, and the regions that only it needed.
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

    /// Sets the exits to a policy's monitors.
    pub(crate) fn move_monitors(&mut self, policy: PolicyId, aims: &[Aim]) {
        let Some(tap) = self.taps.get_mut(&policy) else { return };
        tap.aims = aims.to_vec();
        for region in self.inside(policy) {
            let around: BTreeSet<_> = self.around(&region).map(|tap| tap.id).collect();
            self.refresh(region.region, &around);
        }
    }

    /// The policy that yields first: the newest of those with the lowest priority.
    pub(crate) fn first_to_give_way(&self) -> Option<(u8, PolicyId)> {
        let taps = self.taps.values().map(|tap| (tap.priority, Reverse(tap.id)));
        taps.min().map(|(priority, Reverse(id))| (priority, id))
    }

    /// Former and current state of the regions changed since the last [`Self::take_changes`].
    pub(crate) fn changes(&self) -> impl Iterator<Item = (Option<&TapRegion>, Option<&TapRegion>)> {
        self.before.iter().map(|(region, old)| (old.as_ref(), self.regions.get(region)))
    }

    /// Whether [`Self::take_changes`] would return anything.
    pub(crate) fn has_changed(&self) -> bool {
        !self.before.is_empty()
    }

    /// Merges a former copy's changes into its base, which no other copy shares.
    pub(crate) fn join(&mut self) {
        self.taps.join();
        self.regions.join();
        self.taps_of.join();
        self.regions_of.join();
    }

    /// The changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let before = std::mem::take(&mut self.before).into_iter();
        let changes = before.map(|(region, old)| (old, self.regions.get(&region).cloned()));
        changes.filter(|(old, new)| old != new).collect()
    }

    /// The policies.
    pub(crate) const fn taps(&self) -> &Forked<PolicyId, Tap> {
        &self.taps
    }

    /// Policies around a region.
    pub(crate) fn taps_around<'a>(&'a self, region: &'a Region) -> impl Iterator<Item = &'a Tap> {
        let near = self.taps_of.near(region).filter_map(|id| self.taps.get(&id));
        near.filter(|tap| tap.cells.level_in(region) > 0)
    }

    /// Regions with copies whose frames a new policy matches, too.
    pub(crate) fn joined_by<'a>(&'a self, tap: &'a Tap) -> impl Iterator<Item = &'a TapRegion> {
        let near = self.regions_of.near_any(tap.cells.regions());
        let joined: BTreeSet<_> = near.filter(|region| tap.cells.includes(region)).collect();
        let joined = joined.into_iter().filter_map(|region| self.regions.get(&region));
        joined.filter(|region| !region.members.is_empty())
    }

    /// Whether there are wide policies.
    pub(crate) fn has_wide(&self) -> bool {
        !self.wide.is_empty()
    }

    /// The wide policies.
    pub(crate) fn wide(&self) -> Vec<PolicyId> {
        self.wide.iter().copied().collect()
    }

    /// Number of regions.
    pub(crate) const fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// All regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &TapRegion> {
        self.regions.values()
    }

    /// Regions inside a policy's cells.
    fn inside(&self, policy: PolicyId) -> Vec<TapRegion> {
        let Some(tap) = self.taps.get(&policy) else {
            return Vec::new();
        };
        let near = self.regions_of.near_any(tap.cells.regions());
        let inside: BTreeSet<_> = near.filter(|inner| tap.cells.level_in(inner) > 0).collect();
        inside.iter().filter_map(|inner| self.regions.get(inner).cloned()).collect()
    }

    /// A region with its members from all policies.
    fn overlap_of_all(&self, region: Region) -> TapRegion {
        let around = self.taps_around(&region).map(|tap| tap.id).collect();
        self.region_around(region, &around)
    }

    /// Recomputes a region from the policies around it.
    fn refresh(&mut self, region: Region, around: &BTreeSet<PolicyId>) {
        let new = self.region_around(region, around);
        self.set(region, Some(new));
    }

    /// A region's state, from the policies around it.
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

    /// Number of copies that only wide policies make.
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

    /// Whether the region is an intersection of cells of these policies, one of each.
    fn is_overlap(&self, region: &Region, around: &BTreeSet<PolicyId>) -> bool {
        let mut common = HashSet::from([Region::default()]);
        for tap in around.iter().filter_map(|id| self.taps.get(id)) {
            let own: Vec<_> = tap.cells.regions().filter(|own| own.covers(region)).collect();
            let pairs = common.iter().flat_map(|a| own.iter().filter_map(|b| a.intersect(b)));
            common = pairs.collect();
        }
        !around.is_empty() && common.contains(region)
    }

    /// Policies around a region that still exist.
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

/// 32-bit hash of the names, for people who read a switch's rules. Collisions do no harm.
fn hash(names: &[&str]) -> u32 {
    fnv_1a(names.iter().flat_map(|name| name.bytes().chain([0])))
}

/// Maximum depth: enough for some eight thousand policies with one monitor each that match the same
/// frames.
pub(crate) const MAX_DEPTH: u16 = 16_000;

#[cfg(test)]
mod tests;
