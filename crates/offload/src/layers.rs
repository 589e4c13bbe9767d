//! The headers of a train, found to be what its metadata says.
//!
//! A train in a tunnel is known by its metadata: `csum_start` lies behind an inner IP header, which
//! the tunnel's own headers must lead to (module `encapsulation`).

use tapswitch_wire::{GsoType, LongNetHeader, NetHeader, Parsed, ethernet, ip_proto, ipv4, parse};

use crate::OffloadError;
use crate::encapsulation::{self, Encapsulation};
use crate::ip::{Ip, Version, check_place, inner_ip, protocol, version};

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
