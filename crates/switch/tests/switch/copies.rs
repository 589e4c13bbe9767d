//! Tests of TAPs as groups of type ALL: copies equal the originals, the ledger adds up, and the
//! originals are not affected.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use crate::common::*;
use tapswitch_openflow::{
    Action, Body, FlowMod, FlowModCommand, GroupModCommand, Masked, Oxm, Shape, VID_PRESENT,
};
use tapswitch_switch::report::{CountReport, PortReport, TapReport, TrafficReport};
use tapswitch_wire::{EtherType, MacAddr, NetHeader, Tag};

const ADD: GroupModCommand = GroupModCommand::Add;
const DELETE: GroupModCommand = GroupModCommand::Delete;
/// The port of the monitor.
const MONITOR: u32 = 3;
const GROUP: u32 = 7;

/// Two hosts and a monitor; frames from host 1 to host 2 are copied.
fn tapped(copy: Vec<Action>) -> Lab {
    let lab = Lab::new(3);
    let mut controller = lab.switch.controller();
    controller.apply(vec![
        group_all(ADD, GROUP, vec![vec![output(2)], copy]),
        Body::FlowMod(FlowMod { cookie: 0xabc, ..rule(100, in_port(1), vec![to_group(GROUP)]) }),
        wire(2, 1),
    ]);
    lab
}

/// The ledger of the only TAP, when all copies have been processed.
fn ledger(lab: &Lab) -> TapReport {
    let taps = lab.switch.taps();
    assert_eq!(taps.len(), 1, "{taps:?}");
    taps.into_iter().next().unwrap()
}

fn came_from(mac: MacAddr) -> impl Fn(&[u8]) -> bool {
    move |frame| frame[6..12] == mac.0
}

#[test]
fn copies_are_the_originals_in_their_order() {
    if !can_run() {
        return;
    }
    let mut lab = tapped(vec![output(MONITOR)]);
    let from = lab.host_mut(1).mac();
    let (receiver, monitor) = (Capture::open(lab.host(2)), Capture::open(lab.host(3)));
    ping(lab.host(1), lab.host(2));
    tcp(lab.host(1), lab.host(2), 6_000_000);
    until("the traffic ends", || {
        let ports = lab.switch.ports();
        ports[1].tx == ports[2].tx && ports[1].tx.frames == ports[0].rx.frames
    });
    let expected = usize::try_from(lab.switch.port(2).tx.frames).unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    for (capture, seen) in [&receiver, &monitor].into_iter().zip(&mut seen) {
        until("all frames are seen", || {
            seen.extend(capture.drain(came_from(from)));
            seen.len() >= expected
        });
        assert_eq!(capture.lost(), 0, "the test itself was too slow");
    }
    let [originals, copies] = seen.map(|frames| {
        // More frames may arrive later, at one before the other.
        let frames = frames.into_iter().take(expected);
        frames.map(|(header, frame)| (without_hint(header), frame)).collect::<Vec<_>>()
    });
    assert!(originals.iter().any(|(header, _)| header.is_train()), "no train to compare");
    assert_eq!(originals.len(), copies.len());
    for (index, (original, copy)) in originals.iter().zip(&copies).enumerate() {
        assert_eq!(original.0, copy.0, "metadata of frame {index}");
        assert!(original.1 == copy.1, "bytes of frame {index}");
    }
}

#[test]
fn a_copy_is_tagged_and_the_original_is_not() {
    if !can_run() {
        return;
    }
    let vid = Oxm::VlanVid(Masked::exact(VID_PRESENT | 77));
    let tagging =
        vec![Action::PushVlan(EtherType::SERVICE_VLAN), Action::SetField(vid), output(MONITOR)];
    // The copy is sent first, so changes to it would show in the original.
    let mut lab = Lab::new(3);
    lab.switch.controller().apply(vec![
        group_all(ADD, GROUP, vec![tagging, vec![output(2)]]),
        Body::FlowMod(rule(100, in_port(1), vec![to_group(GROUP)])),
        wire(2, 1),
    ]);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let (receiver, monitor) = (Capture::open(lab.host(2)), Capture::open(lab.host(3)));
    let a = Capture::open(lab.host(1));
    let service = Tag::new(EtherType::SERVICE_VLAN, 77);
    let customer = Tag::new(EtherType::VLAN, 5);
    for len in [60, 700, 1514] {
        let sent = frame(to, from, &[], len);
        a.send(&NetHeader::PLAIN, &sent);
        assert_eq!(receiver.receive(came_from(from)).1, sent);
        let expected = [&sent[..12], &service.tpid, &service.tci, &sent[12..]].concat();
        assert_eq!(monitor.receive(came_from(from)).1, expected);
    }
    // A new tag inherits the priority of the one before, here 0; the identifier is set.
    let sent = frame(to, from, &[customer], 700);
    a.send(&NetHeader::PLAIN, &sent);
    assert_eq!(receiver.receive(came_from(from)).1, sent);
    let expected = frame(to, from, &[service, customer], 704);
    assert_eq!(monitor.receive(came_from(from)).1[..18], expected[..18]);

    tcp(lab.host(1), lab.host(2), 4_000_000);
    let is_tagged = |f: &[u8]| f[12..16] == [0x88, 0xa8, 0, 77];
    let (header, train) = monitor.receive(|f| f.len() > 4000 && came_from(from)(f));
    assert!(is_tagged(&train) && header.is_train(), "trains are tagged whole");
    assert_eq!(header.csum_start, 38, "the metadata moves along with the tag");
}

#[test]
fn the_ledger_is_exact_at_rest() {
    if !can_run() {
        return;
    }
    let mut lab = tapped(vec![output(MONITOR)]);
    tcp(lab.host(1), lab.host(2), 5_000_000);
    // Exactly, and soon: the last frames may still be in flight.
    until("the ledger is what ports and kernel say", || {
        let tap = ledger(&lab);
        let [one, two, monitor] = [1, 2, 3].map(|port| lab.switch.port(port));
        let received = lab.host_mut(3).link().stats;
        let kernel = [received.rx_packets, received.rx_bytes];
        assert_eq!(received.rx_dropped, 0);
        let counts = [tap.original.count, tap.original.delivered, tap.copies[0].count];
        counts.iter().all(|count| *count == tap.matched)
            && [one.rx, two.tx, monitor.tx].into_iter().all(|seen| count(seen) == tap.matched)
            && tap.copies[0].delivered == tap.matched
            && kernel == [tap.matched.frames, tap.matched.bytes]
    });
    let tap = ledger(&lab);
    assert!(tap.adds_up && tap.matched.bytes > 5_000_000);
    assert_eq!((tap.group, tap.cookies), (GROUP, vec!["0xabc".to_owned()]));
    assert!(tap.original.drops.is_empty() && tap.copies[0].drops.is_empty());
}

fn count(traffic: TrafficReport) -> CountReport {
    let TrafficReport { frames, packets, bytes } = traffic;
    CountReport { frames, packets, bytes }
}

#[test]
fn a_monitor_that_is_down_costs_copies_only() {
    if !can_run() {
        return;
    }
    let mut lab = tapped(vec![output(MONITOR)]);
    tcp(lab.host(1), lab.host(2), 1_000_000);
    lab.host_mut(3).netlink.set_down("eth0").unwrap();
    tcp(lab.host(1), lab.host(2), 3_000_000);
    lab.wait_for_state(MONITOR, "no-link");
    tcp(lab.host(1), lab.host(2), 3_000_000);
    until("the traffic ends", || {
        let tap = ledger(&lab);
        let copy = &tap.copies[0];
        let missing: u64 = copy.drops.values().sum();
        tap.matched == tap.original.delivered
            && tap.matched.frames == copy.delivered.frames + missing
            && missing == lab.switch.drops(MONITOR, "port_down")
    });
    let tap = ledger(&lab);
    assert!(tap.adds_up && tap.original.drops.is_empty(), "{tap:?}");
    assert_eq!(tap.copies[0].drops.keys().collect::<Vec<_>>(), ["port_down"]);
    assert!(lab.switch.port(2).drops.is_empty());

    lab.host_mut(3).netlink.set_up("eth0").unwrap();
    lab.wait_for_state(MONITOR, "up");
    let before = ledger(&lab).copies[0].delivered.frames;
    ping(lab.host(1), lab.host(2));
    until("copies go on", || ledger(&lab).copies[0].delivered.frames > before);
}

/// Adding and removing a copy must not cost the receiver a frame.
#[test]
fn a_tap_that_comes_and_goes_under_load_costs_the_receiver_nothing() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(3);
    let mut controller = lab.switch.controller();
    controller.apply(join(1, 2));
    let stream = Stream::start(lab.host(1), lab.host(2));
    let path = |actions| {
        let command = FlowModCommand::ModifyStrict;
        Body::FlowMod(FlowMod { command, ..rule(100, in_port(1), actions) })
    };
    let mut copied = 0;
    for _ in 0..100 {
        let buckets = vec![vec![output(2)], vec![output(MONITOR)]];
        controller.apply(vec![group_all(ADD, GROUP, buckets), path(vec![to_group(GROUP)])]);
        until("something is copied", || ledger(&lab).copies[0].delivered.frames > 0);
        controller.apply(vec![path(vec![output(2)])]);
        let tap = ledger(&lab);
        assert!(tap.original.drops.is_empty() && tap.copies[0].drops.is_empty(), "{tap:?}");
        assert_eq!(tap.matched, tap.original.delivered, "at rest, behind a barrier");
        assert_eq!(tap.matched, tap.copies[0].delivered);
        copied += tap.matched.frames;
        controller.apply(vec![group_all(DELETE, GROUP, vec![])]);
    }
    let bytes = stream.finish();
    assert!(bytes > 0 && copied >= 100);
    let ports = || [1, 2, 3].map(|port| lab.switch.port(port));
    assert!(ports().iter().all(|port| port.drops.is_empty()), "{:?}", ports());
    assert_eq!(ports()[2].tx.frames, copied);
    // Exactly, and soon: the last frames may still be in flight.
    until("the kernel received what the switch sent", || {
        let [one, two, monitor] = [1, 2, 3].map(|port| lab.switch.port(port));
        let received = [2, 3].map(|host| lab.host_mut(host).link().stats);
        assert!(received.iter().all(|stats| (stats.rx_dropped, stats.rx_errors) == (0, 0)));
        let [two_got, monitor_got] = received.map(|stats| [stats.rx_packets, stats.rx_bytes]);
        let sent = |port: &PortReport| [port.tx.frames, port.tx.bytes];
        one.rx == two.tx && (sent(&two), sent(&monitor)) == (two_got, monitor_got)
    });
}

#[test]
fn a_copy_may_go_to_the_controller() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    let to_controller = Action::output(tapswitch_openflow::PortNo::CONTROLLER);
    let start = Shape::Truncate { len: 60 }.action();
    controller.apply(vec![
        group_all(ADD, GROUP, vec![vec![output(2)], vec![start, to_controller]]),
        Body::FlowMod(rule(100, in_port(1), vec![to_group(GROUP)])),
        wire(2, 1),
    ]);
    ping(lab.host(1), lab.host(2));
    let packet = controller.packet_in(|_| true);
    assert_eq!(packet.data.len(), usize::from(packet.total_len.min(60)));
    let tap = ledger(&lab);
    assert!(tap.adds_up && tap.copies[0].delivered.frames > 0, "{tap:?}");
}
