//! TAPs on our switch and on Open vSwitch, with the same controller and the same commands: one set
//! of scenarios, run on each peer.
//!
//! Open vSwitch has veth pairs only: a tap device of its own that is moved to another namespace has
//! no link any more from its point of view, and the controller expects no hosts behind such ports.

use serde_json::Value;
use tapswitch_wire::{NetHeader, ip_proto};

use crate::support::*;

/// Runs each scenario on each peer.
macro_rules! on_every_peer {
    ($($scenario:ident)*) => {
        on_peer!(tapswitch_with_taps Tapswitch Taps $($scenario)*);
        on_peer!(tapswitch_with_veths Tapswitch Veths $($scenario)*);
        on_peer!(open_vswitch OpenVswitch Veths $($scenario)*);
    };
}

macro_rules! on_peer {
    ($name:ident $peer:ident $ends:ident $($scenario:ident)*) => {
        mod $name {
            use crate::support::{Ends, Lab, Peer};
            $(#[test]
            fn $scenario() {
                if let Some(lab) = Lab::new(Peer::$peer, Ends::$ends, 4) {
                    super::$scenario(&lab);
                    lab.assert_conserved();
                    lab.assert_carried();
                }
            })*
        }
    };
}

on_every_peer! {
    hosts_are_learned_and_reach_each_other
    a_running_flow_is_copied_until_the_policy_is_deleted
    trains_are_copied_as_they_are
    policies_overlap
    ipv6_is_copied
    vlans_are_told_apart
    a_priority_is_no_vlan
    monitors_are_named_in_each_way
}

fn hosts_are_learned_and_reach_each_other(lab: &Lab) {
    lab.introduce(&[1, 2, 3, 4]);
    let hosts = lab.ask_controller(&["show", "hosts"]).json();
    for host in &lab.hosts {
        let mac = host.mac().to_string();
        let known = hosts.as_array().unwrap().iter().find(|known| known["mac"] == mac).unwrap();
        assert_eq!(known["port"], host.number.to_string());
        assert_eq!(known["port_name"], lab.port_name(host.number));
        assert_eq!(known["addresses"], serde_json::json!([host.ip()]));
    }
    assert_eq!(lab.groups(), Vec::<String>::new(), "without a policy nothing is copied");
}

fn a_running_flow_is_copied_until_the_policy_is_deleted(lab: &Lab) {
    lab.introduce(&[1, 2]);
    let rules = lab.flows();
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let flow = lab.flow(&stream, 1, 2);
    flow.go_on(50);
    assert_eq!(monitor.numbers(&stream), NONE, "no copies before there is a policy");

    let there = ["--src-ip", "10.0.0.1", "--dst-ip", "10.0.0.2", "--direction", "forward"];
    let added = lab.add("web", &[&there[..], &["--monitor", "3"]].concat());
    assert_eq!(added["state"]["is"], "active");
    let after = flow.arrived();
    flow.go_on(200);
    let total = flow.finish();
    let copies = monitor.copies(&stream, total);
    assert_run(&copies);
    assert!(copies[0] <= after + 40, "copied from the answer on, of {total}: {copies:?}");
    if lab.peer == Peer::Tapswitch {
        assert_ledger(lab, "web", total - copies[0]);
    } else {
        // Open vSwitch's new rules get what its cache counted for the old ones, up to a second.
        assert_balance(lab, "web", total - copies[0]);
    }
    assert_restored(lab, &["web"], &rules);

    lab.flow(&stream, 1, 2).finish_after(100);
    assert_eq!(monitor.numbers(&stream), NONE, "no copies after the policy is gone");
}

fn trains_are_copied_as_they_are(lab: &Lab) {
    lab.introduce(&[1, 2]);
    let there = ["--dst-ip", "10.0.0.2", "--ip-proto", "tcp", "--direction", "forward"];
    lab.add("tcp", &[&there[..], &["--monitor", "3"]].concat());
    let [mut receiver, mut monitor] = [2, 3].map(|number| Capture::open(lab.host(number)));
    send_by_tcp(lab.host(1), lab.host(2), 3 << 20);
    let (mut originals, mut copies) = (Vec::new(), Vec::new());
    // The last acknowledgement comes when both programs are done.
    until("copies have the bytes and the metadata of the originals, in their order", || {
        originals.extend(tcp_frames(&mut receiver));
        copies.extend(tcp_frames(&mut monitor));
        originals == copies && matched(&lab.policy("tcp")) == u64::from(told(lab, &copies))
    });
    assert!(originals.iter().map(|(_, frame)| frame.len()).sum::<usize>() > 3 << 20);
    assert_ledger(lab, "tcp", told(lab, &copies));
}

/// How many frames the switch counts for these frames of TCP over IPv4: ours counts a train's
/// packets, Open vSwitch the train.
fn told(lab: &Lab, frames: &[(NetHeader, Vec<u8>)]) -> u32 {
    let packets = |(meta, frame): &(NetHeader, Vec<u8>)| {
        let headers_len = 34 + usize::from(frame[46] >> 4) * 4;
        meta.wire_packets(frame.len() - headers_len)
    };
    match lab.peer {
        Peer::Tapswitch => frames.iter().map(packets).sum(),
        Peer::OpenVswitch => u32::try_from(frames.len()).unwrap(),
    }
}

fn policies_overlap(lab: &Lab) {
    lab.introduce(&[1, 2]);
    let rules = lab.flows();
    let wide = Stream::new(lab.host(1), lab.host(2));
    let narrow = Stream::new(lab.host(1), lab.host(2)).ports(1000, 53);
    let [mut three, mut four] = [3, 4].map(|number| Capture::open(lab.host(number)));
    let there = ["--src-ip", "10.0.0.0/24", "--dst-ip", "10.0.0.2", "--direction", "forward"];
    lab.add("all", &[&there[..], &["--monitor", "3"]].concat());
    lab.add("dns", &["--dst-port", "53", "--ip-proto", "udp", "--monitor", "4"]);
    lab.add("dns-too", &["--dst-port", "53", "--ip-proto", "udp", "--monitor", "3"]);
    let counts = [&wide, &narrow].map(|stream| lab.flow(stream, 1, 2).finish_after(60));
    let [at_three, at_four] = [&mut three, &mut four].map(|at| at.until_last(&narrow, counts[1]));
    assert_eq!(wide.numbers(&at_four), NONE, "the narrow policy does not copy the rest");
    assert_whole(&wide.numbers(&at_three), counts[0]);
    assert_whole(&narrow.numbers(&at_three), counts[1]);
    assert_whole(&narrow.numbers(&at_four), counts[1]);
    assert_ledger(lab, "all", counts[0] + counts[1]);
    assert_ledger(lab, "dns", counts[1]);
    assert_ledger(lab, "dns-too", counts[1]);
    assert_restored(lab, &["all", "dns", "dns-too"], &rules);
}

fn ipv6_is_copied(lab: &Lab) {
    [1, 2].iter().for_each(|number| lab.host(*number).configure6());
    lab.introduce(&[1, 2]);
    lab.host(1).ping(lab.host(2).ip6());
    let stream = Stream::new6(lab.host(1), lab.host(2));
    let other = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let there = ["--src-ip", "fd00::/64", "--dst-ip", "fd00::2", "--direction", "forward"];
    lab.add("six", &[&there[..], &["--monitor", "3"]].concat());
    lab.add("udp", &["--dst-ip", "fd00::2", "--ip-proto", "udp", "--monitor", "4"]);
    lab.flow(&other, 1, 2).finish_after(30);
    let count = lab.flow(&stream, 1, 2).finish_after(60);
    let frames = monitor.until_last(&stream, count);
    assert_eq!(other.numbers(&frames), NONE, "IPv4 is another matter");
    assert_whole(&stream.numbers(&frames), count);
    assert_ledger(lab, "udp", count);
    until("neighbour discovery aside, that is what matched", || {
        copied(&lab.policy("six")) >= count.into()
    });
}

fn vlans_are_told_apart(lab: &Lab) {
    lab.introduce(&[1, 2]);
    let streams = [100, 200].map(|id| {
        let back = Stream::new(lab.host(2), lab.host(1)).vlan(id);
        let there = Stream::new(lab.host(1), lab.host(2)).vlan(id);
        // Both hosts have to send in each VLAN before frames are no longer flooded.
        lab.flow(&back, 2, 1).finish_after(1);
        settle(lab, &there);
        there
    });
    let untagged = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    lab.add("hundred", &["--vlan", "100", "--monitor", "3"]);
    let send = |stream| lab.flow(stream, 1, 2).finish_after(60);
    for stream in [&streams[1], &untagged] {
        send(stream);
    }
    let count = send(&streams[0]);
    let frames = monitor.until_last(&streams[0], count);
    assert_whole(&streams[0].numbers(&frames), count);
    assert_eq!(streams[1].numbers(&frames), NONE, "another VLAN");
    assert_eq!(untagged.numbers(&frames), NONE, "no VLAN");
    assert_ledger(lab, "hundred", count);
}

fn a_priority_is_no_vlan(lab: &Lab) {
    lab.introduce(&[1, 2]);
    let plain = Stream::new(lab.host(1), lab.host(2));
    let urgent = Stream::new(lab.host(1), lab.host(2)).vlan(5 << 13);
    let [mut monitor, mut bystander] = [3, 4].map(|number| Capture::open(lab.host(number)));
    let udp = ["--vlan", "untagged", "--src-ip", "10.0.0.1", "--ip-proto", "udp"];
    lab.add("udp", &[&udp[..], &["--direction", "forward", "--monitor", "3"]].concat());
    let mut total = 0;
    for stream in [&plain, &urgent] {
        let count = lab.flow(stream, 1, 2).finish_after(60);
        assert_whole(&monitor.copies(stream, count), count);
        assert_eq!(bystander.numbers(stream), NONE, "it is known where the receiver is");
        total += count;
    }
    assert_ledger(lab, "udp", total);
    let hosts = lab.ask_controller(&["show", "hosts"]).json();
    assert!(hosts.as_array().unwrap().iter().all(|host| host["vlan"].is_null()), "{hosts}");
}

fn monitors_are_named_in_each_way(lab: &Lab) {
    lab.introduce(&[1, 2, 3]);
    let rules = lab.flows();
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let (mac, name) = (lab.host(3).mac().to_string(), lab.port_name(3));
    let of_switch = format!("0x1/{name}");
    for way in ["3", "0x1/3", &name, &of_switch, &mac, "10.0.0.3"] {
        let report = lab.add("way", &["--dst-port", "2000", "--monitor", way]);
        assert_eq!(report["monitor"]["port"], 3, "{way}");
        let count = lab.flow(&stream, 1, 2).finish_after(20);
        assert_whole(&monitor.copies(&stream, count), count);
        assert_ledger(lab, "way", count);
        assert_restored(lab, &["way"], &rules);
    }
}

/// Runs a stream until only its destination gets it: new rules may take a moment.
pub(crate) fn settle(lab: &Lab, stream: &Stream) {
    let mut elsewhere = Capture::open(lab.host(3));
    until("frames go to their destination alone", || {
        lab.flow(stream, 1, 2).finish_after(5);
        elsewhere.numbers(stream).is_empty()
    });
    lab.settle();
}

/// Checks that the numbers are consecutive, each once.
pub(crate) fn assert_run(numbers: &[u32]) {
    let first = *numbers.first().expect("there are copies");
    let expected: Vec<_> = (first..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "in order, each once");
}

/// All frames of a stream of `count` frames, in order, each once.
pub(crate) fn assert_whole(numbers: &[u32], count: u32) {
    assert!(numbers.iter().copied().eq(0..count), "all of {count}, in order, once: {numbers:?}");
}

/// The policy's matched and copied packets are what arrived at the monitor, on Open vSwitch as soon
/// as its counters are updated; our switch's own ledgers agree.
pub(crate) fn assert_ledger(lab: &Lab, name: &str, count: u32) {
    let report = wait_for_count(lab, name, count);
    assert_eq!((matched(&report), copied(&report)), (count.into(), count.into()), "{report}");
    until("the switch has delivered all that it matched", || {
        let is_even =
            |[matched, delivered, dropped]: [u64; 3]| (matched, dropped) == (delivered, 0);
        lab.ledgers().into_iter().all(is_even)
    });
}

/// At least `count` were matched, and all that were matched were copied.
fn assert_balance(lab: &Lab, name: &str, count: u32) {
    let report = wait_for_count(lab, name, count);
    assert_eq!(matched(&report), copied(&report), "{report}");
}

/// The policy's report as soon as it reaches this count.
fn wait_for_count(lab: &Lab, name: &str, count: u32) -> Value {
    let count = u64::from(count);
    eventually(&format!("policy {name} says {count}"), || {
        let report = lab.policy(name);
        assert_eq!(report["is_complete"], true, "{report}");
        (matched(&report) >= count && copied(&report) >= count).then_some(report)
    })
}

/// Deletes policies, and checks that the switch is in its former state.
fn assert_restored(lab: &Lab, names: &[&str], rules: &[String]) {
    assert!(!lab.groups().is_empty() && lab.flows() != rules);
    for name in names {
        assert_eq!(lab.delete(name)["state"]["is"], "deleted");
    }
    assert_eq!(lab.flows(), rules, "the rules from before");
    assert_eq!(lab.groups(), Vec::<String>::new());
    assert_eq!(lab.ask_controller(&["policy", "list"]).json(), serde_json::json!([]));
}

pub(crate) fn matched(report: &Value) -> u64 {
    number(&report["matched"]["packets"])
}

pub(crate) fn copied(report: &Value) -> u64 {
    report["copied"].as_array().unwrap().iter().map(|to| number(&to["packets"])).sum()
}

fn tcp_frames(capture: &mut Capture) -> Vec<(NetHeader, Vec<u8>)> {
    let mut frames = capture.drain();
    frames.retain(|(_, frame)| frame[12..14] == [0x08, 0x00] && frame[23] == ip_proto::TCP);
    frames
}

/// No frames of a stream.
const NONE: [u32; 0] = [];
