//! `tapswitch bench lossless`: each part reports its data, and every lost frame was dropped by
//! name.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tapswitch_guest::{Error, Guest, Kernel, Series};

use crate::support::*;

#[test]
fn what_a_slow_link_does_not_take_is_accounted_for() {
    let Some(report) = measure(&["--part", "queue", "--queue", "1000,1", "--rate", "50"]) else {
        return;
    };
    let rows = rows(&report, "queue");
    assert_eq!(rows.len(), 16, "four kinds of traffic, two rings, reading ahead or not");
    for row in rows {
        // With room for one packet, a connection may spend the whole window in retransmission
        // timeouts.
        let may_stand = row["queue"] == 1 && row["sends"].as_str().unwrap().starts_with("tcp");
        assert!(may_stand || row["mbps"].as_f64().unwrap() > 0.0, "{row}");
        let [sent, received] = ["sent", "received"].map(|name| number(&row[name]));
        let drops = row["losses"]["drops"].as_object().unwrap();
        let named = drops.values().map(number).sum::<u64>() + number(&row["losses"]["shed"]);
        let lost = sent - received;
        assert!(lost <= named, "lost {lost}: {row}");
        // Hosts may also send packets of their own, which are lost with the rest; of TCP, only
        // probes are counted.
        let is_all = row["sends"].as_str().unwrap().starts_with("tcp") || named - lost <= 20;
        assert!(is_all, "lost {lost}: {row}");
        assert_eq!(row["to_longest"].is_object(), number(&row["queue"]) == 1, "{row}");
    }
}

#[test]
fn the_ledger_of_a_slow_monitor_adds_up() {
    let Some(report) = measure(&["--part", "monitor"]) else { return };
    let rows = rows(&report, "monitor");
    assert_eq!(rows.len(), 25, "no TAP; three contracts, two kinds of monitors, four rates");
    for row in rows {
        assert!(row["mbps"].as_f64().unwrap() > 0.0, "{row}");
        let is_tapped = row["contract"].is_string();
        assert_eq!(number(&row["ledger"]["matched"]) > 0, is_tapped, "{row}");
        assert_eq!(row["to_untapped"].is_object(), is_tapped, "{row}");
        let ledger = &row["ledger"];
        assert_eq!(ledger["adds_up"], true, "{row}");
        let dropped: u64 = ledger["drops"].as_object().unwrap().values().map(number).sum();
        let found = number(&ledger["delivered"]) + dropped + number(&ledger["waiting"]);
        assert_eq!(number(&ledger["matched"]), found, "{row}");
    }
}

/// The shortest ring, on the kernel that can let packets wait in front of it.
#[test]
fn in_a_guest_a_ring_of_one_loses_nothing_with_back_pressure() {
    let said = match run_in_guest() {
        Ok(said) => said,
        Err(Error::Unavailable { what, remedy }) => {
            skip(&format!("{what}; {remedy}"));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let json = said.find("\n{").map_or("", |start| &said[start..]);
    let report = serde_json::Deserializer::from_str(json).into_iter::<Value>().next();
    let report = report.unwrap_or_else(|| panic!("no data: {said}")).unwrap();
    let rows = rows(&report, "paper");
    assert_eq!(rows.len(), 3, "without any means, reading ahead, and with back-pressure");
    for row in rows {
        let drops = row["losses"]["drops"].as_object().unwrap();
        // What the queueing discipline in front of the ring drops is its own policy.
        match row["against"] == "backpressure" {
            true => assert!(drops.is_empty(), "{row}"),
            false => assert!(drops.contains_key("ring_full"), "{row}"),
        }
    }
}

/// Runs the benchmark on this machine, as briefly as possible; `None` if it cannot run.
fn measure(args: &[&str]) -> Option<Value> {
    if !can_run(&["tc"]) {
        return None;
    }
    let _turn = among_others();
    let directory = directory();
    let json = directory.path().join("lossless.json").display().to_string();
    let mut command = Command::new(BINARY);
    command.args(["bench", "lossless", "--rounds", "1", "--seconds", "0.3", "--json", &json]);
    command.args(args);
    let mut bench = Daemon::start(command, directory.path());
    while !bench.has_ended() {
        let said = bench.log().len();
        until("the next measurement", || bench.has_ended() || bench.log().len() > said);
    }
    assert_eq!(bench.wait().code(), Some(0), "{}", bench.log());
    let leftovers = Leftovers::of(bench.id());
    assert!(leftovers.are_none(), "{leftovers:?}");
    Some(serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap())
}

/// Runs it in a guest; returns its output.
fn run_in_guest() -> Result<String, Error> {
    let outcome = Guest::new(&Kernel::of(Series::V7_3)?, BINARY)
        .modules(["tun", "veth", "bridge", "sch_netem", "sch_tbf"])
        .bin("tc")?
        .args(["bench", "lossless", "--part", "paper", "--table", "tap", "--queue", "1"])
        .args(["--trains", "off", "--rate", "20", "--rounds", "1", "--seconds", "1"])
        .args(["--json", "/proc/self/fd/1"])
        .memory_mib(1024)
        .cpus(2)
        .limit(Duration::from_secs(300))
        .run()?;
    assert_eq!(outcome.status, 0, "{}", outcome.output);
    Ok(outcome.output)
}

fn rows<'a>(report: &'a Value, part: &str) -> &'a [Value] {
    report[part].as_array().unwrap()
}
