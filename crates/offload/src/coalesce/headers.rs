//! Positions of a packet's headers, and the fields that distinguish flows.

use tapswitch_wire::{GsoType, ip_proto, ipv4, ipv6, read_u16, read_u32, tcp, udp};

use crate::encapsulation;
use crate::ip::{Ip, Version};
use crate::layers::Outer;

/// Class of a frame for coalescing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A packet of a flow, with its outer headers if it is in a tunnel.
    Flow(Headers, Option<Outer>),
    /// TCP or UDP with an unknown flow, or with headers that cannot be repeated: it may belong to
    /// any train.
    Unclear,
    /// Anything else.
    Foreign,
}

/// IPv4 without options or IPv6, followed by TCP or UDP. Offsets are from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) is_v4: bool,
    pub(super) is_tcp: bool,
    /// End of the Ethernet header with its tags, where the IP header or the tunnel's outer one
    /// starts.
    pub(super) link_end: u16,
    /// Start of the IP header.
    pub(super) network: u16,
    /// Start of the TCP or UDP header.
    pub(super) transport: u16,
    /// Start of the payload.
    pub(super) end: u16,
}

impl Headers {
    /// Headers of the TCP or UDP packet after `ip` inside a tunnel over `outer`, if they are
    /// complete.
    pub(super) fn inside(frame: &[u8], outer: &Ip, ip: &Ip) -> Option<Self> {
        let to_u16 = |at: usize| u16::try_from(at).ok();
        Some(Self {
            is_v4: ip.version == Version::V4,
            is_tcp: ip.protocol == ip_proto::TCP,
            link_end: to_u16(outer.at)?,
            network: to_u16(ip.at)?,
            transport: to_u16(ip.upper_at)?,
            end: to_u16(ip.end_of_upper(frame).ok()?)?,
        })
    }

    /// Whether all headers between Ethernet and TCP or UDP can be repeated.
    #[inline]
    pub(super) fn can_repeat(&self, frame: &[u8]) -> bool {
        let packet = &frame[usize::from(self.network)..usize::from(self.transport)];
        if self.is_v4 {
            packet.len() == ipv4::MIN_HEADER_LEN && !is_fragment(packet)
        } else {
            packet.len() == ipv6::HEADER_LEN || can_repeat_extensions(packet)
        }
    }

    /// IP version.
    pub(super) fn version(&self) -> Version {
        if self.is_v4 { Version::V4 } else { Version::V6 }
    }

    /// Kind of train that these packets form.
    #[inline]
    pub(super) fn gso_type(&self) -> GsoType {
        match (self.is_tcp, self.is_v4) {
            (true, true) => GsoType::TCPV4,
            (true, false) => GsoType::TCPV6,
            (false, _) => GsoType::UDP_L4,
        }
    }

    /// Position of the checksum in the TCP or UDP header.
    #[inline]
    pub(super) fn checksum_offset(&self) -> usize {
        if self.is_tcp { tcp::field::CHECKSUM } else { udp::field::CHECKSUM }
    }

    /// Whether `frame` with these headers is one of a tunnel on UDP.
    #[inline]
    pub(super) fn is_of_tunnel(&self, frame: &[u8]) -> bool {
        let at = usize::from(self.transport) + udp::field::DST_PORT;
        !self.is_tcp && encapsulation::is_known_port(read_u16(frame, at))
    }

    /// Hash of the fields that differ between most flows. `frame` may have other headers, but is
    /// long enough for these.
    #[inline]
    pub(super) fn hash(&self, frame: &[u8]) -> u32 {
        let (network, transport) = (usize::from(self.network), usize::from(self.transport));
        let link_end = usize::from(self.link_end);
        let ends = if self.is_v4 { [12, 16] } else { [20, 36] };
        let addresses = ends.map(|at| read_u32(frame, network + at));
        let words = addresses[0] ^ addresses[1].rotate_left(16) ^ read_u32(frame, link_end - 4);
        let word = u64::from(words) << 32 | u64::from(read_u32(frame, transport));
        let hash = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        hash >> 16
    }
}

/// Compares the fields that distinguish IPv4 flows. A header that is not plain is of another flow.
#[inline]
pub(super) fn is_same_v4(first: &[u8], other: &[u8]) -> bool {
    let (Some(first), Some(other)) = (first.first_chunk::<20>(), other.first_chunk::<20>()) else {
        return false;
    };
    first[ipv4::field::VERSION_IHL] == other[ipv4::field::VERSION_IHL]
        && first[ipv4::field::PROTOCOL] == other[ipv4::field::PROTOCOL]
        && first[ipv4::field::SRC.start..] == other[ipv4::field::SRC.start..]
        && !is_fragment(other)
}

/// Compares the fields that distinguish IPv6 flows: all except traffic class, length and hop limit.
#[inline]
pub(super) fn is_same_v6(first: &[u8], other: &[u8]) -> bool {
    const VERSION_AND_LABEL: u32 = 0xf00f_ffff;
    (read_u32(first, 0) ^ read_u32(other, 0)) & VERSION_AND_LABEL == 0
        && first[ipv6::field::NEXT_HEADER] == other[ipv6::field::NEXT_HEADER]
        && first[ipv6::field::SRC.start..] == other[ipv6::field::SRC.start..]
}

/// Whether an IPv4 `checksum` is the one that segmentation would write, in a header whose other
/// words add up to `sum`: all add up to zero, of which all ones is another form.
#[inline]
pub(super) fn is_right_checksum_v4(sum: u32, checksum: u16) -> bool {
    (sum + u32::from(checksum)).is_multiple_of(0xffff) && checksum != 0xffff
}

/// Whether an IPv4 header has no options and no flag except "don't fragment".
pub(super) fn is_plain_v4(header: &[u8]) -> bool {
    let fragment = read_u16(header, ipv4::field::FRAGMENT);
    header.len() == ipv4::MIN_HEADER_LEN && fragment & !ipv4::DONT_FRAGMENT == 0
}

#[inline]
fn is_fragment(ipv4_header: &[u8]) -> bool {
    let fragment = read_u16(ipv4_header, ipv4::field::FRAGMENT);
    fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0
}

/// Extension headers after which Linux coalesces and segments (`ipv6_gso_pull_exthdrs`). A jumbo
/// option contains a length of its own. With segments left, checksums are computed with another
/// destination than that in the IPv6 header (RFC 8200 §8.1).
#[cold]
fn can_repeat_extensions(headers: &[u8]) -> bool {
    if ipv6::is_routed_on(headers) {
        return false;
    }
    let mut protocol = headers[ipv6::field::NEXT_HEADER];
    let mut at = ipv6::HEADER_LEN;
    while let Some(&[next, units, option, ..]) = headers.get(at..) {
        match protocol {
            ipv6::HOP_BY_HOP if option == ipv6::OPTION_JUMBO => return false,
            ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION_OPTIONS => {}
            _ => return false,
        }
        protocol = next;
        at += (usize::from(units) + 1) * 8;
    }
    true
}

/// Maximum length of a train's headers in bytes, for example 30 tags before TCP over IPv6 with all
/// its options.
pub(super) const LEN_MAX: usize = 256;
