//! NEON.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use crate::checksum::{add_with_carry, scalar};

/// The NEON loop, or `None` if the processor lacks it.
#[inline]
pub(super) fn try_sum(bytes: &[u8]) -> Option<u64> {
    if !is_aarch64_feature_detected!("neon") {
        return None;
    }
    // SAFETY: the processor has the features that the function is compiled for; checked above.
    Some(unsafe { sum(bytes) })
}

#[target_feature(enable = "neon")]
fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [vdupq_n_u64(0); 4];
    let (vectors, tail) = bytes.as_chunks::<16>();
    for four in vectors.chunks(4) {
        for (lane, vector) in lanes.iter_mut().zip(four) {
            *lane = vpadalq_u32(*lane, load(vector));
        }
    }
    let sums = lanes.map(|lane| vaddvq_u64(lane));
    sums.into_iter().fold(scalar::sum_short(tail), add_with_carry)
}

#[inline]
#[target_feature(enable = "neon")]
fn load(vector: &[u8; 16]) -> uint32x4_t {
    // SAFETY: 16 bytes are read, as many as are borrowed, at any alignment.
    vreinterpretq_u32_u8(unsafe { vld1q_u8(vector.as_ptr()) })
}
