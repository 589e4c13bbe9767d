//! Statistics of flow entries (OpenFlow 1.3.5 §7.3.5.2, §7.3.5.3).

use std::{fmt, slice};

use crate::codec::layout_codec;
use crate::flow::{write_match, write_timeouts};
use crate::instruction::Instructions;
use crate::multipart::split::{MAX_BODY_LEN, encoded_len};
use crate::{FlowModFlags, GroupId, Instruction, Match, PortNo, TableId};

/// Filter for flow entries (`ofp_flow_stats_request`, `ofp_aggregate_stats_request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatsRequest {
    /// Table; [`TableId::ALL`] for all.
    pub table_id: TableId,
    /// Only entries with this output port; [`PortNo::ANY`] for all.
    pub out_port: PortNo,
    /// Only entries with this output group; [`GroupId::ANY`] for all.
    pub out_group: GroupId,
    /// Only entries with this cookie in the bits ...
    pub cookie: u64,
    /// ... of this mask.
    pub cookie_mask: u64,
    /// Only entries that this match covers.
    pub match_fields: Match,
}

impl Default for FlowStatsRequest {
    /// Every entry of every table.
    fn default() -> Self {
        Self {
            table_id: TableId::ALL,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            cookie: 0,
            cookie_mask: 0,
            match_fields: Match::new(),
        }
    }
}

layout_codec!(FlowStatsRequest {
    table_id,
    pad 3,
    out_port,
    out_group,
    pad 4,
    cookie,
    cookie_mask,
    match_fields,
});

/// One flow entry (`ofp_flow_stats`, §7.3.5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Table of the entry.
    pub table_id: TableId,
    /// Its age, whole seconds.
    pub duration_sec: u32,
    /// Its age, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Its priority.
    pub priority: u16,
    /// Seconds without a packet after which it is removed; 0 for never.
    pub idle_timeout: u16,
    /// Seconds after which it is removed; 0 for never.
    pub hard_timeout: u16,
    /// Its options.
    pub flags: FlowModFlags,
    /// Opaque value of the controller.
    pub cookie: u64,
    /// Packets that it matched; all ones when not counted.
    pub packet_count: u64,
    /// Bytes that it matched; all ones when not counted.
    pub byte_count: u64,
    /// Packets that match.
    pub match_fields: Match,
    /// Instructions for them.
    pub instructions: Vec<Instruction>,
}

layout_codec!(FlowStats sized {
    table_id,
    pad 1,
    duration_sec,
    duration_nsec,
    priority,
    idle_timeout,
    hard_timeout,
    flags,
    pad 4,
    cookie,
    packet_count,
    byte_count,
    match_fields,
    instructions,
});

impl FlowStats {
    /// Whether the statistics of an entry with this match and these instructions fit one message,
    /// as lists are cut only between items. A flow-mod with the same content is shorter.
    pub fn fits(match_fields: &Match, instructions: &[Instruction]) -> bool {
        let match_len = encoded_len(slice::from_ref(match_fields));
        FIXED_LEN + match_len + encoded_len(instructions) <= MAX_BODY_LEN
    }
}

impl fmt::Display for FlowStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration_ms = self.duration_nsec / 1_000_000;
        write!(f, "cookie={:#x}, ", self.cookie)?;
        write!(f, "duration={}.{duration_ms:03}s, ", self.duration_sec)?;
        write!(f, "table={}, n_packets={}, ", self.table_id, self.packet_count)?;
        write!(f, "n_bytes={}, ", self.byte_count)?;
        write_timeouts(f, self.idle_timeout, self.hard_timeout, "", ", ")?;
        write!(f, "priority={}", self.priority)?;
        write_match(f, &self.match_fields)?;
        write!(f, " {}", Instructions(&self.instructions))
    }
}

/// Sums over flow entries (`ofp_aggregate_stats_reply`, §7.3.5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateStats {
    /// Packets that they matched.
    pub packet_count: u64,
    /// Bytes that they matched.
    pub byte_count: u64,
    /// Number of entries.
    pub flow_count: u32,
}

layout_codec!(AggregateStats {
    packet_count,
    byte_count,
    flow_count,
    pad 4,
});

/// Statistics of a flow entry without match and instructions.
const FIXED_LEN: usize = 48;
