//! Learning from packet-ins: where a host is, and its IP address.
//!
//! By ARP and neighbour discovery a host claims its address. Other packets only have a source
//! address, which may be another host's, as routers forward packets. So a source is used as
//! evidence only if the packet appears to come from its originator: if its TTL or hop limit is a
//! usual initial value, which each router decrements.
//!
//! No packet-in is requested for this. The first frames of new or moved hosts are sent up anyway,
//! and reveal the address of a host with static ARP entries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_openflow::{Oxm, PacketIn, PortNo};
use tapswitch_wire::{
    EtherType, FlowKey, MacAddr, Parsed, Tag, icmp, ip_proto, ipv4, ipv6, parse, tags,
};

use crate::hosts::{Evidence, HostKey, Sighting};

/// Location of the frame's sender; `None` if the source is unusable or cannot be a host.
pub(crate) fn sighting(packet_in: &PacketIn) -> Option<Sighting> {
    let port = in_port(packet_in)?;
    let Parsed { key, layout } = parse(&packet_in.data).ok()?;
    let vid = key.outer_tag().map(Tag::vid);
    let is_host = key.eth_src.is_unicast() && vid != Some(RESERVED_VID);
    let host = HostKey::new(key.eth_src, vid);
    let packet = packet_in.data.get(usize::from(layout.network)..).unwrap_or_default();
    let (to, evidence) = (key.eth_dst, evidence(&key, packet));
    let inner_vlans = Some(inner_vlans(&packet_in.data));
    is_host.then_some(Sighting { key: host, port, evidence, to, inner_vlans })
}

/// VLAN ids of the tags inside the outermost one.
fn inner_vlans(frame: &[u8]) -> Vec<u16> {
    (1..=MAX_INNER).map_while(|index| tags::get(frame, index)).map(Tag::vid).collect()
}

pub(crate) fn in_port(packet_in: &PacketIn) -> Option<PortNo> {
    packet_in.match_fields.iter().find_map(|field| match field {
        Oxm::InPort(port) => Some(*port),
        _ => None,
    })
}

/// Evidence of the sender's IP address.
fn evidence(key: &FlowKey, packet: &[u8]) -> Option<Evidence> {
    match key.eth_type() {
        EtherType::ARP => {
            let sender = Some(ipv4_source(key)).filter(|_| key.arp_sha == key.eth_src);
            sender.and_then(host_v4).map(Evidence::Claim)
        }
        EtherType::IPV4 if is_fresh(packet.get(ipv4::field::TTL)) => {
            source_v4(ipv4_source(key)).map(Evidence::Source)
        }
        EtherType::IPV6 => match discovered(key, packet) {
            Some(address) => host_v6(address).map(Evidence::Claim),
            None if is_fresh(packet.get(ipv6::field::HOP_LIMIT)) => {
                source_v6(key.ip_src.into()).map(Evidence::Source)
            }
            None => None,
        },
        _ => None,
    }
}

/// The address that a host on this link claims by neighbour discovery. Ignored: packets forwarded
/// by a router, packets with another code (RFC 4861 §7.1), and those that name another station, as
/// for ARP. The checksum is not verified, as a packet-in may hold only the beginning of the packet;
/// receivers verify it.
fn discovered(key: &FlowKey, packet: &[u8]) -> Option<Ipv6Addr> {
    let (address, station) = match (key.ip_proto, key.l4_src, key.l4_dst) {
        (ip_proto::ICMPV6, [0, icmp::NEIGHBOR_SOLICITATION], [0, 0]) => (key.ip_src, key.arp_sha),
        (ip_proto::ICMPV6, [0, icmp::NEIGHBOR_ADVERTISEMENT], [0, 0]) => {
            (key.nd_target, key.arp_tha)
        }
        _ => return None,
    };
    let is_from_link = packet.get(ipv6::field::HOP_LIMIT) == Some(&255);
    // The option may be absent.
    let is_its_own = station == MacAddr::default() || station == key.eth_src;
    (is_from_link && is_its_own).then(|| address.into())
}

/// Source of an IPv4 packet, or sender in ARP.
const fn ipv4_source(key: &FlowKey) -> Ipv4Addr {
    let [a, b, c, d, ..] = key.ip_src;
    Ipv4Addr::new(a, b, c, d)
}

fn host_v4(address: Ipv4Addr) -> Option<IpAddr> {
    let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast();
    is_host.then_some(address.into())
}

fn host_v6(address: Ipv6Addr) -> Option<IpAddr> {
    (!address.is_unspecified() && !address.is_multicast()).then_some(address.into())
}

/// Whether no router has forwarded the packet yet.
fn is_fresh(hops_left: Option<&u8>) -> bool {
    hops_left.is_some_and(|hops| INITIAL_HOPS.contains(hops))
}

/// An address of a single host. Link-local addresses are excluded: their owner announces them by
/// ARP (RFC 3927 §2.4), and in clouds all hosts reply from the same one for metadata.
fn source_v4(address: Ipv4Addr) -> Option<IpAddr> {
    let [first, ..] = address.octets();
    // From 224 on: multicast and reserved (RFC 1112 §4); 0: a host without address.
    let is_unicast = first != 0 && first < 224;
    let is_host = is_unicast && !address.is_loopback() && !address.is_link_local();
    is_host.then_some(address.into())
}

/// The same for IPv6. Link-local addresses are included: no router forwards them (RFC 4291 §2.5.6).
fn source_v6(address: Ipv6Addr) -> Option<IpAddr> {
    let is_host = !address.is_loopback() && address.to_ipv4_mapped().is_none();
    host_v6(address).filter(|_| is_host)
}

/// Usual initial values: most hosts, Windows, and routers' own packets. 32 is obsolete; a packet
/// that began with 64 may reach 32 after 32 routers, but 64 after 64 routers is unlikely from 128.
const INITIAL_HOPS: [u8; 3] = [64, 128, 255];
/// Maximum inner tags stored per host, as a frame may have a hundred.
const MAX_INNER: usize = 8;
/// Reserved VLAN id (IEEE 802.1Q-2022 §9.6).
const RESERVED_VID: u16 = 4095;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::{BufferId, Match, PacketInReason, TableId};

    fn packet_in(data: Vec<u8>) -> PacketIn {
        PacketIn {
            buffer_id: BufferId::NO_BUFFER,
            total_len: 60,
            reason: PacketInReason::NO_MATCH,
            table_id: TableId(0),
            cookie: 0,
            match_fields: Match::new().with(Oxm::InPort(PortNo(7))),
            data,
        }
    }

    fn arp(sender: [u8; 4], hardware: u8) -> Vec<u8> {
        let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, hardware]);
        frame.extend(sender);
        frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        frame
    }

    /// A neighbour discovery packet from `src` about `target`.
    fn nd(kind: u8, src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let mut frame = [[0x33; 6], [2, 0, 0, 0, 0, 1]].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
        frame.extend(src.octets());
        frame.extend([0xff; 16]);
        frame.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(target.octets());
        frame
    }

    fn claim(frame: Vec<u8>) -> Option<IpAddr> {
        match sighting(&packet_in(frame)).unwrap().evidence {
            Some(Evidence::Source(address)) => panic!("{address} is a source only"),
            evidence => evidence.map(Evidence::address),
        }
    }

    /// A tagged packet with hop limit `hops`.
    fn packet(src: &str, hops: u8) -> Vec<u8> {
        let mut frame = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
        frame.extend([0x81, 0x00, 0, 7]);
        match src.parse().unwrap() {
            IpAddr::V4(src) => {
                frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, hops, 17, 0, 0]);
                frame.extend(src.octets());
                frame.extend([10, 0, 0, 2]);
            }
            IpAddr::V6(src) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, hops]);
                frame.extend(src.octets());
                frame.extend([0xfd; 16]);
            }
        }
        frame
    }

    fn source(src: &str, hops: u8) -> Option<String> {
        match sighting(&packet_in(packet(src, hops))).unwrap().evidence {
            Some(Evidence::Claim(address)) => panic!("{address} is claimed"),
            evidence => evidence.map(|evidence| evidence.address().to_string()),
        }
    }

    #[test]
    fn arp_tells_address_and_place() {
        let seen = sighting(&packet_in(arp([10, 0, 0, 1], 1))).unwrap();
        let key = HostKey { mac: MacAddr([2, 0, 0, 0, 0, 1]), vlan: None };
        let evidence = Some(Evidence::Claim([10, 0, 0, 1].into()));
        let (port, to) = (PortNo(7), MacAddr::BROADCAST);
        assert_eq!(seen, Sighting { key, port, evidence, to, inner_vlans: Some(vec![]) });
    }

    #[test]
    fn probes_and_claims_for_others_tell_no_address() {
        assert_eq!(claim(arp([0, 0, 0, 0], 1)), None);
        assert_eq!(claim(arp([10, 0, 0, 1], 2)), None);
        assert_eq!(claim(arp([224, 0, 0, 1], 1)), None);
        assert_eq!(claim(nd(135, Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST)), None);
    }

    #[test]
    fn neighbour_discovery_tells_addresses() {
        let (a, b) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        assert_eq!(claim(nd(135, a, b)), Some(a.into()), "a solicitation: its sender");
        assert_eq!(claim(nd(136, b, a)), Some(a.into()), "an advertisement: its target");
        let asks_routers = sighting(&packet_in(nd(133, a, b))).unwrap();
        assert_eq!(asks_routers.evidence, Some(Evidence::Source(a.into())));
    }

    #[test]
    fn neighbour_discovery_from_elsewhere_claims_nothing() {
        let (a, b) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        for kind in [135, 136] {
            // Code, and hop limit decremented by a router.
            for (at, byte) in [(55, 1), (21, 254), (21, 63)] {
                let mut frame = nd(kind, a, b);
                frame[at] = byte;
                let evidence = sighting(&packet_in(frame)).unwrap().evidence;
                let is_claim = matches!(evidence, Some(Evidence::Claim(_)));
                assert!(!is_claim, "{kind}, byte {at}: {evidence:?}");
            }
        }
    }

    #[test]
    fn neighbour_discovery_for_others_claims_nothing() {
        let (a, b) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        // The link-layer address option of a solicitation and an advertisement.
        for (kind, option, claimed) in [(135, 1, a), (136, 2, b)] {
            let by = |last| {
                let mut frame = nd(kind, a, b);
                frame[19] += 8;
                frame.extend([option, 1, 2, 0, 0, 0, 0, last]);
                sighting(&packet_in(frame)).unwrap().evidence
            };
            assert_eq!(by(1), Some(Evidence::Claim(claimed.into())), "{kind}");
            assert_eq!(by(2), Some(Evidence::Source(a.into())), "{kind}: for another station");
        }
    }

    #[test]
    fn packets_that_no_router_passed_on_tell_their_source() {
        for address in ["10.0.0.1", "192.0.2.7", "2001:db8::1", "fe80::1", "fd00::7"] {
            for hops in 0..=255 {
                let told = source(address, hops);
                assert_eq!(told.is_some(), matches!(hops, 64 | 128 | 255), "{address}, {hops}");
                assert!(told.is_none_or(|told| told == address));
            }
        }
        let mut cut = packet("10.0.0.1", 64);
        cut.truncate(37);
        assert_eq!(sighting(&packet_in(cut)).unwrap().evidence, None);
    }

    #[test]
    fn sources_that_are_no_host_s_tell_nothing() {
        let v4 = ["0.0.0.0", "0.0.0.9", "127.0.0.1", "169.254.169.254", "224.0.0.1", "240.0.0.1"];
        let v6 = ["::", "::1", "ff02::1", "::ffff:10.0.0.1"];
        for address in v4.into_iter().chain(["255.255.255.255"]).chain(v6) {
            assert_eq!(source(address, 64), None, "{address}");
        }
    }

    #[test]
    fn hosts_are_known_by_their_outermost_tag() {
        let mut frame = arp([10, 0, 0, 1], 1);
        frame.splice(12..12, [0x88, 0xa8, 0x20, 0x64, 0x81, 0x00, 0, 7]);
        assert_eq!(sighting(&packet_in(frame)).unwrap().key.vlan, Some(100));
    }

    #[test]
    fn a_priority_tag_is_no_vlan() {
        let plain = sighting(&packet_in(arp([10, 0, 0, 1], 1)));
        let mut frame = arp([10, 0, 0, 1], 1);
        frame.splice(12..12, [0x81, 0x00, 0xa0, 0]);
        assert_eq!(sighting(&packet_in(frame)), plain);
    }

    #[test]
    fn what_no_host_sends_is_passed_over() {
        let mut from_group = arp([10, 0, 0, 1], 1);
        from_group[6] = 3;
        assert_eq!(sighting(&packet_in(from_group)), None);
        let mut reserved = arp([10, 0, 0, 1], 1);
        reserved.splice(12..12, [0x81, 0x00, 0x0f, 0xff]);
        assert_eq!(sighting(&packet_in(reserved)), None);
        assert_eq!(sighting(&packet_in(vec![0; 13])), None);
        let nowhere = PacketIn { match_fields: Match::new(), ..packet_in(arp([10, 0, 0, 1], 1)) };
        assert_eq!(sighting(&nowhere), None);
    }
}
