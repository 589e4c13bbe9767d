//! Policies copy what they match, once to each monitor, and change nothing else.
//!
//! `World::send` checks that every frame sent is unchanged byte by byte.

use crate::fabric::Fabric;
use crate::frames::{
    BROADCAST, Packet, arp_request, ethernet, ipv4, mac, neighbor_discovery, tcp, udp,
};
use crate::world::{World, policy};
use tapswitch_control::*;
use tapswitch_openflow::{Body, FlowModCommand, GroupType};

fn prefix(text: &str) -> Option<IpPrefix> {
    Some(text.parse().unwrap())
}

/// TCP from host 1 to host 2.
fn web(monitor: &str) -> TapPolicy {
    TapPolicy {
        src_ip: Some(IpPrefix::host(ipv4(1))),
        dst_ip: Some(IpPrefix::host(ipv4(2))),
        ip_proto: Some(IpProto::TCP),
        dst_port: Some(80.into()),
        ..policy("web", monitor)
    }
}

#[test]
fn what_matches_is_copied_once_and_forwarded_once() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(web("3"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    for other in
        [udp(1, 2), Packet { dst_port: 81, ..tcp(1, 2) }, Packet { is_ipv6: true, ..tcp(1, 2) }]
    {
        assert_eq!(world.send(1, &other.bytes()), [2], "{other:?}");
    }
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1], "not the way back");
}

#[test]
fn the_rules_are_a_group_with_the_original_path_first() {
    let mut world = World::new(4);
    world.learn(2);
    world.take_changes();
    world.tap(web("3"));
    let group = &world.switch().groups()[0];
    let actions: Vec<_> = group.buckets.iter().map(ToString::to_string).collect();
    assert_eq!(group.group_type, GroupType::All);
    assert_eq!(actions, ["actions=output:1", "actions=deliver:best-effort,output:3"]);
}

#[test]
fn deletion_restores_exactly_what_was_before() {
    let mut world = World::new(4);
    world.learn(3);
    let before = world.switch().state();
    world.tap(web("4"));
    world.tap(TapPolicy { direction: Some(Direction::Both), ..policy("all", "3") });
    assert_ne!(world.switch().state(), before);
    world.untap("web");
    world.untap("all");
    assert_eq!(world.switch().state(), before);
}

#[test]
fn both_directions() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(TapPolicy { direction: Some(Direction::Both), ..web("3") });
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    let back = Packet { src_port: 80, dst_port: 40_000, ..tcp(2, 1) };
    assert_eq!(world.send(2, &back.bytes()), [1, 3]);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1], "ports the other way round");
}

#[test]
fn what_is_flooded_reaches_the_monitor_once() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(policy("all", "3"));
    assert_eq!(world.send(1, &arp_request(1, 9, None)), [2, 3, 4], "broadcast");
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3, 4], "unknown");
    let multicast = ethernet(1, BROADCAST, None, 0x88b5, &[0; 46]);
    assert_eq!(world.send(1, &multicast), [2, 3, 4]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
}

#[test]
fn a_port_that_comes_later_is_flooded_to_as_well() {
    let mut world = World::new(3);
    world.tap(policy("all", "3"));
    world.switch().add_port(4);
    assert_eq!(world.send(1, &arp_request(1, 9, None)), [2, 3, 4]);
}

#[test]
fn the_monitor_gets_what_is_for_itself_once() {
    let mut world = World::new(4);
    world.learn(3);
    world.tap(policy("all", "3"));
    assert_eq!(world.send(1, &tcp(1, 3).bytes()), [3]);
    assert_eq!(world.send(3, &tcp(3, 2).bytes()), [2], "and not what it sends");
    assert_eq!(world.send(3, &arp_request(3, 9, None)), [1, 2, 4]);
}

#[test]
fn a_host_that_is_learned_under_a_tap_is_no_longer_flooded_to() {
    let mut world = World::new(4);
    world.learn(1);
    world.tap(policy("all", "4"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4]);
    world.send(2, &arp_request(2, 1, None));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
}

#[test]
fn a_host_that_moves_is_followed_by_its_tap() {
    let mut world = World::new(5);
    world.learn(2);
    world.tap(web("4"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    world.send(3, &arp_request(2, 1, None));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [3, 4]);
    assert_eq!(world.switch().groups().len(), 3, "one for each host's port, one for flooding");
}

#[test]
fn ipv6_and_its_prefixes() {
    let mut world = World::new(4);
    world.send(1, &neighbor_discovery(135, 1, BROADCAST, 9));
    world.send(2, &neighbor_discovery(135, 2, BROADCAST, 9));
    world.tap(TapPolicy { src_ip: prefix("2001:db8::/126"), ..policy("six", "3") });
    let from = |src| Packet { is_ipv6: true, ..udp(src, 2) }.bytes();
    assert_eq!(world.send(1, &from(1)), [2, 3]);
    assert_eq!(world.send(1, &from(7)), [2]);
    assert_eq!(world.send(1, &udp(1, 2).bytes()), [2]);
}

#[test]
fn vlans() {
    let mut world = World::new(4);
    for vlan in [None, Some(100), Some(200)] {
        world.send(2, &arp_request(2, 9, vlan));
    }
    world.tap(TapPolicy { vlan: Vlan::Id(100), ..policy("tagged", "3") });
    assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(Some(100))), [2, 3]);
    assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(Some(200))), [2]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2]);
    world.untap("tagged");
    world.tap(TapPolicy { vlan: Vlan::Untagged, ..policy("untagged", "3") });
    assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(Some(100))), [2]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    world.tap(policy("any", "4"));
    assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(Some(100))), [2, 4]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4]);
}

#[test]
fn a_priority_is_no_vlan() {
    let mut world = World::new(4);
    // With priority 5 beside the VLAN id.
    let priority = Some(0xa000);
    world.send(2, &arp_request(2, 9, priority));
    world.learn(1);
    let hosts = world.control.hosts();
    assert!(hosts.len() == 2 && hosts.iter().all(|host| host.vlan.is_none()), "{hosts:?}");
    for vlan in [None, Some(0), priority] {
        assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(vlan)), [2]);
        assert_eq!(world.send(2, &tcp(2, 1).vlan_bytes(vlan)), [1]);
    }
    world.plan_and_tap(TapPolicy { vlan: Vlan::Untagged, ..policy("untagged", "3") });
    for vlan in [None, priority] {
        assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(vlan)), [2, 3]);
    }
    world.plan_and_tap(TapPolicy { vlan: Vlan::Tagged, ..policy("tagged", "4") });
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(priority)), [2, 3, 4], "it is both");
    assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(Some(7))), [2, 3, 4], "flooded");
    world.untap("untagged");
    assert_eq!(world.send(1, &tcp(1, 2).vlan_bytes(priority)), [2, 4]);
    assert_eq!(world.ledger("tagged").matched.packets, 3);
    // It is recognised when the controller restarts.
    let tagged = TapPolicy { vlan: Vlan::Tagged, ..policy("tagged", "4") };
    world.restart_controller(&[tagged]);
    assert_eq!(world.take_changes(), []);
    assert_eq!(world.control.hosts().len(), 3, "one of them in a VLAN, too");
}

#[test]
fn destination_macs_known_and_unknown() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(TapPolicy { dst_mac: Some(mac(2)), ..policy("to 2", "3") });
    world.tap(TapPolicy { dst_mac: Some(mac(9)), ..policy("to 9", "3") });
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3, 4]);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1]);
    assert_eq!(world.switch().rules().len(), 7 + 2 * 2 + 3);
}

#[test]
fn copies_for_the_controller_come_to_it() {
    let mut world = World::new(4);
    world.learn(2);
    world.plan_and_tap(TapPolicy { dst_port: Some(80.into()), ..policy("web", "controller") });
    world.plan_and_tap(policy("all", "3"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    let copies = world.events.iter().filter_map(|event| match event {
        Event::Copy(copy) => Some(copy),
        _ => None,
    });
    let copies: Vec<_> = copies.collect();
    assert_eq!(copies.len(), 1);
    let number = world.control.policy("web").unwrap().number;
    assert_eq!((copies[0].policies.as_slice(), copies[0].port), (&[number][..], 1));
    assert_eq!(copies[0].start, tcp(1, 2).bytes());
    let report = world.ledger("web");
    assert!(report.adds_up && report.matched.packets == 1, "{report:?}");
}

#[test]
fn copies_for_the_controller_are_told_apart_where_names_share_a_number() {
    // The hashes in the cookies of their rules are equal.
    let names = ["brwrui", "zfqgta"];
    let mut world = World::new(4);
    world.learn(2);
    for (name, port) in names.into_iter().zip([80_u16, 81]) {
        world.tap(TapPolicy { dst_port: Some(port.into()), ..policy(name, "controller") });
    }
    world.send(1, &tcp(1, 2).bytes());
    let copies = world.events.iter().filter_map(|event| match event {
        Event::Copy(copy) => Some(copy.policies.clone()),
        _ => None,
    });
    let number = world.control.policy(names[0]).unwrap().number;
    assert_eq!(copies.collect::<Vec<_>>(), [vec![number]], "not the other one's");
}

#[test]
fn the_controller_gets_copies_of_what_is_flooded_too() {
    let policies = || [policy("shown", "controller"), policy("all", "3")];
    let mut world = World::new(4);
    world.learn(2);
    policies().into_iter().for_each(|policy| world.plan_and_tap(policy));
    let frames = [tcp(1, 9).bytes(), arp_request(1, 2, None)];
    for frame in &frames {
        assert_eq!(world.send(1, frame), [2, 3, 4]);
    }
    assert_eq!(shown(&world), frames);
    let report = world.ledger("shown");
    let [copied] = &report.copied[..] else { panic!("{report:?}") };
    assert_eq!((copied.counts.packets, copied.delivered.packets, copied.flooded), (2, 2, 0));
    assert!(report.adds_up && report.matched.packets == 2, "{report:?}");

    // If the frame goes to the controller to learn the route anyway, it is not sent twice.
    let limits = Limits { max_ways: 0, ..Limits::default() };
    let mut fabric = Fabric::with(2, &[(1, 2)], &limits);
    fabric.learn();
    policies().into_iter().for_each(|policy| {
        let monitor = if policy.name == "all" { "0x1/2" } else { "controller" };
        fabric.world.plan_and_tap(TapPolicy { monitor: monitor_of(monitor), ..policy });
    });
    for frame in &frames {
        fabric.world.inject(1, 1, frame);
    }
    assert_eq!(shown(&fabric.world), frames);
}

/// Copies displayed by the controller.
fn shown(world: &World) -> Vec<Vec<u8>> {
    let copies = world.events.iter().filter_map(|event| match event {
        Event::Copy(copy) => Some(copy.start.clone()),
        _ => None,
    });
    copies.collect()
}

fn monitor_of(text: &str) -> Monitors {
    text.parse::<MonitorSpec>().unwrap().into()
}

#[test]
fn overlapping_policies_compose() {
    let mut world = World::new(6);
    world.learn(2);
    let from_1 = TapPolicy { src_ip: prefix("10.0.0.1"), ..policy("from 1", "3") };
    let all_tcp = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", "4") };
    let network = TapPolicy { dst_ip: prefix("10.0.0.0/24"), ..policy("network", "5") };
    let same = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("same monitor", "4") };
    [from_1, all_tcp, network, same].into_iter().for_each(|policy| world.tap(policy));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4, 5]);
    assert_eq!(world.send(1, &udp(1, 2).bytes()), [2, 3, 5]);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1, 4, 5]);
    assert_eq!(world.send(2, &udp(2, 1).bytes()), [1, 5]);
    let six = Packet { is_ipv6: true, ..tcp(2, 1) };
    assert_eq!(world.send(2, &six.bytes()), [1, 4]);
    world.untap("tcp");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4, 5]);
    world.untap("same monitor");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 5]);
}

#[test]
fn ports_without_a_protocol_are_those_of_tcp_and_udp() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(TapPolicy { dst_port: Some(53.into()), ..policy("dns", "3") });
    for packet in [tcp(1, 2), udp(1, 2)] {
        for is_ipv6 in [false, true] {
            let dns = Packet { dst_port: 53, is_ipv6, ..packet };
            assert_eq!(world.send(1, &dns.bytes()), [2, 3], "{dns:?}");
            assert_eq!(world.send(1, &Packet { dst_port: 54, ..dns }.bytes()), [2]);
        }
    }
}

#[test]
fn monitors_by_name_and_by_host() {
    for monitor in ["p3", "0x1/3", "0x1/p3", "02:00:00:00:00:03", "10.0.0.3"] {
        let mut world = World::new(4);
        world.learn(3);
        world.tap(web(monitor));
        assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3], "{monitor}");
    }
}

#[test]
fn a_monitor_that_moves_takes_its_copies_along() {
    let mut world = World::new(5);
    world.learn(3);
    world.tap(web("10.0.0.3"));
    world.send(4, &arp_request(3, 1, None));
    world.pass(1000);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    assert_eq!(world.state("web"), PolicyState::Active);
}

#[test]
fn a_monitor_may_be_silent_for_ever() {
    let mut world = World::new(4);
    world.learn(3);
    world.tap(web("10.0.0.3"));
    for _ in 0..10 {
        world.pass(100_000);
        world.send(1, &tcp(1, 2).bytes());
        world.send(2, &tcp(2, 1).bytes());
    }
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    world.untap("web");
    (0..4).for_each(|_| world.pass(100_000));
    assert!(world.control.hosts().is_empty(), "without copies it is a host like others");
}

#[test]
fn nobody_takes_a_monitors_address() {
    let mut world = World::new(5);
    world.learn(3);
    world.tap(web("10.0.0.3"));
    let mut forged = arp_request(4, 9, None);
    forged[28..32].copy_from_slice(&ipv4(3).octets());
    world.send(4, &forged);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.control.switches()[0].address_conflicts, 1);
}

#[test]
fn a_monitor_that_goes_takes_its_rules_with_it() {
    let mut world = World::new(4);
    world.learn(2);
    let before = world.switch().state();
    world.tap(web("p3"));
    world.switch().set_link(3, false);
    world.run();
    assert_eq!(world.switch().state(), before);
    let reason =
        "monitor 0x1/p3: port 0x1/3 is down; bring its link up, start the virtual machine \
                  behind it, or, if it is a file, free disk space"
            .to_owned();
    assert_eq!(world.state("web"), PolicyState::Pending { reason });
    world.switch().set_link(3, true);
    world.run();
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);

    world.switch().remove_port(3);
    world.run();
    let PolicyState::Pending { reason } = world.state("web") else { panic!() };
    assert!(reason.starts_with("monitor 0x1/p3: there is no such port"), "{reason}");
    assert_eq!(world.switch().state(), before);
    world.switch().add_port(3);
    world.run();
    assert_eq!(world.state("web"), PolicyState::Active);
}

#[test]
fn a_policy_from_a_file_waits_for_its_monitor() {
    let mut world = World::new(4);
    world.learn(2);
    world.control.add_policy(web("10.0.0.3"), WhenMissing::Wait).unwrap();
    world.run();
    let Some(Event::PolicyPending { name, reason }) = world.events.pop() else { panic!() };
    world.events.clear();
    assert!(name == "web" && reason.contains("has not sent ARP"), "{reason}");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2]);
    world.send(3, &arp_request(3, 1, None));
    assert!(world.events.contains(&Event::PolicyActive { name: "web".into() }));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
}

#[test]
fn a_policy_lives_on_the_switch_where_its_monitor_is() {
    let mut world = World::new(3);
    world.add_switch(2, 3);
    let before = world.model(1).state();
    world.tap(policy("all", "0x2/3"));
    assert_eq!(world.model(1).state(), before);
    let frame = tcp(1, 9).bytes();
    let ports: Vec<_> =
        world.model(2).receive(1, &frame).into_iter().map(|(port, _)| port).collect();
    assert_eq!(ports, [2, 3]);
}

#[test]
fn changes_come_in_an_order_that_never_floods_what_has_a_way() {
    let mut world = World::new(4);
    world.learn(2);
    world.take_changes();
    world.tap(policy("all", "3"));
    let adds = world.take_changes();
    let kinds: Vec<_> = adds.iter().map(|body| matches!(body, Body::GroupMod(_))).collect();
    assert!(kinds.is_sorted_by(|a, b| a >= b), "groups first: {adds:?}");
    assert!(priorities(&adds).is_sorted_by(|a, b| a >= b), "{adds:?}");
    world.untap("all");
    let deletes = world.take_changes();
    assert!(matches!(deletes.last(), Some(Body::GroupMod(_))), "groups last");
    assert!(priorities(&deletes).is_sorted(), "{deletes:?}");
}

fn priorities(changes: &[Body]) -> Vec<u16> {
    let flow_mods = changes.iter().filter_map(|body| match body {
        Body::FlowMod(change) => Some(change),
        _ => None,
    });
    let strict = [FlowModCommand::Add, FlowModCommand::DeleteStrict];
    flow_mods
        .inspect(|change| assert!(strict.contains(&change.command)))
        .map(|c| c.priority)
        .collect()
}
