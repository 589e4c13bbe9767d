//! Packet lengths of a train, computed without segmentation.

use tapswitch_wire::{GsoType, NetHeader, udp};

/// Length in bytes of the longest wire packet of a frame of `frame_len` bytes, of which
/// `headers_len` are headers. An MTU limits this, not the train's own length.
///
/// For a datagram that becomes fragments (UFO) this is exact with IPv4. IPv6 fragments have an
/// additional header ([`FRAGMENT_HEADER_LEN`]), which is not included.
#[inline]
pub fn segment_frame_len_max(meta: &NetHeader, headers_len: usize, frame_len: usize) -> usize {
    if meta.is_train() {
        let repeated = headers_len.saturating_sub(first_only_len(meta));
        frame_len.min(repeated.saturating_add(usize::from(meta.gso_size)))
    } else {
        frame_len
    }
}

/// Bytes of a frame on the wire, where each packet of a train repeats the headers.
/// [`NetHeader::wire_packets`] counts the packets. Headers of IPv6 fragments are not included.
#[inline]
pub fn wire_bytes(meta: &NetHeader, headers_len: usize, frame_len: usize) -> u64 {
    let packets = meta.wire_packets(frame_len.saturating_sub(headers_len));
    let repeated = headers_len.saturating_sub(first_only_len(meta));
    frame_len as u64 + (u64::from(packets) - 1) * repeated as u64
}

/// Bytes of the headers that only the first packet has: UDP for a fragmented datagram.
#[inline]
fn first_only_len(meta: &NetHeader) -> usize {
    if meta.gso_type.kind() == GsoType::UDP { udp::HEADER_LEN } else { 0 }
}

/// Length in bytes of the fragment header of IPv6 (RFC 8200 §4.5).
pub const FRAGMENT_HEADER_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIN: NetHeader =
        NetHeader { gso_type: GsoType::TCPV4, gso_size: 1448, ..NetHeader::PLAIN };

    #[test]
    fn a_train_is_as_long_as_its_longest_packet() {
        assert_eq!(segment_frame_len_max(&TRAIN, 66, 66 + 3 * 1448), 1514);
        assert_eq!(segment_frame_len_max(&TRAIN, 66, 66 + 100), 166);
        assert_eq!(segment_frame_len_max(&NetHeader::PLAIN, 66, 9000), 9000);
    }

    #[test]
    fn each_packet_repeats_the_headers() {
        assert_eq!(wire_bytes(&TRAIN, 66, 66 + 3 * 1448), 3 * 1514);
        assert_eq!(wire_bytes(&TRAIN, 66, 66 + 3 * 1448 + 1), 3 * 1514 + 66 + 1);
        assert_eq!(wire_bytes(&TRAIN, 66, 66), 66);
        assert_eq!(wire_bytes(&NetHeader::PLAIN, 66, 9000), 9000);
    }

    #[test]
    fn fragments_repeat_the_ip_header_only() {
        let datagram = NetHeader { gso_type: GsoType::UDP, gso_size: 1480, ..NetHeader::PLAIN };
        assert_eq!(segment_frame_len_max(&datagram, 42, 42 + 2 * 1480 - 8), 1514);
        assert_eq!(wire_bytes(&datagram, 42, 42 + 2 * 1480 - 8), 2 * 1514);
        assert_eq!(wire_bytes(&datagram, 42, 42 + 2 * 1480), 2 * 1514 + 42);
    }
}
