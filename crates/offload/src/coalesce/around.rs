//! What is around packets in a tunnel.

use std::ops::Range;

use tapswitch_wire::{LongNetHeader, Parsed, ip_proto, read_u16, udp};

use super::headers::{Found, Headers, LEN_MAX, is_plain_v4, is_same_v4, is_same_v6};
use crate::encapsulation::{self, Encapsulation};
use crate::ip::{Ip, Version};
use crate::layers::{self, Outer};

/// Parses the headers of `frame`, which are those of a tunnel that trains may be in.
///
/// What the tunnel's own headers cannot lead through holds no packet of a train, and is in nobody's
/// way; what they lead to and cannot be read may be one.
pub(super) fn find(frame: &[u8], parsed: &Parsed) -> Found {
    let outer = layers::network(parsed).and_then(|(version, at)| Ip::read(frame, at, version));
    let Ok(outer) = outer else {
        return Found::Unclear;
    };
    let Ok((encapsulation, (version, at))) =
        encapsulation::open(&LongNetHeader::default(), frame, &outer)
    else {
        return Found::Foreign;
    };
    let Ok(ip) = Ip::read(frame, at, version) else {
        return Found::Unclear;
    };
    if !matches!(ip.protocol, ip_proto::TCP | ip_proto::UDP) {
        return Found::Foreign;
    }
    let headers = Headers::inside(frame, &outer, &ip);
    let outer = Outer { ip: outer, encapsulation };
    match headers.filter(|headers| can_repeat(frame, headers, &outer)) {
        Some(headers) => Found::Flow(headers, Some(outer)),
        None => Found::Unclear,
    }
}

/// True when nothing in front of the TCP or UDP header inside belongs to one packet only.
fn can_repeat(frame: &[u8], headers: &Headers, outer: &Outer) -> bool {
    let is_plain = match outer.ip.version {
        Version::V4 => is_plain_v4(&frame[outer.ip.at..outer.ip.upper_at]),
        Version::V6 => true,
    };
    usize::from(headers.end) <= LEN_MAX && is_plain && headers.can_repeat(frame)
}

/// The bytes of the tunnel's own headers that differ between packets of a train: checksum and, in
/// UDP, length. Both kinds of headers have them in the same place.
pub(super) fn varying(outer: &Outer) -> Range<usize> {
    let at = outer.ip.upper_at;
    match outer.encapsulation {
        Encapsulation::Gre { has_checksum: true } | Encapsulation::Udp { .. } => at + 4..at + 8,
        Encapsulation::Gre { has_checksum: false } | Encapsulation::Ip => at..at,
    }
}

/// True when what is around `other` up to `end`, the inner IP header, is the tunnel `outer` of
/// `first`, too.
pub(super) fn is_same(outer: &Outer, end: usize, first: &[u8], other: &[u8]) -> bool {
    let Ip { version, at, upper_at, .. } = outer.ip;
    let (first_ip, other_ip) = (&first[at..upper_at], &other[at..upper_at]);
    let is_same_ip = match version {
        Version::V4 => is_same_v4(first_ip, other_ip),
        Version::V6 => is_same_v6(first_ip, other_ip),
    };
    let varying = varying(outer);
    let constant = [0..at, upper_at..varying.start, varying.end..end];
    is_same_ip
        && constant.into_iter().all(|bytes| first[bytes.clone()] == other[bytes])
        && has_own_checksum(outer, other)
}

/// True when `frame` has a checksum over UDP where the packets in the tunnel `outer` have one, and
/// none where they have none: else it is not of their flow.
pub(super) fn has_own_checksum(outer: &Outer, frame: &[u8]) -> bool {
    let Encapsulation::Udp { has_checksum } = outer.encapsulation else {
        return true;
    };
    has_checksum == (read_u16(frame, outer.ip.upper_at + udp::field::CHECKSUM) != 0)
}
