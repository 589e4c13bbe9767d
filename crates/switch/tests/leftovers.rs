//! A switch that has stopped leaves nothing behind. The only test of this file, as it examines its
//! process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::*;
use tapswitch_netlink::Namespace;
use tapswitch_switch::Stopped;

#[test]
fn a_stopped_switch_leaves_nothing() {
    if !can_run() {
        return;
    }
    // The first switch of a process caches what it finds out about the kernel.
    cycle();
    let before = open_files();
    for _ in 0..5 {
        cycle();
    }
    until("all files are closed", || open_files() == before);
}

/// Runs a switch with traffic, connections and copies, and stops it.
fn cycle() {
    let (mut lab, mut room) = Lab::netdevs(3, &[1, 3]);
    let names: Vec<_> = lab.hosts.iter().map(|host| host.name().to_owned()).collect();
    let mut controller = lab.switch.controller();
    let mut changes = join(1, 2);
    let buckets = vec![vec![output(2)], vec![output(3)]];
    changes.push(group_all(tapswitch_openflow::GroupModCommand::Add, 1, buckets));
    controller.apply(changes);
    ping(lab.host(1), lab.host(2));
    let stream = Stream::start(lab.host(1), lab.host(2));
    until("traffic flows", || lab.switch.port(2).tx.bytes > 1_000_000);
    stream.finish();
    assert!(!threads().is_empty());

    let handle = lab.switch.handle();
    lab.switch.stop();
    assert_eq!(threads(), BTreeSet::new());
    assert_eq!(ask(&handle), Err(Stopped));
    for number in [1, 3] {
        assert!(lab.host_mut(number).netlink.link("eth0").is_err(), "a tap device stays");
    }
    assert!(room.netlink.link("p2").unwrap().up, "an interface of others stays");
    drop(lab);
    let there = Namespace::list().unwrap();
    assert!(names.iter().all(|name| !there.contains(name)), "{there:?}");
}

/// Names of the switch's threads.
fn threads() -> BTreeSet<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("tapswitch-")).collect()
}

/// Open files of the process, without the directory that is read for this.
fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
