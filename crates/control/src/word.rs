//! Values of policy fields: IP protocols by name or number, VLANs, directions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tapswitch_openflow::{Masked, VID_NONE, VID_PRESENT};
use tapswitch_wire::{EtherType, ip_proto};

use crate::family::Family;
use crate::text::{ParseTextError, as_text, word_of};

/// An IP protocol number (IANA "Assigned Internet Protocol Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProto(pub u8);

impl IpProto {
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(ip_proto::ICMP);
    /// TCP.
    pub const TCP: Self = Self(ip_proto::TCP);
    /// UDP.
    pub const UDP: Self = Self(ip_proto::UDP);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(ip_proto::ICMPV6);
    /// SCTP.
    pub const SCTP: Self = Self(ip_proto::SCTP);

    const NAMES: [(&'static str, Self); 5] = [
        ("icmp", Self::ICMP),
        ("tcp", Self::TCP),
        ("udp", Self::UDP),
        ("icmpv6", Self::ICMPV6),
        ("sctp", Self::SCTP),
    ];

    /// True for protocols whose ports OpenFlow can match.
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP)
    }
}

impl fmt::Display for IpProto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, proto)| proto == self) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for IpProto {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut names = Self::NAMES.iter();
        match names.find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, proto)) => Ok(*proto),
            None => parse_number(text, PROTO_EXPECTED).map(Self),
        }
    }
}

impl Serialize for IpProto {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Self::NAMES.iter().any(|(_, proto)| proto == self) {
            true => as_text::serialize(self, serializer),
            false => serializer.serialize_u8(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for IpProto {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// EtherType after all tags (IEEE 802.3-2022 §3.2.6; IANA "IEEE 802 Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EthType(pub u16);

impl EthType {
    const NAMES: [(&'static str, EtherType); 4] = [
        ("ipv4", EtherType::IPV4),
        ("ipv6", EtherType::IPV6),
        ("arp", EtherType::ARP),
        ("lldp", EtherType::LLDP),
    ];

    /// The payload family.
    pub(crate) const fn family(self) -> Family {
        Family::of(EtherType(self.0))
    }
}

impl fmt::Display for EthType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, eth_type)| eth_type.0 == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{:#06x}", self.0),
        }
    }
}

impl FromStr for EthType {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut names = Self::NAMES.iter();
        if let Some((_, eth_type)) = names.find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(Self(eth_type.0));
        }
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let is_hex = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match digits.filter(is_hex) {
            Some(digits) => u16::from_str_radix(digits, 16)
                .map(Self)
                .map_err(|_| ParseTextError::new(text, TYPE_EXPECTED)),
            None => parse_number(text, TYPE_EXPECTED).map(Self),
        }
    }
}

impl Serialize for EthType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for EthType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// VLAN of a frame, by its outermost tag.
///
/// A tag with VLAN id 0 carries only a priority (IEEE 802.1Q-2022 §9.6): such a frame is tagged,
/// but in no VLAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vlan {
    /// Any VLAN or none.
    #[default]
    Any,
    /// No VLAN: no tag, or a priority tag.
    Untagged,
    /// Any tag.
    Tagged,
    /// This VLAN.
    Id(u16),
}

impl Vlan {
    /// VLAN id of a priority tag.
    pub(crate) const NULL_ID: u16 = 0;

    /// True if anything matches.
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::Any
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn intersect(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, vlan) | (vlan, Self::Any) => Some(vlan),
            (Self::Tagged, Self::Id(id)) | (Self::Id(id), Self::Tagged) => Some(Self::Id(id)),
            (Self::Tagged | Self::Id(Self::NULL_ID), Self::Untagged)
            | (Self::Untagged, Self::Tagged | Self::Id(Self::NULL_ID)) => {
                Some(Self::Id(Self::NULL_ID))
            }
            (a, b) => (a == b).then_some(a),
        }
    }

    /// The VLAN of frames to and from a host.
    pub(crate) fn of_host(vlan: Option<u16>) -> Self {
        vlan.map_or(Self::Untagged, Self::Id)
    }

    /// The `vlan_vid` match; `None` if any will do.
    pub(crate) const fn vid(self) -> Option<Masked<u16>> {
        match self {
            Self::Any => None,
            Self::Untagged => Some(Masked::with_mask(VID_NONE, VID_MASK)),
            Self::Tagged => Some(Masked::with_mask(VID_PRESENT, VID_PRESENT)),
            Self::Id(id) => Some(Masked::exact(VID_PRESENT | id)),
        }
    }

    /// Whether it includes frames with this outermost VLAN id, or without a tag.
    pub(crate) fn contains(self, vid: Option<u16>) -> bool {
        match self {
            Self::Any => true,
            Self::Untagged => vid.is_none_or(|id| id == Self::NULL_ID),
            Self::Tagged => vid.is_some(),
            Self::Id(id) => vid == Some(id),
        }
    }
}

impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Untagged => f.write_str("untagged"),
            Self::Tagged => f.write_str("tagged"),
            Self::Id(id) => id.fmt(f),
        }
    }
}

impl FromStr for Vlan {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "untagged" => Ok(Self::Untagged),
            "tagged" => Ok(Self::Tagged),
            _ if is_stack(text) => Err(ParseTextError::new(text, STACK_EXPECTED)),
            _ => parse_number(text, VLAN_EXPECTED).map(Self::Id),
        }
    }
}

impl Serialize for Vlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Id(id) => serializer.serialize_u16(*id),
            _ => as_text::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Vlan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// Direction of a policy's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the source to the destination.
    Forward,
    /// Also the answers, with source and destination swapped.
    Both,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Both => "both",
        })
    }
}

impl FromStr for Direction {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        word_of([Self::Forward, Self::Both], text, "forward or both")
    }
}

/// Whether it is a list of VLAN ids, outermost first, as in other tools.
fn is_stack(text: &str) -> bool {
    let mut ids = text.split(['.', ',', '/']);
    text.contains(['.', ',', '/'])
        && ids.all(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_number<T: FromStr>(text: &str, expected: &'static str) -> Result<T, ParseTextError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| ParseTextError::new(text, expected))
}

/// Bits of `vlan_vid` for the VLAN id.
const VID_MASK: u16 = VID_PRESENT - 1;
const PROTO_EXPECTED: &str = "an IP protocol: tcp, udp, icmp, icmpv6, sctp, or a number up to 255";
const TYPE_EXPECTED: &str = "an EtherType: ipv4, ipv6, arp, lldp, or a number as in 0x88cc";
const VLAN_EXPECTED: &str = "a VLAN ID from 1 to 4094, or `tagged`, or `untagged`, or `any`";
const STACK_EXPECTED: &str =
    "a single VLAN ID, that of the outermost tag, as OpenFlow 1.3 matches no other";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_names_or_numbers() {
        for (text, number, shown) in
            [("tcp", 6, "tcp"), ("UDP", 17, "udp"), ("6", 6, "tcp"), ("89", 89, "89")]
        {
            let proto: IpProto = text.parse().unwrap();
            assert_eq!((proto.0, proto.to_string().as_str()), (number, shown));
        }
        for text in ["", "256", "tpc", "-1", "+6"] {
            assert!(text.parse::<IpProto>().is_err(), "{text}");
        }
    }

    #[test]
    fn types_have_names_or_numbers() {
        for (text, number, shown) in
            [("ARP", 0x806, "arp"), ("0x88cc", 0x88cc, "lldp"), ("34958", 0x888e, "0x888e")]
        {
            let eth_type: EthType = text.parse().unwrap();
            assert_eq!((eth_type.0, eth_type.to_string().as_str()), (number, shown));
        }
        for text in ["", "0x", "0x10000", "65536", "0x+1", "ip"] {
            assert!(text.parse::<EthType>().is_err(), "{text}");
        }
    }

    #[test]
    fn stacks_of_vlans_are_refused_with_a_remedy() {
        for text in ["100.7", "100,7", "100/7"] {
            let error = text.parse::<Vlan>().unwrap_err();
            assert_eq!(error.expected, STACK_EXPECTED, "{text}");
        }
        assert_eq!("1.x".parse::<Vlan>().unwrap_err().expected, VLAN_EXPECTED);
    }

    #[test]
    fn vlans_meet_only_in_the_same() {
        assert_eq!("100".parse(), Ok(Vlan::Id(100)));
        assert_eq!(Vlan::Any.intersect(Vlan::Id(1)), Some(Vlan::Id(1)));
        assert_eq!(Vlan::Untagged.intersect(Vlan::Id(1)), None);
        assert_eq!(Vlan::Id(1).intersect(Vlan::Id(2)), None);
        assert_eq!(Vlan::Tagged.intersect(Vlan::Id(1)), Some(Vlan::Id(1)));
        assert_eq!(Vlan::Untagged.intersect(Vlan::Tagged), Some(Vlan::Id(0)), "a priority");
        assert_eq!(Vlan::Untagged.intersect(Vlan::Id(0)), Some(Vlan::Id(0)));
        assert!(Vlan::Tagged.contains(Some(0)) && !Vlan::Tagged.contains(None));
        assert!(Vlan::Untagged.contains(None) && Vlan::Untagged.contains(Some(0)));
        assert!(!Vlan::Untagged.contains(Some(1)));
        assert!(Vlan::Id(5).contains(Some(5)) && Vlan::Any.contains(None));
    }
}
