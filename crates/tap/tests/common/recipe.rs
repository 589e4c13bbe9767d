//! Frames of all kinds, to compare the programs with their definition in Rust.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::sample::select;

/// Description of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) macs: [[u8; 6]; 2],
    /// TPIDs of the tags, the outermost first.
    pub(crate) tags: Vec<u16>,
    pub(crate) network: Network,
}

#[derive(Clone, Debug)]
pub(crate) enum Network {
    V4 { ends: [Ipv4Addr; 2], options: u8, fragment: u16, transport: Transport },
    V6 { ends: [Ipv6Addr; 2], extensions: Vec<Extension>, transport: Transport },
    Other { ether_type: u16 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    pub(crate) kind: u8,
    /// As in the header: units after the first.
    pub(crate) units: u8,
    /// Of a fragment header: offset and flags.
    pub(crate) fragment: u16,
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Ports { protocol: u8, ports: [u16; 2] },
    Vxlan { source_port: u16, flags: u8, inner: Box<Recipe> },
    None { protocol: u8 },
}

impl Recipe {
    /// The frame, or its reply.
    pub(crate) fn frame(&self, backwards: bool) -> Vec<u8> {
        let [src, dst] = in_order(&self.macs, backwards);
        let mut frame = [dst, src].concat();
        for tag in &self.tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0x20, 7]);
        }
        let ether_type = match &self.network {
            Network::V4 { .. } => 0x0800,
            Network::V6 { .. } => 0x86dd,
            Network::Other { ether_type } => *ether_type,
        };
        frame.extend(ether_type.to_be_bytes());
        frame.extend(self.packet(backwards));
        frame
    }

    /// The bytes after the Ethernet header.
    pub(crate) fn packet(&self, backwards: bool) -> Vec<u8> {
        match &self.network {
            Network::V4 { ends, options, fragment, transport } => {
                v4(in_order(ends, backwards), *options, *fragment, transport, backwards)
            }
            Network::V6 { ends, extensions, transport } => {
                v6(in_order(ends, backwards), extensions, transport, backwards)
            }
            Network::Other { .. } => vec![0x5a; 46],
        }
    }

    pub(crate) fn with_tags(&self, tags: Vec<u16>) -> Self {
        Self { tags, ..self.clone() }
    }
}

/// TCP over IPv4 between 10.0.0.1 and 10.0.0.2.
pub(crate) fn tcp(ports: [u16; 2]) -> Recipe {
    Recipe {
        macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        tags: vec![],
        network: Network::V4 {
            ends: [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)],
            options: 0,
            fragment: 0x4000,
            transport: Transport::Ports { protocol: 6, ports },
        },
    }
}

/// TCP over IPv6 between fd00::1 and fd00::2.
pub(crate) fn tcp_v6(ports: [u16; 2]) -> Recipe {
    let ends = [1, 2].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host));
    let transport = Transport::Ports { protocol: 6, ports };
    Recipe { network: Network::V6 { ends, extensions: vec![], transport }, ..tcp(ports) }
}

/// `inner` in VXLAN between 192.0.2.1 and 192.0.2.2.
pub(crate) fn vxlan(inner: Recipe, source_port: u16) -> Recipe {
    Recipe {
        macs: [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]],
        tags: vec![],
        network: Network::V4 {
            ends: [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)],
            options: 0,
            fragment: 0,
            transport: Transport::Vxlan { source_port, flags: 0x08, inner: Box::new(inner) },
        },
    }
}

fn v4(
    [src, dst]: [Ipv4Addr; 2],
    options: u8,
    fragment: u16,
    transport: &Transport,
    backwards: bool,
) -> Vec<u8> {
    let (protocol, payload) = upper(transport, backwards);
    let options = vec![1; 4 * usize::from(options)];
    let len = u16::try_from(20 + options.len() + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45 + u8::try_from(options.len() / 4).unwrap(), 0, len[0], len[1], 0, 9];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    let sum = !checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    [packet, options, payload].concat()
}

fn v6(
    [src, dst]: [Ipv6Addr; 2],
    extensions: &[Extension],
    transport: &Transport,
    backwards: bool,
) -> Vec<u8> {
    let (protocol, payload) = upper(transport, backwards);
    let mut behind = (protocol, payload);
    for extension in extensions.iter().rev() {
        let mut header = vec![behind.0, extension.units, 0, 0, 0, 0, 0, 0];
        match extension.kind {
            44 => header[2..4].copy_from_slice(&extension.fragment.to_be_bytes()),
            51 => header.resize((usize::from(extension.units) + 2) * 4, 0),
            _ => header.resize((usize::from(extension.units) + 1) * 8, 0),
        }
        behind = (extension.kind, [header, behind.1].concat());
    }
    let (first, payload) = behind;
    let len = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let fixed = [0x60, 0, 0, 0, len[0], len[1], first, 64];
    [&fixed[..], &src.octets(), &dst.octets(), &payload].concat()
}

/// The protocol, and the bytes after the IP header.
fn upper(transport: &Transport, backwards: bool) -> (u8, Vec<u8>) {
    match transport {
        Transport::None { protocol } => (*protocol, vec![0x99; 24]),
        Transport::Ports { protocol, ports } => {
            let [src, dst] = in_order(ports, backwards);
            (*protocol, [&src.to_be_bytes()[..], &dst.to_be_bytes(), &[0x50; 24]].concat())
        }
        Transport::Vxlan { source_port, flags, inner } => {
            let inner = inner.frame(backwards);
            let len = u16::try_from(16 + inner.len()).unwrap().to_be_bytes();
            // The source port is the sender's own hash, which need not be symmetric.
            let source_port = source_port.wrapping_add(backwards.into()).to_be_bytes();
            let udp = [&source_port[..], &4789_u16.to_be_bytes(), &len, &[0, 0]].concat();
            (17, [&udp, &[*flags, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat())
        }
    }
}

fn in_order<T: Copy>([a, b]: &[T; 2], backwards: bool) -> [T; 2] {
    if backwards { [*b, *a] } else { [*a, *b] }
}

/// The ones' complement sum (RFC 1071), as simple as possible.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = bytes.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Any frame: tags, either IP, options, extension headers, fragments, VXLAN up to four deep.
pub(crate) fn recipes() -> BoxedStrategy<Recipe> {
    recipe(network(transport().boxed()).boxed())
        .prop_recursive(4, 4, 1, |inner| {
            let tunnel = (any::<u16>(), select(vec![8_u8, 8, 8, 0, 0xff]), inner).prop_map(
                |(source_port, flags, inner)| Transport::Vxlan {
                    source_port,
                    flags,
                    inner: Box::new(inner),
                },
            );
            recipe(network(tunnel.boxed()).boxed()).boxed()
        })
        .boxed()
}

/// The frame of any recipe, mostly whole, sometimes truncated or modified, and garbage.
pub(crate) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let whole = (recipes(), any::<bool>()).prop_map(|(recipe, back)| recipe.frame(back));
    damaged(whole)
}

/// As [`frames`], without the Ethernet header.
pub(crate) fn packets() -> impl Strategy<Value = Vec<u8>> {
    let whole = (recipes(), any::<bool>()).prop_map(|(recipe, back)| recipe.packet(back));
    damaged(whole)
}

fn damaged(whole: impl Strategy<Value = Vec<u8>> + Clone) -> impl Strategy<Value = Vec<u8>> {
    let cut = (whole.clone(), 1..160_usize).prop_map(|(mut frame, len)| {
        frame.truncate(len);
        frame
    });
    let hits = proptest::collection::vec((0..120_usize, any::<u8>()), 1..4);
    let changed = (whole.clone(), hits).prop_map(|(mut frame, hits)| {
        for (at, byte) in hits {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame
    });
    let garbage = proptest::collection::vec(any::<u8>(), 1..100);
    prop_oneof![5 => whole, 3 => cut, 2 => changed, 1 => garbage]
}

fn recipe(network: BoxedStrategy<Network>) -> impl Strategy<Value = Recipe> {
    let tags = prop_oneof![
        9 => proptest::collection::vec(tag_type(), 0..7),
        1 => proptest::collection::vec(tag_type(), 14..19),
    ];
    (any::<[[u8; 6]; 2]>(), tags, network).prop_map(|(macs, tags, network)| Recipe {
        macs,
        tags,
        network,
    })
}

fn tag_type() -> impl Strategy<Value = u16> {
    select(vec![0x8100, 0x88a8, 0x9100])
}

fn network(transport: BoxedStrategy<Transport>) -> impl Strategy<Value = Network> {
    let fragment = select(vec![0_u16, 0, 0x4000, 0x4000, 0x2000, 0x0010, 0x3fff, 0x8000]);
    let v4_ends = any::<[[u8; 4]; 2]>().prop_map(|ends| ends.map(Ipv4Addr::from));
    let v4 = (v4_ends, select(vec![0, 0, 1, 10]), fragment, transport.clone()).prop_map(
        |(ends, options, fragment, transport)| Network::V4 { ends, options, fragment, transport },
    );
    let v6_ends = any::<[[u8; 16]; 2]>().prop_map(|ends| ends.map(Ipv6Addr::from));
    let extensions = prop_oneof![
        2 => Just(vec![]),
        1 => proptest::collection::vec(extension(), 1..4),
        1 => proptest::collection::vec(extension(), 7..10),
    ];
    let v6 = (v6_ends, extensions, transport)
        .prop_map(|(ends, extensions, transport)| Network::V6 { ends, extensions, transport });
    let other = select(vec![0x0806, 0x88cc, 0x8847, 0x05dc]);
    let other = other.prop_map(|ether_type| Network::Other { ether_type });
    prop_oneof![4 => v4, 4 => v6, 1 => other]
}

fn extension() -> impl Strategy<Value = Extension> {
    let kind = select(vec![0, 43, 44, 51, 60, 135]);
    let fragment = select(vec![0_u16, 0, 0, 0x0006, 1, 8, 0xfff9]);
    (kind, select(vec![1_u8, 0, 2, 3]), fragment).prop_map(|(kind, units, fragment)| Extension {
        kind,
        units,
        fragment,
    })
}

fn transport() -> impl Strategy<Value = Transport> {
    let port = || select(vec![0_u16, 53, 80, 443, 4789, 40_000, 65_535]);
    let protocol = select(vec![6_u8, 6, 17, 17, 132, 1, 47, 58, 136]);
    let ports = (protocol, [port(), port()])
        .prop_map(|(protocol, ports)| Transport::Ports { protocol, ports });
    let none = select(vec![1_u8, 2, 58, 59, 255]).prop_map(|protocol| Transport::None { protocol });
    prop_oneof![4 => ports, 1 => none]
}
