//! One host sends from many forged addresses.

use tapswitch_control::*;

use crate::frames::{arp_request, tcp};
use crate::world::{World, policy};

/// Seven overlapping policies with different monitors.
fn tap_all(world: &mut World) {
    let all = |name: &str| policy(name, "5");
    let of = |name: &str, monitor: &str| policy(name, monitor);
    let policies = [
        all("all"),
        TapPolicy { ip_proto: Some(IpProto::TCP), ..of("tcp", "6") },
        TapPolicy { ip_proto: Some(IpProto::UDP), ..of("udp", "7") },
        TapPolicy { src_ip: "10.0.0.0/24".parse().ok(), ..of("net", "8") },
        TapPolicy { dst_ip: "10.0.0.0/24".parse().ok(), ..of("back", "5") },
        TapPolicy { src_ip: "10.0.0.1".parse().ok(), ..of("host", "6") },
        TapPolicy { dst_ip: "10.0.0.2".parse().ok(), ..of("peer", "7") },
    ];
    policies.into_iter().for_each(|policy| world.tap(policy));
}

/// An ARP request from a host that does not exist.
fn forged(number: u16) -> Vec<u8> {
    let mut frame = arp_request(9, 99, None);
    let [high, low] = number.to_be_bytes();
    for mac in [6, 22] {
        frame[mac..mac + 6].copy_from_slice(&[2, 0xf0, 0, 0, high, low]);
    }
    frame[28..32].copy_from_slice(&[10, 9, high, low]);
    frame
}

/// `count` forged hosts arrive at port 4, while time passes.
fn flood(world: &mut World, count: u16) {
    for first in (0..count).step_by(250) {
        for number in first..count.min(first + 250) {
            world.switch().receive(4, &forged(number));
        }
        world.pass(400);
    }
}

fn active_count(world: &World) -> usize {
    let policies = world.control.policies().into_iter();
    policies.filter(|policy| policy.state == PolicyState::Active).count()
}

fn crowds(world: &World) -> Vec<&str> {
    let crowds = world.events.iter().map(|event| match event {
        Event::Crowded { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    crowds.flatten().collect()
}

#[test]
fn new_hosts_of_one_port_are_taken_so_many_at_a_time() {
    let limits = Limits { host_burst: 100, ..Limits::default() };
    let mut world = World::with_limits(8, limits);
    world.learn(2);
    let shown = |world: &mut World, range: std::ops::Range<u16>| {
        range.for_each(|number| _ = world.switch().receive(4, &forged(number)));
        world.run();
        world.control.hosts().len()
    };
    assert_eq!(shown(&mut world, 0..100), 2 + 100);
    assert_eq!(crowds(&world), [""; 0]);
    assert_eq!(shown(&mut world, 100..300), 2 + 100);
    let [told] = crowds(&world)[..] else { panic!("it is told once") };
    assert!(told.starts_with("more than 100 new hosts at once at 0x1/4"), "{told}");
    assert_eq!(world.control.switches()[0].hosts_refused, 200);
    world.send(3, &arp_request(3, 1, None));
    assert_eq!(world.control.hosts().len(), 2 + 100 + 1, "others come as ever");
    world.pass(1000);
    assert_eq!(shown(&mut world, 300..400), 2 + 100 + 1 + 50);
    assert_eq!(crowds(&world).len(), 1, "it has not been quiet since");
    world.pass(3000);
    assert_eq!(shown(&mut world, 400..600), 2 + 100 + 1 + 50 + 100);
    assert_eq!(crowds(&world).len(), 2);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2]);
}

#[test]
fn hosts_of_one_port_for_which_there_is_no_room_cost_no_policy() {
    let limits = Limits { host_burst: usize::MAX, max_tap_rules: 8000, ..Limits::default() };
    let mut world = World::with_limits(8, limits);
    world.learn(2);
    tap_all(&mut world);
    flood(&mut world, 2000);
    assert_eq!(active_count(&world), 7);
    let is_of_policy =
        |event: &&Event| matches!(event, Event::PolicyActive { .. } | Event::PolicyFailed { .. });
    assert_eq!(world.events.iter().find(is_of_policy), None);
    let [told, ..] = crowds(&world)[..] else { panic!("{:?}", world.events) };
    assert!(told.starts_with("there is no room for rules to copy frames to all of "), "{told}");
    assert!(told.contains(" hosts at 0x1/4 (room for 8000 rules): "), "{told}");
    assert_eq!(crowds(&world).len(), 1, "others are not taken for a while");
    let count = world.control.hosts().len();
    assert!((100..1000).contains(&count), "{count}");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 5, 6, 7, 8], "all is copied");
    world.send(3, &arp_request(3, 1, None));
    assert_eq!(world.control.hosts().len(), count + 1, "others come as ever");
    world.pass(60_000);
    world.switch().receive(4, &forged(5000));
    world.run();
    assert_eq!(world.control.hosts().len(), count + 2);
}

/// No single port is crowded; there are too many hosts in total.
#[test]
fn hosts_for_which_there_is_no_room_cost_the_newest_policies() {
    let limits = Limits { max_tap_rules: 800, ..Limits::default() };
    let mut world = World::with_limits(8, limits);
    world.learn(2);
    tap_all(&mut world);
    let sources = [3, 4].into_iter().flat_map(|port| (0..60).map(move |n| (port, n)));
    for (port, number) in sources {
        world.switch().receive(port, &forged(port as u16 * 100 + number));
        world.run();
    }
    let active = active_count(&world);
    assert!((1..7).contains(&active), "{active}");
    assert_eq!(world.state("all"), PolicyState::Active);
    let PolicyState::Failed { reason } = world.state("peer") else { panic!() };
    assert!(reason.contains("800"), "{reason}");
    assert!(world.events.iter().all(|event| !matches!(event, Event::PolicyActive { .. })));
    let failed = |event: &&Event| matches!(event, Event::PolicyFailed { .. });
    assert_eq!(world.events.iter().filter(failed).count(), 7 - active, "each is told of");
    assert_eq!(world.send(1, &tcp(1, 2).bytes())[..2], [2, 5]);
    // They disappear.
    [3, 4].into_iter().for_each(|port| world.switch().set_link(port, false));
    (0..3).for_each(|_| world.pass(1000));
    assert_eq!(active_count(&world), 7);
}
