//! The hash over flow keys: folded 128-bit multiplication, two words at a time.

use tapswitch_wire::KEY_WORDS;

/// Hashes a key, or a part of one. Not secure against an attacker who chooses colliding keys: the
/// tables that use it are bounded, and a collision costs a comparison.
#[expect(clippy::inline_always, reason = "words in registers stay there, see `glance`")]
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves of the product are folded in")]
pub(crate) fn hash_words<const WORDS: usize>(words: &[u64; WORDS]) -> u64 {
    const { assert!(WORDS <= KEY_WORDS, "each pair has a seed") };
    let mut hash = SEEDS[0];
    for (pair, seed) in words.chunks(2).zip(SEEDS) {
        let other = pair.get(1).copied().unwrap_or(hash);
        let product = u128::from(pair[0] ^ seed) * u128::from(other ^ seed.rotate_left(32));
        hash = hash.rotate_left(23) ^ (product as u64) ^ (product >> 64) as u64;
    }
    hash ^ hash >> 29
}

/// Digits of pi: nothing-up-my-sleeve numbers, all different.
const SEEDS: [u64; KEY_WORDS / 2] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6c,
    0xc0ac_29b7_c97c_50dd,
    0x3f84_d5b5_b547_0917,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_a_key_changes_many_bits_of_the_hash() {
        let base = hash_words(&[0; KEY_WORDS]);
        for word in 0..KEY_WORDS {
            for bit in 0..64 {
                let mut words = [0; KEY_WORDS];
                words[word] = 1 << bit;
                let changed = (hash_words(&words) ^ base).count_ones();
                assert!(changed >= 6, "word {word} bit {bit} changes {changed} bits only");
            }
        }
    }
}
