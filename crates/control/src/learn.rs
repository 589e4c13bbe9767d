//! What a frame that the switch sent up says about a host.
//!
//! Of its IP address, ARP and neighbour discovery say what the host claims. Other packets merely
//! have a source, which may be that of somebody else: a router sends packets of others. So a source
//! is evidence only where the packet seems to come from the host that made it, which is when its
//! TTL or hop limit is one that hosts begin with: each router on the way has taken one away.
//!
//! No frame is asked for because of that. What comes up are the first frames of hosts that are new,
//! or moved, and there the source of a host whose ARP entries are static is found.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_openflow::{Oxm, PacketIn, PortNo};
use tapswitch_wire::{EtherType, FlowKey, Parsed, Tag, icmp, ip_proto, ipv4, ipv6, parse, tags};

use crate::hosts::{Evidence, HostKey, Sighting};

/// Where the sender of the frame is; `None` when it does not say, or cannot be a host.
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

/// The identifiers of the tags inside the outermost one.
fn inner_vlans(frame: &[u8]) -> Vec<u16> {
    (1..=MAX_INNER).map_while(|index| tags::get(frame, index)).map(Tag::vid).collect()
}

pub(crate) fn in_port(packet_in: &PacketIn) -> Option<PortNo> {
    packet_in.match_fields.iter().find_map(|field| match field {
        Oxm::InPort(port) => Some(*port),
        _ => None,
    })
}

/// What a packet says of its sender's address.
fn evidence(key: &FlowKey, packet: &[u8]) -> Option<Evidence> {
    match (key.eth_type(), key.ip_proto, key.l4_src) {
        (EtherType::ARP, ..) => {
            let sender = Some(ipv4_source(key)).filter(|_| key.arp_sha == key.eth_src);
            sender.and_then(host_v4).map(Evidence::Claim)
        }
        (EtherType::IPV6, ip_proto::ICMPV6, [0, icmp::NEIGHBOR_SOLICITATION]) => {
            host_v6(key.ip_src.into()).map(Evidence::Claim)
        }
        (EtherType::IPV6, ip_proto::ICMPV6, [0, icmp::NEIGHBOR_ADVERTISEMENT]) => {
            host_v6(key.nd_target.into()).map(Evidence::Claim)
        }
        (EtherType::IPV4, ..) if is_fresh(packet.get(ipv4::field::TTL)) => {
            source_v4(ipv4_source(key)).map(Evidence::Source)
        }
        (EtherType::IPV6, ..) if is_fresh(packet.get(ipv6::field::HOP_LIMIT)) => {
            source_v6(key.ip_src.into()).map(Evidence::Source)
        }
        _ => None,
    }
}

/// Source of an IPv4 packet, or sender of an ARP message.
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

/// Whether no router has passed the packet on yet.
fn is_fresh(hops_left: Option<&u8>) -> bool {
    hops_left.is_some_and(|hops| INITIAL_HOPS.contains(hops))
}

/// One host's address on its network. Link-local ones are not: who takes one announces it by ARP
/// (RFC 3927 §2.4), and where clouds serve their metadata all hosts answer from the same one.
fn source_v4(address: Ipv4Addr) -> Option<IpAddr> {
    let [first, ..] = address.octets();
    // From 224 on are groups and what is reserved (RFC 1112 §4); 0 is a host that has none yet.
    let is_unicast = first != 0 && first < 224;
    let is_host = is_unicast && !address.is_loopback() && !address.is_link_local();
    is_host.then_some(address.into())
}

/// The same. Link-local ones are: no router passes them on (RFC 4291 §2.5.6).
fn source_v6(address: Ipv6Addr) -> Option<IpAddr> {
    let is_host = !address.is_loopback() && address.to_ipv4_mapped().is_none();
    host_v6(address).filter(|_| is_host)
}

/// What hosts begin with: most of them, Windows, and routers with packets of their own. Those that
/// began with 32 are long gone; and of those that begin with 64, a packet may have come by 32
/// routers, while hardly any comes by 64.
const INITIAL_HOPS: [u8; 3] = [64, 128, 255];
/// Inner tags that are kept of a host: anybody may send a hundred.
const MAX_INNER: usize = 8;
/// The identifier that no VLAN has (IEEE 802.1Q-2022 §9.6).
const RESERVED_VID: u16 = 4095;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::{BufferId, Match, PacketInReason, TableId};
    use tapswitch_wire::MacAddr;

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

    /// Neighbour discovery from `src` about `target`.
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

    /// A packet with `hops` left, behind a tag.
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
