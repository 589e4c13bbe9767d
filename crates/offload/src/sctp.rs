//! Completion of SCTP's checksum, a CRC32c (RFC 9260 §6.8 and appendix A).
//!
//! Linux leaves it to interfaces with `NETIF_F_SCTP_CRC`, such as veth, and marks the packet as not
//! having an internet checksum (`csum_not_inet`). `virtio_net_hdr` has no such mark: the packet
//! arrives with a checksum to complete, 8 bytes after the start of the SCTP header, so only the
//! headers identify it. There is no pseudo-header, so the field contains nothing.
//!
//! The sum ends at the end of the IP packet, before Ethernet's padding. If the IP length is
//! invalid, it ends with the frame.

use tapswitch_wire::sctp::{HEADER_LEN, field};
use tapswitch_wire::{EtherType, Layout, NetHeader, Parsed, ip_proto, ipv4, ipv6, parse, read_u16};

use crate::OffloadError;
use crate::crc32c::Crc32c;

/// Whether `meta` requests SCTP's checksum in a frame with this `layout`.
///
/// Do not pass such a frame to the kernel, which would compute an internet checksum. Complete it
/// first ([`complete_checksum`](crate::complete_checksum)).
#[inline]
pub fn is_sctp_checksum(meta: &NetHeader, layout: &Layout) -> bool {
    usize::from(meta.csum_offset) == field::CHECKSUM
        && layout.protocol == ip_proto::SCTP
        && layout.transport == Some(meta.csum_start)
        && meta.needs_checksum()
}

/// Completes the checksum of the SCTP packet `headers ++ payload`; returns false, without effect,
/// for other frames.
#[cold]
pub(crate) fn complete_sctp(
    meta: &NetHeader,
    headers: &mut [u8],
    payload: &[u8],
) -> Result<bool, OffloadError> {
    let Ok(parsed) = parse(headers) else {
        return Ok(false);
    };
    if !is_sctp_checksum(meta, &parsed.layout) {
        // A checksum at another place is not SCTP's: the header is truncated, or elsewhere.
        let is_sctp = parsed.key.ip_proto == ip_proto::SCTP;
        return if is_sctp { Err(OffloadError::ChecksumOutsideHeaders) } else { Ok(false) };
    }
    let start = usize::from(meta.csum_start);
    let there = headers.len() + payload.len() - start;
    let len = packet_end(headers, &parsed)
        .checked_sub(start)
        .filter(|len| (HEADER_LEN..=there).contains(len))
        .unwrap_or(there);
    let at = start + field::CHECKSUM;
    headers[at..at + 4].fill(0);
    let head = &headers[start..];
    let head = &head[..len.min(head.len())];
    let crc = Crc32c::START.add(head).add(&payload[..len - head.len()]);
    headers[at..at + 4].copy_from_slice(&crc.finish().to_le_bytes());
    Ok(true)
}

/// End of the IP packet according to its header.
fn packet_end(headers: &[u8], Parsed { key, layout }: &Parsed) -> usize {
    let network = usize::from(layout.network);
    let (fixed, field) = match key.eth_type() {
        EtherType::IPV6 => (ipv6::HEADER_LEN, ipv6::field::PAYLOAD_LENGTH),
        _ => (0, ipv4::field::TOTAL_LENGTH),
    };
    network + fixed + usize::from(read_u16(headers, network + field))
}

#[cfg(test)]
mod tests {
    use tapswitch_wire::NetHeaderFlags;
    use tapswitch_wire::checksum::Sum;

    use super::*;
    use crate::complete_checksum;

    /// An INIT chunk after its header, with the checksum that `scapy` computes.
    const INIT: [u8; 48] = [
        0x9c, 0x40, 0x0f, 0x1c, 0, 0, 0, 0, 0x63, 0xbb, 0xc9, 0xa4, // header
        1, 0, 0, 0x24, 0x9c, 0x5b, 0x1e, 0xe7, 0, 1, 0xa0, 0, 0, 0x0a, 0xff, 0xff, // INIT
        0x3b, 0x4f, 0x18, 0xa2, 0, 0x0c, 0, 6, 0, 5, 0, 0, 0x80, 0, 0, 4, 0xc0, 0, 0, 4,
    ];

    #[test]
    fn every_split_gives_an_init_its_checksum() {
        for (above, is_v6) in [(vec![], false), (vec![0x88a8_0005, 0x8100_0064], true)] {
            let (whole, start) = packet(&above, is_v6, &INIT);
            for split in start + 12..=whole.len() {
                let mut frame = undone(&whole, start);
                let (headers, payload) = frame.split_at_mut(split);
                let mut meta = meta(start);
                complete_checksum(&mut meta, headers, payload).unwrap();
                assert_eq!((meta, &frame), (NetHeader::PLAIN, &whole), "split at {split}");
            }
        }
    }

    #[test]
    fn any_length_and_padding_behind_it() {
        for len in 0..20 {
            // The field counts as zero, so a receiver that clears it computes the same.
            let mut sctp = [&INIT[..8], &[0; 4], &INIT[12..12 + len]].concat();
            let crc = Crc32c::START.add(&sctp).finish();
            sctp[8..12].copy_from_slice(&crc.to_le_bytes());
            for is_v6 in [false, true] {
                let (packet, start) = packet(&[], is_v6, &sctp);
                let padded = [&packet[..], &[0xee; 9]].concat();
                for split in [start + 12, packet.len() + 1, padded.len()] {
                    let mut frame = undone(&padded, start);
                    let (headers, payload) = frame.split_at_mut(split);
                    complete_checksum(&mut meta(start), headers, payload).unwrap();
                    assert_eq!(frame, padded, "{len} bytes, split at {split}");
                }
            }
        }
    }

    #[test]
    fn a_length_that_lies_is_not_believed() {
        let (whole, start) = packet(&[], false, &INIT);
        let complete = |length: u16| {
            let mut frame = undone(&whole, start);
            frame[16..18].copy_from_slice(&length.to_be_bytes());
            let outcome = complete_checksum(&mut meta(start), &mut frame, &[]);
            outcome.map(|()| frame[start..].to_vec())
        };
        for length in [0, 69, u16::MAX] {
            assert_eq!(complete(length), Ok(INIT.to_vec()), "{length}");
        }
        // With this length the SCTP header is incomplete.
        assert_eq!(complete(31), Err(OffloadError::ChecksumOutsideHeaders));
    }

    #[test]
    fn extension_headers_are_walked() {
        let options = [&[132, 0, 1, 4, 0, 0, 0, 0][..], &INIT].concat();
        let (mut whole, at) = packet(&[], true, &options);
        whole[20] = ipv6::DESTINATION_OPTIONS;
        let mut frame = undone(&whole, at + 8);
        complete_checksum(&mut meta(at + 8), &mut frame, &[]).unwrap();
        assert_eq!(frame, whole);
    }

    #[test]
    fn what_is_not_whole_is_refused_and_what_is_no_sctp_is_summed() {
        let (whole, start) = packet(&[], false, &INIT);
        for (split, meta) in [(start + 11, meta(start)), (whole.len(), meta(start + 4))] {
            let mut frame = undone(&whole, start);
            let before = frame.clone();
            let (headers, payload) = frame.split_at_mut(split);
            let refused = complete_checksum(&mut meta.clone(), headers, payload);
            assert_eq!((refused, frame), (Err(OffloadError::ChecksumOutsideHeaders), before));
        }
        let mut other = undone(&whole, start);
        other[23] = 200;
        complete_checksum(&mut meta(start), &mut other, &[]).unwrap();
        assert_eq!(other[start + 10..], undone(&whole, start)[start + 10..], "two bytes");
        assert!(Sum::of(&other[start..]).add(0x0102).is_valid(), "what the field held is added");
    }

    #[test]
    fn it_is_told_at_a_glance() {
        let (whole, start) = packet(&[0x8100_0001], false, &INIT);
        let layout = parse(&whole).unwrap().layout;
        assert!(is_sctp_checksum(&meta(start), &layout));
        for other in [
            NetHeader { flags: NetHeaderFlags::DATA_VALID, ..meta(start) },
            NetHeader { csum_offset: 6, ..meta(start) },
            meta(start - 4),
        ] {
            assert!(!is_sctp_checksum(&other, &layout), "{other:?}");
        }
        assert!(!is_sctp_checksum(&meta(start), &Layout { protocol: 17, ..layout }));
    }

    fn meta(start: usize) -> NetHeader {
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            csum_start: start as u16,
            csum_offset: 8,
            ..NetHeader::PLAIN
        }
    }

    /// The same with other bytes in the field, as if not completed.
    fn undone(frame: &[u8], start: usize) -> Vec<u8> {
        let mut frame = frame.to_vec();
        frame[start + 8..start + 12].copy_from_slice(&[1, 2, 3, 4]);
        frame
    }

    /// A frame with these tags that contains `sctp`, and the offset of that.
    fn packet(tags: &[u32], is_v6: bool, sctp: &[u8]) -> (Vec<u8>, usize) {
        let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa];
        frame.extend(tags.iter().flat_map(|tag| tag.to_be_bytes()));
        let len = sctp.len() as u8;
        if is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, len, ip_proto::SCTP, 64]);
            frame.extend([0xfd; 32]);
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 20 + len, 0, 1, 0x40, 0, 64, ip_proto::SCTP, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let start = frame.len();
        frame.extend(sctp);
        (frame, start)
    }
}
