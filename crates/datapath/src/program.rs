//! Programs: the result of a walk through the tables, executed for every frame of a flow.
//!
//! A program belongs to one worker. It tallies its frames, and adds the tallies to the shared
//! counters when it is flushed, at the end of a burst.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tapswitch_openflow::Oxm;
use tapswitch_wire::{EtherType, FlowKey, ethernet};

use crate::counters::{Millis, WorkerIndex};
use crate::group::{BucketRef, Group, GroupBucket};
use crate::meter::Meter;
use crate::outlet::{Outlet, Outlets};
use crate::port::Port;
use crate::table::{FlowEntry, TableCounters};
use crate::tally::Tally;
use crate::traffic::Traffic;
use crate::{DropReason, PacketInOrigin};

/// What happens to the frames of one flow.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Frames that it was executed for.
    pub(crate) run: Tally,
    /// Their ends: see [`PortCounters::ends`](crate::PortCounters::ends).
    pub(crate) ends: Cell<u64>,
    /// Picks a bucket by the hash of the flow.
    pub(crate) wants_hash: bool,
    /// The steps.
    pub(crate) ops: Box<[Op]>,
    /// The ingress port of its frames, to be counted.
    pub(crate) arrival: Option<Arc<Port>>,
    /// The rules that matched, to be counted.
    pub(crate) rules: Box<[Arc<FlowEntry>]>,
    /// The table in which no rule matched, to be counted, if any.
    pub(crate) missed: Option<Arc<TableCounters>>,
    /// Steps that end some frames before later rules, if any.
    pub(crate) gates: Box<[Rc<Gate>]>,
}

impl Program {
    /// Adds the tallies to the counters of `worker`.
    pub(crate) fn flush(&self, worker: WorkerIndex, now: Millis) {
        let run = self.run.take();
        if let Some(port) = &self.arrival {
            port.counters.add_rx(worker, run);
            port.counters.add_ends(worker, self.ends.take());
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let reached = self.reached(index, run);
            if !reached.is_empty() {
                rule.counters.add(worker, reached, now);
                rule.table_counters.add(worker, reached.frames, reached.frames);
            }
        }
        if let Some(table) = &self.missed {
            table.add(worker, self.reached(self.rules.len(), run).frames, 0);
        }
        for gate in &self.gates {
            gate.ended.take();
        }
        flush(&self.ops, worker, now, None);
    }

    /// The part of `run` that reached the rule at `index`.
    #[inline]
    fn reached(&self, index: usize, run: Traffic) -> Traffic {
        let before = self.gates.iter().filter(|gate| gate.rule_count <= index);
        before.fold(run, |run, gate| run.without(gate.ended.sum()))
    }
}

/// A step that ends some frames of a flow and passes others: by their TTL, which is not in the key,
/// or by the rate of a meter. So a program contains rules that some of its frames do not reach.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Number of rules that a frame which ends here has matched.
    pub(crate) rule_count: usize,
    /// Tags pushed and popped before it.
    pub(crate) tags: TagMoves,
    /// Frames that ended here, with their length at the ingress.
    pub(crate) ended: Tally,
}

impl Gate {
    /// Counts a frame that ends here with its current length `len`.
    pub(crate) fn end(&self, len: usize, packets: u32) {
        self.ended.add(self.tags.len_before(len), packets);
    }
}

/// Numbers of tags pushed and popped before a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagMoves {
    /// Pushed tags in front of the remaining original ones.
    pub(crate) pushed: usize,
    /// Popped tags of the original frame.
    pub(crate) popped: usize,
}

impl TagMoves {
    /// Length at the ingress of a frame that now has `len` bytes.
    pub(crate) fn len_before(self, len: usize) -> usize {
        let len = len + self.popped * ethernet::TAG_LEN;
        len.saturating_sub(self.pushed * ethernet::TAG_LEN)
    }
}

/// A program, and the frames that it is valid for.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) program: Program,
    /// Bits of the key that the walk consulted: the program is valid for every frame with the same
    /// bits. `None` if the walk depended on something that is not in the key.
    pub(crate) mask: Option<FlowKey>,
}

/// One step. The steps inside a step follow it; `len` is their number.
#[derive(Debug)]
#[repr(align(64))] // Sends and tallies on one cache line.
pub(crate) enum Op {
    /// Send out of a port.
    Output(Outlet),
    /// Send out of a port on behalf of a bucket that does nothing else.
    BucketOutput { bucket: BucketRef, outlet: Outlet },
    /// Send the first bytes of each packet out of a port, as many as the bucket keeps.
    OutputPart(Outlet),
    /// Send out of every port except the ingress port.
    Flood(Rc<Outlets>),
    /// Forward as a learning switch, which learns the source if the frame came in by a port.
    Normal { outlets: Rc<Outlets>, learns: bool },
    /// Send to the controller.
    Controller(PacketInOrigin),
    /// Change a header field.
    SetField(Oxm),
    /// Push a tag: priority and identifier are those of the tag before, if any.
    PushTag(EtherType),
    /// Pop the outermost tag.
    PopTag,
    /// Decrement the TTL. At zero the frame ends here, and the controller gets it with `origin`.
    DecrementTtl { origin: PacketInOrigin, gate: Rc<Gate> },
    /// Pass a meter, which may end the frame here.
    Meter { meter: Arc<Meter>, gate: Rc<Gate> },
    /// Set the TTL or hop limit.
    SetTtl(u8),
    /// Count a frame of a group.
    Group { group: Arc<Group>, reached: Tally },
    /// Run the next `len` steps as a bucket, on a copy with headers of its own if `isolated`.
    Bucket { bucket: BucketRef, isolated: bool, len: usize },
    /// Run one of the next buckets, picked by the hash of the flow; `len` steps in all.
    Select { arms: Box<[Arm]>, shares: Shares, len: usize },
    /// Submit a copy to the tables, as one output of several. `tags` were moved before.
    Tables { tags: TagMoves, program: Box<Program> },
    /// Continue with the program for the frame's current DSCP, one for each that a meter may have
    /// set. `tags` were moved before.
    ByDscp { tags: TagMoves, arms: Box<[(u8, Program)]> },
    /// Drop under a name.
    Drop(DropReason),
}

/// Sums of the weights of an [`Op::Select`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    /// Of all buckets.
    pub(crate) all: u32,
    /// Of those that are live.
    pub(crate) live: u32,
    /// Number of selections before this one. The hash has already decided those, so it is mixed as
    /// many times; otherwise each arm would lead to one arm only.
    pub(crate) level: u8,
}

/// One live bucket of a [`Op::Select`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    pub(crate) weight: u32,
    /// Among the shares of all buckets, the arm owns the `weight` shares below this bound.
    pub(crate) up_to: u32,
    pub(crate) live_up_to: u32,
    /// Start of its steps behind the select step.
    pub(crate) start: usize,
    /// End of its steps.
    pub(crate) end: usize,
}

/// The arm for a flow with this hash.
pub(crate) fn pick_arm(arms: &[Arm], shares: Shares, hash: u32) -> Option<&Arm> {
    let hash = (0..shares.level).fold(hash, |hash, _| mix(hash));
    let share = hash.checked_rem(shares.all)?;
    let own = arms.iter().find(|arm| share < arm.up_to && arm.up_to - share <= arm.weight);
    own.or_else(|| {
        // Other bits of the hash, so that the flows of one bucket spread over all others.
        let share = (hash / shares.all).checked_rem(shares.live)?;
        arms.iter().find(|arm| share < arm.live_up_to)
    })
}

/// Other bits, evenly distributed and the same on all switches: the finalizer of MurmurHash3.
fn mix(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

impl Op {
    /// The port that the step sends to, if it is a particular one.
    pub(crate) fn port(&self) -> Option<&Arc<Port>> {
        match self {
            Self::Output(outlet) | Self::OutputPart(outlet) => Some(&outlet.port),
            Self::BucketOutput { outlet, .. } => Some(&outlet.port),
            _ => None,
        }
    }
}

/// As [`Program::flush`], for steps that belong to `bucket`.
///
/// What a bucket processed is added before what it delivered: a reader in between sees copies in
/// flight instead of more deliveries than copies.
fn flush(ops: &[Op], worker: WorkerIndex, now: Millis, bucket: Option<&GroupBucket>) {
    let mut rest = ops;
    while let [op, tail @ ..] = rest {
        rest = tail;
        match op {
            Op::Output(outlet) | Op::OutputPart(outlet) => outlet.flush(worker, now, bucket),
            Op::BucketOutput { bucket, outlet } if !outlet.sent.is_empty() => {
                let bucket = bucket.bucket();
                bucket.counters.add(worker, outlet.sent.sum(), now);
                outlet.flush(worker, now, Some(bucket));
            }
            Op::Flood(outlets) | Op::Normal { outlets, .. } => outlets.flush(worker, now),
            Op::Group { group, reached } if !reached.is_empty() => {
                group.counters.add(worker, reached.take(), now);
            }
            Op::Bucket { bucket, len, .. } => {
                let (body, behind) = tail.split_at(*len);
                flush(body, worker, now, Some(bucket.bucket()));
                rest = behind;
            }
            Op::Tables { program, .. } => program.flush(worker, now),
            Op::ByDscp { arms, .. } => {
                let used = arms.iter().filter(|(_, program)| !program.run.is_empty());
                used.for_each(|(_, program)| program.flush(worker, now));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arms with these weights, some of them not live.
    fn arms(weights: &[(u32, bool)]) -> (Vec<Arm>, Shares) {
        let (mut arms, mut shares) = (Vec::new(), Shares::default());
        for (index, (weight, is_live)) in weights.iter().enumerate() {
            shares.all += weight;
            if *is_live {
                shares.live += weight;
                let (up_to, live_up_to) = (shares.all, shares.live);
                arms.push(Arm { weight: *weight, up_to, live_up_to, start: index, end: index });
            }
        }
        (arms, shares)
    }

    fn picks(weights: &[(u32, bool)]) -> Vec<Option<usize>> {
        let (arms, shares) = arms(weights);
        let hashes = (0..3000_u32).map(|hash| hash.wrapping_mul(0x9e37_79b9));
        hashes.map(|hash| Some(pick_arm(&arms, shares, hash)?.start)).collect()
    }

    #[test]
    fn only_the_flows_of_a_bucket_that_goes_move() {
        let before = picks(&[(1, true), (2, true), (0, true), (1, true)]);
        let after = picks(&[(1, true), (2, false), (0, true), (1, true)]);
        let count = |picks: &[Option<usize>], arm| picks.iter().filter(|p| **p == arm).count();
        for (arm, share) in [(0, 750), (1, 1500), (3, 750)] {
            assert!(count(&before, Some(arm)).abs_diff(share) < 150, "{arm}");
        }
        assert_eq!((count(&before, Some(2)), count(&after, Some(2))), (0, 0), "without weight");
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == Some(1));
        }
        for arm in [0, 3] {
            assert!(count(&after, Some(arm)).abs_diff(1500) < 200, "{arm}");
        }
        assert_eq!(count(&picks(&[(1, false), (1, false)]), None), 3000);
    }
}
