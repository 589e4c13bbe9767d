//! Tests of `ovs-ofctl -O OpenFlow13` with the switch: dumps and changes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::collections::BTreeSet;
use std::thread;

use crate::common::ofctl::{is_there, refused, run};
use crate::common::*;
use tapswitch_openflow::{Delivery, GroupModCommand};
use tapswitch_switch::FailMode;
use tapswitch_wire::NetHeader;

fn lab(count: u8) -> Option<Lab> {
    (can_run() && is_there()).then(|| Lab::new(count))
}

/// The lines of a dump that describe something, without what changes from run to run.
fn lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| line.contains('=') && !line.starts_with("OFPST")).collect()
}

/// Match and actions of all rules.
fn flows(switch: &Running, arguments: &[&str]) -> BTreeSet<String> {
    let text = run(switch, "dump-flows", arguments);
    let tail = |line: &str| {
        let (_, tail) = line.split_once("n_bytes=").unwrap();
        tail.split_once(", ").unwrap().1.to_owned()
    };
    lines(&text).into_iter().map(tail).collect()
}

fn set(items: &[&str]) -> BTreeSet<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn the_switch_is_shown() {
    let Some(mut lab) = lab(2) else { return };
    let text = run(&lab.switch, "show", &[]);
    let mac = lab.host_mut(1).mac().to_string();
    assert_has(&text, &["dpid:0000000000000042", "n_tables:254", "n_buffers:0"]);
    assert_has(&text, &["1(eth0)", "2(eth0)", &mac, "LIVE", "miss_send_len=128"]);
    let text = run(&lab.switch, "dump-ports-desc", &[]);
    assert_has(&text, &["1(eth0)", &mac, "10GB-FD COPPER"]);
    assert_has(&run(&lab.switch, "dump-desc", &[]), &["tapswitch", "br0"]);
}

#[test]
fn a_standalone_switch_shows_its_rule_for_normal() {
    if !can_run() || !is_there() {
        return;
    }
    let lab = Lab::with(2, |config| config.fail_mode = FailMode::Standalone);
    assert_eq!(flows(&lab.switch, &[]), set(&["priority=0 actions=NORMAL"]));
    run(&lab.switch, "del-flows", &[]);
    assert!(flows(&lab.switch, &[]).is_empty());
}

#[test]
fn rules_of_many_kinds_come_back_as_they_were_given() {
    let Some(lab) = lab(2) else { return };
    run(&lab.switch, "add-group", &["group_id=5,type=all,bucket=output:1,bucket=output:2"]);
    let rules = [
        ("arp,arp_op=1,arp_tpa=10.0.0.0/24", "FLOOD"),
        ("in_port=1,dl_vlan=100,dl_vlan_pcp=3", "pop_vlan,output:2"),
        ("vlan_tci=0x1000/0x1000", "output:2"),
        ("ip,nw_src=10.1.0.0/16,nw_tos=32,nw_ecn=1", "dec_ttl,output:2"),
        ("tcp,nw_dst=10.0.0.2,tp_dst=80", "set_field:8080->tcp_dst,output:2"),
        ("udp,tp_src=53", "set_field:10.0.0.9->ip_src,output:2"),
        ("icmp,icmp_type=8,icmp_code=0", "CONTROLLER:128"),
        ("ipv6,ipv6_dst=fd00::/64,ipv6_label=0x5", "output:2"),
        ("icmp6,icmp_type=135,nd_target=fd00::1", "output:1,output:2"),
        ("tcp6,tp_dst=443", "group:5"),
        ("sctp,tp_dst=9", "drop"),
        ("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00", "ALL"),
        ("dl_src=02:00:00:00:00:01", "push_vlan:0x88a8,set_field:4296->vlan_vid,output:2"),
        ("metadata=0x5/0xff", "IN_PORT"),
        ("in_port=2", "write_actions(output:1),goto_table:3"),
        ("in_port=3", "write_metadata:0x7/0xff,goto_table:1"),
        ("in_port=LOCAL", "clear_actions"),
    ];
    for (priority, (fields, actions)) in (100..).zip(rules) {
        let rule = format!("priority={priority},{fields},actions={actions}");
        run(&lab.switch, "add-flow", &[&rule]);
    }
    let shown = flows(&lab.switch, &[]);
    assert_eq!(shown.len(), rules.len(), "{shown:#?}");
    for (priority, (_, actions)) in (100..).zip(rules) {
        let start = format!("priority={priority},");
        let line = shown.iter().find(|line| line.starts_with(&start)).unwrap();
        assert!(line.ends_with(&format!("actions={actions}")), "{line}");
    }
    let all = shown.iter().cloned().collect::<Vec<_>>().join("\n");
    assert_has(
        &all,
        &["arp_tpa=10.0.0.0/24", "dl_vlan=100", "dl_vlan_pcp=3", "ipv6_label=0x00005"],
    );
    assert_has(&all, &["nd_target=fd00::1", "metadata=0x5/0xff", "vlan_tci=0x1000/0x1000"]);
    assert_has(&all, &["nw_src=10.1.0.0/16", "nw_tos=32", "nw_ecn=1", "icmp_type=8"]);
}

#[test]
fn rules_are_changed_and_deleted() {
    let Some(lab) = lab(2) else { return };
    let switch = &lab.switch;
    for rule in [
        "cookie=0x11,priority=5,in_port=1,actions=output:2",
        "cookie=0x12,priority=6,in_port=1,ip,actions=output:2",
        "cookie=0x21,priority=7,in_port=2,actions=output:1",
    ] {
        run(switch, "add-flow", &[rule]);
    }
    run(switch, "mod-flows", &["in_port=1,actions=drop"]);
    let drops = ["priority=5,in_port=1 actions=drop", "priority=6,ip,in_port=1 actions=drop"];
    let rest = "priority=7,in_port=2 actions=output:1";
    assert_eq!(flows(switch, &[]), set(&[drops[0], drops[1], rest]));
    run(switch, "mod-flows", &["--strict", "priority=5,in_port=1,actions=output:2"]);
    assert_eq!(flows(switch, &["out_port=2"]), set(&["priority=5,in_port=1 actions=output:2"]));
    assert_eq!(flows(switch, &["cookie=0x10/0xf0"]).len(), 2);
    assert_eq!(flows(switch, &["ip"]), set(&[drops[1]]));
    let aggregate = run(switch, "dump-aggregate", &["in_port=1"]);
    assert_has(&aggregate, &["flow_count=2", "packet_count=0"]);
    run(switch, "del-flows", &["--strict", "priority=5,in_port=1"]);
    assert_eq!(flows(switch, &[]), set(&[drops[1], rest]));
    run(switch, "del-flows", &["cookie=0x12/-1"]);
    run(switch, "del-flows", &["in_port=9"]);
    assert_eq!(flows(switch, &[]), set(&[rest]));
}

#[test]
fn groups_are_added_changed_and_deleted() {
    let Some(lab) = lab(2) else { return };
    let switch = &lab.switch;
    let groups = |switch| lines(&run(switch, "dump-groups", &[])).len();
    run(switch, "add-group", &["group_id=1,type=all,bucket=output:1,bucket=output:2"]);
    run(switch, "add-group", &["group_id=2,type=select,bucket=weight:3,output:1"]);
    let watch = "group_id=3,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:2,output:2";
    run(switch, "add-group", &[watch]);
    run(switch, "add-group", &["group_id=4,type=indirect,bucket=group:1"]);
    let text = run(switch, "dump-groups", &[]);
    assert_has(&text, &["group_id=1,type=all,bucket=actions=output:1,bucket=actions=output:2"]);
    assert_has(&text, &["type=select", "weight:3", "type=ff", "watch_port:1", "group:1"]);
    run(switch, "mod-group", &["group_id=1,type=all,bucket=output:2"]);
    assert_has(
        &run(switch, "dump-groups", &["1"]),
        &["group_id=1,type=all,bucket=actions=output:2"],
    );
    run(switch, "add-flow", &["in_port=1,actions=group:1"]);
    let statistics = run(switch, "dump-group-stats", &["group_id=1"]);
    assert_has(&statistics, &["group_id=1", "ref_count=2", "packet_count=0"]);
    assert_has(
        &run(switch, "dump-group-features", &[]),
        &["Types:  0xf", "max_groups=0x10000", "push_vlan"],
    );
    run(switch, "del-groups", &["group_id=1"]);
    assert_eq!(groups(switch), 2, "the group that led to it goes along");
    assert!(flows(switch, &[]).is_empty(), "and so does the rule");
    run(switch, "del-groups", &[]);
    assert_eq!(groups(switch), 0);
}

#[test]
fn meters_are_added_changed_and_deleted() {
    let Some(lab) = lab(2) else { return };
    let switch = &lab.switch;
    let features = run(switch, "meter-features", &[]);
    let abilities = ["max_bands:8", "drop dscp_remark", "kbps pktps burst stats"];
    assert_has(&features, &abilities);
    let first = "meter=1,pktps,burst,stats,band=type=drop,rate=100,burst_size=10";
    run(switch, "add-meter", &[first]);
    assert_has(&refused(switch, "add-meter", &[first]), &["OFPMMFC_METER_EXISTS"]);
    run(switch, "add-meter", &["meter=2,kbps,band=type=dscp_remark,rate=64,prec_level=2"]);
    run(switch, "add-meter", &["meter=controller,pktps,band=type=drop,rate=50"]);
    let text = run(switch, "dump-meters", &[]);
    assert_has(&text, &["meter=1 pktps burst stats bands=\ntype=drop rate=100 burst_size=10"]);
    assert_has(&text, &["meter=2 kbps bands=\ntype=dscp_remark rate=64 prec_level=2"]);
    assert_has(&text, &["meter=controller pktps bands=\ntype=drop rate=50"]);
    run(switch, "mod-meter", &["meter=1,kbps,band=type=drop,rate=7"]);
    let text = run(switch, "dump-meters", &["meter=1"]);
    assert_has(&text, &["meter=1 kbps bands=\ntype=drop rate=7"]);
    run(switch, "add-flow", &["in_port=1,actions=meter:1,output:2"]);
    run(switch, "add-flow", &["in_port=2,actions=output:1"]);
    assert!(flows(switch, &[]).contains("in_port=1 actions=meter:1,output:2"));
    assert_has(&run(switch, "meter-stats", &["meter=1"]), &["flow_count:1 packet_in_count:0"]);
    run(switch, "del-meter", &["meter=1"]);
    assert_eq!(flows(switch, &[]), set(&["in_port=2 actions=output:1"]));
    run(switch, "del-meters", &[]);
    let text = run(switch, "dump-meters", &[]);
    assert!(text.contains("meter=controller") && !text.contains("meter=2"), "{text}");
    run(switch, "del-meter", &["meter=controller"]);
    assert!(!run(switch, "dump-meters", &[]).contains("meter="));
}

#[test]
fn counters_are_shown() {
    let Some(mut lab) = lab(2) else { return };
    run(&lab.switch, "add-flow", &["in_port=1,actions=output:2"]);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    for _ in 0..3 {
        a.send(&NetHeader::PLAIN, &frame(to, from, &[], 200));
        b.receive(|f| f.starts_with(&to.0));
    }
    lab.settle();
    assert_has(&run(&lab.switch, "dump-flows", &[]), &["n_packets=3", "n_bytes=600"]);
    assert_has(&run(&lab.switch, "dump-aggregate", &[]), &["packet_count=3", "byte_count=600"]);
    let text = run(&lab.switch, "dump-ports", &[]);
    assert_has(&text, &["2 ports", "rx pkts=3, bytes=600, drop=0", "tx pkts=3, bytes=600"]);
    let text = run(&lab.switch, "dump-ports", &["2"]);
    assert_has(&text, &["1 ports", "tx pkts=3, bytes=600, drop=0"]);
    let tables = run(&lab.switch, "dump-tables", &[]);
    assert_has(&tables, &["table 0", "active=1, lookup=3, matched=3", "tables 2...253"]);
    let queues = run(&lab.switch, "queue-get-config", &["1"]);
    assert_has(&queues, &["OFPT_QUEUE_GET_CONFIG_REPLY"]);
    let features = run(&lab.switch, "dump-table-features", &[]);
    assert_has(&features, &["table 0", "push_vlan", "dec_ttl", "arp_{spa,tpa"]);
}

#[test]
fn packets_are_sent() {
    let Some(lab) = lab(2) else { return };
    let b = Capture::open(lab.host(2));
    let packet = "ffffffffffff0200000000aa88b5".to_owned() + &"5a".repeat(60);
    let arguments = format!("in_port=controller,packet={packet},actions=output:2");
    run(&lab.switch, "packet-out", &[&arguments]);
    let (_, received) = b.receive(|f| f[12..14] == [0x88, 0xb5]);
    assert_eq!((received.len(), received[14]), (74, 0x5a));
}

#[test]
fn what_is_wrong_is_said() {
    let Some(lab) = lab(2) else { return };
    let switch = &lab.switch;
    for (command, argument, error) in [
        ("add-flow", "in_port=1,actions=group:9", "OFPBAC_BAD_OUT_GROUP"),
        ("add-flow", "in_port=1,actions=output:5000", "OFPBAC_BAD_OUT_PORT"),
        ("add-flow", "in_port=1,actions=set_queue:1,output:2", "OFPBAC_BAD_QUEUE"),
        ("add-flow", "mpls,mpls_label=5,actions=drop", "OFPBMC_BAD_FIELD"),
        ("add-flow", "table=254,actions=drop", "OFPFMFC_BAD_TABLE_ID"),
        ("add-flow", "in_port=1,actions=meter:1", "OFPMMFC_UNKNOWN_METER"),
        ("mod-group", "group_id=9,type=all,bucket=output:1", "OFPGMFC_UNKNOWN_GROUP"),
        ("add-group", "group_id=1,type=all,bucket=group:9", "OFPBAC_BAD_OUT_GROUP"),
        ("dump-ports", "9", "OFPBRC_BAD_PORT"),
        ("mod-meter", "meter=1,kbps,band=type=drop,rate=1", "OFPMMFC_UNKNOWN_METER"),
        ("meter-stats", "meter=1", "OFPMMFC_UNKNOWN_METER"),
        ("add-meter", "meter=slowpath,kbps,band=type=drop,rate=1", "OFPMMFC_INVALID_METER"),
    ] {
        assert_has(&refused(switch, command, &[argument]), &[error]);
    }
    assert!(flows(switch, &[]).is_empty());
    run(switch, "add-group", &["group_id=1,type=all,bucket=output:1"]);
    let again = refused(switch, "add-group", &["group_id=1,type=all,bucket=output:1"]);
    assert_has(&again, &["OFPGMFC_GROUP_EXISTS"]);
}

#[test]
fn several_tools_work_at_once() {
    let Some(lab) = lab(1) else { return };
    let switch = &lab.switch;
    thread::scope(|scope| {
        for table in 0..4 {
            scope.spawn(move || {
                for priority in 1..=8 {
                    let rule = format!("table={table},priority={priority},actions=drop");
                    run(switch, "add-flow", &[&rule]);
                    let shown = flows(switch, &[&format!("table={table}")]);
                    assert_eq!(shown.len(), priority, "{shown:?}");
                }
            });
        }
    });
    assert_has(&run(switch, "dump-aggregate", &[]), &["flow_count=32"]);
}

#[test]
fn many_rules_in_one_go() {
    let Some(lab) = lab(1) else { return };
    let rules: String = (0..5000u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            format!("priority=7,ip,nw_dst=10.9.{high}.{low},actions=output:1\n")
        })
        .collect();
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("flows"));
    std::fs::write(&file, rules).unwrap();
    run(&lab.switch, "add-flows", &[file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert_has(&run(&lab.switch, "dump-aggregate", &[]), &["flow_count=5000"]);
    assert_eq!(flows(&lab.switch, &[]).len(), 5000);
    run(&lab.switch, "del-flows", &["ip,nw_dst=10.9.0.0/24"]);
    assert_has(&run(&lab.switch, "dump-aggregate", &[]), &["flow_count=4744"]);
}

/// The actions that distinguish copies from paths are experimenter actions, and a tool that does
/// not know them could not use any of the reply.
#[test]
fn groups_that_copy_are_shown_too() {
    let Some(lab) = lab(3) else { return };
    let copy = vec![Delivery::Lossless { stall_ms: 20 }.action(), output(3)];
    let group = group_all(GroupModCommand::Add, 1, vec![vec![output(2)], copy]);
    lab.switch.controller().apply(vec![group]);
    let text = run(&lab.switch, "dump-groups", &[]);
    let line = "group_id=1,type=all,bucket=actions=output:2,bucket=actions=output:3";
    assert_has(&text, &[line]);
    assert!(!text.contains("error"), "{text}");
}
