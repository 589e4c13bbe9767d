//! Verification of a packet's checksums.

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    EtherType, FlowKey, Layout, Parsed, ip_proto, ipv4, ipv6, parse, read_u16, udp,
};

use crate::checksum::add_parts;

/// Validity of a packet's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksums {
    /// IPv4 header. IPv6 has none.
    pub network: Verdict,
    /// TCP, UDP, ICMP or ICMPv6.
    pub transport: Verdict,
}

/// Validity of one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Valid.
    Valid,
    /// Wrong: a receiver drops the packet.
    Invalid,
    /// Absent: IPv6, or UDP over IPv4 without checksum (RFC 768).
    Absent,
    /// Unknown: another protocol, a fragment, a truncated packet, or one with a source route that
    /// has not reached its end.
    Unknown,
}

/// Verifies the checksums of the packet `headers ++ payload`, a frame without deferred work. Parses
/// any tags and extension headers; all headers are within `headers`, which may also contain
/// payload.
///
/// Bytes beyond the IP length, such as Ethernet's padding, are not summed.
#[must_use]
pub fn verify(headers: &[u8], payload: &[u8]) -> Checksums {
    let unknown = Checksums { network: Verdict::Unknown, transport: Verdict::Unknown };
    let Ok(parsed) = parse(headers) else {
        return unknown;
    };
    let network = network(headers, &parsed);
    let transport = transport(headers, payload, &parsed).unwrap_or(Verdict::Unknown);
    Checksums { network, transport }
}

fn network(headers: &[u8], Parsed { key, layout }: &Parsed) -> Verdict {
    let packet = &headers[usize::from(layout.network)..];
    match key.eth_type() {
        EtherType::IPV4 => match ipv4::header_len(packet) {
            Some(len) => verdict(Sum::of(&packet[..len])),
            None => Verdict::Unknown,
        },
        EtherType::IPV6 if packet.len() >= ipv6::HEADER_LEN && packet[0] >> 4 == 6 => {
            Verdict::Absent
        }
        _ => Verdict::Unknown,
    }
}

/// `None` if unknown.
fn transport(headers: &[u8], payload: &[u8], Parsed { key, layout }: &Parsed) -> Option<Verdict> {
    let at = usize::from(layout.transport?);
    let between = &headers[usize::from(layout.network)..at];
    let is_v4 = key.eth_type() == EtherType::IPV4;
    let len = if is_v4 { upper_len_v4(between)? } else { upper_len_v6(between)? };
    let len = match layout.protocol {
        ip_proto::UDP => match udp_checksum(headers, at, len)? {
            (0, _) if is_v4 => return Some(Verdict::Absent),
            (0, _) => return Some(Verdict::Invalid),
            (_, len) => len,
        },
        _ => len,
    };
    let pseudo_header = pseudo_header(key, layout, len)?;
    let parts = first(len, [&headers[at..], payload])?;
    Some(verdict(add_parts(pseudo_header, 0, parts)))
}

/// The UDP checksum, and how many of the `len` bytes of IP payload it covers.
fn udp_checksum(headers: &[u8], at: usize, len: u16) -> Option<(u16, u16)> {
    let covered = read_u16(headers, at + udp::field::LENGTH);
    let is_inside = covered <= len && usize::from(covered) >= udp::HEADER_LEN;
    is_inside.then(|| (read_u16(headers, at + udp::field::CHECKSUM), covered))
}

/// Initial sum of a checksum over `len` bytes; ICMP has none.
fn pseudo_header(key: &FlowKey, layout: &Layout, len: u16) -> Option<Sum> {
    let protocol = layout.protocol;
    match (key.eth_type(), protocol) {
        (EtherType::IPV4, ip_proto::ICMP) => Some(Sum::ZERO),
        (EtherType::IPV4, ip_proto::TCP | ip_proto::UDP) => {
            Some(pseudo_header_v4(&key.ip_src[..4], &key.ip_dst[..4], protocol, len))
        }
        (EtherType::IPV6, ip_proto::TCP | ip_proto::UDP | ip_proto::ICMPV6) => {
            Some(pseudo_header_v6(&key.ip_src, &key.ip_dst, protocol, len.into()))
        }
        _ => None,
    }
}

/// Bytes after the complete IPv4 header `header`; `None` for a fragment.
fn upper_len_v4(header: &[u8]) -> Option<u16> {
    let fragment = read_u16(header, ipv4::field::FRAGMENT);
    if fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0 {
        return None;
    }
    let header_len = u16::try_from(header.len()).ok()?;
    read_u16(header, ipv4::field::TOTAL_LENGTH).checked_sub(header_len)
}

/// Bytes after the complete IPv6 headers `headers`; `None` for a fragment, and before the end of a
/// source route, whose last destination is in the pseudo-header (RFC 8200 §8.1).
fn upper_len_v6(headers: &[u8]) -> Option<u16> {
    let mut protocol = headers[ipv6::field::NEXT_HEADER];
    let mut at = ipv6::HEADER_LEN;
    while let Some(&[next, units, _, segments_left]) = headers.get(at..at + 4) {
        let len = match protocol {
            ipv6::FRAGMENT => return None,
            ipv6::ROUTING if segments_left != 0 => return None,
            AUTHENTICATION => (usize::from(units) + 2) * 4,
            _ => (usize::from(units) + 1) * 8,
        };
        protocol = next;
        at += len;
    }
    let extensions_len = u16::try_from(headers.len() - ipv6::HEADER_LEN).ok()?;
    read_u16(headers, ipv6::field::PAYLOAD_LENGTH).checked_sub(extensions_len)
}

/// The first `len` bytes of `parts`; `None` if there are fewer.
fn first(len: u16, [head, tail]: [&[u8]; 2]) -> Option<[&[u8]; 2]> {
    let len = usize::from(len);
    match head.get(..len) {
        Some(head) => Some([head, &[]]),
        None => Some([head, tail.get(..len - head.len())?]),
    }
}

/// A checksum is valid if everything, including itself, sums up to all ones (RFC 1071 §1).
fn verdict(sum: Sum) -> Verdict {
    if sum.partial() == 0xffff { Verdict::Valid } else { Verdict::Invalid }
}

/// Extension header: authentication, with its length in 32-bit words (RFC 4302 §2.2).
const AUTHENTICATION: u8 = 51;
