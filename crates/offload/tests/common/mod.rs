//! Makes trains for the tests, and cuts them.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::cast_possible_truncation,
    reason = "each test program uses a part of it, on lengths that it chose"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tapswitch_offload::{OffloadError, Segments};
use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    GsoType, NetHeader, NetHeaderFlags, ip_proto, ipv6, read_u16, tcp, write_u16,
};

/// A train as its sender made it.
#[derive(Clone, Debug)]
pub struct Train {
    /// TPID and TCI of each tag, outermost first.
    pub tags: Vec<u32>,
    /// The network layer.
    pub ip: Ip,
    /// The transport layer.
    pub upper: Upper,
    /// Payload bytes behind the headers.
    pub payload_len: usize,
    /// Payload bytes of each packet.
    pub gso_size: u16,
    /// Whether the metadata speaks of a partial checksum.
    pub is_partial: bool,
}

/// The network layer of a [`Train`].
#[derive(Clone, Debug)]
pub enum Ip {
    /// IPv4 with so many 32-bit words of options.
    V4 {
        /// Words of options, 0..=10.
        options: u8,
        /// The "don't fragment" flag.
        dont_fragment: bool,
        /// Of the first packet.
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
    /// TCP with so many 32-bit words of options.
    Tcp {
        /// Words of options, 0..=10.
        options: u8,
        /// Flags of the train.
        flags: u8,
        /// Of the first byte.
        sequence: u32,
        /// Bits beside the GSO type.
        gso_bits: u8,
    },
    /// UDP.
    Udp,
}

pub const ACK: u8 = 0x10;
pub const C_TAG: u32 = 0x8100_6064;
pub const S_TAG: u32 = 0x88a8_00c8;
pub const LEGACY_TAG: u32 = 0x9100_0005;

impl Train {
    /// 3 1/2 packets of TCP over IPv4, as plain as can be.
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

    /// The same with these bits beside the GSO type.
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

    /// Start of the IP header.
    pub fn network_at(&self) -> usize {
        14 + 4 * self.tags.len()
    }

    /// Start of the TCP or UDP header.
    pub fn upper_at(&self) -> usize {
        self.network_at()
            + match &self.ip {
                Ip::V4 { options, .. } => 20 + 4 * usize::from(*options),
                Ip::V6 { extensions } => 40 + 8 * extensions.len(),
            }
    }

    /// Length of all headers.
    pub fn headers_len(&self) -> usize {
        self.upper_at() + self.upper_len()
    }

    fn upper_len(&self) -> usize {
        match self.upper {
            Upper::Tcp { options, .. } => 20 + 4 * usize::from(options),
            Upper::Udp => 8,
        }
    }

    fn protocol(&self) -> u8 {
        match self.upper {
            Upper::Tcp { .. } => ip_proto::TCP,
            Upper::Udp => ip_proto::UDP,
        }
    }

    /// The metadata that goes with the frame.
    pub fn meta(&self) -> NetHeader {
        let (kind, csum_offset) = match (&self.upper, &self.ip) {
            (Upper::Tcp { gso_bits, .. }, Ip::V4 { .. }) => (GsoType::TCPV4.0 | gso_bits, 16),
            (Upper::Tcp { gso_bits, .. }, Ip::V6 { .. }) => (GsoType::TCPV6.0 | gso_bits, 16),
            (Upper::Udp, _) => (GsoType::UDP_L4.0, 6),
        };
        let meta =
            NetHeader { gso_type: GsoType(kind), gso_size: self.gso_size, ..NetHeader::PLAIN };
        if !self.is_partial {
            return meta;
        }
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            csum_start: self.upper_at() as u16,
            csum_offset,
            ..meta
        }
    }

    /// The frame's bytes.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa];
        frame.extend(self.tags.iter().flat_map(|tag| tag.to_be_bytes()));
        let upper_len = self.upper_len() + self.payload_len;
        let pseudo_header = match &self.ip {
            Ip::V4 { options, dont_fragment, identification } => {
                self.ipv4(&mut frame, *options, *dont_fragment, *identification)
            }
            Ip::V6 { extensions } => self.ipv6(&mut frame, extensions),
        };
        let partial = pseudo_header.add_u32(upper_len as u32).partial().to_be_bytes();
        frame.extend(40_000u16.to_be_bytes());
        frame.extend(443u16.to_be_bytes());
        match self.upper {
            Upper::Udp => frame.extend((upper_len as u16).to_be_bytes()),
            Upper::Tcp { options, flags, sequence, .. } => {
                frame.extend(sequence.to_be_bytes());
                frame.extend(0x1234_5678u32.to_be_bytes());
                frame.extend([(5 + options) << 4, flags, 0x01, 0xf6]);
            }
        }
        frame.extend(if self.is_partial { partial } else { [0; 2] });
        if let Upper::Tcp { options, .. } = self.upper {
            frame.extend([0, 0]);
            frame.extend((0..options).flat_map(|_| [1u8; 4]));
        }
        frame.extend((0..self.payload_len).map(|i| (i * 31 + i / 251) as u8));
        frame
    }

    /// Appends type and IPv4 header; returns the pseudo-header's sum without a length.
    fn ipv4(&self, frame: &mut Vec<u8>, options: u8, dont_fragment: bool, id: u16) -> Sum {
        frame.extend([8, 0]);
        let at = frame.len();
        let header_len = 20 + 4 * usize::from(options);
        let total_len = header_len + self.upper_len() + self.payload_len;
        frame.extend([0x45 + options, 0x02]);
        frame.extend((total_len as u16).to_be_bytes());
        frame.extend(id.to_be_bytes());
        frame.extend([u8::from(dont_fragment) << 6, 0, 64, self.protocol(), 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend((0..options).flat_map(|_| [1u8; 4]));
        let checksum = Sum::of(&frame[at..]).checksum().to_be_bytes();
        frame[at + 10..at + 12].copy_from_slice(&checksum);
        pseudo_header_v4(&frame[at + 12..at + 16], &frame[at + 16..at + 20], self.protocol(), 0)
    }

    /// Appends type and IPv6 headers; returns the pseudo-header's sum without a length.
    fn ipv6(&self, frame: &mut Vec<u8>, extensions: &[u8]) -> Sum {
        frame.extend([0x86, 0xdd]);
        let at = frame.len();
        let payload_len = 8 * extensions.len() + self.upper_len() + self.payload_len;
        let mut next = extensions.iter().copied().chain([self.protocol()]);
        frame.extend([0x62, 0, 0x12, 0x34]);
        frame.extend((payload_len as u16).to_be_bytes());
        frame.extend([next.next().unwrap_or_default(), 64]);
        for end in [1u8, 2] {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
        }
        for (extension, next) in extensions.iter().zip(next) {
            // Options hold one PadN; a routing header of an experimental type, no segments left.
            let body = match *extension {
                ipv6::ROUTING => [253, 0, 0, 0, 0, 0],
                _ => [1, 4, 0, 0, 0, 0],
            };
            frame.extend([next, 0]);
            frame.extend(body);
        }
        pseudo_header_v6(&frame[at + 8..at + 24], &frame[at + 24..at + 40], self.protocol(), 0)
    }
}

/// Cuts the train `headers ++ payload` into frames.
pub fn cut(meta: &NetHeader, headers: &[u8], payload: &[u8]) -> Result<Vec<Vec<u8>>, OffloadError> {
    let mut segments = Segments::new(meta, headers, payload)?;
    let mut room = vec![0xee; segments.headers_len()];
    let mut frames = Vec::new();
    while let Some(segment) = segments.next(&mut room) {
        let [first, second] = segment.payload;
        let frame = [&room[..segment.headers_len], first, second].concat();
        assert_eq!(frame.len(), segment.frame_len());
        frames.push(frame);
    }
    assert_eq!(segments.remaining(), 0);
    Ok(frames)
}

/// The frame of `train` with the first payload word such that the first packet's checksum is zero
/// before UDP's rule is applied.
pub fn with_zero_checksum(train: &Train) -> Vec<u8> {
    let (meta, mut frame) = (train.meta(), train.frame());
    let field = train.upper_at() + usize::from(meta.csum_offset);
    let word = train.headers_len();
    let first = cut(&meta, &frame, &[]).map_or_else(|_| Vec::new(), |mut all| all.swap_remove(0));
    let raised = Sum::from_partial(read_u16(&first, field)).add(read_u16(&first, word));
    write_u16(&mut frame, word, raised.partial());
    frame
}

/// Any train with up to 5 tags and fewer than 510 packets.
pub fn trains() -> impl Strategy<Value = Train> {
    let tags = vec(select(&[C_TAG, S_TAG, LEGACY_TAG][..]), 0..6);
    let size = (0usize..9000, 1u16..3000).prop_map(|(payload_len, gso_size)| {
        // Packets of few bytes make many packets; keep trains below a thousand of them.
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
        },
    )
}

fn ips() -> impl Strategy<Value = Ip> {
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
