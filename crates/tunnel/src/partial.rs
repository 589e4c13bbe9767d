//! Work on inner packets that a sender on the same host has deferred: checksums and segmentation.
//!
//! A sender that defers the TCP or UDP checksum to its NIC stores the sum of the pseudo-header in
//! the field (`CHECKSUM_PARTIAL`). A Linux vxlan device forwards such a packet with metadata to
//! complete it (local checksum offload, Linux `Documentation/networking/checksum-offloads.rst`),
//! and a veth carries packet and metadata. A socket after that gets the bytes without the metadata.
//! So if both ends are on one host, packets arrive with the pseudo-header's sum in the field, which
//! is detected here by comparison. A complete checksum that happens to be equal (1 of 65,536) is
//! recomputed to the same value.
//!
//! A TCP train arrives in the same way: whole, in one datagram that exceeds any path MTU
//! (`udp_unexpected_gso` in Linux `include/linux/udp.h` lets it pass), without its segment size.
//! TCP may be segmented anywhere, so it becomes a train of packets that fill the tunnel's MTU. For
//! UDP the size matters: a train of datagrams is treated as one packet that is too long. If that is
//! a problem, disable tunnelled trains on the vxlan device's lower interface: `ethtool -K veth0
//! tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off`.
//!
//! The meaning of CWR in such a train is unknown as well. If AE is set, both are bits of AccECN's
//! counter (RFC 9768 §3.2.2), and all packets get them. Otherwise only the first does (RFC 3168
//! §6.1.2), which is wrong for a counter with the value 2 or 3 of 0 to 7; these cases cannot be
//! distinguished.

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    EtherType, GsoType, NetHeader, NetHeaderFlags, Parsed, ethernet, ip_proto, ipv4, ipv6, parse,
    read_u16, tcp, udp,
};

/// The deferred work of a frame from a tunnel: none, its TCP or UDP checksum, or that and the
/// segmentation of a TCP packet longer than `mtu`, the maximum payload of a frame.
///
/// Fragments are not considered, because their sender computed the checksum before fragmenting; nor
/// are packets with an IPv6 routing header and segments left, whose checksum is that of the final
/// destination (RFC 8200 §8.1), which is not in the IPv6 header.
#[inline]
pub fn left_undone(frame: &[u8], mtu: u32) -> NetHeader {
    match pending(frame) {
        None => NetHeader::PLAIN,
        Some((meta, network)) if frame.len() <= network + mtu as usize => meta,
        Some((meta, network)) => train(frame, meta, network, mtu).unwrap_or(meta),
    }
}

/// The packet as a train, if it is TCP. `network` is the offset of its IP header.
#[cold]
fn train(frame: &[u8], meta: NetHeader, network: usize, mtu: u32) -> Option<NetHeader> {
    let transport = usize::from(meta.csum_start);
    if usize::from(meta.csum_offset) != tcp::field::CHECKSUM {
        return None;
    }
    let header_len = tcp::header_len(frame.get(transport..)?)?;
    let [upper, flags] = *frame.get(transport + tcp::field::DATA_OFFSET..)?.first_chunk()?;
    let is_first_only = flags & tcp::CWR != 0 && upper & tcp::AE == 0;
    let ecn = if is_first_only { GsoType::ECN } else { 0 };
    let kind = if frame.get(network)? >> 4 == 4 { GsoType::TCPV4 } else { GsoType::TCPV6 };
    let headers_len = transport + header_len;
    let gso_size = (mtu as usize).checked_sub(headers_len - network).filter(|size| *size > 0)?;
    Some(NetHeader {
        gso_type: GsoType(kind.0 | ecn),
        gso_size: u16::try_from(gso_size).ok()?,
        hdr_len: u16::try_from(headers_len).ok()?,
        ..meta
    })
}

/// The partial checksum, if there is one, and the offset of the IP header.
#[inline]
fn pending(frame: &[u8]) -> Option<(NetHeader, usize)> {
    let mut network = ethernet::HEADER_LEN;
    let mut kind = EtherType(word(frame, network - 2)?);
    for _ in 0..TAGS_AT_A_GLANCE {
        if !kind.is_tag() {
            break;
        }
        network += ethernet::TAG_LEN;
        kind = EtherType(word(frame, network - 2)?);
    }
    let packet = frame.get(network..)?;
    let upper = match kind {
        EtherType::IPV4 => upper_v4(packet)?,
        EtherType::IPV6 => match *packet.get(ipv6::field::NEXT_HEADER)? {
            protocol if ipv6::is_extension(protocol) => return pending_deep(frame),
            protocol => upper_v6(packet, protocol, ipv6::HEADER_LEN)?,
        },
        _ if kind.is_tag() => return pending_deep(frame),
        _ => return None,
    };
    Some((upper.partial(frame, network)?, network))
}

/// As [`pending`], after any number of tags and IPv6 extension headers.
#[cold]
fn pending_deep(frame: &[u8]) -> Option<(NetHeader, usize)> {
    let Parsed { key, layout } = parse(frame).ok()?;
    let network = usize::from(layout.network);
    let header_len = usize::from(layout.transport?).checked_sub(network)?;
    let packet = frame.get(network..)?;
    let upper = match key.eth_type() {
        EtherType::IPV4 => upper_v4(packet)?,
        EtherType::IPV6 if key.fragment != 0 || ipv6::is_routed_on(packet.get(..header_len)?) => {
            return None;
        }
        EtherType::IPV6 => upper_v6(packet, key.ip_proto, header_len)?,
        _ => return None,
    };
    Some((upper.partial(frame, network)?, network))
}

/// The upper layer of an IP packet.
struct Upper {
    protocol: u8,
    /// Length of the IP header with its options or extension headers.
    header_len: usize,
    /// Sum of the pseudo header.
    sum: Sum,
}

impl Upper {
    /// The metadata, if the checksum field contains only the sum of the pseudo-header. The IP
    /// header starts at `network`.
    #[inline]
    fn partial(&self, frame: &[u8], network: usize) -> Option<NetHeader> {
        let field = match self.protocol {
            ip_proto::TCP => tcp::field::CHECKSUM,
            ip_proto::UDP => udp::field::CHECKSUM,
            _ => return None,
        };
        let (start, offset) = (network + self.header_len, u16::try_from(field).ok()?);
        if word(frame, start + field)? != self.sum.partial() {
            return None;
        }
        let csum_start = u16::try_from(start).ok()?;
        let flags = NetHeaderFlags::NEEDS_CSUM;
        Some(NetHeader { flags, csum_start, csum_offset: offset, ..NetHeader::PLAIN })
    }
}

fn upper_v4(packet: &[u8]) -> Option<Upper> {
    let header_len = ipv4::header_len(packet)?;
    let fragment = word(packet, ipv4::field::FRAGMENT)?;
    if fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0 {
        return None;
    }
    let total_len = word(packet, ipv4::field::TOTAL_LENGTH)?;
    let upper_len = total_len.checked_sub(u16::try_from(header_len).ok()?)?;
    let (src, dst) = (packet.get(ipv4::field::SRC)?, packet.get(ipv4::field::DST)?);
    let protocol = *packet.get(ipv4::field::PROTOCOL)?;
    Some(Upper { protocol, header_len, sum: pseudo_header_v4(src, dst, protocol, upper_len) })
}

/// `header_len` bytes of fixed and extension headers, followed by `protocol`.
fn upper_v6(packet: &[u8], protocol: u8, header_len: usize) -> Option<Upper> {
    let extensions_len = u16::try_from(header_len - ipv6::HEADER_LEN).ok()?;
    let upper_len = word(packet, ipv6::field::PAYLOAD_LENGTH)?.checked_sub(extensions_len)?;
    let (src, dst) = (packet.get(ipv6::field::SRC)?, packet.get(ipv6::field::DST)?);
    let sum = pseudo_header_v6(src, dst, protocol, upper_len.into());
    Some(Upper { protocol, header_len, sum })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|bytes| read_u16(bytes, 0))
}

/// Number of tags that the fast path handles without the parser.
const TAGS_AT_A_GLANCE: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    /// A UDP packet of 12 bytes over IPv4 with `checksum`, after `tags` tags.
    fn v4(tags: usize, checksum: u16) -> Vec<u8> {
        let ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let udp = [0, 7, 0, 9, 0, 20, 0, 0];
        let tag = [0x81, 0, 0, 5];
        let mut frame = [&ETHERNET[..], &tag.repeat(tags), &[8, 0], &ip, &udp, &[3; 12]].concat();
        let field = 14 + 4 * tags + 26;
        frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    fn v6(checksum: u16) -> Vec<u8> {
        let mut ip = [0; 40];
        (ip[0], ip[5], ip[6], ip[8], ip[23], ip[24], ip[39]) = (0x60, 20, 6, 0xfd, 1, 0xfd, 2);
        let mut frame = [&ETHERNET[..], &[0x86, 0xdd], &ip, &[0; 20]].concat();
        frame[70..72].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// An IPv6 extension header of 8 bytes: its type, and its contents after the length.
    type Extension = (u8, [u8; 6]);

    /// Extension headers of a whole packet to its final destination.
    const PLAIN_EXTENSIONS: [Extension; 4] = [
        (ipv6::HOP_BY_HOP, [1, 4, 0, 0, 0, 0]),
        (ipv6::DESTINATION_OPTIONS, [1, 4, 0, 0, 0, 0]),
        (ipv6::ROUTING, [253, 0, 0, 0, 0, 0]),
        (ipv6::FRAGMENT, [0, 0, 0, 0, 0, 7]),
    ];

    /// Extension headers of fragments, and of a packet with another final destination.
    const OTHER_EXTENSIONS: [Extension; 3] = [
        (ipv6::FRAGMENT, [0, 1, 0, 0, 0, 7]),
        (ipv6::FRAGMENT, [1, 0, 0, 0, 0, 7]),
        (ipv6::ROUTING, [253, 1, 0, 0, 0, 0]),
    ];

    /// A TCP packet over IPv6 with a partial checksum, and the offset of its TCP header.
    fn behind(tags: usize, extensions: &[Extension], payload: u16) -> (Vec<u8>, usize) {
        let upper_len = 20 + payload;
        let mut ip = [0; 40];
        (ip[0], ip[8], ip[23], ip[24], ip[39]) = (0x60, 0xfd, 1, 0xfd, 2);
        let length = upper_len + 8 * u16::try_from(extensions.len()).unwrap();
        ip[4..6].copy_from_slice(&length.to_be_bytes());
        let mut numbers = extensions.iter().map(|extension| extension.0).chain([ip_proto::TCP]);
        ip[6] = numbers.next().unwrap();
        let tag = [0x88, 0xa8, 0, 5];
        let mut frame = [&ETHERNET[..], &tag.repeat(tags), &[0x86, 0xdd], &ip].concat();
        for ((_, body), next) in extensions.iter().zip(numbers) {
            frame.extend([&[next, 0], &body[..]].concat());
        }
        let at = frame.len();
        let sum = pseudo_header_v6(&ip[8..24], &ip[24..40], ip_proto::TCP, upper_len.into());
        frame.extend([&[0; 12][..], &[5 << 4, 0x10, 0, 0], &sum.partial().to_be_bytes()].concat());
        frame.resize(at + usize::from(upper_len), 1);
        (frame, at)
    }

    #[test]
    fn a_train_behind_tags_and_extension_headers_is_told() {
        for (tags, extensions) in
            [(3, &[][..]), (0, &PLAIN_EXTENSIONS[..3]), (8, &PLAIN_EXTENSIONS)]
        {
            let (frame, at) = behind(tags, extensions, 4000);
            let train = left_undone(&frame, 1430);
            assert_eq!(train.gso_type, GsoType::TCPV6);
            assert_eq!(usize::from(train.gso_size), 1370 - 8 * extensions.len());
            assert_eq!(usize::from(train.csum_start), at);
            assert_eq!(usize::from(train.hdr_len), at + 20);
            assert_eq!(train.check(frame.len()), Ok(()));
        }
    }

    #[test]
    fn the_sum_of_the_pseudo_header_is_a_checksum_left_undone() {
        let sum = pseudo_header_v4(&[10, 0, 0, 1], &[10, 0, 0, 2], 17, 20).partial();
        for tags in 0..=8 {
            let start = u16::try_from(34 + 4 * tags).unwrap();
            let meta = left_undone(&v4(tags, sum), 1500);
            assert!(meta.needs_checksum(), "{tags} tags");
            assert_eq!((meta.csum_start, meta.csum_offset), (start, 6));
            assert_eq!(meta.check(v4(tags, sum).len()), Ok(()));
            // Complete: with the whole packet's sum, or none at all.
            for other in [!sum, sum ^ 1, 0] {
                assert_eq!(left_undone(&v4(tags, other), 1500), NetHeader::PLAIN);
            }
        }
        for tags in [0, 3] {
            let mut fragment = v4(tags, sum);
            fragment[20 + 4 * tags] = 0x20;
            assert_eq!(left_undone(&fragment, 1500), NetHeader::PLAIN);
        }
    }

    #[test]
    fn a_tcp_packet_that_fits_no_path_is_a_train() {
        let address = |last| {
            let mut address = [0; 16];
            (address[0], address[15]) = (0xfd, last);
            address
        };
        let frame_of = |payload: u16| {
            let sum = pseudo_header_v6(&address(1), &address(2), 6, (20 + payload).into());
            let mut frame = [v6(sum.partial()), vec![1; payload.into()]].concat();
            frame[18..20].copy_from_slice(&(20 + payload).to_be_bytes());
            (frame[66], frame[67]) = (5 << 4, 0x10);
            frame
        };
        let packet = left_undone(&frame_of(1370), 1430);
        assert!(packet.needs_checksum() && !packet.is_train());
        let mut frame = frame_of(4000);
        let train = left_undone(&frame, 1430);
        assert_eq!((train.gso_type, train.gso_size), (GsoType::TCPV6, 1370));
        assert_eq!((train.csum_start, train.csum_offset, train.hdr_len), (54, 16, 74));
        assert_eq!(train.check(frame.len()), Ok(()));
        frame[67] |= tcp::CWR;
        assert!(left_undone(&frame, 1430).gso_type.has_ecn());
        frame[66] |= tcp::AE;
        assert!(!left_undone(&frame, 1430).gso_type.has_ecn(), "CWR is part of a counter");
        frame[70] ^= 1;
        assert_eq!(left_undone(&frame, 1430), NetHeader::PLAIN, "what is complete is no train");
        assert!(!left_undone(&frame_of(4000), 30).is_train(), "no room for headers");
    }

    #[test]
    fn so_it_is_over_ipv6() {
        let address = |last| {
            let mut address = [0; 16];
            (address[0], address[15]) = (0xfd, last);
            address
        };
        let sum = pseudo_header_v6(&address(1), &address(2), 6, 20).partial();
        let meta = left_undone(&v6(sum), 1500);
        assert_eq!((meta.needs_checksum(), meta.csum_start, meta.csum_offset), (true, 54, 16));
        assert_eq!(left_undone(&v6(sum ^ 0x100), 1500), NetHeader::PLAIN);
    }

    proptest! {
        #[test]
        fn tags_and_extension_headers_hide_nothing(
            tags in 0..=8usize,
            mut extensions in prop::collection::vec(
                prop::sample::select(&PLAIN_EXTENSIONS[..]), 0..8,
            ),
            other in prop::sample::select(&OTHER_EXTENSIONS[..]),
            place in any::<prop::sample::Index>(),
        ) {
            let (mut frame, at) = behind(tags, &extensions, 9);
            let meta = left_undone(&frame, 1500);
            prop_assert!(meta.needs_checksum());
            prop_assert_eq!((usize::from(meta.csum_start), meta.csum_offset), (at, 16));
            frame[at + 16] ^= 1;
            prop_assert_eq!(left_undone(&frame, 1500), NetHeader::PLAIN);
            extensions.insert(place.index(extensions.len() + 1), other);
            prop_assert_eq!(left_undone(&behind(tags, &extensions, 9).0, 1500), NetHeader::PLAIN);
        }

        #[test]
        fn any_bytes_make_metadata_that_fits(
            mut bytes in prop::collection::vec(any::<u8>(), 0..100),
            mtu in 0..80u32,
            kind in prop::sample::select(vec![[8, 0], [0x86, 0xdd], [0x81, 0]]),
        ) {
            if let Some(place) = bytes.get_mut(12..14) {
                place.copy_from_slice(&kind);
            }
            let meta = left_undone(&bytes, mtu);
            prop_assert!(meta == NetHeader::PLAIN || meta.check(bytes.len()).is_ok());
        }
    }
}
