//! DCCP (RFC 4340): what the switch needs to know of it.

/// Offsets into the generic header.
pub mod field {
    /// Checksum, over as much of the payload as its sender says.
    pub const CHECKSUM: usize = 6;
}

/// Length of the generic header in bytes, with a sequence number of 24 bits.
pub const MIN_HEADER_LEN: usize = 12;
