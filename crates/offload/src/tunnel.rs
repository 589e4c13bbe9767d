//! Fields in a tunnel's headers that change from one packet of the inner train to the next: the
//! outer IP header, and length and checksum of the tunnel.
//!
//! The outer checksum covers the payload, but needs no second pass over it: with its own checksum
//! complete, the inner TCP or UDP sums up to the complement of its pseudo-header's sum (local
//! checksum offload in Linux).

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{GsoType, NetHeaderFlags, ip_proto, udp, write_u16};

use crate::SplitOptions;
use crate::encapsulation::Encapsulation;
use crate::layers::Outer;
use crate::rewrite::{Network, checked_len};

/// The headers of the tunnel around a train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    network: Network,
    /// Start of the header after the outer IP header.
    at: usize,
    kind: Kind,
    /// Start of the inner TCP or UDP header.
    inner_at: usize,
}

/// Fields after the outer IP header that change.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Nothing,
    /// A checksum over GRE and its payload.
    GreChecksum,
    /// A length.
    Udp,
    /// A length and a checksum, with the sum of the pseudo-header without a length.
    UdpChecksum(Sum),
}

impl Tunnel {
    /// For the tunnel `outer` of `headers`, with TCP or UDP inside at `inner_at`.
    pub(crate) fn new(
        headers: &[u8],
        outer: &Outer,
        inner_at: usize,
        options: &SplitOptions,
    ) -> Self {
        let network = Network::new(headers, &outer.ip, options.outer_id);
        let kind = match outer.encapsulation {
            Encapsulation::Ip | Encapsulation::Gre { has_checksum: false } => Kind::Nothing,
            Encapsulation::Gre { has_checksum: true } => Kind::GreChecksum,
            Encapsulation::Udp { has_checksum: false } => Kind::Udp,
            Encapsulation::Udp { has_checksum: true } => {
                Kind::UdpChecksum(network.pseudo_header(headers, ip_proto::UDP))
            }
        };
        Self { network, at: outer.ip.upper_at, kind, inner_at }
    }

    /// Stores the fields of the packet at `index`, a frame of `frame_len` bytes whose inner headers
    /// are complete. `pseudo_header` is the sum of the inner one without a length.
    pub(crate) fn write(
        &self,
        headers: &mut [u8],
        frame_len: usize,
        index: u32,
        pseudo_header: Sum,
    ) {
        self.network.write(headers, frame_len, index);
        let inner = pseudo_header.add(checked_len(frame_len - self.inner_at)).checksum();
        let len = checked_len(frame_len - self.at);
        match self.kind {
            Kind::Nothing => {}
            Kind::GreChecksum => {
                // The reserved half of the word is sent as zero (RFC 2784 §2.1).
                headers[self.at + GRE_CHECKSUM_AT..][..4].fill(0);
                let sum = self.sum(headers, inner);
                write_u16(headers, self.at + GRE_CHECKSUM_AT, sum.checksum());
            }
            Kind::Udp => write_u16(headers, self.at + udp::field::LENGTH, len),
            Kind::UdpChecksum(outer) => {
                write_u16(headers, self.at + udp::field::LENGTH, len);
                write_u16(headers, self.at + udp::field::CHECKSUM, 0);
                let sum = self.sum(headers, inner).add(outer.add(len).partial());
                write_u16(headers, self.at + udp::field::CHECKSUM, sum.udp_checksum());
            }
        }
    }

    /// Whether the outer IP header of `frame` has the numbers of the packet at `index`. Between
    /// packets of equal length no other field of the tunnel differs: the sums of their contents are
    /// equal.
    #[inline(never)]
    pub(crate) fn has_network(&self, frame: &[u8], index: u32) -> bool {
        self.network.is_written(frame, index)
    }

    /// Changes the headers of a train's first packet into those of the train, a frame of
    /// `frame_len` bytes: lengths, and in UDP a partial checksum. GRE's is left, as in Linux; it is
    /// written for each packet.
    pub(crate) fn write_train(&self, headers: &mut [u8], frame_len: usize) {
        self.network.write(headers, frame_len, 0);
        let len = checked_len(frame_len - self.at);
        if let Kind::Udp | Kind::UdpChecksum(_) = self.kind {
            write_u16(headers, self.at + udp::field::LENGTH, len);
        }
        if let Kind::UdpChecksum(outer) = self.kind {
            write_u16(headers, self.at + udp::field::CHECKSUM, outer.add(len).partial());
        }
    }

    /// Start of the outer UDP header, and its bits in `gso_type` and `flags`; all zero for a tunnel
    /// that metadata does not describe.
    pub(crate) fn metadata(&self) -> (usize, u8, u8) {
        let flags = match self.kind {
            Kind::Nothing | Kind::GreChecksum => return (0, 0, 0),
            Kind::Udp => 0,
            Kind::UdpChecksum(_) => NetHeaderFlags::UDP_TUNNEL_CSUM,
        };
        let bits = match self.network {
            Network::V4 { .. } => GsoType::UDP_TUNNEL_IPV4,
            Network::V6 { .. } => GsoType::UDP_TUNNEL_IPV6,
        };
        (self.at, bits, flags)
    }

    /// Sum from the tunnel's header to the packet's end, if the inner TCP or UDP sums up to
    /// `inner`.
    fn sum(&self, headers: &[u8], inner: u16) -> Sum {
        let between = &headers[self.at..self.inner_at];
        // At an odd offset, bytes are in the other halves of their words (RFC 1071 §2 (B)).
        let inner = if between.len().is_multiple_of(2) { inner } else { inner.swap_bytes() };
        Sum::of(between).add(inner)
    }
}

/// Offset of the checksum in GRE.
const GRE_CHECKSUM_AT: usize = 4;
