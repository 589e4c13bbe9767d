//! The walk through the tables: from a flow key to a program.
//!
//! The walk follows OpenFlow 1.3.5 §5.1: match in table 0, apply, write, go to a later table, and
//! at the end execute the action set. It happens once per flow and epoch. It maintains three keys:
//!
//! - the *current* key: the fields as the actions so far have left them; later tables match on it;
//! - the *written* mask: bits of the current key that an action has set, so that they no longer
//!   depend on the received frame;
//! - the *consulted* mask: bits of the original key that the outcome depends on.
//!
//! A bit that a table matches is consulted unless it was written. Pushing and popping moves tags
//! between positions, so once they have moved, matching one consults all. The key holds the first
//! few tags; an outcome that depends on a tag beyond these is valid for this frame only.

mod remark;

use std::cell::Cell;
use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;

use tapswitch_openflow::{
    Action, Bucket, GroupId, GroupType, Instruction, Oxm, PacketInReason, PortConfig, PortNo,
    TableId,
};
use tapswitch_wire::{EtherType, FRAGMENT, FlowKey, MAX_KEY_TAGS, MacAddr, TAG_DEEPER, Tag};

use crate::action_set::ActionSet;
use crate::field::{MatchKey, presence};
use crate::group::{BucketRef, Group, GroupBucket, MAX_DEPTH};
use crate::outlet::{Outlet, Outlets};
use crate::pipeline::Snapshot;
use crate::port::Port;
use crate::program::{Arm, Gate, Op, Program, Shares, TagMoves, Walked};
use crate::rewrite::pushed_tag;
use crate::table::{FlowEntry, TableCounters};
use crate::tally::Tally;
use crate::{DropReason, Frame, PacketInOrigin};

/// Walks the tables for a frame with `key`. `outlets` belong to the ports of `snapshot`.
pub(crate) fn compile(
    snapshot: &Snapshot,
    outlets: &Rc<Outlets>,
    key: &FlowKey,
    frame: &Frame<'_>,
) -> Walked {
    let mut walk = Walk::new(snapshot, outlets, key, frame);
    walk.arrival = walk.in_port().cloned();
    match walk.check_ingress() {
        true => {}
        false if snapshot.standalone => walk.ops.push(walk.normal()),
        false => walk.tables(),
    }
    walk.finish()
}

/// Compiles the actions of a packet-out for a packet with `key`, which was not received by a port.
pub(crate) fn compile_actions(
    snapshot: &Snapshot,
    outlets: &Rc<Outlets>,
    actions: &[Action],
    key: &FlowKey,
    frame: &Frame<'_>,
) -> Walked {
    let mut walk = Walk::new(snapshot, outlets, key, frame);
    walk.apply(actions, 0, true);
    walk.finish()
}

struct Walk<'a, 'b> {
    snapshot: &'a Snapshot,
    outlets: &'a Rc<Outlets>,
    frame: &'a Frame<'b>,
    current: FlowKey,
    written: FlowKey,
    consulted: FlowKey,
    tags_moved: bool,
    /// Tags that were pushed out of the key by others, the last one last.
    fallen: Vec<Tag>,
    /// Number of popped tags of the original frame.
    popped: usize,
    /// Number of pushed tags in front of the remaining original ones.
    pushed: usize,
    cacheable: bool,
    /// DSCPs that the frame may have after meters with remark bands; empty if only one is possible.
    dscps: Vec<u8>,
    /// Number of enclosing arms for a DSCP.
    forks: usize,
    action_set: ActionSet,
    /// Reason, table and cookie for packet-ins.
    source: Source,
    /// Bytes of each packet that the enclosing buckets keep; `None` for all.
    snaplen: Option<u16>,
    /// Remaining number of actions and buckets: see [`STEP_COUNT_MAX`].
    left: usize,
    /// Number of enclosing groups of type SELECT.
    selects: u8,
    ops: Vec<Op>,
    arrival: Option<Arc<Port>>,
    rules: Vec<Arc<FlowEntry>>,
    missed: Option<Arc<TableCounters>>,
    gates: Vec<Rc<Gate>>,
}

#[derive(Clone, Copy)]
struct Source {
    reason: PacketInReason,
    table_id: TableId,
    cookie: u64,
}

impl<'a, 'b> Walk<'a, 'b> {
    fn new(
        snapshot: &'a Snapshot,
        outlets: &'a Rc<Outlets>,
        key: &FlowKey,
        frame: &'a Frame<'b>,
    ) -> Self {
        // Every output depends on the ingress port, so it is always consulted.
        let consulted = FlowKey { in_port: [0xff; 4], ..FlowKey::default() };
        let (reason, table_id, cookie) = (PacketInReason::ACTION, TableId(0), NO_COOKIE);
        let source = Source { reason, table_id, cookie };
        Self {
            snapshot,
            outlets,
            frame,
            current: *key,
            written: FlowKey::default(),
            consulted,
            tags_moved: false,
            fallen: Vec::new(),
            popped: 0,
            pushed: 0,
            cacheable: true,
            dscps: Vec::new(),
            forks: 0,
            action_set: ActionSet::default(),
            source,
            snaplen: None,
            left: STEP_COUNT_MAX,
            selects: 0,
            ops: Vec::new(),
            arrival: None,
            rules: Vec::new(),
            missed: None,
            gates: Vec::new(),
        }
    }

    /// Ends the walk at once if the ingress port does not accept frames.
    fn check_ingress(&mut self) -> bool {
        let refused = self.in_port().is_some_and(|port| port.refuses_ingress());
        if refused {
            self.ops.push(Op::Drop(DropReason::PortNoReceive));
        }
        refused
    }

    fn in_port(&self) -> Option<&'a Arc<Port>> {
        self.snapshot.ports.find(PortNo(self.current.in_port()))
    }

    /// Nothing follows the tables.
    fn tables(&mut self) {
        if self.snapshot.drops_fragments && self.is_fragment() {
            return self.ops.push(Op::Drop(DropReason::Fragment));
        }
        self.tables_from(TableId(0));
    }

    fn is_fragment(&mut self) -> bool {
        self.consult(&FlowKey { fragment: FRAGMENT, ..FlowKey::default() });
        self.current.fragment & FRAGMENT != 0
    }

    fn tables_from(&mut self, first: TableId) {
        let mut next = Some(first);
        while let Some(id) = next {
            let Some(table) = self.snapshot.table(id) else {
                break;
            };
            let mut looked_at = FlowKey::default();
            let found = table.lookup(&self.current, &mut looked_at).cloned();
            if self.is_undecided(&looked_at) {
                return self.fork(id);
            }
            self.consult(&looked_at);
            let Some(rule) = found else {
                self.missed = Some(table.counters().clone());
                self.ops.push(Op::Drop(DropReason::TableMiss));
                return;
            };
            self.rules.push(rule.clone());
            next = self.rule(&rule);
        }
        self.run_action_set();
    }

    /// Executes one rule's instructions, in the order of OpenFlow 1.3.5 §5.9. Returns the table to
    /// go to.
    fn rule(&mut self, rule: &FlowEntry) -> Option<TableId> {
        let reason =
            if rule.is_table_miss() { PacketInReason::NO_MATCH } else { PacketInReason::ACTION };
        self.source = Source { reason, table_id: rule.table_id, cookie: rule.cookie };
        let mut next = None;
        if let Some(meter) = rule.meter() {
            self.meter(meter);
        }
        for instruction in rule.instructions.iter() {
            if let Instruction::ApplyActions(actions) = instruction {
                self.apply(actions, 0, false);
            }
        }
        if rule.instructions.contains(&Instruction::ClearActions) {
            self.action_set = ActionSet::default();
        }
        for instruction in rule.instructions.iter() {
            match instruction {
                Instruction::WriteActions(actions) => self.action_set.merge(actions),
                Instruction::WriteMetadata { metadata, mask } => {
                    self.write_metadata(*metadata, *mask);
                }
                Instruction::GotoTable(table) => next = Some(*table),
                _ => {}
            }
        }
        next
    }

    /// Several rules may have written the set: what it sends to the controller has no rule's cookie
    /// (OpenFlow 1.3.5 §7.4.1), and is not a table miss.
    fn run_action_set(&mut self) {
        let (reason, cookie) = (PacketInReason::ACTION, NO_COOKIE);
        self.source = Source { reason, cookie, ..self.source };
        let actions = take(&mut self.action_set).into_actions();
        self.apply(&actions, 0, true);
    }

    fn finish(mut self) -> Walked {
        let program = self.program();
        Walked { program, mask: self.cacheable.then_some(self.consulted) }
    }

    /// Builds the program from the collected steps.
    fn program(&mut self) -> Program {
        if !self.ops.iter().any(Op::is_exit) {
            self.ops.push(Op::Drop(DropReason::NoOutput));
        }
        let goes_on = self.rules.len() + usize::from(self.missed.is_some());
        self.gates.retain(|gate| gate.rule_count < goes_on);
        Program {
            ends: Cell::default(),
            wants_hash: self.ops.iter().any(Op::wants_hash),
            run: Tally::default(),
            ops: take(&mut self.ops).into(),
            arrival: self.arrival.take(),
            rules: take(&mut self.rules).into(),
            missed: self.missed.take(),
            gates: take(&mut self.gates).into(),
        }
    }

    /// Executes actions in order. `is_last` is true if nothing follows them; `depth` is the number
    /// of enclosing groups.
    fn apply(&mut self, actions: &[Action], depth: usize, is_last: bool) {
        for (index, action) in actions.iter().enumerate() {
            if !self.spend() {
                return;
            }
            let is_last = is_last && index + 1 == actions.len();
            match action {
                Action::Output { port: PortNo::TABLE, .. } => self.submit(is_last),
                Action::Output { port, max_len } => self.output(*port, *max_len),
                Action::Group(id) => self.group(*id, depth, is_last),
                Action::SetField(field) => self.set_field(field),
                Action::PushVlan(tpid) => self.push_tag(*tpid),
                Action::PopVlan => self.pop_tag(),
                Action::SetNwTtl(ttl) => self.ops.push(Op::SetTtl(*ttl)),
                Action::DecNwTtl => self.decrement_ttl(depth),
                // A contract or a shape, which the bucket holds: it does nothing to the frame here.
                Action::Experimenter { .. } => {}
                // Refused when the rule was added.
                _ => self.ops.push(Op::Drop(DropReason::BadAction)),
            }
        }
    }

    /// Submits a packet of the controller to the tables. As to any output, that is a copy (OpenFlow
    /// 1.3.5 §5.11): what becomes of it in there does not concern the actions that follow, if any.
    fn submit(&mut self, is_last: bool) {
        if is_last {
            return self.tables();
        }
        let tags = self.tag_moves();
        let program = Box::new(self.apart(Self::tables));
        self.ops.push(Op::Tables { tags, program });
    }

    /// The steps of `walk` as a program of their own. Afterwards, everything is as before.
    fn apart(&mut self, walk: impl FnOnce(&mut Self)) -> Program {
        let saved = (self.current, self.written, self.tags_moved, self.popped, self.pushed);
        let (fallen, action_set) = (self.fallen.clone(), self.action_set.clone());
        let (dscps, source) = (self.dscps.clone(), self.source);
        let around = (take(&mut self.ops), take(&mut self.rules), take(&mut self.gates));
        let (missed, arrival) = (self.missed.take(), self.arrival.take());
        walk(self);
        let program = self.program();
        (self.current, self.written, self.tags_moved, self.popped, self.pushed) = saved;
        (self.fallen, self.action_set) = (fallen, action_set);
        (self.dscps, self.source) = (dscps, source);
        (self.ops, self.rules, self.gates) = around;
        (self.missed, self.arrival) = (missed, arrival);
        program
    }

    /// In a group, an expired TTL ends the bucket's copy only.
    fn decrement_ttl(&mut self, depth: usize) {
        let len = self.snapshot.miss_send_len;
        let origin = self.origin(PacketInReason::INVALID_TTL, len);
        let gate = self.gate();
        if depth == 0 {
            self.gates.push(gate.clone());
        }
        self.ops.push(Op::DecrementTtl { origin, gate });
    }

    /// The meter exists: rules are deleted with it.
    fn meter(&mut self, id: u32) {
        let Some(meter) = self.snapshot.meters.find(id) else {
            return;
        };
        let gate = self.gate();
        self.gates.push(gate.clone());
        self.ops.push(Op::Meter { meter: meter.clone(), gate });
        self.note_remarks(meter);
    }

    fn gate(&self) -> Rc<Gate> {
        Rc::new(Gate {
            rule_count: self.rules.len(),
            tags: self.tag_moves(),
            ended: Tally::default(),
        })
    }

    fn tag_moves(&self) -> TagMoves {
        TagMoves { pushed: self.pushed, popped: self.popped }
    }

    /// Accounts for one more step. Returns `false`, and drops, if there are too many.
    fn spend(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            self.ops.push(Op::Drop(DropReason::TooDeep));
            return false;
        };
        self.left = left;
        true
    }

    fn output(&mut self, port: PortNo, max_len: u16) {
        let in_port = PortNo(self.current.in_port());
        let op = match port {
            PortNo::CONTROLLER => self.controller(max_len),
            PortNo::FLOOD | PortNo::ALL => Op::Flood(self.outlets.clone()),
            PortNo::NORMAL => self.normal(),
            PortNo::IN_PORT => self.output_to(in_port),
            port if port == in_port => Op::Drop(DropReason::InputPort),
            port => self.output_to(port),
        };
        self.ops.push(op);
    }

    /// A port with `OFPPC_NO_PACKET_IN` withholds packet-ins of the table-miss entry (OpenFlow
    /// 1.3.5 §7.2.1).
    fn controller(&mut self, max_len: u16) -> Op {
        let is_miss = self.source.reason == PacketInReason::NO_MATCH;
        let is_kept = |port: &Arc<Port>| port.config.contains(PortConfig::NO_PACKET_IN);
        if is_miss && self.in_port().is_some_and(is_kept) {
            return Op::Drop(DropReason::PortNoPacketIn);
        }
        let origin = self.origin(self.source.reason, max_len);
        Op::Controller(PacketInOrigin { snaplen: self.snaplen, ..origin })
    }

    /// The origin of a packet-in here. It is the same for all frames of the program, so everything
    /// that it contains is consulted.
    fn origin(&mut self, reason: PacketInReason, max_len: u16) -> PacketInOrigin {
        let (metadata, tunnel_id) = ([0xff; 8], [0xff; 8]);
        self.consult(&FlowKey { metadata, tunnel_id, ..FlowKey::default() });
        let Source { table_id, cookie, .. } = self.source;
        PacketInOrigin {
            reason,
            in_port: PortNo(self.current.in_port()),
            table_id,
            cookie,
            max_len,
            snaplen: None,
            metadata: u64::from_be_bytes(self.current.metadata),
            tunnel_id: u64::from_be_bytes(self.current.tunnel_id),
        }
    }

    fn output_to(&self, number: PortNo) -> Op {
        match self.snapshot.ports.find(number) {
            None => Op::Drop(DropReason::NoSuchPort),
            // A port that is down is kept as an output, which refuses, so that the drop counts
            // there.
            Some(port) if self.snaplen.is_some() => Op::OutputPart(Outlet::new(port)),
            Some(port) => Op::Output(Outlet::new(port)),
        }
    }

    fn normal(&self) -> Op {
        Op::Normal { outlets: self.outlets.clone(), learns: self.in_port().is_some() }
    }

    fn group(&mut self, id: GroupId, depth: usize, is_last: bool) {
        if depth >= MAX_DEPTH {
            return self.ops.push(Op::Drop(DropReason::TooDeep));
        }
        let snapshot = self.snapshot;
        let Some(group) = snapshot.groups.find(id) else {
            return self.ops.push(Op::Drop(DropReason::NoSuchGroup));
        };
        let live = (0..).zip(&group.buckets);
        let live = live.filter(|(_, b)| snapshot.groups.is_live(&b.spec, &snapshot.ports));
        let mut live: Vec<(u32, &Bucket)> = live.map(|(index, b)| (index, &b.spec)).collect();
        if matches!(group.kind, GroupType::FastFailover | GroupType::Indirect) {
            live.truncate(1);
        }
        self.ops.push(Op::Group { group: group.clone(), reached: Tally::default() });
        if live.is_empty() {
            return self.ops.push(Op::Drop(DropReason::NoLiveBucket));
        }
        match group.kind {
            GroupType::Select => self.select(group, &live, depth),
            _ => self.buckets(group, &live, depth, is_last),
        }
    }

    /// Every bucket runs on the frame as it was when the group was reached, and what follows the
    /// group uses that frame too. So a bucket that rewrites gets headers of its own, unless the
    /// frame is not used after it.
    fn buckets(
        &mut self,
        group: &Arc<Group>,
        buckets: &[(u32, &Bucket)],
        depth: usize,
        is_last: bool,
    ) {
        for (position, &(index, _)) in buckets.iter().enumerate() {
            if self.left == 0 {
                return self.ops.push(Op::Drop(DropReason::TooDeep));
            }
            let is_last = is_last && position + 1 == buckets.len();
            self.bucket(group, index, depth, is_last);
        }
    }

    fn bucket(&mut self, group: &Arc<Group>, index: u32, depth: usize, is_last: bool) {
        let saved = (self.current, self.written, self.tags_moved, self.popped, self.pushed);
        let (fallen, dscps) = (self.fallen.clone(), self.dscps.clone());
        let (place, around, source) = (self.ops.len(), self.snaplen, self.source);
        // The cookie stays that of the rule, as in Open vSwitch, so that copies can be told apart.
        self.source.reason = PacketInReason::ACTION;
        let GroupBucket { spec, snaplen, sampler, .. } = &group.buckets[index as usize];
        self.snaplen = snaplen.iter().chain(&around).min().copied();
        if self.spend() {
            self.apply(&spec.actions, depth + 1, is_last);
        }
        let snaplen = self.snaplen.map_or(0, u32::from);
        let bucket = BucketRef { group: group.clone(), index, snaplen };
        let mut body = self.ops.split_off(place);
        match (body.pop(), body.is_empty() && sampler.is_none()) {
            (Some(Op::Output(outlet)), true) => self.ops.push(Op::BucketOutput { bucket, outlet }),
            (last, _) => {
                body.extend(last);
                if !body.iter().any(Op::is_exit) {
                    body.push(Op::Drop(DropReason::NoOutput));
                }
                let isolated = body.iter().any(Op::rewrites) && !is_last;
                self.ops.push(Op::Bucket { bucket, isolated, len: body.len() });
                self.ops.append(&mut body);
            }
        }
        (self.current, self.written, self.tags_moved, self.popped, self.pushed) = saved;
        (self.fallen, self.dscps) = (fallen, dscps);
        (self.snaplen, self.source) = (around, source);
    }

    /// Each bucket owns a share of all hashes, live or not, so that the flows of the others stay
    /// where they are when one fails. Its own flows are spread over the live ones.
    fn select(&mut self, group: &Arc<Group>, live: &[(u32, &Bucket)], depth: usize) {
        // Buckets without weight are never picked (OpenFlow 1.3.5 §7.3.4.2).
        if live.iter().all(|(_, bucket)| bucket.weight == 0) {
            return self.ops.push(Op::Drop(DropReason::NoLiveBucket));
        }
        let place = self.ops.len();
        self.ops.push(Op::Select { arms: Box::default(), shares: Shares::default(), len: 0 });
        let mut shares = Shares { level: self.selects, ..Shares::default() };
        self.selects += 1;
        let mut placed = Vec::with_capacity(live.len());
        for (index, bucket) in (0..).zip(&group.buckets) {
            let weight = u32::from(bucket.spec.weight);
            shares.all += weight;
            if live.iter().any(|(live, _)| *live == index) {
                shares.live += weight;
                let start = self.ops.len() - place - 1;
                self.bucket(group, index, depth, false);
                let end = self.ops.len() - place - 1;
                placed.push(Arm { weight, up_to: shares.all, live_up_to: shares.live, start, end });
            }
        }
        self.selects -= 1;
        let end = self.ops.len();
        if let Op::Select { arms, shares: sums, len } = &mut self.ops[place] {
            (*arms, *sums, *len) = (placed.into(), shares, end - place - 1);
        }
    }

    /// A frame without the field stays unchanged, and so does its key.
    fn set_field(&mut self, field: &Oxm) {
        let (is_there, looked_at) = presence(field, &self.current);
        self.consult(&looked_at);
        if !is_there {
            return;
        }
        if matches!(field, Oxm::IpDscp(_)) {
            self.dscps.clear();
        }
        let mut set = MatchKey::default();
        if set.add(field).is_ok() {
            // Setting its identifier does not change a tag's presence.
            set.mask.tags_present = 0;
            overwrite(&mut self.current, &set.value, &set.mask);
            self.written.unite(&set.mask);
        }
        if !matches!(field, Oxm::TunnelId(_)) {
            self.ops.push(Op::SetField(field.clone()));
        }
    }

    fn write_metadata(&mut self, metadata: u64, mask: u64) {
        let value = FlowKey { metadata: metadata.to_be_bytes(), ..FlowKey::default() };
        let mask = FlowKey { metadata: mask.to_be_bytes(), ..FlowKey::default() };
        overwrite(&mut self.current, &value, &mask);
        self.written.unite(&mask);
    }

    fn push_tag(&mut self, tpid: EtherType) {
        self.move_tags();
        let tag = pushed_tag(tpid, self.current.outer_tag());
        // A fifth tag pushes one out of the key.
        let last = self.current.tags[MAX_KEY_TAGS - 1];
        if !self.current.push_tag(tag) {
            self.fallen.push(last);
        }
        self.pushed += 1;
        self.ops.push(Op::PushTag(tpid));
    }

    /// A frame without a tag stays unchanged, as in Open vSwitch; OpenFlow does not define this.
    fn pop_tag(&mut self) {
        self.move_tags();
        if self.current.tag_count() == 0 {
            return;
        }
        match self.pushed.checked_sub(1) {
            Some(pushed) => self.pushed = pushed,
            None => self.popped += 1,
        }
        if !self.current.pop_tag() {
            self.refill_last_tag();
        }
        self.ops.push(Op::PopTag);
    }

    /// Finds the tag that moves into the key's last position: one that was pushed out of it, or the
    /// frame's next one.
    fn refill_last_tag(&mut self) {
        let next = self.popped + MAX_KEY_TAGS;
        let tag = self.fallen.pop().or_else(|| self.frame.tag(next - 1));
        if let Some(tag) = tag {
            self.current.tags[MAX_KEY_TAGS - 1] = tag;
            self.current.tags_present |= 1 << (MAX_KEY_TAGS - 1);
        }
        if !self.fallen.is_empty() || next < usize::from(self.frame.layout().tags) {
            self.current.tags_present |= TAG_DEEPER;
        }
    }

    /// From here on, matching a tag depends on all of them. The move itself depends on the
    /// outermost one.
    fn move_tags(&mut self) {
        self.tags_moved = true;
        self.consult(&ALL_TAGS);
    }

    /// True if the original key does not determine the tag that is outermost now, not even whether
    /// it exists. No other tag is ever matched.
    fn is_outermost_unknown(&self) -> bool {
        let had_more = usize::from(self.frame.layout().tags) > MAX_KEY_TAGS;
        had_more && self.pushed == 0 && self.popped >= MAX_KEY_TAGS
    }

    fn consult(&mut self, looked_at: &FlowKey) {
        let mut original = *looked_at;
        let words = original.words_mut().iter_mut().zip(self.written.words());
        words.for_each(|(word, written)| *word &= !written);
        let looks_at_tags = looked_at.masked(&ALL_TAGS) != FlowKey::default();
        if self.tags_moved && looks_at_tags {
            original.unite(&ALL_TAGS);
            self.cacheable &= !self.is_outermost_unknown();
        }
        self.consulted.unite(&original);
    }
}

impl Op {
    /// True if a frame may leave by this step, or is dropped by it.
    fn is_exit(&self) -> bool {
        matches!(
            self,
            Self::Output(_)
                | Self::BucketOutput { .. }
                | Self::OutputPart(_)
                | Self::Flood(_)
                | Self::Normal { .. }
                | Self::Controller { .. }
                | Self::Tables { .. }
                | Self::ByDscp { .. }
                | Self::Drop(_)
        )
    }

    /// Whether it depends on the hash of the flow.
    fn wants_hash(&self) -> bool {
        match self {
            Self::Select { .. } => true,
            Self::Tables { program, .. } => program.wants_hash,
            Self::ByDscp { arms, .. } => arms.iter().any(|(_, program)| program.wants_hash),
            _ => false,
        }
    }

    fn rewrites(&self) -> bool {
        matches!(
            self,
            Self::SetField(_)
                | Self::PushTag(_)
                | Self::PopTag
                | Self::DecrementTtl { .. }
                | Self::SetTtl(_)
        )
    }
}

fn overwrite(key: &mut FlowKey, value: &FlowKey, mask: &FlowKey) {
    for ((word, value), mask) in key.words_mut().iter_mut().zip(value.words()).zip(mask.words()) {
        *word = *word & !mask | value & mask;
    }
}

/// Actions and buckets that a walk executes: as many actions as one message can hold, so that it
/// never limits a single rule or group. Without it, groups that chain to groups would multiply
/// their steps beyond all memory.
const STEP_COUNT_MAX: usize = 8192;
/// The cookie of a packet-in that no rule sends (OpenFlow 1.3.5 §7.4.1).
const NO_COOKIE: u64 = u64::MAX;
/// Every bit of every tag.
const ALL_TAGS: FlowKey = FlowKey {
    metadata: [0; 8],
    tunnel_id: [0; 8],
    in_port: [0; 4],
    eth_type: [0; 2],
    ip_proto: 0,
    ip_tos: 0,
    eth_dst: MacAddr::ZERO,
    eth_src: MacAddr::ZERO,
    l4_src: [0; 2],
    l4_dst: [0; 2],
    tags: [Tag { tpid: [0xff; 2], tci: [0xff; 2] }; MAX_KEY_TAGS],
    ip_src: [0; 16],
    ip_dst: [0; 16],
    flow_label: [0; 4],
    tags_present: 0xff,
    fragment: 0,
    arp_op: [0; 2],
    arp_sha: MacAddr::ZERO,
    arp_tha: MacAddr::ZERO,
    nd_target: [0; 16],
    reserved_tail: [0; 4],
};
