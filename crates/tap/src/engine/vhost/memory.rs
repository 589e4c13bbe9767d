//! Memory that a kernel thread reads and writes while we do.
//!
//! A ring needs memory whose address stays, and buffers whose pages are there before the first
//! frame comes: both are mapped, not taken from the heap, and touched at once, so a lack of memory
//! shows when the engine is made and never as a lost frame.
//!
//! **Mirrored memory** is mapped twice, the second time right behind the first. What runs past the
//! end goes on at the start, and still is one piece. So frames of any length lie one behind the
//! other in a ring of bytes, each contiguous.
//!
//! Safe code cannot do it: mmap(2) hands out addresses, and no `&mut [u8]` may say of a byte that
//! the kernel writes that nobody else does. Whoever asks for bytes here promises that the kernel
//! does not have them.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Mapped memory, zero at first, unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    /// Of all that is mapped: twice the bytes there are when mirrored.
    len: usize,
}

impl Mapping {
    /// `len` bytes, in whole pages.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping where the kernel likes it takes nothing from anybody.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, READ_WRITE, flags) }?;
        Self::adopt(base.cast(), len)
    }

    /// `len` bytes that appear twice, one copy behind the other: byte `len + i` is byte `i`. `len`
    /// is a multiple of the page size.
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

    /// Address space without memory.
    fn reserve(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let none = ProtFlags::empty();
        // SAFETY: a new mapping where the kernel likes it takes nothing from anybody.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, none, flags) }?;
        Self::adopt(base.cast(), len)
    }

    /// Puts the start of `file` over `range` of what is mapped here.
    fn map_file(&self, file: &OwnedFd, range: Range<usize>) -> io::Result<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        let at = self.at(range.start).as_ptr().cast();
        // SAFETY: the range lies in our own mapping, to which nothing refers yet: it is reserved.
        unsafe { rustix::mm::mmap(at, range.len(), READ_WRITE, flags, file, 0) }?;
        Ok(())
    }

    fn adopt(base: *mut u8, len: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Where it starts: what the kernel is told.
    pub(super) fn address(&self) -> u64 {
        // usize is at most 64 bits wide on Linux.
        self.base.as_ptr() as u64
    }

    /// Bytes of address space; of mirrored memory, both copies.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The byte at `offset`, which is at most the length.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.len);
        // SAFETY: the offset lies within the mapping, or one byte behind it.
        unsafe { self.base.add(offset) }
    }

    /// The bytes in `range`.
    ///
    /// # Safety
    /// `range` lies within the mapping. While the answer lives, nobody else writes or reads these
    /// bytes, in either copy: neither the kernel nor another answer of this function.
    #[expect(clippy::mut_from_ref, reason = "several pieces are lent at once; see Safety")]
    pub(super) unsafe fn bytes(&self, range: Range<usize>) -> &mut [u8] {
        debug_assert!(range.end <= self.len && range.start <= range.end);
        let start = self.at(range.start).as_ptr();
        // SAFETY: mapped, initialised (zero at first), any byte is valid, and the caller promises
        // that nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(start, range.end - range.start) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whatever borrows from it does not outlive it. Its owners
        // take it away from the kernel first.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Mapping {}

// SAFETY: a shared mapping gives out addresses; bytes only against the promise that nobody else
// has them.
unsafe impl Sync for Mapping {}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_memory_is_zero_and_ours() {
        let memory = Mapping::new(10_000).unwrap();
        // SAFETY: nobody else has the mapping.
        let bytes = unsafe { memory.bytes(0..10_000) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(7);
        assert_eq!(memory.address() % 4096, 0);
    }

    #[test]
    fn mirrored_memory_goes_on_at_its_start() {
        let memory = Mapping::mirrored(8192).unwrap();
        assert_eq!(memory.len(), 16_384);
        // SAFETY: nobody else has the mapping, and this is the only piece at this time.
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
