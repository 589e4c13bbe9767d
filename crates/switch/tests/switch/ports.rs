//! Tests of ports that are added and removed while the switch runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::thread;

use crate::common::*;
use tapswitch_openflow::{PortNo, PortReason};
use tapswitch_switch::{AddPortError, RemovePortError};

fn add(lab: &Lab, spec: &str) -> Result<(), AddPortError> {
    runtime().block_on(lab.switch.handle().add_port(spec.parse().unwrap()))
}

fn remove(lab: &Lab, number: u32) -> Result<(), RemovePortError> {
    runtime().block_on(lab.switch.handle().remove_port(PortNo(number)))
}

#[test]
fn a_port_that_was_added_is_one_like_any_other() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    let mut late = Host::new(3);
    let spec = format!("3=tap:eth0,netns={}", late.name());
    add(&lab, &spec).unwrap();
    let status = controller.port_status(|status| status.desc.port_no == PortNo(3));
    assert_eq!(status.reason, PortReason::ADD);
    late.add_address();
    lab.hosts.push(late);
    introduce(&mut lab.hosts);
    controller.apply(join(1, 3));
    ping(lab.host(1), lab.host(3));
    assert_eq!(lab.switch.port(3).state, "up");
}

#[test]
fn a_port_that_was_removed_leaves_nothing_and_nobody_notices() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(3);
    let mut controller = lab.switch.controller();
    controller.apply(join(1, 2));
    for _ in 0..20 {
        remove(&lab, 3).unwrap();
        // A child that another test of this process forks has the tap's files until it executes its
        // program.
        until("the tap device is gone", || lab.host_mut(3).netlink.link("eth0").is_err());
        assert_eq!(lab.switch.ports().len(), 2);
        ping(lab.host(1), lab.host(2));
        let spec = format!("3=tap:eth0,netns={},queues=2", lab.host(3).name());
        add(&lab, &spec).unwrap();
        let queues: Vec<_> = lab.switch.workers().into_iter().flat_map(|it| it.queues).collect();
        assert_eq!(queues.iter().filter(|queue| queue.starts_with("3/")).count(), 2);
    }
    let status = controller.port_status(|status| status.reason == PortReason::DELETE);
    assert_eq!(status.desc.port_no, PortNo(3));
}

#[test]
fn ports_are_told_in_the_order_of_their_numbers() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(3);
    remove(&lab, 1).unwrap();
    add(&lab, &format!("1=tap:eth0,netns={}", lab.host(1).name())).unwrap();
    let numbers: Vec<_> = lab.switch.ports().into_iter().map(|port| port.port).collect();
    assert_eq!(numbers, ["1", "2", "3"]);
}

#[test]
fn ports_change_under_traffic() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(3);
    lab.switch.controller().apply(join(1, 2));
    let spec = format!("3=tap:eth0,netns={}", lab.host(3).name());
    thread::scope(|scope| {
        let lab = &lab;
        let changes = scope.spawn(move || {
            for _ in 0..50 {
                remove(lab, 3).unwrap();
                // A `ping` that is being started may hold the removed device for a moment.
                eventually("it is added again", || add(lab, &spec).ok());
            }
        });
        while !changes.is_finished() {
            ping(lab.host(1), lab.host(2));
        }
    });
    assert!(!has_dropped(&lab.switch.ports()[..2]), "{:?}", lab.switch.ports());
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1);
    let text = |spec: &str| add(&lab, spec).unwrap_err().to_string();
    let taken = text("1=tap:other");
    assert!(taken.contains("port 1 already exists (1=tap:eth0,netns="), "{taken}");
    assert!(taken.contains("`tapswitch port remove 1`"), "{taken}");
    let same = format!("2=netdev:eth0,netns={}", lab.host(1).name());
    assert!(text(&same).contains("the same interface or socket"), "{}", text(&same));
    let none = format!("2=netdev:none,netns={}", lab.host(1).name());
    assert!(text(&none).contains("none"), "{}", text(&none));
    assert_eq!(remove(&lab, 9), Err(RemovePortError::NotFound(PortNo(9))));
    assert_eq!(lab.switch.ports().len(), 1);
}
