//! Waking a thread that waits for an eventfd.

use std::os::fd::AsFd;

/// Wakes the thread that waits for `event`.
pub(crate) fn ring(event: impl AsFd) {
    // The counter of an eventfd overflows only at 2^64 - 1, and a full one wakes the reader as
    // well.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}
