//! The flow key: every header field that a rule may match on, in one fixed block of words.
//!
//! Fields are stored as on the wire (big-endian), so that setting a field is copying bytes and
//! masking is a bitwise AND over whole words. The same type serves as a mask: a set bit selects
//! that bit of the key. Fields that cannot occur together share storage as noted.

use std::fmt;
use std::hash::{Hash, Hasher};

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, transmute, transmute_mut, transmute_ref,
};

use crate::{EtherType, MacAddr, Tag, ip_proto};

/// Number of tags in the key, outermost first. Deeper tags are parsed but not matched on until
/// outer ones are popped.
pub const MAX_KEY_TAGS: usize = 4;
/// Number of 64-bit words in a key.
pub const KEY_WORDS: usize = size_of::<FlowKey>() / size_of::<u64>();
/// Bit of [`FlowKey::tags_present`]: there are more than [`MAX_KEY_TAGS`] tags.
pub const TAG_DEEPER: u8 = 0x80;
/// Bit of [`FlowKey::fragment`]: the packet is a fragment, first or later.
pub const FRAGMENT: u8 = 1;
/// Bit of [`FlowKey::fragment`]: the packet's transport header is in another fragment.
pub const FRAGMENT_WITHOUT_TRANSPORT: u8 = 2;

/// Header fields of one frame, or a mask over them.
#[derive(Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct FlowKey {
    /// OpenFlow metadata, written by the pipeline between tables; zero on arrival.
    pub metadata: [u8; 8],
    /// Logical port metadata (OpenFlow `OXM_OF_TUNNEL_ID`); zero on arrival.
    pub tunnel_id: [u8; 8],
    /// Port on which the frame arrived.
    pub in_port: [u8; 4],
    /// EtherType after all tags.
    pub eth_type: [u8; 2],
    /// IPv4 protocol or IPv6 upper-layer protocol.
    pub ip_proto: u8,
    /// DSCP (6 bits) and ECN (2 bits).
    pub ip_tos: u8,
    /// Destination MAC address.
    pub eth_dst: MacAddr,
    /// Source MAC address.
    pub eth_src: MacAddr,
    /// Source port of TCP, UDP and the like; or ICMP type in the second byte.
    pub l4_src: [u8; 2],
    /// Destination port of TCP, UDP and the like; or ICMP code in the second byte.
    pub l4_dst: [u8; 2],
    /// The outermost tags.
    pub tags: [Tag; MAX_KEY_TAGS],
    /// IPv4 address in the first four bytes, IPv6 address, or ARP sender's address as IPv4.
    pub ip_src: [u8; 16],
    /// IPv4 address in the first four bytes, IPv6 address, or ARP target's address as IPv4.
    pub ip_dst: [u8; 16],
    /// IPv6 flow label in the low 20 bits.
    pub flow_label: [u8; 4],
    /// Bit *i* is set if tag *i* is present, [`TAG_DEEPER`] if there are more than the key holds. A
    /// tag field alone could not distinguish "no tag" from "any tag" under a mask.
    pub tags_present: u8,
    /// For an IP packet: [`FRAGMENT`], and [`FRAGMENT_WITHOUT_TRANSPORT`] for all but the first. No
    /// rule matches on it: it is for [`Self::symmetric_hash`], and for checking what may be set.
    pub fragment: u8,
    /// ARP operation.
    pub arp_op: [u8; 2],
    /// ARP sender's MAC address, or the source link-layer address of a neighbour solicitation.
    pub arp_sha: MacAddr,
    /// ARP target's MAC address, or the target link-layer address of a neighbour advertisement.
    pub arp_tha: MacAddr,
    /// Target address of neighbour discovery.
    pub nd_target: [u8; 16],
    /// Always zero; fills the last word.
    pub reserved_tail: [u8; 4],
}

impl FlowKey {
    /// The key with these words.
    #[inline]
    pub(crate) fn from_words(words: [u64; KEY_WORDS]) -> Self {
        transmute!(words)
    }

    /// The key as words, for masking, comparing and hashing.
    #[inline]
    pub fn words(&self) -> &[u64; KEY_WORDS] {
        transmute_ref!(self)
    }

    /// The key as mutable words.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64; KEY_WORDS] {
        transmute_mut!(self)
    }

    /// The bits of the key that `mask` selects.
    #[inline]
    #[must_use]
    pub fn masked(&self, mask: &Self) -> Self {
        let mut out = *self;
        for (word, mask) in out.words_mut().iter_mut().zip(mask.words()) {
            *word &= mask;
        }
        out
    }

    /// True if both keys are equal in every bit that `mask` selects.
    #[inline]
    pub fn equals_under(&self, other: &Self, mask: &Self) -> bool {
        let mut difference = 0;
        for ((a, b), mask) in self.words().iter().zip(other.words()).zip(mask.words()) {
            difference |= (a ^ b) & mask;
        }
        difference == 0
    }

    /// Adds the bits of `other` to this mask.
    #[inline]
    pub fn unite(&mut self, other: &Self) {
        for (word, other) in self.words_mut().iter_mut().zip(other.words()) {
            *word |= other;
        }
    }

    /// Sets the port on which the frame arrived; by a whole word, as [`crate::parse()`] stores
    /// them.
    #[inline]
    pub fn set_in_port(&mut self, number: u32) {
        const WORD: usize = std::mem::offset_of!(FlowKey, in_port) / size_of::<u64>();
        let [_, _, _, _, t0, t1, protocol, tos] = self.words()[WORD].to_ne_bytes();
        let [p0, p1, p2, p3] = number.to_be_bytes();
        self.words_mut()[WORD] = u64::from_ne_bytes([p0, p1, p2, p3, t0, t1, protocol, tos]);
    }

    /// Port on which the frame arrived.
    #[inline]
    pub fn in_port(&self) -> u32 {
        u32::from_be_bytes(self.in_port)
    }

    /// EtherType after all tags.
    #[inline]
    pub fn eth_type(&self) -> EtherType {
        EtherType(u16::from_be_bytes(self.eth_type))
    }

    /// The outermost tag, if there is one.
    #[inline]
    pub fn outer_tag(&self) -> Option<Tag> {
        (self.tags_present & 1 != 0).then_some(self.tags[0])
    }

    /// Number of tags that the key holds.
    #[inline]
    pub fn tag_count(&self) -> usize {
        (self.tags_present & !TAG_DEEPER).count_ones() as usize
    }

    /// Pushes `tag` as the outermost one. Returns `false` if the innermost known tag no longer fits
    /// the key.
    #[inline]
    pub fn push_tag(&mut self, tag: Tag) -> bool {
        let full = self.tag_count() == MAX_KEY_TAGS;
        self.tags.copy_within(..MAX_KEY_TAGS - 1, 1);
        self.tags[0] = tag;
        let deeper = if full { TAG_DEEPER } else { self.tags_present & TAG_DEEPER };
        self.tags_present = (self.tags_present << 1 | 1) & ((1 << MAX_KEY_TAGS) - 1) | deeper;
        !full
    }

    /// Pops the outermost tag. Returns `false` if the last tag of the key is now unknown, because
    /// the frame had more tags than the key holds.
    #[inline]
    pub fn pop_tag(&mut self) -> bool {
        let known = self.tags_present & TAG_DEEPER == 0;
        self.tags.copy_within(1.., 0);
        self.tags[MAX_KEY_TAGS - 1] = Tag::default();
        self.tags_present = (self.tags_present & !TAG_DEEPER) >> 1;
        known
    }

    /// A hash of the innermost flow that is equal for both directions: addresses, protocol and
    /// ports, without the tags. Frames that are not IP are hashed by MAC addresses.
    ///
    /// Only fields that all packets of a flow share: not the ports of fragments, which only the
    /// first one has, nor ICMP types, which differ between request and reply.
    #[inline]
    pub fn symmetric_hash(&self) -> u32 {
        let word = |bytes: &[u8; 16], half: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[half * 8..half * 8 + 8]);
            u64::from_ne_bytes(eight)
        };
        let mac = |mac: MacAddr| {
            let [a, b, c, d, e, f] = mac.0;
            u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
        };
        let is_ip = matches!(self.eth_type(), EtherType::IPV4 | EtherType::IPV6);
        let (src, dst) = if is_ip {
            let src = mix(word(&self.ip_src, 0), word(&self.ip_src, 1));
            let dst = mix(word(&self.ip_dst, 0), word(&self.ip_dst, 1));
            let port =
                |bytes| if self.has_ports() { u64::from(u16::from_be_bytes(bytes)) } else { 0 };
            (mix(src, port(self.l4_src)), mix(dst, port(self.l4_dst)))
        } else {
            (mix(mac(self.eth_src), 0), mix(mac(self.eth_dst), 0))
        };
        // Addition makes it symmetric: (a, b) and (b, a) have the same sum.
        let both = mix(src.wrapping_add(dst), src ^ dst ^ u64::from(self.ip_proto));
        (both >> 32) as u32
    }

    /// Whether all packets of the flow have the ports.
    #[inline]
    const fn has_ports(&self) -> bool {
        let is_icmp = matches!(self.ip_proto, ip_proto::ICMP | ip_proto::ICMPV6);
        self.fragment == 0 && !is_icmp
    }
}

/// Word by word and without branches: compared keys are mostly equal.
impl PartialEq for FlowKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let words = self.words().iter().zip(other.words());
        words.fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

impl Eq for FlowKey {}

impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "in_port={} {}>{} tags={:?} type={:#06x} proto={} {:02x?}>{:02x?} l4={}>{}",
            self.in_port(),
            self.eth_src,
            self.eth_dst,
            &self.tags[..self.tag_count()],
            self.eth_type().0,
            self.ip_proto,
            self.ip_src,
            self.ip_dst,
            u16::from_be_bytes(self.l4_src),
            u16::from_be_bytes(self.l4_dst),
        )
    }
}

/// Mixes two words into one by a folded 128-bit multiplication.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both halves of the product are folded in")]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product as u64) ^ (product >> 64) as u64
}

const _: () = assert!(size_of::<FlowKey>() == 128, "a key fills two cache lines, no more");

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTOMER: Tag = Tag::new(EtherType::VLAN, 0x6064);
    const SERVICE: Tag = Tag::new(EtherType::SERVICE_VLAN, 0x0fa0);

    #[test]
    fn tags_push_and_pop_in_order() {
        let mut key = FlowKey::default();
        assert!(key.push_tag(CUSTOMER) && key.push_tag(SERVICE));
        assert_eq!((key.tags[0], key.tags[1], key.tags_present), (SERVICE, CUSTOMER, 0b11));
        assert!(key.pop_tag());
        assert_eq!((key.outer_tag(), key.tags_present), (Some(CUSTOMER), 1));
        assert!(key.pop_tag());
        assert_eq!(key, FlowKey::default());
    }

    #[test]
    fn the_key_knows_what_it_does_not_know() {
        let mut key = FlowKey::default();
        for _ in 0..MAX_KEY_TAGS {
            assert!(key.push_tag(CUSTOMER));
        }
        assert!(!key.push_tag(SERVICE), "the fifth tag pushes the first one out");
        assert_eq!(key.tags_present, 0b1111 | TAG_DEEPER);
        assert!(!key.pop_tag(), "the tag that moves in from the end is unknown");
    }

    #[test]
    fn masks_select_bits() {
        let mut key = FlowKey::default();
        key.ip_src[..4].copy_from_slice(&[10, 1, 2, 3]);
        let mut mask = FlowKey::default();
        mask.ip_src[..3].fill(0xff);
        assert_eq!(key.masked(&mask).ip_src[..4], [10, 1, 2, 0]);
        let mut other = key;
        other.ip_src[3] = 9;
        assert!(key.equals_under(&other, &mask));
        other.ip_src[2] = 9;
        assert!(!key.equals_under(&other, &mask));
    }

    #[test]
    fn a_question_of_icmp_and_its_answer_hash_alike() {
        let hash = |ip_proto, kind: u8| {
            let mut key = FlowKey {
                eth_type: EtherType::IPV4.0.to_be_bytes(),
                ip_proto,
                l4_src: [0, kind],
                ..FlowKey::default()
            };
            let (a, b) = if kind == 8 { (1, 2) } else { (2, 1) };
            (key.ip_src[3], key.ip_dst[3]) = (a, b);
            key.symmetric_hash()
        };
        assert_eq!(hash(ip_proto::ICMP, 8), hash(ip_proto::ICMP, 0));
        assert_ne!(hash(ip_proto::UDP, 8), hash(ip_proto::UDP, 0));
    }

    #[test]
    fn both_directions_hash_alike_and_tags_do_not_matter() {
        let mut forward = FlowKey {
            eth_type: EtherType::IPV4.0.to_be_bytes(),
            ip_proto: 6,
            l4_src: 40_000u16.to_be_bytes(),
            l4_dst: 80u16.to_be_bytes(),
            ..FlowKey::default()
        };
        forward.ip_src[..4].copy_from_slice(&[10, 0, 0, 1]);
        forward.ip_dst[..4].copy_from_slice(&[10, 0, 0, 2]);
        let mut reverse = forward;
        std::mem::swap(&mut reverse.ip_src, &mut reverse.ip_dst);
        std::mem::swap(&mut reverse.l4_src, &mut reverse.l4_dst);
        reverse.push_tag(SERVICE);
        assert_eq!(forward.symmetric_hash(), reverse.symmetric_hash());
        reverse.l4_src = 81u16.to_be_bytes();
        assert_ne!(forward.symmetric_hash(), reverse.symmetric_hash());
    }
}
