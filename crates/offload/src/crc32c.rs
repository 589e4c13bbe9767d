//! Slicing-by-8 (Kounavis and Berry 2005): eight bytes at a time by eight tables of 1 KiB each,
//! about one byte per cycle, which suffices for rare packets.

/// An intermediate CRC32c.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc32c(u32);

impl Crc32c {
    /// The initial value.
    pub(crate) const START: Self = Self(u32::MAX);

    /// Adds `bytes` after the previous ones.
    pub(crate) fn add(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks();
        let crc = words.iter().fold(self.0, |crc, word| add_word(crc, *word));
        Self(rest.iter().fold(crc, |crc, byte| crc >> 8 ^ entry(0, low_byte(crc) ^ byte)))
    }

    /// The value of the field.
    pub(crate) const fn finish(self) -> u32 {
        !self.0
    }
}

/// The last byte uses the first table; the first one, with seven bytes after it, the last.
fn add_word(crc: u32, word: [u8; 8]) -> u32 {
    let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(word) ^ u64::from(crc)).to_le_bytes();
    let high = entry(7, a) ^ entry(6, b) ^ entry(5, c) ^ entry(4, d);
    high ^ entry(3, e) ^ entry(2, f) ^ entry(1, g) ^ entry(0, h)
}

fn entry(table: usize, byte: u8) -> u32 {
    TABLES[table][usize::from(byte)]
}

const fn low_byte(crc: u32) -> u8 {
    crc.to_le_bytes()[0]
}

/// Table `n` contains the CRC of each byte followed by `n` zero bytes.
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        tables[0][byte as usize] = shift_out(byte);
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][low_byte(before) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

const fn shift_out(byte: u32) -> u32 {
    let (mut crc, mut bit) = (byte, 0);
    while bit < 8 {
        crc = crc >> 1 ^ if crc & 1 == 0 { 0 } else { POLYNOMIAL };
        bit += 1;
    }
    crc
}

static TABLES: [[u32; 256]; 8] = tables();
/// 0x1edc6f41 with reversed bits, as bits are processed from the low end.
const POLYNOMIAL: u32 = 0x82f6_3b78;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        Crc32c::START.add(bytes).finish()
    }

    #[test]
    fn known_vectors() {
        let counted: Vec<u8> = (0..32).collect();
        let backwards: Vec<u8> = (0..32).rev().collect();
        // RFC 3720 B.4, which lists the bytes from the lowest.
        for (bytes, expected) in [
            (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&counted, [0x4e, 0x79, 0xdd, 0x46]),
            (&backwards, [0x5c, 0xdb, 0x3f, 0x11]),
        ] {
            assert_eq!(crc(bytes).to_le_bytes(), expected, "{bytes:x?}");
        }
        assert_eq!((crc(b"123456789"), crc(b"")), (0xe306_9283, 0));
    }

    proptest! {
        #[test]
        fn it_is_what_comes_out_bit_by_bit(bytes in vec(any::<u8>(), 0..100), at in 0usize..100) {
            let bit_by_bit = bytes.iter().fold(u32::MAX, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
                    0 => crc >> 1,
                    _ => crc >> 1 ^ POLYNOMIAL,
                })
            });
            let (head, tail) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(Crc32c::START.add(head).add(tail).finish(), !bit_by_bit);
        }
    }
}
