//! Fragmentation of a datagram (legacy UFO; RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Linux still segments such trains and no longer creates them (since 4.14); old guests do.
//! `gso_size` is the number of bytes after the IP header of each fragment except the last. The
//! first one contains the UDP header, with a checksum over the whole datagram.
//!
//! IPv4 fragments keep the datagram's identification and lose its other flags. IPv6 fragments get a
//! fragment header before the part that only the first one contains: everything except hop-by-hop
//! options, routing and the options before these.

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{ip_proto, ipv4, ipv6, read_u16, udp, write_u16, write_u32};

use crate::ip::{Ip, Version};
use crate::layers::Layers;
use crate::rewrite::{Network, Position, checked_len};
use crate::{FRAGMENT_HEADER_LEN, IdRule, OffloadError, SplitOptions};

/// Headers of a datagram's fragments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragments {
    /// End of the headers that each fragment repeats.
    repeated: usize,
    /// End of all headers of the datagram.
    end: usize,
    /// The UDP checksum.
    checksum: u16,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// IPv4: total length, fragment field and checksum change.
    V4 {
        /// Start of the header.
        at: usize,
        /// Sum of the header without these fields.
        sum: Sum,
    },
    /// IPv6: payload length and fragment header change.
    V6 {
        /// Start of the fixed header.
        at: usize,
        /// Position of the next-header field that names the fragment header.
        next_header_at: usize,
        /// Its former value.
        next_header: u8,
        identification: u32,
    },
}

impl Fragments {
    /// For the datagram with the headers `layers`, and `payload_len` bytes of payload with the sum
    /// `payload`.
    pub(crate) fn new(
        layers: &Layers,
        headers: &[u8],
        gso_size: u16,
        payload: (Sum, usize),
        options: &SplitOptions,
    ) -> Result<Self, OffloadError> {
        let Layers { ip, end, .. } = layers;
        let (sum, payload_len) = payload;
        let checksum = checksum(ip, headers, *end, sum, payload_len)?;
        let (repeated, kind) = match ip.version {
            Version::V4 => (ip.upper_at, Kind::v4(headers, ip)),
            Version::V6 => Kind::v6(headers, ip, checksum, options),
        };
        let fragments = Self { repeated, end: *end, checksum, kind };
        let size = usize::from(gso_size);
        if !size.is_multiple_of(8) || size < fragments.first_only_len() {
            return Err(OffloadError::FragmentSize);
        }
        // The fragment header counts: a fragment may exceed IP's maximum length only because of it.
        let carried = size.min(fragments.first_only_len() + payload_len);
        let longest = ip.length(fragments.headers_len() + carried);
        if longest > usize::from(u16::MAX) {
            return Err(OffloadError::SegmentTooLong);
        }
        Ok(fragments)
    }

    /// Header length of each fragment except the first.
    pub(crate) fn headers_len(&self) -> usize {
        self.repeated + self.inserted_len()
    }

    /// Length of the headers that only the first fragment has.
    pub(crate) fn first_only_len(&self) -> usize {
        self.end - self.repeated
    }

    /// Bytes inserted between the datagram's headers in each fragment.
    pub(crate) fn inserted_len(&self) -> usize {
        match self.kind {
            Kind::V4 { .. } => 0,
            Kind::V6 { .. } => FRAGMENT_HEADER_LEN,
        }
    }

    /// Writes the headers of the fragment at `position`, of `frame_len` bytes, to `out`, and
    /// returns their length.
    pub(crate) fn write(
        &self,
        out: &mut [u8],
        datagram: &[u8],
        frame_len: usize,
        position: Position,
    ) -> usize {
        let (repeated, first_only) = datagram[..self.end].split_at(self.repeated);
        out[..self.repeated].copy_from_slice(repeated);
        let headers_len = self.headers_len();
        self.stamp(&mut out[..headers_len], frame_len, position);
        if position.index != 0 {
            return headers_len;
        }
        let end = headers_len + first_only.len();
        out[headers_len..end].copy_from_slice(first_only);
        write_u16(out, end - udp::HEADER_LEN + udp::field::CHECKSUM, self.checksum);
        end
    }

    /// Prepares the datagram in `buf[start..]` for [`stamp`](Self::stamp): moves the repeated
    /// headers to the front and completes the checksum. Returns the start of the first fragment.
    pub(crate) fn prepare(&self, buf: &mut [u8], start: usize) -> Result<usize, OffloadError> {
        let new = start.checked_sub(self.inserted_len()).ok_or(OffloadError::Headroom)?;
        let checksum_at = start + self.end - udp::HEADER_LEN + udp::field::CHECKSUM;
        write_u16(buf, checksum_at, self.checksum);
        buf.copy_within(start..start + self.repeated, new);
        Ok(new)
    }

    /// Stores the fields that differ between fragments. `headers`, of
    /// [`headers_len`](Self::headers_len) bytes, contains the repeated ones.
    pub(crate) fn stamp(&self, headers: &mut [u8], frame_len: usize, position: Position) {
        match self.kind {
            Kind::V4 { at, sum } => {
                let length = checked_len(frame_len - at);
                let more = if position.is_last { 0 } else { ipv4::MORE_FRAGMENTS };
                let fragment = more | checked_offset(position.offset) >> 3;
                let checksum = sum.add(length).add(fragment).checksum();
                write_u16(headers, at + ipv4::field::TOTAL_LENGTH, length);
                write_u16(headers, at + ipv4::field::FRAGMENT, fragment);
                write_u16(headers, at + ipv4::field::CHECKSUM, checksum);
            }
            Kind::V6 { at, next_header_at, next_header, identification } => {
                let length = checked_len(frame_len - at - ipv6::HEADER_LEN);
                write_u16(headers, at + ipv6::field::PAYLOAD_LENGTH, length);
                headers[next_header_at] = ipv6::FRAGMENT;
                let own = &mut headers[self.repeated..];
                write_u16(own, 0, u16::from(next_header) << 8);
                write_u16(own, 2, checked_offset(position.offset) | u16::from(!position.is_last));
                write_u32(own, 4, identification);
            }
        }
    }
}

impl Kind {
    fn v4(headers: &[u8], ip: &Ip) -> Self {
        let header = &headers[ip.at..ip.upper_at];
        let sum = Sum::of(header)
            .remove(read_u16(header, ipv4::field::TOTAL_LENGTH))
            .remove(read_u16(header, ipv4::field::FRAGMENT))
            .remove(read_u16(header, ipv4::field::CHECKSUM));
        Self::V4 { at: ip.at, sum }
    }

    /// Also returns the position of the fragment header.
    fn v6(headers: &[u8], ip: &Ip, checksum: u16, options: &SplitOptions) -> (usize, Self) {
        let (next_header_at, repeated) = first_fragmentable(headers, ip);
        let kind = Self::V6 {
            at: ip.at,
            next_header_at,
            next_header: headers[next_header_at],
            identification: identification(headers, ip, checksum, options),
        };
        (repeated, kind)
    }
}

/// Positions of the next-header field that names the first header not repeated, and of that header.
/// Destination options are repeated only before a routing header (RFC 8200 §4.5).
fn first_fragmentable(headers: &[u8], ip: &Ip) -> (usize, usize) {
    let mut next_header_at = ip.at + ipv6::field::NEXT_HEADER;
    let mut at = ip.at + ipv6::HEADER_LEN;
    let mut is_routed = false;
    while at < ip.upper_at {
        match headers[next_header_at] {
            ipv6::ROUTING => is_routed = true,
            ipv6::DESTINATION_OPTIONS if is_routed => break,
            _ => {}
        }
        next_header_at = at;
        at += (usize::from(headers[at + 1]) + 1) * 8;
    }
    (next_header_at, at)
}

/// Equal for the same datagram and seed, and most likely different otherwise.
fn identification(headers: &[u8], ip: &Ip, checksum: u16, options: &SplitOptions) -> u32 {
    let addresses = ipv6::field::SRC.start..ipv6::field::DST.end;
    let ports = read_u16(headers, ip.upper_at).rotate_left(7) ^ read_u16(headers, ip.upper_at + 2);
    let content = u32::from(checksum) << 16 | u32::from(ports);
    let hash = headers[ip.at..][addresses]
        .iter()
        .fold(content, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME));
    hash.wrapping_add(options.fragment_seed)
}

/// The UDP checksum over the whole datagram, never zero (RFC 768).
fn checksum(
    ip: &Ip,
    headers: &[u8],
    end: usize,
    payload: Sum,
    payload_len: usize,
) -> Result<u16, OffloadError> {
    let udp = &headers[ip.upper_at..end];
    if ip.length(end + payload_len) > usize::from(u16::MAX) {
        return Err(OffloadError::DatagramTooLong);
    }
    let sum = Network::new(headers, ip, IdRule::Increment)
        .pseudo_header(headers, ip_proto::UDP)
        .add(checked_len(udp.len() + payload_len))
        .add_bytes(udp)
        .remove(read_u16(udp, udp::field::CHECKSUM));
    Ok(sum.add(payload.partial()).udp_checksum())
}

/// Narrows an offset within a datagram.
#[expect(clippy::cast_possible_truncation, reason = "checked when the datagram is taken")]
const fn checked_offset(offset: u32) -> u16 {
    offset as u16
}

/// Multiplier of 32-bit FNV-1a.
const FNV_PRIME: u32 = 0x0100_0193;
