//! Lengths and checksums of packets in a tunnel, inner and outer.

use tapswitch_offload::{SplitOptions, Verdict, verify};
use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    EtherType, GsoType, LongNetHeader, Parsed, ip_proto, ipv4, ipv6, read_u16, tcp, udp, write_u16,
};

/// Cuts the train once more with a correct inner partial checksum, and verifies each packet inside
/// and outside; only if the inner headers can be located.
pub(super) fn check_with_true_checksum(
    meta: &LongNetHeader,
    options: &SplitOptions,
    frame: &[u8],
    whole: &Parsed,
) {
    let upper_at = usize::from(meta.base.csum_start);
    let Some(at) = inner_network(meta, frame, whole.layout.end.into()) else {
        return;
    };
    let mut frame = frame.to_vec();
    write_partial_checksum(meta, &mut frame, at);
    let cut = super::cut(meta, options, &frame, &[]);
    assert!(cut.is_some(), "nobody looks at these fields");
    for packet in cut.map(|packets| packets.frames).unwrap_or_default() {
        check_inside(&packet[at..], upper_at - at);
        check_outside(&packet, whole);
    }
}

/// Offset of the inner IP header: the only one, behind the outer headers, from which a header
/// without extension headers leads to the checksum.
fn inner_network(meta: &LongNetHeader, frame: &[u8], outer_end: usize) -> Option<usize> {
    let upper_at = usize::from(meta.base.csum_start);
    let kind = meta.base.gso_type.inner().kind();
    let starts_with = |len: usize, version: u8| {
        Some(upper_at.checked_sub(len)?)
            .filter(|&at| at >= outer_end && frame.get(at).is_some_and(|byte| byte >> 4 == version))
    };
    let v4 = (5..=15).filter_map(|words: u8| {
        let at = starts_with(usize::from(words) * 4, 4)?;
        (frame[at] & 0x0f == words).then_some(at)
    });
    // With extension headers, which are not wanted, it may start earlier.
    let v6 = (0..=MAX_EXTENSIONS_LEN / 8)
        .filter_map(|units| starts_with(ipv6::HEADER_LEN + 8 * units, 6));
    let (v4, v6): (Vec<_>, Vec<_>) = match kind {
        GsoType::TCPV4 => (v4.collect(), Vec::new()),
        GsoType::TCPV6 => (Vec::new(), v6.collect()),
        _ => (v4.collect(), v6.collect()),
    };
    match (&v4[..], &v6[..]) {
        ([at], []) => Some(*at),
        ([], [at]) if at + ipv6::HEADER_LEN == upper_at => Some(*at),
        _ => None,
    }
}

fn write_partial_checksum(meta: &LongNetHeader, frame: &mut [u8], at: usize) {
    let upper_at = usize::from(meta.base.csum_start);
    let len = u32::try_from(frame.len() - upper_at).unwrap_or(0);
    let is_tcp = meta.base.gso_type.inner().kind() != GsoType::UDP_L4;
    let protocol = if is_tcp { ip_proto::TCP } else { ip_proto::UDP };
    let inner = &frame[at..];
    let pseudo_header = if inner[0] >> 4 == 4 {
        pseudo_header_v4(&inner[ipv4::field::SRC], &inner[ipv4::field::DST], protocol, 0)
    } else {
        pseudo_header_v6(&inner[ipv6::field::SRC], &inner[ipv6::field::DST], protocol, 0)
    };
    if is_tcp {
        write_u16(frame, upper_at + tcp::field::CHECKSUM, pseudo_header.add_u32(len).partial());
        return;
    }
    let [_, _, high, low] = len.to_be_bytes();
    let len = u16::from_be_bytes([high, low]);
    write_u16(frame, upper_at + udp::field::LENGTH, len);
    write_u16(frame, upper_at + udp::field::CHECKSUM, pseudo_header.add(len).partial());
}

/// Checks the inner IP packet, whose transport header is at `upper_at`.
fn check_inside(packet: &[u8], upper_at: usize) {
    check_length(packet);
    let is_v4 = packet[0] >> 4 == 4;
    let ether_type = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let alone = [&[0; 12][..], &ether_type.0.to_be_bytes(), packet].concat();
    let judged = verify(&alone, &[]);
    let expected = if is_v4 { Verdict::Valid } else { Verdict::Absent };
    assert_eq!(judged.network, expected, "{packet:02x?}");
    assert_eq!(judged.transport, Verdict::Valid, "{packet:02x?}");
    let protocol = packet[if is_v4 { ipv4::field::PROTOCOL } else { ipv6::field::NEXT_HEADER }];
    if protocol == ip_proto::UDP {
        let len = read_u16(packet, upper_at + udp::field::LENGTH);
        assert_eq!(usize::from(len), packet.len() - upper_at);
    }
}

/// Checks the outer IP packet of `frame`, and all lengths and checksums of the tunnel.
fn check_outside(frame: &[u8], Parsed { key, layout }: &Parsed) {
    check_length(&frame[usize::from(layout.network)..]);
    if let (ip_proto::UDP, Some(at)) = (key.ip_proto, layout.transport.map(usize::from)) {
        assert_eq!(usize::from(read_u16(frame, at + udp::field::LENGTH)), frame.len() - at);
        let judged = verify(frame, &[]).transport;
        let is_there = read_u16(frame, at + udp::field::CHECKSUM) != 0;
        assert!(!is_there || judged != Verdict::Invalid, "{frame:02x?}");
    }
    let at = usize::from(layout.end);
    if key.ip_proto == GRE && frame[at] & GRE_CHECKSUM != 0 {
        assert_eq!(Sum::of(&frame[at..]).partial(), 0xffff, "{frame:02x?}");
    }
}

fn check_length(packet: &[u8]) {
    let said = match packet[0] >> 4 {
        4 => usize::from(read_u16(packet, ipv4::field::TOTAL_LENGTH)),
        _ => usize::from(read_u16(packet, ipv6::field::PAYLOAD_LENGTH)) + ipv6::HEADER_LEN,
    };
    assert_eq!(said, packet.len(), "{packet:02x?}");
}

/// Maximum bytes of extension headers.
const MAX_EXTENSIONS_LEN: usize = ipv6::MAX_EXTENSIONS * 256 * 8;
/// IP protocol: GRE (RFC 2784), and the flag of its checksum in the first byte.
const GRE: u8 = 47;
const GRE_CHECKSUM: u8 = 0x80;
