//! Building blocks of the samples.

use std::net::{Ipv4Addr, Ipv6Addr};

use tapswitch_openflow::multipart::*;
use tapswitch_openflow::*;
use tapswitch_wire::{EtherType, MacAddr};

/// A match on the fields of TCP packets.
pub(crate) fn tcp_match() -> Match {
    let vendor = MacAddr([0xff, 0xff, 0xff, 0, 0, 0]);
    Match::new()
        .with(Oxm::InPort(PortNo(1)))
        .with(Oxm::Metadata(Masked::with_mask(1, 0xff)))
        .with(Oxm::EthDst(mac(2).into()))
        .with(Oxm::EthSrc(Masked::with_mask(mac(0), vendor)))
        .with(Oxm::EthType(EtherType::IPV4))
        .with(Oxm::VlanVid(Masked::exact(VID_PRESENT | 100)))
        .with(Oxm::VlanPcp(3))
        .with(Oxm::IpDscp(10))
        .with(Oxm::IpEcn(1))
        .with(Oxm::IpProto(6))
        .with(Oxm::Ipv4Src(Masked::with_mask(
            Ipv4Addr::new(10, 0, 0, 0),
            Ipv4Addr::new(255, 0, 0, 0),
        )))
        .with(Oxm::Ipv4Dst(Ipv4Addr::new(10, 0, 0, 2).into()))
        .with(Oxm::TcpSrc(1024))
        .with(Oxm::TcpDst(80))
}

pub(crate) fn arp_match() -> Match {
    Match::new()
        .with(Oxm::EthType(EtherType::ARP))
        .with(Oxm::ArpOp(1))
        .with(Oxm::ArpSpa(Ipv4Addr::new(10, 0, 0, 1).into()))
        .with(Oxm::ArpTpa(Masked::with_mask(
            Ipv4Addr::new(10, 0, 0, 0),
            Ipv4Addr::new(255, 255, 255, 0),
        )))
        .with(Oxm::ArpSha(mac(1).into()))
        .with(Oxm::ArpTha(MacAddr::ZERO.into()))
}

pub(crate) fn nd_match() -> Match {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    Match::new()
        .with(Oxm::TunnelId(5.into()))
        .with(Oxm::EthType(EtherType::IPV6))
        .with(Oxm::IpProto(58))
        .with(Oxm::Ipv6Src(Masked::with_mask(address("fe80::"), address("ffc0::"))))
        .with(Oxm::Ipv6Dst(address("ff02::1").into()))
        .with(Oxm::Ipv6Flabel(0x1_2345.into()))
        .with(Oxm::Icmpv6Type(135))
        .with(Oxm::Icmpv6Code(0))
        .with(Oxm::Ipv6NdTarget(address("fe80::1")))
        .with(Oxm::Ipv6NdSll(mac(1)))
}

pub(crate) fn mpls_match() -> Match {
    Match::new()
        .with(Oxm::EthType(EtherType(0x8847)))
        .with(Oxm::MplsLabel(1000))
        .with(Oxm::MplsTc(5))
        .with(Oxm::MplsBos(1))
}

pub(crate) fn udp_match() -> Match {
    Match::new()
        .with(Oxm::EthType(EtherType::IPV6))
        .with(Oxm::VlanVid(Masked::with_mask(VID_PRESENT, VID_PRESENT)))
        .with(Oxm::IpProto(17))
        .with(Oxm::UdpSrc(53))
        .with(Oxm::UdpDst(53))
}

pub(crate) fn icmp_match() -> Match {
    Match::new()
        .with(Oxm::EthType(EtherType::IPV4))
        .with(Oxm::IpProto(1))
        .with(Oxm::Icmpv4Type(8))
        .with(Oxm::Icmpv4Code(0))
}

/// A match with fields that Open vSwitch does not know, or that exclude each other.
pub(crate) fn rare_match() -> Match {
    Match::new()
        .with(Oxm::InPort(PortNo(1)))
        .with(Oxm::InPhyPort(PortNo(2)))
        .with(Oxm::SctpSrc(1))
        .with(Oxm::SctpDst(2))
        .with(Oxm::Ipv6NdTll(mac(1)))
        .with(Oxm::PbbIsid(Masked::with_mask(0x01_0200, 0xff_ff00)))
        .with(Oxm::Ipv6Exthdr(Masked::with_mask(0x101, 0x1ff)))
        .with(Oxm::Unknown { class: 0x8000, field: 42, has_mask: false, payload: vec![0, 2] })
        .with(Oxm::Unknown {
            class: 0xffff,
            field: 0,
            has_mask: true,
            payload: vec![0, 0, 0x23, 0x20, 1, 0xff],
        })
}

pub(crate) fn all_instructions() -> Vec<Instruction> {
    vec![
        Instruction::Meter(7),
        Instruction::ApplyActions(vec![Action::output(PortNo(2)), Action::Group(GroupId(9))]),
        Instruction::ClearActions,
        Instruction::WriteActions(vec![Action::output(PortNo(3))]),
        Instruction::WriteMetadata { metadata: 0x12, mask: 0xff },
        Instruction::GotoTable(TableId(5)),
    ]
}

/// Every action that Open vSwitch knows. Each set-field action is where its header is present.
pub(crate) fn ovs_actions() -> Vec<Action> {
    vec![
        Action::SetField(Oxm::EthDst(mac(9).into())),
        Action::SetField(Oxm::Ipv4Src(Ipv4Addr::new(10, 9, 9, 9).into())),
        Action::SetField(Oxm::TunnelId(77.into())),
        Action::SetNwTtl(64),
        Action::DecNwTtl,
        Action::PushVlan(EtherType::SERVICE_VLAN),
        Action::SetField(Oxm::VlanVid(Masked::exact(VID_PRESENT | 100))),
        Action::SetField(Oxm::VlanPcp(5)),
        Action::PopVlan,
        Action::PushMpls(EtherType(0x8847)),
        Action::SetField(Oxm::MplsLabel(1000)),
        Action::SetMplsTtl(63),
        Action::DecMplsTtl,
        Action::PopMpls(EtherType::IPV4),
        Action::SetQueue(3),
        Action::Group(GroupId(9)),
        Action::Output { port: PortNo::CONTROLLER, max_len: 128 },
        Action::output(PortNo::IN_PORT),
        Action::output(PortNo(2)),
    ]
}

pub(crate) fn foreign_instructions() -> Vec<Instruction> {
    vec![
        Instruction::ApplyActions(vec![
            Action::CopyTtlOut,
            Action::CopyTtlIn,
            Action::PushPbb(EtherType(0x88e7)),
            Action::PopPbb,
            Action::Experimenter { experimenter: 0x00c0_ffee, data: vec![1, 2, 3, 4, 5, 6, 7, 8] },
            Action::Unknown { kind: 99, data: vec![0; 4] },
        ]),
        Instruction::Experimenter { experimenter: 0x00c0_ffee, data: vec![] },
        Instruction::Unknown { kind: 99, data: vec![1, 2, 3, 4] },
    ]
}

pub(crate) fn flow_stats() -> FlowStats {
    FlowStats {
        table_id: TableId(1),
        duration_sec: 1,
        duration_nsec: 250_000_000,
        priority: 200,
        idle_timeout: 60,
        hard_timeout: 0,
        flags: FlowModFlags::empty(),
        cookie: 9,
        packet_count: 4,
        byte_count: 400,
        match_fields: tcp_match(),
        instructions: all_instructions(),
    }
}

pub(crate) fn port() -> Port {
    Port {
        port_no: PortNo(1),
        hw_addr: mac(1),
        name: "tap0".into(),
        config: PortConfig::NO_PACKET_IN,
        state: PortState::LINK_DOWN,
        curr: PortFeatures::RATE_10GB_FD | PortFeatures::COPPER,
        advertised: PortFeatures::empty(),
        supported: PortFeatures::RATE_40GB_FD | PortFeatures::AUTONEG,
        peer: PortFeatures::empty(),
        curr_speed: 10_000_000,
        max_speed: 40_000_000,
    }
}

pub(crate) fn port_stats() -> PortStats {
    PortStats {
        port_no: PortNo(1),
        rx_packets: 1,
        tx_packets: 2,
        rx_bytes: 3,
        tx_bytes: 4,
        rx_dropped: 5,
        tx_dropped: 6,
        rx_errors: 7,
        tx_errors: 8,
        rx_frame_err: 9,
        rx_over_err: 10,
        rx_crc_err: 11,
        collisions: 12,
        duration_sec: 13,
        duration_nsec: 500_000_000,
    }
}

/// A table with every property.
pub(crate) fn table_features() -> TableFeatures {
    use TableFeaturesProperty as Property;
    let instructions: Vec<_> =
        [1, 3, 4].map(|kind| InstructionId { kind, experimenter: None }).into();
    let actions: Vec<_> =
        [0, 17, 18, 22, 25].map(|kind| ActionId { kind, experimenter: None }).into();
    let fields = [OxmField::InPort, OxmField::EthType, OxmField::VlanVid];
    let vid = OxmId::exact(OxmField::VlanVid);
    TableFeatures {
        table_id: TableId(1),
        name: "taps".into(),
        metadata_match: 0xff,
        metadata_write: 0xff0,
        config: 0,
        max_entries: 4096,
        properties: vec![
            Property::Instructions(instructions.clone()),
            Property::InstructionsMiss(instructions),
            Property::NextTables(vec![TableId(2), TableId(3)]),
            Property::NextTablesMiss(vec![TableId(2), TableId(3)]),
            Property::WriteActions(actions.clone()),
            Property::WriteActionsMiss(actions.clone()),
            Property::ApplyActions(actions.clone()),
            Property::ApplyActionsMiss(actions),
            Property::Match(fields.map(OxmId::maskable).into()),
            Property::Wildcards(fields.map(OxmId::exact).into()),
            Property::WriteSetField(vec![vid]),
            Property::WriteSetFieldMiss(vec![vid]),
            Property::ApplySetField(vec![vid]),
            Property::ApplySetFieldMiss(vec![vid]),
        ],
    }
}

pub(crate) fn bucket(port: u32) -> Bucket {
    Bucket { watch_port: PortNo(port), ..Bucket::new(vec![Action::output(PortNo(port))]) }
}

pub(crate) fn drop_band() -> MeterBand {
    MeterBand { rate: 1000, burst_size: 100, kind: MeterBandKind::Drop }
}

pub(crate) fn remark_band() -> MeterBand {
    MeterBand { rate: 2000, burst_size: 200, kind: MeterBandKind::DscpRemark { prec_level: 1 } }
}

pub(crate) fn some_experimenter() -> Experimenter {
    Experimenter { experimenter: 0x00c0_ffee, exp_type: 1, data: vec![0xde, 0xad, 0xbe, 0xef] }
}

pub(crate) fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

/// A broadcast frame of 60 bytes without a tag.
pub(crate) fn frame() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend_from_slice(&mac(1).0);
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.resize(60, 0);
    frame
}

/// Ledgers of a copy with a few drops, and of an unused path.
pub(crate) fn ledgers() -> Vec<BucketLedger> {
    let counter = |packet_count| BucketCounter { packet_count, byte_count: packet_count * 1000 };
    let drops = [("egress_full", 5), ("port_down", 2)];
    let copy = BucketLedger {
        group_id: GroupId(9),
        bucket: 1,
        processed: counter(100),
        delivered: counter(90),
        queued: 3,
        drops: drops.map(|(reason, count)| BucketDrops { reason: reason.into(), count }).into(),
    };
    let none = BucketCounter::default();
    let path =
        BucketLedger { bucket: 0, processed: none, delivered: none, queued: 0, ..copy.clone() };
    vec![BucketLedger { drops: vec![], ..path }, copy]
}
