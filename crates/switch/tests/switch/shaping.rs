//! Tests of copies that their bucket truncates or samples, between real ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use crate::common::*;
use tapswitch_openflow::{Action, Body, Delivery, FlowMod, GroupModCommand, Shape};
use tapswitch_switch::report::TapReport;
use tapswitch_wire::NetHeader;

const MONITOR: u32 = 3;
const GROUP: u32 = 7;

/// Two hosts and a monitor; frames from host 1 to host 2 are copied.
fn tapped(copy: Vec<Action>) -> Lab {
    let lab = Lab::new(3);
    lab.switch.controller().apply(vec![
        group_all(GroupModCommand::Add, GROUP, vec![vec![output(2)], copy]),
        Body::FlowMod(FlowMod { cookie: 0xabc, ..rule(100, in_port(1), vec![to_group(GROUP)]) }),
        wire(2, 1),
    ]);
    lab
}

/// The ledger of the only TAP, when no copy is in progress.
fn ledger(lab: &Lab) -> TapReport {
    let mut taps = Vec::new();
    until("the ledger is at rest", || {
        taps = lab.switch.taps();
        let before = lab.switch.port(1).rx;
        taps.iter().all(|tap| tap.copies[0].queued.frames == 0) && lab.switch.port(1).rx == before
    });
    assert!(taps.len() == 1 && taps[0].adds_up, "{taps:?}");
    taps.remove(0)
}

#[test]
fn a_monitor_gets_the_first_bytes_of_each_packet_of_a_train() {
    if !can_run() {
        return;
    }
    let truncate = Shape::Truncate { len: 96 }.action();
    let mut lab = tapped(vec![Delivery::BestEffort.action(), truncate, output(MONITOR)]);
    let from = lab.host_mut(1).mac();
    let monitor = Capture::open(lab.host(3));
    ping(lab.host(1), lab.host(2));
    tcp(lab.host(1), lab.host(2), 3_000_000);
    let (mut tap, mut packets) = (ledger(&lab), 0);
    // The connection's last segments may come later than its last bytes.
    until("the original, its copies and the ports agree", || {
        tap = ledger(&lab);
        let [receiver, monitor] = [2, MONITOR].map(|port| lab.switch.port(port).tx);
        let delivered = &tap.copies[0].delivered;
        packets = monitor.packets;
        delivered.frames == tap.original.delivered.frames
            && delivered.bytes == monitor.bytes
            && receiver.packets == monitor.packets
    });
    let bucket = &tap.copies[0];
    assert_eq!(bucket.actions, "deliver:best-effort,truncate:96,output:3");
    assert!(bucket.drops.is_empty(), "{bucket:?}");
    let mut seen = Vec::new();
    until("all packets are seen", || {
        seen.extend(monitor.drain(|frame| frame[6..12] == from.0));
        seen.len() as u64 >= packets
    });
    // A packet that is short enough may have a partial checksum, like the original.
    assert!(seen.iter().all(|(header, part)| !header.is_train() && part.len() <= 96));
    let len: usize = seen.iter().map(|(_, part)| part.len()).sum();
    assert!(bucket.delivered.bytes >= len as u64 / 2, "{} of {len}", bucket.delivered.bytes);
}

#[test]
fn a_monitor_gets_one_copy_of_every_ten_and_the_ledger_adds_up() {
    if !can_run() {
        return;
    }
    let sample = Shape::Sample { every: 10 }.action();
    let mut lab = tapped(vec![sample, output(MONITOR)]);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let sender = Capture::open(lab.host(1));
    for _ in 0..200 {
        sender.send(&NetHeader::PLAIN, &frame(to, from, &[], 300));
    }
    until("all frames have passed", || lab.switch.port(1).rx.frames >= 200);
    let tap = ledger(&lab);
    let (copies, all) = (&tap.copies[0], tap.matched.frames);
    assert_eq!(copies.actions, "sample:1/10,output:3");
    // Each worker counts separately; one reads this port.
    assert_eq!(copies.delivered.frames, all / 10 + u64::from(copies.delivered.frames > all / 10));
    assert_eq!(copies.drops["sampled_out"], all - copies.delivered.frames);
    assert_eq!(lab.switch.drops(MONITOR, "sampled_out"), all - copies.delivered.frames);
    assert_eq!(tap.original.delivered.frames, all);
}
