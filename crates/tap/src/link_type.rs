//! Link types.

/// Link type of an interface (`ARPHRD_*`, `include/uapi/linux/if_arp.h`): how capture programs
/// decode its frames, and the length of its hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet: the default of a tap device.
    pub const ETHERNET: Self = Self(1);
    /// Point-to-point protocol (RFC 1661).
    pub const PPP: Self = Self(512);
    /// CAN bus frames.
    pub const CAN: Self = Self(280);
    /// IEEE 802.11 frames.
    pub const IEEE80211: Self = Self(801);
    /// IEEE 802.15.4 frames.
    pub const IEEE802154: Self = Self(804);
    /// No link-layer header: the default of a tun device.
    pub const NONE: Self = Self(0xfffe);
}
