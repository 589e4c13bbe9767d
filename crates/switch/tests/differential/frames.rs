//! Random frames: of each kind that rules distinguish, with tags, and some of them malformed.

use tapswitch_wire::checksum::Sum;

use crate::fields::{FLOW_LABELS, IPV4, IPV6, L4_PORTS, MACS};
use crate::known::{
    BEHIND_THREE_TAGS, FIRST_FRAGMENTS, FIRST_FRAGMENTS6, Frames, LATER_FRAGMENTS, LATER_FRAGMENTS6,
};
use crate::random::Random;

/// A frame and its ingress port.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) port: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn random(random: &mut Random, frames: Frames) -> Self {
        let mut bytes = random.pick(&MACS[..3]).0.to_vec();
        bytes.extend(random.pick(&MACS[..2]).0);
        for _ in 0..random.pick(&[0, 0, 0, 0, 1, 1, 1, 2, 2, 3]).min(frames.tags_max) {
            let vid = random.pick(&[5, 6, 0, 0xfff]);
            let pcp = random.pick(&[0, 3, 7]);
            put(&mut bytes, &[random.pick(&[0x8100, 0x8100, 0x88a8]), pcp << 13 | vid]);
        }
        let headers = bytes.len();
        if tags(&bytes) > 2 {
            put(&mut bytes, &[BEHIND_THREE_TAGS.0]);
            more(random, &mut bytes);
        } else {
            payload(random, &mut bytes);
        }
        let may_cut = match bytes[headers..headers + 2] {
            [0x88, 0xcc] | [0x12, 0x34] => true,
            // Open vSwitch miscounts truncated MPLS frames.
            [0x88, 0x47] => false,
            _ => frames.cut,
        };
        match random.below(100) {
            0..8 if may_cut => {
                // The header behind the type is truncated.
                let left = bytes.len() - headers - 2;
                bytes.truncate(headers + 2 + random.below(left.min(IPV4_HEADER_LEN - 1) + 1));
            }
            8..50 if bytes.len() < MIN_LEN => bytes.resize(MIN_LEN, 0),
            _ => {}
        }
        if tags(&bytes) > 0 && bytes.len() < MIN_TAGGED_LEN {
            bytes.resize(MIN_TAGGED_LEN, 0);
        }
        Self { port: random.pick(&[1, 1, 2]), bytes }
    }
}

/// Number of tags of a frame.
fn tags(bytes: &[u8]) -> usize {
    let types = bytes.get(12..).unwrap_or_default().chunks_exact(4);
    types.take_while(|tag| matches!(tag[..2], [0x81, 0x00] | [0x88, 0xa8])).count()
}

/// Appends the EtherType and what follows.
fn payload(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(20) {
        0..8 => ipv4(random, bytes),
        8..14 => ipv6(random, bytes),
        14..17 => arp(random, bytes),
        17 => mpls(random, bytes),
        18 => {
            put(bytes, &[random.pick(&[0x88cc, 0x1234])]);
            more(random, bytes);
        }
        _ => length(random, bytes),
    }
}

fn ipv4(random: &mut Random, bytes: &mut Vec<u8>) {
    let (src, dst) = (random.pick(IPV4).octets(), random.pick(IPV4).octets());
    let pseudo = Sum::of(&src).add_bytes(&dst);
    let fragment = fragment(random);
    let (protocols, ports) = match (fragment & 0x1fff, fragment & 0x2000) {
        (0, 0) => (&[1, 6, 6, 17, 17, 132, 47][..], L4_PORTS),
        (0, _) => FIRST_FRAGMENTS,
        _ => (LATER_FRAGMENTS, L4_PORTS),
    };
    let protocol = random.pick(protocols);
    let whole = transport(random, protocol, ports, pseudo);
    // Open vSwitch takes no type from truncated ICMP.
    let transport = if protocol == 1 { whole } else { cut(random, whole) };
    let options: &[u8] = if random.chance(10) { &[1, 1, 1, 0] } else { &[] };
    let mut header = vec![0x45 + u8::try_from(options.len() / 4).unwrap()];
    header.push(random.pick(TOS));
    let len = u16::try_from(20 + options.len() + transport.len()).unwrap();
    put(&mut header, &[len, 7, fragment]);
    header.extend([random.pick(TTLS), protocol, 0, 0]);
    header.extend(src.iter().chain(&dst).chain(options));
    complete(&mut header, 10, Sum::of(&[]));
    put(bytes, &[0x0800]);
    bytes.extend(header);
    bytes.extend(transport);
}

/// Sometimes truncates the header, with a matching IP length.
fn cut(random: &mut Random, mut transport: Vec<u8>) -> Vec<u8> {
    if random.chance(8) {
        transport.truncate(random.below(transport.len() + 1));
    }
    transport
}

/// Flags and offset: rarely those of a first or later fragment.
fn fragment(random: &mut Random) -> u16 {
    match random.below(10) {
        0 => random.pick(&[0x2000, 5, 0x2005]),
        1 => 0x4000,
        _ => 0,
    }
}

fn ipv6(random: &mut Random, bytes: &mut Vec<u8>) {
    let (src, dst) = (random.pick(IPV6).octets(), random.pick(IPV6).octets());
    let pseudo = Sum::of(&src).add_bytes(&dst);
    let protocol = random.pick(&[6, 6, 17, 58, 58, 132]);
    let (next, extension) = extension(random, protocol);
    let ports = if next == 44 { FIRST_FRAGMENTS.1 } else { L4_PORTS };
    let transport = match protocol {
        // Open vSwitch takes no type from truncated neighbour discovery.
        58 => icmpv6(random, pseudo),
        _ => {
            let whole = transport(random, protocol, ports, pseudo);
            cut(random, whole)
        }
    };
    put(bytes, &[0x86dd]);
    let tos = u32::from(random.pick(TOS));
    bytes.extend((6 << 28 | tos << 20 | random.pick(FLOW_LABELS)).to_be_bytes());
    put(bytes, &[u16::try_from(extension.len() + transport.len()).unwrap()]);
    let is_discovery = protocol == 58 && matches!(transport.first(), Some(135 | 136));
    bytes.extend([next, if is_discovery { 255 } else { random.pick(TTLS) }]);
    bytes.extend(src.into_iter().chain(dst).chain(extension).chain(transport));
}

/// Sometimes a header between IPv6 and the protocol: its number, and the bytes.
fn extension(random: &mut Random, protocol: u8) -> (u8, Vec<u8>) {
    let fragment = |protocol, offset| (44, vec![protocol, 0, 0, offset, 0, 0, 0, 9]);
    match random.below(20) {
        0..6 if FIRST_FRAGMENTS6.contains(&protocol) => fragment(protocol, random.pick(&[0, 1])),
        0 => fragment(LATER_FRAGMENTS6, random.pick(&[8, 9])),
        1 => (0, vec![protocol, 0, 1, 4, 0, 0, 0, 0]),
        2 => (60, vec![protocol, 0, 1, 4, 0, 0, 0, 0]),
        3 => (43, vec![protocol, 0, 0, 0, 0, 0, 0, 0]),
        _ => (protocol, Vec::new()),
    }
}

/// A header of the protocol and its payload, with a valid checksum.
fn transport(random: &mut Random, protocol: u8, ports: &[u16], pseudo: Sum) -> Vec<u8> {
    let (src, dst) = (random.pick(ports), random.pick(ports));
    let mut bytes = Vec::new();
    match protocol {
        6 => {
            put(&mut bytes, &[src, dst, 0, 1, 0, 2, 0x5010, 100, 0, 0]);
            more(random, &mut bytes);
            let beside = with_protocol(pseudo, 6, bytes.len());
            complete(&mut bytes, 16, beside);
        }
        17 => {
            put(&mut bytes, &[src, dst, 0, 0]);
            more(random, &mut bytes);
            let len = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            bytes[4..6].copy_from_slice(&len);
            // A checksum of zero is permitted.
            if random.chance(80) {
                let beside = with_protocol(pseudo, 17, bytes.len());
                complete(&mut bytes, 6, beside);
            }
        }
        1 => {
            bytes.extend([random.pick(&[0, 8]), random.pick(&[0, 1]), 0, 0, 0, 1, 0, 1]);
            more(random, &mut bytes);
            complete(&mut bytes, 2, Sum::of(&[]));
        }
        132 => put(&mut bytes, &[src, dst, 0, 1, 0, 0, 0x0300, 4]),
        _ => more(random, &mut bytes),
    }
    bytes
}

fn icmpv6(random: &mut Random, pseudo: Sum) -> Vec<u8> {
    let kind = random.pick(&[128, 129, 135, 136]);
    let mut bytes = vec![kind, random.pick(&[0, 0, 1]), 0, 0, 0, 0, 0, 0];
    if kind < 135 {
        more(random, &mut bytes);
    } else {
        bytes.extend(random.pick(IPV6).octets());
        if random.chance(70) {
            bytes.extend([kind - 134, 1]);
            bytes.extend(random.pick(MACS).0);
        }
    }
    let beside = with_protocol(pseudo, 58, bytes.len());
    complete(&mut bytes, 2, beside);
    bytes
}

fn arp(random: &mut Random, bytes: &mut Vec<u8>) {
    put(bytes, &[0x0806, 1, 0x0800, 0x0604, random.pick(&[1, 2])]);
    for _ in 0..2 {
        bytes.extend(random.pick(MACS).0);
        bytes.extend(random.pick(IPV4).octets());
    }
}

fn mpls(random: &mut Random, bytes: &mut Vec<u8>) {
    put(bytes, &[0x8847, 1, 0x1000 | 1 << 8 | 64]);
    more(random, bytes);
}

/// A length in place of the EtherType, with or without SNAP.
fn length(random: &mut Random, bytes: &mut Vec<u8>) {
    let mut body = vec![0x42, 0x42, 3];
    if random.chance(50) {
        body = vec![0xaa, 0xaa, 3, 0, 0, 0];
        put(&mut body, &[random.pick(&[0x1234, 0x88cc])]);
    }
    more(random, &mut body);
    put(bytes, &[u16::try_from(body.len()).unwrap()]);
    bytes.extend(body);
}

fn more(random: &mut Random, bytes: &mut Vec<u8>) {
    let len = random.pick(&[0, 1, 18, 40]);
    bytes.extend(random.bytes(len));
}

fn put(bytes: &mut Vec<u8>, words: &[u16]) {
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

fn with_protocol(pseudo: Sum, protocol: u8, len: usize) -> Sum {
    let [high, low] = u16::try_from(len).unwrap().to_be_bytes();
    pseudo.add_bytes(&[0, protocol, high, low])
}

/// Writes the checksum of `bytes`, where it is zero, and of the pseudo-header `beside`.
fn complete(bytes: &mut [u8], at: usize, beside: Sum) {
    let checksum = beside.add_bytes(bytes).checksum().to_be_bytes();
    bytes[at..at + 2].copy_from_slice(&checksum);
}

/// In a longer, truncated header, our switch would read the fields and Open vSwitch would not.
const IPV4_HEADER_LEN: usize = 20;
/// Linux drops shorter tagged frames before they reach a socket.
const MIN_TAGGED_LEN: usize = 20;
/// Minimum length of a frame on a wire without its FCS. Some are shorter here, as on veths.
const MIN_LEN: usize = 60;
const TOS: &[u8] = &[0, 0x28, 3, 0xff];
const TTLS: &[u8] = &[0, 1, 2, 64, 64];
