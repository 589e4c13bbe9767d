//! Counters and bursts: when a burst ends, everything that its frames count is there, once.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::{Ip, Switch, apply, goto, ip, mac, out, tcp, udp};
use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_datapath::vlan::{PortMode, Trunk, VidSet};
use tapswitch_datapath::{DropReason, FlowEntry, GroupBucket, Millis, Totals, Traffic};
use tapswitch_openflow::{
    Action, Bucket, FlowMod, FlowModCommand, GroupId, GroupType, Oxm, PortNo, TableId,
};
use tapswitch_wire::{EtherType, GsoType, NetHeader, NetHeaderFlags};

const MONITOR: u32 = 3;
const GROUP: u32 = 1;

#[test]
fn a_burst_counts_when_it_ends() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[ip()], &[goto(1)]);
    switch.flow(1, 1, &[], &[apply(&[out(2)])]);
    let frame = tcp().bytes();
    (0..5).for_each(|_| assert_eq!(switch.handle(1, &frame, NetHeader::PLAIN), [2]));
    switch.handle(1, &arp(), NetHeader::PLAIN);
    assert_eq!(rule(&switch, 0).counters.totals(), Totals::default(), "the burst goes on");
    switch.now = Millis(2000);
    switch.end_burst();
    let bytes = 5 * frame.len() as u64;
    for table in [0, 1] {
        let counted = Totals { frames: 5, packets: 5, bytes, last_used: Millis(2000) };
        assert_eq!(rule(&switch, table).counters.totals(), counted);
        let lookups = 5 + u64::from(table == 0);
        assert_eq!(table_totals(&switch, table), (lookups, 5));
    }
    let passed = Traffic { frames: 5, packets: 5, bytes };
    let arrived = Traffic { frames: 6, packets: 6, bytes: bytes + arp().len() as u64 };
    assert_eq!((switch.port(1).counters.rx(), switch.port(2).counters.tx()), (arrived, passed));
    switch.end_burst();
    assert_eq!(switch.port(2).counters.tx(), passed, "counted once");
}

#[test]
fn frames_that_are_refused_count_as_received() {
    let mut switch = Switch::new(1);
    switch.handle(1, &[0; 10], NetHeader::PLAIN);
    let lies = NetHeader { flags: NetHeaderFlags::NEEDS_CSUM, csum_start: 999, ..NetHeader::PLAIN };
    switch.handle(1, &tcp().bytes(), lies);
    switch.end_burst();
    assert_eq!(switch.port(1).counters.rx().frames, 2);
    assert_eq!(switch.drops(1, DropReason::Truncated), 1);
    assert_eq!(switch.drops(1, DropReason::BadMetadata), 1);
}

/// Their headers are not parsed; the senders' metadata is close enough, if it can be true.
#[test]
fn trains_that_are_refused_count_their_packets() {
    let train = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 54,
        gso_size: 30,
        csum_start: 34,
        csum_offset: 16,
    };
    let elsewhere = NetHeader { csum_offset: 6, ..train };
    let impossible = NetHeader { csum_start: 999, ..train };
    for (meta, packets) in [(elsewhere, 4), (impossible, 1)] {
        let mut switch = Switch::new(1);
        switch.receive_with(1, &tcp().bytes(), meta);
        assert_eq!(switch.drops(1, DropReason::BadMetadata), 1);
        let rx = switch.port(1).counters.rx();
        assert_eq!((rx.frames, rx.packets), (1, packets));
    }
    let mut switch = Switch::new(1);
    let trunk = PortMode::Trunk(Trunk { vlans: VidSet::all(), native: None });
    switch.set_port(1, |port| port.mode = Some(trunk.into()));
    switch.receive_with(1, &tcp().bytes(), train);
    assert_eq!(switch.drops(1, DropReason::VlanFiltered), 1);
    assert_eq!(switch.port(1).counters.rx().packets, 4);
}

#[test]
fn programs_that_the_cache_forgot_count() {
    const FLOWS: u32 = 70_000;
    let mut switch = Switch::new(2);
    switch.flow(0, 2, &[Oxm::EthDst(mac(1).into())], &[apply(&[out(2)])]);
    switch.flow(0, 1, &[], &[]);
    let mut frame = tcp().bytes();
    for flow in 0..FLOWS {
        frame[..4].copy_from_slice(&flow.to_le_bytes());
        switch.handle(1, &frame, NetHeader::PLAIN);
    }
    let stats = switch.forwarder.cache_stats();
    assert_eq!(stats.walks, u64::from(FLOWS));
    assert!(stats.masked_count < FLOWS as usize, "the cache started over");
    switch.end_burst();
    assert_eq!(table_totals(&switch, 0), (FLOWS.into(), FLOWS.into()));
    assert_eq!(switch.port(1).counters.rx().frames, FLOWS.into());
}

#[test]
fn a_rule_that_goes_during_a_burst_has_counted_all_of_its_frames() {
    let mut switch = Switch::new(3);
    switch.flow(0, 2, &[ip()], &[apply(&[out(2)])]);
    switch.flow(0, 1, &[], &[apply(&[out(3)])]);
    let frame = tcp().bytes();
    (0..3).for_each(|_| assert_eq!(switch.handle(1, &frame, NetHeader::PLAIN), [2]));
    let delete = FlowMod {
        table_id: TableId(0),
        priority: 2,
        match_fields: crate::common::matching(&[ip()]),
        ..FlowMod::new(FlowModCommand::DeleteStrict)
    };
    let removed = switch.pipeline.handle_flow_mod(&delete, switch.now).unwrap();
    (0..4).for_each(|_| assert_eq!(switch.handle(1, &frame, NetHeader::PLAIN), [3]));
    switch.end_burst();
    assert_eq!(removed[0].entry.counters.totals().frames, 3);
    assert_eq!(rule(&switch, 0).counters.totals().frames, 4);
    let sent = [2, 3].map(|port| switch.port(port).counters.tx().frames);
    assert_eq!(sent, [3, 4]);
}

#[test]
fn copies_are_delivered_or_dropped() {
    let push = vec![Action::PushVlan(EtherType::VLAN), out(MONITOR)];
    for copy in [vec![out(MONITOR)], push] {
        let mut switch = tapped(copy);
        for refused in [false, true, true, false, false] {
            switch.out.refuse = refused.then_some((MONITOR, DropReason::EgressFull));
            switch.handle(1, &tcp().bytes(), NetHeader::PLAIN);
        }
        switch.end_burst();
        let group = switch.pipeline.snapshot().groups.find(GroupId(GROUP)).unwrap();
        let frames = |bucket: &GroupBucket| {
            let [processed, delivered] =
                [&bucket.counters, &bucket.delivered].map(|counters| counters.totals().frames);
            (processed, delivered, bucket.drops.total())
        };
        assert_eq!(group.counters.totals().frames, 5);
        assert_eq!([0, 1].map(|index| frames(&group.buckets[index])), [(5, 5, 0), (5, 3, 2)]);
        assert_eq!(switch.port(MONITOR).counters.tx().frames, 3);
        assert_eq!(switch.drops(MONITOR, DropReason::EgressFull), 2);
    }
}

#[test]
fn a_packet_out_counts_at_once() {
    let mut switch = tapped(vec![out(MONITOR)]);
    let actions = [Action::Group(GroupId(GROUP))];
    assert_eq!(switch.packet_out(PortNo(1), &tcp().bytes(), &actions), [2, MONITOR]);
    let counters = [1, 2, MONITOR].map(|port| switch.port(port).counters);
    assert_eq!(counters[0].rx(), Traffic::default(), "it did not come in there");
    assert_eq!(counters[1].tx().frames + counters[2].tx().frames, 2);
    let group = switch.pipeline.snapshot().groups.find(GroupId(GROUP)).unwrap().clone();
    assert_eq!(group.buckets[1].delivered.totals(), group.counters.totals());
}

/// One thing that happens during a burst.
#[derive(Clone, Debug)]
enum Step {
    Frame {
        in_port: u32,
        ip: Ip,
        is_train: bool,
    },
    /// A port begins to refuse frames, or all take them again.
    Refuse(Option<u32>),
    /// A rule is removed, so that programs are made anew.
    Change,
}

fn step() -> impl Strategy<Value = Step> {
    let frame = (1..5u32, 1..6u8, 1..6u8, any::<bool>(), any::<bool>(), 0..4u16).prop_map(
        |(in_port, src, dst, is_tcp, is_train, src_port)| {
            let ip = if is_tcp { tcp() } else { udp() };
            let ip = Ip { src, dst, src_port, payload: 3000, ttl: dst, ..ip };
            Step::Frame { in_port, ip, is_train: is_tcp && is_train }
        },
    );
    prop_oneof![
        12 => frame,
        1 => prop::option::of(1..5u32).prop_map(Step::Refuse),
        1 => Just(Step::Change),
    ]
}

/// A switch that does a bit of everything.
fn versatile() -> Switch {
    let mut switch = Switch::new(4);
    let bucket = |actions: &[Action]| Bucket { weight: 1, ..Bucket::new(actions.to_vec()) };
    let push = Action::PushVlan(EtherType::VLAN);
    let all = vec![bucket(&[out(2)]), bucket(&[push, out(3)]), bucket(&[to_normal()])];
    switch.group(GROUP, GroupType::All, all);
    let nested = bucket(&[Action::Group(GroupId(GROUP)), Action::DecNwTtl, out(1)]);
    let flood = bucket(&[Action::output(PortNo::FLOOD)]);
    switch.group(2, GroupType::Select, vec![bucket(&[out(4)]), nested, flood, bucket(&[])]);
    let to = |dst: u8| Oxm::EthDst(mac(dst).into());
    switch.flow(0, 5, &[to(1)], &[apply(&[Action::Group(GroupId(GROUP))])]);
    switch.flow(0, 5, &[to(2)], &[apply(&[Action::Group(GroupId(2))]), goto(1)]);
    switch.flow(0, 5, &[to(3)], &[apply(&[out(1), out(2), out(77)]), goto(1)]);
    switch.flow(0, 1, &[], &[apply(&[to_normal()])]);
    switch.flow(1, 1, &[to(2)], &[apply(&[out(3), Action::output(PortNo::CONTROLLER)])]);
    switch
}

fn run(bursts: &[Vec<Step>], one_by_one: bool) -> Vec<String> {
    let mut switch = versatile();
    let mut sent = vec![];
    for burst in bursts {
        for step in burst {
            sent.extend(take(&mut switch, step));
            if one_by_one {
                switch.end_burst();
            }
        }
        switch.end_burst();
    }
    for port in 1..5 {
        let left = sent.iter().filter(|&&to| to == port).count() as u64;
        assert_eq!(switch.port(port).counters.tx().frames, left, "port {port}");
    }
    counts(&switch)
}

/// Returns the ports that the frame left by, if it was one.
fn take(switch: &mut Switch, step: &Step) -> Vec<u32> {
    match step {
        Step::Frame { in_port, ip, is_train } => {
            let meta = if *is_train { TRAIN } else { NetHeader::PLAIN };
            return switch.handle(*in_port, &ip.bytes(), meta);
        }
        Step::Refuse(port) => {
            switch.out.refuse = port.map(|port| (port, DropReason::EgressFull));
        }
        Step::Change => switch.flow(7, 1, &[], &[]),
    }
    vec![]
}

/// All counters, in words.
fn counts(switch: &Switch) -> Vec<String> {
    let snapshot = switch.pipeline.snapshot();
    let ports = snapshot.ports.iter().map(|port| format!("{} {:?}", port.number, port.counters));
    let rules = snapshot.tables(TableId::ALL).flat_map(|(_, table)| table.iter());
    let rules = rules.map(|rule| format!("{:?} {:?}", rule.matching, rule.counters));
    let tables = [0, 1].map(|table| format!("{:?}", table_totals(switch, table)));
    let groups = snapshot.groups.iter().map(|group| format!("{group:?}"));
    ports.chain(rules).chain(tables).chain(groups).collect()
}

proptest! {
    #[test]
    fn bursts_count_as_their_frames_do_one_by_one(bursts in vec(vec(step(), 0..40), 1..5)) {
        prop_assert_eq!(run(&bursts, false), run(&bursts, true));
    }
}

/// Frames from port 1 go to port 2, and copies as `copy` says.
fn tapped(copy: Vec<Action>) -> Switch {
    let mut switch = Switch::new(3);
    let buckets = vec![Bucket::new(vec![out(2)]), Bucket::new(copy)];
    switch.group(GROUP, GroupType::All, buckets);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(GROUP))])]);
    switch
}

fn to_normal() -> Action {
    Action::output(PortNo::NORMAL)
}

fn arp() -> Vec<u8> {
    let mut frame = tcp().bytes();
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    frame
}

fn rule(switch: &Switch, table: u8) -> FlowEntry {
    let table = switch.pipeline.snapshot().table(TableId(table)).unwrap();
    FlowEntry::clone(table.iter().next().unwrap())
}

fn table_totals(switch: &Switch, table: u8) -> (u64, u64) {
    switch.pipeline.snapshot().table(TableId(table)).unwrap().counters().totals()
}

const TRAIN: NetHeader = NetHeader {
    flags: NetHeaderFlags::NEEDS_CSUM,
    gso_type: GsoType::TCPV4,
    hdr_len: 54,
    gso_size: 1000,
    csum_start: 34,
    csum_offset: 16,
};
