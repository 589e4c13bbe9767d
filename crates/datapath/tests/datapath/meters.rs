//! Meters: packets beyond a rate are dropped or marked, a train counts as its packets, and all of
//! them count once.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic fails a test"
)]

use crate::common::{Ip, Switch, apply, assert_checksums, goto, ip, out, tcp, udp};
use tapswitch_datapath::{DropReason, Forwarder, Meter, Millis, WorkerIndex};
use tapswitch_openflow::{
    Action, Bucket, ErrorKind, FlowRemovedReason, GroupId, GroupType, Instruction, METER_ALL,
    METER_CONTROLLER, MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand, Oxm, PortNo,
    TableId,
};
use tapswitch_wire::{EtherType, GsoType, NetHeader, NetHeaderFlags};

const VLAN: EtherType = EtherType::VLAN;
const ADD: MeterModCommand = MeterModCommand::Add;
const PACKETS: MeterFlags = MeterFlags::PKTPS.union(MeterFlags::BURST);
const KILOBITS: MeterFlags = MeterFlags::KBPS.union(MeterFlags::BURST);

fn drop_above(rate: u32, burst_size: u32) -> MeterBand {
    MeterBand { rate, burst_size, kind: MeterBandKind::Drop }
}

fn remark_above(rate: u32, burst_size: u32, prec_level: u8) -> MeterBand {
    MeterBand { rate, burst_size, kind: MeterBandKind::DscpRemark { prec_level } }
}

fn change(
    switch: &mut Switch,
    command: MeterModCommand,
    meter_id: u32,
    flags: MeterFlags,
    bands: &[MeterBand],
) -> usize {
    let change = MeterMod { command, flags, meter_id, bands: bands.to_vec() };
    switch.pipeline.handle_meter_mod(&change, switch.now).unwrap().len()
}

/// A switch whose frames pass meter 1 on their way from port 1 to port 2.
fn metered(flags: MeterFlags, bands: &[MeterBand]) -> Switch {
    let mut switch = Switch::new(3);
    change(&mut switch, ADD, 1, flags, bands);
    switch.flow(0, 1, &[], &[Instruction::Meter(1), apply(&[out(2)])]);
    switch
}

/// The same after one frame, which was all that the bands pass.
fn exhausted(bands: &[MeterBand]) -> Switch {
    let mut switch = metered(PACKETS, bands);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    switch
}

/// How many of `count` frames pass.
fn passed(switch: &mut Switch, count: usize, frame: &[u8]) -> usize {
    (0..count).filter(|_| !switch.receive(1, frame).is_empty()).count()
}

fn meter(switch: &Switch, id: u32) -> &Meter {
    switch.pipeline.snapshot().meters.find(id).unwrap()
}

/// Packets and bytes that a meter measured, and that each of its bands applied to.
fn counted(switch: &Switch, id: u32) -> ((u64, u64), Vec<(u64, u64)>) {
    let meter = meter(switch, id);
    let of = |counters: &tapswitch_datapath::Counters| {
        let totals = counters.totals();
        (totals.packets, totals.bytes)
    };
    (of(&meter.counters), meter.bands.iter().map(|band| of(&band.counters)).collect())
}

/// Checks that all ends of frames are accounted for: each left, or was dropped by name.
#[track_caller]
fn assert_books(switch: &Switch, received: u64) {
    let counters = switch.port(1).counters;
    assert_eq!(counters.rx().frames, received);
    let sent: u64 = (1..=3).map(|port| switch.port(port).counters.tx().frames).sum();
    let dropped: u64 = (1..=3).map(|port| switch.port(port).counters.drops().total()).sum();
    assert_eq!(counters.ends(), sent + dropped, "sent {sent}, dropped {dropped}");
}

#[test]
fn what_is_beyond_the_rate_is_dropped() {
    let mut switch = metered(PACKETS, &[drop_above(100, 10)]);
    let frame = tcp().bytes();
    assert_eq!(passed(&mut switch, 15, &frame), 10);
    assert_eq!(switch.drops(1, DropReason::Metered), 5);
    switch.now = Millis(1030);
    assert_eq!(passed(&mut switch, 15, &frame), 3);
    assert_eq!(switch.drops(1, DropReason::Metered), 17);
    let len = frame.len() as u64;
    assert_eq!(counted(&switch, 1), ((30, 30 * len), vec![(17, 17 * len)]));
    let snapshot = switch.pipeline.snapshot().clone();
    let rule = snapshot.table(TableId(0)).unwrap().iter().next().unwrap();
    assert_eq!(rule.counters.totals().frames, 30, "the rule matched, whatever its meter says");
    assert_books(&switch, 30);
}

/// Later rules do not count what a meter dropped, and expire in spite of it.
#[test]
fn what_is_dropped_counts_for_no_rule_behind() {
    let mut switch = metered(PACKETS, &[drop_above(1, 2)]);
    switch.flow(0, 2, &[], &[Instruction::Meter(1), goto(1)]);
    switch.flow(1, 1, &[ip()], &[apply(&[out(2)])]);
    let mut other = tcp().bytes();
    other[12] = 0x12;
    let frame = tcp().bytes();
    for frame in [&frame, &other, &frame, &other] {
        switch.handle(1, frame, NetHeader::PLAIN);
    }
    switch.end_burst();
    let snapshot = switch.pipeline.snapshot().clone();
    let table = |number| snapshot.table(TableId(number)).unwrap().counters().totals();
    assert_eq!((table(0), table(1)), ((4, 4), (2, 1)));
    assert_eq!(switch.drops(1, DropReason::Metered), 2);
    assert_books(&switch, 4);
}

#[test]
fn a_meter_is_passed_before_all_actions() {
    let mut switch = metered(PACKETS, &[drop_above(1, 1)]);
    switch.group(1, GroupType::All, vec![Bucket::new(vec![out(2)]), Bucket::new(vec![out(3)])]);
    let actions = apply(&[Action::Group(GroupId(1))]);
    switch.flow(0, 1, &[], &[actions, Instruction::Meter(1)]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3]);
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    let group = switch.pipeline.snapshot().groups.find(GroupId(1)).unwrap();
    assert_eq!(group.counters.totals().frames, 1);
    for bucket in &group.buckets {
        assert_eq!(bucket.counters.totals().frames, 1, "a copy that nobody asked for");
        assert_eq!(bucket.drops.total(), 0);
    }
    assert_books(&switch, 2);
}

#[test]
fn flows_share_the_meter_that_they_name() {
    let mut switch = metered(PACKETS, &[drop_above(10, 10)]);
    for (source, passes) in [(1, 6), (2, 4), (3, 0)] {
        let frame = Ip { src: source, ..tcp() }.bytes();
        assert_eq!(passed(&mut switch, 6, &frame), passes, "{source}");
    }
    switch.flow(0, 5, &[Oxm::InPort(PortNo(1))], &[apply(&[out(2)])]);
    assert_eq!(passed(&mut switch, 6, &tcp().bytes()), 6, "a rule without a meter");
}

/// A train of five packets: 4 with 1000 bytes of payload, and one with 500.
fn train() -> (Vec<u8>, NetHeader) {
    let flags = NetHeaderFlags::NEEDS_CSUM;
    let meta = NetHeader {
        flags,
        gso_type: GsoType::TCPV4,
        hdr_len: 54,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
    };
    (Ip { payload: 4500, ..tcp() }.bytes(), meta)
}

#[test]
fn a_train_counts_as_its_packets() {
    let (frame, meta) = train();
    let mut switch = metered(PACKETS, &[drop_above(100, 11)]);
    let passes = |switch: &mut Switch| switch.receive_with(1, &frame, meta) == [2];
    let passed = [(); 4].map(|()| passes(&mut switch));
    assert_eq!(passed, [true, true, true, false], "5, 10, and 4 more than there were");
    switch.now = Millis(1040);
    assert!(!passes(&mut switch), "the debt of 4 is paid, nothing more");
    switch.now = Millis(1050);
    assert!(passes(&mut switch));
    assert_eq!(switch.drops(1, DropReason::Metered), 2);
    // Each packet has its own headers.
    let len = 5 * 54 + 4500;
    assert_eq!(counted(&switch, 1), ((30, 6 * len), vec![(10, 2 * len)]));
    assert_books(&switch, 6);
}

#[test]
fn bits_of_a_train_are_those_of_its_packets() {
    let (frame, meta) = train();
    let bits = (5 * 54 + 4500) * 8;
    // Ten kilobits more than two trains.
    let mut switch = metered(KILOBITS, &[drop_above(1, (2 * bits + 10_000) / 1000)]);
    let passes = |switch: &mut Switch| switch.receive_with(1, &frame, meta) == [2];
    assert_eq!([(); 4].map(|()| passes(&mut switch)), [true, true, true, false]);
    assert_eq!(switch.port(2).counters.tx().packets, 15);
}

#[test]
fn the_band_of_the_highest_rate_that_is_exceeded_applies() {
    let bands = [remark_above(10, 2, 1), drop_above(100, 4), remark_above(10, 2, 2)];
    let mut switch = metered(PACKETS, &bands);
    let frame = with_dscp(10);
    let sent: Vec<_> = (0..6)
        .map(|_| (!switch.receive(1, &frame).is_empty()).then(|| dscp(switch.sent(2))))
        .collect();
    assert_eq!(sent, [Some(10), Some(10), Some(12), Some(12), None, None]);
    let len = frame.len() as u64;
    let bands = vec![(2, 2 * len), (2, 2 * len), (0, 0)];
    assert_eq!(counted(&switch, 1), ((6, 6 * len), bands), "the first of two with one rate");
}

/// A TCP frame with this DSCP and valid checksums.
fn with_dscp(dscp: u8) -> Vec<u8> {
    let mut switch = Switch::new(2);
    let set = Action::SetField(Oxm::IpDscp(dscp));
    switch.flow(0, 1, &[ip()], &[apply(&[set, out(2)])]);
    switch.receive(1, &tcp().bytes());
    switch.sent(2).to_vec()
}

fn dscp(frame: &[u8]) -> u8 {
    frame[15] >> 2
}

/// Classes of assured forwarding are 8 to 32 by eights, the precedences in them 2, 4 and 6.
#[test]
fn a_remark_raises_the_drop_precedence_and_nothing_else() {
    for level in [1, 2, 3, 255_u8] {
        for before in 0..64_u8 {
            let (class, precedence) = (before / 8, before % 8 / 2);
            let is_assured = (1..=4).contains(&class) && precedence > 0 && before % 2 == 0;
            let raised = class * 8 + precedence.saturating_add(level).min(3) * 2;
            let mut switch = exhausted(&[remark_above(1, 1, level)]);
            let frame = with_dscp(before);
            assert_eq!(switch.receive(1, &frame), [2]);
            let sent = switch.sent(2);
            let expected = if is_assured { raised } else { before };
            assert_eq!(dscp(sent), expected, "DSCP {before}, {level} more");
            assert_checksums(sent);
            assert_eq!((&sent[..15], &sent[26..]), (&frame[..15], &frame[26..]));
        }
    }
}

#[test]
fn a_remark_reaches_ipv6_behind_tags_and_leaves_others_alone() {
    let mut switch = exhausted(&[remark_above(1, 1, 1)]);
    let mut frame = vec![0; 18 + 40 + 8];
    frame[12..18].copy_from_slice(&[0x81, 0, 0, 5, 0x86, 0xdd]);
    // DSCP 10, ECN 2, flow label 0xabcde.
    frame[18..22].copy_from_slice(&(6 << 28 | 0x2a << 20 | 0xa_bcde_u32).to_be_bytes());
    (frame[23], frame[24]) = (8, 59);
    assert_eq!(switch.receive(1, &frame), [2]);
    let word = u32::from_be_bytes(switch.sent(2)[18..22].try_into().unwrap());
    assert_eq!(word, 6 << 28 | 0x32 << 20 | 0xa_bcde, "DSCP 12");
    frame[16..18].copy_from_slice(&[0x12, 0x34]);
    assert_eq!(switch.receive(1, &frame), [2]);
    assert_eq!(switch.sent(2), frame);
}

/// Whether a meter remarks a packet depends on the moment, so each packet is looked up by its new
/// DSCP.
#[test]
fn tables_behind_match_on_the_dscp_as_it_was_remarked() {
    let mut switch = metered(PACKETS, &[remark_above(1, 2, 1)]);
    switch.flow(0, 1, &[], &[Instruction::Meter(1), goto(1)]);
    for (dscp, port) in [(10, 2), (12, 3)] {
        let write = Instruction::WriteActions(vec![Action::SetField(Oxm::IpEcn(1)), out(port)]);
        switch.flow(1, 1, &[ip(), Oxm::IpDscp(dscp)], &[write, goto(2)]);
    }
    switch.flow(2, 1, &[ip(), Oxm::IpDscp(12)], &[]);
    let frame = with_dscp(10);
    let ways: Vec<_> = (0..6).map(|_| switch.receive(1, &frame)).collect();
    // Table 2 has no rule for the two that the meter did not remark.
    assert_eq!(ways, [vec![], vec![], vec![3], vec![3], vec![3], vec![3]]);
    assert_eq!(switch.sent(3)[15], 12 << 2 | 1);
    assert_checksums(switch.sent(3));
    assert_eq!(switch.drops(1, DropReason::TableMiss), 2);
    let snapshot = switch.pipeline.snapshot().clone();
    let table = |number| snapshot.table(TableId(number)).unwrap().counters().totals();
    assert_eq!([0, 1, 2].map(table), [(6, 6), (6, 6), (6, 4)]);
    let packets = |rule: &std::sync::Arc<tapswitch_datapath::FlowEntry>| {
        let totals = rule.counters.totals();
        (totals.packets, totals.bytes)
    };
    let mut counted: Vec<_> = snapshot.table(TableId(1)).unwrap().iter().map(packets).collect();
    counted.sort_unstable();
    let len = frame.len() as u64;
    assert_eq!(counted, [(2, 2 * len), (4, 4 * len)]);
    assert_eq!(switch.forwarder.cache_stats().walks, 1, "one program for both");
    assert_books(&switch, 6);
}

/// Each table remarks what the one before has remarked.
#[test]
fn remarks_add_up_from_table_to_table() {
    let mut switch = metered(PACKETS, &[remark_above(1, 1, 1)]);
    change(&mut switch, ADD, 2, PACKETS, &[remark_above(1, 2, 1)]);
    switch.flow(0, 1, &[], &[Instruction::Meter(1), apply(&[Action::PushVlan(VLAN)]), goto(1)]);
    switch.flow(1, 1, &[ip(), Oxm::IpDscp(10)], &[Instruction::Meter(2), goto(2)]);
    switch.flow(1, 2, &[ip(), Oxm::IpDscp(12)], &[Instruction::Meter(2), goto(2)]);
    for (dscp, out_port) in [(10, 1), (12, 2), (14, 3)] {
        let port = if out_port == 1 { PortNo::IN_PORT } else { PortNo(out_port) };
        switch.flow(2, 1, &[ip(), Oxm::IpDscp(dscp)], &[apply(&[Action::output(port)])]);
    }
    let frame = with_dscp(10);
    let ways: Vec<_> = (0..4).map(|_| switch.receive(1, &frame)).collect();
    assert_eq!(ways, [[1], [2], [3], [3]]);
    let snapshot = switch.pipeline.snapshot().clone();
    let bytes = |rule: &std::sync::Arc<tapswitch_datapath::FlowEntry>| rule.counters.totals().bytes;
    let counted: u64 = snapshot.table(TableId(2)).unwrap().iter().map(bytes).sum();
    assert_eq!(counted, 4 * frame.len() as u64, "as they came in, without the tag");
    assert_books(&switch, 4);
}

#[test]
fn a_dscp_that_is_set_behind_a_meter_is_that_for_all() {
    let mut switch = exhausted(&[remark_above(1, 1, 1)]);
    let set = apply(&[Action::SetField(Oxm::IpDscp(46))]);
    switch.flow(0, 2, &[ip()], &[Instruction::Meter(1), set, goto(1)]);
    switch.flow(1, 1, &[ip(), Oxm::IpDscp(46)], &[apply(&[out(2)])]);
    for _ in 0..2 {
        assert_eq!(switch.receive(1, &with_dscp(10)), [2]);
        assert_eq!(dscp(switch.sent(2)), 46);
    }
}

/// The DSCP that a bucket sets does not change that of the original frame.
#[test]
fn a_bucket_that_sets_the_dscp_leaves_that_of_the_frame_to_the_meter() {
    let mut switch = exhausted(&[remark_above(1, 1, 1)]);
    let copy = Bucket::new(vec![Action::SetField(Oxm::IpDscp(46)), out(3)]);
    switch.group(1, GroupType::All, vec![copy]);
    let group = apply(&[Action::Group(GroupId(1))]);
    switch.flow(0, 1, &[], &[Instruction::Meter(1), group, goto(1)]);
    switch.flow(1, 1, &[ip(), Oxm::IpDscp(12)], &[apply(&[out(2)])]);
    assert_eq!(switch.receive(1, &with_dscp(10)), [3, 2]);
    assert_eq!((dscp(switch.sent(3)), dscp(switch.sent(2))), (46, 12));
}

/// Each table may fork again, so a chain of all tables would have tens of thousands of arms.
#[test]
fn a_long_chain_of_remarks_is_bounded() {
    for (last, is_short) in [(16, true), (17, false), (253, false)] {
        // So much that no packet is remarked: each may be at every table.
        let bands = [remark_above(1000, 1000, 1), remark_above(2000, 2000, 2)];
        let mut switch = metered(PACKETS, &bands);
        let dscps = [10, 12, 14].map(Oxm::IpDscp);
        for table in 0..=last {
            let instructions = match table == last {
                true => vec![apply(&[out(2)])],
                false => vec![Instruction::Meter(1), goto(table + 1)],
            };
            dscps.iter().for_each(|dscp| {
                switch.flow(table, 2, &[ip(), dscp.clone()], &instructions);
            });
        }
        assert_eq!(switch.receive(1, &with_dscp(14)), [2], "no DSCP but one is possible");
        let passes = switch.receive(1, &with_dscp(10)) == [2];
        let dropped = switch.drops(1, DropReason::TooDeep);
        assert_eq!((passes, dropped), (is_short, u64::from(!is_short)), "{last} tables");
        assert_books(&switch, 2);
    }
}

/// Rules that do not match the DSCP need no branches.
#[test]
fn tables_that_do_not_look_at_the_dscp_see_one_flow() {
    let mut switch = metered(PACKETS, &[remark_above(1, 1, 1)]);
    switch.flow(0, 1, &[], &[Instruction::Meter(1), goto(1)]);
    switch.flow(1, 1, &[ip()], &[apply(&[out(2)])]);
    let frame = with_dscp(10);
    let sent: Vec<_> = (0..3).map(|_| (switch.receive(1, &frame), dscp(switch.sent(2)))).collect();
    assert_eq!(sent, [(vec![2], 10), (vec![2], 12), (vec![2], 12)]);
    assert_eq!(switch.forwarder.cache_stats().walks, 1);
}

/// The tables get a copy, whose DSCP they match, and other outputs get the packet as it was.
#[test]
fn a_packet_out_to_the_tables_is_remarked_there() {
    let mut switch = exhausted(&[remark_above(1, 1, 1)]);
    switch.flow(0, 1, &[], &[Instruction::Meter(1), goto(1)]);
    switch.flow(1, 1, &[ip(), Oxm::IpDscp(10)], &[apply(&[out(3)])]);
    switch.flow(1, 1, &[ip(), Oxm::IpDscp(12)], &[apply(&[out(2)])]);
    let to_tables = Action::output(PortNo::TABLE);
    let frame = with_dscp(10);
    assert_eq!(switch.packet_out(PortNo(1), &frame, std::slice::from_ref(&to_tables)), [2]);
    assert_eq!(dscp(switch.sent(2)), 12);
    assert_eq!(switch.packet_out(PortNo(1), &frame, &[to_tables, out(3)]), [2, 3]);
    assert_eq!((dscp(switch.sent(2)), dscp(switch.sent(3))), (12, 10));
}

/// Each of two copies is counted for itself, wherever the other one ends.
#[test]
fn two_copies_for_the_tables_are_counted_apart() {
    let mut switch = exhausted(&[drop_above(1, 1)]);
    switch.flow(0, 1, &[], &[Instruction::Meter(1), goto(1)]);
    switch.flow(1, 1, &[ip()], &[apply(&[out(2)])]);
    let frames = |switch: &Switch| {
        let table = |id| switch.pipeline.snapshot().table(TableId(id)).unwrap();
        [0, 1].map(|id| table(id).iter().map(|rule| rule.counters.totals().frames).sum::<u64>())
    };
    let before = frames(&switch);
    let to_tables = || Action::output(PortNo::TABLE);
    let outputs = [to_tables(), to_tables(), out(3)];
    assert_eq!(switch.packet_out(PortNo(1), &tcp().bytes(), &outputs), [3]);
    assert_eq!(frames(&switch), [before[0] + 2, before[1]]);
}

#[test]
fn a_changed_meter_works_on_flows_that_run() {
    let mut switch = metered(PACKETS, &[drop_above(1, 1)]);
    let frame = udp().bytes();
    assert_eq!(passed(&mut switch, 5, &frame), 1);
    change(&mut switch, MeterModCommand::Modify, 1, PACKETS, &[]);
    assert_eq!(passed(&mut switch, 5, &frame), 5, "without bands it only counts");
    change(&mut switch, MeterModCommand::Modify, 1, PACKETS, &[drop_above(1, 2)]);
    assert_eq!(passed(&mut switch, 5, &frame), 2);
    assert_eq!(counted(&switch, 1).0.0, 15);
}

#[test]
fn a_rule_goes_with_its_meter() {
    let mut switch = metered(PACKETS, &[]);
    change(&mut switch, ADD, 2, PACKETS, &[]);
    switch.flow(3, 1, &[], &[Instruction::Meter(2)]);
    switch.flow(3, 2, &[], &[Instruction::Meter(1)]);
    switch.flow(4, 1, &[], &[]);
    assert_eq!([1, 2, 3].map(|id| switch.pipeline.rules_through(id)), [2, 1, 0]);
    let rules = |switch: &Switch| {
        let snapshot = switch.pipeline.snapshot();
        snapshot.tables(TableId::ALL).map(|(_, table)| table.count()).sum::<usize>()
    };
    let delete = MeterModCommand::Delete;
    let gone = MeterMod { command: delete, flags: PACKETS, meter_id: 1, bands: vec![] };
    let gone = switch.pipeline.handle_meter_mod(&gone, switch.now).unwrap();
    assert_eq!(gone.len(), 2);
    assert!(gone.iter().all(|removal| removal.reason == FlowRemovedReason::DELETE));
    assert_eq!((rules(&switch), switch.pipeline.rules_through(1)), (2, 0));
    assert!(switch.receive(1, &tcp().bytes()).is_empty());
    assert_eq!(switch.drops(1, DropReason::TableMiss), 1);
    assert_eq!(change(&mut switch, delete, METER_ALL, PACKETS, &[]), 1);
    assert_eq!((rules(&switch), switch.pipeline.snapshot().meters.count()), (1, 0));
}

/// A rule that replaces another, or is modified, uses the meter that it names now.
#[test]
fn rules_that_lose_their_meter_stay_when_that_goes() {
    let mut switch = metered(PACKETS, &[]);
    switch.flow(0, 1, &[], &[apply(&[out(3)])]);
    assert_eq!(switch.pipeline.rules_through(1), 0);
    change(&mut switch, MeterModCommand::Delete, 1, PACKETS, &[]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [3]);
}

#[test]
fn a_meter_that_is_not_there_is_refused() {
    let mut switch = metered(PACKETS, &[]);
    change(&mut switch, ADD, METER_CONTROLLER, PACKETS, &[]);
    let mut refused = |id| switch.try_flow(0, 7, &[], &[Instruction::Meter(id)]).unwrap_err();
    assert_eq!(refused(2), ErrorKind::OFPMMFC_UNKNOWN_METER);
    for id in [0, METER_CONTROLLER, METER_ALL] {
        assert_eq!(refused(id), ErrorKind::OFPMMFC_INVALID_METER, "{id:#x}");
    }
}

#[test]
fn the_controllers_meter_spares_it_and_nobody_else() {
    let mut switch = Switch::new(2);
    change(&mut switch, ADD, METER_CONTROLLER, PACKETS, &[drop_above(1, 2)]);
    switch.flow(0, 1, &[], &[apply(&[Action::output(PortNo::CONTROLLER), out(2)])]);
    assert_eq!(passed(&mut switch, 5, &tcp().bytes()), 5);
    assert_eq!(switch.out.packet_ins.len(), 2);
    assert_eq!(switch.drops(1, DropReason::Metered), 3);
    // The packet-in for an expired TTL passes the same meter.
    switch.flow(0, 2, &[ip()], &[apply(&[Action::DecNwTtl, out(2)])]);
    switch.receive(1, &Ip { ttl: 1, ..tcp() }.bytes());
    assert_eq!(switch.out.packet_ins.len(), 2);
    assert_eq!(switch.drops(1, DropReason::InvalidTtl), 1);
    assert_eq!(counted(&switch, METER_CONTROLLER).0.0, 6);
}

#[test]
fn a_copy_that_the_controllers_meter_drops_is_in_its_ledger() {
    let mut switch = Switch::new(2);
    change(&mut switch, ADD, METER_CONTROLLER, PACKETS, &[drop_above(1, 2)]);
    let copy = Bucket::new(vec![Action::output(PortNo::CONTROLLER)]);
    switch.group(1, GroupType::All, vec![Bucket::new(vec![out(2)]), copy]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    assert_eq!(passed(&mut switch, 5, &tcp().bytes()), 5);
    let copy = &switch.pipeline.snapshot().groups.find(GroupId(1)).unwrap().buckets[1];
    assert_eq!(copy.counters.totals().frames, 5);
    assert_eq!(copy.delivered.totals().frames, 2);
    assert_eq!(copy.drops.by_reason().collect::<Vec<_>>(), [(DropReason::Metered, 3)]);
}

#[test]
fn workers_share_a_meter() {
    let mut switch = metered(PACKETS, &[drop_above(1, 10)]);
    // Counters for one worker: the second one uses the shared slot.
    for turn in 0..20 {
        let mut other = Forwarder::new(WorkerIndex(turn % 2));
        std::mem::swap(&mut switch.forwarder, &mut other);
        switch.receive(1, &tcp().bytes());
    }
    assert_eq!(switch.port(2).counters.tx().frames, 10);
    assert_eq!(switch.drops(1, DropReason::Metered), 10);
    assert_eq!(counted(&switch, 1).0.0, 20);
}

#[test]
fn a_packet_of_the_controllers_passes_meters_in_the_tables() {
    let mut switch = metered(PACKETS, &[drop_above(1, 1)]);
    let frame = tcp().bytes();
    let to_tables = [Action::output(PortNo::TABLE)];
    assert_eq!(switch.packet_out(PortNo(1), &frame, &to_tables), [2]);
    assert!(switch.packet_out(PortNo(1), &frame, &to_tables).is_empty());
    assert_eq!(switch.drops(1, DropReason::Metered), 1);
    assert_eq!(counted(&switch, 1).0.0, 2);
}

/// The tables are one of several outputs: a frame that ends there still leaves by the others.
#[test]
fn what_ends_in_the_tables_leaves_by_the_other_outputs_of_a_packet_out() {
    let mut switch = exhausted(&[drop_above(1, 1)]);
    let outputs = [Action::output(PortNo::TABLE), out(3)];
    assert_eq!(switch.packet_out(PortNo(1), &tcp().bytes(), &outputs), [3]);
    assert_eq!(switch.drops(1, DropReason::Metered), 1);
    switch.flow(0, 2, &[ip()], &[apply(&[Action::DecNwTtl, out(2)])]);
    let expired = Ip { ttl: 1, ..tcp() }.bytes();
    assert_eq!(switch.packet_out(PortNo(1), &expired, &outputs), [3]);
    assert_eq!(switch.drops(1, DropReason::InvalidTtl), 1);
    assert_eq!(switch.packet_out(PortNo(1), &tcp().bytes(), &outputs), [2, 3]);
}
