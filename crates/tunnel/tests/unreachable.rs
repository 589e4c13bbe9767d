//! Errors about packets of raw sockets, which all sockets with the same two ends receive.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic fails a test")]

use std::io::IoSlice;
use std::time::{Duration, Instant};

use tapswitch_helpers::{is_root, unique};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_tunnel::{Carrier, GreConfig, GrePort, RECV_BUF_LEN};

const HEADROOM: usize = 64;

/// Number of errors that a port has counted so far.
fn unreachable(port: &GrePort) -> u64 {
    let mut buf = vec![0; HEADROOM + RECV_BUF_LEN];
    assert_eq!(port.recv(&mut buf, HEADROOM).unwrap(), None);
    port.counters().unreachable
}

fn send(port: &GrePort) {
    port.send(&[IoSlice::new(&[7; 60])], None).unwrap();
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not within thirty seconds: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The other host does not accept GRE, and reports it.
#[test]
fn each_tunnel_counts_the_errors_of_its_own_packets() {
    if !is_root() {
        return;
    }
    let namespace = OwnedNamespace::create(&unique("tun-errors")).unwrap();
    Netlink::open(&namespace).unwrap().set_up("lo").unwrap();
    let open = |key| {
        let config = GreConfig::new([127, 0, 0, 2].into(), Carrier::Gre { key: Some(key) });
        GrePort::open(&config.local(Some([127, 0, 0, 1].into()))).unwrap()
    };
    let check = || {
        let [one, other] = [1, 2].map(open);
        for round in 1..=3 {
            send(&one);
            eventually("the error of the one", || unreachable(&one) == round);
            // Both received it at the same time.
            assert_eq!(unreachable(&other), 0);
        }
        send(&other);
        eventually("the error of the other", || unreachable(&other) == 1);
        assert_eq!(unreachable(&one), 3);
    };
    namespace.enter(check).unwrap();
}
