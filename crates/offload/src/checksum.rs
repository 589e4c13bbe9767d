//! Completion of partial checksums (virtio 1.2 §5.1.6.2).
//!
//! The field of a partial checksum contains the sum of the pseudo-header. To be added is the sum
//! from `csum_start` to the end of the frame, including the field. SCTP's checksum differs (module
//! `sctp`).

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{NetHeader, NetHeaderFlags, sctp, write_u16};

use crate::OffloadError;
use crate::sctp::complete_sctp;

/// Completes the partial checksum of the frame `headers ++ payload`, and clears its flag. No effect
/// without a partial checksum. `payload` may be empty for a contiguous frame.
///
/// A checksum of zero is stored as all ones for every protocol, as in Linux: UDP requires it (RFC
/// 768), and to the others both are the same number.
///
/// An SCTP packet that is not in a tunnel gets its CRC32c, whatever its field contains: four bytes
/// are written.
///
/// # Errors
/// [`OffloadError::Train`] for a train; [`OffloadError::Metadata`] and
/// [`OffloadError::ChecksumOutsideHeaders`] if the metadata is inconsistent, or an SCTP header is
/// not within `headers`. The frame is then unchanged.
#[inline]
pub fn complete_checksum(
    meta: &mut NetHeader,
    headers: &mut [u8],
    payload: &[u8],
) -> Result<(), OffloadError> {
    if !meta.needs_checksum() {
        return Ok(());
    }
    if meta.is_train() {
        return Err(OffloadError::Train);
    }
    meta.check(headers.len() + payload.len())?;
    let is_complete = usize::from(meta.csum_offset) == sctp::field::CHECKSUM
        && complete_sctp(meta, headers, payload)?;
    if !is_complete {
        Place::new(meta, headers.len())?.complete(headers, [payload, &[]]);
    }
    meta.flags &= !NetHeaderFlags::NEEDS_CSUM;
    meta.csum_start = 0;
    meta.csum_offset = 0;
    Ok(())
}

/// Position of a partial checksum, checked against the length of the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// First byte of the sum.
    start: usize,
    /// The checksum field.
    field: usize,
}

impl Place {
    /// The position from `meta`, if it is within headers of `headers_len` bytes.
    #[inline]
    pub(crate) fn new(meta: &NetHeader, headers_len: usize) -> Result<Self, OffloadError> {
        let start = usize::from(meta.csum_start);
        let field = start + usize::from(meta.csum_offset);
        if field + 2 > headers_len {
            return Err(OffloadError::ChecksumOutsideHeaders);
        }
        Ok(Self { start, field })
    }

    /// Computes and stores the checksum. `headers` has the length that was checked.
    #[inline]
    pub(crate) fn complete(self, headers: &mut [u8], payload: [&[u8]; 2]) {
        let summed = &headers[self.start..];
        let sum = add_parts(Sum::of(summed), summed.len(), payload);
        write_u16(headers, self.field, sum.udp_checksum());
    }
}

/// Adds `parts`, of which the first starts `offset` bytes after the start of the sum.
#[inline]
pub(crate) fn add_parts(sum: Sum, offset: usize, parts: [&[u8]; 2]) -> Sum {
    let [first, second] = parts;
    let sum = sum.add_bytes_at(offset, first);
    if second.is_empty() { sum } else { add_at(sum, offset + first.len(), second) }
}

/// The sum of a packet's payload, which starts at an even offset.
#[inline]
pub(crate) fn sum_of_payload([first, second]: [&[u8]; 2]) -> Sum {
    let sum = Sum::of(first);
    if second.is_empty() { sum } else { add_at(sum, first.len(), second) }
}

/// Adds `bytes`, which start `offset` bytes after the start of the sum.
#[cold]
pub(crate) fn add_at(sum: Sum, offset: usize, bytes: &[u8]) -> Sum {
    sum.add_bytes_at(offset, bytes)
}

#[cfg(test)]
mod tests {
    use tapswitch_wire::checksum::pseudo_header_v4;
    use tapswitch_wire::{GsoType, MetadataError};

    use super::*;

    const UDP_AT: usize = 34;

    #[test]
    fn every_split_between_headers_and_payload_gives_the_same_checksum() {
        let whole = datagram(7);
        let mut contiguous = whole.clone();
        complete_checksum(&mut udp_meta(), &mut contiguous, &[]).unwrap();
        assert!(is_valid(&contiguous));
        for split in UDP_AT + 8..=whole.len() {
            let (headers, payload) = whole.split_at(split);
            let mut headers = headers.to_vec();
            let mut meta = udp_meta();
            complete_checksum(&mut meta, &mut headers, payload).unwrap();
            assert_eq!([&headers, payload].concat(), contiguous, "split at {split}");
            assert_eq!(meta, NetHeader::PLAIN);
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ones() {
        let mut frame = datagram(2);
        frame[UDP_AT + 8..].fill(0);
        let mut sum = frame.clone();
        complete_checksum(&mut udp_meta(), &mut sum, &[]).unwrap();
        // The sum including the checksum is all ones, so the checksum over it is zero.
        let checksum = [sum[UDP_AT + 6], sum[UDP_AT + 7]];
        frame[UDP_AT + 8..].copy_from_slice(&checksum);
        complete_checksum(&mut udp_meta(), &mut frame, &[]).unwrap();
        assert_eq!(frame[UDP_AT + 6..UDP_AT + 8], [0xff, 0xff]);
    }

    #[test]
    fn a_complete_checksum_stays() {
        let mut frame = datagram(5);
        let before = frame.clone();
        let mut meta = NetHeader { flags: NetHeaderFlags::DATA_VALID, ..NetHeader::PLAIN };
        complete_checksum(&mut meta, &mut frame, &[]).unwrap();
        assert_eq!((frame, meta.flags), (before, NetHeaderFlags::DATA_VALID));
    }

    #[test]
    fn lies_are_named_and_change_nothing() {
        let mut frame = datagram(5);
        let before = frame.clone();
        let mut check = |meta: NetHeader, error: OffloadError| {
            let (headers, payload) = frame.split_at_mut(UDP_AT + 8);
            assert_eq!(complete_checksum(&mut meta.clone(), headers, payload), Err(error));
            assert_eq!(frame, before);
        };
        let meta = udp_meta();
        let train = NetHeader { gso_type: GsoType::UDP_L4, gso_size: 100, ..meta };
        check(train, OffloadError::Train);
        let in_payload = NetHeader { csum_start: UDP_AT as u16 + 2, ..meta };
        check(in_payload, OffloadError::ChecksumOutsideHeaders);
        let in_addresses = NetHeader { csum_start: 8, ..meta };
        check(in_addresses, MetadataError::Checksum.into());
        let outside = NetHeader { csum_offset: u16::MAX, ..meta };
        check(outside, MetadataError::Checksum.into());
    }

    fn udp_meta() -> NetHeader {
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            csum_start: UDP_AT as u16,
            csum_offset: 6,
            ..NetHeader::PLAIN
        }
    }

    /// A UDP datagram with a partial checksum.
    fn datagram(payload_len: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let len = 8 + payload_len as u8;
        frame.extend([0x45, 0, 0, 20 + len, 0, 1, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let partial = pseudo_header_v4(&frame[26..30], &frame[30..34], 17, len.into()).partial();
        frame.extend([0x12, 0x34, 0, 53, 0, len]);
        frame.extend(partial.to_be_bytes());
        frame.extend((0..payload_len).map(|i| i as u8 ^ 0xa5));
        frame
    }

    fn is_valid(frame: &[u8]) -> bool {
        let udp = &frame[UDP_AT..];
        pseudo_header_v4(&frame[26..30], &frame[30..34], 17, udp.len() as u16)
            .add_bytes(udp)
            .partial()
            == 0xffff
    }
}
