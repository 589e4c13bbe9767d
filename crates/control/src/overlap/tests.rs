//! Tests of the closure, by examples and random policies.

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
        closure.add(tap.clone(), BUDGET, |_, _| 0).unwrap();
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
    assert_eq!((ids(both), both.depth), (vec![1, 2], 4));
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
    assert_eq!((ids(inner), inner.depth), (vec![1, 2], 4));
}

#[test]
fn both_ways_of_one_policy_need_no_third_region() {
    let there = from("10.0.0.0/8");
    let closure = close(&[tap(1, 3, &[there, there.reversed()]), tap(2, 3, &[tcp()])]);
    assert_eq!(closure.regions.len(), 5);
    assert!(closure.regions().all(|region| region.depth <= 4));
}

#[test]
fn an_exception_is_deeper_and_has_no_members() {
    let some = tap(1, 3, &[]);
    let frames = Frames::without(from("10.0.0.0/8"), [tcp()]).unwrap();
    let some = Tap { cells: Cells::new(&frames).unwrap().into(), ..some };
    let closure = close(&[some, tap(2, 4, &[tcp()])]);
    let inner = region(&closure, tcp().intersect(&from("10.0.0.0/8")).unwrap());
    assert_eq!((ids(inner), &*inner.excepted, inner.depth), (vec![2], &[PolicyId(1)][..], 6));
    assert_eq!((closure.regions.len(), ids(region(&closure, tcp()))), (3, vec![2]));
}

#[test]
fn a_policy_beyond_the_budget_leaves_everything_as_it_was() {
    let mut closure = close(&[tap(1, 3, &[tcp()])]);
    closure.take_changes();
    let two = tap(2, 4, &[from("10.0.0.0/8"), from("11.0.0.0/8")]);
    let few = Budget { max_regions: 3, ..BUDGET };
    let refused = closure.add(two.clone(), few, |_, _| 0);
    assert_eq!(refused, Err(BudgetError::Regions { max: 3 }));
    let few = Budget { max_regions: 2, ..BUDGET };
    let refused = closure.add(two.clone(), few, |_, _| 0).unwrap_err();
    let told = "switch 0x1 has 1 of 2 combinations in use, and this policy takes 2 more; \
                delete some policies, or give this one fewer ports and addresses";
    assert_eq!(refused.to_string(), told);
    let few = Budget { rules_left: 10, ..BUDGET };
    let refused = closure.add(two, few, |_, _| 5);
    assert_eq!(refused, Err(BudgetError::Rules { left: 10, needed: 20 }));
    assert_eq!((closure.taps().len(), closure.take_changes()), (1, vec![]));
}

#[test]
fn no_more_policies_match_a_frame_than_priorities_can_tell() {
    let all = |id| {
        let aims = (0..15).map(|slot| Aim { slot: Slot::only(slot), ..aim(3 + u32::from(slot)) });
        Tap { aims: aims.collect(), ..tap(id, 3, &[tcp()]) }
    };
    let most = u64::from(MAX_DEPTH) / 16;
    let mut closure = close(&(0..most).map(all).collect::<Vec<_>>());
    assert_eq!(region(&closure, tcp()).depth, MAX_DEPTH);
    // Around that region, equal to it, or inside it.
    for own in [Region::default(), tcp(), tcp().intersect(&from("10.0.0.0/8")).unwrap()] {
        let refused = closure.add(tap(most, 3, &[own]), BUDGET, |_, _| 0).unwrap_err();
        assert_eq!(refused, BudgetError::Policies { switch: DatapathId(1) });
        assert!(refused.to_string().contains("delete some"), "{refused}");
    }
    let udp = Region { proto: Some(17), ..tcp() };
    assert_eq!(closure.add(tap(most, 3, &[udp]), BUDGET, |_, _| 0), Ok(()));
}

#[test]
fn wide_policies_share_what_has_their_monitors() {
    let (a, b) = (from("10.0.0.0/8"), tcp());
    let both = a.intersect(&b).unwrap();
    let wide = |id, monitor, region| tap(id, monitor, &[region]).widened().unwrap();
    let mut closure = close(&[tap(1, 3, &[a]), wide(2, 3, b)]);
    assert_eq!((closure.regions.len(), closure.mend(BUDGET, |_, _| 0)), (2, vec![]));
    closure.move_monitors(PolicyId(1), &[aim(4)]);
    assert_eq!((closure.mend(BUDGET, |_, _| 0), ids(region(&closure, both))), (vec![], vec![1, 2]));
    closure.remove(PolicyId(1));
    assert_eq!(closure.regions.len(), 1);
    assert_eq!(close(&[tap(1, 4, &[a]), wide(2, 3, b)]).regions.len(), 3);
    let mut closure = close(&[tap(1, 3, &[a]), wide(2, 3, b)]);
    closure.move_monitors(PolicyId(1), &[aim(4)]);
    let none = Budget { max_regions: 2, ..BUDGET };
    assert_eq!(closure.mend(none, |_, _| 0), [PolicyId(2)]);
    assert_eq!((closure.taps().len(), closure.regions.len()), (1, 1));
}

#[test]
fn changes_tell_what_was_before() {
    let mut closure = close(&[tap(1, 3, &[tcp()])]);
    let [(None, Some(new))] = &closure.take_changes()[..] else { panic!() };
    assert_eq!((new.region, new.depth), (tcp(), 2));
    closure.add(tap(2, 4, &[tcp()]), BUDGET, |_, _| 0).unwrap();
    closure.move_monitors(PolicyId(2), &[aim(5)]);
    let [(Some(old), Some(new))] = &closure.take_changes()[..] else { panic!() };
    assert_eq!((old.depth, new.depth, new.members[1].aim), (2, 4, aim(5)));
    closure.remove(PolicyId(2));
    closure.add(tap(2, 5, &[tcp()]), BUDGET, |_, _| 0).unwrap();
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
    /// Whatever was added and removed, the closure is that of the current policies: all
    /// intersections of one cell each of some of them. For each frame, all of its deepest regions
    /// name exactly the policies that it matches.
    #[test]
    fn the_closure_is_that_of_what_is_there(
        steps in vec((any::<bool>(), 0..4u64, expr()), 1..10),
    ) {
        let mut closure = Closure::default();
        let mut there: BTreeMap<u64, Expr> = BTreeMap::new();
        for (adds, id, expr) in steps {
            closure.remove(PolicyId(id));
            there.remove(&id);
            // Too many intersections are refused as a whole.
            if let Some(tap) = tap_of(id, &expr).filter(|_| adds)
                && closure.add(tap, BUDGET, |_, _| 0).is_ok()
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

    /// Wide policies have fewer regions, but all frames are copied to all monitors: all of a
    /// frame's deepest regions have the same monitors, and name all of the other policies that it
    /// matches.
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
            prop_assert_eq!(closure.mend(BUDGET, |_, _| 0), vec![]);
            if let Some(tap) = tap_of(id, &expr).filter(|_| step > 1) {
                let tap = Tap { aims, ..tap };
                let wide = tap.widened().filter(|_| is_wide);
                if closure.add(wide.unwrap_or(tap), BUDGET, |_, _| 0).is_ok() {
                    there.insert(id, (expr, monitors));
                }
            }
            for key in keys() {
                let matching = there.iter().filter(|(_, (expr, _))| expr.contains(&key));
                let wanted: BTreeSet<_> = matching.flat_map(|(_, (_, own))| own).collect();
                let matched = |key| -> Vec<u64> {
                    let is_wide = |id: &u64| closure.wide.contains(&PolicyId(*id));
                    let others = there.iter().filter(|(id, _)| !is_wide(id));
                    others.filter(|(_, (expr, _))| expr.contains(key)).map(|(id, _)| *id).collect()
                };
                let around: Vec<_> =
                    closure.regions().filter(|tap| tap.region.contains(&key)).collect();
                let deepest = around.iter().map(|tap| tap.depth).max();
                prop_assert!(deepest.is_some() || wanted.is_empty());
                for tap in around.iter().filter(|tap| Some(tap.depth) == deepest) {
                    let ports = tap.members.iter().map(|member| &member.aim.exit.port.0);
                    let ports: BTreeSet<_> = ports.collect();
                    prop_assert_eq!(&ports, &wanted, "{:?}", tap);
                    let mut named = ids(tap);
                    named.retain(|id| !closure.wide.contains(&PolicyId(*id)));
                    named.dedup();
                    prop_assert_eq!(named, matched(&key), "{:?}", tap);
                }
            }
        }
    }
}
