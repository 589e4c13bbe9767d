//! Proofs of deliberately corrupted rules: each fault must be found.

use std::sync::Arc;

use tapswitch_openflow::{
    Body, BufferId, Capabilities, DatapathId, ErrorKind, FeaturesReply, Masked, Match,
    MultipartReply, MultipartReplyBody, MultipartRequestBody, Oxm, PacketIn, PacketInReason, Port,
    PortNo, PortState, TableId, VID_NONE,
};
use tapswitch_wire::MacAddr;

use super::*;
use crate::desired::Desired;
use crate::group::GroupKey;
use crate::rule::{Cookie, FlowId, Kind, Outcome, Rule, TAPS};
use crate::translate::Goal;
use crate::{Direction, IpProto, Limits, Millis, Transmit, Vlan};

const SWITCH: DatapathId = DatapathId(1);

fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// A control plane with a switch that accepts everything, with ports 1 to 4 and hosts at the first
/// two.
fn control() -> Control {
    let mut control = Control::new(Limits::default());
    let features = FeaturesReply {
        datapath_id: SWITCH,
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS,
    };
    control.handle_connected(&features, Millis(0));
    run(&mut control);
    for host in [1, 2] {
        control.handle_message(SWITCH, &Body::PacketIn(arp(host)), Millis(0));
    }
    run(&mut control);
    control
}

fn run(control: &mut Control) {
    while let Some(Transmit { switch, ticket, body }) = control.poll_transmit() {
        let reply = match body {
            Body::BarrierRequest => Body::BarrierReply,
            Body::MultipartRequest(request) if request.body == MultipartRequestBody::PortDesc => {
                let ports = (1..=4).map(|port| {
                    Port::new(PortNo(port), MacAddr([2, 9, 0, 0, 0, 0]), "p", PortState::LIVE)
                });
                let body = MultipartReplyBody::PortDesc(ports.collect());
                Body::MultipartReply(MultipartReply::new(body))
            }
            Body::MultipartRequest(_) => {
                control.handle_error(switch, ticket, ErrorKind::OFPBRC_BAD_TYPE, Millis(0));
                continue;
            }
            _ => continue,
        };
        control.handle_reply(switch, ticket, &reply, Millis(0));
    }
}

/// An ARP request of a host.
fn arp(host: u8) -> PacketIn {
    let MacAddr(src) = mac(host);
    let mut data = [&[0xff; 6][..], &src, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &src].concat();
    data.extend([10, 0, 0, host, 0, 0, 0, 0, 0, 0, 10, 0, 0, 99]);
    data.resize(60, 0);
    PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 60,
        reason: PacketInReason::ACTION,
        table_id: TableId(0),
        cookie: Cookie::new(Kind::Base, 0).0,
        match_fields: Match::new().with(Oxm::InPort(PortNo(host.into()))),
        data,
    }
}

fn policy(name: &str, monitor: &str) -> TapPolicy {
    let direction = Some(Direction::Forward);
    TapPolicy { direction, ..TapPolicy::new(name, monitor.parse().unwrap()) }
}

/// The verdict on a change whose resulting rules are modified by `doctor`.
fn judge(control: &mut Control, change: Change<'_>, doctor: impl FnOnce(&mut Desired)) -> Verdict {
    control.settle();
    let now = control.trial();
    let mut then = now.clone();
    then.make(change).unwrap();
    then.foresee();
    doctor(then.switches.get_mut(&SWITCH).unwrap().desired_mut());
    let bystanders = then.bystanders();
    now.compare(&then, change, &bystanders)
}

/// Replaces the copying rules for which `change` returns another one; at least one.
fn replace(desired: &mut Desired, change: impl Fn(&FlowId, &Goal) -> Option<Vec<(FlowId, Goal)>>) {
    let rules = desired.rules().filter(|(id, _)| id.table == TAPS);
    let changed =
        rules.filter_map(|(id, goal)| Some(((FlowId::clone(id), goal.clone()), change(id, goal)?)));
    let changed: Vec<_> = changed.collect();
    assert!(!changed.is_empty());
    for (old, new) in changed {
        desired.remove(&old);
        new.into_iter().for_each(|rule| desired.insert(rule));
    }
}

/// The rule with only some of its members.
fn with_members(
    (id, goal): (&FlowId, &Goal),
    is_kept: impl Fn(usize) -> bool,
) -> Option<Vec<(FlowId, Goal)>> {
    let Outcome::Group(key) = &goal.outcome else { return None };
    if key.members.len() < 2 {
        return None;
    }
    let members = key.members.iter().enumerate().filter(|(at, _)| is_kept(*at));
    let members = members.map(|(_, member)| *member).collect();
    let key = GroupKey { members, path: key.path.clone() };
    let outcome = Outcome::Group(Arc::new(key));
    Some(vec![(id.clone(), Rule { outcome, ..goal.clone() })])
}

#[test]
fn an_overlap_of_policies_that_is_made_wrong_is_found() {
    let from = |name: &str, monitor: &str| TapPolicy {
        src_ip: Some("10.0.0.0/8".parse().unwrap()),
        ..policy(name, monitor)
    };
    let tcp = |name: &str, monitor: &str| TapPolicy {
        ip_proto: Some(IpProto::TCP),
        ..policy(name, monitor)
    };
    let mut control = control();
    control.add_policy(from("from", "3"), WhenMissing::Refuse).unwrap();
    run(&mut control);
    let new = tcp("tcp", "4");
    let right = judge(&mut control, Change::Add(&new), |_| {});
    assert!(right.proof.is_some_and(|proof| proof.is_proved));
    assert_eq!(right.unproved, None);

    let found = |verdict: &Verdict| verdict.counterexample().map(str::to_owned);
    for lost in [0, 1] {
        let verdict = judge(&mut control, Change::Add(&new), |desired| {
            replace(desired, |id, goal| with_members((id, goal), |at| at != lost));
        });
        let told = found(&verdict).unwrap_or_else(|| panic!("{lost}: {verdict:?}"));
        assert!(told.contains("(ipv4 10.0.0.0 > 192.0.2.1, tcp 0 > 0)"), "{told}");
    }
    // The intersection is missing: such frames hit a rule of one of the two.
    let verdict = judge(&mut control, Change::Add(&new), |desired| {
        replace(desired, |id, goal| with_members((id, goal), |_| true).map(|_| Vec::new()));
    });
    assert!(found(&verdict).is_some(), "{verdict:?}");
    // A deleted policy, or one with another filter, leaves no copies.
    run(&mut control);
    control.add_policy(new.clone(), WhenMissing::Refuse).unwrap();
    run(&mut control);
    let left = control.switches.get(&SWITCH).unwrap().desired().rules();
    let left = left.filter(|(id, _)| id.matching().to_string().contains("nw_proto=6"));
    let left: Vec<_> = left.map(|(id, goal)| (FlowId::clone(id), goal.clone())).collect();
    let other = TapPolicy { ip_proto: Some(IpProto::UDP), ..new };
    for change in [Change::Delete("tcp"), Change::Replace(&other)] {
        let verdict = judge(&mut control, change, |_| {});
        assert!(verdict.proof.is_some_and(|proof| proof.is_proved), "{change:?}");
        let verdict = judge(&mut control, change, |desired| {
            left.iter().for_each(|rule| desired.insert(rule.clone()));
        });
        assert!(found(&verdict).is_some(), "{change:?}: {verdict:?}");
    }
}

#[test]
fn an_overlap_of_three_that_is_made_wrong_is_found() {
    let mut control = control();
    for (name, port, monitor) in [("a", "10.0.0.0/8", "3"), ("b", "10.1.0.0/16", "4")] {
        let src_ip = Some(port.parse().unwrap());
        let policy = TapPolicy { src_ip, ..policy(name, monitor) };
        control.add_policy(policy, WhenMissing::Refuse).unwrap();
    }
    run(&mut control);
    let new = TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", "2") };
    for lost in 0..3 {
        let verdict = judge(&mut control, Change::Add(&new), |desired| {
            replace(desired, |id, goal| {
                let Outcome::Group(key) = &goal.outcome else { return None };
                let is_of_three = key.members.len() == 3;
                is_of_three.then(|| with_members((id, goal), |at| at != lost)).flatten()
            });
        });
        assert!(verdict.counterexample().is_some(), "{lost}: {verdict:?}");
    }
}

/// A priority tag is no VLAN.
#[test]
fn rules_that_pass_by_frames_with_a_priority_are_found() {
    for vlan in [Vlan::Any, Vlan::Untagged] {
        let mut control = control();
        let new = TapPolicy { vlan, src_mac: Some(mac(1)), ..policy("all", "3") };
        let right = judge(&mut control, Change::Add(&new), |_| {});
        assert!(right.proof.is_some_and(|proof| proof.is_proved));
        let verdict = judge(&mut control, Change::Add(&new), |desired| {
            replace(desired, |id, goal| {
                let is_vid = |field: &&Oxm| matches!(field, Oxm::VlanVid(_));
                id.matching().iter().find(is_vid)?;
                let exact = |field: &Oxm| match field {
                    Oxm::VlanVid(_) => Oxm::VlanVid(Masked::exact(VID_NONE)),
                    other => other.clone(),
                };
                let fields = id.matching().iter().map(exact).collect();
                Some(vec![(FlowId::new(id.table, id.priority, fields), goal.clone())])
            });
        });
        let told = verdict.counterexample().unwrap_or_else(|| panic!("{vlan}: {verdict:?}"));
        assert!(told.contains("with a priority"), "{told}");
    }
}

#[test]
fn a_verdict_is_told_with_null_where_nothing_was_proved() {
    let verdict = Verdict::unproved("too large");
    let text = serde_json::to_string(&verdict).unwrap();
    assert_eq!(text, r#"{"proof":null,"unproved":"too large"}"#);
    assert_eq!(verdict.counterexample(), None);
    let problems = vec!["a frame loops".to_owned()];
    let proof = Proof { is_proved: false, checked: 1, problems };
    let verdict = Verdict { proof: Some(proof), ..Verdict::default() };
    assert_eq!(verdict.counterexample(), Some("a frame loops"));
}
