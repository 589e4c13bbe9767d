//! Which pages of a guest's memory we write, for a VMM that moves the guest while it runs.
//!
//! Such a VMM copies all pages to the guest's new place, and again those that were written since,
//! until few are left; it sees what the guest writes, and has to be told what we write ("Migration"
//! in the vhost-user specification). It shares a map of one bit for each page of the guest's
//! addresses, which we set and it clears.
//!
//! **A page is noted after it was written**, never before: the VMM might clear the bit, and copy
//! the page, between the two. And it is noted before the ring is let go: what was written when a
//! VMM has stopped a ring is in the map.
//!
//! What is noted: each buffer that is given back, as far as it was written; after each burst, and
//! each change of wishes for notifications, those parts of the ring that a device writes. By our
//! own knowledge of where they lie: the address that VMMs tell for the map
//! (`log_guest_addr`) is that of the used ring, which says nothing of a packed ring's descriptors.
//!
//! A page that the map does not have is none that the VMM wants to hear of. A map that is cut short
//! under us is that VMM's loss: bits go to an empty page then ([`crate::guard`]).

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::chain::{Chain, Chains};
use crate::memory::{GuestMemory, MapError, Mapping};
use crate::ring::{RingFeatures, RingPlace};

/// A map of pages, shared with the VMM.
pub(crate) struct DirtyLog {
    mapping: Mapping,
    /// Bytes: eight pages each.
    len: u64,
}

impl DirtyLog {
    /// The `len` bytes of `file` from `offset` on.
    pub(crate) fn new(file: &OwnedFd, offset: u64, len: u64) -> Result<Arc<Self>, LogError> {
        if len == 0 || len > LOG_LEN_MAX || offset.checked_add(len).is_none() {
            return Err(LogError::Range { len });
        }
        Ok(Arc::new(Self { mapping: Mapping::new(file, offset, len)?, len }))
    }

    /// Notes that the `len` bytes at the guest's `address` were written.
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
            // Always, though most pages of a ring are noted again and again: a look whether they
            // are noted already might see bits that the VMM has taken out, while it does not see
            // yet what we wrote, and x86 does let a load pass stores. A fence in front would need
            // one of the VMM's (`tests` has the model). Of two such exchanges one is the first.
            // Release: whoever sees the bits sees what was written.
            byte.fetch_or(bits, Ordering::Release);
        }
    }

    fn byte(&self, index: u64) -> Option<&AtomicU8> {
        let index = usize::try_from(index).ok().filter(|_| index < self.len)?;
        // SAFETY: the mapping has `len` bytes, and `index` is one of them.
        let byte = unsafe { self.mapping.start().add(index) };
        // JUSTIFICATION: the VMM takes bits out while we put others in; only an atomic in the
        // shared page itself loses none.
        // SAFETY: a byte that is mapped, of any alignment, that others access as atomics too, and
        // that stays as long as `self` does.
        Some(unsafe { AtomicU8::from_ptr(byte.as_ptr()) })
    }
}

impl fmt::Debug for DirtyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of {} pages", 8 * self.len)
    }
}

/// What is noted of one ring.
#[derive(Debug)]
pub(crate) struct RingLog {
    log: Arc<DirtyLog>,
    /// Guest addresses and lengths of those parts of the ring that a device writes.
    parts: Vec<(u64, u64)>,
    /// Whether buffers are noted too.
    buffers: bool,
}

impl RingLog {
    /// Of the ring at `place` in `memory`; with its buffers or without.
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

    /// Notes the first `written` bytes of a buffer.
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

    /// Notes the ring itself.
    #[cold]
    pub(crate) fn note_ring(&self) {
        self.parts.iter().for_each(|(address, len)| self.log.note(*address, *len));
    }
}

/// Why the map of pages cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LogError {
    /// Its length is absurd.
    #[error("the log of written pages: {len} bytes; expected 1 to {LOG_LEN_MAX}")]
    Range {
        /// Length in bytes.
        len: u64,
    },
    /// It cannot be mapped.
    #[error("the log of written pages: {0}")]
    Unmappable(#[from] MapError),
}

/// Bytes of a page, whatever the machine's are (`VHOST_LOG_PAGE`).
const PAGE_LEN: u64 = 4096;
/// Bytes of the longest map, which has pages up to guest address 2^45.
const LOG_LEN_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests;
