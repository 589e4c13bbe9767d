//! Creates packets as received from a wire, and coalesces and segments them.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "each test program uses a part of it, on lengths that it chose"
)]

pub mod around;

use around::Around;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tapswitch_offload::coalesce::{Place, Tunnels};
use tapswitch_offload::{Coalescer, Segments, SplitOptions, complete_checksum};
use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    GsoType, LongNetHeader, NetHeader, NetHeaderFlags, ip_proto, ipv6, parse, read_u16, write_u16,
};

pub const ACK: u8 = 0x10;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const URG: u8 = 0x20;
pub const ECE: u8 = 0x40;
pub const C_TAG: u32 = 0x8100_6064;
pub const S_TAG: u32 = 0x88a8_00c8;
pub const LEGACY_TAG: u32 = 0x9100_0005;

/// A packet, field by field.
#[derive(Clone, Debug)]
pub struct Packet {
    /// TPID and TCI of each tag, outermost first.
    pub tags: Vec<u32>,
    /// Its tunnel.
    pub around: Option<Around>,
    /// The network layer.
    pub ip: Ip,
    /// ToS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Selects the flow: last byte of the source address, and part of the source port.
    pub flow: u8,
    /// The transport layer.
    pub upper: Upper,
    /// Payload.
    pub payload: Vec<u8>,
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Bytes after the packet, as Ethernet pads.
    pub padding: usize,
    /// Payload of each packet of a train.
    pub gso_size: u16,
}

/// The network layer of a [`Packet`].
#[derive(Clone, Debug)]
pub enum Ip {
    /// IPv4.
    V4 {
        /// Identification.
        id: u16,
        /// Flags and fragment offset.
        fragment: u16,
        /// Words of options.
        options: usize,
    },
    /// IPv6.
    V6 {
        /// Flow label.
        label: u32,
        /// Extension headers of 8 bytes each.
        extensions: Vec<u8>,
    },
}

/// The transport layer of a [`Packet`].
#[derive(Clone, Debug)]
pub enum Upper {
    /// TCP.
    Tcp {
        /// Sequence number.
        seq: u32,
        /// Acknowledgement number.
        ack: u32,
        /// Flags.
        flags: u8,
        /// Window.
        window: u16,
        /// Urgent pointer.
        urgent: u16,
        /// Options, whole words.
        options: Vec<u8>,
    },
    /// UDP.
    Udp,
}

/// State of the checksum of a [`Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Valid.
    Right,
    /// Wrong.
    Wrong,
    /// Valid, and marked so in the metadata.
    Vouched,
    /// Partial.
    Partial,
    /// Zero: absent.
    None,
}

const TIMESTAMP: [u8; 12] = [1, 1, 8, 10, 0, 1, 2, 3, 0, 4, 5, 6];

impl Packet {
    /// TCP over IPv4 with timestamps and 100 bytes.
    pub fn tcp_v4() -> Self {
        let (seq, ack, window) = (0xffff_ff80, 0x1234_5678, 0x01f6);
        let options = TIMESTAMP.to_vec();
        Self {
            tags: Vec::new(),
            around: None,
            ip: Ip::V4 { id: 0xfffe, fragment: 0x4000, options: 0 },
            tos: 2,
            ttl: 64,
            flow: 1,
            upper: Upper::Tcp { seq, ack, flags: ACK, window, urgent: 0, options },
            payload: (0..100).collect(),
            checksum: Checksum::Right,
            padding: 0,
            gso_size: 0,
        }
    }

    /// TCP over IPv6.
    pub fn tcp_v6() -> Self {
        Self { ip: Ip::V6 { label: 0x12345, extensions: Vec::new() }, ..Self::tcp_v4() }
    }

    /// UDP over IPv4.
    pub fn udp_v4() -> Self {
        Self { upper: Upper::Udp, ..Self::tcp_v4() }
    }

    /// UDP over IPv6.
    pub fn udp_v6() -> Self {
        Self { upper: Upper::Udp, ..Self::tcp_v6() }
    }

    /// All four.
    pub fn of_every_kind() -> [Self; 4] {
        [Self::tcp_v4(), Self::tcp_v6(), Self::udp_v4(), Self::udp_v6()]
    }

    /// The packet that follows this one, with the same length.
    pub fn next(&self) -> Self {
        let mut next = self.clone();
        let count =
            if self.gso_size == 0 { 1 } else { self.meta().wire_packets(self.payload.len()) };
        let outer = next.around.as_mut().map(|around| &mut around.ip);
        for ip in [&mut next.ip].into_iter().chain(outer) {
            if let Ip::V4 { id, .. } = ip {
                *id = id.wrapping_add(count as u16);
            }
        }
        if let Upper::Tcp { seq, .. } = &mut next.upper {
            *seq = seq.wrapping_add(self.payload.len() as u32);
        }
        next.payload.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(7));
        next
    }

    /// `count` consecutive packets, starting with this one.
    pub fn stream(&self, count: usize) -> Vec<Self> {
        std::iter::successors(Some(self.clone()), |packet| Some(packet.next()))
            .take(count)
            .collect()
    }

    /// The same with a payload of `len` bytes.
    pub fn sized(mut self, len: usize) -> Self {
        self.payload = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
        self
    }

    /// The same with these tags.
    pub fn tagged(mut self, tags: &[u32]) -> Self {
        self.tags = tags.to_vec();
        self
    }

    /// The same in another flow, outside and inside.
    pub fn of_flow(mut self, flow: u8) -> Self {
        self.flow = flow;
        if let Some(around) = &mut self.around {
            around.flow = flow;
        }
        self
    }

    /// The same in a tunnel.
    pub fn inside(mut self, around: &Around) -> Self {
        self.around = Some(around.clone());
        self
    }

    /// The same with another state of its checksum.
    pub fn with(mut self, checksum: Checksum) -> Self {
        self.checksum = checksum;
        self
    }

    /// The same with these TCP flags.
    pub fn flags(mut self, new: u8) -> Self {
        if let Upper::Tcp { flags, .. } = &mut self.upper {
            *flags = new;
        }
        self
    }

    /// Start of the IP header.
    pub fn network_at(&self) -> usize {
        14 + 4 * self.tags.len() + self.around.as_ref().map_or(0, Around::len)
    }

    /// Start of the TCP or UDP header.
    pub fn upper_at(&self) -> usize {
        self.network_at() + self.ip.len()
    }

    fn protocol(&self) -> u8 {
        match self.upper {
            Upper::Tcp { .. } => ip_proto::TCP,
            Upper::Udp => ip_proto::UDP,
        }
    }

    /// Offset of the checksum in the TCP or UDP header.
    pub fn checksum_offset(&self) -> usize {
        match self.upper {
            Upper::Tcp { .. } => 16,
            Upper::Udp => 6,
        }
    }

    /// Its metadata.
    pub fn meta(&self) -> NetHeader {
        let gso_type = match (self.gso_size, &self.upper, &self.ip) {
            (0, ..) => GsoType::NONE,
            (_, Upper::Tcp { .. }, Ip::V4 { .. }) => GsoType::TCPV4,
            (_, Upper::Tcp { .. }, Ip::V6 { .. }) => GsoType::TCPV6,
            (_, Upper::Udp, _) => GsoType::UDP_L4,
        };
        let meta = NetHeader { gso_type, gso_size: self.gso_size, ..NetHeader::PLAIN };
        match self.checksum {
            Checksum::Vouched => NetHeader { flags: NetHeaderFlags::DATA_VALID, ..meta },
            Checksum::Partial => NetHeader {
                flags: NetHeaderFlags::NEEDS_CSUM,
                csum_start: self.upper_at() as u16,
                csum_offset: self.checksum_offset() as u16,
                ..meta
            },
            _ => meta,
        }
    }

    /// Its bytes.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa];
        frame.extend(self.tags.iter().flat_map(|tag| tag.to_be_bytes()));
        match &self.around {
            None => frame.extend(self.packet(self.checksum)),
            Some(around) => {
                // A partial checksum is summed as if complete.
                let is_partial = self.checksum == Checksum::Partial;
                let sent = if is_partial { Checksum::Right } else { self.checksum };
                frame.extend(around.wrap(&self.packet(self.checksum), &self.packet(sent)));
            }
        }
        frame.resize(frame.len() + self.padding, 0);
        frame
    }

    /// The EtherType and the IP packet.
    fn packet(&self, checksum: Checksum) -> Vec<u8> {
        let upper = self.upper_header();
        let upper_len = upper.len() + self.payload.len();
        let mut frame = Vec::new();
        let ends = Ends { net: [0, 0], src: self.flow, dst: 2 };
        let head = Head { protocol: self.protocol(), tos: self.tos, ttl: self.ttl, ends };
        let pseudo_header = self.ip.append(&mut frame, &head, upper_len);
        let pseudo_header = pseudo_header.add_u32(upper_len as u32);
        let at = frame.len();
        frame.extend(upper);
        frame.extend(&self.payload);
        let whole = pseudo_header.add_bytes(&frame[at..]);
        let right = match self.upper {
            Upper::Tcp { .. } => whole.checksum(),
            Upper::Udp => whole.udp_checksum(),
        };
        let checksum = match checksum {
            Checksum::Right | Checksum::Vouched => right,
            Checksum::Wrong => right ^ 0x0101,
            Checksum::Partial => pseudo_header.partial(),
            Checksum::None => 0,
        };
        write_u16(&mut frame, at + self.checksum_offset(), checksum);
        frame
    }

    fn upper_header(&self) -> Vec<u8> {
        let mut header = (40_000 + u16::from(self.flow)).to_be_bytes().to_vec();
        header.extend(443u16.to_be_bytes());
        match &self.upper {
            Upper::Udp => {
                header.extend((8 + self.payload.len() as u16).to_be_bytes());
                header.extend([0, 0]);
            }
            Upper::Tcp { seq, ack, flags, window, urgent, options } => {
                header.extend(seq.to_be_bytes());
                header.extend(ack.to_be_bytes());
                header.extend([((20 + options.len()) as u8 / 4) << 4, *flags]);
                header.extend(window.to_be_bytes());
                header.extend([0, 0]);
                header.extend(urgent.to_be_bytes());
                header.extend(options);
            }
        }
        header
    }
}

/// Frames of a TCP stream over IPv6 with a source route that has not reached its end, for which the
/// checksums are computed. The metadata marks them as valid.
pub fn routed_on() -> Vec<Frame> {
    let ip = Ip::V6 { label: 1, extensions: vec![ipv6::DESTINATION_OPTIONS, ipv6::ROUTING] };
    let packet = Packet { ip, ..Packet::tcp_v6() }.sized(40).with(Checksum::Vouched);
    let mut frames = frames(&packet.stream(4));
    for (_, frame) in &mut frames {
        let packet = &mut frame[packet.network_at()..];
        packet[ipv6::field::DST.end - 1] ^= 0x10;
        packet[ipv6::HEADER_LEN + 8 + 3] = 1;
    }
    frames
}

/// Further fields of an IP header.
struct Head {
    protocol: u8,
    tos: u8,
    ttl: u8,
    ends: Ends,
}

/// Parts of both addresses.
struct Ends {
    /// The second and third byte of both.
    net: [u8; 2],
    src: u8,
    dst: u8,
}

impl Ip {
    /// Length of the header.
    pub fn len(&self) -> usize {
        match self {
            Self::V4 { options, .. } => 20 + 4 * options,
            Self::V6 { extensions, .. } => 40 + 8 * extensions.len(),
        }
    }

    /// Appends EtherType and header; returns the pseudo-header's sum without a length.
    fn append(&self, frame: &mut Vec<u8>, head: &Head, upper_len: usize) -> Sum {
        match self {
            Self::V4 { id, fragment, options } => {
                append_ipv4(frame, head, upper_len, [*id, *fragment], *options)
            }
            Self::V6 { label, extensions } => {
                append_ipv6(frame, head, upper_len, *label, extensions)
            }
        }
    }
}

fn append_ipv4(
    frame: &mut Vec<u8>,
    head: &Head,
    upper_len: usize,
    [id, fragment]: [u16; 2],
    options: usize,
) -> Sum {
    let Head { protocol, tos, ttl, ends: Ends { net: [n0, n1], src, dst } } = *head;
    frame.extend([8, 0]);
    let at = frame.len();
    let total_len = (20 + 4 * options + upper_len) as u16;
    frame.extend([0x45 + options as u8, tos]);
    frame.extend([total_len, id, fragment].iter().flat_map(|word| word.to_be_bytes()));
    frame.extend([ttl, protocol, 0, 0, 10, n0, n1, src, 10, n0, n1, dst]);
    frame.extend((0..options).flat_map(|_| [1u8; 4]));
    let checksum = Sum::of(&frame[at..]).checksum();
    write_u16(frame, at + 10, checksum);
    pseudo_header_v4(&frame[at + 12..at + 16], &frame[at + 16..at + 20], protocol, 0)
}

fn append_ipv6(
    frame: &mut Vec<u8>,
    head: &Head,
    upper_len: usize,
    label: u32,
    extensions: &[u8],
) -> Sum {
    let Head { protocol, tos, ttl, ends: Ends { net: [n0, n1], src, dst } } = *head;
    frame.extend([0x86, 0xdd]);
    let at = frame.len();
    let payload_len = (8 * extensions.len() + upper_len) as u16;
    let mut next = extensions.iter().copied().chain([protocol]);
    frame.extend((6 << 28 | u32::from(tos) << 20 | label).to_be_bytes());
    frame.extend(payload_len.to_be_bytes());
    frame.extend([next.next().unwrap_or_default(), ttl]);
    for end in [src, dst] {
        frame.extend([0xfd, 0, n0, n1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    for (extension, next) in extensions.iter().zip(next) {
        let body = match *extension {
            ipv6::ROUTING => [253, 0, 0, 0, 0, 0],
            _ => [1, 4, 0, 0, 0, 0],
        };
        frame.extend([next, 0]);
        frame.extend(body);
    }
    pseudo_header_v6(&frame[at + 8..at + 24], &frame[at + 24..at + 40], protocol, 0)
}

/// Metadata and bytes.
pub type Frame = (NetHeader, Vec<u8>);

/// These packets as devices deliver them.
pub fn frames(packets: &[Packet]) -> Vec<Frame> {
    packets.iter().map(|packet| (packet.meta(), packet.frame())).collect()
}

/// A unit with contiguous bytes.
#[derive(Clone, Debug)]
pub struct Made {
    /// Index of its first frame.
    pub first: usize,
    /// Number of its frames.
    pub frames: usize,
    /// Its metadata.
    pub meta: NetHeader,
    /// The same with the offsets of a tunnel's headers.
    pub long: LongNetHeader,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Coalesces `frames`, inside tunnels too, from one buffer with gaps.
pub fn coalesce(frames: &[Frame]) -> Vec<Made> {
    coalesce_inside(Tunnels::All, frames)
}

/// The same for these tunnels.
pub fn coalesce_inside(tunnels: Tunnels, frames: &[Frame]) -> Vec<Made> {
    let mut buf = Vec::new();
    let mut batch = Vec::new();
    for (meta, bytes) in frames {
        buf.resize(buf.len() + 67, 0xee);
        let start = buf.len();
        buf.extend(bytes);
        batch.push(Place { meta: *meta, start, end: buf.len() });
    }
    let before = buf.clone();
    let mut coalescer = Coalescer::with_tunnels(frames.len(), tunnels);
    let units: Vec<_> = coalescer
        .coalesce(&mut buf, &batch)
        .map(|unit| (unit.first, unit.frames(), unit.long_meta(), unit.parts.to_vec()))
        .collect();
    let made = units.into_iter().map(|(first, frames, long, parts)| {
        let meta = long.base;
        let Place { start, end, .. } = batch[first];
        let mut bytes = buf[start..end].to_vec();
        if !parts.is_empty() {
            check_parts(&long, &buf[start..end], parts.iter().map(|part| &buf[part.clone()]));
        }
        for part in parts {
            assert!(part.start > end, "payloads lie behind the first frame");
            assert_eq!(buf[part.clone()], before[part.clone()], "payload is never written");
            bytes.extend(&buf[part]);
        }
        Made { first, frames, meta, long, bytes }
    });
    made.collect()
}

/// Checks that a train is segmented alike if its payload is contiguous or in parts, and with short
/// or long metadata.
fn check_parts<'a>(long: &LongNetHeader, head: &[u8], parts: impl Iterator<Item = &'a [u8]>) {
    let parts: Vec<_> = parts.collect();
    let scattered = Segments::with(long, &SplitOptions::default(), head, &parts).unwrap();
    let whole = [&[head], &parts[..]].concat().concat();
    assert_eq!(long.check(whole.len()), Ok(()));
    assert_eq!(cut(scattered), cut(Segments::new(&long.base, &whole, &[]).unwrap()));
}

/// The complete wire packets of a frame.
pub fn wire_packets((meta, bytes): &Frame) -> Vec<Vec<u8>> {
    if !meta.is_train() {
        let (mut meta, mut bytes) = (*meta, bytes.clone());
        let at = usize::from(meta.csum_start + meta.csum_offset);
        let is_partial = meta.needs_checksum();
        if complete_checksum(&mut meta, &mut bytes, &[]).is_ok() && is_partial {
            as_when_cut(&mut bytes, at);
        }
        return vec![bytes];
    }
    cut(Segments::new(meta, bytes, &[]).unwrap())
}

fn cut(mut segments: Segments<'_>) -> Vec<Vec<u8>> {
    let mut room = vec![0; segments.headers_len()];
    let mut packets = Vec::new();
    while let Some(segment) = segments.next(&mut room) {
        let [first, second] = segment.payload;
        packets.push([&room[..segment.headers_len], first, second].concat());
    }
    packets
}

/// Completing a checksum stores all ones for zero with every protocol, segmentation only with UDP.
fn as_when_cut(bytes: &mut [u8], at: usize) {
    let protocol = parse(bytes).unwrap().layout.protocol;
    if protocol == ip_proto::TCP && read_u16(bytes, at) == 0xffff {
        write_u16(bytes, at, 0);
    }
}

/// Number of frames in each unit.
pub fn counts(packets: &[Packet]) -> Vec<usize> {
    coalesce(&frames(packets)).iter().map(|made| made.frames).collect()
}

/// Coalesces and segments `frames`, and checks that neither bytes nor the order within each flow
/// changed.
pub fn check_round_trip(frames: &[Frame]) -> Vec<Made> {
    let made = coalesce(frames);
    assert_eq!(made.iter().map(|made| made.frames).sum::<usize>(), frames.len());
    let cut = |made: &Made| wire_packets(&(made.meta, made.bytes.clone()));
    let sent: Vec<_> = frames.iter().flat_map(wire_packets).collect();
    let received: Vec<_> = made.iter().flat_map(cut).collect();
    assert_eq!(by_flow(&received), by_flow(&sent));
    let counted = made.iter().map(|made| {
        let headers_len = match made.frames {
            1 => usize::from(parse(&made.bytes).unwrap().layout.end),
            _ => usize::from(made.meta.hdr_len),
        };
        made.meta.wire_packets(made.bytes.len() - headers_len) as usize
    });
    assert_eq!(counted.sum::<usize>(), sent.len(), "as many packets as arrived are counted");
    made
}

/// Packets sorted by the source port, in order within it.
fn by_flow(packets: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    let mut packets: Vec<_> = packets.iter().collect();
    packets.sort_by_key(|packet| {
        let key = parse(packet).unwrap().key;
        (key.ip_src, key.ip_proto, key.l4_src)
    });
    packets
}

/// The packets of all flows in the order given by `order`; the remaining ones follow, flow by flow.
pub fn interleave(flows: impl Iterator<Item = Vec<Packet>>, order: &[Index]) -> Vec<Packet> {
    let mut flows: Vec<_> = flows.map(Vec::into_iter).collect();
    let mut packets: Vec<_> =
        order.iter().filter_map(|index| index.get_mut(&mut flows).next()).collect();
    packets.extend(flows.into_iter().flatten());
    packets
}

/// The frames of such packets, some with an arbitrary byte among the first `within`, some with
/// arbitrary metadata.
pub fn damaged(
    packets: impl Strategy<Value = Vec<Packet>>,
    within: usize,
) -> impl Strategy<Value = Vec<Frame>> {
    let damage = vec((any::<Index>(), any::<Index>(), any::<u8>()), 0..8);
    let metas = vec((any::<Index>(), any::<[u8; 12]>()), 0..3);
    (packets, damage, metas).prop_map(move |(packets, damage, metas)| {
        let mut sent = frames(&packets);
        for (frame, byte, value) in damage {
            let (_, bytes) = frame.get_mut(&mut sent);
            let at = byte.index(bytes.len().min(within));
            bytes[at] = value;
        }
        for (frame, bytes) in metas {
            frame.get_mut(&mut sent).0 = NetHeader::decode(&bytes);
        }
        sent
    })
}

/// Swaps (0), duplicates (1) or removes (2) packets.
pub fn shuffle(packets: &mut Vec<Packet>, shuffles: Vec<(Index, Index, u8)>) {
    for (one, other, action) in shuffles {
        let (one, other) = (one.index(packets.len()), other.index(packets.len()));
        match action {
            0 => packets.swap(one, other),
            1 => packets.insert(one, packets[other].clone()),
            _ if packets.len() > 1 => drop(packets.remove(one)),
            _ => {}
        }
    }
}
