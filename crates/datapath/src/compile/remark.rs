//! Packets that a meter may have remarked on their way to later tables.
//!
//! The meter comes first among a rule's instructions (OpenFlow 1.3.5 §5.9), and later tables match
//! the packet as it is then (§5.3). Whether a packet is remarked depends on the moment, not on its
//! flow. But only a few DSCPs are possible, at most three. The walk tracks them, and forks where a
//! table matches the DSCP: the program has one branch for each, and the frame's current DSCP
//! selects it. A walk without such a meter or table does not fork.

use std::mem::take;

use tapswitch_openflow::{MeterBandKind, Oxm, TableId};
use tapswitch_wire::FlowKey;

use super::Walk;
use crate::DropReason;
use crate::field::presence;
use crate::meter::Meter;
use crate::program::{Op, Program};
use crate::rewrite::dropped_sooner;

impl Walk<'_, '_> {
    /// Adds the DSCPs that the frame may have after the meter.
    pub(super) fn note_remarks(&mut self, meter: &Meter) {
        let levels = meter.bands.iter().filter_map(|band| match band.spec.kind {
            MeterBandKind::DscpRemark { prec_level } => Some(prec_level),
            _ => None,
        });
        let levels: Vec<u8> = levels.collect();
        if levels.is_empty() {
            return;
        }
        let (is_there, looked_at) = presence(&Oxm::IpDscp(0), &self.current);
        self.consult(&looked_at);
        if !is_there {
            return;
        }
        self.consult(&dscp_bits());
        self.written.unite(&dscp_bits());
        let mut all = take(&mut self.dscps);
        if all.is_empty() {
            all.push(self.current.ip_tos >> 2);
        }
        for before in all.clone() {
            all.extend(levels.iter().map(|level| dropped_sooner(before, *level)));
        }
        // The lowest is the DSCP without a remark: see `Run::go_on`.
        all.sort_unstable();
        all.dedup();
        self.dscps = if all.len() > 1 { all } else { Vec::new() };
    }

    /// Whether a lookup depends on what a meter has done to the frame.
    pub(super) fn is_undecided(&self, looked_at: &FlowKey) -> bool {
        !self.dscps.is_empty() && looked_at.ip_tos & DSCP != 0
    }

    /// Continues at a table by one arm per DSCP. No steps follow the tables. Each arm may fork
    /// again; a long chain, which would have thousands of arms, is dropped.
    pub(super) fn fork(&mut self, table: TableId) {
        let dscps = take(&mut self.dscps);
        if self.forks >= MAX_DEPTH {
            return self.ops.push(Op::Drop(DropReason::TooDeep));
        }
        self.forks += 1;
        let tags = self.tag_moves();
        let arms = dscps.into_iter().map(|dscp| self.arm(table, dscp)).collect();
        self.forks -= 1;
        self.ops.push(Op::ByDscp { tags, arms });
    }

    /// Compiles the rest of the walk for frames with this DSCP.
    fn arm(&mut self, table: TableId, dscp: u8) -> (u8, Program) {
        let program = self.apart(|walk| {
            walk.current.ip_tos = dscp << 2 | walk.current.ip_tos & !DSCP;
            walk.tables_from(table);
        });
        (dscp, program)
    }
}

fn dscp_bits() -> FlowKey {
    FlowKey { ip_tos: DSCP, ..FlowKey::default() }
}

/// Bits of the DSCP in the type of service or traffic class.
const DSCP: u8 = 0xfc;
/// Maximum forks on the path of a frame, as for groups: a drop precedence rises at most twice.
const MAX_DEPTH: usize = 16;
