//! ECN in the outer header of GRE packets, in both directions, with real raw sockets in a separate
//! namespace.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic fails a test")]

use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, eth, sockopt};
use tapswitch_helpers::{is_root, unique};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_tunnel::{About, Carrier, Cut, GreConfig, GrePort, RECV_BUF_LEN, Session};
use tapswitch_wire::ecn;

const CARRIER: Carrier = Carrier::Gre { key: Some(7) };
const HEADROOM: usize = 64;

/// An IPv6 packet with this ECN field.
fn packet(ecn: u8) -> Vec<u8> {
    let mut frame = vec![0; 14 + 40];
    frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, ecn << 4]);
    (frame[20], frame[21]) = (59, 64);
    frame
}

/// A socket that sends marked GRE packets.
fn marking(family: AddressFamily, to: IpAddr) -> OwnedFd {
    let fd = rustix::net::socket(family, SocketType::RAW, Some(rustix::net::ipproto::GRE)).unwrap();
    match to {
        IpAddr::V4(_) => sockopt::set_ip_tos(&fd, 3).unwrap(),
        IpAddr::V6(_) => sockopt::set_ipv6_tclass(&fd, 3).unwrap(),
    }
    rustix::net::connect(&fd, &SocketAddr::new(to, 0)).unwrap();
    fd
}

/// The next frame.
fn next(port: &GrePort) -> Vec<u8> {
    let mut buf = vec![0; HEADROOM + RECV_BUF_LEN];
    loop {
        if let Some(place) = port.recv(&mut buf, HEADROOM).unwrap() {
            return buf[place].to_vec();
        }
        let mut fds = [PollFd::new(port, PollFlags::IN)];
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        assert!(poll(&mut fds, Some(&patience)).unwrap() > 0, "nothing comes");
    }
}

/// A namespace with a loopback interface; `None`, with a message, if it cannot be created here.
fn namespace(name: &str) -> Option<OwnedNamespace> {
    if !is_root() {
        return None;
    }
    let namespace = OwnedNamespace::create(&unique(name)).unwrap();
    Netlink::open(&namespace).unwrap().set_up("lo").unwrap();
    Some(namespace)
}

/// Packets received on the interfaces of the namespace, over the IP version of `to`.
fn tap(to: IpAddr) -> OwnedFd {
    let protocol = if to.is_ipv4() { eth::IP } else { eth::IPV6 };
    rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, Some(protocol)).unwrap()
}

/// The outer ECN field of the next packet, and its last bytes.
fn next_outside(tap: &OwnedFd, len: usize) -> (u8, Vec<u8>) {
    let mut buf = vec![0; RECV_BUF_LEN];
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert!(poll(&mut [PollFd::new(tap, PollFlags::IN)], Some(&patience)).unwrap() > 0);
    let (_, got) = rustix::net::recv(tap, &mut buf[..], RecvFlags::empty()).unwrap();
    (ecn::of(&buf[..got]), buf[got - len..got].to_vec())
}

/// RFC 6040 §4.1, normal mode.
#[test]
fn what_packets_say_of_congestion_is_said_outside() {
    let Some(namespace) = namespace("tun-outside") else { return };
    let check = |to: IpAddr, carrier| {
        let port = GrePort::open(&GreConfig::new(to, carrier)).unwrap();
        let tap = tap(to);
        let packets = [0, 1, 2, 3, 0].map(packet);
        for packet in &packets {
            port.send(&[IoSlice::new(packet)], None).unwrap();
        }
        let parts: Vec<_> =
            packets.iter().map(|it| [&it[..20], &it[20..], &[]].map(IoSlice::new)).collect();
        port.send_packets(&parts, Cut::None).unwrap();
        for packet in packets.iter().chain(&packets) {
            let (outside, inside) = next_outside(&tap, packet.len());
            assert!(inside == *packet, "{to} {carrier:?}");
            assert_eq!(outside, packet[15] >> 4, "{to} {carrier:?}");
        }
    };
    let erspan = Carrier::ErspanII(Session::new(5).unwrap());
    namespace
        .enter(|| {
            for to in [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
                [CARRIER, erspan].into_iter().for_each(|carrier| check(to, carrier));
            }
        })
        .unwrap();
}

#[test]
fn what_routers_mark_is_marked_inside() {
    let Some(namespace) = namespace("tun-marks") else { return };
    namespace
        .enter(|| {
            for to in [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
                let port = GrePort::open(&GreConfig::new(to, CARRIER)).unwrap();
                let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let router = marking(family, to);
                for ecn in [0, 2, 3] {
                    let prefix = CARRIER.prefix(&About::default());
                    let bytes = [prefix.bytes(), &packet(ecn)].concat();
                    rustix::net::send(&router, &bytes, SendFlags::empty()).unwrap();
                }
                assert!(next(&port) == packet(3), "{to}");
                assert!(next(&port) == packet(3), "{to}");
                assert_eq!(port.counters().congested, 1, "{to}");
            }
        })
        .unwrap();
}
