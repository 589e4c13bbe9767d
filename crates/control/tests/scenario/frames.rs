//! Builds frames between hosts. Host `n` has the MAC address 02:00:00:00:00:0n, the IPv4 address
//! 10.0.0.n and the IPv6 address 2001:db8::n.

use std::net::{Ipv4Addr, Ipv6Addr};

use tapswitch_wire::{MacAddr, arp, ip_proto};

pub(crate) const BROADCAST: u8 = 0xff;

pub(crate) fn mac(host: u8) -> MacAddr {
    if host == BROADCAST { MacAddr::BROADCAST } else { MacAddr([2, 0, 0, 0, 0, host]) }
}

pub(crate) fn ipv4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

pub(crate) fn ipv6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into())
}

/// An Ethernet frame, tagged if a VLAN is given.
pub(crate) fn ethernet(
    src: u8,
    dst: u8,
    vlan: Option<u16>,
    eth_type: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [mac(dst).0, mac(src).0].concat();
    if let Some(vid) = vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vid.to_be_bytes());
    }
    frame.extend(eth_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A packet over IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) src: u8,
    pub(crate) dst: u8,
    pub(crate) vlan: Option<u16>,
    pub(crate) is_ipv6: bool,
    pub(crate) proto: u8,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
}

pub(crate) fn tcp(src: u8, dst: u8) -> Packet {
    Packet {
        src,
        dst,
        vlan: None,
        is_ipv6: false,
        proto: ip_proto::TCP,
        src_port: 40_000,
        dst_port: 80,
    }
}

pub(crate) fn udp(src: u8, dst: u8) -> Packet {
    Packet { proto: ip_proto::UDP, ..tcp(src, dst) }
}

impl Packet {
    /// The packet, tagged if a VLAN is given.
    pub(crate) fn vlan_bytes(self, vlan: Option<u16>) -> Vec<u8> {
        Self { vlan, ..self }.bytes()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut upper = [self.src_port.to_be_bytes(), self.dst_port.to_be_bytes()].concat();
        upper.resize(20, 0);
        upper[12] = 0x50;
        upper.extend(b"payload");
        let len = upper.len() as u16;
        let mut packet = Vec::new();
        if self.is_ipv6 {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(len.to_be_bytes());
            packet.extend([self.proto, 64]);
            packet.extend(ipv6(self.src).octets());
            packet.extend(ipv6(self.dst).octets());
        } else {
            packet.extend([0x45, 0]);
            packet.extend((len + 20).to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, self.proto, 0, 0]);
            packet.extend(ipv4(self.src).octets());
            packet.extend(ipv4(self.dst).octets());
        }
        packet.extend(upper);
        let eth_type = if self.is_ipv6 { 0x86dd } else { 0x0800 };
        ethernet(self.src, self.dst, self.vlan, eth_type, &packet)
    }
}

/// An ARP request for `target`, to broadcast.
pub(crate) fn arp_request(src: u8, target: u8, vlan: Option<u16>) -> Vec<u8> {
    let payload = arp_payload(arp::REQUEST, src, MacAddr::ZERO, target);
    ethernet(src, BROADCAST, vlan, 0x0806, &payload)
}

/// The reply.
pub(crate) fn arp_reply(src: u8, target: u8) -> Vec<u8> {
    let payload = arp_payload(arp::REPLY, src, mac(target), target);
    ethernet(src, target, None, 0x0806, &payload)
}

fn arp_payload(operation: u16, src: u8, target_mac: MacAddr, target: u8) -> Vec<u8> {
    let mut payload = arp::IPV4_OVER_ETHERNET.to_vec();
    payload.extend(operation.to_be_bytes());
    payload.extend(mac(src).0);
    payload.extend(ipv4(src).octets());
    payload.extend(target_mac.0);
    payload.extend(ipv4(target).octets());
    payload
}

/// Neighbour solicitation (135) or advertisement (136).
pub(crate) fn neighbor_discovery(kind: u8, src: u8, dst: u8, target: u8) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 24, ip_proto::ICMPV6, 255];
    packet.extend(ipv6(src).octets());
    packet.extend(ipv6(dst).octets());
    packet.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend(ipv6(target).octets());
    ethernet(src, dst, None, 0x86dd, &packet)
}
