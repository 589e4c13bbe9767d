//! Who has this address? ARP (RFC 826) and neighbour discovery (RFC 4861) for those who cannot
//! answer themselves.

use std::net::{IpAddr, Ipv6Addr};

use tapswitch_wire::checksum::pseudo_header_v6;
use tapswitch_wire::{EtherType, MacAddr, arp, ethernet, icmp, ip_proto, ipv6, read_u16};

/// A question for the Ethernet address of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Who asks.
    pub(super) from: IpAddr,
    /// What its frame came from.
    station: MacAddr,
    /// For whom.
    pub(super) target: IpAddr,
}

impl Question {
    /// The question in a frame without tags, if there is one.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let payload = frame.get(ethernet::HEADER_LEN..)?;
        match EtherType(read_u16(frame, ethernet::field::ETHER_TYPE)) {
            EtherType::ARP => Self::of_arp(payload),
            EtherType::IPV6 => {
                let station = MacAddr(*frame.get(ethernet::field::SRC)?.first_chunk()?);
                Self::of_solicitation(payload, station)
            }
            _ => None,
        }
    }

    /// True for an IPv6 packet that is a neighbour solicitation.
    #[inline]
    pub(super) fn is_solicitation(packet: &[u8]) -> bool {
        packet.first().is_some_and(|first| first >> 4 == 6)
            && packet.get(ipv6::field::NEXT_HEADER) == Some(&ip_proto::ICMPV6)
            && packet.get(ipv6::HEADER_LEN) == Some(&icmp::NEIGHBOR_SOLICITATION)
    }

    fn of_arp(packet: &[u8]) -> Option<Self> {
        let packet = packet.get(..arp::LEN)?;
        let is_request = packet.starts_with(&arp::IPV4_OVER_ETHERNET)
            && read_u16(packet, arp::field::OPERATION) == arp::REQUEST;
        let address = |field| <[u8; 4]>::try_from(packet.get(field)?).ok().map(IpAddr::from);
        let station = MacAddr(*packet.get(arp::field::SENDER_MAC)?.first_chunk()?);
        let (from, target) = (address(arp::field::SENDER_IP)?, address(arp::field::TARGET_IP)?);
        // One who asks for his own address wants to know whether anybody has it (RFC 5227).
        (is_request && from != target).then_some(Self { from, station, target })
    }

    /// Neighbour discovery takes no packet that a router has passed on: the hop limit is 255 (RFC
    /// 4861 §7.1.1).
    fn of_solicitation(packet: &[u8], station: MacAddr) -> Option<Self> {
        if !Self::is_solicitation(packet) || packet.get(ipv6::field::HOP_LIMIT) != Some(&255) {
            return None;
        }
        let address = |bytes: &[u8]| {
            <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
        };
        let from: IpAddr = address(packet.get(ipv6::field::SRC)?)?;
        let target = address(packet.get(ipv6::HEADER_LEN..)?.get(icmp::field::ND_TARGET)?)?;
        (!from.is_unspecified()).then_some(Self { from, station, target })
    }

    /// The frame that says that the address is at `mac`.
    pub(super) fn answer(&self, mac: MacAddr) -> Vec<u8> {
        match (self.from, self.target) {
            (IpAddr::V4(from), IpAddr::V4(target)) => {
                let mut frame = ethernet_header(self.station, mac, EtherType::ARP);
                frame.extend(arp::IPV4_OVER_ETHERNET);
                frame.extend(arp::REPLY.to_be_bytes());
                frame.extend(mac.0);
                frame.extend(target.octets());
                frame.extend(self.station.0);
                frame.extend(from.octets());
                frame
            }
            (IpAddr::V6(from), IpAddr::V6(target)) => self.advertisement(mac, from, target),
            _ => Vec::new(),
        }
    }

    /// RFC 4861 §4.4: solicited, and to override what was known.
    fn advertisement(&self, mac: MacAddr, to: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let (to, target) = (to.octets(), target.octets());
        let mut message = vec![icmp::NEIGHBOR_ADVERTISEMENT, 0, 0, 0, SOLICITED_OVERRIDE, 0, 0, 0];
        message.extend(target);
        message.extend([icmp::OPTION_TARGET_LL, 1]);
        message.extend(mac.0);
        let sum = pseudo_header_v6(&target, &to, ip_proto::ICMPV6, ADVERTISEMENT_LEN.into());
        let checksum = sum.add_bytes(&message).checksum();
        message[icmp::field::CHECKSUM..icmp::field::CHECKSUM + 2]
            .copy_from_slice(&checksum.to_be_bytes());
        let mut frame = ethernet_header(self.station, mac, EtherType::IPV6);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(ADVERTISEMENT_LEN.to_be_bytes());
        frame.extend([ip_proto::ICMPV6, 255]);
        frame.extend(target);
        frame.extend(to);
        frame.extend(message);
        frame
    }
}

fn ethernet_header(to: MacAddr, from: MacAddr, kind: EtherType) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.0.to_be_bytes()].concat()
}

/// Flags of an advertisement.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// An advertisement with one option in bytes.
const ADVERTISEMENT_LEN: u16 = 32;
