//! SELECT groups with several buckets. Each switch selects a bucket by a hash of its own: so our
//! result for a frame must be one of Open vSwitch's results with each bucket alone, and the same
//! each time.

use std::collections::BTreeSet;

use tapswitch_openflow::{
    Action, Body, Bucket, FlowMod, FlowModCommand, GroupId, GroupMod, GroupModCommand, GroupType,
    Instruction, Masked, Oxm, PortNo,
};
use tapswitch_wire::MacAddr;

use crate::case::{Case, lines_are_alike};
use crate::frames::Frame;
use crate::known::{self, Frames};
use crate::pair::{PORT_DOWN, Pair};
use crate::pipeline::{GROUP_COUNT, Made, pipeline, select};
use crate::random::Random;
use crate::steps::{CABLE, Step, weave};

/// A case with selection by a SELECT group, in which each frame is sent twice.
pub(crate) fn case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let Made { mut messages, .. } = pipeline(&mut random);
    // The group is not changed.
    messages.retain(|body| !is_of(body, GroupId(GROUP_COUNT)));
    messages.insert(0, Body::GroupMod(select(&mut random)));
    known::without_interrupts(&mut messages, &mut []);
    let steps = weave(&mut random, Frames::of(&messages), Vec::new()).into_iter();
    let steps = steps.flat_map(|step| match step {
        Step::Frame(_) => vec![step.clone(), step],
        Step::Cable { .. } => vec![step],
        _ => Vec::new(),
    });
    Case { messages, steps: steps.collect(), filters: Vec::new() }
}

/// The first violation by our switch, with its step.
pub(crate) fn fault(pair: &mut Pair, case: &Case) -> Option<String> {
    let group = case.messages.iter().find_map(|body| match body {
        Body::GroupMod(group) if is_of(body, GroupId(GROUP_COUNT)) => Some(group.clone()),
        _ => None,
    })?;
    let [_, ours] = pair.observe(case);
    let alone: Vec<_> =
        group.buckets.iter().map(|bucket| with(pair, case, &group, bucket)).collect();
    let nothing = with(pair, case, &group, None);
    let mut is_cable_in = true;
    for (at, step) in case.steps.iter().enumerate() {
        if let Step::Cable { is_in, .. } = step {
            is_cable_in = *is_in;
        }
        let usable = (0..group.buckets.len()).filter(|i| is_usable(&group, *i, is_cable_in));
        let mut allowed: Vec<_> = usable.map(|index| &alone[index][at]).collect();
        if allowed.is_empty() {
            allowed.push(&nothing[at]);
        }
        if !allowed.iter().any(|theirs| lines_are_alike(theirs, &ours.steps[at])) {
            let does = &ours.steps[at];
            return Some(format!("{step}: tapswitch does {does:#?}, allowed is {allowed:#?}"));
        }
        let is_again = at > 0 && matches!(step, Step::Frame(_)) && same(&case.steps[at - 1], step);
        if is_again && ours.steps[at] != ours.steps[at - 1] {
            return Some(format!("{step}: tapswitch does something else the second time"));
        }
    }
    None
}

fn is_of(body: &Body, id: GroupId) -> bool {
    matches!(body, Body::GroupMod(group) if group.group_id == id)
}

fn same(one: &Step, other: &Step) -> bool {
    match (one, other) {
        (Step::Frame(one), Step::Frame(other)) => {
            one.port == other.port && one.bytes == other.bytes
        }
        _ => false,
    }
}

/// Open vSwitch's result for each step, if the group has only this bucket.
fn with<'a>(
    pair: &mut Pair,
    case: &Case,
    group: &GroupMod,
    bucket: impl Into<Option<&'a Bucket>>,
) -> Vec<Vec<String>> {
    let buckets = bucket.into().map(|bucket| Bucket { weight: 1, ..bucket.clone() });
    let alone = GroupMod { buckets: buckets.into_iter().collect(), ..group.clone() };
    let mut case = case.clone();
    for body in &mut case.messages {
        if is_of(body, group.group_id) {
            *body = Body::GroupMod(alone.clone());
        }
    }
    let [theirs, _] = pair.observe(&case);
    theirs.steps
}

/// Whether a bucket may be selected: it is live and has a weight.
fn is_usable(group: &GroupMod, index: usize, is_cable_in: bool) -> bool {
    let Bucket { weight, watch_port, .. } = group.buckets[index];
    let is_live = match watch_port {
        PortNo(PORT_DOWN) => false,
        PortNo(CABLE) => is_cable_in,
        _ => true,
    };
    is_live && weight > 0
}

/// Flows for a group with four buckets, one of which has no weight and one of which watches a port
/// that goes down meanwhile: both switches use exactly the usable buckets, and ours keeps the flows
/// of the other buckets in place.
pub(crate) fn check_spread(pair: &mut Pair) {
    let bucket = |weight, actions: &[Action]| Bucket { weight, ..Bucket::new(actions.to_vec()) };
    let [second, third] = [2, CABLE].map(|port| Action::output(PortNo(port)));
    let marked = [Action::SetField(Oxm::EthDst(Masked::exact(MacAddr([4; 6])))), second.clone()];
    let buckets = vec![
        bucket(1, &[second]),
        Bucket { watch_port: PortNo(CABLE), ..bucket(2, &[third]) },
        bucket(0, &[Action::output(PortNo::CONTROLLER)]),
        bucket(3, &marked),
    ];
    let group_id = GroupId(GROUP_COUNT);
    let (command, group_type) = (GroupModCommand::Add, GroupType::Select);
    let group = GroupMod { command, group_type, group_id, buckets };
    let rule = FlowMod {
        instructions: vec![Instruction::ApplyActions(vec![Action::Group(group_id)])],
        ..FlowMod::new(FlowModCommand::Add)
    };
    let flows: Vec<_> = (0..FLOWS).map(flow).collect();
    let mut steps = flows.clone();
    steps.push(Step::Cable { port: CABLE, is_in: false });
    steps.extend(flows);
    let messages = vec![Body::GroupMod(group), Body::FlowMod(rule)];
    let case = Case { messages, steps, filters: Vec::new() };
    let [theirs, ours] = pair.observe(&case).map(|side| side.steps);
    for steps in [&theirs, &ours] {
        let (before, after) = steps.split_at(FLOWS.into());
        assert_eq!(used(before), ["port 2: 02", "port 2: 04", "port 3: 02"].map(Some).into());
        assert_eq!(used(&after[1..]), ["port 2: 02", "port 2: 04"].map(Some).into());
    }
    for (before, after) in ours.iter().zip(&ours[usize::from(FLOWS) + 1..]) {
        assert!(before == after || picked(before) == Some("port 3: 02"), "{before:?}, {after:?}");
    }
}

/// The buckets that were used.
fn used(steps: &[Vec<String>]) -> BTreeSet<Option<&str>> {
    steps.iter().map(|lines| picked(lines)).collect()
}

/// The output of the only frame, and the first byte of its destination.
fn picked(lines: &[String]) -> Option<&str> {
    match lines {
        [line] => line.get(.."port 2: 02".len()),
        _ => None,
    }
}

fn flow(number: u8) -> Step {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 1, number, 0x12, 0x34];
    bytes.resize(60, 0);
    Step::Frame(Frame { port: 1, bytes })
}

/// So many flows that each bucket gets one, except in one of 200,000 groups (5/6 to this power).
const FLOWS: u8 = 67;
