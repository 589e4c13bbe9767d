//! Target `complete_checksum`: the result equals that of a simple reference, and no other byte
//! changes.

use tapswitch_offload::complete_checksum as complete;
use tapswitch_wire::{EtherType, NetHeader, Parsed, ip_proto, ipv4, ipv6, parse, read_u16, sctp};

/// Completes the checksum of the frame of `data`.
pub fn complete_checksum(data: &[u8]) {
    let Some((meta, at, frame)) = crate::metadata_and_frame(data) else {
        return;
    };
    let mut completed = frame.to_vec();
    let (headers, payload) = completed.split_at_mut(at);
    let mut new_meta = meta;
    if complete(&mut new_meta, headers, payload).is_err() || !meta.needs_checksum() {
        assert_eq!((&completed[..], new_meta), (frame, meta), "untouched");
        return;
    }
    assert!(!new_meta.needs_checksum());
    assert_eq!(Some(completed), reference(&meta, at, frame));
}

/// The expected frame if its headers end at `at`; `None` for one that must be refused: an SCTP
/// packet whose metadata puts the checksum elsewhere than in its header, or whose header is
/// incomplete.
fn reference(meta: &NetHeader, at: usize, frame: &[u8]) -> Option<Vec<u8>> {
    if usize::from(meta.csum_offset) == sctp::field::CHECKSUM
        && let Ok(parsed) = parse(&frame[..at])
        && parsed.key.ip_proto == ip_proto::SCTP
    {
        let is_there = parsed.layout.transport == Some(meta.csum_start);
        return is_there.then(|| with_crc32c(&parsed, usize::from(meta.csum_start), frame));
    }
    Some(with_internet_checksum(meta, frame))
}

/// RFC 1071 §4.1, word by word.
fn with_internet_checksum(meta: &NetHeader, frame: &[u8]) -> Vec<u8> {
    let start = usize::from(meta.csum_start);
    let field = start + usize::from(meta.csum_offset);
    let mut sum = 0u32;
    for word in frame[start..].chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum >> 16) + (sum & 0xffff);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    let mut frame = frame.to_vec();
    frame[field..field + 2].copy_from_slice(&match [high, low] {
        [0, 0] => [0xff; 2],
        checksum => checksum,
    });
    frame
}

/// RFC 9260 §6.8 for the SCTP packet at `start`, up to the end that the IP header gives, if that is
/// in the frame.
fn with_crc32c(parsed: &Parsed, start: usize, frame: &[u8]) -> Vec<u8> {
    let network = usize::from(parsed.layout.network);
    let len = if parsed.key.eth_type() == EtherType::IPV4 {
        usize::from(read_u16(frame, network + ipv4::field::TOTAL_LENGTH))
    } else {
        ipv6::HEADER_LEN + usize::from(read_u16(frame, network + ipv6::field::PAYLOAD_LENGTH))
    };
    let ends = start + sctp::HEADER_LEN..=frame.len();
    let end = if ends.contains(&(network + len)) { network + len } else { frame.len() };
    let field = start + sctp::field::CHECKSUM;
    let mut frame = frame.to_vec();
    frame[field..field + 4].fill(0);
    let crc = crc32c(&frame[start..end]);
    frame[field..field + 4].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// RFC 9260 appendix A, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let shift = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
}
