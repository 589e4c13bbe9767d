//! A guest's memory, as far as its VMM shares it.
//!
//! **Trust.** The guest writes this memory while we read it, and the VMM may truncate the file
//! behind it. So nothing in here is ever borrowed as `&[u8]` or `&mut [u8]`: [`GuestBytes`] only
//! copies in and out, and decisions are made on a value that was fetched once. Reading a page that
//! no longer exists would end the process by `SIGBUS`; see [`crate::guard`].
//!
//! Only memfds and files on tmpfs and hugetlbfs are accepted. Any other file system may block an
//! access to a page for any time (FUSE: as long as the guest's owner likes), and a worker that is
//! blocked serves no other guest. **On tmpfs, too, an access may block:** on a page that is swapped
//! out, until the disk has read it; and in a range in which a hole is being punched (fallocate(2),
//! which every holder of the file may call), until that is done (`shmem_fault`): a worker was
//! blocked for 0.6 s while 2 GiB were removed. Replacing a truncated mapping ([`crate::guard`])
//! takes as long as unmapping its touched pages. Huge pages are not swapped. Against an owner who
//! punches holes on purpose, use a separate switch for that owner's guests.
//!
//! Addresses are found by a search over the regions: a guest has two or three, at most eight
//! (`VHOST_MEMORY_BASELINE_NREGIONS`), or a few dozen with memory hotplug.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

mod mapping;

pub(crate) use self::mapping::Mapping;
use crate::copy::copy;

/// A region as described by the VMM (vhost-user `VHOST_USER_SET_MEM_TABLE`).
#[derive(Debug)]
pub struct RegionSpec {
    /// Guest-physical address of its first byte.
    pub guest_address: u64,
    /// Address of its first byte in the VMM's address space, which is used to describe rings.
    pub user_address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset of the region in the file.
    pub offset: u64,
    /// The memory: a memfd, or a file on tmpfs or hugetlbfs, opened for reading and writing.
    pub file: OwnedFd,
}

/// Why a guest's memory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// No memory is shared.
    #[error(
        "the guest's memory is not shared; give the VM shared memory, as in QEMU's \
         -object memory-backend-memfd,id=mem,size=SIZE,share=on -numa node,memdev=mem"
    )]
    NotShared,
    /// A region is empty, or its end exceeds the address space.
    #[error("memory region at guest address {guest_address:#x}: {len} bytes extend beyond 2^64")]
    Range {
        /// Its address.
        guest_address: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Two regions contain the same guest address.
    #[error("memory regions overlap at guest address {guest_address:#x}")]
    Overlap {
        /// The first address in both.
        guest_address: u64,
    },
    /// One guest has more memory than permitted.
    #[error("the guest's memory has {len} bytes; expected at most {MEMORY_LEN_MAX}")]
    TooMuch {
        /// Bytes of all regions.
        len: u64,
    },
    /// A region cannot be mapped.
    #[error("memory region at guest address {guest_address:#x}: {source}")]
    Unmappable {
        /// Its address.
        guest_address: u64,
        /// The cause.
        source: MapError,
    },
}

/// Why a file passed by a VMM cannot be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The file is shorter than the region.
    #[error("its file has {file_len} bytes, the region ends at {end}")]
    TooShort {
        /// Bytes in the file.
        file_len: u64,
        /// End of the region in the file.
        end: u64,
    },
    /// Pages of this kind of file may have to be waited for.
    #[error(
        "its file is neither a memfd nor on tmpfs or hugetlbfs, and access to other files may \
         block; use one, as in QEMU's memory-backend-file with mem-path=/dev/shm"
    )]
    Kind,
    /// All guests together have more mappings than can be guarded.
    #[error(
        "the guests have too many memory regions in total; stop one of them, or configure their \
         memory in fewer regions"
    )]
    TooMany,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

impl From<rustix::io::Errno> for MapError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Kernel(errno.into())
    }
}

/// The mapped memory of a guest.
pub struct GuestMemory {
    /// Without overlap, the largest first.
    regions: Box<[Region]>,
    /// A byte other than zero was found where a guest's memory always has some.
    was_written: AtomicBool,
    /// Some of the guest's memory was removed, and may come back.
    is_partial: bool,
}

struct Region {
    guest_address: u64,
    user_address: u64,
    len: u64,
    /// First byte of `mapping`, which many accesses need.
    start: NonNull<u8>,
    mapping: Arc<Mapping>,
}

// SAFETY: the mapping is plain shared memory, the same from every thread; it is only copied from
// and to, and stays as long as the region.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Bytes of all regions together.
pub(crate) fn len_of(regions: &[RegionSpec]) -> u64 {
    regions.iter().fold(0, |len, region| len.saturating_add(region.len))
}

impl GuestMemory {
    /// Maps the regions.
    ///
    /// # Errors
    /// If there are none, if they overlap, or if one cannot be mapped as a whole.
    pub fn new(specs: &[RegionSpec]) -> Result<Arc<Self>, MemoryError> {
        Self::of_guest(specs, false)
    }

    /// As [`Self::new`], with whether some of the guest's memory was removed.
    pub(crate) fn of_guest(
        specs: &[RegionSpec],
        is_partial: bool,
    ) -> Result<Arc<Self>, MemoryError> {
        let len = len_of(specs);
        if len > MEMORY_LEN_MAX {
            return Err(MemoryError::TooMuch { len });
        }
        let mut regions = specs.iter().map(Region::new).collect::<Result<Vec<_>, MemoryError>>()?;
        if regions.is_empty() {
            return Err(MemoryError::NotShared);
        }
        regions.sort_by_key(|region| region.guest_address);
        for pair in regions.windows(2) {
            let guest_address = pair[1].guest_address;
            if guest_address - pair[0].guest_address < pair[0].len {
                return Err(MemoryError::Overlap { guest_address });
            }
        }
        // Most of a guest's buffers are in its largest region, so it is searched first.
        regions.sort_by_key(|region| std::cmp::Reverse(region.len));
        let (regions, was_written) = (regions.into(), AtomicBool::new(false));
        Ok(Arc::new(Self { regions, was_written, is_partial }))
    }

    /// The `len` bytes at guest address `address`, if they are in one region.
    #[inline]
    pub fn find(&self, address: u64, len: u64) -> Option<GuestBytes<'_>> {
        self.regions.iter().find_map(|region| region.bytes(region.guest_address, address, len))
    }

    /// The largest region, which contains nearly all buffers.
    #[inline]
    pub(crate) fn largest(&self) -> Option<Window<'_>> {
        let Region { guest_address, len, .. } = *self.regions.first()?;
        Some(Window { guest_address, bytes: self.find_start(guest_address, len)? })
    }

    /// The `len` bytes at the VMM's `address`, if they are in one region.
    pub fn find_user(&self, address: u64, len: u64) -> Option<GuestBytes<'_>> {
        self.regions.iter().find_map(|region| region.bytes(region.user_address, address, len))
    }

    /// The first of the `len` bytes at guest address `address` that are in one region.
    pub fn find_start(&self, address: u64, len: u64) -> Option<GuestBytes<'_>> {
        self.regions.iter().find_map(|region| {
            let left = region.len.checked_sub(address.checked_sub(region.guest_address)?)?;
            let len = (left > 0).then_some(len.min(left))?;
            region.bytes(region.guest_address, address, len)
        })
    }

    /// The guest address of `bytes`, which are in one region: the inverse of [`Self::find`].
    pub(crate) fn guest_address(&self, bytes: GuestBytes<'_>) -> Option<u64> {
        self.regions.iter().find_map(|region| {
            let start = region.start.as_ptr() as usize;
            let offset = (bytes.start.as_ptr() as usize).checked_sub(start)? as u64;
            (offset < region.len).then(|| region.guest_address + offset)
        })
    }

    /// True if the first bytes of each region, up to a mebibyte, are zero: a machine with a running
    /// driver has no such memory, unless we see another copy of it. Once a byte is found, the
    /// memory is not examined again.
    pub fn is_blank(&self) -> bool {
        if self.was_written.load(Ordering::Relaxed) {
            return false;
        }
        #[cfg(test)]
        look::begins();
        let is_blank = self.regions.iter().all(|region| {
            let start = self.find_start(region.guest_address, region.len.min(BLANK_LEN));
            start.is_some_and(is_zero)
        });
        self.was_written.store(!is_blank, Ordering::Relaxed);
        is_blank
    }

    /// True if some of the guest's memory was removed by the VMM's messages, and may come back.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// True if the VMM has truncated memory: the bytes read from there were zero.
    #[inline]
    pub fn was_lost(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.was_hit())
    }
}

impl fmt::Debug for GuestMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.regions.iter().map(|r| (r.guest_address, r.len));
        f.debug_list().entries(ranges).finish()
    }
}

impl Region {
    fn new(spec: &RegionSpec) -> Result<Self, MemoryError> {
        let RegionSpec { guest_address, user_address, len, offset, ref file } = *spec;
        let fits = |start: u64| start.checked_add(len).is_some();
        if len == 0 || !fits(guest_address) || !fits(user_address) || !fits(offset) {
            return Err(MemoryError::Range { guest_address, len });
        }
        let mapping = Mapping::shared(file, offset, len)
            .map_err(|source| MemoryError::Unmappable { guest_address, source })?;
        Ok(Self { guest_address, user_address, len, start: mapping.start(), mapping })
    }

    /// The `len` bytes at `address` of a region that starts at `start`.
    #[inline]
    fn bytes(&self, start: u64, address: u64, len: u64) -> Option<GuestBytes<'_>> {
        let offset = address.checked_sub(start)?;
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // Both fit: the whole region is mapped here.
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        // SAFETY: `offset` is at most the mapping's length, checked above.
        let start = unsafe { self.start.add(offset) };
        Some(GuestBytes { start, len, memory: PhantomData })
    }
}

fn is_zero(bytes: GuestBytes<'_>) -> bool {
    let mut page = [0; 4096];
    let mut pages = (0..bytes.len()).step_by(page.len());
    pages.all(|at| {
        let len = bytes.skip(at).read(&mut page);
        page[..len].iter().all(|byte| *byte == 0)
    })
}

/// A region, for many lookups.
#[derive(Clone, Copy)]
pub(crate) struct Window<'m> {
    guest_address: u64,
    bytes: GuestBytes<'m>,
}

impl<'m> Window<'m> {
    /// The `len` bytes at guest address `address`, if they are in this region.
    #[inline]
    pub(crate) fn find(self, address: u64, len: u32) -> Option<GuestBytes<'m>> {
        let (offset, len) = (address.wrapping_sub(self.guest_address), u64::from(len));
        let room = (self.bytes.len() as u64).checked_sub(offset)?;
        if len > room {
            return None;
        }
        // Both fit: the whole region is mapped here.
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        Some(self.bytes.skip(offset).first(len))
    }
}

/// Bytes of a guest's memory, which may change at any time.
#[derive(Clone, Copy)]
pub struct GuestBytes<'m> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'m GuestMemory>,
}

impl<'m> GuestBytes<'m> {
    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes from `at` on; empty if there are fewer.
    #[inline]
    #[must_use]
    pub fn skip(self, at: usize) -> Self {
        let at = at.min(self.len);
        // SAFETY: `at` is within what this spans.
        let start = unsafe { self.start.add(at) };
        Self { start, len: self.len - at, memory: PhantomData }
    }

    /// The first `len` bytes, or all if there are fewer.
    #[inline]
    #[must_use]
    pub fn first(self, len: usize) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// Copies as many bytes as fit into `out`. Returns the number copied.
    #[inline]
    pub fn read(&self, out: &mut [u8]) -> usize {
        let len = self.len.min(out.len());
        // SAFETY: `len` bytes are mapped at `start` as long as the memory is borrowed, and `out` is
        // exclusively ours. The guest may write meanwhile: any bytes are valid, and torn ones harm
        // only the guest.
        unsafe { copy(self.start.as_ptr(), out.as_mut_ptr(), len) };
        // Decisions on the copy must be based on this one fetch: the compiler must not load the
        // guest's bytes again after this line.
        compiler_fence(Ordering::Acquire);
        len
    }

    /// Copies as many bytes of `from` as fit. Returns the number copied.
    #[inline]
    pub fn write(&self, from: &[u8]) -> usize {
        let len = self.len.min(from.len());
        // SAFETY: as for `read`; by sharing the memory, the guest permits our writes.
        unsafe { copy(from.as_ptr(), self.start.as_ptr(), len) };
        len
    }

    /// Copies as many bytes of `from`, of another guest or the same one, as fit. Returns the number
    /// copied.
    #[inline]
    pub fn write_from(&self, from: GuestBytes<'_>) -> usize {
        let len = self.len.min(from.len);
        // SAFETY: `len` bytes are mapped at both addresses. They may overlap if a guest sends to
        // itself, which `copy` permits.
        unsafe { copy(from.start.as_ptr(), self.start.as_ptr(), len) };
        len
    }

    /// Prefetches the cache lines from offset `start` to `end`, but no more than a usual frame has:
    /// lines that are not used soon displace others, and processors continue long copies by
    /// themselves.
    #[inline]
    pub(crate) fn prefetch_lines(self, start: usize, end: usize, access: Access) {
        let end = end.min(self.len()).min(PREFETCH_LEN);
        // Not by `step_by`: it divides first, and most frames have two lines.
        let mut at = start;
        while at < end {
            self.prefetch(at, access);
            at += LINE_LEN;
        }
        // The last line, if the lines do not start at `start`.
        if start < end {
            self.prefetch(end - 1, access);
        }
    }

    /// Prefetches the cache line at offset `at`, which another processor may have written.
    #[inline]
    pub(crate) fn prefetch(self, at: usize, access: Access) {
        prefetch(self.start.as_ptr().wrapping_add(at), access);
    }

    /// Address of the first byte, for the tables of a ring and for readv(2) and writev(2).
    #[inline]
    pub(crate) fn as_ptr(self) -> NonNull<u8> {
        self.start
    }

    /// Bytes at an address that [`Self::as_ptr`] has returned.
    ///
    /// # Safety
    /// Their memory must still be mapped for `'m`.
    #[inline]
    pub(crate) unsafe fn at(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, memory: PhantomData }
    }
}

impl fmt::Debug for GuestBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of a guest", self.len)
    }
}

/// What a cache line is prefetched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading: other processors keep their copies.
    Read,
    /// Writing. A line that was prefetched for reading would be requested again by the first
    /// write, as its own; and writes that wait for lines hold up all later ones, ours included.
    Write,
}

/// Prefetches the cache line at `address`, which need not be valid.
#[inline]
pub(crate) fn prefetch<T>(address: *const T, access: Access) {
    #[cfg(target_arch = "x86_64")]
    match access {
        Access::Read => {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch neither reads nor faults, whatever the address is.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        }
        // Not by `_MM_HINT_ET0`: without the target feature PRFCHW that is compiled to PREFETCHT0.
        // Processors without PREFETCHW ignore it.
        // SAFETY: as above; it changes neither registers nor memory.
        Access::Write => unsafe {
            asm!("prefetchw [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
        },
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, access);
}

/// Limit of one guest's memory in bytes. A sparse file costs its owner nothing, while our address
/// space of 2^47 is shared by all guests.
const MEMORY_LEN_MAX: u64 = 4 << 40;
/// Bytes of a cache line.
pub(crate) const LINE_LEN: usize = 64;
/// Bytes at the start of a buffer that are prefetched at most: a packet of usual length.
const PREFETCH_LEN: usize = 2048;
/// Bytes of a region that are examined for zeroes: they contain a PC's tables and firmware, or the
/// boot code of other machines.
const BLANK_LEN: u64 = 1 << 20;

/// Lets a test observe when memory is examined, and act meanwhile.
#[cfg(test)]
pub(crate) mod look {
    use std::cell::RefCell;

    type Watcher = Box<dyn FnMut()>;

    thread_local! {
        static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
    }

    /// Calls `watcher` whenever this thread is about to examine memory.
    pub(crate) fn watch(watcher: impl FnMut() + 'static) {
        WATCHER.set(Some(Box::new(watcher)));
    }

    pub(super) fn begins() {
        WATCHER.with_borrow_mut(|watcher| watcher.iter_mut().for_each(|watcher| watcher()));
    }
}

#[cfg(test)]
mod tests;
