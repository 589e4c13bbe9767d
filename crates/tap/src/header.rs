//! Metadata before each frame: protocol information, then a virtio network header.

use std::fmt;

use tapswitch_wire::EtherType;

/// Length of the virtio network header before each frame (virtio 1.2 §5.1.6, `TUNSETVNETHDRSZ`).
/// Linux accepts any length from 10 bytes on; these are the defined ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderLen {
    /// No header (no `IFF_VNET_HDR`): every frame is complete, and at most an MTU long.
    None,
    /// 10 bytes, `struct virtio_net_hdr`: used by virtio before 1.0, and the default of Linux.
    /// Misaligns the frame by 2 bytes.
    Legacy,
    /// 12 bytes, `struct virtio_net_hdr_v1`: [`NetHeader`](crate::NetHeader). The additional
    /// `num_buffers` is always zero.
    #[default]
    V1,
    /// 20 bytes, `struct virtio_net_hdr_v1_hash`: room for a hash, which Linux leaves zero.
    Hash,
    /// 24 bytes, `struct virtio_net_hdr_v1_hash_tunnel`: [`LongNetHeader`](crate::LongNetHeader).
    /// Needed for trains inside UDP tunnels (Linux 6.17).
    Tunnel,
}

impl HeaderLen {
    /// All lengths, shortest first.
    pub const ALL: [Self; 5] = [Self::None, Self::Legacy, Self::V1, Self::Hash, Self::Tunnel];

    /// The length in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Legacy => 10,
            Self::V1 => 12,
            Self::Hash => 20,
            Self::Tunnel => 24,
        }
    }

    /// The variant of `len` bytes, or `None` if there is none.
    #[must_use]
    pub fn from_bytes(len: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.bytes() == len)
    }
}

/// The metadata before a frame in a buffer: `[protocol information][network header][frame]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Whether it starts with the four bytes of [`PacketInfo`].
    pub packet_info: bool,
    /// Length of the network header.
    pub net_header: HeaderLen,
}

impl Prefix {
    /// Offset of the network header in bytes.
    #[must_use]
    pub const fn net_header_offset(self) -> usize {
        if self.packet_info { PacketInfo::LEN } else { 0 }
    }

    /// Total length in bytes: the offset of the frame.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length in bytes, not of a collection")]
    pub const fn len(self) -> usize {
        self.net_header_offset() + self.net_header.bytes()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info =
            if self.packet_info { "protocol information" } else { "no protocol information" };
        match self.net_header.bytes() {
            0 => write!(f, "{info} and no network header"),
            len => write!(f, "{info} and a network header of {len} bytes"),
        }
    }
}

/// Protocol information before each frame without `IFF_NO_PI` (`struct tun_pi`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// On reception: the buffer was too short and the frame is truncated (`TUN_PKT_STRIP`). Linux
    /// ignores the flags of sent frames.
    pub cut: bool,
    /// Protocol of the packet. Required when sending to a tun device; a tap device uses that of the
    /// frame instead.
    pub protocol: EtherType,
}

impl PacketInfo {
    /// Length in bytes.
    pub const LEN: usize = 4;
    const CUT: u16 = 1;

    /// Decodes it. The flags are in native byte order, the protocol in network byte order.
    #[must_use]
    pub const fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let [f0, f1, p0, p1] = *bytes;
        Self {
            cut: u16::from_ne_bytes([f0, f1]) & Self::CUT != 0,
            protocol: EtherType(u16::from_be_bytes([p0, p1])),
        }
    }

    /// Encodes it.
    #[must_use]
    pub const fn encode(self) -> [u8; Self::LEN] {
        let [f0, f1] = if self.cut { Self::CUT } else { 0 }.to_ne_bytes();
        let [p0, p1] = self.protocol.0.to_be_bytes();
        [f0, f1, p0, p1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_and_its_bytes_are_two_names_of_one() {
        for len in HeaderLen::ALL {
            assert_eq!(HeaderLen::from_bytes(len.bytes()), Some(len));
        }
        assert_eq!(HeaderLen::from_bytes(11), None);
    }

    #[test]
    fn protocol_information_comes_first() {
        let prefix = Prefix { packet_info: true, net_header: HeaderLen::Tunnel };
        assert_eq!((prefix.net_header_offset(), prefix.len()), (4, 28));
        let plain = Prefix { packet_info: false, net_header: HeaderLen::None };
        assert_eq!((plain.net_header_offset(), plain.len()), (0, 0));
    }

    #[test]
    fn protocol_information_survives_a_round_trip() {
        for cut in [false, true] {
            let info = PacketInfo { cut, protocol: EtherType::IPV6 };
            assert_eq!(PacketInfo::decode(&info.encode()), info);
        }
        assert_eq!(PacketInfo { cut: false, protocol: EtherType::IPV4 }.encode(), [0, 0, 8, 0]);
    }
}
