//! Trains that exceed the length field of IPv6.
//!
//! Linux inserts a hop-by-hop header with the jumbo option (RFC 2675) before the TCP header of such
//! a train ("BIG TCP", Linux 5.19), and removes it during segmentation: no packet on a wire has it.
//! So it is removed here as well. IPv4 has no such option (Linux 6.3): its length is zero, as
//! permitted for a train to be segmented.

use tapswitch_wire::{NetHeader, ipv6, parse};

/// Removes the header with the jumbo option from `frame`, a train with the metadata `header`, by
/// moving the bytes before it. Returns the number of bytes that become free at the start of
/// `frame`.
pub(crate) fn remove(header: &mut NetHeader, frame: &mut [u8]) -> usize {
    let Ok(parsed) = parse(frame) else { return 0 };
    let network = usize::from(parsed.layout.network);
    let end = network + ipv6::HEADER_LEN;
    let Some(&[next, 0, ipv6::OPTION_JUMBO, 4, ..]) = frame.get(end..end + JUMBO_LEN) else {
        return 0;
    };
    let is_hop_by_hop =
        frame[network] >> 4 == 6 && frame[network + ipv6::field::NEXT_HEADER] == ipv6::HOP_BY_HOP;
    if !is_hop_by_hop {
        return 0;
    }
    frame[network + ipv6::field::NEXT_HEADER] = next;
    frame.copy_within(..end, JUMBO_LEN);
    header.shift(-8);
    JUMBO_LEN
}

/// Length in bytes of a hop-by-hop header with only the jumbo option.
const JUMBO_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_wire::{GsoType, NetHeaderFlags, ip_proto};

    #[test]
    fn the_header_with_the_jumbo_option_is_taken_out() {
        for tags in [&[][..], &[0x88, 0xa8, 0, 100, 0x81, 0, 0, 10]] {
            let (mut header, mut frame) = train(tags, [ip_proto::TCP, 0, ipv6::OPTION_JUMBO, 4]);
            let at = 14 + tags.len();
            assert_eq!(remove(&mut header, &mut frame), 8);
            let (expected, mut plain) = train(tags, [ip_proto::TCP, 0, ipv6::OPTION_JUMBO, 4]);
            plain.drain(at + 40..at + 48);
            plain[at + 6] = ip_proto::TCP;
            assert_eq!(frame[8..], plain);
            assert_eq!(header.csum_start, expected.csum_start - 8);
            assert_eq!(header.hdr_len, expected.hdr_len - 8);
        }
    }

    #[test]
    fn other_headers_stay() {
        // Another option, and a jumbo option followed by others.
        for options in [[ip_proto::TCP, 0, 5, 4], [ip_proto::TCP, 1, ipv6::OPTION_JUMBO, 4]] {
            let (mut header, mut frame) = train(&[], options);
            let before = (header, frame.clone());
            assert_eq!(remove(&mut header, &mut frame), 0);
            assert_eq!((header, frame), before);
        }
        // Bytes that look like one after an IPv6 header without it, and after nothing.
        let (mut header, mut frame) = train(&[], [ip_proto::TCP, 0, ipv6::OPTION_JUMBO, 4]);
        frame[14 + 6] = ipv6::DESTINATION_OPTIONS;
        assert_eq!(remove(&mut header, &mut frame), 0);
        assert_eq!(remove(&mut header, &mut frame[..20]), 0);
    }

    /// IPv6 with an extension header that starts with these four bytes, followed by TCP.
    fn train(tags: &[u8], extension: [u8; 4]) -> (NetHeader, Vec<u8>) {
        let mut frame = [&[2; 12], tags, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 0, 64]].concat();
        frame.extend([7; 32]);
        frame.extend(extension);
        frame.extend([0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 1]);
        frame.extend([3; 400]);
        let csum_start = 62 + u16::try_from(tags.len()).unwrap();
        let header = NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            gso_type: GsoType::TCPV6,
            hdr_len: csum_start + 20,
            gso_size: 100,
            csum_start,
            csum_offset: 16,
        };
        (header, frame)
    }
}
