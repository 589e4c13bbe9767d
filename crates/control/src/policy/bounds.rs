//! How long and how many the parts of a policy may be.

/// Characters of a policy's name; what still fits a table on a terminal.
pub(crate) const MAX_NAME_LEN: usize = 64;
/// Monitors of one policy.
pub(crate) const MAX_MONITORS: usize = 16;
/// Characters of owner and reason.
pub(crate) const MAX_TEXT_LEN: usize = 256;
/// Highest VLAN identifier (IEEE 802.1Q-2022 §9.6: 4095 is reserved).
pub(crate) const MAX_VLAN_ID: u16 = 4094;
/// The least that a packet can be cut to: its Ethernet header.
pub(crate) const MIN_SNAPLEN: u16 = 14;
