//! Checks that Open vSwitch (`ovs-ofctl ofp-print`) decodes our encoding.

use std::process::{Command, Output};

use tapswitch_openflow::{Body, GroupModCommand, Message, MultipartReplyBody};

use crate::encode;
use crate::samples::samples;

#[test]
fn ovs_prints_what_we_encode() {
    if !has_ovs() {
        return;
    }
    let mut wrong = Vec::new();
    for sample in samples().iter().filter(|sample| !sample.ovs.is_empty()) {
        let text = ofp_print(&sample.message);
        let missing: Vec<_> =
            sample.ovs.iter().filter(|expected| !text.contains(*expected)).collect();
        if text.contains("***") || !missing.is_empty() {
            wrong.push(format!("{}: no {missing:?} in {text}", sample.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ovs_reads_our_text_as_it_reads_our_bytes() {
    if !has_ovs() {
        return;
    }
    for sample in samples().iter().filter(|sample| !sample.ovs.is_empty()) {
        let (text, command) = match &sample.message.body {
            Body::FlowMod(flow) if !flow.command.deletes() => (flow.to_string(), "parse-flow"),
            Body::GroupMod(group) if group.command != GroupModCommand::Delete => {
                (group.to_string(), "parse-group")
            }
            _ => continue,
        };
        let (_, text) = text.split_once(' ').expect("a command in front");
        let parsed = run(&["-O", "OpenFlow13", command, text]);
        let printed = ofp_print(&sample.message);
        let (parsed, printed) = (content_of(&parsed), content_of(&printed));
        assert!(printed.is_some(), "{}: {text}", sample.name);
        assert_eq!(parsed, printed, "{}: {text}", sample.name);
    }
}

#[test]
fn statistics_of_flows_read_as_those_of_ovs() {
    if !has_ovs() {
        return;
    }
    let samples = samples();
    let sample = samples.iter().find(|sample| sample.name == "flow_reply").expect("a sample");
    let Body::MultipartReply(reply) = &sample.message.body else { panic!("{}", sample.name) };
    let MultipartReplyBody::Flow(flows) = &reply.body else { panic!("{}", sample.name) };
    let text = flows.first().expect("a flow").to_string();
    let (counters, _) = text.split_once("in_port").expect("a match");
    let (_, actions) = text.split_once(" actions=").expect("actions");
    let printed = ofp_print(&sample.message);
    assert!(printed.contains(counters), "no {counters:?} in {printed}");
    assert!(printed.contains(actions), "no {actions:?} in {printed}");
}

/// The printed content of a flow-mod or group-mod without its command, which `ovs-ofctl` does not
/// accept as input.
fn content_of(text: &str) -> Option<&str> {
    let (_, message) = text.split_once("_MOD (OF1.3)")?;
    let (_, content) = message.split_once("):")?;
    content.trim().split_once(' ').map(|(_, content)| content)
}

fn ofp_print(message: &Message) -> String {
    let hex: String = encode(message).iter().map(|byte| format!("{byte:02x}")).collect();
    run(&["ofp-print", &hex])
}

/// Its output including errors, without its log, which contains the time.
fn run(arguments: &[&str]) -> String {
    let arguments = [&["-vconsole:off"], arguments].concat();
    let output = ovs_ofctl(&arguments).expect("ovs-ofctl was there a moment ago");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn ovs_ofctl(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("ovs-ofctl").args(arguments).output()
}

fn has_ovs() -> bool {
    let found = ovs_ofctl(&["--version"]).is_ok_and(|output| output.status.success());
    if !found {
        println!("SKIP: ovs-ofctl is not there; install openvswitch-common to run this test");
    }
    found
}
