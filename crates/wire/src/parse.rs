//! One pass over a frame's headers: the flow key, and the offsets of the layers.
//!
//! It parses any number of 802.1Q/802.1ad tags, 802.3/SNAP framing, IPv4 with options, IPv6 with
//! extension headers, TCP, UDP, UDP-Lite, SCTP, DCCP, ICMP, ICMPv6 with neighbour discovery, and
//! ARP. A truncated or malformed layer ends the parsing: its fields stay zero and its offset
//! `None`, and the frame is still valid. Only a frame shorter than an Ethernet header is refused.
//!
//! Bytes after the end of an IP packet, by its own length, are padding (RFC 894) and not parsed. A
//! length that does not even cover the IP header is ignored: some senders of trains leave it zero,
//! as in RFC 2675 for packets that exceed the field.

use std::fmt;

use crate::bytes::array;
use crate::ethernet::{self, EtherType, MIN_ETHER_TYPE, TAG_LEN};
use crate::flow_key::{FRAGMENT, FRAGMENT_WITHOUT_TRANSPORT, FlowKey, MAX_KEY_TAGS, TAG_DEEPER};
use crate::tags::MAX_TAGS;
use crate::{MacAddr, NetHeader, arp, dccp, icmp, ip_proto, ipv4, ipv6, read_u16, sctp, tcp, udp};

/// Offsets of the layers of a frame, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of tags.
    pub tags: u16,
    /// Start of the network layer (IPv4, IPv6, ARP or another), after the last type field.
    pub network: u16,
    /// Start of a complete TCP, UDP, UDP-Lite, SCTP, DCCP, ICMP or ICMPv6 header. `None` also for
    /// later fragments.
    pub transport: Option<u16>,
    /// End of the parsed headers. A frame truncated there is parsed alike, except for the options
    /// of neighbour discovery.
    pub end: u16,
    /// IP protocol of the transport header; zero if there is none.
    pub protocol: u8,
}

impl Layout {
    /// Whether `meta` may have its partial checksum where it says: in the checksum field of the
    /// transport header, or after all parsed headers, as for a packet in a tunnel. Completing it
    /// elsewhere would change parsed fields, and invalidate decisions based on them.
    #[inline]
    pub fn admits_checksum(&self, meta: &NetHeader) -> bool {
        if !meta.needs_checksum() {
            return true;
        }
        if self.transport == Some(meta.csum_start) {
            return checksum_field(self.protocol) == Some(usize::from(meta.csum_offset));
        }
        // Options of neighbour discovery are parsed, and lie after the end.
        meta.csum_start >= self.end && self.protocol != ip_proto::ICMPV6
    }
}

/// Offset of the checksum in the header of a protocol, in bytes.
#[inline]
fn checksum_field(protocol: u8) -> Option<usize> {
    match protocol {
        ip_proto::TCP => Some(tcp::field::CHECKSUM),
        ip_proto::UDP | ip_proto::UDP_LITE => Some(udp::field::CHECKSUM),
        ip_proto::DCCP => Some(dccp::field::CHECKSUM),
        ip_proto::SCTP => Some(sctp::field::CHECKSUM),
        ip_proto::ICMP | ip_proto::ICMPV6 => Some(icmp::field::CHECKSUM),
        _ => None,
    }
}

/// Result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The fields; `in_port`, `metadata` and `tunnel_id` are zero.
    pub key: FlowKey,
    /// The offsets.
    pub layout: Layout,
}

/// Parses the headers of `frame`, which may be truncated after them.
///
/// # Errors
/// [`Truncated`] if the Ethernet header or its last tag is incomplete.
#[inline]
pub fn parse(frame: &[u8]) -> Result<Parsed, Truncated> {
    let mut key = FlowKey::default();
    let layout = parse_into(frame, &mut key)?;
    Ok(Parsed { key, layout })
}

/// As [`parse()`], with the key constructed in place.
///
/// Common fields are kept in registers until they are stored as whole words of the key, and the key
/// is not moved: a load from several recent smaller stores stalls until they have reached the
/// cache. That was two fifths of the cost of a small frame outside the kernel.
///
/// # Errors
/// As [`parse()`]; the key is then unchanged.
#[expect(clippy::inline_always, reason = "so that the layout stays in registers, too")]
#[inline(always)]
pub fn parse_into(frame: &[u8], key: &mut FlowKey) -> Result<Layout, Truncated> {
    let addresses: [u8; ethernet::field::ETHER_TYPE] = array(frame, 0).ok_or(Truncated)?;
    let link = link_layer(frame)?;
    let packet = &frame[link.end..];
    let mut upper = match link.eth_type {
        EtherType::IPV4 => parse_ipv4(packet),
        EtherType::IPV6 => parse_ipv6(packet),
        _ => Upper::default(),
    };
    *key = assemble(addresses, &link, &upper);
    if link.eth_type == EtherType::ARP {
        upper.end = parse_arp(packet, key);
    }
    if (link.eth_type, upper.protocol) == (EtherType::IPV6, ip_proto::ICMPV6)
        && let Some(at) = upper.transport
    {
        parse_neighbor_discovery(&ipv6_packet(packet)[at..], key);
    }
    Ok(upper.layout(&link))
}

/// The link layer.
struct Link {
    eth_type: EtherType,
    /// Where the network layer starts.
    end: usize,
    tag_count: u16,
    /// The tags of the key, the outermost in the lowest bytes of the first word.
    tags: [u64; 2],
    tags_present: u8,
}

/// The network and the transport layer.
#[derive(Default)]
struct Upper {
    protocol: u8,
    tos: u8,
    flow_label: [u8; 4],
    src: [u64; 2],
    dst: [u64; 2],
    /// Source and destination port.
    ports: [u8; 4],
    /// See [`FlowKey::fragment`].
    fragment: u8,
    /// Start of a complete transport header, relative to the network layer.
    transport: Option<usize>,
    /// End of the parsed part, relative to the start of the network layer.
    end: usize,
}

impl Upper {
    /// The known fields if the transport header is in another packet, for a fragment.
    #[inline]
    fn without_transport(self) -> Self {
        let fragment = match self.fragment {
            FRAGMENT => FRAGMENT | FRAGMENT_WITHOUT_TRANSPORT,
            _ => 0,
        };
        Self { fragment, ..self }
    }

    #[inline]
    fn layout(&self, link: &Link) -> Layout {
        Layout {
            tags: link.tag_count,
            network: offset(link.end),
            transport: self.transport.map(|at| offset(link.end + at)),
            end: offset(link.end + self.end),
            protocol: if self.transport.is_some() { self.protocol } else { 0 },
        }
    }
}

/// The key's words, in order.
#[inline]
fn assemble(addresses: [u8; 12], link: &Link, upper: &Upper) -> FlowKey {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = addresses;
    let [t0, t1] = link.eth_type.0.to_be_bytes();
    let [p0, p1, p2, p3] = upper.ports;
    let [l0, l1, l2, l3] = upper.flow_label;
    FlowKey::from_words([
        0,
        0,
        u64::from_ne_bytes([0, 0, 0, 0, t0, t1, upper.protocol, upper.tos]),
        u64::from_ne_bytes([d0, d1, d2, d3, d4, d5, s0, s1]),
        u64::from_ne_bytes([s2, s3, s4, s5, p0, p1, p2, p3]),
        link.tags[0],
        link.tags[1],
        upper.src[0],
        upper.src[1],
        upper.dst[0],
        upper.dst[1],
        u64::from_ne_bytes([l0, l1, l2, l3, link.tags_present, upper.fragment, 0, 0]),
        0,
        0,
        0,
        0,
    ])
}

/// Parses the tags and an 802.3 length with SNAP.
#[inline]
fn link_layer(frame: &[u8]) -> Result<Link, Truncated> {
    let mut at = ethernet::field::ETHER_TYPE;
    let mut link = Link {
        eth_type: EtherType(u16::from_be_bytes(array(frame, at).ok_or(Truncated)?)),
        end: 0,
        tag_count: 0,
        tags: [0; 2],
        tags_present: 0,
    };
    while link.eth_type.is_tag() && usize::from(link.tag_count) < MAX_TAGS {
        let [p0, p1, c0, c1, t0, t1] = array(frame, at).ok_or(Truncated)?;
        link.add_tag([p0, p1, c0, c1]);
        at += TAG_LEN;
        link.eth_type = EtherType(u16::from_be_bytes([t0, t1]));
    }
    at += 2;
    if link.eth_type.0 < MIN_ETHER_TYPE {
        (link.eth_type, at) = logical_link(frame, at);
    }
    link.end = at;
    Ok(link)
}

impl Link {
    #[inline]
    fn add_tag(&mut self, [p0, p1, c0, c1]: [u8; 4]) {
        let first = u64::from_ne_bytes([p0, p1, c0, c1, 0, 0, 0, 0]);
        let second = u64::from_ne_bytes([0, 0, 0, 0, p0, p1, c0, c1]);
        match self.tag_count {
            0 => self.tags[0] = first,
            1 => self.tags[0] |= second,
            2 => self.tags[1] = first,
            3 => self.tags[1] |= second,
            _ => {}
        }
        let is_held = usize::from(self.tag_count) < MAX_KEY_TAGS;
        self.tags_present |= if is_held { 1 << self.tag_count } else { TAG_DEEPER };
        self.tag_count += 1;
    }
}

/// An 802.3 frame: the type after LLC/SNAP with a zero organisation code, or OpenFlow's "not an
/// Ethernet type" (OpenFlow 1.3.5 §7.2.3.8).
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
fn parse_ipv4(packet: &[u8]) -> Upper {
    let Some(end) = ipv4::header_len(packet) else {
        return Upper::default();
    };
    let packet = without_padding(packet, end, read_u16(packet, ipv4::field::TOTAL_LENGTH).into());
    let address = |[a, b, c, d]: [u8; 4]| [u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), 0];
    let upper = Upper {
        protocol: packet[ipv4::field::PROTOCOL],
        tos: packet[ipv4::field::TOS],
        src: address(array(packet, ipv4::field::SRC.start).unwrap_or_default()),
        dst: address(array(packet, ipv4::field::DST.start).unwrap_or_default()),
        fragment: if ipv4::is_fragment(packet) { FRAGMENT } else { 0 },
        end,
        ..Upper::default()
    };
    match ipv4::is_later_fragment(packet) {
        true => upper.without_transport(),
        false => parse_transport(packet, upper),
    }
}

#[inline]
fn parse_ipv6(packet: &[u8]) -> Upper {
    let Some(header) =
        array::<{ ipv6::HEADER_LEN }>(packet, 0).filter(|header| header[0] >> 4 == 6)
    else {
        return Upper::default();
    };
    let packet = ipv6_packet(packet);
    let word = |at| u64::from_ne_bytes(array(&header, at).unwrap_or_default());
    let (src, dst) = (ipv6::field::SRC.start, ipv6::field::DST.start);
    let ipv6::UpperLayer { protocol, offset, end, is_fragment } = ipv6::upper_layer(packet);
    let upper = Upper {
        protocol,
        tos: header[0] << 4 | header[1] >> 4,
        flow_label: [0, header[1] & 0x0f, header[2], header[3]],
        src: [word(src), word(src + 8)],
        dst: [word(dst), word(dst + 8)],
        fragment: if is_fragment { FRAGMENT } else { 0 },
        end,
        ..Upper::default()
    };
    match offset {
        Some(_) => parse_transport(packet, upper),
        None => upper.without_transport(),
    }
}

/// A packet that starts with a complete IPv6 header, without padding.
#[inline]
fn ipv6_packet(packet: &[u8]) -> &[u8] {
    let payload_len = usize::from(read_u16(packet, ipv6::field::PAYLOAD_LENGTH));
    without_padding(packet, ipv6::HEADER_LEN + 1, ipv6::HEADER_LEN + payload_len)
}

/// A packet without padding, by a length that is at least `shortest`.
#[inline]
fn without_padding(packet: &[u8], shortest: usize, len: usize) -> &[u8] {
    if len < shortest {
        return packet;
    }
    packet.get(..len).unwrap_or(packet)
}

/// Adds the transport layer, which starts where `lower` ends.
#[inline]
fn parse_transport(packet: &[u8], lower: Upper) -> Upper {
    let start = lower.end;
    let header_len = match lower.protocol {
        ip_proto::TCP => tcp::header_len(&packet[start..]),
        ip_proto::UDP | ip_proto::UDP_LITE => Some(udp::HEADER_LEN),
        ip_proto::DCCP => Some(dccp::MIN_HEADER_LEN),
        ip_proto::SCTP => Some(sctp::HEADER_LEN),
        ip_proto::ICMP | ip_proto::ICMPV6 => Some(icmp::MIN_LEN),
        _ => None,
    };
    let header = header_len.and_then(|len| packet[start..].get(..len));
    let Some((header, &[p0, p1, p2, p3])) = header.and_then(|h| Some((h, h.first_chunk()?))) else {
        return lower;
    };
    // All but ICMP start with both ports; ICMP with type and code.
    let is_icmp = matches!(lower.protocol, ip_proto::ICMP | ip_proto::ICMPV6);
    let ports = if is_icmp { [0, p0, 0, p1] } else { [p0, p1, p2, p3] };
    Upper { ports, transport: Some(start), end: start + header.len(), ..lower }
}

/// Target and link-layer address options of neighbour discovery (RFC 4861 §4.3, §4.4).
#[cold]
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

/// Returns the end of the headers.
#[cold]
fn parse_arp(packet: &[u8], key: &mut FlowKey) -> usize {
    let Some(packet) = packet.get(..arp::LEN).filter(|p| p.starts_with(&arp::IPV4_OVER_ETHERNET))
    else {
        return 0;
    };
    key.arp_op = read_u16(packet, arp::field::OPERATION).to_be_bytes();
    key.arp_sha.0.copy_from_slice(&packet[arp::field::SENDER_MAC]);
    key.arp_tha.0.copy_from_slice(&packet[arp::field::TARGET_MAC]);
    key.ip_src[..4].copy_from_slice(&packet[arp::field::SENDER_IP]);
    key.ip_dst[..4].copy_from_slice(&packet[arp::field::TARGET_IP]);
    arp::LEN
}

/// Narrows an offset inside the headers. They end far below 64 KiB: 126 tags of 4 bytes, 9 IPv6
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

const _: () = assert!(MAX_KEY_TAGS <= 4, "tags_present has one bit a tag, below TAG_DEEPER");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetHeaderFlags;

    const TCP_V4: &[u8] = &[
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
        0x45, 0x2e, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0, // TCP
    ];

    const LATER: u8 = FRAGMENT | FRAGMENT_WITHOUT_TRANSPORT;

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
    fn all_fragments_of_a_packet_hash_alike() {
        let hash = |fragment: [u8; 2]| {
            let mut frame = TCP_V4.to_vec();
            frame[20..22].copy_from_slice(&fragment);
            let key = parse(&frame).unwrap().key;
            (key.fragment, key.symmetric_hash())
        };
        let whole = hash([0x40, 0]);
        assert_eq!((whole.0, whole.1), (0, hash([0, 0]).1));
        let (first, middle, last) = (hash([0x20, 0]), hash([0x20, 0x10]), hash([0, 0x10]));
        assert_eq!((first.1, middle.1), (last.1, last.1));
        assert_eq!((first.0, middle.0, last.0), (FRAGMENT, LATER, LATER));
        assert_ne!(first.1, whole.1);

        let v6 = |place: u16| {
            let mut frame = [&TCP_V4[..12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 28, 44, 64]].concat();
            frame.extend([0x20; 32]);
            frame.extend([6, 0, (place >> 8) as u8, place as u8, 0, 0, 0, 9]);
            frame.extend(&TCP_V4[34..]);
            let key = parse(&frame).unwrap().key;
            (key.fragment, key.symmetric_hash())
        };
        assert_eq!(v6(0).0, 0);
        assert_eq!((v6(1).1, v6(9).1), (v6(8).1, v6(8).1));
        assert_eq!((v6(1).0, v6(9).0, v6(8).0), (FRAGMENT, LATER, LATER));
        assert_ne!(v6(1).1, v6(0).1);
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
    fn a_partial_checksum_lies_in_its_place_or_behind_all_headers() {
        let layout = parse(TCP_V4).unwrap().layout;
        assert_eq!((layout.transport, layout.end), (Some(34), 54));
        let at = |csum_start, csum_offset| NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            csum_start,
            csum_offset,
            ..NetHeader::PLAIN
        };
        for (start, offset) in [(34, 16), (54, 0), (84, 16)] {
            assert!(layout.admits_checksum(&at(start, offset)), "{start} {offset}");
        }
        // The ID of a tag, an address, a port, and bytes after the headers by the sum of both.
        for (start, offset) in [(14, 0), (14, 12), (34, 2), (34, 6), (33, 17), (38, 2), (53, 1)] {
            assert!(!layout.admits_checksum(&at(start, offset)), "{start} {offset}");
        }
        assert!(layout.admits_checksum(&NetHeader { flags: 0, ..at(14, 0) }), "not partial");
        let icmpv6 = Layout { protocol: ip_proto::ICMPV6, ..layout };
        assert!(icmpv6.admits_checksum(&at(34, 2)) && !icmpv6.admits_checksum(&at(60, 0)));
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

    /// A length that covers the IP header, but not all of the transport header.
    #[test]
    fn padding_is_no_header() {
        let v4 = |total: u8| {
            let mut frame = TCP_V4.to_vec();
            frame[17] = total;
            parse(&frame).unwrap()
        };
        let absent = |parsed: &Parsed| {
            parsed.layout.transport.is_none()
                && parsed.key.l4_dst == [0; 2]
                && parsed.key.ip_proto == 6
        };
        assert!((20..40).all(|total| absent(&v4(total)) && v4(total).layout.end == 34));
        // Some senders of trains set none, and a truncated packet has a length beyond its end.
        assert!(
            [0, 19, 40, 41, 255].map(v4).iter().all(|parsed| parsed == &parse(TCP_V4).unwrap())
        );
        let v6 = |payload: u8| {
            let mut frame = TCP_V4[..12].to_vec();
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload, 6, 64]);
            frame.extend([0x20; 32]);
            frame.extend(&TCP_V4[34..]);
            parse(&frame).unwrap()
        };
        assert!((1..20).all(|payload| absent(&v6(payload)) && v6(payload).layout.end == 54));
        assert!([0, 20, 21].iter().all(|payload| v6(*payload).layout.transport == Some(54)));
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
        frame[19] = 24;
        let key = parse(&frame).unwrap().key;
        assert_eq!((key.nd_target, key.arp_sha), ([0xfe; 16], MacAddr([0; 6])), "padding");
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
