//! Limits of the parts of a policy.

/// Maximum characters of a policy's name; still fits a table on a terminal.
pub(crate) const MAX_NAME_LEN: usize = 64;
/// Maximum monitors of one policy.
pub(crate) const MAX_MONITORS: usize = 16;
/// Maximum characters of owner and reason.
pub(crate) const MAX_TEXT_LEN: usize = 256;
/// Highest VLAN identifier (IEEE 802.1Q-2022 §9.6: 4095 is reserved).
pub(crate) const MAX_VLAN_ID: u16 = 4094;
/// Smallest snap length: the Ethernet header.
pub(crate) const MIN_SNAPLEN: u16 = 14;
