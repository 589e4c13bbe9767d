//! TAPs that come and go under traffic: the original is not affected, and nothing is miscounted.

use std::thread;
use std::time::Duration;

use crate::support::*;
use crate::taps::{assert_run, assert_whole, copied, matched};

#[test]
fn a_flow_loses_nothing_while_a_tap_comes_and_goes_a_hundred_times() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    let rules = lab.flows();
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let flow = lab.flow(&stream, 1, 2);
    for round in 0..100 {
        lab.add("coming", POLICY);
        let mut copies = Vec::new();
        until("there are copies", || {
            copies.extend(monitor.numbers(&stream));
            !copies.is_empty()
        });
        let last = lab.delete("coming");
        copies.extend(monitor.numbers(&stream));
        assert_run(&copies);
        assert_eq!(last["is_complete"], true, "round {round}: {last}");
        let counts = (matched(&last), copied(&last));
        let count = copies.len() as u64;
        assert_eq!(counts, (count, count), "matched, copied and seen in round {round}");
        assert!(conservation::is_settled(&last), "round {round}: {last}");
    }
    // Fails if a frame is lost, duplicated, changed, or at the wrong place.
    assert!(flow.finish_after(50) > 100);
    assert_eq!(monitor.numbers(&stream), [0_u32; 0]);
    assert_eq!(lab.flows(), rules);
    assert_eq!(lab.groups(), Vec::<String>::new());
}

#[test]
fn a_flow_loses_nothing_while_a_hundred_taps_are_there_at_once() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    let rules = lab.flows();
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let flow = lab.flow(&stream, 1, 2);
    let mut copies = Vec::new();
    for number in 0..TAPS {
        let port = port_of(number).to_string();
        let own = ["--ip-proto", "udp", "--dst-port", &port];
        let added = lab.add(&name_of(number), &[POLICY, &own].concat());
        assert_eq!(added["state"]["is"], "active", "{added}");
        copies.extend(monitor.numbers(&stream));
    }
    let before = flow.arrived();
    flow.go_on(100);
    // All other policies have something to copy too, while the first flow goes on.
    for number in (2..TAPS).step_by(2) {
        let own = Stream::new(lab.host(1), lab.host(2)).ports(1000, port_of(number));
        let count = lab.flow(&own, 1, 2).finish_after(5);
        let frames = monitor.until_last(&own, count);
        assert_whole(&own.numbers(&frames), count);
        copies.extend(stream.numbers(&frames));
    }
    for number in 0..TAPS {
        let last = lab.delete(&name_of(number));
        assert_eq!(last["is_complete"], true, "{last}");
        assert!(conservation::is_settled(&last) && matched(&last) > 0, "{last}");
        assert_eq!(matched(&last), copied(&last), "{last}");
        copies.extend(monitor.numbers(&stream));
    }
    // Two policies match; the copy arrives once.
    assert_run(&copies);
    assert!(copies[0] < before && copies.last() >= Some(&before), "while all were there");
    assert!(flow.finish_after(50) > 100);
    assert_eq!(monitor.numbers(&stream), [0_u32; 0]);
    assert_eq!(lab.flows(), rules);
    assert_eq!(lab.groups(), Vec::<String>::new());
    lab.assert_books_closed();
}

fn name_of(number: u16) -> String {
    format!("tap-{number}")
}

/// Two policies match each of these ports.
fn port_of(number: u16) -> u16 {
    2000 + number / 2
}

/// Simultaneous policies.
const TAPS: u16 = 100;

#[test]
fn open_vswitch_loses_nothing_either() {
    let Some(lab) = Lab::new(Peer::OpenVswitch, Ends::Veths, 3) else { return };
    lab.introduce(&[1, 2]);
    let rules = lab.flows();
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let flow = lab.flow(&stream, 1, 2);
    for _ in 0..30 {
        lab.add("coming", POLICY);
        until("there are copies", || !monitor.numbers(&stream).is_empty());
        lab.delete("coming");
    }
    assert!(flow.finish_after(50) > 30);
    assert_eq!(lab.flows(), rules);
    assert_eq!(lab.groups(), Vec::<String>::new());
}

#[test]
fn the_last_counters_are_told_however_long_nothing_happened() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    lab.add("quiet", POLICY);
    let count = lab.flow(&stream, 1, 2).finish_after(50);
    // Longer than the wait for last counters, shorter than the time between two readings.
    thread::sleep(Duration::from_millis(2500));
    let last = lab.delete("quiet");
    assert_whole(&monitor.copies(&stream, count), count);
    let count = u64::from(count);
    assert_eq!((matched(&last), copied(&last)), (count, count), "{last}");
    assert!(conservation::is_settled(&last) && last["is_complete"] == true, "{last}");
}

/// Copies the whole flow to port 3.
const POLICY: &[&str] =
    &["--src-ip", "10.0.0.1", "--dst-ip", "10.0.0.2", "--direction", "forward", "--monitor", "3"];
