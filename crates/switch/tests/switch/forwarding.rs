//! Tests of frames between hosts on tap ports: complete, unchanged, counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::num::NonZeroUsize;

use crate::common::*;
use tapswitch_openflow::{Action, Body, PortNo};
use tapswitch_switch::Config;
use tapswitch_switch::FailMode;
use tapswitch_wire::{EtherType, MacAddr, NetHeader, Tag};

const C_TAG: Tag = Tag::new(EtherType::VLAN, 0x6064);
const S_TAG: Tag = Tag::new(EtherType::SERVICE_VLAN, 0x20c8);

/// Hosts joined by the learning switch.
fn learning(count: u8) -> Lab {
    Lab::with(count, |config| config.fail_mode = FailMode::Standalone)
}

/// Frames and packets sent to a port.
fn sent(lab: &Lab, port: u32) -> (u64, u64) {
    let tx = lab.switch.port(port).tx;
    (tx.frames, tx.packets)
}

#[test]
fn a_switch_without_a_controller_learns() {
    if !can_run() {
        return;
    }
    let mut lab = learning(3);
    ping(lab.host(1), lab.host(2));
    ping(lab.host(1), lab.host(2));
    until("both stations are known", || lab.switch.report().stations >= 2);
    lab.settle();
    let before = sent(&lab, 3).0;
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let b = Capture::open(lab.host(2));
    Capture::open(lab.host(1)).send(&NetHeader::PLAIN, &frame(to, from, &[], 200));
    b.receive(|f| f[12..14] == [0x88, 0xb5]);
    lab.settle();
    assert_eq!(sent(&lab, 3).0, before, "a known station's frames go to it alone");
}

#[test]
fn tcp_trains_pass_whole() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    lab.switch.controller().apply(join(1, 2));
    tcp(lab.host(1), lab.host(2), 20_000_000);
    let (frames, packets) = sent(&lab, 2);
    assert!(packets > 13_000, "twenty megabytes are {packets} packets");
    assert!(packets > 2 * frames, "{packets} packets in {frames} frames");
    until("all that came in went out", || lab.switch.port(1).rx == lab.switch.port(2).tx);
    assert!(lab.switch.ports().iter().all(|port| port.drops.is_empty()));
}

#[test]
fn tcp_trains_pass_both_ways_at_once() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    lab.switch.controller().apply(join(1, 2));
    std::thread::scope(|scope| {
        scope.spawn(|| tcp(lab.host(1), lab.host(2), 8_000_000));
        scope.spawn(|| tcp(lab.host(2), lab.host(1), 8_000_000));
    });
    assert!(lab.switch.ports().iter().all(|port| port.drops.is_empty()));
}

#[test]
fn udp_trains_pass_whole() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    lab.switch.controller().apply(join(1, 2));
    if !lab.switch.port(2).offloads.contains("uso4") {
        skip("UDP trains need Linux 6.2");
        return;
    }
    let (one, two) = (lab.host(1), lab.host(2));
    let (from, to) = (udp(one, one.ip(), 0), udp(two, two.ip(), 0));
    set_udp_segment(&from, 1000);
    let (before, bytes) = (sent(&lab, 2), noise(20_000));
    for _ in 0..10 {
        from.send_to(&bytes, to.local_addr().unwrap()).unwrap();
        for expected in bytes.chunks(1000) {
            let mut buf = [0; 2000];
            let (len, _) = to.recv_from(&mut buf).unwrap();
            assert_eq!(&buf[..len], expected);
        }
    }
    lab.settle();
    let (frames, packets) = sent(&lab, 2);
    assert_eq!((frames - before.0, packets - before.1), (10, 200));
}

#[test]
fn ipv6_passes_with_its_trains() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    lab.switch.controller().apply(join(1, 2));
    lab.hosts.iter_mut().for_each(Host::add_address6);
    let known: Vec<_> = lab.hosts.iter_mut().map(|host| (host.ip6(), host.mac())).collect();
    lab.host_mut(1).knows(known[1].0, known[1].1);
    lab.host_mut(2).knows(known[0].0, known[0].1);
    ping_between(lab.host(1), known[0].0, lab.host(2), known[1].0);
    tcp_between(lab.host(1), lab.host(2), known[1].0, 5_000_000);
    let (frames, packets) = sent(&lab, 2);
    assert!(packets > 2 * frames, "{packets} packets in {frames} frames");
}

#[test]
fn what_is_longer_than_the_egress_takes_is_dropped_by_name() {
    if !can_run() {
        return;
    }
    let mtu = |port: u32| if port == 1 { 9000 } else { 1500 };
    let mut lab = Lab::with(3, |config| {
        config.ports[0].mtu = Some(mtu(1));
        config.ports[2].mtu = Some(9000);
    });
    let mut controller = lab.switch.controller();
    controller.apply(vec![wire(1, 2)]);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    let is_test = |f: &[u8]| f.starts_with(&to.0);
    a.send(&NetHeader::PLAIN, &frame(to, from, &[], 1515));
    a.send(&NetHeader::PLAIN, &frame(to, from, &[], 9014));
    a.send(&NetHeader::PLAIN, &frame(to, from, &[C_TAG], 1518));
    a.send(&NetHeader::PLAIN, &frame(to, from, &[], 1514));
    let lens: Vec<_> = (0..2).map(|_| b.receive(is_test).1.len()).collect();
    assert_eq!(lens, [1518, 1514], "a tag does not count");
    until("the drops are counted", || lab.switch.drops(2, "oversize") == 2);
    assert_eq!(lab.switch.port(1).drops.len(), 0);

    controller.apply(vec![wire(1, 3)]);
    let c = Capture::open(lab.host(3));
    a.send(&NetHeader::PLAIN, &frame(to, from, &[], 9014));
    assert_eq!(c.receive(is_test).1.len(), 9014);
}

#[test]
fn tagged_frames_pass_byte_for_byte() {
    if !can_run() {
        return;
    }
    let deep = |config: &mut Config| config.ports[1].envelope = Some(5 * 4);
    let mut lab = Lab::with(2, deep);
    lab.switch.controller().apply(join(1, 2));
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    for tags in [&[][..], &[C_TAG], &[S_TAG], &[S_TAG, C_TAG], &[C_TAG; 5]] {
        // The kernel's own limit has room for one customer tag beyond the MTU, and for no other
        // tag.
        let longest = if *tags == [C_TAG] { 1518 } else { 1514 };
        for len in [60, 61, 500, longest] {
            let sent = frame(to, from, tags, len);
            a.send(&NetHeader::PLAIN, &sent);
            let (header, received) = b.receive(|f| f.starts_with(&to.0));
            assert_eq!((header, received), (NetHeader::PLAIN, sent), "{tags:?}");
        }
    }
}

#[test]
fn two_workers_share_the_queues_of_a_port() {
    if !can_run() {
        return;
    }
    let lab = Lab::with(2, |config| {
        config.workers = NonZeroUsize::new(2);
        for (number, port) in (1..).zip(&mut config.ports) {
            let netns = port.netns.clone().unwrap();
            *port = format!("{number}=tap:eth0,queues=2,netns={netns}").parse().unwrap();
        }
    });
    lab.switch.controller().apply(join(1, 2));
    let (one, two) = (lab.host(1), lab.host(2));
    let to = udp(two, two.ip(), 0);
    // The kernel spreads flows over queues by a hash of their addresses.
    for _ in 0..64 {
        let from = udp(one, one.ip(), 0);
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        to.recv_from(&mut [0; 10]).unwrap();
    }
    until("both workers had some", || {
        let workers = lab.switch.workers();
        workers.len() == 2 && workers.iter().all(|worker| worker.frames > 0)
    });
    let queues: Vec<_> = lab.switch.workers().into_iter().map(|worker| worker.queues).collect();
    assert_eq!(queues, [["1/0", "2/0"], ["1/1", "2/1"]]);
    tcp(one, two, 5_000_000);
    tcp(two, one, 5_000_000);
    assert!(lab.switch.ports().iter().all(|port| port.drops.is_empty()));
}

#[test]
fn the_local_port_is_reached_by_rules() {
    if !can_run() {
        return;
    }
    let local = Host::new(9);
    let netns = local.name().to_owned();
    let mut lab = Lab::with(1, |config| {
        config.ports.push(format!("local=tap:eth0,netns={netns}").parse().unwrap());
    });
    lab.hosts.push(local);
    let mac: Vec<_> = lab.hosts.iter_mut().map(Host::mac).collect();
    lab.hosts[1].add_address();
    let ips: Vec<_> = lab.hosts.iter().map(Host::ip).collect();
    lab.hosts[0].knows(ips[1], mac[1]);
    lab.hosts[1].knows(ips[0], mac[0]);
    let to_local = rule(1, in_port(1), vec![Action::output(PortNo::LOCAL)]);
    let from_local = rule(1, in_port(PortNo::LOCAL.0), vec![output(1)]);
    let mut controller = lab.switch.controller();
    controller.apply(vec![Body::FlowMod(to_local), Body::FlowMod(from_local)]);
    ping(&lab.hosts[0], &lab.hosts[1]);
    let ports = lab.switch.ports();
    let local = ports.iter().find(|port| port.port == "LOCAL").unwrap();
    assert!(local.rx.frames > 0 && local.tx.frames > 0, "{local:?}");
}

#[test]
fn a_rule_rewrites_and_the_checksums_hold() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    // Port 2 pretends to be 10.0.0.99: the address is rewritten in both directions.
    let (other, mac) = ("10.0.0.99".parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 99]));
    lab.host_mut(1).knows(other, mac);
    let (two, real) = (lab.host_mut(2).ip(), lab.host_mut(2).mac());
    assert_eq!(two.to_string(), "10.0.0.2");
    if !ofctl::is_there() {
        return;
    }
    let there = format!(
        "in_port=1,ip,nw_dst=10.0.0.99,actions=set_field:10.0.0.2->ip_dst,\
         set_field:{real}->eth_dst,dec_ttl,output:2"
    );
    let back = "in_port=2,ip,actions=set_field:10.0.0.99->ip_src,output:1";
    ofctl::run(&lab.switch, "add-flow", &[&there]);
    ofctl::run(&lab.switch, "add-flow", &[back]);
    let listener = udp(lab.host(2), two, 0);
    let port = listener.local_addr().unwrap().port();
    let asking = udp(lab.host(1), lab.host(1).ip(), 0);
    asking.send_to(b"to 99", (other, port)).unwrap();
    let mut buf = [0; 100];
    let (len, from) = listener.recv_from(&mut buf).unwrap();
    assert_eq!((&buf[..len], from.ip()), (&b"to 99"[..], lab.host(1).ip()));
    listener.send_to(b"from 99", from).unwrap();
    let (len, from) = asking.recv_from(&mut buf).unwrap();
    assert_eq!((&buf[..len], from.ip()), (&b"from 99"[..], other));
}
