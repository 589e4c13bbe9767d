//! Address resolution for IPv4 over Ethernet (RFC 826).

/// Where the fields lie, in bytes from the ARP header.
pub mod field {
    use std::ops::Range;

    /// Operation code.
    pub const OPERATION: usize = 6;
    /// Sender's hardware address.
    pub const SENDER_MAC: Range<usize> = 8..14;
    /// Sender's protocol address.
    pub const SENDER_IP: Range<usize> = 14..18;
    /// Target's hardware address.
    pub const TARGET_MAC: Range<usize> = 18..24;
    /// Target's protocol address.
    pub const TARGET_IP: Range<usize> = 24..28;
}

/// Length of an IPv4-over-Ethernet ARP packet in bytes.
pub const LEN: usize = 28;
/// The first six bytes of such a packet: hardware type 1, protocol 0x0800, lengths 6 and 4.
pub const IPV4_OVER_ETHERNET: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Operation: who has.
pub const REQUEST: u16 = 1;
/// Operation: is at.
pub const REPLY: u16 = 2;
