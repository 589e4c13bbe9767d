//! The outcome of a walk through the tables, as a short program that is run for every frame of a
//! flow.

use std::sync::Arc;

use tapswitch_openflow::{Oxm, PacketInReason, PortNo, TableId};
use tapswitch_wire::{EtherType, FlowKey};

use crate::DropReason;
use crate::group::Group;
use crate::table::{FlowEntry, TableCounters};

/// What happens to the frames of one flow.
#[derive(Debug)]
pub(crate) struct Program {
    /// The rules that matched, to be counted.
    pub(crate) rules: Box<[Arc<FlowEntry>]>,
    /// The table in which no rule matched, to be counted.
    pub(crate) missed: Option<Arc<TableCounters>>,
    /// What to do.
    pub(crate) ops: Box<[Op]>,
}

/// A program, and which frames it is good for.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) program: Program,
    /// Bits of the key that the walk looked at: the program is good for every frame with the
    /// same bits. `None` when it looked at something that is not in the key.
    pub(crate) mask: Option<FlowKey>,
}

/// One step. Steps that hold others are followed by them: `len` is how many.
#[derive(Debug)]
pub(crate) enum Op {
    /// Send out of a port that exists and may be used.
    Output(PortNo),
    /// Send out of every port but the one of arrival.
    Flood,
    /// Forward as a learning switch.
    Normal,
    /// Send to the controller.
    Controller { max_len: u16, reason: PacketInReason, table_id: TableId, cookie: u64 },
    /// Change a header field.
    SetField(Oxm),
    /// Put a tag in front: priority and identifier as in the tag before, if any.
    PushTag(EtherType),
    /// Take the outermost tag away.
    PopTag,
    /// Take one off the TTL; at zero the frame ends here.
    DecrementTtl { table_id: TableId, cookie: u64 },
    /// Set the TTL.
    SetTtl(u8),
    /// Count a frame of a group.
    Group(Arc<Group>),
    /// Run the next `len` ops as the bucket `index` of `group`, on a copy with headers of its own
    /// if `isolated`.
    Bucket { group: Arc<Group>, index: usize, isolated: bool, len: usize },
    /// Run one of the next buckets, picked by the hash of the flow; `len` ops in all.
    Select { arms: Box<[Arm]>, weight: u32, len: usize },
    /// A named way out without a port.
    Drop(DropReason),
}

/// One bucket of a [`Op::Select`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    /// Hashes below this, and not below the arm before, pick this arm.
    pub(crate) up_to: u32,
    /// Where its [`Op::Bucket`] lies behind the select op.
    pub(crate) offset: usize,
}
