//! Ethernet II and 802.3 framing, 802.1Q and 802.1ad tags (IEEE 802.3-2022 §3, 802.1Q-2022 §9).
//!
//! Tags sit between the source address and the type field, outermost first, four bytes each:
//! a tag protocol identifier (TPID) and the tag control information (TCI).

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where the fields of the untagged header lie, in bytes from the frame's first.
pub mod field {
    use std::ops::Range;

    /// Destination address.
    pub const DST: Range<usize> = 0..6;
    /// Source address.
    pub const SRC: Range<usize> = 6..12;
    /// First type field: the EtherType, or the TPID of the outermost tag.
    pub const ETHER_TYPE: usize = 12;
}

/// Length of the untagged header in bytes.
pub const HEADER_LEN: usize = 14;
/// Length of both addresses in bytes; tags are inserted behind them.
pub const ADDRESSES_LEN: usize = 12;
/// Length of one tag in bytes.
pub const TAG_LEN: usize = 4;
/// Type fields below this are 802.3 lengths (IEEE 802.3-2022 §3.2.6).
pub const MIN_ETHER_TYPE: u16 = 0x0600;

/// The EtherType of a frame, or a TPID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// Address resolution protocol (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// Customer tag, C-TAG (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// Service tag, S-TAG (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// Link layer discovery (IEEE 802.1AB).
    pub const LLDP: Self = Self(0x88cc);
    /// Stacked tag of equipment older than 802.1ad.
    pub const LEGACY_SERVICE_VLAN: Self = Self(0x9100);
    /// OpenFlow's type of an 802.3 frame without SNAP (OpenFlow 1.3.5 §7.2.3.8).
    pub const NOT_ETHER_TYPE: Self = Self(0x05ff);

    /// The type of `frame`, or the TPID of its outermost tag; `None` if it is truncated.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let bytes = frame.get(field::ETHER_TYPE..)?.first_chunk()?;
        Some(Self(u16::from_be_bytes(*bytes)))
    }

    /// True for a tag protocol identifier that the switch parses.
    #[inline]
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN | Self::LEGACY_SERVICE_VLAN)
    }
}

/// One VLAN tag: TPID and TCI as they are on the wire. A zero TPID means "no tag".
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Tag {
    /// Tag protocol identifier, big-endian.
    pub tpid: [u8; 2],
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits), big-endian.
    pub tci: [u8; 2],
}

impl Tag {
    /// The identifier's bits of a TCI.
    pub const VID_MASK: u16 = 0x0fff;
    /// How far the priority is shifted in a TCI.
    pub const PCP_SHIFT: u32 = 13;

    /// A tag of `tpid` with the whole `tci`.
    #[inline]
    pub const fn new(tpid: EtherType, tci: u16) -> Self {
        Self { tpid: tpid.0.to_be_bytes(), tci: tci.to_be_bytes() }
    }

    /// Tag protocol identifier.
    #[inline]
    pub const fn tpid(self) -> EtherType {
        EtherType(u16::from_be_bytes(self.tpid))
    }

    /// Tag control information.
    #[inline]
    pub const fn tci(self) -> u16 {
        u16::from_be_bytes(self.tci)
    }

    /// VLAN identifier, 0..=4095.
    #[inline]
    pub const fn vid(self) -> u16 {
        self.tci() & Self::VID_MASK
    }

    /// Priority code point, 0..=7.
    #[inline]
    pub const fn pcp(self) -> u8 {
        self.tci[0] >> 5
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}/{}p{}", self.tpid().0, self.vid(), self.pcp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_a_frame_is_behind_its_addresses() {
        let lldp = [&[0; ADDRESSES_LEN][..], &[0x88, 0xcc]].concat();
        assert_eq!(EtherType::of(&lldp), Some(EtherType::LLDP));
        assert_eq!(EtherType::of(&lldp[..HEADER_LEN - 1]), None);
    }
}
