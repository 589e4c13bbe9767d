//! A guest that runs several queue pairs, all of them on one worker, and lets one of its rings
//! fill: each ring waits separately.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a panic fails a test; test data"
)]

use std::num::NonZeroUsize;

use crate::common::*;
use crate::vm::*;
use tapswitch_openflow::{Body, Delivery, GroupModCommand};
use tapswitch_wire::MacAddr;

/// Frame `number` of the flow of a station.
fn of_flow(station: u8, number: u32) -> Vec<u8> {
    let mut bytes =
        frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 1, 0, station]), &[], 1514);
    bytes[20..24].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[20..24].try_into().unwrap())
}

/// Ports 1 and 3 send to a guest behind port 2 that runs two queue pairs.
struct Scene {
    room: Room,
    sender: Vm,
    other: Vm,
    receiver: Vm,
    second: SecondRing,
    /// A flow of the first ring, and one of the second.
    flows: [u8; 2],
}

impl Scene {
    fn new(options: &str) -> Self {
        let options = format!(",queues=2{options}");
        let room = Room::with(3, &options, |config| config.workers = NonZeroUsize::new(1));
        let [mut sender, mut receiver, other] = [1, 2, 3].map(|number| room.guest(number, split()));
        room.switch.controller().apply(vec![wire(1, 2), wire(3, 2)]);
        let mut second = receiver.start_second_pair();
        let mut ring_of = |station| {
            sender.send(&of_flow(station, 0));
            eventually("a frame in a ring", || {
                let arrived = [receiver.try_receive().len(), second.try_receive().len()];
                arrived.iter().position(|&count| count > 0)
            })
        };
        let rings: Vec<_> = (0..16).map(&mut ring_of).collect();
        let flows = [0, 1].map(|ring| rings.iter().position(|&it| it == ring).unwrap() as u8);
        Self { room, sender, other, receiver, second, flows }
    }

    /// Sends until the second ring is full and its sender waits. Returns the number of frames sent.
    fn fill_second(&mut self) -> u32 {
        let mut next = 0;
        until("the sender waits", || {
            while self.sender.try_send(&of_flow(self.flows[1], next)) {
                next += 1;
            }
            self.waits(1) > 0
        });
        next
    }

    /// Paused queues of a port.
    fn waits(&self, port: u32) -> u32 {
        self.room.switch.port(port).pressure.waits_for.iter().map(|pause| pause.now).sum()
    }

    /// Takes the frames queued for the second ring: `count` frames of its flow, in order.
    fn empty_second(&mut self, count: u32) {
        let mut numbers = Vec::new();
        until("what waits is there", || {
            numbers.extend(self.second.try_receive().iter().map(|frame| number_of(frame)));
            numbers.len() == count as usize
        });
        assert!(numbers.into_iter().eq(0..count), "in order, each once");
    }

    /// Frames sent to the receiver's port.
    fn arrived(&self) -> u64 {
        self.room.switch.controller().barrier();
        self.room.switch.port(2).tx.frames
    }
}

#[test]
fn a_full_ring_holds_up_only_what_goes_to_it() {
    let mut scene = Scene::new(",stall=10000");
    let before = scene.arrived();
    let sent = scene.fill_second();
    for number in 0..500 {
        let sent = of_flow(scene.flows[0], number);
        scene.other.send(&sent);
        assert!(scene.receiver.receive() == sent);
    }
    assert_eq!((scene.waits(1), scene.waits(3)), (1, 0));
    scene.empty_second(sent);
    until("nobody waits", || scene.waits(1) == 0);
    assert!(!has_dropped(&scene.room.switch.ports()));
    assert_eq!(scene.arrived() - before, u64::from(sent) + 500);
    scene.room.switch.check_books();
}

#[test]
fn a_ring_that_nobody_empties_stalls_alone() {
    let mut scene = Scene::new(",stall=20");
    let before = scene.arrived();
    for number in 0..1000 {
        let turns = scene.flows.map(|flow| of_flow(flow, number));
        for frame in &turns {
            until("room in the ring", || scene.sender.try_send(frame));
        }
        assert!(scene.receiver.receive() == turns[0]);
    }
    let port = scene.room.switch.port(2);
    assert_eq!(port.pressure.stalls, 1, "{port:?}");
    let dropped = scene.room.switch.drops(2, "egress_stalled");
    let waiting = port.pressure.queued.frames;
    assert!(waiting > 0 && scene.waits(1) == 0, "{port:?}");
    assert_eq!(dropped + scene.arrived() - before + waiting, 2000, "{port:?}");
    scene.empty_second(1000 - dropped as u32);
    until("it takes all again", || scene.room.switch.port(2).pressure.queued.frames == 0);
    scene.sender.send(&of_flow(scene.flows[1], 7));
    until("the next frame", || {
        scene.second.try_receive().iter().any(|frame| number_of(frame) == 7)
    });
    scene.room.switch.check_books();
}

/// Copies for a ring are queued up to a limit, separately for each ring.
#[test]
fn copies_for_a_full_ring_leave_room_for_those_for_another() {
    let mut scene = Scene::new("");
    let buckets = vec![vec![Delivery::BestEffort.action(), output(2)]];
    let group = group_all(GroupModCommand::Add, 1, buckets);
    let copies = [1, 3].map(|port| Body::FlowMod(rule(200, in_port(port), vec![to_group(1)])));
    scene.room.switch.controller().apply([vec![group], copies.to_vec()].concat());
    for number in 0..1000 {
        let copy = of_flow(scene.flows[1], number);
        until("room in the ring", || scene.sender.try_send(&copy));
    }
    until("copies are dropped", || scene.room.switch.drops(2, "egress_full") > 0);
    for number in 0..500 {
        let copy = of_flow(scene.flows[0], number);
        scene.other.send(&copy);
        assert!(scene.receiver.receive() == copy);
    }
}

/// The full ring is stopped, and its flows move to the other one.
#[test]
fn what_waits_for_a_ring_that_goes_leaves_by_another_in_order() {
    let mut scene = Scene::new(",stall=10000");
    let sent = scene.fill_second();
    scene.receiver.stop_second_pair();
    let (mut next, mut numbers) = (sent, Vec::new());
    until("all is there", || {
        while next < sent + 500 && scene.sender.try_send(&of_flow(scene.flows[1], next)) {
            next += 1;
        }
        numbers.extend(scene.receiver.try_receive().iter().map(|frame| number_of(frame)));
        numbers.len() as u32 == sent + 500 - u32::from(RING_SIZE)
    });
    assert!(numbers.iter().copied().eq(u32::from(RING_SIZE)..sent + 500), "{numbers:?}");
    assert!(!has_dropped(&scene.room.switch.ports()));
}
