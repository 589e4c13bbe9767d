//! What every test asks at its end: is each frame accounted for?

use std::time::Instant;

use serde_json::Value;

use super::{PATIENCE, Said, number};

/// Every policy's ledger adds up as soon as nothing is in flight, and is complete. `ask` runs a
/// command on the management socket of a process with a controller. Answers the reports.
///
/// The traffic of the test must have ended; what goes on by itself, such as neighbour discovery,
/// is waited out.
pub(crate) fn policies(ask: impl Fn(&[&str]) -> Said) -> Vec<Value> {
    let reports = at_rest(ask);
    for report in &reports {
        assert_eq!(report["is_complete"], true, "the ledger of {}", ledger(report));
    }
    reports
}

/// The same after something was killed: what was lost with it is said to be incomplete, and what
/// is told of the rest adds up.
pub(crate) fn policies_after_a_loss(ask: impl Fn(&[&str]) -> Said) -> Vec<Value> {
    at_rest(ask)
}

/// What holds at the end of each test, whatever it did: if there is a controller that answers, all
/// of its ledgers add up.
pub(crate) fn at_the_end(ask: impl Fn(&[&str]) -> Said) {
    if ask(&["policy", "list"]).code == Some(0) {
        at_rest(ask);
    }
}

/// The reports when all of them add up and nothing waits; fails when that does not come to be.
fn at_rest(ask: impl Fn(&[&str]) -> Said) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE / 4;
    loop {
        let reports = ask(&["policy", "list"]).json();
        let reports: Vec<_> = reports.as_array().unwrap().clone();
        let open: Vec<_> = reports.iter().filter(|report| !is_settled(report)).collect();
        if open.is_empty() {
            return reports;
        }
        let texts: Vec<_> = open.into_iter().map(ledger).collect();
        assert!(Instant::now() < deadline, "the ledgers do not add up: {}", texts.join("\n"));
        // Only to leave the processor to those that forward and count.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The books of our switch: each frame that came in, and each copy, was sent, consumed or dropped
/// under a name, and none waits. `ask` runs a command on its management socket.
pub(crate) fn books(ask: impl Fn(&[&str]) -> Said) {
    super::until("books that are closed", || are_closed(&ask(&["show", "switch"]).json()));
}

/// Whether the books of this switch are closed.
pub(crate) fn are_closed(report: &Value) -> bool {
    let part = |name: &&str| number(&report["books"][*name]);
    let sum = |names: &[&str]| names.iter().map(part).fold(0, u64::wrapping_add);
    sum(&["received", "copied", "injected"]) == sum(&["sent", "consumed", "dropped"])
        && sum(&["queued", "ahead"]) == 0
}

/// Adds up, by the switch's word and by our own reckoning, and nothing is in flight.
pub(crate) fn is_settled(report: &Value) -> bool {
    let copied = report["copied"].as_array().unwrap();
    let sum = |part: fn(&Value) -> u64| copied.iter().map(part).sum::<u64>();
    let dropped = |to: &Value| to["dropped"].as_object().unwrap().values().map(number).sum::<u64>();
    let delivered = sum(|to| number(&to["delivered"]["packets"]) + number(&to["flooded"]));
    let in_flight = sum(|to| number(&to["in_flight"]));
    let matched = number(&report["matched"]["packets"]);
    let is_sum = matched == delivered + sum(dropped) + in_flight;
    assert_eq!(report["adds_up"], is_sum, "it says the opposite: {}", ledger(report));
    is_sum && in_flight == 0
}

fn ledger(report: &Value) -> String {
    format!("policy {}: {report:#}", report["policy"]["name"])
}
