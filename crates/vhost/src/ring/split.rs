//! The split virtqueue: descriptors, an available ring written by the driver, and a used ring
//! written by the device (virtio 1.2 §2.7).
//!
//! Cost of a buffer: load from the available ring, load its descriptor, translate its address, and
//! store two words to the used ring. Indices are loaded and stored once per burst.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use super::descriptor::{Descriptor, Shared, Table};
use super::{
    CHAIN_COUNT_MAX, Direction, Half, INDIRECT, NEXT, RingError, RingPlace, SIZE_MAX, Simple, Walk,
    barrier, passes,
};
use crate::chain::{Begun, Chain, Chains};
use crate::features::RingFeatures;
use crate::memory::{Access, GuestMemory};

/// The state of a split ring. All counts are modulo 65536.
#[derive(Debug)]
pub(super) struct SplitRing {
    tables: Tables,
    size: u16,
    features: RingFeatures,
    /// Buffers made available by the driver, as of the last check.
    available: Half,
    /// Fetched buffers.
    fetched: Half,
    /// Completed buffers.
    completed: Half,
    /// Buffers that the driver has been told about.
    published: Half,
    /// Descriptors of buffers that were fetched and not yet published; at most the size of the
    /// ring.
    held: Half,
    /// Those of completed buffers among them.
    completed_held: Half,
}

impl SplitRing {
    pub(super) fn new(
        memory: &GuestMemory,
        place: &RingPlace,
        features: RingFeatures,
    ) -> Result<Self, RingError> {
        let size = place.size;
        if size > SIZE_MAX || !size.is_power_of_two() {
            return Err(RingError::Size(size));
        }
        let tables = Tables::find(memory, place).ok_or(RingError::Place)?;
        // Nothing is in flight while a ring is stopped, so it continues at the used index. A front
        // end whose back end was killed may report another base, as DPDK's does.
        let used = u16::from_le(tables.used_index().load(Ordering::Relaxed));
        let ring = Self {
            tables,
            size,
            features,
            available: used.into(),
            fetched: used.into(),
            completed: used.into(),
            published: used.into(),
            held: Half::default(),
            completed_held: Half::default(),
        };
        Ok(ring)
    }

    #[inline]
    pub(super) fn fetch(
        &mut self,
        walk: Walk<'_>,
        limit: usize,
        out: &mut Chains,
    ) -> Result<usize, RingError> {
        let limit = u16::try_from(limit).unwrap_or(u16::MAX);
        let count = self.look(limit)?.min(limit);
        self.prefetch(walk.direction, count);
        let mut done = 0;
        while done < count {
            done += self.fetch_simple(walk, count - done, out);
            if done < count {
                // The guest may have changed the entry since; only this load counts.
                let head = self.tables.available_entry(self.fetched.get(), self.size);
                let slots = self.chain(walk, head, out)?;
                self.note_fetched(1, slots);
                done += 1;
                if out.is_crowded() {
                    break;
                }
            }
        }
        Ok(usize::from(done))
    }

    /// Fetches up to `limit` available chains until one is not [simple](Simple). Returns how many.
    #[inline]
    fn fetch_simple(&mut self, walk: Walk<'_>, limit: u16, out: &mut Chains) -> u16 {
        let Some(simple) = walk.simple() else { return 0 };
        let (limit, mut done) = (limit.min(self.size - self.held.get()), 0);
        while done < limit {
            let id = self.tables.available_entry(self.fetched.get().wrapping_add(done), self.size);
            let Ok(shared) = self.tables.descriptor(id) else { break };
            let descriptor = shared.load(Ordering::Relaxed);
            if descriptor.third & Simple::FLAGS != simple.flags {
                break;
            }
            let Some(bytes) = simple.find(&descriptor) else { break };
            out.push_whole(id, bytes);
            done += 1;
        }
        self.note_fetched(done, done);
        done
    }

    #[inline]
    fn note_fetched(&mut self, chains: u16, slots: u16) {
        self.held = (self.held.get() + slots).into();
        self.fetched = self.fetched.get().wrapping_add(chains).into();
    }

    /// Prefetches what the next `count` chains take: their descriptors, and the entries by which
    /// they are given back. A receiver's driver made further buffers available long ago, so the
    /// entries of the next fetch are prefetched as well; a sender's is writing those.
    #[inline]
    fn prefetch(&self, direction: Direction, count: u16) {
        if count == 0 {
            // Polling must not take the line of the used ring away from the driver.
            return;
        }
        let next = |ahead| self.fetched.get().wrapping_add(ahead);
        for ahead in 0..count {
            let head = self.tables.available_entry(next(ahead), self.size);
            self.tables.descriptors.prefetch(u32::from(head), Access::Read);
        }
        // Without alignment they may reach into one more line.
        for ahead in (0..count + USED_PER_LINE - 1).step_by(usize::from(USED_PER_LINE)) {
            self.tables.prefetch_used(next(ahead), self.size);
        }
        if direction == Direction::Receive {
            self.tables.prefetch_available(next(count), self.size);
        }
    }

    /// Fetches the chain that starts at descriptor `id`. Returns how many descriptors it occupies.
    fn chain(&self, walk: Walk<'_>, id: u16, out: &mut Chains) -> Result<u16, RingError> {
        let head = self.tables.descriptor(id)?.load(Ordering::Relaxed);
        let room = self.size - self.held.get();
        walk.chain(room, out, |out, begun| self.pieces(walk, id, head, out, begun))
    }

    /// Number of buffers that can be fetched; reloads the index if fewer than `wanted` are known.
    #[inline]
    fn look(&mut self, wanted: u16) -> Result<u16, RingError> {
        let known = |ring: &Self| ring.available.get().wrapping_sub(ring.fetched.get());
        if known(self) < wanted {
            // Acquire: a reader that sees the index sees the entries and descriptors it covers.
            let index = self.tables.available_index().load(Ordering::Acquire);
            self.available = u16::from_le(index).into();
        }
        let count = known(self);
        let outstanding = u32::from(count) + u32::from(self.held.get());
        if outstanding > u32::from(self.size) { Err(RingError::Index) } else { Ok(count) }
    }

    /// Fetches the pieces of the chain that starts with `head`, the descriptor at index `id`.
    /// Returns its identifier, which is that index, and the number of descriptors.
    fn pieces(
        &self,
        walk: Walk<'_>,
        id: u16,
        head: Descriptor,
        out: &mut Chains,
        begun: &mut Begun,
    ) -> Result<(u16, u16), RingError> {
        let (mut descriptor, most) = (head, self.size.min(CHAIN_COUNT_MAX));
        for slots in 1..=most {
            let Descriptor { third: flags, fourth: next, .. } = descriptor;
            if flags & INDIRECT != 0 {
                self.indirect(walk, &descriptor, out, begun)?;
                return Ok((id, slots));
            }
            walk.buffer(&descriptor, flags, out, begun)?;
            if flags & NEXT == 0 {
                return Ok((id, slots));
            }
            if slots < most {
                descriptor = self.tables.descriptor(next)?.load(Ordering::Relaxed);
            }
        }
        Err(RingError::Endless)
    }

    /// Fetches the descriptors of an indirect table, which ends the chain (virtio 1.2 §2.7.5.3).
    fn indirect(
        &self,
        walk: Walk<'_>,
        descriptor: &Descriptor,
        out: &mut Chains,
        begun: &mut Begun,
    ) -> Result<(), RingError> {
        if !self.features.indirect || descriptor.third & NEXT != 0 {
            return Err(RingError::Table);
        }
        let (table, count) = walk.table(descriptor)?;
        let mut index = 0;
        for _ in 0..count {
            if index >= count {
                return Err(RingError::Descriptor(index));
            }
            let descriptor = Descriptor::of_table(table, index);
            let Descriptor { third: flags, fourth: next, .. } = descriptor;
            if flags & INDIRECT != 0 {
                return Err(RingError::Table);
            }
            walk.buffer(&descriptor, flags, out, begun)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = next;
        }
        Err(RingError::Endless)
    }

    #[inline]
    pub(super) fn complete(&mut self, chain: &Chain, written: u32) {
        let (id, len) = self.tables.used_entry(self.completed.get(), self.size);
        id.store(u32::from(chain.id).to_le(), Ordering::Relaxed);
        len.store(written.to_le(), Ordering::Relaxed);
        self.completed = self.completed.get().wrapping_add(1).into();
        self.completed_held = (self.completed_held.get() + chain.slots).into();
    }

    #[inline]
    pub(super) fn undo(&mut self, slots: u16) {
        self.fetched = self.fetched.get().wrapping_sub(1).into();
        self.held = self.held.get().saturating_sub(slots).into();
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published.get(), self.completed.get());
        if old == new {
            return false;
        }
        self.published = new.into();
        let told = std::mem::take(&mut self.completed_held).get();
        self.held = self.held.get().saturating_sub(told).into();
        // Release: a reader that sees the index sees the entries and the buffers' contents.
        self.tables.used_index().store(new.to_le(), Ordering::Release);
        // The index before the driver's wish is read; see the parent module.
        barrier();
        if self.features.event_index {
            let wish = self.tables.used_event(self.size).load(Ordering::Relaxed);
            passes(u16::from_le(wish), old, new)
        } else {
            let flags = self.tables.available_flags().load(Ordering::Relaxed);
            u16::from_le(flags) & NO_INTERRUPT == 0
        }
    }

    pub(super) fn arm(&mut self) -> bool {
        if self.features.event_index {
            let wish = self.fetched.get().to_le();
            self.tables.available_event(self.size).store(wish, Ordering::Relaxed);
        } else {
            self.tables.used_flags().store(0, Ordering::Relaxed);
        }
        // Our wish before the index is read; see the parent module.
        barrier();
        let index = self.tables.available_index().load(Ordering::Relaxed);
        u16::from_le(index) == self.fetched.get()
    }

    #[inline]
    pub(super) fn disarm(&mut self) {
        // With event indices, a wish expires when it has been passed: nothing to do.
        if !self.features.event_index {
            self.tables.used_flags().store(NO_NOTIFY.to_le(), Ordering::Relaxed);
        }
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.fetched.get())
    }
}

/// Entries of 8 bytes in a cache line of the used ring.
const USED_PER_LINE: u16 = 8;

/// The three tables in the guest's memory.
///
/// The accessors rely on one fact: [`super::Ring`], the only owner, holds the memory as well, so
/// the tables stay mapped; and every index is checked, or masked by the size of the tables.
#[derive(Debug)]
struct Tables {
    descriptors: Table<Shared>,
    /// Flags, index, one entry per descriptor, and the event index for interrupts, of 16 bits each.
    available: Table<AtomicU16>,
    /// Flags and index of 16 bits each, two words of 32 bits per entry, and the event index for
    /// notifications of 16 bits.
    used: Table<AtomicU32>,
    used_head: Table<AtomicU16>,
}

impl Tables {
    fn find(memory: &GuestMemory, place: &RingPlace) -> Option<Self> {
        let size = u64::from(place.size);
        let find = |address, len| memory.find_user(address, len);
        let used = find(place.device, 4 + 8 * size + 4)
            // The last two bytes hold the event index only, and may be beyond the end of memory.
            .or_else(|| find(place.device, 4 + 8 * size + 2))?;
        Some(Self {
            descriptors: Table::new(find(place.descriptors, 16 * size)?)?,
            available: Table::new(find(place.driver, 4 + 2 * size + 2)?)?,
            used: Table::new(used)?,
            used_head: Table::new(used)?,
        })
    }

    #[inline]
    fn descriptor(&self, index: u16) -> Result<&Shared, RingError> {
        // SAFETY: the owner holds the memory.
        let shared = unsafe { self.descriptors.get(u32::from(index)) };
        shared.ok_or(RingError::Descriptor(index))
    }

    #[inline]
    fn half(&self, at: u32) -> &AtomicU16 {
        // SAFETY: the owner holds the memory.
        unsafe { self.available.at(at) }
    }

    #[inline]
    fn used_half(&self, at: u32) -> &AtomicU16 {
        // SAFETY: the owner holds the memory.
        unsafe { self.used_head.at(at) }
    }

    #[inline]
    fn available_flags(&self) -> &AtomicU16 {
        self.half(0)
    }

    #[inline]
    fn available_index(&self) -> &AtomicU16 {
        self.half(1)
    }

    #[inline]
    fn available_entry(&self, count: u16, size: u16) -> u16 {
        let entry = self.half(2 + u32::from(count & (size - 1)));
        u16::from_le(entry.load(Ordering::Relaxed))
    }

    #[inline]
    fn prefetch_available(&self, count: u16, size: u16) {
        self.available.prefetch(2 + u32::from(count & (size - 1)), Access::Read);
    }

    #[inline]
    fn used_event(&self, size: u16) -> &AtomicU16 {
        self.half(2 + u32::from(size))
    }

    #[inline]
    fn used_flags(&self) -> &AtomicU16 {
        self.used_half(0)
    }

    #[inline]
    fn used_index(&self) -> &AtomicU16 {
        self.used_half(1)
    }

    #[inline]
    fn used_entry(&self, count: u16, size: u16) -> (&AtomicU32, &AtomicU32) {
        let at = 1 + 2 * u32::from(count & (size - 1));
        // SAFETY: the owner holds the memory.
        let word = |at| unsafe { self.used.at(at) };
        (word(at), word(at + 1))
    }

    #[inline]
    fn prefetch_used(&self, count: u16, size: u16) {
        self.used.prefetch(1 + 2 * u32::from(count & (size - 1)), Access::Write);
    }

    #[inline]
    fn available_event(&self, size: u16) -> &AtomicU16 {
        self.used_half(2 + 4 * u32::from(size))
    }
}

/// The driver polls: no interrupts (`VIRTQ_AVAIL_F_NO_INTERRUPT`).
const NO_INTERRUPT: u16 = 1;
/// The device polls: no notifications (`VIRTQ_USED_F_NO_NOTIFY`).
const NO_NOTIFY: u16 = 1;
