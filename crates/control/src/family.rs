//! What rules can look at behind the Ethernet header, by its type.

use tapswitch_wire::EtherType;

/// What is in a frame, behind all tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
    /// Its addresses are those of sender and target.
    Arp,
    /// None of those.
    Other(u16),
}

impl Family {
    /// What has this type.
    pub(crate) const fn of(eth_type: EtherType) -> Self {
        match eth_type {
            EtherType::IPV4 => Self::Ipv4,
            EtherType::IPV6 => Self::Ipv6,
            EtherType::ARP => Self::Arp,
            EtherType(other) => Self::Other(other),
        }
    }

    /// Its type.
    pub(crate) const fn eth_type(self) -> EtherType {
        match self {
            Self::Ipv4 => EtherType::IPV4,
            Self::Ipv6 => EtherType::IPV6,
            Self::Arp => EtherType::ARP,
            Self::Other(other) => EtherType(other),
        }
    }
}
