//! Middle packets of a train: all except the first and the last have the same length and flags.
//!
//! Their headers differ only in numbers and checksums. So the second packet's headers are written
//! once, as if without payload, and their sums without the numbers are stored. Each packet is then
//! a copy of these headers with four stores (TCP over IPv4), or one (UDP over IPv6).

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{ipv4, read_u16, read_u32, tcp, udp, write_u16, write_u32};

use crate::plan::{Plan, Upper, Work};
use crate::rewrite::{Network, Position, Tcp, Udp, fixed, low_half, remove_u32};

/// State shared by the middle packets of a train that is not in a tunnel.
#[derive(Clone, Debug)]
pub(crate) struct Middle {
    headers: [u8; LEN_MAX],
    network: Option<Identification>,
    upper: Checksum,
}

/// Fields that differ in IPv4 headers.
#[derive(Clone, Copy, Debug)]
struct Identification {
    /// Start of the header in the frame.
    at: usize,
    /// Sum of the header without identification and checksum.
    sum: Sum,
    /// Identification of the first packet.
    first: u16,
    /// Increment per packet.
    step: u16,
}

/// Fields that differ in TCP and UDP headers. Sums are those of pseudo-header and header without
/// sequence number and checksum.
#[derive(Clone, Copy, Debug)]
enum Checksum {
    Tcp {
        at: usize,
        sum: Sum,
        sequence: u32,
    },
    Udp {
        at: usize,
        sum: Sum,
    },
    /// Partial ones are equal, as the lengths are.
    PartialTcp {
        at: usize,
        sequence: u32,
    },
    PartialUdp,
}

impl Middle {
    /// For the train with these headers and this `plan`; `None` if it has no middle packets, is in
    /// a tunnel, or has unusually long headers.
    pub(crate) fn new(plan: &Plan, headers: &[u8]) -> Option<Self> {
        let Work::Cut(network, upper, None) = &plan.work else {
            return None;
        };
        if plan.count <= 2 {
            return None;
        }
        let mut second = [0; LEN_MAX];
        let written = second.get_mut(..headers.len())?;
        written.copy_from_slice(headers);
        let frame_len = headers.len() + usize::from(plan.size);
        plan.write_cut(written, frame_len, Sum::ZERO, plan.position(1));
        let network = Identification::new(network, written);
        let upper = match plan.meta.needs_checksum() {
            true => Checksum::partial(upper),
            false => Checksum::new(upper, written, plan.position(1)),
        };
        Some(Self { headers: second, network, upper })
    }

    /// Writes the headers of the packet at `position`, whose payload has the sum `payload`.
    #[inline]
    pub(crate) fn write(&self, headers: &mut [u8], payload: Sum, position: Position) {
        copy(headers, &self.headers);
        self.patch(headers, payload, position);
    }

    /// As [`Self::write`], into a copy of another middle packet's headers.
    #[inline]
    pub(crate) fn patch(&self, headers: &mut [u8], payload: Sum, position: Position) {
        if let Some(network) = &self.network {
            network.write(headers, position.index);
        }
        self.upper.write(headers, payload, position.offset);
    }
}

impl Identification {
    fn new(network: &Network, headers: &[u8]) -> Option<Self> {
        let Network::V4 { at, identification: first, id_step: step, .. } = *network else {
            return None;
        };
        let header = &headers[at..];
        let sum = Sum::from_partial(!read_u16(header, ipv4::field::CHECKSUM))
            .remove(read_u16(header, ipv4::field::IDENTIFICATION));
        Some(Self { at, sum, first, step })
    }

    #[inline]
    fn write(&self, headers: &mut [u8], index: u32) {
        let identification = self.first.wrapping_add(low_half(index).wrapping_mul(self.step));
        if let Some(header) = fixed::<{ ipv4::MIN_HEADER_LEN }>(headers, self.at) {
            write_u16(header, ipv4::field::IDENTIFICATION, identification);
            write_u16(header, ipv4::field::CHECKSUM, self.sum.add(identification).checksum());
        }
    }
}

impl Checksum {
    fn new(upper: &Upper, headers: &[u8], second: Position) -> Self {
        match *upper {
            Upper::Tcp(Tcp { at, sequence, .. }) => {
                let header = &headers[at..];
                let sum = Sum::from_partial(!read_u16(header, tcp::field::CHECKSUM));
                let written = read_u32(header, tcp::field::SEQUENCE);
                debug_assert_eq!(written, sequence.wrapping_add(second.offset), "the second one's");
                Self::Tcp { at, sum: remove_u32(sum, written), sequence }
            }
            Upper::Udp(Udp { at, .. }) => {
                let checksum = read_u16(&headers[at..], udp::field::CHECKSUM);
                Self::Udp { at, sum: Sum::from_partial(!checksum) }
            }
        }
    }

    fn partial(upper: &Upper) -> Self {
        match *upper {
            Upper::Tcp(Tcp { at, sequence, .. }) => Self::PartialTcp { at, sequence },
            Upper::Udp(_) => Self::PartialUdp,
        }
    }

    #[inline]
    fn write(&self, headers: &mut [u8], payload: Sum, offset: u32) {
        match *self {
            Self::Tcp { at, sum, sequence } => {
                let sequence = sequence.wrapping_add(offset);
                let sum = sum.add_sum(payload).add_u32(sequence);
                if let Some(header) = fixed::<{ tcp::MIN_HEADER_LEN }>(headers, at) {
                    write_u32(header, tcp::field::SEQUENCE, sequence);
                    write_u16(header, tcp::field::CHECKSUM, sum.checksum());
                }
            }
            Self::Udp { at, sum } => {
                if let Some(header) = fixed::<{ udp::HEADER_LEN }>(headers, at) {
                    write_u16(header, udp::field::CHECKSUM, sum.add_sum(payload).udp_checksum());
                }
            }
            Self::PartialTcp { at, sequence } => {
                if let Some(header) = fixed::<{ tcp::MIN_HEADER_LEN }>(headers, at) {
                    write_u32(header, tcp::field::SEQUENCE, sequence.wrapping_add(offset));
                }
            }
            Self::PartialUdp => {}
        }
    }
}

/// Copies at most [`LEN_MAX`] bytes of headers in blocks, the last of which overlaps the one
/// before: a few loads and stores instead of a call.
#[inline]
fn copy(to: &mut [u8], from: &[u8; LEN_MAX]) {
    let Some(last) = to.len().checked_sub(BLOCK) else {
        return to.copy_from_slice(&from[..to.len()]);
    };
    copy_block(to, from, 0);
    copy_block(to, from, BLOCK.min(last));
    if last > 2 * BLOCK {
        copy_block(to, from, 2 * BLOCK);
    }
    copy_block(to, from, last);
}

#[inline]
fn copy_block(to: &mut [u8], from: &[u8; LEN_MAX], at: usize) {
    if let (Some(to), Some(from)) = (to[at..].first_chunk_mut::<BLOCK>(), from[at..].first_chunk())
    {
        *to = *from;
    }
}

/// Maximum header length in bytes, for example 7 tags before TCP over IPv6 with timestamps.
const LEN_MAX: usize = 128;
/// Bytes copied at a time. The shortest headers, UDP over IPv4, have 42.
const BLOCK: usize = 32;
