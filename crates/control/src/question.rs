//! Frames that probe a host for presence; the switch sends the answer to the controller.
//!
//! ARP probes (RFC 5227) and neighbour solicitations (RFC 4861), unicast to the host. They come
//! from an address that no host has, so that they do not change the neighbour tables of hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_wire::{EtherType, MacAddr, arp, checksum, icmp, ip_proto, write_u16};

use crate::hosts::HostKey;

/// Probes a host for one of its addresses.
pub(crate) fn question(host: HostKey, address: IpAddr) -> Vec<u8> {
    let (eth_type, packet) = match address {
        IpAddr::V4(address) => (EtherType::ARP, arp_probe(address)),
        IpAddr::V6(address) => (EtherType::IPV6, solicitation(address)),
    };
    let mut frame = [host.mac.0, ASKER.0].concat();
    if let Some(vid) = host.vlan {
        frame.extend(EtherType::VLAN.0.to_be_bytes());
        frame.extend(vid.to_be_bytes());
    }
    frame.extend(eth_type.0.to_be_bytes());
    frame.extend(packet);
    frame
}

fn arp_probe(address: Ipv4Addr) -> Vec<u8> {
    let mut packet = arp::IPV4_OVER_ETHERNET.to_vec();
    packet.extend(arp::REQUEST.to_be_bytes());
    packet.extend(ASKER.0);
    packet.extend(Ipv4Addr::UNSPECIFIED.octets());
    packet.extend(MacAddr::ZERO.0);
    packet.extend(address.octets());
    packet
}

fn solicitation(address: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![icmp::NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend(address.octets());
    message.extend(SOURCE_LINK_LAYER);
    message.extend(ASKER.0);
    let (from, to) = (ASKER_V6.octets(), address.octets());
    let sum = checksum::pseudo_header_v6(&from, &to, ip_proto::ICMPV6, MESSAGE_LEN.into());
    let checksum = sum.add_bytes(&message).checksum();
    write_u16(&mut message, icmp::field::CHECKSUM, checksum);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(MESSAGE_LEN.to_be_bytes());
    packet.extend([ip_proto::ICMPV6, ON_LINK]);
    packet.extend([from, to].concat());
    packet.extend(message);
    packet
}

/// Source address: locally administered.
const ASKER: MacAddr = MacAddr([0x02, 0x74, 0x61, 0x70, 0x73, 0x77]);
/// The corresponding link-local address.
const ASKER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0074, 0x61ff, 0xfe70, 0x7377);
/// The source link-layer address option: type, and length in units of eight bytes.
const SOURCE_LINK_LAYER: [u8; 2] = [icmp::OPTION_SOURCE_LL, 1];
/// Length of a solicitation with that option.
const MESSAGE_LEN: u16 = 32;
/// Hop limit of packets that no router has forwarded.
const ON_LINK: u8 = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_wire::{FlowKey, Tag, parse};

    fn ask(vlan: Option<u16>, address: &str) -> (Vec<u8>, FlowKey) {
        let host = HostKey { mac: MacAddr([2, 0, 0, 0, 0, 3]), vlan };
        let frame = question(host, address.parse().unwrap());
        let key = parse(&frame).unwrap().key;
        assert_eq!((key.eth_dst, key.eth_src), (host.mac, ASKER));
        (frame, key)
    }

    #[test]
    fn an_address_of_ipv4_is_asked_for_by_arp_in_the_hosts_vlan() {
        let (_, key) = ask(Some(7), "10.0.0.3");
        assert_eq!((key.eth_type(), key.outer_tag().map(Tag::vid)), (EtherType::ARP, Some(7)));
        assert_eq!((key.arp_sha, key.ip_src[..4].to_vec()), (ASKER, vec![0; 4]));
        assert_eq!(key.ip_dst[..4], [10, 0, 0, 3]);
    }

    #[test]
    fn an_address_of_ipv6_is_asked_for_by_a_solicitation_that_is_whole() {
        let (frame, key) = ask(None, "2001:db8::3");
        let target = "2001:db8::3".parse::<Ipv6Addr>().unwrap();
        assert_eq!((key.eth_type(), key.ip_proto), (EtherType::IPV6, ip_proto::ICMPV6));
        assert_eq!((key.l4_src, Ipv6Addr::from(key.nd_target)), ([0, 135], target));
        let (from, to) = (ASKER_V6.octets(), target.octets());
        let sum = checksum::pseudo_header_v6(&from, &to, ip_proto::ICMPV6, 32);
        assert!(sum.add_bytes(&frame[54..]).is_valid());
    }
}
