//! Attacks by guests that change what we read while we read it, and by VMMs that remove it.
//!
//! No byte outside of the shared memory may be read or written. The guest's file continues behind
//! the shared memory, and is filled there with a byte that occurs nowhere else.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::pwrite;
use tapswitch_vhost::{Chains, Direction, GuestMemory, Ring, RingFeatures, SessionEnd};

use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest, LEN};
use crate::vmm::{TRANSMIT, Vmm, both_rings, request};
use crate::{attack, reset};

/// Length of the shared part; the rest of the file is not shared.
const SHARED: u64 = LEN / 2;
const CANARY: u8 = 0xca;

/// A guest whose ring has one buffer, part of which is changed continuously.
struct Race {
    guest: Guest,
    driver: Driver,
    memory: Arc<GuestMemory>,
    features: RingFeatures,
    direction: Direction,
}

impl Race {
    fn new(packed: bool, direction: Direction, indirect: bool) -> Self {
        let guest = Guest::new();
        guest.write(SHARED, &vec![CANARY; (LEN - SHARED) as usize]);
        let memory = GuestMemory::new(&[Guest::region(guest.file(), 0, SHARED)]).unwrap();
        let features = RingFeatures { packed, indirect: true, event_index: true };
        let mut driver = Driver::new(8, features);
        let pieces = vec![(BASE + BUFFERS, 72); 2];
        let writable = direction == Direction::Receive;
        driver.offer(&guest, &Buffer { pieces, writable, indirect }).unwrap();
        Self { guest, driver, memory, features, direction }
    }

    /// Writes `values` alternately to `offset` of the guest's file while the buffer is fetched and
    /// used, at least three hundred times and until it was both accepted and refused. Each time
    /// uses a ring of its own, as if nothing had been fetched before.
    fn run<const N: usize>(&self, offset: u64, values: &[[u8; N]]) {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _done = SetAtTheEnd(&is_done);
            scope.spawn(|| {
                for value in values.iter().cycle() {
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                    assert_eq!(pwrite(self.guest.file(), value, offset).unwrap(), N);
                }
            });
            self.look();
        });
        let behind: [u8; (LEN - SHARED) as usize] = self.guest.read(SHARED);
        assert!(behind.iter().all(|byte| *byte == CANARY), "a byte of what is not shared is lost");
    }

    fn look(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut used, mut refused, mut rounds) = (0, 0, 0);
        while rounds < 300 || used == 0 || refused == 0 {
            assert!(Instant::now() < deadline, "{used} used, {refused} refused");
            let (place, base) = (self.driver.place(), self.driver.base());
            let ring = Ring::new(&self.memory, &place, self.features, self.direction, base);
            let mut chains = Chains::default();
            match ring.unwrap().fetch(4, &mut chains) {
                Ok(_) => used += 1,
                Err(_) => refused += 1,
            }
            (0..chains.len()).for_each(|index| self.use_chain(&chains, index));
            rounds += 1;
        }
    }

    /// Reads or writes all of a fetched buffer.
    fn use_chain(&self, chains: &Chains, index: usize) {
        let chain = chains.get(index).unwrap();
        if self.direction == Direction::Receive {
            let written: usize =
                chains.pieces(&chain).map(|piece| piece.write(&vec![1; piece.len()])).sum();
            assert_eq!(written, chain.len());
            return;
        }
        let mut bytes = vec![0; chain.len()];
        assert_eq!(chains.read(&chain, 0, &mut bytes), chain.len(), "as long as it was");
        assert!(!bytes.contains(&CANARY), "a byte of what is not shared");
    }
}

/// Addresses and lengths of a descriptor, some of them outside of memory, in whole or in part.
fn places() -> [[u8; 12]; 4] {
    let places = [
        (BASE + BUFFERS, 72u32),
        (BASE + SHARED - 100, 4000),
        (BASE + SHARED, 72),
        (BASE + SHARED - 100, 100),
    ];
    places.map(|(address, len)| {
        let bytes = [&address.to_le_bytes()[..], &len.to_le_bytes()].concat();
        bytes.try_into().unwrap()
    })
}

fn kinds() -> [(bool, Direction); 4] {
    let [send, receive] = [Direction::Transmit, Direction::Receive];
    [(false, send), (true, send), (false, receive), (true, receive)]
}

// CVE-2026-86565, CVE-2020-14374: a descriptor that is checked once and fetched twice.
#[test]
fn a_descriptor_that_changes_between_the_look_and_the_use() {
    let end = attack(|| {
        for (packed, direction) in kinds() {
            Race::new(packed, direction, false).run(0, &places());
        }
        Vmm::connect(both_rings()[0]).end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

// CVE-2026-93683, CVE-2020-14376: the same for a table, of which only the length was checked.
#[test]
fn a_table_that_changes_between_the_look_and_the_use() {
    let end = attack(|| {
        for (packed, direction) in kinds() {
            Race::new(packed, direction, true).run(0x4000, &places());
            // The descriptor of the table.
            let tables = [(BASE + 0x4000, 32u32), (BASE + SHARED - 16, 32), (BASE + SHARED, 16)];
            let tables = tables.map(|(address, len)| {
                let bytes = [&address.to_le_bytes()[..], &len.to_le_bytes()].concat();
                <[u8; 12]>::try_from(bytes).unwrap()
            });
            Race::new(packed, direction, true).run(0, &tables);
        }
        Vmm::connect(both_rings()[0]).end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

/// Flags and links: a chain becomes a circle, a table, or writable at the next access.
#[test]
fn links_that_change_while_they_are_followed() {
    let end = attack(|| {
        for (packed, direction) in kinds() {
            let write = if direction == Direction::Receive { 2u16 } else { 0 };
            let turn = if packed { 0x80 } else { 0 };
            let flags = [0, 1, 4, 5, 2].map(|flags| (flags ^ write | turn).to_le_bytes());
            let at = if packed { 14 } else { 12 };
            Race::new(packed, direction, false).run(at, &flags);
        }
        let heads = [0u16, 7, 8, 0xffff].map(u16::to_le_bytes);
        Race::new(false, Direction::Transmit, false).run(0x1004, &heads);
        let indices = [1u16, 9, 0x8000, 0].map(u16::to_le_bytes);
        Race::new(false, Direction::Transmit, false).run(0x1002, &indices);
        Vmm::connect(both_rings()[0]).end()
    });
    assert_eq!(end, SessionEnd::Closed);
}

/// Processes frames until the VMM has sent all its messages.
fn working(vmm: &mut Vmm, talk: impl FnOnce(&mut Vmm)) {
    let is_done = AtomicBool::new(false);
    let device = vmm.device.clone();
    std::thread::scope(|scope| {
        let _done = SetAtTheEnd(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                crate::vmm::work(&device);
                // The lock is not fair: the session gets it while nobody else wants it.
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        talk(vmm);
    });
}

/// Sets the flag on drop, so that waiting threads end even if a test fails.
struct SetAtTheEnd<'a>(&'a AtomicBool);

impl Drop for SetAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// CVE-2018-1059 and similar: memory that is unmapped while a worker reads it.
#[test]
fn memory_that_is_exchanged_while_frames_are_read() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            working(&mut vmm, |vmm| {
                for turn in 0..64 {
                    vmm.try_transmit(1);
                    let len = if turn % 2 == 0 { LEN } else { SHARED };
                    vmm.share(&[[BASE, len, 2 * BASE, 0]]);
                    vmm.driver.reap(&vmm.guest);
                    if turn % 8 == 7 {
                        vmm.settle();
                    }
                }
                vmm.settle();
            });
            vmm.work();
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}

#[test]
fn memory_that_is_cut_short_while_frames_are_read() {
    for features in both_rings() {
        for round in 0..9 {
            let why = reset(|| {
                let mut vmm = Vmm::start(features, TRANSMIT);
                working(&mut vmm, |vmm| {
                    for turn in 0..5 {
                        vmm.try_transmit(1);
                        std::thread::sleep(Duration::from_micros(10 * round * turn));
                        vmm.driver.reap(&vmm.guest);
                    }
                    let len = BUFFERS / 2 * (round % 3);
                    rustix::fs::ftruncate(vmm.guest.file(), len).unwrap();
                    if len > 0 {
                        // The ring is still there, and contains a buffer that is not.
                        vmm.driver.reap(&vmm.guest);
                        vmm.driver.offer(&vmm.guest, &Buffer::to_read(BASE + BUFFERS, 72));
                    }
                });
                vmm.work();
                vmm.work();
                vmm.ended()
            });
            assert_eq!(why, "queue 1: shared memory has been removed");
        }
    }
}

/// Rings that are moved, stopped and started while a worker uses them.
#[test]
fn rings_that_are_moved_while_frames_are_read() {
    for features in both_rings() {
        let end = attack(|| {
            let mut vmm = Vmm::start(features, TRANSMIT);
            let place = vmm.driver.place();
            let index = u64::from(TRANSMIT).to_le_bytes();
            working(&mut vmm, |vmm| {
                for turn in 0..100u32 {
                    if turn % 4 == 0 {
                        vmm.try_transmit(1);
                    }
                    let addresses = [place.descriptors, place.device, place.driver];
                    vmm.set_addresses(TRANSMIT, addresses);
                    let (call, kick) = (vmm.call.as_raw_fd(), vmm.kick.as_raw_fd());
                    vmm.send(request::SET_VRING_CALL, &index, &[call]);
                    vmm.send(request::SET_VRING_KICK, &index, &[kick]);
                    let is_enabled = crate::vmm::pair(TRANSMIT, turn % 2);
                    vmm.send(request::SET_VRING_ENABLE, &is_enabled, &[]);
                    vmm.driver.reap(&vmm.guest);
                }
                vmm.settle();
            });
            vmm.work();
            vmm.end()
        });
        assert_eq!(end, SessionEnd::Closed);
    }
}
