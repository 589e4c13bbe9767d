//! Conservation: every end of every frame is counted as sent, dropped or waiting.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::{Ip, Switch, apply, ip, mac, out, tcp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tapswitch_datapath::{DropReason, GroupBucket, Loss, Port, Traffic, WorkerIndex};
use tapswitch_openflow::{Action, Bucket, Delivery, GroupId, GroupType, Oxm, PortNo, Shape};
use tapswitch_wire::{GsoType, NetHeader};

const PORTS: u32 = 4;
const GROUP: u32 = 1;
const TO_GROUP: Action = Action::Group(GroupId(GROUP));

/// A switch whose port 4 is full and whose port 3 is broken, which applies `actions` to all frames.
fn switch(actions: &[Action], buckets: Vec<Vec<Action>>) -> Switch {
    let mut switch = Switch::new(PORTS);
    switch.out.full = Some(4);
    switch.out.refuse = Some((3, DropReason::EgressFailed));
    switch.group(GROUP, GroupType::All, buckets.into_iter().map(Bucket::new).collect());
    // Fields of IP need a rule that matches IP.
    switch.flow(0, 1, &[ip()], &[apply(actions)]);
    let all: Vec<_> = actions.iter().filter(|it| **it != Action::DecNwTtl).cloned().collect();
    switch.flow(0, 0, &[], &[apply(&all)]);
    switch
}

fn ports(switch: &Switch) -> Vec<&Port> {
    switch.pipeline.snapshot().ports.iter().map(|port| &**port).collect()
}

/// Sums over all ports: ends of frames, and where they were counted.
fn books(switch: &Switch) -> (u64, u64) {
    ports(switch).iter().map(|port| &port.counters).fold((0, 0), |(ends, found), counters| {
        let here = counters.tx().frames + counters.drops().total() + counters.consumed();
        (ends + counters.ends(), found + here + counters.queued().frames())
    })
}

/// What a bucket processed, and the sum of its outcomes.
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
        // A copy that floods has as many outcomes as there are ports.
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

/// A frame for a controller may be lost on its way, and is delivered only when it arrives.
#[test]
fn a_copy_for_the_controller_is_queued_until_its_receipt_is_settled() {
    let copy = vec![Delivery::BestEffort.action(), out(PortNo::CONTROLLER.0)];
    let mut switch = switch(&[TO_GROUP], vec![vec![out(2)], copy]);
    switch.out.is_told_later = true;
    (0..3).for_each(|_| assert_eq!(switch.receive(1, &tcp().bytes()), [2]));
    let counts = |switch: &Switch| {
        let group = switch.pipeline.snapshot().groups.find(GroupId(GROUP)).unwrap().clone();
        let copies = &group.buckets[1];
        let delivered = copies.delivered.totals().frames;
        [copies.counters.totals().frames, delivered, copies.drops.total(), copies.queued.frames()]
    };
    assert_eq!((counts(&switch), switch.port(1).counters.consumed()), ([3, 0, 0, 3], 3));
    check(&switch);
    let [first, second, third] = std::mem::take(&mut switch.out.told).try_into().unwrap();
    first.delivered(switch.now);
    second.dropped(DropReason::ControllerQueueFull);
    assert_eq!((counts(&switch), switch.port(1).counters.consumed()), ([3, 1, 1, 1], 2));
    assert_eq!(switch.drops(1, DropReason::ControllerQueueFull), 1);
    check(&switch);
    third.delivered(switch.now);
    switch.out.is_told_later = false;
    switch.receive(1, &tcp().bytes());
    assert_eq!(counts(&switch), [4, 3, 1, 0]);
    check(&switch);
}

/// A train of three packets, which is a frame of 3,054 bytes.
fn receive_train(switch: &mut Switch) {
    let frame = Ip { payload: 3000, ..tcp() }.bytes();
    let meta =
        NetHeader { gso_type: GsoType::TCPV4, gso_size: 1000, hdr_len: 54, ..NetHeader::PLAIN };
    switch.receive_with(1, &frame, meta);
}

/// Packets of the copies: processed, delivered, dropped, waiting.
fn packets(switch: &Switch) -> [u64; 4] {
    let group = switch.pipeline.snapshot().groups.find(GroupId(GROUP)).unwrap().clone();
    let copies = &group.buckets[1];
    let (processed, delivered) = (copies.counters.totals(), copies.delivered.totals());
    let dropped = copies.packet_drops.total();
    [processed.packets, delivered.packets, dropped, copies.queued.packets()]
}

#[test]
fn what_went_of_a_train_that_failed_is_sent_and_the_rest_dropped() {
    let reason = DropReason::EgressFailed;
    // The copies of a bucket that only sends, of one that rewrites, and of one that truncates.
    let rewrites = Action::SetField(Oxm::EthDst(mac(9).into()));
    for first in [vec![], vec![rewrites], vec![Shape::Truncate { len: 100 }.action()]] {
        let mut switch = switch(&[TO_GROUP], vec![vec![out(2)], [first, vec![out(3)]].concat()]);
        switch.out.refuse = None;
        switch.out.part = Some((3, Loss { sent: 1, dropped: 2, reason }));
        receive_train(&mut switch);
        assert_eq!(packets(&switch), [3, 1, 2, 0]);
        // Its port has counted one already, in another way.
        switch.out.part = Some((3, Loss { sent: 0, dropped: 2, reason }));
        receive_train(&mut switch);
        assert_eq!(packets(&switch), [6, 1, 4, 0]);
        let counters = switch.port(3).counters;
        assert_eq!(counters.tx(), Traffic { frames: 0, packets: 1, bytes: 0 });
        assert_eq!(counters.drops().count(reason), 2, "frames");
        check(&switch);
    }
}

#[test]
fn a_train_that_waits_may_go_in_parts() {
    let copy = vec![Delivery::BestEffort.action(), out(4)];
    let mut switch = switch(&[TO_GROUP], vec![vec![out(2)], copy]);
    (0..2).for_each(|_| receive_train(&mut switch));
    assert_eq!(packets(&switch), [6, 0, 0, 6]);
    let mut receipts: Vec<_> = switch.out.receipts.drain(..).collect();
    receipts.iter_mut().for_each(|receipt| receipt.delivered_part(1, switch.now));
    assert_eq!(packets(&switch), [6, 2, 0, 4]);
    check(&switch);
    receipts.remove(0).delivered(switch.now);
    receipts.remove(0).dropped(DropReason::EgressFailed);
    assert_eq!(packets(&switch), [6, 4, 2, 0]);
    let tx = switch.port(4).counters.tx();
    assert_eq!(tx, Traffic { frames: 1, packets: 4, bytes: 3054 });
    check(&switch);
}

#[test]
fn what_a_thread_carries_on_waits_until_that_says_what_became_of_it() {
    let copy = vec![Delivery::BestEffort.action(), out(4)];
    let mut switch = switch(&[TO_GROUP], vec![vec![out(2)], copy]);
    receive_train(&mut switch);
    let mut receipt = switch.out.receipts.remove(0);
    let claim = receipt.claim().owned();
    assert!(claim.is(&receipt.claim()));
    let hand_over = |traffic| claim.wait(WorkerIndex(0), traffic);
    receipt.handed_over_part(1);
    hand_over(Traffic { frames: 0, packets: 1, bytes: 0 });
    let rest = receipt.traffic();
    receipt.handed_over();
    hand_over(rest);
    assert_eq!(packets(&switch), [3, 0, 0, 3]);
    check(&switch);
    let (one, now) = (Traffic { frames: 0, packets: 1, bytes: 0 }, switch.now);
    std::thread::scope(|scope| {
        scope.spawn(|| claim.delivered(WorkerIndex::NONE, one, now));
        scope.spawn(|| claim.dropped(WorkerIndex::NONE, rest, DropReason::PortRemoved));
    });
    assert_eq!(packets(&switch), [3, 1, 2, 0]);
    assert_eq!(switch.drops(4, DropReason::PortRemoved), 1);
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

/// A bucket may get frames other than IP.
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
