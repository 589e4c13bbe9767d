//! Tests of back ends that are killed, and of their successors.

use std::collections::VecDeque;

use super::*;
use crate::chain::Chains;
use crate::features::Features;
use crate::features::NET_HEADER_LEN;
use crate::net::{Part, Undelivered};
use crate::queue::Running;
use crate::ring::descriptor::kill;
use crate::ring::packed::PackedRing;
use crate::ring::{Direction, Ring, RingPlace, Walk};
use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest};

/// The base that QEMU reports for a ring whose back end is gone: its start.
const STALE: u32 = 0x8000_8000;

fn features() -> Features {
    Features::VERSION_1 | Features::MRG_RXBUF | Features::RING_PACKED | Features::INDIRECT_DESC
}

/// A guest with a packed ring, and the buffers that it has offered and not got back.
struct Peer {
    guest: Guest,
    driver: Driver,
    direction: Direction,
    lent: VecDeque<u16>,
    offered: usize,
    returned: usize,
}

impl Peer {
    fn new(size: u16, direction: Direction) -> Self {
        let driver = Driver::new(size, features().ring());
        let (lent, offered, returned) = (VecDeque::new(), 0, 0);
        Self { guest: Guest::new(), driver, direction, lent, offered, returned }
    }

    /// A back end that was told the ring's start.
    fn back_end(&self) -> Running {
        let (place, memory) = (self.driver.place(), &self.guest.memory);
        let ring = Ring::new(memory, &place, features().ring(), self.direction, STALE).unwrap();
        Running::new(ring, features(), None, None)
    }

    fn offer(&mut self, buffer: &Buffer) -> bool {
        let Some(id) = self.driver.offer(&self.guest, buffer) else { return false };
        self.lent.push_back(id);
        self.offered += 1;
        true
    }

    /// Checks that buffers come back in the order in which they were offered. Returns the bytes
    /// written to each.
    fn reap(&mut self) -> Vec<u32> {
        let reaped = self.driver.reap(&self.guest);
        self.returned += reaped.len();
        let check = |(id, written)| {
            assert_eq!(self.lent.pop_front(), Some(id));
            written
        };
        reaped.into_iter().map(check).collect()
    }

    /// Offers up to `count` buffers to be read, of one to three descriptors or a table; the length
    /// of the first piece identifies the buffer.
    fn send(&mut self, count: usize) {
        for _ in 0..count {
            let first = (BASE + BUFFERS, self.offered as u32 + 1);
            let more = [(BASE + BUFFERS, 1000); 2];
            let pieces = [&[first], &more[..self.offered % 3]].concat();
            let buffer = Buffer { pieces, writable: false, indirect: self.offered % 5 == 4 };
            self.offer(&buffer);
        }
    }
}

/// Fetches up to `count` buffers, uses and gives back up to `used` of them, and returns which.
fn burst(running: &mut Running, count: usize, used: usize) -> Vec<usize> {
    running.fetch(count).unwrap();
    let mut seen = Vec::new();
    while let Some(chain) = running.peek(0).filter(|_| seen.len() < used) {
        seen.push(running.chains().pieces(&chain).next().unwrap().len() - 1);
        running.complete(0);
    }
    running.publish();
    seen
}

#[test]
fn whenever_a_back_end_is_killed_the_next_one_goes_on_in_order() {
    for size in [3, 4, 5, 8] {
        for stores in 0..50 {
            let mut guest = Peer::new(size, Direction::Transmit);
            let mut first = guest.back_end();
            kill::after(stores);
            for turn in 0..30 {
                guest.send(1 + turn % 4);
                burst(&mut first, 1 + turn % 3, 1 + turn % 2);
                guest.reap();
            }
            kill::after(u32::MAX);
            drop(first);
            let (mut second, mut seen, start) = (guest.back_end(), Vec::new(), guest.returned);
            for _ in 0..9 {
                seen.extend(burst(&mut second, 4, 4));
                guest.reap();
                guest.send(2);
            }
            let expected: Vec<_> = (start..start + seen.len()).collect();
            assert_eq!(seen, expected, "{size} descriptors, killed after {stores} stores");
            assert!(seen.len() > usize::from(size) && guest.returned == start + seen.len());
        }
    }
}

/// A guest continues while its back end is away and while the next one searches its position.
#[test]
fn a_driver_that_goes_on_meanwhile_hides_no_place() {
    for size in [3, 4, 5, 8, 16] {
        for used in 0..3 * usize::from(size) {
            let mut guest = Peer::new(size, Direction::Transmit);
            let (mut other, mut at) = (guest.back_end(), Place::new(0, true));
            for number in 0..used {
                guest.send(1);
                let slots = if number % 5 == 4 { 1 } else { 1 + number as u16 % 3 };
                at = at.forward(slots, size);
                assert_eq!(burst(&mut other, 1, 1), [number]);
                guest.reap();
            }
            let tables = Tables::find(&guest.guest.memory, &guest.driver.place()).unwrap();
            let mut reads = 0;
            let looked_at = Flags::settled(size, |index| {
                reads += 1;
                if reads % 2 == 1 {
                    guest.send(1);
                }
                tables.descriptor(index).fourth()
            });
            assert!(looked_at.fits(at, Allowed::Nothing), "{size} descriptors, {used} used");
            assert_eq!(looked_at.find(Allowed::Nothing), Some(at), "{size}, {used} used");
        }
    }
}

#[test]
fn a_chain_that_a_driver_is_at_hides_no_place() {
    for (size, waiting) in [(4, 0), (8, 0), (8, 1), (8, 3), (16, 7)] {
        for used in 0..2 * size {
            let mut guest = Peer::new(size, Direction::Transmit);
            let (mut other, mut at) = (guest.back_end(), Place::new(0, true));
            let one = Buffer::to_read(BASE + BUFFERS, 1);
            for _ in 0..used {
                assert!(guest.offer(&one));
                burst(&mut other, 1, 1);
                guest.reap();
                at = at.forward(1, size);
            }
            (0..waiting).for_each(|_| assert!(guest.offer(&one)));
            let head = 16 * u64::from(at.forward(waiting, size).index()) + 14;
            let before = guest.guest.read_u16(head);
            let pieces = vec![(BASE + BUFFERS, 1); 3];
            assert!(guest.offer(&Buffer { pieces, writable: false, indirect: false }));
            guest.guest.write_u16(head, before);
            let tables = Tables::find(&guest.guest.memory, &guest.driver.place()).unwrap();
            assert_eq!(place(&tables, size, Place::new(0, true)), at, "{size}, {waiting}, {used}");
        }
    }
}

/// A guest may write for ever.
#[test]
fn a_ring_that_never_settles_keeps_nobody() {
    let mut reads = 0;
    let looked_at = Flags::settled(4096, |_| {
        reads += 1;
        (reads % 7) as u16
    });
    assert!(looked_at.flags.len() == 4096 && reads <= LOADS_MAX + 4096, "{reads} reads");
}

/// Sends the guest frame `number`, which its bytes and length identify.
fn deliver(running: &mut Running, number: usize) -> Result<(), Undelivered> {
    let frame = vec![number as u8; frame_len(number)];
    running.deliver([0; NET_HEADER_LEN], frame.len(), [Part::Ours(&frame)].into_iter())
}

/// From less than a buffer to four of them, some of them filled to the last byte.
fn frame_len(number: usize) -> usize {
    [10, 88, 89, 188, 250, 380, 388][number % 7]
}

impl Peer {
    /// Offers as many buffers of 100 bytes as the ring holds, each at an address of its own.
    fn refill(&mut self) {
        let place = |number: usize| BUFFERS + (number % 64) as u64 * 0x100;
        let buffer = |number| Buffer {
            pieces: vec![(BASE + place(number), 60), (BASE + place(number) + 60, 40)],
            writable: true,
            indirect: number % 3 == 0,
        };
        while self.offer(&buffer(self.offered)) {}
    }

    /// The numbers of the frames that have arrived, each of which must be complete.
    fn receive(&mut self) -> Vec<usize> {
        let first = self.returned;
        let written = self.reap();
        let read = |(number, written): (usize, &u32)| {
            let bytes: [u8; 100] = self.guest.read(BUFFERS + (number % 64) as u64 * 0x100);
            bytes[..*written as usize].to_vec()
        };
        let mut buffers = (first..).zip(&written).map(read);
        let mut frames = Vec::new();
        while let Some(mut frame) = buffers.next() {
            for _ in 1..u16::from_le_bytes([frame[10], frame[11]]) {
                frame.extend(buffers.next().expect("all of a frame's buffers at once"));
            }
            let number = usize::from(frame[12]);
            assert_eq!(frame[12..], vec![number as u8; frame_len(number)]);
            frames.push(number);
        }
        frames
    }
}

#[test]
fn whenever_a_back_end_is_killed_no_frame_is_cut_in_two() {
    for size in [8, 13, 16] {
        for stores in 0..60 {
            let mut guest = Peer::new(size, Direction::Receive);
            guest.refill();
            let mut first = guest.back_end();
            kill::after(stores);
            let (mut next, mut seen) = (0, Vec::new());
            for turn in 0..14 {
                while next < 3 * turn && deliver(&mut first, next).is_ok() {
                    next += 1;
                }
                first.publish();
                // Unless the device is dead, the guest checks its ring.
                seen.extend(guest.receive());
                guest.refill();
            }
            kill::after(u32::MAX);
            let mut second = guest.back_end();
            seen.extend(guest.receive());
            let arrived = seen.len();
            assert_eq!(seen, (0..arrived).collect::<Vec<_>>());
            for number in arrived..arrived + 20 {
                guest.refill();
                assert_eq!(deliver(&mut second, number), Ok(()), "killed after {stores} stores");
                second.publish();
                assert_eq!(guest.receive(), [number]);
            }
        }
    }
}

/// Creates a ring of 4096 descriptors in which all but the last `used` ones are available, each of
/// them a table of 1024 buffers of one byte, and the table at `spoiled` outside of memory. Returns
/// the pieces of the last fetch, the capacity for pieces, and the ring's position.
fn started_with_tables(direction: Direction, used: u64, spoiled: u64) -> (usize, usize, u32) {
    let (guest, size) = (Guest::new(), 4096);
    let (ring_at, table_at) = (0x1_0000, 0x3_0000);
    let write = u16::from(direction == Direction::Receive) << 1;
    let descriptor = |address: u64, len: u32, id: u16, flags: u16| {
        let rest = [&len.to_le_bytes()[..], &id.to_le_bytes(), &flags.to_le_bytes()].concat();
        [&address.to_le_bytes()[..], &rest].concat()
    };
    guest.write(table_at, &descriptor(BASE + BUFFERS, 1, 0, write).repeat(1024));
    for slot in 0..u64::from(size) {
        // AVAIL and INDIRECT in the first turn, or USED and AVAIL.
        let flags = if slot < u64::from(size) - used { 0x84 } else { 0x8080 };
        let table = if slot == spoiled { 0 } else { BASE + table_at };
        let bytes = descriptor(table, 16 * 1024, slot as u16, flags);
        guest.write(ring_at + 16 * slot, &bytes);
    }
    let base = 2 * BASE;
    let (driver, device) = (base + 0x1000, base + 0x2000);
    let place = RingPlace { size, descriptors: base + ring_at, driver, device };
    let mut ring = PackedRing::new(&guest.memory, &place, features().ring(), STALE).unwrap();
    let mut chains = Chains::of(&guest.memory);
    ring.finish(Walk { memory: &guest.memory, direction }, &mut chains);
    let (pieces, room) = chains.pieces_and_room();
    (pieces, room, ring.base())
}

/// Available buffers are fetched when they are used, not to find a ring's position: a ring of
/// 32,768 tables is half a gigabyte of pieces.
#[test]
fn a_ring_full_of_tables_is_not_fetched_when_it_is_started() {
    let none = u64::MAX;
    for direction in [Direction::Transmit, Direction::Receive] {
        assert_eq!(started_with_tables(direction, 0, none), (0, 0, STALE), "nothing is used");
    }
    assert_eq!(started_with_tables(Direction::Transmit, 1, none), (0, 0, STALE));
}

/// The same for a guest that makes its ring look as if a frame had been given back in part.
#[test]
fn what_is_left_of_a_frame_is_fetched_one_by_one() {
    let (pieces, room, base) = started_with_tables(Direction::Receive, 1, u64::MAX);
    assert!(pieces == 0 && room <= 2048, "{pieces} pieces, room for {room}");
    assert_eq!(base, 0, "all was given back, as it looked");
    let (_, room, base) = started_with_tables(Direction::Receive, 1, 4094);
    assert!(room <= 2048, "room for {room}");
    assert_eq!(base, STALE, "nothing is given back, and the fault is for whoever comes to it");
}

/// A guest that was served by another back end, which leaves the descriptors behind the first of a
/// chain unchanged, for `count` buffers; and the ring's position then.
fn served_by_another(size: u16, count: usize) -> (Peer, Place) {
    let mut guest = Peer::new(size, Direction::Transmit);
    let (mut other, mut at) = (guest.back_end(), Place::new(0, true));
    for number in 0..count {
        guest.send(1);
        let slots = if number % 5 == 4 { 1 } else { 1 + number as u16 % 3 };
        let behind = (1..slots).map(|slot| 16 * u64::from(at.forward(slot, size).index()) + 14);
        let before: Vec<_> = behind.map(|flags| (flags, guest.guest.read_u16(flags))).collect();
        assert_eq!(burst(&mut other, 1, 1), [number]);
        before.iter().for_each(|(flags, value)| guest.guest.write_u16(*flags, *value));
        guest.reap();
        at = at.forward(slots, size);
    }
    (guest, at)
}

#[test]
fn another_back_ends_word_is_taken_for_where_it_stopped() {
    let start = Place::new(0, true);
    for size in [4, 5, 8] {
        for count in 0..40 {
            let (mut guest, at) = served_by_another(size, count);
            if count > 0 && at == start {
                // This may also be the base of a front end that does not know the position.
                continue;
            }
            let (place, memory) = (guest.driver.place(), &guest.guest.memory);
            let (ring, base) = (features().ring(), u32::from(at.to_bits()));
            let ring = Ring::new(memory, &place, ring, guest.direction, base).unwrap();
            let mut running = Running::new(ring, features(), None, None);
            guest.send(1);
            assert_eq!(burst(&mut running, 4, 4), [count], "{size} descriptors");
            guest.reap();
            assert_eq!(guest.returned, count + 1);
        }
    }
}

#[test]
fn a_place_is_believed_when_nothing_fits() {
    let guest = Peer::new(8, Direction::Transmit);
    // Available and used alternately: no device was ever there.
    (0..8)
        .for_each(|slot| guest.guest.write_u16(16 * slot + 14, [0x80, 0x8080][slot as usize % 2]));
    let (place, memory) = (guest.driver.place(), &guest.guest.memory);
    let ring = Ring::new(memory, &place, features().ring(), guest.direction, 3).unwrap();
    assert_eq!(ring.base(), 0x0003_0003);
}
