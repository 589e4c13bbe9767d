//! Behaviour of a port when the path is full, and of queues on the path: real queueing disciplines
//! in separate namespaces.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::io::IoSlice;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use tapswitch_helpers::{is_root, skip};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_tunnel::{Config, RECV_BUF_LEN, Receiver, Room, SENDERS, SendError, Vni, VxlanPort};

/// Two namespaces and a link limited by `qdisc`.
struct Wire {
    near: Arc<VxlanPort>,
    far: Receiver,
    namespaces: [OwnedNamespace; 2],
}

impl Wire {
    /// Each socket has a buffer of `send_buffer_len`. `None`, with a message, if it cannot be
    /// created here.
    fn new(name: &str, qdisc: &[&str], send_buffer_len: usize) -> Option<Self> {
        if !is_root() {
            return None;
        }
        stay_on_one_processor();
        let make = |end| OwnedNamespace::create(&format!("tun-{}-{name}{end}", std::process::id()));
        let namespaces = [0, 1].map(|end| make(end).unwrap());
        let mut links = namespaces.each_ref().map(|namespace| Netlink::open(namespace).unwrap());
        links[0].create_veth("eth0", "eth0", &namespaces[1]).unwrap();
        for (link, last) in links.iter_mut().zip(1..) {
            link.add_address("eth0", [192, 0, 2, last].into(), 24).unwrap();
            link.set_up("eth0").unwrap();
        }
        // So that no frame waits for address resolution outside of the queue.
        let macs = links.each_mut().map(|link| link.link("eth0").unwrap().mac.unwrap());
        for (at, link) in links.iter_mut().enumerate() {
            let (last, mac) = ([2, 1][at], macs[1 - at]);
            link.set_neighbour("eth0", [192, 0, 2, last].into(), mac).unwrap();
        }
        add_qdisc(&namespaces[0], &["root"], qdisc)?;
        let open = |namespace: &OwnedNamespace, remote: u8| {
            let config = Config::new([192, 0, 2, remote].into(), Vni::new(1).unwrap());
            let config = config.send_buffer_len(SENDERS * send_buffer_len);
            Arc::new(namespace.enter(|| VxlanPort::open(&config).unwrap()).unwrap())
        };
        let near = open(&namespaces[0], 2);
        let far = Receiver::new(open(&namespaces[1], 1));
        Some(Self { near, far, namespaces })
    }

    /// Sends a frame, as soon as the socket accepts it. Returns how often it had to wait.
    fn send(&self, frame: &[u8]) -> usize {
        for waits in 0.. {
            match self.near.send(3, &[IoSlice::new(frame)]) {
                Ok(()) => return waits,
                Err(SendError::Full) => {}
                Err(other) => panic!("{other:?}"),
            }
            let mut fds = [PollFd::from_borrowed_fd(self.near.sender(3), PollFlags::OUT)];
            let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1, "never writable again");
        }
        0
    }

    /// The received frames, until none arrives for a second.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        let (mut frames, mut buf) = (Vec::new(), vec![0; 64 + RECV_BUF_LEN]);
        loop {
            while let Some(place) = self.far.recv(&mut buf, 64, Room::ONE).unwrap() {
                frames.push(buf[place].to_vec());
            }
            let mut fds = [PollFd::new(self.far.port(), PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap() == 0 {
                return frames;
            }
        }
    }

    /// The number in each of them.
    fn numbers(&mut self) -> Vec<u32> {
        let frames = self.frames().into_iter();
        frames.map(|frame| u32::from_be_bytes(*frame.first_chunk().unwrap())).collect()
    }
}

fn add_qdisc(namespace: &OwnedNamespace, place: &[&str], qdisc: &[&str]) -> Option<()> {
    let mut tc = namespace.command("tc");
    tc.args(["qdisc", "add", "dev", "eth0"]).args(place).args(qdisc);
    let made = tc.output();
    let is_made = made.as_ref().is_ok_and(|output| output.status.success());
    (is_made || skip(&format!("no such queueing discipline: {made:?}"))).then_some(())
}

/// Frames sent through a veth wait for their receiver in a queue of the sending processor, and the
/// order between two of these queues is undefined. The timer of a queueing discipline fires where
/// it was set, so one thread on one processor keeps the order.
fn stay_on_one_processor() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
}

/// A sender that waits for the socket loses nothing.
#[test]
fn a_full_socket_says_so_and_when_it_is_no_more() {
    let tbf = ["tbf", "rate", "40mbit", "burst", "20000", "limit", "10000000"];
    let Some(mut wire) = Wire::new("a", &tbf, 64 << 10) else { return };
    let mut waits = 0;
    for number in 0..1000u32 {
        waits += wire.send(&[&number.to_be_bytes()[..], &[0; 1400]].concat());
    }
    assert!(waits > 0, "1.4 megabytes at 5 a second do not fit 64 KiB");
    assert_eq!(wire.numbers(), (0..1000).collect::<Vec<_>>());
}

/// A queue on the path marks what it would otherwise drop, and the mark reaches the receiver.
#[test]
fn a_queue_on_the_way_marks_what_it_would_drop() {
    let tbf = ["handle", "1:", "tbf", "rate", "40mbit", "burst", "20000", "limit", "10000000"];
    let Some(mut wire) = Wire::new("c", &tbf, 64 << 10) else { return };
    let codel = ["fq_codel", "target", "1ms", "interval", "10ms", "ce_threshold", "1ms"];
    let Some(()) = add_qdisc(&wire.namespaces[0], &["parent", "1:1"], &codel) else { return };
    for (class, is_capable) in [(0xb8, false), (0xba, true), (0xb9, true)] {
        let frame = ipv4_frame(class);
        for _ in 0..500 {
            wire.send(&frame);
        }
        let arrived = wire.frames();
        let marked = arrived.iter().filter(|frame| frame[15] == 0xbb).count();
        if is_capable {
            assert_eq!(arrived.len(), 500, "{class:#x}: nothing is dropped");
            assert!(marked > 100, "{class:#x}: {marked} marked");
        } else {
            assert!(arrived.len() < 500, "there is congestion");
            assert_eq!(marked, 0);
        }
    }
}

/// 1400 bytes of an IPv4 packet with this type of service.
fn ipv4_frame(class: u8) -> Vec<u8> {
    let start = [8, 0, 0x45, class, 5, 120, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&[2; 12][..], &start, &[0; 1380]].concat()
}

/// Linux only reports that if requested.
#[test]
fn what_the_interface_drops_is_told() {
    let tbf = ["tbf", "rate", "1mbit", "burst", "2000", "limit", "8000"];
    let Some(mut wire) = Wire::new("b", &tbf, 4 << 20) else { return };
    let (mut taken, mut congested) = (0, 0);
    for number in 0..200u32 {
        let frame = [&number.to_be_bytes()[..], &[0; 1000]].concat();
        match wire.near.send(0, &[IoSlice::new(&frame)]) {
            Ok(()) => taken += 1,
            Err(SendError::Congested) => congested += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(congested > 0 && taken > 0, "{taken} taken, {congested} not");
    assert_eq!(wire.numbers().len(), taken, "what was taken arrives");
}
