//! Features of a network device and their negotiation (virtio 1.2 §5.1.3, §6).

use bitflags::bitflags;

bitflags! {
    /// The feature bits that we know.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u64 {
        /// We take partial checksums from the guest (`VIRTIO_NET_F_CSUM`).
        const CSUM = 1 << 0;
        /// The guest takes partial checksums from us (`VIRTIO_NET_F_GUEST_CSUM`).
        const GUEST_CSUM = 1 << 1;
        /// The guest can change its offloads while it runs (`VIRTIO_NET_F_CTRL_GUEST_OFFLOADS`).
        const CTRL_GUEST_OFFLOADS = 1 << 2;
        /// The guest takes TCP trains over IPv4 (`VIRTIO_NET_F_GUEST_TSO4`).
        const GUEST_TSO4 = 1 << 7;
        /// The guest takes TCP trains over IPv6 (`VIRTIO_NET_F_GUEST_TSO6`).
        const GUEST_TSO6 = 1 << 8;
        /// The guest takes TCP trains with CWR on the first segment only
        /// (`VIRTIO_NET_F_GUEST_ECN`).
        const GUEST_ECN = 1 << 9;
        /// We take TCP trains over IPv4 from the guest (`VIRTIO_NET_F_HOST_TSO4`).
        const HOST_TSO4 = 1 << 11;
        /// We take TCP trains over IPv6 from the guest (`VIRTIO_NET_F_HOST_TSO6`).
        const HOST_TSO6 = 1 << 12;
        /// We take TCP trains with CWR on the first segment only (`VIRTIO_NET_F_HOST_ECN`).
        const HOST_ECN = 1 << 13;
        /// A frame may span several of the guest's buffers (`VIRTIO_NET_F_MRG_RXBUF`).
        const MRG_RXBUF = 1 << 15;
        /// The VMM serves a control queue (`VIRTIO_NET_F_CTRL_VQ`).
        const CTRL_VQ = 1 << 17;
        /// The guest can announce its location to neighbours after a migration
        /// (`VIRTIO_NET_F_GUEST_ANNOUNCE`).
        const GUEST_ANNOUNCE = 1 << 21;
        /// Several queue pairs (`VIRTIO_NET_F_MQ`).
        const MQ = 1 << 22;
        /// A bit of vhost, not virtio: pages that we write are logged during a migration
        /// (`VHOST_F_LOG_ALL`).
        const LOG_ALL = 1 << 26;
        /// The driver may lay out buffers in any way (`VIRTIO_F_ANY_LAYOUT`, legacy; always true
        /// since virtio 1.0).
        const ANY_LAYOUT = 1 << 27;
        /// Indirect descriptor tables (`VIRTIO_F_INDIRECT_DESC`).
        const INDIRECT_DESC = 1 << 28;
        /// Notifications by index (`VIRTIO_F_EVENT_IDX`).
        const EVENT_IDX = 1 << 29;
        /// A bit of vhost-user, not virtio: there are protocol features
        /// (`VHOST_USER_F_PROTOCOL_FEATURES`).
        const PROTOCOL_FEATURES = 1 << 30;
        /// virtio 1.0 or later (`VIRTIO_F_VERSION_1`).
        const VERSION_1 = 1 << 32;
        /// Packed rings (`VIRTIO_F_RING_PACKED`).
        const RING_PACKED = 1 << 34;
        /// Buffers are used in the order in which they were made available (`VIRTIO_F_IN_ORDER`).
        const IN_ORDER = 1 << 35;
        /// The guest takes UDP trains over IPv4 (`VIRTIO_NET_F_GUEST_USO4`).
        const GUEST_USO4 = 1 << 54;
        /// The guest takes UDP trains over IPv6 (`VIRTIO_NET_F_GUEST_USO6`).
        const GUEST_USO6 = 1 << 55;
        /// We take UDP trains from the guest (`VIRTIO_NET_F_HOST_USO`).
        const HOST_USO = 1 << 56;
    }
}

impl Features {
    /// The features offered by default: all that we know.
    pub const OFFERED: Self = Self::all();

    /// The features offered if frames must be whole packets with complete checksums, in both
    /// directions.
    pub const fn without_offloads() -> Self {
        let checksums = Self::CSUM.union(Self::GUEST_CSUM).union(Self::CTRL_GUEST_OFFLOADS);
        let sent = Self::HOST_TSO4.union(Self::HOST_TSO6).union(Self::HOST_ECN);
        let received = Self::GUEST_TSO4.union(Self::GUEST_TSO6).union(Self::GUEST_ECN);
        let uso = Self::HOST_USO.union(Self::GUEST_USO4).union(Self::GUEST_USO6);
        Self::OFFERED.difference(checksums.union(sent).union(received).union(uso))
    }

    /// Length in bytes of the network header in front of each frame (virtio 1.2 §5.1.6): 12, or 10
    /// for a legacy driver without mergeable buffers.
    #[inline]
    pub fn header_len(self) -> usize {
        if self.intersects(Self::VERSION_1.union(Self::MRG_RXBUF)) { NET_HEADER_LEN } else { 10 }
    }

    /// The features that concern rings.
    pub fn ring(self) -> RingFeatures {
        RingFeatures {
            packed: self.contains(Self::RING_PACKED),
            event_index: self.contains(Self::EVENT_IDX),
            indirect: self.contains(Self::INDIRECT_DESC),
        }
    }
}

/// Negotiated features that concern rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingFeatures {
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// `VIRTIO_F_RING_EVENT_IDX`.
    pub event_index: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

/// Length in bytes of the network header with `num_buffers`.
pub const NET_HEADER_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_ten_bytes_for_the_oldest_drivers_only() {
        assert_eq!(Features::empty().header_len(), 10);
        assert_eq!(Features::MRG_RXBUF.header_len(), 12);
        assert_eq!(Features::VERSION_1.header_len(), 12);
    }
}
