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
    let has_fit_len = (Dots::LEN_MIN..=Dots::LEN_MAX).contains(&bytes.len());
    if has_fit_len && is_x86_feature_detected!("avx512vnni") {
        // SAFETY: the processor has the features that the function is compiled for; checked above.
        return Some(unsafe { sum_lines(bytes) });
    }
    // SAFETY: as above.
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

/// Sums any number of bytes with AVX-512.
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

/// Sums from [`Dots::LEN_MIN`] to [`Dots::LEN_MAX`] bytes with AVX-512, by aligned cache lines: a
/// load that crosses two costs two, and more if they are not in the L1 cache. Missing bytes at the
/// start of the first line count as zeros. If their number is odd, all others are in the other
/// halves of their words (RFC 1071 §2 (B)).
#[target_feature(enable = "avx512vbmi2,avx512vnni")]
fn sum_lines(bytes: &[u8]) -> u64 {
    let before = bytes.as_ptr().addr() % 64;
    let Some((start, _)) = bytes.split_first_chunk() else {
        return scalar::sum_short(bytes);
    };
    let lines = &bytes[64 - before..];
    // The dot product has a latency of five cycles; this many independent sums hide it, with a few
    // to spare.
    let mut dots = [Dots::new(); 8];
    let (blocks, rest) = lines.as_chunks::<512>();
    for block in blocks {
        let (vectors, _) = block.as_chunks();
        for (dots, vector) in dots.iter_mut().zip(vectors) {
            dots.add(load_512(vector));
        }
    }
    dots[7].add(_mm512_maskz_expand_epi8(u64::MAX << before, load_512(start)));
    let (vectors, tail) = rest.as_chunks();
    for (dots, vector) in dots.iter_mut().zip(vectors) {
        dots.add(load_512(vector));
    }
    if !tail.is_empty() {
        dots[7].add(load_up_to_512(tail));
    }
    let sum = Dots::join(dots, (before + bytes.len()).div_ceil(64));
    if before.is_multiple_of(2) { sum } else { sum.rotate_left(8) }
}

/// Sums of words, with two words of each vector added to each 32-bit lane by one dot product with
/// ones. It takes signed words: with its highest bit inverted, a word counts as 2^15 less than its
/// value.
#[derive(Clone, Copy)]
struct Dots(__m512i);

impl Dots {
    /// Minimum length in bytes: below it, a partial first line costs more than it saves.
    const LEN_MIN: usize = 512;
    /// Maximum length in bytes, so that the sum over all lanes fits into 32 bits: 2^16 words of at
    /// most 2^15 each, less one vector because the first and the last may be partial.
    const LEN_MAX: usize = (2 << 16) - 64;

    #[inline]
    #[target_feature(enable = "avx512vbmi2,avx512vnni")]
    fn new() -> Self {
        Self(_mm512_setzero_si512())
    }

    #[inline]
    #[target_feature(enable = "avx512vbmi2,avx512vnni")]
    fn add(&mut self, words: __m512i) {
        let signed = _mm512_xor_si512(words, _mm512_set1_epi16(i16::MIN));
        self.0 = _mm512_dpwssd_epi32(self.0, signed, _mm512_set1_epi16(1));
    }

    /// The total sum, after `added` vectors.
    #[inline]
    #[target_feature(enable = "avx512vbmi2,avx512vnni")]
    fn join([a, b, c, d, e, f, g, h]: [Self; 8], added: usize) -> u64 {
        let join = |one: __m512i, other: __m512i| _mm512_add_epi32(one, other);
        let (left, right) =
            (join(join(a.0, b.0), join(c.0, d.0)), join(join(e.0, f.0), join(g.0, h.0)));
        let signed = _mm512_reduce_add_epi32(join(left, right));
        // Adds 2^15 for each of the 32 words of a vector; the total is not negative.
        ((added as u64) << 20).wrapping_add_signed(i64::from(signed))
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
