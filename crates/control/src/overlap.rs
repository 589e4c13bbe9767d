//! Overlapping policies: which frames are copied to whom.
//!
//! A frame may match several policies, but only one rule of a table. So the regions of all policies
//! are closed under intersection: each region of the closure says "these frames match exactly these
//! policies, unless a region inside it says more". A region inside another lies in more of the
//! policies' own regions (its *depth*), so rules prioritised by depth find the innermost one: a
//! frame is copied once to each distinct monitor of the policies that it matches.
//!
//! In the worst case `n` policies make `2^n` regions. The closure is bounded: a policy that would
//! burst the bound is refused as a whole. Adding one costs a pass over the regions, and what is new
//! a pass over the policies.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tapswitch_openflow::{Delivery, PortNo};

use crate::BudgetError;
use crate::region::Region;

/// A policy by its number, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyId(pub(crate) u64);

/// A policy and where its copies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member {
    pub(crate) policy: PolicyId,
    pub(crate) monitor: PortNo,
    /// As in [`Tap`].
    pub(crate) delivery: Option<Delivery>,
}

/// A policy where it is applied: on the switch where its monitor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tap {
    pub(crate) id: PolicyId,
    pub(crate) name: Arc<str>,
    /// The monitor's port.
    pub(crate) monitor: PortNo,
    /// What its copies are owed; none where the switch has no word for it.
    pub(crate) delivery: Option<Delivery>,
    pub(crate) regions: Arc<[Region]>,
}

impl Tap {
    fn member(&self) -> Member {
        Member { policy: self.id, monitor: self.monitor, delivery: self.delivery }
    }
}

/// One region of the closure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TapRegion {
    pub(crate) region: Region,
    /// In how many of the policies' own regions it lies, at least one.
    pub(crate) depth: u16,
    /// The policies that its frames match, in order.
    pub(crate) members: Arc<[Member]>,
    /// A number of the members' names, the same in each life of the controller.
    pub(crate) mark: u32,
}

/// How much one switch may be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) max_regions: usize,
    /// Rules that may be added.
    pub(crate) rules_left: usize,
}

/// The regions of all policies and of their overlaps. It does not depend on the order in which
/// policies came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closure {
    taps: BTreeMap<PolicyId, Tap>,
    regions: HashMap<Region, TapRegion>,
    /// What regions were before they changed, since that was taken.
    before: HashMap<Region, Option<TapRegion>>,
}

/// A region that came, went or became another's: before, and now.
pub(crate) type Change = (Option<TapRegion>, Option<TapRegion>);

impl Closure {
    /// Adds a policy. `host_count` says how many hosts a region reaches, each of which costs a
    /// rule.
    pub(crate) fn add(
        &mut self,
        tap: Tap,
        budget: Budget,
        host_count: impl Fn(&Region) -> usize,
    ) -> Result<(), BudgetError> {
        for region in self.check(&tap, budget, host_count)? {
            let new = self.overlap_of_all(region);
            self.set(region, Some(new));
        }
        let member = tap.member();
        self.taps.insert(tap.id, tap);
        for mut inner in self.inside(member.policy) {
            let mut members = inner.members.to_vec();
            members.push(member);
            members.sort_unstable();
            inner.members = members.into();
            self.refresh(inner);
        }
        Ok(())
    }

    /// The regions that a policy would add, if they fit the budget.
    pub(crate) fn check(
        &self,
        tap: &Tap,
        budget: Budget,
        host_count: impl Fn(&Region) -> usize,
    ) -> Result<Vec<Region>, BudgetError> {
        let (max, mut new) = (budget.max_regions, HashSet::new());
        for own in &*tap.regions {
            let others = self.regions.keys().chain(&new);
            let overlaps: Vec<_> = others.filter_map(|other| own.intersect(other)).collect();
            let unknown = |region: &Region| !self.regions.contains_key(region);
            new.extend(overlaps.into_iter().chain([*own]).filter(unknown));
            if self.regions.len() + new.len() > max {
                return Err(BudgetError::Regions { max });
            }
        }
        let rules: usize = new.iter().map(|region| 1 + host_count(region)).sum();
        match rules <= budget.rules_left {
            true => Ok(new.into_iter().collect()),
            false => Err(BudgetError::Rules { left: budget.rules_left, needed: rules }),
        }
    }

    /// Takes a policy away, and the regions that were there because of it.
    pub(crate) fn remove(&mut self, policy: PolicyId) {
        let affected = self.inside(policy);
        self.taps.remove(&policy);
        for mut region in affected {
            let left = region.members.iter().filter(|member| member.policy != policy);
            region.members = left.copied().collect();
            match self.is_overlap(&region) {
                true => self.refresh(region),
                false => self.set(region.region, None),
            }
        }
    }

    /// A policy's monitor is at another port now.
    pub(crate) fn move_monitor(&mut self, policy: PolicyId, monitor: PortNo) {
        for mut region in self.inside(policy) {
            let members = region.members.iter().map(|member| match member.policy == policy {
                true => Member { monitor, ..*member },
                false => *member,
            });
            region.members = members.collect();
            self.set(region.region, Some(region));
        }
        if let Some(tap) = self.taps.get_mut(&policy) {
            tap.monitor = monitor;
        }
    }

    /// What came, went or changed since this was asked last.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let before = std::mem::take(&mut self.before).into_iter();
        let changes = before.map(|(region, old)| (old, self.regions.get(&region).cloned()));
        changes.filter(|(old, new)| old != new).collect()
    }

    /// The policies.
    pub(crate) const fn taps(&self) -> &BTreeMap<PolicyId, Tap> {
        &self.taps
    }

    /// All regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &TapRegion> {
        self.regions.values()
    }

    /// The regions whose frames match the policy.
    fn inside(&self, policy: PolicyId) -> Vec<TapRegion> {
        let Some(tap) = self.taps.get(&policy) else {
            return Vec::new();
        };
        self.regions.values().filter(|inner| depth_in(tap, &inner.region) > 0).cloned().collect()
    }

    /// A region with those of the policies that its frames match.
    fn overlap_of_all(&self, region: Region) -> TapRegion {
        let around = self.taps.values().filter(|tap| depth_in(tap, &region) > 0);
        TapRegion { region, depth: 0, members: around.map(Tap::member).collect(), mark: 0 }
    }

    /// Counts anew how deep a region lies, and in what.
    fn refresh(&mut self, region: TapRegion) {
        let around: Vec<_> = self.around(&region).collect();
        let depth: usize = around.iter().map(|tap| depth_in(tap, &region.region)).sum();
        let mut names: Vec<_> = around.iter().map(|tap| &*tap.name).collect();
        names.sort_unstable();
        let (depth, mark) = (u16::try_from(depth).unwrap_or(u16::MAX), hash(&names));
        self.set(region.region, Some(TapRegion { depth, mark, ..region }));
    }

    /// Whether the region is one of the members' own, or what some of those have in common.
    fn is_overlap(&self, region: &TapRegion) -> bool {
        let own = self.around(region).flat_map(|tap| tap.regions.iter());
        let around = own.filter(|own| own.covers(&region.region)).copied();
        around.reduce(|a, b| a.intersect(&b).unwrap_or(a)) == Some(region.region)
    }

    /// The policies of a region's members.
    fn around<'a>(&'a self, region: &'a TapRegion) -> impl Iterator<Item = &'a Tap> {
        let members = region.members.iter();
        members.filter_map(|member| self.taps.get(&member.policy))
    }

    fn set(&mut self, region: Region, new: Option<TapRegion>) {
        let old = match new {
            Some(new) => self.regions.insert(region, new),
            None => self.regions.remove(&region),
        };
        self.before.entry(region).or_insert(old);
    }
}

/// In how many of a policy's own regions `region` lies.
fn depth_in(tap: &Tap, region: &Region) -> usize {
    tap.regions.iter().filter(|own| own.covers(region)).count()
}

/// 32 bits of the names (FNV-1a). Two sets of names may share a number: it is for people who read
/// a switch's rules, nothing rests on it.
fn hash(names: &[&str]) -> u32 {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::region::Family;

    const BUDGET: Budget = Budget { max_regions: 100, rules_left: 1000 };

    fn tap(id: u64, monitor: u32, regions: &[Region]) -> Tap {
        let name = format!("p{id}").into();
        let (id, monitor) = (PolicyId(id), PortNo(monitor));
        Tap { id, name, monitor, delivery: None, regions: regions.into() }
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

    fn ids(region: &TapRegion) -> Vec<u64> {
        region.members.iter().map(|member| member.policy.0).collect()
    }

    #[test]
    fn an_overlap_belongs_to_both_and_lies_deeper() {
        let closure = close(&[tap(1, 3, &[tcp()]), tap(2, 4, &[from("10.0.0.0/8")])]);
        assert_eq!(closure.regions.len(), 3);
        let both = &closure.regions[&tcp().intersect(&from("10.0.0.0/8")).unwrap()];
        assert_eq!((ids(both), both.depth), (vec![1, 2], 2));
        assert_eq!(both.members.iter().map(|member| member.monitor.0).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(ids(&closure.regions[&tcp()]), [1]);
    }

    #[test]
    fn a_policy_inside_another_makes_no_third_region() {
        let taps = [tap(1, 3, &[from("10.0.0.0/8")]), tap(2, 3, &[from("10.1.0.0/16")])];
        let closure = close(&taps);
        assert_eq!(closure.regions.len(), 2);
        let inner = &closure.regions[&from("10.1.0.0/16")];
        assert_eq!((ids(inner), inner.depth), (vec![1, 2], 2));
    }

    #[test]
    fn both_ways_of_one_policy_may_overlap() {
        let there = from("10.0.0.0/8");
        let closure = close(&[tap(1, 3, &[there, there.reversed()])]);
        assert_eq!(closure.regions.len(), 3);
        let both = &closure.regions[&there.intersect(&there.reversed()).unwrap()];
        assert_eq!((ids(both), both.depth), (vec![1], 2));
    }

    #[test]
    fn a_policy_beyond_the_budget_leaves_everything_as_it_was() {
        let mut closure = close(&[tap(1, 3, &[tcp()])]);
        closure.take_changes();
        let two = tap(2, 4, &[from("10.0.0.0/8"), from("11.0.0.0/8")]);
        let few = Budget { max_regions: 3, ..BUDGET };
        let refused = closure.add(two.clone(), few, |_| 0);
        assert_eq!(refused, Err(BudgetError::Regions { max: 3 }));
        let few = Budget { rules_left: 10, ..BUDGET };
        let refused = closure.add(two, few, |_| 4);
        assert_eq!(refused, Err(BudgetError::Rules { left: 10, needed: 20 }));
        assert_eq!((closure.taps().len(), closure.take_changes()), (1, vec![]));
    }

    #[test]
    fn changes_tell_what_was_before() {
        let mut closure = close(&[tap(1, 3, &[tcp()])]);
        let [(None, Some(new))] = &closure.take_changes()[..] else { panic!() };
        assert_eq!((new.region, new.depth), (tcp(), 1));
        closure.add(tap(2, 4, &[tcp()]), BUDGET, |_| 0).unwrap();
        closure.move_monitor(PolicyId(2), PortNo(5));
        let [(Some(old), Some(new))] = &closure.take_changes()[..] else { panic!() };
        assert_eq!((old.depth, new.depth, new.members[1].monitor), (1, 2, PortNo(5)));
        closure.remove(PolicyId(2));
        closure.add(tap(2, 5, &[tcp()]), BUDGET, |_| 0).unwrap();
        assert_eq!(closure.take_changes(), []);
    }

    #[test]
    fn marks_depend_on_names_alone() {
        let mark = |a: &[Tap]| close(a).regions[&tcp()].mark;
        let (p, q) = (tap(1, 3, &[tcp()]), tap(2, 4, &[tcp()]));
        let renumbered = Tap { id: PolicyId(9), ..p.clone() };
        assert_eq!(mark(&[p.clone(), q.clone()]), mark(&[q.clone(), renumbered]));
        assert_ne!(mark(&[p]), mark(&[q]));
    }

    fn region() -> impl Strategy<Value = Region> {
        let prefix = select(vec!["10.0.0.0/8", "10.0.0.0/9", "10.1.0.0/16", "10.1.2.3"]);
        let prefix = move || option::of(prefix.clone().prop_map(|text| text.parse().unwrap()));
        let port = || option::weighted(0.2, 1..3u16);
        (prefix(), prefix(), port(), port()).prop_map(|(src_ip, dst_ip, src_port, dst_port)| {
            Region { src_ip, dst_ip, src_port, dst_port, ..tcp() }
        })
    }

    proptest! {
        /// However policies came and went, the closure is that of those that are there: all
        /// intersections of their regions, each with the policies around it, inner ones deeper.
        #[test]
        fn the_closure_is_that_of_what_is_there(
            steps in vec((any::<bool>(), 0..6u64, vec(region(), 1..3)), 1..16),
        ) {
            let mut closure = Closure::default();
            for (adds, id, regions) in steps {
                closure.remove(PolicyId(id));
                if adds {
                    // Too many overlaps are refused as a whole.
                    let _ = closure.add(tap(id, 3, &regions), BUDGET, |_| 0);
                }
            }
            let own: Vec<_> = closure.taps.values().flat_map(|tap| tap.regions.to_vec()).collect();
            let mut expected: HashSet<Region> = HashSet::new();
            for own in own {
                let overlaps: Vec<_> = expected.iter().filter_map(|a| a.intersect(&own)).collect();
                expected.extend(overlaps.into_iter().chain([own]));
            }
            prop_assert_eq!(closure.regions.keys().copied().collect::<HashSet<_>>(), expected);
            for a in closure.regions() {
                let depths = closure.taps.values().map(|tap| (tap.id.0, depth_in(tap, &a.region)));
                let around: BTreeMap<_, _> = depths.filter(|(_, depth)| *depth > 0).collect();
                prop_assert_eq!(ids(a), around.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!(usize::from(a.depth), around.values().sum::<usize>());
                for b in closure.regions() {
                    let is_inside = a.region != b.region && a.region.covers(&b.region);
                    prop_assert!(!is_inside || a.depth < b.depth, "{:?} {:?}", a, b);
                }
            }
        }
    }
}
