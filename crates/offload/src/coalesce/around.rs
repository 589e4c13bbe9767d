//! Outer headers of packets in tunnels.

use std::ops::Range;

use tapswitch_wire::{LongNetHeader, Parsed, ip_proto, read_u16, udp};

use super::headers::{Found, Headers, LEN_MAX, is_plain_v4, is_same_v4, is_same_v6};
use crate::encapsulation::{self, Encapsulation};
use crate::ip::{Ip, Version};
use crate::layers::{self, Outer};

/// Parses the headers of `frame`, which belong to a tunnel that may contain trains.
///
/// If the tunnel's own headers cannot be parsed, the frame belongs to no train and affects none. If
/// the headers inside cannot be parsed, it may belong to one.
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

/// Whether all headers before the inner TCP or UDP header can be repeated.
fn can_repeat(frame: &[u8], headers: &Headers, outer: &Outer) -> bool {
    let is_plain = match outer.ip.version {
        Version::V4 => is_plain_v4(&frame[outer.ip.at..outer.ip.upper_at]),
        Version::V6 => true,
    };
    usize::from(headers.end) <= LEN_MAX && is_plain && headers.can_repeat(frame)
}

/// The bytes of the tunnel's own headers that differ between packets of a train: the checksum and,
/// in UDP, the length. Both kinds of headers have them at the same place.
pub(super) fn varying(outer: &Outer) -> Range<usize> {
    let at = outer.ip.upper_at;
    match outer.encapsulation {
        Encapsulation::Gre { has_checksum: true } | Encapsulation::Udp { .. } => at + 4..at + 8,
        Encapsulation::Gre { has_checksum: false } | Encapsulation::Ip => at..at,
    }
}

/// Whether the headers of `other` up to `end`, the inner IP header, are of the tunnel `outer` of
/// `first`.
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

/// Whether `frame` has a UDP checksum exactly if the packets in the tunnel `outer` have one.
/// Otherwise it is of another flow.
pub(super) fn has_own_checksum(outer: &Outer, frame: &[u8]) -> bool {
    let Encapsulation::Udp { has_checksum } = outer.encapsulation else {
        return true;
    };
    has_checksum == (read_u16(frame, outer.ip.upper_at + udp::field::CHECKSUM) != 0)
}
