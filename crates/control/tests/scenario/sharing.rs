//! Monitors that share flows: each flow is copied to one of them, in both directions.

use std::collections::BTreeMap;

use tapswitch_control::*;

use crate::fabric::Fabric;
use crate::frames::{Packet, arp_request, tcp};
use crate::world::policy;

/// Switches in a line with known hosts; switch `at` has an additional port 3.
fn line(switches: u8, at: u8) -> Fabric {
    let mut fabric = Fabric::line(switches);
    fabric.learn();
    fabric.world.model(at.into()).add_port(3);
    fabric.world.run();
    fabric.wait(400);
    fabric
}

/// Sends both directions of flows between the first two hosts. Returns the port at switch `at` that
/// got the copies of each flow.
fn shared(fabric: &mut Fabric, at: u64, flows: u16) -> Vec<u32> {
    let places = scattered(fabric, flows).into_iter();
    let ports = places.map(|(switch, port)| {
        assert_eq!(switch, at);
        port
    });
    ports.collect()
}

/// Sends both directions of flows between the first two hosts. Returns where the copies of each
/// arrived.
fn scattered(fabric: &mut Fabric, flows: u16) -> Vec<(u64, u32)> {
    let both = |flow| {
        let there = Packet { src_port: 40_000 + flow, ..tcp(1, 2) };
        let (src_port, dst_port) = (there.dst_port, there.src_port);
        [(1, 2_u8, there), (2, 1, Packet { src_port, dst_port, ..tcp(2, 1) })]
    };
    let mut places = Vec::new();
    for flow in 0..flows {
        let copies = both(flow).map(|(from, to, packet)| {
            let mut arrivals = fabric.send(from, &packet.bytes());
            arrivals.retain(|arrival| *arrival != (u64::from(to), 1));
            let [place] = arrivals[..] else { panic!("{arrivals:?}") };
            place
        });
        assert_eq!(copies[0], copies[1], "both directions of flow {flow}");
        places.push(copies[0]);
    }
    places
}

/// Delivered copies by monitor.
fn delivered(report: &PolicyReport) -> BTreeMap<(u64, u32), u64> {
    let copied = report.copied.iter();
    let to = |monitor: &MonitorPort| (monitor.switch.0, monitor.port);
    copied.map(|copied| (to(&copied.monitor), copied.delivered.packets)).collect()
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
        let expected = [2, 3].map(|port| ((at.into(), port), 2 * count(&before, port)));
        assert_eq!(delivered(&report), expected.into());

        // If one loses its link, its flows go to the other one, before the controller knows.
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

/// Monitors at several switches share flows: at whichever switch a frame comes in, and so in both
/// directions, the same monitor gets it.
#[test]
fn each_flow_goes_to_one_of_several_monitors_at_several_switches() {
    let mut fabric = line(3, 1);
    fabric.world.plan_and_tap(policy("shared", "one-of:0x1/3+0x2/2+0x3/2"));
    let before = scattered(&mut fabric, 96);
    let places = [(1, 3), (2, 2), (3, 2)];
    let counts = places.map(|place| before.iter().filter(|other| **other == place).count() as u64);
    assert!(counts.iter().all(|count| *count >= 16), "{counts:?}");
    let report = fabric.world.ledger("shared");
    assert!(report.adds_up && report.is_complete && report.notes.is_empty(), "{report:?}");
    assert_eq!(report.matched.packets, 192);
    let expected: BTreeMap<_, _> = places.into_iter().zip(counts.map(|count| 2 * count)).collect();
    assert_eq!(delivered(&report), expected);
    let monitors: Vec<_> = report.monitors.iter().map(|port| (port.switch.0, port.port)).collect();
    assert_eq!(monitors, places);

    // If one loses its link, its flows go to the others, and return later.
    fabric.world.model(2).set_link(2, false);
    fabric.world.run();
    assert_eq!(fabric.world.state("shared"), PolicyState::Active);
    let meanwhile = scattered(&mut fabric, 96);
    assert!(meanwhile.iter().all(|place| *place != (2, 2)), "{meanwhile:?}");
    fabric.world.model(2).set_link(2, true);
    fabric.world.run();
    fabric.wait(400);
    assert_eq!(scattered(&mut fabric, 96), before);
    let report = fabric.world.untap("shared");
    assert!(report.adds_up && report.is_complete, "{report:?}");
    let sum: u64 = delivered(&report).values().sum();
    assert_eq!((report.matched.packets, sum), (3 * 192, 3 * 192));
}

/// Nothing is missed, copied twice or forwarded differently while a monitor goes and returns.
#[test]
fn flows_are_copied_once_while_a_monitor_at_another_switch_comes_and_goes() {
    let mut fabric = line(3, 1);
    fabric.world.tap(policy("shared", "one-of:0x1/3+0x2/2+0x3/2"));
    let (mut flow, mut copied) = (0, BTreeMap::<_, u64>::new());
    for is_up in [false, true] {
        fabric.world.model(2).set_link(2, is_up);
        fabric.world.pass_and_look(400, &mut |world| {
            flow += 1;
            let frame = Packet { src_port: 1024 + flow, ..tcp(1, 3) }.bytes();
            let mut arrivals = world.inject(1, 1, &frame);
            arrivals.retain(|(switch, port, _)| (*switch, *port) != (3, 1));
            // Until the copying switches are updated, copies to a port without a link are dropped
            // there.
            assert!(arrivals.len() == 1 || !is_up && arrivals.is_empty(), "{arrivals:?}");
            for (switch, port, _) in arrivals {
                *copied.entry((switch, port, is_up)).or_default() += 1;
            }
        });
    }
    let is_copied = |switch, port, is_up| copied.contains_key(&(switch, port, is_up));
    assert!(is_copied(1, 3, false) && is_copied(3, 2, false) && is_copied(2, 2, true));
    let report = fabric.world.ledger("shared");
    assert!(report.adds_up && report.is_complete, "{report:?}");
}

/// A policy whose monitors each get a copy continues for one while another one goes and returns,
/// and its traffic is forwarded as before.
#[test]
fn copies_for_one_monitor_go_on_while_another_one_comes_and_goes() {
    let mut fabric = line(3, 1);
    let mut tapped = policy("both", "0x2/2");
    tapped.monitor = Monitors::new(vec!["0x2/2".parse().unwrap(), "0x3/2".parse().unwrap()]);
    fabric.world.tap(tapped);
    for _ in 0..2 {
        for is_up in [false, true] {
            fabric.world.model(3).set_link(2, is_up);
            fabric.world.pass_and_look(400, &mut |world| {
                let arrivals = world.inject(1, 1, &tcp(1, 2).bytes()).into_iter();
                let mut places: Vec<_> = arrivals.map(|(switch, port, _)| (switch, port)).collect();
                places.retain(|place| *place != (3, 2));
                assert_eq!(places, [(2, 1), (2, 2)]);
            });
            let arrivals = fabric.send(1, &tcp(1, 2).bytes());
            assert_eq!(arrivals.contains(&(3, 2)), is_up);
            let report = fabric.world.ledger("both");
            assert!(report.adds_up && report.is_complete, "{report:?}");
        }
    }
}

#[test]
fn monitors_that_are_nowhere_cannot_share() {
    let mut fabric = line(2, 1);
    let added =
        fabric.world.control.add_policy(policy("p", "one-of:0x1/2+0x1/9"), WhenMissing::Refuse);
    let told = added.unwrap_err().to_string();
    assert!(told.contains("there is no such port"), "{told}");
}

#[test]
fn what_a_monitor_says_itself_is_proved_too() {
    for monitor in ["one-of:0x1/3+0x2/2", "one-of:0x1/2+0x1/3", "0x1/3"] {
        let mut fabric = line(2, 1);
        for (switch, port) in [(1, 2), (1, 3), (2, 2)] {
            fabric.world.inject(switch, port, &arp_request(10 + port as u8, 99, None));
        }
        fabric.world.plan_and_tap(policy("p", monitor));
    }
}

#[test]
fn a_port_that_leads_to_another_switch_is_no_monitor() {
    let mut fabric = line(2, 1);
    for monitor in ["0x1/10", "one-of:0x1/10+0x1/3"] {
        let told = fabric.world.control.plan_policy(policy("p", monitor)).unwrap_err().to_string();
        assert!(told.contains("port 0x1/10 leads to another switch"), "{told}");
    }
    // A monitor's port that gets a link later receives no more copies.
    fabric.world.tap(policy("p", "0x1/3"));
    fabric.world.model(2).add_port(3);
    fabric.world.cables.extend([((1, 3), (2, 3)), ((2, 3), (1, 3))]);
    for at in [1, 2] {
        fabric.world.model(at).set_link(3, false);
        fabric.world.model(at).set_link(3, true);
    }
    fabric.world.run();
    fabric.wait(1000);
    assert!(matches!(fabric.world.state("p"), PolicyState::Pending { .. }));
    fabric.check_production();
}

/// A monitor of one policy that also shares flows of another one gets each common frame once, and
/// the monitors that it shares with do not; frames of the other policy alone are shared as before.
#[test]
fn a_monitor_that_gets_a_frame_anyway_is_the_one_of_several() {
    for (at, own, shares) in [
        (1, (1, 3), "one-of:0x1/3+0x2/2"),
        (1, (1, 3), "one-of:0x1/2+0x1/3"),
        (1, (2, 2), "one-of:0x1/3+0x2/2"),
        (2, (2, 3), "one-of:0x2/2+0x2/3"),
    ] {
        let monitor = format!("{:#x}/{}", own.0, own.1);
        let web =
            TapPolicy { dst_port: Some(80.into()), snaplen: Some(64), ..policy("own", &monitor) };
        let policies = [web, policy("shared", shares)];
        for order in [[0, 1], [1, 0]] {
            let mut fabric = line(2, at);
            for index in order {
                fabric.world.plan_and_tap(policies[index].clone());
            }
            let mut shared_by = [0; 2];
            for flow in 0..32 {
                let mut copied_to = |dst_port| {
                    let packet = Packet { src_port: 40_000 + flow, dst_port, ..tcp(1, 2) };
                    let mut arrivals = fabric.send(1, &packet.bytes());
                    arrivals.retain(|arrival| *arrival != (2, 1));
                    let [place] = arrivals[..] else { panic!("{shares}: {arrivals:?}") };
                    place
                };
                assert_eq!(copied_to(80), own, "{shares}");
                shared_by[usize::from(copied_to(81) == own)] += 1;
            }
            assert!(shared_by.iter().all(|count| *count >= 8), "{shared_by:?}");
            for (name, count) in [("own", 32), ("shared", 64)] {
                let report = fabric.world.ledger(name);
                assert!(report.adds_up && report.is_complete, "{shares}: {report:?}");
                assert_eq!(report.matched.packets, count);
                assert_eq!(delivered(&report).values().sum::<u64>(), count, "{report:?}");
            }
        }
    }
}

/// Two sets with a common monitor would choose independently, and possibly both choose that one.
#[test]
fn a_monitor_that_two_sets_would_pick_is_refused() {
    let mut fabric = line(2, 1);
    fabric.world.plan_and_tap(policy("first", "one-of:0x1/2+0x1/3"));
    let plan = fabric.world.control.plan_policy(policy("second", "one-of:0x1/2+0x2/2")).unwrap();
    let told = plan.proof.problems.join(", ");
    assert!(!plan.proof.is_proved && told.contains("0x1/2"), "{told}");
}
