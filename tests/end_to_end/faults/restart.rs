//! A switch is stopped while frames wait, and started again.

use rustix::process::Signal;

use super::{Scene, injected};
use crate::support::*;

#[test]
fn a_switch_that_stops_tells_of_the_frames_that_waited() {
    let Some(mut scene) = Scene::with(Ends::Veths, ",stall=10000") else { return };
    restart(&mut scene);
    let memory = Memory::of(scene.lab.controller.id(), 1);
    (0..4).for_each(|_| restart(&mut scene));
    memory.assert_same();
}

/// Frames for the program wait when the switch is told to stop.
fn restart(scene: &mut Scene) {
    let probes = injected(&scene.lab);
    scene.others().finish_after(100);
    let feed = scene.feed();
    until("the sender waits", || scene.is_waited_for());
    let first = scene.next;
    scene.next = feed.finish();
    let sent = u64::from(scene.next - first);
    let waiting = eventually("all of them are read", || {
        let (from, to) = (scene.lab.port(1), scene.lab.port(4));
        let ahead = number(&from["pressure"]["ahead"]["frames"]);
        let waiting = ahead + number(&to["pressure"]["queued"]["frames"]);
        // The others are in the ring of the device.
        (waiting + RING_LEN >= sent).then_some(waiting)
    });
    assert!(waiting > 0, "nothing waits, of {sent}");
    // It would send probes until the switch stops.
    scene.lab.controller.signal(Signal::STOP);
    let probes = last_injected(&scene.lab) - probes;
    let log = scene.lab.stop_switch();
    scene.lab.controller.signal(Signal::CONT);
    assert!(!log.contains("are not accounted for"), "{log}");
    let told = frames_that_waited(&log);
    let arrived = scene.reader.numbers().len() as u64;
    let expected = sent - arrived;
    assert!((expected..=expected + probes).contains(&told), "{expected}, {probes} probes:\n{log}");

    // What the switch did not report in time is not invented.
    let report = eventually("the switch is missed", || {
        let report = scene.lab.policy("tap");
        (report["state"]["is"] == "partial").then_some(report)
    });
    assert!(report["is_complete"] == false || conservation::is_settled(&report), "{report}");
    scene.lab.start_switch();
    until("the policy is in force", || scene.lab.policy("tap")["state"]["is"] == "active");
    scene.lab.introduce(&[1, 2, 3]);
    scene.reader.attach(&scene.lab, scene.options);
    scene.assert_flows();
    conservation::policies_after_a_loss(|args| scene.lab.ask_controller(args));
}

/// Packets of a controller that sends no more, when those that were under way have come.
fn last_injected(lab: &Lab) -> u64 {
    let mut count = injected(lab);
    eventually("no more come", || {
        let before = std::mem::replace(&mut count, injected(lab));
        (before == count).then_some(count)
    })
}

/// The number of waiting frames that the switch reports.
fn frames_that_waited(log: &str) -> u64 {
    let told = log.lines().filter(|line| line.contains("frames that waited for it"));
    let count = |line: &str| {
        assert!(line.contains("port_removed"), "{line}");
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    told.map(count).sum()
}

/// Frames that the kernel holds for the program.
const RING_LEN: u64 = 20;
