//! The internet checksum (RFC 1071), its incremental update (RFC 1624) and pseudo-headers.
//!
//! The checksum is the complement of a ones' complement sum of 16-bit words. Such a sum does not
//! depend on byte order as long as one order is kept (RFC 1071 §2 (B)), so bytes are summed as
//! little-endian words, many at a time, and the sum is byte-swapped once at the end. Short inputs,
//! such as headers, take an inline scalar loop; longer ones the best vector loop of the processor
//! (module `simd`). Three values are distinguished:
//!
//! - [`Sum`]: an intermediate sum; bytes, words and pseudo-headers can be added in any order.
//! - a *checksum*: the contents of a header field, the complement of the finished sum.
//! - a *partial checksum*: the contents of the field while the rest is deferred to hardware, which
//!   is the pseudo-header's sum, **not** complemented (virtio 1.2 §5.1.6.2, Linux
//!   `CHECKSUM_PARTIAL`).

mod scalar;
mod simd;

pub use simd::Implementation;

/// An intermediate ones' complement sum of 16-bit big-endian words.
///
/// Words are added as parts of 64-bit words with end-around carry, and folded into 16 bits at the
/// end: modulo 2^16 - 1 every power of 2^16 has the same weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Self = Self(0);

    /// The sum over `bytes`, which start at an even offset of the summed data. An odd last byte is
    /// the high half of a word.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_little_endian(sum_little_endian(bytes))
    }

    /// Starts from the contents of a header field: an intermediate sum or a partial checksum.
    #[inline]
    pub const fn from_partial(field: u16) -> Self {
        Self(field as u64)
    }

    /// Converts a sum of little-endian words: swapping all eight bytes swaps each word.
    #[inline]
    const fn from_little_endian(sum: u64) -> Self {
        Self(sum.swap_bytes())
    }

    /// Adds `bytes`, which start at an even offset of the summed data.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        self.add_sum(Self::of(bytes))
    }

    /// Adds `bytes`, which start at `offset` of the summed data.
    ///
    /// At an odd offset they are the low halves of their words, and are added byte-swapped (RFC
    /// 1071 §2 (B)).
    #[inline]
    #[must_use]
    pub fn add_bytes_at(self, offset: usize, bytes: &[u8]) -> Self {
        let odd = if offset.is_multiple_of(2) { 0 } else { 8 };
        self.add_sum(Self(Self::of(bytes).0.rotate_left(odd)))
    }

    /// Adds another sum.
    #[inline]
    #[must_use]
    pub const fn add_sum(self, other: Self) -> Self {
        Self(add_with_carry(self.0, other.0))
    }

    /// Adds one word.
    #[inline]
    #[must_use]
    pub const fn add(self, word: u16) -> Self {
        self.add_sum(Self(word as u64))
    }

    /// Adds both words of `value`.
    #[inline]
    #[must_use]
    pub const fn add_u32(self, value: u32) -> Self {
        self.add_sum(Self(value as u64))
    }

    /// Subtracts one word (RFC 1624: adds its complement).
    #[inline]
    #[must_use]
    pub const fn remove(self, word: u16) -> Self {
        self.add(!word)
    }

    /// Subtracts `bytes`; their length must be even.
    #[inline]
    #[must_use]
    pub fn remove_bytes(self, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len().is_multiple_of(2), "only whole words can be taken out of a sum");
        self.add_sum(Self(!Self::of(bytes).0))
    }

    /// The sum as a partial checksum: folded, not complemented.
    #[inline]
    pub const fn partial(self) -> u16 {
        fold(self.0)
    }

    /// True for the sum over data that contains its own correct checksum (RFC 1071 §1 (3)).
    ///
    /// For TCP and UDP the sum includes the pseudo-header. A UDP checksum of zero means none: check
    /// that first.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.partial() == 0xffff
    }

    /// The sum as a checksum: folded and complemented.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !fold(self.0)
    }

    /// The sum as a UDP checksum: zero, which means "none", is sent as all ones (RFC 768).
    #[inline]
    pub const fn udp_checksum(self) -> u16 {
        ones_for_zero(self.checksum())
    }
}

/// Sums are equal if the resulting header fields are.
impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        self.partial() == other.partial()
    }
}

impl Eq for Sum {}

/// The sum of an IPv4 pseudo-header (RFC 9293 §3.1): addresses of 4 bytes each.
#[inline]
pub fn pseudo_header_v4(src: &[u8], dst: &[u8], protocol: u8, upper_len: u16) -> Sum {
    debug_assert!(src.len() == 4 && dst.len() == 4, "IPv4 addresses have 4 bytes");
    Sum::of(src).add_bytes(dst).add(u16::from(protocol)).add(upper_len)
}

/// The sum of an IPv6 pseudo-header (RFC 8200 §8.1): addresses of 16 bytes each.
#[inline]
pub fn pseudo_header_v6(src: &[u8], dst: &[u8], protocol: u8, upper_len: u32) -> Sum {
    debug_assert!(src.len() == 16 && dst.len() == 16, "IPv6 addresses have 16 bytes");
    Sum::of(src).add_bytes(dst).add(u16::from(protocol)).add_u32(upper_len)
}

/// Updates a `checksum` for the replacement of `old` in the summed data by `new` (RFC 1624 equation
/// 3). Both have the same, even length.
#[inline]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    update_partial(!checksum, old, new) ^ 0xffff
}

/// Updates a UDP `checksum` for the replacement of `old` in the summed data by `new`, both of the
/// same, even length: zero means "none" and stays, and a result of zero is sent as all ones (RFC
/// 768).
#[inline]
pub fn update_udp(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    if checksum == 0 {
        return 0;
    }
    ones_for_zero(update(checksum, old, new))
}

/// Updates a `partial` checksum for the replacement of `old` in the pseudo-header by `new`. Both
/// have the same, even length.
#[inline]
pub fn update_partial(partial: u16, old: &[u8], new: &[u8]) -> u16 {
    debug_assert_eq!(old.len(), new.len(), "a header field keeps its length");
    Sum::from_partial(partial).remove_bytes(old).add_bytes(new).partial()
}

#[inline]
fn sum_little_endian(bytes: &[u8]) -> u64 {
    if bytes.len() < simd::LEN_MIN { scalar::sum_short(bytes) } else { simd::sum(bytes) }
}

#[inline]
const fn ones_for_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[inline]
const fn add_with_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Folds a sum of words into one word. Adding a number to itself with its halves exchanged leaves
/// the sum of both halves in the high half, carry included.
#[inline]
const fn fold(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1071_example() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&data).partial(), 0xddf2);
    }

    #[test]
    fn folding_gives_zero_for_zero_only() {
        let folded =
            [0, 1, 0xffff, 0x1_0000, 0xffff_0000, u64::MAX, u64::MAX - 1, 1 << 63].map(fold);
        assert_eq!(folded, [0, 1, 0xffff, 1, 0xffff, 0xffff, 0xfffe, 0x8000]);
    }

    #[test]
    fn parts_at_any_offset_add_up_to_the_whole() {
        let data: Vec<u8> = (0..200u32).map(|i| (i * 37 + 11) as u8).collect();
        for split in 0..=data.len() {
            let (first, second) = data.split_at(split);
            assert_eq!(Sum::of(first).add_bytes_at(split, second), Sum::of(&data), "{split}");
        }
    }

    #[test]
    fn an_update_equals_a_new_sum() {
        let mut data: Vec<u8> = (0..60).collect();
        let before = Sum::of(&data).checksum();
        let old = data[12..16].to_vec();
        data[12..16].copy_from_slice(&[0xfe, 0xdc, 0xba, 0x98]);
        assert_eq!(update(before, &old, &data[12..16]), Sum::of(&data).checksum());
    }

    #[test]
    fn rfc_1624_corner_case() {
        // RFC 1624 §4: the result must be 0x0000, not 0xffff.
        assert_eq!(update(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
    }

    #[test]
    fn a_udp_checksum_of_zero_stays_and_none_becomes_zero() {
        assert_eq!(update_udp(0, &[0x55, 0x55], &[0x32, 0x85]), 0);
        assert_eq!(update_udp(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0xffff);
        assert_eq!(update_udp(0x1234, &[0, 1], &[0, 2]), 0x1233);
    }

    #[test]
    fn data_with_its_checksum_is_valid() {
        let data: Vec<u8> = (0..61u32).map(|i| (i * 7) as u8).collect();
        let checksum = Sum::of(&data).checksum();
        assert!(Sum::of(&data).add(checksum).is_valid());
        assert!(!Sum::of(&data).add(checksum ^ 0x0100).is_valid());
    }

    #[test]
    fn udp_zero_is_sent_as_ones() {
        assert_eq!(Sum::from_partial(0xffff).udp_checksum(), 0xffff);
        assert_eq!(Sum::from_partial(0xffff).checksum(), 0);
    }
}
