//! Recognises known flows without parsing, and caches their programs.
//!
//! Nearly all frames are TCP or UDP over IPv4 without options, or over IPv6 without extension
//! headers, behind at most two tags. Everything that a flow key holds of such a frame is in a few
//! words at offsets that are known once the type has been read: [`IPV4_WORDS`] of them, or
//! [`IPV6_WORDS`]. The words are used as they are: a frame with the same words as an earlier one
//! has the same key, and thus the same program, and no key has to be built. Any other frame is
//! parsed ([`tapswitch_wire::parse()`]) and looked up by its key; this includes frames whose IP
//! packet, by its own length, ends before its headers do.
//!
//! The words stay in registers from the frame to the comparison: everything in between is inlined,
//! and nothing is compared bytewise. A load of data that was stored just before in several pieces
//! has to wait until these have reached the cache, behind all stores to buffers of guests.

use std::rc::Rc;

use tapswitch_openflow::PortNo;
use tapswitch_wire::{EtherType, Layout, ip_proto, ipv6, tcp, udp};

use crate::hash::hash_words;
use crate::program::Program;

/// A frame of the common kind: the words that identify its flow, and the offsets of its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glance<const WORDS: usize> {
    words: [u64; WORDS],
    pub(crate) layout: Layout,
}

impl Glance<IPV4_WORDS> {
    /// `None` if the frame is not of the common kind over IPv4.
    #[expect(clippy::inline_always, reason = "see the module")]
    #[inline(always)]
    pub(crate) fn of(frame: &[u8], in_port: PortNo) -> Option<Self> {
        let head = frame.first_chunk()?;
        match tags_before(head, EtherType::IPV4)? {
            0 => Self::behind::<0>(frame, head, in_port),
            1 => Self::behind::<1>(frame, head, in_port),
            _ => Self::behind::<2>(frame, head, in_port),
        }
    }

    /// The same behind `TAGS` tags, with IPv4 behind them.
    #[expect(clippy::inline_always, reason = "see the module")]
    #[inline(always)]
    fn behind<const TAGS: usize>(frame: &[u8], head: &Head, in_port: PortNo) -> Option<Self> {
        let network = 14 + 4 * TAGS;
        let transport = network + 20;
        let [version, tos, l0, l1, _, _, fragment, low, _, protocol] = bytes(head, network);
        let is_fragment = fragment & 0x3f | low != 0;
        if version != 0x45 || is_fragment {
            return None;
        }
        let end = transport + transport_len(frame, transport, protocol)?;
        if network + usize::from(u16::from_be_bytes([l0, l1])) < end {
            return None;
        }
        let [tos, protocol_word] = [tos, protocol].map(u64::from);
        let [addresses, rest, tags] = link_words::<TAGS>(head, in_port);
        let words = [
            addresses,
            rest,
            tags,
            word64(head, network + 12),
            u64::from(word32(head, transport)) | tos << 32 | protocol_word << 40,
        ];
        Some(Self { words, layout: layout::<TAGS>(network, transport, end, protocol) })
    }
}

impl Glance<IPV6_WORDS> {
    /// `None` if the frame is not of the common kind over IPv6.
    #[inline]
    pub(crate) fn of_ipv6(frame: &[u8], in_port: PortNo) -> Option<Self> {
        match tags_before(frame.first_chunk()?, EtherType::IPV6)? {
            0 => Self::behind::<0>(frame, in_port),
            1 => Self::behind::<1>(frame, in_port),
            _ => Self::behind::<2>(frame, in_port),
        }
    }

    #[inline]
    fn behind<const TAGS: usize>(frame: &[u8], in_port: PortNo) -> Option<Self> {
        let (network, transport) = (14 + 4 * TAGS, 14 + 4 * TAGS + ipv6::HEADER_LEN);
        let head = frame.first_chunk()?;
        let packet: &[u8; ipv6::HEADER_LEN + 4] = frame.get(network..)?.first_chunk()?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&packet[at..at + 8]);
            bytes
        };
        // Everything except payload length and hop limit.
        let [version, class, label0, label1, l0, l1, protocol, _] = word(0);
        if version >> 4 != 6 {
            return None;
        }
        let end = transport + transport_len(frame, transport, protocol)?;
        if transport + usize::from(u16::from_be_bytes([l0, l1])) < end {
            return None;
        }
        let kind = [version, class, label0, label1, 0, 0, protocol, 0];
        let [_, _, _, _, p0, p1, p2, p3] = word(ipv6::HEADER_LEN - 4);
        let [addresses, rest, tags] = link_words::<TAGS>(head, in_port);
        let [a, b, c, d] = [8, 16, 24, 32].map(|at| u64::from_ne_bytes(word(at)));
        let (kind, ports) = (u64::from_ne_bytes(kind), u32::from_ne_bytes([p0, p1, p2, p3]));
        let words = [addresses, rest, tags, kind, a, b, c, d, ports.into()];
        Some(Self { words, layout: layout::<TAGS>(network, transport, end, protocol) })
    }
}

impl<const WORDS: usize> Glance<WORDS> {
    /// The slot of its flow in the table.
    #[expect(clippy::inline_always, reason = "see the module")]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an index")]
    fn place(&self) -> usize {
        hash_words(&self.words) as usize % SLOTS
    }
}

/// The number of tags, if at most two, in front of a packet of type `wanted`.
#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
fn tags_before(head: &Head, wanted: EtherType) -> Option<usize> {
    let outer = ether_type(head, 12);
    if outer == wanted {
        return Some(0);
    }
    if !outer.is_tag() {
        return None;
    }
    match ether_type(head, 16) {
        inner if inner == wanted => Some(1),
        inner if inner.is_tag() && ether_type(head, 20) == wanted => Some(2),
        _ => None,
    }
}

/// Addresses, tags and their number, and the ingress port.
#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
fn link_words<const TAGS: usize>(head: &Head, in_port: PortNo) -> [u64; 3] {
    let tags = match TAGS {
        0 => 0,
        1 => u64::from(word32(head, 12)),
        _ => word64(head, 12),
    };
    // Port numbers have at most 12 bits, except the reserved ones.
    let place = u64::from(in_port.0) << 32 ^ (TAGS as u64) << 60;
    [word64(head, 0), u64::from(word32(head, 8)) | place, tags]
}

/// Length of a TCP or UDP header that is complete.
#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
fn transport_len(frame: &[u8], at: usize, protocol: u8) -> Option<usize> {
    let segment = frame.get(at..)?;
    match protocol {
        ip_proto::UDP => (segment.len() >= udp::HEADER_LEN).then_some(udp::HEADER_LEN),
        ip_proto::TCP => tcp::header_len(segment),
        _ => None,
    }
}

#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the longest headers end at 122")]
fn layout<const TAGS: usize>(network: usize, transport: usize, end: usize, protocol: u8) -> Layout {
    Layout {
        tags: TAGS as u16,
        network: network as u16,
        transport: Some(transport as u16),
        end: end as u16,
        protocol,
    }
}

/// Bytes that are read without a length check: two tags, and the ports behind them. No Ethernet
/// frame is shorter.
type Head = [u8; 50];

#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
fn bytes<const N: usize>(head: &Head, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}

#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
fn word32(head: &Head, at: usize) -> u32 {
    u32::from_ne_bytes(bytes(head, at))
}

#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
fn word64(head: &Head, at: usize) -> u64 {
    u64::from_ne_bytes(bytes(head, at))
}

#[expect(clippy::inline_always, reason = "see the module")]
#[inline(always)]
fn ether_type(head: &Head, at: usize) -> EtherType {
    EtherType(u16::from_be_bytes(bytes(head, at)))
}

/// Programs of one worker by glance. Entries of other epochs are void.
#[derive(Debug)]
pub(crate) struct Recent<const WORDS: usize>(Box<[Slot<WORDS>]>);

#[derive(Clone, Debug)]
#[repr(align(64))] // A frame touches one cache line.
struct Slot<const WORDS: usize> {
    words: [u64; WORDS],
    epoch: u64,
    program: Option<Rc<Program>>,
}

impl<const WORDS: usize> Recent<WORDS> {
    pub(crate) fn new() -> Self {
        let empty = Slot { words: [0; WORDS], epoch: 0, program: None };
        Self(vec![empty; SLOTS].into())
    }

    /// The program of this frame's flow.
    #[expect(clippy::inline_always, reason = "see the module")]
    #[inline(always)]
    pub(crate) fn find(&self, glance: &Glance<WORDS>, epoch: u64) -> Option<&Rc<Program>> {
        let slot = &self.0[glance.place()];
        let differ = |sum, (one, other): (&u64, &u64)| sum | (one ^ other);
        let differ = slot.words.iter().zip(&glance.words).fold(slot.epoch ^ epoch, differ);
        if differ == 0 { slot.program.as_ref() } else { None }
    }

    /// Stores the program of this flow, if it does not need the flow's hash.
    pub(crate) fn insert(&mut self, glance: &Glance<WORDS>, epoch: u64, program: &Rc<Program>) {
        if !program.wants_hash {
            let program = Some(program.clone());
            self.0[glance.place()] = Slot { words: glance.words, epoch, program };
        }
    }
}

/// Flows in the table: 64 bytes each over IPv4, an eighth of a second-level cache, and 128 over
/// IPv6.
const SLOTS: usize = 2048;
/// Addresses, ingress port, tags, addresses again, ports and kinds.
pub(crate) const IPV4_WORDS: usize = 5;
/// The same, with four words of addresses, and one of traffic class and flow label.
pub(crate) const IPV6_WORDS: usize = 9;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapswitch_wire::{Parsed, parse};

    use super::*;

    /// A frame of the common kind, or nearly so, with some bytes that are not read.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let tags = prop::collection::vec(prop_oneof![Just(0x8100u16), Just(0x88a8)], 0..4);
        let odd = prop::collection::vec((0usize..80, any::<u8>()), 0..4);
        let protocol = prop_oneof![Just(6u8), Just(17), Just(1), Just(47)];
        let rest = (any::<[u8; 8]>(), 0usize..70);
        (tags, odd, protocol, 0u8..4, rest).prop_map(|(tags, odd, protocol, flow, (noise, len))| {
            let mut frame = vec![2, 0, 0, 0, 0, flow & 1, 2, 0, 0, 0, 0, 9];
            for tpid in tags {
                frame.extend(tpid.to_be_bytes());
                frame.extend([0, flow >> 1]);
            }
            frame.extend([0x08, 0x00, 0x45, 0, 0, noise[0], noise[1], noise[2], 0x40, 0]);
            frame.extend([noise[3], protocol, noise[4], noise[5], 10, 0, 0, 1, 10, 0, 0, flow]);
            frame.extend([
                0, 80, 0, 81, noise[6], 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0,
            ]);
            frame.extend(vec![noise[7]; 20]);
            odd.into_iter().for_each(|(at, byte)| {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            });
            frame.truncate(frame.len().saturating_sub(len));
            frame
        })
    }

    fn ipv6_frames() -> impl Strategy<Value = Vec<u8>> {
        let odd = prop::collection::vec((0usize..80, any::<u8>()), 0..3);
        let protocol = prop_oneof![Just(6u8), Just(17), Just(58), Just(0)];
        (0usize..4, odd, protocol, 0u8..4, any::<[u8; 4]>(), 0usize..70).prop_map(
            |(tags, odd, protocol, flow, noise, len)| {
                let mut frame = vec![2, 0, 0, 0, 0, flow & 1, 2, 0, 0, 0, 0, 9];
                (0..tags).for_each(|_| frame.extend([0x81, 0, 0, flow >> 1]));
                frame.extend([0x86, 0xdd, 0x60, 0, 0, flow & 1, noise[0], noise[1], protocol]);
                frame.push(noise[2]);
                frame.extend([[0xfd; 16], [flow; 16]].concat());
                frame.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
                frame.extend([noise[3]; 20]);
                odd.into_iter().for_each(|(at, byte)| {
                    if let Some(place) = frame.get_mut(at) {
                        *place = byte;
                    }
                });
                frame.truncate(frame.len().saturating_sub(len));
                frame
            },
        )
    }

    /// The layout of a frame of the common kind over `wanted`, as the parser finds it; `None` for
    /// any other.
    fn common(frame: &[u8], wanted: EtherType) -> Option<Layout> {
        let Parsed { key, layout } = parse(frame).ok()?;
        let header_len = if wanted == EtherType::IPV4 { 20 } else { 40 };
        let network = 14 + 4 * layout.tags;
        let at = |distance: usize| usize::from(network) + distance;
        let (len_at, counted_from) =
            if header_len == 20 { (at(2), at(0)) } else { (at(4), at(40)) };
        let len = frame.get(len_at..len_at + 2).map(|len| u16::from_be_bytes([len[0], len[1]]));
        let is_common = frame.len() >= size_of::<Head>()
            && len.is_some_and(|len| counted_from + usize::from(len) >= layout.end.into())
            && (key.eth_type, key.fragment) == (wanted.0.to_be_bytes(), 0)
            && layout.tags <= 2
            && (layout.network, layout.transport) == (network, Some(network + header_len))
            && [ip_proto::TCP, ip_proto::UDP].contains(&layout.protocol);
        is_common.then_some(layout)
    }

    proptest! {
        #[test]
        fn a_glance_sees_what_a_parser_sees(frame in frames()) {
            let glance = Glance::of(&frame, PortNo(1)).map(|glance| glance.layout);
            prop_assert_eq!(glance, common(&frame, EtherType::IPV4));
        }

        #[test]
        fn what_looks_alike_has_the_same_key(one in frames(), other in frames()) {
            let glances = [&one, &other].map(|frame| Glance::of(frame, PortNo(1)));
            let keys = [&one, &other].map(|frame| parse(frame).map(|parsed| parsed.key).ok());
            if let [Some(one), Some(other)] = glances {
                prop_assert_eq!(one.words == other.words, keys[0] == keys[1]);
            }
        }

        #[test]
        fn the_same_holds_over_ipv6(one in ipv6_frames(), other in ipv6_frames()) {
            let glances = [&one, &other].map(|frame| Glance::of_ipv6(frame, PortNo(1)));
            for (frame, glance) in [&one, &other].into_iter().zip(&glances) {
                let layout = glance.as_ref().map(|glance| glance.layout);
                prop_assert_eq!(layout, common(frame, EtherType::IPV6));
            }
            let keys = [&one, &other].map(|frame| parse(frame).map(|parsed| parsed.key).ok());
            if let [Some(one), Some(other)] = glances {
                prop_assert_eq!(one.words == other.words, keys[0] == keys[1]);
            }
        }
    }

    #[test]
    fn the_common_kinds_are_known_at_a_glance() {
        let frame = crate::test_frames::tcp_frame(100);
        let glance = Glance::of(&frame, PortNo(3)).unwrap();
        assert_eq!(glance.layout, parse(&frame).unwrap().layout);
        assert_ne!(Glance::of(&frame, PortNo(4)).unwrap(), glance, "it came in elsewhere");
        let mut tagged = frame.clone();
        for _ in 0..2 {
            tagged.splice(12..12, [0x81, 0, 0, 5]);
            assert!(Glance::of(&tagged, PortNo(3)).is_some());
        }
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(Glance::of(&tagged, PortNo(3)), None);
        for len in 0..54 {
            assert_eq!(Glance::of(&frame[..len], PortNo(3)), None, "{len} bytes");
        }
    }
}
