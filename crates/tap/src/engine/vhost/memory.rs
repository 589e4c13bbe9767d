//! Memory that a kernel thread accesses concurrently.
//!
//! A ring needs memory at a fixed address, and buffers whose pages exist before the first frame
//! arrives. Both are mapped rather than allocated from the heap, and populated at once, so that a
//! lack of memory fails when the engine is opened and never loses a frame.
//!
//! **Mirrored memory** is mapped twice, the second time directly after the first. A range that runs
//! past the end continues at the start and is still contiguous. So frames of any length follow each
//! other in a ring of bytes, each contiguous.
//!
//! Safe code cannot do this: mmap(2) returns addresses, and a `&mut [u8]` must not refer to bytes
//! that the kernel writes. The caller of [`Mapping::bytes`] guarantees that the kernel does not own
//! them.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Mapped memory, initially zero, unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    /// Length of the whole mapping: twice the number of bytes if mirrored.
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, rounded up to whole pages.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice affects no existing one.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, READ_WRITE, flags) }?;
        Self::adopt(base.cast(), len)
    }

    /// Maps `len` bytes twice, one copy after the other: byte `len + i` is byte `i`. `len` is a
    /// multiple of the page size.
    pub(super) fn mirrored(len: usize) -> io::Result<Self> {
        let both = len.checked_mul(2).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = rustix::fs::memfd_create("tapswitch-vhost", MemfdFlags::CLOEXEC)?;
        let file_len = u64::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        rustix::fs::ftruncate(&file, file_len)?;
        let reserved = Self::reserve(both)?;
        reserved.map_file(&file, 0..len)?;
        reserved.map_file(&file, len..both)?;
        Ok(reserved)
    }

    /// Reserves address space without memory.
    fn reserve(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let none = ProtFlags::empty();
        // SAFETY: a new mapping at an address of the kernel's choice affects no existing one.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, none, flags) }?;
        Self::adopt(base.cast(), len)
    }

    /// Maps the start of `file` over `range` of this mapping.
    fn map_file(&self, file: &OwnedFd, range: Range<usize>) -> io::Result<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        let at = self.at(range.start).as_ptr().cast();
        // SAFETY: the range lies in our own mapping, which is only reserved, so nothing refers to
        // it.
        unsafe { rustix::mm::mmap(at, range.len(), READ_WRITE, flags, file, 0) }?;
        Ok(())
    }

    fn adopt(base: *mut u8, len: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Start address, for the kernel.
    pub(super) fn address(&self) -> u64 {
        // usize is at most 64 bits wide on Linux.
        self.base.as_ptr() as u64
    }

    /// Bytes of address space; for mirrored memory, both copies.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Pointer to the byte at `offset`, which is at most the length.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.len);
        // SAFETY: the offset lies within the mapping, or one byte after it.
        unsafe { self.base.add(offset) }
    }

    /// The bytes in `range`.
    ///
    /// # Safety
    /// `range` lies within the mapping. During the lifetime of the result, nothing else reads or
    /// writes these bytes, in either copy: neither the kernel nor another result of this function.
    #[expect(clippy::mut_from_ref, reason = "several pieces are lent at once; see Safety")]
    pub(super) unsafe fn bytes(&self, range: Range<usize>) -> &mut [u8] {
        debug_assert!(range.end <= self.len && range.start <= range.end);
        let start = self.at(range.start).as_ptr();
        // SAFETY: mapped, initialised (zero at first), any byte is valid, and the caller guarantees
        // exclusive access.
        unsafe { std::slice::from_raw_parts_mut(start, range.end - range.start) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing that borrows from it outlives it. Its owners
        // take it away from the kernel first.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

// SAFETY: a mapping is not tied to a thread.
unsafe impl Send for Mapping {}

// SAFETY: a shared mapping provides addresses; it provides bytes only if the caller guarantees
// exclusive access.
unsafe impl Sync for Mapping {}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_memory_is_zero_and_ours() {
        let memory = Mapping::new(10_000).unwrap();
        // SAFETY: nothing else uses the mapping.
        let bytes = unsafe { memory.bytes(0..10_000) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(7);
        assert_eq!(memory.address() % 4096, 0);
    }

    #[test]
    fn mirrored_memory_goes_on_at_its_start() {
        let memory = Mapping::mirrored(8192).unwrap();
        assert_eq!(memory.len(), 16_384);
        // SAFETY: nothing else uses the mapping, and this is the only slice at this time.
        unsafe { memory.bytes(8190..8194) }.copy_from_slice(&[1, 2, 3, 4]);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.bytes(0..2) }, [3, 4]);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.bytes(16_382..16_384) }, [1, 2]);
    }

    #[test]
    fn too_much_memory_is_an_error() {
        assert!(Mapping::mirrored(usize::MAX / 2 + 1).is_err());
        assert!(Mapping::mirrored(1 << 46).is_err());
    }
}
