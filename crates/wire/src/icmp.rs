//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861): the fields of a flow.

/// Where the fields lie, in bytes from the ICMP header.
pub mod field {
    use std::ops::Range;

    /// Message type.
    pub const TYPE: usize = 0;
    /// Message code.
    pub const CODE: usize = 1;
    /// Checksum.
    pub const CHECKSUM: usize = 2;
    /// Target address of a neighbour solicitation or advertisement.
    pub const ND_TARGET: Range<usize> = 8..24;
    /// First option of a neighbour solicitation or advertisement.
    pub const ND_OPTIONS: usize = 24;
}

/// Length of the part that every ICMP message has, in bytes.
pub const MIN_LEN: usize = 4;
/// Neighbour solicitation (RFC 4861 §4.3).
pub const NEIGHBOR_SOLICITATION: u8 = 135;
/// Neighbour advertisement (RFC 4861 §4.4).
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// Option: source link-layer address (RFC 4861 §4.6.1).
pub const OPTION_SOURCE_LL: u8 = 1;
/// Option: target link-layer address (RFC 4861 §4.6.1).
pub const OPTION_TARGET_LL: u8 = 2;
