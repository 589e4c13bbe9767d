//! A controller that never reads. The only test of this file, as it examines its process's memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod common;

use std::fs;

use common::*;
use tapswitch_openflow::{Action, Body, PortNo};

/// Limit of what the switch may hold for such a controller, in KiB: a connection's unsent bytes (8
/// MiB, twice while the buffer grows), its queues of packets, and what the test itself needs.
const GROWTH_MAX_KIB: u64 = 96 << 10;

#[test]
fn a_controller_that_never_reads_costs_little_and_is_given_up() {
    if !can_run() {
        return;
    }
    let (listener, endpoint) = listen();
    let lab = Lab::with(2, |config| config.controllers = vec![endpoint]);
    let mut controller = Controller::accept(&listener);
    let both = vec![output(2), Action::output(PortNo::CONTROLLER)];
    controller.apply(vec![Body::FlowMod(rule(100, in_port(1), both)), wire(2, 1)]);
    let before = peak_memory_kib();
    // From here on the controller does not read, though its socket still takes some megabytes.
    let stream = Stream::start(lab.host(1), lab.host(2));
    until("the controller's queue is full", || {
        lab.switch.drops(1, "controller_queue_full") > 10_000
            && lab.switch.port(2).tx.bytes > 100_000_000
    });
    assert!(stream.finish() > 50_000_000);
    assert!(lab.switch.port(2).drops.is_empty(), "{:?}", lab.switch.port(2).drops);
    let drops = lab.switch.port(1).drops;
    assert!(drops.keys().all(|reason| reason == "controller_queue_full"), "{drops:?}");
    let growth = peak_memory_kib() - before;
    assert!(growth < GROWTH_MAX_KIB, "memory grew by {growth} KiB");

    // The switch gives the silent controller up and reconnects.
    let mut controller = Controller::accept(&listener);
    controller.barrier();
    ping(lab.host(1), lab.host(2));
}

/// The peak memory of the process (`VmHWM`, proc(5)).
fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
