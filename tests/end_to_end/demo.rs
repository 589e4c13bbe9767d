//! `tapswitch demo`: it does what it promises, and leaves nothing behind however it ends.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::RwLockReadGuard;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::*;

#[test]
fn every_check_holds_and_the_data_agrees() {
    let Some(mut demo) = Demo::start(&["--seconds", "2"]) else { return };
    let status = demo.daemon.wait();
    assert_eq!(status.code(), Some(0), "{}", demo.daemon.log());
    assert_report(&demo.report());
    assert!(demo.daemon.log().contains("frames matched by the TAP"), "the table is printed");
    demo.assert_gone();
}

#[test]
fn signals_end_it_at_any_moment_and_nothing_is_left() {
    let moments: [(&str, Question); 4] = [
        ("a namespace", |demo| !demo.leftovers().namespaces.is_empty()),
        ("the first flow", |demo| demo.daemon.log().contains("without a TAP")),
        ("the TAP", |demo| demo.daemon.log().contains("TAP added")),
        ("the capture", |demo| demo.daemon.log().contains("pcapng with tshark")),
    ];
    for (what, has_come) in moments {
        for signal in [Signal::INT, Signal::TERM] {
            let Some(mut demo) = Demo::start(&["--seconds", "1"]) else { return };
            until(what, || has_come(&demo));
            let programs = children(demo.daemon.id());
            demo.daemon.signal(signal);
            let status = demo.daemon.wait();
            assert!(status.code().is_some_and(|code| code != 0), "{what}, {signal:?}: {status}");
            assert!(!demo.report_path().exists(), "no report of half a demonstration");
            until("its programs end with it", || !programs.iter().any(|id| is_running(*id)));
            demo.assert_gone();
        }
    }
}

#[test]
fn what_a_killed_one_left_is_swept_by_the_next() {
    let _nobody_else = alone();
    let Some(mut killed) = Demo::launch(&["--seconds", "30"]) else { return };
    until("the first flow", || killed.daemon.log().contains("without a TAP"));
    let programs = children(killed.daemon.id());
    assert!(!programs.is_empty(), "iperf3 runs");
    killed.daemon.kill();
    assert_eq!(killed.leftovers().namespaces.len(), 3, "there is something to sweep");
    until("its programs end with it", || !programs.iter().any(|id| is_running(*id)));

    let mut next = Demo::launch(&["--seconds", "30"]).unwrap();
    until("the next one is at work", || next.daemon.log().contains("without a TAP"));
    killed.assert_gone();
    next.daemon.stop();
    next.assert_gone();
}

#[test]
fn keep_leaves_it_running_until_a_signal() {
    let Some(mut demo) = Demo::start(&["--seconds", "1", "--keep"]) else { return };
    until("the report is there", || demo.daemon.log().contains("Still running until Ctrl-C"));
    let leftovers = demo.leftovers();
    assert_eq!(leftovers.namespaces.len(), 3, "{leftovers:?}");
    assert!(!demo.daemon.has_ended());

    let socket = demo.socket();
    let ports = tapswitch(&["show", "ports", "--json", "--socket", &socket]).json();
    assert_eq!(ports.as_array().unwrap().len(), 3, "it can be explored");
    let args = ["policy", "add", "mine", "--monitor", "3", "--json", "--socket", &socket];
    assert_eq!(tapswitch(&args).json()["state"]["is"], "active");

    demo.daemon.signal(Signal::INT);
    assert_eq!(demo.daemon.wait().code(), Some(0), "all checks held: {}", demo.daemon.log());
    demo.assert_gone();
}

/// Whether a demo has reached a certain point.
type Question = fn(&Demo) -> bool;

/// Checks the data of the report.
fn assert_report(report: &Value) {
    let ledger = &report["ledger"];
    let [matched, copied, dropped] =
        ["matched", "copied", "dropped"].map(|field| number(&ledger[field]));
    assert!(matched > 0 && matched == copied + dropped, "{ledger}");
    let pcapng = &report["pcapng"];
    assert!(number(&pcapng["packets"]) > 0, "{pcapng}");
    assert_eq!(number(&pcapng["oversize"]) + number(&pcapng["bad_checksums"]), 0, "{pcapng}");
    assert!(number(&pcapng["longest"]) <= 1514, "{pcapng}");
    for window in ["without_tap", "with_tap"] {
        let window = &report[window];
        assert!(window["gbps"].as_f64().unwrap() > 0.0, "{window}");
        assert!(number(&window["packets"]) >= number(&window["frames"]), "{window}");
    }
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() >= 10 && checks.iter().all(|check| check["held"] == true), "{checks:?}");
    assert_eq!(number(&report["seconds"]), 2);
}

/// A demo, and what it may leave behind.
struct Demo {
    daemon: Daemon,
    directory: TempDir,
    _turn: Option<RwLockReadGuard<'static, ()>>,
}

impl Demo {
    /// Starts a demo beside others, if it can run here.
    fn start(args: &[&str]) -> Option<Self> {
        let turn = Some(among_others());
        Self::launch(args).map(|demo| Self { _turn: turn, ..demo })
    }

    fn launch(args: &[&str]) -> Option<Self> {
        if !can_run(&["iperf3", "tshark", "ping"]) {
            return None;
        }
        let directory = directory();
        let json = directory.path().join("report.json").display().to_string();
        let mut command = Command::new(BINARY);
        command.arg("demo").args(args).args(["--json", &json]);
        let daemon = Daemon::start(command, directory.path());
        Some(Self { daemon, directory, _turn: None })
    }

    fn report_path(&self) -> PathBuf {
        self.directory.path().join("report.json")
    }

    fn report(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.report_path()).unwrap()).unwrap()
    }

    fn leftovers(&self) -> Leftovers {
        Leftovers::of(self.daemon.id())
    }

    /// The path of the management socket, as it prints it.
    fn socket(&self) -> String {
        let log = self.daemon.log();
        let line = log.lines().find_map(|line| line.split_once("TAPSWITCH_SOCKET="));
        line.unwrap().1.to_owned()
    }

    /// Checks that no namespace (with its devices), file or process of it is left.
    fn assert_gone(&self) {
        let leftovers = self.leftovers();
        assert!(leftovers.are_none(), "{leftovers:?}");
        assert_eq!(children(self.daemon.id()), Vec::<u32>::new());
    }
}

#[test]
fn a_report_that_cannot_be_written_is_refused_at_once() {
    if !can_run(&["iperf3", "tshark", "ping"]) {
        return;
    }
    let said = tapswitch(&["demo", "--json", "/nonexistent/report.json"]);
    said.refused(&["/nonexistent/report.json", "No such file"]);
}
