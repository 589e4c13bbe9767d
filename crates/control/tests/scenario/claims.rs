//! Conflicting claims to an IP address.

use tapswitch_control::*;
use tapswitch_openflow::DatapathId;

use crate::fabric::Fabric;
use crate::frames::{arp_reply, arp_request, ipv4, mac, tcp};
use crate::world::{World, policy};

/// An ARP message by which a host claims another one's address.
fn claim(host: u8, address: u8) -> Vec<u8> {
    let mut frame = arp_request(host, 1, None);
    frame[28..32].copy_from_slice(&ipv4(address).octets());
    frame
}

/// Host 3 receives copies, named by its address, which host 4 claims.
fn contested() -> World {
    let mut world = World::new(5);
    world.learn(4);
    world.tap(policy("all", "10.0.0.3"));
    world.send(4, &claim(4, 3));
    world
}

fn copied(world: &mut World) -> Vec<u32> {
    let mut ports = world.send(1, &tcp(1, 2).bytes());
    ports.retain(|port| *port != 2);
    ports
}

fn holders(world: &World, address: u8) -> Vec<(DatapathId, String)> {
    let hosts = world.control.hosts().into_iter();
    let holding = hosts.filter(|host| host.addresses.contains(&ipv4(address).into()));
    holding.map(|host| (host.switch, host.port)).collect()
}

fn wait(world: &mut World, ms: u64) {
    (0..ms).step_by(500).for_each(|_| world.pass(500));
}

#[test]
fn who_answers_for_its_address_keeps_it() {
    let mut world = contested();
    let (_, port, question) = world.questions.pop().unwrap();
    let asked = (port, &question[..6], &question[38..]);
    assert_eq!(asked, (3, &mac(3).0[..], &ipv4(3).octets()[..]));
    world.send(3, &arp_reply(3, 9));
    for _ in 0..6 {
        world.pass(500);
        world.send(4, &claim(4, 3));
        assert_eq!(copied(&mut world), [3]);
    }
    assert_eq!(holders(&world, 3), [(DatapathId(1), "3".to_owned())]);
    assert!(world.questions.len() < 2, "it answered a moment ago");
}

#[test]
fn an_address_whose_host_is_silent_is_the_other_s() {
    let mut world = contested();
    wait(&mut world, 2500);
    assert_eq!(world.questions.len(), 6, "a question may be lost");
    assert_eq!(copied(&mut world), [3]);
    wait(&mut world, 500);
    assert_eq!(copied(&mut world), [4]);
    assert_eq!(holders(&world, 3), [(DatapathId(1), "4".to_owned())]);
    assert_eq!(world.state("all"), PolicyState::Active);
}

#[test]
fn an_address_moves_to_another_switch() {
    for is_heard in [true, false] {
        let mut fabric = Fabric::line(3);
        fabric.learn();
        fabric.world.tap(policy("all", "10.0.0.3"));
        let _ = fabric.world.inject(2, 1, &claim(2, 3));
        assert_eq!(fabric.world.questions.pop().map(|(switch, ..)| switch), Some(3));
        if is_heard {
            let _ = fabric.world.inject(3, 1, &arp_reply(3, 9));
        }
        fabric.wait(3100);
        let at: Vec<_> =
            holders(&fabric.world, 3).into_iter().map(|(switch, _)| switch.0).collect();
        assert_eq!(at.contains(&3), is_heard, "{at:?}");
        assert_eq!(fabric.world.state("all"), PolicyState::Active);
    }
}

#[test]
fn a_host_that_is_gone_is_not_given_an_address() {
    let mut world = contested();
    world.switch().set_link(4, false);
    wait(&mut world, 3500);
    assert_eq!(holders(&world, 3), [(DatapathId(1), "3".to_owned())]);
}

#[test]
fn old_addresses_of_a_host_make_room() {
    let mut world = World::new(3);
    world.learn(2);
    (10..30).for_each(|address| _ = world.send(1, &claim(1, address)));
    let count = |world: &World| world.control.hosts()[0].addresses.len();
    assert_eq!((count(&world), holders(&world, 29).len()), (16, 0));
    for _ in 0..6 {
        world.pass(100_000);
        world.send(1, &tcp(1, 2).bytes());
        world.send(1, &claim(1, 1));
    }
    world.send(1, &claim(1, 29));
    assert_eq!((count(&world), holders(&world, 29).len(), holders(&world, 1).len()), (16, 1, 1));
    assert_eq!(holders(&world, 10), [], "the one that was claimed first");
}

/// Two hosts behind port 2 claim the same addresses repeatedly.
fn crowd(world: &mut World) {
    for first in [100, 150] {
        for host in 0..20 {
            for address in 0..16 {
                let mut frame = claim(first + host, 1);
                frame[28..32].copy_from_slice(&[10, 9, host, address]);
                world.send(2, &frame);
            }
        }
    }
}

#[test]
fn who_claims_very_much_behind_one_port_keeps_no_other_address_from_moving() {
    let mut world = World::new(6);
    world.learn(5);
    crowd(&mut world);
    let asked = world.questions.len();
    world.send(4, &claim(4, 3));
    let more: Vec<_> = world.questions[asked..].iter().map(|(_, port, _)| *port).collect();
    assert_eq!(more, [3]);
    wait(&mut world, 3500);
    assert_eq!(holders(&world, 3), [(DatapathId(1), "4".to_owned())]);
}

#[test]
fn an_address_of_a_monitor_is_asked_for_whatever_else_its_port_claims() {
    let mut world = World::new(6);
    world.learn(5);
    world.tap(policy("all", "10.0.0.3"));
    crowd(&mut world);
    world.send(2, &claim(2, 3));
    assert_eq!(world.questions.last().map(|(_, port, _)| *port), Some(3));
}
