//! Tests of each kind of multipart request, and of the rules, groups and ports they select.

use std::collections::BTreeSet;

use tapswitch_openflow::multipart::{
    AggregateStats, FlowStats, GroupCapabilities, GroupStats, PortStats, QueueStatsRequest,
    TableFeatures, TableFeaturesProperty as Property,
};
use tapswitch_openflow::{
    BucketLedger, EXPERIMENTER, Experimenter, LedgerRequest, Masked, MultipartReply, Oxm, OxmField,
    PortConfig, PortFeatures, PortMod, QUEUE_ALL, Text,
};
use tapswitch_wire::EtherType;

use super::*;

type Request = MultipartRequestBody;
type Reply = MultipartReplyBody;

fn in_port(number: u32) -> Match {
    Match::new().with(Oxm::InPort(PortNo(number)))
}

/// Rules with the cookies 1 to 4; frames from port 1 match 1, those from port 2 match 2.
fn busy_agent() -> Agent {
    let mut agent = agent();
    add_group(&mut agent, 7, &[2, 3]);
    let with = |cookie, table, rule| FlowMod { cookie, table_id: TableId(table), ..rule };
    add(&mut agent, with(1, 0, rule(10, in_port(1), output(2))));
    add(&mut agent, with(2, 0, rule(20, in_port(2), vec![Action::Group(GroupId(7))])));
    add(&mut agent, with(3, 0, rule(0, Match::new(), output(3))));
    let writes = vec![Instruction::WriteActions(output(2))];
    add(&mut agent, FlowMod { instructions: writes, ..with(4, 9, rule(1, in_port(1), vec![])) });
    for _ in 0..3 {
        forward(&agent, 1, START);
    }
    forward(&agent, 2, START);
    agent
}

fn flows(agent: &mut Agent, request: FlowStatsRequest, now: Millis) -> Vec<FlowStats> {
    match statistics(agent, Request::Flow(request), now) {
        Reply::Flow(flows) => flows,
        other => panic!("{other:?}"),
    }
}

fn groups(agent: &mut Agent, id: GroupId) -> Vec<GroupStats> {
    match statistics(agent, Request::Group(id), after(1250)) {
        Reply::Group(groups) => groups,
        other => panic!("{other:?}"),
    }
}

fn ports(agent: &mut Agent, number: PortNo) -> Vec<PortStats> {
    match statistics(agent, Request::PortStats(number), after(1250)) {
        Reply::PortStats(ports) => ports,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_description_names_the_bridge() {
    let reply = statistics(&mut agent(), Request::Desc, START);
    let Reply::Desc(desc) = reply else { panic!("{reply:?}") };
    assert_eq!(
        (desc.mfr_desc.to_string(), desc.dp_desc.to_string()),
        ("tapswitch".into(), "br0".into())
    );
}

#[test]
fn a_rule_is_shown_as_it_was_given_with_its_counts() {
    let mut agent = busy_agent();
    let shown = flows(&mut agent, FlowStatsRequest::default(), after(1250));
    assert_eq!(shown.iter().map(|flow| flow.cookie).collect::<Vec<_>>(), [2, 1, 3, 4]);
    let flow = &shown[1];
    assert_eq!((flow.table_id, flow.priority), (TableId(0), 10));
    assert_eq!((flow.packet_count, flow.byte_count), (3, 300));
    assert_eq!((flow.duration_sec, flow.duration_nsec), (1, 250_000_000));
    assert_eq!(flow.match_fields, in_port(1));
    assert_eq!(flow.instructions, [Instruction::ApplyActions(output(2))]);
}

#[test]
fn rules_are_selected_by_everything_that_can_be_asked_for() {
    let mut agent = busy_agent();
    let mut select = |change: fn(&mut FlowStatsRequest)| {
        let mut request = FlowStatsRequest::default();
        change(&mut request);
        cookies(&mut agent, request)
    };
    assert_eq!(select(|r| r.table_id = TableId(9)), [4]);
    assert_eq!(select(|r| r.table_id = TableId(8)), [0; 0]);
    assert_eq!(select(|r| r.out_port = PortNo(2)), [1, 4]);
    assert_eq!(select(|r| r.out_group = GroupId(7)), [2]);
    assert_eq!(select(|r| r.match_fields = in_port(1)), [1, 4]);
    assert_eq!(select(|r| (r.cookie, r.cookie_mask) = (1, 1)), [1, 3]);
    assert_eq!(select(|r| (r.cookie, r.cookie_mask) = (3, u64::MAX)), [3]);
    assert_eq!(select(|r| (r.cookie, r.cookie_mask) = (99, 0)), [2, 1, 3, 4]);
}

#[test]
fn requests_for_what_cannot_be_are_refused() {
    let mut agent = agent();
    let flow = |change: fn(&mut FlowStatsRequest)| {
        let mut request = FlowStatsRequest::default();
        change(&mut request);
        Request::Flow(request)
    };
    let mpls = |r: &mut FlowStatsRequest| {
        let mpls = Match::new().with(Oxm::EthType(EtherType(0x8847)));
        r.match_fields = mpls.with(Oxm::MplsLabel(1));
    };
    let queue =
        |port, queue_id| Request::Queue(QueueStatsRequest { port_no: PortNo(port), queue_id });
    let experimenter = Experimenter { experimenter: 1, exp_type: 1, data: vec![] };
    let ours = |exp_type, len| {
        let data = vec![0; len];
        Request::Experimenter(Experimenter { experimenter: EXPERIMENTER, exp_type, data })
    };
    let tables = super::super::table_features::all();
    for (request, kind) in [
        (flow(|r| r.table_id = TableId(254)), ErrorKind::OFPBRC_BAD_TABLE_ID),
        (flow(mpls), ErrorKind::OFPBMC_BAD_FIELD),
        (
            flow(|r| r.match_fields = Match::new().with(Oxm::TcpDst(1))),
            ErrorKind::OFPBMC_BAD_PREREQ,
        ),
        (Request::PortStats(PortNo(9)), ErrorKind::OFPBRC_BAD_PORT),
        (queue(9, QUEUE_ALL), ErrorKind::OFPQOFC_BAD_PORT),
        (queue(1, 0), ErrorKind::OFPQOFC_BAD_QUEUE),
        (Request::Group(GroupId(1)), ErrorKind::OFPGMFC_UNKNOWN_GROUP),
        (Request::Group(GroupId::ANY), ErrorKind::OFPGMFC_UNKNOWN_GROUP),
        (Request::Meter(1), ErrorKind::OFPMMFC_UNKNOWN_METER),
        (Request::MeterConfig(1), ErrorKind::OFPMMFC_UNKNOWN_METER),
        (Request::TableFeatures(tables), ErrorKind::OFPBRC_BAD_LEN),
        (Request::Experimenter(experimenter), ErrorKind::OFPBRC_BAD_EXPERIMENTER),
        (ours(2, 8), ErrorKind::OFPBRC_BAD_EXP_TYPE),
        (ours(1, 7), ErrorKind::OFPBRC_BAD_LEN),
    ] {
        assert_eq!(refusal(&mut agent, asks(request.clone())), kind, "{request:?}");
    }
}

#[test]
fn the_aggregate_is_the_sum() {
    let mut agent = busy_agent();
    let to_2 = FlowStatsRequest { out_port: PortNo(2), ..FlowStatsRequest::default() };
    for request in [FlowStatsRequest::default(), to_2] {
        let shown = flows(&mut agent, request.clone(), START);
        let expected = AggregateStats {
            packet_count: shown.iter().map(|flow| flow.packet_count).sum(),
            byte_count: shown.iter().map(|flow| flow.byte_count).sum(),
            flow_count: u32::try_from(shown.len()).unwrap(),
        };
        let aggregate = statistics(&mut agent, Request::Aggregate(request), START);
        assert_eq!(aggregate, Reply::Aggregate(expected));
    }
}

#[test]
fn tables_count_lookups_and_matches() {
    let mut agent = busy_agent();
    let delete = FlowMod { priority: 0, ..FlowMod::new(FlowModCommand::DeleteStrict) };
    apply(&mut agent, Body::FlowMod(delete));
    forward(&agent, 3, START);
    let reply = statistics(&mut agent, Request::Table, START);
    let Reply::Table(tables) = reply else { panic!("{reply:?}") };
    assert_eq!(tables.len(), 254);
    let first = tables[0];
    assert_eq!((first.active_count, first.lookup_count, first.matched_count), (2, 5, 4));
    assert_eq!((tables[9].table_id, tables[9].active_count), (TableId(9), 1));
}

#[test]
fn a_group_counts_its_buckets_and_who_refers_to_it() {
    let mut agent = busy_agent();
    let chain = vec![Bucket::new(vec![Action::Group(GroupId(7))])];
    apply(&mut agent, group_mod(GroupModCommand::Add, 8, GroupType::Indirect, chain));
    let all = groups(&mut agent, GroupId::ALL);
    assert_eq!(all.iter().map(|group| group.group_id.0).collect::<Vec<_>>(), [7, 8]);
    let seven = &groups(&mut agent, GroupId(7))[0];
    assert_eq!(all[0], *seven);
    assert_eq!((seven.ref_count, seven.packet_count, seven.byte_count), (2, 1, 100));
    assert_eq!((seven.duration_sec, seven.duration_nsec), (1, 250_000_000));
    // The frame was received on port 2, so the first copy is dropped, but the bucket has processed
    // it.
    let counts: Vec<_> = seven.bucket_stats.iter().map(|bucket| bucket.packet_count).collect();
    assert_eq!(counts, [1, 1]);
    assert_eq!(all[1].ref_count, 0);
}

#[test]
fn the_ledger_tells_what_became_of_each_buckets_copies() {
    let mut agent = busy_agent();
    let waiting = agent.pipeline().snapshot().groups.find(GroupId(7)).unwrap().clone();
    let two = tapswitch_datapath::Traffic { frames: 2, packets: 2, bytes: 120 };
    waiting.buckets[1].queued.add(WorkerIndex(0), two);
    let mut ask = |group_id| {
        let request = LedgerRequest { group_id }.experimenter();
        match statistics(&mut agent, Request::Experimenter(request), START) {
            Reply::Experimenter(body) => BucketLedger::all_of(&body).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let ledgers = ask(GroupId::ALL);
    assert_eq!(ask(GroupId(7)), ledgers);
    assert_eq!(ask(GroupId(8)), [], "no such group is no error");
    // The frame was received on port 2.
    let told: Vec<_> = ledgers
        .iter()
        .map(|ledger| {
            let drops = ledger.drops.iter().map(|drops| (drops.reason.to_string(), drops.count));
            let counts = (ledger.processed.packet_count, ledger.delivered.packet_count);
            (ledger.bucket, counts, ledger.queued, drops.collect::<Vec<_>>())
        })
        .collect();
    let own = vec![("input_port".to_owned(), 1)];
    assert_eq!(told, [(0, (1, 0), 0, own), (1, (1, 1), 2, vec![])]);
}

#[test]
fn names_of_reasons_fit_the_ledger() {
    for reason in DropReason::ALL {
        assert_eq!(Text::<24>::new(reason.name()).to_string(), reason.name());
    }
}

#[test]
fn groups_are_described_as_they_were_given() {
    let mut agent = busy_agent();
    let reply = statistics(&mut agent, Request::GroupDesc, START);
    let Reply::GroupDesc(groups) = reply else { panic!("{reply:?}") };
    assert_eq!((groups.len(), groups[0].group_type), (1, GroupType::All));
    assert_eq!(groups[0].buckets, [Bucket::new(output(2)), Bucket::new(output(3))]);
    let reply = statistics(&mut agent, Request::GroupFeatures, START);
    let Reply::GroupFeatures(features) = reply else { panic!("{reply:?}") };
    let output_push_pop_group = 1 | 1 << 17 | 1 << 18 | 1 << 22;
    assert_eq!(
        (features.types, features.actions[0] & output_push_pop_group),
        (15, output_push_pop_group)
    );
    let unchecked = GroupCapabilities::CHAINING | GroupCapabilities::CHAINING_CHECKS;
    assert_eq!(features.capabilities & unchecked, GroupCapabilities::CHAINING);
}

#[test]
fn ports_count_frames_bytes_and_drops() {
    let mut agent = busy_agent();
    let all = ports(&mut agent, PortNo::ANY);
    assert_eq!(all.iter().map(|port| port.port_no.0).collect::<Vec<_>>(), [1, 2, 3]);
    let two = ports(&mut agent, PortNo(2))[0];
    assert_eq!(all[1], two);
    assert_eq!((two.rx_packets, two.rx_bytes), (1, 100));
    assert_eq!((two.tx_packets, two.tx_bytes), (3, 300));
    assert_eq!((two.duration_sec, two.duration_nsec), (1, 250_000_000));
    let counters = &agent.pipeline().snapshot().ports.find(PortNo(1)).unwrap().counters;
    for reason in [
        DropReason::Oversize,
        DropReason::EgressRejected,
        DropReason::IngressLost,
        DropReason::WrongTunnel,
        DropReason::Truncated,
        DropReason::TableMiss,
    ] {
        counters.add_drop(WorkerIndex(0), reason);
    }
    let one = ports(&mut agent, PortNo(1))[0];
    assert_eq!((one.tx_dropped, one.tx_errors), (2, 1));
    assert_eq!((one.rx_dropped, one.rx_errors, one.rx_frame_err), (2, 1, 1));
}

#[test]
fn ports_are_described() {
    let reply = statistics(&mut agent(), Request::PortDesc, START);
    let Reply::PortDesc(ports) = reply else { panic!("{reply:?}") };
    let names: Vec<_> = ports.iter().map(|port| port.name.to_string()).collect();
    assert_eq!(names, ["eth1", "eth2", "eth3"]);
}

#[test]
fn there_are_no_queues() {
    let all = QueueStatsRequest { port_no: PortNo::ANY, queue_id: QUEUE_ALL };
    assert_eq!(statistics(&mut agent(), Request::Queue(all), START), Reply::Queue(vec![]));
}

fn table_features() -> Vec<TableFeatures> {
    match statistics(&mut agent(), Request::TableFeatures(vec![]), START) {
        Reply::TableFeatures(tables) => tables,
        other => panic!("{other:?}"),
    }
}

#[test]
fn table_features_are_well_formed_for_all_tables() {
    let tables = table_features();
    assert_eq!(tables.len(), 254);
    for (id, table) in (0..).zip(&tables) {
        assert_eq!((table.table_id, table.check()), (TableId(id), Ok(())));
        let kinds: Vec<_> = table.properties.iter().map(Property::kind).collect();
        let distinct: BTreeSet<_> = kinds.iter().collect();
        assert_eq!(distinct.len(), kinds.len(), "a property twice");
        // Required of every table by OpenFlow 1.3.5 §7.3.5.5.1.
        for required in [0, 2, 4, 6, 8, 10, 12, 14] {
            assert!(kinds.contains(&required), "table {id} lacks property {required}");
        }
        for property in &table.properties {
            check_property(id, property);
        }
    }
    let parts = MultipartReply::new(Reply::TableFeatures(tables)).split();
    for part in parts {
        let message = Message { xid: 1, body: Body::MultipartReply(part) };
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        assert_eq!(Message::decode(&bytes).unwrap(), message);
    }
}

fn check_property(id: u8, property: &Property) {
    const GOTO_TABLE: u16 = 1;
    match property {
        Property::Instructions(list) => {
            let leads_on = list.iter().any(|instruction| instruction.kind == GOTO_TABLE);
            assert_eq!(leads_on, id != 253, "table {id}");
        }
        Property::NextTables(next) => {
            assert!(next.iter().all(|next| next.0 > id && next.0 < 254));
            assert_eq!(next.len(), usize::from(253 - id));
        }
        Property::Match(fields) | Property::Wildcards(fields) => {
            assert!(fields.iter().all(|field| field.field().is_some()));
        }
        Property::WriteSetField(fields) | Property::ApplySetField(fields) => {
            assert!(fields.iter().all(|field| !field.has_mask && field.field().is_some()));
        }
        _ => {}
    }
}

/// Every announced action and field is accepted.
#[test]
fn announced_actions_and_fields_are_taken() {
    let tables = table_features();
    let [kinds] = tables[0].properties.iter().filter_map(apply_actions).collect::<Vec<_>>()[..]
    else {
        panic!("no apply-actions");
    };
    let mut agent = agent();
    add_group(&mut agent, 1, &[2]);
    let ip = || Match::new().with(Oxm::EthType(EtherType::IPV4));
    for kind in kinds.iter().map(|id| id.kind) {
        let actions = sample(kind);
        assert_eq!(actions.last().map(Action::kind), Some(kind));
        add(&mut agent, rule(1, ip(), actions));
    }
    let matched = tables[0].properties.iter().find_map(|property| match property {
        Property::Match(fields) => Some(fields),
        _ => None,
    });
    let fields: Vec<_> =
        matched.unwrap().iter().filter_map(tapswitch_openflow::multipart::OxmId::field).collect();
    for wanted in [OxmField::ArpSpa, OxmField::VlanVid, OxmField::Ipv6NdTarget, OxmField::TcpDst] {
        assert!(fields.contains(&wanted), "{wanted:?}");
    }
}

fn apply_actions(property: &Property) -> Option<&Vec<tapswitch_openflow::multipart::ActionId>> {
    match property {
        Property::ApplyActions(kinds) => Some(kinds),
        _ => None,
    }
}

/// A list of actions that ends with one of this type.
fn sample(kind: u16) -> Vec<Action> {
    match kind {
        0 => output(1),
        17 => vec![Action::PushVlan(EtherType::VLAN)],
        18 => vec![Action::PushVlan(EtherType::VLAN), Action::PopVlan],
        22 => vec![Action::Group(GroupId(1))],
        23 => vec![Action::SetNwTtl(9)],
        24 => vec![Action::DecNwTtl],
        25 => vec![Action::SetField(Oxm::EthDst(Masked::exact(mac(1))))],
        other => panic!("no sample of action {other}"),
    }
}

/// The duration is the time since each port was added, regardless of changes.
#[test]
fn a_port_is_as_old_as_it_is() {
    let mut agent = agent();
    agent.handle_port(Port { created: after(1000), ..port(9) });
    let (config, mask) = (PortConfig::PORT_DOWN, PortConfig::PORT_DOWN);
    let (port_no, hw_addr, advertise) = (PortNo(9), mac(9), PortFeatures::empty());
    send(&mut agent, Body::PortMod(PortMod { port_no, hw_addr, config, mask, advertise }));
    let ages = ports(&mut agent, PortNo::ANY);
    let age = |stats: &PortStats| (stats.port_no.0, stats.duration_sec, stats.duration_nsec);
    assert_eq!(age(&ages[0]), (1, 1, 250_000_000));
    assert_eq!(age(&ages[3]), (9, 0, 250_000_000));
}
