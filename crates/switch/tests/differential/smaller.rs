//! Reduces a failing case to a minimum.

use tapswitch_openflow::{Action, Body, FlowMod, GroupMod, Instruction, PacketOut};

use crate::case::Case;
use crate::known;
use crate::steps::Step;

/// The smallest case found for which `fails` still holds.
pub(crate) fn smallest(mut case: Case, mut fails: impl FnMut(&Case) -> bool) -> Case {
    let mut fails = |case: &Case| known::are_comparable(&case.bodies()) && fails(case);
    loop {
        let Some(less) = smaller(&case).into_iter().find(&mut fails) else { return case };
        case = less;
    }
}

/// The case without one of its parts, larger parts first.
fn smaller(case: &Case) -> Vec<Case> {
    let halves = [0, case.steps.len() / 2].map(|start| Case {
        steps: case.steps.iter().skip(start).take(case.steps.len() / 2).cloned().collect(),
        ..case.clone()
    });
    let mut cases: Vec<_> = if case.steps.len() > 1 { halves.into() } else { Vec::new() };
    let without_step = |at| Case { steps: without(&case.steps, at), ..case.clone() };
    cases.extend((0..case.steps.len()).map(without_step));
    let without_filter = |at| Case { filters: without(&case.filters, at), ..case.clone() };
    cases.extend((0..case.filters.len()).map(without_filter));
    let without_message = |at| Case { messages: without(&case.messages, at), ..case.clone() };
    cases.extend((0..case.messages.len()).rev().map(without_message));
    for (at, body) in case.messages.iter().enumerate() {
        for less in parts(body) {
            let mut case = case.clone();
            case.messages[at] = less;
            cases.push(case);
        }
    }
    for (at, step) in case.steps.iter().enumerate() {
        for less in of_step(step) {
            let mut case = case.clone();
            case.steps[at] = less;
            cases.push(case);
        }
    }
    cases
}

fn of_step(step: &Step) -> Vec<Step> {
    match step {
        Step::Packet(packet) => {
            let shorter = (0..packet.actions.len()).map(|at| without(&packet.actions, at));
            shorter.map(|actions| Step::Packet(PacketOut { actions, ..packet.clone() })).collect()
        }
        Step::Change(body) => parts(body).into_iter().map(Step::Change).collect(),
        _ => Vec::new(),
    }
}

/// The message without one of its parts.
fn parts(body: &Body) -> Vec<Body> {
    match body {
        Body::FlowMod(flow_mod) => rule(flow_mod).map(Body::FlowMod).collect(),
        Body::GroupMod(group_mod) => group(group_mod).map(Body::GroupMod).collect(),
        _ => Vec::new(),
    }
}

fn rule(whole: &FlowMod) -> impl Iterator<Item = FlowMod> {
    let instructions = less(&whole.instructions, instruction);
    let shorter = |instructions| FlowMod { instructions, ..whole.clone() };
    let fields = (0..whole.match_fields.fields.len()).map(|at| FlowMod {
        match_fields: without(&whole.match_fields.fields, at).into_iter().collect(),
        ..whole.clone()
    });
    instructions.into_iter().map(shorter).chain(fields)
}

fn instruction(whole: &Instruction) -> Vec<Instruction> {
    match whole {
        Instruction::ApplyActions(list) => {
            let shorter = (0..list.len()).map(|at| without(list, at));
            shorter.map(Instruction::ApplyActions).collect()
        }
        Instruction::WriteActions(list) => {
            let shorter = (0..list.len()).map(|at| without(list, at));
            shorter.map(Instruction::WriteActions).collect()
        }
        _ => Vec::new(),
    }
}

fn group(whole: &GroupMod) -> impl Iterator<Item = GroupMod> {
    let buckets = less(&whole.buckets, |bucket| {
        let shorter = (0..bucket.actions.len()).map(|at| without::<Action>(&bucket.actions, at));
        let bucket = bucket.clone();
        shorter.map(|actions| tapswitch_openflow::Bucket { actions, ..bucket.clone() }).collect()
    });
    buckets.into_iter().map(|buckets| GroupMod { buckets, ..whole.clone() })
}

/// The list without one of its items, and with a smaller one.
fn less<T: Clone>(list: &[T], smaller: impl Fn(&T) -> Vec<T>) -> Vec<Vec<T>> {
    let mut lists: Vec<_> = (0..list.len()).map(|at| without(list, at)).collect();
    for (at, item) in list.iter().enumerate() {
        for item in smaller(item) {
            let mut list = list.to_vec();
            list[at] = item;
            lists.push(list);
        }
    }
    lists
}

fn without<T: Clone>(list: &[T], at: usize) -> Vec<T> {
    let mut list = list.to_vec();
    list.remove(at);
    list
}
