//! Tests of messages that change groups, tables or the configuration, and of those that only query.

use tapswitch_openflow::{
    Capabilities, ConfigFlags, Experimenter, Hello, QueueGetConfigReply, QueueGetConfigRequest,
    StartsSuffice, SwitchConfig, TableMod,
};

use super::*;

const ADD: GroupModCommand = GroupModCommand::Add;

fn bucket(actions: Vec<Action>) -> Bucket {
    Bucket::new(actions)
}

#[test]
fn groups_are_added_changed_and_deleted() {
    let mut agent = agent();
    add_group(&mut agent, 1, &[2, 3]);
    let modify = GroupModCommand::Modify;
    apply(&mut agent, group_mod(modify, 1, GroupType::Indirect, vec![bucket(output(3))]));
    let groups = &agent.pipeline().snapshot().groups;
    let group = groups.find(GroupId(1)).unwrap();
    assert_eq!((group.kind, group.buckets.len()), (GroupType::Indirect, 1));
    let delete = GroupModCommand::Delete;
    apply(&mut agent, group_mod(delete, 9, GroupType::All, vec![]));
    assert_eq!(agent.pipeline().snapshot().groups.count(), 1, "no such group is no error");
    apply(&mut agent, group_mod(delete, GroupId::ALL.0, GroupType::All, vec![]));
    assert_eq!(agent.pipeline().snapshot().groups.count(), 0);
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let mut agent = agent();
    add_group(&mut agent, 1, &[2]);
    let to_group = |id| vec![bucket(vec![Action::Group(GroupId(id))])];
    // 65,528 bytes here, and eight more than fit into a group description.
    let long = [vec![Action::output(PortNo(1)); 4093], vec![Action::DecNwTtl]].concat();
    let two = || vec![bucket(output(1)), bucket(output(2))];
    let (modify, all) = (GroupModCommand::Modify, GroupType::All);
    for (message, kind) in [
        (group_mod(ADD, 1, all, vec![]), ErrorKind::OFPGMFC_GROUP_EXISTS),
        (group_mod(modify, 2, all, vec![]), ErrorKind::OFPGMFC_UNKNOWN_GROUP),
        (group_mod(ADD, GroupId::MAX.0 + 1, all, vec![]), ErrorKind::OFPGMFC_INVALID_GROUP),
        (group_mod(ADD, 2, GroupType::Indirect, two()), ErrorKind::OFPGMFC_INVALID_GROUP),
        (group_mod(ADD, 2, GroupType::FastFailover, two()), ErrorKind::OFPGMFC_BAD_WATCH),
        (group_mod(modify, 1, all, to_group(1)), ErrorKind::OFPGMFC_LOOP),
        (group_mod(ADD, 2, all, vec![bucket(long.clone())]), ErrorKind::OFPGMFC_OUT_OF_BUCKETS),
        (group_mod(modify, 1, all, vec![bucket(long)]), ErrorKind::OFPGMFC_OUT_OF_BUCKETS),
        (group_mod(ADD, 2, all, to_group(9)), ErrorKind::OFPBAC_BAD_OUT_GROUP),
        (group_mod(ADD, 2, all, vec![bucket(output(0))]), ErrorKind::OFPBAC_BAD_OUT_PORT),
    ] {
        assert_eq!(refusal(&mut agent, message.clone()), kind, "{message:?}");
    }
}

#[test]
fn tables_cannot_be_configured_but_must_exist() {
    let mut agent = agent();
    let table = |id, config| Body::TableMod(TableMod { table_id: TableId(id), config });
    for id in [0, 253, TableId::ALL.0] {
        apply(&mut agent, table(id, 0));
    }
    assert_eq!(refusal(&mut agent, table(254, 0)), ErrorKind::OFPTMFC_BAD_TABLE);
    assert_eq!(refusal(&mut agent, table(0, 4)), ErrorKind::OFPTMFC_BAD_CONFIG);
}

#[test]
fn the_configuration_is_what_was_set() {
    let mut agent = agent();
    let config = |flags, miss_send_len| SwitchConfig { flags: ConfigFlags(flags), miss_send_len };
    let held = |agent: &mut Agent| send(agent, Body::GetConfigRequest).replies;
    assert_eq!(held(&mut agent), [Body::GetConfigReply(config(0, 128))]);
    apply(&mut agent, Body::SetConfig(config(0, 0xffff)));
    assert_eq!(held(&mut agent), [Body::GetConfigReply(config(0, 0xffff))]);
    assert_eq!(agent.pipeline().snapshot().miss_send_len, 0xffff);
    for unknown in [2, 3, 4] {
        let puts_together = Body::SetConfig(config(unknown, 128));
        assert_eq!(refusal(&mut agent, puts_together), ErrorKind::OFPSCFC_BAD_FLAGS);
    }
    let reserved = Body::SetConfig(config(0, 0xfff0));
    assert_eq!(refusal(&mut agent, reserved), ErrorKind::OFPSCFC_BAD_LEN);
    assert_eq!(held(&mut agent), [Body::GetConfigReply(config(0, 0xffff))]);
    for (flags, drops_fragments) in [(1, true), (0, false)] {
        apply(&mut agent, Body::SetConfig(config(flags, 128)));
        assert_eq!(held(&mut agent), [Body::GetConfigReply(config(flags, 128))]);
        assert_eq!(agent.pipeline().snapshot().drops_fragments, drops_fragments);
    }
}

#[test]
fn the_switch_says_what_it_is() {
    let replies = send(&mut agent(), Body::FeaturesRequest).replies;
    let [Body::FeaturesReply(features)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!(features.datapath_id, DatapathId(0x42));
    assert_eq!((features.n_tables, features.n_buffers, features.auxiliary_id), (254, 0, 0));
    let counts = Capabilities::FLOW_STATS
        | Capabilities::TABLE_STATS
        | Capabilities::PORT_STATS
        | Capabilities::GROUP_STATS;
    assert_eq!(features.capabilities, counts);
}

#[test]
fn a_barrier_is_for_the_workers() {
    let outcome = send(&mut agent(), Body::BarrierRequest);
    assert!(outcome.barrier && outcome.replies.is_empty() && outcome.events.is_empty());
}

#[test]
fn ports_have_no_queues() {
    let mut agent = agent();
    let asks = |port| Body::QueueGetConfigRequest(QueueGetConfigRequest { port });
    for port in [PortNo(1), PortNo::ANY] {
        let expected = Body::QueueGetConfigReply(QueueGetConfigReply { port, queues: vec![] });
        assert_eq!(send(&mut agent, asks(port)).replies, [expected]);
    }
    assert_eq!(refusal(&mut agent, asks(PortNo(9))), ErrorKind::OFPQOFC_BAD_PORT);
}

#[test]
fn our_experimenter_message_is_taken_and_changes_nothing_here() {
    let said = Body::Experimenter(StartsSuffice.experimenter());
    let outcome = send(&mut agent(), said);
    assert!(outcome.replies.is_empty() && outcome.events.is_empty() && outcome.error.is_none());
    let longer = Experimenter { data: vec![0], ..StartsSuffice.experimenter() };
    let kind = refusal(&mut agent(), Body::Experimenter(longer));
    assert_eq!(kind, ErrorKind::OFPBRC_BAD_LEN);
}

#[test]
fn what_no_switch_is_asked_is_refused() {
    let mut agent = agent();
    let experimenter = Experimenter { experimenter: 1, exp_type: 2, data: vec![] };
    let kind = refusal(&mut agent, Body::Experimenter(experimenter));
    assert_eq!(kind, ErrorKind::OFPBRC_BAD_EXPERIMENTER);
    for body in [Body::Hello(Hello::new()), Body::BarrierReply, Body::EchoReply(vec![])] {
        assert_eq!(refusal(&mut agent, body), ErrorKind::OFPBRC_BAD_TYPE);
    }
}
