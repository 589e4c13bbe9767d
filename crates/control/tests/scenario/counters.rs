//! Ledger: matched frames equal copied frames, whatever happens to the rules meanwhile.

use crate::frames::{arp_request, tcp, udp};
use crate::world::{World, policy};
use tapswitch_control::*;

fn all_tcp(name: &str, monitor: &str) -> TapPolicy {
    TapPolicy { ip_proto: Some(IpProto::TCP), ..policy(name, monitor) }
}

/// Matched packets, and copied packets by monitor.
fn packets(report: &PolicyReport) -> (u64, Vec<(u32, u64)>) {
    let copied = report.copied.iter().map(|copied| (copied.monitor.port, copied.counts.packets));
    (report.matched.packets, copied.collect())
}

/// Sends `count` TCP packets from host 1 to host 2.
fn flow(world: &mut World, count: u64) {
    for _ in 0..count {
        world.send(1, &tcp(1, 2).bytes());
    }
}

#[test]
fn counters_come_when_asked_for_and_bytes_are_those_of_frames() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 5);
    world.send(1, &udp(1, 2).bytes());
    world.send(1, &tcp(1, 9).bytes());
    let report = world.ledger("tcp");
    assert_eq!(packets(&report), (6, vec![(3, 6)]));
    assert_eq!(report.matched.bytes, 6 * tcp(1, 2).bytes().len() as u64);
    assert_eq!(report.copied[0].counts, report.matched);
    assert!(report.is_complete);
}

#[test]
fn counters_come_by_themselves_while_there_are_taps() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 5);
    world.pass(5000);
    assert_eq!(world.control.policy("tcp").unwrap().matched.packets, 5);
}

#[test]
fn the_last_counts_are_told_with_the_deletion() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 7);
    let report = world.untap("tcp");
    assert_eq!(packets(&report), (7, vec![(3, 7)]));
    assert_eq!((report.state, report.is_complete), (PolicyState::Deleted, true));
}

#[test]
fn nothing_is_lost_when_hosts_move_and_policies_come_and_go() {
    let mut world = World::new(6);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 1);
    world.tap(TapPolicy { dst_port: Some(80.into()), ..all_tcp("web", "4") });
    flow(&mut world, 2);
    world.send(5, &arp_request(2, 1, None));
    flow(&mut world, 4);
    world.tap(policy("all", "4"));
    flow(&mut world, 8);
    assert_eq!(packets(&world.ledger("web")), (14, vec![(4, 14)]));
    assert_eq!(packets(&world.untap("web")), (14, vec![(4, 14)]));
    flow(&mut world, 16);
    world.switch().remove_port(5);
    world.run();
    flow(&mut world, 32);
    assert_eq!(packets(&world.ledger("tcp")), (63, vec![(3, 63)]));
    assert_eq!(packets(&world.untap("all")), (8 + 16 + 32, vec![(4, 8 + 16 + 32)]));
    assert_eq!(packets(&world.untap("tcp")), (63, vec![(3, 63)]));
}

/// The rule of "all" for host 2 in VLAN 5 has the same table, priority and match as the former rule
/// of "tagged and to 2".
#[test]
fn a_rule_that_comes_to_serve_another_policy_keeps_its_counts_for_the_old_one() {
    let mut world = World::new(4);
    world.send(2, &arp_request(2, 9, Some(5)));
    let tagged = TapPolicy { vlan: Vlan::Id(5), ..policy("tagged and to 2", "3") };
    world.tap(TapPolicy { dst_mac: Some("02:00:00:00:00:02".parse().unwrap()), ..tagged.clone() });
    world.send(1, &tcp(1, 2).vlan_bytes(Some(5)));
    world.tap(TapPolicy { name: "tagged".into(), ..tagged });
    world.send(1, &tcp(1, 2).vlan_bytes(Some(5)));
    assert_eq!(packets(&world.ledger("tagged and to 2")), (2, vec![(3, 2)]));
    assert_eq!(packets(&world.ledger("tagged")), (1, vec![(3, 1)]));
}

#[test]
fn copies_are_told_by_monitor_when_it_moved() {
    let mut world = World::new(5);
    world.learn(3);
    world.tap(all_tcp("tcp", "10.0.0.3"));
    flow(&mut world, 2);
    world.send(4, &arp_request(3, 1, None));
    world.pass(1000);
    flow(&mut world, 3);
    assert_eq!(packets(&world.ledger("tcp")), (5, vec![(3, 2), (4, 3)]));
}

#[test]
fn a_port_that_is_named_in_two_ways_gets_and_counts_one_copy() {
    let mut world = World::new(4);
    world.learn(2);
    let twice = ["0x1/3", "0x1/p3"].map(|name| name.parse().unwrap());
    world.tap(TapPolicy { monitor: Monitors::new(twice.to_vec()), ..all_tcp("tcp", "3") });
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    let report = world.ledger("tcp");
    assert_eq!((packets(&report), report.adds_up), ((1, vec![(3, 1)]), true));
}

#[test]
fn copies_to_the_destination_itself_and_to_everybody_count() {
    let mut world = World::new(4);
    world.learn(3);
    world.tap(all_tcp("tcp", "3"));
    world.send(1, &tcp(1, 3).bytes());
    world.send(1, &tcp(1, 9).bytes());
    assert_eq!(packets(&world.ledger("tcp")), (2, vec![(3, 2)]));
}

#[test]
fn a_policy_of_the_same_name_starts_from_zero() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 3);
    world.control.delete_policy("tcp").unwrap();
    world.control.add_policy(all_tcp("tcp", "3"), WhenMissing::Refuse).unwrap();
    world.run();
    flow(&mut world, 2);
    assert_eq!(packets(&world.ledger("tcp")), (2, vec![(3, 2)]));
    let deleted = world.events.iter().find_map(|event| match event {
        Event::PolicyDeleted(report) => Some(packets(report)),
        _ => None,
    });
    assert_eq!(deleted, Some((3, vec![(3, 3)])));
}

#[test]
fn counts_go_on_over_a_lost_connection() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 3);
    world.disconnect(1);
    world.switch().receive(1, &tcp(1, 2).bytes());
    world.connect(1);
    flow(&mut world, 1);
    let report = world.ledger("tcp");
    assert_eq!(packets(&report), (5, vec![(3, 5)]));
    assert!(report.is_complete);
}

#[test]
fn counts_start_from_zero_in_a_new_life_of_the_controller() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 3);
    world.restart_controller(&[all_tcp("tcp", "3")]);
    flow(&mut world, 2);
    assert_eq!(packets(&world.ledger("tcp")), (2, vec![(3, 2)]));
    assert_eq!(packets(&world.untap("tcp")), (2, vec![(3, 2)]));
}

#[test]
fn what_was_lost_is_said_to_be_incomplete() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 3);
    world.ledger("tcp");
    world.disconnect(1);
    world.switch().lose_tables();
    world.connect(1);
    let report = world.ledger("tcp");
    assert_eq!(packets(&report), (3, vec![(3, 3)]));
    assert!(!report.is_complete);
}

#[test]
fn last_counts_that_do_not_come_are_not_waited_for_for_ever() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    flow(&mut world, 3);
    world.ledger("tcp");
    world.switch().is_mute_on_removal = true;
    world.control.delete_policy("tcp").unwrap();
    world.run();
    world.events.clear();
    world.pass(1000);
    assert_eq!(world.events, []);
    world.pass(1000);
    let Some(Event::PolicyDeleted(report)) = world.events.pop() else { panic!() };
    assert_eq!(packets(&report), (3, vec![(3, 3)]));
    assert!(!report.is_complete);
}

#[test]
fn last_counts_are_waited_for_while_the_switch_is_behind() {
    for (seconds, is_complete) in [(10, true), (40, false)] {
        let mut world = World::new(4);
        world.learn(2);
        world.tap(all_tcp("tcp", "3"));
        flow(&mut world, 3);
        world.control.delete_policy("tcp").unwrap();
        world.events.clear();
        // It has received everything, and its replies are in transit.
        assert!(world.carry_to_switches(&mut |_| {}));
        world.is_stopped = true;
        (0..2 * seconds).for_each(|_| world.pass(500));
        world.is_stopped = false;
        world.run();
        let Some(Event::PolicyDeleted(report)) = world.events.pop() else { panic!() };
        assert_eq!(report.is_complete, is_complete, "{report:?}");
        assert!(!is_complete || packets(&report) == (3, vec![(3, 3)]), "{report:?}");
    }
}

/// Each round reads all rules and groups of all switches.
#[test]
fn who_asks_while_counters_are_read_shares_the_next_round() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(all_tcp("tcp", "3"));
    let first = world.control.request_stats();
    let mut questions = Vec::new();
    while let Some(transmit) = world.control.poll_transmit() {
        questions.push(transmit);
    }
    questions.into_iter().for_each(|transmit| _ = world.carry(transmit));
    flow_unseen(&mut world, 5);
    let others: Vec<_> = (0..100).map(|_| world.control.request_stats()).collect();
    assert!(others.iter().all(|token| *token == others[0] && *token != first));
    assert!(world.control.poll_transmit().is_none(), "nothing more is asked meanwhile");
    world.run();
    let ready = |event: &&Event| matches!(event, Event::StatsReady(_));
    let told: Vec<_> = world.events.iter().filter(ready).cloned().collect();
    assert_eq!(told, [Event::StatsReady(first), Event::StatsReady(others[0])]);
    assert_eq!(packets(&world.control.policy("tcp").unwrap()), (5, vec![(3, 5)]));
}

/// The same, before the controller processes any input.
fn flow_unseen(world: &mut World, count: u64) {
    (0..count).for_each(|_| _ = world.switch().receive(1, &tcp(1, 2).bytes()));
}
