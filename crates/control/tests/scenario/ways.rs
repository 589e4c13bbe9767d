//! Several paths to one destination: all are used, and switches react to a failed link by
//! themselves.

use std::collections::BTreeMap;

use tapswitch_control::*;
use tapswitch_openflow::multipart::{GroupCapabilities, GroupDesc};
use tapswitch_openflow::{Body, ErrorKind, GroupType};

use crate::fabric::{Fabric, check_ledger};
use crate::frames::tcp;
use crate::world::policy;

/// Flows between two hosts arrive once each; returns how many of them used each link, by ingress
/// switch and port.
fn spread(fabric: &mut Fabric, (from, to): (u8, u8), flows: u16) -> BTreeMap<(u64, u32), usize> {
    fabric.world.crossed.clear();
    for flow in 0..flows {
        let packet = crate::frames::Packet { src_port: 40_000 + flow, ..tcp(from, to) };
        assert_eq!(fabric.send(from, &packet.bytes()), [(to.into(), 1)], "flow {flow}");
    }
    std::mem::take(&mut fabric.world.crossed)
}

/// Groups of a switch that choose among several paths, of this type.
fn forks(fabric: &mut Fabric, switch: u64, group_type: GroupType) -> Vec<GroupDesc> {
    let groups = fabric.world.model(switch).groups().into_iter();
    groups.filter(|group| group.group_type == group_type).collect()
}

#[test]
fn flows_are_spread_over_all_spines() {
    let mut fabric = Fabric::leaf_spine();
    fabric.learn();
    let crossed = spread(&mut fabric, (1, 2), 64);
    let up = [crossed[&(1, 10)], crossed[&(1, 11)]];
    assert_eq!(up.iter().sum::<usize>(), 64);
    assert!(up.iter().all(|count| *count >= 16), "{up:?}");
    for leaf in 1..=4 {
        // One for all hosts behind the same ports, which are those of all other leaves.
        assert_eq!(forks(&mut fabric, leaf, GroupType::Select).len(), 1);
    }
    assert!(forks(&mut fabric, 5, GroupType::Select).len() <= 1, "to the other spine, by all");
}

#[test]
fn both_directions_of_a_flow_take_the_same_spine() {
    let mut fabric = Fabric::leaf_spine();
    fabric.learn();
    for flow in 0..16 {
        let there = crate::frames::Packet { src_port: 40_000 + flow, ..tcp(1, 2) };
        let back = crate::frames::Packet {
            src_port: there.dst_port,
            dst_port: there.src_port,
            ..tcp(2, 1)
        };
        fabric.world.crossed.clear();
        fabric.send(1, &there.bytes());
        fabric.send(2, &back.bytes());
        let spines: Vec<_> = fabric.world.crossed.keys().filter(|(at, _)| *at >= 5).collect();
        assert!(spines.windows(2).all(|pair| pair[0].0 == pair[1].0), "{spines:?}");
    }
}

#[test]
fn copies_are_made_beside_a_path_that_forks() {
    let mut fabric = Fabric::leaf_spine();
    fabric.learn();
    fabric.world.plan_and_tap(policy("near", "0x1/2"));
    fabric.world.plan_and_tap(policy("far", "0x3/2"));
    for flow in 0..32 {
        let packet = crate::frames::Packet { src_port: 40_000 + flow, ..tcp(1, 2) };
        assert_eq!(fabric.send(1, &packet.bytes()), [(1, 2), (2, 1), (3, 2)]);
    }
    check_ledger(&mut fabric, "near", 32);
    check_ledger(&mut fabric, "far", 32);
    for name in ["near", "far"] {
        let report = fabric.world.untap(name);
        assert!(report.adds_up && report.is_complete, "{report:?}");
    }
    fabric.check_production();
    let groups = fabric.world.model(1).groups();
    assert!(groups.iter().all(|group| group.group_type != GroupType::All), "{groups:?}");
}

#[test]
fn a_switch_leaves_a_link_that_goes_before_the_controller_knows() {
    // With two paths the other one is used; with one, a detour: in a ring of three both ends have
    // one.
    for (fabric, (a, b)) in [(Fabric::leaf_spine(), (1, 5)), (Fabric::ring(3), (1, 2))] {
        let mut fabric = fabric;
        fabric.learn();
        fabric.world.is_stopped = true;
        fabric.cut(a, b, false);
        spread(&mut fabric, (1, 2), 64);
        if b == 2 {
            spread(&mut fabric, (2, 1), 64);
        }
        fabric.world.is_stopped = false;
        fabric.world.run();
        fabric.check_production();
    }
}

#[test]
fn flows_stay_where_they_are_when_another_way_goes() {
    // Three links between two switches.
    let mut fabric = Fabric::new(2, &[(1, 2), (1, 2), (1, 2)]);
    fabric.learn();
    let by_cable = |fabric: &mut Fabric, flow: u16| {
        fabric.world.crossed.clear();
        let packet = crate::frames::Packet { src_port: 40_000 + flow, ..tcp(1, 2) };
        assert_eq!(fabric.send(1, &packet.bytes()), [(2, 1)]);
        *fabric.world.crossed.keys().next().unwrap()
    };
    let before: Vec<_> = (0..64).map(|flow| by_cable(&mut fabric, flow)).collect();
    fabric.world.is_stopped = true;
    fabric.world.model(1).set_link(11, false);
    let after: Vec<_> = (0..64).map(|flow| by_cable(&mut fabric, flow)).collect();
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
    assert!(moved.clone().all(|(before, _)| *before == (1, 11)), "others stay");
    let to = |port| moved.clone().filter(|(_, after)| **after == (1, port)).count();
    assert!(to(10) > 0 && to(12) > 0, "those of the way that went share the others");
}

#[test]
fn forks_of_links_that_went_are_deleted_and_made_anew() {
    let mut fabric = Fabric::leaf_spine();
    fabric.learn();
    fabric.world.tap(policy("far", "0x3/2"));
    fabric.cut(1, 5, false);
    fabric.wait(500);
    assert_eq!(forks(&mut fabric, 1, GroupType::Select), []);
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    let report = fabric.world.untap("far");
    assert!(report.adds_up && report.is_complete, "{report:?}");
    fabric.check_production();
}

#[test]
fn a_switch_that_cannot_go_on_to_groups_takes_one_way() {
    let mut fabric = Fabric::leaf_spine();
    fabric.world.disconnect(1);
    fabric.world.model(1).group_features.capabilities -= GroupCapabilities::CHAINING;
    fabric.world.connect(1);
    fabric.wait(400);
    fabric.learn();
    assert_eq!(forks(&mut fabric, 1, GroupType::Select), []);
    assert_eq!(forks(&mut fabric, 2, GroupType::Select).len(), 1);
    let told = fabric.world.events.iter().any(|event| {
        matches!(event, Event::RuleRefused { switch, reason }
            if switch.0 == 1 && reason.contains("one of several paths"))
    });
    assert!(told, "{:?}", fabric.world.events);
    fabric.check_production();
}

#[test]
fn a_switch_that_refuses_such_groups_takes_one_way() {
    let refuse = |body: &Body| match body {
        Body::GroupMod(change) if change.group_type == GroupType::Select => {
            Some(ErrorKind::OFPGMFC_OUT_OF_GROUPS)
        }
        _ => None,
    };
    let mut fabric = Fabric::leaf_spine();
    fabric.world.model(1).refuse = Some(refuse);
    fabric.learn();
    fabric.check_production();
    fabric.world.tap(policy("far", "0x3/2"));
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    assert_eq!(forks(&mut fabric, 1, GroupType::Select), []);
    check_ledger(&mut fabric, "far", 1);
}
