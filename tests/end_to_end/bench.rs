//! `tapswitch bench tap-forward`: it measures all that it says, and leaves nothing behind. How fast
//! anything is, is not decided here.

use std::fs;
use std::process::Command;

use crate::support::*;

#[test]
fn every_measurement_is_in_the_data() {
    if !can_run(&["iperf3", "ping"]) {
        return;
    }
    let _turn = among_others();
    let directory = directory();
    let json = directory.path().join("bench.json").display().to_string();
    let mut command = Command::new(BINARY);
    command.args(["bench", "tap-forward", "--rounds", "1", "--seconds", "1", "--without-ovs"]);
    command.args(["--json", &json]);
    let mut bench = Daemon::start(command, directory.path());
    while !bench.has_ended() {
        let said = bench.log().len();
        until("the next measurement", || bench.has_ended() || bench.log().len() > said);
    }
    assert_eq!(bench.wait().code(), Some(0), "{}", bench.log());
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12, "two candidates, with and without a copy, three measurements");
    for row in rows {
        assert!(row["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["to_bare"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["to_no_copy"].is_number(), row["copies"] == true, "{row}");
        assert!(row["to_ovs"].is_null(), "Open vSwitch was left out: {row}");
    }
    assert!(report["idle_percent"].as_f64().unwrap() >= 0.0);
    assert_eq!((number(&report["rounds"]), number(&report["seconds"])), (1, 1));
    let leftovers = Leftovers::of(bench.id());
    assert!(leftovers.are_none(), "{leftovers:?}");
}
