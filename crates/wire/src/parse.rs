//! One pass over a frame's headers: the flow key, and where the layers start.
//!
//! The walk goes through any number of 802.1Q/802.1ad tags, 802.3/SNAP framing, IPv4 with options,
//! IPv6 with extension headers, TCP, UDP, SCTP, ICMP, ICMPv6 with neighbour discovery, and ARP.
//! A layer that is cut short or malformed ends the walk: its fields stay zero and its offset
//! `None`, and the frame is still a frame. Only a frame shorter than an Ethernet header is refused.

use std::fmt;

use crate::bytes::array;
use crate::ethernet::{self, EtherType, MIN_ETHER_TYPE, TAG_LEN, Tag};
use crate::flow_key::{FlowKey, MAX_KEY_TAGS, TAG_DEEPER};
use crate::{MacAddr, arp, icmp, ip_proto, ipv4, ipv6, read_u16, tcp, udp};

/// Where the layers of a frame start, in bytes from the frame's first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of tags.
    pub tags: u16,
    /// Start of the network layer (IPv4, IPv6, ARP or another), behind the last type field.
    pub network: u16,
    /// Start of a whole TCP, UDP, SCTP, ICMP or ICMPv6 header. `None` also for later fragments.
    pub transport: Option<u16>,
    /// End of the headers that could be parsed. A frame cut off there reads alike, but for the
    /// options of neighbour discovery.
    pub end: u16,
    /// IP protocol of the transport header; zero when there is none.
    pub protocol: u8,
}

/// What one pass over the headers finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The fields; `in_port`, `metadata` and `tunnel_id` are zero.
    pub key: FlowKey,
    /// The offsets.
    pub layout: Layout,
}

/// Parses the headers of `frame`, which may be cut short behind them.
///
/// # Errors
/// [`Truncated`] when not even the Ethernet header is whole, or its last tag is not.
#[inline]
pub fn parse(frame: &[u8]) -> Result<Parsed, Truncated> {
    let mut key = FlowKey {
        eth_dst: MacAddr(array(frame, ethernet::field::DST.start).ok_or(Truncated)?),
        eth_src: MacAddr(array(frame, ethernet::field::SRC.start).ok_or(Truncated)?),
        ..FlowKey::default()
    };
    let (eth_type, network, tags) = link_layer(frame, &mut key)?;
    key.eth_type = eth_type.0.to_be_bytes();
    let mut layout = Layout {
        tags,
        network: offset(network),
        transport: None,
        end: offset(network),
        protocol: 0,
    };
    let packet = &frame[network..];
    match eth_type {
        EtherType::IPV4 => parse_ipv4(packet, &mut key, &mut layout),
        EtherType::IPV6 => parse_ipv6(packet, &mut key, &mut layout),
        EtherType::ARP => parse_arp(packet, &mut key, &mut layout),
        _ => {}
    }
    Ok(Parsed { key, layout })
}

/// Walks the tags and an 802.3 length with SNAP. Returns the type of what follows, its offset
/// and the number of tags.
#[inline]
fn link_layer(frame: &[u8], key: &mut FlowKey) -> Result<(EtherType, usize, u16), Truncated> {
    let mut at = ethernet::field::ETHER_TYPE;
    let mut tags = 0u16;
    let mut eth_type = EtherType(u16::from_be_bytes(array(frame, at).ok_or(Truncated)?));
    while eth_type.is_tag() && usize::from(tags) < MAX_TAGS {
        let [p0, p1, c0, c1, t0, t1] = array(frame, at).ok_or(Truncated)?;
        match key.tags.get_mut(usize::from(tags)) {
            Some(slot) => {
                *slot = Tag { tpid: [p0, p1], tci: [c0, c1] };
                key.tags_present |= 1 << tags;
            }
            None => key.tags_present |= TAG_DEEPER,
        }
        tags += 1;
        at += TAG_LEN;
        eth_type = EtherType(u16::from_be_bytes([t0, t1]));
    }
    at += 2;
    if eth_type.0 < MIN_ETHER_TYPE {
        (eth_type, at) = logical_link(frame, at);
    }
    Ok((eth_type, at, tags))
}

/// An 802.3 frame: the type behind LLC/SNAP with a zero organisation code, or OpenFlow's
/// "not an Ethernet type" (OpenFlow 1.3.5 §7.2.3.8).
#[cold]
fn logical_link(frame: &[u8], at: usize) -> (EtherType, usize) {
    const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
    match array::<8>(frame, at) {
        Some([a, b, c, d, e, f, t0, t1]) if [a, b, c, d, e, f] == SNAP => {
            (EtherType(u16::from_be_bytes([t0, t1])), at + 8)
        }
        _ => (EtherType::NOT_ETHER_TYPE, at),
    }
}

#[inline]
fn parse_ipv4(packet: &[u8], key: &mut FlowKey, layout: &mut Layout) {
    let Some(header_len) = ipv4::header_len(packet) else {
        return;
    };
    key.ip_tos = packet[ipv4::field::TOS];
    key.ip_proto = packet[ipv4::field::PROTOCOL];
    key.ip_src[..4].copy_from_slice(&packet[ipv4::field::SRC]);
    key.ip_dst[..4].copy_from_slice(&packet[ipv4::field::DST]);
    layout.end += offset(header_len);
    if !ipv4::is_later_fragment(packet) {
        parse_transport(&packet[header_len..], key, layout);
    }
}

#[inline]
fn parse_ipv6(packet: &[u8], key: &mut FlowKey, layout: &mut Layout) {
    let Some(head) = array::<4>(packet, 0).filter(|head| head[0] >> 4 == 6) else {
        return;
    };
    if packet.len() < ipv6::HEADER_LEN {
        return;
    }
    key.ip_tos = head[0] << 4 | head[1] >> 4;
    key.flow_label = [0, head[1] & 0x0f, head[2], head[3]];
    key.ip_src.copy_from_slice(&packet[ipv6::field::SRC]);
    key.ip_dst.copy_from_slice(&packet[ipv6::field::DST]);
    let upper = ipv6::upper_layer(packet);
    key.ip_proto = upper.protocol;
    layout.end += offset(upper.end);
    if let Some(at) = upper.offset {
        parse_transport(&packet[at..], key, layout);
    }
}

#[inline]
fn parse_transport(upper: &[u8], key: &mut FlowKey, layout: &mut Layout) {
    let header_len = match key.ip_proto {
        ip_proto::TCP => tcp::header_len(upper),
        ip_proto::UDP => Some(udp::HEADER_LEN),
        ip_proto::SCTP => Some(SCTP_HEADER_LEN),
        ip_proto::ICMP | ip_proto::ICMPV6 => Some(icmp::MIN_LEN),
        _ => None,
    };
    let Some(header) = header_len.and_then(|len| upper.get(..len)) else {
        return;
    };
    if matches!(key.ip_proto, ip_proto::ICMP | ip_proto::ICMPV6) {
        key.l4_src = [0, header[icmp::field::TYPE]];
        key.l4_dst = [0, header[icmp::field::CODE]];
        if key.ip_proto == ip_proto::ICMPV6 {
            parse_neighbor_discovery(upper, key);
        }
    } else {
        // TCP, UDP and SCTP all start with both ports.
        key.l4_src = [header[0], header[1]];
        key.l4_dst = [header[2], header[3]];
    }
    layout.transport = Some(layout.end);
    layout.protocol = key.ip_proto;
    layout.end += offset(header.len());
}

/// Target and link-layer address options of neighbour discovery (RFC 4861 §4.3, §4.4).
fn parse_neighbor_discovery(message: &[u8], key: &mut FlowKey) {
    let kind = message[icmp::field::TYPE];
    if !matches!(kind, icmp::NEIGHBOR_SOLICITATION | icmp::NEIGHBOR_ADVERTISEMENT) {
        return;
    }
    let Some(target) = array(message, icmp::field::ND_TARGET.start) else {
        return;
    };
    key.nd_target = target;
    let mut at = icmp::field::ND_OPTIONS;
    while let Some([option, units, mac @ ..]) = array::<8>(message, at) {
        match (kind, option) {
            (icmp::NEIGHBOR_SOLICITATION, icmp::OPTION_SOURCE_LL) => key.arp_sha = MacAddr(mac),
            (icmp::NEIGHBOR_ADVERTISEMENT, icmp::OPTION_TARGET_LL) => key.arp_tha = MacAddr(mac),
            _ => {}
        }
        if units == 0 {
            return;
        }
        at += usize::from(units) * 8;
    }
}

fn parse_arp(packet: &[u8], key: &mut FlowKey, layout: &mut Layout) {
    let Some(packet) = packet.get(..arp::LEN).filter(|p| p.starts_with(&arp::IPV4_OVER_ETHERNET))
    else {
        return;
    };
    key.arp_op = read_u16(packet, arp::field::OPERATION).to_be_bytes();
    key.arp_sha.0.copy_from_slice(&packet[arp::field::SENDER_MAC]);
    key.arp_tha.0.copy_from_slice(&packet[arp::field::TARGET_MAC]);
    key.ip_src[..4].copy_from_slice(&packet[arp::field::SENDER_IP]);
    key.ip_dst[..4].copy_from_slice(&packet[arp::field::TARGET_IP]);
    layout.end += offset(arp::LEN);
}

/// Narrows an offset inside the headers. They end far below 64 KiB: 64 tags of 4 bytes, 9 IPv6
/// extension headers of at most 2,048 bytes each, and a TCP header of 60.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "bounded by the limits above")]
const fn offset(at: usize) -> u16 {
    at as u16
}

/// The frame ends inside its Ethernet header or a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("frame ends inside its Ethernet header")
    }
}

impl std::error::Error for Truncated {}

/// Tags walked before the rest counts as payload; more serve nobody.
const MAX_TAGS: usize = 64;
const SCTP_HEADER_LEN: usize = 12;
const _: () = assert!(MAX_KEY_TAGS <= 4, "tags_present has one bit a tag, below TAG_DEEPER");

#[cfg(test)]
mod tests {
    use super::*;

    const TCP_V4: &[u8] = &[
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
        0x45, 0x2e, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0, // TCP
    ];

    fn tagged(tags: &[u32]) -> Vec<u8> {
        let mut frame = TCP_V4[..12].to_vec();
        tags.iter().for_each(|tag| frame.extend(tag.to_be_bytes()));
        frame.extend(&TCP_V4[12..]);
        frame
    }

    #[test]
    fn tcp_over_ipv4() {
        let Parsed { key, layout } = parse(TCP_V4).unwrap();
        assert_eq!(key.eth_type(), EtherType::IPV4);
        assert_eq!((key.ip_proto, key.ip_tos), (6, 0x2e));
        assert_eq!((&key.ip_src[..4], &key.ip_dst[..4]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!((key.l4_src, key.l4_dst), (40_000u16.to_be_bytes(), [0, 80]));
        assert_eq!(
            layout,
            Layout { tags: 0, network: 14, transport: Some(34), end: 54, protocol: 6 }
        );
    }

    #[test]
    fn the_walk_sees_through_any_stack_of_tags() {
        for depth in 0..10usize {
            let tags: Vec<u32> = (0..depth).map(|i| 0x88a8_0000 | (i as u32 + 1)).collect();
            let Parsed { key, layout } = parse(&tagged(&tags)).unwrap();
            assert_eq!(key.eth_type(), EtherType::IPV4, "{depth} tags");
            assert_eq!(usize::from(layout.tags), depth);
            assert_eq!(usize::from(layout.network), 14 + 4 * depth);
            assert_eq!(key.tag_count(), depth.min(MAX_KEY_TAGS));
            assert_eq!(key.tags_present & TAG_DEEPER != 0, depth > MAX_KEY_TAGS);
            assert_eq!(key.l4_dst, [0, 80]);
        }
    }

    #[test]
    fn every_truncation_is_survived() {
        let frame = tagged(&[0x88a8_0064, 0x8100_0065]);
        for len in 0..frame.len() {
            let parsed = parse(&frame[..len]);
            assert_eq!(parsed.is_err(), len < 22, "{len} bytes");
            if let Ok(parsed) = parsed {
                assert!(usize::from(parsed.layout.end) <= len);
            }
        }
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let mut frame = TCP_V4.to_vec();
        frame[20..22].copy_from_slice(&[0x00, 0x10]);
        let Parsed { key, layout } = parse(&frame).unwrap();
        assert_eq!((key.ip_proto, key.l4_dst, layout.transport), (6, [0, 0], None));
    }

    #[test]
    fn ipv6_extension_headers_are_walked() {
        let mut frame = TCP_V4[..12].to_vec();
        frame.extend([0x86, 0xdd, 0x6a, 0xb1, 0x23, 0x45, 0, 36, 0, 64]);
        frame.extend([0x20; 16]);
        frame.extend([0x30; 16]);
        frame.extend([43, 0, 0, 0, 0, 0, 0, 0]); // hop-by-hop, then routing
        frame.extend([17, 0, 0, 0, 0, 0, 0, 0]); // routing, then UDP
        frame.extend([0x12, 0x34, 0, 53, 0, 20, 0, 0]);
        let Parsed { key, layout } = parse(&frame).unwrap();
        assert_eq!((key.ip_proto, key.ip_tos), (17, 0xab));
        assert_eq!(key.flow_label, [0, 1, 0x23, 0x45]);
        assert_eq!((key.l4_src, key.l4_dst), ([0x12, 0x34], [0, 53]));
        assert_eq!((layout.transport, layout.end), (Some(70), 78));
    }

    #[test]
    fn a_frame_cut_at_the_end_of_its_headers_reads_alike() {
        let mut fragment = TCP_V4[..12].to_vec();
        fragment.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 60, 64]);
        fragment.extend([0x20; 32]);
        fragment.extend([44, 0, 1, 4, 0, 0, 0, 0]); // destination options, then fragment
        fragment.extend([17, 0, 0, 9, 0, 0, 0, 1]); // fragment other than the first, then UDP
        fragment.extend([0xff; 8]);
        let mut truncated = fragment[..62].to_vec();
        truncated[55] = 9;
        for (frame, end) in [(&fragment, 70), (&truncated, 62)] {
            let parsed = parse(frame).unwrap();
            assert_eq!((parsed.layout.transport, parsed.layout.end), (None, end));
            assert_eq!(parse(&frame[..usize::from(end)]), Ok(parsed));
        }
        assert_eq!(parse(&fragment).unwrap().key.ip_proto, 17);
    }

    #[test]
    fn neighbour_discovery_options() {
        let mut frame = TCP_V4[..12].to_vec();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
        frame.extend([0; 32]);
        frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend([0xfe; 16]);
        frame.extend([1, 1, 2, 0, 0, 0, 0, 9]);
        let key = parse(&frame).unwrap().key;
        assert_eq!((key.l4_src, key.nd_target), ([0, 135], [0xfe; 16]));
        assert_eq!(key.arp_sha, MacAddr([2, 0, 0, 0, 0, 9]));
    }

    #[test]
    fn arp_requests() {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        let Parsed { key, layout } = parse(&frame).unwrap();
        assert_eq!((key.arp_op, &key.ip_dst[..4]), ([0, 1], &[10, 0, 0, 2][..]));
        assert_eq!(key.arp_sha, key.eth_src);
        assert_eq!(layout.end, 42);
    }

    #[test]
    fn lengths_below_0x600_are_not_types() {
        let mut frame = TCP_V4[..12].to_vec();
        frame.extend([0, 8, 0x42, 0x42, 3, 0, 0, 0, 0, 0]);
        assert_eq!(parse(&frame).unwrap().key.eth_type(), EtherType::NOT_ETHER_TYPE);
        let mut snap = TCP_V4[..12].to_vec();
        snap.extend([0, 48, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
        snap.extend(&TCP_V4[14..]);
        let Parsed { key, layout } = parse(&snap).unwrap();
        assert_eq!((key.eth_type(), key.l4_dst, layout.network), (EtherType::IPV4, [0, 80], 22));
    }
}
