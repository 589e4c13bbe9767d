//! Monitors that share flows: each flow's copies go to one of them, whichever way it goes.

use std::collections::BTreeMap;

use tapswitch_control::*;

use crate::fabric::Fabric;
use crate::frames::{Packet, tcp};
use crate::world::policy;

/// Switches in a line, whose hosts are known; the one `at` has one more port, 3.
fn line(switches: u8, at: u8) -> Fabric {
    let mut fabric = Fabric::line(switches);
    fabric.learn();
    fabric.world.model(at.into()).add_port(3);
    fabric.world.run();
    fabric.wait(400);
    fabric
}

/// Both directions of flows between the first two hosts. Returns the port that got the copies of
/// each flow, at the switch `at`.
fn shared(fabric: &mut Fabric, at: u64, flows: u16) -> Vec<u32> {
    let both = |flow| {
        let there = Packet { src_port: 40_000 + flow, ..tcp(1, 2) };
        let (src_port, dst_port) = (there.dst_port, there.src_port);
        [(1, 2_u8, there), (2, 1, Packet { src_port, dst_port, ..tcp(2, 1) })]
    };
    let mut ports = Vec::new();
    for flow in 0..flows {
        let copies = both(flow).map(|(from, to, packet)| {
            let mut arrivals = fabric.send(from, &packet.bytes());
            arrivals.retain(|arrival| *arrival != (u64::from(to), 1));
            let [(switch, port)] = arrivals[..] else { panic!("{arrivals:?}") };
            assert_eq!(switch, at);
            port
        });
        assert_eq!(copies[0], copies[1], "both directions of flow {flow}");
        ports.push(copies[0]);
    }
    ports
}

/// What was delivered to each port.
fn delivered(report: &PolicyReport) -> BTreeMap<u32, u64> {
    let copied = report.copied.iter();
    copied.map(|copied| (copied.monitor.port, copied.delivered.packets)).collect()
}

fn count(ports: &[u32], port: u32) -> u64 {
    ports.iter().filter(|other| **other == port).count() as u64
}

#[test]
fn each_flow_goes_to_one_of_several_monitors_near_or_far() {
    for (switches, at) in [(2, 1), (3, 3)] {
        let mut fabric = line(switches, at);
        let monitor = format!("one-of:{at:#x}/2+{at:#x}/3");
        fabric.world.plan_and_tap(policy("shared", &monitor));
        let before = shared(&mut fabric, at.into(), 64);
        let counts = [2, 3].map(|port| count(&before, port));
        assert!(counts.iter().all(|count| *count >= 16), "{counts:?}");
        let report = fabric.world.ledger("shared");
        assert!(report.adds_up && report.is_complete && report.notes.is_empty(), "{report:?}");
        assert_eq!(report.matched.packets, 128);
        assert_eq!(delivered(&report), [(2, 2 * counts[0]), (3, 2 * counts[1])].into());

        // One without a link leaves its flows to the other, before the controller knows.
        fabric.world.is_stopped = true;
        fabric.world.model(at.into()).set_link(2, false);
        assert!(shared(&mut fabric, at.into(), 64).iter().all(|port| *port == 3));
        fabric.world.is_stopped = false;
        fabric.world.run();
        assert_eq!(fabric.world.state("shared"), PolicyState::Active);
        fabric.world.model(at.into()).set_link(2, true);
        fabric.world.run();
        fabric.wait(400);
        assert_eq!(shared(&mut fabric, at.into(), 64), before, "and gets them back");
        let report = fabric.world.untap("shared");
        assert!(report.adds_up && report.is_complete, "{report:?}");
        let sum: u64 = delivered(&report).values().sum();
        assert_eq!((report.matched.packets, sum), (3 * 128, 3 * 128));
    }
}

#[test]
fn a_frame_for_one_of_them_is_not_copied_to_another() {
    let mut fabric = line(2, 2);
    fabric.world.plan_and_tap(policy("shared", "one-of:0x2/1+0x2/3"));
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1)]);
    let report = fabric.world.ledger("shared");
    assert!(report.adds_up && report.matched.packets == 1, "{report:?}");
}

#[test]
fn a_controller_that_starts_again_lets_flows_be_shared_as_before() {
    let mut fabric = line(3, 3);
    let shared_by = policy("shared", "one-of:0x3/2+0x3/3");
    fabric.world.tap(shared_by.clone());
    let before = shared(&mut fabric, 3, 32);
    let state = |fabric: &Fabric| {
        let switches = fabric.world.switches.values();
        switches.map(|model| format!("{:?}", model.state())).collect::<Vec<_>>()
    };
    let rules = state(&fabric);
    fabric.world.restart_controller(&[shared_by]);
    fabric.wait(400);
    assert_eq!(state(&fabric), rules);
    assert_eq!(shared(&mut fabric, 3, 32), before);
}

#[test]
fn monitors_at_several_switches_or_nowhere_cannot_share() {
    let mut fabric = line(2, 1);
    let mut refusal = |monitor: &str| {
        let added = fabric.world.control.add_policy(policy("p", monitor), WhenMissing::Refuse);
        added.unwrap_err().to_string()
    };
    let told = refusal("one-of:0x1/2+0x2/2");
    assert!(told.contains("at several switches (0x1/2, 0x2/2)"), "{told}");
    assert!(told.ends_with("name ports of one switch"), "{told}");
    let told = refusal("one-of:0x1/2+0x1/9");
    assert!(told.contains("there is no such port"), "{told}");
}
