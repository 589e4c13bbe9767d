//! AVX2 and AVX-512.

use std::arch::x86_64::*;

use crate::checksum::{add_with_carry, scalar};

/// The AVX2 loop, or `None` if the processor lacks it.
#[inline]
pub(super) fn try_sum_avx2(bytes: &[u8]) -> Option<u64> {
    if !is_x86_feature_detected!("avx2") {
        return None;
    }
    // SAFETY: the processor has the features that the function is compiled for; checked above.
    Some(unsafe { sum_avx2(bytes) })
}

/// The AVX-512 loop, or `None` if the processor lacks it or would reduce its clock for it, which
/// generations before VBMI2 (which implies BW and F here) do.
#[inline]
pub(super) fn try_sum_avx512(bytes: &[u8]) -> Option<u64> {
    if !is_x86_feature_detected!("avx512vbmi2") {
        return None;
    }
    // SAFETY: the processor has the features that the function is compiled for; checked above.
    Some(unsafe { sum_avx512(bytes) })
}

/// Two independent sums hide the latency of an addition; more would only have to be combined.
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    let (mut even, mut odd) = (Lanes256::new(), Lanes256::new());
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        let (vectors, _) = block.as_chunks();
        even.add(load_256(&vectors[0]));
        odd.add(load_256(&vectors[1]));
    }
    let (vectors, tail) = rest.as_chunks();
    for vector in vectors {
        even.add(load_256(vector));
    }
    add_with_carry(even.join(odd), scalar::sum_short(tail))
}

/// The exact sum of 64-bit words, see the module above.
#[derive(Clone, Copy)]
struct Lanes256 {
    all: __m256i,
    high: __m256i,
}

impl Lanes256 {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Self { all: _mm256_setzero_si256(), high: _mm256_setzero_si256() }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, words: __m256i) {
        self.all = _mm256_add_epi64(self.all, words);
        self.high = _mm256_add_epi64(self.high, _mm256_srli_epi64::<32>(words));
    }

    /// The sum of both.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn join(self, other: Self) -> u64 {
        let all = _mm256_add_epi64(self.all, other.all);
        let high = _mm256_add_epi64(self.high, other.high);
        let low = _mm256_sub_epi64(all, _mm256_slli_epi64::<32>(high));
        let four = _mm256_add_epi64(low, high);
        let two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
        let one = _mm_add_epi64(two, _mm_unpackhi_epi64(two, two));
        _mm_cvtsi128_si64(one).cast_unsigned()
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_256(vector: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are read, as many as are borrowed, at any alignment.
    unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) }
}

#[target_feature(enable = "avx512vbmi2")]
fn sum_avx512(bytes: &[u8]) -> u64 {
    let (mut even, mut odd) = (Lanes512::new(), Lanes512::new());
    let (blocks, rest) = bytes.as_chunks::<128>();
    for block in blocks {
        let (vectors, _) = block.as_chunks();
        even.add(load_512(&vectors[0]));
        odd.add(load_512(&vectors[1]));
    }
    for vector in rest.chunks(64) {
        even.add(load_up_to_512(vector));
    }
    even.join(odd)
}

/// As [`Lanes256`].
#[derive(Clone, Copy)]
struct Lanes512 {
    all: __m512i,
    high: __m512i,
}

impl Lanes512 {
    #[inline]
    #[target_feature(enable = "avx512vbmi2")]
    fn new() -> Self {
        Self { all: _mm512_setzero_si512(), high: _mm512_setzero_si512() }
    }

    #[inline]
    #[target_feature(enable = "avx512vbmi2")]
    fn add(&mut self, words: __m512i) {
        self.all = _mm512_add_epi64(self.all, words);
        self.high = _mm512_add_epi64(self.high, _mm512_srli_epi64::<32>(words));
    }

    /// The sum of both.
    #[inline]
    #[target_feature(enable = "avx512vbmi2")]
    fn join(self, other: Self) -> u64 {
        let all = _mm512_add_epi64(self.all, other.all);
        let high = _mm512_add_epi64(self.high, other.high);
        let low = _mm512_sub_epi64(all, _mm512_slli_epi64::<32>(high));
        _mm512_reduce_add_epi64(_mm512_add_epi64(low, high)).cast_unsigned()
    }
}

#[inline]
#[target_feature(enable = "avx512vbmi2")]
fn load_512(vector: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are read, as many as are borrowed, at any alignment.
    unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) }
}

/// Loads 1 to 64 bytes, zero-extended.
#[inline]
#[target_feature(enable = "avx512vbmi2")]
fn load_up_to_512(bytes: &[u8]) -> __m512i {
    debug_assert!((1..=64).contains(&bytes.len()), "a vector's worth, and not nothing");
    let wanted = u64::MAX >> (64 - bytes.len());
    // SAFETY: the mask has a bit for each borrowed byte; bytes without one are not accessed.
    unsafe { _mm512_maskz_loadu_epi8(wanted, bytes.as_ptr().cast()) }
}
