//! How long a train's packets are, known without cutting it.

use tapswitch_wire::NetHeader;

/// Length in bytes of the longest wire packet of a frame of `frame_len` bytes, the first
/// `headers_len` of which are headers. This, not the train's own length, is what an MTU bounds.
#[inline]
pub fn segment_frame_len_max(meta: &NetHeader, headers_len: usize, frame_len: usize) -> usize {
    if meta.is_train() {
        frame_len.min(headers_len.saturating_add(usize::from(meta.gso_size)))
    } else {
        frame_len
    }
}

/// Bytes that a frame takes on the wire, where each packet of a train repeats the headers.
/// [`NetHeader::wire_packets`] counts the packets.
#[inline]
pub fn wire_bytes(meta: &NetHeader, headers_len: usize, frame_len: usize) -> u64 {
    let packets = meta.wire_packets(frame_len.saturating_sub(headers_len));
    frame_len as u64 + (u64::from(packets) - 1) * headers_len as u64
}

#[cfg(test)]
mod tests {
    use tapswitch_wire::GsoType;

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
}
