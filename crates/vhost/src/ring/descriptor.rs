//! Descriptors of 16 bytes that describe a buffer (virtio 1.2 §2.7.5, §2.8.1), and tables of them
//! in a guest's memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{Access, GuestBytes, prefetch};

/// The chain continues (`VIRTQ_DESC_F_NEXT`).
pub(super) const NEXT: u16 = 1;
/// The device writes the buffer (`VIRTQ_DESC_F_WRITE`).
pub(super) const WRITE: u16 = 2;
/// The buffer is a table of descriptors (`VIRTQ_DESC_F_INDIRECT`).
pub(super) const INDIRECT: u16 = 4;
/// Length of a descriptor in bytes.
pub(super) const DESCRIPTOR_LEN: u64 = 16;
/// Descriptors in a cache line.
pub(super) const DESCRIPTORS_PER_LINE: usize = 4;

/// A descriptor, fetched once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    /// Flags in a split ring, buffer id in a packed one.
    pub(super) third: u16,
    /// Next descriptor in a split ring, flags in a packed one.
    pub(super) fourth: u16,
}

impl Descriptor {
    /// A descriptor from its two words.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
    const fn of(address: u64, rest: u64) -> Self {
        Self { address, len: rest as u32, third: (rest >> 32) as u16, fourth: (rest >> 48) as u16 }
    }

    /// All but the address, as one word.
    #[inline]
    const fn rest(&self) -> u64 {
        self.len as u64 | (self.third as u64) << 32 | (self.fourth as u64) << 48
    }
}

/// A descriptor in a guest's memory: the address, and the rest as one word, which is loaded and
/// stored atomically. So no reader sees half of our store, not even a successor that continues
/// after we were killed.
#[derive(Debug)]
#[repr(C, align(16))]
pub(super) struct Shared {
    address: AtomicU64,
    rest: AtomicU64,
}

impl Shared {
    /// Loads each word once. `order` applies to the second word, which is loaded before the
    /// address.
    #[inline]
    pub(super) fn load(&self, order: Ordering) -> Descriptor {
        let rest = u64::from_le(self.rest.load(order));
        Descriptor::of(u64::from_le(self.address.load(Ordering::Relaxed)), rest)
    }

    /// Loads the last two bytes.
    #[inline]
    pub(super) fn fourth(&self) -> u16 {
        Descriptor::of(0, u64::from_le(self.rest.load(Ordering::Relaxed))).fourth
    }

    /// Stores all but the address, with release semantics.
    #[inline]
    pub(super) fn store_rest(&self, descriptor: &Descriptor) {
        #[cfg(test)]
        if !kill::is_alive() {
            return;
        }
        self.rest.store(descriptor.rest().to_le(), Ordering::Release);
    }
}

/// A table of `T`, which consists of atomics, in a guest's memory. The holder of the table must
/// hold the memory as well.
#[derive(Debug)]
pub(super) struct Table<T> {
    start: NonNull<T>,
    count: u32,
}

// SAFETY: a table is an address in memory that its holder keeps mapped, and all accesses are
// atomic, which any thread may do.
unsafe impl<T: Sync> Send for Table<T> {}

impl<T> Table<T> {
    /// The table in `bytes`; `None` if it is empty or not aligned.
    pub(super) fn new(bytes: GuestBytes<'_>) -> Option<Self> {
        let start = bytes.as_ptr().cast::<T>();
        let count = u32::try_from(bytes.len() / size_of::<T>()).ok()?;
        (count > 0 && start.is_aligned()).then_some(Self { start, count })
    }

    /// Prefetches the entry at `index`, which need not exist.
    #[inline]
    pub(super) fn prefetch(&self, index: u32, access: Access) {
        prefetch(self.start.as_ptr().wrapping_add(index as usize), access);
    }

    /// The entry at `index`; `None` if there is none.
    ///
    /// # Safety
    /// The memory of the table must still be mapped, and `T` must consist of atomics.
    #[inline]
    pub(super) unsafe fn get(&self, index: u32) -> Option<&T> {
        if index >= self.count {
            return None;
        }
        // SAFETY: the entry exists, and the caller promises the rest.
        Some(unsafe { self.at(index) })
    }

    /// The entry at `index`, or the last one if there are fewer.
    ///
    /// # Safety
    /// As for [`Self::get`].
    #[inline]
    pub(super) unsafe fn at(&self, index: u32) -> &T {
        let index = index.min(self.count - 1);
        // SAFETY: a table has at least one entry, and all entries are within the bytes that it was
        // made of.
        let entry = unsafe { self.start.add(index as usize) };
        // SAFETY: the caller promises that the bytes are mapped; the entry is aligned, any bytes
        // are a valid atomic, and atomics permit concurrent writes by the guest.
        unsafe { entry.as_ref() }
    }
}

impl Descriptor {
    /// The descriptor at `index` of an indirect table, at any address.
    #[inline]
    pub(super) fn of_table(table: GuestBytes<'_>, index: u16) -> Self {
        let mut bytes = [0; 16];
        table.skip(usize::from(index) * bytes.len()).read(&mut bytes);
        let whole = u128::from_le_bytes(bytes);
        Self::of(low_half(whole), low_half(whole >> 64))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is asked for")]
const fn low_half(value: u128) -> u64 {
    value as u64
}

/// Lets tests simulate our death between two stores: stores of a dead process have no effect.
#[cfg(test)]
pub(super) mod kill {
    use std::cell::Cell;

    thread_local! {
        static STORES_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    }

    /// Drops this thread's stores after `stores` more, as if it were killed; [`u32::MAX`] is never.
    pub(crate) fn after(stores: u32) {
        STORES_LEFT.set(stores);
    }

    pub(super) fn is_alive() -> bool {
        let left = STORES_LEFT.get();
        STORES_LEFT.set(if left == u32::MAX { left } else { left.saturating_sub(1) });
        left > 0
    }
}
