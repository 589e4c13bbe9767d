//! Tests of flow-mods: accepted and refused ones, and the rules they select.

use tapswitch_openflow::{
    BufferId, EncodeError, FlowRemovedReason, Masked, MultipartReply, Oxm, VID_PRESENT,
};
use tapswitch_wire::EtherType;

use super::*;
use crate::agent::Gone;

fn in_port(number: u32) -> Match {
    Match::new().with(Oxm::InPort(PortNo(number)))
}

fn ip() -> Match {
    Match::new().with(Oxm::EthType(EtherType::IPV4))
}

/// A rule with one action for every frame.
fn does(action: Action) -> FlowMod {
    rule(1, Match::new(), vec![action])
}

#[track_caller]
fn refuses(rule: FlowMod, kind: ErrorKind) {
    let text = rule.to_string();
    assert_eq!(refusal(&mut agent(), Body::FlowMod(rule)), kind, "{text}");
}

#[test]
fn matches_that_cannot_be_are_refused() {
    let matches = |fields| rule(1, fields, output(1));
    let mpls = Match::new().with(Oxm::EthType(EtherType(0x8847))).with(Oxm::MplsLabel(1));
    refuses(matches(mpls), ErrorKind::OFPBMC_BAD_FIELD);
    refuses(matches(ip().with(Oxm::TcpDst(80))), ErrorKind::OFPBMC_BAD_PREREQ);
    refuses(matches(in_port(1).with(Oxm::InPort(PortNo(2)))), ErrorKind::OFPBMC_DUP_FIELD);
    refuses(matches(ip().with(Oxm::IpDscp(64))), ErrorKind::OFPBMC_BAD_VALUE);
    let address = Masked::with_mask([10, 0, 0, 1].into(), [255, 0, 0, 0].into());
    refuses(matches(ip().with(Oxm::Ipv4Src(address))), ErrorKind::OFPBMC_BAD_WILDCARDS);
}

#[test]
fn tables_flags_and_instructions_are_checked() {
    let base = || does(Action::output(PortNo(1)));
    let with = |instruction| FlowMod { instructions: vec![instruction], ..base() };
    let table = |id| FlowMod { table_id: TableId(id), ..base() };
    refuses(table(254), ErrorKind::OFPFMFC_BAD_TABLE_ID);
    refuses(table(255), ErrorKind::OFPFMFC_BAD_TABLE_ID);
    let delete = FlowMod { command: FlowModCommand::Delete, ..table(254) };
    refuses(delete, ErrorKind::OFPFMFC_BAD_TABLE_ID);
    let flags = FlowModFlags::from_bits_retain(1 << 9);
    refuses(FlowMod { flags, ..base() }, ErrorKind::OFPFMFC_BAD_FLAGS);
    refuses(with(Instruction::GotoTable(TableId(0))), ErrorKind::OFPBIC_BAD_TABLE_ID);
    refuses(with(Instruction::GotoTable(TableId(254))), ErrorKind::OFPBIC_BAD_TABLE_ID);
    refuses(with(Instruction::Meter(1)), ErrorKind::OFPMMFC_UNKNOWN_METER);
    let experimenter = Instruction::Experimenter { experimenter: 1, data: vec![] };
    refuses(with(experimenter), ErrorKind::OFPBIC_BAD_EXPERIMENTER);
    let twice = vec![Instruction::ClearActions, Instruction::ClearActions];
    refuses(FlowMod { instructions: twice, ..base() }, ErrorKind::OFPBIC_UNSUP_INST);
}

#[test]
fn actions_that_cannot_be_done_are_refused() {
    let set = |field| does(Action::SetField(field));
    let vid = Oxm::VlanVid(Masked::exact(VID_PRESENT | 7));
    refuses(does(Action::output(PortNo(0))), ErrorKind::OFPBAC_BAD_OUT_PORT);
    refuses(does(Action::output(PortNo(4096))), ErrorKind::OFPBAC_BAD_OUT_PORT);
    refuses(does(Action::output(PortNo::TABLE)), ErrorKind::OFPBAC_BAD_OUT_PORT);
    refuses(does(Action::Group(GroupId(1))), ErrorKind::OFPBAC_BAD_OUT_GROUP);
    refuses(does(Action::SetQueue(1)), ErrorKind::OFPBAC_BAD_QUEUE);
    refuses(does(Action::PushVlan(EtherType(0x9100))), ErrorKind::OFPBAC_BAD_ARGUMENT);
    refuses(does(Action::PushMpls(EtherType(0x8847))), ErrorKind::OFPBAC_BAD_TYPE);
    refuses(does(Action::PopVlan), ErrorKind::OFPBAC_MATCH_INCONSISTENT);
    refuses(does(Action::DecNwTtl), ErrorKind::OFPBAC_MATCH_INCONSISTENT);
    refuses(set(vid), ErrorKind::OFPBAC_MATCH_INCONSISTENT);
    refuses(set(Oxm::TcpDst(80)), ErrorKind::OFPBAC_MATCH_INCONSISTENT);
    refuses(set(Oxm::EthType(EtherType::IPV4)), ErrorKind::OFPBAC_BAD_SET_TYPE);
    let experimenter = Action::Experimenter { experimenter: 1, data: vec![0; 4] };
    refuses(does(experimenter), ErrorKind::OFPBAC_BAD_EXPERIMENTER);
}

#[test]
fn a_port_may_come_after_its_rule() {
    let mut agent = agent();
    add(&mut agent, does(Action::output(PortNo(9))));
    forward(&agent, 1, START);
    let snapshot = agent.pipeline().snapshot();
    let drops = snapshot.ports.find(PortNo(1)).unwrap().counters.drops();
    assert_eq!(drops.count(DropReason::NoSuchPort), 1);
}

#[test]
fn overlap_is_refused_when_asked() {
    let mut agent = agent();
    add(&mut agent, rule(5, in_port(1), output(2)));
    let wider = FlowMod { flags: FlowModFlags::CHECK_OVERLAP, ..rule(5, ip(), output(3)) };
    let kind = refusal(&mut agent, Body::FlowMod(wider.clone()));
    assert_eq!(kind, ErrorKind::OFPFMFC_OVERLAP);
    add(&mut agent, FlowMod { priority: 6, ..wider });
}

#[test]
fn the_same_match_and_priority_replace_and_keep_the_counts() {
    let mut agent = agent();
    let cookie = |cookie, rule| FlowMod { cookie, ..rule };
    add(&mut agent, cookie(1, rule(5, in_port(1), output(2))));
    forward(&agent, 1, START);
    add(&mut agent, cookie(2, rule(5, in_port(1), output(3))));
    assert_eq!(all_cookies(&mut agent), [2]);
    let frames = |agent: &Agent| {
        let table = agent.pipeline().snapshot().table(TableId(0)).unwrap();
        table.iter().map(|rule| rule.counters.totals().frames).sum::<u64>()
    };
    assert_eq!(frames(&agent), 1);
    let resets = FlowMod { flags: FlowModFlags::RESET_COUNTS, ..rule(5, in_port(1), output(3)) };
    add(&mut agent, resets);
    assert_eq!(frames(&agent), 0);
}

/// A list is split between its items, and a rule takes more bytes in statistics than in a flow-mod.
#[test]
fn rules_whose_statistics_fit_no_message_are_refused() {
    let mut agent = agent();
    let long = |count| rule(5, Match::new(), vec![Action::output(PortNo(1)); count]);
    let fits = |change: &FlowMod| encode(Body::FlowMod(change.clone())).is_ok();
    assert!(fits(&long(4091)) && !fits(&long(4092)), "the longest that can be sent");
    let refused = ErrorKind::OFPFMFC_UNKNOWN;
    assert_eq!(refusal(&mut agent, Body::FlowMod(long(4091))), refused);
    add(&mut agent, long(4090));
    let stats = statistics(&mut agent, MultipartRequestBody::Flow(Default::default()), START);
    encode(Body::MultipartReply(MultipartReply::new(stats))).unwrap();
    // A modified rule keeps its match, which may be longer than that of the flow-mod.
    add(&mut agent, rule(5, ip().with(Oxm::InPort(PortNo(1))), output(1)));
    let modify = FlowMod { command: FlowModCommand::Modify, ..long(4090) };
    assert_eq!(refusal(&mut agent, Body::FlowMod(modify)), refused);
}

fn encode(body: Body) -> Result<(), EncodeError> {
    Message { xid: 1, body }.encode(&mut Vec::new())
}

#[test]
fn modify_changes_what_is_there_and_adds_nothing() {
    let mut agent = agent();
    let change = |command, match_fields| FlowMod { command, ..rule(5, match_fields, output(3)) };
    apply(&mut agent, Body::FlowMod(change(FlowModCommand::Modify, Match::new())));
    assert_eq!(all_cookies(&mut agent), [0; 0]);
    add(&mut agent, FlowMod { cookie: 1, ..rule(5, in_port(1), output(2)) });
    add(&mut agent, FlowMod { cookie: 2, ..rule(5, in_port(2), output(2)) });
    apply(&mut agent, Body::FlowMod(change(FlowModCommand::ModifyStrict, in_port(1))));
    let to_3 = || FlowStatsRequest { out_port: PortNo(3), ..FlowStatsRequest::default() };
    assert_eq!(cookies(&mut agent, to_3()), [1]);
    apply(&mut agent, Body::FlowMod(change(FlowModCommand::Modify, Match::new())));
    assert_eq!(cookies(&mut agent, to_3()), [1, 2]);
}

#[test]
fn deletion_selects_by_match_cookie_port_and_group() {
    let select = |change: fn(&mut FlowMod)| {
        let mut agent = agent();
        add_group(&mut agent, 7, &[3]);
        add(&mut agent, FlowMod { cookie: 0x11, ..rule(1, in_port(1), output(2)) });
        add(&mut agent, FlowMod { cookie: 0x12, ..rule(2, in_port(1), output(3)) });
        let to_group = vec![Action::Group(GroupId(7))];
        add(&mut agent, FlowMod { cookie: 0x21, ..rule(3, ip(), to_group) });
        let mut delete = FlowMod::new(FlowModCommand::Delete);
        change(&mut delete);
        apply(&mut agent, Body::FlowMod(delete));
        all_cookies(&mut agent)
    };
    assert_eq!(select(|_| {}), [0; 0]);
    assert_eq!(select(|delete| delete.match_fields = in_port(1)), [0x21]);
    assert_eq!(select(|delete| delete.out_port = PortNo(3)), [0x21, 0x11]);
    assert_eq!(select(|delete| delete.out_group = GroupId(7)), [0x12, 0x11]);
    assert_eq!(select(|delete| delete.table_id = TableId(1)), [0x21, 0x12, 0x11]);
    assert_eq!(select(|delete| delete.table_id = TableId::ALL), [0; 0]);
    let by_cookie = select(|delete| (delete.cookie, delete.cookie_mask) = (0x10, 0xf0));
    assert_eq!(by_cookie, [0x21]);
    let strict = select(|delete| {
        delete.command = FlowModCommand::DeleteStrict;
        (delete.match_fields, delete.priority) = (in_port(1), 2);
    });
    assert_eq!(strict, [0x21, 0x11]);
}

#[test]
fn a_rule_with_a_buffer_is_in_force_and_the_buffer_unknown() {
    let mut agent = agent();
    let buffered = FlowMod { buffer_id: BufferId(5), cookie: 1, ..rule(1, ip(), output(2)) };
    let outcome = send(&mut agent, Body::FlowMod(buffered));
    assert_eq!(outcome.error, Some(ErrorKind::OFPBRC_BUFFER_UNKNOWN));
    assert!(outcome.replies.is_empty() && outcome.events.is_empty());
    assert_eq!(all_cookies(&mut agent), [1]);
}

#[test]
fn what_deletes_has_no_use_for_a_buffer() {
    let mut agent = agent();
    for command in [FlowModCommand::Delete, FlowModCommand::DeleteStrict] {
        add(&mut agent, FlowMod { cookie: 1, ..rule(1, ip(), output(2)) });
        let delete = FlowMod { command, buffer_id: BufferId(0), ..rule(1, ip(), vec![]) };
        assert_eq!(send(&mut agent, Body::FlowMod(delete)).error, None);
        assert_eq!(all_cookies(&mut agent), [0; 0]);
    }
}

#[test]
fn a_rule_that_goes_with_its_group_says_so() {
    let mut agent = agent();
    add_group(&mut agent, 7, &[3]);
    let to_group = rule(3, ip(), vec![Action::Group(GroupId(7))]);
    add(&mut agent, telling(FlowMod { cookie: 1, ..to_group.clone() }));
    add(&mut agent, FlowMod { cookie: 2, priority: 4, ..to_group });
    let delete = group_mod(GroupModCommand::Delete, 7, GroupType::All, vec![]);
    let gone = send(&mut agent, delete).gone;
    let [Body::FlowRemoved(removed)] = &gone.iter().map(Gone::message).collect::<Vec<_>>()[..]
    else {
        panic!("{gone:?}")
    };
    assert_eq!((removed.cookie, removed.reason), (1, FlowRemovedReason::GROUP_DELETE));
    assert_eq!(all_cookies(&mut agent), [0; 0]);
}

#[test]
fn nothing_of_a_refused_rule_is_kept() {
    let mut agent = agent();
    let bad = FlowMod { buffer_id: BufferId(5), ..does(Action::Group(GroupId(1))) };
    assert_eq!(refusal(&mut agent, Body::FlowMod(bad)), ErrorKind::OFPBAC_BAD_OUT_GROUP);
    assert_eq!(all_cookies(&mut agent), [0; 0]);
}
