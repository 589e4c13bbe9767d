//! Short constructors of rules and groups.

use tapswitch_openflow::{
    Action, Body, Bucket, FlowMod, FlowModCommand, GroupId, GroupMod, GroupModCommand, GroupType,
    Instruction, Match, Oxm, PacketOut, PortNo,
};

/// A rule of table 0.
pub(crate) fn rule(priority: u16, match_fields: Match, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        priority,
        match_fields,
        instructions: vec![Instruction::ApplyActions(actions)],
        ..FlowMod::new(FlowModCommand::Add)
    }
}

pub(crate) fn in_port(number: u32) -> Match {
    Match::new().with(Oxm::InPort(PortNo(number)))
}

pub(crate) fn output(number: u32) -> Action {
    Action::output(PortNo(number))
}

pub(crate) fn to_group(id: u32) -> Action {
    Action::Group(GroupId(id))
}

/// A rule that sends all frames from one port to another.
pub(crate) fn wire(from: u32, to: u32) -> Body {
    Body::FlowMod(rule(100, in_port(from), vec![output(to)]))
}

/// Rules that join two ports.
pub(crate) fn join(a: u32, b: u32) -> Vec<Body> {
    vec![wire(a, b), wire(b, a)]
}

/// A rule that sends all frames to one reserved port.
pub(crate) fn all_to(port: PortNo) -> FlowMod {
    rule(0, Match::new(), vec![Action::output(port)])
}

/// A group of type ALL.
pub(crate) fn group_all(command: GroupModCommand, id: u32, buckets: Vec<Vec<Action>>) -> Body {
    let buckets = buckets.into_iter().map(Bucket::new).collect();
    let (group_type, group_id) = (GroupType::All, GroupId(id));
    Body::GroupMod(GroupMod { command, group_type, group_id, buckets })
}

pub(crate) fn packet_out(data: Vec<u8>, actions: Vec<Action>) -> Body {
    Body::PacketOut(PacketOut::new(data, actions))
}
