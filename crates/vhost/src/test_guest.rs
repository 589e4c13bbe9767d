//! A guest for tests: a megabyte of memory, written by system calls, and minimal drivers for both
//! kinds of rings.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::io::{pread, pwrite};

use crate::{GuestMemory, RegionSpec, RingFeatures, RingPlace};

/// Guest addresses are offsets in the file plus this; the VMM's addresses are offsets plus twice
/// this.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const LEN: u64 = 1 << 20;
const DESCRIPTORS: u64 = 0;
const DRIVER: u64 = 0x1000;
const DEVICE: u64 = 0x2000;
/// Indirect tables, one per descriptor.
const TABLES: u64 = 0x4000;
/// Buffers.
pub(crate) const BUFFERS: u64 = 0x4_0000;

/// The memory of a guest.
pub(crate) struct Guest {
    file: OwnedFd,
    pub(crate) memory: Arc<GuestMemory>,
}

impl Guest {
    pub(crate) fn new() -> Self {
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, LEN).unwrap();
        let memory = GuestMemory::new(&[Self::region(&file, 0, LEN)]).unwrap();
        Self { file, memory }
    }

    pub(crate) fn region(file: &OwnedFd, offset: u64, len: u64) -> RegionSpec {
        let file = file.try_clone().unwrap();
        let (guest_address, user_address) = (BASE + offset, 2 * BASE + offset);
        RegionSpec { guest_address, user_address, len, offset, file }
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.file, bytes, offset).unwrap(), bytes.len());
    }

    pub(crate) fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        assert_eq!(pread(&self.file, &mut bytes, offset).unwrap(), N);
        bytes
    }

    pub(crate) fn write_u16(&self, offset: u64, value: u16) {
        self.write(offset, &value.to_le_bytes());
    }

    pub(crate) fn read_u16(&self, offset: u64) -> u16 {
        u16::from_le_bytes(self.read(offset))
    }

    fn write_descriptor(&self, offset: u64, address: u64, len: u32, third: u16, fourth: u16) {
        self.write(offset, &address.to_le_bytes());
        self.write(offset + 8, &len.to_le_bytes());
        self.write_u16(offset + 12, third);
        self.write_u16(offset + 14, fourth);
    }
}

/// A driver's buffer: pieces of guest memory, by address and length.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) pieces: Vec<(u64, u32)>,
    pub(crate) writable: bool,
    pub(crate) indirect: bool,
}

impl Buffer {
    pub(crate) fn to_read(address: u64, len: u32) -> Self {
        Self { pieces: vec![(address, len)], writable: false, indirect: false }
    }
}

/// The guest's side of a ring.
pub(crate) enum Driver {
    Split(Split),
    Packed(Packed),
}

impl Driver {
    pub(crate) fn new(size: u16, features: RingFeatures) -> Self {
        match features.packed {
            false => Self::Split(Split {
                size,
                free: (0..size).collect(),
                lent: BTreeMap::new(),
                available: 0,
                seen: 0,
            }),
            true => Self::Packed(Packed {
                size,
                lent: BTreeMap::new(),
                free: size,
                next: (0, true),
                seen: (0, true),
            }),
        }
    }

    pub(crate) fn place(&self) -> RingPlace {
        let size = match self {
            Self::Split(driver) => driver.size,
            Self::Packed(driver) => driver.size,
        };
        RingPlace {
            size,
            descriptors: 2 * BASE + DESCRIPTORS,
            driver: 2 * BASE + DRIVER,
            device: 2 * BASE + DEVICE,
        }
    }

    pub(crate) fn base(&self) -> u32 {
        match self {
            Self::Split(_) => 0,
            Self::Packed(_) => 0x8000_8000,
        }
    }

    /// Makes a buffer available. Returns its identifier, or `None` if there is no room.
    pub(crate) fn offer(&mut self, guest: &Guest, buffer: &Buffer) -> Option<u16> {
        match self {
            Self::Split(driver) => driver.offer(guest, buffer),
            Self::Packed(driver) => driver.offer(guest, buffer),
        }
    }

    /// Takes back used buffers: identifiers and bytes written.
    pub(crate) fn reap(&mut self, guest: &Guest) -> Vec<(u16, u32)> {
        match self {
            Self::Split(driver) => driver.reap(guest),
            Self::Packed(driver) => driver.reap(guest),
        }
    }
}

pub(crate) struct Split {
    size: u16,
    free: VecDeque<u16>,
    /// Descriptors of the buffers that the device has, by the first one.
    lent: BTreeMap<u16, Vec<u16>>,
    available: u16,
    seen: u16,
}

impl Split {
    fn offer(&mut self, guest: &Guest, buffer: &Buffer) -> Option<u16> {
        let needed = if buffer.indirect { 1 } else { buffer.pieces.len() };
        if self.free.len() < needed {
            return None;
        }
        let taken: Vec<u16> = self.free.drain(..needed).collect();
        let write = if buffer.writable { 2 } else { 0 };
        let next = |at: usize, last: usize| if at < last { 1 } else { 0 };
        let last = buffer.pieces.len() - 1;
        if buffer.indirect {
            let table = TABLES + u64::from(taken[0]) * 256;
            for (at, &(address, len)) in buffer.pieces.iter().enumerate() {
                let offset = table + 16 * at as u64;
                let flags = write | next(at, last);
                guest.write_descriptor(offset, address, len, flags, at as u16 + 1);
            }
            let len = 16 * buffer.pieces.len() as u32;
            let offset = DESCRIPTORS + 16 * u64::from(taken[0]);
            guest.write_descriptor(offset, BASE + table, len, 4, 0);
        } else {
            for (at, &(address, len)) in buffer.pieces.iter().enumerate() {
                let offset = DESCRIPTORS + 16 * u64::from(taken[at]);
                let follower = taken.get(at + 1).copied().unwrap_or(0);
                guest.write_descriptor(offset, address, len, write | next(at, last), follower);
            }
        }
        let entry = DRIVER + 4 + 2 * u64::from(self.available % self.size);
        guest.write_u16(entry, taken[0]);
        self.available = self.available.wrapping_add(1);
        guest.write_u16(DRIVER + 2, self.available);
        let head = taken[0];
        assert!(self.lent.insert(head, taken).is_none());
        Some(head)
    }

    fn reap(&mut self, guest: &Guest) -> Vec<(u16, u32)> {
        let mut out = Vec::new();
        while self.seen != guest.read_u16(DEVICE + 2) {
            let entry = DEVICE + 4 + 8 * u64::from(self.seen % self.size);
            let id = u32::from_le_bytes(guest.read(entry)) as u16;
            let len = u32::from_le_bytes(guest.read(entry + 4));
            self.free.extend(self.lent.remove(&id).expect("a buffer that the device had"));
            self.seen = self.seen.wrapping_add(1);
            out.push((id, len));
        }
        out
    }
}

pub(crate) struct Packed {
    size: u16,
    /// Number of descriptors of the buffers that the device has, by identifier.
    lent: BTreeMap<u16, u16>,
    free: u16,
    next: (u16, bool),
    seen: (u16, bool),
}

impl Packed {
    fn step(&self, (index, wrap): (u16, bool), count: u16) -> (u16, bool) {
        let index = u32::from(index) + u32::from(count);
        match index.checked_sub(u32::from(self.size)) {
            None => (index as u16, wrap),
            Some(index) => (index as u16, !wrap),
        }
    }

    fn offer(&mut self, guest: &Guest, buffer: &Buffer) -> Option<u16> {
        let needed = if buffer.indirect { 1 } else { buffer.pieces.len() as u16 };
        if self.free < needed {
            return None;
        }
        let id = (0..self.size).find(|id| !self.lent.contains_key(id))?;
        let write = if buffer.writable { 2 } else { 0 };
        let mut pieces = buffer.pieces.clone();
        if buffer.indirect {
            let table = TABLES + u64::from(id) * 256;
            for (at, (address, len)) in pieces.drain(..).enumerate() {
                guest.write_descriptor(table + 16 * at as u64, address, len, 0, write);
            }
            pieces.push((BASE + table, 16 * buffer.pieces.len() as u32));
        }
        let mut at = self.next;
        let mut flags_of_first = 0;
        for (position, &(address, len)) in pieces.iter().enumerate() {
            let more = if position + 1 < pieces.len() { 1 } else { 0 };
            let kind = if buffer.indirect { 4 } else { write };
            let turn = if at.1 { 1 << 7 } else { 1 << 15 };
            let (flags, offset) = (kind | more | turn, DESCRIPTORS + 16 * u64::from(at.0));
            let shown = if position == 0 { guest.read_u16(offset + 14) } else { flags };
            guest.write_descriptor(offset, address, len, id, shown);
            if position == 0 {
                flags_of_first = flags;
            }
            at = self.step(at, 1);
        }
        guest.write_u16(DESCRIPTORS + 16 * u64::from(self.next.0) + 14, flags_of_first);
        self.next = at;
        self.free -= needed;
        self.lent.insert(id, needed);
        Some(id)
    }

    fn reap(&mut self, guest: &Guest) -> Vec<(u16, u32)> {
        let mut out = Vec::new();
        loop {
            let offset = DESCRIPTORS + 16 * u64::from(self.seen.0);
            let flags = guest.read_u16(offset + 14);
            let (avail, used) = (flags & 1 << 7 != 0, flags & 1 << 15 != 0);
            if avail != used || used != self.seen.1 {
                return out;
            }
            let id = guest.read_u16(offset + 12);
            let Some(places) = self.lent.remove(&id) else { return out };
            self.free += places;
            self.seen = self.step(self.seen, places);
            out.push((id, u32::from_le_bytes(guest.read(offset + 8))));
        }
    }
}
