//! Copies whose only path uses a disconnected switch, or ends at one. It may still forward them, or
//! not.

use tapswitch_control::*;

use crate::fabric::{Fabric, check_ledger};
use crate::frames::{mac, tcp, udp};
use crate::world::policy;

/// A policy for all frames, and one for a single host, applied only at its switch.
fn tap_both(fabric: &mut Fabric) {
    let narrow = TapPolicy { src_mac: Some(mac(1)), ..policy("narrow", "0x3/2") };
    fabric.world.tap(policy("wide", "0x3/2"));
    fabric.world.tap(narrow);
    let near = TapPolicy { src_mac: Some(mac(3)), ..policy("near", "0x3/2") };
    fabric.world.tap(near);
}

#[test]
fn copies_whose_only_way_is_a_switch_that_went_may_not_arrive_and_that_is_said() {
    for max_places in [0, 100_000] {
        let limits = Limits { max_places, ..Limits::default() };
        let mut fabric = Fabric::with(3, &[(1, 2), (2, 3)], &limits);
        fabric.learn();
        tap_both(&mut fabric);
        fabric.world.disconnect(2);
        fabric.wait(100);
        for name in ["wide", "narrow"] {
            let PolicyState::Partial { reason } = fabric.world.state(name) else {
                panic!("{name}: {:?}", fabric.world.state(name))
            };
            let expected = "copies from 0x1 for monitor 0x3/2 can only go through switch 0x2";
            assert!(reason.starts_with(expected), "{reason}");
        }
        assert_eq!(fabric.world.state("near"), PolicyState::Active, "its copies go nowhere else");
        assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)], "they may arrive");
        fabric.world.connect(2);
        fabric.wait(1000);
        for name in ["wide", "narrow", "near"] {
            assert_eq!(fabric.world.state(name), PolicyState::Active, "{name}");
        }
    }
}

#[test]
fn copies_that_have_another_way_take_it_when_a_switch_goes() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    let narrow = TapPolicy { src_mac: Some(mac(1)), ..policy("narrow", "0x3/2") };
    fabric.world.tap(narrow);
    for gone in [2, 4] {
        fabric.world.disconnect(gone);
        fabric.wait(500);
        assert_eq!(fabric.world.state("narrow"), PolicyState::Active, "{gone} went");
        assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
        fabric.world.connect(gone);
        fabric.wait(1000);
    }
    fabric.world.disconnect(2);
    fabric.world.disconnect(4);
    fabric.wait(500);
    assert!(matches!(fabric.world.state("narrow"), PolicyState::Partial { .. }), "both went");
}

/// Why the policy is partial.
fn partial(fabric: &Fabric, name: &str) -> String {
    match fabric.world.state(name) {
        PolicyState::Partial { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// The switch on the path goes before it has confirmed the path, or has gone before. It may have
/// got its rules, and then has nothing to confirm when it is back.
#[test]
fn a_path_through_a_switch_that_went_is_used_when_it_is_back() {
    for (max_places, has_gone) in [(0, false), (0, true), (100_000, false), (100_000, true)] {
        let limits = Limits { max_places, ..Limits::default() };
        let mut fabric = Fabric::with(3, &[(1, 2), (2, 3)], &limits);
        fabric.learn();
        if has_gone {
            fabric.world.disconnect(2);
        }
        fabric.world.model(2).ignores_barriers = true;
        let narrow = TapPolicy { src_mac: Some(mac(1)), ..policy("narrow", "0x3/2") };
        fabric.world.control.add_policy(narrow, WhenMissing::Refuse).unwrap();
        fabric.world.run();
        if !has_gone {
            assert_eq!(fabric.world.state("narrow"), PolicyState::Installing);
            fabric.world.disconnect(2);
        }
        fabric.wait(100);
        let reason = partial(&fabric, "narrow");
        let expected = "can only go through switch 0x2, which is not connected, and are not made";
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1)]);
        fabric.world.model(2).ignores_barriers = false;
        fabric.world.connect(2);
        fabric.wait(1000);
        assert_eq!(fabric.world.state("narrow"), PolicyState::Active, "{max_places} {has_gone}");
        assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
        check_ledger(&mut fabric, "narrow", 1);
    }
}

#[test]
fn a_policy_stays_while_the_path_of_another_in_its_place_cannot_be_opened() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    fabric.world.disconnect(2);
    fabric.wait(100);
    fabric.world.events.clear();
    let other = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("all", "0x3/2") };
    fabric.world.control.replace_policy(other, WhenMissing::Refuse).unwrap();
    fabric.world.run();
    let told = fabric.world.events.iter().find_map(|event| match event {
        Event::PolicyNotReplaced { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert!(told.unwrap().contains("switch 0x2"), "{told:?}");
    assert_eq!(fabric.world.control.policy("all").unwrap().policy, policy("all", "0x3/2"));
    assert_eq!(fabric.send(1, &udp(1, 3).bytes()), [(3, 1), (3, 2)], "they may arrive");
}

#[test]
fn a_policy_that_lost_the_switch_of_a_monitor_says_so_and_copies_on() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let monitors = ["0x1/2", "0x3/2"].map(|monitor| monitor.parse().unwrap());
    fabric.world.tap(TapPolicy::to_several("all", Monitors::new(monitors.to_vec())));
    assert_eq!(fabric.world.state("all"), PolicyState::Active);
    fabric.world.disconnect(3);
    fabric.wait(2000);
    let PolicyState::Partial { reason } = fabric.world.state("all") else {
        panic!("{:?}", fabric.world.state("all"))
    };
    let expected = "monitor 0x3/2: switch 0x3 is not connected, so it is unknown whether";
    assert!(reason.starts_with(expected) && !reason.contains("; copies from"), "{reason}");
    let copied = [(1, 2), (3, 1), (3, 2)];
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), copied, "it copies on");
    // Frames whose copies end there are not traced.
    let plan = fabric.world.control.plan_policy(policy("other", "0x1/2")).unwrap();
    let [problem] = &plan.proof.problems[..] else { panic!("{plan:?}") };
    assert!(problem.contains("could be traced: switch 0x3 is not connected"), "{problem}");
    fabric.world.tap(policy("other", "0x2/2"));
    assert!(!matches!(fabric.world.state("other"), PolicyState::Failed { .. }));
    fabric.world.untap("other");
    fabric.world.connect(3);
    fabric.wait(500);
    assert_eq!(fabric.world.state("all"), PolicyState::Active);
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), copied);
    check_ledger(&mut fabric, "all", 2);
}

/// Members that share flows stand in for each other, as long as there is one.
#[test]
fn the_share_of_a_monitor_whose_switch_is_lost_goes_to_the_others() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "one-of:0x1/2+0x3/2"));
    let at = |fabric: &Fabric| {
        let policy = fabric.world.control.policy("all").unwrap();
        policy.monitors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(at(&fabric), ["0x1/2", "0x3/2"]);
    fabric.world.disconnect(3);
    fabric.wait(2000);
    assert_eq!(at(&fabric), ["0x1/2"]);
    fabric.world.disconnect(1);
    fabric.wait(2000);
    assert_eq!(at(&fabric), ["0x1/2"], "it stays where it was");
    [1, 3].into_iter().for_each(|switch| fabric.world.connect(switch));
    fabric.wait(2000);
    assert_eq!(at(&fabric), ["0x1/2", "0x3/2"]);
}
