//! Checks at the end of every test: is each frame accounted for?

use std::time::Instant;

use serde_json::Value;

use super::{PATIENCE, Said, number};

/// Every policy's ledger adds up as soon as nothing is in flight, and is complete. `ask` runs a
/// command on the management socket of a process with a controller. Returns the reports.
///
/// The traffic of the test must have ended; background traffic, such as neighbour discovery, is
/// waited out.
pub(crate) fn policies(ask: impl Fn(&[&str]) -> Said) -> Vec<Value> {
    let reports = at_rest(ask);
    for report in &reports {
        assert_eq!(report["is_complete"], true, "the ledger of {}", ledger(report));
    }
    reports
}

/// The same after something was killed: what was lost with it is reported as incomplete, and the
/// rest adds up.
pub(crate) fn policies_after_a_loss(ask: impl Fn(&[&str]) -> Said) -> Vec<Value> {
    at_rest(ask)
}

/// The check at the end of each test: if a controller answers, all of its ledgers add up.
pub(crate) fn at_the_end(ask: impl Fn(&[&str]) -> Said) {
    if ask(&["policy", "list"]).code == Some(0) {
        at_rest(ask);
    }
}

/// The reports when all of them add up and nothing waits; fails if that does not happen.
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
        // Only to leave the processor to others.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The conservation of our switch: each frame that came in, and each copy, was sent, consumed or
/// dropped under a name, and none waits. `ask` runs a command on its management socket.
pub(crate) fn books(ask: impl Fn(&[&str]) -> Said) {
    super::until("books that are closed", || are_closed(&ask(&["show", "switch"]).json()));
}

/// True if the sums of this switch agree.
pub(crate) fn are_closed(report: &Value) -> bool {
    let part = |name: &&str| number(&report["books"][*name]);
    let sum = |names: &[&str]| names.iter().map(part).fold(0, u64::wrapping_add);
    sum(&["received", "copied", "injected"]) == sum(&["sent", "consumed", "dropped"])
        && sum(&["queued", "ahead"]) == 0
}

/// True if the ledger adds up, by the switch's report and by our own sum, and nothing is in flight.
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
