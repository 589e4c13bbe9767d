//! Ports for copies only: they receive only what a policy sends there.

use tapswitch_control::*;
use tapswitch_openflow::PortState;

use crate::fabric::Fabric;
use crate::frames::{arp_request, tcp, udp};
use crate::world::{World, policy};

/// State of a port for a capture file, or for a tunnel to an analyser.
const SINK: PortState = PortState::LIVE.union(PortState::BLOCKED);

fn role(world: &World, switch: u64, number: &str) -> PortRole {
    let switches = world.control.switches();
    let at = switches.iter().find(|at| at.switch.0 == switch).unwrap();
    at.ports.iter().find(|port| port.port == number).unwrap().role
}

#[test]
fn floods_reach_a_sink_as_copies_alone() {
    let mut world = World::new(4);
    world.switch().set_state(4, SINK);
    world.run();
    world.learn(2);
    assert_eq!(world.send(1, &arp_request(1, 99, None)), [2, 3]);
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3]);
    assert_eq!(role(&world, 1, "4"), PortRole::Monitor);
    let web = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("web", "4") };
    world.plan_and_tap(web);
    assert_eq!(world.send(1, &arp_request(1, 99, None)), [2, 3], "the policy is of TCP");
    assert_eq!(world.send(1, &udp(1, 9).bytes()), [2, 3]);
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3, 4]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    let told = world.ledger("web");
    let copied = &told.copied[0];
    assert_eq!((copied.delivered.packets, copied.flooded, told.adds_up), (2, 0, true));
    // It becomes an ordinary port.
    world.switch().set_state(4, PortState::LIVE);
    world.run();
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3, 4]);
    assert_eq!(world.send(1, &arp_request(1, 99, None)), [2, 3, 4]);
}

#[test]
fn of_several_monitors_floods_spare_only_sinks() {
    let mut world = World::new(6);
    for port in [4, 5] {
        world.switch().set_state(port, SINK);
    }
    world.run();
    world.learn(2);
    world.plan_and_tap(policy("sinks", "one-of:4+5"));
    let mut arrivals = world.send(1, &tcp(1, 9).bytes());
    let picked = arrivals.iter().position(|port| [4, 5].contains(port)).unwrap();
    arrivals.remove(picked);
    assert_eq!(arrivals, [2, 3, 6], "and one of the sinks");
    world.untap("sinks");
    world.plan_and_tap(policy("both", "one-of:4+3"));
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3, 6], "one of them has the original");
}

#[test]
fn a_fabric_keeps_probes_and_floods_from_a_sink_and_takes_nothing_from_it() {
    let mut fabric = Fabric::line(3);
    fabric.world.model(3).set_state(2, SINK);
    fabric.wait(100);
    assert_eq!(role(&fabric.world, 3, "2"), PortRole::Monitor);
    fabric.world.probed.clear();
    fabric.wait(20_000);
    assert!(!fabric.world.probed.contains(&(3, 2)) && fabric.world.probed.contains(&(3, 1)));
    let others = [(1, 2), (2, 1), (2, 2), (3, 1)];
    for host in [1, 2, 3] {
        let arrivals = fabric.send(host, &arp_request(host, 99, None));
        assert!(!arrivals.contains(&(3, 2)), "{arrivals:?}");
    }
    let web = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("web", "0x3/2") };
    fabric.world.plan_and_tap(web);
    assert_eq!(fabric.send(1, &arp_request(1, 99, None)), others);
    assert_eq!(fabric.send(1, &udp(1, 9).bytes()), others);
    let copied = [&others[..], &[(3, 2)]].concat();
    assert_eq!(fabric.send(1, &tcp(1, 9).bytes()), copied, "once, by the copy");
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    assert_eq!(fabric.world.inject(3, 2, &arp_request(7, 99, None)), []);
    assert!(fabric.world.control.hosts().iter().all(|host| host.mac.0[5] != 7));
}
