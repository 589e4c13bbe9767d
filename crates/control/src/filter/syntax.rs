//! What a filter says, once read.

use tapswitch_wire::MacAddr;

use crate::IpPrefix;
use crate::family::Family;
use crate::port_range::PortRange;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    /// What one word or phrase says, and where it stands.
    Primitive(Primitive, usize),
    /// Everything else.
    Not(Box<Self>),
    /// Both.
    And(Box<Self>, Box<Self>),
    /// One or the other.
    Or(Box<Self>, Box<Self>),
}

/// What one word or phrase says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    /// An IP address; of any family that has such, or of one.
    Ip(Option<Family>, Way, IpPrefix),
    /// A MAC address.
    Mac(Way, MacAddr),
    /// The type behind all tags.
    Type(Family),
    /// An IP protocol, of any family or of one.
    Proto(Option<Family>, u8),
    /// Ports of a protocol, or of any that has ports.
    Port(Option<u8>, Way, PortRange),
    /// The outermost tag.
    Vlan(Option<u16>),
    /// Type or code of ICMP for IPv4 or IPv6.
    Icmp { family: Family, field: IcmpField, is_equal: bool, value: u8 },
    /// To a group of stations.
    Multicast,
}

/// Which end of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    Src,
    Dst,
    #[default]
    Either,
    Both,
}

/// The bytes of ICMP that switches know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IcmpField {
    Type,
    Code,
}
