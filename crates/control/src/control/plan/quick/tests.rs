//! Proofs of deliberately corrupted rules: each fault must be found.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tapswitch_openflow::{
    Body, BufferId, Capabilities, DatapathId, ErrorKind, FeaturesReply, GroupModCommand, Masked,
    Match, MultipartReply, MultipartReplyBody, MultipartRequestBody, Oxm, PacketIn, PacketInReason,
    Port, PortNo, PortState, TableId, VID_NONE,
};
use tapswitch_wire::MacAddr;

use super::*;
use crate::desired::Desired;
use crate::group::GroupKey;
use crate::rule::{Cookie, FlowId, Kind, Outcome, Rule, TAPS};
use crate::translate::Goal;
use crate::{Direction, IpProto, Limits, Millis, Monitors, Transmit, Vlan};

const SWITCH: DatapathId = DatapathId(1);

fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// A control plane with a switch that accepts everything, with ports 1 to 4 and hosts at the first
/// two.
fn control() -> Control {
    control_with(Limits::default())
}

fn control_with(limits: Limits) -> Control {
    let mut control = Control::new(limits);
    connect(&mut control, SWITCH);
    run(&mut control);
    for host in [1, 2] {
        control.handle_message(SWITCH, &Body::PacketIn(arp(host)), Millis(0));
    }
    run(&mut control);
    control
}

fn connect(control: &mut Control, datapath_id: DatapathId) {
    let features = FeaturesReply {
        datapath_id,
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS,
    };
    control.handle_connected(&features, Millis(0));
}

/// Returns the messages to the switch.
fn run(control: &mut Control) -> Vec<Transmit> {
    let mut told = Vec::new();
    while let Some(transmit) = control.poll_transmit() {
        told.push(transmit.clone());
        let Transmit { switch, ticket, body } = transmit;
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
    told
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

/// A change, and what precedes it on the control plane that tries changes first.
#[derive(Clone, Debug)]
struct Step {
    /// The operation: below 5 add, 5 replace, above 5 delete.
    what: u8,
    policy: TapPolicy,
    before: Before,
}

#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    /// A trial of the change.
    Look,
    /// A trial, after which a host appears at this port.
    LookAndHost(u8),
    /// It is, and then the switch connects again.
    LookAndConnect,
    /// It is, while a copy of all is there.
    LookBesideCopy,
    /// It is, and then another one is.
    LookTwice,
    /// A trial of another change.
    LookElsewhere,
}

impl Step {
    fn change(&self) -> Change<'_> {
        match self.what {
            0..5 => Change::Add(&self.policy),
            5 => Change::Replace(&self.policy),
            _ => Change::Delete(&self.policy.name),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let filters = [
        "tcp port 1",
        "tcp port 2",
        "udp port 1",
        "udp",
        "ip",
        "ip and not port 3",
        "not tcp",
        "src net 10.0.0.0/30",
        "host 10.0.0.1",
        "ether dst 02:00:00:00:00:02",
        "vlan 5",
        "tcp",
    ];
    let policy = (0..6_u8, 1..=4_u8, 0..filters.len(), 0..2_u8);
    let policy = policy.prop_map(move |(name, monitor, filter, priority)| TapPolicy {
        filter: Some(filters[filter].to_owned()),
        priority,
        ..TapPolicy::new(format!("p{name}"), monitor.to_string().parse().unwrap())
    });
    let before = prop_oneof![
        1 => Just(Before::Nothing),
        5 => Just(Before::Look),
        1 => (1..=4_u8).prop_map(Before::LookAndHost),
        1 => Just(Before::LookAndConnect),
        1 => Just(Before::LookBesideCopy),
        1 => Just(Before::LookTwice),
        1 => Just(Before::LookElsewhere),
    ];
    let step = (0..8_u8, policy, before);
    vec(step.prop_map(|(what, policy, before)| Step { what, policy, before }), 1..12)
}

/// Changes in the order sent; deletions of unused groups and requests, which follow in any order,
/// are sorted.
fn in_order(told: Vec<Transmit>) -> (Vec<Body>, Vec<String>) {
    let is_late = |body: &Body| match body {
        Body::GroupMod(change) => change.command == GroupModCommand::Delete,
        body => matches!(body, Body::MultipartRequest(_)),
    };
    let bodies = told.into_iter().map(|transmit| transmit.body);
    let (late, changes): (Vec<_>, Vec<_>) = bodies.partition(is_late);
    let mut late: Vec<_> = late.iter().map(|body| format!("{body:?}")).collect();
    late.sort_unstable();
    (changes, late)
}

/// Makes the change on both control planes, of which one may try it first. Returns whether the
/// result of the trial was taken over.
fn step(looking: &mut Control, other: &mut Control, step: &Step) -> bool {
    let elsewhere = policy("elsewhere", "3");
    if !matches!(step.before, Before::Nothing | Before::LookElsewhere) {
        let _ = looking.judge(step.change());
    }
    if matches!(step.before, Before::LookTwice | Before::LookElsewhere) {
        let _ = looking.judge(Change::Add(&elsewhere));
    }
    let _copy = matches!(step.before, Before::LookBesideCopy).then(|| looking.clone());
    let at = |control: &Control| control.switches.get(&SWITCH).unwrap().clone();
    let foreseen = at(looking).foreseen_rules();
    if let Before::LookAndHost(host) = step.before {
        for control in [&mut *looking, &mut *other] {
            control.handle_message(SWITCH, &Body::PacketIn(arp(host)), Millis(0));
        }
    }
    if let Before::LookAndConnect = step.before {
        for control in [&mut *looking, &mut *other] {
            connect(control, SWITCH);
        }
    }
    let [made, expected] = [&mut *looking, &mut *other]
        .map(|control| control.make(step.change()).map_err(|error| error.to_string()));
    assert_eq!(made, expected);
    assert_eq!(in_order(run(looking)), in_order(run(other)), "{step:?}");
    assert_eq!(rules(looking), rules(other), "{step:?}");
    foreseen.is_some_and(|rules| std::ptr::eq(rules, at(looking).desired()))
}

/// What the first switch shall hold.
fn rules(control: &Control) -> BTreeMap<String, Goal> {
    let rules = control.switches.get(&SWITCH).unwrap().desired().rules();
    rules.map(|(id, goal)| (id.to_string(), goal.clone())).collect()
}

/// A trial does not change the messages to the switches, whatever happens between it and the
/// change, and with little room as well.
#[test]
fn what_a_look_found_is_taken_over_where_it_is_still_so() {
    let taken = Cell::new(0);
    let cases = (steps(), prop_oneof![Just(4096_usize), Just(24)]);
    let result = TestRunner::deterministic().run(&cases, |(steps, max_regions)| {
        let [mut looking, mut other] =
            [(); 2].map(|()| control_with(Limits { max_regions, ..Limits::default() }));
        for it in &steps {
            taken.set(taken.get() + u32::from(step(&mut looking, &mut other, it)));
        }
        Ok(())
    });
    result.unwrap();
    assert!(taken.get() > 100, "{}", taken.get());
}

/// Else maps would be shared with it, and each change kept beside them, until the next trial.
#[test]
fn what_a_look_found_is_kept_until_all_else_is_settled_and_no_longer() {
    let mut control = control();
    let is_kept =
        |control: &Control| control.switches.get(&SWITCH).unwrap().foreseen_rules().is_some();
    control.judge(Change::Add(&policy("new", "3"))).unwrap();
    assert!(is_kept(&control));
    control.handle_message(SWITCH, &Body::PacketIn(arp(1)), Millis(0));
    assert!(is_kept(&control));
    run(&mut control);
    assert!(!is_kept(&control));
}

/// The room that a refused policy would take is known of some switches, and the next policy has
/// its number.
#[test]
fn rules_do_not_bear_the_name_of_a_refused_policy() {
    let from = |name: &str, host, monitors: &[&str]| TapPolicy {
        src_mac: Some(mac(host)),
        monitor: Monitors::new(monitors.iter().map(|it| it.parse().unwrap()).collect()),
        ..policy(name, "3")
    };
    let [mut refusing, mut other] = [(); 2].map(|()| {
        let mut control = control_with(Limits { max_regions: 2, ..Limits::default() });
        connect(&mut control, DatapathId(2));
        run(&mut control);
        for (name, host) in [("a", 1), ("b", 2)] {
            control.add_policy(from(name, host, &["0x2/3"]), WhenMissing::Refuse).unwrap();
        }
        run(&mut control);
        control
    });
    let both = ["0x1/3", "0x2/3"];
    refusing.add_policy(from("refused", 3, &both), WhenMissing::Refuse).unwrap_err();
    for control in [&mut refusing, &mut other] {
        control.add_policy(from("new", 3, &both), WhenMissing::Wait).unwrap();
        run(control);
    }
    assert_eq!(rules(&refusing), rules(&other));
}
