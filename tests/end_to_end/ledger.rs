//! Contracts and ledgers on our switch and on Open vSwitch.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::*;
use crate::taps::{assert_whole, copied, matched};

const CONTRACTS: [&str; 4] = ["best-effort", "lossless", "lossless:20", "sample-on-pressure"];

#[test]
fn our_switch_is_told_each_contract_and_tells_what_became_of_the_copies() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    let said = ["best-effort", "lossless", "lossless(20 ms)", "sample-on-pressure"];
    for (contract, said) in CONTRACTS.into_iter().zip(said) {
        let report = copy_a_stream(&lab, contract);
        assert_eq!(contracts(&lab), [format!("deliver:{said},output:3")]);
        assert_eq!(report.get("notes"), None, "{report}");
        let [to] = &report["copied"].as_array().unwrap()[..] else { panic!("{report}") };
        assert_eq!(number(&to["delivered"]["packets"]), matched(&report), "{report}");
        assert_eq!(to["delivered"]["bytes"], report["matched"]["bytes"]);
        assert_settled(&lab.delete("owed"));
    }
}

#[test]
fn open_vswitch_is_told_no_contracts_and_its_reports_say_so() {
    let Some(lab) = Lab::new(Peer::OpenVswitch, Ends::Veths, 3) else { return };
    lab.introduce(&[1, 2]);
    for contract in CONTRACTS {
        let report = copy_a_stream(&lab, contract);
        let groups = lab.groups().join("\n");
        assert!(groups.contains("bucket=actions=output:3"), "{groups}");
        assert!(!groups.contains("experimenter") && !groups.contains("deliver"), "{groups}");
        let notes: Vec<_> =
            report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
        let is_about_contracts = |note: &&str| note.contains("does not support delivery contracts");
        assert_eq!(notes.iter().any(is_about_contracts), contract != "best-effort", "{notes:?}");
        let is_about_ledgers =
            |note: &&str| note.contains("output to port 3") && note.contains("that port dropped ");
        assert!(notes.iter().any(is_about_ledgers), "{notes:?}");
        lab.delete("owed");
    }
}

#[test]
fn the_ledger_is_told_as_a_table_with_a_mark_in_the_list() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    copy_a_stream(&lab, "sample-on-pressure");
    let text = lab.controller_says(&["policy", "show", "owed"]);
    for words in ["delivery  sample-on-pressure", "delivered", "in flight", "adds up", "100.00 %"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let list = lab.controller_says(&["policy", "list"]);
    let line = list.lines().find(|line| line.contains("owed")).unwrap();
    assert!(line.trim_end().ends_with("ok"), "{list}");
    let refused =
        lab.ask_controller(&["policy", "add", "x", "--monitor", "3", "--delivery", "now"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("expected a contract"), "{}", refused.err);
}

#[test]
fn metrics_say_what_the_reports_say() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2, 3]);
    let report = copy_a_stream(&lab, "lossless");
    let own = Stream::new(lab.host(3), lab.host(2));
    let sent = lab.flow(&own, 3, 2).finish_after(5);
    lab.assert_conserved();
    let of_controller = samples(&lab.controller_says(&["show", "metrics"]));
    let count = matched(&report);
    let port = r#"policy="owed",switch="0x1",port="3",interface="t3""#;
    let told = |name: &str| of_controller[&format!("tapswitch_policy_{name}")].clone();
    assert_eq!(
        told(r#"matched_packets_total{policy="owed"}"#),
        (count + u64::from(sent)).to_string()
    );
    assert_eq!(told(&format!("delivered_packets_total{{{port}}}")), count.to_string());
    let dropped = format!("dropped_packets_total{{{port},reason=\"input_port\"}}");
    assert_eq!(told(&dropped), sent.to_string());
    assert_eq!(told(r#"adds_up{policy="owed"}"#), "1");

    let ports = lab.ask_switch(&["show", "ports"]).json();
    let of_switch = samples(&lab.switch_says(&["show", "metrics"]));
    let again = lab.ask_switch(&["show", "ports"]).json();
    for (before, after) in ports.as_array().unwrap().iter().zip(again.as_array().unwrap()) {
        let (port, name) = (before["port"].as_str().unwrap(), before["name"].as_str().unwrap());
        let labels = format!("bridge=\"br0\",port=\"{port}\",interface=\"{name}\"");
        let told = |name: &str| of_switch[&format!("tapswitch_port_{name}{{{labels}}}")].clone();
        assert_eq!((told("up"), told("queued_frames")), ("1".to_owned(), "0".to_owned()));
        for (name, way, unit) in [("receive", "rx", "packets"), ("transmit", "tx", "bytes")] {
            let [low, high] = [before, after].map(|report| number(&report[way][unit]));
            let told: u64 = told(&format!("{name}_{unit}_total")).parse().unwrap();
            assert!((low..=high).contains(&told), "{name}: {low} {told} {high}");
        }
    }
}

/// Samples by name and labels. Checks Prometheus' format: each family has its help and its type
/// first and occurs once, each sample occurs once.
fn samples(text: &str) -> BTreeMap<String, String> {
    let (mut family, mut families, mut samples) = ("", BTreeSet::new(), BTreeMap::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').unwrap().0;
            let of = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).unwrap();
            let (name, kind) = of.split_once(' ').unwrap();
            assert!(name == family && families.insert(name), "{line}");
            assert_eq!(kind == "counter", family.ends_with("_total"), "{of}");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap();
        assert!(
            name == family && labels.ends_with("\"}") && value.parse::<f64>().is_ok(),
            "{line}"
        );
        assert_eq!(samples.insert(sample.to_owned(), value.to_owned()), None, "{line}");
    }
    samples
}

#[test]
fn of_overlapping_policies_the_stronger_contract_counts() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    let fields = ["--dst-port", "2000", "--monitor", "3", "--delivery"];
    lab.add("weak", &[&fields[..], &["best-effort"]].concat());
    lab.add("strong", &[&fields[..], &["lossless:20"]].concat());
    let shared = "deliver:lossless(20 ms),output:3";
    assert!(contracts(&lab).iter().all(|actions| actions == shared), "{:?}", contracts(&lab));
    let count = stream(&lab).len() as u64;
    for report in conservation::policies(|args| lab.ask_controller(args)) {
        assert_eq!((matched(&report), copied(&report)), (count, count), "{report}");
    }
    lab.delete("strong");
    let alone = "deliver:best-effort,output:3";
    assert!(contracts(&lab).iter().all(|actions| actions == alone), "{:?}", contracts(&lab));
}

#[test]
fn what_goes_nowhere_is_told_with_its_reason() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2, 3]);
    lab.add("own", &["--dst-port", "2000", "--monitor", "3"]);
    let count = stream(&lab).len() as u64;
    // What the monitor itself sends matches, and does not come back to it.
    let own = Stream::new(lab.host(3), lab.host(2));
    let sent = u64::from(lab.flow(&own, 3, 2).finish_after(30));
    let report = conservation::policies(|args| lab.ask_controller(args)).remove(0);
    let [to] = &report["copied"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(number(&to["delivered"]["packets"]), count, "{report}");
    assert_eq!(to["dropped"], serde_json::json!({ "input_port": sent }), "{report}");
}

/// The monitor's interface passes next to nothing until it is opened again.
#[test]
fn what_a_stopped_monitor_does_not_take_is_accounted_for_under_each_contract() {
    if !can_run(&["tc"]) {
        return;
    }
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Veths, 3) else { return };
    lab.introduce(&[1, 2]);
    for contract in CONTRACTS {
        let fields = ["--dst-ip", "10.0.0.2", "--ip-proto", "tcp", "--monitor", "3"];
        lab.add("owed", &[&fields[..], &["--delivery", contract]].concat());
        let slow = ["add", "dev", "p3", "root", "tbf", "rate", "8kbit", "burst", "1600"];
        tc(&lab, &[&slow[..], &["limit", "100000000"]].concat());
        send_by_tcp(lab.host(1), lab.host(2), 24 << 20);
        let report = eventually("the ledger adds up while copies wait", || {
            let report = lab.policy("owed");
            (report["adds_up"] == true).then_some(report)
        });
        let [to] = &report["copied"].as_array().unwrap()[..] else { panic!("{report}") };
        let lost: u64 = to["dropped"].as_object().unwrap().values().map(number).sum();
        assert!(lost + number(&to["in_flight"]) > 0, "the monitor was not slow: {report}");
        let is_sampled = to["dropped"].get("sampled_out").is_some();
        assert_eq!(is_sampled, contract == "sample-on-pressure", "{report}");

        tc(&lab, &["del", "dev", "p3", "root"]);
        let reports = conservation::policies(|args| lab.ask_controller(args));
        assert!(matched(&reports[0]) >= matched(&report), "{:#}", reports[0]);
        assert_settled(&lab.delete("owed"));
    }
}

fn tc(lab: &Lab, args: &[&str]) {
    Said::by(lab.room.command("tc").arg("qdisc").args(args)).well();
}

/// Trains are cut for the link, and arrive as packets, or joined again. Either way both sides count
/// the same number of packets.
#[test]
fn what_a_link_cuts_and_the_next_switch_joins_is_not_lost() {
    for options in [[",offload=off", ",gro=off"], [",offload=off", ",gro=on"]] {
        let Some(mut fabric) = Fabric::line(&[Kind::Ours, Kind::Ours]) else { return };
        fabric.restart_with(&options, |_| {});
        let report = copy_over_a_link(&fabric, TCP_LEN);
        assert_eq!(report["copied"][0]["dropped"], serde_json::json!({}), "{report:#}");
        assert_eq!(report["is_complete"], true, "{report:#}");
    }
}

/// What a shaper in the middle of a link drops is lost between switches, and nothing else is.
#[test]
fn what_is_lost_in_the_middle_of_a_link_is_told_to_the_packet() {
    if !can_run(&["tc", "ip"]) {
        return;
    }
    let Some(mut fabric) = Fabric::line(&[Kind::Ours, Kind::Ours]) else { return };
    fabric.restart_with(&[",offload=off", ",gro=on"], |fabric| fabric.narrow(1, 2, "60mbit"));
    let report = copy_over_a_link(&fabric, TCP_LEN / 2);
    let [to] = &report["copied"].as_array().unwrap()[..] else { panic!("{report}") };
    let dropped: BTreeMap<_, _> = to["dropped"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(why, count)| (why.as_str(), count))
        .collect();
    assert_eq!(
        dropped.keys().copied().collect::<Vec<_>>(),
        ["lost_between_switches"],
        "{report:#}"
    );
    // The counters of the monitor's port.
    let ports = fabric.ask_switch(2, &["show", "ports"]).json();
    let port = ports.as_array().unwrap().iter().find(|port| port["name"] == "p102").unwrap();
    let sent = number(&port["tx"]["packets"]);
    let delivered = number(&to["delivered"]["packets"]);
    assert!((delivered..delivered + 50).contains(&sent), "{sent} packets: {report:#}");
    assert_eq!(report["is_complete"], true, "{report:#}");
}

/// Copies a connection from host 1 to host 2 to the monitor at switch 2. Returns the final report:
/// it counts packets, and adds up.
fn copy_over_a_link(fabric: &Fabric, len: usize) -> Value {
    fabric.introduce();
    let fields = ["--src-ip", "10.0.0.1", "--ip-proto", "tcp", "--monitor", "0x2/2"];
    fabric.add("far", &fields);
    send_by_tcp(fabric.host(1), fabric.host(2), len);
    let report = conservation::policies(|args| fabric.ask(args)).remove(0);
    let packets = (len / MSS) as u64;
    assert!(matched(&report) >= packets, "at least {packets} packets: {report:#}");
    report
}

/// Bytes of a connection that makes many trains.
const TCP_LEN: usize = 8 << 20;
/// Maximum payload of one of its packets.
const MSS: usize = 1448;

#[test]
fn the_ledger_survives_a_killed_switch_and_says_what_is_missing() {
    let Some(mut lab) = Lab::new(Peer::Tapswitch, Ends::Veths, 3) else { return };
    lab.introduce(&[1, 2]);
    let before = matched(&copy_a_stream(&lab, "lossless"));
    lab.kill_switch();
    until("the switch is missed", || lab.policy("owed")["state"]["is"] == "partial");
    lab.start_switch();
    until("the policy is in force again", || lab.policy("owed")["state"]["is"] == "active");
    lab.introduce(&[1, 2]);
    let more = stream(&lab).len() as u64;
    let report = conservation::policies_after_a_loss(|args| lab.ask_controller(args)).remove(0);
    assert!(matched(&report) >= before + more, "{before} + {more}: {report}");
    assert_eq!(report["is_complete"], false, "{report}");
    assert_eq!(contracts(&lab).first().map(String::as_str), Some("deliver:lossless,output:3"));
}

#[test]
fn a_killed_controller_leaves_copies_alone_and_the_next_one_counts_anew() {
    let Some(mut lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    copy_a_stream(&lab, "best-effort");
    lab.controller.kill();
    assert!(!stream(&lab).is_empty(), "copies go on");
    lab.start_controller();
    lab.wait_for_switch();
    until("the TAP that nobody ordered is gone", || lab.groups().is_empty());
    let report = copy_a_stream(&lab, "best-effort");
    assert_settled(&report);
}

/// Adds a policy "owed" with a contract and copies a stream. Returns its final report.
fn copy_a_stream(lab: &Lab, contract: &str) -> Value {
    let fields = ["--dst-port", "2000", "--monitor", "3", "--delivery", contract];
    let added = lab.add("owed", &fields);
    assert_eq!(added["state"]["is"], "active", "{added}");
    let count = stream(lab).len() as u64;
    lab.settle();
    until("the copies are counted", || matched(&lab.policy("owed")) >= count);
    let report = conservation::policies(|args| lab.ask_controller(args)).remove(0);
    assert_eq!((matched(&report), copied(&report)), (count, count), "{report}");
    report
}

/// Sends a stream; returns the numbers of its copies.
fn stream(lab: &Lab) -> Vec<u32> {
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let count = lab.flow(&stream, 1, 2).finish_after(60);
    let copies = monitor.copies(&stream, count);
    assert_whole(&copies, count);
    copies
}

fn assert_settled(report: &Value) {
    assert!(conservation::is_settled(report) && report["is_complete"] == true, "{report}");
}

/// The distinct actions of the buckets that copy to port 3.
fn contracts(lab: &Lab) -> Vec<String> {
    let groups = lab.ask_switch(&["show", "groups"]).json();
    let buckets = groups.as_array().unwrap().iter().flat_map(|group| {
        group["buckets"].as_array().unwrap().iter().skip(1).map(|bucket| &bucket["actions"])
    });
    let mut texts: Vec<_> = buckets.map(|actions| actions.as_str().unwrap().to_owned()).collect();
    texts.sort();
    texts.dedup();
    texts
}
