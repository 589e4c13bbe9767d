//! Tests of port modes, and of full-size tagged frames, between switches and hosts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::net::IpAddr;

use crate::common::*;
use tapswitch_switch::{Config, FailMode};
use tapswitch_tap as tap;
use tapswitch_wire::checksum::pseudo_header_v4;
use tapswitch_wire::{EtherType, GsoType, MacAddr, NetHeader, NetHeaderFlags, Tag};

const C10: Tag = Tag::new(EtherType::VLAN, 10);
const S100: Tag = Tag::new(EtherType::SERVICE_VLAN, 100);

/// A switch that learns by itself.
fn learning(ports: &[String]) -> Running {
    Running::start(Config { fail_mode: FailMode::Standalone, ..config(ports) })
}

/// Hosts, and a namespace in which switches are joined by veth pairs.
struct Site {
    hosts: Vec<Host>,
    room: Host,
}

impl Site {
    fn new(hosts: u8) -> Self {
        Self { hosts: (1..=hosts).map(Host::new).collect(), room: Host::new(0) }
    }

    /// A veth pair between two switches.
    fn cable(&mut self, one: &str, other: &str) {
        let Host { netlink, namespace, .. } = &mut self.room;
        netlink.create_veth(one, other, namespace).unwrap();
        [one, other].iter().for_each(|name| netlink.set_up(name).unwrap());
        let runs =
            |netlink: &mut tapswitch_netlink::Netlink, name| netlink.link(name).unwrap().running;
        until("the cable carries", || runs(netlink, one) && runs(netlink, other));
    }

    /// A port with a tap device in a host.
    fn tap(&self, number: u8, options: &str) -> String {
        let host = &self.hosts[usize::from(number) - 1];
        format!("{number}=tap:eth0,netns={},{options}", host.name())
    }

    /// A port with one end of a veth pair.
    fn end(&self, number: u8, name: &str, options: &str) -> String {
        format!("{number}=netdev:{name},netns={},{options}", self.room.name())
    }

    /// Gives the hosts their addresses when their ports exist.
    fn settle(&mut self) {
        self.hosts.iter_mut().for_each(Host::add_address);
        host_introductions(&mut self.hosts);
    }

    fn mtu(&mut self, name: &str) -> u32 {
        self.room.netlink.link(name).unwrap().mtu
    }

    fn alias(&mut self, name: &str) -> Option<String> {
        self.room.netlink.link(name).unwrap().alias
    }
}

fn host_introductions(hosts: &mut [Host]) {
    let known: Vec<(IpAddr, MacAddr)> =
        hosts.iter_mut().map(|host| (host.ip(), host.mac())).collect();
    for (at, host) in hosts.iter_mut().enumerate() {
        let others = known.iter().enumerate().filter(|(other, _)| *other != at);
        others.for_each(|(_, &(ip, mac))| host.knows(ip, mac));
    }
}

fn assert_no_drops(switches: &[&Running]) {
    for switch in switches {
        assert!(switch.ports().iter().all(|port| port.drops.is_empty()), "{:?}", switch.ports());
    }
}

#[test]
fn hosts_of_a_vlan_talk_over_a_trunk_and_others_do_not_hear_them() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(4);
    site.cable("left", "right");
    let trunk = "mode=trunk,vlans=10+20";
    let (ten, twenty) = ("mode=access,vlan=10", "mode=access,vlan=20");
    let left = [site.tap(1, ten), site.tap(3, twenty), site.end(9, "left", trunk)];
    let right = [site.tap(2, ten), site.tap(4, twenty), site.end(9, "right", trunk)];
    let (left, right) = (learning(&left), learning(&right));
    site.settle();
    let strangers = [Capture::open(&site.hosts[2]), Capture::open(&site.hosts[3])];
    let macs = [site.hosts[0].mac(), site.hosts[1].mac()];
    ping(&site.hosts[0], &site.hosts[1]);
    tcp(&site.hosts[0], &site.hosts[1], 5_000_000);
    ping(&site.hosts[2], &site.hosts[3]);
    for stranger in strangers {
        let heard = stranger.drain(|frame| macs.iter().any(|mac| frame[6..12] == mac.0));
        assert_eq!(heard, [], "VLAN 10 is none of theirs");
    }
    assert_no_drops(&[&left, &right]);
    let port = left.port(9);
    assert_eq!(port.mode.as_deref(), Some("mode=trunk,vlans=10+20"));
    assert!(port.tx.packets > 2 * port.tx.frames, "trains stay whole: {port:?}");
}

/// Host 1 is in a customer's VLAN, which is inside a provider's: two tags between the providers.
/// Host 2 receives everything as host 1 has sent it, at full size.
#[test]
fn full_size_frames_cross_a_provider_behind_two_tags() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(2);
    for (one, other) in [("c1", "u1"), ("p1", "p2"), ("u2", "c2")] {
        site.cable(one, other);
    }
    let (access, trunk) = ("mtu=1500,mode=access,vlan=10", "mtu=1500,mode=trunk");
    let (tunnel, provider) =
        ("mtu=1500,mode=dot1q-tunnel,vlan=100", "mtu=1500,mode=provider,vlans=100");
    let switches = [
        learning(&[site.tap(1, access), site.end(9, "c1", trunk)]),
        learning(&[site.end(1, "u1", tunnel), site.end(9, "p1", provider)]),
        learning(&[site.end(1, "u2", tunnel), site.end(9, "p2", provider)]),
        learning(&[site.tap(2, access), site.end(9, "c2", trunk)]),
    ];
    site.settle();
    ping(&site.hosts[0], &site.hosts[1]);
    tcp(&site.hosts[0], &site.hosts[1], 10_000_000);
    tcp(&site.hosts[1], &site.hosts[0], 10_000_000);
    assert_full_size_datagram(&site);
    assert_no_drops(&switches.each_ref());
    let wire = switches[1].port(9);
    assert!(wire.tx.packets > 2 * wire.tx.frames, "trains stay whole: {wire:?}");
    assert_eq!((wire.mtu, wire.envelope), (1500, 8));
    assert_eq!(site.mtu("p1"), 1508, "room for two tags");
    drop(switches);
    for name in ["c1", "u1", "p1", "p2", "u2", "c2"] {
        assert_eq!((site.mtu(name), site.alias(name)), (1500, None), "{name} is as it was");
    }
}

#[test]
fn a_selective_port_leads_each_c_vlan_into_its_s_vlan() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(3);
    let ports = [
        site.tap(1, "mode=qinq,map=10:100/11+20:200,untagged=300"),
        site.tap(2, "mode=provider,vlans=100+200+300,tpid=0x9100"),
        site.tap(3, "mode=qinq,map=7:100/11"),
    ];
    let _switch = learning(&ports);
    let captures: Vec<_> = site.hosts.iter().map(Capture::open).collect();
    let [to, from] = [site.hosts[1].mac(), site.hosts[0].mac()];
    let legacy = |number| Tag::new(EtherType::LEGACY_SERVICE_VLAN, number);
    let c = |tci| Tag::new(EtherType::VLAN, tci);
    let is_test = |frame: &[u8]| frame[6..12] == from.0;
    for (sent, wire) in [
        (&[c(0xa00a)][..], &[legacy(0xa064), c(0xa00b)][..]),
        (&[c(20)], &[legacy(200), c(20)]),
        (&[], &[legacy(300)]),
    ] {
        captures[0].send(&NetHeader::PLAIN, &frame(to, from, sent, 300));
        let (_, received) = captures[1].receive(is_test);
        assert_eq!(
            received,
            frame(to, from, wire, 300 + 4 * (wire.len() - sent.len())),
            "{sent:?}"
        );
    }
    let (_, received) = captures[2].receive(is_test);
    assert_eq!(received, frame(to, from, &[c(0xa007)], 300), "called 7 there");
}

#[test]
fn full_size_frames_and_trains_with_two_tags_pass_between_taps_and_interfaces() {
    if !can_run() {
        return;
    }
    for tap_at_end in [true, false] {
        let mut site = Site::new(2);
        let last = if tap_at_end {
            site.tap(2, "mtu=1500")
        } else {
            let (host, room) = (&mut site.hosts[1], &mut site.room);
            host.join(room, "p2");
            host.netlink.set_mtu("eth0", 1508).unwrap();
            site.end(2, "p2", "mtu=1500")
        };
        let switch = learning(&[site.tap(1, "mtu=1500"), last]);
        // A packet socket checks the interface's MTU; the port's stays unchanged.
        site.hosts[0].netlink.set_mtu("eth0", 1508).unwrap();
        let captures: Vec<_> = site.hosts.iter().map(Capture::open).collect();
        let (from, to) = (site.hosts[0].mac(), site.hosts[1].mac());
        let is_test = |frame: &[u8]| frame.starts_with(&to.0);
        let longest = frame(to, from, &[S100, C10], 14 + 8 + 1500);
        captures[0].send(&NetHeader::PLAIN, &longest);
        assert_eq!(captures[1].receive(is_test), (NetHeader::PLAIN, longest), "{tap_at_end}");
        let (meta, train) = train(to, from, &[S100, C10], 1460);
        captures[0].send(&meta, &train);
        let (header, received) = captures[1].receive(is_test);
        assert_eq!((received, header.gso_size), (train, 1460), "a train as it was sent");
        assert_eq!(header.csum_start, meta.csum_start);
        assert_no_drops(&[&switch]);
    }
}

/// A train of 20,000 bytes of TCP in segments of `gso_size`, with a partial checksum.
pub(crate) fn train(
    to: MacAddr,
    from: MacAddr,
    tags: &[Tag],
    gso_size: u16,
) -> (NetHeader, Vec<u8>) {
    const LEN: usize = 20_000;
    let mut bytes = [to.0, from.0].concat();
    tags.iter().for_each(|tag| bytes.extend([tag.tpid, tag.tci].concat()));
    let (source, target) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let total = u16::try_from(40 + LEN).unwrap();
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend([source, target].concat());
    let ip = bytes.len() - 20;
    let checksum = tapswitch_wire::checksum::Sum::of(&bytes[ip..]).checksum();
    bytes[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    let start = bytes.len();
    bytes.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 200]);
    let pseudo = pseudo_header_v4(&source, &target, 6, total - 20).partial();
    bytes.extend(pseudo.to_be_bytes());
    bytes.extend([0, 0]);
    let hdr_len = u16::try_from(bytes.len()).unwrap();
    bytes.extend(noise(LEN));
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len,
        gso_size,
        csum_start: u16::try_from(start).unwrap(),
        csum_offset: 16,
    };
    (meta, bytes)
}

#[test]
fn what_does_not_fit_is_counted_and_told_with_what_to_set() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(2);
    let switch = learning(&[site.tap(1, "mtu=9000,envelope=20"), site.tap(2, "mtu=1500")]);
    let (a, b) = (Capture::open(&site.hosts[0]), Capture::open(&site.hosts[1]));
    let (from, to) = (site.hosts[0].mac(), site.hosts[1].mac());
    let is_test = |frame: &[u8]| frame.starts_with(&to.0);
    a.send(&NetHeader::PLAIN, &frame(to, from, &[S100, C10, C10], 100));
    until("short, but too many tags", || switch.drops(2, "oversize") == 1);
    a.send(&NetHeader::PLAIN, &frame(to, from, &[C10], 14 + 4 + 1501));
    let (meta, train) = train(to, from, &[S100, C10], 1461);
    a.send(&meta, &train);
    until("too long", || switch.drops(2, "oversize") == 3);
    a.send(&NetHeader::PLAIN, &frame(to, from, &[S100, C10], 14 + 8 + 1500));
    assert_eq!(b.receive(is_test).1.len(), 1522);
    let drops = runtime().block_on(switch.handle().drops()).unwrap();
    let remedy = drops[0].remedy.as_deref().unwrap();
    assert!(remedy.contains("12 of tags: give the port mtu="), "{remedy}");
    assert!(remedy.ends_with(",envelope=12"), "{remedy}");
}

/// Without any options, all frames that a host sends cross the provider.
#[test]
fn plain_interfaces_have_room_for_the_tags_of_full_size_frames() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(2);
    site.cable("p1", "p2");
    let (tunnel, provider) = ("mode=dot1q-tunnel,vlan=100", "mode=provider,vlans=100");
    let switches = [
        learning(&[site.tap(1, tunnel), site.end(9, "p1", provider)]),
        learning(&[site.tap(2, tunnel), site.end(9, "p2", provider)]),
    ];
    site.settle();
    ping(&site.hosts[0], &site.hosts[1]);
    assert_full_size_datagram(&site);
    tcp(&site.hosts[0], &site.hosts[1], 10_000_000);
    tcp(&site.hosts[1], &site.hosts[0], 10_000_000);
    assert_no_drops(&switches.each_ref());
    let wire = switches[0].port(9);
    assert_eq!((wire.mtu, wire.envelope, site.mtu("p1")), (1500, 8, 1508));
    drop(switches);
    for name in ["p1", "p2"] {
        assert_eq!((site.mtu(name), site.alias(name)), (1500, None), "{name} is as it was");
    }
}

/// Sends a packet of 1500 bytes from host 1 to host 2.
fn assert_full_size_datagram(site: &Site) {
    let [one, two] = [0, 1].map(|host: usize| udp(&site.hosts[host], site.hosts[host].ip(), 0));
    one.send_to(&noise(1472), two.local_addr().unwrap()).unwrap();
    assert_eq!(two.recv(&mut [0; 2000]).unwrap(), 1472);
}

/// One end has an address of the host, the other one an alias: neither is changed, as nobody has
/// asked for it. Frames and trains use the room there is.
#[test]
fn a_plain_interface_that_others_use_is_left_as_it_is_and_has_the_room_that_it_has() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(2);
    site.cable("a", "b");
    site.room.netlink.add_address("a", IpAddr::from([192, 0, 2, 1]), 24).unwrap();
    site.room.netlink.set_alias("b", "uplink").unwrap();
    let left = learning(&[site.tap(1, "mtu=1500"), site.end(9, "a", "gro=off")]);
    let right = learning(&[site.tap(2, "mtu=1500"), site.end(9, "b", "gro=off")]);
    for (switch, name) in [(&left, "a"), (&right, "b")] {
        let port = switch.port(9);
        assert_eq!((site.mtu(name), port.mtu, port.envelope), (1500, 1500, 0), "{name}");
    }
    assert_eq!(site.alias("b").as_deref(), Some("uplink"));
    // A packet socket checks the interface's MTU; the port's stays unchanged.
    site.hosts[0].netlink.set_mtu("eth0", 1508).unwrap();
    let captures: Vec<_> = site.hosts.iter().map(Capture::open).collect();
    let (from, to) = (site.hosts[0].mac(), site.hosts[1].mac());
    let is_test = |frame: &[u8]| frame.starts_with(&to.0);
    for (tags, most) in [(&[C10][..], 1500), (&[S100], 1496), (&[S100, C10], 1492)] {
        let tagged = |payload| frame(to, from, tags, 14 + 4 * tags.len() + payload);
        captures[0].send(&NetHeader::PLAIN, &tagged(most));
        assert_eq!(captures[1].receive(is_test).1, tagged(most));
        let segment = u16::try_from(most - 40).unwrap();
        let (meta, longest) = train(to, from, tags, segment);
        captures[0].send(&meta, &longest);
        let (header, received) = captures[1].receive(is_test);
        assert_eq!((header.gso_size, received), (segment, longest));
        let before = left.drops(9, "oversize");
        if most < 1500 {
            captures[0].send(&NetHeader::PLAIN, &tagged(most + 1));
            let (meta, too_long) = train(to, from, tags, segment + 1);
            captures[0].send(&meta, &too_long);
            until("both are told", || left.drops(9, "oversize") == before + 2);
        }
    }
    let drops = runtime().block_on(left.handle().drops()).unwrap();
    assert!(drops[0].remedy.as_deref().unwrap().ends_with("give the port envelope=8"), "{drops:?}");
    drop(left);
    let _insisting = learning(&[site.end(9, "a", "envelope=8")]);
    assert_eq!(site.mtu("a"), 1508);
}

#[test]
fn an_interface_with_more_room_than_needed_keeps_it() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(0);
    site.cable("a", "b");
    site.room.netlink.set_mtu("a", 9000).unwrap();
    let switch = learning(&[site.end(1, "a", "mtu=1500")]);
    let port = switch.port(1);
    assert_eq!((site.mtu("a"), port.mtu, port.envelope), (9000, 1500, 8));
    // The room for tags shrinks first.
    site.room.netlink.set_mtu("a", 1504).unwrap();
    until("the envelope follows", || switch.port(1).envelope == 4);
    assert_eq!(switch.port(1).mtu, 1500);
}

#[test]
fn room_that_nobody_wants_is_not_made() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(0);
    site.cable("a", "b");
    let switch = learning(&[site.end(1, "a", "envelope=0")]);
    let port = switch.port(1);
    assert_eq!((site.mtu("a"), port.mtu, port.envelope), (1500, 1500, 0));
}

#[test]
fn room_made_by_a_killed_switch_is_not_made_twice() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(0);
    site.cable("a", "b");
    // The state left by a switch that had no time to restore it.
    site.room.netlink.set_mtu("a", 1512).unwrap();
    site.room.netlink.set_alias("a", "tapswitch: mtu 1500 raised to 1512").unwrap();
    let switch = learning(&[site.end(1, "a", "envelope=8")]);
    assert_eq!((site.mtu("a"), switch.port(1).mtu), (1508, 1500));
    assert_eq!(site.alias("a").as_deref(), Some("tapswitch: mtu 1500 raised to 1508"));
    drop(switch);
    assert_eq!((site.mtu("a"), site.alias("a")), (1500, None));
}

#[test]
fn a_port_follows_the_mtu_of_its_interface_and_leaves_what_others_set() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(0);
    site.cable("a", "b");
    let switch = learning(&[site.end(1, "a", "envelope=12")]);
    assert_eq!((site.mtu("a"), switch.port(1).mtu), (1512, 1500));
    site.room.netlink.set_mtu("a", 9000).unwrap();
    until("the port follows", || switch.port(1).mtu == 9000 - 12);
    drop(switch);
    assert_eq!((site.mtu("a"), site.alias("a")), (9000, None), "that was somebody else's");
}

#[test]
fn an_alias_in_use_is_not_overwritten() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(0);
    site.cable("a", "b");
    site.room.netlink.set_alias("a", "uplink").unwrap();
    let refused = Running::try_start(config(&[site.end(1, "a", "envelope=8")]));
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("its alias is in use") && text.contains("mtu="), "{text}");
    let switch = learning(&[site.end(1, "a", "mtu=1500,envelope=8")]);
    assert_eq!((site.mtu("a"), switch.port(1).mtu), (1508, 1500));
    drop(switch);
    assert_eq!((site.mtu("a"), site.alias("a").as_deref()), (1500, Some("uplink")));
}

#[test]
fn an_interface_without_room_for_tags_is_used_without_unless_room_is_asked_for() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(0);
    let device = tap::Config::new("t0".parse().unwrap());
    let _device = site.room.namespace.enter(|| tap::Device::create(&device).unwrap()).unwrap();
    // The largest MTU of a tap device.
    let switch = learning(&[site.end(1, "t0", "mtu=65521")]);
    assert_eq!((site.mtu("t0"), switch.port(1).mtu), (65_521, 65_521));
    drop(switch);
    assert_eq!(site.mtu("t0"), 1500);
    site.room.netlink.set_mtu("t0", 65_521).unwrap();
    let switch = learning(&[site.end(1, "t0", "gro=off")]);
    let port = switch.port(1);
    assert_eq!((port.mtu, port.envelope, site.alias("t0")), (65_521, 0, None), "nobody has asked");
    drop(switch);
    site.room.netlink.set_mtu("t0", 1500).unwrap();
    let asked = Running::try_start(config(&[site.end(1, "t0", "mtu=65521,envelope=8")]));
    let text = asked.err().unwrap().to_string();
    assert!(text.contains("t0 does not allow an MTU of 65529"), "{text}");
    assert_eq!((site.mtu("t0"), site.alias("t0")), (1500, None));
}

/// The steering program parses tags: a flow uses the same queue with two tags as without, and so
/// the same worker.
#[test]
fn flows_behind_tags_spread_over_queues_as_untagged_ones_do() {
    if !can_run() {
        return;
    }
    let mut site = Site::new(1);
    let switch = learning(&[site.tap(1, "queues=4")]);
    if switch.port(1).steered.is_empty() {
        skip("the kernel takes no steering program");
        return;
    }
    let capture = Capture::open(&site.hosts[0]);
    let mac = site.hosts[0].mac();
    let mut before = switch.port(1).steered;
    let mut spread = |tags: &[Tag]| {
        for flow in 0..100 {
            capture.send(&NetHeader::PLAIN, &datagram(mac, tags, 20_000 + flow));
        }
        let total = |steered: &[u64]| steered.iter().sum::<u64>();
        until("all are steered", || total(&switch.port(1).steered) == total(&before) + 100);
        let after = switch.port(1).steered;
        let spread: Vec<_> =
            after.iter().zip(&before).map(|(after, before)| after - before).collect();
        before = after;
        spread
    };
    let untagged = spread(&[]);
    assert!(untagged.len() == 4 && untagged.iter().all(|&count| count > 5), "{untagged:?}");
    assert_eq!(spread(&[C10]), untagged);
    assert_eq!(spread(&[S100, C10]), untagged);
    assert_eq!(spread(&[S100, S100, C10]), untagged);
}

/// A datagram from 10.0.0.1 to 10.0.0.2.
fn datagram(mac: MacAddr, tags: &[Tag], source_port: u16) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 9, 9], mac.0].concat();
    tags.iter().for_each(|tag| frame.extend([tag.tpid, tag.tci].concat()));
    frame.extend([
        0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame.extend(source_port.to_be_bytes());
    frame.extend([0, 53, 0, 26, 0, 0]);
    frame.extend([0; 18]);
    frame
}

/// `ovs-ofctl` sees the switch's tag actions, and a mode does not affect them.
#[test]
fn rules_push_and_pop_behind_a_port_with_a_mode() {
    if !can_run() || !ofctl::is_there() {
        return;
    }
    let mut site = Site::new(2);
    let ports = [site.tap(1, "mode=access,vlan=10"), site.tap(2, "envelope=12")];
    let switch = Running::start(config(&ports));
    // The tool checks rules itself, and supports at most two tags: so one is pushed per table.
    let wrap = "table=0,in_port=1,dl_vlan=10,actions=push_vlan:0x88a8,set_field:4196->vlan_vid,\
                goto_table:3";
    ofctl::run(&switch, "add-flow", &[wrap]);
    let again = "table=3,actions=push_vlan:0x88a8,set_field:4296->vlan_vid,output:2";
    ofctl::run(&switch, "add-flow", &[again]);
    let unwrap = "table=0,in_port=2,dl_vlan=200,actions=pop_vlan,goto_table:1";
    ofctl::run(&switch, "add-flow", &[unwrap]);
    ofctl::run(&switch, "add-flow", &["table=1,dl_vlan=100,actions=pop_vlan,goto_table:2"]);
    ofctl::run(&switch, "add-flow", &["table=2,dl_vlan=10,actions=output:1"]);
    let captures: Vec<_> = site.hosts.iter().map(Capture::open).collect();
    let (one, two) = (site.hosts[0].mac(), site.hosts[1].mac());
    captures[0].send(&NetHeader::PLAIN, &frame(two, one, &[], 300));
    let (_, received) = captures[1].receive(|frame| frame.starts_with(&two.0));
    let s200 = Tag::new(EtherType::SERVICE_VLAN, 200);
    assert_eq!(received, frame(two, one, &[s200, S100, C10], 312));
    captures[1].send(&NetHeader::PLAIN, &frame(one, two, &[s200, S100, C10], 312));
    let (_, received) = captures[0].receive(|frame| frame.starts_with(&one.0));
    assert_eq!(received, frame(one, two, &[], 300));
    let flows = ofctl::run(&switch, "dump-flows", &[]);
    for word in ["dl_vlan=200", "push_vlan:0x88a8", "pop_vlan,goto_table:2", "n_packets=1"] {
        assert!(flows.contains(word), "{word}: {flows}");
    }
    assert_eq!(switch.drops(1, "vlan_not_member"), 0);
}
