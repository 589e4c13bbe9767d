//! The virtio network header with its later extensions: a hash, and the offsets of a tunnelled
//! train (virtio 1.2 §5.1.6.1; the latter in Linux `include/uapi/linux/virtio_net.h`, `struct
//! virtio_net_hdr_v1_hash_tunnel`).
//!
//! A tunnelled train ([`GsoType::UDP_TUNNEL_IPV4`], [`GsoType::UDP_TUNNEL_IPV6`]) is a TCP or UDP
//! train inside VXLAN or Geneve. `csum_start` points to the *inner* transport header.

use crate::net_header::{MetadataError, NET_HEADER_LEN, NetHeader};
use crate::{GsoType, ethernet, ipv4, ipv6, udp};

/// The metadata of one frame with a header of 10, 12, 20 or 24 bytes. Offsets are in bytes from the
/// start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongNetHeader {
    /// The first 12 bytes.
    pub base: NetHeader,
    /// Hash of the flow, if `hash_report` is set.
    pub hash_value: u32,
    /// Type of the hash (`VIRTIO_NET_HASH_REPORT_*`), zero for none.
    pub hash_report: u16,
    /// Offset of the outer UDP header; zero unless the train is tunnelled.
    pub outer_transport: u16,
    /// Offset of the inner IP header; zero unless the train is tunnelled.
    pub inner_network: u16,
}

impl LongNetHeader {
    /// Length in bytes including the hash.
    pub const HASH_LEN: usize = 20;
    /// Length in bytes of the whole header.
    pub const LEN: usize = 24;
    /// Length in bytes of the shortest header, which lacks `num_buffers`.
    pub const LEGACY_LEN: usize = 10;

    /// Decodes a header of [`Self::LEGACY_LEN`] bytes or more; missing fields are zero. `None` if
    /// it is shorter.
    ///
    /// The hash and the offsets are little-endian on every machine, the rest as in
    /// [`NetHeader::decode`].
    #[must_use]
    pub fn decode(header: &[u8]) -> Option<Self> {
        if header.len() < Self::LEGACY_LEN {
            return None;
        }
        let mut bytes = [0; Self::LEN];
        let len = header.len().min(Self::LEN);
        bytes[..len].copy_from_slice(&header[..len]);
        let (base, rest) = bytes.split_first_chunk::<NET_HEADER_LEN>()?;
        let word = |at: usize| u16::from_le_bytes([rest[at], rest[at + 1]]);
        Some(Self {
            base: NetHeader::decode(base),
            hash_value: u32::from(word(2)) << 16 | u32::from(word(0)),
            hash_report: word(4),
            outer_transport: word(8),
            inner_network: word(10),
        })
    }

    /// Encodes the header; a shorter header is a prefix of it.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..NET_HEADER_LEN].copy_from_slice(&self.base.encode());
        bytes[12..16].copy_from_slice(&self.hash_value.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.hash_report.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.outer_transport.to_le_bytes());
        bytes[22..24].copy_from_slice(&self.inner_network.to_le_bytes());
        bytes
    }

    /// True if the frame is a train inside a UDP tunnel.
    #[must_use]
    pub const fn is_tunnelled(&self) -> bool {
        self.base.gso_type.tunnel() != 0
    }

    /// As [`NetHeader::shift`], including the offsets of a tunnelled train.
    #[inline]
    pub fn shift(&mut self, delta: i16) {
        self.base.shift(delta);
        for offset in [&mut self.outer_transport, &mut self.inner_network] {
            if *offset != 0 {
                *offset = offset.saturating_add_signed(delta);
            }
        }
    }

    /// As [`NetHeader::check`], including tunnelled trains: their offsets must be in order.
    ///
    /// # Errors
    /// [`MetadataError`].
    pub fn check(&self, frame_len: usize) -> Result<(), MetadataError> {
        let gso_type = self.base.gso_type;
        NetHeader { gso_type: gso_type.inner(), ..self.base }.check(frame_len)?;
        if !self.is_tunnelled() {
            return Ok(());
        }
        let ip_len = |is_ipv6: bool| if is_ipv6 { ipv6::HEADER_LEN } else { ipv4::MIN_HEADER_LEN };
        let outer_ipv6 = gso_type.tunnel() == GsoType::UDP_TUNNEL_IPV6;
        let (outer, inner) = (usize::from(self.outer_transport), usize::from(self.inner_network));
        let in_order = self.base.needs_checksum()
            && outer >= ethernet::HEADER_LEN + ip_len(outer_ipv6)
            && inner >= outer + udp::HEADER_LEN
            && usize::from(self.base.csum_start)
                >= inner + ip_len(gso_type.inner().kind() == GsoType::TCPV6);
        let known_inside =
            matches!(gso_type.inner().kind(), GsoType::TCPV4 | GsoType::TCPV6 | GsoType::UDP_L4);
        if in_order && known_inside && gso_type.tunnel() != GsoType::UDP_TUNNEL {
            return Ok(());
        }
        Err(MetadataError::Tunnel)
    }
}

impl From<NetHeader> for LongNetHeader {
    /// What a short header says.
    #[inline]
    fn from(base: NetHeader) -> Self {
        Self { base, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetHeaderFlags;

    /// A TCP train over IPv4 in VXLAN over IPv4.
    fn tunnelled() -> LongNetHeader {
        LongNetHeader {
            base: NetHeader {
                flags: NetHeaderFlags::NEEDS_CSUM,
                gso_type: GsoType(GsoType::TCPV4.0 | GsoType::UDP_TUNNEL_IPV4),
                hdr_len: 104,
                gso_size: 1398,
                csum_start: 84,
                csum_offset: 16,
            },
            hash_value: 0x1234_5678,
            hash_report: 2,
            outer_transport: 34,
            inner_network: 64,
        }
    }

    #[test]
    fn bytes_survive_a_round_trip() {
        let header = tunnelled();
        let bytes = header.encode();
        assert_eq!(LongNetHeader::decode(&bytes), Some(header));
        assert_eq!(bytes[12..], [0x78, 0x56, 0x34, 0x12, 2, 0, 0, 0, 34, 0, 64, 0]);
    }

    #[test]
    fn what_a_short_header_lacks_is_zero() {
        let header = tunnelled();
        let short = LongNetHeader { base: header.base, ..LongNetHeader::default() };
        for len in [10, 12] {
            assert_eq!(LongNetHeader::decode(&header.encode()[..len]), Some(short));
        }
        assert_eq!(LongNetHeader::decode(&header.encode()[..9]), None);
        let hashed = LongNetHeader::decode(&header.encode()[..LongNetHeader::HASH_LEN]).unwrap();
        assert_eq!((hashed.hash_value, hashed.outer_transport), (0x1234_5678, 0));
    }

    #[test]
    fn a_true_tunnel_passes() {
        assert_eq!(tunnelled().check(2000), Ok(()));
        assert!(tunnelled().is_tunnelled());
        let plain = LongNetHeader { base: NetHeader::PLAIN, ..LongNetHeader::default() };
        assert_eq!(plain.check(60), Ok(()));
    }

    #[test]
    fn lying_tunnels_are_refused() {
        let good = tunnelled();
        let with = |gso_type: u8| NetHeader { gso_type: GsoType(gso_type), ..good.base };
        for bad in [
            LongNetHeader { outer_transport: 33, ..good },
            LongNetHeader { inner_network: 41, ..good },
            LongNetHeader { inner_network: 65, ..good },
            LongNetHeader { base: NetHeader { flags: 0, ..good.base }, ..good },
            LongNetHeader { base: with(GsoType::TCPV4.0 | GsoType::UDP_TUNNEL), ..good },
            LongNetHeader { base: with(GsoType::UDP_TUNNEL_IPV4), ..good },
            LongNetHeader { base: with(GsoType::UDP.0 | GsoType::UDP_TUNNEL_IPV4), ..good },
        ] {
            assert_eq!(bad.check(2000), Err(MetadataError::Tunnel), "{bad:?}");
        }
    }
}
