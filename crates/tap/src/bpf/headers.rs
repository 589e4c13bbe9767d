//! The headers that the programs parse, in Rust: the reference for [`super::layers`].
//!
//! - **Ethernet**: 802.1Q, 802.1ad and 0x9100 tags, at most [`MAX_TAGS`] before a network layer,
//!   including an accelerated tag.
//! - **IPv4** with options, **IPv6** with at most [`MAX_EXTENSIONS`] extension headers (hop-by-hop,
//!   routing, fragment, authentication, destination options, mobility).
//! - **Ports** of TCP, UDP and SCTP. Fragments, including the first, have none, so that all
//!   fragments of a datagram are treated alike. (An IPv6 fragment header on a whole packet, RFC
//!   6946, makes no fragment.)
//!
//! Fields that exceed a limit, are truncated or malformed are treated as absent: a frame with too
//! many tags is not IP, a packet with too many extension headers has no ports.

/// The first header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// Ethernet: tap devices.
    Ethernet,
    /// IP: tun devices.
    Ip,
}

/// The headers of one frame up to the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers<'a> {
    /// Destination and source.
    pub(crate) macs: Option<&'a [u8; MACS_LEN]>,
    /// The EtherType after the tags; 0 if absent or after too many tags.
    pub(crate) ether_type: u16,
    pub(crate) addresses: Option<Addresses<'a>>,
    /// Type of the header after IP and the parsed extension headers; 0 without IP.
    pub(crate) protocol: u8,
    /// Offset of the TCP, UDP or SCTP header, if it contains the ports.
    pub(crate) transport: Option<usize>,
    /// Source and destination port.
    pub(crate) ports: Option<[u8; 4]>,
}

/// Addresses of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses<'a> {
    V4 { src: &'a [u8; 4], dst: &'a [u8; 4] },
    V6 { src: &'a [u8; 16], dst: &'a [u8; 16] },
}

impl<'a> Headers<'a> {
    /// Parses the headers of `frame`; `None` if its Ethernet header is incomplete.
    pub(crate) fn parse(frame: &'a [u8], link: Link) -> Option<Self> {
        match link {
            Link::Ip => Some(Self::parse_packet(frame)),
            Link::Ethernet => Self::parse_ethernet(frame),
        }
    }

    fn parse_ethernet(frame: &'a [u8]) -> Option<Self> {
        let macs = frame.first_chunk()?;
        let mut ether_type = half(frame, MACS_LEN)?;
        let mut at = MACS_LEN + 2;
        let mut tags = 0;
        while TAG_TYPES.contains(&ether_type) {
            tags += 1;
            ether_type = half(frame, at + 2).filter(|_| tags <= MAX_TAGS).unwrap_or(0);
            at += 4;
        }
        let headers = Self { macs: Some(macs), ether_type, ..Self::default() };
        let packet = frame.get(at..).unwrap_or_default();
        Some(match ether_type {
            IPV4 => headers.with_ipv4(packet, at),
            IPV6 => headers.with_ipv6(packet, at),
            _ => headers,
        })
    }

    fn parse_packet(packet: &'a [u8]) -> Self {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Self { ether_type: IPV4, ..Self::default() }.with_ipv4(packet, 0),
            Some(6) => Self { ether_type: IPV6, ..Self::default() }.with_ipv6(packet, 0),
            _ => Self::default(),
        }
    }

    /// `packet` starts at `offset` of the frame.
    fn with_ipv4(self, packet: &'a [u8], offset: usize) -> Self {
        let Some(header) = packet.first_chunk::<IPV4_LEN>().filter(|h| h[0] >> 4 == 4) else {
            return self;
        };
        let len = usize::from(header[0] & 0x0f) * 4;
        let (Some(src), Some(dst)) = (chunk(packet, 12), chunk(packet, 16)) else {
            return self;
        };
        if len < IPV4_LEN {
            return self;
        }
        let addresses = Some(Addresses::V4 { src, dst });
        let headers = Self { addresses, protocol: header[9], ..self };
        let is_fragment = half(header, 6).is_some_and(|word| word & IPV4_FRAGMENT != 0);
        if is_fragment { headers } else { headers.with_ports(packet, len, offset) }
    }

    fn with_ipv6(self, packet: &'a [u8], offset: usize) -> Self {
        let Some(header) = packet.first_chunk::<IPV6_LEN>().filter(|h| h[0] >> 4 == 6) else {
            return self;
        };
        let (Some(src), Some(dst)) = (chunk(packet, 8), chunk(packet, 24)) else {
            return self;
        };
        let (protocol, upper) = upper_layer(packet, header[6]);
        let headers = Self { addresses: Some(Addresses::V6 { src, dst }), protocol, ..self };
        upper.map_or(headers, |at| headers.with_ports(packet, at, offset))
    }

    fn with_ports(self, packet: &[u8], at: usize, offset: usize) -> Self {
        match chunk(packet, at).filter(|_| PORTED.contains(&self.protocol)) {
            Some(ports) => Self { transport: Some(offset + at), ports: Some(*ports), ..self },
            None => self,
        }
    }
}

/// Type and offset of the header after the extension headers; no offset for a fragment or a broken
/// chain.
fn upper_layer(packet: &[u8], mut protocol: u8) -> (u8, Option<usize>) {
    let mut at = IPV6_LEN;
    let mut count = 0;
    while EXTENSIONS.contains(&protocol) {
        count += 1;
        let Some([next, units, f0, f1]) = chunk(packet, at).filter(|_| count <= MAX_EXTENSIONS)
        else {
            return (protocol, None);
        };
        if protocol == FRAGMENT && u16::from_be_bytes([*f0, *f1]) & IPV6_FRAGMENT != 0 {
            return (*next, None);
        }
        at += match protocol {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(*units) + 2) * 4,
            _ => (usize::from(*units) + 1) * 8,
        };
        protocol = *next;
    }
    (protocol, Some(at))
}

fn chunk<const LEN: usize>(bytes: &[u8], at: usize) -> Option<&[u8; LEN]> {
    bytes.get(at..)?.first_chunk()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).map(|half| u16::from_be_bytes(*half))
}

/// Maximum number of tags parsed before a network layer. Linux itself parses at most 8
/// (`VLAN_MAX_DEPTH`).
pub(crate) const MAX_TAGS: u16 = 16;
/// Maximum number of extension headers parsed after an IPv6 header.
pub(crate) const MAX_EXTENSIONS: u16 = 8;
/// Length of both MAC addresses in bytes.
pub(crate) const MACS_LEN: usize = 12;
/// Length of an IPv4 header without options in bytes.
pub(crate) const IPV4_LEN: usize = 20;
/// Length of an IPv6 header in bytes.
pub(crate) const IPV6_LEN: usize = 40;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the type used for outer tags before 802.1ad.
pub(crate) const TAG_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// "More fragments" and the offset.
pub(crate) const IPV4_FRAGMENT: u16 = 0x3fff;
/// The offset and "more fragments".
pub(crate) const IPV6_FRAGMENT: u16 = 0xfff9;

pub(crate) const UDP: u8 = 17;
/// TCP, UDP, SCTP: they start with two ports.
pub(crate) const PORTED: [u8; 3] = [6, UDP, 132];
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const AUTHENTICATION: u8 = 51;
/// Extension headers: hop-by-hop, routing, fragment, authentication, destination, mobility.
pub(crate) const EXTENSIONS: [u8; 6] = [0, 43, FRAGMENT, AUTHENTICATION, 60, 135];

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: &[u8] = &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    const TCP_V4: &[u8] = &[
        0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0, // TCP
    ];

    fn tagged(count: usize) -> Vec<u8> {
        let tags = [0x88, 0xa8, 0, 7].repeat(count);
        [ETHERNET, &tags, &[8, 0], TCP_V4].concat()
    }

    #[test]
    fn tags_are_walked_up_to_the_bound() {
        for count in 0..=usize::from(MAX_TAGS) {
            let frame = tagged(count);
            let headers = Headers::parse(&frame, Link::Ethernet).unwrap();
            assert_eq!(headers.ether_type, IPV4, "{count} tags");
            assert_eq!(headers.transport, Some(34 + 4 * count));
            assert_eq!(headers.ports, Some([0x9c, 0x40, 0, 80]));
        }
        let frame = tagged(usize::from(MAX_TAGS) + 1);
        let headers = Headers::parse(&frame, Link::Ethernet).unwrap();
        assert_eq!((headers.ether_type, headers.addresses), (0, None));
        assert_eq!(headers.macs.unwrap(), ETHERNET);
    }

    #[test]
    fn a_packet_alone_is_read_as_in_a_frame() {
        let frame = tagged(0);
        let framed = Headers::parse(&frame, Link::Ethernet).unwrap();
        let alone = Headers::parse(TCP_V4, Link::Ip).unwrap();
        assert_eq!((framed.addresses, framed.ports), (alone.addresses, alone.ports));
        assert_eq!(alone.transport, Some(20));
        assert_eq!(Headers::parse(&[0x12; 60], Link::Ip), Some(Headers::default()));
        assert_eq!(Headers::parse(&[], Link::Ip), Some(Headers::default()));
    }

    #[test]
    fn no_fragment_has_ports() {
        for flags in [0x2000_u16, 0x0010, 0x2010] {
            let mut packet = TCP_V4.to_vec();
            packet[6..8].copy_from_slice(&flags.to_be_bytes());
            let headers = Headers::parse(&packet, Link::Ip).unwrap();
            assert_eq!((headers.protocol, headers.transport, headers.ports), (6, None, None));
            assert!(headers.addresses.is_some());
        }
    }

    #[test]
    fn extension_headers_are_walked_up_to_the_bound() {
        for count in 0..=usize::from(MAX_EXTENSIONS) + 1 {
            let mut chain = [60, 0, 0, 0, 0, 0, 0, 0].repeat(count);
            let first = if count == 0 { UDP } else { 60 };
            if let Some(last) = count.checked_sub(1) {
                chain[8 * last] = UDP;
            }
            let packet =
                [&[0x60, 0, 0, 0, 0, 0, first, 64], &[1; 32][..], &chain, &[1, 2, 3, 4]].concat();
            let headers = Headers::parse(&packet, Link::Ip).unwrap();
            let fits = count <= usize::from(MAX_EXTENSIONS);
            assert_eq!(headers.ports, fits.then_some([1, 2, 3, 4]), "{count}");
            assert!(headers.addresses.is_some());
        }
    }

    #[test]
    fn every_truncation_is_survived() {
        let frame = tagged(2);
        for len in 0..frame.len() {
            let headers = Headers::parse(&frame[..len], Link::Ethernet);
            assert_eq!(headers.is_some(), len >= 14, "{len} bytes");
            let ports = headers.and_then(|headers| headers.ports);
            assert_eq!(ports.is_some(), len >= 22 + 20 + 4, "{len} bytes");
        }
    }
}
