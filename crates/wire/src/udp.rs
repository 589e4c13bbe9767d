//! UDP (RFC 768).

/// Where the fields lie, in bytes from the UDP header.
pub mod field {
    /// Source port.
    pub const SRC_PORT: usize = 0;
    /// Destination port.
    pub const DST_PORT: usize = 2;
    /// Length of header and payload in bytes.
    pub const LENGTH: usize = 4;
    /// Checksum over pseudo-header, header and payload; zero means none (IPv4 only).
    pub const CHECKSUM: usize = 6;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 8;
