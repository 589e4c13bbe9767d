//! Who has this address? ARP (RFC 826) and neighbour discovery (RFC 4861) for those who cannot
//! answer themselves.

use std::net::{IpAddr, Ipv6Addr};

use tapswitch_wire::checksum::pseudo_header_v6;
use tapswitch_wire::{
    EtherType, FlowKey, MacAddr, arp, ethernet, icmp, ip_proto, ipv6, parse, read_u16,
};

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
            EtherType::ARP => Self::of_arp(frame),
            EtherType::IPV6 => {
                let station = MacAddr(*frame.get(ethernet::field::SRC)?.first_chunk()?);
                Self::of_solicitation(payload, station)
            }
            _ => None,
        }
    }

    fn of_arp(frame: &[u8]) -> Option<Self> {
        let arp = Arp::of(frame)?;
        // One who asks for his own address wants to know whether anybody has it (RFC 5227).
        (arp.operation == arp::REQUEST && arp.from != arp.target).then_some(Self {
            from: arp.from,
            station: arp.station,
            target: arp.target,
        })
    }

    fn of_solicitation(packet: &[u8], station: MacAddr) -> Option<Self> {
        let target = discovery_target(packet, icmp::NEIGHBOR_SOLICITATION)?;
        let from = ipv6_at(packet.get(ipv6::field::SRC)?)?;
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

/// What a host says of itself, asked or not: where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) ip: IpAddr,
    pub(super) mac: MacAddr,
}

impl Claim {
    /// The claim in a frame without tags, if there is one: who sends ARP of any kind (RFC 826 takes
    /// requests and replies alike), and who advertises. Who has no address yet claims none.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let payload = frame.get(ethernet::HEADER_LEN..)?;
        let claim = match EtherType(read_u16(frame, ethernet::field::ETHER_TYPE)) {
            EtherType::ARP => {
                let Arp { from, station, .. } = Arp::of(frame)?;
                Self { ip: from, mac: station }
            }
            EtherType::IPV6 => {
                let ip = discovery_target(payload, icmp::NEIGHBOR_ADVERTISEMENT)?;
                let message = payload.get(ipv6::HEADER_LEN..)?;
                // Left out where the other end knows it (RFC 4861 §4.4).
                let src = || Some(MacAddr(*frame.get(ethernet::field::SRC)?.first_chunk()?));
                Self { ip, mac: target_station(message).or_else(src)? }
            }
            _ => return None,
        };
        (!claim.ip.is_unspecified() && claim.mac.is_unicast()).then_some(claim)
    }
}

/// The kind of message, if an IPv6 packet is a neighbour solicitation or advertisement.
#[inline]
pub(super) fn discovery_of(packet: &[u8]) -> Option<u8> {
    let is_icmp = packet.first().is_some_and(|first| first >> 4 == 6)
        && packet.get(ipv6::field::NEXT_HEADER) == Some(&ip_proto::ICMPV6);
    let kind = is_icmp.then(|| packet.get(ipv6::HEADER_LEN).copied()).flatten()?;
    matches!(kind, icmp::NEIGHBOR_SOLICITATION | icmp::NEIGHBOR_ADVERTISEMENT).then_some(kind)
}

/// What a packet of neighbour discovery of this kind is about. None that a router has passed on is
/// taken: the hop limit is 255 (RFC 4861 §7.1).
fn discovery_target(packet: &[u8], kind: u8) -> Option<IpAddr> {
    if discovery_of(packet) != Some(kind) || packet.get(ipv6::field::HOP_LIMIT) != Some(&255) {
        return None;
    }
    ipv6_at(packet.get(ipv6::HEADER_LEN..)?.get(icmp::field::ND_TARGET)?)
}

/// The address in an advertisement's option, which is the only one that it may have.
fn target_station(message: &[u8]) -> Option<MacAddr> {
    let option = message.get(icmp::field::ND_OPTIONS..)?;
    let address = option.strip_prefix(&[icmp::OPTION_TARGET_LL, 1])?;
    address.first_chunk().copied().map(MacAddr)
}

fn ipv6_at(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
}

/// The fields of an ARP packet for IPv4 over Ethernet.
struct Arp {
    operation: u16,
    from: IpAddr,
    station: MacAddr,
    target: IpAddr,
}

impl Arp {
    /// That of a frame whose type says that it is one; `None` where the parser has found none.
    fn of(frame: &[u8]) -> Option<Self> {
        let FlowKey { arp_op, arp_sha, ip_src, ip_dst, .. } = parse(frame).ok()?.key;
        let address = |[a, b, c, d, ..]: [u8; 16]| IpAddr::from([a, b, c, d]);
        let operation = Some(u16::from_be_bytes(arp_op)).filter(|operation| *operation != 0)?;
        let (from, target) = (address(ip_src), address(ip_dst));
        Some(Self { operation, from, station: arp_sha, target })
    }
}

fn ethernet_header(to: MacAddr, from: MacAddr, kind: EtherType) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.0.to_be_bytes()].concat()
}

/// Flags of an advertisement.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// An advertisement with one option in bytes.
const ADVERTISEMENT_LEN: u16 = 32;
