//! Regions: sets of frames that one OpenFlow match can say.
//!
//! A region is a conjunction of fields. Regions intersect field by field: equal values meet in
//! themselves, prefixes nest or are apart, anything is narrowed by something. The form is canonical
//! (a field that matches anything is left out, addresses have zeros behind their prefix), so that
//! equal regions are equal values, and `a` covers `b` exactly when `a ∩ b = b`.

use std::net::IpAddr;

use tapswitch_openflow::{Masked, Match, Oxm, VID_NONE, VID_PRESENT};
use tapswitch_wire::{EtherType, MacAddr};

use crate::hosts::HostKey;
use crate::prefix::{mask_v4, mask_v6};
use crate::{IpPrefix, IpProto, Vlan};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

/// Frames that have all of these fields. Addresses and protocol need a family, ports a protocol
/// that has ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Region {
    pub(crate) src_mac: Option<MacAddr>,
    pub(crate) dst_mac: Option<MacAddr>,
    pub(crate) vlan: Vlan,
    pub(crate) family: Option<Family>,
    pub(crate) src_ip: Option<IpPrefix>,
    pub(crate) dst_ip: Option<IpPrefix>,
    pub(crate) proto: Option<u8>,
    pub(crate) src_port: Option<u16>,
    pub(crate) dst_port: Option<u16>,
}

impl Region {
    /// The answers to these frames.
    pub(crate) const fn reversed(self) -> Self {
        Self {
            src_mac: self.dst_mac,
            dst_mac: self.src_mac,
            src_ip: self.dst_ip,
            dst_ip: self.src_ip,
            src_port: self.dst_port,
            dst_port: self.src_port,
            ..self
        }
    }

    /// The frames in both; `None` when there are none.
    pub(crate) fn intersect(&self, other: &Self) -> Option<Self> {
        Some(Self {
            src_mac: same(self.src_mac, other.src_mac)?,
            dst_mac: same(self.dst_mac, other.dst_mac)?,
            vlan: self.vlan.intersect(other.vlan)?,
            family: same(self.family, other.family)?,
            src_ip: nested(self.src_ip, other.src_ip)?,
            dst_ip: nested(self.dst_ip, other.dst_ip)?,
            proto: same(self.proto, other.proto)?,
            src_port: same(self.src_port, other.src_port)?,
            dst_port: same(self.dst_port, other.dst_port)?,
        })
    }

    /// True when every frame of `other` is in it.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.intersect(other) == Some(*other)
    }

    /// True when some of its frames could go to this host.
    pub(crate) fn reaches(&self, host: HostKey) -> bool {
        self.vlan.contains(host.vlan) && self.dst_mac.is_none_or(|mac| mac == host.mac)
    }

    /// The match of its frames.
    pub(crate) fn matching(&self) -> Match {
        let vid = match self.vlan {
            Vlan::Any => None,
            Vlan::Untagged => Some(VID_NONE),
            Vlan::Id(id) => Some(VID_PRESENT | id),
        };
        self.fields(self.dst_mac, vid)
    }

    /// The match of those of its frames that go to this host, which it reaches.
    pub(crate) fn matching_to(&self, host: HostKey) -> Match {
        self.fields(Some(host.mac), Some(host.vid()))
    }

    /// In the order of OpenFlow's numbers, so that what a field requires comes before it.
    fn fields(&self, dst_mac: Option<MacAddr>, vid: Option<u16>) -> Match {
        let eth_type = self.family.map(|family| match family {
            Family::Ipv4 => EtherType::IPV4,
            Family::Ipv6 => EtherType::IPV6,
        });
        [
            dst_mac.map(|mac| Oxm::EthDst(mac.into())),
            self.src_mac.map(|mac| Oxm::EthSrc(mac.into())),
            eth_type.map(Oxm::EthType),
            vid.map(|vid| Oxm::VlanVid(vid.into())),
            self.proto.map(Oxm::IpProto),
            self.src_ip.map(|prefix| ip_field(prefix, Oxm::Ipv4Src, Oxm::Ipv6Src)),
            self.dst_ip.map(|prefix| ip_field(prefix, Oxm::Ipv4Dst, Oxm::Ipv6Dst)),
            self.port_field(self.src_port, Oxm::TcpSrc, Oxm::UdpSrc, Oxm::SctpSrc),
            self.port_field(self.dst_port, Oxm::TcpDst, Oxm::UdpDst, Oxm::SctpDst),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn port_field(
        &self,
        port: Option<u16>,
        tcp: fn(u16) -> Oxm,
        udp: fn(u16) -> Oxm,
        sctp: fn(u16) -> Oxm,
    ) -> Option<Oxm> {
        let field = match self.proto.map(IpProto)? {
            IpProto::TCP => tcp,
            IpProto::UDP => udp,
            IpProto::SCTP => sctp,
            _ => return None,
        };
        port.map(field)
    }
}

/// What two fields have in common: `Some(None)` is anything, `None` is nothing.
#[expect(clippy::option_option, reason = "the outer one is for `?`, the inner one is the field")]
fn same<T: PartialEq>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) => (a == b).then_some(Some(a)),
        (a, b) => Some(a.or(b)),
    }
}

#[expect(clippy::option_option, reason = "the outer one is for `?`, the inner one is the field")]
fn nested(a: Option<IpPrefix>, b: Option<IpPrefix>) -> Option<Option<IpPrefix>> {
    match (a, b) {
        (Some(a), Some(b)) => a.intersect(b).map(Some),
        (a, b) => Some(a.or(b)),
    }
}

fn ip_field(
    prefix: IpPrefix,
    v4: fn(Masked<std::net::Ipv4Addr>) -> Oxm,
    v6: fn(Masked<std::net::Ipv6Addr>) -> Oxm,
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

    const A: Option<MacAddr> = Some(MacAddr([2, 0, 0, 0, 0, 1]));
    const B: Option<MacAddr> = Some(MacAddr([2, 0, 0, 0, 0, 2]));

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
    fn hosts_are_reached_by_vlan_and_address() {
        let host = |vlan| HostKey { mac: MacAddr([2, 0, 0, 0, 0, 1]), vlan };
        let region = Region { dst_mac: A, vlan: Vlan::Id(5), ..Region::default() };
        assert!(region.reaches(host(Some(5))) && !region.reaches(host(None)));
        assert!(!Region { dst_mac: B, ..Region::default() }.reaches(host(None)));
        assert!(Region::default().reaches(host(Some(7))));
    }
}
