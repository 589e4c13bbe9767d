//! The driver's side of a split virtqueue whose buffers are returned in the order of submission.
//!
//! A split virtqueue (virtio 1.2 §2.7) consists of three tables in shared memory. *Descriptors*
//! locate the buffers. The *available* ring lists buffers offered to the device; only the driver
//! writes it. The *used* ring lists buffers that the device returned; only the device writes it.
//! Both rings have an index that counts all entries ever made, modulo 65536, and is advanced after
//! the entries that it covers are written.
//!
//! **In order.** vhost-net takes buffers in the order of the available ring and returns them in
//! that order (`drivers/vhost/net.c`: its list of finished heads is a FIFO, in both directions). So
//! buffer number `p` is always descriptor `p % size`, the available ring is written once, and
//! offering a buffer again only advances the index. A buffer that is returned out of order is an
//! error ([`Broken`]); no memory is ever read at an index that the device wrote.
//!
//! **Notification** (`VIRTIO_F_EVENT_IDX`, §2.7.7.1, §2.7.10). Each side writes the index whose
//! passing is to wake it (the event index). While we poll, our event index lies behind: the used
//! index has already passed it, so the device sends no signal, except once in 65536 buffers when
//! the index wraps. Before sleeping, [`Ring::arm`] moves the event index to the next buffer, and
//! checks *again*:
//!
//! ```text
//! driver:  used_event = consumed;  fence;  sleeps only if used.idx == consumed
//! device:  used.idx   = new;       fence;  signals only if used_event was passed
//! ```
//!
//! Without the fences both could read values from before the other's store, and we would sleep with
//! work to do. With them at least one side sees the other's store, in every interleaving: the test
//! `no_wake_up_is_lost` enumerates all of them, store buffers included, and finds the lost wake-up
//! if a fence or the second check is removed. [`Ring::publish`] is symmetric: it returns whether
//! the device sleeps and must be kicked.
//!
//! **Byte order** is native: on little-endian machines that is virtio 1.x; on others the kernel
//! uses native order as long as `VIRTIO_F_VERSION_1` is not negotiated.
//!
//! **Out of scope:** indirect descriptors and chains. Buffers are contiguous (see `memory.rs`), so
//! one descriptor suffices.

use std::io;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::memory::Mapping;

/// The driver's side of a virtqueue.
#[derive(Debug)]
pub(super) struct Ring {
    tables: Tables,
    /// Number of buffers offered, not all published yet. All counts are modulo 65536.
    offered: u16,
    /// Number of buffers that the device can see.
    published: u16,
    /// Number of buffers returned, when last checked.
    used: u16,
    /// Number of buffers taken back with [`Self::take`].
    taken: u16,
}

impl Ring {
    /// Creates a ring of `size` buffers, a power of two up to 32768, none offered. Its indices
    /// start at `base`, which must be set in the device.
    pub(super) fn new(size: u16, base: u16) -> io::Result<Self> {
        let tables = Tables::new(size)?;
        for position in 0..size {
            tables.avail_entry(position).store(position, Ordering::Relaxed);
        }
        tables.avail_index().store(base, Ordering::Relaxed);
        tables.used_index().store(base, Ordering::Relaxed);
        // Already passed: no signals until the ring is armed.
        tables.used_event().store(base.wrapping_sub(1), Ordering::Relaxed);
        Ok(Self { tables, offered: base, published: base, used: base, taken: base })
    }

    /// Number of buffers that can be offered now.
    #[inline]
    pub(super) fn free(&self) -> u16 {
        self.size() - self.offered.wrapping_sub(self.taken)
    }

    /// Offers a buffer; at least one must be free. [`Self::publish`] passes it to the device, which
    /// owns it until it is taken back.
    #[inline]
    pub(super) fn offer(&mut self, buffer: Buffer) {
        debug_assert!(self.free() > 0);
        let descriptor = self.tables.descriptor(self.offered);
        descriptor.address.store(buffer.address, Ordering::Relaxed);
        descriptor.len.store(buffer.len, Ordering::Relaxed);
        let flags = if buffer.is_writable { DESCRIPTOR_WRITE } else { 0 };
        descriptor.flags.store(flags, Ordering::Relaxed);
        self.offered = self.offered.wrapping_add(1);
    }

    /// Offers the next `count` buffers again unchanged: those at the same positions in the previous
    /// round. At least `count` must be free.
    #[inline]
    pub(super) fn offer_again(&mut self, count: u16) {
        debug_assert!(self.free() >= count);
        self.offered = self.offered.wrapping_add(count);
    }

    /// Publishes all offered buffers. Returns whether the device sleeps and needs a kick.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if self.offered == self.published {
            return false;
        }
        // Release: a reader of the index sees the descriptors and the contents of the buffers.
        self.tables.avail_index().store(self.offered, Ordering::Release);
        // Orders the store of the index before the load of the event index; see the module.
        fence(Ordering::SeqCst);
        let wish = self.tables.avail_event().load(Ordering::Relaxed);
        let kick = passes(wish, self.published, self.offered);
        self.published = self.offered;
        kick
    }

    /// Takes back the next buffer that the device has finished. Returns the number of bytes written
    /// according to the device, which the caller must check.
    #[inline]
    pub(super) fn take(&mut self) -> Result<Option<u32>, Broken> {
        if self.taken == self.used && !self.look()? {
            return Ok(None);
        }
        let element = self.tables.used_entry(self.taken);
        let id = element.id.load(Ordering::Relaxed);
        let due = self.tables.slot(self.taken);
        if id != u32::from(due) {
            return Err(Broken::OutOfTurn { id, due });
        }
        let len = element.len.load(Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(len))
    }

    /// Requests a signal after `count` more buffers are returned, at least 1. Returns `false` if
    /// they are already: then there may be no signal, so do not sleep.
    pub(super) fn arm(&mut self, count: u16) -> Result<bool, Broken> {
        let wish = self.taken.wrapping_add(count).wrapping_sub(1);
        self.tables.used_event().store(wish, Ordering::Relaxed);
        // Orders the store of the event index before the load of the index; see the module.
        fence(Ordering::SeqCst);
        self.look()?;
        Ok(self.used.wrapping_sub(self.taken) < count)
    }

    /// Position in the ring, from 0, of the next buffer to be returned.
    #[inline]
    pub(super) const fn next_taken(&self) -> u16 {
        self.tables.slot(self.taken)
    }

    /// Position in the ring, from 0, of the next buffer to be offered.
    #[inline]
    pub(super) const fn next_offered(&self) -> u16 {
        self.tables.slot(self.offered)
    }

    /// Number of buffers.
    #[inline]
    pub(super) const fn size(&self) -> u16 {
        self.tables.size
    }

    /// Addresses of descriptors, available and used ring, for the device.
    pub(super) fn addresses(&self) -> [u64; 3] {
        self.tables.addresses()
    }

    /// Reads the used index; true if buffers were returned since.
    #[inline]
    fn look(&mut self) -> Result<bool, Broken> {
        // Acquire: what the device wrote before the index is visible after it.
        let used = self.tables.used_index().load(Ordering::Acquire);
        let came_back = used.wrapping_sub(self.taken);
        let out = self.published.wrapping_sub(self.taken);
        if came_back > out {
            return Err(Broken::TooMany { came_back, out });
        }
        self.used = used;
        Ok(came_back > 0)
    }
}

/// A buffer as the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    /// Its address in our memory.
    pub(super) address: u64,
    /// Its length in bytes.
    pub(super) len: u32,
    /// Whether the device writes it (or reads it).
    pub(super) is_writable: bool,
}

/// The three tables in shared memory. Positions may be counts: they are taken modulo the size.
#[derive(Debug)]
struct Tables {
    memory: Mapping,
    layout: Layout,
    size: u16,
}

impl Tables {
    fn new(size: u16) -> io::Result<Self> {
        if !size.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let layout = Layout::new(size);
        Ok(Self { memory: Mapping::new(layout.used + layout.used_len)?, layout, size })
    }

    fn addresses(&self) -> [u64; 3] {
        [0, self.layout.avail, self.layout.used]
            .map(|offset| self.memory.at(offset).as_ptr() as u64)
    }

    #[inline]
    const fn slot(&self, position: u16) -> u16 {
        position & (self.size - 1)
    }

    #[inline]
    fn descriptor(&self, position: u16) -> &Descriptor {
        let offset = size_of::<Descriptor>() * usize::from(self.slot(position));
        // SAFETY: (`slot` is below the size.) One of the `size` descriptors, which come first.
        unsafe { self.cell(offset) }
    }

    #[inline]
    fn avail_index(&self) -> &AtomicU16 {
        // SAFETY: the index follows two bytes of flags in the available ring.
        unsafe { self.cell(self.layout.avail + 2) }
    }

    #[inline]
    fn avail_entry(&self, position: u16) -> &AtomicU16 {
        let offset = self.layout.avail + 4 + 2 * usize::from(self.slot(position));
        // SAFETY: one of the `size` entries after flags and index.
        unsafe { self.cell(offset) }
    }

    /// Written by us: the device signals when its index passes this one.
    #[inline]
    fn used_event(&self) -> &AtomicU16 {
        let offset = self.layout.avail + 4 + 2 * usize::from(self.size);
        // SAFETY: the two bytes after the entries of the available ring.
        unsafe { self.cell(offset) }
    }

    #[inline]
    fn used_index(&self) -> &AtomicU16 {
        // SAFETY: the index follows two bytes of flags in the used ring.
        unsafe { self.cell(self.layout.used + 2) }
    }

    #[inline]
    fn used_entry(&self, position: u16) -> &UsedEntry {
        let entry = size_of::<UsedEntry>() * usize::from(self.slot(position));
        // SAFETY: one of the `size` entries after flags and index.
        unsafe { self.cell(self.layout.used + 4 + entry) }
    }

    /// Written by the device: it needs a kick when our index passes this one.
    #[inline]
    fn avail_event(&self) -> &AtomicU16 {
        let entries = size_of::<UsedEntry>() * usize::from(self.size);
        // SAFETY: the two bytes after the entries of the used ring.
        unsafe { self.cell(self.layout.used + 4 + entries) }
    }

    /// # Safety
    /// A `T` made of atomics lies at `offset`, aligned and within the memory.
    #[inline]
    unsafe fn cell<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller guarantees its position. All bytes are initialised and any are valid
        // for an integer; atomics allow for the device's writes.
        unsafe { self.memory.at(offset).cast().as_ref() }
    }
}

/// One descriptor (virtio 1.2 §2.7.5).
#[derive(Debug)]
#[repr(C, align(16))]
struct Descriptor {
    address: AtomicU64,
    len: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

/// One entry of the used ring (virtio 1.2 §2.7.8).
#[derive(Debug)]
#[repr(C)]
struct UsedEntry {
    id: AtomicU32,
    len: AtomicU32,
}

/// Offsets of the rings from the start of the memory, in bytes. Descriptors come first.
#[derive(Clone, Copy, Debug)]
struct Layout {
    avail: usize,
    used: usize,
    used_len: usize,
}

impl Layout {
    /// Each ring starts on its own cache line, because it has a different writer.
    const fn new(size: u16) -> Self {
        let size = size as usize;
        let avail = (size_of::<Descriptor>() * size).next_multiple_of(CACHE_LINE);
        // Flags, index and event index in addition to the entries.
        let used = (avail + 2 * (3 + size)).next_multiple_of(CACHE_LINE);
        Self { avail, used, used_len: 6 + size_of::<UsedEntry>() * size }
    }
}

/// True if advancing an index from `from` to `to` passes `wish` (§2.7.10, `vring_need_event`).
#[inline]
const fn passes(wish: u16, from: u16, to: u16) -> bool {
    to.wrapping_sub(wish).wrapping_sub(1) < to.wrapping_sub(from)
}

/// The device violates the rules of a virtqueue; the ring is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "the numbers are for whoever debugs it")]
pub(super) enum Broken {
    /// Buffer `id` was returned instead of `due`.
    OutOfTurn { id: u32, due: u16 },
    /// More buffers were returned than the device had.
    TooMany { came_back: u16, out: u16 },
    /// A length that exceeds the buffer, or a frame that does not fill its buffers.
    Length { len: u32 },
    /// A frame in zero buffers or more than possible (`num_buffers`).
    Count { count: u16 },
    /// Only some buffers of a frame were returned.
    Incomplete,
    /// The device reports that a ring is broken.
    Stopped,
}

impl Broken {
    /// Description for messages.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::OutOfTurn { .. } => "a buffer was returned out of order",
            Self::TooMany { .. } => "more buffers were returned than were in use",
            Self::Length { .. } => "a buffer was returned with an impossible length",
            Self::Count { .. } => "a frame occupies an impossible number of buffers",
            Self::Incomplete => "a frame is incomplete",
            Self::Stopped => "the kernel rejected a ring",
        }
    }
}

/// The device writes the buffer (§2.7.5).
const DESCRIPTOR_WRITE: u16 = 2;
/// Distance in bytes between locations that different threads write; some CPUs fetch lines in
/// pairs.
const CACHE_LINE: usize = 128;

#[cfg(test)]
mod tests;
