//! The headers of a train, found to be what its metadata says.
//!
//! A train in a tunnel is known by its metadata: `csum_start` lies behind an inner IP header, which
//! the tunnel's own headers must lead to (module `encapsulation`).

use tapswitch_wire::{
    EtherType, GsoType, LongNetHeader, NetHeader, Parsed, ethernet, ip_proto, ipv4, ipv6, parse,
    read_u16, tcp, udp,
};

use crate::OffloadError;
use crate::encapsulation::{self, Encapsulation};

/// Where the headers of a train lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    /// What is around the train's own IP header, when it is in a tunnel.
    pub(crate) outer: Option<Outer>,
    /// The train's own IP header.
    pub(crate) ip: Ip,
    /// End of its TCP or UDP header, and of all headers.
    pub(crate) end: usize,
}

/// The headers of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    /// The outer IP header.
    pub(crate) ip: Ip,
    /// What is in it; it lies at its `upper_at`.
    pub(crate) encapsulation: Encapsulation,
}

/// An IP header with its options or extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) version: Version,
    /// Start of the header.
    pub(crate) at: usize,
    /// Protocol of what follows.
    pub(crate) protocol: u8,
    /// Start of what follows.
    pub(crate) upper_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Layers {
    /// Finds the headers of the train at the head of `headers` and judges them by `meta`.
    pub(crate) fn find(meta: &LongNetHeader, headers: &[u8]) -> Result<Self, OffloadError> {
        let parsed = parse(headers).map_err(|_| OffloadError::Headers)?;
        match is_tunnelled(&meta.base, &parsed) {
            true => Self::find_inside(meta, headers, &parsed),
            false => Self::find_plain(&meta.base, headers, &parsed),
        }
    }

    fn find_plain(
        meta: &NetHeader,
        headers: &[u8],
        parsed @ Parsed { key, layout }: &Parsed,
    ) -> Result<Self, OffloadError> {
        let (version, at) = network(parsed)?;
        let protocol = protocol(meta.gso_type, version)?;
        let upper_at = usize::from(layout.transport.ok_or(OffloadError::Headers)?);
        if key.ip_proto != protocol {
            return Err(OffloadError::Protocol);
        }
        let ip = Ip { version, at, protocol, upper_at };
        ip.check(headers)?;
        check_place(meta, &ip)?;
        Ok(Self { outer: None, ip, end: usize::from(layout.end) })
    }

    #[cold]
    fn find_inside(
        meta: &LongNetHeader,
        headers: &[u8],
        parsed: &Parsed,
    ) -> Result<Self, OffloadError> {
        if !meta.base.needs_checksum() {
            return Err(OffloadError::ChecksumMissing);
        }
        if meta.base.gso_type.inner().kind() == GsoType::UDP {
            return Err(OffloadError::Unsupported("UFO in a tunnel"));
        }
        let (version, at) = network(parsed)?;
        let outer = Ip::read(headers, at, version)?;
        let inside = encapsulation::open(meta, headers, &outer).and_then(|(encapsulation, at)| {
            Ok((encapsulation, inner_ip(&meta.base, headers, at.0, at.1)?))
        });
        // Tunnels may be on any port; what theirs says of them counts first.
        let (encapsulation, ip) =
            inside.or_else(|error| encapsulation::search(meta, headers, &outer).ok_or(error))?;
        let end = ip.end_of_upper(headers)?;
        Ok(Self { outer: Some(Outer { ip: outer, encapsulation }), ip, end })
    }
}

impl Ip {
    /// Reads the header of `version` at `at` and what of it must be repeated in each packet.
    pub(crate) fn read(headers: &[u8], at: usize, version: Version) -> Result<Self, OffloadError> {
        let packet = headers.get(at..).ok_or(OffloadError::Headers)?;
        let (protocol, len) = match version {
            Version::V4 => {
                let len = ipv4::header_len(packet).ok_or(OffloadError::Headers)?;
                (packet[ipv4::field::PROTOCOL], len)
            }
            Version::V6 if packet.len() >= ipv6::HEADER_LEN && packet[0] >> 4 == 6 => {
                let upper = ipv6::upper_layer(packet);
                (upper.protocol, upper.offset.ok_or(OffloadError::Headers)?)
            }
            Version::V6 => return Err(OffloadError::Headers),
        };
        let ip = Self { version, at, protocol, upper_at: at + len };
        ip.check(headers)?;
        Ok(ip)
    }

    /// What the length field counts of a frame of `frame_len` bytes.
    pub(crate) fn length(&self, frame_len: usize) -> usize {
        match self.version {
            Version::V4 => frame_len - self.at,
            Version::V6 => frame_len - self.at - ipv6::HEADER_LEN,
        }
    }

    /// Refuses what would be wrong when repeated.
    fn check(&self, headers: &[u8]) -> Result<(), OffloadError> {
        let header = &headers[self.at..self.upper_at];
        match self.version {
            Version::V4 => check_ipv4(header),
            Version::V6 => check_ipv6(header),
        }
    }

    /// End of the whole TCP or UDP header that follows.
    pub(crate) fn end_of_upper(&self, headers: &[u8]) -> Result<usize, OffloadError> {
        let upper = &headers[self.upper_at..];
        let len = match self.protocol {
            ip_proto::TCP => tcp::header_len(upper),
            _ => (upper.len() >= udp::HEADER_LEN).then_some(udp::HEADER_LEN),
        };
        Ok(self.upper_at + len.ok_or(OffloadError::Headers)?)
    }
}

/// The inner IP header of `version` at `at`, which must lead to what the metadata speaks of.
pub(crate) fn inner_ip(
    meta: &NetHeader,
    headers: &[u8],
    version: Version,
    at: usize,
) -> Result<Ip, OffloadError> {
    let ip = Ip::read(headers, at, version)?;
    if protocol(meta.gso_type.inner(), version)? != ip.protocol {
        return Err(OffloadError::Protocol);
    }
    check_place(meta, &ip)?;
    Ok(ip)
}

/// Whether a train is in a tunnel: the metadata says so, or the outer headers may be those of a
/// tunnel and the checksum lies so far behind them that there is room for an inner IP header.
fn is_tunnelled(meta: &NetHeader, Parsed { key, layout }: &Parsed) -> bool {
    if meta.gso_type.tunnel() != 0 {
        return true;
    }
    let inside = usize::from(layout.end) + ipv4::MIN_HEADER_LEN;
    meta.needs_checksum()
        && usize::from(meta.csum_start) >= inside
        && (key.ip_proto == ip_proto::UDP || encapsulation::is_alone(key.ip_proto))
}

/// Version and start of the outermost IP header.
pub(crate) fn network(Parsed { key, layout }: &Parsed) -> Result<(Version, usize), OffloadError> {
    let at = usize::from(layout.network);
    if at != ethernet::HEADER_LEN + usize::from(layout.tags) * ethernet::TAG_LEN {
        return Err(OffloadError::Unsupported("802.3 framing"));
    }
    Ok((version(key.eth_type())?, at))
}

pub(crate) fn version(ether_type: EtherType) -> Result<Version, OffloadError> {
    match ether_type {
        EtherType::IPV4 => Ok(Version::V4),
        EtherType::IPV6 => Ok(Version::V6),
        _ => Err(OffloadError::Protocol),
    }
}

/// The protocol that a train of `gso_type` has over IP `version`.
fn protocol(gso_type: GsoType, version: Version) -> Result<u8, OffloadError> {
    match (gso_type.kind(), version) {
        (GsoType::TCPV4, Version::V4) | (GsoType::TCPV6, Version::V6) => Ok(ip_proto::TCP),
        (GsoType::UDP_L4 | GsoType::UDP, _) if !gso_type.has_ecn() => Ok(ip_proto::UDP),
        _ => Err(OffloadError::Protocol),
    }
}

/// A fragment's packets would all claim the same place in the datagram.
fn check_ipv4(header: &[u8]) -> Result<(), OffloadError> {
    let fragment = read_u16(header, ipv4::field::FRAGMENT);
    if fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0 {
        return Err(OffloadError::Fragment);
    }
    Ok(())
}

/// Only those extension headers may be there that can be repeated as they are: Linux cuts behind
/// hop-by-hop options, routing and destination options, and nothing else.
fn check_ipv6(headers: &[u8]) -> Result<(), OffloadError> {
    let mut protocol = headers[ipv6::field::NEXT_HEADER];
    let mut at = ipv6::HEADER_LEN;
    while let Some(&[next, units, option, ..]) = headers.get(at..) {
        match protocol {
            ipv6::HOP_BY_HOP if option == ipv6::OPTION_JUMBO => {
                return Err(OffloadError::Unsupported("an IPv6 jumbogram"));
            }
            ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION_OPTIONS => {}
            ipv6::FRAGMENT => return Err(OffloadError::Fragment),
            _ => return Err(OffloadError::Unsupported("an IPv6 extension header")),
        }
        protocol = next;
        at += (usize::from(units) + 1) * 8;
    }
    Ok(())
}

/// The partial checksum must be the one of the transport header behind `ip`.
fn check_place(meta: &NetHeader, ip: &Ip) -> Result<(), OffloadError> {
    if !meta.needs_checksum() {
        // A train of TCP or of fragments without one gets it from nothing, as in Linux.
        return match meta.gso_type.inner().kind() {
            GsoType::UDP_L4 => Err(OffloadError::ChecksumMissing),
            _ => Ok(()),
        };
    }
    let field = match ip.protocol {
        ip_proto::UDP => udp::field::CHECKSUM,
        _ => tcp::field::CHECKSUM,
    };
    if usize::from(meta.csum_start) == ip.upper_at && usize::from(meta.csum_offset) == field {
        Ok(())
    } else {
        Err(OffloadError::ChecksumPlace)
    }
}
