//! The scalar loops: for short inputs, for processors without a vector loop, and as the reference
//! for the vector loops. All add little-endian words, an odd last byte as the low half of a word.

use super::add_with_carry;

/// For short inputs. Inlined: for a header field, whose length the compiler knows, no loop is left.
#[inline]
pub(super) fn sum_short(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let add = |sum, word: &[u8; 8]| add_with_carry(sum, u64::from_le_bytes(*word));
    words.iter().fold(tail_word(tail), add)
}

/// For long inputs: eight bytes at a time, into four lanes so that the additions are independent.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0; 4];
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = add_with_carry(*lane, u64::from_le_bytes(*word));
        }
    }
    lanes.into_iter().fold(sum_short(rest), add_with_carry)
}

/// Up to seven bytes as a number, without a loop: the first and the last load overlap.
#[inline]
fn tail_word(tail: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (tail.first_chunk(), tail.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (tail.len() - 4));
    }
    match tail {
        [] => 0,
        [a] => u64::from(*a),
        [a, b] => u64::from(u16::from_le_bytes([*a, *b])),
        [a, b, c, ..] => u64::from(u32::from_le_bytes([*a, *b, *c, 0])),
    }
}
