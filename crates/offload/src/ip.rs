//! An IP header of a train: its extent, and whether it can be repeated in each packet.

use tapswitch_wire::{EtherType, GsoType, NetHeader, ip_proto, ipv4, ipv6, read_u16, tcp, udp};

use crate::OffloadError;

/// An IP header with its options or extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) version: Version,
    /// Start of the header.
    pub(crate) at: usize,
    /// Protocol of the payload.
    pub(crate) protocol: u8,
    /// Start of the payload.
    pub(crate) upper_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Ip {
    /// Reads the header of `version` at `at`, as far as each packet repeats it.
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

    /// Value of the length field for a frame of `frame_len` bytes.
    pub(crate) fn length(&self, frame_len: usize) -> usize {
        match self.version {
            Version::V4 => frame_len - self.at,
            Version::V6 => frame_len - self.at - ipv6::HEADER_LEN,
        }
    }

    /// Fails if repeating the header would be wrong.
    pub(crate) fn check(&self, headers: &[u8]) -> Result<(), OffloadError> {
        let header = &headers[self.at..self.upper_at];
        match self.version {
            Version::V4 => check_ipv4(header),
            Version::V6 => check_ipv6(header),
        }
    }

    /// End of the complete TCP or UDP header that follows.
    pub(crate) fn end_of_upper(&self, headers: &[u8]) -> Result<usize, OffloadError> {
        let upper = &headers[self.upper_at..];
        let len = match self.protocol {
            ip_proto::TCP => tcp::header_len(upper),
            _ => (upper.len() >= udp::HEADER_LEN).then_some(udp::HEADER_LEN),
        };
        Ok(self.upper_at + len.ok_or(OffloadError::Headers)?)
    }
}

/// The inner IP header of `version` at `at`, which must be followed by the protocol that the
/// metadata implies.
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

/// The IP version of an EtherType.
pub(crate) fn version(ether_type: EtherType) -> Result<Version, OffloadError> {
    match ether_type {
        EtherType::IPV4 => Ok(Version::V4),
        EtherType::IPV6 => Ok(Version::V6),
        _ => Err(OffloadError::Protocol),
    }
}

/// Transport protocol of a train of `gso_type` over IP `version`.
pub(crate) fn protocol(gso_type: GsoType, version: Version) -> Result<u8, OffloadError> {
    match (gso_type.kind(), version) {
        (GsoType::TCPV4, Version::V4) | (GsoType::TCPV6, Version::V6) => Ok(ip_proto::TCP),
        (GsoType::UDP_L4 | GsoType::UDP, _) if !gso_type.has_ecn() => Ok(ip_proto::UDP),
        _ => Err(OffloadError::Protocol),
    }
}

/// All packets of a fragment would have the same offset in the datagram.
fn check_ipv4(header: &[u8]) -> Result<(), OffloadError> {
    let fragment = read_u16(header, ipv4::field::FRAGMENT);
    if fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0 {
        return Err(OffloadError::Fragment);
    }
    Ok(())
}

/// Accepts only extension headers that can be repeated unchanged: like Linux, hop-by-hop options,
/// routing and destination options.
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

/// Fails unless the partial checksum is that of the transport header after `ip`.
pub(crate) fn check_place(meta: &NetHeader, ip: &Ip) -> Result<(), OffloadError> {
    if !meta.needs_checksum() {
        // A TCP train, or a datagram to be fragmented, gets its checksum computed from scratch, as
        // in Linux.
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
