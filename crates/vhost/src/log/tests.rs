//! Tests of the bits that are set in the dirty log.

use rustix::fs::MemfdFlags;

use super::*;
use crate::ring::wakeup::model::{Location, Model, Op};
use crate::ring::{Direction, Ring};
use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest, LEN};
use crate::{Features, Part, Running};

/// A log, and the file through which the VMM sees it.
fn map(len: u64) -> (Arc<DirtyLog>, OwnedFd) {
    let file = rustix::fs::memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, len).unwrap();
    (DirtyLog::new(&file, 0, len).unwrap(), file)
}

/// The logged pages, whose bits are cleared.
fn take_pages(file: &OwnedFd) -> Vec<u64> {
    let mut bytes = [0; 128];
    let len = rustix::io::pread(file, &mut bytes, 0).unwrap();
    rustix::io::pwrite(file, &vec![0; len], 0).unwrap();
    let pages = (0..8 * len).filter(|page| bytes[page / 8] & 1 << (page % 8) != 0);
    pages.map(|page| page as u64).collect()
}

#[test]
fn each_page_that_is_touched_is_noted() {
    let (log, file) = map(16);
    log.note(0, 1);
    log.note(4096 * 9 - 1, 2);
    assert_eq!(take_pages(&file), [0, 8, 9]);
    log.note(4096 * 5, 4096 * 10);
    assert_eq!(take_pages(&file), (5..15).collect::<Vec<_>>());
    log.note(4096 * 3, 0);
    assert_eq!(take_pages(&file), [0; 0]);
}

#[test]
fn of_each_page_there_is_one_bit() {
    let (log, file) = map(16);
    for first in 0..20 {
        for count in 1..20 {
            log.note(4096 * first + 5, 4096 * count - 9);
            assert_eq!(take_pages(&file), (first..first + count).collect::<Vec<_>>());
        }
    }
}

/// How a page is logged whose bit is probably set already.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noting {
    Always,
    IfItIsNot,
    IfItIsNotBehindAFence,
}

/// A device that writes a page, logs it and stops, and a VMM that clears bits and copies pages
/// while the device runs, and once more when it has stopped. The VMM sleeps for ever if its copy is
/// not what was written. `fences` is whether it has a fence before the copy.
fn copying(noting: Noting, fences: bool) -> Model {
    const MAP: Location = 0;
    const PAGE: Location = 1;
    const NOTED: usize = 0;
    const COPY: usize = 1;
    let (note, look) = (
        |value| Op::Exchange { at: |_| MAP, to: NOTED, value },
        |from, to| Op::Load { from, to, is_acquire: false },
    );
    let mut device = vec![Op::Store { to: |_| PAGE, value: |_| 1, is_release: false }];
    if noting == Noting::IfItIsNotBehindAFence {
        device.push(Op::Fence);
    }
    if noting != Noting::Always {
        device.push(look(|_| MAP, NOTED));
        device.push(Op::Jump { when: |r| r[NOTED] == 1, to: device.len() + 2 });
    }
    device.extend([note(|_| 1), Op::Notify]);
    let mut vmm = Vec::new();
    for is_stopped in [false, true] {
        if is_stopped {
            vmm.push(Op::Sleep);
        }
        vmm.push(note(|_| 0));
        if fences {
            vmm.push(Op::Fence);
        }
        let behind = vmm.len() + 2;
        vmm.push(Op::Jump { when: |r| r[NOTED] == 0, to: behind });
        vmm.push(look(|_| PAGE, COPY));
    }
    let end = vmm.len() + 2;
    vmm.extend([Op::Jump { when: |r| r[COPY] == 1, to: end }, Op::Sleep]);
    // The page has been logged before.
    Model { programs: [device, vmm], registers: [[0; 6]; 2], memory: [1, 0, 0, 0, 0, 0] }
}

#[test]
fn what_is_written_is_copied_at_last() {
    for fences in [false, true] {
        assert_eq!(copying(Noting::Always, fences).explore().stuck, None);
        assert_ne!(copying(Noting::IfItIsNot, fences).explore().stuck, None);
    }
    // It would work if the VMM had a fence, too, as on x86, where an exchange is one.
    assert_ne!(copying(Noting::IfItIsNotBehindAFence, false).explore().stuck, None);
    assert_eq!(copying(Noting::IfItIsNotBehindAFence, true).explore().stuck, None);
}

#[test]
fn pages_beyond_the_map_are_nobodys() {
    let (log, file) = map(2);
    log.note(4096 * 15, 4096 * 8);
    log.note(u64::MAX, 1);
    log.note(u64::MAX, 2);
    assert_eq!(take_pages(&file), [15]);
}

#[test]
fn a_map_that_is_cut_short_ends_nothing() {
    let (log, file) = map(4096);
    rustix::fs::ftruncate(&file, 0).unwrap();
    log.note(0, 4096 * 100);
    rustix::fs::ftruncate(&file, 4096).unwrap();
    assert_eq!(take_pages(&file), [0; 0], "bits went to a page of our own");
}

#[test]
fn what_is_no_map_is_refused() {
    let (_, file) = map(4096);
    let error =
        |file: &OwnedFd, offset, len| DirtyLog::new(file, offset, len).unwrap_err().to_string();
    for (offset, len) in [(0, 0), (u64::MAX, 1), (0, u64::MAX)] {
        assert!(error(&file, offset, len).contains("log of written pages: "), "{offset} {len}");
    }
    assert!(error(&file, 1, 4096).contains("4096 bytes, the region ends at 4097"));
    let slow = OwnedFd::from(std::fs::File::open("/proc/version").unwrap());
    assert!(error(&slow, 0, 1).contains("neither a memfd nor on tmpfs"));
}

fn kinds() -> [Features; 3] {
    [Features::empty(), Features::EVENT_IDX, Features::RING_PACKED]
        .map(|kind| kind | Features::VERSION_1)
}

/// A ring with logging of all writes, and `count` buffers of 6,000 bytes two pages apart.
fn running(features: Features, direction: Direction, buffers: bool) -> (Guest, Running, OwnedFd) {
    let (guest, (log, file)) = (Guest::new(), map(128));
    let mut driver = Driver::new(4, features.ring());
    for number in 0..2 {
        let pieces = vec![(BASE + BUFFERS + 0x4000 * number, 6000)];
        let writable = direction == Direction::Receive;
        driver.offer(&guest, &Buffer { pieces, writable, indirect: false }).unwrap();
    }
    let (place, ring) = (driver.place(), features.ring());
    let made = Ring::new(&guest.memory, &place, ring, direction, driver.base()).unwrap();
    let mut running = Running::new(made, features, None, None);
    running.log_to(RingLog::new(log, &guest.memory, &place, ring, buffers));
    (guest, running, file)
}

/// The pages of the parts of a ring that a device writes: see `test_guest`.
fn ring_pages(features: Features) -> Vec<u64> {
    let device = (BASE + 0x2000) / PAGE_LEN;
    if features.contains(Features::RING_PACKED) {
        vec![BASE / PAGE_LEN, device]
    } else {
        vec![device]
    }
}

fn buffer_page(number: u64, page: u64) -> u64 {
    (BASE + BUFFERS + 0x4000 * number) / PAGE_LEN + page
}

#[test]
fn what_a_guest_receives_is_noted_as_far_as_it_was_written() {
    for features in kinds() {
        let (_guest, mut running, file) = running(features, Direction::Receive, true);
        let ring = ring_pages(features);
        assert_eq!(take_pages(&file), ring, "what was written when the ring was made");
        for (number, len) in [(0, 100), (1, 5000)] {
            let frame = vec![7; len];
            running.deliver([0; 12], len, [Part::Ours(&frame)].into_iter()).unwrap();
            let last = (len as u64 + 12) / PAGE_LEN;
            let buffer = (0..=last).map(|page| buffer_page(number, page));
            let mut expected: Vec<_> = ring.iter().copied().chain(buffer).collect();
            expected.sort_unstable();
            running.publish();
            assert_eq!(take_pages(&file), expected, "{features:?}");
        }
    }
}

#[test]
fn a_buffer_that_was_read_is_not_noted() {
    for features in kinds() {
        let (_guest, mut running, file) = running(features, Direction::Transmit, true);
        take_pages(&file);
        assert!(running.fetch_at_least(2).unwrap());
        running.complete(0);
        assert_eq!(take_pages(&file), [0; 0]);
        running.publish();
        assert_eq!(take_pages(&file), ring_pages(features));
    }
}

#[test]
fn wishes_for_notifications_are_noted() {
    for features in kinds() {
        let (_guest, mut running, file) = running(features, Direction::Transmit, true);
        take_pages(&file);
        running.arm();
        assert_eq!(take_pages(&file), ring_pages(features));
        running.disarm();
        assert_eq!(take_pages(&file), ring_pages(features));
    }
}

#[test]
fn a_ring_may_be_noted_without_its_buffers() {
    let features = Features::VERSION_1;
    let (_guest, mut running, file) = running(features, Direction::Receive, false);
    take_pages(&file);
    running.deliver([0; 12], 60, [Part::Ours(&[7; 60])].into_iter()).unwrap();
    assert_eq!(take_pages(&file), [0; 0]);
    running.publish();
    assert_eq!(take_pages(&file), ring_pages(features));
}

#[test]
fn addresses_are_those_of_each_region() {
    let guest = Guest::new();
    let halves = [LEN / 2, 0].map(|offset| Guest::region(guest.file(), offset, LEN / 2));
    let memory = GuestMemory::new(&halves).unwrap();
    for offset in [0, 0x123, LEN / 2 - 1, LEN / 2, LEN - 1] {
        let bytes = memory.find_user(2 * BASE + offset, 1).unwrap();
        assert_eq!(memory.guest_address(bytes), Some(BASE + offset));
    }
    let elsewhere = guest.memory.find(BASE, 1).unwrap();
    assert_eq!(memory.guest_address(elsewhere), None);
}
