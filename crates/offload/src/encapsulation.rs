//! Headers of a tunnel between two IP headers, parsed from the outer to the inner one.
//!
//! The kind of a UDP tunnel follows from the longer metadata of Linux 6.17 or from the destination
//! port. On any other port each known kind is tried: the metadata contains the position of the
//! checksum, which must follow the inner IP header.

use tapswitch_wire::{
    EtherType, LongNetHeader, MetadataError, NetHeaderFlags, ethernet, ip_proto, read_u16, tags,
    udp,
};

use crate::OffloadError;
use crate::ip::{Ip, Version, inner_ip, version};

/// Kind of a tunnel, and whether it has a checksum to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encapsulation {
    /// IP in IP (RFC 2003, RFC 2473, RFC 4213).
    Ip,
    /// GRE (RFC 2784, RFC 2890), with Ethernet inside (NVGRE, RFC 7637) or IP.
    Gre { has_checksum: bool },
    /// VXLAN (RFC 7348), Geneve (RFC 8926) or another UDP tunnel.
    Udp { has_checksum: bool },
}

/// Parses the tunnel's own headers after the IP header `outer`. Returns its kind, and the version
/// and start of the inner IP header.
pub(crate) fn open(
    meta: &LongNetHeader,
    headers: &[u8],
    outer: &Ip,
) -> Result<(Encapsulation, (Version, usize)), OffloadError> {
    let (encapsulation, inner) = walk(meta, headers, outer)?;
    Ok((encapsulation, inner.resolve(headers)?))
}

/// As [`open`], for a UDP tunnel whose port is unknown or misleading: the known kind whose headers
/// lead to the TCP or UDP header that the metadata names.
#[cold]
pub(crate) fn search(
    meta: &LongNetHeader,
    headers: &[u8],
    outer: &Ip,
) -> Option<(Encapsulation, Ip)> {
    if outer.protocol != ip_proto::UDP || meta.inner_network != 0 {
        return None;
    }
    let encapsulation = udp_tunnel(meta, headers, outer.upper_at).ok()?;
    let at = outer.upper_at + udp::HEADER_LEN;
    let lead_to = |open: &Opener| {
        let (version, at) = open(headers, at).and_then(|inner| inner.resolve(headers)).ok()?;
        inner_ip(&meta.base, headers, version, at).ok()
    };
    Some((encapsulation, UDP_TUNNELS.iter().find_map(lead_to)?))
}

/// Whether an IP protocol is a tunnel without UDP.
pub(crate) const fn is_alone(protocol: u8) -> bool {
    matches!(protocol, IPV4_INSIDE | IPV6_INSIDE | GRE)
}

/// Whether a destination port belongs to a known UDP tunnel.
pub(crate) const fn is_known_port(port: u16) -> bool {
    matches!(port, VXLAN | VXLAN_LINUX | VXLAN_GPE | GENEVE)
}

/// Protocol inside a tunnel, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inner {
    Ethernet(usize),
    Ip(Version, usize),
}

impl Inner {
    /// Version and start of the inner IP header.
    fn resolve(self, headers: &[u8]) -> Result<(Version, usize), OffloadError> {
        match self {
            Self::Ethernet(at) => ethernet_inside(headers, at),
            Self::Ip(version, at) => Ok((version, at)),
        }
    }
}

fn walk(
    meta: &LongNetHeader,
    headers: &[u8],
    outer: &Ip,
) -> Result<(Encapsulation, Inner), OffloadError> {
    let at = outer.upper_at;
    match outer.protocol {
        ip_proto::UDP => open_udp(meta, headers, at),
        // The metadata describes a UDP tunnel.
        _ if meta.is_tunnelled() => Err(MetadataError::Tunnel.into()),
        GRE => open_gre(headers, at),
        IPV4_INSIDE => Ok((Encapsulation::Ip, Inner::Ip(Version::V4, at))),
        IPV6_INSIDE => Ok((Encapsulation::Ip, Inner::Ip(Version::V6, at))),
        _ => Err(OffloadError::Protocol),
    }
}

fn open_udp(
    meta: &LongNetHeader,
    headers: &[u8],
    at: usize,
) -> Result<(Encapsulation, Inner), OffloadError> {
    let encapsulation = udp_tunnel(meta, headers, at)?;
    let inside = at + udp::HEADER_LEN;
    let inner = match read_u16(headers, at + udp::field::DST_PORT) {
        _ if meta.inner_network != 0 => said_inside(meta, headers, at)?,
        VXLAN | VXLAN_LINUX => open_vxlan(headers, inside)?,
        VXLAN_GPE => open_vxlan_gpe(headers, inside)?,
        GENEVE => open_geneve(headers, inside)?,
        _ => return Err(OffloadError::Unsupported("a UDP tunnel on an unknown port")),
    };
    Ok((encapsulation, inner))
}

/// Parses the UDP header at `at`.
fn udp_tunnel(
    meta: &LongNetHeader,
    headers: &[u8],
    at: usize,
) -> Result<Encapsulation, OffloadError> {
    let header = chunk::<{ udp::HEADER_LEN }>(headers, at)?;
    // An existing checksum that the metadata does not mention would be wrong in each packet.
    let has_checksum = read_u16(&header, udp::field::CHECKSUM) != 0
        || meta.base.flags & NetHeaderFlags::UDP_TUNNEL_CSUM != 0;
    Ok(Encapsulation::Udp { has_checksum })
}

/// The inside according to the metadata, whatever the tunnel's own headers.
fn said_inside(meta: &LongNetHeader, headers: &[u8], at: usize) -> Result<Inner, OffloadError> {
    let inner = usize::from(meta.inner_network);
    if usize::from(meta.outer_transport) != at {
        return Err(MetadataError::Tunnel.into());
    }
    open_ip(headers, inner)
}

/// An IP header directly in UDP ("Foo over UDP" of Linux).
fn open_ip(headers: &[u8], at: usize) -> Result<Inner, OffloadError> {
    match headers.get(at).map(|byte| byte >> 4) {
        Some(4) => Ok(Inner::Ip(Version::V4, at)),
        Some(6) => Ok(Inner::Ip(Version::V6, at)),
        _ => Err(OffloadError::Headers),
    }
}

/// RFC 7348 §5: always Ethernet.
#[expect(clippy::unnecessary_wraps, reason = "one of several")]
fn open_vxlan(_headers: &[u8], at: usize) -> Result<Inner, OffloadError> {
    Ok(Inner::Ethernet(at + VXLAN_LEN))
}

/// "Generic Protocol Extension for VXLAN" (draft-ietf-nvo3-vxlan-gpe): the fourth byte is the inner
/// protocol.
fn open_vxlan_gpe(headers: &[u8], at: usize) -> Result<Inner, OffloadError> {
    let [_, _, _, next, ..] = chunk::<VXLAN_LEN>(headers, at)?;
    let inside = at + VXLAN_LEN;
    match next {
        1 => Ok(Inner::Ip(Version::V4, inside)),
        2 => Ok(Inner::Ip(Version::V6, inside)),
        3 => Ok(Inner::Ethernet(inside)),
        _ => Err(OffloadError::Protocol),
    }
}

/// RFC 8926 §3.4: version (2 bits), 32-bit words of options (6 bits), flags, protocol.
fn open_geneve(headers: &[u8], at: usize) -> Result<Inner, OffloadError> {
    let header @ [version_and_len, ..] = chunk::<GENEVE_MIN_LEN>(headers, at)?;
    if version_and_len >> 6 != 0 {
        return Err(OffloadError::Unsupported("a newer version of Geneve"));
    }
    let options = usize::from(version_and_len & 0x3f) * 4;
    inside(EtherType(read_u16(&header, 2)), at + GENEVE_MIN_LEN + options)
}

/// RFC 2890 §2: flags and version, protocol, then the fields that the flags announce.
fn open_gre(headers: &[u8], at: usize) -> Result<(Encapsulation, Inner), OffloadError> {
    let header = chunk::<GRE_MIN_LEN>(headers, at)?;
    let flags = read_u16(&header, 0);
    if flags & GRE_SEQUENCE != 0 {
        return Err(OffloadError::Unsupported("GRE with sequence numbers"));
    }
    if flags & !(GRE_CHECKSUM | GRE_KEY) != 0 {
        return Err(OffloadError::Unsupported("this kind of GRE"));
    }
    let has_checksum = flags & GRE_CHECKSUM != 0;
    let len = GRE_MIN_LEN + 4 * usize::from(has_checksum) + 4 * usize::from(flags & GRE_KEY != 0);
    let inner = inside(EtherType(read_u16(&header, 2)), at + len)?;
    Ok((Encapsulation::Gre { has_checksum }, inner))
}

/// The protocol `ether_type` at `at`.
fn inside(ether_type: EtherType, at: usize) -> Result<Inner, OffloadError> {
    if ether_type == ETHERNET_INSIDE {
        return Ok(Inner::Ethernet(at));
    }
    Ok(Inner::Ip(version(ether_type)?, at))
}

/// The IP header of the inner frame at `at`, after any tags.
fn ethernet_inside(headers: &[u8], at: usize) -> Result<(Version, usize), OffloadError> {
    let frame = headers.get(at..).ok_or(OffloadError::Headers)?;
    let type_at = ethernet::field::ETHER_TYPE + tags::count(frame) * ethernet::TAG_LEN;
    let [t0, t1] = chunk(frame, type_at)?;
    Ok((version(EtherType(u16::from_be_bytes([t0, t1])))?, at + type_at + 2))
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], OffloadError> {
    let rest = bytes.get(at..).and_then(|rest| rest.first_chunk());
    rest.copied().ok_or(OffloadError::Headers)
}

/// Parses a UDP tunnel's header at an offset, and returns the protocol inside.
type Opener = fn(&[u8], usize) -> Result<Inner, OffloadError>;
/// The known UDP tunnels.
const UDP_TUNNELS: [Opener; 4] = [open_vxlan, open_geneve, open_vxlan_gpe, open_ip];
/// IP protocol: IPv4 in IP (RFC 2003).
const IPV4_INSIDE: u8 = 4;
/// IP protocol: IPv6 in IP (RFC 2473).
const IPV6_INSIDE: u8 = 41;
/// IP protocol: GRE (RFC 2784).
const GRE: u8 = 47;
/// Protocol number of Ethernet in GRE and Geneve.
const ETHERNET_INSIDE: EtherType = EtherType(0x6558);
/// Ports assigned by IANA, and the one that Linux used before.
const VXLAN: u16 = 4789;
const VXLAN_LINUX: u16 = 8472;
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
/// Lengths of headers in bytes.
const VXLAN_LEN: usize = 8;
const GENEVE_MIN_LEN: usize = 8;
const GRE_MIN_LEN: usize = 4;
/// Flags in the first word of GRE.
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;
