//! Compiles an expression to sets of frames, and evaluates it directly.

use tapswitch_wire::{EtherType, FlowKey, MacAddr};

use super::FilterError;
use super::syntax::{Expr, IcmpField, Primitive, Way};
use crate::family::Family;
use crate::port_range::PortRange;
use crate::region::{Frames, MacMask, Region, TooMany, ports_within};
use crate::{IpPrefix, IpProto, Vlan};

impl Expr {
    /// Frames that match.
    pub(super) fn frames(&self) -> Result<Frames, FilterError> {
        Ok(match self {
            Self::Primitive(primitive, at) => {
                primitive.frames().map_err(|too_many| FilterError::too_many(*at, too_many))?
            }
            Self::Not(a) => a.frames()?.complement()?,
            Self::And(a, b) => a.frames()?.intersect(&b.frames()?)?,
            Self::Or(a, b) => a.frames()?.union(b.frames()?)?,
        })
    }

    /// Whether a frame with these headers matches.
    pub(super) fn contains(&self, key: &FlowKey) -> bool {
        match self {
            Self::Primitive(primitive, _) => primitive.contains(key),
            Self::Not(a) => !a.contains(key),
            Self::And(a, b) => a.contains(key) && b.contains(key),
            Self::Or(a, b) => a.contains(key) || b.contains(key),
        }
    }

    /// Position of a `vlan` that every matching frame must satisfy.
    pub(super) fn needed_tag(&self) -> Option<usize> {
        match self {
            Self::Primitive(Primitive::Vlan(_), at) => Some(*at),
            Self::Primitive(..) | Self::Not(_) => None,
            Self::And(a, b) => a.needed_tag().or_else(|| b.needed_tag()),
            Self::Or(a, b) => a.needed_tag().and(b.needed_tag()),
        }
    }
}

impl Primitive {
    fn frames(self) -> Result<Frames, TooMany> {
        let any = Region::default();
        match self {
            Self::Ip(family, way, prefix) => {
                let families = ip_families(family, prefix);
                let kinds = families.iter().map(|family| Region { family: Some(*family), ..any });
                let ip = (!prefix.is_all()).then_some(prefix);
                Frames::of(kinds.flat_map(|kind| {
                    way.regions(
                        kind,
                        move |region| Region { src_ip: ip, ..region },
                        move |region| Region { dst_ip: ip, ..region },
                    )
                }))
            }
            Self::Mac(way, mac) => {
                let mac = Some(MacMask::one(mac));
                let (src, dst) = (
                    move |region| Region { src_mac: mac, ..region },
                    move |region| Region { dst_mac: mac, ..region },
                );
                Frames::of(way.regions(any, src, dst))
            }
            Self::Type(family) => Frames::of([Region { family: Some(family), ..any }]),
            Self::Proto(family, proto) => Frames::of(protocols(family, &[proto])),
            Self::Port(proto, way, ports) => port_frames(proto, way, ports),
            Self::Vlan(id) => {
                let vlan = id.map_or(Vlan::Tagged, Vlan::Id);
                Frames::of([Region { vlan, ..any }])
            }
            Self::Icmp { family, field, is_equal, value } => {
                let all = Region { family: Some(family), proto: Some(icmp_proto(family)), ..any };
                let value = Some(value.into());
                let some = match field {
                    IcmpField::Type => Region { src_port: value, ..all },
                    IcmpField::Code => Region { dst_port: value, ..all },
                };
                if is_equal { Frames::of([some]) } else { Frames::without(all, [some]) }
            }
            Self::Multicast => Frames::of([Region { dst_mac: Some(MacMask::GROUPS), ..any }]),
        }
    }

    fn contains(self, key: &FlowKey) -> bool {
        let number = u16::from_be_bytes;
        let family = Family::of(EtherType(number(key.eth_type)));
        let is_ip = matches!(family, Family::Ipv4 | Family::Ipv6);
        match self {
            Self::Ip(wanted, way, prefix) => {
                let has = |bytes: &[u8; 16]| prefix.contains(ip_address(bytes, prefix.is_ipv4()));
                let families = ip_families(wanted, prefix);
                families.contains(&family) && way.holds(has(&key.ip_src), has(&key.ip_dst))
            }
            Self::Mac(way, mac) => way.holds(key.eth_src == mac, key.eth_dst == mac),
            Self::Type(wanted) => family == wanted,
            Self::Proto(wanted, proto) => {
                is_ip && key.ip_proto == proto && wanted.is_none_or(|wanted| family == wanted)
            }
            Self::Port(proto, way, ports) => {
                let has_ports = is_ip && IpProto(key.ip_proto).has_ports();
                let is_one = |port| ports.contains(number(port));
                has_ports
                    && proto.is_none_or(|proto| proto == key.ip_proto)
                    && way.holds(is_one(key.l4_src), is_one(key.l4_dst))
            }
            Self::Vlan(id) => {
                let [outer, ..] = key.tags;
                key.tags_present & 1 != 0 && id.is_none_or(|id| outer.vid() == id)
            }
            Self::Icmp { family: wanted, field, is_equal, value } => {
                let [_, byte] = match field {
                    IcmpField::Type => key.l4_src,
                    IcmpField::Code => key.l4_dst,
                };
                let is_icmp = family == wanted && key.ip_proto == icmp_proto(wanted);
                is_icmp && (byte == value) == is_equal
            }
            Self::Multicast => key.eth_dst.is_multicast(),
        }
    }
}

impl Way {
    /// Regions in which a field has a value at one end, the other, or both.
    fn regions(
        self,
        base: Region,
        src: impl Fn(Region) -> Region,
        dst: impl Fn(Region) -> Region,
    ) -> Vec<Region> {
        match self {
            Self::Src => vec![src(base)],
            Self::Dst => vec![dst(base)],
            Self::Either => vec![src(base), dst(base)],
            Self::Both => vec![dst(src(base))],
        }
    }

    const fn holds(self, src: bool, dst: bool) -> bool {
        match self {
            Self::Src => src,
            Self::Dst => dst,
            Self::Either => src || dst,
            Self::Both => src && dst,
        }
    }
}

fn port_frames(proto: Option<u8>, way: Way, ports: PortRange) -> Result<Frames, TooMany> {
    let all = [IpProto::TCP.0, IpProto::UDP.0, IpProto::SCTP.0];
    let bases = match proto {
        Some(proto) => protocols(None, &[proto]),
        None => protocols(None, &all),
    };
    let src =
        || ports_within(&bases, ports, |region, port| Region { src_port: Some(port), ..region });
    let dst =
        || ports_within(&bases, ports, |region, port| Region { dst_port: Some(port), ..region });
    match way {
        Way::Src => src(),
        Way::Dst => dst(),
        Way::Either => src()?.union(dst()?),
        Way::Both => src()?.intersect(&dst()?),
    }
}

fn protocols(family: Option<Family>, protos: &[u8]) -> Vec<Region> {
    let families = family.map_or(vec![Family::Ipv4, Family::Ipv6], |family| vec![family]);
    let region = |family, proto: &u8| Region {
        family: Some(family),
        proto: Some(*proto),
        ..Region::default()
    };
    families.iter().flat_map(|family| protos.iter().map(|proto| region(*family, proto))).collect()
}

fn ip_families(family: Option<Family>, prefix: IpPrefix) -> Vec<Family> {
    match (family, prefix.is_ipv4()) {
        (Some(family), _) => vec![family],
        (None, true) => vec![Family::Ipv4, Family::Arp],
        (None, false) => vec![Family::Ipv6],
    }
}

fn ip_address(bytes: &[u8; 16], is_ipv4: bool) -> std::net::IpAddr {
    let [a, b, c, d, ..] = *bytes;
    match is_ipv4 {
        true => [a, b, c, d].into(),
        false => (*bytes).into(),
    }
}

const fn icmp_proto(family: Family) -> u8 {
    match family {
        Family::Ipv6 => IpProto::ICMPV6.0,
        _ => IpProto::ICMP.0,
    }
}

/// Broadcast address.
pub(super) const BROADCAST: MacAddr = MacAddr::BROADCAST;
