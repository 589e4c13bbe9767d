//! DCCP (RFC 4340): the fields that the switch uses.

/// Offsets into the generic header.
pub mod field {
    /// Checksum, over the part of the payload that the sender chooses.
    pub const CHECKSUM: usize = 6;
}

/// Length of the generic header in bytes, with a sequence number of 24 bits.
pub const MIN_HEADER_LEN: usize = 12;
