//! Rules with timeouts, rules deleted with their group, and rules deleted by a message: which are
//! removed, and what the controller is told.

use tapswitch_openflow::{
    Action, Body, Bucket, FlowMod, FlowModCommand, FlowModFlags, GroupId, GroupMod,
    GroupModCommand, GroupType, Instruction, Match, Oxm, PortNo, TableId,
};

use crate::case::Case;
use crate::frames::Frame;
use crate::pair::Pair;
use crate::steps::Step;

/// Each removed rule is reported with its reason, except the one without the flag.
pub(crate) fn check(pair: &mut Pair) {
    let group = |command, buckets| {
        let group_id = GroupId(1);
        Body::GroupMod(GroupMod { command, group_type: GroupType::All, group_id, buckets })
    };
    let bucket = Bucket::new(vec![Action::output(PortNo(3))]);
    let silent = FlowMod { flags: FlowModFlags::empty(), hard_timeout: 1, ..rule(5) };
    let to_group = vec![Instruction::ApplyActions(vec![Action::Group(GroupId(1))])];
    let messages = vec![
        group(GroupModCommand::Add, vec![bucket]),
        Body::FlowMod(FlowMod { idle_timeout: 1, ..rule(1) }),
        Body::FlowMod(FlowMod { hard_timeout: 1, ..rule(2) }),
        Body::FlowMod(FlowMod { idle_timeout: 100, hard_timeout: 200, ..rule(3) }),
        Body::FlowMod(FlowMod { instructions: to_group, ..rule(4) }),
        Body::FlowMod(silent),
    ];
    let steps = vec![
        Step::Frame(Frame { port: 1, bytes: frame() }),
        Step::Change(group(GroupModCommand::Delete, Vec::new())),
    ];
    let mut observed = pair.observe_until(&Case { messages, steps, filters: Vec::new() }, LEFT);
    for side in &mut observed {
        side.removed.sort();
    }
    let [theirs, ours] = &observed;
    assert_eq!(theirs.removed, ours.removed);
    let reasons = ["IDLE_TIMEOUT", "HARD_TIMEOUT", "DELETE", "GROUP_DELETE"];
    let told = |number: usize| format!("reason: FlowRemovedReason({number})");
    for (number, reason) in reasons.into_iter().enumerate() {
        let count = ours.removed.iter().filter(|line| line.contains(&told(number))).count();
        assert_eq!(count, 1, "{reason}: {:#?}", ours.removed);
    }
}

/// A rule in a table that only the first frame reaches.
fn rule(priority: u16) -> FlowMod {
    FlowMod {
        table_id: TableId(0),
        priority,
        flags: FlowModFlags::SEND_FLOW_REM,
        match_fields: Match::new().with(Oxm::InPort(PortNo(priority.into()))),
        ..FlowMod::new(FlowModCommand::Add)
    }
}

/// A frame for the first rule.
fn frame() -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x12, 0x34];
    bytes.resize(60, 0);
    bytes
}

/// The only rule that is left to be deleted.
const LEFT: usize = 1;
