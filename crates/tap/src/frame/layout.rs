//! Layout of a [`Prefix`] before a frame, in a queue and in a burst.
//!
//! In a burst the header has at least 12 bytes, so that any frame can have metadata. A queue with a
//! shorter header costs a few moves per received frame, and a second part per sent frame.

use std::ops::Range;

use tapswitch_wire::{EtherType, LongNetHeader, NetHeader};

use crate::{HeaderLen, PacketInfo, Prefix};

/// Length in bytes of the longest prefix.
pub(crate) const MAX_PREFIX_LEN: usize = PacketInfo::LEN + LongNetHeader::LEN;

impl Prefix {
    /// A [`NetHeader`] alone, the default of a device.
    pub(crate) const NET_HEADER: Self = Self { packet_info: false, net_header: HeaderLen::V1 };

    /// The layout in a burst of frames read with this layout.
    #[inline]
    pub(crate) const fn in_burst(self) -> Self {
        match self.net_header {
            HeaderLen::None | HeaderLen::Legacy => Self { net_header: HeaderLen::V1, ..self },
            HeaderLen::V1 | HeaderLen::Hash | HeaderLen::Tunnel => self,
        }
    }

    /// Converts a prefix of this layout at the end of `room` to the layout of [`Self::in_burst`],
    /// also at the end of `room`.
    #[cold]
    pub(crate) fn expand(self, room: &mut [u8]) {
        let (len, expanded_len) = (self.len(), self.in_burst().len());
        let mut bytes = [0; MAX_PREFIX_LEN];
        if let Some(read) = room.last_chunk_mut::<MAX_PREFIX_LEN>() {
            bytes[..len].copy_from_slice(&read[MAX_PREFIX_LEN - len..]);
            read[MAX_PREFIX_LEN - expanded_len..].copy_from_slice(&bytes[..expanded_len]);
        }
    }

    /// The header of `packet`, which starts with a prefix of this layout.
    #[inline]
    pub(crate) fn header(self, packet: &[u8]) -> NetHeader {
        let header = packet.get(self.net_header_offset()..).and_then(<[u8]>::first_chunk);
        header.map_or(NetHeader::PLAIN, NetHeader::decode)
    }

    /// Writes the header of `packet`, which starts with a prefix of this layout.
    #[inline]
    pub(crate) fn set_header(self, packet: &mut [u8], header: &NetHeader) {
        let at = self.net_header_offset();
        if let Some(place) = packet.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = header.encode();
        }
    }

    /// Range of the header in a packet.
    pub(crate) const fn header_range(self) -> Range<usize> {
        self.net_header_offset()..self.len()
    }

    /// The protocol information of `packet`, which starts with a prefix of this layout.
    pub(crate) fn packet_info_of(self, packet: &[u8]) -> Option<PacketInfo> {
        if self.packet_info { packet.first_chunk().map(PacketInfo::decode) } else { None }
    }

    /// Writes the protocol information of `packet`, which starts with a prefix of this layout.
    pub(crate) fn set_packet_info(self, packet: &mut [u8], info: PacketInfo) {
        if let Some(place) = packet.first_chunk_mut().filter(|_| self.packet_info) {
            *place = info.encode();
        }
    }

    /// Creates a prefix of this layout for a frame without one or with another. `None` if the
    /// layout has no header and `header` requires offloads.
    pub(crate) fn encode(self, header: &LongNetHeader, protocol: EtherType) -> Option<PrefixBytes> {
        if self.net_header == HeaderLen::None
            && (header.base.needs_checksum() || header.base.is_train())
        {
            return None;
        }
        let mut bytes = [0; MAX_PREFIX_LEN];
        let info = PacketInfo { cut: false, protocol };
        bytes[..PacketInfo::LEN].copy_from_slice(&info.encode());
        // A shorter header uses the first bytes; the rest is not sent.
        let at = self.net_header_offset();
        bytes[at..at + LongNetHeader::LEN].copy_from_slice(&header.encode());
        Some(PrefixBytes { bytes, len: self.len() })
    }
}

/// The protocol of an IP packet by its version, or 0: the default of protocol information. The
/// kernel ignores it on a tap device.
pub(crate) fn protocol_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> EtherType {
    let first = parts.into_iter().find_map(|part| part.first());
    match first.map(|byte| byte >> 4) {
        Some(4) => EtherType::IPV4,
        Some(6) => EtherType::IPV6,
        _ => EtherType(0),
    }
}

/// A separate prefix.
pub(crate) struct PrefixBytes {
    bytes: [u8; MAX_PREFIX_LEN],
    len: usize,
}

impl PrefixBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_wire::GsoType;

    use super::*;

    const TRAIN: LongNetHeader = LongNetHeader {
        base: NetHeader {
            flags: 1,
            gso_type: GsoType::TCPV4,
            hdr_len: 66,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        },
        hash_value: 0,
        hash_report: 0,
        outer_transport: 0,
        inner_network: 0,
    };

    #[test]
    fn a_burst_keeps_the_same_metadata_whatever_the_prefix_was() {
        for packet_info in [false, true] {
            for net_header in &HeaderLen::ALL[1..] {
                let layout = Prefix { packet_info, net_header: *net_header };
                let prefix = layout.encode(&TRAIN, EtherType::IPV6).unwrap();
                let mut room = [0xee; 40];
                let at = room.len() - prefix.bytes().len();
                room[at..].copy_from_slice(prefix.bytes());
                let kept = layout.in_burst();
                if kept != layout {
                    layout.expand(&mut room);
                }
                let packet = &room[room.len() - kept.len()..];
                assert_eq!(kept.header(packet), TRAIN.base, "{layout:?}");
                let protocol = kept.packet_info_of(packet).map(|info| info.protocol);
                assert_eq!(protocol, packet_info.then_some(EtherType::IPV6), "{layout:?}");
            }
        }
    }

    #[test]
    fn a_queue_without_header_gives_plain_frames_and_takes_no_others() {
        let layout = Prefix { packet_info: true, net_header: HeaderLen::None };
        let mut room = [0xee; 40];
        room[36..].copy_from_slice(&[0, 0, 8, 0]);
        layout.expand(&mut room);
        let (kept, packet) = (layout.in_burst(), &room[40 - 16..]);
        assert_eq!(kept.header(packet), NetHeader::PLAIN);
        assert_eq!(kept.packet_info_of(packet).unwrap().protocol, EtherType::IPV4);
        assert!(layout.encode(&TRAIN, EtherType::IPV4).is_none());
        let plain = layout.encode(&LongNetHeader::default(), EtherType::IPV4).unwrap();
        assert_eq!(plain.bytes(), [0, 0, 8, 0]);
    }
}
