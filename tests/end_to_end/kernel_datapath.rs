//! Open vSwitch with the kernel datapath: the scenarios of [`crate::taps`] and [`crate::fabric`]
//! that also run on its userspace datapath, with only the datapath type changed. At its end each
//! asks Open vSwitch which datapath it was.
//!
//! That datapath is the module `openvswitch`, so these tests boot kernels that have it, with Open
//! vSwitch, controller, hosts and all.

use tapswitch_guest::{Error, Guest, Kernel, Outcome, Series, inside};

use crate::support::ovs::{DATAPATH, KERNEL, SCHEMA};
use crate::support::*;

#[test]
fn of_linux_6_1_copies_running_flows() {
    run(Series::V6_1, &["taps::open_vswitch::a_running", "taps::open_vswitch::trains"], 2);
}

#[test]
fn of_linux_7_3_copies_running_flows() {
    run(Series::V7_3, &["taps::open_vswitch::a_running", "taps::open_vswitch::trains"], 2);
}

#[test]
fn of_linux_7_3_does_what_policies_say() {
    let others = ["hosts", "policies", "ipv6", "vlans", "monitors"];
    let others = others.map(|name| format!("taps::open_vswitch::{name}"));
    run(Series::V7_3, &others.each_ref().map(String::as_str), 5);
}

#[test]
fn of_linux_7_3_copies_to_a_far_monitor() {
    let fabric = "fabric::line_of_open_vswitch::";
    let scenarios = ["a_running", "copies_have_the_tags"].map(|name| format!("{fabric}{name}"));
    run(Series::V7_3, &scenarios.each_ref().map(String::as_str), 2);
}

/// Runs these scenarios in a guest.
fn run(series: Series, scenarios: &[&str], count: usize) {
    if inside().is_some() || !can_run(&[]) {
        return;
    }
    let outcome = match boot(series, scenarios) {
        Ok(outcome) => outcome,
        Err(Error::Unavailable { what, remedy }) => {
            skip(&format!("{what}; {remedy}"));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let Outcome { status, output, took, .. } = &outcome;
    println!("{series:?}, {scenarios:?}: {took:?}");
    assert!(*status == 0 && !output.contains("SKIP:"), "{output}");
    assert!(output.contains(&format!("test result: ok. {count} passed")), "{output}");
    let datapath = format!("{KERNEL}@ovs-{KERNEL}:\n  lookups: hit:");
    assert_eq!(output.matches(&datapath).count(), count, "{output}");
}

fn boot(series: Series, scenarios: &[&str]) -> Result<Outcome, Error> {
    let kernel = Kernel::of(series)?;
    let tests = std::env::current_exe().unwrap();
    let mut guest = Guest::new(&kernel, tests).file(BINARY, BINARY);
    for program in Ovs::PROGRAMS {
        guest = guest.bin(program)?;
    }
    guest
        .file(SCHEMA, SCHEMA)
        .modules(["tun", "veth", "openvswitch"])
        .args(scenarios.iter().copied())
        .args(["--test-threads", "1", "--nocapture"])
        .env("TAPSWITCH_GUEST", kernel.release())
        .env(DATAPATH, KERNEL)
        .memory_mib(1536)
        .limit(PATIENCE * 8)
        .run()
}
