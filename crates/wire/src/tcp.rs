//! TCP (RFC 9293).

/// Where the fields lie, in bytes from the TCP header.
pub mod field {
    /// Source port.
    pub const SRC_PORT: usize = 0;
    /// Destination port.
    pub const DST_PORT: usize = 2;
    /// Sequence number of the first payload byte.
    pub const SEQUENCE: usize = 4;
    /// Acknowledgement number.
    pub const ACKNOWLEDGEMENT: usize = 8;
    /// Header length in 32-bit words (4 bits), reserved bits.
    pub const DATA_OFFSET: usize = 12;
    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN.
    pub const FLAGS: usize = 13;
    /// Receive window.
    pub const WINDOW: usize = 14;
    /// Checksum over pseudo-header, header and payload.
    pub const CHECKSUM: usize = 16;
}

/// Flag: the sender has no more data.
pub const FIN: u8 = 0x01;
/// Flag: push.
pub const PSH: u8 = 0x08;
/// Flag: congestion window reduced (RFC 3168), or the middle bit of the counter ACE (RFC 9768).
pub const CWR: u8 = 0x80;
/// Accurate ECN, the highest bit of that counter, in the byte at [`field::DATA_OFFSET`]
/// (RFC 9768 §3.1.1).
pub const AE: u8 = 0x01;

/// Length of a header without options in bytes.
pub const MIN_HEADER_LEN: usize = 20;
/// Length of the longest header, options included, in bytes.
pub const MAX_HEADER_LEN: usize = 60;

/// Length in bytes of the header at the start of `segment`, or `None` when it is not whole.
#[inline]
pub fn header_len(segment: &[u8]) -> Option<usize> {
    let len = usize::from(*segment.get(field::DATA_OFFSET)? >> 4) * 4;
    (len >= MIN_HEADER_LEN && len <= segment.len()).then_some(len)
}
