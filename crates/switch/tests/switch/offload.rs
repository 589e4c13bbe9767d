//! Tests of ports without offloads: frames sent to them are cut and completed, byte for byte right.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::fs;

use crate::common::*;
use tapswitch_openflow::{Action, Body, Masked, Match, Oxm, PortNo, VID_PRESENT};
use tapswitch_switch::{Gro, PortSpec};
use tapswitch_wire::{EtherType, NetHeader, Tag};

/// Disables offloads and coalescing at a port.
fn finish(port: &mut PortSpec) {
    (port.offload, port.gro) = (false, Gro::Off);
}

/// Two hosts; the second is behind a port without offloads.
fn tap_lab() -> Lab {
    let lab = Lab::with(2, |config| finish(&mut config.ports[1]));
    lab.switch.controller().apply(join(1, 2));
    lab
}

fn netdev_lab() -> (Lab, Host) {
    let (lab, room) = Lab::netdevs_with(2, &[1], |config| finish(&mut config.ports[1]));
    lab.switch.controller().apply(join(1, 2));
    (lab, room)
}

/// Packets that a host's kernel found corrupt.
fn checksum_errors(host: &Host) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = host.namespace.enter(read).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let errors = |pair: &[&str]| -> u64 {
        let named = pair[0].split(' ').zip(pair[1].split(' '));
        let errors = named.filter(|(name, _)| *name == "InCsumErrors");
        errors.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    };
    lines.chunks(2).filter(|pair| pair.len() == 2).map(errors).sum()
}

/// Sends a stream in each direction and checks what arrives behind the port without offloads.
fn stream_passes_cut(lab: &Lab) {
    let capture = Capture::open(lab.host(2));
    tcp(lab.host(1), lab.host(2), 5_000_000);
    let frames = capture.drain(|_| true);
    assert!(capture.lost() == 0 && frames.len() > 3_000, "{} frames", frames.len());
    for (header, frame) in frames {
        assert_eq!(header, NetHeader::PLAIN);
        assert!(frame.len() <= 1514, "{} bytes", frame.len());
    }
    tcp(lab.host(2), lab.host(1), 5_000_000);
    lab.settle();
    let port = lab.switch.port(2);
    // The length of the trains depends on the sender, which sends short ones on a busy machine, and
    // acknowledgements of the other direction are among them, one by one.
    assert!(port.tx.packets > port.tx.frames, "the switch had trains: {:?}", port.tx);
    assert!(!has_dropped(&lab.switch.ports()));
    assert_eq!(port.offloads, "none");
    assert_eq!([1, 2].map(|number| checksum_errors(lab.host(number))), [0, 0]);
}

#[test]
fn tcp_reaches_a_tap_without_offloads() {
    if !can_run() {
        return;
    }
    let lab = tap_lab();
    stream_passes_cut(&lab);
    // Packets that the kernel delivers there are complete, too.
    let rx = lab.switch.port(2).rx;
    assert_eq!(rx.packets, rx.frames);
}

#[test]
fn tcp_reaches_an_interface_without_offloads() {
    if !can_run() {
        return;
    }
    let (lab, _room) = netdev_lab();
    stream_passes_cut(&lab);
    // In the other direction, trains arrive as such.
    let rx = lab.switch.port(2).rx;
    assert!(rx.packets > rx.frames, "{rx:?}");
}

#[test]
fn datagrams_reach_ports_without_offloads_one_by_one() {
    if !can_run() {
        return;
    }
    let (netdev, _room) = netdev_lab();
    for lab in [tap_lab(), netdev] {
        if !lab.switch.port(1).offloads.contains("uso4") {
            skip("UDP trains need Linux 6.2");
            return;
        }
        let (one, two) = (lab.host(1), lab.host(2));
        let (from, to) = (udp(one, one.ip(), 0), udp(two, two.ip(), 0));
        let bytes = noise(64_000);
        set_udp_segment(&from, 1000);
        for _ in 0..5 {
            from.send_to(&bytes, to.local_addr().unwrap()).unwrap();
            for expected in bytes.chunks(1000) {
                let mut buf = [0; 2000];
                let (len, _) = to.recv_from(&mut buf).unwrap();
                assert!(buf[..len] == *expected, "other bytes");
            }
        }
        // And a packet with only a partial checksum.
        set_udp_segment(&from, 0);
        from.send_to(b"one", to.local_addr().unwrap()).unwrap();
        let mut buf = [0; 16];
        assert_eq!(to.recv_from(&mut buf).unwrap().0, 3);
        assert_eq!(checksum_errors(two), 0);
        lab.settle();
        assert!(lab.switch.ports().iter().all(|port| port.drops.is_empty()));
    }
}

/// The payload of such a train is in as many pieces as it had packets.
#[test]
fn trains_that_were_coalesced_are_cut_again() {
    if !can_run() {
        return;
    }
    let lab = Lab::with(2, |config| {
        for port in &mut config.ports {
            (port.offload, port.gro) = (false, Gro::On);
        }
    });
    lab.switch.controller().apply(join(1, 2));
    let capture = Capture::open(lab.host(2));
    tcp(lab.host(1), lab.host(2), 5_000_000);
    let frames = capture.drain(|_| true);
    assert!(capture.lost() == 0 && frames.len() > 3_000, "{} frames", frames.len());
    let is_packet =
        |(header, frame): &(NetHeader, Vec<u8>)| *header == NetHeader::PLAIN && frame.len() <= 1514;
    assert!(frames.iter().all(is_packet));
    tcp(lab.host(2), lab.host(1), 5_000_000);
    lab.settle();
    let ports = lab.switch.ports();
    assert!(ports.iter().all(|port| port.tx.packets > port.tx.frames), "trains: {ports:?}");
    assert!(!has_dropped(&ports), "{ports:?}");
    assert_eq!([1, 2].map(|number| checksum_errors(lab.host(number))), [0, 0]);
}

/// A frame of maximum length under two tags, cut from a train: the ports between which it is tagged
/// are the ends of a veth pair.
#[test]
fn full_size_packets_pass_under_two_tags() {
    if !can_run() {
        return;
    }
    let mut room = Host::new(0);
    room.netlink.create_veth("near", "far", &room.namespace).unwrap();
    ["near", "far"].iter().for_each(|end| room.netlink.set_up(end).unwrap());
    let hosts: Vec<_> = [1, 4].map(Host::new).into();
    let tap = |host: &Host| format!("{}=tap:eth0,netns={}", host.number, host.name());
    let link = |number, end| {
        format!(
            "{number}=netdev:{end},netns={},mtu=1500,envelope=8,offload=off,gro=off",
            room.name()
        )
    };
    let ports = [tap(&hosts[0]), link(2, "near"), link(3, "far"), tap(&hosts[1])];
    let switch = Running::start(config(&ports));
    let mut lab = Lab { switch, hosts };
    lab.hosts.iter_mut().for_each(Host::add_address);
    introduce(&mut lab.hosts);
    lab.wait_for_state(2, "up");
    lab.wait_for_state(3, "up");
    let rules = [pushes(1, 2), pops(3, 4), pushes(4, 3), pops(2, 1)];
    lab.switch.controller().apply(rules.into());
    let [one, four] = &lab.hosts[..] else { panic!("two hosts") };
    tcp(one, four, 5_000_000);
    tcp(four, one, 5_000_000);
    lab.settle();
    let ports = lab.switch.ports();
    for port in &ports[1..3] {
        assert!(port.tx.packets > port.tx.frames, "trains: {port:?}");
        assert!(port.rx.packets == port.rx.frames, "no trains come: {port:?}");
    }
    assert!(!has_dropped(&ports), "{ports:?}");
    assert_eq!([one, four].map(checksum_errors), [0, 0]);
    // A third tag exceeds the envelope, whatever the length.
    let third = [pushes(1, 2), Body::FlowMod(push_three(1, 2))];
    lab.switch.controller().apply(third.into());
    let (from, to) = (lab.hosts[0].mac(), lab.hosts[1].mac());
    Capture::open(&lab.hosts[0]).send(&NetHeader::PLAIN, &frame(to, from, &[], 100));
    until("it is dropped by name", || lab.switch.drops(2, "oversize") == 1);
}

const TAGS: [Tag; 2] = [Tag::new(EtherType::VLAN, 10), Tag::new(EtherType::SERVICE_VLAN, 100)];

fn vid(tag: Tag) -> Oxm {
    Oxm::VlanVid(Masked::exact(VID_PRESENT | (tag.tci() & 0xfff)))
}

fn push(tags: &[Tag], out: u32) -> Vec<Action> {
    let push = |&tag: &Tag| [Action::PushVlan(tag.tpid()), Action::SetField(vid(tag))];
    tags.iter().flat_map(push).chain([output(out)]).collect()
}

/// Sends frames from one port to another under two tags.
fn pushes(from: u32, to: u32) -> Body {
    Body::FlowMod(rule(100, in_port(from), push(&TAGS, to)))
}

fn push_three(from: u32, to: u32) -> tapswitch_openflow::FlowMod {
    rule(200, in_port(from), push(&[TAGS[0], TAGS[1], TAGS[1]], to))
}

/// The reverse.
fn pops(from: u32, to: u32) -> Body {
    let tagged: Match = in_port(from).with(vid(TAGS[1]));
    Body::FlowMod(rule(100, tagged, vec![Action::PopVlan, Action::PopVlan, output(to)]))
}

#[test]
fn the_local_port_may_be_without_offloads() {
    if !can_run() {
        return;
    }
    let lab = Lab::with(2, |config| {
        config.ports[1].number = PortNo::LOCAL;
        config.ports[1].offload = false;
    });
    let local = PortNo::LOCAL.0;
    lab.switch.controller().apply(join(1, local));
    tcp(lab.host(1), lab.host(2), 1_000_000);
    tcp(lab.host(2), lab.host(1), 1_000_000);
}
