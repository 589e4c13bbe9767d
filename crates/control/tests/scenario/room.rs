//! Switches without room for all intersections of policies.

use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_control::*;

use crate::fabric::Fabric;
use crate::frames::{Packet, arp_request, ipv4, mac, tcp};
use crate::world::{World, policy};

/// A policy for all TCP, and one for IPv4 of one host: three regions, and one for the intersection.
fn apart(monitors: [&str; 2]) -> [TapPolicy; 2] {
    [
        TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", monitors[0]) },
        TapPolicy { src_ip: "10.0.0.1".parse().ok(), ..policy("host", monitors[1]) },
    ]
}

fn with_room_for(regions: usize) -> World {
    let limits = Limits { max_regions: regions, ..Limits::default() };
    let mut world = World::with_limits(5, limits);
    world.learn(2);
    world
}

/// Of frames that match both policies, the number that each counts; everything else must be right.
fn counted(world: &mut World) -> [u64; 2] {
    ["tcp", "host"].map(|name| {
        let report = world.ledger(name);
        assert!(report.adds_up && report.is_complete, "{report:?}");
        assert_eq!(report.state, PolicyState::Active);
        report.matched.packets
    })
}

fn notes(world: &World, name: &str) -> String {
    world.control.policy(name).unwrap().notes.join("; ")
}

#[test]
fn policies_of_one_monitor_do_with_less() {
    let mut world = with_room_for(3);
    let [tcp_only, host] = apart(["3", "3"]);
    world.plan_and_tap(tcp_only);
    world.plan_and_tap(host);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(counted(&mut world).iter().sum::<u64>(), 1, "copied once, counted once");
    let told = "switch 0x1 has no room for rules for its overlaps with other policies";
    assert!(notes(&world, "host").starts_with(told), "{}", notes(&world, "host"));
    assert_eq!(notes(&world, "tcp"), "");
    // The other one is deleted: nothing has to be repaired.
    world.untap("tcp");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1]);
}

#[test]
fn with_room_each_counts_all_of_its_frames() {
    let mut world = with_room_for(8);
    apart(["3", "3"]).into_iter().for_each(|policy| world.tap(policy));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!((counted(&mut world), notes(&world, "host")), ([1, 1], String::new()));
}

/// Half of the room is reserved for policies that cannot do with less.
#[test]
fn room_is_kept_for_policies_of_other_monitors() {
    let mut world = with_room_for(7);
    let [tcp_only, host] = apart(["3", "3"]);
    let other = TapPolicy { src_ip: "10.0.0.2".parse().ok(), ..policy("other", "4") };
    for policy in [tcp_only, host, other] {
        world.plan_and_tap(policy);
    }
    assert!(notes(&world, "host").contains("no room"), "three regions, instead of four of seven");
    assert_eq!(notes(&world, "other"), "", "it has two");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1, 3, 4]);
    assert_eq!(counted(&mut world).iter().sum::<u64>(), 2);
}

/// Disjoint policies are never wide, however many there are.
#[test]
fn policies_apart_count_all_of_their_frames() {
    let mut world = with_room_for(4);
    for port in 1..=4 {
        let (ip_proto, dst_ip) = (Some(IpProto::UDP), "10.0.0.2".parse().ok());
        let name = format!("p{port}");
        world.tap(TapPolicy {
            ip_proto,
            dst_ip,
            dst_port: Some(port.into()),
            ..policy(&name, "3")
        });
        assert_eq!(notes(&world, &name), "");
    }
}

#[test]
fn policies_of_different_monitors_cannot_do_with_less() {
    let mut world = with_room_for(3);
    let [tcp_only, host] = apart(["3", "4"]);
    world.tap(tcp_only);
    let refused = world.control.add_policy(host, WhenMissing::Refuse).unwrap_err().to_string();
    assert!(refused.contains("more than 3 combinations"), "{refused}");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
}

#[test]
fn what_has_another_monitor_has_rules_of_its_own_again() {
    let mut world = with_room_for(3);
    let [tcp_only, host] = apart(["02:00:00:00:00:07", "3"]);
    world.send(3, &tcp(7, 1).bytes());
    world.run();
    world.tap(tcp_only);
    world.tap(host);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    // The monitor of one moves: both must be served, and there is no room for that.
    world.send(4, &tcp(7, 1).bytes());
    world.pass(1000);
    assert_eq!(world.state("tcp"), PolicyState::Active);
    let PolicyState::Failed { reason } = world.state("host") else { panic!() };
    assert!(reason.contains("more than 3 combinations"), "{reason}");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    // It moves back.
    world.send(3, &tcp(7, 1).bytes());
    world.pass(1000);
    assert_eq!(world.state("host"), PolicyState::Active);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
}

/// The computed intersections remain when a switch reconnects; if there is room again by then, each
/// policy counts all its frames again.
#[test]
fn a_switch_that_comes_back_keeps_what_was_decided() {
    let mut world = with_room_for(6);
    apart(["3", "3"]).into_iter().for_each(|policy| world.tap(policy));
    assert!(notes(&world, "host").contains("no room"), "three regions, instead of four of six");
    world.take_changes();
    let come_back = |world: &mut World| {
        world.disconnect(1);
        world.connect(1);
    };
    come_back(&mut world);
    assert_eq!(world.take_changes(), []);
    assert!(notes(&world, "host").contains("no room"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);

    world.untap("tcp");
    come_back(&mut world);
    assert_eq!(notes(&world, "host"), "");
    apart(["3", "3"]).into_iter().take(1).for_each(|policy| world.tap(policy));
    assert!(notes(&world, "tcp").contains("no room"), "the other one came before");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(counted(&mut world).iter().sum::<u64>(), 1);
}

#[test]
fn room_of_policies_that_went_while_a_switch_was_away_is_used_when_it_is_back() {
    let mut world = with_room_for(6);
    apart(["3", "3"]).into_iter().for_each(|policy| world.tap(policy));
    assert!(notes(&world, "host").contains("no room"), "three regions, instead of four of six");
    world.disconnect(1);
    world.control.delete_policy("tcp").unwrap();
    world.connect(1);
    assert_eq!(notes(&world, "host"), "");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    let report = world.ledger("host");
    assert!(report.adds_up && report.matched.packets == 1, "{report:?}");
}

/// Many overlapping policies, each for one end of connections.
#[test]
fn policies_that_changed_while_a_switch_was_away_are_found_room_for() {
    let mut world = with_room_for(40);
    let one_end = |number: u32, monitor: &str| TapPolicy {
        src_ip: format!("10.0.1.{number}").parse().ok(),
        ip_proto: Some(IpProto::TCP),
        ..TapPolicy::new(format!("p{number}"), monitor.parse().unwrap())
    };
    (1..=10).for_each(|number| world.tap(one_end(number, "0x1/3")));
    world.disconnect(1);
    for number in 1..=3 {
        world.control.delete_policy(&format!("p{number}")).unwrap();
    }
    world.control.add_policy(one_end(11, "0x1/3"), WhenMissing::Wait).unwrap();
    world.connect(1);
    for number in 4..=11 {
        assert_eq!(world.state(&format!("p{number}")), PolicyState::Active, "p{number}");
    }
}

/// One of several policies, with a priority.
fn urgent((kind, priority, monitor): (u8, u8, u32), name: &str) -> TapPolicy {
    let plain = TapPolicy { priority, ..policy(name, &monitor.to_string()) };
    match kind {
        0 => TapPolicy { ip_proto: Some(IpProto::TCP), ..plain },
        1 => TapPolicy { dst_port: Some(80.into()), ip_proto: Some(IpProto::UDP), ..plain },
        2 => TapPolicy { src_ip: "10.0.0.1".parse().ok(), ..plain },
        3 => TapPolicy { filter: Some("tcp and not port 22".into()), ..plain },
        host => TapPolicy { point: Some(Point::Egress), dst_mac: Some(mac(host)), ..plain },
    }
}

/// Adds the policies that are not refused. An accepted one is in force, and so remain those of the
/// same or a higher priority. Returns how many yielded.
fn let_in(world: &mut World, policies: impl IntoIterator<Item = TapPolicy>) -> usize {
    let (mut all, mut gone) = (Vec::<(String, u8)>::new(), 0);
    for policy in policies {
        let (name, priority) = (policy.name.clone(), policy.priority);
        let is_active = |world: &World, name: &str| world.state(name) == PolicyState::Active;
        let mut were_active = all.clone();
        were_active.retain(|(name, _)| is_active(world, name));
        if world.control.add_policy(policy, WhenMissing::Refuse).is_err() {
            continue;
        }
        world.run();
        let state = world.state(&name);
        assert_eq!(state, PolicyState::Active, "{name} beside {were_active:?}");
        for (other, of) in were_active.iter().filter(|(other, _)| !is_active(world, other)) {
            assert!(*of < priority, "{other} gave way to {name}: {:?}", world.state(other));
            gone += 1;
        }
        all.push((name, priority));
    }
    gone
}

fn with_rules(max_tap_rules: usize, max_regions: usize) -> World {
    let mut world =
        World::with_limits(6, Limits { max_tap_rules, max_regions, ..Limits::default() });
    world.learn(6);
    world
}

/// Egress copies take room, too, which others can yield.
#[test]
fn who_is_let_in_gets_the_room_of_the_less_urgent() {
    let gone = (1..30).map(|max| {
        let policies = [urgent((4, 0, 5), "low"), urgent((0, 1, 6), "high")];
        let_in(&mut with_rules(max, 100), policies)
    });
    assert!(gone.sum::<usize>() > 0);
}

proptest! {
    #[test]
    fn whoever_is_let_in_is_in_force(
        wanted in vec((0..7u8, 0..3u8, 5..7u32), 1..8),
        max_tap_rules in 4..60usize,
        max_regions in 2..30usize,
    ) {
        let names = (0..).map(|number| format!("p{number}"));
        let policies = wanted.into_iter().zip(names).map(|(one, name)| urgent(one, &name));
        let_in(&mut with_rules(max_tap_rules, max_regions), policies);
    }
}

/// A policy that yielded may need less beside those added back after it.
#[test]
fn who_gave_way_is_let_in_again_as_soon_as_it_can_be() {
    let wanted = [(0, 1, 6), (5, 1, 5), (0, 0, 5), (6, 2, 6), (4, 0, 5)].into_iter();
    let names = (0..).map(|number| format!("p{number}"));
    let policies = wanted.zip(names).map(|(one, name)| urgent(one, &name));
    let_in(&mut with_rules(22, 6), policies);
}

#[test]
fn who_gives_way_of_several_is_decided_once() {
    let wanted = [(2, 1, 6), (0, 1, 5), (4, 0, 5), (2, 0, 5), (4, 1, 6)].into_iter();
    let names = (0..).map(|number| format!("p{number}"));
    let policies = wanted.zip(names).map(|(one, name)| urgent(one, &name));
    let_in(&mut with_rules(34, 7), policies);
}

/// If not every switch has all routes, a region takes two rules for unknown destinations.
#[test]
fn rules_for_groups_count_too() {
    let with_room_for = |rules| {
        let limits = Limits { max_ways: 0, max_tap_rules: rules, ..Limits::default() };
        let mut fabric = Fabric::with(2, &[(1, 2)], &limits);
        fabric.learn();
        fabric.world.control.add_policy(policy("all", "0x1/2"), WhenMissing::Refuse)
    };
    let refused = with_room_for(2).unwrap_err().to_string();
    assert!(refused.contains('3') && refused.contains('2'), "{refused}");
    assert_eq!(with_room_for(3), Ok(()));
}

/// Host 1 has the addresses 10.0.0.1 to 10.0.0.60, host 2 10.0.0.101 and 10.0.0.102.
fn with_addresses(limits: Limits) -> World {
    let mut world = World::with_limits(7, Limits { max_addresses: 64, ..limits });
    for address in (1..=60).chain(101..=102) {
        world.send(if address > 100 { 2 } else { 1 }, &from_host(arp_request(address, 99, None)));
    }
    world
}

/// A frame from one of these addresses with the MAC address of its host.
fn from_host(mut frame: Vec<u8>) -> Vec<u8> {
    let hosts = [frame[5], frame[11]].map(|address| match address {
        1..=60 => 1,
        101..=102 => 2,
        other => other,
    });
    (frame[5], frame[11]) = (hosts[0], hosts[1]);
    if frame[12..14] == [8, 6] {
        frame[27] = hosts[1];
    }
    frame
}

/// Three broad policies, and one for each address of host 1, with monitor 3.
fn of_one_host(wide: [(&'static str, u32); 3]) -> impl Iterator<Item = TapPolicy> {
    let wide = (0..).zip(wide).map(|(number, (filter, monitor))| TapPolicy {
        filter: Some(filter.to_owned()),
        ..policy(&format!("wide-{number}"), &monitor.to_string())
    });
    let narrow = (1..=60).map(|address| TapPolicy {
        src_ip: format!("10.0.0.{address}").parse().ok(),
        direction: Some(Direction::Both),
        ..policy(&format!("of-{address}"), "3")
    });
    wide.chain(narrow)
}

/// Policies for one end overlap pairwise, and each pair overlaps the broad ones, whatever these
/// except and wherever their copies go.
#[test]
fn many_policies_of_one_host_fit_beside_some_that_match_much() {
    let all_but_some = ["not port 22", "not port 53", "not port 123"].map(|filter| (filter, 3));
    let of_others = [("ip", 4), ("tcp or udp", 5), ("port 80", 6)];
    for (wide, to_80, to_22) in
        [(all_but_some, &[2, 3][..], &[2, 3][..]), (of_others, &[2, 3, 4, 5, 6], &[2, 3, 4, 5])]
    {
        let mut world = with_addresses(Limits::default());
        of_one_host(wide).for_each(|policy| world.tap(policy));
        let told = "is copied once, and may be counted only for the others";
        assert!(notes(&world, "of-60").contains(told), "{}", notes(&world, "of-60"));
        for from in [1, 30, 60] {
            let frame = |dst_port| from_host(Packet { dst_port, ..tcp(from, 101) }.bytes());
            assert_eq!(world.send(1, &frame(80)), to_80, "{from}");
            assert_eq!(world.send(1, &frame(22)), to_22, "{from}");
        }
        // From one of the addresses to another one, via a router.
        let mut frame = from_host(tcp(101, 60).bytes());
        frame[26..30].copy_from_slice(&ipv4(1).octets());
        let copies = to_80.iter().filter(|port| **port != 2);
        let arriving: Vec<_> = [1].iter().chain(copies).copied().collect();
        assert_eq!(world.send(2, &frame), arriving);
        let matched = world.ledger("wide-1").matched.packets;
        assert_eq!(matched, 7, "what is not short of room counts all of its frames");
    }
}

/// Copies that leave by several links take a rule for each.
#[test]
fn who_is_let_in_at_its_destination_has_room_for_all_ways_out() {
    let policies = || {
        [2, 3, 4].map(|switch| TapPolicy {
            transport: Transport::Rewrite,
            dst_mac: Some(mac(1)),
            ..policy(&format!("to-{switch}"), &format!("{switch:#x}/2"))
        })
    };
    let star = |max_tap_rules| {
        let limits = Limits { max_tap_rules, ..Limits::default() };
        let mut fabric = Fabric::with(4, &[(1, 2), (1, 3), (1, 4)], &limits);
        fabric.learn();
        fabric
    };
    let installed = |fabric: &mut Fabric| {
        let rules = fabric.world.model(1).rules();
        rules.iter().filter(|rule| rule.cookie >> 32 & 0xffff >= 0x8000).count()
    };
    let mut all = star(1000);
    let_in(&mut all.world, policies());
    let needed = installed(&mut all);
    for max in 1..=needed {
        let mut fabric = star(max);
        let_in(&mut fabric.world, policies());
        assert!(installed(&mut fabric) <= max);
        let is_in = |policy: &TapPolicy| fabric.world.control.policy(&policy.name).is_ok();
        assert_eq!(policies().iter().all(is_in), max == needed, "{max} of {needed}");
    }
}
