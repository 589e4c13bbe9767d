//! Copies that are cut short, or of which only some are made.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::*;
use tapswitch_datapath::{DropReason, GroupBucket, Port, Traffic};
use tapswitch_openflow::{Action, Bucket, Delivery, ErrorKind, GroupId, GroupType, PortNo, Shape};
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags};

const TRUNCATE: Shape = Shape::Truncate { len: 64 };

/// Four ports; frames from port 1 go to port 2, and copies as `copy` says.
fn tapped(copy: Vec<Action>) -> Switch {
    let mut switch = Switch::new(4);
    switch.group(1, GroupType::All, vec![Bucket::new(vec![out(2)]), Bucket::new(copy)]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    switch
}

fn with_bucket<T>(switch: &Switch, ask: impl FnOnce(&GroupBucket) -> T) -> T {
    ask(&switch.pipeline.snapshot().groups.find(GroupId(1)).unwrap().buckets[1])
}

#[test]
fn a_copy_keeps_the_first_bytes_of_each_packet_and_the_original_all() {
    let mut switch = tapped(vec![TRUNCATE.action(), out(3)]);
    let frame = Ip { payload: 400, ..tcp() }.bytes();
    for _ in 0..3 {
        assert_eq!(switch.receive(1, &frame), [2, 3]);
    }
    assert_eq!(switch.out.snaplens, [(3, 64); 3]);
    assert_eq!(switch.port(3).counters.tx(), Traffic { frames: 3, packets: 3, bytes: 192 });
    let (of_copies, of_original) = (3 * 64, 3 * frame.len() as u64);
    assert_eq!(switch.port(2).counters.tx().bytes, of_original);
    with_bucket(&switch, |bucket| {
        let (processed, delivered) = (bucket.counters.totals(), bucket.delivered.totals());
        assert_eq!((processed.frames, processed.bytes), (3, of_original));
        assert_eq!((delivered.frames, delivered.bytes), (3, of_copies));
    });
}

#[test]
fn a_train_counts_what_is_left_of_its_packets() {
    let mut switch = tapped(vec![out(3), TRUNCATE.action()]);
    let frame = Ip { payload: 2510, ..tcp() }.bytes();
    let meta = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 54,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
    };
    switch.receive_with(1, &frame, meta);
    assert_eq!(switch.port(3).counters.tx(), Traffic { frames: 1, packets: 3, bytes: 192 });
    let short_end = Ip { payload: 2005, ..tcp() }.bytes();
    switch.receive_with(1, &short_end, meta);
    let tx = switch.port(3).counters.tx();
    assert_eq!(tx, Traffic { frames: 2, packets: 6, bytes: 192 + 64 + 64 + 59 });
}

#[test]
fn what_is_cut_short_fits_where_the_whole_would_not() {
    let mut switch = tapped(vec![TRUNCATE.action(), out(3)]);
    switch.set_port(3, |port| port.mtu = 100);
    assert_eq!(switch.receive(1, &Ip { payload: 400, ..tcp() }.bytes()), [2, 3]);
    switch.set_port(3, |port| port.mtu = 49);
    assert_eq!(switch.receive(1, &Ip { payload: 400, ..tcp() }.bytes()), [2]);
    assert_eq!(switch.drops(3, DropReason::Oversize), 1);
}

#[test]
fn rewrites_come_first_and_closed_ports_stay_closed() {
    let push = Action::PushVlan(tapswitch_wire::EtherType::VLAN);
    let mut switch = tapped(vec![TRUNCATE.action(), push, out(3)]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3]);
    assert_eq!(switch.sent(3)[12..14], [0x81, 0x00]);
    assert_eq!(switch.sent(2)[12..14], [0x08, 0x00]);
    switch.set_port(3, |port: &mut Port| port.state = tapswitch_openflow::PortState::LINK_DOWN);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    assert_eq!(switch.drops(3, DropReason::PortDown), 1);
}

#[test]
fn a_group_within_a_bucket_keeps_no_more_than_the_bucket() {
    let mut switch = Switch::new(4);
    let inner = vec![Bucket { weight: 1, ..Bucket::new(vec![out(3)]) }];
    switch.group(2, GroupType::Select, inner);
    let longer = Shape::Truncate { len: 128 }.action();
    let nested = vec![Bucket::new(vec![longer, out(4)])];
    switch.group(3, GroupType::All, nested);
    let copy = vec![TRUNCATE.action(), Action::Group(GroupId(2)), Action::Group(GroupId(3))];
    switch.group(1, GroupType::All, vec![Bucket::new(vec![out(2)]), Bucket::new(copy)]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3, 4]);
    assert_eq!(switch.out.snaplens, [(3, 64), (4, 64)]);
}

#[test]
fn floods_and_controllers_get_the_first_bytes_too() {
    let to_controller = Action::Output { port: PortNo::CONTROLLER, max_len: 0xffff };
    let flood = Action::output(PortNo::FLOOD);
    let mut switch = tapped(vec![TRUNCATE.action(), flood, to_controller]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 2, 3, 4]);
    assert_eq!(switch.out.snaplens, [(2, 64), (3, 64), (4, 64)]);
    let origin = switch.out.packet_ins[0].0;
    assert_eq!((origin.snaplen, origin.max_len), (Some(64), 0xffff));
}

#[test]
fn one_copy_of_so_many_is_made_and_the_others_are_counted() {
    let mut switch = tapped(vec![Shape::Sample { every: 10 }.action(), out(3)]);
    let copies: usize = (0..1000).map(|_| switch.receive(1, &tcp().bytes()).len() - 1).sum();
    assert_eq!(copies, 100);
    assert_eq!(switch.drops(3, DropReason::SampledOut), 900);
    with_bucket(&switch, |bucket| {
        assert_eq!(bucket.counters.totals().frames, 1000);
        assert_eq!(bucket.delivered.totals().frames, 100);
        assert_eq!(bucket.drops.count(DropReason::SampledOut), 900);
    });
    let counters = switch.port(1).counters;
    assert_eq!(counters.ends(), 2000, "each copy has an end, made or not");
}

#[test]
fn flows_share_the_runs_of_their_bucket() {
    let mut switch = tapped(vec![Shape::Sample { every: 10 }.action(), out(3)]);
    let flow = |port: u16| Ip { src_port: port, ..tcp() }.bytes();
    let copies = (0..1000).map(|port| switch.receive(1, &flow(port)).len() - 1);
    assert_eq!(copies.sum::<usize>(), 100, "though each flow has one frame");
}

#[test]
fn what_goes_to_no_port_in_particular_is_left_out_where_it_came_in() {
    let flood = Action::output(PortNo::FLOOD);
    let mut switch = tapped(vec![Shape::Sample { every: 1000 }.action(), flood]);
    let left_out = (0..100).filter(|_| switch.receive(1, &tcp().bytes()) == [2]).count() as u64;
    assert_eq!(switch.drops(1, DropReason::SampledOut), left_out);
    assert!(left_out >= 99);
}

#[test]
fn a_copy_that_waits_counts_what_it_keeps() {
    let mut switch = tapped(vec![Delivery::BestEffort.action(), TRUNCATE.action(), out(3)]);
    switch.out.full = Some(3);
    switch.receive(1, &Ip { payload: 400, ..tcp() }.bytes());
    assert_eq!(switch.port(3).counters.queued().bytes(), 64);
    switch.out.receipts.drain(..).for_each(|receipt| receipt.delivered(switch.now));
    assert_eq!(switch.port(3).counters.tx().bytes, 64);
    with_bucket(&switch, |bucket| assert_eq!(bucket.delivered.totals().bytes, 64));
}

#[test]
fn shapes_stand_in_buckets_that_copy_once_each() {
    let mut switch = Switch::new(3);
    let sample = Shape::Sample { every: 2 };
    let twice = |shape: Shape| vec![shape.action(), shape.action(), out(2)];
    for (kind, actions, error) in [
        (GroupType::All, twice(TRUNCATE), ErrorKind::OFPBAC_TOO_MANY),
        (GroupType::All, twice(sample), ErrorKind::OFPBAC_TOO_MANY),
        (GroupType::FastFailover, vec![sample.action(), out(2)], ErrorKind::OFPBAC_BAD_EXP_TYPE),
        (GroupType::Indirect, vec![TRUNCATE.action(), out(2)], ErrorKind::OFPBAC_BAD_EXP_TYPE),
    ] {
        let bucket = Bucket { watch_port: PortNo(2), ..Bucket::new(actions) };
        let refused = switch.try_group(1, kind, vec![bucket]);
        assert_eq!(refused.unwrap_err(), error);
    }
    let refused = switch.try_flow(0, 1, &[], &[apply(&[TRUNCATE.action(), out(2)])]);
    assert_eq!(refused.unwrap_err(), ErrorKind::OFPBAC_BAD_EXP_TYPE);
    let both = vec![sample.action(), TRUNCATE.action(), out(2)];
    switch.group(1, GroupType::All, vec![Bucket::new(both.clone())]);
    switch.group(2, GroupType::Select, vec![Bucket::new(both)]);
}
