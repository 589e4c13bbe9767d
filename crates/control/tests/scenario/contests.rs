//! A host that receives copies is seen elsewhere: copies move only after it is verified to have
//! moved.

use tapswitch_control::*;
use tapswitch_openflow::{Body, DatapathId};

use crate::fabric::Fabric;
use crate::frames::{arp_reply, arp_request, ipv4, mac, neighbor_discovery, tcp};
use crate::world::{World, policy};

/// Where copies of a frame from host 1 to host 2 arrive.
fn copied(world: &mut World) -> Vec<u32> {
    let mut ports = world.send(1, &tcp(1, 2).bytes());
    ports.retain(|port| *port != 2);
    ports
}

/// Host 3 receives copies, and is also seen at port 4.
fn contested() -> World {
    let mut world = World::new(5);
    world.learn(3);
    world.tap(policy("all", "10.0.0.3"));
    world.send(4, &arp_request(3, 1, None));
    world
}

fn alarms(world: &World) -> Vec<&str> {
    let alarms = world.events.iter().map(|event| match event {
        Event::Contested { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    alarms.flatten().collect()
}

#[test]
fn who_answers_where_it_was_keeps_its_copies() {
    for answer in [arp_reply(3, 9), tcp(3, 1).bytes()] {
        let mut world = contested();
        let (_, port, question) = world.questions.pop().unwrap();
        assert_eq!(
            (port, &question[..6], &question[38..]),
            (3, &mac(3).0[..], &ipv4(3).octets()[..])
        );
        assert_eq!(copied(&mut world), [3], "one frame moves nothing");
        world.send(3, &answer);
        assert_eq!(alarms(&world).len(), 1);
        assert!(alarms(&world)[0].contains("is at 0x1/3, and a host at 0x1/4"));
        for _ in 0..3 {
            world.send(4, &arp_request(3, 1, None));
            world.pass(300);
        }
        assert_eq!(world.questions, [], "it answered a moment ago");
        world.pass(700);
        assert_eq!(copied(&mut world), [3]);
        assert_eq!(world.control.switches()[0].address_conflicts, 1);
        world.switch().receive(3, &tcp(3, 1).bytes());
        assert_eq!(world.switch().said, [], "it is a known host as before");
    }
}

#[test]
fn who_is_silent_where_it_was_has_moved_a_second_later() {
    let mut world = contested();
    world.pass(999);
    assert_eq!(copied(&mut world), [3]);
    world.pass(1);
    assert_eq!(copied(&mut world), [4]);
    let port = |port: u32| MonitorPort { switch: DatapathId(1), port, name: format!("p{port}") };
    let moved = Event::HostMoved { mac: mac(3), vlan: None, from: port(3), at: port(4) };
    assert!(world.events.contains(&moved), "{:?}", world.events);
    let rules = world.switch().rules();
    let fields = rules.iter().map(|rule| rule.match_fields.to_string());
    let of_3 = fields.filter(|fields| fields.contains("dl_src=02:00:00:00:00:03"));
    assert_eq!(of_3.count(), 1, "the place where it was is forgotten");
    // Its location is here now.
    world.send(3, &arp_request(3, 1, None));
    assert_eq!(world.questions.last().map(|(_, port, _)| *port), Some(4));
    assert_eq!(copied(&mut world), [4]);
}

/// A capture interface without an IP stack: it was learned from one frame, and has no address to
/// probe.
#[test]
fn who_cannot_be_asked_keeps_its_copies_while_its_port_is_up() {
    let mut world = World::new(5);
    world.learn(2);
    world.send(3, &unaddressed(3));
    world.tap(policy("all", "02:00:00:00:00:03"));
    for _ in 0..3 {
        world.send(4, &arp_request(3, 1, None));
        assert_eq!(world.questions, []);
        (0..6).for_each(|_| world.pass(1000));
        assert_eq!(copied(&mut world), [3]);
    }
    let [told, ..] = alarms(&world)[..] else { panic!("{:?}", world.events) };
    assert!(told.contains("is at 0x1/3, and a host at 0x1/4"), "{told}");
    assert!(told.contains("take its old port down, or name the monitor by its port"));
    assert_eq!(alarms(&world).len(), 3, "once each time");
    world.switch().set_link(3, false);
    world.run();
    world.send(4, &arp_request(3, 1, None));
    assert_eq!(copied(&mut world), [4]);
}

/// A frame without an IP address.
fn unaddressed(host: u8) -> Vec<u8> {
    let mut frame = [[0xff; 6], mac(host).0].concat();
    frame.extend([0x88, 0xb5]);
    frame.resize(60, 0);
    frame
}

#[test]
fn nobody_waits_for_a_port_that_is_down() {
    let mut world = contested();
    world.switch().set_link(3, false);
    world.run();
    world.send(4, &arp_request(3, 1, None));
    assert_eq!(copied(&mut world), [4]);
    world.pass(1000);
    assert_eq!(copied(&mut world), [4]);
}

#[test]
fn who_moved_and_went_again_is_not_looked_for_where_it_was_last() {
    let mut world = contested();
    world.switch().set_link(4, false);
    world.pass(1000);
    assert_eq!(copied(&mut world), [3], "what was seen of it at port 4 is over");
    world.send(3, &arp_request(3, 1, None));
    world.switch().set_link(3, false);
    world.run();
    assert_eq!(copied(&mut world), []);
}

#[test]
fn a_host_that_uses_ipv6_is_asked_too() {
    let mut world = World::new(5);
    world.learn(2);
    world.send(3, &neighbor_discovery(135, 3, 0xff, 9));
    world.tap(policy("all", "02:00:00:00:00:03"));
    world.send(4, &tcp(3, 1).bytes());
    let (_, port, question) = world.questions.pop().unwrap();
    assert_eq!((port, &question[12..14], question[54]), (3, &[0x86, 0xdd][..], 135));
    world.send(3, &neighbor_discovery(136, 3, 9, 3));
    world.pass(1000);
    assert_eq!(copied(&mut world), [3]);
}

#[test]
fn a_host_that_claims_no_address_is_asked_for_the_one_it_sends_from() {
    let mut world = World::new(5);
    world.learn(2);
    world.send(3, &tcp(3, 1).bytes());
    world.tap(policy("all", "10.0.0.3"));
    world.send(4, &tcp(3, 1).bytes());
    let (_, port, question) = world.questions.pop().unwrap();
    assert_eq!((port, &question[38..]), (3, &ipv4(3).octets()[..]));
    world.send(3, &arp_reply(3, 9));
    world.pass(1000);
    assert_eq!(copied(&mut world), [3]);
}

#[test]
fn hosts_that_get_no_copies_move_at_once() {
    let mut world = World::new(5);
    world.learn(3);
    world.tap(policy("all", "5"));
    world.send(4, &arp_request(3, 1, None));
    assert_eq!(world.send(1, &tcp(1, 3).bytes()), [4, 5]);
    assert_eq!(world.questions, []);
}

#[test]
fn a_host_of_another_switch_is_asked_there() {
    for is_heard in [true, false] {
        let mut fabric = Fabric::line(3);
        fabric.learn();
        fabric.world.tap(policy("all", "10.0.0.3"));
        let _ = fabric.world.inject(2, 2, &arp_request(3, 99, None));
        assert_eq!(fabric.world.questions.pop().map(|(switch, ..)| switch), Some(3));
        if is_heard {
            let _ = fabric.world.inject(3, 1, &arp_reply(3, 9));
        }
        fabric.wait(1100);
        let hosts = fabric.world.control.hosts();
        let at: Vec<_> = hosts.iter().filter(|host| host.mac == mac(3)).collect();
        assert_eq!((at.len(), at[0].switch), (1, DatapathId(if is_heard { 3 } else { 2 })));
        assert_eq!(alarms(&fabric.world).len(), usize::from(is_heard));
    }
}

/// Host 3, which receives no copies, is seen at two ports alternately.
#[test]
fn a_host_that_moves_again_and_again_is_asked_first() {
    let mut world = World::new(5);
    world.learn(3);
    world.tap(policy("all", "5"));
    let moves = |world: &World| {
        let moved = |event: &&Event| matches!(event, Event::HostMoved { .. });
        world.events.iter().filter(moved).count()
    };
    for _ in 0..50 {
        [4, 3].into_iter().for_each(|port| _ = world.send(port, &arp_request(3, 1, None)));
        world.pass(10);
    }
    assert_eq!(moves(&world), 5, "{:?}", world.events);
    let [told] = alarms(&world)[..] else { panic!("{:?}", world.events) };
    assert!(
        told.contains("moved 5 times within 10 s, last to 0x1/4, and is now seen at 0x1/3"),
        "{told}"
    );
    // One of the two is gone: the host stays at the other port.
    world.questions.clear();
    for _ in 0..25 {
        world.pass(100);
        world.send(3, &arp_request(3, 1, None));
    }
    assert_eq!(port_of_3(&world), ["3"]);
    assert!(world.questions.iter().any(|(_, port, _)| *port == 4));
    assert_eq!(world.send(1, &tcp(1, 3).bytes()), [3, 5]);
}

/// Forged moves of many hosts cost no more than new hosts.
#[test]
fn hosts_move_to_one_port_so_many_at_a_time() {
    let limits = Limits { host_burst: 8, ..Limits::default() };
    let mut world = World::with_limits(5, limits);
    (1..=3).for_each(|port: u32| {
        let hosts = port as u8 * 8..port as u8 * 8 + 8;
        hosts.for_each(|host| _ = world.send(port, &arp_request(host, 99, None)));
    });
    (8..32).for_each(|host| _ = world.send(4, &arp_request(host, 99, None)));
    let at_4 = |world: &World| world.control.hosts().iter().filter(|host| host.port == "4").count();
    assert_eq!(at_4(&world), 8);
    world.send(4, &arp_request(99, 1, None));
    assert_eq!(at_4(&world), 9, "a new one comes as ever");
    world.pass(100);
    (8..32).for_each(|host| _ = world.send(4, &arp_request(host, 99, None)));
    assert_eq!(at_4(&world), 14);
}

/// Its rule is deleted meanwhile, as if it had timed out.
#[test]
fn a_host_that_is_asked_stays_where_it_is_when_its_switch_reconnects() {
    let mut world = contested();
    world.take_changes();
    world.disconnect(1);
    world.connect(1);
    assert_eq!(world.take_changes(), [], "its frames are still shown");
    assert_eq!((copied(&mut world), port_of_3(&world)), (vec![3], vec!["3".to_owned()]));
    world.send(3, &arp_reply(3, 9));
    world.pass(2000);
    assert_eq!(copied(&mut world), [3]);
    world.switch().receive(3, &tcp(3, 1).bytes());
    assert_eq!(world.switch().said, [], "it is a known host as before");
}

/// All messages from the controller to the only switch.
fn sent(world: &mut World) -> Vec<Transmit> {
    std::iter::from_fn(|| world.control.poll_transmit()).collect()
}

fn question_count(sent: &[Transmit]) -> usize {
    let is_question = |sent: &&Transmit| match &sent.body {
        Body::PacketOut(out) => out.data.get(12..14) != Some(&[0x88, 0xcc]),
        _ => false,
    };
    sent.iter().filter(is_question).count()
}

/// Host 3 is seen at port 4; returns the ticket of the barrier after the resulting changes.
fn contest_at(switch: DatapathId, world: &mut World) -> tapswitch_control::Ticket {
    world.switch().receive(4, &arp_request(3, 1, None));
    for message in std::mem::take(&mut world.switch().said) {
        world.control.handle_message(switch, &message.body, world.now);
    }
    let sent = sent(world);
    let is_deletion = |sent: &Transmit| match &sent.body {
        Body::FlowMod(change) => {
            let fields = change.match_fields.to_string();
            change.command.deletes() && fields.contains("dl_src=02:00:00:00:00:03")
        }
        _ => false,
    };
    assert_eq!(question_count(&sent), 0, "its answer would not be shown: {sent:?}");
    let mut behind = sent.iter().skip_while(|sent| !is_deletion(sent));
    behind.find(|sent| sent.body == Body::BarrierRequest).unwrap().ticket
}

#[test]
fn a_host_is_asked_when_its_answers_are_shown() {
    let (mut world, switch) = (World::new(5), DatapathId(1));
    world.learn(3);
    world.tap(policy("all", "10.0.0.3"));
    let barrier = contest_at(switch, &mut world);
    let start = world.now;
    let mut asked_at = |ms: u64| {
        world.control.handle_timeout(start.plus(Millis(ms)));
        question_count(&sent(&mut world))
    };
    // While the switch is busy, silence proves nothing.
    assert_eq!([asked_at(1000), asked_at(3000)], [0, 0]);
    let now = start.plus(Millis(3000));
    world.control.handle_reply(switch, barrier, &Body::BarrierReply, now);
    assert_eq!(question_count(&sent(&mut world)), 1);
    let mut asked_at = |ms: u64| {
        world.control.handle_timeout(start.plus(Millis(ms)));
        question_count(&sent(&mut world))
    };
    assert_eq!([3399, 3400, 3800, 3999].map(&mut asked_at), [0, 1, 1, 0]);
    assert_eq!(port_of_3(&world), ["3"]);
    world.control.handle_timeout(start.plus(Millis(4000)));
    assert_eq!(port_of_3(&world), ["4"], "its time began when it was asked");
}

#[test]
fn a_switch_that_does_not_show_answers_proves_nothing() {
    let (mut world, switch) = (World::new(5), DatapathId(1));
    world.learn(3);
    world.tap(policy("all", "10.0.0.3"));
    contest_at(switch, &mut world);
    world.control.handle_timeout(world.now.plus(Millis(5000)));
    assert_eq!(question_count(&sent(&mut world)), 0);
    assert_eq!(port_of_3(&world), ["3"]);
}

/// Decisions made while a switch is behind are sent as one difference.
#[test]
fn what_is_replaced_before_it_is_sent_is_not_sent() {
    let (mut world, switch) = (World::new(5), DatapathId(1));
    world.learn(2);
    let (mut changes, mut barriers) = (0, Vec::new());
    let mut take = |world: &mut World, barriers: &mut Vec<_>| {
        for Transmit { ticket, body, .. } in sent(world) {
            match body {
                Body::BarrierRequest => barriers.push(ticket),
                Body::FlowMod(_) | Body::GroupMod(_) => changes += 1,
                _ => {}
            }
        }
        changes
    };
    for round in 0..4000 {
        let port = if round % 2 == 0 { "3" } else { "4" };
        world.control.replace_policy(policy("all", port), WhenMissing::Wait).unwrap_or_else(|_| {
            world.control.add_policy(policy("all", port), WhenMissing::Wait).unwrap();
        });
        take(&mut world, &mut barriers);
    }
    while !barriers.is_empty() {
        for barrier in std::mem::take(&mut barriers) {
            world.control.handle_reply(switch, barrier, &Body::BarrierReply, world.now);
        }
        take(&mut world, &mut barriers);
    }
    let changes = take(&mut world, &mut barriers);
    assert!((1000..5000).contains(&changes), "{changes}");
}

fn port_of_3(world: &World) -> Vec<String> {
    let hosts = world.control.hosts().into_iter();
    hosts.filter(|host| host.mac == mac(3)).map(|host| host.port).collect()
}
