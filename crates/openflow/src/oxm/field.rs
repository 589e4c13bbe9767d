//! Table of the match fields (OpenFlow 1.3.5 §7.2.3.6 to §7.2.3.9).
//!
//! Each field is one line: number, names, width on the wire, whether it can be masked,
//! prerequisites and print style. All values fit 128 bits, so the rest of the crate handles every
//! field as a number.

use std::net::{Ipv4Addr, Ipv6Addr};

use tapswitch_wire::{EtherType, MacAddr};

use super::{Masked, Oxm};
use crate::PortNo;

/// Properties of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    /// `"oxm "` and the spec's name in lower case: the field's name in decoding errors.
    pub(crate) place: &'static str,
    /// Name in text: that of Open vSwitch where it has one.
    pub(crate) text: &'static str,
    /// Bits of the value.
    pub(crate) bits: u32,
    /// Bytes of the value on the wire.
    pub(crate) len: usize,
    /// Whether a mask is allowed.
    pub(crate) maskable: bool,
    /// Prerequisites.
    pub(crate) needs: Needs,
    /// How the value is printed.
    pub(crate) style: Style,
}

/// Prerequisites of a field (§7.2.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    InPort,
    Vlan,
    Ip,
    Ipv4,
    Ipv6,
    Arp,
    Mpls,
    Pbb,
    Tcp,
    Udp,
    Sctp,
    Icmpv4,
    Icmpv6,
    NdTarget,
    NdSll,
    NdTll,
}

/// How a value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Port,
    Decimal,
    Hex,
    EtherType,
    Mac,
    Ipv4,
    Ipv6,
}

/// A value as a big-endian number.
pub(crate) trait Value: Copy {
    fn to_number(self) -> u128;

    /// Converts from a number that fits the field's width.
    fn from_number(number: u128) -> Self;
}

/// Content of an [`Oxm`]: a value, with or without a mask.
pub(crate) trait Payload {
    fn parts(&self) -> (u128, Option<u128>);
    fn from_parts(value: u128, mask: Option<u128>) -> Self;
}

/// Defines [`OxmField`] and its conversions to and from [`Oxm`].
macro_rules! oxm_fields {
    ($($variant:ident = $number:literal, $name:literal as $text:literal,
       $bits:literal bits in $len:literal, $mask:ident, needs $needs:ident, $style:ident;)*) => {
        /// A match field of OpenFlow 1.3 (`oxm_ofb_match_fields`, §7.2.3.7). Its number is
        /// `oxm_field` in the class `OFPXMC_OPENFLOW_BASIC`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum OxmField {
            $(#[doc = concat!("[`Oxm::", stringify!($variant), "`]")] $variant = $number,)*
        }

        impl OxmField {
            /// Every field, at the index that is its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The spec's name in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            pub(crate) const fn info(self) -> Info {
                match self {
                    $(Self::$variant => Info {
                        place: concat!("oxm ", $name),
                        text: $text,
                        bits: $bits,
                        len: $len,
                        maskable: oxm_fields!(@maskable $mask),
                        needs: Needs::$needs,
                        style: Style::$style,
                    },)*
                }
            }
        }

        impl Oxm {
            /// Field, value and mask as numbers; `None` for fields that OpenFlow 1.3 does not
            /// define.
            pub fn parts(&self) -> Option<(OxmField, u128, Option<u128>)> {
                let (field, (value, mask)) = match self {
                    $(Self::$variant(payload) => (OxmField::$variant, payload.parts()),)*
                    Self::Unknown { .. } => return None,
                };
                Some((field, value, mask))
            }

            /// A field with a value and, if the field can have one, a mask.
            pub(crate) fn from_parts(field: OxmField, value: u128, mask: Option<u128>) -> Self {
                match field {
                    $(OxmField::$variant => Self::$variant(Payload::from_parts(value, mask)),)*
                }
            }
        }
    };
    (@maskable masked) => { true };
    (@maskable exact) => { false };
}

oxm_fields! {
    InPort = 0, "in_port" as "in_port", 32 bits in 4, exact, needs Nothing, Port;
    InPhyPort = 1, "in_phy_port" as "in_phy_port", 32 bits in 4, exact, needs InPort, Port;
    Metadata = 2, "metadata" as "metadata", 64 bits in 8, masked, needs Nothing, Hex;
    EthDst = 3, "eth_dst" as "dl_dst", 48 bits in 6, masked, needs Nothing, Mac;
    EthSrc = 4, "eth_src" as "dl_src", 48 bits in 6, masked, needs Nothing, Mac;
    EthType = 5, "eth_type" as "dl_type", 16 bits in 2, exact, needs Nothing, EtherType;
    VlanVid = 6, "vlan_vid" as "vlan_vid", 13 bits in 2, masked, needs Nothing, Hex;
    VlanPcp = 7, "vlan_pcp" as "vlan_pcp", 3 bits in 1, exact, needs Vlan, Decimal;
    IpDscp = 8, "ip_dscp" as "ip_dscp", 6 bits in 1, exact, needs Ip, Decimal;
    IpEcn = 9, "ip_ecn" as "nw_ecn", 2 bits in 1, exact, needs Ip, Decimal;
    IpProto = 10, "ip_proto" as "nw_proto", 8 bits in 1, exact, needs Ip, Decimal;
    Ipv4Src = 11, "ipv4_src" as "nw_src", 32 bits in 4, masked, needs Ipv4, Ipv4;
    Ipv4Dst = 12, "ipv4_dst" as "nw_dst", 32 bits in 4, masked, needs Ipv4, Ipv4;
    TcpSrc = 13, "tcp_src" as "tcp_src", 16 bits in 2, exact, needs Tcp, Decimal;
    TcpDst = 14, "tcp_dst" as "tcp_dst", 16 bits in 2, exact, needs Tcp, Decimal;
    UdpSrc = 15, "udp_src" as "udp_src", 16 bits in 2, exact, needs Udp, Decimal;
    UdpDst = 16, "udp_dst" as "udp_dst", 16 bits in 2, exact, needs Udp, Decimal;
    SctpSrc = 17, "sctp_src" as "sctp_src", 16 bits in 2, exact, needs Sctp, Decimal;
    SctpDst = 18, "sctp_dst" as "sctp_dst", 16 bits in 2, exact, needs Sctp, Decimal;
    Icmpv4Type = 19, "icmpv4_type" as "icmp_type", 8 bits in 1, exact, needs Icmpv4, Decimal;
    Icmpv4Code = 20, "icmpv4_code" as "icmp_code", 8 bits in 1, exact, needs Icmpv4, Decimal;
    ArpOp = 21, "arp_op" as "arp_op", 16 bits in 2, exact, needs Arp, Decimal;
    ArpSpa = 22, "arp_spa" as "arp_spa", 32 bits in 4, masked, needs Arp, Ipv4;
    ArpTpa = 23, "arp_tpa" as "arp_tpa", 32 bits in 4, masked, needs Arp, Ipv4;
    ArpSha = 24, "arp_sha" as "arp_sha", 48 bits in 6, masked, needs Arp, Mac;
    ArpTha = 25, "arp_tha" as "arp_tha", 48 bits in 6, masked, needs Arp, Mac;
    Ipv6Src = 26, "ipv6_src" as "ipv6_src", 128 bits in 16, masked, needs Ipv6, Ipv6;
    Ipv6Dst = 27, "ipv6_dst" as "ipv6_dst", 128 bits in 16, masked, needs Ipv6, Ipv6;
    Ipv6Flabel = 28, "ipv6_flabel" as "ipv6_label", 20 bits in 4, masked, needs Ipv6, Hex;
    Icmpv6Type = 29, "icmpv6_type" as "icmpv6_type", 8 bits in 1, exact, needs Icmpv6, Decimal;
    Icmpv6Code = 30, "icmpv6_code" as "icmpv6_code", 8 bits in 1, exact, needs Icmpv6, Decimal;
    Ipv6NdTarget = 31, "ipv6_nd_target" as "nd_target", 128 bits in 16, exact, needs NdTarget, Ipv6;
    Ipv6NdSll = 32, "ipv6_nd_sll" as "nd_sll", 48 bits in 6, exact, needs NdSll, Mac;
    Ipv6NdTll = 33, "ipv6_nd_tll" as "nd_tll", 48 bits in 6, exact, needs NdTll, Mac;
    MplsLabel = 34, "mpls_label" as "mpls_label", 20 bits in 4, exact, needs Mpls, Decimal;
    MplsTc = 35, "mpls_tc" as "mpls_tc", 3 bits in 1, exact, needs Mpls, Decimal;
    MplsBos = 36, "mpls_bos" as "mpls_bos", 1 bits in 1, exact, needs Mpls, Decimal;
    PbbIsid = 37, "pbb_isid" as "pbb_isid", 24 bits in 3, masked, needs Pbb, Hex;
    TunnelId = 38, "tunnel_id" as "tun_id", 64 bits in 8, masked, needs Nothing, Hex;
    Ipv6Exthdr = 39, "ipv6_exthdr" as "ipv6_exthdr", 9 bits in 2, masked, needs Ipv6, Hex;
}

impl OxmField {
    /// The field with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether the field can be masked.
    pub const fn is_maskable(self) -> bool {
        self.info().maskable
    }
}

impl Info {
    /// All bits that the value has.
    pub(crate) const fn all_bits(&self) -> u128 {
        u128::MAX >> (u128::BITS - self.bits)
    }
}

impl<T: Value> Payload for T {
    fn parts(&self) -> (u128, Option<u128>) {
        (self.to_number(), None)
    }

    fn from_parts(value: u128, _mask: Option<u128>) -> Self {
        T::from_number(value)
    }
}

impl<T: Value> Payload for Masked<T> {
    fn parts(&self) -> (u128, Option<u128>) {
        (self.value.to_number(), self.mask.map(T::to_number))
    }

    fn from_parts(value: u128, mask: Option<u128>) -> Self {
        Self { value: T::from_number(value), mask: mask.map(T::from_number) }
    }
}

/// Values that are numbers already.
macro_rules! number_values {
    ($($number:ty),*) => { $(
        impl Value for $number {
            fn to_number(self) -> u128 {
                self.into()
            }

            fn from_number(number: u128) -> Self {
                Self::try_from(number).unwrap_or_default()
            }
        }
    )* };
}

number_values!(u8, u16, u32, u64);

impl Value for PortNo {
    fn to_number(self) -> u128 {
        self.0.into()
    }

    fn from_number(number: u128) -> Self {
        Self(u32::from_number(number))
    }
}

impl Value for EtherType {
    fn to_number(self) -> u128 {
        self.0.into()
    }

    fn from_number(number: u128) -> Self {
        Self(u16::from_number(number))
    }
}

impl Value for MacAddr {
    fn to_number(self) -> u128 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f]).into()
    }

    fn from_number(number: u128) -> Self {
        let [.., a, b, c, d, e, f] = number.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl Value for Ipv4Addr {
    fn to_number(self) -> u128 {
        self.to_bits().into()
    }

    fn from_number(number: u128) -> Self {
        Self::from_bits(u32::from_number(number))
    }
}

impl Value for Ipv6Addr {
    fn to_number(self) -> u128 {
        self.to_bits()
    }

    fn from_number(number: u128) -> Self {
        Self::from_bits(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_index_and_the_value_fits_its_bytes() {
        for (index, &field) in OxmField::ALL.iter().enumerate() {
            assert_eq!(index, field as usize, "{field:?}");
            assert!(field.info().bits as usize <= field.info().len * 8, "{field:?}");
        }
        assert_eq!(OxmField::ALL.len(), 40);
        assert_eq!(OxmField::from_number(40), None);
    }

    #[test]
    fn every_field_keeps_all_of_its_bits() {
        for &field in OxmField::ALL {
            let all = field.info().all_bits();
            let oxm = Oxm::from_parts(field, all, Some(1));
            let mask = field.is_maskable().then_some(1);
            assert_eq!(oxm.parts(), Some((field, all, mask)), "{field:?}");
        }
    }
}
