//! Packets of a sender without offloads are coalesced into trains on their way, and arrive byte for
//! byte unchanged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use crate::common::*;
use tapswitch_netlink::Feature;
use tapswitch_openflow::{Action, Body, GroupModCommand, Masked, Oxm, PortNo, VID_PRESENT};
use tapswitch_switch::Gro;
use tapswitch_switch::report::TrafficReport;
use tapswitch_wire::{EtherType, Tag};

const GROUP: u32 = 7;
const ACK: u8 = 0x10;

/// Two hosts and a monitor behind tap ports; the hosts send neither trains nor partial checksums,
/// and the ports coalesce as configured.
fn lab(gro: Gro) -> Lab {
    let mut lab = Lab::with(3, |config| {
        config.ports.iter_mut().for_each(|port| port.gro = gro);
    });
    lab.hosts.iter_mut().for_each(strip);
    lab.switch.controller().apply(join(1, 2));
    lab
}

/// Disables a host's offloads.
fn strip(host: &mut Host) {
    for feature in [Feature::Tso, Feature::Gso, Feature::TxChecksum] {
        host.netlink.set_feature("eth0", feature, false).unwrap();
    }
}

/// Coalesced frames, and the trains made of them.
fn coalesced(lab: &Lab) -> (u64, u64) {
    let workers = lab.switch.workers();
    let sum = |count: fn(&(u64, u64)) -> u64| {
        workers.iter().map(|worker| count(&(worker.coalesced, worker.trains))).sum()
    };
    (sum(|counts| counts.0), sum(|counts| counts.1))
}

/// Traffic received on port 1, and what was sent to port 2.
fn passed(lab: &Lab) -> (TrafficReport, TrafficReport) {
    let ports = || [1, 2].map(|port| lab.switch.port(port));
    until("all that came in went out", || {
        let [one, two] = ports();
        one.rx == two.tx
    });
    let [one, two] = ports();
    let ports = lab.switch.ports();
    assert!(!has_dropped(&ports), "{ports:?}");
    (one.rx, two.tx)
}

/// Checks that all packets sent by a host's kernel were received.
fn check_received(lab: &mut Lab) {
    until("all that was sent came in", || {
        let sent = lab.host_mut(1).link().stats.tx_packets;
        sent == lab.switch.port(1).rx.packets
    });
}

#[test]
fn tcp_arrives_in_trains() {
    if !can_run() {
        return;
    }
    for gro in [Gro::On, Gro::Auto] {
        let mut lab = lab(gro);
        tcp(lab.host(1), lab.host(2), 20_000_000);
        let (_, sent) = passed(&lab);
        assert!(sent.packets > 13_000, "twenty megabytes are {} packets", sent.packets);
        assert!(sent.packets > 2 * sent.frames, "{gro}: {sent:?}");
        let (frames, trains) = coalesced(&lab);
        assert!(frames > sent.packets / 2 && trains < frames / 2, "{frames} in {trains}");
        check_received(&mut lab);
        let received: u64 = lab.switch.workers().iter().map(|worker| worker.frames).sum();
        let both: u64 = [1, 2].map(|port| lab.switch.port(port).rx.packets).iter().sum();
        assert_eq!(received, both, "workers count what they read");
    }
}

#[test]
fn a_port_that_shall_not_makes_no_trains() {
    if !can_run() {
        return;
    }
    let mut lab = lab(Gro::Off);
    let capture = Capture::open(lab.host(2));
    tcp(lab.host(1), lab.host(2), 5_000_000);
    let (_, sent) = passed(&lab);
    assert_eq!(sent.packets, sent.frames);
    assert_eq!(coalesced(&lab), (0, 0));
    assert!(capture.drain(|_| true).iter().all(|(header, _)| !header.is_train()));
    check_received(&mut lab);
}

#[test]
fn trains_of_the_kernel_are_left_to_it() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    lab.switch.controller().apply(join(1, 2));
    tcp(lab.host(1), lab.host(2), 20_000_000);
    let (_, sent) = passed(&lab);
    assert!(sent.packets > 2 * sent.frames);
    let (frames, _) = coalesced(&lab);
    assert!(frames < sent.packets / 10, "{frames} of {sent:?}");
}

#[test]
fn ipv6_arrives_in_trains() {
    if !can_run() {
        return;
    }
    let mut lab = lab(Gro::On);
    lab.hosts.iter_mut().take(2).for_each(Host::add_address6);
    let known: Vec<_> = lab.hosts.iter_mut().take(2).map(|host| (host.ip6(), host.mac())).collect();
    lab.host_mut(1).knows(known[1].0, known[1].1);
    lab.host_mut(2).knows(known[0].0, known[0].1);
    ping_between(lab.host(1), known[0].0, lab.host(2), known[1].0);
    tcp_between(lab.host(1), lab.host(2), known[1].0, 5_000_000);
    let (_, sent) = passed(&lab);
    assert!(sent.packets > 2 * sent.frames, "{sent:?}");
}

#[test]
fn datagrams_arrive_one_by_one() {
    if !can_run() {
        return;
    }
    let lab = lab(Gro::On);
    if !lab.switch.port(2).offloads.contains("uso4") {
        skip("UDP trains need Linux 6.2");
        return;
    }
    let (one, two) = (lab.host(1), lab.host(2));
    let (from, to) = (udp(one, one.ip(), 0), udp(two, two.ip(), 0));
    // Only a connected socket continues to count its packets.
    from.connect(to.local_addr().unwrap()).unwrap();
    let bytes = noise(40_000);
    until("a train of datagrams", || {
        for datagram in bytes.chunks(1000) {
            from.send(datagram).unwrap();
        }
        for expected in bytes.chunks(1000) {
            let mut buf = [0; 2000];
            let (len, _) = to.recv_from(&mut buf).unwrap();
            assert_eq!(&buf[..len], expected);
        }
        coalesced(&lab).1 > 0
    });
    passed(&lab);
}

#[test]
fn copies_with_headers_of_their_own_share_the_train() {
    if !can_run() {
        return;
    }
    let mut lab = lab(Gro::On);
    let tag = Tag::new(EtherType::SERVICE_VLAN, 77);
    let vid = Oxm::VlanVid(Masked::exact(VID_PRESENT | 77));
    let tagged = [Action::PushVlan(tag.tpid()), Action::SetField(vid), output(3)];
    lab.switch.controller().apply(vec![
        group_all(GroupModCommand::Add, GROUP, vec![vec![output(2)], tagged.to_vec()]),
        Body::FlowMod(rule(200, in_port(1), vec![to_group(GROUP)])),
    ]);
    let monitor = Capture::open(lab.host(3));
    tcp(lab.host(1), lab.host(2), 5_000_000);
    let source = lab.host_mut(1).mac();
    let is_copy = |f: &[u8]| f[6..12] == source.0 && f[12..14] == tag.tpid;
    let (header, train) = monitor.receive(|f| is_copy(f) && f.len() > 4000);
    assert!(header.is_train() && header.csum_start == 38);
    assert!(train[51] & ACK != 0);
    until("the ledger adds up", || {
        let tap = lab.switch.taps().remove(0);
        tap.adds_up && tap.copies[0].delivered.frames == tap.matched.frames
    });
    until("all that came in was copied", || {
        lab.switch.port(1).rx.packets == lab.switch.port(3).tx.packets
    });
}

#[test]
fn a_controller_gets_wire_packets() {
    if !can_run() {
        return;
    }
    let lab = lab(Gro::On);
    let mut controller = lab.switch.controller();
    let both = vec![output(2), Action::output(PortNo::CONTROLLER)];
    let is_tcp = in_port(1).with(Oxm::EthType(EtherType::IPV4)).with(Oxm::IpProto(6));
    controller.apply(vec![Body::FlowMod(rule(200, is_tcp, both))]);
    tcp(lab.host(1), lab.host(2), 300_000);
    let packet = controller.packet_in(|packet| packet.data.len() > 1000);
    assert!(packet.data.len() <= 1514 && usize::from(packet.total_len) == packet.data.len());
    passed_to(&lab);
}

/// Waits until port 2 has sent what port 1 received.
fn passed_to(lab: &Lab) {
    until("all that came in went out", || {
        lab.switch.port(1).rx.packets == lab.switch.port(2).tx.packets
    });
}

#[test]
fn packet_sockets_take_trains_in_pieces() {
    if !can_run() {
        return;
    }
    // Host 1 is behind a tap port, host 2 behind an interface.
    let (mut lab, _room) = Lab::netdevs(2, &[1]);
    strip(lab.host_mut(1));
    lab.switch.controller().apply(join(1, 2));
    tcp(lab.host(1), lab.host(2), 20_000_000);
    let (frames, trains) = coalesced(&lab);
    assert!(frames > 1000 && trains < frames / 2, "{frames} in {trains}");
    passed_to(&lab);
}
