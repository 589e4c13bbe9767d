//! SCTP (RFC 9260 §3.1): the header that all packets have.

/// Where the fields lie, in bytes from the SCTP header.
pub mod field {
    /// Source port.
    pub const SRC_PORT: usize = 0;
    /// Destination port.
    pub const DST_PORT: usize = 2;
    /// Verification tag.
    pub const VERIFICATION_TAG: usize = 4;
    /// CRC32c over header and chunks, 4 bytes, the lowest first (RFC 9260 §6.8 and appendix A).
    pub const CHECKSUM: usize = 8;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 12;
