//! Switches that do not report their counters: others do not wait for them, and uncounted copies
//! are not taken for lost.

use std::collections::BTreeMap;

use tapswitch_control::*;
use tapswitch_openflow::{DatapathId, MultipartRequestBody};

use crate::fabric::{Fabric, check_ledger};
use crate::frames::tcp;
use crate::world::policy;

/// Whether the request is for counters of copies, which is not answered here.
const fn is_about_copies(request: &MultipartRequestBody) -> bool {
    matches!(request, MultipartRequestBody::Experimenter(_))
}

/// Three switches in a line, with a policy that copies from the first to the last.
fn tapped() -> Fabric {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    fabric.send(1, &tcp(1, 2).bytes());
    check_ledger(&mut fabric, "all", 1);
    fabric.world.events.clear();
    fabric
}

fn fall_silent(fabric: &mut Fabric, switch: u64) {
    fabric.world.model(switch).ignores = Some(is_about_copies);
}

/// Silent switches, and the number of events about that.
fn silent(fabric: &Fabric) -> (Vec<u64>, usize) {
    let switches = fabric.world.control.switches().into_iter();
    let silent = switches.filter(|switch| switch.is_silent).map(|switch| switch.switch.0);
    let told = fabric.world.events.iter();
    let told = told.filter(|event| matches!(event, Event::CountersMissing { .. }));
    (silent.collect(), told.count())
}

/// Dropped copies of the policy, by reason.
fn dropped(report: &PolicyReport) -> BTreeMap<String, u64> {
    report.copied.iter().flat_map(|copied| copied.dropped.clone()).collect()
}

#[test]
fn a_switch_that_does_not_tell_its_counters_holds_up_nobody() {
    let mut fabric = tapped();
    fabric.world.tap(policy("near", "0x1/2"));
    fall_silent(&mut fabric, 2);
    (0..5).for_each(|_| _ = fabric.send(1, &tcp(1, 2).bytes()));
    fabric.wait(25_000);
    let report = fabric.world.control.policy("near").unwrap();
    assert_eq!((report.matched.packets, report.copied[0].delivered.packets), (5, 5));
    assert!(report.adds_up, "{report:?}");
    (0..5).for_each(|_| _ = fabric.send(1, &tcp(1, 2).bytes()));
    fabric.wait(30_000);
    assert_eq!(fabric.world.control.policy("near").unwrap().matched.packets, 10);
    assert_eq!(silent(&fabric), (vec![2], 1), "once");
    let note = fabric.world.control.policy("all").unwrap().notes.concat();
    assert!(note.contains("switch 0x2 does not report its counters"), "{note}");
    check_ledger_is_fresh(&mut fabric);
}

/// A caller does not wait for a switch that is known to be silent.
fn check_ledger_is_fresh(fabric: &mut Fabric) {
    fabric.send(1, &tcp(1, 2).bytes());
    assert_eq!(fabric.world.ledger("near").matched.packets, 11);
}

#[test]
fn what_a_silent_switch_should_have_told_of_is_not_lost() {
    let mut fabric = tapped();
    fall_silent(&mut fabric, 3);
    (0..5).for_each(|_| _ = fabric.send(1, &tcp(1, 2).bytes()));
    fabric.wait(25_000);
    let report = fabric.world.control.policy("all").unwrap();
    assert_eq!(report.matched.packets, 6);
    assert_eq!(dropped(&report), [("outcome_unknown".to_owned(), 5)].into());
    assert!(report.adds_up && !report.is_complete, "{report:?}");
    fabric.world.model(3).ignores = None;
    fabric.wait(60_000);
    assert_eq!(silent(&fabric).0, []);
    check_ledger(&mut fabric, "all", 6);
}

#[test]
fn a_switch_that_is_silent_is_asked_less_and_less_often() {
    let mut fabric = tapped();
    fall_silent(&mut fabric, 3);
    fabric.wait(40_000);
    let at_first = fabric.world.model(3).ignored;
    for _ in 0..40 {
        fabric.world.control.request_stats();
        fabric.wait(1000);
    }
    assert!(fabric.world.model(3).ignored <= at_first + 1, "{at_first}");
    fabric.world.model(3).ignores = None;
    fabric.wait(60_000);
    let is_back = Event::CountersBack { switch: DatapathId(3) };
    assert!(fabric.world.events.contains(&is_back));
    assert_eq!(silent(&fabric), (vec![], 1));
}

#[test]
fn who_asked_hears_that_there_is_nothing_to_wait_for() {
    let mut fabric = tapped();
    fall_silent(&mut fabric, 2);
    fabric.world.model(3).ignores =
        Some(|request| matches!(request, MultipartRequestBody::PortStats(_)));
    let tokens = [
        fabric.world.control.request_stats(),
        fabric.world.control.request_ports(),
        fabric.world.control.request_details(DatapathId(3)).unwrap(),
    ];
    let heard = |fabric: &Fabric| {
        let heard = |token: &&StatsToken| fabric.world.events.contains(&Event::StatsReady(**token));
        tokens.iter().filter(heard).count()
    };
    fabric.wait(10_000);
    assert_eq!(heard(&fabric), 0);
    fabric.wait(10_000);
    assert_eq!(heard(&fabric), 3);
    assert_eq!(silent(&fabric), (vec![2], 1), "a switch without counters of ports is not silent");
}
