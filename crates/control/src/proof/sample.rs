//! Frames to be traced, by the fields that rules match.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use tapswitch_openflow::{Match, Oxm, VID_PRESENT};
use tapswitch_wire::{EtherType, MacAddr, ip_proto};

use crate::hosts::HostKey;
use crate::region::Region;
use crate::{EthType, IpPrefix, IpProto, Vlan};

/// A frame, by the fields that rules match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sample {
    pub(crate) src: MacAddr,
    pub(crate) dst: MacAddr,
    pub(crate) vlan: Option<u16>,
    pub(super) eth_type: u16,
    pub(super) ips: (IpAddr, IpAddr),
    pub(super) proto: u8,
    pub(super) ports: (u16, u16),
}

impl Sample {
    /// A frame with these fields; other fields have typical values for a frame between two hosts.
    pub(crate) fn new(fields: &Match, (src, dst): (HostKey, MacAddr)) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let mut sample = Self {
            src: src.mac,
            dst,
            vlan: src.vlan,
            eth_type: EtherType::IPV4.0,
            ips: (ip, ip),
            proto: 253,
            ports: (0, 0),
        };
        fields.iter().for_each(|field| sample.set(field));
        sample
    }

    fn set(&mut self, field: &Oxm) {
        match field {
            Oxm::EthSrc(mac) => self.src = mac.value,
            Oxm::EthDst(mac) => self.dst = mac.value,
            Oxm::EthType(kind) => self.eth_type = kind.0,
            // Any VLAN: keeps it, or takes the first one.
            Oxm::VlanVid(vid) if vid.value == VID_PRESENT && vid.mask.is_some() => {
                self.vlan = self.vlan.or(Some(1));
            }
            Oxm::VlanVid(vid) => {
                let is_tagged = vid.value & VID_PRESENT != 0;
                self.vlan = is_tagged.then_some(vid.value & !VID_PRESENT);
            }
            Oxm::IpProto(proto) => self.proto = *proto,
            Oxm::Ipv4Src(ip) | Oxm::ArpSpa(ip) => self.ips.0 = ip.value.into(),
            Oxm::Ipv4Dst(ip) | Oxm::ArpTpa(ip) => self.ips.1 = ip.value.into(),
            Oxm::Ipv6Src(ip) => self.ips.0 = ip.value.into(),
            Oxm::Ipv6Dst(ip) => self.ips.1 = ip.value.into(),
            Oxm::TcpSrc(port) | Oxm::UdpSrc(port) | Oxm::SctpSrc(port) => self.ports.0 = *port,
            Oxm::TcpDst(port) | Oxm::UdpDst(port) | Oxm::SctpDst(port) => self.ports.1 = *port,
            Oxm::Icmpv4Type(kind) | Oxm::Icmpv6Type(kind) => self.ports.0 = u16::from(*kind),
            Oxm::Icmpv4Code(code) | Oxm::Icmpv6Code(code) => self.ports.1 = u16::from(*code),
            _ => {}
        }
    }

    /// Other frames of a region that contains this one: with a priority tag, as rules for frames
    /// without VLAN must match these, too; with the last addresses instead of the first ones; and
    /// with another EtherType. Rules for a part of a region are mostly at one of its ends.
    pub(crate) fn others_in(&self, region: &Region) -> impl Iterator<Item = Self> {
        let last = |prefix: Option<IpPrefix>, own| prefix.map_or(own, IpPrefix::last);
        let ips = (last(region.src_ip, self.ips.0), last(region.dst_ip, self.ips.1));
        let prioritised = Self { vlan: Some(Vlan::NULL_ID), ..self.clone() };
        let others =
            [prioritised, Self { ips, ..self.clone() }, Self { eth_type: OTHER, ..self.clone() }];
        others.into_iter().filter(move |other| other != self && other.is_in(region))
    }

    /// The frame as seen by rules that do not copy: they match no IP address and no port.
    pub(super) fn without_copies(&self) -> Self {
        let (ip, is_icmpv6) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), self.proto == ip_proto::ICMPV6);
        let ports = if is_icmpv6 { self.ports } else { (0, 0) };
        Self { ips: (ip, ip), ports, ..self.clone() }
    }

    /// The receiver.
    pub(crate) fn receiver(&self) -> HostKey {
        HostKey::new(self.dst, self.vlan)
    }

    /// The region of all frames from its sender.
    pub(crate) fn sender(&self) -> Region {
        let src_ip = Some(IpPrefix::host(self.ips.0));
        Region { src_mac: Some(self.src.into()), src_ip, ..Region::default() }
    }

    /// Whether the region contains the frame as sent.
    pub(crate) fn is_in(&self, region: &Region) -> bool {
        let has = |own: Option<u16>, port| own.is_none_or(|own| own == port);
        !region.rules_out(self.proto, self.ports)
            && has(region.src_port, self.ports.0)
            && has(region.dst_port, self.ports.1)
            && region.src_mac.is_none_or(|mac| mac.contains(self.src))
            && region.dst_mac.is_none_or(|mac| mac.contains(self.dst))
            && region.vlan.contains(self.vlan)
            && region.family.is_none_or(|family| family.eth_type().0 == self.eth_type)
            && region.src_ip.is_none_or(|ip| ip.contains(self.ips.0))
            && region.dst_ip.is_none_or(|ip| ip.contains(self.ips.1))
    }
}

/// Displays the fields that frames of its type have.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a frame from {} to {}", self.src, self.dst)?;
        match self.vlan {
            None => {}
            Some(Vlan::NULL_ID) => f.write_str(" with a priority and no VLAN")?,
            Some(vid) => write!(f, " in VLAN {vid}")?,
        }
        write!(f, " ({}", EthType(self.eth_type))?;
        let (is_arp, (src, dst)) = (self.eth_type == EtherType::ARP.0, self.ips);
        if is_arp || [EtherType::IPV4.0, EtherType::IPV6.0].contains(&self.eth_type) {
            write!(f, " {src} > {dst}")?;
            if !is_arp {
                write!(f, ", {} {} > {}", IpProto(self.proto), self.ports.0, self.ports.1)?;
            }
        }
        f.write_str(")")
    }
}

/// An EtherType for experiments (IEEE 802-2014 §9.2.4), which policies are unlikely to name.
const OTHER: u16 = 0x88b5;
