//! IPv4 (RFC 791).

use crate::read_u16;

/// Where the fields lie, in bytes from the IPv4 header.
pub mod field {
    use std::ops::Range;

    /// Version (4 bits) and header length in 32-bit words (4 bits).
    pub const VERSION_IHL: usize = 0;
    /// DSCP (6 bits) and ECN (2 bits) (RFC 2474, RFC 3168).
    pub const TOS: usize = 1;
    /// Length of header and payload in bytes.
    pub const TOTAL_LENGTH: usize = 2;
    /// Identification.
    pub const IDENTIFICATION: usize = 4;
    /// Flags (3 bits) and fragment offset in 8-byte units (13 bits).
    pub const FRAGMENT: usize = 6;
    /// Time to live.
    pub const TTL: usize = 8;
    /// Protocol of the payload.
    pub const PROTOCOL: usize = 9;
    /// Header checksum.
    pub const CHECKSUM: usize = 10;
    /// Source address.
    pub const SRC: Range<usize> = 12..16;
    /// Destination address.
    pub const DST: Range<usize> = 16..20;
}

/// Length of a header without options in bytes.
pub const MIN_HEADER_LEN: usize = 20;
/// "Don't fragment" in the fragment field.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments" in the fragment field.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The offset's bits of the fragment field.
pub const FRAGMENT_OFFSET_MASK: u16 = 0x1fff;

/// Length in bytes of the header at the start of `packet`, or `None` if it is not a complete IPv4
/// header.
#[inline]
pub fn header_len(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let len = usize::from(first & 0x0f) * 4;
    (first >> 4 == 4 && len >= MIN_HEADER_LEN && len <= packet.len()).then_some(len)
}

/// True if the packet is a fragment, first or later.
///
/// # Panics
/// If `header` is shorter than [`MIN_HEADER_LEN`].
#[inline]
pub fn is_fragment(header: &[u8]) -> bool {
    read_u16(header, field::FRAGMENT) & (MORE_FRAGMENTS | FRAGMENT_OFFSET_MASK) != 0
}

/// True if the packet is a fragment other than the first.
///
/// # Panics
/// If `header` is shorter than [`MIN_HEADER_LEN`].
#[inline]
pub fn is_later_fragment(header: &[u8]) -> bool {
    read_u16(header, field::FRAGMENT) & FRAGMENT_OFFSET_MASK != 0
}
