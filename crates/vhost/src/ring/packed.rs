//! The packed virtqueue: one ring of descriptors that driver and device write in turn (virtio 1.2
//! §2.8).
//!
//! A descriptor has two flags, AVAIL and USED. When the driver makes a buffer available, it sets
//! AVAIL to its wrap counter and USED to the inverse; when the device gives one back, it sets both
//! to its own counter. A wrap counter starts at one and flips at each turn around the ring, so
//! descriptors of the last turn are never mistaken for new ones.
//!
//! Cost of a buffer: load its descriptor, translate its address, store one word.
//!
//! **Used buffers are staged** in our memory, and written in order when the burst is published,
//! each by one store. So the ring shows our progress at any moment, even to our successor if we are
//! killed ([`resume`]). The exception is a frame in several buffers, whose first buffer is written
//! last (§2.8.9): the driver sees the whole frame or nothing. The ring does not know about frames,
//! but all buffers of a frame except the last are full; so what is written backwards is a run of
//! full buffers together with the one behind it.
//!
//! The descriptors of a used chain behind its first one are not read by the driver. We set their
//! USED flags as well, so that they do not look available to a successor.

use std::sync::atomic::{AtomicU16, Ordering};

use super::descriptor::{DESCRIPTORS_PER_LINE, Descriptor, Shared, Table};
use super::{
    CHAIN_COUNT_MAX, Direction, Half, INDIRECT, NEXT, RingError, RingPlace, SIZE_MAX, Simple,
    WRITE, Walk, barrier, low_half, passes,
};
use crate::chain::{Begun, Chain, Chains};
use crate::features::RingFeatures;
use crate::memory::{Access, GuestMemory};

mod resume;

/// The state of a packed ring.
#[derive(Debug)]
pub(super) struct PackedRing {
    tables: Tables,
    size: u16,
    features: RingFeatures,
    /// Where the next buffer will become available.
    fetched: Place,
    /// Where the next buffer will be given back.
    completed: Place,
    /// End of the buffers that the driver has been told about.
    published: Place,
    /// Used buffers from `published` to `completed`.
    staged: Vec<Staged>,
    /// Descriptors of buffers that were fetched and not yet published; at most the size of the
    /// ring.
    held: Half,
}

/// A buffer to give back when the burst is published.
#[derive(Clone, Copy, Debug)]
struct Staged {
    id: u16,
    /// Descriptors that it occupies.
    slots: u16,
    written: u32,
    /// All of its bytes were written: its frame may continue in the next one.
    is_full: bool,
}

/// A position in the ring with the wrap counter there: 15 bits of index and one of wrap counter, in
/// the layout that drivers use (virtio 1.2 §2.8.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(Half);

impl Place {
    #[inline]
    fn new(index: u16, wrap: bool) -> Self {
        Self(Half::from(index | if wrap { WRAP_BIT } else { 0 }))
    }

    /// `None` if the index is beyond the ring.
    fn from_bits(bits: u16, size: u16) -> Option<Self> {
        let place = Self(bits.into());
        (place.index() < size).then_some(place)
    }

    #[inline]
    fn to_bits(self) -> u16 {
        self.0.get()
    }

    #[inline]
    fn index(self) -> u16 {
        self.to_bits() & INDEX_MASK
    }

    #[inline]
    fn wrap(self) -> bool {
        self.to_bits() & WRAP_BIT != 0
    }

    #[inline]
    fn forward(self, count: u16, size: u16) -> Self {
        // Both are at most 32768: the sum wraps at most once.
        let index = u32::from(self.index()) + u32::from(count);
        match index.checked_sub(u32::from(size)) {
            None => Self::new(low_half(index), self.wrap()),
            Some(index) => Self::new(low_half(index), !self.wrap()),
        }
    }

    #[inline]
    fn back(self, count: u16, size: u16) -> Self {
        match self.index().checked_sub(count) {
            Some(index) => Self::new(index, self.wrap()),
            None => Self::new(self.index() + (size - count), !self.wrap()),
        }
    }

    /// Descriptors from here to `end`, which is at most a turn ahead.
    #[inline]
    fn slots_to(self, end: Self, size: u16) -> u16 {
        let turn = if self.wrap() == end.wrap() { 0 } else { size };
        (end.index() + turn).wrapping_sub(self.index())
    }

    /// The AVAIL and USED flags of a buffer given back here.
    #[inline]
    fn used_flags(self) -> u16 {
        if self.wrap() { AVAIL | USED } else { 0 }
    }

    /// The AVAIL and USED flags of a buffer made available here.
    #[inline]
    fn available_flags(self) -> u16 {
        if self.wrap() { AVAIL } else { USED }
    }

    /// True if a descriptor with `flags` is available here.
    #[inline]
    fn is_available(self, flags: u16) -> bool {
        flags & (AVAIL | USED) == self.available_flags()
    }

    /// True if a descriptor with `flags` is used here.
    #[inline]
    fn is_used(self, flags: u16) -> bool {
        flags & (AVAIL | USED) == self.used_flags()
    }
}

impl PackedRing {
    pub(super) fn new(
        memory: &GuestMemory,
        place: &RingPlace,
        features: RingFeatures,
        base: u32,
    ) -> Result<Self, RingError> {
        let size = place.size;
        if size == 0 || size > SIZE_MAX {
            return Err(RingError::Size(size));
        }
        let tables = Tables::find(memory, place).ok_or(RingError::Place)?;
        // According to the specification, the upper half is the end of the used buffers, but DPDK
        // leaves it zero. Nothing is in flight while a ring is stopped, so it equals the end of the
        // fetched ones.
        let bits = low_half(base);
        let base = Place::from_bits(bits, size).ok_or(RingError::Base(bits & INDEX_MASK))?;
        let at = resume::place(&tables, size, base);
        let staged = Vec::new();
        let (fetched, completed, published, held) = (at, at, at, Half::default());
        Ok(Self { tables, size, features, fetched, completed, published, staged, held })
    }

    /// If we were killed while giving back a frame, all but its first buffers are marked used:
    /// gives back those as well. The frame is complete, and these buffers are full.
    pub(super) fn finish(&mut self, walk: Walk<'_>, chains: &mut Chains) {
        // The flags alone show whether there is something to do, which is rare.
        let is_cut = || resume::is_cut(&self.tables, self.size, self.fetched);
        if walk.direction != Direction::Receive || !is_cut() {
            return;
        }
        let at = self.fetched;
        // One by one: a guest may make its whole ring look like such a frame.
        while self.fetch(walk, 1, chains) == Ok(1) {
            if let Some(chain) = chains.get(0) {
                let len = u32::try_from(chain.len()).unwrap_or(u32::MAX);
                self.complete_all(std::iter::once((chain, len)));
            }
            chains.clear();
        }
        if !self.fetched.is_used(self.tables.descriptor(self.fetched.index()).fourth()) {
            // A violation will be found again by the next fetch.
            self.staged.clear();
            (self.fetched, self.completed, self.held) = (at, at, Half::default());
            return;
        }
        self.publish();
        for _ in 0..self.size {
            if self.completed.is_used(self.tables.descriptor(self.completed.index()).fourth()) {
                self.completed = self.completed.forward(1, self.size);
            }
        }
        (self.fetched, self.published) = (self.completed, self.completed);
    }

    #[inline]
    pub(super) fn fetch(
        &mut self,
        walk: Walk<'_>,
        limit: usize,
        out: &mut Chains,
    ) -> Result<usize, RingError> {
        if !self.fetched.is_available(self.tables.descriptor(self.fetched.index()).fourth()) {
            return Ok(0);
        }
        self.prefetch(limit);
        let mut done = 0;
        while done < limit {
            done += self.fetch_simple(walk, limit - done, out);
            if done < limit {
                // Acquire: a reader that sees the flags sees the rest of the chain.
                let head = self.tables.descriptor(self.fetched.index()).load(Ordering::Acquire);
                if !self.fetched.is_available(head.fourth) {
                    break;
                }
                let room = self.size - self.held.get();
                let pieces = |out: &mut _, begun: &mut _| self.pieces(walk, head, out, begun);
                let slots = walk.chain(room, out, pieces)?;
                self.fetched = self.fetched.forward(slots, self.size);
                self.held = (self.held.get() + slots).into();
                done += 1;
                if out.is_crowded() {
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Fetches up to `limit` available chains until one is not [simple](Simple). Returns how many.
    #[inline]
    fn fetch_simple(&mut self, walk: Walk<'_>, limit: usize, out: &mut Chains) -> usize {
        let Some(simple) = walk.simple() else { return 0 };
        let limit = limit.min(usize::from(self.size - self.held.get()));
        let (mut index, mut flags) = (self.fetched.index(), self.fetched.available_flags());
        let mut done = 0;
        while done < limit {
            // Acquire: as above.
            let descriptor = self.tables.descriptor(index).load(Ordering::Acquire);
            if descriptor.fourth & (AVAIL | USED | Simple::FLAGS) != flags | simple.flags {
                break;
            }
            let Some(bytes) = simple.find(&descriptor) else { break };
            out.push_whole(descriptor.third, bytes);
            (index, flags) = self.next(index, flags);
            done += 1;
        }
        self.fetched = Place::new(index, flags & AVAIL != 0);
        // At most what was left of the ring.
        self.held = (self.held.get() + u16::try_from(done).unwrap_or_default()).into();
        done
    }

    /// Drivers make buffers available in bursts: if there is one, the next descriptors are
    /// prefetched.
    #[inline]
    fn prefetch(&self, limit: usize) {
        for ahead in (0..limit).step_by(DESCRIPTORS_PER_LINE) {
            let ahead = u16::try_from(ahead).unwrap_or(u16::MAX);
            let index = u32::from(self.fetched.index().saturating_add(ahead));
            self.tables.descriptors.prefetch(index, Access::Read);
        }
    }

    /// Fetches the pieces of the chain that starts with `head`. Returns the buffer's identifier,
    /// which is in its last descriptor, and the number of descriptors.
    fn pieces(
        &self,
        walk: Walk<'_>,
        head: Descriptor,
        out: &mut Chains,
        begun: &mut Begun,
    ) -> Result<(u16, u16), RingError> {
        let (mut at, mut descriptor) = (self.fetched, head);
        for slots in 1..=self.size.min(CHAIN_COUNT_MAX) {
            let flags = descriptor.fourth;
            if flags & INDIRECT != 0 {
                // An indirect table must be the only descriptor here (virtio 1.2 §2.8.7).
                if slots > 1 || flags & NEXT != 0 {
                    return Err(RingError::Table);
                }
                self.indirect(walk, &descriptor, out, begun)?;
                return Ok((descriptor.third, 1));
            }
            walk.buffer(&descriptor, flags, out, begun)?;
            if flags & NEXT == 0 {
                return Ok((descriptor.third, slots));
            }
            at = at.forward(1, self.size);
            descriptor = self.tables.descriptor(at.index()).load(Ordering::Relaxed);
        }
        Err(RingError::Endless)
    }

    /// Fetches all descriptors of an indirect table, in order (virtio 1.2 §2.8.7).
    fn indirect(
        &self,
        walk: Walk<'_>,
        descriptor: &Descriptor,
        out: &mut Chains,
        begun: &mut Begun,
    ) -> Result<(), RingError> {
        if !self.features.indirect {
            return Err(RingError::Table);
        }
        let (table, count) = walk.table(descriptor)?;
        for index in 0..count {
            let descriptor = Descriptor::of_table(table, index);
            walk.buffer(&descriptor, descriptor.fourth, out, begun)?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn complete_all(&mut self, used: impl Iterator<Item = (Chain, u32)>) {
        // Chains not yet published are together no longer than the ring.
        let mut all_slots = 0;
        self.staged.extend(used.map(|(chain, written)| {
            let Chain { id, slots, .. } = chain;
            all_slots += slots;
            let is_full = written > 0 && written as usize >= chain.len();
            Staged { id, slots, written, is_full }
        }));
        self.completed = self.completed.forward(all_slots, self.size);
    }

    #[inline]
    pub(super) fn undo(&mut self, slots: u16) {
        self.fetched = self.fetched.back(slots, self.size);
        self.held = self.held.get().saturating_sub(slots).into();
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.completed);
        if old == new {
            return false;
        }
        self.give_back();
        self.published = new;
        // Flags before event suppression is read; see the parent module.
        barrier();
        self.wants_notification(old, new)
    }

    /// Writes the staged buffers in order, except that each run of full buffers, with the one
    /// behind it, is written backwards.
    #[inline]
    fn give_back(&mut self) {
        let (mut at, mut start) = (self.published, 0);
        loop {
            (at, start) = self.give_back_simple(at, start);
            let Some(staged) = self.staged.get(start) else { break };
            if staged.is_full {
                (at, start) = self.give_back_run(at, start);
            } else {
                self.give_back_one(at, *staged);
                (at, start) = (at.forward(staged.slots, self.size), start + 1);
            }
        }
        self.staged.clear();
        let slots = self.published.slots_to(self.completed, self.size);
        self.held = self.held.get().saturating_sub(slots).into();
    }

    /// Writes the buffers from `start` on that occupy one descriptor each and are not full, as
    /// nearly all do and are. Returns where to continue.
    #[inline]
    fn give_back_simple(&self, at: Place, start: usize) -> (Place, usize) {
        let (mut index, mut flags) = (at.index(), at.used_flags());
        let rest = self.staged.get(start..).unwrap_or_default();
        let simple = rest.iter().take_while(|staged| staged.slots == 1 && !staged.is_full);
        let mut count = 0;
        for staged in simple {
            self.write_used(index, *staged, flags);
            (index, flags) = self.next(index, flags);
            count += 1;
        }
        (Place::new(index, flags != 0), start + count)
    }

    /// The index after `index`, and the AVAIL and USED flags there if `flags` are those here.
    #[inline]
    fn next(&self, index: u16, flags: u16) -> (u16, u16) {
        match index + 1 {
            next if next < self.size => (next, flags),
            _ => (0, flags ^ (AVAIL | USED)),
        }
    }

    /// Writes a used buffer to the descriptor at `index`, with these AVAIL and USED flags.
    #[inline]
    fn write_used(&self, index: u16, staged: Staged, flags: u16) {
        let Staged { id, written, .. } = staged;
        let flags = flags | if written > 0 { WRITE } else { 0 };
        // Release: a reader that sees the flags sees the buffer's contents.
        let shared = self.tables.descriptor(index);
        shared.store_rest(&Descriptor { address: 0, len: written, third: id, fourth: flags });
    }

    /// Writes the run of full buffers that begins at `start` to `at`, with the one behind it.
    /// Returns where to continue.
    fn give_back_run(&self, at: Place, start: usize) -> (Place, usize) {
        let rest = self.staged.get(start..).unwrap_or_default();
        let full = rest.iter().take_while(|staged| staged.is_full).count();
        let run = rest.get(..=full).unwrap_or(rest);
        let behind = run.iter().fold(at, |at, staged| at.forward(staged.slots, self.size));
        run.iter().rev().fold(behind, |behind, staged| {
            let at = behind.back(staged.slots, self.size);
            self.give_back_one(at, *staged);
            at
        });
        (behind, start + run.len())
    }

    /// Writes one used buffer to `at`.
    #[inline]
    fn give_back_one(&self, at: Place, staged: Staged) {
        for behind in 1..staged.slots {
            let at = at.forward(behind, self.size);
            let shared = self.tables.descriptor(at.index());
            let left = shared.load(Ordering::Relaxed);
            let flags = left.fourth & !(AVAIL | USED) | at.used_flags();
            shared.store_rest(&Descriptor { fourth: flags, ..left });
        }
        self.write_used(at.index(), staged, at.used_flags());
    }

    /// Whether the driver's event suppression asks for a notification when going from `old` to
    /// `new` (virtio 1.2 §2.8.10).
    fn wants_notification(&self, old: Place, new: Place) -> bool {
        let suppression = self.tables.driver();
        let flags = u16::from_le(suppression.flags.load(Ordering::Relaxed)) & EVENT_MASK;
        match flags {
            EVENT_DESCRIPTOR if self.features.event_index => {
                let wish = u16::from_le(suppression.place.load(Ordering::Relaxed));
                is_passed(wish, old, new, self.size)
            }
            _ => flags != EVENT_DISABLE,
        }
    }

    pub(super) fn arm(&mut self) -> bool {
        let suppression = self.tables.device();
        if self.features.event_index {
            suppression.place.store(self.fetched.to_bits().to_le(), Ordering::Relaxed);
            // Store the position before the flags.
            suppression.flags.store(EVENT_DESCRIPTOR.to_le(), Ordering::Release);
        } else {
            suppression.flags.store(EVENT_ENABLE.to_le(), Ordering::Relaxed);
        }
        // Event suppression before the descriptor's flags are read; see the parent module.
        barrier();
        !self.fetched.is_available(self.tables.descriptor(self.fetched.index()).fourth())
    }

    #[inline]
    pub(super) fn disarm(&mut self) {
        self.tables.device().flags.store(EVENT_DISABLE.to_le(), Ordering::Relaxed);
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.fetched.to_bits()) | u32::from(self.completed.to_bits()) << 16
    }
}

/// True if going from `old` to `new` passes the position in `wish`.
#[inline]
fn is_passed(wish: u16, old: Place, new: Place, size: u16) -> bool {
    // As counts that do not wrap with the ring: a position of the turn before is one size behind.
    let turn = |wrap: bool| if wrap == new.wrap() { 0 } else { size };
    let wish_index = (wish & INDEX_MASK).wrapping_sub(turn(wish & WRAP_BIT != 0));
    let old_index = old.index().wrapping_sub(turn(old.wrap()));
    passes(wish_index, old_index, new.index())
}

/// As [`is_passed`], with positions as words, for the model in `wakeup`.
#[cfg(test)]
pub(super) fn is_passed_by(wish: u16, old_and_new: [u16; 2], size: u16) -> bool {
    let place = |bits| Place::from_bits(bits, size);
    let [Some(old), Some(new)] = old_and_new.map(place) else { return false };
    is_passed(wish, old, new, size)
}

/// Event suppression: which notifications one side wants (virtio 1.2 §2.8.14).
#[derive(Debug)]
#[repr(C, align(4))]
struct Suppression {
    place: AtomicU16,
    flags: AtomicU16,
}

/// The descriptors and both event suppression structures in the guest's memory.
///
/// As for split rings, the ring's owner holds the memory, and every index is within the ring.
#[derive(Debug)]
struct Tables {
    descriptors: Table<Shared>,
    driver: Table<Suppression>,
    device: Table<Suppression>,
}

impl Tables {
    fn find(memory: &GuestMemory, place: &RingPlace) -> Option<Self> {
        let find = |address, len| memory.find_user(address, len);
        Some(Self {
            descriptors: Table::new(find(place.descriptors, 16 * u64::from(place.size))?)?,
            driver: Table::new(find(place.driver, 4)?)?,
            device: Table::new(find(place.device, 4)?)?,
        })
    }

    #[inline]
    fn descriptor(&self, index: u16) -> &Shared {
        // SAFETY: the owner holds the memory.
        unsafe { self.descriptors.at(u32::from(index)) }
    }

    #[inline]
    fn driver(&self) -> &Suppression {
        // SAFETY: the owner holds the memory.
        unsafe { self.driver.at(0) }
    }

    #[inline]
    fn device(&self) -> &Suppression {
        // SAFETY: the owner holds the memory.
        unsafe { self.device.at(0) }
    }
}

/// `VIRTQ_DESC_F_AVAIL`.
const AVAIL: u16 = 1 << 7;
/// `VIRTQ_DESC_F_USED`.
const USED: u16 = 1 << 15;
const WRAP_BIT: u16 = 1 << 15;
const INDEX_MASK: u16 = WRAP_BIT - 1;
/// `RING_EVENT_FLAGS_ENABLE`.
const EVENT_ENABLE: u16 = 0;
/// `RING_EVENT_FLAGS_DISABLE`.
const EVENT_DISABLE: u16 = 1;
/// `RING_EVENT_FLAGS_DESC`.
const EVENT_DESCRIPTOR: u16 = 2;
const EVENT_MASK: u16 = 3;
