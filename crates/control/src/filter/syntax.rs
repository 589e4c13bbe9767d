//! Syntax tree of a filter.

use tapswitch_wire::MacAddr;

use crate::IpPrefix;
use crate::family::Family;
use crate::port_range::PortRange;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    /// A primitive with its position.
    Primitive(Primitive, usize),
    /// Negation.
    Not(Box<Self>),
    /// Conjunction.
    And(Box<Self>, Box<Self>),
    /// Disjunction.
    Or(Box<Self>, Box<Self>),
}

/// A test of one property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    /// An IP address, in one family or in any that has addresses.
    Ip(Option<Family>, Way, IpPrefix),
    /// A MAC address.
    Mac(Way, MacAddr),
    /// EtherType after all tags.
    Type(Family),
    /// An IP protocol, in one family or in any.
    Proto(Option<Family>, u8),
    /// Ports of one protocol, or of any that has ports.
    Port(Option<u8>, Way, PortRange),
    /// Outermost tag.
    Vlan(Option<u16>),
    /// ICMP type or code, for IPv4 or IPv6.
    Icmp { family: Family, field: IcmpField, is_equal: bool, value: u8 },
    /// Multicast or broadcast destination.
    Multicast,
}

/// Source, destination, either or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    Src,
    Dst,
    #[default]
    Either,
    Both,
}

/// ICMP bytes that OpenFlow matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IcmpField {
    Type,
    Code,
}
