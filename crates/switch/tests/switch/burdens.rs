//! Guests whose buffers are as expensive as possible, and others on the same worker, which are
//! hardly affected.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::pressure::tcp_train;
use crate::vm::*;
use tapswitch_vhost::Features;
use tapswitch_wire::{MacAddr, NetHeader};

/// The features of guests 1 and 2: TCP trains.
fn with_trains() -> Features {
    split() | Features::CSUM | Features::HOST_TSO4 | Features::GUEST_CSUM | Features::GUEST_TSO4
}

/// A switch with one worker, where guest 1 sends to 2, and 3 to 4.
fn room() -> Room {
    let room = Room::new(4, "");
    room.switch.controller().apply([join(1, 2), join(3, 4)].concat());
    assert_eq!(room.switch.workers().len(), 1);
    room
}

/// A guest behind port 2 whose buffers are tables with `len` bytes per entry, in the last of very
/// many regions of memory.
fn burden(room: &Room, len: u32) -> Vm {
    let mut vm = Vm::connect(&room.socket(2), with_trains());
    vm.start_rings();
    vm.shred_memory();
    vm.offer_tables(SHREDS + SHREDDED - 64, len);
    until("the port is up", || room.switch.port(2).state == "up");
    vm
}

/// The median time of a frame from guest 3 to guest 4, while guest 1 continuously sends this frame
/// to guest 2, `burden`, which recycles its buffers at once.
fn median_beside(room: &Room, burden: &Vm, (header, bytes): (NetHeader, Vec<u8>)) -> Duration {
    let mut flooder = room.guest(1, with_trains());
    let len = flooder.write_first(&header, &bytes);
    let (mut from, mut to) = (room.guest(3, split()), room.guest(4, split()));
    // The deadline is for a test that fails.
    let (ends, deadline) = (AtomicBool::new(false), Instant::now() + 2 * PATIENCE);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) && Instant::now() < deadline {
                flooder.try_send_first(len);
                burden.offer_tables_again();
            }
        });
        let mut times: Vec<_> = (0..PINGS).map(|_| time_of(&mut from, &mut to)).collect();
        ends.store(true, Ordering::Relaxed);
        times.sort();
        times[PINGS / 2]
    })
}

/// The latency of a frame.
fn time_of(from: &mut Vm, to: &mut Vm) -> Duration {
    thread::sleep(Duration::from_millis(2));
    let begin = Instant::now();
    from.send(&small());
    to.receive();
    begin.elapsed()
}

fn small() -> Vec<u8> {
    frame(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]), &[], 60)
}

#[test]
fn buffers_over_very_many_regions_end_their_guests_session() {
    let room = room();
    let vm = burden(&room, 64);
    vm.offer_tables(SHREDS, u32::try_from(SHREDDED).unwrap());
    let time = median_beside(&room, &vm, (NetHeader::PLAIN, small()));
    assert!(time < SOON, "{time:?}");
    until("the guest is cut off", || room.report(2).resets > 0);
    let why = room.report(2).last_reset.unwrap();
    assert!(why.contains("more than 1024 pieces"), "{why}");
}

#[test]
fn buffers_in_very_many_pieces_hold_up_their_guest_alone() {
    for (len, bytes) in [(1, 60), (1, 32_000), (2, 32_000), (8, 32_000)] {
        let room = room();
        let vm = burden(&room, len);
        let frame = match bytes {
            60 => (NetHeader::PLAIN, small()),
            _ => tcp_train(bytes, 1448),
        };
        let time = median_beside(&room, &vm, frame);
        assert!(time < SOON, "{len} {bytes}: {time:?}");
        assert_eq!(room.report(2).resets, 0);
        // With pieces of one byte, not even a packet of a train fits the limit of pieces.
        let is_refused = (len, bytes) == (1, 32_000);
        assert_eq!(vm.offer_tables_again() == 0, is_refused, "{len} {bytes}");
        assert_eq!(room.switch.drops(2, "egress_rejected") > 0, is_refused, "{len} {bytes}");
    }
}

const PINGS: usize = 31;
/// Also on a machine that has other work.
const SOON: Duration = Duration::from_millis(20);
