//! TAPs over several switches: one set of scenarios on fabrics of ours, of Open vSwitch, and mixed.

use crate::support::*;

/// Runs each scenario on each fabric.
macro_rules! on_every_fabric {
    ($($scenario:ident)*) => {
        on_fabric!(ring_of_ours [Ours Ours Ours] $($scenario)*);
        on_fabric!(ring_of_open_vswitch [OpenVswitch OpenVswitch OpenVswitch] $($scenario)*);
        on_fabric!(mixed_ring [Ours OpenVswitch Ours] $($scenario)*);
    };
}

macro_rules! on_fabric {
    ($name:ident [$a:ident $b:ident $c:ident] $($scenario:ident)*) => {
        mod $name {
            use crate::support::{Fabric, Kind};
            $(#[test]
            fn $scenario() {
                if let Some(fabric) = Fabric::ring(&[Kind::$a, Kind::$b, Kind::$c]) {
                    super::$scenario(&fabric);
                    fabric.assert_conserved();
                }
            })*
        }
    };
}

on_every_fabric! {
    a_running_flow_is_copied_to_a_far_monitor
    a_cable_may_go_while_a_connection_is_copied
    what_is_broadcast_arrives_once
}

fn a_running_flow_is_copied_to_a_far_monitor(fabric: &Fabric) {
    fabric.introduce();
    let stream = Stream::new(fabric.host(1), fabric.host(2));
    let mut monitor = Capture::open(fabric.monitor(3));
    let mut near = Capture::open(fabric.monitor(1));
    let flow = Flow::start(&stream, fabric.host(1), fabric.host(2));
    flow.go_on(50);
    assert!(monitor.numbers(&stream).is_empty(), "no copies before there is a policy");
    let fields = ["--src-ip", "10.0.0.1", "--ip-proto", "udp", "--monitor", "0x3/2"];
    let plan = fabric.ask(&[&["policy", "add", "far", "--dry-run"], &fields[..]].concat()).json();
    assert_eq!(plan["proof"]["is_proved"], true, "{plan}");
    assert!(plan["changes"].as_array().unwrap().len() >= 3, "{plan}");
    fabric.add("far", &fields);
    let after = flow.arrived();
    flow.go_on(200);
    let total = flow.finish();
    let copies = monitor.numbers(&stream);
    // Those that were under way are not among them.
    assert!(copies[0] <= after + 40, "copied from the answer on, of {total}: {copies:?}");
    assert!(copies.is_sorted_by(|a, b| a + 1 == *b), "each once, in order: {copies:?}");
    assert_eq!(copies.last(), Some(&(total - 1)), "until the end");
    assert!(near.numbers(&stream).is_empty(), "copies go nowhere else");
    fabric.assert_conserved();
    fabric.ask(&["policy", "delete", "far"]).json();
    Flow::start(&stream, fabric.host(1), fabric.host(2)).finish_after(100);
    assert!(monitor.numbers(&stream).is_empty(), "no copies after the policy is gone");
}

fn a_cable_may_go_while_a_connection_is_copied(fabric: &Fabric) {
    fabric.introduce();
    fabric.add("tcp", &["--ip-proto", "tcp", "--monitor", "0x3/2"]);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for _ in 0..3 {
                send_by_tcp(fabric.host(1), fabric.host(2), 4 << 20);
            }
        });
        for (a, b) in [(2, 3), (1, 2)] {
            fabric.set_cable(a, b, false);
            fabric.set_cable(a, b, true);
        }
        sending.join().unwrap();
    });
    if !fabric.is_ours() {
        // Open vSwitch's new rules do not get what its cache counted for the old ones meanwhile.
        return;
    }
    let report = fabric.ask(&["policy", "show", "tcp"]).json();
    assert!(number(&report["matched"]["bytes"]) > 12 << 20, "{report}");
}

fn what_is_broadcast_arrives_once(fabric: &Fabric) {
    fabric.introduce();
    let mut stream = Stream::new(fabric.host(1), fabric.host(2));
    stream.to.0 = tapswitch_wire::MacAddr::BROADCAST;
    let mut ends: Vec<_> =
        fabric.hosts[1..].iter().chain(&fabric.monitors).map(Capture::open).collect();
    let sender = Capture::open(fabric.host(1));
    (0..20).for_each(|number| sender.send(&stream.frame(number)));
    for end in &mut ends {
        let mut seen = Vec::new();
        until("every broadcast arrives", || {
            seen.extend(end.numbers(&stream));
            seen.len() >= 20
        });
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn leaves_and_spines() {
    let links: Vec<_> = (1..=4).flat_map(|leaf| [(leaf, 5), (leaf, 6)]).collect();
    let Some(fabric) = Fabric::new(&[Kind::Ours; 6], &links) else { return };
    a_running_flow_is_copied_to_a_far_monitor(&fabric);
    fabric.add("all", &["--ip-proto", "tcp", "--monitor", "0x4/2"]);
    send_by_tcp(fabric.host(1), fabric.host(2), 4 << 20);
    send_by_tcp(fabric.host(4), fabric.host(3), 4 << 20);
    fabric.assert_conserved();
}
