//! One message of every kind, covering every action, instruction, field and multipart.

use tapswitch_openflow::multipart::*;
use tapswitch_openflow::*;

use crate::parts::*;

/// A named message, and what Open vSwitch must print for it.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) message: Message,
    /// Texts that the output of `ovs-ofctl ofp-print` must contain; empty if it does not know the
    /// message or a part of it.
    pub(crate) ovs: &'static [&'static str],
}

pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    symmetric(&mut samples);
    configuration(&mut samples);
    asynchronous(&mut samples);
    flow_mods(&mut samples);
    flow_mods_by_match(&mut samples);
    modifications(&mut samples);
    modifications_of_ports_and_meters(&mut samples);
    requests(&mut samples);
    barriers_and_queues(&mut samples);
    replies(&mut samples);
    replies_on_groups_and_meters(&mut samples);
    extensions(&mut samples);
    samples
}

fn symmetric(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    let bitmap = HelloElement::VersionBitmap(vec![0x12]);
    let unknown = HelloElement::Unknown { kind: 9, data: vec![1, 2, 3] };
    let failed = ErrorKind::OFPHFC_INCOMPATIBLE;
    let refused = [4, 20, 0, 8, 0, 0, 0, 1];
    let experimenter = ErrorMessage {
        kind: ErrorKind { error_type: ErrorType::EXPERIMENTER, code: 4250 },
        data: vec![0x4f, 0x4e, 0x46, 0],
    };
    add("hello", Body::Hello(Hello::new()), &["OFPT_HELLO (OF1.3)", "version bitmap: 0x04"]);
    add(
        "hello_with_unknown_element",
        Body::Hello(Hello { version: 5, elements: vec![unknown, bitmap] }),
        &["version bitmap: 0x01, 0x04"],
    );
    add(
        "error",
        Body::Error(ErrorMessage::about(ErrorKind::OFPFMFC_TABLE_FULL, &refused)),
        &["OFPFMFC_TABLE_FULL"],
    );
    add(
        "error_with_text",
        Body::Error(ErrorMessage::with_text(failed, "speak 1.3")),
        &["OFPHFC_INCOMPATIBLE", "speak 1.3"],
    );
    add("error_experimenter", Body::Error(experimenter), &["OFPBAC_BAD_SET_MASK"]);
    add("echo_request", Body::EchoRequest(b"ping".to_vec()), &["OFPT_ECHO_REQUEST", "4 bytes"]);
    add("echo_reply", Body::EchoReply(vec![]), &["OFPT_ECHO_REPLY", "0 bytes"]);
    add("experimenter", Body::Experimenter(some_experimenter()), &[]);
}

fn configuration(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    let features = FeaturesReply {
        datapath_id: DatapathId(0x0000_0200_0000_0001),
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS
            | Capabilities::TABLE_STATS
            | Capabilities::PORT_STATS
            | Capabilities::GROUP_STATS
            | Capabilities::QUEUE_STATS,
    };
    let config = SwitchConfig { flags: ConfigFlags::FRAG_REASM, miss_send_len: 0xffff };
    let master = RoleMessage { role: ControllerRole::Master, generation_id: 7 };
    add("features_request", Body::FeaturesRequest, &["OFPT_FEATURES_REQUEST"]);
    add(
        "features_reply",
        Body::FeaturesReply(features),
        &[
            "dpid:0000020000000001",
            "n_tables:254, n_buffers:0",
            "FLOW_STATS TABLE_STATS PORT_STATS GROUP_STATS QUEUE_STATS",
        ],
    );
    add("get_config_request", Body::GetConfigRequest, &["OFPT_GET_CONFIG_REQUEST"]);
    add("get_config_reply", Body::GetConfigReply(config), &["frags=reassemble", "65535"]);
    add("set_config", Body::SetConfig(SwitchConfig::default()), &["frags=normal", "128"]);
    add("role_request", Body::RoleRequest(master), &["generation_id=7"]);
    add(
        "role_reply",
        Body::RoleReply(RoleMessage { role: ControllerRole::Slave, ..master }),
        &["OFPT_ROLE_REPLY", "generation_id=7"],
    );
    add("get_async_request", Body::GetAsyncRequest, &["OFPT_GET_ASYNC_REQUEST"]);
    add(
        "get_async_reply",
        Body::GetAsyncReply(AsyncConfig::default()),
        &["PACKET_IN: no_match action", "PORT_STATUS: add delete modify", "PACKET_IN: (off)"],
    );
    let mut set_async = AsyncConfig::default();
    set_async.slave.flow_removed = 1 << FlowRemovedReason::GROUP_DELETE.0;
    add("set_async", Body::SetAsync(set_async), &["FLOW_REMOVED: group_delete"]);
}

fn asynchronous(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    add(
        "packet_in",
        Body::PacketIn(PacketIn {
            buffer_id: BufferId::NO_BUFFER,
            total_len: 60,
            reason: PacketInReason::ACTION,
            table_id: TableId(3),
            cookie: 0xfeed,
            match_fields: Match::new().with(Oxm::InPort(PortNo(7))),
            data: frame(),
        }),
        &[
            "table_id=3 cookie=0xfeed total_len=60 in_port=7 (via action) data_len=60",
            "vlan_tci=0x0000,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff",
        ],
    );
    add(
        "flow_removed",
        Body::FlowRemoved(FlowRemoved {
            cookie: 5,
            priority: 100,
            reason: FlowRemovedReason::HARD_TIMEOUT,
            table_id: TableId(2),
            duration_sec: 9,
            duration_nsec: 500_000_000,
            idle_timeout: 10,
            hard_timeout: 20,
            packet_count: 11,
            byte_count: 1100,
            match_fields: tcp_match(),
        }),
        &[
            "priority=100,tcp",
            "reason=hard table_id=2 cookie:0x5 duration9.500s idle10 hard20 pkts11 bytes1100",
        ],
    );
    add(
        "port_status",
        Body::PortStatus(PortStatus { reason: PortReason::ADD, desc: port() }),
        &[
            "ADD: 1(tap0): addr:02:00:00:00:00:01",
            "config:     NO_PACKET_IN",
            "state:      LINK_DOWN",
            "current:    10GB-FD COPPER",
            "speed: 10000 Mbps now, 40000 Mbps max",
        ],
    );
    add(
        "packet_out",
        Body::PacketOut(PacketOut::new(frame(), vec![Action::output(PortNo::TABLE)])),
        &["in_port=CONTROLLER actions=TABLE data_len=60"],
    );
    add(
        "packet_out_of_buffer",
        Body::PacketOut(PacketOut {
            buffer_id: BufferId(0x114),
            in_port: PortNo(1),
            actions: vec![],
            data: vec![],
        }),
        &["in_port=1 actions=drop buffer=0x00000114"],
    );
}

fn flow_mods(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    add(
        "flow_mod_add",
        Body::FlowMod(FlowMod {
            cookie: 0x1234,
            table_id: TableId(1),
            idle_timeout: 30,
            hard_timeout: 300,
            priority: 100,
            flags: FlowModFlags::SEND_FLOW_REM | FlowModFlags::CHECK_OVERLAP,
            match_fields: tcp_match(),
            instructions: all_instructions(),
            ..FlowMod::new(FlowModCommand::Add)
        }),
        &[
            "ADD table:1 priority=100,tcp,metadata=0x1/0xff,in_port=1,dl_vlan=100,dl_vlan_pcp=3",
            "dl_src=02:00:00:00:00:00/ff:ff:ff:00:00:00,dl_dst=02:00:00:00:00:02",
            "nw_src=10.0.0.0/8,nw_dst=10.0.0.2,nw_tos=40,nw_ecn=1,tp_src=1024,tp_dst=80",
            "cookie:0x1234 idle:30 hard:300 send_flow_rem check_overlap",
            "meter:7,output:2,group:9,clear_actions,write_actions(output:3)",
            "write_metadata:0x12/0xff,goto_table:5",
        ],
    );
    add(
        "flow_mod_every_action",
        Body::FlowMod(FlowMod {
            match_fields: tcp_match(),
            instructions: vec![Instruction::ApplyActions(ovs_actions())],
            ..FlowMod::new(FlowModCommand::Modify)
        }),
        &[
            "MOD ",
            "set_field:02:00:00:00:00:09->eth_dst",
            "set_field:10.9.9.9->ip_src",
            "set_mpls_ttl(63),dec_mpls_ttl",
            "push_vlan:0x88a8,set_field:4196->vlan_vid,set_field:5->vlan_pcp,pop_vlan",
            "set_queue:3,",
            "dec_ttl",
            "CONTROLLER:128,",
            "IN_PORT",
        ],
    );
    add(
        "flow_mod_actions_unknown_to_ovs",
        Body::FlowMod(FlowMod {
            instructions: foreign_instructions(),
            ..FlowMod::new(FlowModCommand::ModifyStrict)
        }),
        &[],
    );
    add(
        "flow_mod_delete",
        Body::FlowMod(FlowMod {
            cookie: 1,
            cookie_mask: u64::MAX,
            table_id: TableId::ALL,
            out_port: PortNo(4),
            out_group: GroupId(5),
            match_fields: Match::new().with(Oxm::VlanVid(Masked::exact(VID_NONE))),
            ..FlowMod::new(FlowModCommand::DeleteStrict)
        }),
        &["DEL_STRICT table:255 vlan_tci=0x0000/0x1fff cookie:0x1/0xffffffffffffffff out_port:4"],
    );
}

fn flow_mods_by_match(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    let matches: [(&str, Match, &[&str]); 6] = [
        (
            "flow_mod_match_arp",
            arp_match(),
            &["arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_op=1,\
                 arp_sha=02:00:00:00:00:01,arp_tha=00:00:00:00:00:00"],
        ),
        (
            "flow_mod_match_nd",
            nd_match(),
            &["icmp6,tun_id=0x5,ipv6_src=fe80::/10,ipv6_dst=ff02::1,ipv6_label=0x12345,\
                 icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=02:00:00:00:00:01"],
        ),
        ("flow_mod_match_mpls", mpls_match(), &["mpls,mpls_label=1000,mpls_tc=5,mpls_bos=1"]),
        ("flow_mod_match_udp", udp_match(), &["udp6,", "tp_src=53,tp_dst=53"]),
        ("flow_mod_match_icmp", icmp_match(), &["icmp,icmp_type=8,icmp_code=0"]),
        ("flow_mod_match_rare", rare_match(), &[]),
    ];
    for (name, match_fields, ovs) in matches {
        let flow_mod = FlowMod { match_fields, ..FlowMod::new(FlowModCommand::Add) };
        add(name, Body::FlowMod(flow_mod), ovs);
    }
}

fn modifications(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    add(
        "group_mod",
        Body::GroupMod(GroupMod {
            command: GroupModCommand::Add,
            group_type: GroupType::FastFailover,
            group_id: GroupId(9),
            buckets: vec![bucket(1), bucket(2)],
        }),
        &["ADD group_id=9,type=ff", "watch_port:1", "actions=output:1", "watch_port:2"],
    );
    add(
        "group_mod_select",
        Body::GroupMod(GroupMod {
            command: GroupModCommand::Modify,
            group_type: GroupType::Select,
            group_id: GroupId(10),
            buckets: vec![Bucket {
                weight: 3,
                ..Bucket::new(vec![Action::PopVlan, Action::output(PortNo(1))])
            }],
        }),
        &["MOD group_id=10,type=select", "weight:3", "actions=pop_vlan,output:1"],
    );
    add(
        "group_mod_delete",
        Body::GroupMod(GroupMod {
            command: GroupModCommand::Delete,
            group_type: GroupType::All,
            group_id: GroupId::ALL,
            buckets: vec![],
        }),
        &["DEL group_id=4294967292,type=all"],
    );
}

fn modifications_of_ports_and_meters(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    add(
        "port_mod",
        Body::PortMod(PortMod {
            port_no: PortNo(3),
            hw_addr: mac(3),
            config: PortConfig::PORT_DOWN,
            mask: PortConfig::PORT_DOWN | PortConfig::NO_FWD,
            advertise: PortFeatures::RATE_1GB_FD,
        }),
        &[
            "port: 3: addr:02:00:00:00:00:03",
            "config: PORT_DOWN",
            "mask:   PORT_DOWN NO_FWD",
            "advertise: 1GB-FD",
        ],
    );
    add("table_mod", Body::TableMod(TableMod { table_id: TableId(2), config: 0 }), &["table_id=2"]);
    add(
        "meter_mod",
        Body::MeterMod(MeterMod {
            command: MeterModCommand::Add,
            flags: MeterFlags::KBPS | MeterFlags::BURST | MeterFlags::STATS,
            meter_id: 7,
            bands: vec![drop_band(), remark_band()],
        }),
        &[
            "ADD meter=7 kbps burst stats bands=",
            "type=drop rate=1000 burst_size=100",
            "type=dscp_remark rate=2000 burst_size=200 prec_level=1",
        ],
    );
    let band = |kind| MeterBand { rate: 1, burst_size: 2, kind };
    add(
        "meter_mod_experimenter",
        Body::MeterMod(MeterMod {
            command: MeterModCommand::Modify,
            flags: MeterFlags::PKTPS,
            meter_id: METER_CONTROLLER,
            bands: vec![
                band(MeterBandKind::Experimenter {
                    experimenter: 0x00c0_ffee,
                    data: vec![1, 2, 3, 4],
                }),
                band(MeterBandKind::Unknown { kind: 77, data: vec![0, 0, 0, 9] }),
            ],
        }),
        &[],
    );
}

fn requests(samples: &mut Vec<Sample>) {
    use MultipartRequestBody as Ask;
    let mut add = adder(samples);
    let flows = FlowStatsRequest {
        table_id: TableId(1),
        out_port: PortNo(2),
        match_fields: Match::new().with(Oxm::InPort(PortNo(4))),
        ..FlowStatsRequest::default()
    };
    let queues = QueueStatsRequest { port_no: PortNo::ANY, queue_id: QUEUE_ALL };
    let requests: [(&str, Ask, &[&str]); 16] = [
        ("desc_request", Ask::Desc, &["OFPST_DESC request"]),
        (
            "flow_request",
            Ask::Flow(flows),
            &["OFPST_FLOW request", "table=1", "out_port=2", "in_port=4"],
        ),
        (
            "aggregate_request",
            Ask::Aggregate(FlowStatsRequest::default()),
            &["OFPST_AGGREGATE request"],
        ),
        ("table_request", Ask::Table, &["OFPST_TABLE request"]),
        ("port_stats_request", Ask::PortStats(PortNo::ANY), &["OFPST_PORT request", "port_no=ANY"]),
        ("queue_request", Ask::Queue(queues), &["OFPST_QUEUE request", "port=ANY queue=ALL"]),
        ("group_request", Ask::Group(GroupId::ALL), &["OFPST_GROUP request", "group_id=ALL"]),
        ("group_desc_request", Ask::GroupDesc, &["OFPST_GROUP_DESC request"]),
        ("group_features_request", Ask::GroupFeatures, &["OFPST_GROUP_FEATURES request"]),
        ("meter_request", Ask::Meter(METER_ALL), &["OFPST_METER request", "meter=all"]),
        ("meter_config_request", Ask::MeterConfig(7), &["OFPST_METER_CONFIG request", "meter=7"]),
        ("meter_features_request", Ask::MeterFeatures, &["OFPST_METER_FEATURES request"]),
        ("table_features_request", Ask::TableFeatures(vec![]), &["OFPST_TABLE_FEATURES request"]),
        (
            "table_features_set",
            Ask::TableFeatures(vec![table_features()]),
            &["OFPST_TABLE_FEATURES request", "table 1 (\"taps\")", "max_entries=4096"],
        ),
        ("port_desc_request", Ask::PortDesc, &["OFPST_PORT_DESC request"]),
        ("experimenter_request", Ask::Experimenter(some_experimenter()), &[]),
    ];
    for (name, body, ovs) in requests {
        add(name, Body::MultipartRequest(MultipartRequest::new(body)), ovs);
    }
}

fn barriers_and_queues(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    add("barrier_request", Body::BarrierRequest, &["OFPT_BARRIER_REQUEST"]);
    add("barrier_reply", Body::BarrierReply, &["OFPT_BARRIER_REPLY"]);
    let request = QueueGetConfigRequest { port: PortNo(1) };
    add("queue_get_config_request", Body::QueueGetConfigRequest(request), &["port=1"]);
    add(
        "queue_get_config_reply",
        Body::QueueGetConfigReply(QueueGetConfigReply {
            port: PortNo(1),
            queues: vec![PacketQueue {
                queue_id: 5,
                port: PortNo(1),
                properties: vec![QueueProperty::MinRate(100), QueueProperty::MaxRate(900)],
            }],
        }),
        &["port=1", "queue 5: min_rate:10.0% max_rate:90.0%"],
    );
    add(
        "queue_get_config_reply_experimenter",
        Body::QueueGetConfigReply(QueueGetConfigReply {
            port: PortNo(1),
            queues: vec![PacketQueue {
                queue_id: 6,
                port: PortNo(1),
                properties: vec![
                    QueueProperty::Experimenter {
                        experimenter: 1,
                        data: vec![1, 2, 3, 4, 5, 6, 7, 8],
                    },
                    QueueProperty::Unknown { kind: 9, data: vec![7; 8] },
                ],
            }],
        }),
        &[],
    );
}

fn replies(samples: &mut Vec<Sample>) {
    use MultipartReplyBody as Tell;
    let mut add = adder(samples);
    let aggregate = AggregateStats { packet_count: 10, byte_count: 1000, flow_count: 3 };
    let table =
        TableStats { table_id: TableId(1), active_count: 2, lookup_count: 30, matched_count: 20 };
    let replies: [(&str, Tell, &[&str]); 9] = [
        (
            "desc_reply",
            Tell::Desc(Box::new(switch_desc())),
            &["Manufacturer: tapswitch", "Hardware: Linux", "DP Description: the test bench"],
        ),
        (
            "flow_reply",
            Tell::Flow(vec![flow_stats(), flow_stats()]),
            &["cookie=0x9, duration=1.250s, table=1, n_packets=4, n_bytes=400, \
                 idle_timeout=60, priority=200,tcp"],
        ),
        (
            "aggregate_reply",
            Tell::Aggregate(aggregate),
            &["packet_count=10 byte_count=1000 flow_count=3"],
        ),
        ("table_reply", Tell::Table(vec![table]), &["active=2, lookup=30, matched=20"]),
        (
            "port_stats_reply",
            Tell::PortStats(vec![port_stats()]),
            &[
                "rx pkts=1, bytes=3, drop=5, errs=7, frame=9, over=10, crc=11",
                "tx pkts=2, bytes=4, drop=6, errs=8, coll=12",
                "duration=13.500s",
            ],
        ),
        (
            "queue_reply",
            Tell::Queue(vec![queue_stats()]),
            &["port 1 queue 2: bytes=300, pkts=3, errors=1, duration=4s"],
        ),
        (
            "table_features_reply",
            Tell::TableFeatures(vec![table_features()]),
            &[
                "table 1 (\"taps\")",
                "metadata: match=0xff write=0xff0",
                "max_entries=4096",
                "instructions: apply_actions write_actions goto_table",
                "next tables: 2-3",
                "arbitrary mask: vlan_vid",
            ],
        ),
        ("port_desc_reply", Tell::PortDesc(vec![port()]), &["1(tap0): addr:02:00:00:00:00:01"]),
        ("experimenter_reply", Tell::Experimenter(some_experimenter()), &[]),
    ];
    for (name, body, ovs) in replies {
        add(name, Body::MultipartReply(MultipartReply::new(body)), ovs);
    }
}

fn replies_on_groups_and_meters(samples: &mut Vec<Sample>) {
    use MultipartReplyBody as Tell;
    let mut add = adder(samples);
    let desc = GroupDesc {
        group_type: GroupType::All,
        group_id: GroupId(9),
        buckets: vec![Bucket::new(vec![Action::output(PortNo(1))]), Bucket::new(vec![])],
    };
    let features = GroupFeatures {
        types: 0b1111,
        capabilities: GroupCapabilities::SELECT_WEIGHT | GroupCapabilities::CHAINING,
        max_groups: [1, 2, 3, 4],
        actions: [1, 1, 1, 1 << 11],
    };
    let config = MeterConfig { flags: MeterFlags::PKTPS, meter_id: 7, bands: vec![drop_band()] };
    let meter_features = MeterFeatures {
        max_meter: 100,
        band_types: 1 << 1,
        capabilities: 0b1111,
        max_bands: 4,
        max_color: 0,
    };
    let replies: [(&str, Tell, &[&str]); 6] = [
        (
            "group_reply",
            Tell::Group(vec![group_stats()]),
            &["group_id=9,duration=6s,ref_count=2,packet_count=5,byte_count=500,\
                 bucket0:packet_count=3,byte_count=300"],
        ),
        (
            "group_desc_reply",
            Tell::GroupDesc(vec![desc]),
            &["group_id=9,type=all", "actions=output:1"],
        ),
        (
            "group_features_reply",
            Tell::GroupFeatures(features),
            &["Types:  0xf", "Capabilities:  0x5", "max_groups=0x1", "max_groups=0x4"],
        ),
        (
            "meter_reply",
            Tell::Meter(vec![meter_stats()]),
            &[
                "meter:7 flow_count:2 packet_in_count:5 byte_in_count:500 duration:6s bands:",
                "0: packet_count:1 byte_count:100",
            ],
        ),
        (
            "meter_config_reply",
            Tell::MeterConfig(vec![config]),
            &["meter=7 pktps", "type=drop rate=1000"],
        ),
        (
            "meter_features_reply",
            Tell::MeterFeatures(meter_features),
            &["max_meter:100 max_bands:4", "drop", "kbps pktps burst stats"],
        ),
    ];
    for (name, body, ovs) in replies {
        add(name, Body::MultipartReply(MultipartReply::new(body)), ovs);
    }
}

fn switch_desc() -> Desc {
    Desc {
        mfr_desc: "tapswitch".into(),
        hw_desc: "Linux".into(),
        sw_desc: "0.1.0".into(),
        serial_num: "none".into(),
        dp_desc: "the test bench".into(),
    }
}

fn queue_stats() -> QueueStats {
    QueueStats {
        port_no: PortNo(1),
        queue_id: 2,
        tx_bytes: 300,
        tx_packets: 3,
        tx_errors: 1,
        duration_sec: 4,
        duration_nsec: 0,
    }
}

fn group_stats() -> GroupStats {
    GroupStats {
        group_id: GroupId(9),
        ref_count: 2,
        packet_count: 5,
        byte_count: 500,
        duration_sec: 6,
        duration_nsec: 0,
        bucket_stats: vec![
            BucketCounter { packet_count: 3, byte_count: 300 },
            BucketCounter::default(),
        ],
    }
}

fn meter_stats() -> MeterStats {
    MeterStats {
        meter_id: 7,
        flow_count: 2,
        packet_in_count: 5,
        byte_in_count: 500,
        duration_sec: 6,
        duration_nsec: 0,
        band_stats: vec![MeterBandStats { packet_band_count: 1, byte_band_count: 100 }],
    }
}

/// Adds samples; the transaction id is 0x100 plus the sample's index.
fn adder(
    samples: &mut Vec<Sample>,
) -> impl FnMut(&'static str, Body, &'static [&'static str]) + '_ {
    |name, body, ovs| {
        let xid = 0x100 + samples.len() as u32;
        samples.push(Sample { name, message: Message { xid, body }, ovs });
    }
}

/// Extensions that only tapswitch supports.
fn extensions(samples: &mut Vec<Sample>) {
    let mut add = adder(samples);
    let copy = |delivery: Delivery, port| {
        Bucket::new(vec![delivery.action(), Action::output(PortNo(port))])
    };
    add(
        "group_mod_with_contracts",
        Body::GroupMod(GroupMod {
            command: GroupModCommand::Add,
            group_type: GroupType::All,
            group_id: GroupId(11),
            buckets: vec![
                Bucket::new(vec![Action::output(PortNo(1))]),
                copy(Delivery::BestEffort, 2),
                copy(Delivery::Lossless { stall_ms: 50 }, 3),
                copy(Delivery::SampleOnPressure, 4),
            ],
        }),
        &[],
    );
    let request = LedgerRequest { group_id: GroupId::ALL }.experimenter();
    let request = MultipartRequest::new(MultipartRequestBody::Experimenter(request));
    add("ledger_request", Body::MultipartRequest(request), &[]);
    let reply = BucketLedger::experimenter(&ledgers());
    let reply = MultipartReply::new(MultipartReplyBody::Experimenter(reply));
    add("ledger_reply", Body::MultipartReply(reply), &[]);
}
