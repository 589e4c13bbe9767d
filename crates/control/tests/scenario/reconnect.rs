//! Lost and restored connections: switches continue to forward, and only get what is missing.

use crate::fabric::Fabric;
use crate::frames::{arp_request, tcp};
use crate::model::Model;
use crate::world::{World, policy};
use tapswitch_control::*;
use tapswitch_openflow::*;

/// A world with hosts 1 and 2, and a policy for each kind of monitor.
fn tapped() -> (World, Vec<TapPolicy>) {
    let mut world = World::new(5);
    world.learn(3);
    let policies = vec![
        TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", "4") },
        TapPolicy { direction: Some(Direction::Both), ..policy("all", "p5") },
        TapPolicy { dst_port: Some(80.into()), ..policy("web", "02:00:00:00:00:03") },
    ];
    policies.iter().for_each(|policy| world.tap(policy.clone()));
    world.take_changes();
    (world, policies)
}

#[test]
fn a_switch_that_comes_back_unchanged_is_left_alone() {
    let (mut world, _) = tapped();
    world.disconnect(1);
    world.connect(1);
    assert_eq!(world.take_changes(), []);
    assert_eq!(world.state("web"), PolicyState::Active);
}

#[test]
fn a_controller_that_starts_again_disturbs_nothing() {
    let (mut world, policies) = tapped();
    let hosts = world.control.hosts().len();
    world.restart_controller(&policies);
    assert_eq!(world.take_changes(), []);
    assert_eq!(world.control.hosts().len(), hosts, "hosts are read from the switch");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4, 5]);
}

#[test]
fn policies_that_are_no_longer_configured_go_with_a_new_controller() {
    let (mut world, policies) = tapped();
    world.restart_controller(&policies[..1]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    assert_eq!(world.switch().groups().len(), 4, "for ports 1, 2, 3 and flooding");
}

#[test]
fn a_switch_that_lost_its_tables_gets_them_back() {
    let (mut world, _) = tapped();
    let before = world.switch().state();
    world.disconnect(1);
    world.switch().lose_tables();
    world.connect(1);
    assert_eq!(world.switch().state(), before);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4, 5]);
}

#[test]
fn a_host_that_fell_silent_meanwhile_is_forgotten() {
    let mut world = World::new(4);
    world.learn(2);
    world.disconnect(1);
    for _ in 0..4 {
        world.pass(100_000);
        world.switch().receive(1, &tcp(1, 2).bytes());
    }
    world.connect(1);
    let hosts: Vec<_> = world.control.hosts().into_iter().map(|host| host.port).collect();
    assert_eq!(hosts, ["1"]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4]);
}

/// Whether the switch has reported its rules.
fn has_reported_rules(model: &Model) -> bool {
    model.said.iter().any(|message| {
        matches!(&message.body, Body::MultipartReply(reply)
            if matches!(reply.body, MultipartReplyBody::Flow(_)))
    })
}

/// Number of rules by which a switch recognises its hosts.
fn source_count(world: &mut World, switch: u64) -> usize {
    let rules = world.model(switch).rules();
    rules.iter().filter(|rule| rule.cookie >> 32 == 0x7470_0002).count()
}

/// The switch reports the rules of its hosts, and then that they have timed out.
#[test]
fn a_host_that_falls_silent_while_its_switch_is_read_is_forgotten() {
    let mut world = World::new(4);
    world.learn(2);
    world.disconnect(1);
    let mut is_silent = false;
    world.connect_under(1, &mut |model| {
        if !is_silent && has_reported_rules(model) {
            is_silent = true;
            model.pass(301_000);
        }
    });
    assert!(is_silent && source_count(&mut world, 1) == 0);
    assert_eq!(world.control.hosts(), []);
    world.send(1, &arp_request(1, 99, None));
    assert_eq!((world.control.hosts().len(), source_count(&mut world, 1)), (1, 1));
}

/// The switch has been read, and is taken over only when its links are found.
#[test]
fn a_host_that_falls_silent_before_its_switch_is_taken_over_is_recognised_again() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    fabric.world.restart_controller(&[]);
    assert_eq!(fabric.world.control.hosts().len(), 2);
    fabric.world.model(1).pass(301_000);
    fabric.world.run();
    assert_eq!((fabric.world.control.hosts().len(), source_count(&mut fabric.world, 1)), (1, 0));
    fabric.world.inject(1, 1, &arp_request(1, 99, None));
    fabric.wait(1000);
    assert_eq!(fabric.world.control.hosts().len(), 2);
    assert_eq!(source_count(&mut fabric.world, 1), 1);
}

#[test]
fn policies_that_changed_meanwhile_are_applied_on_return() {
    let (mut world, _) = tapped();
    world.disconnect(1);
    let PolicyState::Partial { reason } = world.state("all") else { panic!() };
    assert!(reason.contains("switch 0x1 is not connected"), "{reason}");
    world.control.delete_policy("all").unwrap();
    world.run();
    world.connect(1);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4]);
    assert_eq!(world.state("web"), PolicyState::Active);
}

#[test]
fn the_rules_of_others_are_left_alone() {
    let mut world = World::new(4);
    let foreign_group = Body::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        group_type: GroupType::All,
        group_id: GroupId(0x7470_0000),
        buckets: vec![Bucket::new(vec![Action::output(PortNo(2))])],
    });
    let foreign_rule = Body::FlowMod(FlowMod {
        cookie: 42,
        priority: 5000,
        match_fields: Match::new().with(Oxm::EthType(tapswitch_wire::EtherType(0x88b5))),
        instructions: vec![Instruction::ApplyActions(vec![Action::Group(GroupId(0x7470_0000))])],
        ..FlowMod::new(FlowModCommand::Add)
    });
    for (xid, body) in [(1, foreign_group), (2, foreign_rule)] {
        world.switch().handle(Message { xid, body });
    }
    world.switch().said.clear();
    world.disconnect(1);
    world.connect(1);
    world.learn(2);
    world.tap(policy("all", "3"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    world.untap("all");
    let rules = world.switch().rules();
    assert!(rules.iter().any(|rule| rule.cookie == 42));
    assert_eq!(world.switch().groups()[0].group_id, GroupId(0x7470_0000));
}

/// Somebody else deletes all copying rules.
fn delete_copying() -> Message {
    let delete_all = Body::FlowMod(FlowMod {
        table_id: TableId::ALL,
        cookie: 0x7470_8000_0000_0000,
        cookie_mask: 0xffff_8000_0000_0000,
        ..FlowMod::new(FlowModCommand::Delete)
    });
    Message { xid: 9999, body: delete_all }
}

#[test]
fn what_somebody_else_deletes_comes_back() {
    let (mut world, _) = tapped();
    let before = world.switch().state();
    world.switch().handle(delete_copying());
    world.run();
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2], "forwarding goes on");
    world.pass(1000);
    assert_eq!(world.switch().state(), before);
}

/// Until then it is as new, and not yet told anything.
#[test]
fn a_switch_whose_rules_are_deleted_before_it_is_taken_over_is_not_read_again_instead() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    fabric.world.tap(policy("all", "0x1/2"));
    fabric.world.disconnect(1);
    // The link that it had is waited for.
    fabric.world.cables.clear();
    fabric.world.model(2).set_link(10, false);
    fabric.world.run();
    fabric.world.connect(1);
    fabric.world.events.clear();
    fabric.world.model(1).handle(delete_copying());
    fabric.wait(10_000);
    let is_up = |event: &&Event| matches!(event, Event::SwitchUp { .. });
    assert_eq!(fabric.world.events.iter().filter(is_up).count(), 1);
}

#[test]
fn a_group_that_somebody_else_deletes_comes_back() {
    let (mut world, _) = tapped();
    let before = world.switch().state();
    let delete = Body::GroupMod(GroupMod {
        command: GroupModCommand::Delete,
        group_type: GroupType::All,
        group_id: GroupId::ALL,
        buckets: vec![],
    });
    world.switch().handle(Message { xid: 9999, body: delete });
    world.run();
    world.pass(1000);
    assert_eq!(world.switch().state(), before);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3, 4, 5]);
}

#[test]
fn groups_that_a_controller_left_behind_are_cleaned_up() {
    let (mut world, policies) = tapped();
    let left_behind = Body::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        group_type: GroupType::All,
        group_id: GroupId(0x7470_4242),
        buckets: vec![],
    });
    world.switch().handle(Message { xid: 9999, body: left_behind });
    world.switch().said.clear();
    world.restart_controller(&policies);
    let ids: Vec<_> = world.switch().groups().iter().map(|group| group.group_id).collect();
    assert!(!ids.contains(&GroupId(0x7470_4242)), "{ids:?}");
}

#[test]
fn a_second_connection_takes_over_from_the_first() {
    let (mut world, _) = tapped();
    world.connect(1);
    assert_eq!(world.take_changes(), []);
    world.send(1, &arp_request(1, 2, None));
    assert_eq!(world.state("tcp"), PolicyState::Active);
}

/// Its former connection was asked, without an answer, whether frames of links have arrived.
#[test]
fn a_second_connection_keeps_no_new_port_closed() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    fabric.world.model(2).ignores_barriers = true;
    fabric.world.model(1).add_port(20);
    fabric.wait(500);
    let role = |fabric: &Fabric| {
        let ports = fabric.world.control.switches().remove(0).ports;
        ports.into_iter().find(|port| port.port == "20").unwrap().role
    };
    assert_eq!(role(&fabric), PortRole::Closed);
    fabric.world.model(2).ignores_barriers = false;
    fabric.world.connect(2);
    fabric.wait(3000);
    assert_eq!(role(&fabric), PortRole::Edge);
}

/// The tables of a switch are unknown before it is taken over: nothing is reported as wrong then.
#[test]
fn nothing_is_proved_while_a_switch_is_taken_over() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let wanted = policy("p", "0x2/2");
    let mut unproved = 0;
    let mut judge = |world: &mut World| {
        // While no switch has the port, that is the error.
        let Ok(verdict) = world.control.judge(Change::Add(&wanted)) else { return };
        assert_eq!(verdict.counterexample(), None);
        assert!(verdict.proof.is_some() || verdict.is_early, "{verdict:?}");
        let told = verdict.unproved.unwrap_or_default();
        unproved += usize::from(told.contains("not taken over yet"));
    };
    fabric.world.restart_controller_slowly(&[], &mut judge);
    for _ in 0..40 {
        fabric.wait(50);
        judge(&mut fabric.world);
    }
    assert!((1..40).contains(&unproved), "{unproved}");
    fabric.world.plan_and_tap(wanted);
}

/// The switches on the path have the rules when the new controller takes them over, and lose them
/// with the policy.
#[test]
fn copies_wait_for_a_path_that_was_there_at_the_start_and_went() {
    let policies = [policy("all", "0x3/2")];
    for kept in [&policies[..], &[]] {
        let mut fabric = Fabric::line(3);
        fabric.learn();
        fabric.world.tap(policies[0].clone());
        fabric.world.restart_controller(kept);
        fabric.wait(1000);
        for policy in kept {
            assert_eq!(fabric.world.state(&policy.name), PolicyState::Active);
            fabric.world.untap(&policy.name);
        }
        fabric.world.model(2).ignores_barriers = true;
        fabric.world.control.add_policy(policies[0].clone(), WhenMissing::Refuse).unwrap();
        fabric.world.run();
        assert_eq!(fabric.world.state("all"), PolicyState::Installing);
        assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1)], "nothing is copied yet");
    }
}

/// A link that a new controller mistook for an edge, because it hears of it late, would close a
/// loop.
#[test]
fn slow_switches_are_taken_over_without_a_loop() {
    for slow in [200, 700, 2000] {
        let mut fabric = Fabric::ring(4);
        fabric.learn();
        fabric.world.slow = Millis(slow);
        fabric.world.restart_controller(&[]);
        for _ in 0..10 * slow / 50 {
            fabric.check_production();
            fabric.wait(50);
        }
        assert_eq!(fabric.world.control.links().len(), 4, "{slow} ms");
        assert!(fabric.world.control.switches().iter().all(|switch| switch.is_connected));
    }
}

/// A port of the same number and name at another switch is a different port, with a host behind it.
#[test]
fn copies_stay_with_the_switch_whose_port_was_meant() {
    for monitor in ["3", "p3", "one-of:3+p2"] {
        let mut world = World::new(3);
        world.tap(policy("all", monitor));
        world.add_switch(2, 3);
        world.disconnect(1);
        let PolicyState::Partial { reason } = world.state("all") else {
            panic!("{monitor}: {:?}", world.state("all"))
        };
        assert!(reason.contains("switch 0x1 is not connected"), "{reason}");
        let frame = tcp(1, 9).bytes();
        let flooded = [(2, frame.clone()), (3, frame.clone())];
        assert_eq!(world.model(2).receive(1, &frame), flooded);
        let rules = world.model(2).state();
        assert!(!rules.iter().any(|rule| rule.contains("group:")), "{rules:?}");
        world.connect(1);
        assert_eq!(world.state("all"), PolicyState::Active);
        let at: Vec<_> = world.control.policy("all").unwrap().monitors;
        assert!(at.iter().all(|at| at.switch.0 == 1), "{at:?}");
    }
}

#[test]
fn the_switch_of_a_port_can_be_said_so_that_it_is_the_same_after_a_restart() {
    let mut world = World::new(3);
    let said = |world: &World, monitor: &str| {
        let said = world.control.with_switches_said(policy("all", monitor));
        said.monitor.to_string()
    };
    for (monitor, told) in [
        ("3", "0x1/3"),
        ("p3", "0x1/p3"),
        ("one-of:2+3", "one-of:0x1/2+0x1/3"),
        ("9", "9"),
        ("0x2/3", "0x2/3"),
        ("10.0.0.1", "10.0.0.1"),
        ("controller", "controller"),
    ] {
        assert_eq!(said(&world, monitor), told);
    }
    world.tap(policy("all", "3"));
    world.add_switch(2, 3);
    world.disconnect(1);
    assert_eq!(said(&world, "3"), "0x1/3", "as in the policy of its name");
    assert_eq!(said(&world, "2"), "0x2/2");
    let heir = TapPolicy { eth_type: Some("ipv4".parse().unwrap()), ..policy("all", "3") };
    let refused = world.control.replace_policy(heir, WhenMissing::Refuse).unwrap_err();
    assert!(refused.to_string().contains("switch 0x1 is not connected"), "{refused}");
}

/// The caller is told once of a switch that is found later.
#[test]
fn the_switch_of_a_port_that_comes_later_is_told_to_be_kept() {
    let mut world = World::new(2);
    let rests = TapPolicy {
        schedule: Some("Mon-Fri 08:00-08:02".parse().unwrap()),
        ..policy("rests", "3")
    };
    // The monitor of a paused policy is not located.
    world.control.add_policy(rests, WhenMissing::Refuse).unwrap();
    world.control.add_policy(policy("waits", "one-of:2+p3"), WhenMissing::Wait).unwrap();
    world.run();
    let pinned = |world: &World| {
        let told = world.events.iter().filter_map(|event| match event {
            Event::PolicyPinned(policy) => Some(format!("{}: {}", policy.name, policy.monitor)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(pinned(&world), [""; 0]);
    world.add_switch(2, 3);
    assert_eq!(pinned(&world), ["rests: 0x2/3", "waits: one-of:0x1/2+0x2/p3"]);
    world.add_switch(3, 3);
    world.disconnect(2);
    assert_eq!(pinned(&world).len(), 2);
    let told = |name: &str| world.control.policy(name).unwrap().policy.monitor.to_string();
    assert_eq!(told("rests"), "0x2/3", "it is told so, too");
    assert_eq!(told("waits"), "one-of:0x1/2+0x2/p3");
}
