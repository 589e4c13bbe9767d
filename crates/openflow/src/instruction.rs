//! Instructions of flow entries (OpenFlow 1.3.5 §5.9, §7.2.4).

use std::fmt;

use crate::action::{Place, write_list};
use crate::codec::{Codec, Reader, Writer};
use crate::fault::Fault;
use crate::oxm::Context;
use crate::{Action, CheckError, ErrorKind, METER_MAX, TableId};

/// Instruction of a flow entry (`ofp_instruction`, §7.2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// `OFPIT_GOTO_TABLE`: continue in a later table.
    GotoTable(TableId),
    /// `OFPIT_WRITE_METADATA`: set the metadata bits of `mask`.
    WriteMetadata {
        /// New bits.
        metadata: u64,
        /// Which bits.
        mask: u64,
    },
    /// `OFPIT_WRITE_ACTIONS`: merge into the action set.
    WriteActions(Vec<Action>),
    /// `OFPIT_APPLY_ACTIONS`: execute at once, in order.
    ApplyActions(Vec<Action>),
    /// `OFPIT_CLEAR_ACTIONS`: empty the action set.
    ClearActions,
    /// `OFPIT_METER`: pass a meter.
    Meter(u32),
    /// `OFPIT_EXPERIMENTER`.
    Experimenter {
        /// Experimenter id.
        experimenter: u32,
        /// Data after the experimenter id.
        data: Vec<u8>,
    },
    /// An instruction that OpenFlow 1.3 does not define.
    Unknown {
        /// `type` of the instruction.
        kind: u16,
        /// Data after the instruction's header.
        data: Vec<u8>,
    },
}

impl Instruction {
    /// `type` of the instruction (`ofp_instruction_type`, §7.2.4).
    pub const fn kind(&self) -> u16 {
        match self {
            Self::GotoTable(_) => kind::GOTO_TABLE,
            Self::WriteMetadata { .. } => kind::WRITE_METADATA,
            Self::WriteActions(_) => kind::WRITE_ACTIONS,
            Self::ApplyActions(_) => kind::APPLY_ACTIONS,
            Self::ClearActions => kind::CLEAR_ACTIONS,
            Self::Meter(_) => kind::METER,
            Self::Experimenter { .. } => kind::EXPERIMENTER,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Whether a switch could execute the instructions in an entry of `table_id` with a match that
    /// implies `context`: each kind at most once (§5.9), all known, and goto-table only forward.
    pub(crate) fn check_all(
        instructions: &[Self],
        table_id: TableId,
        context: Context,
    ) -> Result<(), CheckError> {
        for (index, instruction) in instructions.iter().enumerate() {
            let kind = instruction.kind();
            let before = &instructions[..index];
            if before.iter().any(|earlier| earlier.kind() == kind) {
                let text = "the instruction occurs twice";
                return Err(refuse(instruction, ErrorKind::OFPBIC_UNSUP_INST, text));
            }
            instruction.check(table_id, context)?;
        }
        Ok(())
    }

    fn check(&self, table_id: TableId, context: Context) -> Result<(), CheckError> {
        let (kind, text) = match self {
            Self::GotoTable(next) if *next <= table_id || *next == TableId::ALL => {
                (ErrorKind::OFPBIC_BAD_TABLE_ID, "not a later table")
            }
            Self::Meter(id) if *id == 0 || *id > METER_MAX => {
                (ErrorKind::OFPMMFC_INVALID_METER, "no such meter")
            }
            Self::WriteActions(actions) => return Action::check_all(actions, Place::Entry),
            Self::ApplyActions(actions) => {
                Action::check_all(actions, Place::Entry)?;
                return Action::check_against(actions, context);
            }
            Self::Experimenter { .. } => {
                (ErrorKind::OFPBIC_BAD_EXPERIMENTER, "unknown experimenter")
            }
            Self::Unknown { .. } => (ErrorKind::OFPBIC_UNKNOWN_INST, "unknown instruction"),
            _ => return Ok(()),
        };
        Err(refuse(self, kind, text))
    }

    /// Appends the body after the instruction's header.
    fn encode_body(&self, w: &mut Writer<'_>) {
        match self {
            Self::GotoTable(table_id) => {
                w.put(table_id);
                w.pad(3);
            }
            Self::WriteMetadata { metadata, mask } => {
                w.pad(4);
                w.put(metadata);
                w.put(mask);
            }
            Self::WriteActions(actions) | Self::ApplyActions(actions) => {
                w.pad(4);
                w.put(actions);
            }
            Self::ClearActions => w.pad(4),
            Self::Meter(meter_id) => w.put(meter_id),
            Self::Experimenter { experimenter, data } => {
                w.put(experimenter);
                w.put(data);
            }
            Self::Unknown { data, .. } => w.put(data),
        }
    }

    /// Decodes the body after the header of an instruction of this type.
    fn decode_body(kind: u16, body: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match kind {
            kind::GOTO_TABLE => {
                let table_id = body.take()?;
                body.skip(3)?;
                Self::GotoTable(table_id)
            }
            kind::WRITE_METADATA => {
                body.skip(4)?;
                let (metadata, mask) = (body.take()?, body.take()?);
                Self::WriteMetadata { metadata, mask }
            }
            kind::WRITE_ACTIONS => Self::WriteActions(decode_actions(body)?),
            kind::APPLY_ACTIONS => Self::ApplyActions(decode_actions(body)?),
            kind::CLEAR_ACTIONS => {
                // Actions that follow are left over: a wrong length (§6.4).
                body.skip(4)?;
                Self::ClearActions
            }
            kind::METER => Self::Meter(body.take()?),
            kind::EXPERIMENTER => {
                Self::Experimenter { experimenter: body.take()?, data: body.take()? }
            }
            kind => Self::Unknown { kind, data: body.take()? },
        })
    }
}

impl Codec for Instruction {
    fn encode(&self, w: &mut Writer<'_>) {
        w.aligned("instruction", |w| w.tlv(self.kind(), |w| self.encode_body(w)));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.aligned_tlv("instruction", ErrorKind::OFPBIC_BAD_LEN, Self::decode_body)
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GotoTable(table_id) => write!(f, "goto_table:{table_id}"),
            Self::WriteMetadata { metadata, mask: u64::MAX } => {
                write!(f, "write_metadata:{metadata:#x}")
            }
            Self::WriteMetadata { metadata, mask } => {
                write!(f, "write_metadata:{metadata:#x}/{mask:#x}")
            }
            Self::WriteActions(actions) => {
                f.write_str("write_actions(")?;
                write_list(f, actions)?;
                f.write_str(")")
            }
            Self::ApplyActions(actions) => write_list(f, actions),
            Self::ClearActions => f.write_str("clear_actions"),
            Self::Meter(meter_id) => write!(f, "meter:{meter_id}"),
            Self::Experimenter { experimenter, data } => {
                write!(f, "experimenter({experimenter:#010x},{} bytes)", data.len())
            }
            Self::Unknown { kind, data } => write!(f, "instruction({kind},{} bytes)", data.len()),
        }
    }
}

/// Prints instructions in the syntax of `ovs-ofctl`: an empty list is `drop`.
pub(crate) struct Instructions<'a>(pub(crate) &'a [Instruction]);

impl fmt::Display for Instructions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("actions=")?;
        if self.0.is_empty() {
            return f.write_str("drop");
        }
        for (index, instruction) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{instruction}")?;
        }
        Ok(())
    }
}

fn decode_actions(body: &mut Reader<'_>) -> Result<Vec<Action>, Fault> {
    body.skip(4)?;
    body.take()
}

#[cold]
fn refuse(instruction: &Instruction, kind: ErrorKind, text: &str) -> CheckError {
    CheckError::new(kind, format!("{instruction}: {text}"))
}

/// Numbers of the instructions (`ofp_instruction_type`, §7.2.4).
mod kind {
    pub(super) const GOTO_TABLE: u16 = 1;
    pub(super) const WRITE_METADATA: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 3;
    pub(super) const APPLY_ACTIONS: u16 = 4;
    pub(super) const CLEAR_ACTIONS: u16 = 5;
    pub(super) const METER: u16 = 6;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
}
