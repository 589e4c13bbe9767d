//! Target `complete_checksum`: equals the plainest reference there is, and touches nothing else.

use tapswitch_offload::complete_checksum as complete;
use tapswitch_wire::NetHeader;

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
    assert_eq!(completed, reference(&meta, frame));
}

/// RFC 1071 §4.1, a word at a time.
fn reference(meta: &NetHeader, frame: &[u8]) -> Vec<u8> {
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
