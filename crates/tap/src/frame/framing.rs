//! What lies in front of a frame in one read(2) or write(2) of a queue.
//!
//! In this order: `struct tun_pi` (flags and protocol, 4 bytes) unless `IFF_NO_PI`, then with
//! `IFF_VNET_HDR` a header of as many bytes as `TUNSETVNETHDRSZ` says. Linux knows 10 (no
//! `num_buffers`), 12 (virtio 1.0), 20 (with a hash) and 24 (with the offsets of a tunnel).
//!
//! In a burst the header has at least 12 bytes, so that any frame can be given metadata. A queue
//! whose header is shorter costs a few moves per frame when it receives.

use std::ops::Range;

use tapswitch_wire::{NET_HEADER_LEN, NetHeader, write_u16};

/// Length in bytes of `struct tun_pi`.
const PACKET_INFO_LEN: usize = 4;

/// Length in bytes of the longest prefix that a burst keeps: protocol information, and the header
/// with hash and tunnel.
pub(crate) const MAX_PREFIX_LEN: usize = PACKET_INFO_LEN + 24;

/// The layout of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    packet_info: bool,
    header_len: u8,
}

impl Framing {
    /// The header of [`NET_HEADER_LEN`] bytes alone, which is what devices are made with.
    pub(crate) const NET_HEADER: Self = Self { packet_info: false, header_len: 12 };

    /// `header_len` bytes of header: 0, 10, 12, 20 or 24.
    #[allow(dead_code, reason = "queues that tell their header's length come with the next step")]
    pub(crate) const fn new(packet_info: bool, header_len: u8) -> Self {
        Self { packet_info, header_len }
    }

    /// Length of the prefix in bytes.
    #[inline]
    pub(crate) const fn prefix_len(self) -> usize {
        self.header_at() + self.header_len as usize
    }

    /// The layout in which a burst keeps frames that were read with this one.
    #[inline]
    pub(crate) const fn in_burst(self) -> Self {
        if self.header_len as usize >= NET_HEADER_LEN { self } else { self.with_net_header() }
    }

    const fn with_net_header(self) -> Self {
        Self { packet_info: self.packet_info, ..Self::NET_HEADER }
    }

    /// Turns a prefix of this layout, which ends where `room` ends, into that of
    /// [`Self::in_burst`], which ends there too.
    #[cold]
    pub(crate) fn expand(self, room: &mut [u8]) {
        let Some(read_at) = room.len().checked_sub(self.prefix_len()) else { return };
        let mut prefix = [0; MAX_PREFIX_LEN];
        prefix[..self.prefix_len()].copy_from_slice(&room[read_at..]);
        let expanded_len = self.in_burst().prefix_len();
        if let Some(keep_at) = room.len().checked_sub(expanded_len) {
            room[keep_at..].copy_from_slice(&prefix[..expanded_len]);
        }
    }

    /// The header of `packet`, which begins with a prefix of this layout.
    #[inline]
    pub(crate) fn header(self, packet: &[u8]) -> NetHeader {
        let header = packet.get(self.header_at()..).and_then(<[u8]>::first_chunk);
        header.map_or(NetHeader::PLAIN, NetHeader::decode)
    }

    /// Writes the header of `packet`, which begins with a prefix of this layout.
    #[inline]
    pub(crate) fn set_header(self, packet: &mut [u8], header: &NetHeader) {
        let place = packet.get_mut(self.header_at()..).and_then(<[u8]>::first_chunk_mut);
        if let Some(place) = place {
            *place = header.encode();
        }
    }

    /// Where the header lies in a packet.
    pub(crate) const fn header_range(self) -> Range<usize> {
        self.header_at()..self.prefix_len()
    }

    /// The protocol that the protocol information names.
    pub(crate) fn protocol(self, packet: &[u8]) -> Option<u16> {
        match packet {
            [_, _, high, low, ..] if self.packet_info => Some(u16::from_be_bytes([*high, *low])),
            _ => None,
        }
    }

    /// A prefix of this layout for a frame that came without one, or with another. `None` when the
    /// layout has no header and `header` leaves something undone.
    pub(crate) fn prefix(self, header: &NetHeader, protocol: u16) -> Option<PrefixBytes> {
        let mut bytes = [0; MAX_PREFIX_LEN];
        if self.header_len == 0 && (header.needs_checksum() || header.is_train()) {
            return None;
        }
        if self.packet_info {
            write_u16(&mut bytes, 2, protocol);
        }
        // Behind a shorter header this writes zeros that are not looked at.
        self.set_header(&mut bytes, header);
        Some(PrefixBytes { bytes, len: self.prefix_len() })
    }

    #[inline]
    const fn header_at(self) -> usize {
        if self.packet_info { PACKET_INFO_LEN } else { 0 }
    }
}

/// A prefix by itself.
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

    const TRAIN: NetHeader = NetHeader {
        flags: 1,
        gso_type: GsoType::TCPV4,
        hdr_len: 66,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
    };

    #[test]
    fn a_burst_keeps_the_same_metadata_whatever_the_prefix_was() {
        for packet_info in [false, true] {
            for header_len in [10, 12, 20, 24] {
                let framing = Framing::new(packet_info, header_len);
                let prefix = framing.prefix(&TRAIN, 0x86dd).unwrap();
                let mut room = [0xee; 40];
                let at = room.len() - prefix.bytes().len();
                room[at..].copy_from_slice(prefix.bytes());
                let kept = framing.in_burst();
                if kept != framing {
                    framing.expand(&mut room);
                }
                let packet = &room[room.len() - kept.prefix_len()..];
                assert_eq!(kept.header(packet), TRAIN, "{framing:?}");
                assert_eq!(kept.protocol(packet), packet_info.then_some(0x86dd), "{framing:?}");
            }
        }
    }

    #[test]
    fn a_queue_without_header_gives_plain_frames_and_takes_no_others() {
        let framing = Framing::new(true, 0);
        let mut room = [0xee; 40];
        room[36..].copy_from_slice(&[0, 0, 8, 0]);
        framing.expand(&mut room);
        let packet = &room[40 - 16..];
        assert_eq!(framing.in_burst().header(packet), NetHeader::PLAIN);
        assert_eq!(framing.in_burst().protocol(packet), Some(0x800));
        assert!(framing.prefix(&TRAIN, 0x800).is_none());
        assert_eq!(framing.prefix(&NetHeader::PLAIN, 0x800).unwrap().bytes(), [0, 0, 8, 0]);
    }
}
