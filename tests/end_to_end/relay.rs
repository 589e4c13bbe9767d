//! Switches that are not connected to the leader but to another controller, which relays them.

use serde_json::Value;

use crate::cluster::{Watch, add, names};
use crate::support::*;

const RING: [(u8, u8); 3] = [(1, 2), (2, 3), (3, 1)];

#[test]
fn a_switch_that_only_a_follower_has_is_led_through_it() {
    let Some(mut fabric) = Fabric::with_cluster(&[Kind::Ours; 3], &RING) else { return };
    let (old, follower, _) = roles(&fabric);
    fabric.connect_to(3, &[follower]);
    wait_until_relayed(&fabric, 3, Some(follower));
    fabric.wait_for_links(RING.len());
    // The copies end at that switch.
    let watch = Watch::start(&fabric);
    add(&fabric, "relayed");

    fabric.cluster_mut().kill_controller(old);
    let (new, took) = fabric.cluster().wait_for_leader(&[old]);
    println!("elected after {took:.1?}");
    watch.flow.go_on(100);
    wait_until_relayed(&fabric, 3, (new != follower).then_some(follower));
    add(&fabric, "after");
    let policies = fabric.ask(&["policy", "list"]).json();
    assert_eq!(names(&policies), ["after", "relayed", "standing"]);
    watch.finish(&fabric);
}

#[test]
fn a_switch_of_open_vswitch_is_relayed_while_it_does_not_reach_the_leader() {
    let kinds = [Kind::Ours, Kind::Ours, Kind::OpenVswitch];
    let Some(mut fabric) = Fabric::with_cluster(&kinds, &RING) else { return };
    let (leader, first, second) = roles(&fabric);
    let watch = Watch::start(&fabric);
    // Both have it, one claims it.
    fabric.connect_to(3, &[first, second]);
    eventually("it is relayed", || {
        through(&fabric, 3).is_some_and(|by| by.is_string()).then_some(())
    });
    watch.flow.go_on(50);
    add(&fabric, "relayed");

    let by = through(&fabric, 3).unwrap();
    let other = [first, second].into_iter().find(|number| id(&fabric, *number) != by).unwrap();
    fabric.connect_to(3, &[other]);
    wait_until_relayed(&fabric, 3, Some(other));
    add(&fabric, "by another one");

    fabric.connect_to(3, &[leader, first, second]);
    wait_until_relayed(&fabric, 3, None);
    add(&fabric, "itself");
    assert_eq!(fabric.cluster().wait_for_leader(&[]).0, leader, "nobody else had to lead");
    watch.finish(&fabric);
}

/// The leader and the followers.
fn roles(fabric: &Fabric) -> (usize, usize, usize) {
    let leader = fabric.cluster().wait_for_leader(&[]).0;
    (leader, (leader + 1) % 3, (leader + 2) % 3)
}

/// The name of a controller.
fn id(fabric: &Fabric, controller: usize) -> Value {
    fabric.cluster().ask(controller, &["show", "controller"]).json()["id"].clone()
}

/// Through which controller a connected switch is led.
fn through(fabric: &Fabric, number: u8) -> Option<Value> {
    let switches = fabric.ask(&["show", "switches"]).json();
    let mut switches = switches.as_array()?.iter();
    let switch = switches.find(|it| it["switch"] == format!("{number:#x}"))?;
    (switch["is_connected"] == true).then(|| switch["through"].clone())
}

/// Waits until a switch is led through this controller, or is connected to the leader itself.
fn wait_until_relayed(fabric: &Fabric, number: u8, by: Option<usize>) {
    let by = by.map_or(Value::Null, |by| id(fabric, by));
    until("it is led as it should be", || through(fabric, number).as_ref() == Some(&by));
}
