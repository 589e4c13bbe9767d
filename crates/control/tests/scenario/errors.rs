//! Errors are reported, and do no harm.

use crate::fabric::Fabric;
use crate::frames::{arp_request, mac, tcp};
use crate::world::{World, policy};
use tapswitch_control::*;
use tapswitch_openflow::*;

fn refusal(world: &mut World, policy: TapPolicy) -> String {
    world.control.add_policy(policy, WhenMissing::Refuse).unwrap_err().to_string()
}

#[test]
fn unknown_monitors_are_refused_with_what_is_known() {
    let mut world = World::new(3);
    world.learn(1);
    let cases = [
        ("9", "there is no such port; known ports: 1 (p1), 2 (p2), 3 (p3)"),
        ("mon0", "there is no such port"),
        ("0x2/3", "no such switch is connected; connected: 0x1"),
        ("10.0.0.9", "is not known yet: it has not sent ARP; name its port instead"),
        ("2001:db8::9", "it has not sent neighbour discovery"),
        ("02:00:00:00:00:09", "known hosts: 02:00:00:00:00:01 10.0.0.1 at port 1"),
    ];
    for (monitor, told) in cases {
        let text = refusal(&mut world, policy("p", monitor));
        assert!(text.starts_with(&format!("monitor {monitor}")) && text.contains(told), "{text}");
    }
    world.switch().set_link(3, false);
    world.run();
    assert!(refusal(&mut world, policy("p", "3")).contains("port 0x1/3 is down"));
    world.disconnect(1);
    let refused = refusal(&mut world, policy("p", "3"));
    assert!(refused.contains("switch 0x1 is not connected; find out why"), "{refused}");
    assert!(refused.contains("or name a monitor at another switch"), "{refused}");
    assert!(refusal(&mut world, policy("p", "9")).contains("no switch is connected"));
    assert!(world.control.policies().is_empty());
}

#[test]
fn monitors_that_could_be_several_are_refused() {
    let mut world = World::new(3);
    world.add_switch(2, 3);
    let frame = arp_request(1, 2, None);
    world.send(1, &frame);
    world.model(2).receive(3, &frame);
    world.run();
    for (monitor, told) in [
        ("3", "0x1/3, 0x2/3"),
        ("p2", "0x1/2, 0x2/2"),
        ("10.0.0.1", "0x1/1, 0x2/3"),
        ("02:00:00:00:00:01", "0x1/1, 0x2/3"),
    ] {
        let text = refusal(&mut world, policy("p", monitor));
        assert!(text.contains(&format!("ambiguous; name one of {told}")), "{text}");
    }
}

#[test]
fn names_are_unique_and_unknown_ones_are_told() {
    let mut world = World::new(3);
    let unknown = world.control.delete_policy("a").unwrap_err().to_string();
    assert_eq!(unknown, "there is no policy named a; there are none");
    world.tap(policy("a", "3"));
    assert!(refusal(&mut world, policy("a", "2")).starts_with("name a: there is a policy"));
    let unknown = world.control.policy("b").unwrap_err().to_string();
    assert_eq!(unknown, "there is no policy named b; there are: a");
}

#[test]
fn there_are_so_many_policies_only() {
    let limits = Limits { max_policies: 2, ..Limits::default() };
    let mut world = World::with_limits(3, limits);
    world.tap(policy("a", "3"));
    world.tap(policy("b", "3"));
    assert!(refusal(&mut world, policy("c", "3")).contains("the limit of 2 policies is reached"));
}

#[test]
fn a_policy_beyond_the_budget_is_refused_and_the_others_stay() {
    let limits = Limits { max_tap_rules: 4, ..Limits::default() };
    let mut world = World::with_limits(4, limits);
    world.learn(2);
    world.tap(policy("all", "3"));
    let tcp_too = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", "4") };
    assert!(
        refusal(&mut world, tcp_too)
            .contains("it would need 6 more rules on the switch, and 1 are left")
    );
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
}

#[test]
fn a_policy_of_a_lower_priority_gives_way() {
    let limits = Limits { max_tap_rules: 6, ..Limits::default() };
    let mut world = World::with_limits(5, limits);
    world.learn(2);
    world.tap(policy("old", "3"));
    world.tap(TapPolicy { vlan: Vlan::Id(5), priority: 7, ..policy("five", "4") });
    let before = world.switch().state();
    let tcp_too = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", "5") };
    assert!(refusal(&mut world, tcp_too).contains("more rules"));
    // There would not even be room without the others.
    let wide = TapPolicy { dst_port: Some(80.into()), priority: 9, ..policy("wide", "5") };
    assert!(refusal(&mut world, wide).contains("more rules"));
    assert_eq!(world.switch().state(), before, "nothing was disturbed");
    let urgent = TapPolicy { src_ip: "10.0.0.1".parse().ok(), priority: 5, ..policy("ip", "5") };
    world.control.add_policy(urgent, WhenMissing::Refuse).unwrap();
    world.run();
    assert_eq!(world.state("ip"), PolicyState::Active);
    assert_eq!(world.state("five"), PolicyState::Active, "its priority is higher");
    assert!(matches!(world.state("old"), PolicyState::Failed { .. }), "{:?}", world.state("old"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 5]);
    for name in ["five", "ip"] {
        world.control.delete_policy(name).unwrap();
        world.run();
    }
    assert_eq!(world.state("old"), PolicyState::Active, "there is room again");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
}

#[test]
fn a_policy_that_outgrows_the_budget_fails_as_a_whole() {
    let limits = Limits { max_tap_rules: 4, ..Limits::default() };
    let mut world = World::with_limits(6, limits);
    world.learn(1);
    world.tap(policy("all", "5"));
    world.tap(TapPolicy {
        src_mac: Some("02:00:00:00:00:01".parse().unwrap()),
        ..policy("one", "6")
    });
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3, 4, 5, 6]);
    world.send(2, &arp_request(2, 1, None));
    assert!(matches!(world.state("one"), PolicyState::Failed { .. }), "{:?}", world.state("one"));
    assert_eq!(world.state("all"), PolicyState::Active);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 5]);
}

#[test]
fn a_refused_rule_fails_its_policy_and_nothing_else() {
    let mut world = World::new(5);
    world.learn(2);
    world.tap(policy("all", "3"));
    let before = world.switch().state();
    world.switch().refuse = Some(|body| match body {
        Body::FlowMod(change) if change.priority == 1018 => Some(ErrorKind::OFPFMFC_TABLE_FULL),
        _ => None,
    });
    let tcp_too = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", "4") };
    world.control.add_policy(tcp_too, WhenMissing::Refuse).unwrap();
    world.events.clear();
    world.run();
    let [Event::PolicyFailed { name, reason }] = &world.events[..] else {
        panic!("{:?}", world.events)
    };
    assert!(name == "tcp" && reason.contains("switch 0x1 refused"), "{reason}");
    assert!(reason.contains("OFPFMFC_TABLE_FULL"), "{reason}");
    assert!(reason.ends_with("delete other policies, or give this one fewer ports and addresses"));
    assert_eq!(world.switch().state(), before);
    assert_eq!(world.state("all"), PolicyState::Active);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    let report = world.untap("tcp");
    assert_eq!((report.matched, report.is_complete), (Counts::ZERO, true));
}

#[test]
fn a_refused_group_fails_its_policy() {
    let mut world = World::new(4);
    world.learn(2);
    let before = world.switch().state();
    world.switch().refuse = Some(|body| match body {
        Body::GroupMod(change) if change.command == GroupModCommand::Add => {
            Some(ErrorKind::OFPGMFC_OUT_OF_GROUPS)
        }
        _ => None,
    });
    world.control.add_policy(policy("all", "3"), WhenMissing::Refuse).unwrap();
    world.run();
    assert!(matches!(world.state("all"), PolicyState::Failed { .. }));
    assert_eq!(world.switch().state(), before);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2]);

    world.switch().refuse = None;
    world.disconnect(1);
    world.connect(1);
    assert_eq!(world.state("all"), PolicyState::Active, "a new connection is a new try");
}

/// The rule that should have been replaced still exists.
#[test]
fn what_a_refused_rule_was_to_replace_goes_with_its_host() {
    let mut world = World::new(4);
    world.learn(2);
    let ways = |world: &mut World| {
        let to = format!("dl_dst={}", mac(1));
        let rules = world.switch().rules().into_iter();
        rules.filter(|rule| rule.match_fields.to_string().contains(&to)).count()
    };
    world.switch().refuse = Some(|body| match body {
        Body::FlowMod(change) => {
            let is_way = change.table_id == TableId(2) && change.priority == 100;
            let is_refused = is_way && change.command == FlowModCommand::Add;
            is_refused.then_some(ErrorKind::OFPFMFC_TABLE_FULL)
        }
        _ => None,
    });
    world.send(3, &arp_request(1, 99, None));
    assert_eq!(ways(&mut world), 1, "the one to where it was");
    world.switch().set_link(3, false);
    world.run();
    assert_eq!(ways(&mut world), 0);
}

#[test]
fn a_refused_rule_of_no_policy_is_told() {
    let mut world = World::new(4);
    world.switch().refuse = Some(|body| match body {
        Body::FlowMod(change) if change.priority == 100 => Some(ErrorKind::OFPFMFC_TABLE_FULL),
        _ => None,
    });
    world.learn(1);
    let told = world.events.iter().filter(|event| matches!(event, Event::RuleRefused { .. }));
    assert_eq!(told.count(), 2);
    assert_eq!(world.control.switches()[0].refusals, 2);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1, 3, 4]);
}

#[test]
fn a_refused_rule_of_no_policy_is_sent_again_later_and_later() {
    let mut world = World::new(4);
    world.switch().refuse = Some(|body| match body {
        Body::FlowMod(change) if change.priority == 100 => Some(ErrorKind::OFPFMFC_TABLE_FULL),
        _ => None,
    });
    world.learn(1);
    let refusals = |world: &World| world.control.switches()[0].refusals;
    for (passed, expected) in [(900, 2), (200, 4), (1000, 4), (1000, 6)] {
        world.pass(passed);
        assert_eq!(refusals(&world), expected);
    }
    let told = world.events.iter().filter(|event| matches!(event, Event::RuleRefused { .. }));
    assert_eq!(told.count(), 2, "once each");
    world.switch().refuse = None;
    world.pass(4000);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1]);
    world.switch().changes.clear();
    (0..200).for_each(|_| world.pass(1000));
    assert_eq!(refusals(&world), 6);
    assert!(world.take_changes().is_empty(), "it has them now");
}

#[test]
fn copies_are_not_made_while_a_switch_on_their_way_refuses_to_carry_them() {
    let rule: fn(&Body) -> Option<ErrorKind> = |body| match body {
        Body::FlowMod(change) if change.priority == 950 => Some(ErrorKind::OFPFMFC_TABLE_FULL),
        _ => None,
    };
    let group: fn(&Body) -> Option<ErrorKind> = |body| match body {
        // A group that copies has another bucket for the original.
        Body::GroupMod(change) if change.buckets.len() == 1 => {
            Some(ErrorKind::OFPGMFC_OUT_OF_GROUPS)
        }
        _ => None,
    };
    for refuse in [rule, group] {
        let mut fabric = Fabric::line(3);
        fabric.learn();
        fabric.world.model(2).refuse = Some(refuse);
        let far = TapPolicy { src_mac: Some(mac(1)), ..policy("far", "0x3/2") };
        fabric.world.control.add_policy(far, WhenMissing::Refuse).unwrap();
        fabric.world.run();
        for _ in 0..3 {
            assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1)]);
            let PolicyState::Failed { reason } = fabric.world.state("far") else {
                panic!("{:?}", fabric.world.state("far"))
            };
            assert!(
                reason.starts_with("switch 0x2 refused the rules that forward its copies: OFP"),
                "{reason}"
            );
            fabric.wait(1000);
        }
        let report = fabric.world.ledger("far");
        assert_eq!(report.matched, Counts::ZERO, "no copy was made to be lost");
        fabric.world.model(2).refuse = None;
        fabric.wait(5000);
        assert_eq!(fabric.world.state("far"), PolicyState::Active);
        assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    }
}

#[test]
fn a_switch_that_tells_nothing_is_complained_of() {
    let mut control = Control::new(Limits::default());
    let features = crate::model::Model::new(7, 1).features();
    control.handle_connected(&features, Millis(0));
    while control.poll_transmit().is_some() {}
    let due = control.poll_timeout().unwrap();
    assert_eq!(due, Millis(30_000));
    control.handle_timeout(due);
    let event = control.poll_event();
    assert!(matches!(event, Some(Event::SwitchMisbehaved { .. })), "{event:?}");
}

/// It answers everything else, so its connection stays up until the caller closes it.
#[test]
fn a_switch_that_confirms_nothing_does_not_keep_a_name_busy() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    fabric.world.tap(policy("all", "0x1/2"));
    fabric.world.model(2).ignores_barriers = true;
    let other = TapPolicy { src_ip: "10.0.0.1".parse().ok(), ..policy("all", "0x1/2") };
    fabric.world.control.replace_policy(other, WhenMissing::Refuse).unwrap();
    let reasons = |fabric: &Fabric| {
        let events = fabric.world.events.iter().filter_map(|event| match event {
            Event::SwitchMisbehaved { switch: DatapathId(2), reason } => Some(reason.clone()),
            _ => None,
        });
        events.collect::<Vec<_>>()
    };
    fabric.wait(29_000);
    assert_eq!((reasons(&fabric), is_replaced(&fabric)), (vec![], false));
    fabric.wait(2000);
    let [reason] = &reasons(&fabric)[..] else { panic!("{:?}", fabric.world.events) };
    assert!(
        reason.starts_with("it is connected but has not confirmed changes within 30 s"),
        "{reason}"
    );
    fabric.world.disconnect(2);
    assert!(is_replaced(&fabric), "{:?}", fabric.world.events);
    fabric.world.control.delete_policy("all").unwrap();
    fabric.world.run();
    assert!(fabric.world.control.policies().is_empty());
    fabric.world.tap(policy("all", "0x1/2"));
}

fn is_replaced(fabric: &Fabric) -> bool {
    fabric.world.events.contains(&Event::PolicyReplaced { name: "all".to_owned() })
}

#[test]
fn packets_that_others_asked_for_teach_nothing() {
    let mut world = World::new(3);
    let foreign = Body::PacketIn(PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 42,
        reason: PacketInReason::ACTION,
        table_id: TableId(0),
        cookie: 42,
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        data: arp_request(1, 2, None),
    });
    world.control.handle_message(DatapathId(1), &foreign, world.now);
    world.control.handle_message(DatapathId(77), &foreign, world.now);
    world.run();
    assert!(world.control.hosts().is_empty());
}

#[test]
fn switches_that_are_gone_make_room() {
    let limits = Limits { max_switches: 2, ..Limits::default() };
    let mut world = World::with_limits(3, limits);
    world.add_switch(2, 3);
    world.model(2).receive(3, &arp_request(1, 2, None));
    world.run();
    world.disconnect(2);
    world.pass(1000);
    world.disconnect(1);
    world.events.clear();
    world.add_switch(3, 3);
    let ids: Vec<_> = world.control.switches().iter().map(|switch| switch.switch.0).collect();
    assert_eq!(ids, [1, 3], "the one that has been gone for longest is forgotten");
    let is_gone = |event: &Event| matches!(event, Event::HostGone { .. });
    assert_eq!(world.events.iter().filter(|event| is_gone(event)).count(), 1);
}

#[test]
fn policies_that_were_outgrown_are_back_when_the_hosts_have_gone() {
    let mut world = outgrown();
    world.switch().set_link(4, false);
    world.run();
    world.pass(1000);
    assert_eq!(world.state("wide"), PolicyState::Active, "nobody changed a policy");
    assert_eq!(world.state("small"), PolicyState::Active);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 6]);
}

#[test]
fn a_policy_that_was_outgrown_is_back_when_just_enough_hosts_have_gone() {
    let mut world = World::with_limits(40, Limits { max_tap_rules: 31, ..Limits::default() });
    world.tap(policy("all", "40"));
    for port in 1..=31 {
        world.send(port, &arp_request(u8::try_from(port).unwrap(), 99, None));
    }
    assert!(matches!(world.state("all"), PolicyState::Failed { .. }), "{:?}", world.state("all"));
    world.switch().set_link(31, false);
    world.run();
    world.pass(1000);
    assert_eq!(world.state("all"), PolicyState::Active, "30 hosts and the rule for others");
}

#[test]
fn who_makes_hosts_come_and_go_has_policies_tried_again_once_in_a_second() {
    let mut world = outgrown();
    let mut tried = 0;
    for _ in 0..20 {
        world.switch().set_link(4, false);
        world.pass(10);
        tried += usize::from(world.state("wide") == PolicyState::Active);
        world.switch().set_link(4, true);
        for forged in 20..40 {
            world.send(4, &arp_request(forged, 99, Some(5)));
        }
        assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 6], "the small one is not concerned");
    }
    assert!(tried <= 1, "{tried}");
}

/// Forged addresses in a VLAN leave no room for a policy on that VLAN.
fn outgrown() -> World {
    let mut world = World::with_limits(6, Limits { max_tap_rules: 7, ..Limits::default() });
    world.learn(2);
    world.tap(TapPolicy { vlan: Vlan::Id(5), ..policy("wide", "5") });
    world.tap(TapPolicy { vlan: Vlan::Untagged, ..policy("small", "6") });
    for forged in 20..40 {
        world.send(4, &arp_request(forged, 99, Some(5)));
    }
    world.pass(1000);
    assert!(matches!(world.state("wide"), PolicyState::Failed { .. }), "{:?}", world.state("wide"));
    assert_eq!(world.state("small"), PolicyState::Active, "it fits without the other");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 6]);
    world
}
