//! A port reports the state of its interface, and counts the losses of its queue.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use rustix::thread::{CapabilitySet, CapabilitySets};
use tapswitch_netdev::{
    Config, HEADROOM_MIN, OpenError, PacketPort, RECV_BUF_LEN, RecvError, SendError, Statistics,
};
use tapswitch_wire::{GsoType, MacAddr, NetHeader, NetHeaderFlags};

mod common;
use common::{Host, Wire, drain, eventually, frame, is_ours, is_root, receive, send, skip};

#[test]
fn opening_says_why_not() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let open = |name: &'static str| PacketPort::open(name, &Config::default()).map(drop);
    let error = |name| host.namespace.enter(|| open(name)).unwrap().unwrap_err();

    let missing = error("eth9");
    assert!(matches!(missing, OpenError::NotFound { .. }), "{missing}");
    let too_long = error("a-name-that-is-too-long");
    assert!(matches!(too_long, OpenError::NotFound { .. }), "{too_long}");
    let loopback = error("lo");
    assert!(matches!(loopback, OpenError::NotEthernet { kind: 772, .. }), "{loopback}");
    let forbidden = std::thread::spawn(move || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        open("lo").unwrap_err()
    });
    let forbidden = forbidden.join().unwrap();
    assert!(matches!(forbidden, OpenError::NotPermitted { .. }), "{forbidden}");
}

#[test]
fn a_port_knows_its_interface() {
    if !is_root() {
        return;
    }
    let mut wire = Wire::new();
    let link = wire.left.netlink.link("a").unwrap();
    assert_eq!(wire.a.index(), link.index);
    assert_eq!(Some(wire.a.mac()), link.mac.map(MacAddr));
    assert_eq!(wire.a.name().unwrap(), "a");
    assert!(wire.a.is_up().unwrap());
    wire.left.netlink.set_mtu("a", 9000).unwrap();
    assert_eq!(wire.a.mtu().unwrap(), 9000);
    assert_eq!(wire.a.receive_buffer_len().unwrap(), 32 << 20, "twice the default");
}

#[test]
fn a_port_may_be_opened_while_its_interface_is_down() {
    if !is_root() {
        return;
    }
    let (mut left, mut right) = (Host::new(), Host::new());
    left.netlink.create_veth("a", "b", &right.namespace).unwrap();
    let config = Config::default();
    let (a, b) = (left.port("a", &config), right.port("b", &config));
    assert!(!a.is_up().unwrap());
    let mut buf = vec![0; RECV_BUF_LEN];
    assert_eq!(a.recv(&mut buf, HEADROOM_MIN), Ok(None));
    assert_eq!(send(&a, &NetHeader::PLAIN, &frame(&[], 100)), Err(SendError::Down));

    left.netlink.set_up("a").unwrap();
    right.netlink.set_up("b").unwrap();
    eventually("both ends run", || (left.is_running("a") && right.is_running("b")).then_some(()));
    let sent = frame(&[], 100);
    send(&a, &NetHeader::PLAIN, &sent).unwrap();
    assert_eq!(receive(&b, |_, frame| is_ours(frame)).1, sent);
}

#[test]
fn going_down_is_told_once_and_does_not_last() {
    if !is_root() {
        return;
    }
    let mut wire = Wire::new();
    wire.left.netlink.set_down("a").unwrap();
    let mut buf = vec![0; RECV_BUF_LEN];
    let told = eventually("the error", || wire.a.recv(&mut buf, HEADROOM_MIN).err());
    assert_eq!(told, RecvError::Down);
    // Earlier frames are still queued, and there is no second error.
    drain(&wire.a).count();
    assert_eq!(send(&wire.a, &NetHeader::PLAIN, &frame(&[], 100)), Err(SendError::Down));

    wire.left.netlink.set_up("a").unwrap();
    eventually("both ends run", || {
        (wire.left.is_running("a") && wire.right.is_running("b")).then_some(())
    });
    let sent = frame(&[], 100);
    send(&wire.b, &NetHeader::PLAIN, &sent).unwrap();
    assert_eq!(receive(&wire.a, |_, frame| is_ours(frame)).1, sent);
}

#[test]
fn a_deleted_or_moved_interface_is_gone_for_good() {
    if !is_root() {
        return;
    }
    let mut wire = Wire::new();
    let elsewhere = Host::new();
    wire.left.netlink.move_to_namespace("a", &elsewhere.namespace).unwrap();
    wire.right.netlink.delete("b").unwrap();
    let mut buf = vec![0; RECV_BUF_LEN];
    for port in [&wire.a, &wire.b] {
        let told = eventually("the error", || port.recv(&mut buf, HEADROOM_MIN).err());
        assert_eq!(told, RecvError::Gone);
        assert_eq!(send(port, &NetHeader::PLAIN, &frame(&[], 100)), Err(SendError::Gone));
        assert!(port.mtu().is_err() && port.is_up().is_err() && port.name().is_err());
    }
}

#[test]
fn what_the_queue_loses_is_counted() {
    if !is_root() {
        return;
    }
    const COUNT: u64 = 5000;
    let wire = Wire::with(&Config::default().receive_buffer_len(100_000));
    drain(&wire.b).count();
    let before = wire.b.statistics().unwrap();
    for _ in 0..COUNT {
        send(&wire.a, &NetHeader::PLAIN, &frame(&[], 1000)).unwrap();
    }
    // Frames of the kernel itself may be among them.
    let statistics = eventually("all frames arrive", || {
        let now = wire.b.statistics().unwrap();
        (now.received + now.dropped >= before.received + COUNT).then_some(now)
    });
    assert!(statistics.dropped > 0, "{statistics:?}");
    let received = u64::try_from(drain(&wire.b).count()).unwrap();
    assert_eq!(statistics.received - before.received, received);
    let Statistics { dropped, .. } = wire.b.statistics().unwrap();
    assert_eq!(dropped, statistics.dropped, "totals stay when the kernel's counters are taken");
}

#[test]
fn a_full_send_buffer_and_a_full_queueing_discipline_are_told_apart() {
    if !is_root() {
        return;
    }
    let sent = frame(&[], 1514);
    for (limit, expected) in [("1000000", SendError::Full), ("4000", SendError::Congested)] {
        let buffer_len = if expected == SendError::Full { 0 } else { 1 << 20 };
        let wire = Wire::with(&Config::default().send_buffer_len(buffer_len));
        // A frame every second or two, with a queue of `limit` bytes.
        let mut tc = wire.left.namespace.command("tc");
        tc.args(["qdisc", "replace", "dev", "a", "root"]);
        tc.args(["tbf", "rate", "8kbit", "burst", "1600", "limit", limit]);
        if !tc.status().is_ok_and(|status| status.success()) {
            skip("no tc program, or a kernel without tbf");
            return;
        }
        let outcome = (0..100).find_map(|_| send(&wire.a, &NetHeader::PLAIN, &sent).err());
        assert_eq!(outcome, Some(expected));
    }
}

#[test]
fn a_train_that_the_kernel_cannot_check_is_not_sent() {
    if !is_root() {
        return;
    }
    let wire = Wire::new();
    let train = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 54,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
    };
    let not_even_ip = frame(&[], 5000);
    assert_eq!(send(&wire.a, &train, &not_even_ip), Err(SendError::Congested));
}
