//! Exhaustive test of small rings: for everything that a guest can write into one, the walk along
//! its descriptors ends, finds what a simple reference finds, and refuses what that refuses, for
//! the same reason.
//!
//! The reference examines one byte after the other and does not deal with pieces, mappings of
//! regions or wrap-around; both see the same memory of about 2 KiB in two regions, which are
//! adjacent for the guest, but not in the file.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests"
)]

use std::sync::Arc;

use rustix::fs::MemfdFlags;
use tapswitch_vhost::{
    Chains, Direction, GuestMemory, RegionSpec, Ring, RingError, RingFeatures, RingPlace,
};

/// The content of a guest's memory, and the same bytes shared.
struct World {
    memory: Arc<GuestMemory>,
    /// Indexed by offset in the file.
    image: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, FILE_LEN as u64).unwrap();
        let region = |guest_address, offset, len| RegionSpec {
            guest_address,
            user_address: guest_address + USER,
            len,
            offset,
            file: file.try_clone().unwrap(),
        };
        let regions = [region(BASE, 0, FIRST), region(BASE + FIRST, SECOND_AT, SECOND)];
        let memory = GuestMemory::new(&regions).unwrap();
        let mut world = Self { memory, image: vec![0; FILE_LEN] };
        // Bytes that depend on their offset.
        let pattern: Vec<u8> = (0..FIRST + SECOND).map(|at| (at ^ at >> 8) as u8 | 1).collect();
        world.put(BASE, &pattern);
        world
    }

    /// Offset of a byte in the file, if it is shared.
    fn offset(address: u64) -> Option<usize> {
        match address.checked_sub(BASE)? {
            at if at < FIRST => Some(at as usize),
            at if at < FIRST + SECOND => Some((at - FIRST + SECOND_AT) as usize),
            _ => None,
        }
    }

    /// Writes to guest address `address`.
    fn put(&mut self, address: u64, bytes: &[u8]) {
        for (address, byte) in (address..).zip(bytes) {
            self.image[Self::offset(address).unwrap()] = *byte;
            self.memory.find(address, 1).unwrap().write(&[*byte]);
        }
    }

    fn put_descriptor(&mut self, address: u64, descriptor: &Descriptor) {
        let offset = Self::offset(address).unwrap();
        let bytes = descriptor.encode();
        self.image[offset..offset + 16].copy_from_slice(&bytes);
        self.memory.find(address, 16).unwrap().write(&bytes);
    }

    fn u16_at(&self, address: u64) -> u16 {
        let offset = Self::offset(address).unwrap();
        u16::from_le_bytes([self.image[offset], self.image[offset + 1]])
    }

    fn descriptor_at(&self, address: u64) -> Descriptor {
        let offset = Self::offset(address).unwrap();
        Descriptor::decode(self.image[offset..offset + 16].try_into().unwrap())
    }

    /// Updates the image with what the device has written.
    fn refresh(&mut self, address: u64, len: u64) {
        let offset = Self::offset(address).unwrap();
        let bytes = &mut self.image[offset..offset + len as usize];
        self.memory.find(address, len).unwrap().read(bytes);
    }
}

/// A descriptor as the driver writes it: flags are third in split rings and tables, fourth in
/// packed rings.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Descriptor {
    address: u64,
    len: u32,
    third: u16,
    fourth: u16,
}

impl Descriptor {
    fn encode(&self) -> [u8; 16] {
        let words = u128::from(self.address)
            | u128::from(self.len) << 64
            | u128::from(self.third) << 96
            | u128::from(self.fourth) << 112;
        words.to_le_bytes()
    }

    fn decode(bytes: [u8; 16]) -> Self {
        let words = u128::from_le_bytes(bytes);
        Self {
            address: words as u64,
            len: (words >> 64) as u32,
            third: (words >> 96) as u16,
            fourth: (words >> 112) as u16,
        }
    }
}

/// The bytes of a buffer, and the number of descriptors it occupies.
type Found = Result<(Vec<u8>, u16), RingError>;

/// The reference: the simplest possible walk.
struct Reference<'w> {
    world: &'w World,
    size: u16,
    direction: Direction,
    indirect: bool,
}

impl Reference<'_> {
    /// Appends the bytes of one buffer.
    fn buffer(
        &self,
        descriptor: &Descriptor,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<(), RingError> {
        if (flags & WRITE != 0) != (self.direction == Direction::Receive) {
            return Err(RingError::Direction);
        }
        for at in 0..u64::from(descriptor.len) {
            let address = descriptor.address.checked_add(at).ok_or(RingError::Address)?;
            out.push(self.world.image[World::offset(address).ok_or(RingError::Address)?]);
        }
        Ok(())
    }

    /// The number of entries of a table, which must be in one region.
    fn table(&self, descriptor: &Descriptor, is_alone: bool) -> Result<u16, RingError> {
        let (address, len) = (descriptor.address, descriptor.len);
        if !self.indirect || !is_alone || len == 0 || len % 16 != 0 || len > 16 * 1024 {
            return Err(RingError::Table);
        }
        let first = World::offset(address).ok_or(RingError::Address)?;
        for at in 0..len {
            if World::offset(address + u64::from(at)) != Some(first + at as usize) {
                return Err(RingError::Address);
            }
        }
        Ok((len / 16) as u16)
    }

    /// The chain of a split ring that starts at `head`.
    fn split(&self, head: u16) -> Found {
        let (mut out, mut index) = (Vec::new(), head);
        for slots in 1..=self.size {
            if index >= self.size {
                return Err(RingError::Descriptor(index));
            }
            let descriptor = self.world.descriptor_at(DESCRIPTORS + 16 * u64::from(index));
            if descriptor.third & INDIRECT != 0 {
                let count = self.table(&descriptor, descriptor.third & NEXT == 0)?;
                self.split_table(descriptor.address, count, &mut out)?;
                return Ok((out, slots));
            }
            self.buffer(&descriptor, descriptor.third, &mut out)?;
            if descriptor.third & NEXT == 0 {
                return Ok((out, slots));
            }
            index = descriptor.fourth;
        }
        Err(RingError::Endless)
    }

    fn split_table(&self, address: u64, count: u16, out: &mut Vec<u8>) -> Result<(), RingError> {
        let mut index = 0;
        for _ in 0..count {
            if index >= count {
                return Err(RingError::Descriptor(index));
            }
            let entry = self.world.descriptor_at(address + 16 * u64::from(index));
            if entry.third & INDIRECT != 0 {
                return Err(RingError::Table);
            }
            self.buffer(&entry, entry.third, out)?;
            if entry.third & NEXT == 0 {
                return Ok(());
            }
            index = entry.fourth;
        }
        Err(RingError::Endless)
    }

    /// The chain of a packed ring that starts at `index`.
    fn packed(&self, index: u16) -> Found {
        let mut out = Vec::new();
        for slots in 1..=self.size {
            let at = (index + slots - 1) % self.size;
            let descriptor = self.world.descriptor_at(DESCRIPTORS + 16 * u64::from(at));
            let flags = descriptor.fourth;
            if flags & INDIRECT != 0 {
                let count = self.table(&descriptor, slots == 1 && flags & NEXT == 0)?;
                for entry in 0..u64::from(count) {
                    let entry = self.world.descriptor_at(descriptor.address + 16 * entry);
                    self.buffer(&entry, entry.fourth, &mut out)?;
                }
                return Ok((out, slots));
            }
            self.buffer(&descriptor, flags, &mut out)?;
            if flags & NEXT == 0 {
                return Ok((out, slots));
            }
        }
        Err(RingError::Endless)
    }

    /// The expected result of fetching from a new split ring.
    fn fetch_split(&self) -> (Vec<Vec<u8>>, Result<usize, RingError>) {
        let count = self.world.u16_at(AVAILABLE + 2);
        if count > self.size {
            return (Vec::new(), Err(RingError::Index));
        }
        let heads = (0..count).map(|at| self.world.u16_at(AVAILABLE + 4 + 2 * u64::from(at)));
        self.collect(heads.map(|head| self.split(head)))
    }

    /// The expected result of fetching from a packed ring at `base`.
    fn fetch_packed(&self, base: u32) -> (Vec<Vec<u8>>, Result<usize, RingError>) {
        let (mut index, mut wrap) = (base as u16 & 0x7fff, base & 0x8000 != 0);
        let chains = std::iter::from_fn(|| {
            let flags = self.world.descriptor_at(DESCRIPTORS + 16 * u64::from(index)).fourth;
            let (avail, used) = (flags & AVAIL != 0, flags & USED != 0);
            if avail == used || avail != wrap {
                return None;
            }
            let found = self.packed(index);
            let slots = found.as_ref().map_or(0, |(_, slots)| *slots);
            wrap ^= index + slots >= self.size;
            index = (index + slots) % self.size;
            Some(found)
        });
        self.collect(chains)
    }

    /// Collects valid chains, as many as fit into the ring.
    fn collect(
        &self,
        chains: impl Iterator<Item = Found>,
    ) -> (Vec<Vec<u8>>, Result<usize, RingError>) {
        let (mut out, mut held) = (Vec::new(), 0);
        for found in chains {
            match found {
                Err(error) => return (out, Err(error)),
                Ok((_, slots)) if held + slots > self.size => return (out, Err(RingError::Index)),
                Ok((bytes, slots)) => {
                    held += slots;
                    out.push(bytes);
                }
            }
        }
        let count = out.len();
        (out, Ok(count))
    }
}

/// Fetches everything, and returns the bytes of each buffer; never more than the ring's size.
fn fetch(world: &World, ring: &mut Ring, size: u16) -> (Vec<Vec<u8>>, Result<usize, RingError>) {
    let mut chains = Chains::default();
    let outcome = ring.fetch(100, &mut chains);
    assert!(chains.len() <= usize::from(size), "more than the ring holds");
    let read = |index| {
        let chain = chains.get(index).unwrap();
        let mut bytes = vec![0; chain.len()];
        assert_eq!(chains.read(&chain, 0, &mut bytes), chain.len());
        let pieces: usize = chains.pieces(&chain).map(|piece| piece.len()).sum();
        assert_eq!(pieces, chain.len());
        bytes
    };
    let buffers = (0..chains.len()).map(read).collect();
    assert!(!world.memory.was_lost());
    (buffers, outcome)
}

/// The device's view of the ring.
#[derive(Clone, Copy, Debug)]
struct View {
    packed: bool,
    indirect: bool,
    direction: Direction,
    base: u32,
}

/// Compares the walk with the reference.
fn check(world: &mut World, size: u16, view: View) -> Result<usize, RingError> {
    let View { packed, indirect, direction, base } = view;
    let features = RingFeatures { packed, indirect, event_index: false };
    let place = RingPlace {
        size,
        descriptors: DESCRIPTORS + USER,
        driver: AVAILABLE + USER,
        device: DEVICE + USER,
    };
    // Used buffers belong to the ring tested before.
    world.put(DEVICE, &[0; 4]);
    let mut ring = Ring::new(&world.memory, &place, features, direction, base).unwrap();
    // A new back end may finish what it takes for its predecessor's work.
    world.refresh(DESCRIPTORS, 16 * u64::from(size));
    let found = fetch(world, &mut ring, size);
    let reference = Reference { world, size, direction, indirect };
    let expected = match packed {
        // Nothing was given back: the ring is still at the position of the first fetch.
        true => {
            let again = Ring::new(&world.memory, &place, features, direction, base).unwrap();
            reference.fetch_packed(again.base())
        }
        false => reference.fetch_split(),
    };
    assert_eq!(found, expected, "{view:?}: {:x?}", &world.image[..16 * usize::from(size)]);
    found.1
}

const DIRECTIONS: [Direction; 2] = [Direction::Transmit, Direction::Receive];

/// Addresses and lengths: inside, across the border of both regions, at the end, outside.
fn places() -> impl Iterator<Item = (u64, u32)> + Clone {
    let addresses = [TABLE, BASE + FIRST - 1, BASE + FIRST + SECOND - 16, BASE - 1, u64::MAX - 7];
    let lens = [0u32, 1, 16, 32, u32::MAX];
    addresses.into_iter().flat_map(move |address| lens.map(|len| (address, len)))
}

/// All descriptors of a split ring or a table with `size` of them.
fn split_descriptors(size: u16) -> Vec<Descriptor> {
    let with = |(address, len)| {
        (0..8).flat_map(move |third| {
            let nexts = if third & NEXT == 0 { 0..=0 } else { 0..=size };
            nexts.map(move |fourth| Descriptor { address, len, third, fourth })
        })
    };
    places().flat_map(with).collect()
}

/// Available lists: up to one more entry than the ring has, with all kinds of heads.
fn available(size: u16) -> Vec<Vec<u16>> {
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..size {
        last = last
            .iter()
            .flat_map(|heads| (0..=size).map(|head| [&heads[..], &[head]].concat()))
            .collect();
        all.extend(last.clone());
    }
    all.push(vec![0; usize::from(size) + 1]);
    all
}

fn make_available(world: &mut World, heads: &[u16]) {
    let words = [&[0, heads.len() as u16], heads].concat();
    let bytes: Vec<u8> = words.into_iter().flat_map(u16::to_le_bytes).collect();
    world.put(AVAILABLE, &bytes);
}

/// Number of each outcome: a model in which one never occurs does not test it.
#[derive(Default)]
struct Tally(std::collections::BTreeMap<String, u64>);

impl Tally {
    fn count(&mut self, outcome: Result<usize, RingError>) {
        let name = outcome.map_or_else(|error| format!("{error:?}"), |count| count.to_string());
        let name = name.split('(').next().unwrap_or_default().to_owned();
        *self.0.entry(name).or_default() += 1;
    }

    fn check(&self, all: &[&str]) {
        println!("{:?}", self.0);
        assert!(all.iter().all(|name| self.0.contains_key(*name)), "{all:?} {:?}", self.0);
    }
}

#[test]
fn every_split_ring_of_one_descriptor() {
    let (mut world, mut tally) = (World::new(), Tally::default());
    put_good_table(&mut world, false);
    for descriptor in split_descriptors(1) {
        world.put_descriptor(DESCRIPTORS, &descriptor);
        for heads in available(1) {
            make_available(&mut world, &heads);
            for (direction, indirect) in views() {
                let view = View { packed: false, indirect, direction, base: 0 };
                tally.count(check(&mut world, 1, view));
            }
        }
    }
    tally.check(&["0", "1", "Address", "Descriptor", "Direction", "Endless", "Index", "Table"]);
}

#[test]
fn every_split_ring_of_two_descriptors() {
    let (mut world, mut tally) = (World::new(), Tally::default());
    put_good_table(&mut world, false);
    let (descriptors, lists) = (split_descriptors(2), available(2));
    for first in &descriptors {
        world.put_descriptor(DESCRIPTORS, first);
        for second in &descriptors {
            world.put_descriptor(DESCRIPTORS + 16, second);
            for heads in &lists {
                make_available(&mut world, heads);
                let view = View {
                    packed: false,
                    indirect: true,
                    direction: DIRECTIONS[usize::from(first.third & WRITE != 0)],
                    base: 0,
                };
                tally.count(check(&mut world, 2, view));
            }
        }
    }
    tally.check(&["0", "1", "2", "Address", "Descriptor", "Direction", "Endless", "Index"]);
    tally.check(&["Table"]);
}

/// The shapes of all chains in rings of four: each descriptor ends its chain or continues anywhere.
#[test]
fn every_shape_of_split_rings_of_four_descriptors() {
    let (mut world, mut tally) = (World::new(), Tally::default());
    let lists = available(4);
    for shape in 0..6u16.pow(4) {
        for slot in 0..4u16 {
            let next = shape / 6u16.pow(slot.into()) % 6;
            let (third, fourth) = if next == 5 { (0, 0) } else { (NEXT, next) };
            let descriptor = Descriptor { address: TABLE, len: 1, third, fourth };
            world.put_descriptor(DESCRIPTORS + 16 * u64::from(slot), &descriptor);
        }
        // All heads of one and two buffers, and some of the longer lists.
        let count = 1 + 5 + 25;
        let longer = lists.iter().skip(count).skip(usize::from(shape) % 37).step_by(37);
        for heads in lists.iter().take(count).chain(longer) {
            make_available(&mut world, heads);
            let view = View { packed: false, indirect: false, direction: DIRECTIONS[0], base: 0 };
            tally.count(check(&mut world, 4, view));
        }
    }
    tally.check(&["0", "1", "2", "3", "4", "Descriptor", "Endless", "Index"]);
}

#[test]
fn every_table_of_two_entries() {
    for packed in [false, true] {
        let (mut world, mut tally) = (World::new(), Tally::default());
        let flags = if packed { (7, INDIRECT | AVAIL) } else { (INDIRECT, 0) };
        let descriptor = Descriptor { address: TABLE, len: 32, third: flags.0, fourth: flags.1 };
        world.put_descriptor(DESCRIPTORS, &descriptor);
        if !packed {
            make_available(&mut world, &[0]);
        }
        let entries = split_descriptors(2);
        for first in &entries {
            world.put_descriptor(TABLE, &swapped(first, packed));
            for second in &entries {
                world.put_descriptor(TABLE + 16, &swapped(second, packed));
                let direction = DIRECTIONS[usize::from(first.third & WRITE != 0)];
                let view = View { packed, indirect: true, direction, base: 0x8000_8000 };
                let view = View { base: if packed { view.base } else { 0 }, ..view };
                tally.count(check(&mut world, 1, view));
            }
        }
        tally.check(&["1", "Address", "Direction"]);
        if !packed {
            tally.check(&["Descriptor", "Endless", "Table"]);
        }
    }
}

#[test]
fn every_packed_ring_of_one_and_two_descriptors() {
    let (mut world, mut tally) = (World::new(), Tally::default());
    put_good_table(&mut world, true);
    let few = places().filter(|(address, len)| *address != BASE - 1 && *len != 32);
    let turns = [0, AVAIL, USED, AVAIL | USED];
    let descriptors: Vec<Descriptor> = few
        .flat_map(|(address, len)| (0..8).map(move |flags| (address, len, flags)))
        .flat_map(|(address, len, flags)| {
            turns.map(|turn| Descriptor { address, len, third: 7, fourth: flags | turn })
        })
        .collect();
    for first in &descriptors {
        for (direction, indirect) in views() {
            for base in [0x8000, 0] {
                world.put_descriptor(DESCRIPTORS, first);
                let view = View { packed: true, indirect, direction, base };
                tally.count(check(&mut world, 1, view));
            }
        }
        let direction = DIRECTIONS[usize::from(first.fourth & WRITE != 0)];
        for second in &descriptors {
            for base in [0x8000, 0x8001, 0, 1] {
                world.put_descriptor(DESCRIPTORS, first);
                world.put_descriptor(DESCRIPTORS + 16, second);
                let view = View { packed: true, indirect: true, direction, base };
                tally.count(check(&mut world, 2, view));
            }
        }
    }
    tally.check(&["0", "1", "2", "Address", "Direction", "Endless", "Table"]);
}

fn views() -> impl Iterator<Item = (Direction, bool)> {
    DIRECTIONS.into_iter().flat_map(|direction| [false, true].map(|table| (direction, table)))
}

/// A table at [`TABLE`] with one readable and one writable entry.
fn put_good_table(world: &mut World, packed: bool) {
    for (at, third) in [(0, NEXT), (16, WRITE)] {
        let entry = Descriptor { address: BASE + FIRST - 1, len: 3, third, fourth: 1 };
        world.put_descriptor(TABLE + at, &swapped(&entry, packed));
    }
}

/// The layout of packed rings, with flags last, if `packed`.
fn swapped(descriptor: &Descriptor, packed: bool) -> Descriptor {
    let Descriptor { third, fourth, .. } = *descriptor;
    if packed { Descriptor { third: fourth, fourth: third, ..*descriptor } } else { *descriptor }
}

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Start of the guest's addresses, and offset of the VMM's from them.
const BASE: u64 = 0x1_0000;
const USER: u64 = 0x100_0000;
/// Length of the first region, length of the second, and its offset in the file.
const FIRST: u64 = 0x400;
const SECOND: u64 = 0x20;
const SECOND_AT: u64 = 0x1000;
const FILE_LEN: usize = 0x1020;
const DESCRIPTORS: u64 = BASE;
const AVAILABLE: u64 = BASE + 0x100;
const DEVICE: u64 = BASE + 0x200;
/// The last 32 bytes of the first region.
const TABLE: u64 = BASE + FIRST - 32;
