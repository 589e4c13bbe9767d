//! The hash of a flow, the same as the program computes.

use std::num::NonZeroU16;

use crate::bpf::headers::{self, Addresses, Headers, Link};
use crate::steering::table::BUCKET_BITS;

/// A symmetric hash of the flow that a frame belongs to: both directions have the same.
///
/// It is of the innermost of these that can be read:
/// 1. the addresses and ports of TCP, UDP or SCTP over IP,
/// 2. the addresses of other IP packets, of any fragment, and behind more than 8 IPv6 extension
///    headers,
/// 3. the MAC addresses, for what is not IP or lies behind more than 16 tags,
/// 4. nothing: all such frames have one hash.
///
/// A UDP datagram to the VXLAN port whose VXLAN header has its "I" flag set (RFC 7348 §5) is looked
/// into when the Ethernet header in it is whole, and so is one in it; a third stays closed.
///
/// The hash is good for spreading and says nothing to an enemy, but it is no secret either: who
/// chooses addresses and ports can choose a bucket. It is the same on all machines of one byte
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowHash {
    pub(super) link: Link,
    pub(super) vxlan_port: Option<NonZeroU16>,
}

impl FlowHash {
    /// Of Ethernet frames, those of tap devices, with VXLAN on port 4789.
    pub const ETHERNET: Self = Self { link: Link::Ethernet, vxlan_port: NonZeroU16::new(4789) };
    /// Of IP packets, those of tun devices, with VXLAN on port 4789.
    pub const IP: Self = Self { link: Link::Ip, vxlan_port: NonZeroU16::new(4789) };

    /// Looks into VXLAN on UDP destination `port`, or into none.
    #[must_use]
    pub const fn vxlan_port(self, port: Option<NonZeroU16>) -> Self {
        Self { vxlan_port: port, ..self }
    }

    /// The hash of the flow of `frame`, which may be cut short behind its headers and has no header
    /// of metadata in front.
    pub fn hash(&self, frame: &[u8]) -> u32 {
        let mixed = self.sum(frame).wrapping_mul(SPREAD);
        (mixed >> 32).try_into().unwrap_or(u32::MAX)
    }

    /// The bucket of that flow: the upper bits of its hash.
    pub fn bucket(&self, frame: &[u8]) -> usize {
        let bucket = self.hash(frame) >> (u32::BITS - BUCKET_BITS);
        usize::try_from(bucket).unwrap_or_default()
    }

    fn sum(&self, frame: &[u8]) -> u64 {
        let (mut at, mut link, mut sum) = (0, self.link, 0);
        for _ in 0..=MAX_TUNNELS {
            let Some(layer) = frame.get(at..).and_then(|frame| Headers::parse(frame, link)) else {
                break;
            };
            sum = sum_of(&layer);
            let Some(inner) = self.tunnelled(&layer, &frame[at..]) else {
                break;
            };
            (at, link) = (at + inner, Link::Ethernet);
        }
        sum
    }

    /// Where the frame within starts.
    fn tunnelled(&self, outer: &Headers<'_>, frame: &[u8]) -> Option<usize> {
        let [_, _, d0, d1] = outer.ports?;
        let is_vxlan = outer.protocol == headers::UDP
            && NonZeroU16::new(u16::from_be_bytes([d0, d1])) == self.vxlan_port
            && self.vxlan_port.is_some();
        let at = outer.transport.filter(|_| is_vxlan)?;
        let vxlan = at + usize::from(UDP_LEN);
        let is_valid = frame.get(vxlan)? & VXLAN_VALID != 0;
        is_valid.then_some(vxlan + usize::from(VXLAN_LEN))
    }
}

/// Adds up what is mixed of either end, so that their order does not matter. Numbers are those that
/// a load of this machine gives: the program has no other.
fn sum_of(layer: &Headers<'_>) -> u64 {
    let [s0, s1, d0, d1] = layer.ports.unwrap_or_default();
    let [src_port, dst_port] = [[s0, s1], [d0, d1]].map(|port| u64::from(u16::from_ne_bytes(port)));
    match layer.addresses {
        Some(Addresses::V4 { src, dst }) => {
            let end = |address: &[u8; 4], port| mix(word(address) << 16 | port);
            end(src, src_port).wrapping_add(end(dst, dst_port))
        }
        Some(Addresses::V6 { src, dst }) => {
            v6_end(src, src_port).wrapping_add(v6_end(dst, dst_port))
        }
        None => layer.macs.map_or(0, |[d0, d1, d2, d3, d4, d5, src @ ..]| {
            mac_end([*d0, *d1, *d2, *d3, *d4, *d5]).wrapping_add(mac_end(*src))
        }),
    }
}

fn word(bytes: &[u8; 4]) -> u64 {
    u64::from(u32::from_ne_bytes(*bytes))
}

fn v6_end(address: &[u8; 16], port: u64) -> u64 {
    let [a, b, c, d, e, f, g, h, low @ ..] = *address;
    let prefix = mix(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
    mix(mix(prefix.wrapping_add(u64::from_ne_bytes(low))).wrapping_add(port))
}

fn mac_end([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    let half = |bytes| u64::from(u16::from_ne_bytes(bytes));
    mix(half([a, b]) << 32 | half([c, d]) << 16 | half([e, f]))
}

/// Multiplies, and brings the upper bits, which depend on all, down to the lower.
const fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(MIX);
    product ^ product >> 32
}

/// 2⁶⁴ divided by the golden ratio, odd: multiples of it spread evenly (Knuth, TAOCP 3, §6.4).
pub(super) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Another odd number whose bits have no pattern: the 64-bit prime 2 of xxHash.
pub(super) const SPREAD: u64 = 0xc2b2_ae3d_27d4_eb4f;
/// VXLAN in VXLAN is looked into, no further.
pub(super) const MAX_TUNNELS: u8 = 2;
pub(super) const UDP_LEN: u8 = 8;
pub(super) const VXLAN_LEN: u8 = 8;
/// The "I" flag: there is a network identifier, that is, this is VXLAN.
pub(super) const VXLAN_VALID: u8 = 0x08;
