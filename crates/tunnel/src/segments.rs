//! Whether packets are sent together by one call (`UDP_SEGMENT`).
//!
//! The kernel refuses that if the underlying device lacks checksums, or because of IPsec. A route
//! change may temporarily select such a device. So after a refusal, [`SINGLY_COUNT`] runs are sent
//! individually, and the next one is tried again, which needs no clock.

use std::sync::atomic::{AtomicU32, Ordering};

/// The state. Threads that send concurrently share it; a race costs at most one more individual
/// run.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The port's own options allow it.
    is_possible: bool,
    /// Number of runs to send individually before one is tried again.
    singly: AtomicU32,
}

impl Segments {
    pub(crate) const fn new(is_possible: bool) -> Self {
        Self { is_possible, singly: AtomicU32::new(0) }
    }

    /// Whether to send the next run by one call. Call this once per run.
    #[inline]
    pub(crate) fn take_turn(&self) -> bool {
        self.is_on() || self.count_down()
    }

    /// Records that the kernel refused a run but accepted its packets.
    #[cold]
    pub(crate) fn refused(&self) {
        self.singly.store(SINGLY_COUNT, Ordering::Relaxed);
    }

    /// True while runs are sent by one call.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_possible && self.singly.load(Ordering::Relaxed) == 0
    }

    /// Counts another run that is sent individually.
    #[inline(never)]
    fn count_down(&self) -> bool {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        // Nothing to count down: another thread has, or the option forbids it.
        let _ = self.singly.fetch_update(set, fetch, |left| left.checked_sub(1));
        false
    }
}

/// At 64 KiB each 64 MB: half a second of a link of 1 Gb/s. A refused attempt costs one copy.
pub(crate) const SINGLY_COUNT: u32 = 1024;
