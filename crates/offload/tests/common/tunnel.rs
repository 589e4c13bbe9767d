//! Outer headers of trains in tunnels.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tapswitch_wire::{GsoType, NetHeaderFlags, ip_proto, write_u16};

use super::{C_TAG, Ip, ips};

/// A tunnel around a train.
#[derive(Clone, Debug)]
pub struct Tunnel {
    /// The outer IP header.
    pub ip: Ip,
    /// Headers between both IP headers.
    pub encapsulation: Encapsulation,
    /// The inner IP header.
    pub inner: Ip,
}

/// Headers between two IP headers.
#[derive(Clone, Debug)]
pub enum Encapsulation {
    /// None: IP in IP.
    Ip,
    /// GRE, with Ethernet with these tags inside, or IP.
    Gre {
        /// Whether there is a key.
        has_key: bool,
        /// Whether there is a checksum.
        has_checksum: bool,
        /// Tags of the inner frame; `None` for IP.
        tags: Option<Vec<u32>>,
    },
    /// VXLAN.
    Vxlan {
        /// Whether the outer checksum is to be computed.
        has_checksum: bool,
        /// Tags of the inner frame.
        tags: Vec<u32>,
    },
    /// Geneve.
    Geneve {
        /// Words of options.
        options: u8,
        /// Whether the outer checksum is to be computed.
        has_checksum: bool,
        /// Tags of the inner frame; `None` for IP.
        tags: Option<Vec<u32>>,
    },
}

impl Tunnel {
    /// VXLAN over IPv4 around a packet of the kind of `inner`.
    pub fn vxlan_v4(has_checksum: bool, inner: Ip) -> Self {
        let ip = Ip::V4 { options: 0, dont_fragment: true, identification: 0xfffd };
        Self { ip, encapsulation: Encapsulation::Vxlan { has_checksum, tags: vec![] }, inner }
    }

    /// Length of everything from the outer IP header to the inner one.
    pub fn len(&self) -> usize {
        self.ip.len() + self.header().len()
    }

    /// Protocol number in the outer IP header.
    fn protocol(&self) -> u8 {
        match (&self.encapsulation, &self.inner) {
            (Encapsulation::Ip, Ip::V4 { .. }) => 4,
            (Encapsulation::Ip, Ip::V6 { .. }) => 41,
            (Encapsulation::Gre { .. }, _) => 47,
            _ => ip_proto::UDP,
        }
    }

    /// Whether an outer checksum is to be computed.
    pub fn has_checksum(&self) -> bool {
        match self.encapsulation {
            Encapsulation::Ip => false,
            Encapsulation::Gre { has_checksum, .. }
            | Encapsulation::Vxlan { has_checksum, .. }
            | Encapsulation::Geneve { has_checksum, .. } => has_checksum,
        }
    }

    /// Flags of the GSO type, and header flags.
    pub fn bits_and_flags(&self) -> (u8, u8) {
        if self.protocol() != ip_proto::UDP {
            return (0, 0);
        }
        let bits = match self.ip {
            Ip::V4 { .. } => GsoType::UDP_TUNNEL_IPV4,
            Ip::V6 { .. } => GsoType::UDP_TUNNEL_IPV6,
        };
        (bits, if self.has_checksum() { NetHeaderFlags::UDP_TUNNEL_CSUM } else { 0 })
    }

    /// Appends the outer packet around `packet` to addresses and tags.
    pub fn wrap(&self, frame: &mut Vec<u8>, packet: &[u8]) {
        let mut upper = [self.header(), packet.to_vec()].concat();
        let (ip, pseudo_header) = self.ip.packet(self.protocol(), upper.len());
        if self.protocol() == ip_proto::UDP {
            let len = upper.len();
            write_u16(&mut upper, 4, len as u16);
            if self.has_checksum() {
                write_u16(&mut upper, 6, pseudo_header.add_u32(len as u32).partial());
            }
        }
        frame.extend(self.ip.ether_type());
        frame.extend(ip);
        frame.extend(upper);
    }

    /// The headers between both IP headers, with lengths and checksums zero.
    fn header(&self) -> Vec<u8> {
        let ether_type = self.inner.ether_type();
        match &self.encapsulation {
            Encapsulation::Ip => vec![],
            Encapsulation::Gre { has_key, has_checksum, tags } => {
                let flags = u8::from(*has_checksum) << 7 | u8::from(*has_key) << 5;
                let mut header = vec![flags, 0];
                header.extend(if tags.is_some() { [0x65, 0x58] } else { ether_type });
                header.extend(if *has_checksum { &[0; 4][..] } else { &[] });
                header.extend(if *has_key { &[1, 2, 3, 4][..] } else { &[] });
                header.extend(inner_frame(tags.as_deref(), ether_type));
                header
            }
            Encapsulation::Vxlan { tags, .. } => {
                let mut header = udp(4789);
                header.extend([8, 0, 0, 0, 0, 0x12, 0x34, 0]);
                header.extend(inner_frame(Some(tags), ether_type));
                header
            }
            Encapsulation::Geneve { options, tags, .. } => {
                let mut header = udp(6081);
                let protocol = if tags.is_some() { [0x65, 0x58] } else { ether_type };
                header.extend([*options, 0]);
                header.extend(protocol);
                header.extend([0, 0x12, 0x34, 0]);
                header.extend((0..*options).flat_map(|word| [1, word, 0xff, 0x80]));
                header.extend(inner_frame(tags.as_deref(), ether_type));
                header
            }
        }
    }
}

fn udp(port: u16) -> Vec<u8> {
    let [p0, p1] = port.to_be_bytes();
    vec![0xc0, 0x01, p0, p1, 0, 0, 0, 0]
}

fn inner_frame(tags: Option<&[u32]>, ether_type: [u8; 2]) -> Vec<u8> {
    let Some(tags) = tags else {
        return vec![];
    };
    let mut frame = vec![2, 0, 0, 0, 0, 0x1b, 2, 0, 0, 0, 0, 0x1a];
    frame.extend(tags.iter().flat_map(|tag| tag.to_be_bytes()));
    frame.extend(ether_type);
    frame
}

/// Any tunnel; the train determines `inner`.
pub fn tunnels() -> impl Strategy<Value = Tunnel> {
    (ips(), encapsulations()).prop_map(|(ip, encapsulation)| Tunnel {
        inner: ip.clone(),
        ip,
        encapsulation,
    })
}

fn encapsulations() -> impl Strategy<Value = Encapsulation> {
    let inner_tags = || vec(select(&[C_TAG][..]), 0..3);
    let maybe_tags = || proptest::option::of(inner_tags());
    prop_oneof![
        Just(Encapsulation::Ip),
        (any::<bool>(), any::<bool>(), maybe_tags()).prop_map(|(has_key, has_checksum, tags)| {
            Encapsulation::Gre { has_key, has_checksum, tags }
        }),
        (any::<bool>(), inner_tags())
            .prop_map(|(has_checksum, tags)| Encapsulation::Vxlan { has_checksum, tags }),
        (0u8..64, any::<bool>(), maybe_tags()).prop_map(|(options, has_checksum, tags)| {
            Encapsulation::Geneve { options, has_checksum, tags }
        }),
    ]
}
