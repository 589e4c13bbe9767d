//! Random matches: values that are frequent in frames, exact and masked, with prerequisites.

use std::net::{Ipv4Addr, Ipv6Addr};

use tapswitch_openflow::OxmField::*;
use tapswitch_openflow::{Masked, Match, Oxm, OxmField, PortNo};
use tapswitch_wire::{EtherType, MacAddr, ip_proto};

use crate::random::Random;

/// The known properties of the frames that a match selects.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    eth_type: Option<EtherType>,
    ip_proto: Option<u8>,
    /// ICMPv6 type.
    icmp_type: Option<u8>,
    /// Further fields that can be matched.
    fields: &'static [OxmField],
}

impl Kind {
    pub(crate) const UNKNOWN: Self =
        Self { eth_type: None, ip_proto: None, icmp_type: None, fields: &[] };

    /// Fields of such frames that both switches can set.
    pub(crate) fn settable(self) -> impl Iterator<Item = OxmField> {
        let told = self.icmp_type.is_some();
        self.fields.iter().copied().filter(move |field| match field {
            SctpSrc | SctpDst | Ipv6NdTarget | Ipv6NdSll | Ipv6NdTll | IpProto => false,
            Icmpv6Type | Icmpv6Code => !told,
            _ => true,
        })
    }

    /// Whether its frames have a TTL.
    pub(crate) fn is_ip(self) -> bool {
        matches!(self.eth_type, Some(EtherType::IPV4 | EtherType::IPV6))
    }

    /// Any kind, if nothing is known about the frames.
    pub(crate) fn any(random: &mut Random) -> Self {
        random.pick(KINDS)
    }
}

/// A match, the kind of frames it selects, and whether they have a tag.
pub(crate) struct Matched {
    pub(crate) matching: Match,
    pub(crate) kind: Kind,
    pub(crate) is_tagged: bool,
}

impl Matched {
    pub(crate) fn random(random: &mut Random) -> Self {
        let kind = Kind::any(random);
        let mut fields = Vec::new();
        for (field, percent) in [(InPort, 30), (Metadata, 15), (EthDst, 15), (EthSrc, 15)] {
            maybe(random, field, percent, &mut fields);
        }
        fields.extend(kind.eth_type.map(Oxm::EthType));
        let is_tagged = vlan(random, &mut fields);
        fields.extend(kind.ip_proto.map(Oxm::IpProto));
        if let Some(icmp_type) = kind.icmp_type {
            fields.extend([Oxm::Icmpv6Type(icmp_type), Oxm::Icmpv6Code(0)]);
        }
        for field in kind.fields {
            let is_told = kind.icmp_type.is_some() && matches!(field, Icmpv6Type | Icmpv6Code);
            if !is_told {
                maybe(random, *field, 20, &mut fields);
            }
        }
        Self { matching: fields.into_iter().collect(), kind, is_tagged }
    }
}

fn maybe(random: &mut Random, field: OxmField, percent: usize, fields: &mut Vec<Oxm>) {
    if random.chance(percent) {
        let masked = random.chance(30);
        fields.push(value(random, field, masked));
    }
}

/// Sometimes adds a match on tags. Returns whether it requires one.
fn vlan(random: &mut Random, fields: &mut Vec<Oxm>) -> bool {
    let vid = match random.below(20) {
        0 => Masked::exact(0),
        1 | 2 => Masked::with_mask(0x1000, 0x1000),
        3..6 => Masked::exact(random.pick(VIDS)),
        6 => {
            let mask = 0x1000 | u16::try_from(random.below(0x1000)).unwrap();
            Masked::with_mask(random.pick(VIDS) & mask, mask)
        }
        _ => return false,
    };
    let is_tagged = vid.value != 0;
    fields.push(Oxm::VlanVid(vid));
    if is_tagged {
        maybe(random, VlanPcp, 30, fields);
    }
    is_tagged
}

/// A field with a value that is frequent in frames; masked, if possible, when `masked` is set.
pub(crate) fn value(random: &mut Random, field: OxmField, masked: bool) -> Oxm {
    let port = random.pick(L4_PORTS);
    let small = random.pick(&[0, 1, 2]);
    match field {
        InPort => Oxm::InPort(PortNo(random.pick(&[1, 1, 2, 3]))),
        Metadata => Oxm::Metadata(number(random, &[0, 1, 0xff00, 0xff01], masked)),
        TunnelId => Oxm::TunnelId(number(random, &[0, 1, 0xff00], masked)),
        EthDst => Oxm::EthDst(mac(random, masked)),
        EthSrc => Oxm::EthSrc(mac(random, masked)),
        ArpSha => Oxm::ArpSha(mac(random, masked)),
        ArpTha => Oxm::ArpTha(mac(random, masked)),
        VlanVid => Oxm::VlanVid(Masked::exact(random.pick(VIDS))),
        VlanPcp => Oxm::VlanPcp(random.pick(&[0, 3, 7])),
        IpDscp => Oxm::IpDscp(random.pick(&[0, 10, 63])),
        IpEcn => Oxm::IpEcn(random.pick(&[0, 1, 3])),
        IpProto => Oxm::IpProto(random.pick(&[1, 6, 17, 47, 58, 132])),
        Ipv4Src => Oxm::Ipv4Src(ipv4(random, masked)),
        Ipv4Dst => Oxm::Ipv4Dst(ipv4(random, masked)),
        ArpSpa => Oxm::ArpSpa(ipv4(random, masked)),
        ArpTpa => Oxm::ArpTpa(ipv4(random, masked)),
        Ipv6Src => Oxm::Ipv6Src(ipv6(random, masked)),
        Ipv6Dst => Oxm::Ipv6Dst(ipv6(random, masked)),
        Ipv6NdTarget => Oxm::Ipv6NdTarget(random.pick(IPV6)),
        Ipv6NdSll => Oxm::Ipv6NdSll(random.pick(MACS)),
        Ipv6NdTll => Oxm::Ipv6NdTll(random.pick(MACS)),
        Ipv6Flabel => Oxm::Ipv6Flabel(flow_label(random, masked)),
        TcpSrc => Oxm::TcpSrc(port),
        TcpDst => Oxm::TcpDst(port),
        UdpSrc => Oxm::UdpSrc(port),
        UdpDst => Oxm::UdpDst(port),
        SctpSrc => Oxm::SctpSrc(port),
        SctpDst => Oxm::SctpDst(port),
        Icmpv4Type => Oxm::Icmpv4Type(random.pick(&[0, 8])),
        Icmpv6Type => Oxm::Icmpv6Type(random.pick(&[128, 129, 135, 136])),
        Icmpv4Code => Oxm::Icmpv4Code(small),
        Icmpv6Code => Oxm::Icmpv6Code(small),
        // Without an operation, Open vSwitch sets no fields of ARP.
        ArpOp => Oxm::ArpOp(random.pick(&[1, 2, 3])),
        other => panic!("{other:?} is not of both switches"),
    }
}

/// A mask of `width` bits: an upper part, a lower part, random bits, or all.
fn mask(random: &mut Random, width: u32) -> u128 {
    let all = u128::MAX >> (128 - width);
    let any = u128::from(random.next()) << 64 | u128::from(random.next());
    random.pick(&[all << (width / 2) & all, all >> (width / 2), any & all, all])
}

fn bits(random: &mut Random, value: u128, width: u32, masked: bool) -> (u128, Option<u128>) {
    let mask = masked.then(|| mask(random, width));
    (value & mask.unwrap_or(u128::MAX), mask)
}

fn number(random: &mut Random, from: &[u64], masked: bool) -> Masked<u64> {
    let value = random.pick(from).into();
    let (value, mask) = bits(random, value, 64, masked);
    let narrow = |wide| u64::try_from(wide).unwrap();
    Masked { value: narrow(value), mask: mask.map(narrow) }
}

fn flow_label(random: &mut Random, masked: bool) -> Masked<u32> {
    let value = random.pick(FLOW_LABELS).into();
    let (value, mask) = bits(random, value, 20, masked);
    let narrow = |wide| u32::try_from(wide).unwrap();
    Masked { value: narrow(value), mask: mask.map(narrow) }
}

fn mac(random: &mut Random, masked: bool) -> Masked<MacAddr> {
    let mut bytes = [0; 16];
    bytes[10..].copy_from_slice(&random.pick(MACS).0);
    let (value, mask) = bits(random, u128::from_be_bytes(bytes), 48, masked);
    let narrow = |wide: u128| MacAddr(*wide.to_be_bytes().last_chunk().unwrap());
    Masked { value: narrow(value), mask: mask.map(narrow) }
}

fn ipv4(random: &mut Random, masked: bool) -> Masked<Ipv4Addr> {
    let value = u32::from(random.pick(IPV4)).into();
    let (value, mask) = bits(random, value, 32, masked);
    let narrow = |wide| Ipv4Addr::from(u32::try_from(wide).unwrap());
    Masked { value: narrow(value), mask: mask.map(narrow) }
}

fn ipv6(random: &mut Random, masked: bool) -> Masked<Ipv6Addr> {
    let value = u128::from(random.pick(IPV6));
    let (value, mask) = bits(random, value, 128, masked);
    Masked { value: value.into(), mask: mask.map(Ipv6Addr::from) }
}

const fn kind(eth_type: EtherType, ip_proto: Option<u8>, fields: &'static [OxmField]) -> Kind {
    Kind { eth_type: Some(eth_type), ip_proto, icmp_type: None, fields }
}

const fn discovery(icmp_type: u8, fields: &'static [OxmField]) -> Kind {
    let kind = kind(EtherType::IPV6, Some(ip_proto::ICMPV6), fields);
    Kind { icmp_type: Some(icmp_type), ..kind }
}

const KINDS: &[Kind] = &[
    Kind::UNKNOWN,
    kind(EtherType::IPV4, None, &[IpDscp, IpEcn, IpProto, Ipv4Src, Ipv4Dst]),
    kind(
        EtherType::IPV4,
        Some(ip_proto::TCP),
        &[IpDscp, IpEcn, Ipv4Src, Ipv4Dst, TcpSrc, TcpDst, TcpDst],
    ),
    kind(
        EtherType::IPV4,
        Some(ip_proto::UDP),
        &[IpDscp, IpEcn, Ipv4Src, Ipv4Dst, UdpSrc, UdpDst, UdpDst],
    ),
    kind(EtherType::IPV4, Some(ip_proto::ICMP), &[IpDscp, Ipv4Src, Icmpv4Type, Icmpv4Code]),
    kind(EtherType::IPV4, Some(ip_proto::SCTP), &[IpEcn, Ipv4Dst, SctpSrc, SctpDst]),
    kind(EtherType::IPV6, None, &[IpDscp, IpEcn, IpProto, Ipv6Src, Ipv6Dst, Ipv6Flabel]),
    kind(
        EtherType::IPV6,
        Some(ip_proto::TCP),
        &[IpDscp, IpEcn, Ipv6Src, Ipv6Dst, Ipv6Flabel, TcpSrc, TcpDst],
    ),
    kind(EtherType::IPV6, Some(ip_proto::UDP), &[IpDscp, IpEcn, Ipv6Src, Ipv6Dst, UdpSrc, UdpDst]),
    kind(EtherType::IPV6, Some(ip_proto::SCTP), &[Ipv6Flabel, SctpSrc, SctpDst]),
    kind(EtherType::IPV6, Some(ip_proto::ICMPV6), &[Ipv6Src, Ipv6Dst, Icmpv6Type, Icmpv6Code]),
    discovery(135, &[Ipv6Src, Ipv6NdTarget, Ipv6NdSll]),
    discovery(136, &[Ipv6Dst, Ipv6NdTarget, Ipv6NdTll]),
    kind(EtherType::ARP, None, &[ArpOp, ArpSpa, ArpTpa, ArpSha, ArpTha]),
    kind(EtherType::LLDP, None, &[]),
    kind(EtherType(0x8847), None, &[]),
    kind(EtherType::NOT_ETHER_TYPE, None, &[]),
];

pub(crate) const MACS: &[MacAddr] = &[
    MacAddr([2, 0, 0, 0, 0, 1]),
    MacAddr([2, 0, 0, 0, 0, 2]),
    MacAddr([0xff; 6]),
    MacAddr([1, 2, 3, 4, 5, 6]),
];
pub(crate) const IPV4: &[Ipv4Addr] =
    &[Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 168, 1, 1)];
pub(crate) const IPV6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 3),
];
pub(crate) const L4_PORTS: &[u16] = &[0, 53, 80, 4000];
pub(crate) const FLOW_LABELS: &[u32] = &[0, 5, 0xf_ffff];
/// VLAN ids with the bit for the presence of a tag.
const VIDS: &[u16] = &[0x1005, 0x1006, 0x1000, 0x1fff];
