//! The virtio network header: the offload metadata that travels with each frame
//! (virtio 1.2 §5.1.6, Linux `include/uapi/linux/virtio_net.h`).
//!
//! A tap with `IFF_VNET_HDR`, an `AF_PACKET` socket with `PACKET_VNET_HDR` and a virtio queue all
//! place this header before a frame. It describes deferred work: a checksum to complete
//! (`csum_start`, `csum_offset`) and a train to segment (`gso_type`, `gso_size`).

use std::fmt;

use crate::ethernet::HEADER_LEN as ETHERNET_LEN;
use crate::{ipv4, udp};

/// Length in bytes of the header with `num_buffers`, the size used by virtio 1.x.
pub const NET_HEADER_LEN: usize = 12;

/// Flag bits of [`NetHeader::flags`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetHeaderFlags;

impl NetHeaderFlags {
    /// The checksum is partial: complete it from `csum_start` on.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum was verified before delivery.
    pub const DATA_VALID: u8 = 2;
    /// The outer UDP checksum of a tunnelled train must be completed as well (Linux 6.17).
    pub const UDP_TUNNEL_CSUM: u8 = 8;
}

/// Type of a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct GsoType(pub u8);

impl GsoType {
    /// One packet, no train.
    pub const NONE: Self = Self(0);
    /// TCP over IPv4 (TSO).
    pub const TCPV4: Self = Self(1);
    /// UDP to be split into IP fragments (UFO, legacy).
    pub const UDP: Self = Self(3);
    /// TCP over IPv6 (TSO).
    pub const TCPV6: Self = Self(4);
    /// UDP datagrams of equal length (USO), Linux 6.2.
    pub const UDP_L4: Self = Self(5);
    /// Additional bit: the TCP train has CWR on its first segment only (RFC 3168 §6.1.2). A train
    /// with CWR and without this bit has it on all segments (RFC 9768 §3.2.2).
    pub const ECN: u8 = 0x80;
    /// Additional bit: the train is inside a UDP tunnel over IPv4 (Linux 6.17).
    pub const UDP_TUNNEL_IPV4: u8 = 0x20;
    /// Additional bit: the train is inside a UDP tunnel over IPv6 (Linux 6.17).
    pub const UDP_TUNNEL_IPV6: u8 = 0x40;
    /// Both tunnel bits; a train has at most one of them.
    pub const UDP_TUNNEL: u8 = Self::UDP_TUNNEL_IPV4 | Self::UDP_TUNNEL_IPV6;

    /// The type without the ECN bit.
    #[inline]
    pub const fn kind(self) -> Self {
        Self(self.0 & !Self::ECN)
    }

    /// True when the ECN bit is set.
    #[inline]
    pub const fn has_ecn(self) -> bool {
        self.0 & Self::ECN != 0
    }

    /// The tunnel bits; zero if there is no tunnel.
    #[inline]
    pub const fn tunnel(self) -> u8 {
        self.0 & Self::UDP_TUNNEL
    }

    /// The type without the tunnel bits.
    #[inline]
    pub const fn inner(self) -> Self {
        Self(self.0 & !Self::UDP_TUNNEL)
    }
}

/// The offload metadata of one frame. All offsets and lengths are in bytes from the start of the
/// frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// [`NetHeaderFlags`].
    pub flags: u8,
    /// Type of the train.
    pub gso_type: GsoType,
    /// Length of all headers; a hint that is often wrong, so parse the headers instead.
    pub hdr_len: u16,
    /// Payload bytes of each packet of the train.
    pub gso_size: u16,
    /// Start of the data that the checksum covers.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
}

impl NetHeader {
    /// Maximum number of packets of a train: the largest IP packet in the smallest packets of Linux
    /// (`TCP_MIN_GSO_SIZE`, 8 bytes). With packets of one byte, one frame would become
    /// 65,000 packets.
    pub const PACKETS_MAX: usize = 8192;

    /// A frame without deferred work.
    pub const PLAIN: Self = Self {
        flags: 0,
        gso_type: GsoType::NONE,
        hdr_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
    };

    /// Decodes the header in native byte order, which is the default of Linux (see
    /// `TUNSETVNETLE`/`TUNSETVNETBE`). `num_buffers` is ignored.
    ///
    /// It is read and written as two words. Data written field by field and read by words
    /// immediately afterwards cannot be forwarded from the store buffer, and stalls until all
    /// earlier stores have reached the cache.
    #[inline]
    pub fn decode(bytes: &[u8; NET_HEADER_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let start = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let [flags, gso_type, h0, h1, g0, g1, s0, s1] = start.to_ne_bytes();
        let [o0, o1, ..] = u32::from_ne_bytes(rest).to_ne_bytes();
        Self {
            flags,
            gso_type: GsoType(gso_type),
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// Encodes the header in native byte order, with `num_buffers` zero.
    #[inline]
    pub fn encode(&self) -> [u8; NET_HEADER_LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        let start = [self.flags, self.gso_type.0, h0, h1, g0, g1, s0, s1];
        let [a, b, c, d, e, f, g, h] = u64::from_ne_bytes(start).to_ne_bytes();
        let [i, j, k, l] = u32::from_ne_bytes([o0, o1, 0, 0]).to_ne_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// True when the checksum is partial.
    #[inline]
    pub const fn needs_checksum(&self) -> bool {
        self.flags & NetHeaderFlags::NEEDS_CSUM != 0
    }

    /// True if the frame is a train, many wire packets long.
    #[inline]
    pub const fn is_train(&self) -> bool {
        self.gso_type.0 != GsoType::NONE.0
    }

    /// Adjusts the offsets after bytes were inserted into (positive) or removed from (negative) the
    /// link-layer header. Zero offsets stay zero: they mean "not set".
    #[inline]
    pub fn shift(&mut self, delta: i16) {
        if self.needs_checksum() {
            self.csum_start = self.csum_start.saturating_add_signed(delta);
        }
        if self.hdr_len != 0 {
            self.hdr_len = self.hdr_len.saturating_add_signed(delta);
        }
    }

    /// Number of packets on the wire of a train with `payload_len` bytes after its headers; at
    /// least 1.
    #[inline]
    pub fn wire_packets(&self, payload_len: usize) -> u32 {
        if !self.is_train() || self.gso_size == 0 {
            return 1;
        }
        // The first IP fragment carries the UDP header as part of its payload.
        let is_fragmented = self.gso_type.kind() == GsoType::UDP;
        let carried = payload_len + if is_fragmented { udp::HEADER_LEN } else { 0 };
        u32::try_from(carried.div_ceil(usize::from(self.gso_size)).max(1)).unwrap_or(u32::MAX)
    }

    /// Checks what must hold before the metadata is used, for a frame of `frame_len` bytes. Whether
    /// it fits the frame's headers has to be checked after parsing them.
    #[inline]
    pub fn check(&self, frame_len: usize) -> Result<(), MetadataError> {
        if self.needs_checksum() {
            let start = usize::from(self.csum_start);
            let field_end = start + usize::from(self.csum_offset) + 2;
            if start < ETHERNET_LEN || field_end > frame_len {
                return Err(MetadataError::Checksum);
            }
        }
        if self.is_train() {
            let known = matches!(
                self.gso_type.kind(),
                GsoType::TCPV4 | GsoType::TCPV6 | GsoType::UDP | GsoType::UDP_L4
            );
            if !known {
                return Err(MetadataError::GsoType);
            }
            let longest = HEADERS_LEN_MIN + usize::from(self.gso_size) * Self::PACKETS_MAX;
            if self.gso_size == 0 || frame_len > longest {
                return Err(MetadataError::GsoSize);
            }
        }
        Ok(())
    }
}

/// Why the metadata of a frame is invalid. The sender is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataError {
    /// The checksum is outside the frame, or inside the Ethernet header.
    Checksum,
    /// The type of train is not defined in virtio 1.2.
    GsoType,
    /// A train whose packets have no payload, or so little that there are more than
    /// [`NetHeader::PACKETS_MAX`].
    GsoSize,
    /// A tunnelled train whose headers are out of order, or a tunnel without a train.
    Tunnel,
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checksum => "partial checksum outside the frame",
            Self::GsoType => "unknown kind of train",
            Self::GsoSize => "train of packets without payload, or of more than 8192 packets",
            Self::Tunnel => "headers of a tunnelled train out of order",
        })
    }
}

impl std::error::Error for MetadataError {}

/// Minimum length of the headers of a train in bytes, UDP over IPv4; the rest is at most payload.
const HEADERS_LEN_MIN: usize = ETHERNET_LEN + ipv4::MIN_HEADER_LEN + udp::HEADER_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    fn train() -> NetHeader {
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            gso_type: GsoType::TCPV4,
            hdr_len: 66,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        }
    }

    #[test]
    fn bytes_survive_a_round_trip() {
        assert_eq!(NetHeader::decode(&train().encode()), train());
        assert_eq!(NetHeader::decode(&[0; NET_HEADER_LEN]), NetHeader::PLAIN);
    }

    #[test]
    fn offsets_move_with_the_tags() {
        let mut header = train();
        header.shift(4);
        assert_eq!((header.csum_start, header.hdr_len), (38, 70));
        header.shift(-4);
        assert_eq!(header, train());
        let mut plain = NetHeader::PLAIN;
        plain.shift(4);
        assert_eq!(plain, NetHeader::PLAIN);
    }

    #[test]
    fn a_train_counts_its_packets() {
        assert_eq!(train().wire_packets(1448 * 3), 3);
        assert_eq!(train().wire_packets(1448 * 3 + 1), 4);
        assert_eq!(train().wire_packets(0), 1);
        assert_eq!(NetHeader::PLAIN.wire_packets(1500), 1);
        let datagram = NetHeader { gso_type: GsoType::UDP, ..train() };
        assert_eq!((datagram.wire_packets(1440), datagram.wire_packets(1441)), (1, 2));
    }

    #[test]
    fn lying_metadata_is_refused() {
        assert_eq!(train().check(1514), Ok(()));
        assert_eq!(train().check(51), Err(MetadataError::Checksum));
        // CVE-2024-11614: a checksum that starts after the frame.
        for csum_start in [1512, 1514, 1515, u16::MAX] {
            let header = NetHeader { csum_start, csum_offset: 1, ..train() };
            assert_eq!(header.check(1514), Err(MetadataError::Checksum), "{csum_start}");
        }
        assert_eq!(
            NetHeader { csum_start: 6, ..train() }.check(1514),
            Err(MetadataError::Checksum)
        );
        assert_eq!(
            NetHeader { csum_offset: u16::MAX, ..train() }.check(70_000),
            Ok(()),
            "a field inside the frame is for the parser to judge"
        );
        assert_eq!(
            NetHeader { gso_type: GsoType(2), ..train() }.check(1514),
            Err(MetadataError::GsoType)
        );
        assert_eq!(NetHeader { gso_size: 0, ..train() }.check(1514), Err(MetadataError::GsoSize));
    }

    #[test]
    fn a_train_of_more_packets_than_anybody_makes_is_refused() {
        let checked = |gso_size, len| NetHeader { gso_size, ..train() }.check(len);
        // The longest IP packet with a tag, in the smallest packets of Linux.
        assert_eq!(checked(8, 65_535 + 18), Ok(()));
        for gso_size in [1, 2, 7] {
            assert_eq!(checked(gso_size, 65_535 + 18), Err(MetadataError::GsoSize), "{gso_size}");
        }
        assert_eq!((checked(1, 8192 + 42), checked(128, 1 << 20)), (Ok(()), Ok(())));
        assert_eq!(checked(1, 8192 + 43), Err(MetadataError::GsoSize));
        let packet = NetHeader { gso_type: GsoType::NONE, gso_size: 0, ..train() };
        assert_eq!(packet.check(65_549), Ok(()), "no train");
    }
}
