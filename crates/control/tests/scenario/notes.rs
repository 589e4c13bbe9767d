//! Notes on what a policy asks for and does not get.

use tapswitch_control::*;

use crate::fabric::Fabric;
use crate::frames::{mac, tcp};
use crate::world::{World, policy};

fn notes(world: &World, name: &str) -> Vec<String> {
    world.control.policy(name).unwrap().notes
}

#[test]
fn frames_for_the_next_bridge_are_not_copied_and_that_is_said() {
    let mut world = World::new(4);
    world.learn(2);
    let lldp = "lldp".parse().unwrap();
    let stp = Some("01:80:c2:00:00:00".parse().unwrap());
    let kept = [
        TapPolicy { eth_type: Some(lldp), ..policy("lldp", "4") },
        TapPolicy { dst_mac: stp, ..policy("stp", "4") },
        TapPolicy { filter: Some("ether proto 0x8809".parse().unwrap()), ..policy("lacp", "4") },
    ];
    for policy in kept {
        let name = policy.name.clone();
        world.tap(policy);
        let notes = notes(&world, &name);
        assert!(matches!(&notes[..], [one] if one.contains("are not copied")), "{notes:?}");
    }
    world.tap(TapPolicy { dst_mac: Some(mac(2)), ..policy("web", "4") });
    assert_eq!(notes(&world, "web"), Vec::<String>::new());
}

#[test]
fn a_monitor_that_is_where_its_senders_are_is_told() {
    let mut world = World::new(4);
    world.learn(3);
    let from = |name, monitor| TapPolicy { src_mac: Some(mac(1)), ..policy(name, monitor) };
    world.tap(from("own", "1"));
    let told = notes(&world, "own");
    assert!(matches!(&told[..], [one] if one.contains("monitor's port 0x1/1")), "{told:?}");
    world.tap(from("other", "3"));
    world.tap(TapPolicy { direction: Some(Direction::Both), ..from("both", "1") });
    assert!(notes(&world, "other").is_empty() && notes(&world, "both").is_empty());
}

#[test]
fn a_link_that_no_tags_of_copies_leave_by_is_told_with_a_remedy() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let near = TapPolicy { src_mac: Some(mac(2)), ..policy("near", "0x1/2") };
    let (transport, dst_mac) = (Transport::Rewrite, Some(mac(3)));
    let rewritten = TapPolicy { transport, dst_mac, ..policy("rewritten", "0x3/2") };
    for policy in [policy("tagged", "0x3/2"), near, rewritten] {
        fabric.world.tap(policy);
    }
    for passes_tags in [false, true] {
        fabric.world.model(2).set_link(11, false);
        fabric.wait(500);
        fabric.world.model(2).set_mode(11, passes_tags);
        fabric.wait(1000);
        for unhurt in ["near", "rewritten"] {
            assert_eq!(fabric.world.state(unhurt), PolicyState::Active, "{unhurt}");
        }
        match fabric.world.state("tagged") {
            PolicyState::Partial { reason } if !passes_tags => {
                let place = "copies for monitor 0x3/2 cannot pass port 0x2/11: between switches";
                let remedies = ["mode=provider or no mode", "--transport rewrite"];
                assert!(reason.starts_with(place), "{reason}");
                assert!(remedies.iter().all(|remedy| reason.contains(remedy)), "{reason}");
                let plan = fabric.world.control.plan_policy(policy("other", "0x3/2")).unwrap();
                assert!(plan.notes == [reason.as_str()], "{plan:?}");
            }
            state => assert!(passes_tags && state == PolicyState::Active, "{state:?}"),
        }
    }
}

#[test]
fn copies_go_around_a_link_that_does_not_take_them() {
    let mut fabric = Fabric::ring(3);
    fabric.learn();
    fabric.world.tap(policy("tagged", "0x3/2"));
    let to_3 = [1, 2].map(|from| fabric.exit_to(from, 3));
    assert!(to_3.iter().all(Option::is_some), "both have a link of their own");
    let [Some(port), _] = to_3 else { return };
    fabric.world.model(1).set_link(port, false);
    fabric.wait(500);
    fabric.world.model(1).set_mode(port, false);
    fabric.wait(1000);
    assert_eq!(fabric.exit_to(1, 3), Some(port), "there is a link");
    assert_eq!(fabric.world.state("tagged"), PolicyState::Active);
    let before = fabric.world.crossed.get(&(1, port)).copied();
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    assert_eq!(fabric.world.crossed.get(&(1, port)).copied(), before);
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
    assert_ne!(fabric.world.crossed.get(&(1, port)).copied(), before, "originals take it");
}

#[test]
fn vlans_of_copies_between_switches_are_refused_with_their_range() {
    let copied = |monitor| TapPolicy { vlan: Vlan::Id(3080), ..policy("copied", monitor) };
    World::new(2).tap(copied("2"));
    let mut fabric = Fabric::line(2);
    let copied = copied("0x2/2");
    let refused = fabric.world.control.add_policy(copied, WhenMissing::Refuse).unwrap_err();
    assert_eq!(refused.field(), Some("vlan"));
    let text = refused.to_string();
    assert!(text.starts_with("vlan 3080: 3072-4094 are reserved for copies between"), "{text}");
    fabric.world.tap(TapPolicy { vlan: Vlan::Id(3071), ..policy("free", "0x2/2") });
}

#[test]
fn known_hosts_of_several_switches_come_with_their_switch() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    let nobody = policy("p", "02:00:00:00:00:99");
    let refused = fabric.world.control.add_policy(nobody, WhenMissing::Refuse).unwrap_err();
    let text = refused.to_string();
    for (host, place) in [(1, "0x1/1"), (2, "0x2/1")] {
        let found = text.split(", ").any(|known| {
            known.contains(&mac(host).to_string()) && known.ends_with(&format!(" at {place}"))
        });
        assert!(found, "{text}");
    }
}

#[test]
fn a_monitor_that_any_switch_would_do_for_is_said_to_lack_one() {
    let mut world = World::empty(Limits::default());
    let all = policy("all", "controller");
    let told = "monitor controller: no switch is connected; point one at this controller";
    let plan = world.control.plan_policy(all.clone()).unwrap();
    assert_eq!(plan.proof.problems, [told]);
    world.control.add_policy(all, WhenMissing::Wait).unwrap();
    assert_eq!(world.state("all"), PolicyState::Pending { reason: told.to_owned() });
    world.add_switch(1, 2);
    assert_eq!(world.state("all"), PolicyState::Active);
}

#[test]
fn that_another_switch_shares_flows_by_itself_is_told_once() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    for id in [1, 2] {
        fabric.world.disconnect(id);
        fabric.world.model(id).is_foreign = true;
        fabric.world.connect(id);
        fabric.wait(500);
    }
    fabric.world.tap(policy("shared", "one-of:0x1/2+0x2/2"));
    let told = notes(&fabric.world, "shared").concat();
    assert_eq!(told.matches("by its own hash").count(), 2, "{told}");
    assert_eq!(
        told.matches("different switches may choose different monitors").count(),
        2,
        "{told}"
    );
}

/// A deletion is done: there is nothing to retry.
#[test]
fn why_a_deletion_was_not_proved_is_told_without_a_remedy() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x1/2"));
    fabric.world.disconnect(2);
    let verdict = fabric.world.control.judge(Change::Delete("all")).unwrap();
    let told = verdict.unproved.unwrap();
    assert!(told.contains("not connected") && !told.contains("again"), "{told}");
    let plan = fabric.world.control.plan_policy(policy("other", "0x1/2")).unwrap();
    let problems = plan.proof.problems.concat();
    assert!(problems.is_empty() || problems.contains("try again when that is done"), "{plan:?}");
}
