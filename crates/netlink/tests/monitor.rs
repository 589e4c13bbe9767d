//! A monitor reports every change, or that it may have missed one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is a failed test")]

use tapswitch_netlink::{LinkEvent, LinkMonitor, Netlink, OwnedNamespace};

mod common;
use common::{eventually, is_root, namespace};

#[test]
fn the_life_of_a_link_is_told() {
    if !is_root() {
        return;
    }
    let (left, right) = (namespace(), namespace());
    let mut monitor = LinkMonitor::open(&left).unwrap();
    assert_eq!(monitor.poll_event().unwrap(), Some(LinkEvent::Resync));
    assert_eq!(monitor.poll_event().unwrap(), None);

    let mut a = Netlink::open(&left).unwrap();
    let mut b = Netlink::open(&right).unwrap();
    a.create_veth("a", "b", &right).unwrap();
    let index = a.link("a").unwrap().index;
    wait(&mut monitor, "created", |event| match event {
        LinkEvent::Changed(link) => link.name == "a" && link.index == index,
        _ => false,
    });
    a.set_up("a").unwrap();
    wait(
        &mut monitor,
        "up without a carrier",
        |event| matches!(event, LinkEvent::Changed(link) if link.up && !link.running),
    );
    b.set_up("b").unwrap();
    wait(
        &mut monitor,
        "running",
        |event| matches!(event, LinkEvent::Changed(link) if link.running),
    );
    a.set_mtu("a", 9000).unwrap();
    wait(
        &mut monitor,
        "new MTU",
        |event| matches!(event, LinkEvent::Changed(link) if link.mtu == 9000),
    );
    b.delete("b").unwrap();
    wait(&mut monitor, "deleted", |event| {
        *event == LinkEvent::Deleted { index, name: "a".to_owned(), moved: None }
    });
}

#[test]
fn what_moves_elsewhere_is_told_from_what_is_deleted() {
    if !is_root() {
        return;
    }
    let Pair { mut a, left, right } = Pair::new();
    let mut monitor = LinkMonitor::open(&left).unwrap();
    a.move_to_namespace("a", &right).unwrap();
    let event = wait(&mut monitor, "moved", |it| matches!(it, LinkEvent::Deleted { .. }));
    let LinkEvent::Deleted { moved: Some(moved), .. } = event else { panic!("{event:?}") };
    let there = a.find_namespace(moved.namespace_id).unwrap();
    assert!(there.is_same(&right).unwrap());
    let mut there = Netlink::open(&there).unwrap();
    assert_eq!(there.link_by_index(moved.index).unwrap().name, "a");
    assert!(a.find_namespace(-1).is_none() && a.find_namespace(moved.namespace_id + 1).is_none());
}

#[test]
fn leaving_a_bridge_does_not_look_like_a_deletion() {
    if !is_root() {
        return;
    }
    let Pair { mut a, left, right: _right } = Pair::new();
    a.create_bridge("br0").unwrap();
    a.set_bridge("a", "br0").unwrap();
    let mut monitor = LinkMonitor::open(&left).unwrap();
    a.delete("br0").unwrap();
    let bridge = wait(&mut monitor, "the bridge's deletion", |event| {
        matches!(event, LinkEvent::Deleted { .. })
    });
    assert!(matches!(bridge, LinkEvent::Deleted { name, .. } if name == "br0"));
}

#[test]
fn lost_messages_ask_for_a_fresh_look_without_stale_ones_after_it() {
    if !is_root() {
        return;
    }
    let Pair { mut a, left, right: _right } = Pair::new();
    let mut monitor = LinkMonitor::open(&left).unwrap();
    assert_eq!(monitor.poll_event().unwrap(), Some(LinkEvent::Resync));
    // Far more than the receive buffer holds, whatever net.core.rmem_max is.
    for round in 0..4000 {
        a.set_mtu("a", 1000 + round % 2).unwrap();
    }
    assert_eq!(monitor.poll_event().unwrap(), Some(LinkEvent::Resync));
    assert_eq!(monitor.poll_event().unwrap(), None);
    a.set_mtu("a", 1234).unwrap();
    wait(
        &mut monitor,
        "a change after the loss",
        |event| matches!(event, LinkEvent::Changed(link) if link.mtu == 1234),
    );
}

/// Two namespaces, connected by a veth pair from `a` to `b`.
struct Pair {
    a: Netlink,
    left: OwnedNamespace,
    right: OwnedNamespace,
}

impl Pair {
    fn new() -> Self {
        let (left, right) = (namespace(), namespace());
        let mut a = Netlink::open(&left).unwrap();
        a.create_veth("a", "b", &right).unwrap();
        Self { a, left, right }
    }
}

fn wait(monitor: &mut LinkMonitor, what: &str, is_it: impl Fn(&LinkEvent) -> bool) -> LinkEvent {
    eventually(what, || monitor.poll_event().unwrap().filter(|event| is_it(event)))
}
