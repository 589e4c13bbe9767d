//! Tests of faults under traffic: afterwards frames are forwarded again, and all are accounted for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a panic fails a test; test data"
)]

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::vm::*;
use rustix::net::sockopt;
use tapswitch_netlink::QdiscSpec;
use tapswitch_openflow::{Action, Body, Delivery, GroupModCommand, Oxm, PortNo};
use tapswitch_tap as tap;
use tapswitch_wire::{EtherType, MacAddr, NetHeader};

/// ECT(0) (RFC 3168 §5).
const ECN_CAPABLE: u8 = 0b10;
/// How long a queue must stand before packets are marked (RFC 8289 §4.2).
const INTERVAL: Duration = Duration::from_millis(100);

/// A host behind port 1, which sends to a guest behind port 2.
struct Scene {
    lab: Lab,
    guest: Vm,
    sender: UdpSocket,
    directory: PathBuf,
}

impl Scene {
    /// A scene where port 1 has these options, and the guest makes senders wait for long.
    fn new(options: &str) -> Self {
        let mut lab = lab(options);
        let directory = std::env::temp_dir().join(unique("tapswitch-faults"));
        std::fs::create_dir(&directory).unwrap();
        let socket = directory.join("guest");
        let spec = format!("2=vhost:{},stall=10000", socket.display());
        runtime().block_on(lab.switch.handle().add_port(spec.parse().unwrap())).unwrap();
        let guest = Vm::start(&socket, split());
        until("the port is up", || lab.switch.port(2).state == "up");
        lab.switch.controller().apply(vec![wire(1, 2)]);
        lab.host_mut(1).knows(NOBODY, MacAddr([2, 0, 0, 0, 0, 99]));
        let bind = || UdpSocket::bind("0.0.0.0:0");
        let sender = lab.host(1).namespace.enter(bind).unwrap().unwrap();
        Self { lab, guest, sender, directory }
    }

    fn send(&self, number: u32) {
        self.sender.send_to(&number.to_be_bytes(), (NOBODY, 9)).unwrap();
    }

    /// Numbers of the datagrams that have arrived.
    fn receive(&mut self) -> Vec<u32> {
        let frames = self.guest.try_receive().into_iter();
        let datagrams = frames.filter(|frame| frame[36..38] == [0, 9]);
        datagrams.map(|frame| u32::from_be_bytes(frame[42..46].try_into().unwrap())).collect()
    }

    /// Frames that the switch has read from the host.
    fn read(&self) -> u64 {
        let port = self.lab.switch.port(1);
        port.rx.packets + port.pressure.ahead.frames
    }

    fn ring_full(&self) -> u64 {
        self.lab.switch.drops(1, "ring_full")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.lab.switch.stop();
        let removed = std::fs::remove_dir(&self.directory);
        assert!(thread::panicking() || removed.is_ok(), "a socket was left behind");
    }
}

/// A host behind port 1, which has these options.
fn lab(options: &str) -> Lab {
    Lab::with(1, |config| {
        let text = format!("{}{options}", config.ports[0]);
        config.ports[0] = text.parse().unwrap();
    })
}

/// Many hosts are behind a port on which a bridge sends LLDP: they do not wait for a slow one.
#[test]
fn what_comes_by_a_link_does_not_wait() {
    if !can_run() {
        return;
    }
    let (lab, _room) = Lab::netdevs(2, &[]);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("guest");
    let spec = format!("3=vhost:{},stall=10000", socket.display());
    runtime().block_on(lab.switch.handle().add_port(spec.parse().unwrap())).unwrap();
    let _stopped = Vm::start(&socket, split());
    until("the port is up", || lab.switch.port(3).state == "up");
    let lldp = in_port(1).with(Oxm::EthType(EtherType::LLDP));
    let to_controller = rule(200, lldp, vec![Action::output(PortNo::CONTROLLER)]);
    let both = rule(1, in_port(1), vec![output(3), output(2)]);
    let mut controller = lab.switch.controller();
    controller.apply(vec![Body::FlowMod(to_controller), Body::FlowMod(both)]);
    let from = Capture::open(lab.host(1));
    let send = |count: u64, bytes: &[u8]| {
        let before = lab.switch.port(1).rx.packets;
        for number in 1..=count {
            from.send(&NetHeader::PLAIN, bytes);
            if number.is_multiple_of(100) || number == count {
                until("it is read", || lab.switch.port(1).rx.packets >= before + number);
            }
        }
    };
    let mut bridge =
        frame(MacAddr([1, 0x80, 0xc2, 0, 0, 0xe]), MacAddr([2, 0, 0, 0, 0, 9]), &[], 60);
    bridge[12..14].copy_from_slice(&EtherType::LLDP.0.to_be_bytes());
    send(1, &bridge);
    send(3000, &frame(MacAddr([2, 0, 0, 0, 0, 8]), MacAddr([2, 0, 0, 0, 0, 9]), &[], 1514));
    let ports = [1, 2, 3].map(|number| lab.switch.port(number));
    assert!(ports[0].pressure.waits_for.is_empty(), "{ports:?}");
    assert!(ports[1].tx.frames >= 3000 && !has_dropped(&ports[..2]), "{ports:?}");
    assert!(lab.switch.drops(3, "egress_full") > 0, "{ports:?}");
}

#[test]
fn a_kernel_that_would_drop_is_read_ahead() {
    if !can_run() {
        return;
    }
    // For a guest that takes sixteen frames, three times what the device's ring holds.
    let mut scene = Scene::new("");
    for number in 0..3000 {
        scene.send(number);
        // At most a ring's worth at once: it is read when the worker is scheduled.
        if number % 500 == 499 {
            until("it is read", || scene.read() > u64::from(number));
        }
    }
    let mut numbers = Vec::new();
    until("all of them", || {
        numbers.extend(scene.receive());
        numbers.len() == 3000
    });
    assert!(numbers.into_iter().eq(0..3000));
    assert_eq!(scene.ring_full(), 0);
}

/// The queue is empty between two bursts, however long the last frame of the first one has waited.
#[test]
fn short_bursts_are_not_marked_for_those_before_them() {
    if !can_run() {
        return;
    }
    let mut scene = Scene::new("");
    sockopt::set_ip_tos(&scene.sender, ECN_CAPABLE).unwrap();
    let (mut marked, mut short_count) = (0, 0);
    for _ in 0..100 {
        let begin = Instant::now();
        // Long frames, as CoDel ignores a backlog of less than one packet.
        let send = |_| scene.sender.send_to(&[0; 1472], (NOBODY, 9)).unwrap();
        assert_eq!((0..100).map(send).sum::<usize>(), 147_200);
        thread::sleep(Duration::from_millis(20));
        let mut count = 0;
        until("all of them", || {
            count += scene.receive().len();
            count == 100
        });
        let time = begin.elapsed();
        let before = std::mem::replace(&mut marked, scene.lab.switch.port(1).pressure.marked);
        // On a busy machine a frame may wait for long, and then proves nothing.
        if time < INTERVAL {
            assert_eq!(marked, before, "marks in {time:?}");
            short_count += 1;
        }
        if short_count == 8 {
            return;
        }
        thread::sleep(INTERVAL);
    }
    panic!("{short_count} bursts were short: this machine is too busy to tell");
}

#[test]
fn what_does_not_fit_the_budget_is_told_by_the_kernel() {
    if !can_run() {
        return;
    }
    let mut scene = Scene::new(",drain-ahead=64");
    (0..5000).for_each(|number| scene.send(number));
    until("a full ring", || scene.ring_full() > 0);
    let mut numbers = Vec::new();
    until("all that were not lost", || {
        numbers.extend(scene.receive());
        numbers.len() as u64 + scene.ring_full() == 5000
    });
    assert!(numbers.is_sorted(), "in order");
    scene.send(5000);
    until("what comes then", || scene.receive() == [5000]);
    assert_eq!(scene.lab.switch.port(1).pressure.ahead.frames, 0, "memory is given back");
}

/// Like controllers that do not yet know that a port is gone.
#[test]
fn what_a_controller_sends_to_a_port_that_is_not_there_leaves_the_books_alone() {
    let room = Room::new(2, "");
    let mut guest = room.guest(1, split());
    let mut controller = room.switch.controller();
    let to_controller = vec![Action::output(PortNo::CONTROLLER)];
    let to_two = vec![output(1), output(9)];
    let actions = [vec![output(9)], vec![], to_two, to_controller, vec![output(1)]];
    for (number, actions) in (0..).zip(actions) {
        controller.send(packet_out(numbered(number), actions));
    }
    controller.barrier();
    assert!(guest.receive() == numbered(2) && guest.receive() == numbered(4));
    room.switch.check_books();
}

/// They had left the kernel's ring, where they would have been counted.
#[test]
fn what_was_read_ahead_of_a_port_that_goes_is_in_the_books() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("");
    (0..400).for_each(|number| scene.send(number));
    until("they are read", || scene.read() >= 400);
    let (before, waiting) = (scene.lab.switch.report().books, scene.lab.switch.port(1).pressure);
    assert!(before.ahead > 0 && before.ahead == waiting.ahead.frames, "{before:?}");
    runtime().block_on(scene.lab.switch.handle().remove_port(PortNo(1))).unwrap();
    let after = eventually("nothing under way", || {
        let books = scene.lab.switch.report().books;
        (books.unaccounted() == 0 && books.ahead == 0).then_some(books)
    });
    assert!(after.received >= before.received, "{before:?} {after:?}");
    assert!(after.dropped >= before.dropped + before.ahead, "{before:?} {after:?}");
}

#[test]
fn without_reading_ahead_the_ring_is_all_there_is() {
    if !can_run() {
        return;
    }
    let mut scene = Scene::new(",drain-ahead=off");
    (0..3000).for_each(|number| scene.send(number));
    until("a full ring", || scene.ring_full() > 0);
    let mut count = 0;
    until("all that were not lost", || {
        count += scene.receive().len() as u64;
        count + scene.ring_full() == 3000
    });
}

#[test]
fn a_device_that_takes_nothing_for_a_while_gets_every_frame() {
    if !can_run() {
        return;
    }
    // A tap device of another program, with room for 20 frames and no qdisc: the kernel returns
    // ENOBUFS when it is full.
    let mut lab = lab(",gro=off");
    let config = tap::Config::new("slow".parse().unwrap()).net_header(tap::HeaderLen::None);
    let slow = lab.host(1).namespace.enter(|| tap::Device::create(&config)).unwrap().unwrap();
    let netlink = &mut lab.host_mut(1).netlink;
    netlink.set_txqueuelen("slow", 20).unwrap();
    netlink.set_qdisc("slow", &QdiscSpec::new("noqueue")).unwrap();
    netlink.set_up("slow").unwrap();
    let spec = format!("2=netdev:slow,netns={},stall=10000", lab.host(1).name());
    runtime().block_on(lab.switch.handle().add_port(spec.parse().unwrap())).unwrap();
    until("the port is up", || lab.switch.port(2).state == "up");
    lab.switch.controller().apply(vec![wire(1, 2)]);
    lab.host_mut(1).knows(NOBODY, MacAddr([2, 0, 0, 0, 0, 99]));
    let bind = || UdpSocket::bind("0.0.0.0:0");
    let sender = lab.host(1).namespace.enter(bind).unwrap().unwrap();
    for number in 0..500_u32 {
        sender.send_to(&number.to_be_bytes(), (NOBODY, 9)).unwrap();
    }
    until("the host waits", || !lab.switch.port(1).pressure.waits_for.is_empty());
    let queue = slow.into_queues().remove(0);
    let (mut numbers, mut buf) = (Vec::new(), vec![0; tap::RECV_BUF_LEN]);
    until("all of them", || {
        while let Some(len) = queue.recv(&mut buf).unwrap() {
            if len >= 46 && buf[36..38] == [0, 9] {
                numbers.push(u32::from_be_bytes(buf[42..46].try_into().unwrap()));
            }
        }
        numbers.len() == 500
    });
    assert!(numbers.into_iter().eq(0..500));
    assert!(!has_dropped(&lab.switch.ports()));
    // The kernel reported its drops, and those frames were sent again.
    assert_eq!(lab.switch.port(2).queueing.unwrap().shed, 0);
}

#[test]
fn a_hundred_taps_come_and_go_under_load() {
    let room = Room::new(3, "");
    let mut guests = room.guests();
    let switch = &room.switch;
    let mut controller = switch.controller();
    controller.apply(vec![wire(1, 2)]);
    let [sender, receiver, _stopped] = &mut guests[..] else { panic!() };
    let (done, arrived) = (AtomicBool::new(false), AtomicU32::new(0));
    let (mut sent, mut received) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                let before = arrived.load(Ordering::Relaxed);
                change(&mut controller);
                until("frames between", || arrived.load(Ordering::Relaxed) >= before + 2);
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) || received < sent {
            if !done.load(Ordering::Relaxed) && sender.try_send(&numbered(sent)) {
                sent += 1;
            }
            for frame in receiver.try_receive() {
                assert!(frame == numbered(received), "{received}");
                received += 1;
            }
            arrived.store(received, Ordering::Relaxed);
        }
    });
    switch.check_books();
    let ports = switch.ports();
    assert!(!has_dropped(&ports[..2]), "{ports:?}");
    let waited = &ports[0].pressure.waits_for;
    assert!(waited.iter().all(|pause| pause.port != "3"), "for the monitor: {waited:?}");
    assert_eq!(switch.taps(), []);
}

/// Adds and removes a TAP whose monitor takes nothing.
fn change(controller: &mut Controller) {
    let buckets = vec![vec![output(2)], vec![Delivery::BestEffort.action(), output(3)]];
    let group = group_all(GroupModCommand::Add, 1, buckets);
    let tapped = Body::FlowMod(rule(100, in_port(1), vec![to_group(1)]));
    controller.apply(vec![group, tapped]);
    let gone = group_all(GroupModCommand::Delete, 1, Vec::new());
    controller.apply(vec![wire(1, 2), gone]);
}

/// The frame with this number.
fn numbered(number: u32) -> Vec<u8> {
    let mut bytes = frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]), &[], 60);
    bytes[20..24].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// An address at which nobody listens.
const NOBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 99));
