//! Strategies for any message that can be encoded, known and unknown parts included.

use std::net::{Ipv4Addr, Ipv6Addr};

use bitflags::Flags;
use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_openflow::multipart::*;
use tapswitch_openflow::*;
use tapswitch_wire::{EtherType, MacAddr};

pub(crate) fn message() -> impl Strategy<Value = Message> {
    (any::<u32>(), body()).prop_map(|(xid, body)| Message { xid, body })
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        symmetric(),
        configuration(),
        asynchronous(),
        modification(),
        request().prop_map(Body::MultipartRequest),
        reply().prop_map(Body::MultipartReply),
        queues(),
    ]
}

fn symmetric() -> impl Strategy<Value = Body> {
    let kind = (any::<u16>(), any::<u16>());
    let error = (kind, bytes()).prop_map(|((error_type, code), data)| {
        let error_type = ErrorType(error_type);
        Body::Error(ErrorMessage { kind: ErrorKind { error_type, code }, data })
    });
    prop_oneof![
        (4..=u8::MAX, vec(hello_element(), 0..4))
            .prop_map(|(version, elements)| Body::Hello(Hello { version, elements })),
        error,
        bytes().prop_map(Body::EchoRequest),
        bytes().prop_map(Body::EchoReply),
        experimenter().prop_map(Body::Experimenter),
        Just(Body::BarrierRequest),
        Just(Body::BarrierReply),
    ]
}

fn hello_element() -> impl Strategy<Value = HelloElement> {
    prop_oneof![
        vec(any::<u32>(), 0..3).prop_map(HelloElement::VersionBitmap),
        (2..=u16::MAX, bytes()).prop_map(|(kind, data)| HelloElement::Unknown { kind, data }),
    ]
}

fn configuration() -> impl Strategy<Value = Body> {
    let features = (any::<u64>(), any::<u32>(), any::<u8>(), any::<u8>(), flags());
    let features =
        features.prop_map(|(datapath_id, n_buffers, n_tables, auxiliary_id, capabilities)| {
            FeaturesReply {
                datapath_id: DatapathId(datapath_id),
                n_buffers,
                n_tables,
                auxiliary_id,
                capabilities,
            }
        });
    prop_oneof![
        Just(Body::FeaturesRequest),
        features.prop_map(Body::FeaturesReply),
        Just(Body::GetConfigRequest),
        config().prop_map(Body::GetConfigReply),
        config().prop_map(Body::SetConfig),
        role().prop_map(Body::RoleRequest),
        role().prop_map(Body::RoleReply),
        Just(Body::GetAsyncRequest),
        async_config().prop_map(Body::GetAsyncReply),
        async_config().prop_map(Body::SetAsync),
    ]
}

fn config() -> impl Strategy<Value = SwitchConfig> {
    any::<(u16, u16)>().prop_map(|(flags, miss_send_len)| SwitchConfig {
        flags: ConfigFlags(flags),
        miss_send_len,
    })
}

fn role() -> impl Strategy<Value = RoleMessage> {
    use ControllerRole::{Equal, Master, NoChange, Slave};
    let role = prop::sample::select(vec![NoChange, Equal, Master, Slave]);
    (role, any::<u64>()).prop_map(|(role, generation_id)| RoleMessage { role, generation_id })
}

fn async_config() -> impl Strategy<Value = AsyncConfig> {
    let mask = || {
        any::<(u32, u32, u32)>().prop_map(|(packet_in, port_status, flow_removed)| AsyncMask {
            packet_in,
            port_status,
            flow_removed,
        })
    };
    (mask(), mask()).prop_map(|(master, slave)| AsyncConfig { master, slave })
}

fn asynchronous() -> impl Strategy<Value = Body> {
    prop_oneof![
        packet_in().prop_map(Body::PacketIn),
        flow_removed().prop_map(Body::FlowRemoved),
        (any::<u8>(), port()).prop_map(|(reason, desc)| Body::PortStatus(PortStatus {
            reason: PortReason(reason),
            desc,
        })),
        packet_out().prop_map(Body::PacketOut),
    ]
}

fn packet_in() -> impl Strategy<Value = PacketIn> {
    let numbers = any::<(u32, u16, u8, u8, u64)>();
    (numbers, match_fields(), bytes()).prop_map(|(numbers, match_fields, data)| {
        let (buffer_id, total_len, reason, table_id, cookie) = numbers;
        PacketIn {
            buffer_id: BufferId(buffer_id),
            total_len,
            reason: PacketInReason(reason),
            table_id: TableId(table_id),
            cookie,
            match_fields,
            data,
        }
    })
}

fn flow_removed() -> impl Strategy<Value = FlowRemoved> {
    let entry = any::<(u64, u16, u8, u8)>();
    let times = any::<(u32, u32, u16, u16)>();
    let counts = any::<(u64, u64)>();
    (entry, times, counts, match_fields()).prop_map(|(entry, times, counts, match_fields)| {
        let (cookie, priority, reason, table_id) = entry;
        FlowRemoved {
            cookie,
            priority,
            reason: FlowRemovedReason(reason),
            table_id: TableId(table_id),
            duration_sec: times.0,
            duration_nsec: times.1,
            idle_timeout: times.2,
            hard_timeout: times.3,
            packet_count: counts.0,
            byte_count: counts.1,
            match_fields,
        }
    })
}

fn packet_out() -> impl Strategy<Value = PacketOut> {
    (any::<u32>(), any::<u32>(), actions(), bytes()).prop_map(
        |(buffer_id, in_port, actions, data)| PacketOut {
            buffer_id: BufferId(buffer_id),
            in_port: PortNo(in_port),
            actions,
            data,
        },
    )
}

fn modification() -> impl Strategy<Value = Body> {
    let port_mod = (any::<u32>(), any::<[u8; 6]>(), flags(), flags(), flags());
    let port_mod = port_mod.prop_map(|(port_no, hw_addr, config, mask, advertise)| PortMod {
        port_no: PortNo(port_no),
        hw_addr: MacAddr(hw_addr),
        config,
        mask,
        advertise,
    });
    prop_oneof![
        flow_mod().prop_map(Body::FlowMod),
        group_mod().prop_map(Body::GroupMod),
        port_mod.prop_map(Body::PortMod),
        any::<(u8, u32)>().prop_map(|(table_id, config)| Body::TableMod(TableMod {
            table_id: TableId(table_id),
            config,
        })),
        meter_mod().prop_map(Body::MeterMod),
    ]
}

fn flow_mod() -> impl Strategy<Value = FlowMod> {
    use FlowModCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let commands = vec![Add, Modify, ModifyStrict, Delete, DeleteStrict];
    let command = prop::sample::select(commands);
    let numbers = any::<(u64, u64, u8, u16, u16, u16, u32, u32, u32)>();
    let content = (match_fields(), instructions());
    (command, numbers, flags(), content).prop_map(|(command, numbers, flags, content)| FlowMod {
        cookie: numbers.0,
        cookie_mask: numbers.1,
        table_id: TableId(numbers.2),
        command,
        idle_timeout: numbers.3,
        hard_timeout: numbers.4,
        priority: numbers.5,
        buffer_id: BufferId(numbers.6),
        out_port: PortNo(numbers.7),
        out_group: GroupId(numbers.8),
        flags,
        match_fields: content.0,
        instructions: content.1,
    })
}

fn group_mod() -> impl Strategy<Value = GroupMod> {
    use GroupModCommand::{Add, Delete, Modify};
    let command = prop::sample::select(vec![Add, Modify, Delete]);
    (command, group_desc()).prop_map(|(command, desc)| GroupMod {
        command,
        group_type: desc.group_type,
        group_id: desc.group_id,
        buckets: desc.buckets,
    })
}

fn group_desc() -> impl Strategy<Value = GroupDesc> {
    use GroupType::{All, FastFailover, Indirect, Select};
    let group_type = prop::sample::select(vec![All, Select, Indirect, FastFailover]);
    (group_type, any::<u32>(), vec(bucket(), 0..4)).prop_map(|(group_type, group_id, buckets)| {
        GroupDesc { group_type, group_id: GroupId(group_id), buckets }
    })
}

fn bucket() -> impl Strategy<Value = Bucket> {
    (any::<(u16, u32, u32)>(), actions()).prop_map(|((weight, port, group), actions)| Bucket {
        weight,
        watch_port: PortNo(port),
        watch_group: GroupId(group),
        actions,
    })
}

fn meter_mod() -> impl Strategy<Value = MeterMod> {
    use MeterModCommand::{Add, Delete, Modify};
    let command = prop::sample::select(vec![Add, Modify, Delete]);
    (command, meter_config()).prop_map(|(command, config)| MeterMod {
        command,
        flags: config.flags,
        meter_id: config.meter_id,
        bands: config.bands,
    })
}

fn meter_config() -> impl Strategy<Value = MeterConfig> {
    (flags(), any::<u32>(), vec(meter_band(), 0..4))
        .prop_map(|(flags, meter_id, bands)| MeterConfig { flags, meter_id, bands })
}

fn meter_band() -> impl Strategy<Value = MeterBand> {
    let kind = prop_oneof![
        Just(MeterBandKind::Drop),
        any::<u8>().prop_map(|prec_level| MeterBandKind::DscpRemark { prec_level }),
        (any::<u32>(), bytes())
            .prop_map(|(experimenter, data)| MeterBandKind::Experimenter { experimenter, data }),
        (3..u16::MAX, bytes()).prop_map(|(kind, data)| MeterBandKind::Unknown { kind, data }),
    ];
    (any::<(u32, u32)>(), kind).prop_map(|((rate, burst_size), kind)| MeterBand {
        rate,
        burst_size,
        kind,
    })
}

fn request() -> impl Strategy<Value = MultipartRequest> {
    use MultipartRequestBody as Ask;
    let bare = vec![
        Ask::Desc,
        Ask::Table,
        Ask::GroupDesc,
        Ask::GroupFeatures,
        Ask::MeterFeatures,
        Ask::PortDesc,
    ];
    let queue = any::<(u32, u32)>()
        .prop_map(|(port_no, queue_id)| QueueStatsRequest { port_no: PortNo(port_no), queue_id });
    let body = prop_oneof![
        prop::sample::select(bare),
        flow_request().prop_map(Ask::Flow),
        flow_request().prop_map(Ask::Aggregate),
        any::<u32>().prop_map(|port| Ask::PortStats(PortNo(port))),
        queue.prop_map(Ask::Queue),
        any::<u32>().prop_map(|group| Ask::Group(GroupId(group))),
        any::<u32>().prop_map(Ask::Meter),
        any::<u32>().prop_map(Ask::MeterConfig),
        vec(table_features(), 0..3).prop_map(Ask::TableFeatures),
        experimenter().prop_map(Ask::Experimenter),
    ];
    (any::<bool>(), body).prop_map(|(more, body)| MultipartRequest { more, body })
}

fn flow_request() -> impl Strategy<Value = FlowStatsRequest> {
    (any::<(u8, u32, u32, u64, u64)>(), match_fields()).prop_map(|(numbers, match_fields)| {
        FlowStatsRequest {
            table_id: TableId(numbers.0),
            out_port: PortNo(numbers.1),
            out_group: GroupId(numbers.2),
            cookie: numbers.3,
            cookie_mask: numbers.4,
            match_fields,
        }
    })
}

fn reply() -> impl Strategy<Value = MultipartReply> {
    use MultipartReplyBody as Tell;
    let desc = (text(), text(), text(), text(), text()).prop_map(|texts| Desc {
        mfr_desc: texts.0,
        hw_desc: texts.1,
        sw_desc: texts.2,
        serial_num: texts.3,
        dp_desc: texts.4,
    });
    let aggregate = any::<(u64, u64, u32)>().prop_map(|counts| AggregateStats {
        packet_count: counts.0,
        byte_count: counts.1,
        flow_count: counts.2,
    });
    let body = prop_oneof![
        desc.prop_map(|desc| Tell::Desc(Box::new(desc))),
        vec(flow_stats(), 0..4).prop_map(Tell::Flow),
        aggregate.prop_map(Tell::Aggregate),
        vec(table_stats(), 0..4).prop_map(Tell::Table),
        vec(port_stats(), 0..4).prop_map(Tell::PortStats),
        vec(queue_stats(), 0..4).prop_map(Tell::Queue),
        vec(group_stats(), 0..4).prop_map(Tell::Group),
        vec(group_desc(), 0..4).prop_map(Tell::GroupDesc),
        group_features().prop_map(Tell::GroupFeatures),
        vec(meter_stats(), 0..4).prop_map(Tell::Meter),
        vec(meter_config(), 0..4).prop_map(Tell::MeterConfig),
        meter_features().prop_map(Tell::MeterFeatures),
        vec(table_features(), 0..3).prop_map(Tell::TableFeatures),
        vec(port(), 0..4).prop_map(Tell::PortDesc),
        experimenter().prop_map(Tell::Experimenter),
    ];
    (any::<bool>(), body).prop_map(|(more, body)| MultipartReply { more, body })
}

fn flow_stats() -> impl Strategy<Value = FlowStats> {
    let numbers = any::<(u8, u32, u32, u16, u16, u16, u64, u64, u64)>();
    (numbers, flags(), match_fields(), instructions()).prop_map(
        |(numbers, flags, match_fields, instructions)| FlowStats {
            table_id: TableId(numbers.0),
            duration_sec: numbers.1,
            duration_nsec: numbers.2,
            priority: numbers.3,
            idle_timeout: numbers.4,
            hard_timeout: numbers.5,
            flags,
            cookie: numbers.6,
            packet_count: numbers.7,
            byte_count: numbers.8,
            match_fields,
            instructions,
        },
    )
}

fn table_stats() -> impl Strategy<Value = TableStats> {
    any::<(u8, u32, u64, u64)>().prop_map(|numbers| TableStats {
        table_id: TableId(numbers.0),
        active_count: numbers.1,
        lookup_count: numbers.2,
        matched_count: numbers.3,
    })
}

fn port_stats() -> impl Strategy<Value = PortStats> {
    any::<(u32, [u64; 12], u32, u32)>().prop_map(|(port_no, counts, sec, nsec)| PortStats {
        port_no: PortNo(port_no),
        rx_packets: counts[0],
        tx_packets: counts[1],
        rx_bytes: counts[2],
        tx_bytes: counts[3],
        rx_dropped: counts[4],
        tx_dropped: counts[5],
        rx_errors: counts[6],
        tx_errors: counts[7],
        rx_frame_err: counts[8],
        rx_over_err: counts[9],
        rx_crc_err: counts[10],
        collisions: counts[11],
        duration_sec: sec,
        duration_nsec: nsec,
    })
}

fn queue_stats() -> impl Strategy<Value = QueueStats> {
    any::<(u32, u32, u64, u64, u64, u32, u32)>().prop_map(|numbers| QueueStats {
        port_no: PortNo(numbers.0),
        queue_id: numbers.1,
        tx_bytes: numbers.2,
        tx_packets: numbers.3,
        tx_errors: numbers.4,
        duration_sec: numbers.5,
        duration_nsec: numbers.6,
    })
}

fn group_stats() -> impl Strategy<Value = GroupStats> {
    let counter = any::<(u64, u64)>()
        .prop_map(|(packet_count, byte_count)| BucketCounter { packet_count, byte_count });
    (any::<(u32, u32, u64, u64, u32, u32)>(), vec(counter, 0..4)).prop_map(
        |(numbers, bucket_stats)| GroupStats {
            group_id: GroupId(numbers.0),
            ref_count: numbers.1,
            packet_count: numbers.2,
            byte_count: numbers.3,
            duration_sec: numbers.4,
            duration_nsec: numbers.5,
            bucket_stats,
        },
    )
}

fn group_features() -> impl Strategy<Value = GroupFeatures> {
    (any::<u32>(), flags(), any::<[u32; 4]>(), any::<[u32; 4]>()).prop_map(
        |(types, capabilities, max_groups, actions)| GroupFeatures {
            types,
            capabilities,
            max_groups,
            actions,
        },
    )
}

fn meter_stats() -> impl Strategy<Value = MeterStats> {
    let band = any::<(u64, u64)>().prop_map(|(packet_band_count, byte_band_count)| {
        MeterBandStats { packet_band_count, byte_band_count }
    });
    (any::<(u32, u32, u64, u64, u32, u32)>(), vec(band, 0..4)).prop_map(|(numbers, band_stats)| {
        MeterStats {
            meter_id: numbers.0,
            flow_count: numbers.1,
            packet_in_count: numbers.2,
            byte_in_count: numbers.3,
            duration_sec: numbers.4,
            duration_nsec: numbers.5,
            band_stats,
        }
    })
}

fn meter_features() -> impl Strategy<Value = MeterFeatures> {
    any::<(u32, u32, u32, u8, u8)>().prop_map(|numbers| MeterFeatures {
        max_meter: numbers.0,
        band_types: numbers.1,
        capabilities: numbers.2,
        max_bands: numbers.3,
        max_color: numbers.4,
    })
}

fn table_features() -> impl Strategy<Value = TableFeatures> {
    let numbers = any::<(u8, u64, u64, u32, u32)>();
    (numbers, text(), vec(property(), 0..6)).prop_map(|(numbers, name, properties)| TableFeatures {
        table_id: TableId(numbers.0),
        name,
        metadata_match: numbers.1,
        metadata_write: numbers.2,
        config: numbers.3,
        max_entries: numbers.4,
        properties,
    })
}

fn property() -> impl Strategy<Value = TableFeaturesProperty> {
    use TableFeaturesProperty as Property;
    let id = || (any::<u16>(), any::<Option<u32>>());
    let instructions =
        || vec(id().prop_map(|(kind, experimenter)| InstructionId { kind, experimenter }), 0..5);
    let actions =
        || vec(id().prop_map(|(kind, experimenter)| ActionId { kind, experimenter }), 0..5);
    let tables = || vec(any::<u8>().prop_map(TableId), 0..9);
    let fields = || vec(oxm_id(), 0..5);
    prop_oneof![
        instructions().prop_map(Property::Instructions),
        instructions().prop_map(Property::InstructionsMiss),
        tables().prop_map(Property::NextTables),
        tables().prop_map(Property::NextTablesMiss),
        actions().prop_map(Property::WriteActions),
        actions().prop_map(Property::WriteActionsMiss),
        actions().prop_map(Property::ApplyActions),
        actions().prop_map(Property::ApplyActionsMiss),
        fields().prop_map(Property::Match),
        fields().prop_map(Property::Wildcards),
        fields().prop_map(Property::WriteSetField),
        fields().prop_map(Property::WriteSetFieldMiss),
        fields().prop_map(Property::ApplySetField),
        fields().prop_map(Property::ApplySetFieldMiss),
        (16..=u16::MAX, bytes()).prop_map(|(kind, data)| Property::Unknown { kind, data }),
    ]
}

fn oxm_id() -> impl Strategy<Value = OxmId> {
    let numbers = (0..0xffffu16, 0..128u8, any::<bool>(), any::<u8>());
    (numbers, any::<Option<u32>>()).prop_map(|((class, field, has_mask, len), experimenter)| {
        let class = if experimenter.is_some() { 0xffff } else { class };
        OxmId { class, field, has_mask, len, experimenter }
    })
}

fn port() -> impl Strategy<Value = Port> {
    let features = (flags(), flags(), flags(), flags());
    (any::<(u32, [u8; 6], u32, u32)>(), text(), flags(), flags(), features).prop_map(
        |(numbers, name, config, state, features)| Port {
            port_no: PortNo(numbers.0),
            hw_addr: MacAddr(numbers.1),
            name,
            config,
            state,
            curr: features.0,
            advertised: features.1,
            supported: features.2,
            peer: features.3,
            curr_speed: numbers.2,
            max_speed: numbers.3,
        },
    )
}

fn queues() -> impl Strategy<Value = Body> {
    let property = prop_oneof![
        any::<u16>().prop_map(QueueProperty::MinRate),
        any::<u16>().prop_map(QueueProperty::MaxRate),
        (any::<u32>(), bytes())
            .prop_map(|(experimenter, data)| QueueProperty::Experimenter { experimenter, data }),
        (3..u16::MAX, bytes()).prop_map(|(kind, data)| QueueProperty::Unknown { kind, data }),
    ];
    let queue = (any::<u32>(), any::<u32>(), vec(property, 0..4)).prop_map(
        |(queue_id, port, properties)| PacketQueue { queue_id, port: PortNo(port), properties },
    );
    prop_oneof![
        any::<u32>().prop_map(|port| {
            Body::QueueGetConfigRequest(QueueGetConfigRequest { port: PortNo(port) })
        }),
        (any::<u32>(), vec(queue, 0..4)).prop_map(|(port, queues)| {
            Body::QueueGetConfigReply(QueueGetConfigReply { port: PortNo(port), queues })
        }),
    ]
}

fn instructions() -> impl Strategy<Value = Vec<Instruction>> {
    let instruction = prop_oneof![
        any::<u8>().prop_map(|table_id| Instruction::GotoTable(TableId(table_id))),
        any::<(u64, u64)>()
            .prop_map(|(metadata, mask)| Instruction::WriteMetadata { metadata, mask }),
        actions().prop_map(Instruction::WriteActions),
        actions().prop_map(Instruction::ApplyActions),
        Just(Instruction::ClearActions),
        any::<u32>().prop_map(Instruction::Meter),
        (any::<u32>(), aligned_bytes(0))
            .prop_map(|(experimenter, data)| Instruction::Experimenter { experimenter, data }),
        (7..u16::MAX, aligned_bytes(4))
            .prop_map(|(kind, data)| Instruction::Unknown { kind, data }),
    ];
    vec(instruction, 0..5)
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let bare = vec![
        Action::CopyTtlOut,
        Action::CopyTtlIn,
        Action::DecMplsTtl,
        Action::PopVlan,
        Action::DecNwTtl,
        Action::PopPbb,
    ];
    let eth_type = || any::<u16>().prop_map(EtherType);
    let action = prop_oneof![
        any::<(u32, u16)>()
            .prop_map(|(port, max_len)| Action::Output { port: PortNo(port), max_len }),
        prop::sample::select(bare),
        any::<u8>().prop_map(Action::SetMplsTtl),
        any::<u8>().prop_map(Action::SetNwTtl),
        eth_type().prop_map(Action::PushVlan),
        eth_type().prop_map(Action::PushMpls),
        eth_type().prop_map(Action::PopMpls),
        eth_type().prop_map(Action::PushPbb),
        any::<u32>().prop_map(Action::SetQueue),
        any::<u32>().prop_map(|group| Action::Group(GroupId(group))),
        oxm().prop_map(Action::SetField),
        (any::<u32>(), aligned_bytes(0))
            .prop_map(|(experimenter, data)| Action::Experimenter { experimenter, data }),
        delivery().prop_map(Delivery::action),
        (28..u16::MAX, aligned_bytes(4)).prop_map(|(kind, data)| Action::Unknown { kind, data }),
    ];
    vec(action, 0..6)
}

pub(crate) fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        Just(Delivery::BestEffort),
        any::<u16>().prop_map(|stall_ms| Delivery::Lossless { stall_ms }),
        Just(Delivery::SampleOnPressure),
    ]
}

/// Ledgers of a switch's copies.
pub(crate) fn ledgers() -> impl Strategy<Value = Vec<BucketLedger>> {
    let counter = || {
        any::<(u64, u64)>()
            .prop_map(|(packet_count, byte_count)| BucketCounter { packet_count, byte_count })
    };
    let reason = any::<[u8; 24]>().prop_map(Text::from_bytes);
    let drops = (reason, any::<u64>()).prop_map(|(reason, count)| BucketDrops { reason, count });
    let ids = any::<(u32, u32)>();
    let ledger = (ids, counter(), counter(), any::<u64>(), vec(drops, 0..4)).prop_map(
        |((group, bucket), processed, delivered, queued, drops)| BucketLedger {
            group_id: GroupId(group),
            bucket,
            processed,
            delivered,
            queued,
            drops,
        },
    );
    vec(ledger, 0..6)
}

fn match_fields() -> impl Strategy<Value = Match> {
    vec(oxm(), 0..8).prop_map(|fields| Match { fields })
}

fn oxm() -> impl Strategy<Value = Oxm> {
    let basic = prop_oneof![
        any::<u32>().prop_map(|port| Oxm::InPort(PortNo(port))),
        any::<u32>().prop_map(|port| Oxm::InPhyPort(PortNo(port))),
        masked::<u64>().prop_map(Oxm::Metadata),
        masked_mac().prop_map(Oxm::EthDst),
        masked_mac().prop_map(Oxm::EthSrc),
        any::<u16>().prop_map(|eth_type| Oxm::EthType(EtherType(eth_type))),
        masked::<u16>().prop_map(Oxm::VlanVid),
        any::<u8>().prop_map(Oxm::VlanPcp),
        any::<u8>().prop_map(Oxm::IpDscp),
        any::<u8>().prop_map(Oxm::IpEcn),
        any::<u8>().prop_map(Oxm::IpProto),
        masked::<Ipv4Addr>().prop_map(Oxm::Ipv4Src),
        masked::<Ipv4Addr>().prop_map(Oxm::Ipv4Dst),
    ];
    let ports = prop_oneof![
        any::<u16>().prop_map(Oxm::TcpSrc),
        any::<u16>().prop_map(Oxm::TcpDst),
        any::<u16>().prop_map(Oxm::UdpSrc),
        any::<u16>().prop_map(Oxm::UdpDst),
        any::<u16>().prop_map(Oxm::SctpSrc),
        any::<u16>().prop_map(Oxm::SctpDst),
        any::<u8>().prop_map(Oxm::Icmpv4Type),
        any::<u8>().prop_map(Oxm::Icmpv4Code),
        any::<u16>().prop_map(Oxm::ArpOp),
        masked::<Ipv4Addr>().prop_map(Oxm::ArpSpa),
        masked::<Ipv4Addr>().prop_map(Oxm::ArpTpa),
        masked_mac().prop_map(Oxm::ArpSha),
        masked_mac().prop_map(Oxm::ArpTha),
    ];
    let later = prop_oneof![
        masked::<Ipv6Addr>().prop_map(Oxm::Ipv6Src),
        masked::<Ipv6Addr>().prop_map(Oxm::Ipv6Dst),
        masked::<u32>().prop_map(Oxm::Ipv6Flabel),
        any::<u8>().prop_map(Oxm::Icmpv6Type),
        any::<u8>().prop_map(Oxm::Icmpv6Code),
        any::<Ipv6Addr>().prop_map(Oxm::Ipv6NdTarget),
        any::<[u8; 6]>().prop_map(|mac| Oxm::Ipv6NdSll(MacAddr(mac))),
        any::<[u8; 6]>().prop_map(|mac| Oxm::Ipv6NdTll(MacAddr(mac))),
        any::<u32>().prop_map(Oxm::MplsLabel),
        any::<u8>().prop_map(Oxm::MplsTc),
        any::<u8>().prop_map(Oxm::MplsBos),
        (0..=0xff_ffffu32).prop_map(|isid| Oxm::PbbIsid(isid.into())),
        masked::<u64>().prop_map(Oxm::TunnelId),
        masked::<u16>().prop_map(Oxm::Ipv6Exthdr),
    ];
    prop_oneof![4 => basic, 4 => ports, 4 => later, 1 => unknown_oxm()]
}

/// A field outside the forty of version 1.3.
fn unknown_oxm() -> impl Strategy<Value = Oxm> {
    let class = prop_oneof![Just((0x8000, 40)), Just((0xffff, 0)), Just((0x0001, 0))];
    (class, 0..88u8, any::<bool>(), bytes()).prop_map(
        |((class, first), field, has_mask, payload)| Oxm::Unknown {
            class,
            field: first + field,
            has_mask,
            payload,
        },
    )
}

fn masked<T: Arbitrary + Copy>() -> impl Strategy<Value = Masked<T>> {
    (any::<T>(), any::<Option<T>>()).prop_map(|(value, mask)| Masked { value, mask })
}

fn masked_mac() -> impl Strategy<Value = Masked<MacAddr>> {
    masked::<[u8; 6]>()
        .prop_map(|masked| Masked { value: MacAddr(masked.value), mask: masked.mask.map(MacAddr) })
}

fn experimenter() -> impl Strategy<Value = Experimenter> {
    (any::<u32>(), any::<u32>(), bytes()).prop_map(|(experimenter, exp_type, data)| Experimenter {
        experimenter,
        exp_type,
        data,
    })
}

fn text<const N: usize>() -> impl Strategy<Value = Text<N>> {
    vec(any::<u8>(), N).prop_map(|bytes| Text::from_bytes(bytes.try_into().expect("N bytes")))
}

/// Flags with and without names.
fn flags<F>() -> impl Strategy<Value = F>
where
    F: Flags + std::fmt::Debug,
    F::Bits: Arbitrary,
{
    any::<F::Bits>().prop_map(F::from_bits_retain)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

/// Bytes whose length is `rest` more than a multiple of eight.
fn aligned_bytes(rest: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..4usize).prop_flat_map(move |count| vec(any::<u8>(), count * 8 + rest))
}
