//! Tests of the ledger and of names in reports.

use tapswitch_datapath::{DropReason, Pipeline, WorkerIndex};
use tapswitch_openflow::{
    Action, Bucket, FlowMod, FlowModCommand, FlowModFlags, GroupId, GroupMod, GroupModCommand,
    Instruction, Match, Oxm,
};
use tapswitch_wire::MacAddr;

use super::*;

const WORKER: WorkerIndex = WorkerIndex(0);
const NOW: Millis = Millis(5000);

fn output(port: PortNo) -> Action {
    Action::output(port)
}

fn pipeline(kind: GroupType, buckets: Vec<Vec<Action>>) -> Pipeline {
    let mut pipeline = Pipeline::new(2);
    let group = GroupMod {
        command: GroupModCommand::Add,
        group_type: kind,
        group_id: GroupId(7),
        buckets: buckets.into_iter().map(Bucket::new).collect(),
    };
    pipeline.handle_group_mod(&group, NOW).unwrap();
    pipeline
}

fn leads_to_group(cookie: u64, priority: u16) -> FlowMod {
    let actions = vec![Action::Group(GroupId(7))];
    let instructions = vec![Instruction::ApplyActions(actions)];
    FlowMod { cookie, priority, instructions, ..FlowMod::new(FlowModCommand::Add) }
}

/// Whether the ledger adds up if the bucket processed `processed` copies, of which `delivered` and
/// `dropped` have left.
fn judged(processed: u64, delivered: u64, dropped: u64, workers: usize) -> bool {
    judged_with(processed, [delivered, dropped, 0], workers)
}

/// The same with queued copies.
fn judged_with(processed: u64, [delivered, dropped, queued]: [u64; 3], workers: usize) -> bool {
    let copies = vec![vec![output(PortNo(2))], vec![output(PortNo(3))]];
    let pipeline = pipeline(GroupType::All, copies);
    let bucket = &pipeline.snapshot().groups.find(GroupId(7)).unwrap().buckets[1];
    (0..processed).for_each(|_| bucket.counters.add(WORKER, Traffic::frame(100, 1), NOW));
    (0..delivered).for_each(|_| bucket.delivered.add(WORKER, Traffic::frame(100, 1), NOW));
    (0..dropped).for_each(|_| bucket.drop(WORKER, Traffic::frame(100, 1), DropReason::EgressFull));
    let waiting = Traffic { frames: queued, packets: queued, bytes: queued * 100 };
    bucket.queued.add(WORKER, waiting);
    let taps = taps(pipeline.snapshot(), workers);
    assert_eq!(taps[0].copies[0].queued.frames, queued);
    assert_eq!(taps[0].copies[0].count.frames, processed);
    taps[0].adds_up
}

#[test]
fn a_ledger_adds_up_but_for_what_is_under_way() {
    assert!(judged(0, 0, 0, 1));
    assert!(judged(10, 7, 3, 1));
    assert!(judged(1000, 700, 172, 1), "one worker has a burst in hand");
    assert!(judged(1000, 700, 44, 2), "two have two");
    assert!(!judged(1000, 700, 171, 1), "a frame is missing");
    assert!(!judged(10, 8, 3, 1), "a frame came from nowhere");
    assert!(!judged(1000, 0, 0, 4));
    assert!(judged_with(1000, [100, 200, 700], 1), "some wait");
    assert!(!judged_with(1000, [100, 200, 701], 1), "one that waits came from nowhere");
}

#[test]
fn a_copy_that_goes_several_ways_is_not_judged() {
    for actions in [vec![output(PortNo::FLOOD)], vec![output(PortNo(3)), output(PortNo(4))], vec![]]
    {
        let pipeline = pipeline(GroupType::All, vec![vec![output(PortNo(2))], actions]);
        let bucket = &pipeline.snapshot().groups.find(GroupId(7)).unwrap().buckets[1];
        (0..9).for_each(|_| bucket.counters.add(WORKER, Traffic::frame(100, 1), NOW));
        assert!(taps(pipeline.snapshot(), 1)[0].adds_up);
    }
}

#[test]
fn groups_that_copy_are_taps_and_others_are_not() {
    let to = |port| vec![output(PortNo(port))];
    assert!(taps(pipeline(GroupType::All, vec![to(2)]).snapshot(), 1).is_empty());
    assert!(taps(pipeline(GroupType::Select, vec![to(2), to(3)]).snapshot(), 1).is_empty());
    let mut pipeline = pipeline(GroupType::All, vec![to(2), to(3), to(4)]);
    for (cookie, priority) in [(0xb, 1), (0xa, 2), (0xb, 3)] {
        pipeline.handle_flow_mod(&leads_to_group(cookie, priority), NOW).unwrap();
    }
    let [tap] = &taps(pipeline.snapshot(), 1)[..] else { panic!() };
    assert_eq!((tap.group, tap.copies.len()), (7, 2));
    assert_eq!(tap.cookies, ["0xa", "0xb"]);
    assert_eq!((&*tap.original.actions, &*tap.copies[1].actions), ("output:2", "output:4"));
}

#[test]
fn rules_and_groups_are_told_in_words() {
    let mut pipeline = pipeline(GroupType::FastFailover, vec![]);
    let matching = Match::new().with(Oxm::InPort(PortNo(1)));
    let rule = FlowMod { match_fields: matching, ..leads_to_group(0xff, 9) };
    pipeline.handle_flow_mod(&rule, NOW).unwrap();
    let drops = FlowMod { table_id: TableId(1), ..FlowMod::new(FlowModCommand::Add) };
    let drops = FlowMod { flags: FlowModFlags::SEND_FLOW_REM, ..drops };
    pipeline.handle_flow_mod(&drops, NOW).unwrap();
    let told = flows(pipeline.snapshot(), Millis(8500));
    let [first, second] = &told[..] else { panic!("{told:?}") };
    assert_eq!((first.table, first.priority, &*first.cookie), (0, 9, "0xff"));
    assert_eq!((&*first.matching, &*first.actions), ("in_port=1", "group:7"));
    assert_eq!((first.age_s, first.idle_s), (3, None));
    assert_eq!((second.table, &*second.actions), (1, "drop"));
    assert_eq!(groups(pipeline.snapshot())[0].kind, "fast-failover");
}

/// Liveness conditions of buckets, and timeouts of rules.
#[test]
fn conditions_of_rules_and_buckets_are_told() {
    let mut pipeline = Pipeline::new(1);
    let first = Bucket { watch_port: PortNo(1), ..Bucket::new(vec![output(PortNo(1))]) };
    let heavy = Bucket { weight: 3, ..Bucket::new(vec![output(PortNo(2))]) };
    let second = Bucket { watch_group: GroupId(7), ..Bucket::new(vec![output(PortNo(2))]) };
    for (id, group_type, buckets) in [
        (7, GroupType::FastFailover, vec![first]),
        (8, GroupType::Select, vec![heavy]),
        (9, GroupType::FastFailover, vec![second]),
    ] {
        let (command, group_id) = (GroupModCommand::Add, GroupId(id));
        let group = GroupMod { command, group_type, group_id, buckets };
        pipeline.handle_group_mod(&group, NOW).unwrap();
    }
    let groups = groups(pipeline.snapshot());
    let [first, heavy, second] = [0, 1, 2].map(|index| &groups[index].buckets[0]);
    assert_eq!(first.bucket, "watch_port:1,actions=output:1");
    assert_eq!(
        (first.watch_port.as_deref(), first.watch_group, first.weight),
        (Some("1"), None, 0)
    );
    assert_eq!((&*heavy.bucket, heavy.weight), ("weight:3,actions=output:2", 3));
    assert_eq!((&*second.bucket, second.watch_group), ("watch_group:7,actions=output:2", Some(7)));
    let flags = FlowModFlags::SEND_FLOW_REM;
    let rule = FlowMod { idle_timeout: 10, hard_timeout: 60, flags, ..leads_to_group(1, 1) };
    pipeline.handle_flow_mod(&rule, NOW).unwrap();
    let [told] = &flows(pipeline.snapshot(), NOW)[..] else { panic!() };
    assert_eq!((told.idle_timeout, told.hard_timeout), (10, 60));
    assert_eq!(told.flags, ["send_flow_rem"]);
}

#[test]
fn the_state_of_a_port_is_a_word() {
    let mut port = Port::new(PortNo(1), "eth0".into(), MacAddr::ZERO, 1500, 1);
    assert_eq!(port_state(&port), "up");
    port.state = PortState::LINK_DOWN;
    assert_eq!(port_state(&port), "no-link");
    port.config = PortConfig::PORT_DOWN;
    assert_eq!(port_state(&port), "disabled");
}

#[test]
fn a_path_that_is_too_narrow_is_no_matter_of_the_ports_options() {
    let oversize = noted("1=netdev:p", 1500, (1500, 4));
    let tunnel = TunnelReport {
        remote: "192.0.2.2".to_owned(),
        path_mtu: 1500,
        overhead: 50,
        ..TunnelReport::default()
    };
    let remedy = oversize.remedy_for(&tunnel);
    assert_eq!(
        remedy.unwrap(),
        "set the MTU of the hosts to 1446, or raise the MTU of the path to 192.0.2.2 from 1500 to \
         1554; copies fit with `--snaplen 1464`"
    );
    let wide = TunnelReport { path_mtu: 1554, ..tunnel.clone() };
    assert_eq!(oversize.remedy_for(&wide), None, "then it is the port's");
    assert_eq!(oversize.remedy_for(&TunnelReport { path_mtu: 0, ..tunnel }), None, "no route");
}

#[test]
fn a_path_has_room_for_tags_or_not() {
    let tunnel = TunnelReport { path_mtu: 1500, overhead: 50, ..TunnelReport::default() };
    assert_eq!(tunnel.room_beside(1450), Some(0));
    assert_eq!(tunnel.room_beside(1446), Some(4));
    assert_eq!(tunnel.room_beside(9000), Some(0), "its MTU is too large anyway");
    assert_eq!(TunnelReport { path_mtu: 0, ..tunnel }.room_beside(1450), None, "no route");
}

/// The report of a frame with this payload and these tags, at a port whose interface has this MTU.
fn noted(spec: &str, room: u32, (payload, tags): (usize, usize)) -> OversizeReport {
    let spec: PortSpec = spec.parse().unwrap();
    let mtu = spec.mtu.map_or(room, |mtu| mtu.min(room));
    let port = Port::new(PortNo(1), "p".into(), MacAddr::ZERO, mtu, 1);
    let port = Port { envelope: spec.envelope.unwrap_or(8), room, ..port };
    OversizeReport::judge(Oversize { payload, tags }, &port, &spec)
}

#[test]
fn what_a_port_has_been_told_already_is_no_remedy() {
    let lacks = |spec, room, frame| {
        let report = noted(spec, room, frame);
        (report.over_mtu, report.over_envelope)
    };
    let told = "1=netdev:p,mtu=1500,envelope=8";
    assert_eq!(lacks(told, 1500, (1500, 8)), (false, false), "others took the room away");
    assert_eq!(lacks(told, 1400, (1500, 0)), (false, false));
    assert_eq!(lacks(told, 1508, (1501, 8)), (true, false));
    assert_eq!(lacks(told, 1500, (1500, 12)), (false, true));
    assert_eq!(lacks("1=netdev:p", 1500, (1500, 8)), (false, true), "it may insist");
    assert_eq!(lacks("1=netdev:p,mtu=1500", 1500, (1501, 8)), (true, true));
}

#[test]
fn an_option_that_would_be_refused_is_no_remedy() {
    let beyond = |frame| noted("1=tap:p", 65_521, frame).beyond_all_ports();
    assert_eq!(beyond((65_521, 500)), None);
    for frame in [(46, 504), (65_522, 0)] {
        let remedy = beyond(frame).unwrap();
        assert!(remedy.contains("65521 and 500") && !remedy.contains('='), "{remedy}");
    }
    for option in ["mtu=65522", "envelope=504"] {
        assert!(format!("1=tap:p,{option}").parse::<PortSpec>().is_err(), "{option}");
    }
}
