//! Flow entries: modification and removal (OpenFlow 1.3.5 §7.3.4.1, §7.4.2).

use std::fmt;

use bitflags::{Flags as _, bitflags};

use crate::codec::{closed_codec, flags_codec, layout_codec, newtype_codec};
use crate::instruction::Instructions;
use crate::{BufferId, CheckError, ErrorKind, GroupId, Instruction, Match, PortNo, TableId};

/// `OFPT_FLOW_MOD` (`ofp_flow_mod`, §7.3.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// Opaque value of the controller.
    pub cookie: u64,
    /// Bits of the cookie that select entries to modify or delete.
    pub cookie_mask: u64,
    /// Table to change; [`TableId::ALL`] for deletion from all tables.
    pub table_id: TableId,
    /// What to do.
    pub command: FlowModCommand,
    /// Seconds without a packet after which the entry is removed; 0 for never.
    pub idle_timeout: u16,
    /// Seconds after which the entry is removed; 0 for never.
    pub hard_timeout: u16,
    /// Priority; the higher one wins.
    pub priority: u16,
    /// Buffered packet to send through the new entry.
    pub buffer_id: BufferId,
    /// When deleting: only entries with this output port; [`PortNo::ANY`] for all.
    pub out_port: PortNo,
    /// When deleting: only entries with this output group; [`GroupId::ANY`] for all.
    pub out_group: GroupId,
    /// Options.
    pub flags: FlowModFlags,
    /// Packets that match.
    pub match_fields: Match,
    /// Instructions for them.
    pub instructions: Vec<Instruction>,
}

impl FlowMod {
    /// A flow-mod on table 0 with defaults: no cookie, no timeouts, default priority, no
    /// restriction by output, match all, no instructions.
    pub fn new(command: FlowModCommand) -> Self {
        Self {
            cookie: 0,
            cookie_mask: 0,
            table_id: TableId(0),
            command,
            idle_timeout: 0,
            hard_timeout: 0,
            priority: DEFAULT_PRIORITY,
            buffer_id: BufferId::NO_BUFFER,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            flags: FlowModFlags::empty(),
            match_fields: Match::new(),
            instructions: Vec::new(),
        }
    }

    /// Validates table, flags, match, and the instructions against the match. What depends on the
    /// switch's tables is not checked.
    pub fn check(&self) -> Result<(), CheckError> {
        let deletes = self.command.deletes();
        if self.table_id == TableId::ALL && !deletes {
            let text = "flow_mod: OFPTT_ALL is allowed only for deletion";
            return Err(CheckError::new(ErrorKind::OFPFMFC_BAD_TABLE_ID, text));
        }
        if self.flags.contains_unknown_bits() {
            let text = format!("flow_mod: unknown flags in {:?}", self.flags);
            return Err(CheckError::new(ErrorKind::OFPFMFC_BAD_FLAGS, text));
        }
        let context = self.match_fields.context()?;
        if deletes {
            return Ok(()); // Instructions of a deletion are ignored.
        }
        Instruction::check_all(&self.instructions, self.table_id, context)
    }
}

layout_codec!(FlowMod {
    cookie,
    cookie_mask,
    table_id,
    command,
    idle_timeout,
    hard_timeout,
    priority,
    buffer_id,
    out_port,
    out_group,
    flags,
    pad 2,
    match_fields,
    instructions,
});

impl fmt::Display for FlowMod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} table={}", self.command, self.table_id)?;
        if self.cookie != 0 || self.cookie_mask != 0 {
            write!(f, ",cookie={:#x}", self.cookie)?;
        }
        if self.cookie_mask != 0 {
            write!(f, "/{:#x}", self.cookie_mask)?;
        }
        write_timeouts(f, self.idle_timeout, self.hard_timeout, ",", "")?;
        write_flags(f, self.flags)?;
        write!(f, ",priority={}", self.priority)?;
        write_match(f, &self.match_fields)?;
        if self.command.deletes() {
            return write_outputs(f, self.out_port, self.out_group);
        }
        write!(f, " {}", Instructions(&self.instructions))
    }
}

fn write_flags(f: &mut fmt::Formatter<'_>, flags: FlowModFlags) -> fmt::Result {
    flags.words().try_for_each(|word| write!(f, ",{word}"))
}

fn write_outputs(f: &mut fmt::Formatter<'_>, port: PortNo, group: GroupId) -> fmt::Result {
    if port != PortNo::ANY {
        write!(f, ",out_port={port}")?;
    }
    if group != GroupId::ANY {
        write!(f, ",out_group={group}")?;
    }
    Ok(())
}

/// Command of a flow-mod (`ofp_flow_mod_command`, §7.3.4.1). Unknown ones are rejected when
/// decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowModCommand {
    /// Add an entry, or replace the one with the same match and priority.
    Add = 0,
    /// Modify all entries that the match covers.
    Modify = 1,
    /// Modify the entry of exactly this match and priority.
    ModifyStrict = 2,
    /// Delete all entries that the match covers.
    Delete = 3,
    /// Delete the entry of exactly this match and priority.
    DeleteStrict = 4,
}

impl FlowModCommand {
    /// True for both kinds of deletion.
    pub const fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteStrict)
    }
}

closed_codec!(
    FlowModCommand: u8,
    OFPFMFC_BAD_COMMAND,
    "command",
    [Add, Modify, ModifyStrict, Delete, DeleteStrict]
);

impl fmt::Display for FlowModCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Modify => "modify",
            Self::ModifyStrict => "modify_strict",
            Self::Delete => "delete",
            Self::DeleteStrict => "delete_strict",
        })
    }
}

bitflags! {
    /// Options of a flow entry (`ofp_flow_mod_flags`, §7.3.4.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowModFlags: u16 {
        /// Send flow-removed when the entry is removed.
        const SEND_FLOW_REM = 1 << 0;
        /// Refuse to add over an overlapping entry of the same priority.
        const CHECK_OVERLAP = 1 << 1;
        /// Reset the counters.
        const RESET_COUNTS = 1 << 2;
        /// Do not count packets.
        const NO_PKT_COUNTS = 1 << 3;
        /// Do not count bytes.
        const NO_BYT_COUNTS = 1 << 4;
    }
}

flags_codec!(FlowModFlags);

impl FlowModFlags {
    /// Names of the set options in the syntax of `ovs-ofctl`.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let words = [
            (Self::SEND_FLOW_REM, "send_flow_rem"),
            (Self::CHECK_OVERLAP, "check_overlap"),
            (Self::RESET_COUNTS, "reset_counts"),
            (Self::NO_PKT_COUNTS, "no_packet_counts"),
            (Self::NO_BYT_COUNTS, "no_byte_counts"),
        ];
        words.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, word)| word)
    }
}

/// `OFPT_FLOW_REMOVED` (`ofp_flow_removed`, §7.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// Opaque value of the controller.
    pub cookie: u64,
    /// Its priority.
    pub priority: u16,
    /// Why it was removed.
    pub reason: FlowRemovedReason,
    /// Table it was in.
    pub table_id: TableId,
    /// Lifetime, whole seconds.
    pub duration_sec: u32,
    /// Lifetime, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Its idle timeout in seconds.
    pub idle_timeout: u16,
    /// Its hard timeout in seconds.
    pub hard_timeout: u16,
    /// Packets that it matched; all ones when not counted.
    pub packet_count: u64,
    /// Bytes that it matched; all ones when not counted.
    pub byte_count: u64,
    /// Packets that matched.
    pub match_fields: Match,
}

layout_codec!(FlowRemoved {
    cookie,
    priority,
    reason,
    table_id,
    duration_sec,
    duration_nsec,
    idle_timeout,
    hard_timeout,
    packet_count,
    byte_count,
    match_fields,
});

/// Why a flow entry was removed (`ofp_flow_removed_reason`, §7.4.2). Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FlowRemovedReason(pub u8);

impl FlowRemovedReason {
    /// No packet for the idle timeout.
    pub const IDLE_TIMEOUT: Self = Self(0);
    /// The hard timeout expired.
    pub const HARD_TIMEOUT: Self = Self(1);
    /// A flow-mod deleted it.
    pub const DELETE: Self = Self(2);
    /// Its group was deleted.
    pub const GROUP_DELETE: Self = Self(3);
}

newtype_codec!(FlowRemovedReason);

/// Prints the timeouts that are set.
pub(crate) fn write_timeouts(
    f: &mut fmt::Formatter<'_>,
    idle: u16,
    hard: u16,
    before: &str,
    after: &str,
) -> fmt::Result {
    if idle != 0 {
        write!(f, "{before}idle_timeout={idle}{after}")?;
    }
    if hard != 0 {
        write!(f, "{before}hard_timeout={hard}{after}")?;
    }
    Ok(())
}

/// Prints the priority and the match.
pub(crate) fn write_match(f: &mut fmt::Formatter<'_>, match_fields: &Match) -> fmt::Result {
    match match_fields.fields.is_empty() {
        true => Ok(()),
        false => write!(f, ",{match_fields}"),
    }
}

/// `OFP_DEFAULT_PRIORITY`.
pub const DEFAULT_PRIORITY: u16 = 0x8000;
