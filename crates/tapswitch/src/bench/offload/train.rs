//! Trains of 45 packets as input.

use std::fmt;

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags, ip_proto, ipv4, write_u16};

/// The transport layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// With timestamps.
    Tcp,
    Udp,
}

/// The network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// A type of train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) protocol: Protocol,
    pub(super) version: Version,
    /// Number of tags, 0 to 2.
    pub(super) tags: usize,
}

/// A train as the host of a tap device sends it: all work is deferred.
#[derive(Clone, Debug)]
pub(super) struct Train {
    pub(super) meta: NetHeader,
    /// The frame.
    pub(super) bytes: Vec<u8>,
    pub(super) headers_len: usize,
}

impl Kind {
    /// All types that are measured.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let layers = [
            (Protocol::Tcp, Version::V4),
            (Protocol::Tcp, Version::V6),
            (Protocol::Udp, Version::V4),
            (Protocol::Udp, Version::V6),
        ];
        let kinds =
            layers.map(|(protocol, version)| [0, 2].map(|tags| Self { protocol, version, tags }));
        kinds.into_iter().flatten()
    }

    /// A train of the flow with this source port.
    pub(super) fn train(self, source_port: u16) -> Train {
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        bytes.extend(&TAGS[TAGS.len() - 4 * self.tags..]);
        let network = bytes.len() + 2;
        self.push_network(&mut bytes);
        let transport = bytes.len();
        self.push_transport(source_port, &mut bytes);
        let headers_len = bytes.len();
        bytes.extend((0..=u8::MAX).cycle().take(PAYLOAD_LEN));
        let csum_offset = match self.protocol {
            Protocol::Tcp => 16,
            Protocol::Udp => 6,
        };
        let partial = self.pseudo_header(&bytes[network..transport]).partial();
        write_u16(&mut bytes, transport + csum_offset, partial);
        let meta = NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            gso_type: self.gso_type(),
            hdr_len: to_u16(headers_len),
            gso_size: to_u16(SEGMENT_LEN),
            csum_start: to_u16(transport),
            csum_offset: to_u16(csum_offset),
        };
        Train { meta, bytes, headers_len }
    }

    fn gso_type(self) -> GsoType {
        match (self.protocol, self.version) {
            (Protocol::Tcp, Version::V4) => GsoType::TCPV4,
            (Protocol::Tcp, Version::V6) => GsoType::TCPV6,
            (Protocol::Udp, _) => GsoType::UDP_L4,
        }
    }

    /// Length of the IP payload.
    fn upper_len(self) -> u16 {
        to_u16(PAYLOAD_LEN) + if self.protocol == Protocol::Tcp { 32 } else { 8 }
    }

    fn ip_proto(self) -> u8 {
        if self.protocol == Protocol::Tcp { ip_proto::TCP } else { ip_proto::UDP }
    }

    /// Appends the EtherType and the IP header.
    fn push_network(self, bytes: &mut Vec<u8>) {
        let len = self.upper_len();
        if self.version == Version::V6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([self.ip_proto(), 64]);
            bytes.extend([[0xfd, 1], [0xfd, 2]].map(|[a, b]| [a, 0, 0, 0, 0, 0, 0, b]).concat());
            bytes.extend([[0xfd, 3], [0xfd, 4]].map(|[a, b]| [a, 0, 0, 0, 0, 0, 0, b]).concat());
            return;
        }
        bytes.extend([0x08, 0x00]);
        let at = bytes.len();
        bytes.extend([0x45, 0]);
        bytes.extend((len + 20).to_be_bytes());
        bytes.extend([0x12, 0x34, 0x40, 0, 64, self.ip_proto(), 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = Sum::of(&bytes[at..]).checksum();
        write_u16(bytes, at + ipv4::field::CHECKSUM, checksum);
    }

    /// Appends the TCP or UDP header without a checksum.
    fn push_transport(self, source_port: u16, bytes: &mut Vec<u8>) {
        bytes.extend(source_port.to_be_bytes());
        bytes.extend([0x14, 0x51]);
        match self.protocol {
            Protocol::Tcp => {
                bytes.extend([0, 0, 0x10, 0, 0, 0, 0x20, 0, 0x80, 0x10, 1, 0xf5, 0, 0, 0, 0]);
                bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
            }
            Protocol::Udp => {
                bytes.extend(self.upper_len().to_be_bytes());
                bytes.extend([0, 0]);
            }
        }
    }

    fn pseudo_header(self, ip: &[u8]) -> Sum {
        let (len, protocol) = (self.upper_len(), self.ip_proto());
        match self.version {
            Version::V4 => pseudo_header_v4(&ip[12..16], &ip[16..20], protocol, len),
            Version::V6 => pseudo_header_v6(&ip[8..24], &ip[24..40], protocol, u32::from(len)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.protocol == Protocol::Tcp { "TCP" } else { "UDP" };
        let version = if self.version == Version::V4 { "IPv4" } else { "IPv6" };
        write!(f, "{protocol}, {version}, {} tags", self.tags)
    }
}

/// Narrows a length that was chosen here.
#[expect(clippy::cast_possible_truncation, reason = "less than 64 KiB, all of them")]
fn to_u16(len: usize) -> u16 {
    len as u16
}

/// An S-tag and a C-tag, each with its TPID.
const TAGS: [u8; 8] = [0x88, 0xa8, 0, 200, 0x81, 0, 0, 100];
/// Packets of a train, as many as fit an IP packet.
pub(super) const SEGMENTS: u32 = 45;
/// Payload of each packet in bytes.
pub(super) const SEGMENT_LEN: usize = 1448;
/// Payload of a train in bytes.
pub(super) const PAYLOAD_LEN: usize = SEGMENTS as usize * SEGMENT_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_offload::{Segments, Verdict, verify};

    #[test]
    fn trains_become_packets_that_another_parser_and_ours_find_right() {
        for kind in Kind::all() {
            let train = kind.train(1000);
            let mut segments = Segments::new(&train.meta, &train.bytes, &[]).unwrap();
            let mut count = 0;
            let mut headers = [0; 128];
            while let Some(segment) = segments.next(&mut headers) {
                let packet = [&headers[..segment.headers_len], &segment.payload.concat()].concat();
                let parsed = etherparse::SlicedPacket::from_ethernet(&packet).unwrap();
                assert_eq!(parsed.link_exts.len(), kind.tags, "{kind}");
                assert_eq!(segment.headers_len, train.headers_len, "{kind}");
                assert_eq!(verify(&packet, &[]).transport, Verdict::Valid, "{kind}");
                count += 1;
            }
            assert_eq!(count, SEGMENTS, "{kind}");
        }
    }
}
