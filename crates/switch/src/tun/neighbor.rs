//! ARP (RFC 826) and neighbour discovery (RFC 4861) on behalf of hosts that can neither answer nor
//! ask.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_wire::checksum::pseudo_header_v6;
use tapswitch_wire::{EtherType, FlowKey, MacAddr, arp, ethernet, icmp, ip_proto, ipv6, parse};

/// A request for the Ethernet address of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The requester's IP address.
    pub(super) from: IpAddr,
    /// The source address of its frame.
    station: MacAddr,
    /// The requested address.
    pub(super) target: IpAddr,
}

impl Question {
    /// The request in an untagged frame, if any.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let payload = frame.get(ethernet::HEADER_LEN..)?;
        match EtherType::of(frame)? {
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
        // A request for the requester's own address is a duplicate-address probe or announcement
        // (RFC 5227).
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

    /// A frame with the answer that the address is at `mac`.
    pub(super) fn answer(&self, mac: MacAddr) -> Vec<u8> {
        match (self.from, self.target) {
            (IpAddr::V4(from), IpAddr::V4(target)) => {
                arp_frame(arp::REPLY, (mac, target), (self.station, from), self.station)
            }
            (IpAddr::V6(from), IpAddr::V6(target)) => {
                // RFC 4861 §4.4: solicited, and overriding earlier knowledge.
                let kind = [icmp::NEIGHBOR_ADVERTISEMENT, 0, 0, 0, SOLICITED_OVERRIDE, 0, 0, 0];
                let message = discovery(kind, target, icmp::OPTION_TARGET_LL, mac);
                icmp_frame(message, (mac, target), (self.station, from))
            }
            _ => Vec::new(),
        }
    }
}

/// A broadcast or multicast request from `mac` with the address `from` for `target`; `None` if
/// `from` is not usable.
pub(super) fn ask(mac: MacAddr, from: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (from, target) {
        (IpAddr::V4(from), IpAddr::V4(target)) if !from.is_unspecified() => {
            let nobody = (MacAddr([0; 6]), target);
            Some(arp_frame(arp::REQUEST, (mac, from), nobody, MacAddr::BROADCAST))
        }
        (IpAddr::V6(from), IpAddr::V6(target)) if !from.is_unspecified() => {
            let kind = [icmp::NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
            let message = discovery(kind, target, icmp::OPTION_SOURCE_LL, mac);
            let group = solicited_node(target);
            Some(icmp_frame(message, (mac, from), (super::group_v6(group), group)))
        }
        _ => None,
    }
}

/// The solicited-node multicast address of `ip` (RFC 4291 §2.7.1).
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

fn arp_frame(
    operation: u16,
    (mac, ip): (MacAddr, Ipv4Addr),
    (target_mac, target_ip): (MacAddr, Ipv4Addr),
    to: MacAddr,
) -> Vec<u8> {
    let mut frame = ethernet_header(to, mac, EtherType::ARP);
    frame.extend(arp::IPV4_OVER_ETHERNET);
    frame.extend(operation.to_be_bytes());
    frame.extend(mac.0);
    frame.extend(ip.octets());
    frame.extend(target_mac.0);
    frame.extend(target_ip.octets());
    frame
}

/// A neighbour discovery message about `target`, with one option that contains `mac`, and without a
/// checksum.
fn discovery(start: [u8; 8], target: Ipv6Addr, option: u8, mac: MacAddr) -> [u8; DISCOVERY_LEN] {
    let mut message = [0; DISCOVERY_LEN];
    message[..8].copy_from_slice(&start);
    message[icmp::field::ND_TARGET].copy_from_slice(&target.octets());
    message[icmp::field::ND_OPTIONS..].copy_from_slice(&[&[option, 1][..], &mac.0].concat());
    message
}

fn icmp_frame(
    mut message: [u8; DISCOVERY_LEN],
    (mac, from): (MacAddr, Ipv6Addr),
    (to_mac, to): (MacAddr, Ipv6Addr),
) -> Vec<u8> {
    let (from, to, len) = (from.octets(), to.octets(), u16::try_from(DISCOVERY_LEN).unwrap_or(0));
    let sum = pseudo_header_v6(&from, &to, ip_proto::ICMPV6, len.into());
    let checksum = sum.add_bytes(&message).checksum();
    message[icmp::field::CHECKSUM..icmp::field::CHECKSUM + 2]
        .copy_from_slice(&checksum.to_be_bytes());
    let mut frame = ethernet_header(to_mac, mac, EtherType::IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([ip_proto::ICMPV6, 255]);
    frame.extend(from);
    frame.extend(to);
    frame.extend(message);
    frame
}

/// A host's claim of an address, solicited or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) ip: IpAddr,
    pub(super) mac: MacAddr,
    /// It is an ARP reply.
    pub(super) is_reply: bool,
}

impl Claim {
    /// The claim in an untagged frame, if any: the sender of any ARP packet (RFC 826 uses requests
    /// and replies alike), or of an advertisement. A sender without an address claims none.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let payload = frame.get(ethernet::HEADER_LEN..)?;
        let claim = match EtherType::of(frame)? {
            EtherType::ARP => {
                let Arp { operation, from, station, .. } = Arp::of(frame)?;
                Self { ip: from, mac: station, is_reply: operation == arp::REPLY }
            }
            EtherType::IPV6 => {
                let ip = discovery_target(payload, icmp::NEIGHBOR_ADVERTISEMENT)?;
                let message = payload.get(ipv6::HEADER_LEN..)?;
                // The option may be omitted if the receiver knows the address (RFC 4861 §4.4).
                let src = || Some(MacAddr(*frame.get(ethernet::field::SRC)?.first_chunk()?));
                Self { ip, mac: target_station(message).or_else(src)?, is_reply: false }
            }
            _ => return None,
        };
        (!claim.ip.is_unspecified() && claim.mac.is_unicast()).then_some(claim)
    }
}

/// The ICMPv6 type, if the IPv6 packet is a neighbour solicitation or advertisement.
#[inline]
pub(super) fn discovery_of(packet: &[u8]) -> Option<u8> {
    let is_icmp = packet.first().is_some_and(|first| first >> 4 == 6)
        && packet.get(ipv6::field::NEXT_HEADER) == Some(&ip_proto::ICMPV6);
    let kind = is_icmp.then(|| packet.get(ipv6::HEADER_LEN).copied()).flatten()?;
    matches!(kind, icmp::NEIGHBOR_SOLICITATION | icmp::NEIGHBOR_ADVERTISEMENT).then_some(kind)
}

/// The target of a neighbour discovery packet of this type. Packets that a router has forwarded are
/// ignored: the hop limit must be 255 (RFC 4861 §7.1).
fn discovery_target(packet: &[u8], kind: u8) -> Option<IpAddr> {
    if discovery_of(packet) != Some(kind) || packet.get(ipv6::field::HOP_LIMIT) != Some(&255) {
        return None;
    }
    ipv6_at(packet.get(ipv6::HEADER_LEN..)?.get(icmp::field::ND_TARGET)?)
}

/// The address in an advertisement's only permitted option.
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
    /// The fields of an ARP frame; `None` if the parser has found none.
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

/// Flags of an advertisement: solicited, override.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// Length of a solicitation or an advertisement with one option, in bytes.
const DISCOVERY_LEN: usize = 32;
