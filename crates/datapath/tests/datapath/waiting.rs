//! The books: every end of every frame is where it went, or why not, or that it waits.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::{Switch, apply, ip, mac, out, tcp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tapswitch_datapath::{DropReason, GroupBucket, Port};
use tapswitch_openflow::{Action, Bucket, Delivery, GroupId, GroupType, Oxm, PortNo, Shape};
use tapswitch_wire::NetHeader;

const PORTS: u32 = 4;
const GROUP: u32 = 1;
const TO_GROUP: Action = Action::Group(GroupId(GROUP));

/// A switch whose port 4 is full and whose port 3 is broken, that does `actions` with all frames.
fn switch(actions: &[Action], buckets: Vec<Vec<Action>>) -> Switch {
    let mut switch = Switch::new(PORTS);
    switch.out.full = Some(4);
    switch.out.refuse = Some((3, DropReason::EgressFailed));
    switch.group(GROUP, GroupType::All, buckets.into_iter().map(Bucket::new).collect());
    // What only IP has, needs a rule for IP.
    switch.flow(0, 1, &[ip()], &[apply(actions)]);
    let all: Vec<_> = actions.iter().filter(|it| **it != Action::DecNwTtl).cloned().collect();
    switch.flow(0, 0, &[], &[apply(&all)]);
    switch
}

fn ports(switch: &Switch) -> Vec<&Port> {
    switch.pipeline.snapshot().ports.iter().map(|port| &**port).collect()
}

/// Sums over all ports: ends of frames, and where they were found.
fn books(switch: &Switch) -> (u64, u64) {
    ports(switch).iter().map(|port| &port.counters).fold((0, 0), |(ends, found), counters| {
        let here = counters.tx().frames + counters.drops().total() + counters.consumed();
        (ends + counters.ends(), found + here + counters.queued().frames())
    })
}

/// What a bucket processed, and what became of that.
fn ledger(bucket: &GroupBucket) -> (u64, u64) {
    let found = bucket.delivered.totals().frames + bucket.drops.total() + bucket.queued.frames();
    (bucket.counters.totals().frames, found)
}

fn check(switch: &Switch) {
    let (ends, found) = books(switch);
    assert_eq!(ends, found, "{:?}", ports(switch));
    let group = switch.pipeline.snapshot().groups.find(GroupId(GROUP)).unwrap();
    for bucket in &group.buckets {
        let (processed, found) = ledger(bucket);
        // One that floods makes as many copies as there are ports.
        let is_plain =
            |action: &Action| !matches!(action, Action::Output { port, .. } if port.0 > PORTS + 1);
        let outputs =
            bucket.spec.actions.iter().filter(|action| matches!(action, Action::Output { .. }));
        if bucket.spec.actions.iter().all(is_plain) && outputs.count() == 1 {
            assert_eq!(processed, found, "{bucket:?}");
        }
    }
}

#[test]
fn a_copy_that_waits_is_queued_until_its_receipt_is_settled() {
    let copy = vec![Delivery::BestEffort.action(), out(4)];
    let mut switch = switch(&[TO_GROUP], vec![vec![out(2)], copy]);
    let frame = tcp().bytes();
    (0..3).for_each(|_| assert_eq!(switch.receive(1, &frame), [2]));
    let bucket = |switch: &Switch| {
        let group = switch.pipeline.snapshot().groups.find(GroupId(GROUP)).unwrap().clone();
        let copies = &group.buckets[1];
        let delivered = copies.delivered.totals().frames;
        (copies.counters.totals().frames, delivered, copies.drops.total(), copies.queued.frames())
    };
    assert_eq!(bucket(&switch), (3, 0, 0, 3));
    let bytes = 3 * frame.len() as u64;
    assert_eq!(switch.port(4).counters.queued().bytes(), bytes);
    switch.out.receipts.remove(0).delivered(switch.now);
    switch.out.receipts.remove(0).dropped(DropReason::EgressStalled);
    assert_eq!(bucket(&switch), (3, 1, 1, 1));
    assert_eq!(switch.drops(4, DropReason::EgressStalled), 1);
    assert_eq!(switch.port(4).counters.tx().frames, 1);
    check(&switch);
}

#[test]
fn a_flood_that_reaches_nobody_is_dropped_by_name() {
    let mut switch = Switch::new(1);
    switch.flow(0, 1, &[], &[apply(&[Action::output(PortNo::FLOOD)])]);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::NoOutput), 1);
    assert_eq!(switch.port(1).counters.ends(), 1);
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..=PORTS + 1).prop_map(out),
        1 => Just(Action::output(PortNo::FLOOD)),
        1 => Just(Action::output(PortNo::NORMAL)),
        1 => Just(Action::output(PortNo::CONTROLLER)),
        1 => Just(Action::output(PortNo::IN_PORT)),
        1 => Just(Action::DecNwTtl),
        1 => Just(Action::SetField(Oxm::EthDst(mac(9).into()))),
    ]
}

fn bucket() -> impl Strategy<Value = Vec<Action>> {
    let sample = option::of((1..4_u32).prop_map(|every| Shape::Sample { every }));
    let truncate = option::of((14..200_u16).prop_map(|len| Shape::Truncate { len }));
    (sample, truncate, vec(action(), 0..3)).prop_map(|(sample, truncate, actions)| {
        let shapes = sample.into_iter().chain(truncate).map(Shape::action);
        shapes.chain(actions).collect()
    })
}

/// A bucket does not know that its frames are IP.
fn without_ttl(mut buckets: Vec<Vec<Action>>) -> Vec<Vec<Action>> {
    buckets.iter_mut().for_each(|actions| actions.retain(|it| *it != Action::DecNwTtl));
    buckets
}

proptest! {
    #[test]
    fn nothing_is_nowhere(
        actions in vec(prop_oneof![3 => action(), 1 => Just(TO_GROUP)], 0..4),
        buckets in vec(bucket(), 0..4).prop_map(without_ttl),
        frames in vec((1..=PORTS, 0..3_u8), 1..20),
        delivered in vec(any::<bool>(), 1..8),
    ) {
        let mut switch = switch(&actions, buckets);
        for (port, kind) in frames {
            let frame = match kind {
                0 => tcp().bytes(),
                1 => vec![0; 10],
                _ => vec![0xff; 60],
            };
            switch.handle(port, &frame, NetHeader::PLAIN);
        }
        switch.end_burst();
        check(&switch);
        let now = switch.now;
        let receipts: Vec<_> = switch.out.receipts.drain(..).collect();
        for (receipt, delivered) in receipts.into_iter().zip(delivered.into_iter().cycle()) {
            match delivered {
                true => receipt.delivered(now),
                false => receipt.dropped(DropReason::PortRemoved),
            }
        }
        check(&switch);
        prop_assert_eq!(switch.port(4).counters.queued().frames(), 0);
    }
}
