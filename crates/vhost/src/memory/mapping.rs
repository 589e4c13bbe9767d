//! Mapped files.
//!
//! **Sharing.** The devices of one virtual machine have the same memory, and each of them sends it.
//! It is mapped once for all of them: a page that a frame enters by one device and leaves by
//! another then takes one entry in the processor's cache of addresses (TLB), not one per device.
//! The kernel has agreed to each sender's mapping before it is replaced by the shared one, so
//! nobody gets access by passing a file that someone else may map. If a file is truncated, all its
//! devices are reset.

use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags};

use super::MapError;
use crate::guard::Guarded;

/// Page size of `file` in bytes; `None` for a kind that is not accepted.
fn page_size(file: &OwnedFd) -> Result<Option<usize>, rustix::io::Errno> {
    let stat = rustix::fs::fstatfs(file)?;
    // On hugetlbfs, the block size is the page size.
    let huge = usize::try_from(stat.f_bsize).ok().filter(|size| size.is_power_of_two());
    Ok(match stat.f_type {
        TMPFS | RAMFS => Some(rustix::param::page_size()),
        HUGETLBFS => huge,
        _ => None,
    })
}

/// A mapped file whose truncation does not end the process.
pub(crate) struct Mapping {
    /// Dropped first: the addresses of a removed mapping may be reused at once.
    guarded: Guarded,
    mapped: Mapped,
}

impl Mapping {
    /// Maps `len` bytes at `offset`; their sum does not overflow.
    pub(crate) fn new(file: &OwnedFd, offset: u64, len: u64) -> Result<Self, MapError> {
        Self::guard(Mapped::new(file, offset, len)?)
    }

    /// As [`Self::new`], but the mapping of these bytes that already exists, if there is one and
    /// all of it is still in the file.
    pub(super) fn shared(file: &OwnedFd, offset: u64, len: u64) -> Result<Arc<Self>, MapError> {
        let mapped = Mapped::new(file, offset, len)?;
        let range = Range::of(file, offset, len)?;
        let mut in_use = IN_USE.lock();
        in_use.retain(|(_, mapping)| mapping.strong_count() > 0);
        let mut same = in_use.iter().filter(|(other, _)| *other == range);
        if let Some(mapping) = same.find_map(|(_, mapping)| mapping.upgrade().filter(is_intact)) {
            return Ok(mapping);
        }
        let mapping = Arc::new(Self::guard(mapped)?);
        in_use.push((range, Arc::downgrade(&mapping)));
        Ok(mapping)
    }

    fn guard(mapped: Mapped) -> Result<Self, MapError> {
        let guarded = Guarded::new(mapped.base as usize, mapped.len, mapped.page_size);
        Ok(Self { guarded: guarded.ok_or(MapError::TooMany)?, mapped })
    }

    /// The first byte of the mapping, which is valid as long as `self`.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.mapped.start
    }

    /// True if a part of the file was missing: the mapping may be of other memory since then.
    #[inline]
    pub(super) fn was_hit(&self) -> bool {
        self.guarded.was_hit()
    }
}

fn is_intact(mapping: &Arc<Mapping>) -> bool {
    !mapping.was_hit()
}

/// The mappings of guests' memory. A mapping keeps its file, so no other one gets its number.
static IN_USE: Mutex<Vec<(Range, Weak<Mapping>)>> = Mutex::new(Vec::new());

/// Bytes of a file.
#[derive(PartialEq, Eq)]
struct Range {
    device: u64,
    inode: u64,
    offset: u64,
    len: u64,
}

impl Range {
    fn of(file: &OwnedFd, offset: u64, len: u64) -> Result<Self, rustix::io::Errno> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, offset, len })
    }
}

/// A mapped file.
struct Mapped {
    /// First byte of the region.
    start: NonNull<u8>,
    /// The whole mapping, which includes the rest of the region's first and last page.
    base: *mut libc::c_void,
    len: usize,
    page_size: usize,
}

impl Mapped {
    fn new(file: &OwnedFd, offset: u64, len: u64) -> Result<Self, MapError> {
        let page_size = page_size(file)?.ok_or(MapError::Kind)?;
        let file_len = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let end = offset.saturating_add(len);
        if file_len < end {
            return Err(MapError::TooShort { file_len, end });
        }
        Ok(Self::of_pages(file, offset, len, page_size)?)
    }

    fn of_pages(
        file: &OwnedFd,
        offset: u64,
        len: u64,
        page_size: usize,
    ) -> Result<Self, rustix::io::Errno> {
        const OVERFLOW: rustix::io::Errno = rustix::io::Errno::OVERFLOW;
        let in_front = offset % page_size as u64;
        let len = len.checked_add(in_front).and_then(|len| usize::try_from(len).ok());
        let len = len.and_then(|len| len.checked_next_multiple_of(page_size)).ok_or(OVERFLOW)?;
        let at = offset - in_front;
        let in_front = usize::try_from(in_front).map_err(|_| OVERFLOW)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address chosen by the kernel affects no other.
        let base = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, access, flags | MapFlags::NORESERVE, file, at)
        }?;
        // SAFETY: `in_front` is less than a page, and the mapping has at least one byte behind it.
        let start = NonNull::new(unsafe { base.cast::<u8>().add(in_front) }).ok_or(OVERFLOW)?;
        Ok(Self { start, base, len, page_size })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `new` mapped; `GuestBytes` borrow the memory that owns
        // it, so none is left.
        // A mapping that cannot be removed stays; nothing can be done about it.
        let _ = unsafe { rustix::mm::munmap(self.base, self.len) };
    }
}

// SAFETY: the mapping is plain shared memory, the same from every thread; it is only copied from
// and to, and unmapped once.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// `TMPFS_MAGIC`, also of memfds.
const TMPFS: i64 = 0x0102_1994;
/// `RAMFS_MAGIC`, which replaces tmpfs in kernels without it.
const RAMFS: i64 = 0x8584_58f6;
/// `HUGETLBFS_MAGIC`.
const HUGETLBFS: i64 = 0x9584_58f6;
