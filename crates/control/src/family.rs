//! Payload families that rules distinguish, by EtherType.

use tapswitch_wire::EtherType;

/// Payload after all tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
    /// Its addresses are those of sender and target.
    Arp,
    /// Any other EtherType.
    Other(u16),
}

impl Family {
    /// Family of an EtherType.
    pub(crate) const fn of(eth_type: EtherType) -> Self {
        match eth_type {
            EtherType::IPV4 => Self::Ipv4,
            EtherType::IPV6 => Self::Ipv6,
            EtherType::ARP => Self::Arp,
            EtherType(other) => Self::Other(other),
        }
    }

    /// EtherType of the family.
    pub(crate) const fn eth_type(self) -> EtherType {
        match self {
            Self::Ipv4 => EtherType::IPV4,
            Self::Ipv6 => EtherType::IPV6,
            Self::Arp => EtherType::ARP,
            Self::Other(other) => EtherType(other),
        }
    }
}
