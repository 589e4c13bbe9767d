//! TAPs over several switches: one set of scenarios on fabrics of ours, of Open vSwitch, and mixed.

use tapswitch_wire::NetHeader;

use crate::support::*;

/// Runs each scenario on each fabric.
macro_rules! on_every_fabric {
    ($($scenario:ident)*) => {
        on_fabric!(ring_of_ours ring [Ours Ours Ours] $($scenario)*);
        on_fabric!(ring_of_open_vswitch ring [OpenVswitch OpenVswitch OpenVswitch] $($scenario)*);
        on_fabric!(mixed_ring ring [Ours OpenVswitch Ours] $($scenario)*);
        on_fabric!(line_of_ours line [Ours Ours Ours] $($scenario)*);
        on_fabric!(line_of_open_vswitch line [OpenVswitch OpenVswitch OpenVswitch] $($scenario)*);
        on_fabric!(mixed_line line [OpenVswitch Ours OpenVswitch] $($scenario)*);
    };
}

/// With DPDK's ports Open vSwitch loses frames while its rules change, and reorders some: scenarios
/// that tolerate it.
macro_rules! on_every_fabric_with_dpdk {
    ($($scenario:ident)*) => {
        on_fabric!(ring_of_open_vswitch_dpdk ring
            [OpenVswitchDpdk OpenVswitchDpdk OpenVswitchDpdk] $($scenario)*);
        on_fabric!(mixed_line_with_dpdk line [Ours OpenVswitchDpdk Ours] $($scenario)*);
    };
}

macro_rules! on_fabric {
    ($name:ident $shape:ident [$a:ident $b:ident $c:ident] $($scenario:ident)*) => {
        mod $name {
            use crate::support::{Fabric, Kind};
            $(#[test]
            fn $scenario() {
                if let Some(fabric) = Fabric::$shape(&[Kind::$a, Kind::$b, Kind::$c]) {
                    super::$scenario(&fabric);
                    fabric.assert_conserved();
                    fabric.assert_carried();
                }
            })*
        }
    };
}

on_every_fabric! {
    a_running_flow_is_copied_to_a_far_monitor
    a_cable_may_go_while_a_connection_is_copied
    what_is_broadcast_arrives_once
    copies_have_the_tags_of_their_hosts
    copies_may_lose_their_tags
    copies_have_another_address_on_the_way
}

on_every_fabric_with_dpdk! {
    a_cable_may_go_while_a_connection_is_copied
    what_is_broadcast_arrives_once
    copies_have_the_tags_of_their_hosts
}

fn a_running_flow_is_copied_to_a_far_monitor(fabric: &Fabric) {
    fabric.introduce();
    let stream = Stream::new(fabric.host(1), fabric.host(2));
    let mut monitor = Capture::open(fabric.monitor(3));
    let mut near = Capture::open(fabric.monitor(1));
    let flow = fabric.flow(&stream);
    flow.go_on(50);
    assert!(monitor.numbers(&stream).is_empty(), "no copies before there is a policy");
    let fields = ["--src-ip", "10.0.0.1", "--ip-proto", "udp", "--monitor", "0x3/2"];
    let plan = fabric.ask(&[&["policy", "add", "far", "--dry-run"], &fields[..]].concat()).json();
    assert_eq!(plan["proof"]["is_proved"], true, "{plan}");
    assert!(plan["changes"].as_array().unwrap().len() >= 3, "{plan}");
    fabric.add("far", &fields);
    let after = flow.arrived();
    flow.go_on(200);
    let total = flow.finish();
    let mut copies = Vec::new();
    until("the last copy arrives", || {
        copies.extend(monitor.numbers(&stream));
        copies.iter().min().is_some_and(|first| copies.len() >= (total - first) as usize)
    });
    let copies = fabric.in_order(copies);
    // Frames in flight are not among them.
    assert!(copies[0] <= after + 40, "copied from the answer on, of {total}: {copies:?}");
    assert!(copies.is_sorted_by(|a, b| a + 1 == *b), "each once, in order: {copies:?}");
    assert_eq!(copies.last(), Some(&(total - 1)), "until the end");
    assert!(near.numbers(&stream).is_empty(), "copies go nowhere else");
    fabric.assert_conserved();
    fabric.ask(&["policy", "delete", "far"]).json();
    fabric.flow(&stream).finish_after(100);
    assert!(monitor.numbers(&stream).is_empty(), "no copies after the policy is gone");
}

fn a_cable_may_go_while_a_connection_is_copied(fabric: &Fabric) {
    fabric.introduce();
    fabric.add("tcp", &["--ip-proto", "tcp", "--monitor", "0x3/2"]);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for _ in 0..3 {
                send_by_tcp(fabric.host(1), fabric.host(2), 4 << 20);
            }
        });
        for (a, b) in [(2, 3), (1, 2)] {
            fabric.set_cable(a, b, false);
            fabric.set_cable(a, b, true);
        }
        sending.join().unwrap();
    });
    if !fabric.is_ours() || !fabric.is_ring() {
        // Open vSwitch's new rules do not get what its cache counted for the old ones meanwhile. On
        // a line, there are no copies while their only path is cut.
        return;
    }
    let report = fabric.ask(&["policy", "show", "tcp"]).json();
    assert!(number(&report["matched"]["bytes"]) > 12 << 20, "{report}");
}

fn what_is_broadcast_arrives_once(fabric: &Fabric) {
    fabric.introduce();
    assert_broadcast(fabric, 0..20);
    // With a TAP, the paths of the original are buckets of a group.
    fabric.add("all", &["--src-ip", "10.0.0.1", "--monitor", "0x3/2"]);
    assert_broadcast(fabric, 20..40);
}

/// What host 1 broadcasts arrives everywhere else, once and in order.
fn assert_broadcast(fabric: &Fabric, numbers: std::ops::Range<u32>) {
    let mut stream = Stream::new(fabric.host(1), fabric.host(2));
    stream.to.0 = tapswitch_wire::MacAddr::BROADCAST;
    let mut ends: Vec<_> =
        fabric.hosts[1..].iter().chain(&fabric.monitors).map(Capture::open).collect();
    let sender = Capture::open(fabric.host(1));
    numbers.clone().for_each(|number| sender.send(&stream.frame(number)));
    for end in &mut ends {
        let mut seen = Vec::new();
        until("every broadcast arrives", || {
            seen.extend(end.numbers(&stream));
            seen.len() >= numbers.len()
        });
        assert_eq!(fabric.in_order(seen), numbers.clone().collect::<Vec<_>>());
    }
}

/// Hosts whose frames are in a VLAN, and in a VLAN within a VLAN.
fn copies_have_the_tags_of_their_hosts(fabric: &Fabric) {
    fabric.introduce();
    let [one, two] = [1, 2].map(|number| fabric.host(number));
    let streams = in_each_vlan(one, two);
    meet_in(fabric, &in_each_vlan(two, one), &in_each_vlan(one, two));
    fabric.add("udp", &["--ip-proto", "udp", "--monitor", "0x3/2"]);
    fabric.add("hundred", &["--vlan", "100", "--monitor", "0x2/2"]);
    let filter = "vlan 200 and src host 10.0.0.1";
    fabric.add("two-hundred", &["--filter", filter, "--monitor", "0x1/2"]);
    let mut monitors: Vec<_> = fabric.monitors.iter().take(3).map(Capture::open).collect();
    // Open vSwitch supports two tags; if it pushes a third one, the last is lost.
    let takes_three = fabric.kind(1) == Kind::Ours;
    let wanted = [[false, false, true], [false, true, false], [true, true, takes_three]];
    for (stream, at) in streams.iter().zip(0..) {
        // Each is compared with the original, tags included.
        let mut seen = [0; 3];
        send_until(one, stream, || {
            let new = monitors.iter_mut().map(|monitor| monitor.numbers(stream).len());
            seen.iter_mut().zip(new).for_each(|(seen, new)| *seen += new);
            seen.iter().zip(wanted).all(|(seen, wanted)| *seen > 0 || !wanted[at])
        });
        assert_eq!(seen.map(|count| count > 0), wanted.map(|wanted| wanted[at]), "{stream:?}");
    }
    fabric.settle();
    if fabric.has_dpdk() {
        return;
    }
    let streams = in_each_vlan(one, two);
    let counts = streams.each_ref().map(|stream| fabric.flow(stream).finish_after(60));
    for ((monitor, wanted), number) in monitors.iter_mut().zip(wanted).zip(1..) {
        let mut frames = Vec::new();
        for ((stream, count), is_wanted) in streams.iter().zip(counts).zip(wanted) {
            let count = if is_wanted { count } else { 0 };
            until("the last copy arrives", || {
                frames.extend(monitor.drain());
                stream.numbers(&frames).len() >= count as usize
            });
            assert_copies(fabric, &frames, (stream, count), number);
        }
    }
}

/// Frames without a tag, with one and with two are copied without tags; by Open vSwitch, without
/// the outermost one.
fn copies_may_lose_their_tags(fabric: &Fabric) {
    fabric.introduce();
    let [one, two] = [1, 2].map(|number| fabric.host(number));
    let streams = in_each_vlan(one, two);
    meet_in(fabric, &in_each_vlan(two, one), &streams);
    fabric.add("plain", &["--ip-proto", "udp", "--tags", "strip", "--monitor", "0x3/2"]);
    let streams = in_each_vlan(one, two);
    let mut monitor = Capture::open(fabric.monitor(3));
    let counts = streams.each_ref().map(|stream| fabric.flow(stream).finish_after(60));
    let mut frames = Vec::new();
    for (stream, count) in streams.into_iter().zip(counts) {
        let plain = stream.without_tags(if fabric.kind(1) == Kind::Ours { 2 } else { 1 });
        until("the last copy arrives", || {
            frames.extend(monitor.drain());
            plain.numbers(&frames).len() >= count as usize
        });
        assert_copies(fabric, &frames, (&plain, count), 3);
    }
}

/// What is for one host is copied at its switch: for a monitor there, for one behind that switch,
/// and for one whose copies go back the way that the frames came.
fn copies_have_another_address_on_the_way(fabric: &Fabric) {
    fabric.introduce();
    let [one, two] = [1, 2].map(|number| fabric.host(number));
    let streams = in_each_vlan(one, two);
    meet_in(fabric, &in_each_vlan(two, one), &streams);
    let mac = two.mac().to_string();
    let fields = ["--dst-mac", &mac, "--ip-proto", "udp", "--transport", "rewrite", "--monitor"];
    for (name, monitor) in [("back", "0x1/2"), ("here", "0x2/2"), ("on", "0x3/2")] {
        let all = [&fields[..], &[monitor]].concat();
        let plan = fabric.ask(&[&["policy", "add", name, "--dry-run"], &all[..]].concat()).json();
        assert_eq!(plan["proof"]["is_proved"], true, "{plan}");
        fabric.add(name, &all);
    }
    let streams = in_each_vlan(one, two);
    let mut monitors: Vec<_> = fabric.monitors.iter().take(3).map(Capture::open).collect();
    let mut elsewhere = Capture::open(fabric.host(3));
    let counts = streams.each_ref().map(|stream| fabric.flow(stream).finish_after(60));
    for (monitor, number) in monitors.iter_mut().zip(1..) {
        let mut frames = Vec::new();
        for (stream, count) in streams.iter().zip(counts) {
            until("the last copy arrives", || {
                frames.extend(monitor.drain());
                stream.numbers(&frames).len() >= count as usize
            });
            assert_copies(fabric, &frames, (stream, count), number);
        }
    }
    let elsewhere = elsewhere.drain();
    streams.iter().for_each(|stream| assert_copies(fabric, &elsewhere, (stream, 0), 3));
}

/// Frames with two tags are copied whole by an Open vSwitch that parses only the first one.
#[test]
fn open_vswitch_that_looks_at_one_tag_copies_frames_with_two() {
    let Some(fabric) = Fabric::line_looking_at(1, &[Kind::OpenVswitch; 3]) else { return };
    fabric.introduce();
    let stream = Stream::new(fabric.host(1), fabric.host(2)).vlan_in_vlan(200, 100);
    let back = Stream::new(fabric.host(2), fabric.host(1)).vlan_in_vlan(200, 100);
    meet_in(&fabric, &[back], std::slice::from_ref(&stream));
    fabric.add("two-hundred", &["--vlan", "200", "--monitor", "0x3/2"]);
    fabric.add("udp", &["--ip-proto", "udp", "--monitor", "0x2/2"]);
    let [mut near, mut far] = [2, 3].map(|number| Capture::open(fabric.monitor(number)));
    let count = fabric.flow(&stream).finish_after(60);
    let mut frames = Vec::new();
    until("the last copy arrives", || {
        frames.extend(far.drain());
        stream.numbers(&frames).len() >= count as usize
    });
    assert_copies(&fabric, &frames, (&stream, count), 3);
    // It does not see the protocol behind the second tag.
    assert_copies(&fabric, &near.drain(), (&stream, 0), 2);
    fabric.assert_conserved();
}

/// The monitor has these copies of the stream, each once, in order, tags included.
fn assert_copies(
    fabric: &Fabric,
    frames: &[(NetHeader, Vec<u8>)],
    (stream, count): (&Stream, u32),
    monitor: u8,
) {
    let numbers = fabric.in_order(stream.numbers(frames));
    assert!(numbers.iter().copied().eq(0..count), "at monitor {monitor}, {stream:?}: {numbers:?}");
}

/// Streams without a tag, with one, and with two.
fn in_each_vlan(from: &Host, to: &Host) -> [Stream; 3] {
    let new = || Stream::new(from, to);
    [new(), new().vlan(100), new().vlan_in_vlan(200, 100)]
}

/// Sends frames in the VLANs of the streams from the second host, and then from the first one,
/// until the flows are no longer flooded.
fn meet_in(fabric: &Fabric, backs: &[Stream], streams: &[Stream]) {
    let [one, two] = [1, 2].map(|number| fabric.host(number));
    let mut elsewhere = Capture::open(fabric.host(3));
    for (sender, receiver, streams) in [(two, one, backs), (one, two, streams)] {
        for stream in streams {
            let mut there = Capture::open(receiver);
            send_until(sender, stream, || !there.numbers(stream).is_empty());
        }
    }
    for stream in streams {
        let mut there = Capture::open(two);
        send_until(one, stream, || {
            !there.numbers(stream).is_empty() && elsewhere.numbers(stream).is_empty()
        });
    }
    fabric.settle();
}

/// Sends frames of a stream, a few at a time, until `holds` is true.
fn send_until(from: &Host, stream: &Stream, mut holds: impl FnMut() -> bool) {
    let sender = Capture::open(from);
    until("frames go where they should", || {
        (0..5).for_each(|number| sender.send(&stream.frame(number)));
        sender.wait();
        holds()
    });
}

#[test]
fn leaves_and_spines_of_ours() {
    assert_leaves_and_spines([Kind::Ours; 4], [Kind::Ours; 2]);
}

#[test]
fn leaves_and_spines_of_open_vswitch() {
    assert_leaves_and_spines([Kind::OpenVswitch; 4], [Kind::OpenVswitch; 2]);
}

#[test]
fn leaves_of_ours_and_spines_of_open_vswitch() {
    assert_leaves_and_spines([Kind::Ours; 4], [Kind::OpenVswitch; 2]);
}

#[test]
fn mixed_leaves_and_spines() {
    let leaves = [Kind::Ours, Kind::OpenVswitch, Kind::Ours, Kind::OpenVswitch];
    assert_leaves_and_spines(leaves, [Kind::OpenVswitch, Kind::Ours]);
}

fn assert_leaves_and_spines(leaves: [Kind; 4], spines: [Kind; 2]) {
    let Some(fabric) = Fabric::leaves_and_spines(leaves, spines) else { return };
    a_running_flow_is_copied_to_a_far_monitor(&fabric);
    fabric.add("all", &["--ip-proto", "tcp", "--monitor", "0x4/2"]);
    send_by_tcp(fabric.host(1), fabric.host(2), 4 << 20);
    send_by_tcp(fabric.host(4), fabric.host(3), 4 << 20);
    fabric.assert_conserved();
}
