//! Header fields that change from one packet of a train to the next.
//!
//! The sum of each header without these fields is computed once. Writing a packet's headers then
//! means copying the train's, storing those fields, and adding them to that sum.

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{ip_proto, ipv4, ipv6, read_u16, read_u32, tcp, udp, write_u16, write_u32};

use crate::IdRule;
use crate::ip::{Ip, Version};

/// Position of a packet in the train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Number of packets before it.
    pub(crate) index: u32,
    /// Number of payload bytes before it.
    pub(crate) offset: u32,
    /// Whether it is the last packet.
    pub(crate) is_last: bool,
}

/// The IP header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Network {
    /// IPv4: total length, identification and header checksum change.
    V4 {
        /// Start of the header in the frame.
        at: usize,
        /// Sum of the header without these fields.
        sum: Sum,
        /// Identification of the first packet.
        identification: u16,
        /// Increment per packet.
        id_step: u16,
    },
    /// IPv6: the payload length changes.
    V6 {
        /// Start of the fixed header in the frame.
        at: usize,
    },
}

impl Network {
    /// For the complete header `ip` of `headers`.
    pub(crate) fn new(headers: &[u8], ip: &Ip, rule: IdRule) -> Self {
        match ip.version {
            Version::V4 => Self::v4(&headers[..ip.upper_at], ip.at, rule),
            Version::V6 => Self::V6 { at: ip.at },
        }
    }

    fn v4(headers: &[u8], at: usize, rule: IdRule) -> Self {
        let header = &headers[at..];
        let identification = read_u16(header, ipv4::field::IDENTIFICATION);
        let sum = Sum::of(header)
            .remove(read_u16(header, ipv4::field::TOTAL_LENGTH))
            .remove(identification)
            .remove(read_u16(header, ipv4::field::CHECKSUM));
        let dont_fragment = read_u16(header, ipv4::field::FRAGMENT) & ipv4::DONT_FRAGMENT != 0;
        let id_step = u16::from(rule == IdRule::Increment || !dont_fragment);
        Self::V4 { at, sum, identification, id_step }
    }

    /// Value of the length field for a frame of `frame_len` bytes.
    #[inline]
    pub(crate) fn length(&self, frame_len: usize) -> usize {
        match *self {
            Self::V4 { at, .. } => frame_len - at,
            Self::V6 { at } => frame_len - at - ipv6::HEADER_LEN,
        }
    }

    /// Stores the fields of the packet at `index`, a frame of `frame_len` bytes.
    #[inline]
    pub(crate) fn write(&self, headers: &mut [u8], frame_len: usize, index: u32) {
        let length = checked_len(self.length(frame_len));
        match *self {
            Self::V4 { at, sum, identification, id_step } => {
                let identification = advanced(identification, id_step, index);
                let checksum = sum.add(length).add(identification).checksum();
                if let Some(header) = fixed::<{ ipv4::MIN_HEADER_LEN }>(headers, at) {
                    write_u16(header, ipv4::field::TOTAL_LENGTH, length);
                    write_u16(header, ipv4::field::IDENTIFICATION, identification);
                    write_u16(header, ipv4::field::CHECKSUM, checksum);
                }
            }
            Self::V6 { at } => write_u16(headers, at + ipv6::field::PAYLOAD_LENGTH, length),
        }
    }

    /// Whether `frame` has the identification and the IPv4 checksum that [`Self::write`] would
    /// store.
    #[inline]
    pub(crate) fn is_written(&self, frame: &[u8], index: u32) -> bool {
        let Self::V4 { at, sum, identification, id_step } = *self else {
            return true;
        };
        let Some(header) = frame.get(at..).and_then(|ip| ip.first_chunk::<20>()) else {
            return false;
        };
        let length = checked_len(self.length(frame.len()));
        let identification = advanced(identification, id_step, index);
        let checksum = sum.add(length).add(identification).checksum();
        read_u16(header, ipv4::field::IDENTIFICATION) == identification
            && read_u16(header, ipv4::field::CHECKSUM) == checksum
    }

    /// The pseudo-header's sum without a length.
    pub(crate) fn pseudo_header(&self, headers: &[u8], protocol: u8) -> Sum {
        match *self {
            Self::V4 { at, .. } => {
                let header = &headers[at..];
                let (src, dst) = (&header[ipv4::field::SRC], &header[ipv4::field::DST]);
                pseudo_header_v4(src, dst, protocol, 0)
            }
            Self::V6 { at } => {
                let header = &headers[at..];
                let (src, dst) = (&header[ipv6::field::SRC], &header[ipv6::field::DST]);
                pseudo_header_v6(src, dst, protocol, 0)
            }
        }
    }
}

/// The TCP header: sequence number, flags and checksum change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp {
    /// Start of the header in the frame.
    pub(crate) at: usize,
    /// Sum of pseudo-header and header without these fields and without a length.
    sum: Sum,
    /// Sum of the pseudo-header without a length.
    pseudo_header: Sum,
    /// Sequence number of the train's first byte.
    pub(crate) sequence: u32,
    /// Flags of the train.
    flags: u8,
    /// Flags that only the first packet keeps.
    first_only: u8,
}

impl Tcp {
    /// For the complete TCP header from `at` to the end of `headers`. `partial_of_len` is the
    /// length in its partial checksum, `None` without one; `has_ecn` is whether only the first
    /// packet has CWR.
    pub(crate) fn new(
        headers: &[u8],
        at: usize,
        network: &Network,
        partial_of_len: Option<u32>,
        has_ecn: bool,
    ) -> Self {
        let header = &headers[at..];
        let checksum = read_u16(header, tcp::field::CHECKSUM);
        let pseudo_header = match partial_of_len {
            Some(len) => remove_u32(Sum::from_partial(checksum), len),
            None => network.pseudo_header(headers, ip_proto::TCP),
        };
        let sequence = read_u32(header, tcp::field::SEQUENCE);
        let flags = header[tcp::field::FLAGS];
        let header_sum = Sum::of(header).remove(checksum).remove(u16::from(flags));
        Self {
            at,
            sum: remove_u32(header_sum, sequence).add(pseudo_header.partial()),
            pseudo_header,
            sequence,
            flags,
            first_only: if has_ecn { tcp::CWR } else { 0 },
        }
    }

    /// Sum of the pseudo-header without a length.
    pub(crate) fn pseudo_header(&self) -> Sum {
        self.pseudo_header
    }

    /// Stores the fields of the packet at `position`, a frame of `frame_len` bytes whose payload
    /// has the sum `payload`.
    #[inline]
    pub(crate) fn write(
        &self,
        headers: &mut [u8],
        frame_len: usize,
        payload: Sum,
        position: Position,
    ) {
        let sequence = self.sequence.wrapping_add(position.offset);
        let mut flags = self.flags;
        if position.index != 0 {
            flags &= !self.first_only;
        }
        if !position.is_last {
            flags &= !LAST_ONLY;
        }
        let len = checked_len(frame_len - self.at);
        let sum = self.sum.add_sum(payload).add(len).add_u32(sequence).add(u16::from(flags));
        if let Some(header) = fixed::<{ tcp::MIN_HEADER_LEN }>(headers, self.at) {
            write_u32(header, tcp::field::SEQUENCE, sequence);
            header[tcp::field::FLAGS] = flags;
            write_u16(header, tcp::field::CHECKSUM, sum.checksum());
        }
    }
}

/// The UDP header: length and checksum change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Udp {
    /// Start of the header in the frame.
    pub(crate) at: usize,
    /// Sum of pseudo-header and ports without a length.
    sum: Sum,
    /// Sum of the pseudo-header without a length.
    pseudo_header: Sum,
}

impl Udp {
    /// For the complete UDP header at `at`, with a partial checksum for the length in the header.
    pub(crate) fn new(headers: &[u8], at: usize) -> Self {
        let header = &headers[at..];
        let pseudo_header = Sum::from_partial(read_u16(header, udp::field::CHECKSUM))
            .remove(read_u16(header, udp::field::LENGTH));
        let sum = pseudo_header
            .add(read_u16(header, udp::field::SRC_PORT))
            .add(read_u16(header, udp::field::DST_PORT));
        Self { at, sum, pseudo_header }
    }

    /// Sum of the pseudo-header without a length.
    pub(crate) fn pseudo_header(&self) -> Sum {
        self.pseudo_header
    }

    /// Stores the fields of a packet, a frame of `frame_len` bytes whose payload has the sum
    /// `payload`.
    #[inline]
    pub(crate) fn write(&self, headers: &mut [u8], frame_len: usize, payload: Sum) {
        let len = checked_len(frame_len - self.at);
        // The length counts twice: in the header and in the pseudo-header.
        let sum = self.sum.add_sum(payload).add(len).add(len);
        if let Some(header) = fixed::<{ udp::HEADER_LEN }>(headers, self.at) {
            write_u16(header, udp::field::LENGTH, len);
            write_u16(header, udp::field::CHECKSUM, sum.udp_checksum());
        }
    }
}

/// The identification of the packet at `index`. Unless configured otherwise, Linux increments it
/// even with "don't fragment" set: the metadata does not tell whether the sender's own packets all
/// have the same identification.
#[inline]
fn advanced(first: u16, step: u16, index: u32) -> u16 {
    first.wrapping_add(low_half(index).wrapping_mul(step))
}

/// The header at `at`: a single length check for all its fields. It always exists, as checked when
/// the train was accepted.
#[inline]
pub(crate) fn fixed<const LEN: usize>(headers: &mut [u8], at: usize) -> Option<&mut [u8; LEN]> {
    headers.get_mut(at..)?.first_chunk_mut()
}

#[inline]
pub(crate) fn remove_u32(sum: Sum, value: u32) -> Sum {
    sum.remove(low_half(value >> 16)).remove(low_half(value))
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is asked for")]
pub(crate) const fn low_half(value: u32) -> u16 {
    value as u16
}

/// Narrows a length that was checked against `u16::MAX` when the train was accepted.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "checked when the train is taken")]
pub(crate) const fn checked_len(len: usize) -> u16 {
    len as u16
}

/// Flags that only the last packet keeps.
const LAST_ONLY: u8 = tcp::FIN | tcp::PSH;
