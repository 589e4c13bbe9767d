//! Checks of a rule's actions before the rule is accepted (OpenFlow 1.3.5 §6.4, §7.4.4).
//!
//! What passes these checks is executed for every frame that has the fields; nothing is ignored
//! silently.

use tapswitch_openflow::{
    Action, Context, Delivery, EXPERIMENTER, ErrorKind, GroupType, Instruction, METER_MAX, Match,
    Oxm, PortNo, Shape, TableId,
};
use tapswitch_wire::EtherType;

use crate::abilities::SET_FIELDS;
use crate::action_set;
use crate::group::GroupTable;
use crate::meter::MeterTable;
use crate::port::MAX_PORT;
use crate::table::TABLE_COUNT;

/// Checks the instructions of a rule in `table` that matches `matching`.
pub(crate) fn instructions(
    instructions: &[Instruction],
    table: TableId,
    matching: &Match,
    groups: &GroupTable,
    meters: &MeterTable,
) -> Result<(), ErrorKind> {
    // What is known of the frames that an action will meet: at first what the match implies. If
    // nothing is known, prerequisites cannot be checked.
    let mut known = Some(Context::from(matching));
    // Applied actions are executed first, whatever the order in the message (§5.9).
    instructions.iter().try_for_each(|instruction| match instruction {
        Instruction::GotoTable(next) if next.0 <= table.0 || next.0 >= TABLE_COUNT => {
            Err(ErrorKind::OFPBIC_BAD_TABLE_ID)
        }
        Instruction::ApplyActions(list) => actions(list, &mut known, groups, Where::Rule),
        Instruction::GotoTable(_) | Instruction::WriteMetadata { .. } => Ok(()),
        Instruction::ClearActions | Instruction::WriteActions(_) => Ok(()),
        // Virtual meters are for frames that no rule sends.
        Instruction::Meter(id @ ..=METER_MAX) if meters.find(*id).is_some() => Ok(()),
        Instruction::Meter(1..=METER_MAX) => Err(ErrorKind::OFPMMFC_UNKNOWN_METER),
        Instruction::Meter(_) => Err(ErrorKind::OFPMMFC_INVALID_METER),
        Instruction::Experimenter { .. } => Err(ErrorKind::OFPBIC_BAD_EXPERIMENTER),
        Instruction::Unknown { .. } => Err(ErrorKind::OFPBIC_UNKNOWN_INST),
    })?;
    if let Some(known) = known.as_mut().filter(|_| has_others(instructions, table)) {
        known.has_vlan = true;
    }
    instructions.iter().try_for_each(|instruction| match instruction {
        Instruction::WriteActions(list) => {
            let mut set = list.clone();
            set.sort_by_key(action_set::rank);
            actions(&set, &mut known, groups, Where::Rule)
        }
        _ => Ok(()),
    })
}

/// True if rules of other tables may push and pop tags before the action set is executed, or in it:
/// later ones, and earlier ones unless the set is cleared.
fn has_others(instructions: &[Instruction], table: TableId) -> bool {
    let goes_on = |it: &Instruction| matches!(it, Instruction::GotoTable(_));
    let clears = |it: &Instruction| matches!(it, Instruction::ClearActions);
    instructions.iter().any(goes_on) || table.0 > 0 && !instructions.iter().any(clears)
}

/// Checks the actions of a packet-out, whose packet may be anything.
pub(crate) fn packet_out_actions(list: &[Action], groups: &GroupTable) -> Result<(), ErrorKind> {
    actions(list, &mut None, groups, Where::PacketOut)
}

/// Checks the actions of a bucket, whose frames may be anything. A bucket of a group that copies
/// may have a contract and shapes for its copies, each once.
pub(crate) fn bucket_actions(
    list: &[Action],
    kind: GroupType,
    groups: &GroupTable,
) -> Result<(), ErrorKind> {
    let copies = matches!(kind, GroupType::All | GroupType::Select);
    let place = if copies { Where::Copy } else { Where::Rule };
    actions(list, &mut None, groups, place)?;
    let shapes = || list.iter().filter_map(Shape::of);
    let counts = [
        list.iter().filter_map(Delivery::of).count(),
        shapes().filter(|shape| matches!(shape, Shape::Truncate { .. })).count(),
        shapes().filter(|shape| matches!(shape, Shape::Sample { .. })).count(),
    ];
    match counts.into_iter().all(|count| count <= 1) {
        true => Ok(()),
        false => Err(ErrorKind::OFPBAC_TOO_MANY),
    }
}

/// Where actions are used: the reserved port TABLE is allowed in a packet-out only, a contract or a
/// shape only in a bucket of a group that copies or selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Rule,
    Copy,
    PacketOut,
}

/// True if the frames that an action will meet may have something, as far as that is known.
fn may(known: Option<&Context>, have: impl Fn(&Context) -> bool) -> bool {
    known.is_none_or(have)
}

fn actions(
    list: &[Action],
    known: &mut Option<Context>,
    groups: &GroupTable,
    place: Where,
) -> Result<(), ErrorKind> {
    list.iter().try_for_each(|action| match action {
        Action::Output { port, .. } => output(*port, place),
        Action::Group(id) if groups.find(*id).is_some() => Ok(()),
        Action::Group(_) => Err(ErrorKind::OFPBAC_BAD_OUT_GROUP),
        Action::PushVlan(EtherType::VLAN | EtherType::SERVICE_VLAN) => {
            if let Some(known) = known {
                known.has_vlan = true;
            }
            Ok(())
        }
        Action::PushVlan(_) => Err(ErrorKind::OFPBAC_BAD_ARGUMENT),
        // The match does not determine what is under the tag: another pop must be allowed.
        Action::PopVlan if may(known.as_ref(), |known| known.has_vlan) => Ok(()),
        Action::PopVlan => Err(ErrorKind::OFPBAC_MATCH_INCONSISTENT),
        Action::DecNwTtl | Action::SetNwTtl(_) => require(may(known.as_ref(), Context::is_ip)),
        Action::SetField(field) => set_field(field, known.as_ref()),
        Action::SetQueue(_) => Err(ErrorKind::OFPBAC_BAD_QUEUE),
        Action::Experimenter { experimenter: EXPERIMENTER, .. } => {
            let is_ours = Delivery::of(action).is_some() || Shape::of(action).is_some();
            let is_fine = place == Where::Copy && is_ours;
            is_fine.then_some(()).ok_or(ErrorKind::OFPBAC_BAD_EXP_TYPE)
        }
        Action::Experimenter { .. } => Err(ErrorKind::OFPBAC_BAD_EXPERIMENTER),
        _ => Err(ErrorKind::OFPBAC_BAD_TYPE),
    })
}

fn require(consistent: bool) -> Result<(), ErrorKind> {
    consistent.then_some(()).ok_or(ErrorKind::OFPBAC_MATCH_INCONSISTENT)
}

/// A port that does not exist yet is allowed, since rules may come before the port; a number that
/// no port can have is not.
fn output(port: PortNo, place: Where) -> Result<(), ErrorKind> {
    match port {
        PortNo(1..=MAX_PORT)
        | PortNo::IN_PORT
        | PortNo::NORMAL
        | PortNo::FLOOD
        | PortNo::ALL
        | PortNo::CONTROLLER
        | PortNo::LOCAL => Ok(()),
        PortNo::TABLE if place == Where::PacketOut => Ok(()),
        _ => Err(ErrorKind::OFPBAC_BAD_OUT_PORT),
    }
}

fn set_field(field: &Oxm, known: Option<&Context>) -> Result<(), ErrorKind> {
    match field.field().filter(|field| SET_FIELDS.contains(field)) {
        Some(field) => require(may(known, |known| known.has(field))),
        None => Err(ErrorKind::OFPBAC_BAD_SET_TYPE),
    }
}
