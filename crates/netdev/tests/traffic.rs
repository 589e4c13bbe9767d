//! Real traffic of the kernel passes two ports unchanged as trains.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::IoSlice;
use std::net::UdpSocket;

use tapswitch_guest::{Rig, Series};
use tapswitch_netdev::{
    BIG_RECV_BUF_LEN, Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN, RecvError, SendError,
};
use tapswitch_netlink::{Feature, Sysfs};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ip_proto, parse};

mod common;
use common::{
    Host, PATIENCE, eventually, is_root, join, pattern, receive, send, set_udp_segment, skip,
    tcp_transfer, wait_readable, with_cable,
};

const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(&["veth", "vxlan"]).programs(&["ip"]);

/// Two hosts 10.0.0.1 and 10.0.0.2, each connected to a switch with a port for each.
struct Star {
    left: Host,
    right: Host,
    to_left: PacketPort,
    to_right: PacketPort,
    switch: Host,
}

impl Star {
    fn new() -> Self {
        let (mut left, mut right, mut switch) = (Host::new(), Host::new(), Host::new());
        join(&mut left, "eth0", &mut switch, "port1");
        join(&mut right, "eth0", &mut switch, "port2");
        left.netlink.add_address("eth0", "10.0.0.1".parse().unwrap(), 24).unwrap();
        right.netlink.add_address("eth0", "10.0.0.2".parse().unwrap(), 24).unwrap();
        let config = Config::default();
        let (to_left, to_right) = (switch.port("port1", &config), switch.port("port2", &config));
        Self { left, right, to_left, to_right, switch }
    }

    /// Makes the kernel link packets received on the left port into lists.
    fn string_together(&mut self) {
        for feature in ["tx-tcp-segmentation", "tx-generic-segmentation", "tx-udp-segmentation"] {
            self.left.netlink.set_feature_by_name("eth0", feature, false).unwrap();
        }
        self.switch.netlink.set_feature("port1", Feature::Gro, true).unwrap();
        self.switch.netlink.set_feature_by_name("port1", "rx-gro-list", true).unwrap();
        let sysfs = Sysfs::open(&self.switch.namespace).unwrap();
        sysfs.write("port1", "gro_flush_timeout", "1000000").unwrap();
        sysfs.write("port1", "napi_defer_hard_irqs", "1").unwrap();
    }

    /// Sends `bytes` over TCP from left to right; returns the received bytes and the number of
    /// trains.
    fn transfer(&self, bytes: &[u8]) -> (Vec<u8>, usize) {
        with_cable(&self.to_left, &self.to_right, carry, || {
            let to = "10.0.0.2".parse().unwrap();
            tcp_transfer(&self.left.namespace, &self.right.namespace, to, bytes)
        })
    }

    fn udp(host: &Host, address: &str) -> UdpSocket {
        let socket = host.namespace.enter(|| UdpSocket::bind(address).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

#[test]
fn tcp_trains_pass_whole() {
    if !is_root() {
        return;
    }
    let mut star = Star::new();
    let witness = star.right.port("eth0", &Config::default());
    let sent = pattern(4 << 20);
    let (received, trains) = star.transfer(&sent);
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    assert!(trains > 10, "{trains} trains");
    receive(&witness, |header, frame| header.is_train() && frame.len() > 1514);
    let packets = star.right.netlink.link("eth0").unwrap().stats.rx_packets;
    assert!(packets < 2000, "{packets} packets instead of some 2900 of 1448 bytes");
    assert_eq!(star.to_left.statistics().unwrap().dropped, 0);
}

#[test]
fn tcp_passes_in_whole_packets_from_a_host_without_offloads() {
    if !is_root() {
        return;
    }
    let mut star = Star::new();
    star.left.netlink.set_feature("eth0", Feature::TxChecksum, false).unwrap();
    star.right.netlink.set_feature("eth0", Feature::TxChecksum, false).unwrap();
    let sent = pattern(1 << 20);
    let (received, trains) = star.transfer(&sent);
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    assert_eq!(trains, 0);
}

#[test]
fn a_partial_checksum_of_the_kernel_is_told_and_completed() {
    if !is_root() {
        return;
    }
    let star = Star::new();
    let from = Star::udp(&star.left, "10.0.0.1:7000");
    let to = Star::udp(&star.right, "10.0.0.2:7");
    let witness = star.right.port("eth0", &Config::default());
    let (answer, _) = with_cable(&star.to_left, &star.to_right, carry, || {
        from.send_to(b"hello", "10.0.0.2:7").unwrap();
        let mut buf = [0; 100];
        let (len, _) = to.recv_from(&mut buf).unwrap();
        buf[..len].to_vec()
    });
    assert_eq!(answer, b"hello");
    let (header, _) = receive(&witness, |_, frame| is_udp(frame));
    assert_eq!(header.flags & NetHeaderFlags::NEEDS_CSUM, NetHeaderFlags::NEEDS_CSUM);
    assert_eq!((header.csum_start, header.csum_offset), (34, 6));
}

#[test]
fn a_udp_train_passes_whole() {
    if !is_root() {
        return;
    }
    let star = Star::new();
    if !star.to_left.capabilities().send_udp_trains {
        skip("UDP trains need Linux 6.2");
        return;
    }
    let from = Star::udp(&star.left, "10.0.0.1:7000");
    let to = Star::udp(&star.right, "10.0.0.2:7");
    let witness = star.right.port("eth0", &Config::default());
    set_udp_segment(&from, 1000);
    let sent = pattern(10_500);
    let (received, trains) = with_cable(&star.to_left, &star.to_right, carry, || {
        from.send_to(&sent, "10.0.0.2:7").unwrap();
        let mut buf = vec![0; 20_000];
        let mut len = 0;
        while len < sent.len() {
            len += to.recv_from(&mut buf[len..]).unwrap().0;
        }
        buf.truncate(len);
        buf
    });
    assert_eq!(received, sent);
    assert_eq!(trains, 1);
    let (header, frame) = receive(&witness, |_, frame| is_udp(frame));
    assert_eq!((header.gso_type, header.gso_size), (GsoType::UDP_L4, 1000));
    assert_eq!(frame.len(), 42 + sent.len());
}

/// GRO links packets without changing them: the complete or partial checksum is that of the first
/// one. The kernel verifies the result when it segments such a train again.
#[test]
fn packets_that_are_strung_together_pass_as_trains() {
    if !is_root() {
        return;
    }
    for is_partial in [true, false] {
        let mut star = Star::new();
        if !star.to_left.capabilities().send_udp_trains {
            skip("UDP trains need Linux 6.2");
            return;
        }
        star.string_together();
        star.left.netlink.set_feature("eth0", Feature::TxChecksum, is_partial).unwrap();
        star.switch.netlink.set_feature("port2", Feature::TxChecksum, false).unwrap();
        // So that the checksums are verified.
        star.right.netlink.set_feature("eth0", Feature::RxChecksum, false).unwrap();
        let from = Star::udp(&star.left, "10.0.0.1:7000");
        let to = Star::udp(&star.right, "10.0.0.2:7");
        set_udp_segment(&from, 1000);
        let sent = pattern(10_500);
        let ((), trains) = with_cable(&star.to_left, &star.to_right, carry, || {
            from.send_to(&sent, "10.0.0.2:7").unwrap();
            let mut buf = [0; 2000];
            for datagram in sent.chunks(1000) {
                let len = to.recv(&mut buf).unwrap();
                assert_eq!(&buf[..len], datagram, "partial: {is_partial}");
            }
        });
        assert!(trains > 0, "partial: {is_partial}");
        let sent = pattern(1 << 20);
        let (received, _) = star.transfer(&sent);
        assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    }
}

/// The metadata of a tunnelled train does not describe its outer headers.
#[test]
fn a_train_in_a_tunnel_is_told_by_the_place_of_its_checksum() {
    if !is_root() {
        return;
    }
    let mut star = Star::new();
    let peer = "10.0.0.2".parse().unwrap();
    star.left.netlink.set_neighbour("eth0", peer, [2, 0, 0, 0, 0, 2]).unwrap();
    let ip = |arguments: &str| {
        let output = star.left.namespace.command("ip").args(arguments.split(' ')).output();
        let is_done = output.is_ok_and(|output| output.status.success());
        is_done || skip(&format!("`ip {arguments}` does not work here"))
    };
    if !ip("link add vxlan0 type vxlan id 7 local 10.0.0.1 remote 10.0.0.2 dstport 4789 dev eth0")
        || !ip("addr add 192.168.7.1/24 dev vxlan0")
        || !ip("link set vxlan0 up")
        || !ip("neigh add 192.168.7.2 lladdr 02:00:00:00:00:07 dev vxlan0")
    {
        return;
    }
    let socket = Star::udp(&star.left, "192.168.7.1:7000");
    set_udp_segment(&socket, 1000);
    socket.send_to(&[7; 5000], "192.168.7.2:9").unwrap();
    let (header, frame) = receive(&star.to_left, |header, _| header.is_train());
    assert_eq!((header.gso_type, header.gso_size), (GsoType::UDP_L4, 1000));
    assert_eq!((header.csum_start, header.csum_offset), (14 + 20 + 8 + 8 + 14 + 20, 6));
    assert_eq!(parse(&frame).unwrap().key.l4_dst, 4789u16.to_be_bytes());
    assert!(frame.ends_with(&[7; 5000]));
}

/// "BIG TCP": a train longer than any IP packet is lost, and its length reported.
#[test]
fn a_train_that_is_too_long_for_any_buffer_is_told() {
    if !is_root() {
        return;
    }
    let star = Star::new();
    let limit = ["link", "set", "eth0", "gso_max_size", "131072"];
    let output = star.left.namespace.command("ip").args(limit).output();
    if !output.is_ok_and(|output| output.status.success()) {
        skip("no ip program that sets gso_max_size, or no Linux 5.19");
        return;
    }
    let port = star.left.port("eth0", &Config::default());
    let mut train = vec![2; HEADERS_LEN + 70_000];
    train[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64]);
    train[HEADERS_LEN - 8] = 0x50;
    let header = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV6,
        hdr_len: 74,
        gso_size: 1000,
        csum_start: 54,
        csum_offset: 16,
    };
    send(&port, &header, &train).unwrap();
    let mut buf = vec![0; RECV_BUF_LEN];
    let lost = eventually("a train that is lost", || {
        wait_readable(&[&star.to_left]);
        star.to_left.recv(&mut buf, HEADROOM_MIN).err()
    });
    assert_eq!(lost, RecvError::Truncated { len: train.len() });
    send(&port, &header, &train).unwrap();
    buf.resize(BIG_RECV_BUF_LEN, 0);
    let received = eventually("a train in a large buffer", || {
        wait_readable(&[&star.to_left]);
        star.to_left.recv(&mut buf, HEADROOM_MIN).unwrap()
    });
    assert_eq!(buf[received.frame], train);
    send(&port, &NetHeader::PLAIN, &train[..80]).unwrap();
    receive(&star.to_left, |_, frame| *frame == train[..80]);
}

const HEADERS_LEN: usize = 14 + 40 + 20;

#[test]
fn all_this_holds_on_linux_7_3() {
    LINUX_7_3.test_all();
}

fn is_udp(frame: &[u8]) -> bool {
    parse(frame).is_ok_and(|parsed| parsed.key.ip_proto == ip_proto::UDP)
}

fn carry(from: &PacketPort, to: &PacketPort) -> usize {
    let mut buf = vec![0; RECV_BUF_LEN];
    let mut trains = 0;
    while let Some(received) = from.recv(&mut buf, HEADROOM_MIN).unwrap() {
        trains += usize::from(received.header.is_train());
        let outcome = to.send(&received.header, &[IoSlice::new(&buf[received.frame])]);
        assert!(matches!(outcome, Ok(()) | Err(SendError::Full)), "{outcome:?}");
    }
    trains
}
