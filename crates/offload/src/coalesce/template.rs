//! Comparison masks for the headers of a train's packets.

use tapswitch_wire::{ethernet, ipv4, ipv6, tcp, udp, write_u16};

use super::around;
use super::headers::{Headers, LEN_MAX};
use super::run::LAST_ONLY;
use crate::ip::Version;
use crate::layers::Outer;

/// Masks for headers of one layout.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) headers: Headers,
    /// Outer headers in a tunnel.
    pub(super) outer: Option<Outer>,
    /// Bits that are equal in all packets of a train. Zero behind the headers, like those below.
    mask: [u8; LEN_MAX],
    /// Bits that are equal in all packets of full length.
    pub(super) foretold: [u8; LEN_MAX],
    /// Bits that determine the layout; none if more than these do.
    shape: [u8; LEN_MAX],
    /// A frame with these headers, as far as they go.
    example: [u8; LEN_MAX],
}

impl Template {
    /// Creates the masks for `headers` of `frame`, of at most [`LEN_MAX`] bytes, with `outer`
    /// before them.
    pub(super) fn new(headers: Headers, outer: Option<Outer>, frame: &[u8]) -> Self {
        let mut mask = [0; LEN_MAX];
        mask[..headers.end.into()].fill(0xff);
        let (shape, mut example) = ([0; LEN_MAX], [0; LEN_MAX]);
        example[..headers.end.into()].copy_from_slice(&frame[..headers.end.into()]);
        let mut template = Self { headers, outer, mask, foretold: mask, shape, example };
        template.set_shape();
        if let Some(outer) = &outer {
            template.free_network(outer.ip.version, outer.ip.at);
            let varying = around::varying(outer);
            template.free(varying.start, varying.len());
        }
        template.free_network(headers.version(), usize::from(headers.network));
        let transport = usize::from(headers.transport);
        template.free_numbers(transport + headers.checksum_offset(), 2);
        if headers.is_tcp {
            template.free_numbers(transport + tcp::field::SEQUENCE, 4);
            template.mask[transport + tcp::field::FLAGS] = !LAST_ONLY;
            template.foretold[transport + tcp::field::FLAGS] = !LAST_ONLY;
        } else {
            template.free(transport + udp::field::LENGTH, 2);
        }
        template
    }

    /// Sets the bits on which parsing depends, apart from lengths. In a tunnel and with extension
    /// headers these are not known.
    fn set_shape(&mut self) {
        let Headers { is_v4, is_tcp, link_end, network, transport, .. } = self.headers;
        let (network, transport) = (usize::from(network), usize::from(transport));
        let ip_len = if is_v4 { ipv4::MIN_HEADER_LEN } else { ipv6::HEADER_LEN };
        if self.outer.is_some() || transport - network != ip_len {
            return;
        }
        // The type of each tag, and of what follows the last one.
        for at in (ethernet::field::ETHER_TYPE..link_end.into()).step_by(ethernet::TAG_LEN) {
            self.shape[at..at + 2].fill(0xff);
        }
        let ip = &mut self.shape[network..];
        if is_v4 {
            ip[ipv4::field::VERSION_IHL] = 0xff;
            write_u16(ip, ipv4::field::FRAGMENT, !ipv4::DONT_FRAGMENT);
            ip[ipv4::field::PROTOCOL] = 0xff;
        } else {
            ip[0] = 0xf0;
            ip[ipv6::field::NEXT_HEADER] = 0xff;
        }
        if is_tcp {
            self.shape[transport + tcp::field::DATA_OFFSET] = 0xf0;
        }
    }

    /// Whether `frame` certainly has headers of this layout, and no padding. It may belong to a
    /// tunnel on UDP.
    pub(super) fn is_shape_of(&self, frame: &[u8]) -> bool {
        let network = usize::from(self.headers.network);
        let len = match self.headers.is_v4 {
            true => read_u16_at(frame, network + ipv4::field::TOTAL_LENGTH).map(usize::from),
            false => read_u16_at(frame, network + ipv6::field::PAYLOAD_LENGTH)
                .map(|len| ipv6::HEADER_LEN + usize::from(len)),
        };
        let is_shaped = self.shape[ethernet::field::ETHER_TYPE] != 0;
        is_shaped
            && len.is_some()
            && len == frame.len().checked_sub(network)
            && self.is_equal_under(&self.shape, &self.example, frame)
    }

    fn free_network(&mut self, version: Version, at: usize) {
        match version {
            Version::V4 => {
                self.free(at + ipv4::field::TOTAL_LENGTH, 2);
                self.free_numbers(at + ipv4::field::IDENTIFICATION, 2);
                self.free_numbers(at + ipv4::field::CHECKSUM, 2);
            }
            Version::V6 => self.free(at + ipv6::field::PAYLOAD_LENGTH, 2),
        }
    }

    /// Frees a field that is equal in full packets.
    fn free(&mut self, at: usize, len: usize) {
        self.mask[at..at + len].fill(0);
    }

    /// Frees a field that differs from packet to packet.
    fn free_numbers(&mut self, at: usize, len: usize) {
        self.free(at, len);
        self.foretold[at..at + len].fill(0);
    }

    /// Whether `other` has headers of this layout that equal those of `first`, except for the
    /// fields that differ between packets.
    #[inline]
    pub(super) fn is_equal(&self, first: &[u8], other: &[u8]) -> bool {
        self.is_equal_under(&self.mask, first, other)
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

/// The big-endian number at `at`, if it is within `frame`.
#[inline]
fn read_u16_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
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
