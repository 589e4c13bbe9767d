//! `tapswitch bench`: it reports all of its measurements, and leaves nothing behind. The speed
//! itself is not tested.

mod lossless;

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
        assert!(row["to_bare"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["to_no_copy"].is_object(), row["copies"] == true, "{row}");
        assert!(row["to_ovs"].is_null(), "Open vSwitch was left out: {row}");
    }
    assert!(report["idle_percent"].as_f64().unwrap() >= 0.0);
    assert_eq!((number(&report["rounds"]), number(&report["seconds"])), (1, 1));
    let leftovers = Leftovers::of(bench.id());
    assert!(leftovers.are_none(), "{leftovers:?}");
}

#[test]
fn the_echo_counts_no_more_than_was_sent_and_draws_what_it_counted() {
    if !can_run(&[]) || !has_two_cores() {
        return;
    }
    let _turn = among_others();
    let directory = directory();
    let [json, svg] =
        ["echo.json", "echo.svg"].map(|name| directory.path().join(name).display().to_string());
    let mut command = Command::new(BINARY);
    command.args(["bench", "echo", "--rounds", "1", "--seconds", "1", "--only", "echo"]);
    command.args(["--layer", "tap", "--traffic", "udp", "--queues", "1", "--by", "bare"]);
    command.args(["--by", "drain", "--by", "uring", "--only", "turns"]);
    command.args(["--json", &json, "--svg", &svg]);
    let mut bench = Daemon::start(command, directory.path());
    assert_eq!(bench.wait().code(), Some(0), "{}", bench.log());
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = report["echo"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "three candidates, offloads off and on");
    for row in rows {
        let (sent, echoed) = (number(&row["sent"]), number(&row["echoed"]));
        assert!(echoed > 0 && echoed <= sent, "{row}");
        let rate = |name: &str| row[name].as_f64().unwrap();
        let (packets, frames) = (rate("packets_per_second"), rate("frames_per_second"));
        assert!(packets > 0.0 && packets <= echoed as f64 * 2.0, "within a second: {row}");
        let trains = rate("trains_per_second");
        if row["offloads"] == true {
            assert!(trains > 0.0 && packets > frames * 10.0, "trains came whole: {row}");
            assert!(row["to_no_offloads"]["median"].as_f64().unwrap() > 0.0, "{row}");
        } else {
            assert_eq!((trains, packets), (0.0, frames), "no train came: {row}");
        }
        // 1400 bytes of payload behind Ethernet, IPv4 and UDP.
        let bits = packets * 1442.0 * 8.0;
        assert!((rate("gbps") * 1e9 / bits - 1.0).abs() < 0.001, "{row}");
        assert_eq!(row["to_bare"].is_object(), row["means"] != "bare", "{row}");
    }
    let turns = report["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 4, "both engines, offloads off and on");
    for row in turns {
        let [bare, ours] = ["bare_nanoseconds", "nanoseconds"].map(|name| row[name].as_f64());
        let (bare, ours) = (bare.unwrap(), ours.unwrap());
        assert!(bare > 0.0 && ours > 0.0, "{row}");
        // The ratio of the only round.
        let ratio = row["to_bare"]["median"].as_f64().unwrap();
        assert!((ratio - bare / ours).abs() < 1e-9, "{row}");
    }
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("TAP, UDP, 1 queue<"), "{picture}");
    let leftovers = Leftovers::of(bench.id());
    assert!(leftovers.are_none(), "{leftovers:?}");
}

#[test]
fn tags_are_measured_at_all_depths() {
    if !can_run(&[]) {
        return;
    }
    let _turn = among_others();
    let directory = directory();
    let json = directory.path().join("vlan.json").display().to_string();
    let mut command = Command::new(BINARY);
    command.args(["bench", "vlan", "--rounds", "6", "--window", "20", "--gro", "off"]);
    command.args(["--json", &json]);
    let mut bench = Daemon::start(command, directory.path());
    assert_eq!(bench.wait().code(), Some(0), "{}", bench.log());
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 32, "four kinds of traffic, two numbers of flows, up to three tags");
    for row in rows {
        let value = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!(value("median") > 0.0 && value("switch_ns_per_packet") > 0.0, "{row}");
        // Nothing on the path cuts or joins; frames may be lost on a busy machine. The length of
        // TCP's trains varies, and hosts and links are not read at the same moment.
        let [host, link] = ["host_train_len", "link_train_len"].map(value);
        let of_udp = match row["traffic"].as_str().unwrap() {
            "tcp" => None,
            "udp-trains" => Some(44.0),
            _ => Some(1.0),
        };
        match of_udp {
            Some(len) => assert!(link == len && (0.9..1.1).contains(&(host / len)), "{row}"),
            None => assert!(link > 2.0 && host > 2.0, "{row}"),
        }
        let tags = number(&row["tags"]);
        assert_eq!(row["to_untagged"]["interval"].is_array(), tags > 0, "{row}");
        assert_eq!(row["verdict"].is_string(), tags > 1, "{row}");
    }
    let leftovers = Leftovers::of(bench.id());
    assert!(leftovers.are_none(), "{leftovers:?}");
}

#[test]
fn guests_are_measured_beside_open_vswitch() {
    if !can_run(&["ovs-ofctl"]) || !has_two_cores() {
        return;
    }
    let _turn = among_others();
    let directory = directory();
    let [json, svg] =
        ["vhost.json", "."].map(|name| directory.path().join(name).display().to_string());
    let mut command = Command::new(BINARY);
    command.args(["bench", "vhost", "--quick", "--json", &json, "--svg", &svg]);
    let mut bench = Daemon::start(command, directory.path());
    while !bench.has_ended() {
        let said = bench.log().len();
        until("the next measurement", || bench.has_ended() || bench.log().len() > said);
    }
    assert_eq!(bench.wait().code(), Some(0), "{}", bench.log());
    let leftovers = Leftovers::of(bench.id());
    assert!(leftovers.are_none(), "{leftovers:?}");
    if let Some(line) = bench.log().lines().find_map(|line| line.strip_prefix("SKIP: ")) {
        skip(line);
        return;
    }
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rates = report["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 3 * 6, "two sizes, trains; plain by three, ALL by two, mirror by one");
    assert_eq!(rates.iter().filter(|row| row["load"] == "trains").count(), 6);
    for row in rates {
        // A candidate that got no processor in such a short window has forwarded nothing in it.
        assert!(row["mpps"].is_number(), "{row}");
        let ledger = |name: &str| number(&row["ledger"][name]);
        assert!(ledger("received") > 0 && ledger("sent") >= ledger("received"), "{row}");
        // Whether the copies of others are complete is not tested here.
        if row["candidate"] == "tapswitch" {
            let copied = row["task"] != "plain";
            assert_eq!(ledger("copied") > 0, copied, "{row}");
            assert_eq!(row["adds_up"], true, "{row}");
            assert!(row["to_ovs"]["ratio"].is_object(), "{row}");
            assert_eq!(row["to_plain"]["goal"].is_number(), copied && row["size"] == 64, "{row}");
        }
    }
    assert_eq!(report["pairs"].as_array().unwrap().len(), 4, "two switches, one and two threads");
    assert_eq!(report["idle"].as_array().unwrap().len(), 2);
    for row in report["latency"].as_array().unwrap() {
        let [median, most] = ["p50_us", "p99_us"].map(|name| row[name].as_f64().unwrap());
        assert!(0.0 < median && median <= most, "{row}");
    }
    let picture = fs::read_to_string(directory.path().join("vhost-packed-1.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains(">tapswitch, group ALL<"), "{picture}");
}

#[test]
fn late_work_is_measured_part_by_part() {
    let directory = directory();
    let json = directory.path().join("offload.json").display().to_string();
    let mut command = Command::new(BINARY);
    command.args(["bench", "offload", "--rounds", "3", "--milliseconds", "1", "--json", &json]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let of = |part: &'static str| rows.iter().filter(move |row| row["part"] == part);
    assert_eq!(of("split").count(), 8 * 4, "kinds of trains, ways to cut them");
    assert_eq!(of("coalesce").count(), 10 * 2 * 2, "one flow and several, vouched for or not");
    assert!(of("checksum").count() >= 6 * 3, "at least scalar, the choice, and copying");
    assert!(of("tags").count() > 0);
    for row in rows {
        assert!(row["nanoseconds"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["rounds"].as_array().unwrap().len(), 3, "{row}");
    }
    for row in of("split") {
        assert_eq!(row["to_baseline"].is_number(), row["way"] != "one copy", "{row}");
    }
}

#[test]
fn an_echo_that_is_stopped_leaves_nothing_behind() {
    if !can_run(&[]) || !has_two_cores() {
        return;
    }
    let _turn = among_others();
    let directory = directory();
    let mut command = Command::new(BINARY);
    command.args(["bench", "echo", "--rounds", "99", "--seconds", "60", "--by", "bare"]);
    let mut bench = Daemon::start(command, directory.path());
    until("all processes of a measurement", || children(bench.id()).len() == 3);
    let children = children(bench.id());
    bench.stop();
    assert!(bench.log().contains("cleaned up"), "{}", bench.log());
    until("the end of its processes", || !children.iter().any(|id| is_running(*id)));
    let leftovers = Leftovers::of(bench.id());
    assert!(leftovers.are_none(), "{leftovers:?}");
}

fn has_two_cores() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores > 1 || skip("two cores are needed")
}
