//! Destinations of copies for policies that name a host instead of a port.

use tapswitch_control::{Event, MonitorPort, TapPolicy, WhenMissing};

use crate::frames::{arp_request, tcp};
use crate::world::{World, policy};

/// Reported changes of destination since the last call, with the cause.
fn moves(world: &mut World) -> Vec<String> {
    let list = |ports: &[MonitorPort]| {
        ports.iter().map(MonitorPort::to_string).collect::<Vec<_>>().join(" ")
    };
    let told = std::mem::take(&mut world.events).into_iter().filter_map(|event| match event {
        Event::PolicyMoved { name, monitor, from, to, reason } => {
            Some(format!("{name}, {monitor}: [{}] > [{}]: {reason}", list(&from), list(&to)))
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn to_whom_copies_go_is_told_when_it_changes() {
    let mut world = World::new(5);
    world.learn(3);
    world.control.add_policy(policy("host", "10.0.0.3"), WhenMissing::Refuse).unwrap();
    world.run();
    let seen = "02:00:00:00:00:03 was seen there";
    assert_eq!(moves(&mut world), [format!("host, 10.0.0.3: [] > [0x1/3]: {seen}")]);
    world.send(4, &arp_request(3, 1, None));
    world.pass(1000);
    assert_eq!(moves(&mut world), [format!("host, 10.0.0.3: [0x1/3] > [0x1/4]: {seen}")]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    world.switch().set_link(4, false);
    world.run();
    world.send(5, &arp_request(3, 1, None));
    assert_eq!(moves(&mut world), [format!("host, 10.0.0.3: [] > [0x1/5]: {seen}")]);
}

#[test]
fn of_ports_that_policies_name_nothing_is_told() {
    let mut world = World::new(5);
    world.learn(2);
    world.tap(policy("port", "3"));
    world.tap(policy("name", "0x1/p4"));
    let reason = Some("ticket 7".to_owned());
    let other = TapPolicy { reason, ..policy("port", "0x1/5") };
    world.control.replace_policy(other, WhenMissing::Refuse).unwrap();
    world.run();
    world.switch().set_link(5, false);
    world.run();
    world.switch().set_link(5, true);
    world.run();
    assert!(moves(&mut world).is_empty());
}

#[test]
fn which_of_the_ports_that_share_flows_come_and_go_is_told() {
    let mut world = World::new(5);
    world.learn(2);
    world.tap(policy("both", "one-of:0x1/4+0x1/5"));
    moves(&mut world);
    let told = |change: &str| format!("both, one-of:0x1/4+0x1/5: {change}");
    world.switch().remove_port(5);
    world.run();
    let gone = told("[0x1/4 0x1/5] > [0x1/4]: 0x1/5 is no longer available");
    assert_eq!(moves(&mut world), [gone]);
    world.switch().add_port(5);
    world.run();
    let back = told("[0x1/4] > [0x1/4 0x1/5]: 0x1/5 is available now");
    assert_eq!(moves(&mut world), [back]);
}
