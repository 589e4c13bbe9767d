//! What routers mark on the way of a GRE packet, with real raw sockets in a namespace of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic fails a test")]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_tunnel::{About, Carrier, GreConfig, GrePort, RECV_BUF_LEN};

const CARRIER: Carrier = Carrier::Gre { key: Some(7) };
const HEADROOM: usize = 64;

/// An IPv6 packet with this ECN field.
fn packet(ecn: u8) -> Vec<u8> {
    let mut frame = vec![0; 14 + 40];
    frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, ecn << 4]);
    (frame[20], frame[21]) = (59, 64);
    frame
}

/// A socket that sends GRE packets that are marked.
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

#[test]
fn what_routers_mark_is_marked_inside() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to make network namespaces");
    }
    let name = format!("tun-marks-{}", std::process::id());
    let namespace = OwnedNamespace::create(&name).unwrap();
    Netlink::open(&namespace).unwrap().set_up("lo").unwrap();
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
