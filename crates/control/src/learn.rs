//! What a frame that the switch sent up says about a host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_openflow::{Oxm, PacketIn, PortNo};
use tapswitch_wire::{EtherType, FlowKey, Tag, icmp, ip_proto, parse, tags};

use crate::hosts::{HostKey, Sighting};

/// Where the sender of the frame is; `None` when it does not say, or cannot be a host.
pub(crate) fn sighting(packet_in: &PacketIn) -> Option<Sighting> {
    let port = in_port(packet_in)?;
    let key = parse(&packet_in.data).ok()?.key;
    let vlan = key.outer_tag().map(Tag::vid);
    let is_host = key.eth_src.is_unicast() && vlan != Some(RESERVED_VID);
    let host = HostKey { mac: key.eth_src, vlan };
    let (to, address) = (key.eth_dst, claimed_address(&key));
    let inner_vlans = Some(inner_vlans(&packet_in.data));
    is_host.then_some(Sighting { key: host, port, address, to, inner_vlans })
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

/// The address that the frame's sender says it has, by ARP or neighbour discovery. The source
/// address of an ordinary packet says nothing: a router sends packets of others.
fn claimed_address(key: &FlowKey) -> Option<IpAddr> {
    match (key.eth_type(), key.ip_proto, key.l4_src) {
        (EtherType::ARP, ..) if key.arp_sha == key.eth_src => {
            let [a, b, c, d, ..] = key.ip_src;
            host_v4(Ipv4Addr::new(a, b, c, d))
        }
        (EtherType::IPV6, ip_proto::ICMPV6, [0, icmp::NEIGHBOR_SOLICITATION]) => {
            host_v6(key.ip_src.into())
        }
        (EtherType::IPV6, ip_proto::ICMPV6, [0, icmp::NEIGHBOR_ADVERTISEMENT]) => {
            host_v6(key.nd_target.into())
        }
        _ => None,
    }
}

fn host_v4(address: Ipv4Addr) -> Option<IpAddr> {
    let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast();
    is_host.then_some(address.into())
}

fn host_v6(address: Ipv6Addr) -> Option<IpAddr> {
    (!address.is_unspecified() && !address.is_multicast()).then_some(address.into())
}

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

    fn address(frame: Vec<u8>) -> Option<IpAddr> {
        sighting(&packet_in(frame)).unwrap().address
    }

    #[test]
    fn arp_tells_address_and_place() {
        let seen = sighting(&packet_in(arp([10, 0, 0, 1], 1))).unwrap();
        let key = HostKey { mac: MacAddr([2, 0, 0, 0, 0, 1]), vlan: None };
        let address = Some([10, 0, 0, 1].into());
        let to = MacAddr::BROADCAST;
        assert_eq!(seen, Sighting { key, port: PortNo(7), address, to, inner_vlans: Some(vec![]) });
    }

    #[test]
    fn probes_and_claims_for_others_tell_no_address() {
        assert_eq!(address(arp([0, 0, 0, 0], 1)), None);
        assert_eq!(address(arp([10, 0, 0, 1], 2)), None);
        assert_eq!(address(arp([224, 0, 0, 1], 1)), None);
        assert_eq!(address(nd(135, Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST)), None);
    }

    #[test]
    fn neighbour_discovery_tells_addresses() {
        let (a, b) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        assert_eq!(address(nd(135, a, b)), Some(a.into()), "a solicitation: its sender");
        assert_eq!(address(nd(136, b, a)), Some(a.into()), "an advertisement: its target");
        assert_eq!(address(nd(133, a, b)), None);
    }

    #[test]
    fn hosts_are_known_by_their_outermost_tag() {
        let mut frame = arp([10, 0, 0, 1], 1);
        frame.splice(12..12, [0x88, 0xa8, 0x20, 0x64, 0x81, 0x00, 0, 7]);
        assert_eq!(sighting(&packet_in(frame)).unwrap().key.vlan, Some(100));
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
