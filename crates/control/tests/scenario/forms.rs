//! Form of copies: with or without the tags of their frames.

use tapswitch_control::*;

use crate::fabric::{Fabric, check_ledger};
use crate::frames::{arp_request, tcp};
use crate::world::{Arrivals, World, policy};

fn strip(name: &str, monitor: &str) -> TapPolicy {
    TapPolicy { tags: Tagging::Strip, ..policy(name, monitor) }
}

/// Makes hosts 1 to 3 known with this tag and without.
fn learn(fabric: &mut Fabric, vlan: u16) {
    for host in 1..=3 {
        fabric.send(host, &arp_request(host, 99, None));
        fabric.send(host, &arp_request(host, 99, Some(vlan)));
    }
}

/// The frame with an outer 802.1ad tag.
fn in_service_vlan(frame: &[u8], vlan: u16) -> Vec<u8> {
    let tag = [0x88a8_u16.to_be_bytes(), vlan.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

fn check(arrivals: &Arrivals, expected: &[(u64, u32, &[u8])]) {
    let expected = expected.iter().map(|(switch, port, frame)| (*switch, *port, frame.to_vec()));
    assert_eq!(*arrivals, expected.collect::<Vec<_>>());
}

#[test]
fn copies_lose_their_tags_and_frames_keep_them() {
    let mut fabric = Fabric::line(3);
    learn(&mut fabric, 100);
    learn(&mut fabric, 200);
    fabric.world.plan_and_tap(strip("far", "0x3/2"));
    fabric.world.plan_and_tap(strip("near", "0x1/2"));
    let plain = tcp(1, 2).bytes();
    let tagged = tcp(1, 2).vlan_bytes(Some(100));
    let twice = in_service_vlan(&tagged, 200);
    for frame in [&plain, &tagged, &twice] {
        let arrivals = fabric.world.inject(1, 1, frame);
        check(&arrivals, &[(1, 2, &plain), (2, 1, frame), (3, 2, &plain)]);
    }
    check_ledger(&mut fabric, "far", 3);
    check_ledger(&mut fabric, "near", 3);
}

#[test]
fn who_keeps_tags_gets_them_also_where_another_strips_them() {
    let mut fabric = Fabric::line(3);
    learn(&mut fabric, 100);
    fabric.world.plan_and_tap(strip("all", "0x3/2"));
    fabric.world.plan_and_tap(TapPolicy { dst_port: Some(80.into()), ..policy("web", "0x3/2") });
    let web = tcp(1, 2).vlan_bytes(Some(100));
    let mut other = tcp(1, 2);
    other.dst_port = 81;
    let (tagged, plain) = (other.vlan_bytes(Some(100)), other.bytes());
    check(&fabric.world.inject(1, 1, &web), &[(2, 1, &web), (3, 2, &web)]);
    check(&fabric.world.inject(1, 1, &tagged), &[(2, 1, &tagged), (3, 2, &plain)]);
}

/// A frame that reaches the monitor without any TAP is no copy.
#[test]
fn frames_for_the_monitor_itself_keep_their_tags() {
    let mut fabric = Fabric::line(3);
    learn(&mut fabric, 100);
    fabric.world.plan_and_tap(strip("all", "02:00:00:00:00:02"));
    let tagged = tcp(1, 2).vlan_bytes(Some(100));
    check(&fabric.world.inject(1, 1, &tagged), &[(2, 1, &tagged)]);
    let flooded = arp_request(1, 98, Some(100));
    let arrivals = fabric.world.inject(1, 1, &flooded);
    assert!(arrivals.iter().all(|(.., frame)| *frame == flooded), "{arrivals:?}");
}

#[test]
fn a_switch_that_is_not_ours_strips_tags_too() {
    let mut world = World::foreign(4);
    world.learn(2);
    for host in 1..=2 {
        world.switch().receive(host.into(), &arp_request(host, 99, Some(100)));
        world.run();
    }
    world.tap(strip("all", "3"));
    let (tagged, plain) = (tcp(1, 2).vlan_bytes(Some(100)), tcp(1, 2).bytes());
    let sent = world.switch().receive(1, &tagged);
    assert_eq!(sent, [(2, tagged), (3, plain.clone())]);
    assert_eq!(world.send(1, &plain), [2, 3]);
    let notes = world.control.policy("all").unwrap().notes;
    let expected =
        "switch 0x1 is not a tapswitch and strips only the outermost VLAN tag: an inner one stays";
    assert!(notes.iter().any(|note| note == expected), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("copies every frame whole")), "{notes:?}");
}
