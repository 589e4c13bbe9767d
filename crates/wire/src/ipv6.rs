//! IPv6 and its extension headers (RFC 8200).

use crate::read_u16;

/// Where the fields lie, in bytes from the IPv6 header.
pub mod field {
    use std::ops::Range;

    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    pub const VERSION_CLASS_LABEL: usize = 0;
    /// Length of everything after the fixed header, in bytes.
    pub const PAYLOAD_LENGTH: usize = 4;
    /// Type of the first header after the fixed one.
    pub const NEXT_HEADER: usize = 6;
    /// Hop limit.
    pub const HOP_LIMIT: usize = 7;
    /// Source address.
    pub const SRC: Range<usize> = 8..24;
    /// Destination address.
    pub const DST: Range<usize> = 24..40;
}

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 40;
/// Maximum number of extension headers to parse; the rest counts as payload. Longer chains are
/// legal but only used by attackers (RFC 7045 §2.1, RFC 8504 §5.3).
pub const MAX_EXTENSIONS: usize = 8;

/// Extension header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Extension header: routing.
pub const ROUTING: u8 = 43;
/// Extension header: fragment.
pub const FRAGMENT: u8 = 44;
/// Extension header: destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// Hop-by-hop option: jumbo payload (RFC 2675 §2).
pub const OPTION_JUMBO: u8 = 0xc2;

const AUTHENTICATION: u8 = 51;
const MOBILITY: u8 = 135;
/// The offset's bits of the fragment header's second word.
const FRAGMENT_OFFSET_MASK: u16 = 0xfff8;
/// "More fragments" in the same word.
const MORE_FRAGMENTS: u16 = 1;

/// The end of the chain of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// Protocol of the upper layer, or the type of the next header in the last extension header
    /// that could be parsed.
    pub protocol: u8,
    /// Offset of the upper-layer header from the IPv6 header in bytes; `None` if absent: a later
    /// fragment, a truncated chain, or one longer than [`MAX_EXTENSIONS`].
    pub offset: Option<usize>,
    /// End of the parsed part of the chain, from the IPv6 header in bytes. A packet truncated there
    /// is parsed alike.
    pub end: usize,
    /// Whether the packet is a fragment, first or later. A whole packet with a fragment header is
    /// not (RFC 6946).
    pub is_fragment: bool,
}

/// Parses the extension headers of `packet`, which starts with a complete fixed header.
///
/// # Panics
/// If `packet` is shorter than [`HEADER_LEN`].
pub fn upper_layer(packet: &[u8]) -> UpperLayer {
    let mut protocol = packet[field::NEXT_HEADER];
    let (mut at, mut is_fragment) = (HEADER_LEN, false);
    let absent =
        |protocol, end, is_fragment| UpperLayer { protocol, offset: None, end, is_fragment };
    for _ in 0..=MAX_EXTENSIONS {
        if !is_extension(protocol) {
            return UpperLayer { protocol, offset: Some(at), end: at, is_fragment };
        }
        let Some(header) = packet.get(at..at + 8) else {
            return absent(protocol, at, is_fragment);
        };
        let [next, units] = [header[0], header[1]];
        if protocol == FRAGMENT {
            let place = read_u16(header, 2);
            is_fragment |= place & (FRAGMENT_OFFSET_MASK | MORE_FRAGMENTS) != 0;
            if place & FRAGMENT_OFFSET_MASK != 0 {
                return absent(next, at + 8, is_fragment);
            }
        }
        let end = at + extension_len(protocol, units);
        if end > packet.len() {
            return absent(next, packet.len(), is_fragment);
        }
        (protocol, at) = (next, end);
    }
    absent(protocol, at, is_fragment)
}

/// True if a routing header in `headers`, the fixed header and the whole chain after it, has
/// segments left: then the destination is not the final one, which transport checksums cover (RFC
/// 8200 §8.1).
///
/// # Panics
/// If `headers` is shorter than [`HEADER_LEN`].
pub fn is_routed_on(headers: &[u8]) -> bool {
    let mut protocol = headers[field::NEXT_HEADER];
    let mut at = HEADER_LEN;
    while is_extension(protocol)
        && let Some(&[next, units, _, segments_left]) =
            headers.get(at..).and_then(<[u8]>::first_chunk)
    {
        if protocol == ROUTING && segments_left != 0 {
            return true;
        }
        at += extension_len(protocol, units);
        protocol = next;
    }
    false
}

/// True for the type of an extension header that [`upper_layer`] parses.
#[inline]
pub const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | MOBILITY
    )
}

/// Length in bytes of an extension header with the length field `units`.
fn extension_len(protocol: u8, units: u8) -> usize {
    match protocol {
        FRAGMENT => 8,
        AUTHENTICATION => (usize::from(units) + 2) * 4,
        _ => (usize::from(units) + 1) * 8,
    }
}
