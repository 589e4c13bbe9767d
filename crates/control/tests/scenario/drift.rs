//! Changes made to a switch by others are repaired and reported, whether the switch reports them or
//! not.

use tapswitch_control::*;
use tapswitch_openflow::multipart::FlowStats;
use tapswitch_openflow::*;

use crate::fabric::Fabric;
use crate::frames::udp;
use crate::world::{World, policy};

/// Three switches in a line, each checked every three seconds, with copies from all to the last.
fn tapped() -> Fabric {
    let limits = Limits { check_interval: Some(Millis(3000)), ..Limits::default() };
    let mut fabric = Fabric::with(3, &[(1, 2), (2, 3)], &limits);
    fabric.learn();
    fabric.world.tap(policy("p", "0x3/2"));
    fabric
}

fn told(world: &World) -> Vec<(u64, String)> {
    let told = world.events.iter().filter_map(|event| match event {
        Event::Drifted { switch, reason } => Some((switch.0, reason.clone())),
        _ => None,
    });
    told.collect()
}

/// Changes a switch behind the controller's back. Returns the report after the repair.
fn put_right(fabric: &mut Fabric, at: u64, change: Body) -> String {
    let before = fabric.world.model(at).state();
    fabric.world.events.clear();
    fabric.world.model(at).handle(Message { xid: 9999, body: change });
    assert_ne!(fabric.world.model(at).state(), before);
    fabric.wait(4500);
    assert_eq!(fabric.world.model(at).state(), before);
    match told(&fabric.world).as_slice() {
        [(switch, reason)] if *switch == at => reason.clone(),
        other => panic!("{other:?}"),
    }
}

/// A rule selected by the kind in its cookie and by its table.
fn rule(fabric: &mut Fabric, at: u64, kind: u64, table: u8) -> FlowStats {
    let is_it = |rule: &FlowStats| {
        rule.cookie >> 32 == 0x7470_0000 | kind && rule.table_id == TableId(table)
    };
    fabric.world.model(at).rules().into_iter().find(is_it).unwrap()
}

fn change(rule: &FlowStats, command: FlowModCommand) -> Body {
    Body::FlowMod(FlowMod {
        table_id: rule.table_id,
        priority: rule.priority,
        match_fields: rule.match_fields.clone(),
        instructions: match command {
            FlowModCommand::DeleteStrict => vec![],
            _ => vec![Instruction::ApplyActions(vec![Action::output(PortNo(2))])],
        },
        ..FlowMod::new(command)
    })
}

#[test]
fn rules_of_each_kind_that_are_deleted_or_changed_are_put_right_and_told() {
    let mut fabric = tapped();
    // A base rule, a route, carried copies, and a copying rule.
    for (at, kind, table) in [(2, 1, 1), (1, 3, 2), (2, 5, 0), (3, 5, 0), (1, 0x8001, 1)] {
        for (command, what) in [
            (FlowModCommand::DeleteStrict, "1 rule was missing (table "),
            (FlowModCommand::ModifyStrict, "1 rule was changed (table "),
        ] {
            let rule = rule(&mut fabric, at, kind, table);
            let reason = put_right(&mut fabric, at, change(&rule, command));
            assert!(reason.contains(what), "{kind:#x} {command:?}: {reason}");
        }
    }
    let drifted: Vec<_> =
        fabric.world.control.switches().iter().map(|switch| switch.drifted).collect();
    assert_eq!(drifted, [4, 4, 2]);
    assert_eq!(fabric.send(1, &udp(1, 2).bytes()), [(2, 1), (3, 2)]);
}

#[test]
fn a_rule_of_somebody_else_in_the_place_of_ours_or_with_our_mark_goes() {
    let mut fabric = tapped();
    let ours = rule(&mut fabric, 1, 3, 2);
    let Body::FlowMod(other) = change(&ours, FlowModCommand::Add) else { panic!() };
    let replacing = FlowMod { cookie: 42, ..other.clone() };
    let reason = put_right(&mut fabric, 1, Body::FlowMod(replacing));
    assert!(reason.contains("1 rule was missing (table 2, "), "{reason}");
    let marked = FlowMod { cookie: ours.cookie, priority: 77, ..other };
    let reason = put_right(&mut fabric, 1, Body::FlowMod(marked));
    assert!(
        reason.contains("1 rule was added with this controller's cookie (table 2, priority 77, "),
        "{reason}"
    );
}

#[test]
fn a_group_that_somebody_else_changes_is_put_right_and_told() {
    let mut fabric = tapped();
    let group = fabric.world.model(2).groups().remove(0);
    let changed = Body::GroupMod(GroupMod {
        command: GroupModCommand::Modify,
        group_type: group.group_type,
        group_id: group.group_id,
        buckets: vec![Bucket::new(vec![Action::output(PortNo(1))])],
    });
    let reason = put_right(&mut fabric, 2, changed);
    assert!(reason.contains("1 group differed"), "{reason}");
}

/// Checks have no side effects: no changes, no reports, and everything remains proved.
#[test]
fn switches_that_hold_what_they_were_told_are_left_alone() {
    let mut fabric = tapped();
    let before: Vec<_> = fabric.world.switches.values().map(crate::model::Model::state).collect();
    for id in 1..=3 {
        fabric.world.model(id).changes.clear();
    }
    fabric.world.events.clear();
    let wanted = policy("q", "0x2/2");
    fabric.world.pass_and_look(3500, &mut |world| {
        let verdict = world.control.judge(Change::Add(&wanted)).unwrap();
        assert_eq!(verdict.unproved, None);
    });
    fabric.wait(10_000);
    for id in 1..=3 {
        assert_eq!(fabric.world.model(id).changes, []);
    }
    assert_eq!(told(&fabric.world), []);
    let after: Vec<_> = fabric.world.switches.values().map(crate::model::Model::state).collect();
    assert_eq!(after, before);
}

/// Source rules time out: that is no drift, even if it is not reported.
#[test]
fn a_host_that_fell_silent_is_no_drift() {
    let mut world = World::new(3);
    world.learn(2);
    world.switch().is_mute_on_removal = true;
    for _ in 0..8 {
        world.pass(100_000);
    }
    assert_eq!(world.control.hosts(), []);
    assert_eq!(told(&world), []);
}
