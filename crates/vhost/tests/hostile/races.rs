//! Guests that change what we look at while we look, and VMMs that take it away.
//!
//! What must never be is a byte read or written outside of what is shared. The guest's file goes on
//! behind the memory that is shared, and is full of a byte there that is nowhere else.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::pwrite;
use tapswitch_vhost::{Chains, Direction, GuestMemory, Ring, RingFeatures, SessionEnd};

use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest, LEN};
use crate::vmm::{TRANSMIT, Vmm, both_rings, request};
use crate::{attack, reset};

/// What is shared; the rest of the file is not.
const SHARED: u64 = LEN / 2;
const CANARY: u8 = 0xca;

/// A guest whose ring has one buffer, and changes something of it all the time.
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

    /// Writes `values` to `offset` of the guest's file by turns while the buffer is fetched and
    /// used, three hundred times and until it could be and could not be. Each time is a ring of its
    /// own, as if nothing had been fetched before.
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

    /// Reads or writes all of a buffer that was fetched.
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

/// Addresses and lengths of a descriptor, of which some lie outside, in whole or in part.
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

// CVE-2026-93683, CVE-2020-14376: the same of a table, whose length alone was looked at before.
#[test]
fn a_table_that_changes_between_the_look_and_the_use() {
    let end = attack(|| {
        for (packed, direction) in kinds() {
            Race::new(packed, direction, true).run(0x4000, &places());
            // The descriptor that tells the table.
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

/// Flags and links: what is a chain now is a circle, a table, or written the next time.
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

/// Works until the VMM has said all that it says.
fn working(vmm: &mut Vmm, talk: impl FnOnce(&mut Vmm)) {
    let is_done = AtomicBool::new(false);
    let device = vmm.device.clone();
    std::thread::scope(|scope| {
        let _done = SetAtTheEnd(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                crate::vmm::work(&device);
                // The lock is not a fair one: the session gets it while nobody wants it.
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        talk(vmm);
    });
}

/// Even if a test fails, whoever waits for this comes to an end.
struct SetAtTheEnd<'a>(&'a AtomicBool);

impl Drop for SetAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// CVE-2018-1059 and its kin: memory that is unmapped while a worker reads it.
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
                        // The ring is still there, and tells of a buffer that is not.
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

/// Rings that are moved, stopped and started under the worker's hands.
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
