//! Replacement of a policy by another one of the same name.

use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_control::*;
use tapswitch_helpers::cases;
use tapswitch_openflow::{Body, ErrorKind};

use crate::fabric::Fabric;
use crate::frames::{mac, tcp, udp};
use crate::world::{World, policy};

fn replace(world: &mut World, policy: TapPolicy) -> Result<(), PolicyError> {
    world.events.clear();
    world.control.replace_policy(policy, WhenMissing::Refuse)?;
    world.run();
    Ok(())
}

fn replaced(name: &str) -> Event {
    Event::PolicyReplaced { name: name.to_owned() }
}

fn web(monitor: &str) -> TapPolicy {
    TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("web", monitor) }
}

#[test]
fn another_version_takes_over_and_counts_from_zero() {
    let mut world = World::new(5);
    world.learn(2);
    let before = world.switch().state();
    world.tap(web("3"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    let udp_too = TapPolicy { ip_proto: None, ..web("0x1/4") };
    replace(&mut world, udp_too.clone()).unwrap();
    let [first, Event::PolicySuperseded(last)] = &world.events[..] else {
        panic!("{:?}", world.events)
    };
    assert_eq!((first, last.matched.packets, last.adds_up), (&replaced("web"), 1, true));
    assert_eq!(last.policy, web("0x1/3"));
    assert_eq!(world.send(1, &udp(1, 2).bytes()), [2, 4]);
    let report = world.ledger("web");
    assert_eq!((report.policy, report.matched.packets), (udp_too, 1));
    assert_eq!(world.control.policies().len(), 1);
    world.untap("web");
    assert_eq!(world.switch().state(), before, "nothing of either is left");
}

#[test]
fn what_changes_no_copy_changes_no_rule() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(web("3"));
    world.send(1, &tcp(1, 2).bytes());
    world.take_changes();
    let why = TapPolicy { reason: Some("ticket 7".to_owned()), ..web("0x1/3") };
    replace(&mut world, why.clone()).unwrap();
    assert_eq!(world.events, [replaced("web")]);
    assert_eq!(world.take_changes(), []);
    let report = world.ledger("web");
    assert_eq!((report.policy, report.matched.packets), (why, 1));
}

#[test]
fn what_is_refused_leaves_the_old_one_alone() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(web("3"));
    let missing = replace(&mut world, web("9")).unwrap_err();
    assert_eq!(missing.field(), Some("monitor"));
    let unknown = replace(&mut world, policy("other", "3")).unwrap_err();
    assert!(matches!(unknown, PolicyError::Unknown { .. }));
    let past = TapPolicy { vlan: Vlan::Id(4095), ..web("3") };
    assert_eq!(replace(&mut world, past).unwrap_err().field(), Some("vlan"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.ledger("web").matched.packets, 1);
}

#[test]
fn a_version_that_a_switch_refuses_goes_and_the_old_one_stays() {
    let mut world = World::new(5);
    world.learn(2);
    world.tap(web("3"));
    let before = world.switch().state();
    world.switch().refuse = Some(|body| match body {
        Body::GroupMod(group) if group.to_string().contains("output:4") => {
            Some(ErrorKind::OFPGMFC_OUT_OF_GROUPS)
        }
        _ => None,
    });
    replace(&mut world, web("4")).unwrap();
    let is_told =
        |event: &Event| matches!(event, Event::PolicyNotReplaced { name, .. } if name == "web");
    assert!(world.events.iter().any(is_told), "{:?}", world.events);
    world.switch().refuse = None;
    assert_eq!(world.switch().state(), before);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.state("web"), PolicyState::Active);
}

#[test]
fn a_policy_that_goes_takes_its_heir_along() {
    let mut world = World::new(5);
    world.learn(2);
    let before = world.switch().state();
    world.tap(web("3"));
    world.control.replace_policy(web("4"), WhenMissing::Refuse).unwrap();
    world.control.replace_policy(web("5"), WhenMissing::Refuse).unwrap();
    world.control.delete_policy("web").unwrap();
    world.run();
    let deleted = world.events.iter().filter(|event| matches!(event, Event::PolicyDeleted(_)));
    assert_eq!(deleted.count(), 1, "{:?}", world.events);
    assert!(!world.events.contains(&replaced("web")));
    assert_eq!(world.switch().state(), before);
    assert!(world.control.policies().is_empty());
}

#[test]
fn a_later_end_counts_and_the_earlier_one_does_not() {
    let mut world = World::new(4);
    world.control.handle_clock(UnixTime(1_700_000_000_000), world.now);
    let ends = |after| TapPolicy { expires: Some(Expiry::After(after)), ..web("3") };
    world.tap(ends(10));
    world.pass(5000);
    replace(&mut world, ends(60)).unwrap();
    world.pass(10_000);
    assert_eq!(world.control.policies().len(), 1);
    world.pass(51_000);
    assert!(world.control.policies().is_empty(), "{:?}", world.control.policies());
}

#[test]
fn a_plan_of_a_replacement_tells_the_difference_alone() {
    let mut world = World::new(5);
    world.learn(2);
    world.tap(web("3"));
    let before = world.switch().state();
    let plan = world.control.plan_replacement(web("4")).unwrap();
    assert!(plan.proof.is_proved && plan.proof.checked > 0, "{:?}", plan.proof);
    let [change] = &plan.changes[..] else { panic!("{plan:?}") };
    assert!(change.add.iter().any(|line| line.contains("output:4")), "{change:?}");
    assert!(change.add.iter().all(|line| !line.contains("output:3")), "{change:?}");
    let same = world.control.plan_replacement(web("3")).unwrap();
    assert_eq!(same.changes, []);
    world.run();
    assert_eq!(world.switch().state(), before);
}

/// Successive versions while hosts send, with monitors near and far.
fn versions(seed: &[u8]) {
    let mut fabric = Fabric::leaf_spine();
    fabric.learn();
    let version = |byte: u8| {
        let ip_proto = (byte & 1 == 1).then_some(IpProto::TCP);
        let monitor = format!("{:#x}/2", u64::from(byte / 2 % 4 + 1));
        TapPolicy { src_mac: Some(mac(1)), ip_proto, ..policy("v", &monitor) }
    };
    fabric.world.tap(version(0));
    for &byte in seed {
        replace(&mut fabric.world, version(byte)).unwrap();
        let monitor = (u64::from(byte / 2 % 4 + 1), 2);
        let mut expected = vec![(2, 1), monitor];
        expected.sort_unstable();
        assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), expected, "{byte}");
        assert_eq!(fabric.world.control.policies().len(), 1);
        assert_eq!(fabric.world.state("v"), PolicyState::Active);
    }
    let report = fabric.world.untap("v");
    assert!(report.adds_up && report.is_complete, "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(12)))]

    #[test]
    fn versions_with_far_monitors_follow_each_other(seed in vec(any::<u8>(), 1..12)) {
        versions(&seed);
    }
}

#[test]
fn what_would_go_wrong_is_told_before_and_what_is_right_is_proved() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let verdict = fabric.world.control.judge(Change::Add(&policy("a", "0x3/2"))).unwrap();
    assert!(verdict.proof.is_some_and(|proof| proof.is_proved && proof.checked > 0));
    // Discovery probes belong to the controller: there are no copies of them.
    let lldp = TapPolicy {
        eth_type: Some("lldp".parse().unwrap()),
        dst_mac: Some("01:80:c2:00:00:0e".parse().unwrap()),
        ..policy("b", "0x1/2")
    };
    let verdict = fabric.world.control.judge(Change::Add(&lldp)).unwrap();
    let told = verdict.counterexample().unwrap_or_else(|| panic!("{verdict:?}"));
    assert!(told.contains("would arrive") && told.contains(", not at"), "{told}");
    fabric.world.tap(policy("a", "0x3/2"));
    let replaced = fabric.world.control.judge(Change::Replace(&policy("a", "0x1/2"))).unwrap();
    assert_eq!(replaced.unproved, None);
}
