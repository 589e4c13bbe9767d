//! Match fields (OXM TLVs, OpenFlow 1.3.5 §7.2.3.2 to §7.2.3.10).

use std::net::{Ipv4Addr, Ipv6Addr};

use tapswitch_wire::{EtherType, MacAddr};

use crate::PortNo;

mod check;
mod codec;
mod field;
mod text;

pub use check::Context;
pub(crate) use check::{MPLS, MPLS_MULTICAST, PBB, check_bits};
pub(crate) use codec::{CLASS_EXPERIMENTER, CLASS_OPENFLOW_BASIC};
pub use field::OxmField;
pub(crate) use text::OxmValue;

/// A value with a mask of the bits to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Masked<T> {
    /// The value; zero in bits that the mask leaves out.
    pub value: T,
    /// Bits to compare; `None` for all.
    pub mask: Option<T>,
}

impl<T> Masked<T> {
    /// All bits of `value` are compared.
    pub const fn exact(value: T) -> Self {
        Self { value, mask: None }
    }

    /// The bits of `mask` are compared.
    pub const fn with_mask(value: T, mask: T) -> Self {
        Self { value, mask: Some(mask) }
    }
}

impl<T> From<T> for Masked<T> {
    fn from(value: T) -> Self {
        Self::exact(value)
    }
}

/// A field with the value to match or to set (§7.2.3.8, §7.2.3.9).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oxm {
    /// Port on which the packet arrived.
    InPort(PortNo),
    /// Physical port below the logical port of arrival.
    InPhyPort(PortNo),
    /// Metadata written by earlier tables.
    Metadata(Masked<u64>),
    /// Destination MAC address.
    EthDst(Masked<MacAddr>),
    /// Source MAC address.
    EthSrc(Masked<MacAddr>),
    /// EtherType after all tags.
    EthType(EtherType),
    /// VLAN of the outermost tag with [`VID_PRESENT`], or [`VID_NONE`].
    VlanVid(Masked<u16>),
    /// Priority of the outermost tag, 3 bits.
    VlanPcp(u8),
    /// Differentiated services code point, 6 bits.
    IpDscp(u8),
    /// Explicit congestion notification, 2 bits.
    IpEcn(u8),
    /// IP protocol.
    IpProto(u8),
    /// IPv4 source address.
    Ipv4Src(Masked<Ipv4Addr>),
    /// IPv4 destination address.
    Ipv4Dst(Masked<Ipv4Addr>),
    /// TCP source port.
    TcpSrc(u16),
    /// TCP destination port.
    TcpDst(u16),
    /// UDP source port.
    UdpSrc(u16),
    /// UDP destination port.
    UdpDst(u16),
    /// SCTP source port.
    SctpSrc(u16),
    /// SCTP destination port.
    SctpDst(u16),
    /// ICMP type.
    Icmpv4Type(u8),
    /// ICMP code.
    Icmpv4Code(u8),
    /// ARP operation.
    ArpOp(u16),
    /// ARP sender's IPv4 address.
    ArpSpa(Masked<Ipv4Addr>),
    /// ARP target's IPv4 address.
    ArpTpa(Masked<Ipv4Addr>),
    /// ARP sender's MAC address.
    ArpSha(Masked<MacAddr>),
    /// ARP target's MAC address.
    ArpTha(Masked<MacAddr>),
    /// IPv6 source address.
    Ipv6Src(Masked<Ipv6Addr>),
    /// IPv6 destination address.
    Ipv6Dst(Masked<Ipv6Addr>),
    /// IPv6 flow label, 20 bits.
    Ipv6Flabel(Masked<u32>),
    /// ICMPv6 type.
    Icmpv6Type(u8),
    /// ICMPv6 code.
    Icmpv6Code(u8),
    /// Target of neighbour discovery.
    Ipv6NdTarget(Ipv6Addr),
    /// Source link-layer address of a neighbour solicitation.
    Ipv6NdSll(MacAddr),
    /// Target link-layer address of a neighbour advertisement.
    Ipv6NdTll(MacAddr),
    /// Outermost MPLS label, 20 bits.
    MplsLabel(u32),
    /// Its traffic class, 3 bits.
    MplsTc(u8),
    /// Its bottom-of-stack bit.
    MplsBos(u8),
    /// I-SID of the outermost PBB service tag, 24 bits.
    PbbIsid(Masked<u32>),
    /// Tunnel metadata of a logical port.
    TunnelId(Masked<u64>),
    /// Pseudo-header bits for the IPv6 extension headers present, 9 bits.
    Ipv6Exthdr(Masked<u16>),
    /// A field that OpenFlow 1.3 does not define, or one of an experimenter.
    Unknown {
        /// `oxm_class`.
        class: u16,
        /// `oxm_field`, 7 bits.
        field: u8,
        /// `oxm_hasmask`: the second half of the payload is a mask.
        has_mask: bool,
        /// Value and mask, at most 255 bytes; in an experimenter's class preceded by its number.
        payload: Vec<u8>,
    },
}

impl Oxm {
    /// The field; `None` if OpenFlow 1.3 does not define it.
    pub fn field(&self) -> Option<OxmField> {
        self.parts().map(|(field, ..)| field)
    }

    /// Whether there is a mask.
    pub fn has_mask(&self) -> bool {
        match self {
            Self::Unknown { has_mask, .. } => *has_mask,
            known => matches!(known.parts(), Some((_, _, Some(_)))),
        }
    }
}

/// Bit of [`Oxm::VlanVid`] for "a tag is present" (`OFPVID_PRESENT`).
pub const VID_PRESENT: u16 = 0x1000;
/// Value of [`Oxm::VlanVid`] for "no tag" (`OFPVID_NONE`).
pub const VID_NONE: u16 = 0;
