//! Learning, finding and forgetting hosts; forwarding never waits for it.

use std::net::IpAddr;

use crate::frames::{
    Packet, arp_reply, arp_request, ethernet, ipv4, ipv6, mac, neighbor_discovery, tcp,
};
use crate::world::{World, policy};
use tapswitch_control::{HostReport, Limits, PolicyState, WhenMissing};
use tapswitch_wire::MacAddr;

fn host(world: &World, mac: MacAddr) -> Option<HostReport> {
    world.control.hosts().into_iter().find(|host| host.mac == mac)
}

fn port_of(world: &World, last: u8) -> Option<String> {
    host(world, mac(last)).map(|host| host.port)
}

#[test]
fn a_ping_finds_its_way() {
    let mut world = World::new(3);
    assert_eq!(world.send(1, &arp_request(1, 2, None)), [2, 3], "broadcast");
    assert_eq!(world.send(2, &arp_reply(2, 1)), [1], "1 is known");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2], "2 is known");
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1]);
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3], "9 is not");
    assert_eq!(host(&world, mac(1)).unwrap().addresses, [ipv4(1)]);
}

#[test]
fn known_hosts_do_not_bother_the_controller() {
    let mut world = World::new(3);
    world.learn(2);
    world.switch().receive(1, &tcp(1, 2).bytes());
    assert_eq!(world.switch().said, []);
}

#[test]
fn frames_pass_before_the_controller_knows_anything() {
    let mut world = World::new(3);
    let sent = world.switch().receive(1, &tcp(1, 2).bytes());
    assert_eq!(sent.len(), 2);
    let again = world.switch().receive(1, &tcp(1, 2).bytes());
    assert_eq!(again.len(), 2, "the packet-in still waits");
    world.run();
    assert_eq!(port_of(&world, 1).as_deref(), Some("1"));
}

#[test]
fn neighbour_discovery_teaches_addresses() {
    let mut world = World::new(3);
    world.send(1, &neighbor_discovery(135, 1, 0xff, 2));
    world.send(2, &neighbor_discovery(136, 2, 1, 2));
    assert_eq!(host(&world, mac(1)).unwrap().addresses, [ipv6(1)]);
    assert_eq!(host(&world, mac(2)).unwrap().addresses, [ipv6(2)]);
}

/// Addresses of a host, and those of them that it has not claimed.
fn addresses(world: &World, last: u8) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let host = host(world, mac(last)).unwrap();
    (host.addresses, host.unproven_addresses)
}

#[test]
fn a_host_with_static_arp_entries_has_the_address_of_its_first_packet() {
    let mut world = World::new(4);
    world.learn(2);
    world.send(3, &tcp(3, 1).bytes());
    let seen: IpAddr = ipv4(3).into();
    assert_eq!(addresses(&world, 3), (vec![seen], vec![seen]));
    world.switch().receive(3, &Packet { is_ipv6: true, ..tcp(3, 1) }.bytes());
    assert_eq!(world.switch().said, [], "nothing more is shown because of that");
    world.tap(policy("all", "10.0.0.3"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    world.send(3, &arp_request(3, 1, None));
    assert_eq!(addresses(&world, 3), (vec![seen], vec![]));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
}

#[test]
fn what_a_router_passes_on_is_not_its_address() {
    let mut world = World::new(4);
    let mut passed_on = tcp(3, 1).bytes();
    passed_on[22] = 63;
    world.send(3, &passed_on);
    assert_eq!(addresses(&world, 3), (vec![], vec![]));
}

#[test]
fn an_address_goes_with_its_host_however_it_was_learned() {
    let mut world = World::new(4);
    world.send(3, &tcp(3, 1).bytes());
    world.pass(400_000);
    assert_eq!(port_of(&world, 3), None);
    let missing = world.control.add_policy(policy("all", "10.0.0.3"), WhenMissing::Refuse);
    assert!(missing.unwrap_err().to_string().contains("it has not sent ARP"));
}

#[test]
fn copies_go_to_who_claims_an_address_not_to_who_sends_from_it() {
    let mut world = World::new(5);
    world.learn(2);
    world.send(3, &tcp(3, 1).bytes());
    world.tap(policy("all", "10.0.0.3"));
    let mut claim = arp_request(4, 1, None);
    claim[28..32].copy_from_slice(&ipv4(3).octets());
    world.send(4, &claim);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    assert_eq!(addresses(&world, 3), (vec![], vec![]));
    assert_eq!(world.control.switches()[0].address_conflicts, 0, "nobody else claimed it");
}

#[test]
fn a_claim_counts_for_more_at_other_switches_too() {
    let monitors = |world: &World| {
        let monitors = world.control.policy("all").unwrap().monitors;
        monitors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut world = World::new(4);
    world.add_switch(2, 4);
    world.send(3, &tcp(3, 1).bytes());
    world.tap(policy("all", "10.0.0.3"));
    assert_eq!(monitors(&world), ["0x1/3"]);
    world.model(2).receive(4, &arp_request(3, 1, None));
    world.run();
    assert_eq!(monitors(&world), ["0x2/4"]);
    world.disconnect(2);
    assert_eq!(monitors(&world), ["0x2/4"], "the other one does not get its copies");
    assert!(matches!(world.state("all"), PolicyState::Partial { .. }), "{:?}", world.state("all"));
}

#[test]
fn the_whole_stack_of_tags_is_told() {
    let mut world = World::new(3);
    let tagged = |inner: &[u8]| {
        let mut frame = arp_request(1, 2, Some(100));
        frame.splice(16..16, inner.iter().flat_map(|vid| [0x81, 0, 0, *vid]));
        frame
    };
    for (inner, told) in [(vec![], vec![]), (vec![20, 7], vec![20, 7]), (vec![9; 12], vec![9; 8])] {
        let mut world = World::new(3);
        world.send(1, &tagged(&inner));
        let host = host(&world, mac(1)).unwrap();
        assert_eq!((host.vlan, host.inner_vlans), (Some(100), told));
    }
    world.send(1, &arp_request(1, 2, None));
    let host = host(&world, mac(1)).unwrap();
    assert_eq!((host.vlan, host.inner_vlans), (None, vec![]));
}

#[test]
fn vlans_are_worlds_of_their_own() {
    let mut world = World::new(3);
    world.send(1, &arp_request(1, 2, Some(100)));
    world.send(2, &arp_request(1, 2, Some(200)));
    let hosts = world.control.hosts();
    let places: Vec<_> = hosts.iter().map(|host| (host.vlan, host.port.as_str())).collect();
    assert_eq!(places, [(Some(100), "1"), (Some(200), "2")]);
    let to_1 = |vlan| tcp(3, 1).vlan_bytes(vlan);
    assert_eq!(world.send(3, &to_1(Some(100))), [1]);
    assert_eq!(world.send(3, &to_1(Some(200))), [2]);
    assert_eq!(world.send(3, &to_1(None)), [1, 2]);
}

#[test]
fn what_bridges_must_not_forward_is_dropped() {
    let mut world = World::new(3);
    let mut lldp = ethernet(1, 2, None, 0x88cc, &[0; 46]);
    lldp[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0x0e]);
    assert_eq!(world.send(1, &lldp), []);
    assert!(world.control.hosts().is_empty());
}

#[test]
fn a_host_that_moves_is_followed() {
    let mut world = World::new(3);
    world.learn(2);
    assert_eq!(world.send(3, &arp_request(1, 2, None)), [1, 2]);
    assert_eq!(port_of(&world, 1).as_deref(), Some("3"));
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [3]);
    let sources = world.switch().rules();
    let of_1 = sources
        .iter()
        .filter(|rule| rule.match_fields.to_string().contains("dl_src=02:00:00:00:00:01"));
    assert_eq!(of_1.count(), 1, "the place where it was is forgotten");
}

#[test]
fn a_silent_host_is_forgotten_and_learned_again() {
    let mut world = World::new(3);
    world.learn(2);
    let before = world.switch().state();
    for _ in 0..4 {
        world.pass(100_000);
        world.send(1, &tcp(1, 2).bytes());
    }
    assert_eq!((port_of(&world, 1).is_some(), port_of(&world, 2)), (true, None));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    world.send(2, &arp_reply(2, 1));
    assert_eq!(world.switch().state(), before);
}

#[test]
fn hosts_behind_a_port_go_with_it() {
    let mut world = World::new(3);
    world.learn(2);
    world.switch().set_link(2, false);
    world.run();
    assert_eq!((port_of(&world, 1).is_some(), port_of(&world, 2)), (true, None));
    world.switch().set_link(2, true);
    world.send(2, &arp_reply(2, 1));
    world.switch().remove_port(2);
    world.run();
    assert_eq!(port_of(&world, 2), None);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [3]);
}

#[test]
fn forged_addresses_exhaust_nothing() {
    let limits = Limits { max_hosts: 6, max_hosts_per_port: 3, ..Limits::default() };
    let mut world = World::with_limits(3, limits);
    for forged in 10..30 {
        world.send(1, &arp_request(forged, 2, None));
    }
    world.send(2, &arp_request(2, 1, None));
    assert_eq!(port_of(&world, 2).as_deref(), Some("2"), "there is room behind other ports");
    let report = &world.control.switches()[0];
    assert_eq!((report.hosts, report.hosts_refused), (4, 17));
    assert_eq!(world.switch().rules().len(), 7 + 2 * 4);
    assert_eq!(world.send(2, &tcp(2, 25).bytes()), [1, 3], "the others are flooded");
}

#[test]
fn who_claims_to_be_a_monitor_in_another_vlan_does_not_stop_its_copies() {
    let by_mac = arp_request(3, 1, Some(7));
    let mut by_address = arp_request(4, 1, Some(7));
    by_address[32..36].copy_from_slice(&[10, 0, 0, 3]);
    for (forged, monitor) in
        [(&by_mac, "10.0.0.3"), (&by_mac, "02:00:00:00:00:03"), (&by_address, "10.0.0.3")]
    {
        let mut world = World::new(4);
        world.learn(3);
        world.tap(policy("all", monitor));
        world.send(4, forged);
        assert_eq!(world.state("all"), PolicyState::Active, "{monitor}");
        assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
        assert_eq!(world.control.switches()[0].address_conflicts, 1);
        // The other one remains when the monitor is gone.
        world.switch().set_link(3, false);
        world.run();
        assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    }
}

#[test]
fn switches_learn_each_for_itself() {
    let mut world = World::new(3);
    world.add_switch(2, 3);
    world.learn(1);
    let frame = arp_request(1, 2, None);
    world.model(2).receive(3, &frame);
    world.run();
    let places: Vec<_> =
        world.control.hosts().into_iter().map(|host| (host.switch.0, host.port)).collect();
    assert_eq!(places, [(1, "1".to_owned()), (2, "3".to_owned())]);
}

#[test]
fn a_monitor_s_address_in_other_vlans_is_forgotten_as_any_host() {
    for monitor in ["10.0.0.3", "02:00:00:00:00:03"] {
        let mut world = World::new(4);
        world.learn(3);
        world.tap(policy("all", monitor));
        for (port, vid) in [(3, 7), (3, 8), (4, 9)] {
            world.send(port, &arp_request(3, 1, Some(vid)));
        }
        assert_eq!(world.control.hosts().len(), 6);
        for _ in 0..4 {
            world.pass(100_000);
            world.send(1, &tcp(1, 2).bytes());
        }
        let hosts = world.control.hosts();
        let left: Vec<_> = hosts.iter().map(|host| (host.port.as_str(), host.vlan)).collect();
        assert_eq!(left, [("1", None), ("3", None)], "{monitor}");
        assert_eq!(world.state("all"), PolicyState::Active);
    }
}
