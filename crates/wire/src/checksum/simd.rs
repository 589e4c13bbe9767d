//! The vector loops, and their selection at run time.
//!
//! Theory of operation. A vector of 64-bit lanes `x` is summed exactly with three operations and no
//! carries: `all += x`, which wraps, and `high += x >> 32`, which cannot. At the end the sum of the
//! low halves is `all - (high << 32)`, and modulo 2^16 - 1 both halves have the same weight. NEON
//! has one instruction that adds both halves to a wider lane.
//!
//! Bottlenecks, measured on a Zen 4: for AVX2 the three operations on four ports (42 bytes per
//! cycle), for all of them on unaligned data the loads that cross a cache line (37 bytes per
//! cycle). Loops with fewer operations (multiply-add, dot products, averages for the carries) were
//! not faster there, nor was aligning first for the length of a packet. On an Emerald Rapids, where
//! AVX-512 has two ports for these operations, both together are faster: by a fifth for a packet in
//! the first-level cache, and nearly twofold for a train, which is in the second level.
//!
//! The NEON tests run on other machines in an emulator, without a C compiler:
//!
//! ```sh
//! rustup target add aarch64-unknown-linux-musl
//! export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
//! export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER=qemu-aarch64-static
//! cargo test -p tapswitch-wire --lib --target aarch64-unknown-linux-musl
//! ```
//!
//! This module and its children are the only place for `unsafe` in crates without I/O: vectors are
//! loaded through pointers, and a function that uses a processor feature may only be called if the
//! processor has it. Both are behind safe functions that check.
#![allow(unsafe_code, reason = "vector loads and calls by processor feature; see above")]

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

use super::{Sum, scalar};

/// A loop that sums bytes. All return the same sum; [`Sum::of`] selects the best one for the length
/// and the processor. Selecting one explicitly is for tests and benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Implementation {
    /// 64-bit registers.
    Scalar,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX-512 F and BW, on generations that do not reduce their clock for it (those
    /// that also have VBMI2).
    Avx512,
    /// AArch64.
    Neon,
}

impl Implementation {
    /// All of them, the slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// The loop that [`Sum::of`] uses for long inputs on this processor.
    pub fn best() -> Self {
        Self::ALL.into_iter().rfind(|which| which.is_available()).unwrap_or(Self::Scalar)
    }

    /// True if this processor has the required features.
    pub fn is_available(self) -> bool {
        self.try_sum(&[]).is_some()
    }

    /// The sum over `bytes` by this loop, or `None` if the processor lacks the features. Above 1
    /// GiB only the scalar loop is exact, and the others return `None`.
    #[inline]
    pub fn sum(self, bytes: &[u8]) -> Option<Sum> {
        self.try_sum(bytes).map(Sum::from_little_endian)
    }

    /// The sum of little-endian words.
    #[inline]
    fn try_sum(self, bytes: &[u8]) -> Option<u64> {
        if self != Self::Scalar && bytes.len() > LEN_MAX {
            return None;
        }
        match self {
            Self::Scalar => Some(scalar::sum(bytes)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::try_sum_avx2(bytes),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::try_sum_avx512(bytes),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => neon::try_sum(bytes),
            #[allow(unreachable_patterns, reason = "which are left depends on the processor")]
            _ => None,
        }
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Neon => "NEON",
        })
    }
}

/// The sum of little-endian words by the best loop.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // Each checks a cached bit in memory; the branches are well predicted.
    let by = |which: Implementation| which.try_sum(bytes);
    by(Implementation::Avx512)
        .or_else(|| by(Implementation::Avx2))
        .or_else(|| by(Implementation::Neon))
        .unwrap_or_else(|| scalar::sum(bytes))
}

/// Length in bytes from which on the vector loops are faster than the short one; both take some 7
/// ns there on a Zen 4.
pub(super) const LEN_MIN: usize = 96;
/// Length in bytes up to which no lane can overflow, with a margin: each adds less than 2^33 per 16
/// bytes.
const LEN_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn there_is_always_one_and_the_best_is_available() {
        assert!(Implementation::Scalar.is_available());
        assert!(Implementation::best().is_available());
        let lacking = Implementation::ALL.into_iter().filter(|which| !which.is_available());
        lacking.for_each(|which| assert_eq!(which.sum(&[1, 2]), None, "{which}"));
    }

    #[test]
    fn all_are_equal_at_every_length_and_alignment() {
        let data = bytes(300 + 64);
        // An interpreter is slow for each of these.
        let step = if cfg!(miri) { 7 } else { 1 };
        for start in (0..64).step_by(step) {
            for len in (0..=300).step_by(step) {
                expect_all_equal(&data[start..start + len]);
            }
        }
    }

    #[test]
    fn all_are_equal_on_long_inputs() {
        let len = if cfg!(miri) { 1 << 11 } else { 1 << 16 };
        for len in [1448, 1500, len - 1, len, len + 1] {
            let data = bytes(len + 1);
            expect_all_equal(&data[..len]);
            expect_all_equal(&data[1..]);
            expect_all_equal(&vec![0xff; len]);
            expect_all_equal(&vec![0; len]);
        }
    }

    #[test]
    fn all_are_equal_wherever_in_a_line_long_inputs_start() {
        // The shortest and longest lengths that are summed by cache lines, and their neighbours.
        let (shortest, longest) = (512, (2 << 16) - 64);
        let lens = [shortest - 1, shortest, shortest + 1, 1024, 1448, longest, longest + 1];
        let (random, ones) = (bytes(longest + 65), vec![0xff; longest + 65]);
        let step = if cfg!(miri) { 63 } else { 1 };
        for start in (0..64).step_by(step) {
            for len in lens {
                if cfg!(miri) && len > 1448 {
                    continue;
                }
                expect_all_equal(&random[start..start + len]);
                expect_all_equal(&ones[start..start + len]);
            }
        }
    }

    #[test]
    fn only_zeros_sum_up_to_zero() {
        for which in available() {
            for len in [0, 1, 64, 65, 1500] {
                assert_eq!(which.sum(&vec![0; len]), Some(Sum::ZERO), "{which}, {len} bytes");
            }
            for at in 0..200 {
                let mut data = [0; 200];
                data[at] = 1;
                let expected = if at % 2 == 0 { 0x0100 } else { 0x0001 };
                assert_eq!(which.sum(&data).unwrap().partial(), expected, "{which}, byte {at}");
            }
            // A sum of 2^16 - 1 is one of the two zeros, and not the one that means "none".
            let ones = which.sum(&[0xff; 4096]).unwrap();
            assert_eq!(ones.partial(), 0xffff, "{which}");
        }
    }

    proptest! {
        #[test]
        fn all_are_equal(data in proptest::collection::vec(any::<u8>(), 0..5_000)) {
            expect_all_equal(&data);
        }
    }

    fn expect_all_equal(data: &[u8]) {
        let expected = reference(data);
        for which in available() {
            let sum = which.sum(data).unwrap().partial();
            let (len, start) = (data.len(), data.as_ptr().addr() % 64);
            assert_eq!(sum, expected, "{which}, {len} bytes at {start} of 64");
        }
        assert_eq!(Sum::of(data).partial(), expected, "the choice for {} bytes", data.len());
    }

    fn available() -> impl Iterator<Item = Implementation> {
        Implementation::ALL.into_iter().filter(|which| which.is_available())
    }

    /// RFC 1071 §4.1, in Rust.
    fn reference(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum >> 16) + (sum & 0xffff);
        }
        sum as u16
    }

    /// Bytes without a pattern that could hide an error in a lane.
    fn bytes(len: usize) -> Vec<u8> {
        let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005) + 1);
        std::iter::successors(Some(7), next).map(|state| (state >> 56) as u8).take(len).collect()
    }
}
