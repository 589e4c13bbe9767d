//! Behaviour of a full ring, with and without backpressure (`IFF_BACKPRESSURE`, Linux 7.3).
//!
//! The tests run on such a kernel, in a guest. The result does not depend on time: one thread sends
//! and reads in turn, and three counters must account for each datagram: read from the device,
//! dropped by its driver (`tx_dropped`), or dropped by its queueing discipline.
#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails fails the test")]

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_netlink::QdiscSpec;
use tapswitch_tap::{Capabilities, Device, Kind, RECV_BUF_LEN, Wish};

mod common;
use common::{Host, LINUX_7_3, PEER, can_tap, config, eventually};

#[test]
fn the_kernel_tells_whether_it_has_it() {
    LINUX_7_3.test(|| assert!(Capabilities::probe().unwrap().has_backpressure()));
    if tapswitch_guest::inside().is_some() || !can_tap() {
        return;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let has_it = Capabilities::probe().unwrap().has_backpressure();
    assert_eq!(has_it, version >= (7, 3), "on Linux {release}");
}

#[test]
fn without_it_the_driver_drops_what_the_ring_has_no_room_for() {
    LINUX_7_3.test(|| {
        for_each_device(|kind, ring| {
            let line = Line::new(kind, Wish::Off, ring, &QdiscSpec::new("fq_codel"));
            let ledger = line.fill(SENT);
            assert_eq!(ledger, Ledger { read: ring, dropped: SENT - ring, shed: 0 });
        });
    });
}

#[test]
fn with_it_the_qdisc_keeps_what_it_has_room_for_and_sheds_the_rest_itself() {
    LINUX_7_3.test(|| {
        for_each_device(|kind, ring| {
            let qdisc = QdiscSpec::new("pfifo").limit(ROOM);
            let line = Line::new(kind, Wish::Required, ring, &qdisc);
            let ledger = line.fill(SENT);
            let read = ring + u64::from(ROOM);
            assert_eq!(ledger, Ledger { read, dropped: 0, shed: SENT - read });
        });
    });
}

#[test]
fn without_it_a_slow_reader_gets_what_there_happens_to_be_room_for() {
    LINUX_7_3.test(|| {
        for_each_device(|kind, ring| {
            let line = Line::new(kind, Wish::Off, ring, &QdiscSpec::new("fq_codel"));
            let ledger = line.pass_slowly(SENT);
            // The datagrams that fill the ring at first, and one for each later turn, except for
            // slots that the ring has not released yet, which it does for several at a time.
            assert!(ledger.read >= ring && ledger.read < ring + SENT / TURN, "{ledger:?}");
            assert_eq!(ledger.shed, 0);
        });
    });
}

#[test]
fn with_it_a_slow_reader_gets_everything_because_the_sender_waits() {
    LINUX_7_3.test(|| {
        for_each_device(|kind, ring| {
            let qdisc = QdiscSpec::new("pfifo").limit(1000);
            let line = Line::new(kind, Wish::Required, ring, &qdisc);
            let ledger = line.pass_slowly(SENT);
            assert_eq!(ledger, Ledger { read: SENT, dropped: 0, shed: 0 });
        });
    });
}

#[test]
fn with_it_and_the_default_qdisc_only_the_qdisc_sheds() {
    LINUX_7_3.test(|| {
        for_each_device(|kind, ring| {
            let line = Line::new(kind, Wish::Required, ring, &QdiscSpec::new("fq_codel"));
            let ledger = line.pass_slowly(SENT);
            // The number of drops depends on how long they wait.
            assert_eq!(ledger, Ledger { read: SENT - ledger.shed, dropped: 0, shed: ledger.shed });
        });
    });
}

#[test]
fn without_a_qdisc_it_has_no_effect() {
    LINUX_7_3.test(|| {
        for_each_device(|kind, ring| {
            let line = Line::new(kind, Wish::Required, ring, &QdiscSpec::new("noqueue"));
            let ledger = line.fill(SENT);
            assert_eq!(ledger, Ledger { read: ring, dropped: SENT - ring, shed: 0 });
        });
    });
}

#[test]
fn a_longer_ring_takes_at_once_what_the_qdisc_has_kept() {
    LINUX_7_3.test(|| {
        let qdisc = QdiscSpec::new("pfifo").limit(ROOM);
        let mut line = Line::new(Kind::Tap, Wish::Required, 1, &qdisc);
        line.send(50);
        assert_eq!(line.waiting(), 49);
        line.host.netlink.set_txqueuelen(NAME, 100).unwrap();
        // Nothing was read: the new length wakes the queue.
        eventually("an empty qdisc", || (line.waiting() == 0).then_some(()));
        let expected = Ledger { read: 50, dropped: 0, shed: 0 };
        assert_eq!(line.settle(50, 0), expected);
    });
}

/// Calls `test` with each type of device and each ring length, in frames.
fn for_each_device(test: impl Fn(Kind, u64)) {
    for kind in [Kind::Tun, Kind::Tap] {
        for ring in [500, 10, 1] {
            test(kind, ring);
        }
    }
}

/// A device in its own namespace, and a socket that sends through it.
struct Line {
    host: Host,
    device: Device,
    socket: UdpSocket,
    /// Printed at the end of the test.
    title: String,
}

/// Outcome of the datagrams.
#[derive(Debug, PartialEq, Eq)]
struct Ledger {
    read: u64,
    dropped: u64,
    shed: u64,
}

impl Line {
    fn new(kind: Kind, backpressure: Wish, ring: u64, qdisc: &QdiscSpec) -> Self {
        let mut host = Host::new();
        let device = host.create(&config(NAME).kind(kind).backpressure(backpressure));
        host.netlink.set_txqueuelen(NAME, u32::try_from(ring).unwrap()).unwrap();
        host.netlink.set_up(NAME).unwrap();
        host.netlink.add_address(NAME, "10.0.0.1".parse().unwrap(), 24).unwrap();
        if kind == Kind::Tap {
            host.netlink.set_neighbour(NAME, "10.0.0.2".parse().unwrap(), PEER.0).unwrap();
        }
        host.netlink.set_qdisc(NAME, qdisc).unwrap();
        let socket = host.udp(7000);
        socket.set_nonblocking(true).unwrap();
        let flag = if backpressure == Wish::Off { "without" } else { "with" };
        let title = format!("{kind:?}, ring of {ring}, {}, {flag} back-pressure", qdisc.kind());
        Self { host, device, socket, title }
    }

    /// Sends `count` datagrams, then reads all that arrive.
    fn fill(mut self, count: u64) -> Ledger {
        assert_eq!(self.send(count), count, "the socket's buffer is large enough");
        self.settle(count, 0)
    }

    /// Sends `count` datagrams, [`TURN`] for each one that is read; reads more while the socket
    /// accepts none. Then reads all that arrive.
    fn pass_slowly(mut self, count: u64) -> Ledger {
        let (mut sent, mut read) = (0, 0);
        let mut deadline = Instant::now() + PATIENCE;
        while sent < count {
            let taken = self.send(TURN.min(count - sent));
            sent += taken;
            let more = if sent < count { self.read(1) } else { 0 };
            read += more;
            if taken + more > 0 {
                deadline = Instant::now() + PATIENCE;
            } else {
                // The kernel wakes the queue in a separate interrupt.
                assert!(Instant::now() < deadline, "{}: stalled after {sent}", self.title);
                self.wait_readable();
            }
        }
        self.settle(count, read)
    }

    /// Reads until the outcome of all `sent` datagrams is known.
    fn settle(&mut self, sent: u64, mut read: u64) -> Ledger {
        let deadline = Instant::now() + PATIENCE;
        loop {
            read += self.read(sent);
            let ledger = self.ledger(read);
            let known = ledger.read + ledger.dropped + ledger.shed;
            assert!(known <= sent, "{}: {sent} sent, {ledger:?}", self.title);
            if known == sent {
                println!("{}: {sent} sent, {ledger:?}", self.title);
                return ledger;
            }
            assert!(Instant::now() < deadline, "{}: {sent} sent, only {ledger:?}", self.title);
            self.wait_readable();
        }
    }

    /// Sends up to `count` datagrams; returns how many the socket accepted.
    fn send(&self, count: u64) -> u64 {
        let outcome =
            (0..count).try_for_each(|done| match self.socket.send_to(&[0; 100], "10.0.0.2:7") {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Err(done),
                Err(error) => panic!("{}: {error}", self.title),
            });
        outcome.err().unwrap_or(count)
    }

    /// Reads up to `count` frames; returns their number.
    fn read(&self, count: u64) -> u64 {
        let mut buf = vec![0; RECV_BUF_LEN];
        let mut next = || self.device.queues()[0].recv(&mut buf).unwrap();
        (0..count).take_while(|_| next().is_some()).count() as u64
    }

    /// Waits until a frame is queued, at most 10 ms.
    fn wait_readable(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        poll(&mut [PollFd::new(&self.device.queues()[0], PollFlags::IN)], Some(&timeout)).unwrap();
    }

    /// Datagrams in the qdisc.
    fn waiting(&mut self) -> u32 {
        self.host.netlink.qdiscs(NAME).unwrap()[0].qlen
    }

    /// Current outcome of the datagrams, `read` of which were read.
    fn ledger(&mut self, read: u64) -> Ledger {
        let dropped = self.host.netlink.link(NAME).unwrap().stats.tx_dropped;
        let shed = self.host.netlink.qdiscs(NAME).unwrap()[0].drops;
        Ledger { read, dropped, shed }
    }
}

/// How long a test waits for an immediate event, on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(30);
const NAME: &str = "dev0";
/// Datagrams in all.
const SENT: u64 = 2000;
/// Datagrams sent for each one that is read.
const TURN: u64 = 20;
/// Capacity of a qdisc in datagrams; less than the default buffer of a socket.
const ROOM: u32 = 100;
