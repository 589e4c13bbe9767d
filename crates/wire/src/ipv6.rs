//! IPv6 and its extension headers (RFC 8200).

use crate::read_u16;

/// Where the fields lie, in bytes from the IPv6 header.
pub mod field {
    use std::ops::Range;

    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    pub const VERSION_CLASS_LABEL: usize = 0;
    /// Length of what follows the fixed header, in bytes.
    pub const PAYLOAD_LENGTH: usize = 4;
    /// Type of the first header behind the fixed one.
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
/// Extension headers looked behind before the rest counts as payload. Longer chains are legal but
/// serve nobody but attackers (RFC 7045 §2.1, RFC 8504 §5.3).
pub const MAX_EXTENSIONS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;

/// Where the chain of headers ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// Protocol of the upper layer, or of the last extension header that could be read.
    pub protocol: u8,
    /// Offset of the upper-layer header from the IPv6 header in bytes; `None` when it is not
    /// there: a later fragment, a truncated chain, or one longer than [`MAX_EXTENSIONS`].
    pub offset: Option<usize>,
}

/// Walks the extension headers of `packet`, which starts at a whole fixed header.
///
/// # Panics
/// When `packet` is shorter than [`HEADER_LEN`].
pub fn upper_layer(packet: &[u8]) -> UpperLayer {
    let mut protocol = packet[field::NEXT_HEADER];
    let mut offset = HEADER_LEN;
    for _ in 0..=MAX_EXTENSIONS {
        let header = packet.get(offset..offset + 8);
        let len = match (protocol, header) {
            (HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY, Some(header)) => {
                (usize::from(header[1]) + 1) * 8
            }
            (AUTHENTICATION, Some(header)) => (usize::from(header[1]) + 2) * 4,
            (FRAGMENT, Some(header)) => {
                if read_u16(header, 2) & 0xfff8 != 0 {
                    return UpperLayer {
                        protocol: header[0],
                        offset: None,
                    };
                }
                8
            }
            (
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | AUTHENTICATION | FRAGMENT,
                None,
            ) => {
                return UpperLayer {
                    protocol,
                    offset: None,
                };
            }
            _ => {
                return UpperLayer {
                    protocol,
                    offset: Some(offset),
                };
            }
        };
        protocol = packet[offset];
        offset += len;
    }
    UpperLayer {
        protocol,
        offset: None,
    }
}
