//! Tests of ports on existing interfaces, with each other and with tap ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use crate::common::*;
use tapswitch_openflow::{MultipartReplyBody, MultipartRequestBody, PortNo, PortState};
use tapswitch_switch::report::PauseReport;
use tapswitch_wire::{EtherType, NetHeader, Tag};

const C_TAG: Tag = Tag::new(EtherType::VLAN, 0xe064);
const S_TAG: Tag = Tag::new(EtherType::SERVICE_VLAN, 0x00c8);

/// True if more packets than frames were sent to a port.
fn sends_trains(lab: &Lab, port: u32) -> bool {
    let tx = lab.switch.port(port).tx;
    tx.packets > 2 * tx.frames
}

#[test]
fn trains_pass_between_interfaces() {
    if !can_run() {
        return;
    }
    let (lab, _room) = Lab::netdevs(2, &[]);
    lab.switch.controller().apply(join(1, 2));
    ping(lab.host(1), lab.host(2));
    tcp(lab.host(1), lab.host(2), 10_000_000);
    tcp(lab.host(2), lab.host(1), 10_000_000);
    assert!(sends_trains(&lab, 1) && sends_trains(&lab, 2), "{:?}", lab.switch.ports());
    assert!(lab.switch.ports().iter().all(|port| port.drops.is_empty()));
    assert_eq!(lab.switch.port(1).kind, "netdev");
}

#[test]
fn trains_pass_between_an_interface_and_a_tap() {
    if !can_run() {
        return;
    }
    let (lab, _room) = Lab::netdevs(2, &[2]);
    lab.switch.controller().apply(join(1, 2));
    ping(lab.host(1), lab.host(2));
    tcp(lab.host(1), lab.host(2), 10_000_000);
    tcp(lab.host(2), lab.host(1), 10_000_000);
    assert!(sends_trains(&lab, 1) && sends_trains(&lab, 2), "{:?}", lab.switch.ports());
    assert!(lab.switch.ports().iter().all(|port| port.drops.is_empty()));
    let kinds: Vec<_> = lab.switch.ports().into_iter().map(|port| port.kind).collect();
    assert_eq!(kinds, ["netdev", "tap"]);
}

/// The qdisc cuts trains, takes some of their packets and drops the others, without an error.
#[test]
fn what_is_lost_in_front_of_an_interface_is_told() {
    if !can_run() {
        return;
    }
    let (lab, room) = Lab::netdevs(2, &[1]);
    lab.switch.controller().apply(join(1, 2));
    assert_eq!(lab.switch.port(1).queueing, None, "a tap device has a ring");
    let slow = ["qdisc", "add", "dev", "p2", "root", "tbf", "rate", "20mbit"];
    let small = ["burst", "1600", "limit", "12000"];
    let outcome = room.namespace.command("tc").args(slow).args(small).output();
    if !outcome.is_ok_and(|output| output.status.success()) {
        skip("no tc, or no tbf in this kernel");
        return;
    }
    let before = lab.switch.port(2).queueing.unwrap();
    assert_eq!((before.qdisc.as_str(), before.shed), ("tbf", 0));
    tcp(lab.host(1), lab.host(2), 1_000_000);
    assert!(lab.switch.port(2).queueing.unwrap().shed > 0, "{:?}", lab.switch.port(2));
}

/// The socket starts with a length for links of any rate. What waits in front of a slow link was
/// sent before its rate was known, and is little afterwards.
#[test]
fn a_full_port_holds_what_its_link_takes_in_a_moment() {
    if !can_run() {
        return;
    }
    let (lab, mut room) = Lab::netdevs(2, &[1]);
    lab.switch.controller().apply(join(1, 2));
    let (a, b) = (lab.host(1), lab.host(2));
    ping(a, b);
    let slow = ["qdisc", "add", "dev", "p2", "root", "tbf", "rate", "500mbit"];
    let long = ["burst", "100000", "limit", "20000000"];
    let outcome = room.namespace.command("tc").args(slow).args(long).output();
    if !outcome.is_ok_and(|output| output.status.success()) {
        skip("no tc, or no tbf in this kernel");
        return;
    }
    let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
    set_udp_segment(&from, 1400);
    from.set_nonblocking(true).unwrap();
    let mut backlog = || {
        for _ in 0..10 {
            // An error is expected: the host's own socket is full.
            let _ = from.send_to(&[7; 44 * 1400], to.local_addr().unwrap());
        }
        let qdiscs = room.netlink.qdiscs("p2").unwrap();
        qdiscs.iter().find(|qdisc| qdisc.is_root()).map_or(0, |root| root.backlog)
    };
    let mut waits = |pauses: fn(&PauseReport) -> bool| {
        let len = backlog();
        let held_up = lab.switch.port(2).pressure.holds_up;
        held_up.iter().any(|pause| pause.port == "1" && pauses(pause)).then_some(len)
    };
    until("the socket was full", || waits(|pause| pause.count > 0).is_some());
    until("it is as long as the link is fast", || {
        // A quarter of a megabyte in 4 ms. It starts at half of that, and deviations up to an
        // eighth are not corrected.
        waits(|pause| pause.now > 0).is_some_and(|len| (200_000..500_000).contains(&len))
    });
}

/// The packet socket has lost the interface, even if its index returns. Events of one namespace
/// arrive in order.
#[test]
fn an_interface_that_was_away_is_gone_until_it_is_attached_again() {
    if !can_run() {
        return;
    }
    let (lab, mut room) = Lab::netdevs(3, &[1]);
    let mut elsewhere = Host::new(9);
    let link = room.netlink.link("p2").unwrap();
    let index = link.index;
    assert_eq!((link.mtu, link.alias.is_some()), (1508, true), "it has room for tags");
    room.netlink.move_to_namespace("p2", &elsewhere.namespace).unwrap();
    lab.wait_for_state(2, "gone");
    until("what the switch has changed of it is as it was", || {
        let link = elsewhere.netlink.link("p2").unwrap();
        (link.mtu, link.alias) == (1500, None)
    });
    elsewhere.netlink.move_to_namespace("p2", &room.namespace).unwrap();
    room.netlink.set_up("p2").unwrap();
    assert_eq!(room.netlink.link("p2").unwrap().index, index, "the kernel keeps it");
    room.netlink.set_down("p3").unwrap();
    lab.wait_for_state(3, "no-link");
    assert_eq!(lab.switch.port(2).state, "gone");
    let snapshot = lab.switch.controller().statistics(MultipartRequestBody::PortDesc);
    let MultipartReplyBody::PortDesc(ports) = snapshot else { panic!("{snapshot:?}") };
    assert_eq!(ports[1].state, PortState::LINK_DOWN);
}

#[test]
fn tags_are_put_back_exactly() {
    if !can_run() {
        return;
    }
    for taps in [&[][..], &[1], &[2]] {
        let (mut lab, _room) = Lab::netdevs(2, taps);
        lab.switch.controller().apply(join(1, 2));
        let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
        let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
        for tags in [&[][..], &[C_TAG], &[S_TAG], &[S_TAG, C_TAG], &[C_TAG, C_TAG]] {
            let sent = frame(to, from, tags, 300);
            a.send(&NetHeader::PLAIN, &sent);
            let (header, received) = b.receive(|f| f.starts_with(&to.0));
            assert_eq!((header, received), (NetHeader::PLAIN, sent), "{tags:?} {taps:?}");
        }
    }
}

#[test]
fn the_tag_that_the_kernel_took_off_is_matched() {
    if !can_run() || !ofctl::is_there() {
        return;
    }
    let (mut lab, _room) = Lab::netdevs(2, &[]);
    ofctl::run(&lab.switch, "add-flow", &["in_port=1,dl_vlan=100,actions=pop_vlan,output:2"]);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    let other = Tag::new(EtherType::VLAN, 101);
    a.send(&NetHeader::PLAIN, &frame(to, from, &[other], 204));
    a.send(&NetHeader::PLAIN, &frame(to, from, &[C_TAG], 204));
    let (_, received) = b.receive(|f| f.starts_with(&to.0));
    assert_eq!(received, frame(to, from, &[], 200));
    until("the other is dropped", || lab.switch.drops(1, "table_miss") == 1);
}

#[test]
fn an_interface_that_goes_down_or_away_is_noticed() {
    if !can_run() {
        return;
    }
    let (lab, mut room) = Lab::netdevs(2, &[]);
    let mut controller = lab.switch.controller();
    controller.apply(join(1, 2));
    ping(lab.host(1), lab.host(2));
    room.netlink.set_down("p2").unwrap();
    let is_two = |state| {
        move |status: &tapswitch_openflow::PortStatus| {
            (status.desc.port_no, status.desc.state) == (PortNo(2), state)
        }
    };
    controller.port_status(is_two(PortState::LINK_DOWN));
    room.netlink.set_up("p2").unwrap();
    controller.port_status(is_two(PortState::LIVE));
    ping(lab.host(1), lab.host(2));
    room.netlink.delete("p2").unwrap();
    controller.port_status(is_two(PortState::LINK_DOWN));
    lab.wait_for_state(2, "gone");
    // An interface with the same name is another one; it is attached on request.
    room.netlink.create_veth("p2", "q2", &room.namespace).unwrap();
    assert_eq!(lab.switch.port(2).state, "gone");
    let handle = lab.switch.handle();
    let spec = format!("2=netdev:p2,netns={}", room.name()).parse().unwrap();
    runtime().block_on(handle.remove_port(PortNo(2))).unwrap();
    runtime().block_on(handle.add_port(spec)).unwrap();
    lab.wait_for_state(2, "no-link");
    assert_eq!(lab.switch.port(1).state, "up");
}
