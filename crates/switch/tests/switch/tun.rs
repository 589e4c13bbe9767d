//! Tests of a tun device as a port, next to tap devices: IP without Ethernet on one side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use crate::common::*;
use tapswitch_openflow::PortNo;

/// A host behind a tap port and one behind a tun port, without static neighbour entries.
fn lab(options: &str) -> (Running, [Host; 2]) {
    let mut hosts = [1, 2].map(Host::new);
    let ports = [
        format!("1=tap:eth0,netns={}", hosts[0].name()),
        format!("2=tun:eth0,netns={}{options}", hosts[1].name()),
    ];
    let switch = Running::start(config(&ports));
    switch.controller().apply(join(1, 2));
    for host in &mut hosts {
        host.add_address();
        host.add_address6();
    }
    (switch, hosts)
}

#[test]
fn hosts_find_each_other_and_talk() {
    if !can_run() {
        return;
    }
    for options in ["", ",queues=2", ",offload=off"] {
        // Either host sends first: the one behind the tun device is then unknown.
        for first in [0, 1] {
            let (switch, hosts) = lab(options);
            let (a, b) = (&hosts[first], &hosts[1 - first]);
            ping(a, b);
            ping(b, a);
            until("duplicate address detection is over", || {
                let bind = || std::net::UdpSocket::bind((hosts[0].ip6(), 0)).is_ok();
                hosts[0].namespace.enter(bind).unwrap()
            });
            ping_between(a, a.ip6(), b, b.ip6());
            ping_between(b, b.ip6(), a, a.ip6());
            tcp(a, b, 5_000_000);
            tcp_between(b, a, a.ip6(), 5_000_000);
            tcp_between(a, b, b.ip6(), 5_000_000);
            let [tap, tun] = [1, 2].map(|number| switch.port(number));
            assert_eq!(tun.kind, "tun");
            assert!(tap.drops.keys().all(|reason| reason == "ring_full"), "{tap:?}");
            // IPv6's own messages to all routers are IP; ARP for other hosts is not.
            let known = ["ring_full", "not_ip", "not_addressed"];
            assert!(tun.drops.keys().all(|it| known.contains(&it.as_str())), "{tun:?}");
            if options.is_empty() {
                assert!(tun.tx.packets > 3 * tun.tx.frames, "trains go out: {tun:?}");
                assert!(tun.rx.packets > 3 * tun.rx.frames, "and come in: {tun:?}");
            }
        }
    }
}

/// TCP ignores broadcast packets, so the port has to resolve the address.
#[test]
fn a_connection_to_a_host_that_said_nothing_yet_is_made() {
    if !can_run() {
        return;
    }
    let (switch, hosts) = lab("");
    tcp(&hosts[1], &hosts[0], 1_000_000);
    switch.check_books();
}

#[test]
fn what_is_not_for_it_is_dropped_by_name() {
    if !can_run() {
        return;
    }
    let (switch, mut hosts) = lab("");
    let tap = hosts[0].mac();
    let capture = Capture::open(&hosts[0]);
    let port = tapswitch_wire::MacAddr::BROADCAST;
    let tag = tapswitch_wire::Tag::new(tapswitch_wire::EtherType::VLAN, 5);
    let before = switch.drops(2, "not_ip");
    capture.send(&tapswitch_wire::NetHeader::PLAIN, &frame(port, tap, &[tag], 200));
    until("a tagged frame is dropped", || switch.drops(2, "not_ip") > before);
    let stranger = tapswitch_wire::MacAddr([2, 9, 9, 9, 9, 9]);
    capture.send(&tapswitch_wire::NetHeader::PLAIN, &frame(stranger, tap, &[], 200));
    until("one for another station is dropped", || switch.drops(2, "not_addressed") == 1);
}

/// Nothing is sent by the port, and nothing is dropped.
#[test]
fn a_question_that_the_port_answers_is_consumed() {
    if !can_run() {
        return;
    }
    let (switch, mut hosts) = lab("");
    ping(&hosts[0], &hosts[1]);
    let capture = Capture::open(&hosts[0]);
    let (mac, [asked, asks]) = (hosts[0].mac(), [hosts[1].ip(), hosts[0].ip()].map(octets));
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac.0, &asks, &[0; 6], &asked].concat();
    let head = [&[0xff; 6][..], &mac.0, &[8, 6]].concat();
    let before = switch.port(2).consumed;
    for _ in 0..5 {
        capture.send(&tapswitch_wire::NetHeader::PLAIN, &[&head[..], &arp].concat());
    }
    until("all are answered", || switch.port(2).consumed >= before + 5);
    until("what was sent is what came out", || switch.port(2).tx.frames == hosts[1].frames()[0]);
    switch.check_books();
}

fn octets(ip: std::net::IpAddr) -> [u8; 4] {
    match ip {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => panic!("{ip} is none of IPv4"),
    }
}

/// With NORMAL, the port is a station like any other.
#[test]
fn a_learning_switch_learns_the_port() {
    if !can_run() {
        return;
    }
    let mut hosts = [1, 2, 3].map(Host::new);
    let ports: Vec<_> = hosts
        .iter()
        .map(|host| {
            let kind = if host.number == 2 { "tun" } else { "tap" };
            format!("{}={kind}:eth0,netns={}", host.number, host.name())
        })
        .collect();
    let switch = Running::start(config(&ports));
    switch.controller().apply(vec![tapswitch_openflow::Body::FlowMod(all_to(PortNo::NORMAL))]);
    hosts.iter_mut().for_each(Host::add_address);
    for (a, b) in [(0, 1), (1, 2), (2, 0), (2, 1)] {
        ping(&hosts[a], &hosts[b]);
    }
    tcp(&hosts[1], &hosts[2], 2_000_000);
    assert_eq!(switch.report().stations, 3);
}
