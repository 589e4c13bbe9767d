//! Tunnels around packets.

use super::{Checksum, Ends, Head, Ip};
use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{ip_proto, write_u16};

/// Outer headers of a packet in a tunnel, field by field.
#[derive(Clone, Debug)]
pub struct Around {
    /// The outer IP header.
    pub ip: Ip,
    /// Its ToS or traffic class.
    pub tos: u8,
    /// Its TTL or hop limit.
    pub ttl: u8,
    /// Selects the flow: last byte of the source address, and part of the source port over UDP.
    pub flow: u8,
    /// Headers between both IP headers.
    pub kind: Kind,
    /// Network identifier or key.
    pub id: u8,
    /// State of the checksum of UDP or GRE.
    pub checksum: Checksum,
    /// Tags of inner Ethernet.
    pub tags: Vec<u32>,
}

/// Headers between two IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// VXLAN.
    Vxlan,
    /// Geneve with Ethernet or IP inside and words of options.
    Geneve {
        /// Words of options.
        options: u8,
        /// Whether there is Ethernet inside.
        ethernet: bool,
    },
    /// GRE with Ethernet or IP inside.
    Gre {
        /// Whether there is a key.
        key: bool,
        /// Whether there is Ethernet inside.
        ethernet: bool,
    },
    /// IP in IP.
    Ip,
}

impl Kind {
    /// All kinds, in some of their variants.
    pub const ALL: [Self; 8] = [
        Self::Vxlan,
        Self::Geneve { options: 0, ethernet: true },
        Self::Geneve { options: 3, ethernet: false },
        Self::Gre { key: false, ethernet: false },
        Self::Gre { key: true, ethernet: false },
        Self::Gre { key: false, ethernet: true },
        Self::Gre { key: true, ethernet: true },
        Self::Ip,
    ];
}

impl Around {
    /// A tunnel of this kind over IPv4, with a checksum if the kind has one.
    pub fn v4(kind: Kind) -> Self {
        Self {
            ip: Ip::V4 { id: 0xfffd, fragment: 0, options: 0 },
            tos: 1,
            ttl: 255,
            flow: 1,
            kind,
            id: 7,
            checksum: Checksum::Right,
            tags: Vec::new(),
        }
    }

    /// The same over IPv6.
    pub fn v6(kind: Kind) -> Self {
        Self { ip: Ip::V6 { label: 0x777, extensions: Vec::new() }, ..Self::v4(kind) }
    }

    /// Every kind over both versions, with checksums and without.
    pub fn of_every_kind() -> Vec<Self> {
        let over = |kind| [Self::v4(kind), Self::v6(kind)];
        let all = Kind::ALL.into_iter().flat_map(over);
        all.flat_map(|around| {
            let without = Self { checksum: Checksum::None, ..around.clone() };
            if around.kind == Kind::Ip { vec![around] } else { vec![around, without] }
        })
        .collect()
    }

    /// The same without a checksum.
    pub fn without_checksum(self) -> Self {
        Self { checksum: Checksum::None, ..self }
    }

    /// Whether it runs over UDP.
    pub fn is_udp(&self) -> bool {
        matches!(self.kind, Kind::Vxlan | Kind::Geneve { .. })
    }

    /// Length of everything from the outer IP header to the inner one.
    pub fn len(&self) -> usize {
        self.ip.len() + self.header([8, 0]).len()
    }

    /// EtherType and outer packet around `packet`, which starts with its EtherType. Sums are
    /// computed over `summed`.
    pub fn wrap(&self, packet: &[u8], summed: &[u8]) -> Vec<u8> {
        let (ether_type, packet) = packet.split_first_chunk().unwrap();
        let mut upper = self.header(*ether_type);
        let upper_len = upper.len() + packet.len();
        let ends = Ends { net: [9, 0], src: self.flow, dst: 2 };
        let protocol = self.protocol(*ether_type);
        let head = Head { protocol, tos: self.tos, ttl: self.ttl, ends };
        let mut frame = Vec::new();
        let pseudo_header = self.ip.append(&mut frame, &head, upper_len);
        if self.is_udp() {
            write_u16(&mut upper, 4, upper_len as u16);
        }
        let sum = Sum::of(&upper).add_bytes_at(upper.len(), &summed[2..]);
        let right = match self.is_udp() {
            true => sum.add_sum(pseudo_header).add(upper_len as u16).udp_checksum(),
            false => sum.checksum(),
        };
        if let Some(at) = self.checksum_at() {
            let wrong = if self.checksum == Checksum::Wrong { 0x0101 } else { 0 };
            write_u16(&mut upper, at, right ^ wrong);
        }
        frame.extend(upper);
        frame.extend(packet);
        frame
    }

    /// Offset of the checksum after the outer IP header, if there is one.
    fn checksum_at(&self) -> Option<usize> {
        let at = match self.kind {
            Kind::Ip => return None,
            Kind::Gre { .. } => 4,
            _ => 6,
        };
        (self.checksum != Checksum::None).then_some(at)
    }

    fn protocol(&self, ether_type: [u8; 2]) -> u8 {
        match self.kind {
            Kind::Ip if ether_type == [8, 0] => 4,
            Kind::Ip => 41,
            Kind::Gre { .. } => 47,
            _ => ip_proto::UDP,
        }
    }

    /// The headers between both IP headers, with lengths and checksums zero.
    fn header(&self, ether_type: [u8; 2]) -> Vec<u8> {
        let protocol = |ethernet| if ethernet { [0x65, 0x58] } else { ether_type };
        let (mut header, ethernet) = match self.kind {
            Kind::Ip => return Vec::new(),
            Kind::Vxlan => (self.udp(4789, &[8, 0, 0, 0, 0, 0, self.id, 0]), true),
            Kind::Geneve { options, ethernet } => {
                let [p0, p1] = protocol(ethernet);
                let mut geneve = vec![options, 0, p0, p1, 0, 0, self.id, 0];
                geneve.extend((0..options).flat_map(|word| [1, word, 0xff, 0x80]));
                (self.udp(6081, &geneve), ethernet)
            }
            Kind::Gre { key, ethernet } => {
                let has_checksum = self.checksum != Checksum::None;
                let flags = u8::from(has_checksum) << 7 | u8::from(key) << 5;
                let [p0, p1] = protocol(ethernet);
                let mut header = vec![flags, 0, p0, p1];
                header.extend(if has_checksum { &[0; 4][..] } else { &[] });
                header.extend(key.then_some([0, 0, 0, self.id]).into_iter().flatten());
                (header, ethernet)
            }
        };
        if ethernet {
            header.extend([2, 0, 0, 0, 0, 0x1b, 2, 0, 0, 0, 0, 0x1a]);
            header.extend(self.tags.iter().flat_map(|tag| tag.to_be_bytes()));
            header.extend(ether_type);
        }
        header
    }

    fn udp(&self, port: u16, inside: &[u8]) -> Vec<u8> {
        let [p0, p1] = port.to_be_bytes();
        [&[0xc0, self.flow, p0, p1, 0, 0, 0, 0], inside].concat()
    }
}
