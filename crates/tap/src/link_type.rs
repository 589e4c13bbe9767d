//! What an interface claims to be.

/// Type of an interface (`ARPHRD_*`, `include/uapi/linux/if_arp.h`): how programs that capture
/// understand its frames, and how long its hardware address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet: what a tap device starts as.
    pub const ETHERNET: Self = Self(1);
    /// Point-to-point protocol (RFC 1661).
    pub const PPP: Self = Self(512);
    /// CAN bus frames.
    pub const CAN: Self = Self(280);
    /// IEEE 802.11 frames.
    pub const IEEE80211: Self = Self(801);
    /// IEEE 802.15.4 frames.
    pub const IEEE802154: Self = Self(804);
    /// Nothing in front of the packet: what a tun device starts as.
    pub const NONE: Self = Self(0xfffe);
}
