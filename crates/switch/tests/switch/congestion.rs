//! A congested router between the ends of a tunnel: packets that it can mark arrive, marked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic fails a test")]

use std::cell::Cell;
use std::io::IoSlice;

use crate::common::*;
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN};
use tapswitch_wire::ecn::{Marking, mark};

/// A router that marks all packets, and drops those it cannot mark (RFC 3168 §5).
struct Router {
    ends: [PacketPort; 2],
    dropped: Cell<usize>,
    _host: Host,
}

impl Router {
    /// A router between two sites.
    fn between(sites: &mut [Host; 2]) -> Self {
        let mut host = Host::new(13);
        let names = ["left", "right"];
        sites.iter_mut().zip(names).for_each(|(site, name)| site.join(&mut host, name));
        let open = |name| PacketPort::open(name, &Config::default()).unwrap();
        let ends = host.namespace.enter(|| names.map(open)).unwrap();
        Self { ends, dropped: Cell::new(0), _host: host }
    }

    fn pass_on(&self) {
        let mut buf = vec![0; RECV_BUF_LEN];
        for at in [0, 1] {
            while let Some(received) = self.ends[at].recv(&mut buf, HEADROOM_MIN).unwrap() {
                let frame = &mut buf[received.frame];
                match mark(frame) {
                    Marking::NotCapable => self.dropped.set(self.dropped.get() + 1),
                    _ => self.ends[1 - at].send(&received.header, &[IoSlice::new(frame)]).unwrap(),
                }
            }
        }
    }
}

#[test]
fn what_says_that_it_can_be_marked_is_not_dropped_on_the_way() {
    if !can_run() {
        return;
    }
    for tunnel in [VXLAN, "gre:key=7", "erspan:session=7,version=2"] {
        for is_ipv6 in [false, true] {
            let mut sites = [11, 12].map(Host::new);
            let router = Router::between(&mut sites);
            let mut underlay = Underlay::with(sites, is_ipv6);
            let macs = underlay.sites.each_mut().map(Host::mac);
            for at in [0, 1] {
                let ip = underlay.ip(1 - at);
                underlay.sites[at].knows(ip, macs[1 - at]);
            }
            check(&Fabric::on(underlay, tunnel, "", 1300), &router);
        }
    }
}

/// Sends a datagram and a train of datagrams, with each ECN codepoint.
fn check(fabric: &Fabric, router: &Router) {
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    let capture = Capture::open(b);
    let (singly, together, to) = (udp(a, a.ip(), 0), udp(a, a.ip(), 0), udp(b, b.ip(), 0));
    set_udp_segment(&together, 1000);
    for class in [0, 2, 1, 3, 0xb8, 0xba] {
        for socket in [&singly, &together] {
            rustix::net::sockopt::set_ip_tos(socket, class).unwrap();
        }
        router.dropped.set(0);
        singly.send_to(&[1; 500], to.local_addr().unwrap()).unwrap();
        together.send_to(&[2; 3500], to.local_addr().unwrap()).unwrap();
        let mut arrived = 0;
        until("all have arrived, or were dropped", || {
            router.pass_on();
            for (_, frame) in capture.drain(|frame| frame[12..14] == [8, 0] && frame[23] == 17) {
                assert_eq!(frame[15], class | 3, "{class:#x}");
                arrived += frame.len() - 42;
            }
            arrived == 4000 || class & 3 == 0 && router.dropped.get() > 1
        });
        assert_eq!(arrived == 4000, class & 3 != 0, "{class:#x}: {} dropped", router.dropped.get());
    }
}
