//! Where frames are copied, on fabrics in which a foreign rule rewrites them on their path.

use crate::support::*;

#[test]
fn on_a_line_of_ours() {
    copies_are_taken_before_or_after_the_rewrite(&[Kind::Ours; 3]);
}

#[test]
fn on_a_line_of_open_vswitch() {
    copies_are_taken_before_or_after_the_rewrite(&[Kind::OpenVswitch; 3]);
}

#[test]
fn on_a_line_around_open_vswitch() {
    copies_are_taken_before_or_after_the_rewrite(&[Kind::Ours, Kind::OpenVswitch, Kind::Ours]);
}

#[test]
fn on_a_line_around_ours() {
    let kinds = [Kind::OpenVswitch, Kind::Ours, Kind::OpenVswitch];
    copies_are_taken_before_or_after_the_rewrite(&kinds);
}

/// A service is addressed at one port and listens at another.
fn copies_are_taken_before_or_after_the_rewrite(kinds: &[Kind]) {
    if !can_run(&["ovs-ofctl"]) {
        return;
    }
    let Some(fabric) = Fabric::line(kinds) else { return };
    fabric.introduce();
    let [one, three] = [1, 3].map(|number| fabric.host(number));
    let sent = Stream::new(one, three).ports(1000, 2000);
    let arriving = sent.clone().ports(1000, 3000);
    let is_service = "priority=60000,udp,dl_vlan=0xffff,tp_dst=2000";
    let actions = "actions=set_field:3000->udp_dst,goto_table:2";
    fabric.add_foreign_rule(2, &format!("cookie=42,{is_service},{actions}"));
    let mac = three.mac().to_string();
    let egress = ["--dst-mac", &mac, "--point", "egress"];
    let after = [&egress[..], &["--dst-port", "3000", "--monitor"]].concat();
    let ingress = ["--dst-mac", &mac, "--direction", "forward", "--dst-port"];
    let policies: [(&str, Vec<&str>); 5] = [
        ("before", [&ingress[..], &["2000", "--monitor", "0x3/2"]].concat()),
        ("not-before", [&ingress[..], &["3000", "--monitor", "0x3/2"]].concat()),
        ("after", [&after[..], &["0x1/2"]].concat()),
        ("readdressed", [&after[..], &["0x2/2", "--transport", "rewrite"]].concat()),
        ("not-after", [&egress[..], &["--dst-port", "2000", "--monitor", "0x1/2"]].concat()),
    ];
    for (name, fields) in &policies {
        fabric.add(name, fields);
    }
    let points = ["before", "after"].map(|name| fabric.ask(&["policy", "show", name]).json());
    assert_eq!(points.map(|told| told["policy"]["point"].clone()), ["ingress", "egress"]);
    let mut service = Capture::open(three);
    let mut monitors = [1, 2, 3].map(|number| Capture::open(fabric.monitor(number)));
    let sender = Capture::open(one);
    (0..50).for_each(|number| sender.send(&sent.frame(number)));
    let expected: Vec<u32> = (0..50).collect();
    let arrives_at = |capture: &mut Capture, stream: &Stream| {
        let mut seen = Vec::new();
        until("all arrive", || {
            seen.extend(capture.numbers(stream));
            seen.len() >= expected.len()
        });
        assert_eq!(fabric.in_order(seen), expected, "{stream:?}");
    };
    arrives_at(&mut service, &arriving);
    let [back, on, there] = &mut monitors;
    for (monitor, stream) in [(back, &arriving), (on, &arriving), (there, &sent)] {
        arrives_at(monitor, stream);
    }
    for (name, _) in &policies {
        let wanted = if name.starts_with("not") { 0 } else { 50 };
        until("all are counted", || {
            fabric.settle();
            number(&fabric.ask(&["policy", "show", name]).json()["matched"]["packets"]) >= wanted
        });
        let told = fabric.ask(&["policy", "show", name]).json();
        assert_eq!(number(&told["matched"]["packets"]), wanted, "{told}");
    }
    fabric.assert_conserved();
    fabric.assert_carried();
}
