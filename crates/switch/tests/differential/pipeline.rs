//! Random pipelines: groups that refer to each other, and rules in several tables.

use tapswitch_openflow::OxmField::*;
use tapswitch_openflow::{
    Action, Body, Bucket, FlowMod, FlowModCommand, FlowModFlags, GroupId, GroupMod,
    GroupModCommand, GroupType, Instruction, Match, PacketOut, PortNo, TableId,
};
use tapswitch_wire::EtherType;

use crate::fields::{Kind, Matched, value};
use crate::known;
use crate::random::Random;

/// A controller's messages.
pub(crate) struct Made {
    /// Those that set up a pipeline, in order.
    pub(crate) messages: Vec<Body>,
    /// Those for later: changes, and packet-outs without data.
    pub(crate) meanwhile: Vec<Body>,
}

pub(crate) fn pipeline(random: &mut Random) -> Made {
    let mut pipeline = Pipeline { random, pushes: 0, has_pushed: false, priority: 0, last: None };
    // Groups are added before those that refer to them.
    let groups = (1..=GROUP_COUNT).rev().map(GroupId);
    let groups = groups.map(|id| pipeline.group(id, GroupModCommand::Add));
    let mut messages: Vec<_> = groups.collect();
    // Many pipelines have table-miss rules.
    for table in 0..TABLES {
        if pipeline.random.chance(80) {
            messages.push(Body::FlowMod(pipeline.miss(table)));
        }
    }
    for _ in 0..pipeline.random.pick(&[4, 10, 20]) {
        messages.push(pipeline.modification());
    }
    let changes = pipeline.random.pick(&[0, 0, 1, 2, 4]);
    let packets = pipeline.random.pick(&[0, 0, 1, 3]);
    let changes = (0..changes).map(|_| pipeline.modification()).collect::<Vec<_>>();
    let packets = (0..packets).map(|_| pipeline.packet()).collect::<Vec<_>>();
    Made { messages, meanwhile: changes.into_iter().chain(packets).collect() }
}

/// A flow-mod or group-mod for any state.
pub(crate) fn modification(random: &mut Random) -> Body {
    let priority = u16::try_from(random.below(60)).unwrap();
    let mut pipeline = Pipeline { random, pushes: 0, has_pushed: false, priority, last: None };
    match pipeline.random.chance(30) {
        true => {
            let id = pipeline.some_group();
            pipeline.group(id, GroupModCommand::Add)
        }
        false => pipeline.modification(),
    }
}

/// A group of type SELECT with several buckets, to which others refer and which refers to none.
pub(crate) fn select(random: &mut Random) -> GroupMod {
    let mut pipeline = Pipeline { random, pushes: 1, has_pushed: false, priority: 0, last: None };
    let group_id = GroupId(GROUP_COUNT);
    let count = pipeline.random.pick(&[2, 3, 4]);
    let buckets = (0..count).map(|_| {
        let weight = pipeline.random.pick(&[0, 1, 1, 3]);
        let watch_port = pipeline.random.pick(&[PortNo::ANY, PortNo(1), PortNo(3), PortNo(4)]);
        let bucket = pipeline.bucket(group_id, GroupType::Select);
        Bucket { weight, watch_port, ..bucket }
    });
    let (command, group_type) = (GroupModCommand::Add, GroupType::Select);
    GroupMod { command, group_type, group_id, buckets: buckets.collect() }
}

struct Pipeline<'a> {
    random: &'a mut Random,
    /// Tags pushed so far, for which Open vSwitch has little room.
    pushes: usize,
    /// Whether this rule or bucket pushes one: Open vSwitch refuses two if it knows of one before.
    has_pushed: bool,
    /// The last priority used: if two rules match at one priority, either may be taken.
    priority: u16,
    /// The last flow-mod that added a rule, which may be repeated.
    last: Option<FlowMod>,
}

impl Pipeline<'_> {
    fn modification(&mut self) -> Body {
        match self.random.below(100) {
            0..76 => self.add(),
            76..86 => self.modify(),
            86..94 => self.delete(),
            _ => {
                let id = self.some_group();
                self.group(id, GroupModCommand::Modify)
            }
        }
    }

    /// If several rules of one priority match, either may be taken, so overlap is checked.
    fn add(&mut self) -> Body {
        let again = self.last.clone().filter(|_| self.random.chance(5));
        let mut add = again.unwrap_or_else(|| self.rule());
        let mut flags = self.random.pick(FLAGS);
        if self.random.chance(10) {
            add.priority = 1 + u16::try_from(self.random.below(self.priority.into())).unwrap();
            flags |= FlowModFlags::CHECK_OVERLAP;
        } else {
            self.last = Some(add.clone());
        }
        Body::FlowMod(FlowMod { cookie: self.random.pick(&[0, 1, 2, 0x10]), flags, ..add })
    }

    /// A packet-out, still without data.
    fn packet(&mut self) -> Body {
        self.has_pushed = false;
        let mut actions = self.actions(Kind::UNKNOWN, &mut false);
        if self.random.chance(50) {
            actions.push(Action::output(PortNo::TABLE));
        }
        let in_port = self.random.pick(&[PortNo(1), PortNo(2), PortNo(4), PortNo::CONTROLLER]);
        Body::PacketOut(PacketOut { in_port, ..PacketOut::new(Vec::new(), actions) })
    }

    fn rule(&mut self) -> FlowMod {
        let matched = Matched::random(self.random);
        let table = self.random.pick(&[0, 0, 0, 1, 2, 3]);
        let instructions = self.instructions(&matched, table);
        self.priority += 1;
        FlowMod {
            table_id: TableId(table),
            priority: self.priority,
            match_fields: matched.matching,
            instructions,
            ..FlowMod::new(FlowModCommand::Add)
        }
    }

    /// The table-miss rule of a table.
    fn miss(&mut self, table: u8) -> FlowMod {
        let onwards = Instruction::GotoTable(TableId(table + 1));
        let instructions = match self.random.below(4) {
            0 => vec![Instruction::ApplyActions(vec![self.controller()])],
            1..3 if table + 1 < TABLES => vec![onwards],
            _ => Vec::new(),
        };
        let table_id = TableId(table);
        FlowMod { table_id, priority: 0, instructions, ..FlowMod::new(FlowModCommand::Add) }
    }

    fn modify(&mut self) -> Body {
        let command = self.random.pick(&[FlowModCommand::Modify, FlowModCommand::ModifyStrict]);
        let matched = Matched::random(self.random);
        let table = self.random.pick(&[0, 1, 2, 3]);
        let match_fields = self.start_of(&matched.matching);
        let known = Matched { matching: Match::new(), kind: Kind::UNKNOWN, is_tagged: false };
        Body::FlowMod(FlowMod {
            table_id: TableId(table),
            priority: self.random.pick(&[0, 1, 5]),
            cookie: self.random.pick(&[0, 1]),
            cookie_mask: self.random.pick(&[0, 0, 1, 3]),
            flags: self.random.pick(&[FlowModFlags::empty(), FlowModFlags::RESET_COUNTS]),
            match_fields,
            instructions: self.instructions(&known, table),
            ..FlowMod::new(command)
        })
    }

    fn delete(&mut self) -> Body {
        let command = self.random.pick(&[FlowModCommand::Delete, FlowModCommand::DeleteStrict]);
        let matched = Matched::random(self.random);
        Body::FlowMod(FlowMod {
            table_id: TableId(self.random.pick(&[0, 1, 2, 255])),
            priority: self.random.pick(&[0, 1, 5]),
            cookie: self.random.pick(&[0, 1]),
            cookie_mask: self.random.pick(&[0, 1]),
            out_port: self.random.pick(&[PortNo::ANY, PortNo::CONTROLLER, PortNo(1)]),
            out_group: self.random.pick(&[GroupId::ANY, GroupId::ANY, GroupId(1)]),
            match_fields: self.start_of(&matched.matching),
            ..FlowMod::new(command)
        })
    }

    /// The first fields of a match; their prerequisites come before them.
    fn start_of(&mut self, matching: &Match) -> Match {
        let count = self.random.below(matching.fields.len() + 1);
        matching.fields[..count].iter().cloned().collect()
    }

    fn instructions(&mut self, matched: &Matched, table: u8) -> Vec<Instruction> {
        let mut instructions = Vec::new();
        self.has_pushed = false;
        let mut is_tagged = matched.is_tagged;
        if self.random.chance(75) {
            let actions = self.actions(matched.kind, &mut is_tagged);
            instructions.push(Instruction::ApplyActions(actions));
        }
        if self.random.chance(10) {
            instructions.push(Instruction::ClearActions);
        }
        if self.random.chance(35) {
            let may_pop = is_tagged;
            let mut actions = self.actions(matched.kind, &mut is_tagged);
            // A set is executed in another order than it is written: a pop comes first.
            actions.retain(|action| may_pop || *action != Action::PopVlan);
            if known::sets_popped_tag(&actions) {
                actions.retain(|action| !known::sets_tag(action));
            }
            self.lead_somewhere(&mut actions);
            instructions.push(Instruction::WriteActions(actions));
        }
        if self.random.chance(20) {
            let metadata = self.random.pick(&[1, 0xff00, 0xffff]);
            let mask = self.random.pick(&[0xffff, 1, u64::MAX]);
            instructions.push(Instruction::WriteMetadata { metadata, mask });
        }
        if self.random.chance(40) && table + 1 < TABLES {
            let left = usize::from(TABLES - table - 1);
            let step = u8::try_from(self.random.below(left)).unwrap();
            instructions.push(Instruction::GotoTable(TableId(table + 1 + step)));
        }
        instructions
    }

    /// Actions for frames of this kind; most of them output or refer to a group.
    fn actions(&mut self, kind: Kind, is_tagged: &mut bool) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..self.random.pick(&[1, 1, 2, 3, 4]) {
            self.add_action(kind, is_tagged, &mut actions);
        }
        if self.random.chance(70) {
            actions.push(self.output());
        }
        actions
    }

    /// Open vSwitch does not even decrement the TTL for a set without output. And a set decrements
    /// it before it sets fields: if it expires, a pushed tag has no values yet.
    fn lead_somewhere(&mut self, actions: &mut Vec<Action>) {
        if actions.iter().any(|it| matches!(it, Action::PushVlan(_))) {
            actions.retain(|it| *it != Action::DecNwTtl);
        }
        let leads = |it: &Action| matches!(it, Action::Output { .. } | Action::Group(_));
        if !actions.iter().any(leads) {
            actions.push(self.output());
        }
    }

    fn add_action(&mut self, kind: Kind, is_tagged: &mut bool, actions: &mut Vec<Action>) {
        match self.random.below(100) {
            0..25 => actions.push(self.output()),
            25..33 if !self.has_pushed && (self.pushes < 1 || self.random.chance(10)) => {
                self.pushes += 1;
                self.has_pushed = true;
                let tpid = self.random.pick(&[EtherType::VLAN, EtherType::SERVICE_VLAN]);
                actions.push(Action::PushVlan(tpid));
                *is_tagged = true;
                actions.extend([VlanVid, VlanPcp].map(|field| self.set(field)));
            }
            33..41 if *is_tagged => {
                actions.push(Action::PopVlan);
                // Open vSwitch lets rules match only one tag.
                *is_tagged = false;
            }
            41..49 if kind.is_ip() => {
                let ttl = Action::SetNwTtl(self.random.pick(&[0, 1, 2, 64]));
                actions.push(self.random.pick(&[Action::DecNwTtl, ttl]));
            }
            49..61 => actions.push(Action::Group(self.some_group())),
            _ => {
                let tag: &[_] = if *is_tagged { &[VlanVid, VlanPcp] } else { &[] };
                let fields = [EthDst, EthSrc, TunnelId].into_iter().chain(tag.iter().copied());
                let fields: Vec<_> = fields.chain(kind.settable()).collect();
                let field = self.random.pick(&fields);
                actions.push(self.set(field));
            }
        }
    }

    fn set(&mut self, field: tapswitch_openflow::OxmField) -> Action {
        Action::SetField(value(self.random, field, false))
    }

    fn some_group(&mut self) -> GroupId {
        GroupId(1 + u32::try_from(self.random.below(5)).unwrap())
    }

    fn output(&mut self) -> Action {
        let ports = [1, 2, 3, 4, 1, 2, 3, 9].map(PortNo);
        let others = [PortNo::IN_PORT, PortNo::CONTROLLER, PortNo::FLOOD, PortNo::ALL];
        let port = match self.random.below(4) {
            0 => self.random.pick(&others),
            _ => self.random.pick(&ports),
        };
        match port {
            PortNo::CONTROLLER => self.controller(),
            port => Action::output(port),
        }
    }

    /// Both send whole packets, whatever is asked for.
    fn controller(&mut self) -> Action {
        let max_len = self.random.pick(&[0, 20, 64, 0xffe5, 0xffff]);
        Action::Output { port: PortNo::CONTROLLER, max_len }
    }

    fn group(&mut self, id: GroupId, command: GroupModCommand) -> Body {
        use GroupType::*;
        let group_type = self.random.pick(&[All, All, Select, Indirect, FastFailover]);
        let count = match group_type {
            Indirect => 1,
            // The bucket depends on a hash that differs between the switches.
            Select => self.random.below(2),
            All | FastFailover => self.random.below(4),
        };
        let buckets = (0..count).map(|_| self.bucket(id, group_type)).collect();
        Body::GroupMod(GroupMod { command, group_type, group_id: id, buckets })
    }

    fn bucket(&mut self, id: GroupId, group_type: GroupType) -> Bucket {
        let kind = Kind::any(self.random);
        self.has_pushed = false;
        let mut actions = as_set(self.actions(kind, &mut false));
        // Groups refer only to groups with higher numbers, so there are no loops.
        actions.retain(|action| !matches!(action, Action::Group(next) if *next <= id));
        self.lead_somewhere(&mut actions);
        let mut bucket = Bucket::new(actions);
        match group_type {
            GroupType::Select => bucket.weight = 1,
            GroupType::FastFailover if id.0 < GROUP_COUNT && self.random.chance(20) => {
                bucket.watch_group = GroupId(id.0 + 1);
            }
            GroupType::FastFailover => {
                bucket.watch_port = PortNo(self.random.pick(&[1, 2, 3, 3, 4, 4, 9]));
            }
            GroupType::All | GroupType::Indirect => {}
        }
        bucket
    }
}

/// The actions in the order of an action set, one of each kind.
fn as_set(mut actions: Vec<Action>) -> Vec<Action> {
    let rank = |action: &Action| match action {
        Action::PopVlan => 0,
        Action::PushVlan(_) => 1,
        Action::DecNwTtl => 2,
        Action::SetField(_) | Action::SetNwTtl(_) => 3,
        Action::Group(_) => 4,
        _ => 5,
    };
    let name = |action: &Action| match action {
        Action::SetField(oxm) => (action.kind(), oxm.field()),
        _ => (action.kind(), None),
    };
    actions.sort_by_key(rank);
    // A set with a group has no other output; here a bucket is a list.
    if actions.iter().any(|action| matches!(action, Action::Group(_))) {
        actions.retain(|action| !matches!(action, Action::Output { .. }));
    }
    let mut seen = Vec::new();
    actions.retain(|action| {
        let is_new = !seen.contains(&name(action));
        seen.push(name(action));
        is_new
    });
    actions
}

/// Number of tables with rules.
pub(crate) const TABLES: u8 = 6;
/// The highest group id.
pub(crate) const GROUP_COUNT: u32 = 5;
const FLAGS: &[FlowModFlags] = &[
    FlowModFlags::empty(),
    FlowModFlags::empty(),
    FlowModFlags::SEND_FLOW_REM,
    FlowModFlags::CHECK_OVERLAP,
    FlowModFlags::RESET_COUNTS,
    FlowModFlags::NO_PKT_COUNTS,
    FlowModFlags::NO_BYT_COUNTS,
];
