//! Waking a thread that waits for an eventfd.

use std::os::fd::AsFd;

/// Wakes who waits for `event`.
pub(crate) fn ring(event: impl AsFd) {
    // The counter of an eventfd overflows at 2^64 - 1 only, and one that is full wakes as well.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}
