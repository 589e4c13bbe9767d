//! An idle switch uses no CPU time. The only test of this file, as it examines its process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use common::*;

/// Over two seconds: a worker that polls would wake up thousands of times.
const WAKEUPS_MAX: u64 = 20;

#[test]
fn an_idle_switch_sleeps() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(4);
    lab.switch.controller().apply(join(1, 2));
    ping(lab.host(1), lab.host(2));
    // An interface that is down or gone must not keep a thread awake either.
    lab.host_mut(3).netlink.set_down("eth0").unwrap();
    lab.host_mut(4).netlink.delete("eth0").unwrap();
    lab.wait_for_state(3, "no-link");
    lab.wait_for_state(4, "gone");
    let wakeups = || lab.switch.workers().iter().map(|worker| worker.wakeups).sum::<u64>();
    let (before, switched) = (wakeups(), context_switches());
    thread::sleep(Duration::from_secs(2));
    let (after, switched_after) = (wakeups(), context_switches());
    assert!(after - before <= WAKEUPS_MAX, "workers woke up {} times", after - before);
    for (name, count) in &switched_after {
        let slept = count - switched.get(name).copied().unwrap_or(0);
        assert!(slept <= WAKEUPS_MAX, "{name} woke up {slept} times");
    }
    assert!(switched_after.len() >= 3, "no threads were looked at: {switched_after:?}");
}

/// Voluntary context switches of each thread of the switch.
fn context_switches() -> BTreeMap<String, u64> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let count = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)
        };
        let name = field("Name:")?.to_owned();
        let count = field("voluntary_ctxt_switches:")?.parse().ok()?;
        let is_ours = name.starts_with("tapswitch-") || name.starts_with("switch");
        is_ours.then_some((name, count))
    };
    tasks.filter_map(|task| count(task.unwrap())).collect()
}
