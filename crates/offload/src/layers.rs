//! Headers of a train, checked against its metadata.
//!
//! The metadata identifies a train in a tunnel: `csum_start` is after an inner IP header, to which
//! the tunnel's own headers must lead (module `encapsulation`).

use tapswitch_wire::{GsoType, LongNetHeader, NetHeader, Parsed, ethernet, ip_proto, ipv4, parse};

use crate::OffloadError;
use crate::encapsulation::{self, Encapsulation};
use crate::ip::{Ip, Version, check_place, inner_ip, protocol, version};

/// Positions of a train's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    /// Outer headers of a train in a tunnel.
    pub(crate) outer: Option<Outer>,
    /// The train's own IP header.
    pub(crate) ip: Ip,
    /// End of its TCP or UDP header, which is the end of all headers.
    pub(crate) end: usize,
}

/// The headers of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    /// The outer IP header.
    pub(crate) ip: Ip,
    /// Kind of the tunnel, whose header is at `upper_at` of the outer IP header.
    pub(crate) encapsulation: Encapsulation,
}

impl Layers {
    /// Parses the headers of the train at the start of `headers`, and checks them against `meta`.
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
        // Tunnels may be on any port; the kind that the port implies is tried first.
        let (encapsulation, ip) =
            inside.or_else(|error| encapsulation::search(meta, headers, &outer).ok_or(error))?;
        let end = ip.end_of_upper(headers)?;
        Ok(Self { outer: Some(Outer { ip: outer, encapsulation }), ip, end })
    }
}

/// Whether a train is in a tunnel: according to the metadata, or because the outer headers may be
/// those of a tunnel and leave room for an inner IP header before the checksum.
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
