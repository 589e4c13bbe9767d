//! The flow hash, as the program computes it.

use std::num::NonZeroU16;

use crate::bpf::headers::{self, Addresses, Headers, Link};
use crate::steering::table::BUCKET_BITS;

/// A symmetric flow hash: equal for both directions.
///
/// It covers the innermost of these that can be parsed:
/// 1. the addresses and ports of TCP, UDP or SCTP over IP,
/// 2. the addresses of other IP packets, of any fragment, and of packets with more than 8 IPv6
///    extension headers,
/// 3. the MAC addresses, for non-IP frames and for frames with more than 16 tags,
/// 4. nothing: all such frames have one hash.
///
/// A UDP datagram to the VXLAN port whose VXLAN header has the "I" flag set (RFC 7348 §5) is parsed
/// further if its inner Ethernet header is complete, up to two levels of VXLAN.
///
/// The hash is for distribution only and is not secret: an attacker who chooses addresses and ports
/// can choose a bucket. It is the same on all machines with the same byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowHash {
    pub(super) link: Link,
    pub(super) vxlan_port: Option<NonZeroU16>,
}

impl FlowHash {
    /// For Ethernet frames (tap devices), with VXLAN on port 4789.
    pub const ETHERNET: Self = Self { link: Link::Ethernet, vxlan_port: NonZeroU16::new(4789) };
    /// For IP packets (tun devices), with VXLAN on port 4789.
    pub const IP: Self = Self { link: Link::Ip, vxlan_port: NonZeroU16::new(4789) };

    /// Sets the UDP destination port of VXLAN; `None` disables parsing it.
    #[must_use]
    pub const fn vxlan_port(self, port: Option<NonZeroU16>) -> Self {
        Self { vxlan_port: port, ..self }
    }

    /// The flow hash of `frame`, without a metadata header. The frame may be truncated after its
    /// headers.
    pub fn hash(&self, frame: &[u8]) -> u32 {
        let mixed = self.sum(frame).wrapping_mul(SPREAD);
        (mixed >> 32).try_into().unwrap_or(u32::MAX)
    }

    /// The bucket of the flow: the upper bits of its hash.
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

    /// Offset of the inner frame.
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

/// Adds what is mixed for each end, so that the order is irrelevant. Fields are loaded in native
/// byte order, as in the program.
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

/// Multiplies, and moves the upper bits, which depend on all others, to the lower ones.
const fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(MIX);
    product ^ product >> 32
}

/// 2⁶⁴ divided by the golden ratio, odd: its multiples are evenly distributed (Knuth, TAOCP 3,
/// §6.4).
pub(super) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Another odd number without a bit pattern: the 64-bit prime 2 of xxHash.
pub(super) const SPREAD: u64 = 0xc2b2_ae3d_27d4_eb4f;
/// VXLAN in VXLAN is parsed, nothing deeper.
pub(super) const MAX_TUNNELS: u8 = 2;
pub(super) const UDP_LEN: u8 = 8;
pub(super) const VXLAN_LEN: u8 = 8;
/// The "I" flag: the network identifier is valid, so this is VXLAN.
pub(super) const VXLAN_VALID: u8 = 0x08;
