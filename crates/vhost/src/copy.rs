//! Long copies, past a trap in some processors.
//!
//! The C library copies more than about 2 KiB by `rep movsb`. An AMD EPYC (Zen 4) takes 16 times as
//! long for that if the destination is 1 to 15 bytes further in its page than the source (65,000
//! bytes in 18.6 µs instead of 1.1; `tapswitch bench offload` has both), as if it read what it had
//! just written. The buffers of guests and the payload of a train are anywhere in a page, so one
//! long copy of 270 meets that. In short pieces, which are copied by vectors, it takes as long as
//! others.

use std::ptr;

/// Copies `len` bytes as [`ptr::copy`] does; if they overlap and are many, which happens only to a
/// guest that sends to itself from the place where it receives, any bytes.
///
/// # Safety
/// As for [`ptr::copy`].
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len <= PIECE_LEN || !is_trap(from, to) {
        // SAFETY: by the contract of this function.
        return unsafe { ptr::copy(from, to, len) };
    }
    // SAFETY: the same.
    unsafe { copy_in_pieces(from, to, len) }
}

/// Whether a long copy would be slow.
#[inline]
fn is_trap(from: *const u8, to: *mut u8) -> bool {
    let ahead = to.addr().wrapping_sub(from.addr()) % PAGE_LEN;
    (1..16).contains(&ahead)
}

/// # Safety
/// As for [`ptr::copy`].
#[cold]
unsafe fn copy_in_pieces(from: *const u8, to: *mut u8, len: usize) {
    for at in (0..len).step_by(PIECE_LEN) {
        // Within the `len` bytes of both.
        let (from, to, len) = (from.wrapping_add(at), to.wrapping_add(at), len - at);
        // SAFETY: by the contract of this function, as the piece is a part of the whole.
        unsafe { ptr::copy(from, to, len.min(PIECE_LEN)) };
    }
}

/// Half of the length from which on the C library uses `rep movsb`.
const PIECE_LEN: usize = 1024;
const PAGE_LEN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_places_and_the_length_all_bytes_are_copied_and_no_others() {
        let source: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8).collect();
        let mut target = vec![0; 20_000];
        for ahead in [0, 1, 7, 15, 16, 4095] {
            for len in [0, 1, 1024, 1025, 2048, 2049, 9000] {
                target.fill(0xff);
                let base = source.as_ptr().addr() % PAGE_LEN;
                let here = target.as_ptr().addr() % PAGE_LEN;
                // Both as far in their pages as `ahead` says.
                let at = (base + ahead + 2 * PAGE_LEN - here) % PAGE_LEN + 16;
                let from = &source[16..16 + len];
                // SAFETY: both are in bounds, and apart.
                unsafe { copy(from.as_ptr(), target[at..at + len].as_mut_ptr(), len) };
                assert_eq!(&target[at..at + len], from, "{ahead}, {len}");
                assert!(target[..at].iter().chain(&target[at + len..]).all(|byte| *byte == 0xff));
            }
        }
    }

    #[test]
    fn the_trap_is_known() {
        let page = vec![0u8; 3 * PAGE_LEN];
        let from = page.as_ptr();
        let is_trap = |ahead: usize| is_trap(from, from.wrapping_add(ahead).cast_mut());
        assert!([1, 15, PAGE_LEN + 1, 2 * PAGE_LEN + 15].into_iter().all(is_trap));
        assert!(![0, 16, 64, PAGE_LEN - 1, PAGE_LEN, PAGE_LEN + 16].into_iter().any(is_trap));
    }
}
