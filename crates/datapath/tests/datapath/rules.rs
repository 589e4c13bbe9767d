//! How rules and groups are added, changed, deleted and expire.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use std::sync::Arc;

use crate::common::{Switch, apply, goto, host, ip, mac, matching, out, tcp, write};
use tapswitch_datapath::{FlowEntry, Millis, Removal, TABLE_COUNT};
use tapswitch_openflow::{
    Action, Bucket, Delivery, EXPERIMENTER, ErrorKind, FlowMod, FlowModCommand, FlowModFlags,
    FlowRemovedReason, GroupId, GroupMod, GroupModCommand, GroupType, Instruction, Masked, Oxm,
    PortNo, TableId, VID_PRESENT,
};
use tapswitch_wire::{EtherType, ip_proto};

fn change(command: FlowModCommand, fields: &[Oxm]) -> FlowMod {
    FlowMod { match_fields: matching(fields), ..FlowMod::new(command) }
}

fn remaining(switch: &Switch) -> usize {
    switch.pipeline.snapshot().tables(TableId::ALL).map(|(_, table)| table.count()).sum()
}

fn reasons(removals: &[Removal]) -> Vec<FlowRemovedReason> {
    removals.iter().map(|removal| removal.reason).collect()
}

/// Rules for TCP to ports 1 to 4 with cookies 1 to 4, all of priority 7.
fn four_rules() -> Switch {
    let mut switch = Switch::new(4);
    for port in 1..=4u16 {
        let add = FlowMod {
            cookie: u64::from(port),
            priority: 7,
            instructions: vec![apply(&[out(u32::from(port))])],
            ..change(FlowModCommand::Add, &[ip(), Oxm::IpProto(6), Oxm::TcpDst(port)])
        };
        switch.pipeline.handle_flow_mod(&add, Millis(0)).unwrap();
    }
    switch
}

#[test]
fn each_table_has_its_rules_and_no_others() {
    let mut switch = Switch::new(1);
    let before = switch.pipeline.snapshot().clone();
    for table in 0..TABLE_COUNT {
        let add = FlowMod { table_id: TableId(table), ..change(FlowModCommand::Add, &[ip()]) };
        switch.pipeline.handle_flow_mod(&add, Millis(0)).unwrap();
        let snapshot = switch.pipeline.snapshot();
        let ids = |rule: &Arc<FlowEntry>| rule.table_id;
        let found = snapshot.table(TableId(table)).unwrap().iter().map(ids);
        assert_eq!(found.collect::<Vec<_>>(), [TableId(table)]);
        assert_eq!(remaining(&switch), usize::from(table) + 1);
    }
    assert!((TABLE_COUNT..=u8::MAX).all(|none| before.table(TableId(none)).is_none()));
    assert!(before.tables(TableId::ALL).all(|(_, table)| table.count() == 0));
}

#[test]
fn adding_the_same_rule_replaces_it_and_keeps_its_counters_unless_told() {
    let mut switch = Switch::new(3);
    switch.flow(0, 1, &[ip()], &[apply(&[out(2)])]);
    switch.receive(1, &tcp().bytes());
    let frames = |switch: &Switch| {
        let table = switch.pipeline.snapshot().table(TableId(0)).unwrap().clone();
        table.iter().next().unwrap().counters.totals().frames
    };
    switch.flow(0, 1, &[ip()], &[apply(&[out(3)])]);
    assert_eq!((remaining(&switch), frames(&switch)), (1, 1));
    let reset = FlowMod {
        priority: 1,
        flags: FlowModFlags::RESET_COUNTS,
        ..change(FlowModCommand::Add, &[ip()])
    };
    switch.pipeline.handle_flow_mod(&reset, Millis(0)).unwrap();
    assert_eq!((remaining(&switch), frames(&switch)), (1, 0));
}

#[test]
fn an_overlap_is_refused_when_asked() {
    let mut switch = Switch::new(2);
    switch.flow(0, 5, &[ip(), Oxm::Ipv4Src(host(1).into())], &[]);
    let add = |priority, fields: &[Oxm]| FlowMod {
        priority,
        flags: FlowModFlags::CHECK_OVERLAP,
        ..change(FlowModCommand::Add, fields)
    };
    let overlapping = add(5, &[ip(), Oxm::Ipv4Dst(host(2).into())]);
    let result = switch.pipeline.handle_flow_mod(&overlapping, Millis(0));
    assert_eq!(result.unwrap_err(), ErrorKind::OFPFMFC_OVERLAP);
    let elsewhere = add(5, &[ip(), Oxm::Ipv4Src(host(2).into())]);
    assert!(switch.pipeline.handle_flow_mod(&elsewhere, Millis(0)).is_ok());
    let higher = add(6, &[ip(), Oxm::Ipv4Dst(host(2).into())]);
    assert!(switch.pipeline.handle_flow_mod(&higher, Millis(0)).is_ok());
}

#[test]
fn modify_changes_what_is_covered_and_adds_nothing() {
    let mut switch = four_rules();
    let modify = FlowMod {
        instructions: vec![apply(&[out(4)])],
        ..change(FlowModCommand::Modify, &[ip(), Oxm::IpProto(6)])
    };
    switch.pipeline.handle_flow_mod(&modify, Millis(0)).unwrap();
    let to = |dst_port| crate::common::Ip { dst_port, ..tcp() }.bytes();
    assert_eq!(switch.receive(1, &to(2)), [4]);
    assert_eq!(switch.receive(1, &to(3)), [4]);
    let nothing = change(FlowModCommand::Modify, &[ip(), Oxm::IpProto(17)]);
    switch.pipeline.handle_flow_mod(&nothing, Millis(0)).unwrap();
    assert_eq!(remaining(&switch), 4);
}

#[test]
fn modify_strict_wants_match_and_priority() {
    let mut switch = four_rules();
    let modify = |priority| FlowMod {
        priority,
        instructions: vec![apply(&[out(4)])],
        ..change(FlowModCommand::ModifyStrict, &[ip(), Oxm::IpProto(6), Oxm::TcpDst(2)])
    };
    let frame = crate::common::Ip { dst_port: 2, ..tcp() }.bytes();
    switch.pipeline.handle_flow_mod(&modify(6), Millis(0)).unwrap();
    assert_eq!(switch.receive(1, &frame), [2]);
    switch.pipeline.handle_flow_mod(&modify(7), Millis(0)).unwrap();
    assert_eq!(switch.receive(1, &frame), [4]);
}

#[test]
fn delete_selects_by_match_cookie_and_output() {
    let delete = |fields: &[Oxm]| change(FlowModCommand::Delete, fields);
    let cases: [(FlowMod, usize); 5] = [
        (delete(&[]), 0),
        (delete(&[ip(), Oxm::IpProto(6), Oxm::TcpDst(1)]), 3),
        (FlowMod { cookie: 2, cookie_mask: 2, ..delete(&[]) }, 2),
        (FlowMod { out_port: PortNo(3), ..delete(&[]) }, 3),
        (FlowMod { table_id: TableId(9), ..delete(&[]) }, 4),
    ];
    for (delete, left) in cases {
        let mut switch = four_rules();
        switch.pipeline.handle_flow_mod(&delete, Millis(0)).unwrap();
        assert_eq!(remaining(&switch), left, "{delete:?}");
    }
}

#[test]
fn delete_strict_wants_priority_too() {
    let mut switch = four_rules();
    let fields = [ip(), Oxm::IpProto(6), Oxm::TcpDst(1)];
    let delete = |priority| FlowMod { priority, ..change(FlowModCommand::DeleteStrict, &fields) };
    assert!(switch.pipeline.handle_flow_mod(&delete(8), Millis(0)).unwrap().is_empty());
    let removals = switch.pipeline.handle_flow_mod(&delete(7), Millis(0)).unwrap();
    assert_eq!(reasons(&removals), [FlowRemovedReason::DELETE]);
}

#[test]
fn timeouts_count_from_addition_and_from_the_last_frame() {
    let mut switch = Switch::new(2);
    let add = |fields: &[Oxm], idle_timeout, hard_timeout| FlowMod {
        idle_timeout,
        hard_timeout,
        instructions: vec![apply(&[out(2)])],
        ..change(FlowModCommand::Add, fields)
    };
    switch.pipeline.handle_flow_mod(&add(&[ip()], 10, 0), Millis(0)).unwrap();
    switch.pipeline.handle_flow_mod(&add(&[], 0, 30), Millis(0)).unwrap();
    assert_eq!(switch.pipeline.poll_timeout(), Some(Millis(10_000)));
    switch.now = Millis(5_000);
    switch.receive(1, &tcp().bytes());
    assert!(switch.pipeline.handle_timeout(Millis(10_000)).is_empty(), "used five seconds ago");
    assert_eq!(switch.pipeline.poll_timeout(), Some(Millis(15_000)));
    let idle = switch.pipeline.handle_timeout(Millis(15_000));
    assert_eq!(reasons(&idle), [FlowRemovedReason::IDLE_TIMEOUT]);
    assert_eq!(idle[0].entry.counters.totals().frames, 1);
    let hard = switch.pipeline.handle_timeout(Millis(30_000));
    assert_eq!(reasons(&hard), [FlowRemovedReason::HARD_TIMEOUT]);
    assert_eq!((remaining(&switch), switch.pipeline.poll_timeout()), (0, None));
}

#[test]
fn a_deleted_group_takes_its_rules_and_its_chain_along() {
    let mut switch = Switch::new(2);
    switch.group(1, GroupType::Indirect, vec![Bucket::new(vec![out(2)])]);
    switch.group(2, GroupType::Indirect, vec![Bucket::new(vec![Action::Group(GroupId(1))])]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(2))])]);
    switch.flow(0, 2, &[ip()], &[apply(&[out(2)])]);
    let delete = GroupMod {
        command: GroupModCommand::Delete,
        group_type: GroupType::All,
        group_id: GroupId(1),
        buckets: vec![],
    };
    let removals = switch.pipeline.handle_group_mod(&delete, Millis(0)).unwrap();
    assert_eq!(reasons(&removals), [FlowRemovedReason::GROUP_DELETE]);
    assert_eq!((remaining(&switch), switch.pipeline.snapshot().groups.count()), (1, 0));
}

#[test]
fn chains_that_no_frame_follows_are_refused() {
    let mut switch = Switch::new(2);
    let to = |id| vec![Bucket::new(vec![Action::Group(GroupId(id))])];
    switch.group(1, GroupType::Indirect, vec![Bucket::new(vec![out(2)])]);
    (2..=16).for_each(|id| switch.group(id, GroupType::Indirect, to(id - 1)));
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(16))])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2], "this one is followed");
    let too_deep = ErrorKind::OFPGMFC_CHAINING_UNSUPPORTED;
    assert_eq!(switch.try_group(17, GroupType::All, to(16)).unwrap_err(), too_deep);
    // Nor may a chain become longer at a lower group.
    switch.group(20, GroupType::Indirect, vec![Bucket::new(vec![out(2)])]);
    let mut modify = |id, buckets| {
        let (command, group_type) = (GroupModCommand::Modify, GroupType::All);
        let change = GroupMod { command, group_type, group_id: GroupId(id), buckets };
        switch.pipeline.handle_group_mod(&change, Millis(0)).map(|_| ())
    };
    assert_eq!(modify(1, to(20)), Err(too_deep));
    assert_eq!(modify(9, to(8)), Ok(()), "as long as before");
    assert_eq!(modify(2, vec![Bucket::new(vec![out(2)])]), Ok(()));
    assert_eq!(modify(2, to(20)), Ok(()), "it is as long again");
}

#[test]
fn bad_groups_are_refused_with_their_own_error() {
    let bucket = || Bucket::new(vec![out(2)]);
    let cases: [(u32, GroupType, Vec<Bucket>, ErrorKind); 6] = [
        (1, GroupType::All, vec![], ErrorKind::OFPGMFC_GROUP_EXISTS),
        (GroupId::ALL.0, GroupType::All, vec![], ErrorKind::OFPGMFC_INVALID_GROUP),
        (2, GroupType::Indirect, vec![], ErrorKind::OFPGMFC_INVALID_GROUP),
        (2, GroupType::FastFailover, vec![bucket()], ErrorKind::OFPGMFC_BAD_WATCH),
        (
            2,
            GroupType::All,
            vec![Bucket::new(vec![Action::Group(GroupId(2))])],
            ErrorKind::OFPGMFC_LOOP,
        ),
        (
            2,
            GroupType::All,
            vec![Bucket::new(vec![Action::Group(GroupId(9))])],
            ErrorKind::OFPBAC_BAD_OUT_GROUP,
        ),
    ];
    for (id, group_type, buckets, error) in cases {
        let mut switch = Switch::new(2);
        switch.group(1, GroupType::All, vec![bucket()]);
        assert_eq!(switch.try_group(id, group_type, buckets).unwrap_err(), error);
        assert_eq!(switch.pipeline.snapshot().groups.count(), 1);
    }
}

#[test]
fn contracts_are_for_the_copies_of_groups_that_copy() {
    let lossless = Delivery::Lossless { stall_ms: 50 };
    let deliver = lossless.action();
    let ours = |data: &[u8]| Action::Experimenter { experimenter: EXPERIMENTER, data: data.into() };
    let theirs = Action::Experimenter { experimenter: 1, data: vec![0; 8] };
    let bad_type = ErrorKind::OFPBAC_BAD_EXP_TYPE;
    let cases: [(GroupType, Vec<Action>, ErrorKind); 5] = [
        (GroupType::Indirect, vec![deliver.clone(), out(2)], bad_type),
        (GroupType::FastFailover, vec![deliver.clone(), out(2)], bad_type),
        (GroupType::All, vec![ours(&[0, 2, 0, 1, 0, 0, 0, 0]), out(2)], bad_type),
        (GroupType::All, vec![theirs, out(2)], ErrorKind::OFPBAC_BAD_EXPERIMENTER),
        (
            GroupType::All,
            vec![deliver.clone(), out(2), Delivery::BestEffort.action()],
            ErrorKind::OFPBAC_TOO_MANY,
        ),
    ];
    let mut switch = Switch::new(3);
    for (kind, actions, error) in cases {
        let bucket = Bucket { watch_port: PortNo(2), ..Bucket::new(actions.clone()) };
        let refused = switch.try_group(1, kind, vec![bucket]);
        assert_eq!(refused.unwrap_err(), error, "{actions:?}");
    }
    let rule = switch.try_flow(0, 1, &[], &[apply(&[deliver.clone(), out(2)])]);
    assert_eq!(rule.unwrap_err(), bad_type);

    // A group that selects who gets a copy may have its contract.
    switch.group(2, GroupType::Select, vec![Bucket::new(vec![deliver.clone(), out(2)])]);
    let behind = Bucket::new(vec![out(3), Delivery::SampleOnPressure.action()]);
    let buckets = vec![Bucket::new(vec![out(2)]), Bucket::new(vec![deliver, out(3)]), behind];
    switch.group(1, GroupType::All, buckets);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3, 3], "nothing is done to the frame");
    let group = switch.pipeline.snapshot().groups.find(GroupId(1)).unwrap().clone();
    let contracts: Vec<_> = group.buckets.iter().map(|bucket| bucket.delivery).collect();
    assert_eq!(contracts, [None, Some(lossless), Some(Delivery::SampleOnPressure)]);
}

#[test]
fn a_modification_that_resets_counters_leaves_timeouts_alone() {
    let mut switch = Switch::new(2);
    let rule = FlowMod {
        idle_timeout: 10,
        priority: 1,
        instructions: vec![apply(&[out(2)])],
        ..change(FlowModCommand::Add, &[])
    };
    switch.pipeline.handle_flow_mod(&rule, Millis(0)).unwrap();
    switch.now = Millis(60_000);
    switch.receive(1, &tcp().bytes());
    let (command, flags) = (FlowModCommand::Modify, FlowModFlags::RESET_COUNTS);
    let reset = FlowMod { command, flags, ..rule };
    switch.pipeline.handle_flow_mod(&reset, Millis(61_000)).unwrap();
    let table = switch.pipeline.snapshot().table(TableId(0)).unwrap().clone();
    assert_eq!(table.iter().next().unwrap().counters.totals().frames, 0);
    assert!(switch.pipeline.handle_timeout(Millis(69_999)).is_empty(), "used 10 s ago");
    let gone = switch.pipeline.handle_timeout(Millis(70_000));
    assert_eq!(reasons(&gone), [FlowRemovedReason::IDLE_TIMEOUT]);
}

#[test]
fn bad_rules_are_refused_with_their_own_error() {
    let set = Action::SetField;
    let cases: [(&[Oxm], tapswitch_openflow::Instruction, ErrorKind); 10] = [
        (&[], goto(0), ErrorKind::OFPBIC_BAD_TABLE_ID),
        (&[], goto(254), ErrorKind::OFPBIC_BAD_TABLE_ID),
        (&[], apply(&[out(0)]), ErrorKind::OFPBAC_BAD_OUT_PORT),
        (&[], apply(&[Action::output(PortNo::TABLE)]), ErrorKind::OFPBAC_BAD_OUT_PORT),
        (&[], apply(&[Action::Group(GroupId(1))]), ErrorKind::OFPBAC_BAD_OUT_GROUP),
        (&[], apply(&[Action::PopVlan]), ErrorKind::OFPBAC_MATCH_INCONSISTENT),
        (&[], apply(&[set(Oxm::TcpDst(1))]), ErrorKind::OFPBAC_MATCH_INCONSISTENT),
        (&[ip()], apply(&[set(Oxm::IpProto(1))]), ErrorKind::OFPBAC_BAD_SET_TYPE),
        (&[], apply(&[Action::PushVlan(EtherType(0x9200))]), ErrorKind::OFPBAC_BAD_ARGUMENT),
        (&[], apply(&[Action::PushMpls(EtherType(0x8847))]), ErrorKind::OFPBAC_BAD_TYPE),
    ];
    for (fields, instruction, error) in cases {
        let mut switch = Switch::new(2);
        let result = switch.try_flow(0, 1, fields, std::slice::from_ref(&instruction));
        assert_eq!(result.unwrap_err(), error, "{instruction:?}");
        assert_eq!(remaining(&switch), 0);
    }
    let mut switch = Switch::new(2);
    let unsupported = switch.try_flow(0, 1, &[Oxm::MplsLabel(1)], &[]);
    assert_eq!(unsupported.unwrap_err(), ErrorKind::OFPBMC_BAD_FIELD);
    let no_table = FlowMod { table_id: TableId(254), ..FlowMod::new(FlowModCommand::Add) };
    let result = switch.pipeline.handle_flow_mod(&no_table, Millis(0));
    assert_eq!(result.unwrap_err(), ErrorKind::OFPFMFC_BAD_TABLE_ID);
}

/// OpenFlow 1.3.5 §6.4: a tag that is gone does not make up for a prerequisite.
#[test]
fn fields_behind_the_tags_are_checked_behind_a_pop() {
    let tag = Oxm::VlanVid(Masked::exact(VID_PRESENT | 5));
    let tagged_tcp = [tag.clone(), ip(), Oxm::IpProto(ip_proto::TCP)];
    let port = |oxm| vec![Action::PopVlan, Action::PopVlan, Action::SetField(oxm), out(2)];
    let refused = Err(ErrorKind::OFPBAC_MATCH_INCONSISTENT);
    for (fields, actions, expected) in [
        (&tagged_tcp[..], port(Oxm::TcpDst(1)), Ok(())),
        (&tagged_tcp[..], port(Oxm::UdpDst(1)), refused),
        (&[tag][..], port(Oxm::TcpDst(1)), refused),
    ] {
        for instruction in [apply(&actions), write(&actions)] {
            let mut switch = Switch::new(2);
            let outcome = switch.try_flow(0, 1, fields, std::slice::from_ref(&instruction));
            assert_eq!(outcome.map(drop), expected, "{instruction:?}");
        }
    }
}

/// The set is executed after the rule's applied actions, in an order of its own, and together with
/// actions of other tables.
#[test]
fn an_action_set_is_checked_as_it_is_carried_out() {
    let vid = || Action::SetField(Oxm::VlanVid(Masked::exact(VID_PRESENT | 5)));
    let push = || Action::PushVlan(EtherType::VLAN);
    let (pop, port) = (|| Action::PopVlan, || out(2));
    let refused = Err(ErrorKind::OFPBAC_MATCH_INCONSISTENT);
    for (table, rule, expected) in [
        (0, vec![apply(&[push()]), write(&[vid(), port()])], Ok(())),
        (0, vec![write(&[vid(), port()]), apply(&[push()])], Ok(())),
        (0, vec![write(&[vid(), push(), port()])], Ok(())),
        (0, vec![write(&[vid(), port()])], refused),
        (0, vec![write(&[push(), pop(), port()])], refused),
        (0, vec![apply(&[vid(), push()])], refused),
        // Another table may have written a push, or may apply one.
        (1, vec![write(&[pop(), port()])], Ok(())),
        (0, vec![write(&[vid(), port()]), goto(1)], Ok(())),
        (1, vec![Instruction::ClearActions, write(&[pop(), port()])], refused),
        // No action turns a frame into TCP.
        (1, vec![write(&[Action::SetField(Oxm::TcpDst(1)), port()])], refused),
    ] {
        let mut switch = Switch::new(2);
        let outcome = switch.try_flow(table, 1, &[], &rule).map(drop);
        assert_eq!(outcome, expected, "table {table}: {rule:?}");
    }
}

#[test]
fn masks_cover_prefixes_and_address_groups() {
    let mut switch = Switch::new(4);
    let prefix = Masked { value: host(0), mask: Some([255, 255, 255, 0].into()) };
    switch.flow(0, 3, &[ip(), Oxm::Ipv4Dst(prefix)], &[apply(&[out(2)])]);
    let group_bit = tapswitch_wire::MacAddr([1, 0, 0, 0, 0, 0]);
    let multicast = Masked { value: group_bit, mask: Some(group_bit) };
    switch.flow(0, 2, &[Oxm::EthDst(multicast)], &[apply(&[out(3)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    let mut broadcast = [[0xff; 6].to_vec(), mac(1).0.to_vec()].concat();
    broadcast.extend([0x12, 0x34, 0, 0]);
    assert_eq!(switch.receive(1, &broadcast), [3]);
}

#[test]
fn lookups_and_matches_are_counted_by_table() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[ip()], &[goto(1)]);
    for _ in 0..3 {
        switch.receive(1, &tcp().bytes());
    }
    let snapshot = switch.pipeline.snapshot();
    let totals = |id| snapshot.table(TableId(id)).unwrap().counters().totals();
    assert_eq!((totals(0), totals(1)), ((3, 3), (3, 0)));
}

/// A new epoch would void what every worker has cached.
#[test]
fn a_refused_change_of_groups_changes_nothing() {
    let mut switch = Switch::new(2);
    let buckets = vec![Bucket::new(vec![out(2)])];
    switch.group(1, GroupType::All, buckets.clone());
    let before = switch.pipeline.snapshot().clone();
    let mut change = |command, id| {
        let group_id = GroupId(id);
        let change =
            GroupMod { command, group_type: GroupType::All, group_id, buckets: buckets.clone() };
        switch.pipeline.handle_group_mod(&change, Millis(0)).unwrap_err()
    };
    assert_eq!(change(GroupModCommand::Add, 1), ErrorKind::OFPGMFC_GROUP_EXISTS);
    assert_eq!(change(GroupModCommand::Modify, 2), ErrorKind::OFPGMFC_UNKNOWN_GROUP);
    let reserved = GroupId::MAX.0 + 1;
    assert_eq!(change(GroupModCommand::Delete, reserved), ErrorKind::OFPGMFC_INVALID_GROUP);
    assert!(Arc::ptr_eq(&before, switch.pipeline.snapshot()));
}
