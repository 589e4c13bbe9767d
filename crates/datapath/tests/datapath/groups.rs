//! Groups: which buckets are live, which one a flow takes, and how long chains may be.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic fails a test"
)]

use crate::common::{Ip, Switch, apply, out, tcp};
use tapswitch_datapath::{DropReason, MAX_PORT};
use tapswitch_openflow::{Action, Bucket, ErrorKind, GroupId, GroupType, PortNo, PortState};

fn to(group: u32) -> Action {
    Action::Group(GroupId(group))
}

/// A bucket of a group of type SELECT.
fn share(action: Action) -> Bucket {
    Bucket { weight: 1, ..Bucket::new(vec![action]) }
}

/// The ports by which many flows leave.
fn spread(switch: &mut Switch) -> Vec<u32> {
    let flows = (0..2000).map(|flow| Ip { src_port: 1000 + flow, ..tcp() });
    flows.flat_map(|flow| switch.receive(1, &flow.bytes())).collect()
}

#[test]
fn a_bucket_is_live_by_its_port_or_its_group() {
    for (port_is_live, group_is_live) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut switch = Switch::new(4);
        let watching = |port| Bucket { watch_port: PortNo(port), ..Bucket::new(vec![out(4)]) };
        switch.group(2, GroupType::All, vec![watching(3)]);
        switch.group(1, GroupType::All, vec![Bucket { watch_group: GroupId(2), ..watching(2) }]);
        switch.flow(0, 1, &[], &[apply(&[to(1)])]);
        for (port, is_live) in [(2, port_is_live), (3, group_is_live)] {
            let state = if is_live { PortState::LIVE } else { PortState::LINK_DOWN };
            switch.set_port(port, |port| port.state = state);
        }
        let sent = switch.receive(1, &tcp().bytes());
        assert_eq!(sent == [4], port_is_live || group_is_live, "{port_is_live} {group_is_live}");
    }
}

/// Ports may be added later; numbers that no port can have would never be live.
#[test]
fn a_bucket_watches_only_what_can_be_a_port() {
    for (number, is_fine) in [
        (1, true),
        (MAX_PORT, true),
        (PortNo::LOCAL.0, true),
        (0, false),
        (MAX_PORT + 1, false),
        (PortNo::FLOOD.0, false),
        (PortNo::CONTROLLER.0, false),
    ] {
        for kind in [GroupType::FastFailover, GroupType::All] {
            let bucket = Bucket { watch_port: PortNo(number), ..Bucket::new(vec![out(2)]) };
            let outcome = Switch::new(2).try_group(1, kind, vec![bucket]).map(|_| ());
            let refused = Err(ErrorKind::OFPGMFC_BAD_WATCH);
            assert_eq!(outcome, if is_fine { Ok(()) } else { refused }, "{number:#x}");
        }
    }
}

/// Each group is examined once, however many buckets watch it.
#[test]
fn groups_that_watch_each_other_are_looked_at_once() {
    let mut switch = Switch::new(2);
    switch.set_port(2, |port| port.state = PortState::LINK_DOWN);
    let dead = Bucket { watch_port: PortNo(2), ..Bucket::new(vec![out(2)]) };
    switch.group(1, GroupType::All, vec![dead; 8]);
    for group in 2..=16 {
        let bucket = Bucket { watch_group: GroupId(group - 1), ..Bucket::new(vec![out(2)]) };
        switch.group(group, GroupType::All, vec![bucket; 8]);
    }
    switch.flow(0, 1, &[], &[apply(&[to(16)])]);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::NoLiveBucket), 1);
}

#[test]
fn a_selection_behind_a_selection_is_even() {
    let mut switch = Switch::new(5);
    switch.group(2, GroupType::Select, vec![share(out(2)), share(out(3))]);
    switch.group(3, GroupType::Select, vec![share(out(4)), share(out(5))]);
    switch.group(1, GroupType::Select, vec![share(to(2)), share(to(3))]);
    switch.flow(0, 1, &[], &[apply(&[to(1)])]);
    let ports = spread(&mut switch);
    for port in 2..=5 {
        let count = ports.iter().filter(|taken| **taken == port).count();
        assert!(count.abs_diff(500) < 100, "{count} flows left by port {port}");
    }
    // The other direction of a flow takes the same bucket.
    let both = Ip { src_port: 80, dst_port: 1000, src: 2, dst: 1, ..tcp() };
    assert_eq!(switch.receive(1, &both.bytes()), ports[..1]);
}

/// Switches select alike at the first selection, inside a group of another type or not: copies of
/// both directions of a flow meet at one monitor.
#[test]
fn a_selection_is_the_same_in_a_group_of_another_type() {
    let ways = || vec![share(out(2)), share(out(3))];
    let (mut bare, mut around) = (Switch::new(3), Switch::new(3));
    bare.group(1, GroupType::Select, ways());
    around.group(2, GroupType::Select, ways());
    around.group(1, GroupType::All, vec![Bucket::new(vec![to(2)])]);
    for switch in [&mut bare, &mut around] {
        switch.flow(0, 1, &[], &[apply(&[to(1)])]);
    }
    assert_eq!(spread(&mut bare), spread(&mut around));
}

#[test]
fn chains_do_not_multiply_without_bound() {
    let mut switch = Switch::new(2);
    switch.group(1, GroupType::All, vec![Bucket::new(vec![out(2)]); 8]);
    for group in 2..=7 {
        switch.group(group, GroupType::All, vec![Bucket::new(vec![to(group - 1)]); 8]);
    }
    switch.flow(0, 1, &[], &[apply(&[to(7)])]);
    let count = switch.receive(1, &tcp().bytes()).len();
    assert!((1000..8192).contains(&count), "{count} copies of one frame");
    assert!(switch.drops(1, DropReason::TooDeep) > 0);
    // A group that is no larger than its messages is executed completely.
    switch.group(9, GroupType::All, vec![Bucket::new(vec![out(2); 4]); 800]);
    switch.flow(0, 1, &[], &[apply(&[to(9)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()).len(), 3200);
}

/// A bucket without weight is never selected, not even when no other is left.
#[test]
fn a_copy_for_a_selection_of_which_no_bucket_with_weight_is_live_is_dropped_by_name() {
    let mut switch = Switch::new(4);
    let weighted = Bucket { watch_port: PortNo(3), ..share(out(3)) };
    let without = Bucket::new(vec![out(4)]);
    switch.group(2, GroupType::Select, vec![weighted, without]);
    let buckets = [to(2), out(2)].map(|action| Bucket::new(vec![action]));
    switch.group(1, GroupType::All, buckets.to_vec());
    switch.flow(0, 1, &[], &[apply(&[to(1)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3, 2]);
    switch.set_port(3, |port| port.state = PortState::LINK_DOWN);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    let groups = &switch.pipeline.snapshot().groups;
    let [copy, weighted] = [1, 2].map(|id| &groups.find(GroupId(id)).unwrap().buckets[0]);
    assert_eq!(copy.counters.totals().frames, 2);
    assert_eq!(weighted.delivered.totals().frames, 1);
    assert_eq!(copy.drops.by_reason().collect::<Vec<_>>(), [(DropReason::NoLiveBucket, 1)]);
}

/// A group in which no bucket has a weight selects none (OpenFlow 1.3.5 §7.3.4.2).
#[test]
fn a_selection_without_weights_sends_nowhere() {
    let mut switch = Switch::new(3);
    let buckets = [2, 3].map(|port| Bucket::new(vec![out(port)]));
    switch.group(1, GroupType::Select, buckets.to_vec());
    switch.flow(0, 1, &[], &[apply(&[to(1)])]);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::NoLiveBucket), 1);
}
