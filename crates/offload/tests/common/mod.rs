//! Creates and segments trains.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_imports,
    unreachable_pub,
    clippy::cast_possible_truncation,
    reason = "each test program uses a part of it, on lengths that it chose"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tapswitch_offload::{InPlace, OffloadError, Segments, SplitOptions};
use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    GsoType, LongNetHeader, NetHeader, NetHeaderFlags, ip_proto, ipv6, read_u16, tcp, write_u16,
};

pub mod judge;
mod tunnel;

pub use tunnel::{Encapsulation, Tunnel, tunnels};

/// A train as built by its sender.
#[derive(Clone, Debug)]
pub struct Train {
    /// TPID and TCI of each tag, outermost first.
    pub tags: Vec<u32>,
    /// The network layer.
    pub ip: Ip,
    /// The transport layer.
    pub upper: Upper,
    /// Payload bytes after the headers.
    pub payload_len: usize,
    /// Payload bytes of each packet.
    pub gso_size: u16,
    /// Whether the metadata describes a partial checksum.
    pub is_partial: bool,
    /// Outer headers, after the tags.
    pub tunnel: Option<Tunnel>,
}

/// The network layer of a [`Train`].
#[derive(Clone, Debug)]
pub enum Ip {
    /// IPv4.
    V4 {
        /// Words of options, 0..=10.
        options: u8,
        /// The "don't fragment" flag.
        dont_fragment: bool,
        /// Identification of the first packet.
        identification: u16,
    },
    /// IPv6 with these extension headers, 8 bytes each.
    V6 {
        /// Their numbers, outermost first.
        extensions: Vec<u8>,
    },
}

/// The transport layer of a [`Train`].
#[derive(Clone, Debug)]
pub enum Upper {
    /// TCP.
    Tcp {
        /// Words of options, 0..=10.
        options: u8,
        /// Flags of the train.
        flags: u8,
        /// Sequence number of the first byte.
        sequence: u32,
        /// Flags of the GSO type.
        gso_bits: u8,
    },
    /// UDP.
    Udp,
    /// UDP to be fragmented.
    Ufo,
}

pub const ACK: u8 = 0x10;
pub const C_TAG: u32 = 0x8100_6064;
pub const S_TAG: u32 = 0x88a8_00c8;
pub const LEGACY_TAG: u32 = 0x9100_0005;

impl Train {
    /// 3 1/2 packets of plain TCP over IPv4.
    pub fn tcp_v4() -> Self {
        Self {
            tags: Vec::new(),
            ip: Ip::V4 { options: 0, dont_fragment: true, identification: 0xfffe },
            upper: Upper::Tcp {
                options: 3,
                flags: ACK | tcp::PSH,
                sequence: 0xffff_fc00,
                gso_bits: 0,
            },
            payload_len: 3 * 1448 + 724,
            gso_size: 1448,
            is_partial: true,
            tunnel: None,
        }
    }

    /// 3 1/2 packets of TCP over IPv6.
    pub fn tcp_v6() -> Self {
        Self { ip: Ip::V6 { extensions: Vec::new() }, ..Self::tcp_v4() }
    }

    /// 3 1/2 datagrams over IPv4.
    pub fn udp_v4() -> Self {
        Self { upper: Upper::Udp, ..Self::tcp_v4() }
    }

    /// 3 1/2 datagrams over IPv6.
    pub fn udp_v6() -> Self {
        Self { upper: Upper::Udp, ..Self::tcp_v6() }
    }

    /// 3 1/2 fragments of a datagram over IPv4.
    pub fn ufo_v4() -> Self {
        Self { upper: Upper::Ufo, ..Self::tcp_v4() }
    }

    /// 3 1/2 fragments of a datagram over IPv6.
    pub fn ufo_v6() -> Self {
        Self { upper: Upper::Ufo, ..Self::tcp_v6() }
    }

    /// The same inside `tunnel`.
    pub fn inside(mut self, tunnel: Tunnel) -> Self {
        self.tunnel = Some(Tunnel { inner: self.ip.clone(), ..tunnel });
        self
    }

    /// The same with these `tags`.
    pub fn tagged(mut self, tags: &[u32]) -> Self {
        self.tags = tags.to_vec();
        self
    }

    /// The same with these TCP `flags`.
    pub fn flags(mut self, new: u8) -> Self {
        if let Upper::Tcp { flags, .. } = &mut self.upper {
            *flags = new;
        }
        self
    }

    /// The same with these flags of the GSO type.
    pub fn gso_bits(mut self, new: u8) -> Self {
        if let Upper::Tcp { gso_bits, .. } = &mut self.upper {
            *gso_bits = new;
        }
        self
    }

    /// The same with another payload and packet size.
    pub fn sized(mut self, payload_len: usize, gso_size: u16) -> Self {
        self.payload_len = payload_len;
        self.gso_size = gso_size;
        self
    }

    /// Start of the IP header; in a tunnel, of the inner one.
    pub fn network_at(&self) -> usize {
        let outermost = 14 + 4 * self.tags.len();
        outermost + self.tunnel.as_ref().map_or(0, Tunnel::len)
    }

    /// Start of the TCP or UDP header.
    pub fn upper_at(&self) -> usize {
        self.network_at() + self.ip.len()
    }

    /// Length of all headers.
    pub fn headers_len(&self) -> usize {
        self.upper_at() + self.upper_len()
    }

    fn upper_len(&self) -> usize {
        match self.upper {
            Upper::Tcp { options, .. } => 20 + 4 * usize::from(options),
            Upper::Udp | Upper::Ufo => 8,
        }
    }

    fn protocol(&self) -> u8 {
        match self.upper {
            Upper::Tcp { .. } => ip_proto::TCP,
            Upper::Udp | Upper::Ufo => ip_proto::UDP,
        }
    }

    /// The metadata of the frame.
    pub fn meta(&self) -> NetHeader {
        let (kind, csum_offset) = match (&self.upper, &self.ip) {
            (Upper::Tcp { gso_bits, .. }, Ip::V4 { .. }) => (GsoType::TCPV4.0 | gso_bits, 16),
            (Upper::Tcp { gso_bits, .. }, Ip::V6 { .. }) => (GsoType::TCPV6.0 | gso_bits, 16),
            (Upper::Udp, _) => (GsoType::UDP_L4.0, 6),
            (Upper::Ufo, _) => (GsoType::UDP.0, 6),
        };
        let (bits, flags) = self.tunnel.as_ref().map_or((0, 0), Tunnel::bits_and_flags);
        let meta = NetHeader {
            gso_type: GsoType(kind | bits),
            gso_size: self.gso_size,
            ..NetHeader::PLAIN
        };
        if !self.is_partial {
            return meta;
        }
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM | flags,
            csum_start: self.upper_at() as u16,
            csum_offset,
            ..meta
        }
    }

    /// The long metadata of the frame.
    pub fn long_meta(&self) -> LongNetHeader {
        let base = self.meta();
        if base.gso_type.tunnel() == 0 {
            return base.into();
        }
        let outer_transport = 14 + 4 * self.tags.len() + self.tunnel.as_ref().unwrap().ip.len();
        LongNetHeader {
            outer_transport: outer_transport as u16,
            inner_network: self.network_at() as u16,
            ..base.into()
        }
    }

    /// The frame's bytes.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = link_layer(&self.tags);
        match &self.tunnel {
            Some(tunnel) => tunnel.wrap(&mut frame, &self.packet()),
            None => {
                frame.extend(self.ip.ether_type());
                frame.extend(self.packet());
            }
        }
        frame
    }

    /// The IP packet without outer headers.
    fn packet(&self) -> Vec<u8> {
        let upper_len = self.upper_len() + self.payload_len;
        let (mut packet, pseudo_header) = self.ip.packet(self.protocol(), upper_len);
        let partial = pseudo_header.add_u32(upper_len as u32).partial().to_be_bytes();
        packet.extend(40_000u16.to_be_bytes());
        packet.extend(443u16.to_be_bytes());
        match self.upper {
            Upper::Udp | Upper::Ufo => packet.extend((upper_len as u16).to_be_bytes()),
            Upper::Tcp { options, flags, sequence, .. } => {
                packet.extend(sequence.to_be_bytes());
                packet.extend(0x1234_5678u32.to_be_bytes());
                packet.extend([(5 + options) << 4, flags, 0x01, 0xf6]);
            }
        }
        packet.extend(if self.is_partial { partial } else { [0; 2] });
        if let Upper::Tcp { options, .. } = self.upper {
            packet.extend([0, 0]);
            packet.extend((0..options).flat_map(|_| [1u8; 4]));
        }
        packet.extend((0..self.payload_len).map(|i| (i * 31 + i / 251) as u8));
        packet
    }
}

impl Ip {
    /// Length of the headers.
    pub fn len(&self) -> usize {
        match self {
            Self::V4 { options, .. } => 20 + 4 * usize::from(*options),
            Self::V6 { extensions } => 40 + 8 * extensions.len(),
        }
    }

    fn ether_type(&self) -> [u8; 2] {
        match self {
            Self::V4 { .. } => [8, 0],
            Self::V6 { .. } => [0x86, 0xdd],
        }
    }

    /// The headers of a packet with `upper_len` bytes of `protocol`, and the pseudo-header's sum
    /// without a length.
    fn packet(&self, protocol: u8, upper_len: usize) -> (Vec<u8>, Sum) {
        match self {
            Self::V4 { options, dont_fragment, identification } => {
                let header = ipv4(*options, *dont_fragment, *identification, protocol, upper_len);
                let sum = pseudo_header_v4(&header[12..16], &header[16..20], protocol, 0);
                (header, sum)
            }
            Self::V6 { extensions } => {
                let headers = ipv6(extensions, protocol, upper_len);
                let sum = pseudo_header_v6(&headers[8..24], &headers[24..40], protocol, 0);
                (headers, sum)
            }
        }
    }
}

/// Addresses and tags.
fn link_layer(tags: &[u32]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa];
    frame.extend(tags.iter().flat_map(|tag| tag.to_be_bytes()));
    frame
}

fn ipv4(options: u8, dont_fragment: bool, id: u16, protocol: u8, upper_len: usize) -> Vec<u8> {
    let total_len = 20 + 4 * usize::from(options) + upper_len;
    let mut header = vec![0x45 + options, 0x02];
    header.extend((total_len as u16).to_be_bytes());
    header.extend(id.to_be_bytes());
    header.extend([u8::from(dont_fragment) << 6, 0, 64, protocol, 0, 0]);
    header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    header.extend((0..options).flat_map(|_| [1u8; 4]));
    let checksum = Sum::of(&header).checksum();
    write_u16(&mut header, 10, checksum);
    header
}

fn ipv6(extensions: &[u8], protocol: u8, upper_len: usize) -> Vec<u8> {
    let payload_len = 8 * extensions.len() + upper_len;
    let mut next = extensions.iter().copied().chain([protocol]);
    let mut headers = vec![0x62, 0, 0x12, 0x34];
    headers.extend((payload_len as u16).to_be_bytes());
    headers.extend([next.next().unwrap_or_default(), 64]);
    for end in [1u8, 2] {
        headers.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    for (extension, next) in extensions.iter().zip(next) {
        // Options hold one PadN; a routing header of an experimental type, no segments left.
        let body = match *extension {
            ipv6::ROUTING => [253, 0, 0, 0, 0, 0],
            _ => [1, 4, 0, 0, 0, 0],
        };
        headers.extend([next, 0]);
        headers.extend(body);
    }
    headers
}

/// Segments the train `headers ++ payload` into frames.
pub fn cut(meta: &NetHeader, headers: &[u8], payload: &[u8]) -> Result<Vec<Vec<u8>>, OffloadError> {
    Ok(frames_of(Segments::new(meta, headers, payload)?))
}

/// Segments the train `headers` and `parts` into frames.
pub fn cut_with(
    meta: &LongNetHeader,
    options: &SplitOptions,
    headers: &[u8],
    parts: &[&[u8]],
) -> Result<Vec<Vec<u8>>, OffloadError> {
    Ok(frames_of(Segments::with(meta, options, headers, parts)?))
}

/// Segments the train `frame` in place, with `headroom` bytes before it, and overwrites `prefix`
/// bytes before each packet.
pub fn cut_in_place(
    meta: &LongNetHeader,
    options: &SplitOptions,
    frame: &[u8],
    headroom: usize,
    prefix: usize,
) -> Result<Vec<Vec<u8>>, OffloadError> {
    let mut buf = [vec![0xee; headroom], frame.to_vec()].concat();
    let mut packets = InPlace::with(meta, options, &mut buf, headroom)?;
    let mut frames = Vec::new();
    while let Some(packet) = packets.next(prefix) {
        packet[..prefix].fill(0xdd);
        frames.push(packet[prefix..].to_vec());
    }
    assert_eq!(packets.remaining(), 0);
    Ok(frames)
}

fn frames_of(mut segments: Segments) -> Vec<Vec<u8>> {
    let mut room = vec![0xee; segments.headers_len()];
    let mut frames = Vec::new();
    while let Some(segment) = segments.next(&mut room) {
        let [first, second] = segment.payload;
        let frame = [&room[..segment.headers_len], first, second].concat();
        assert_eq!(frame.len(), segment.frame_len());
        frames.push(frame);
    }
    assert_eq!(segments.remaining(), 0);
    frames
}

/// The frame of `train` with the first payload word chosen so that the first packet's checksum is
/// zero before UDP's rule is applied.
pub fn with_zero_checksum(train: &Train) -> Vec<u8> {
    let (meta, mut frame) = (train.meta(), train.frame());
    let field = train.upper_at() + usize::from(meta.csum_offset);
    let word = train.headers_len();
    let first = cut(&meta, &frame, &[]).map_or_else(|_| Vec::new(), |mut all| all.swap_remove(0));
    let raised = Sum::from_partial(read_u16(&first, field)).add(read_u16(&first, word));
    write_u16(&mut frame, word, raised.partial());
    frame
}

/// The train's frame with some header bytes replaced, and truncated.
pub fn damaged(train: &Train, damage: &[(Index, u8)], len: Index) -> Vec<u8> {
    let mut frame = train.frame();
    for (at, value) in damage {
        frame[at.index(train.headers_len())] = *value;
    }
    frame.truncate(len.index(frame.len()));
    frame
}

/// Any train with up to 5 tags and fewer than 510 packets.
pub fn trains() -> impl Strategy<Value = Train> {
    let tags = vec(select(&[C_TAG, S_TAG, LEGACY_TAG][..]), 0..6);
    let size = (0usize..9000, 1u16..3000).prop_map(|(payload_len, gso_size)| {
        // Small packets are many packets; keep trains below a thousand of them.
        (payload_len, gso_size.max((payload_len / 500) as u16))
    });
    (tags, ips(), uppers(), size, any::<bool>()).prop_map(
        |(tags, ip, upper, (payload_len, gso_size), is_partial)| Train {
            is_partial: is_partial || matches!(upper, Upper::Udp),
            tags,
            ip,
            upper,
            payload_len,
            gso_size,
            tunnel: None,
        },
    )
}

/// Any train with a partial checksum.
pub fn partial_trains() -> impl Strategy<Value = Train> {
    trains().prop_map(|train| Train { is_partial: true, ..train })
}

/// Any datagram with up to 5 tags that becomes fewer than 600 fragments.
pub fn datagrams() -> impl Strategy<Value = Train> {
    (trains(), any::<bool>()).prop_map(|(train, is_partial)| {
        // A fragment's length is a multiple of 8, and the first has room for all extension headers.
        let gso_size = train.gso_size.max(40).next_multiple_of(8);
        Train { upper: Upper::Ufo, gso_size, is_partial, ..train }
    })
}

/// Any train in any tunnel.
pub fn tunnelled_trains() -> impl Strategy<Value = Train> {
    (partial_trains(), tunnels()).prop_map(|(train, tunnel)| Train {
        tunnel: Some(Tunnel { inner: train.ip.clone(), ..tunnel }),
        ..train
    })
}

pub fn ips() -> impl Strategy<Value = Ip> {
    let extensions = &[ipv6::ROUTING, ipv6::DESTINATION_OPTIONS][..];
    prop_oneof![
        (0u8..=10, any::<bool>(), any::<u16>()).prop_map(
            |(options, dont_fragment, identification)| Ip::V4 {
                options,
                dont_fragment,
                identification,
            }
        ),
        // Hop-by-hop options may only come first.
        (any::<bool>(), vec(select(extensions), 0..3)).prop_map(move |(first, mut rest)| {
            if first {
                rest.insert(0, ipv6::HOP_BY_HOP);
            }
            Ip::V6 { extensions: rest }
        }),
    ]
}

fn uppers() -> impl Strategy<Value = Upper> {
    prop_oneof![
        Just(Upper::Udp),
        (0u8..=10, any::<u8>(), any::<u32>(), select(&[0, GsoType::ECN][..])).prop_map(
            |(options, flags, sequence, gso_bits)| Upper::Tcp {
                options,
                flags,
                sequence,
                gso_bits,
            }
        ),
    ]
}
