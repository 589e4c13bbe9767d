//! Engines release all resources.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::io::IoSlice;
use std::sync::{Mutex, PoisonError};

use tapswitch_tap::{Burst, BurstSize, Engine, NetHeader, Outgoing};

mod common;
use common::cable::{Cable, frame, is_ours, kinds, numbered, one_queue};
use common::{Host, can_tap, config, eventually, knows_udp_trains};

#[test]
fn nothing_is_allocated_per_frame() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let _alone = alone();
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        let mut outgoing = Burst::new(BurstSize::spread(60));
        for number in 0..60 {
            let (header, bytes) = if number == 7 { refused() } else { frame(number) };
            assert!(outgoing.push(&header, &[&bytes]));
        }
        let pieces = numbered(99, 60);
        let pieces = pieces.chunks(20).map(IoSlice::new).collect::<Vec<_>>();
        let mut incoming = Burst::new(cable.to.burst_size());
        let mut round = || {
            let sent = cable.from.send(&outgoing).count
                + cable.from.send([Outgoing::new(NetHeader::PLAIN, &pieces)]).count;
            let mut received = 0;
            while cable.to.recv(&mut incoming).unwrap() > 0 {
                incoming.retain(|frame| is_ours(frame.bytes()));
                incoming.iter_mut().for_each(|mut frame| frame.bytes_mut()[13] ^= 1);
                received += incoming.len();
            }
            assert_eq!((sent, received), (60, 60), "{kind:?}");
        };
        (0..5).for_each(|_| round());
        let before = allocations();
        (0..100).for_each(|_| round());
        assert_eq!(allocations() - before, 0, "{kind:?}: in 6000 frames");
    }
    let before = allocations();
    drop(vec![0_u8; 1]);
    assert_eq!(allocations() - before, 1, "the counter counts");
}

#[test]
fn an_engine_that_is_dropped_leaves_no_descriptor_and_no_device() {
    if !can_tap() {
        return;
    }
    let _alone = alone();
    for kind in kinds() {
        let mut host = Host::new();
        let before = descriptors();
        for _ in 0..20 {
            let tap = host.create_up(&config("tap0"));
            let mut engine = Engine::open(one_queue(tap), kind).unwrap();
            let mut burst = Burst::new(engine.burst_size());
            // Frames are queued on both sides when it is closed.
            host.udp(7000).send_to(b"hello", "10.0.0.2:7").unwrap();
            engine.recv(&mut burst).unwrap();
            host.udp(7000).send_to(b"hello", "10.0.0.2:7").unwrap();
            assert!(engine.send(&burst).is_complete());
            drop(engine);
            assert!(host.netlink.link("tap0").is_err(), "{kind:?}: the device is still there");
        }
        eventually("as few descriptors as before", || (descriptors() == before).then_some(()));
    }
}

#[test]
fn a_queue_outlives_its_engine() {
    if !can_tap() {
        return;
    }
    let _alone = alone();
    for kind in kinds() {
        let mut cable = Cable::new(kind, kind);
        let other = Engine::open(cable.from.queue().try_clone().unwrap(), kind).unwrap();
        drop(std::mem::replace(&mut cable.from, other));
        let queue = cable.from.queue().try_clone().unwrap();
        drop(Engine::open(queue, kind).unwrap().into_queue());
        cable.send(&[frame(0)]);
        assert_eq!(cable.receive(), [frame(0)], "{kind:?}");
    }
}

fn refused() -> (NetHeader, Vec<u8>) {
    (NetHeader::PLAIN, vec![0; 13])
}

/// Descriptors are counted per process, so these tests run in sequence.
fn alone() -> impl Drop {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Allocations of this thread so far.
fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// The system's allocator, with a counter per thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system allocator does all the work and fulfils the contract. Counting does not
// allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller fulfils the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller fulfils the contract.
        unsafe { System.realloc(memory, layout, new_len) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}
