//! Whether packets go out together by one call (`UDP_SEGMENT`).
//!
//! The kernel refuses that where the device underneath does no checksums, or because of IPsec. A
//! route that changes for a moment may lead over such a device. So a refusal counts for
//! [`SINGLY_COUNT`] calls, the packets of which go out singly, and the next one is tried again: no
//! clock is needed.

use std::sync::atomic::{AtomicU32, Ordering};

/// What was found out so far. Threads that send at once share it; one more or less that
/// goes out singly is no matter.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The port's own options do not rule it out.
    is_possible: bool,
    /// Runs of packets that go out singly before one is tried again.
    singly: AtomicU32,
}

impl Segments {
    pub(crate) const fn new(is_possible: bool) -> Self {
        Self { is_possible, singly: AtomicU32::new(0) }
    }

    /// Whether the next run of packets goes out by one call. Ask once for each.
    #[inline]
    pub(crate) fn take_turn(&self) -> bool {
        self.is_on() || self.count_down()
    }

    /// The kernel has refused a run whose packets it took.
    #[cold]
    pub(crate) fn refused(&self) {
        self.singly.store(SINGLY_COUNT, Ordering::Relaxed);
    }

    /// True while runs go out by one call.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_possible && self.singly.load(Ordering::Relaxed) == 0
    }

    /// Another run that goes out singly.
    #[inline(never)]
    fn count_down(&self) -> bool {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        // Nothing to count down: another thread has, or the option rules it out.
        let _ = self.singly.fetch_update(set, fetch, |left| left.checked_sub(1));
        false
    }
}

/// At 64 KiB each 64 MB: half a second of a link of 1 Gb/s. A refusal costs the copying of one.
pub(crate) const SINGLY_COUNT: u32 = 1024;
