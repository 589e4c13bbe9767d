//! Observation points: at the ingress or at the egress, with rules of others that rewrite in
//! between.

use tapswitch_control::*;
use tapswitch_openflow::*;
use tapswitch_wire::{EtherType, ip_proto};

use crate::fabric::{Fabric, check_changes, check_ledger};
use crate::frames::{mac, tcp, udp};
use crate::world::policy;

/// A policy that copies at the egress to a host, with this transport.
fn egress(name: &str, dst: u8, (transport, monitor): (Transport, &str)) -> TapPolicy {
    let (point, dst_mac) = (Some(Point::Egress), Some(mac(dst)));
    TapPolicy { point, dst_mac, transport, ..policy(name, monitor) }
}

const TRANSPORTS: [Transport; 2] = [Transport::Svlan, Transport::Rewrite];

#[test]
fn at_the_egress_copies_arrive_as_they_were_made_wherever_the_monitor_is() {
    for transport in TRANSPORTS {
        for (monitor, from) in (1..=4).flat_map(|monitor| [1, 2, 4].map(|from| (monitor, from))) {
            let mut fabric = Fabric::line(4);
            fabric.learn();
            let to = (transport, &*format!("{monitor:#x}/2"));
            fabric.world.plan_and_tap(egress("far", 3, to));
            let mut expected = [(3, 1), (monitor, 2)];
            expected.sort_unstable();
            assert_eq!(fabric.send(from, &tcp(from, 3).bytes()), expected, "from {from}");
            check_ledger(&mut fabric, "far", 1);
            assert_eq!(fabric.send(3, &udp(3, from).bytes()), [(from.into(), 1)], "answers");
            let before = fabric.world.untap("far");
            assert!(before.adds_up, "{before:?}");
            fabric.check_production();
        }
    }
}

/// A foreign rule on the middle switch redirects a service to another TCP port.
fn rewriting_in_the_middle() -> Fabric {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let is_web = Match::new()
        .with(Oxm::EthType(EtherType(0x0800)))
        .with(Oxm::VlanVid(Masked::exact(0)))
        .with(Oxm::IpProto(ip_proto::TCP))
        .with(Oxm::TcpDst(80));
    let foreign = FlowMod {
        cookie: 42,
        priority: 60_000,
        match_fields: is_web,
        instructions: vec![
            Instruction::ApplyActions(vec![Action::SetField(Oxm::TcpDst(8080))]),
            Instruction::GotoTable(TableId(2)),
        ],
        ..FlowMod::new(FlowModCommand::Add)
    };
    fabric.world.model(2).handle(Message { xid: 9999, body: Body::FlowMod(foreign) });
    fabric
}

#[test]
fn a_frame_is_copied_before_or_after_a_rewrite_as_the_policy_says() {
    for (transport, monitor) in
        TRANSPORTS.into_iter().flat_map(|by| (1..=3).map(move |at| (by, at)))
    {
        let mut fabric = rewriting_in_the_middle();
        let sent = tcp(1, 3).bytes();
        let [original] = &fabric.world.inject(1, 1, &sent)[..] else { panic!() };
        let (original, arrived) = (original.clone(), original.2.clone());
        assert_eq!(arrived[36..38], 8080_u16.to_be_bytes(), "the port of the original");
        let there = format!("{monitor:#x}/2");
        let on = |policy: TapPolicy, port: u16| TapPolicy {
            direction: Some(Direction::Forward),
            dst_port: Some(port.into()),
            ..policy
        };
        let before = |port| on(policy("before", &there), port);
        let after = |port| on(egress("after", 3, (transport, &there)), port);
        for (policy, copy) in [
            (before(80), Some(&sent)),
            (before(8080), None),
            (after(80), None),
            (after(8080), Some(&arrived)),
        ] {
            let name = policy.name.clone();
            fabric.world.tap(policy);
            let mut expected = vec![original.clone()];
            expected.extend(copy.map(|copy| (monitor, 2, copy.clone())));
            expected.sort();
            let mut arrivals = fabric.world.inject(1, 1, &sent);
            arrivals.sort();
            assert_eq!(arrivals, expected, "{name} at {there} by {transport}");
            check_ledger(&mut fabric, &name, copy.is_some().into());
            fabric.world.untap(&name);
        }
    }
}

#[test]
fn a_policy_may_change_its_point() {
    let after = egress("web", 2, (Transport::Svlan, "0x3/2"));
    let before = TapPolicy { point: None, direction: Some(Direction::Forward), ..after.clone() };
    check_changes(&before, &[after]);
}

/// One copy from each of the two points, according to each policy.
#[test]
fn each_point_makes_one_copy() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.plan_and_tap(policy("before", "0x3/2"));
    fabric.world.plan_and_tap(egress("after", 2, (Transport::Svlan, "0x3/2")));
    let other = egress("other", 2, (Transport::Rewrite, "0x3/2"));
    fabric.world.plan_and_tap(TapPolicy { dst_port: Some(80.into()), ..other });
    assert_eq!(fabric.send(1, &udp(1, 2).bytes()), [(2, 1), (3, 2), (3, 2)]);
    assert_eq!(fabric.send(2, &udp(2, 1).bytes()), [(1, 1), (3, 2)]);
    for (name, matched) in [("before", 2), ("after", 1), ("other", 1)] {
        check_ledger(&mut fabric, name, matched);
    }
}
