//! Changes of rules and groups in any order have the same result as on a plain list of rules that
//! is searched each time (OpenFlow 1.3.5 §6.4).
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::{Switch, apply, ip, matching, out};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tapswitch_datapath::{FlowEntry, Millis, Removal};
use tapswitch_openflow::{
    Action, Bucket, FlowMod, FlowModCommand, GroupId, GroupMod, GroupModCommand, GroupType, Oxm,
    PortNo, TableId,
};

/// A rule of the model, also as the target of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    table: u8,
    priority: u16,
    /// All frames, those of IPv4, or TCP to port 1 or 2.
    frames: u8,
    cookie: u64,
    /// Its output: a group, or port 2.
    group: Option<u32>,
}

impl Rule {
    fn fields(self) -> Vec<Oxm> {
        match self.frames {
            0 => vec![],
            1 => vec![ip()],
            port => vec![ip(), Oxm::IpProto(6), Oxm::TcpDst(u16::from(port) - 1)],
        }
    }

    fn is_within(self, other: Self) -> bool {
        other.frames == 0 || other.frames == 1 && self.frames > 0 || other.frames == self.frames
    }

    fn is_same(self, other: Self) -> bool {
        (self.priority, self.frames) == (other.priority, other.frames)
    }

    fn change(self, command: FlowModCommand) -> FlowMod {
        let to = self.group.map_or(out(2), |group| Action::Group(GroupId(group)));
        FlowMod {
            table_id: TableId(self.table),
            priority: self.priority,
            match_fields: matching(&self.fields()),
            cookie: self.cookie,
            instructions: vec![apply(&[to])],
            ..FlowMod::new(command)
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Add(Rule),
    Modify(Rule, bool),
    Delete { about: Rule, strict: bool, all_tables: bool, by_cookie: bool, by_group: Option<u32> },
    AddGroup(u32),
    DeleteGroup(u32),
}

/// The expected state.
#[derive(Default)]
struct Model {
    rules: Vec<Rule>,
    groups: Vec<u32>,
}

impl Model {
    /// Makes a change; returns the rules that it removes, or `None` if it is refused.
    fn apply(&mut self, change: &Change) -> Option<Vec<Rule>> {
        match change {
            Change::Add(new) => {
                self.check(*new)?;
                self.take(|rule| rule.table == new.table && rule.is_same(*new));
                self.rules.push(*new);
                Some(vec![])
            }
            Change::Modify(to, strict) => {
                self.check(*to)?;
                let is_meant = |rule: Rule| {
                    rule.table == to.table
                        && if *strict { rule.is_same(*to) } else { rule.is_within(*to) }
                };
                let meant = self.rules.iter_mut().filter(|rule| is_meant(**rule));
                meant.for_each(|rule| rule.group = to.group);
                Some(vec![])
            }
            Change::Delete { about, strict, all_tables, by_cookie, by_group } => {
                Some(self.take(|rule| {
                    (*all_tables || rule.table == about.table)
                        && if *strict { rule.is_same(*about) } else { rule.is_within(*about) }
                        && (!by_cookie || rule.cookie == about.cookie)
                        && by_group.is_none_or(|group| rule.group == Some(group))
                }))
            }
            Change::AddGroup(group) => {
                (!self.groups.contains(group)).then(|| self.groups.push(*group)).map(|()| vec![])
            }
            Change::DeleteGroup(group) => {
                let is_meant = |id: u32| *group == GroupId::ALL.0 || id == *group;
                self.groups.retain(|id| !is_meant(*id));
                Some(self.take(|rule| rule.group.is_some_and(is_meant)))
            }
        }
    }

    /// A rule may only name a group that exists.
    fn check(&self, rule: Rule) -> Option<()> {
        rule.group.is_none_or(|group| self.groups.contains(&group)).then_some(())
    }

    fn take(&mut self, goes: impl Fn(Rule) -> bool) -> Vec<Rule> {
        let (gone, stay) = self.rules.iter().partition(|rule| goes(**rule));
        self.rules = stay;
        gone
    }
}

/// Makes the change in the switch; `None` if it is refused.
fn apply_to(switch: &mut Switch, change: &Change) -> Option<Vec<Removal>> {
    let flow = |switch: &mut Switch, change: FlowMod| {
        switch.pipeline.handle_flow_mod(&change, Millis(0)).ok()
    };
    let group = |switch: &mut Switch, command, id, buckets| {
        let (group_type, group_id) = (GroupType::All, GroupId(id));
        let change = GroupMod { command, group_type, group_id, buckets };
        switch.pipeline.handle_group_mod(&change, Millis(0)).ok()
    };
    match change {
        Change::Add(rule) => flow(switch, rule.change(FlowModCommand::Add)),
        Change::Modify(rule, true) => flow(switch, rule.change(FlowModCommand::ModifyStrict)),
        Change::Modify(rule, false) => flow(switch, rule.change(FlowModCommand::Modify)),
        Change::Delete { about, strict, all_tables, by_cookie, by_group } => {
            let command =
                if *strict { FlowModCommand::DeleteStrict } else { FlowModCommand::Delete };
            let mut change = about.change(command);
            change.instructions.clear();
            change.cookie_mask = if *by_cookie { u64::MAX } else { 0 };
            change.out_port = PortNo::ANY;
            change.out_group = by_group.map_or(GroupId::ANY, GroupId);
            if *all_tables {
                change.table_id = TableId::ALL;
            }
            flow(switch, change)
        }
        Change::AddGroup(id) => {
            group(switch, GroupModCommand::Add, *id, vec![Bucket::new(vec![out(2)])])
        }
        Change::DeleteGroup(id) => group(switch, GroupModCommand::Delete, *id, vec![]),
    }
}

fn rule_of(entry: &FlowEntry) -> Rule {
    let frames = match entry.matching.iter().last() {
        None => 0,
        Some(Oxm::TcpDst(port)) => u8::try_from(port + 1).unwrap(),
        Some(_) => 1,
    };
    let group = (1..=3).find(|group| entry.uses_group(GroupId(*group)));
    let (table, priority, cookie) = (entry.table_id.0, entry.priority, entry.cookie);
    Rule { table, priority, frames, cookie, group }
}

fn sorted(rules: impl IntoIterator<Item = Rule>) -> Vec<Rule> {
    let mut rules: Vec<_> = rules.into_iter().collect();
    rules.sort();
    rules
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let parts = (0..2_u8, 1..3_u16, 0..4_u8, 0..2_u64, option::of(1..=3_u32));
    parts.prop_map(|(table, priority, frames, cookie, group)| Rule {
        table,
        priority,
        frames,
        cookie,
        group,
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let group = prop_oneof![8 => 1..=3_u32, 1 => Just(GroupId::ALL.0)];
    let delete = (any_rule(), any::<[bool; 3]>(), option::of(1..=3_u32));
    prop_oneof![
        6 => any_rule().prop_map(Change::Add),
        2 => (any_rule(), any::<bool>()).prop_map(|(rule, strict)| Change::Modify(rule, strict)),
        2 => delete.prop_map(|(about, [strict, all_tables, by_cookie], by_group)| {
            Change::Delete { about, strict, all_tables, by_cookie, by_group }
        }),
        4 => (1..=3_u32).prop_map(Change::AddGroup),
        1 => group.prop_map(Change::DeleteGroup),
    ]
}

proptest! {
    #[test]
    fn changes_do_what_they_would_to_a_list(changes in vec(any_change(), 1..60)) {
        let (mut switch, mut model) = (Switch::new(4), Model::default());
        for change in &changes {
            let gone = apply_to(&mut switch, change);
            let gone = gone.map(|gone| sorted(gone.iter().map(|it| rule_of(&it.entry))));
            prop_assert_eq!(gone, model.apply(change).map(sorted), "{:?}", change);
            let snapshot = switch.pipeline.snapshot();
            let tables = snapshot.tables(TableId::ALL).flat_map(|(_, table)| table.iter());
            let there = sorted(tables.map(|entry| rule_of(entry)));
            prop_assert_eq!(there, sorted(model.rules.clone()), "{:?}", change);
            for group in 1..=3 {
                let naming = model.rules.iter().filter(|rule| rule.group == Some(group)).count();
                prop_assert_eq!(switch.pipeline.rules_to(GroupId(group)), naming, "{:?}", change);
            }
        }
    }
}
