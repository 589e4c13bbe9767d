//! The words of a policy: IP protocols by name or number, VLANs, directions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tapswitch_wire::ip_proto;

use crate::text::{ParseTextError, as_text};

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

    /// True for the protocols that have ports OpenFlow can match.
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

/// Which VLAN a frame is in, by its outermost tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vlan {
    /// Any, or none.
    #[default]
    Any,
    /// No tag.
    Untagged,
    /// This one.
    Id(u16),
}

impl Vlan {
    /// True when nothing is asked for.
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::Any
    }

    /// What both ask for; `None` when no frame has it.
    pub(crate) fn intersect(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, vlan) | (vlan, Self::Any) => Some(vlan),
            (a, b) => (a == b).then_some(a),
        }
    }

    /// Whether frames with this outermost identifier, or without a tag, are in it.
    pub(crate) fn contains(self, vid: Option<u16>) -> bool {
        match self {
            Self::Any => true,
            Self::Untagged => vid.is_none(),
            Self::Id(id) => vid == Some(id),
        }
    }
}

impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Untagged => f.write_str("untagged"),
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

/// Which way the traffic of a policy flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the source to the destination.
    #[default]
    Forward,
    /// That, and the answers: source and destination exchanged.
    Both,
}

impl Direction {
    pub(crate) fn is_forward(&self) -> bool {
        *self == Self::Forward
    }
}

fn parse_number<T: FromStr>(text: &str, expected: &'static str) -> Result<T, ParseTextError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| ParseTextError::new(text, expected))
}

const PROTO_EXPECTED: &str = "an IP protocol: tcp, udp, icmp, icmpv6, sctp, or a number to 255";
const VLAN_EXPECTED: &str = "a VLAN id from 1 to 4094, or `untagged`, or `any`";

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
    fn vlans_meet_only_in_the_same() {
        assert_eq!("100".parse(), Ok(Vlan::Id(100)));
        assert_eq!(Vlan::Any.intersect(Vlan::Id(1)), Some(Vlan::Id(1)));
        assert_eq!(Vlan::Untagged.intersect(Vlan::Id(1)), None);
        assert_eq!(Vlan::Id(1).intersect(Vlan::Id(2)), None);
        assert!(Vlan::Untagged.contains(None) && !Vlan::Untagged.contains(Some(0)));
        assert!(Vlan::Id(5).contains(Some(5)) && Vlan::Any.contains(None));
    }
}
