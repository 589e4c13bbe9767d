//! Comparison masks for the headers of a train's packets.

use tapswitch_wire::{ipv4, ipv6, tcp, udp};

use super::around;
use super::headers::{Headers, LEN_MAX};
use crate::ip::Version;
use crate::layers::Outer;

/// Masks for headers of one layout.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) headers: Headers,
    /// Outer headers in a tunnel.
    pub(super) outer: Option<Outer>,
    /// Bits that are equal in all packets of a train.
    mask: [u8; LEN_MAX],
    /// Bits that are predictable for the next packet, if it has full length.
    foretold: [u8; LEN_MAX],
}

impl Template {
    /// Creates the masks for `headers`, of at most [`LEN_MAX`] bytes, with `outer` before them.
    pub(super) fn new(headers: Headers, outer: Option<Outer>) -> Self {
        let (mask, foretold) = ([0xff; LEN_MAX], [0xff; LEN_MAX]);
        let mut template = Self { headers, outer, mask, foretold };
        if let Some(outer) = &outer {
            template.free_network(outer.ip.version, outer.ip.at);
            let varying = around::varying(outer);
            template.free(varying.start, varying.len());
        }
        template.free_network(headers.version(), usize::from(headers.network));
        let transport = usize::from(headers.transport);
        if headers.is_tcp {
            template.free(transport + tcp::field::SEQUENCE, 4);
            template.free(transport + tcp::field::CHECKSUM, 2);
            template.mask[transport + tcp::field::FLAGS] = !(tcp::FIN | tcp::PSH);
            template.foretold[transport + tcp::field::FLAGS] = !(tcp::FIN | tcp::PSH);
        } else {
            template.free(transport + udp::field::LENGTH, 2);
            template.free(transport + udp::field::CHECKSUM, 2);
        }
        template.foretold[transport + headers.checksum_offset()..][..2].fill(0);
        template
    }

    fn free_network(&mut self, version: Version, at: usize) {
        match version {
            Version::V4 => {
                self.free(at + ipv4::field::TOTAL_LENGTH, 2);
                self.free(at + ipv4::field::IDENTIFICATION, 2);
                self.free(at + ipv4::field::CHECKSUM, 2);
            }
            Version::V6 => self.free(at + ipv6::field::PAYLOAD_LENGTH, 2),
        }
    }

    fn free(&mut self, at: usize, len: usize) {
        self.mask[at..at + len].fill(0);
    }

    /// Whether `other` has headers of this layout that equal those of `first`, except for the
    /// fields that differ between packets.
    #[inline]
    pub(super) fn is_equal(&self, first: &[u8], other: &[u8]) -> bool {
        self.is_equal_under(&self.mask, first, other)
    }

    /// The same, if `first` contains the prediction for the next packet.
    #[inline]
    pub(super) fn is_foretold(&self, first: &[u8], other: &[u8]) -> bool {
        self.is_equal_under(&self.foretold, first, other)
    }

    #[inline]
    fn is_equal_under(&self, mask: &[u8; LEN_MAX], first: &[u8], other: &[u8]) -> bool {
        let end = usize::from(self.headers.end);
        let (Some(first), Some(other), Some(mask)) =
            (first.get(..end), other.get(..end), mask.get(..end))
        else {
            return false;
        };
        let blocks = first.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK));
        let differs =
            blocks.zip(mask.chunks_exact(BLOCK)).fold(0, |all, ((first, other), mask)| {
                all | differing(first.first_chunk(), other.first_chunk(), mask.first_chunk())
            });
        // Headers are longer than a block; the last block overlaps compared bytes.
        differs | differing(first.last_chunk(), other.last_chunk(), mask.last_chunk()) == 0
    }
}

/// Bits of `mask` in which two blocks differ, combined in one word. A missing block differs.
#[inline]
fn differing(first: Option<&Block>, other: Option<&Block>, mask: Option<&Block>) -> u64 {
    let (Some(first), Some(other), Some(mask)) = (first, other, mask) else {
        return u64::MAX;
    };
    let word = |block: &Block, at: usize| {
        u64::from_ne_bytes(std::array::from_fn(|offset| block[8 * at + offset]))
    };
    (0..BLOCK / 8).fold(0, |all, at| all | (word(first, at) ^ word(other, at)) & word(mask, at))
}

type Block = [u8; BLOCK];
/// Bytes compared at a time. The shortest headers, UDP over IPv4, have 42.
const BLOCK: usize = 32;
