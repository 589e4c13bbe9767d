//! Rewriting headers: after any sequence of actions a frame equals what its sender would have made
//! of the new fields, with checksums computed by another implementation, byte for byte.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests, on data that they chose"
)]

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::common::{Ip, Switch, apply, goto, out, udp};
use etherparse::checksum::Sum16BitWords;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tapswitch_helpers::cases;
use tapswitch_openflow::{Action, Oxm};
use tapswitch_wire::{EtherType, NetHeader, NetHeaderFlags, ip_proto};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2_000)))]

    #[test]
    fn incremental_updates_equal_checksums_computed_anew(
        packet in packet(),
        changes in vec(change(), 1..6),
    ) {
        let (now, expected) = rewrite(&packet, &changes);
        prop_assert_eq!(now, expected);
    }
}

/// Incremental updates fail where a changed word meets a sum that is nearly one of the two zeros
/// (RFC 1624 §3): all values of a port, with a checksum that passes zero.
#[test]
fn every_port_gives_the_checksum_computed_anew() {
    for protocol in [ip_proto::TCP, ip_proto::UDP] {
        for left_for_later in [false, true] {
            let packet = Packet { protocol, left_for_later, ..Packet::PLAIN };
            for port in (0..=u16::MAX).step_by(if cfg!(debug_assertions) { 7 } else { 1 }) {
                let (now, expected) = rewrite(&packet, &[Change::SrcPort(port)]);
                assert_eq!(now, expected, "{protocol}, port {port}");
            }
        }
    }
}

/// Neither in the frame nor for later tables: a later fragment has no ports, even if it belongs to
/// a flow whose first fragments are cached.
#[test]
fn a_port_is_not_set_in_a_fragment_that_has_none() {
    let mut switch = Switch::new(3);
    let port = Oxm::UdpDst(8080);
    let matching = [Oxm::EthType(EtherType::IPV4), Oxm::IpProto(ip_proto::UDP)];
    switch.flow(0, 1, &matching, &[apply(&[Action::SetField(port.clone())]), goto(1)]);
    switch.flow(1, 2, &[&matching[..], &[port]].concat(), &[apply(&[out(2)])]);
    switch.flow(1, 1, &[], &[apply(&[out(3)])]);
    let fragment = |place: [u8; 2], ports: u16| {
        let mut frame = Ip { src_port: ports, dst_port: ports, ..udp() }.bytes();
        frame[20..22].copy_from_slice(&place);
        frame
    };
    for ports in [0, 53] {
        for _ in 0..3 {
            assert_eq!(switch.receive(1, &fragment([0x20, 0], ports)), [2]);
            assert_eq!(switch.sent(2)[36..38], 8080_u16.to_be_bytes());
            for place in [[0x20, 0x10], [0, 0x20]] {
                assert_eq!(switch.receive(1, &fragment(place, ports)), [3]);
                assert_eq!(switch.sent(3), fragment(place, ports));
            }
        }
    }
}

#[test]
fn a_udp_checksum_that_becomes_zero_is_sent_as_ones() {
    let packet = Packet { protocol: ip_proto::UDP, ..Packet::PLAIN };
    let checksum = |port| {
        let (now, expected) = rewrite(&packet, &[Change::SrcPort(port)]);
        assert_eq!(now, expected);
        u16::from_be_bytes([now[40], now[41]])
    };
    // The value that, added to the port, makes the rest of the sum all ones.
    let port = packet.src_port + checksum(packet.src_port);
    assert_eq!(checksum(port), 0xffff);
    assert_eq!(checksum(port + 1), 0xfffe);
}

#[test]
fn a_partial_checksum_of_zero_is_no_special_case() {
    let mut packet = Packet { protocol: ip_proto::UDP, left_for_later: true, ..Packet::PLAIN };
    // The pseudo-header sums up to all ones: a value that "no checksum" and its substitute leave
    // alone.
    let (_, at) = packet.transport_header();
    let rest = !u16::from_be_bytes([packet.bytes()[at + 6], packet.bytes()[at + 7]]);
    packet.src[2..4].copy_from_slice(&rest.to_be_bytes());
    let change = Change::Dst([10, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
    let (now, expected) = rewrite(&packet, &[change]);
    assert_eq!(now, expected);
}

/// The output of the switch, and what the sender would have made.
fn rewrite(packet: &Packet, changes: &[Change]) -> (Vec<u8>, Vec<u8>) {
    let mut expected = packet.clone();
    let mut actions: Vec<_> = changes.iter().flat_map(|change| expected.apply(change)).collect();
    actions.push(out(2));
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &packet.prerequisites(), &[apply(&actions)]);
    assert_eq!(switch.receive_with(1, &packet.bytes(), packet.meta()), [2]);
    (switch.sent(2).to_vec(), expected.bytes())
}

/// A packet as its fields.
#[derive(Clone, Debug)]
struct Packet {
    tags: Vec<u16>,
    /// IPv6 with these extension headers of 8 bytes; `None` for IPv4.
    extensions: Option<Vec<Extension>>,
    /// Words of IPv4 options.
    options: u8,
    tos: u8,
    ttl: u8,
    flow_label: u32,
    /// IPv4 uses the first four bytes.
    src: [u8; 16],
    dst: [u8; 16],
    /// TCP, UDP, UDP-Lite, DCCP, or ICMP of either kind.
    protocol: u8,
    /// Type and code for ICMP.
    src_port: u16,
    dst_port: u16,
    payload: Vec<u8>,
    /// UDP without a checksum.
    without_checksum: bool,
    /// TCP or UDP with a partial checksum.
    left_for_later: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    HopByHop,
    /// Routing, with segments left.
    Routing(u8),
    Destination,
}

/// Set-field actions. Those for fields that the packet does not have are left out.
#[derive(Clone, Debug)]
enum Change {
    Tos(u8),
    Ecn(u8),
    Ttl(u8),
    DecrementTtl,
    FlowLabel(u32),
    Src([u8; 16]),
    Dst([u8; 16]),
    SrcPort(u16),
    DstPort(u16),
}

impl Packet {
    const PLAIN: Self = Self {
        tags: Vec::new(),
        extensions: None,
        options: 0,
        tos: 0,
        ttl: 64,
        flow_label: 0,
        src: [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        dst: [10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        protocol: ip_proto::TCP,
        src_port: 1000,
        dst_port: 80,
        payload: Vec::new(),
        without_checksum: false,
        left_for_later: false,
    };

    fn is_icmp(&self) -> bool {
        matches!(self.protocol, ip_proto::ICMP | ip_proto::ICMPV6)
    }

    fn is_like_udp(&self) -> bool {
        matches!(self.protocol, ip_proto::UDP_LITE | ip_proto::DCCP)
    }

    fn prerequisites(&self) -> Vec<Oxm> {
        let v6 = self.extensions.is_some();
        let eth_type = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        vec![Oxm::EthType(eth_type), Oxm::IpProto(self.protocol)]
    }

    /// Changes the model; returns the actions that do the same in the switch.
    fn apply(&mut self, change: &Change) -> Vec<Action> {
        match (change, self.extensions.is_some()) {
            (Change::Tos(dscp), _) => {
                self.tos = self.tos & 0x03 | dscp << 2;
                vec![Action::SetField(Oxm::IpDscp(*dscp))]
            }
            (Change::Ecn(ecn), _) => {
                self.tos = self.tos & 0xfc | ecn;
                vec![Action::SetField(Oxm::IpEcn(*ecn))]
            }
            (Change::Ttl(ttl), _) => {
                self.ttl = *ttl;
                vec![Action::SetNwTtl(*ttl)]
            }
            (Change::DecrementTtl, _) if self.ttl > 1 => {
                self.ttl -= 1;
                vec![Action::DecNwTtl]
            }
            (Change::FlowLabel(label), true) => {
                self.flow_label = *label;
                vec![Action::SetField(Oxm::Ipv6Flabel((*label).into()))]
            }
            (Change::Src(address), v6) => {
                self.src = *address;
                vec![Action::SetField(if v6 {
                    Oxm::Ipv6Src(Ipv6Addr::from(*address).into())
                } else {
                    Oxm::Ipv4Src(v4(*address).into())
                })]
            }
            (Change::Dst(address), v6) => {
                self.dst = *address;
                vec![Action::SetField(if v6 {
                    Oxm::Ipv6Dst(Ipv6Addr::from(*address).into())
                } else {
                    Oxm::Ipv4Dst(v4(*address).into())
                })]
            }
            // Rules have no field for these ports.
            (Change::SrcPort(_) | Change::DstPort(_), _) if self.is_like_udp() => Vec::new(),
            (Change::SrcPort(port), _) => {
                self.src_port = if self.is_icmp() { port & 0xff } else { *port };
                vec![Action::SetField(self.port_field(self.src_port, true))]
            }
            (Change::DstPort(port), _) => {
                self.dst_port = if self.is_icmp() { port & 0xff } else { *port };
                vec![Action::SetField(self.port_field(self.dst_port, false))]
            }
            _ => Vec::new(),
        }
    }

    fn port_field(&self, port: u16, is_src: bool) -> Oxm {
        match (self.protocol, is_src) {
            (ip_proto::TCP, true) => Oxm::TcpSrc(port),
            (ip_proto::TCP, false) => Oxm::TcpDst(port),
            (ip_proto::UDP, true) => Oxm::UdpSrc(port),
            (ip_proto::UDP, false) => Oxm::UdpDst(port),
            (ip_proto::ICMP, true) => Oxm::Icmpv4Type(port as u8),
            (ip_proto::ICMP, false) => Oxm::Icmpv4Code(port as u8),
            (_, true) => Oxm::Icmpv6Type(port as u8),
            (_, false) => Oxm::Icmpv6Code(port as u8),
        }
    }

    fn meta(&self) -> NetHeader {
        if !self.left_for_later {
            return NetHeader::PLAIN;
        }
        let (field, at) = self.transport_header();
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            csum_start: at as u16,
            csum_offset: field as u16,
            ..NetHeader::PLAIN
        }
    }

    /// Offset of the checksum in the transport header, and where that is in the frame.
    fn transport_header(&self) -> (usize, usize) {
        let field = match self.protocol {
            ip_proto::TCP => 16,
            ip_proto::UDP | ip_proto::UDP_LITE | ip_proto::DCCP => 6,
            _ => 2,
        };
        let ip_len = match &self.extensions {
            Some(extensions) => 40 + extensions.iter().map(|e| e.bytes(0).len()).sum::<usize>(),
            None => 20 + 4 * usize::from(self.options),
        };
        (field, 14 + 4 * self.tags.len() + ip_len)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in &self.tags {
            frame.extend([[0x81, 0x00], tag.to_be_bytes()].concat());
        }
        let mut upper = self.upper();
        let mut sum = Sum16BitWords::new();
        if self.protocol != ip_proto::ICMP {
            sum = self.pseudo_header(upper.len());
        }
        let (field, _) = self.transport_header();
        let checksum = match (self.left_for_later, self.protocol, self.without_checksum) {
            (true, ..) => !sum.ones_complement().to_be(),
            (_, ip_proto::UDP, true) => 0,
            (_, ip_proto::UDP, false) | (_, ip_proto::UDP_LITE, _) => {
                sum.add_slice(&upper).to_ones_complement_with_no_zero().to_be()
            }
            _ => sum.add_slice(&upper).ones_complement().to_be(),
        };
        upper[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(match &self.extensions {
            Some(extensions) => self.ipv6(extensions, upper.len()),
            None => self.ipv4(upper.len()),
        });
        frame.extend(upper);
        frame
    }

    /// The transport layer with a checksum of zero.
    fn upper(&self) -> Vec<u8> {
        let ports = [self.src_port.to_be_bytes(), self.dst_port.to_be_bytes()].concat();
        let header = match self.protocol {
            ip_proto::TCP => {
                [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0], &[0; 4]].concat()
            }
            ip_proto::UDP => {
                let len = 8 + self.payload.len() as u16;
                [&ports[..], &len.to_be_bytes(), &[0; 2]].concat()
            }
            // The checksum of both covers the whole datagram.
            ip_proto::UDP_LITE => [&ports[..], &[0; 4]].concat(),
            ip_proto::DCCP => [&ports[..], &[3, 0, 0, 0, 4, 0, 0, 9]].concat(),
            // No neighbour discovery: its fields are in the payload.
            _ => vec![ports[1], ports[3], 0, 0, 0, 1, 0, 2],
        };
        [header, self.payload.clone()].concat()
    }

    fn pseudo_header(&self, len: usize) -> Sum16BitWords {
        let len_and_protocol = [0, 0, len.to_be_bytes()[6], len.to_be_bytes()[7], 0, self.protocol];
        let addresses = match &self.extensions {
            Some(extensions) if extensions.iter().any(|e| e.is_routed_on()) => {
                [self.src, LAST_DESTINATION].concat()
            }
            Some(_) => [self.src, self.dst].concat(),
            None => [&self.src[..4], &self.dst[..4]].concat(),
        };
        Sum16BitWords::new().add_slice(&addresses).add_slice(&len_and_protocol)
    }

    fn ipv4(&self, upper_len: usize) -> Vec<u8> {
        let len = 20 + 4 * self.options;
        let total_len = (usize::from(len) + upper_len) as u16;
        let mut header = vec![0x08, 0x00, 0x40 | (len / 4), self.tos];
        header.extend(total_len.to_be_bytes());
        header.extend([0x12, 0x34, 0x40, 0, self.ttl, self.protocol, 0, 0]);
        header.extend(&self.src[..4]);
        header.extend(&self.dst[..4]);
        header.resize(2 + usize::from(len), 1);
        let checksum = Sum16BitWords::new().add_slice(&header[2..]).ones_complement().to_be();
        header[12..14].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    fn ipv6(&self, extensions: &[Extension], upper_len: usize) -> Vec<u8> {
        let mut chain = Vec::new();
        let mut next = self.protocol;
        for extension in extensions.iter().rev() {
            chain = [extension.bytes(next), chain].concat();
            next = extension.number();
        }
        let first = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label;
        let mut header = vec![0x86, 0xdd];
        header.extend(first.to_be_bytes());
        header.extend(((chain.len() + upper_len) as u16).to_be_bytes());
        header.extend([next, self.ttl]);
        header.extend([self.src, self.dst].concat());
        [header, chain].concat()
    }
}

impl Extension {
    fn number(self) -> u8 {
        match self {
            Self::HopByHop => 0,
            Self::Routing(_) => 43,
            Self::Destination => 60,
        }
    }

    fn is_routed_on(self) -> bool {
        matches!(self, Self::Routing(1..))
    }

    fn bytes(self, next: u8) -> Vec<u8> {
        match self {
            Self::Routing(left) => {
                let header = [next, 2, 4, left, 0, 0, 0, 0];
                [&header[..], &LAST_DESTINATION].concat()
            }
            _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
        }
    }
}

fn v4(address: [u8; 16]) -> Ipv4Addr {
    let [a, b, c, d, ..] = address;
    Ipv4Addr::new(a, b, c, d)
}

/// Where a source route ends.
const LAST_DESTINATION: [u8; 16] = [0xfd, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0xff, 0xee, 0, 0, 9];

fn packet() -> impl Strategy<Value = Packet> {
    let link = (vec(any::<u16>(), 0..4), option::of(vec(extension(), 0..4)), 0..=10u8);
    let network = (any::<u8>(), any::<u8>(), 0..1u32 << 20, address(), address());
    let transport = (0..5usize, any::<u16>(), any::<u16>(), vec(any::<u8>(), 0..80));
    (link, network, transport, any::<bool>(), any::<bool>()).prop_map(
        |((tags, extensions, options), network, transport, without_checksum, left_for_later)| {
            let (tos, ttl, flow_label, src, dst) = network;
            let (kind, src_port, dst_port, payload) = transport;
            let icmp = if extensions.is_some() { ip_proto::ICMPV6 } else { ip_proto::ICMP };
            let like_udp = [ip_proto::UDP_LITE, ip_proto::DCCP];
            let protocol = [ip_proto::TCP, ip_proto::UDP, icmp, like_udp[0], like_udp[1]][kind];
            let is_icmp = kind == 2;
            Packet {
                tags,
                extensions,
                options,
                tos,
                ttl,
                flow_label,
                src,
                dst,
                protocol,
                src_port: if is_icmp { src_port & 0xff } else { src_port },
                dst_port: if is_icmp { dst_port & 0xff } else { dst_port },
                payload,
                without_checksum,
                left_for_later: left_for_later && !is_icmp,
            }
        },
    )
}

fn extension() -> impl Strategy<Value = Extension> {
    let routing = (0..3u8).prop_map(Extension::Routing);
    prop_oneof![Just(Extension::HopByHop), routing, Just(Extension::Destination)]
}

/// Addresses, some of which sum up to a zero.
fn address() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![any::<[u8; 16]>(), select(vec![[0; 16], [0xff; 16]])]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..64u8).prop_map(Change::Tos),
        (0..4u8).prop_map(Change::Ecn),
        any::<u8>().prop_map(Change::Ttl),
        Just(Change::DecrementTtl),
        (0..1u32 << 20).prop_map(Change::FlowLabel),
        address().prop_map(Change::Src),
        address().prop_map(Change::Dst),
        any::<u16>().prop_map(Change::SrcPort),
        any::<u16>().prop_map(Change::DstPort),
    ]
}
