//! Regions: sets of frames that one OpenFlow match can express.
//!
//! A region is a conjunction of fields. Regions intersect field by field: equal values intersect in
//! themselves, prefixes nest or are disjoint, and a field that matches anything takes the other's
//! value. The form is canonical (fields that match anything are omitted, host bits of prefixes are
//! zero), so that equal regions are equal values, and `a` covers `b` exactly if `a ∩ b = b`.
//!
//! What one match cannot express takes several: [`Frames`] are unions of regions with exceptions,
//! and [`Cells`] are these in the layers that rules of different priorities form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_openflow::{Masked, Match, Oxm};
use tapswitch_wire::{EtherType, FlowKey, MacAddr};

mod cells;
mod frames;
mod mac_mask;
mod words;

pub(crate) use cells::Cells;
#[cfg(test)]
pub(crate) use frames::tests as frames_for_tests;
pub(crate) use frames::{Frames, MAX_SIZE, TooMany, ports_within};
pub(crate) use mac_mask::MacMask;

use crate::family::Family;
use crate::hosts::HostKey;
use crate::prefix::{mask_v4, mask_v6};
use crate::{IpPrefix, IpProto, Vlan};

/// A single sender named by a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Mac(MacAddr),
    Ip(IpAddr),
}

/// Frames that have all of these fields. IP addresses and protocol require a family, ports a
/// protocol with ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Region {
    pub(crate) src_mac: Option<MacMask>,
    pub(crate) dst_mac: Option<MacMask>,
    pub(crate) vlan: Vlan,
    pub(crate) family: Option<Family>,
    pub(crate) src_ip: Option<IpPrefix>,
    pub(crate) dst_ip: Option<IpPrefix>,
    pub(crate) proto: Option<u8>,
    /// Source port, or ICMP type, which is not swapped in answers.
    pub(crate) src_port: Option<u16>,
    /// Destination port, or ICMP code.
    pub(crate) dst_port: Option<u16>,
}

impl Region {
    /// The answers to these frames.
    pub(crate) fn reversed(self) -> Self {
        let has_ports = self.proto.is_some_and(|proto| IpProto(proto).has_ports());
        let (src_port, dst_port) = match has_ports {
            true => (self.dst_port, self.src_port),
            false => (self.src_port, self.dst_port),
        };
        Self {
            src_mac: self.dst_mac,
            dst_mac: self.src_mac,
            src_ip: self.dst_ip,
            dst_ip: self.src_ip,
            src_port,
            dst_port,
            ..self
        }
    }

    /// Whether a host could send such a frame: no host has a group address.
    pub(crate) fn has_sender(&self) -> bool {
        self.src_mac.is_none_or(|mac| !mac.is_of_groups())
    }

    /// The sender, if the region names a single address.
    pub(crate) fn sender(&self) -> Option<Sender> {
        match self.src_mac.and_then(MacMask::exact) {
            Some(mac) => Some(Sender::Mac(mac)),
            None => self.src_ip.and_then(IpPrefix::only).map(Sender::Ip),
        }
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn intersect(&self, other: &Self) -> Option<Self> {
        Some(Self {
            // These fields differ in almost all pairs of many regions.
            src_port: same(self.src_port, other.src_port)?,
            dst_port: same(self.dst_port, other.dst_port)?,
            proto: same(self.proto, other.proto)?,
            src_mac: both(self.src_mac, other.src_mac, MacMask::intersect)?,
            dst_mac: both(self.dst_mac, other.dst_mac, MacMask::intersect)?,
            vlan: self.vlan.intersect(other.vlan)?,
            family: same(self.family, other.family)?,
            src_ip: both(self.src_ip, other.src_ip, IpPrefix::intersect)?,
            dst_ip: both(self.dst_ip, other.dst_ip, IpPrefix::intersect)?,
        })
    }

    /// True when every frame of `other` is in this region.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.intersect(other) == Some(*other)
    }

    /// True when some of its frames could go to this host.
    pub(crate) fn reaches(&self, host: HostKey) -> bool {
        self.reaches_vlan(host.vlan) && self.dst_mac.is_none_or(|mac| mac.contains(host.mac))
    }

    /// True when some of its frames could go to hosts in this VLAN, or without VLAN.
    pub(crate) fn reaches_vlan(&self, vlan: Option<u16>) -> bool {
        self.vlan.intersect(Vlan::of_host(vlan)).is_some()
    }

    /// Whether the region contains a frame with these headers.
    pub(crate) fn contains(&self, key: &FlowKey) -> bool {
        let eth_type = EtherType(u16::from_be_bytes(key.eth_type));
        let has = |wanted: Option<u16>, is: [u8; 2]| {
            wanted.is_none_or(|wanted| wanted == u16::from_be_bytes(is))
        };
        self.src_mac.is_none_or(|mac| mac.contains(key.eth_src))
            && self.dst_mac.is_none_or(|mac| mac.contains(key.eth_dst))
            && self.vlan.contains(outer_vid(key))
            && self.family.is_none_or(|family| family.eth_type() == eth_type)
            && self.src_ip.is_none_or(|ip| ip.contains(address(&key.ip_src, eth_type)))
            && self.dst_ip.is_none_or(|ip| ip.contains(address(&key.ip_dst, eth_type)))
            && self.proto.is_none_or(|proto| proto == key.ip_proto)
            && has(self.src_port, key.l4_src)
            && has(self.dst_port, key.l4_dst)
    }

    /// The match of its frames.
    pub(crate) fn matching(&self) -> Match {
        self.fields(self.dst_mac, self.vlan)
    }

    /// The match of its frames to this host, which must be within reach.
    pub(crate) fn matching_to(&self, host: HostKey) -> Match {
        let of_host = Vlan::of_host(host.vlan);
        self.fields(Some(host.mac.into()), self.vlan.intersect(of_host).unwrap_or(of_host))
    }

    /// Fields in the order of their OpenFlow numbers, so that prerequisites come first.
    fn fields(&self, dst_mac: Option<MacMask>, vlan: Vlan) -> Match {
        let [src_port, dst_port] = self.port_fields();
        let (src_ip, dst_ip) = match self.family {
            Some(Family::Arp) => (
                self.src_ip.map(|prefix| ip_field(prefix, Oxm::ArpSpa, Oxm::Ipv6Src)),
                self.dst_ip.map(|prefix| ip_field(prefix, Oxm::ArpTpa, Oxm::Ipv6Dst)),
            ),
            _ => (
                self.src_ip.map(|prefix| ip_field(prefix, Oxm::Ipv4Src, Oxm::Ipv6Src)),
                self.dst_ip.map(|prefix| ip_field(prefix, Oxm::Ipv4Dst, Oxm::Ipv6Dst)),
            ),
        };
        let fields = [
            dst_mac.map(|mac| Oxm::EthDst(mac.into())),
            self.src_mac.map(|mac| Oxm::EthSrc(mac.into())),
            self.family.map(|family| Oxm::EthType(family.eth_type())),
            vlan.vid().map(Oxm::VlanVid),
            self.proto.map(Oxm::IpProto),
            src_ip,
            dst_ip,
            src_port,
            dst_port,
        ];
        // Exact capacity, as each copying rule keeps its match.
        let mut own = Vec::with_capacity(fields.iter().flatten().count());
        own.extend(fields.into_iter().flatten());
        Match { fields: own }
    }

    /// Whether the region excludes all packets of this protocol with these ports. Needs no fields
    /// to be built, and decides almost all cases among many policies with ports.
    pub(crate) fn rules_out(&self, proto: u8, (src_port, dst_port): (u16, u16)) -> bool {
        let differs = |own: Option<u16>, port| own.is_some_and(|own| own != port);
        self.proto.is_some_and(|own| {
            own != proto
                || IpProto(own).has_ports()
                    && (differs(self.src_port, src_port) || differs(self.dst_port, dst_port))
        })
    }

    fn port_fields(&self) -> [Option<Oxm>; 2] {
        let ports = [self.src_port, self.dst_port];
        // ICMP types and codes are always created from a byte.
        let [kind, code] = ports.map(|port| port.and_then(|port| u8::try_from(port).ok()));
        let [src, dst] = ports;
        match self.proto.map(IpProto) {
            Some(IpProto::TCP) => [src.map(Oxm::TcpSrc), dst.map(Oxm::TcpDst)],
            Some(IpProto::UDP) => [src.map(Oxm::UdpSrc), dst.map(Oxm::UdpDst)],
            Some(IpProto::SCTP) => [src.map(Oxm::SctpSrc), dst.map(Oxm::SctpDst)],
            Some(IpProto::ICMP) => [kind.map(Oxm::Icmpv4Type), code.map(Oxm::Icmpv4Code)],
            Some(IpProto::ICMPV6) => [kind.map(Oxm::Icmpv6Type), code.map(Oxm::Icmpv6Code)],
            _ => [None, None],
        }
    }
}

/// Intersection of two fields: `Some(None)` matches anything, `None` nothing.
#[expect(clippy::option_option, reason = "the outer one is for `?`, the inner one is the field")]
fn both<T: Copy>(
    a: Option<T>,
    b: Option<T>,
    intersect: impl FnOnce(T, T) -> Option<T>,
) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) => intersect(a, b).map(Some),
        (a, b) => Some(a.or(b)),
    }
}

#[expect(clippy::option_option, reason = "the outer one is for `?`, the inner one is the field")]
fn same<T: Copy + PartialEq>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    both(a, b, |a, b| (a == b).then_some(a))
}

/// VLAN id of the outermost tag, if any.
fn outer_vid(key: &FlowKey) -> Option<u16> {
    let [outer, ..] = key.tags;
    (key.tags_present & 1 != 0).then(|| outer.vid())
}

/// An address in the form for this EtherType.
fn address(bytes: &[u8; 16], eth_type: EtherType) -> IpAddr {
    let [a, b, c, d, ..] = *bytes;
    match eth_type {
        EtherType::IPV6 => Ipv6Addr::from(*bytes).into(),
        _ => Ipv4Addr::new(a, b, c, d).into(),
    }
}

fn ip_field(
    prefix: IpPrefix,
    v4: fn(Masked<Ipv4Addr>) -> Oxm,
    v6: fn(Masked<Ipv6Addr>) -> Oxm,
) -> Oxm {
    match (prefix.address(), prefix.len()) {
        (IpAddr::V4(address), 32) => v4(address.into()),
        (IpAddr::V4(address), len) => v4(Masked::with_mask(address, mask_v4(len))),
        (IpAddr::V6(address), 128) => v6(address.into()),
        (IpAddr::V6(address), len) => v6(Masked::with_mask(address, mask_v6(len))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_wire::MacAddr;

    const A: Option<MacMask> = Some(MacMask::one(MacAddr([2, 0, 0, 0, 0, 1])));
    const B: Option<MacMask> = Some(MacMask::one(MacAddr([2, 0, 0, 0, 0, 2])));

    fn ip(text: &str) -> Option<IpPrefix> {
        Some(text.parse().unwrap())
    }

    fn v4() -> Region {
        Region { family: Some(Family::Ipv4), ..Region::default() }
    }

    #[test]
    fn regions_meet_field_by_field() {
        let a = Region { src_mac: A, src_ip: ip("10.0.0.0/8"), ..v4() };
        let b = Region { dst_mac: B, src_ip: ip("10.1.0.0/16"), proto: Some(6), ..v4() };
        let both = Region { src_mac: A, ..Region { dst_mac: B, ..b } };
        assert_eq!(a.intersect(&b), Some(both));
        assert!(a.covers(&both) && b.covers(&both) && !a.covers(&b));
        assert!(Region::default().covers(&a) && !a.covers(&Region::default()));
    }

    #[test]
    fn regions_apart_have_nothing_in_common() {
        let pairs = [
            (Region { src_mac: A, ..v4() }, Region { src_mac: B, ..v4() }),
            (v4(), Region { family: Some(Family::Ipv6), ..Region::default() }),
            (
                Region { vlan: Vlan::Untagged, ..Region::default() },
                Region { vlan: Vlan::Id(1), ..Region::default() },
            ),
            (
                Region { src_ip: ip("10.0.0.0/8"), ..v4() },
                Region { src_ip: ip("11.0.0.0/8"), ..v4() },
            ),
            (Region { proto: Some(6), ..v4() }, Region { proto: Some(17), ..v4() }),
            (Region { dst_mac: A, ..v4() }, Region { dst_mac: Some(MacMask::GROUPS), ..v4() }),
        ];
        for (a, b) in pairs {
            assert_eq!((a.intersect(&b), b.intersect(&a)), (None, None), "{a:?} {b:?}");
        }
    }

    #[test]
    fn the_match_is_one_that_switches_take() {
        let region = Region {
            src_mac: A,
            vlan: Vlan::Id(100),
            src_ip: ip("10.0.0.0/24"),
            dst_ip: ip("10.0.1.7"),
            proto: Some(6),
            src_port: Some(1),
            dst_port: Some(80),
            ..v4()
        };
        let text = "dl_src=02:00:00:00:00:01,dl_type=0x0800,dl_vlan=100,nw_proto=6,\
             nw_src=10.0.0.0/24,nw_dst=10.0.1.7,tcp_src=1,tcp_dst=80";
        assert_eq!(region.matching().to_string(), text);
        assert_eq!(region.matching().check(), Ok(()));
        let host = HostKey { mac: MacAddr([2, 0, 0, 0, 0, 2]), vlan: Some(100) };
        let to_host = region.matching_to(host);
        assert_eq!(to_host.to_string(), format!("dl_dst=02:00:00:00:00:02,{text}"));
        assert_eq!(Region::default().matching(), Match::new());
    }

    #[test]
    fn each_kind_of_frame_has_fields_of_its_own() {
        let text = |region: Region| {
            assert_eq!(region.matching().check(), Ok(()));
            region.matching().to_string()
        };
        let arp = Region { family: Some(Family::Arp), src_ip: ip("10.0.0.0/8"), ..v4() };
        assert_eq!(text(arp), "dl_type=0x0806,arp_spa=10.0.0.0/8");
        let echo = Region { proto: Some(1), src_port: Some(8), dst_port: Some(0), ..v4() };
        assert_eq!(text(echo), "dl_type=0x0800,nw_proto=1,icmp_type=8,icmp_code=0");
        assert_eq!(echo.reversed(), echo, "answers are told by their type, which is not in it");
        let groups = Region { dst_mac: Some(MacMask::GROUPS), ..Region::default() };
        assert_eq!(text(groups), "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00");
        assert!(groups.has_sender() && !groups.reversed().has_sender());
        let tagged = Region { vlan: Vlan::Tagged, ..Region::default() };
        assert_eq!(text(tagged), "vlan_vid=0x1000/0x1000");
        let lldp = Region { family: Some(Family::of(EtherType(0x88cc))), ..Region::default() };
        assert_eq!(text(lldp), "dl_type=0x88cc");
    }

    #[test]
    fn hosts_are_reached_by_vlan_and_address() {
        let host = |vlan| HostKey { mac: MacAddr([2, 0, 0, 0, 0, 1]), vlan };
        let region = Region { dst_mac: A, vlan: Vlan::Id(5), ..Region::default() };
        assert!(region.reaches(host(Some(5))) && !region.reaches(host(None)));
        assert!(!Region { dst_mac: B, ..Region::default() }.reaches(host(None)));
        assert!(Region::default().reaches(host(Some(7))));
    }

    #[test]
    fn a_priority_is_no_vlan_and_a_tag() {
        let [tagged, untagged] =
            [Vlan::Tagged, Vlan::Untagged].map(|vlan| Region { vlan, ..Region::default() });
        let host = HostKey::new(MacAddr([2, 0, 0, 0, 0, 1]), Some(0));
        assert_eq!(host.vlan, None);
        let to = |region: Region| {
            assert!(region.reaches(host));
            let matching = region.matching_to(host);
            assert_eq!(matching.check(), Ok(()));
            matching.to_string()
        };
        let dst = "dl_dst=02:00:00:00:00:01";
        assert_eq!(to(untagged), format!("{dst},vlan_vid=0x0/0xfff"));
        assert_eq!(to(tagged), format!("{dst},dl_vlan=0"));
        assert_eq!(untagged.intersect(&tagged).unwrap().matching().to_string(), "dl_vlan=0");
        assert!(!Region { vlan: Vlan::Id(5), ..tagged }.reaches(host));
    }
}
