//! The dirty log: which pages of a guest's memory we write, for a VMM that migrates a running
//! guest.
//!
//! Such a VMM copies all pages to the destination, and again those that were written since, until
//! few are left. It tracks the guest's writes itself, and needs a log of ours ("Migration" in the
//! vhost-user specification). It shares a bitmap with one bit per page of guest memory, in which we
//! set bits and it clears them.
//!
//! **A page is logged after it was written**, never before: otherwise the VMM might clear the bit
//! and copy the page in between. And it is logged before the ring's lock is released: when a VMM
//! has stopped a ring, all of its writes are in the log.
//!
//! Logged are: each buffer that is given back, as far as it was written; and after each burst and
//! each change of event suppression, the parts of the ring that a device writes. We use our own
//! knowledge of their addresses: the address in VMMs' messages (`log_guest_addr`) is that of the
//! used ring, which does not cover the descriptors of a packed ring.
//!
//! Pages beyond the bitmap are not of interest to the VMM. Truncating the bitmap harms only that
//! VMM: bits are then set in an empty page ([`crate::guard`]).

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::chain::{Chain, Chains};
use crate::features::RingFeatures;
use crate::memory::{GuestMemory, MapError, Mapping};
use crate::ring::RingPlace;

/// A dirty bitmap shared with the VMM.
pub(crate) struct DirtyLog {
    mapping: Mapping,
    /// Length in bytes, each for eight pages.
    len: u64,
}

impl DirtyLog {
    /// Maps the `len` bytes of `file` at `offset`.
    pub(crate) fn new(file: &OwnedFd, offset: u64, len: u64) -> Result<Arc<Self>, LogError> {
        if len == 0 || len > LOG_LEN_MAX || offset.checked_add(len).is_none() {
            return Err(LogError::Range { len });
        }
        Ok(Arc::new(Self { mapping: Mapping::new(file, offset, len)?, len }))
    }

    /// Logs a write to the `len` bytes at guest address `address`.
    pub(crate) fn note(&self, address: u64, len: u64) {
        let Some(last) = len.checked_sub(1).and_then(|rest| address.checked_add(rest)) else {
            return;
        };
        let (first, last) = (address / PAGE_LEN, last / PAGE_LEN);
        for index in first / 8..=last / 8 {
            let Some(byte) = self.byte(index) else { return };
            let from = if index == first / 8 { first % 8 } else { 0 };
            let to = if index == last / 8 { last % 8 } else { 7 };
            let bits = u8::MAX << from & u8::MAX >> (7 - to);
            // Unconditionally, although most pages of a ring are logged again and again: a check of
            // the bits first might still see bits that the VMM has already cleared, while the VMM
            // does not see our write yet, as even x86 lets a load pass stores. A fence in front
            // would need one in the VMM (`tests` has the model). Two such exchanges are totally
            // ordered. Release: a reader that sees the bits sees the write.
            byte.fetch_or(bits, Ordering::Release);
        }
    }

    fn byte(&self, index: u64) -> Option<&AtomicU8> {
        let index = usize::try_from(index).ok().filter(|_| index < self.len)?;
        // SAFETY: the mapping has `len` bytes, and `index` is one of them.
        let byte = unsafe { self.mapping.start().add(index) };
        // JUSTIFICATION: the VMM clears bits while we set others; only an atomic in the shared page
        // itself loses none.
        // SAFETY: the byte is mapped as long as `self` exists, has any alignment, and is accessed
        // as an atomic by others too.
        Some(unsafe { AtomicU8::from_ptr(byte.as_ptr()) })
    }
}

impl fmt::Debug for DirtyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of {} pages", 8 * self.len)
    }
}

/// The dirty log of one ring.
#[derive(Debug)]
pub(crate) struct RingLog {
    log: Arc<DirtyLog>,
    /// Guest addresses and lengths of the parts of the ring that a device writes.
    parts: Vec<(u64, u64)>,
    /// Whether buffers are logged as well.
    buffers: bool,
}

impl RingLog {
    /// The log of the ring at `place` in `memory`; with its buffers or without.
    pub(crate) fn new(
        log: Arc<DirtyLog>,
        memory: &GuestMemory,
        place: &RingPlace,
        features: RingFeatures,
        buffers: bool,
    ) -> Self {
        let parts = place.written_by_devices(features).into_iter().filter_map(|(address, len)| {
            let bytes = memory.find_user(address, len)?;
            Some((memory.guest_address(bytes)?, len))
        });
        Self { log, parts: parts.collect(), buffers }
    }

    /// Logs the first `written` bytes of a buffer.
    #[cold]
    pub(crate) fn note_buffer(
        &self,
        memory: &GuestMemory,
        chains: &Chains,
        chain: &Chain,
        written: u32,
    ) {
        let mut left = if self.buffers { written as usize } else { 0 };
        for piece in chains.pieces(chain) {
            let here = piece.first(left);
            left -= here.len();
            if let Some(address) = memory.guest_address(here) {
                self.log.note(address, here.len() as u64);
            }
        }
    }

    /// Logs the ring itself.
    #[cold]
    pub(crate) fn note_ring(&self) {
        self.parts.iter().for_each(|(address, len)| self.log.note(*address, *len));
    }
}

/// Why a dirty bitmap cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LogError {
    /// Its length is invalid.
    #[error("the log of written pages: {len} bytes; expected 1 to {LOG_LEN_MAX}")]
    Range {
        /// Length in bytes.
        len: u64,
    },
    /// It cannot be mapped.
    #[error("the log of written pages: {0}")]
    Unmappable(#[from] MapError),
}

/// Page length of the log, independent of the machine's (`VHOST_LOG_PAGE`).
const PAGE_LEN: u64 = 4096;
/// Length in bytes of the longest bitmap, which covers guest addresses up to 2^45.
const LOG_LEN_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests;
