//! Proof before apply, on fabrics of all sizes.

use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_control::*;
use tapswitch_helpers::cases;
use tapswitch_openflow::{Body, ErrorKind, TableId};

use crate::fabric::Fabric;
use crate::frames::{arp_request, ipv4, mac, udp};
use crate::world::policy;

/// Two spines and `leaves` leaves, with many policies between their hosts.
fn large(leaves: u8, policies: u16) -> Fabric {
    let spines = [leaves + 1, leaves + 2];
    let cables: Vec<_> = (1..=leaves).flat_map(|leaf| spines.map(|spine| (leaf, spine))).collect();
    let mut fabric = Fabric::new(leaves + 2, &cables);
    fabric.learn();
    // That many routes are not sent at once.
    fabric.wait(3000);
    for number in 0..policies {
        let policy = between(number, leaves);
        fabric.world.control.add_policy(policy, WhenMissing::Refuse).unwrap();
    }
    fabric.world.run();
    fabric
}

/// A policy between two hosts, determined by the number, with a monitor elsewhere.
fn between(number: u16, leaves: u8) -> TapPolicy {
    let host = |number: u16| u8::try_from(number % u16::from(leaves)).unwrap() + 1;
    let monitor = format!("{:#x}/2", host(number.wrapping_mul(3)));
    TapPolicy {
        src_mac: Some(mac(host(number))),
        dst_mac: Some(mac(host(number.wrapping_mul(7) + 1 + number / 100))),
        ..policy(&format!("p{number}"), &monitor)
    }
}

/// A policy for discovery probes, which belong to the controller: there are no copies of them.
fn of_links(name: &str, monitor: &str) -> TapPolicy {
    TapPolicy {
        eth_type: Some("lldp".parse().unwrap()),
        dst_mac: Some("01:80:c2:00:00:0e".parse().unwrap()),
        src_mac: Some(mac(1)),
        ..policy(name, monitor)
    }
}

fn judge(fabric: &mut Fabric, change: Change<'_>) -> Verdict {
    fabric.world.control.judge(change).unwrap()
}

fn is_proved(verdict: &Verdict) -> bool {
    verdict.proof.as_ref().is_some_and(|proof| proof.is_proved && proof.checked > 0)
}

#[test]
fn on_a_large_fabric_policies_are_proved_and_what_would_go_wrong_is_told() {
    let mut fabric = large(198, 2000);
    let rules: usize = fabric.world.control.switches().iter().map(|switch| switch.rules).sum();
    assert!(rules > 20_000, "{rules}");
    let check = |verdict: Verdict| assert!(is_proved(&verdict), "{verdict:?}");
    check(judge(&mut fabric, Change::Add(&between(2000, 198))));
    let from_one = TapPolicy { src_mac: Some(mac(190)), ..policy("from one", "0xc5/2") };
    check(judge(&mut fabric, Change::Add(&from_one)));
    let by_address =
        TapPolicy { src_ip: Some(IpPrefix::host(ipv4(190))), ..policy("by address", "0xc5/2") };
    // Any of the hosts that others name may send from it.
    is_partial(&judge(&mut fabric, Change::Add(&by_address)), "combinations); a dry run");
    let elsewhere = TapPolicy { monitor: policy("", "0xc4/2").monitor, ..between(7, 198) };
    check(judge(&mut fabric, Change::Replace(&elsewhere)));
    check(judge(&mut fabric, Change::Delete("p8")));

    let wrong = of_links("links", "0xc5/2");
    let verdict = judge(&mut fabric, Change::Add(&wrong));
    let told = verdict.counterexample().unwrap_or_else(|| panic!("{verdict:?}"));
    assert!(told.contains("(lldp)") && told.contains("would arrive"), "{told}");
    let wrong = of_links("p7", "0xc5/2");
    assert!(judge(&mut fabric, Change::Replace(&wrong)).counterexample().is_some());
}

/// Part by part, as by several threads.
fn judge_together(control: &mut Control, changes: &[Change<'_>]) -> Option<Vec<Judged>> {
    let share_out =
        |changes: &[Change<'_>], look: &Look<'_>| changes.chunks(37).flat_map(look).collect();
    control.judge_together(changes, share_out)
}

#[test]
fn many_changes_are_proved_together_unless_one_of_them_is_wrong() {
    let mut fabric = large(98, 200);
    let (new, old) = (200..300_u16, 0..100_u16);
    let new: Vec<_> = new.map(|number| between(number, 98)).collect();
    let moved: Vec<_> = old
        .map(|number| TapPolicy { monitor: policy("", "0x4/2").monitor, ..between(number, 98) })
        .collect();
    let gone: Vec<_> = (100..200_u16).map(|number| between(number, 98).name).collect();
    let adds = new.iter().map(Change::Add);
    let replacements = moved.iter().map(Change::Replace);
    let deletions = gone.iter().map(|name| Change::Delete(name));
    let mut all: Vec<_> = adds.chain(replacements).chain(deletions).collect();
    let control = &mut fabric.world.control;
    let verdicts = judge_together(control, &all).unwrap();
    assert_eq!(verdicts.len(), all.len());
    for (change, verdict) in all.iter().zip(&verdicts) {
        assert!(is_proved(verdict.as_ref().unwrap()), "{change:?}: {verdict:?}");
    }
    // An impossible change does not affect the others; a harmful one affects all.
    all.insert(100, Change::Delete("nobody"));
    let verdicts = judge_together(control, &all).unwrap();
    let wrong = verdicts.iter().enumerate().filter(|(_, verdict)| verdict.is_err());
    assert_eq!(wrong.map(|(at, _)| at).collect::<Vec<_>>(), [100]);
    let wrong = of_links("links", "0x5/2");
    all.push(Change::Add(&wrong));
    assert!(judge_together(control, &all).is_none());
}

/// A harmful policy that was forced does not excuse others.
#[test]
fn what_goes_wrong_is_told_beside_what_does_already() {
    let mut fabric = large(4, 0);
    let judge = |fabric: &mut Fabric, wanted: &TapPolicy| judge(fabric, Change::Add(wanted));
    fabric.world.tap(of_links("forced", "0x2/2"));
    let verdict = judge(&mut fabric, &policy("all", "0x3/2"));
    let unproved = verdict.unproved.as_deref().unwrap_or_default();
    assert!(unproved.starts_with("something is already wrong without the change"), "{verdict:?}");
    let other = TapPolicy { src_mac: Some(mac(2)), ..of_links("other", "0x3/2") };
    let verdict = judge(&mut fabric, &other);
    assert!(verdict.counterexample().is_some(), "{verdict:?}");
}

#[test]
fn what_deleting_a_policy_does_is_told_before() {
    let mut fabric = large(4, 8);
    let held = |fabric: &Fabric| {
        fabric.world.control.switches().iter().map(|switch| switch.rules).collect::<Vec<_>>()
    };
    let before = held(&fabric);
    let plan = fabric.world.control.plan_deletion("p3").unwrap();
    assert!(plan.proof.is_proved && plan.proof.checked > 0, "{plan:?}");
    assert!(plan.changes.iter().any(|change| !change.remove.is_empty()), "{plan:?}");
    assert_eq!(held(&fabric), before);
    fabric.world.control.make(Change::Delete("p3")).unwrap();
    fabric.world.run();
    assert_ne!(held(&fabric), before);
    let error = fabric.world.control.plan_deletion("p3").unwrap_err();
    assert!(error.to_string().contains("p3"), "{error}");
}

/// Each of its parts takes a rule for each host at each switch.
#[test]
fn of_a_very_wide_policy_on_a_large_fabric_it_is_said_that_it_is_not_proved() {
    let mut fabric = large(98, 0);
    let wide = TapPolicy { dst_port: Some("1-100".parse().unwrap()), ..policy("wide", "0x5/2") };
    let verdict = judge(&mut fabric, Change::Add(&wide));
    let reason = "it takes 4040000 rules; up to 250000 are examined; a dry run examines all of it";
    assert_eq!((verdict.proof, verdict.unproved.as_deref()), (None, Some(reason)));
    let all = judge(&mut fabric, Change::Add(&policy("all", "0x5/2")));
    assert!(all.proof.is_some_and(|proof| proof.is_proved && proof.checked > 100));
}

/// Only the affected frames are left out: those that come in at a disconnected switch, or whose
/// copies pass it.
#[test]
fn what_is_away_is_left_out_and_nothing_else() {
    let mut fabric = Fabric::line(4);
    fabric.learn();
    let from_one = |name, monitor| TapPolicy { src_mac: Some(mac(1)), ..policy(name, monitor) };
    let (near, far) = (from_one("near", "0x2/2"), from_one("far", "0x4/2"));
    let all = policy("all", "0x2/2");
    fabric.world.disconnect(4);
    assert!(is_proved(&judge(&mut fabric, Change::Add(&near))));
    is_partial(&judge(&mut fabric, Change::Add(&all)), "switch 0x4 is not connected");
    let plan = fabric.world.control.plan_policy(all.clone()).unwrap();
    assert!(plan.proof.is_proved, "{plan:?}");
    assert!(plan.notes[0].starts_with("switch 0x4 is not connected"), "{plan:?}");
    fabric.world.tap(near.clone());
    assert!(is_proved(&judge(&mut fabric, Change::Delete("near"))));

    fabric.world.connect(4);
    fabric.wait(4000);
    assert!(is_proved(&judge(&mut fabric, Change::Add(&all))));
    fabric.world.disconnect(3);
    let elsewhere = TapPolicy { monitor: policy("", "0x1/2").monitor, ..near };
    assert!(is_proved(&judge(&mut fabric, Change::Replace(&elsewhere))));
    let verdict = judge(&mut fabric, Change::Add(&far));
    assert_eq!(verdict.counterexample(), None, "{verdict:?}");
    let told = verdict.unproved.as_deref().unwrap_or_default();
    assert!(told.starts_with("switch 0x3 is not connected"), "{verdict:?}");
    assert!(verdict.proof.is_some() || verdict.is_early, "{verdict:?}");
}

fn is_partial(verdict: &Verdict, told: &str) {
    let proof = verdict.proof.as_ref().unwrap_or_else(|| panic!("{verdict:?}"));
    assert!(!proof.is_proved && proof.checked > 0 && proof.problems.is_empty(), "{verdict:?}");
    assert!(verdict.unproved.as_ref().is_some_and(|reason| reason.contains(told)), "{verdict:?}");
}

/// The desired state is traced; if a switch is known to lack a rule, there is no verdict.
#[test]
fn frames_that_meet_a_rule_that_was_refused_are_left_out() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    let hosts = [3, 4].map(mac);
    fabric.world.model(1).refuse = Some(|body| match body {
        Body::FlowMod(change) if change.table_id == TableId(2) => {
            let is_second = change.match_fields.to_string().contains(&mac(4).to_string());
            is_second.then_some(ErrorKind::OFPFMFC_TABLE_FULL)
        }
        _ => None,
    });
    for host in [3, 4] {
        fabric.world.inject(1, 1, &arp_request(host, 99, None));
    }
    let to = |host: usize| TapPolicy { dst_mac: Some(hosts[host]), ..policy("to", "0x1/2") };
    assert!(is_proved(&judge(&mut fabric, Change::Add(&to(0)))));
    let told = "switch 0x1 refused a rule that its frames match (table 2";
    let verdict = judge(&mut fabric, Change::Add(&to(1)));
    assert!(verdict.unproved.as_ref().is_some_and(|reason| reason.starts_with(told)));
    assert_eq!(verdict.counterexample(), None);
    is_partial(&judge(&mut fabric, Change::Add(&policy("all", "0x2/2"))), told);
    fabric.world.model(1).refuse = None;
    fabric.wait(5000);
    assert!(is_proved(&judge(&mut fabric, Change::Add(&to(1)))));
}

/// The number of frames traced for a policy does not depend on policies of other senders.
#[test]
fn a_proof_follows_no_more_frames_where_there_are_more_policies() {
    let [few, many] = [64_u32, 2048].map(|count| {
        let mut fabric = large(6, 0);
        for number in 0..count {
            let other = TapPolicy {
                src_mac: Some(mac(2 + (number % 5) as u8)),
                dst_ip: Some(IpPrefix::host([10, 1, (number >> 8) as u8, number as u8])),
                ..policy(&format!("other {number}"), "0x3/2")
            };
            fabric.world.control.add_policy(other, WhenMissing::Refuse).unwrap();
        }
        fabric.world.run();
        let new = TapPolicy { src_mac: Some(mac(1)), ..policy("new", "0x4/2") };
        let verdict = judge(&mut fabric, Change::Add(&new));
        assert!(is_proved(&verdict), "{verdict:?}");
        verdict.proof.unwrap().checked
    });
    assert_eq!(few, many);
}

/// Here switches lack routes to some hosts, and policies are applied at their senders.
#[test]
fn where_not_everything_is_everywhere_what_is_right_is_not_called_wrong() {
    let limits = Limits { max_ways: 0, max_places: 0, ..Limits::default() };
    let cables: Vec<_> = (1..=6).flat_map(|leaf| [(leaf, 7), (leaf, 8)]).collect();
    let mut fabric = Fabric::with(8, &cables, &limits);
    for host in 1..=8 {
        fabric.world.inject(host, 1, &arp_request(u8::try_from(host).unwrap(), 99, None));
    }
    fabric.wait(100);
    fabric.world.inject(1, 1, &udp(1, 2).bytes());
    fabric.wait(100);
    for number in 0x1000..0x1fff_u16 {
        let wanted = numbered("new", number.wrapping_mul(0x9e5) | 0x1000, 8);
        let Ok(verdict) = fabric.world.control.judge(Change::Add(&wanted)) else { continue };
        assert!(verdict.proof.is_some_and(|proof| proof.is_proved), "{wanted:?}");
        if number % 512 == 0 {
            let other = TapPolicy { name: format!("p{number}"), ..wanted };
            fabric.world.control.add_policy(other, WhenMissing::Refuse).unwrap();
        }
    }
}

/// A policy that depends on every bit of the number.
fn numbered(name: &str, number: u16, switches: u8) -> TapPolicy {
    let host = |number: u16| u8::try_from(number % u16::from(switches)).unwrap() + 1;
    let is_set = |bit: u16| number >> bit & 1 == 1;
    let (from, to) = (host(number >> 6), host(number >> 8));
    let wanted = TapPolicy {
        src_mac: is_set(0).then(|| mac(from)),
        dst_mac: (is_set(1) || is_set(5)).then(|| mac(to)),
        src_ip: is_set(2).then(|| IpPrefix::host(ipv4(from))),
        ip_proto: is_set(3).then_some(IpProto::TCP),
        tags: if is_set(4) { Tagging::Strip } else { Tagging::Keep },
        point: (is_set(1) && is_set(7) && !is_set(5)).then_some(Point::Egress),
        transport: if is_set(5) { Transport::Rewrite } else { Transport::default() },
        ..policy(name, &format!("{:#x}/2", host(number >> 10)))
    };
    if number >> 12 == 0 { of_links(name, &format!("{:#x}/2", host(number >> 10))) } else { wanted }
}

/// The quick proof agrees with the complete one.
fn compare(fabric: &mut Fabric, change: Change<'_>) {
    let control = &mut fabric.world.control;
    let (plan, verdict) = match (control.plan_change(change), control.judge(change)) {
        (Ok(plan), Ok(verdict)) => (plan, verdict),
        (plan, verdict) => return assert_eq!(plan.err(), verdict.err()),
    };
    let Some(proof) = &verdict.proof else {
        // A plan lists existing problems, and why frames cannot be traced, as problems.
        assert!(!plan.proof.is_proved, "{verdict:?}: {plan:?}");
        return;
    };
    assert_eq!(proof.is_proved, plan.proof.is_proved, "{change:?}: {verdict:?}: {plan:?}");
    assert_eq!(proof.checked > 0, plan.proof.checked > 0, "{verdict:?}: {plan:?}");
    assert!(proof.is_proved || is_any_wrong(control, &[change]), "{change:?}: {verdict:?}");
}

/// Whether there are policies for frames that are never copied.
fn is_any_wrong(control: &Control, changes: &[Change<'_>]) -> bool {
    let old = control.policies().into_iter().map(|report| report.policy);
    let new = changes.iter().filter_map(|change| match change {
        Change::Add(policy) | Change::Replace(policy) => Some((*policy).clone()),
        Change::Delete(_) => None,
    });
    old.chain(new).any(|policy| policy.eth_type.is_some())
}

/// The verdict on several changes agrees with their effect.
fn compare_together(fabric: &mut Fabric, changes: &[Change<'_>]) {
    let control = &mut fabric.world.control;
    let Some(verdicts) = judge_together(control, changes) else {
        return assert!(is_any_wrong(control, changes), "{changes:?}");
    };
    for (change, verdict) in changes.iter().zip(&verdicts) {
        assert_eq!(control.make(*change).err(), verdict.as_ref().err().cloned(), "{change:?}");
    }
    fabric.world.run();
    let (all, first) = (policy("all", "0x1/2"), fabric.world.control.policies().pop());
    let next = first.as_ref().map_or(Change::Add(&all), |first| Change::Delete(&first.policy.name));
    let verdict = fabric.world.control.judge(next).unwrap();
    let is_wrong = is_any_wrong(&fabric.world.control, changes);
    assert!(verdict.counterexample().is_none() || is_wrong, "{changes:?}: {verdict:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    /// For any topology, any policies, and confirmed or unconfirmed changes.
    #[test]
    fn a_quick_proof_finds_what_a_whole_one_does(
        switches in 1..5_u8,
        cables in vec((0..4_u8, 0..4_u8), 0..6),
        before in vec(any::<u16>(), 0..6),
        unconfirmed in vec(any::<u16>(), 0..3),
        wanted in vec(any::<u16>(), 1..4),
    ) {
        let cables = cables.into_iter().map(|(a, b)| (a % switches + 1, b % switches + 1));
        let cables: Vec<_> = cables.filter(|(a, b)| a != b).collect();
        let mut fabric = Fabric::new(switches, &cables);
        for host in 1..=switches {
            let frame = arp_request(host, 99, None);
            fabric.world.inject(host.into(), 1, &frame);
        }
        fabric.wait(100);
        let all = before.iter().map(|number| (number, true));
        let all = all.chain(unconfirmed.iter().map(|number| (number, false)));
        for (index, (number, is_confirmed)) in all.enumerate() {
            let policy = numbered(&format!("p{index}"), *number, switches);
            // Some are impossible, such as those with an unknown destination.
            let _ = fabric.world.control.add_policy(policy, WhenMissing::Refuse);
            if is_confirmed {
                fabric.world.run();
            }
        }
        let wanted: Vec<_> = wanted.into_iter().enumerate().map(|(index, number)| {
            let new = numbered(&format!("new{index}"), number, switches);
            (new, numbered("p0", number.rotate_left(5), switches))
        }).collect();
        let pairs = wanted.iter().map(|(new, other)| (Change::Add(new), Change::Replace(other)));
        for (add, replace) in pairs.clone() {
            compare(&mut fabric, add);
            compare(&mut fabric, replace);
        }
        compare(&mut fabric, Change::Delete("p0"));
        let mut all: Vec<_> = pairs.flat_map(|(add, replace)| [add, replace]).collect();
        all.extend([Change::Delete("p1"), Change::Delete("nobody")]);
        compare_together(&mut fabric, &all);
    }
}

/// The result of a proof is taken over, both with and without copies that other switches carry.
#[test]
fn switches_are_told_the_same_whether_a_change_was_looked_at_or_not() {
    let [mut looking, mut other] = [(); 2].map(|()| {
        let mut fabric = Fabric::ring(3);
        fabric.learn();
        fabric
    });
    for number in 0..9_u16 {
        let monitor = format!("{:#x}/2", number % 3 + 1);
        let new = TapPolicy {
            eth_type: Some("ipv4".parse().unwrap()),
            ip_proto: Some(IpProto::TCP),
            dst_port: Some((8000 + number).to_string().parse().unwrap()),
            ..policy(&format!("p{number}"), &monitor)
        };
        assert!(is_proved(&judge(&mut looking, Change::Add(&new))), "{number}");
        let told = [&mut looking, &mut other].map(|fabric| {
            fabric.world.control.add_policy(new.clone(), WhenMissing::Refuse).unwrap();
            fabric.world.run();
            let changes = |id| std::mem::take(&mut fabric.world.model(id).changes);
            [1, 2, 3].map(changes)
        });
        assert!(told[0].iter().all(|changes| !changes.is_empty()), "{number}");
        assert_eq!(told[0], told[1], "{number}");
    }
}
