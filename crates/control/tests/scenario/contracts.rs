//! Delivery contracts: sent to tapswitches, and to no other switches.

use crate::frames::tcp;
use crate::world::{World, policy};
use tapswitch_control::*;
use tapswitch_openflow::{Delivery, PortNo};

const LOSSLESS: Delivery = Delivery::Lossless { stall_ms: 20 };

fn with(name: &str, monitor: &str, delivery: Delivery) -> TapPolicy {
    TapPolicy { delivery, ..policy(name, monitor) }
}

/// Buckets of each group with a copy to port `monitor`.
fn copies_to(world: &mut World, monitor: u32) -> Vec<String> {
    let suffix = format!("output:{monitor}");
    let groups = world.switch().groups();
    let buckets = groups.iter().flat_map(|group| group.buckets.iter().skip(1));
    let mut texts: Vec<_> = buckets.map(ToString::to_string).collect();
    texts.retain(|text| text.ends_with(&suffix));
    texts.sort();
    texts.dedup();
    texts
}

#[test]
fn each_contract_is_in_the_buckets_of_its_copies() {
    let mut world = World::new(6);
    world.learn(2);
    world.tap(with("a", "3", Delivery::BestEffort));
    world.tap(with("b", "4", LOSSLESS));
    world.tap(with("c", "5", Delivery::SampleOnPressure));
    for (monitor, contract) in
        [(3, "best-effort"), (4, "lossless(20 ms)"), (5, "sample-on-pressure")]
    {
        let expected = [format!("actions=deliver:{contract},output:{monitor}")];
        assert_eq!(copies_to(&mut world, monitor), expected);
    }
    assert_eq!(world.control.policy("b").unwrap().policy.delivery, LOSSLESS);
    assert!(world.control.policies().iter().all(|report| report.notes.is_empty()));
}

#[test]
fn of_two_policies_with_one_monitor_the_stronger_contract_counts_while_it_is_there() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(with("weak", "3", Delivery::BestEffort));
    let before = world.switch().state();
    world.tap(with("strong", "3", LOSSLESS));
    assert_eq!(copies_to(&mut world, 3), ["actions=deliver:lossless(20 ms),output:3"]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3], "one copy");
    assert!(world.ledger("weak").adds_up && world.ledger("strong").adds_up);
    world.untap("strong");
    assert_eq!(world.switch().state(), before);
    world.tap(with("strong", "3", Delivery::SampleOnPressure));
    assert_eq!(copies_to(&mut world, 3), ["actions=deliver:sample-on-pressure,output:3"]);
}

#[test]
fn a_switch_that_comes_back_keeps_its_contracts() {
    let mut world = World::new(4);
    world.learn(2);
    let policies = [with("a", "3", LOSSLESS)];
    world.tap(policies[0].clone());
    world.take_changes();
    world.disconnect(1);
    world.connect(1);
    assert_eq!(world.take_changes(), []);
    world.restart_controller(&policies);
    assert_eq!(world.take_changes(), []);
    world.restart_controller(&[with("a", "3", Delivery::BestEffort)]);
    assert_eq!(copies_to(&mut world, 3), ["actions=deliver:best-effort,output:3"]);
}

/// A foreign model rejects contracts.
#[test]
fn others_are_sent_plain_openflow_and_the_report_says_so() {
    let mut world = World::foreign(4);
    world.learn(2);
    world.tap(with("a", "3", LOSSLESS));
    assert_eq!(copies_to(&mut world, 3), ["actions=output:3"]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3], "it works all the same");
    world.switch().tx_dropped = 7;
    let report = world.ledger("a");
    let [contract, ledger] = &report.notes[..] else { panic!("{report:?}") };
    assert!(contract.contains("switch 0x1 is not a tapswitch"), "{contract}");
    assert!(contract.contains("best-effort, not lossless:20"), "{contract}");
    assert!(ledger.contains("output to port 3"), "{ledger}");
    assert!(ledger.ends_with("that port dropped 7 frames in total, copies or not"), "{ledger}");
    assert!(report.adds_up && report.is_complete);
    world.tap(with("b", "4", Delivery::BestEffort));
    assert_eq!(world.ledger("b").notes.len(), 1, "best effort is what it gets");
}

#[test]
fn what_others_tell_of_copies_for_the_controller_is_said_without_its_number() {
    let mut world = World::foreign(4);
    world.learn(2);
    world.tap(policy("a", "controller"));
    let report = world.ledger("a");
    let plan = world.control.plan_policy(policy("b", "controller")).unwrap();
    let notes = [report.notes, plan.notes].concat().join(" ");
    assert!(!notes.contains(&PortNo::CONTROLLER.0.to_string()), "{notes}");
    assert!(notes.contains("were meant for the controller"), "{notes}");
}

#[test]
fn a_switch_that_is_exchanged_for_another_kind_gets_what_it_understands() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(with("a", "3", LOSSLESS));
    world.disconnect(1);
    world.switch().lose_tables();
    world.switch().is_foreign = true;
    world.connect(1);
    assert_eq!(copies_to(&mut world, 3), ["actions=output:3"]);
    assert_eq!(world.ledger("a").notes.len(), 2);
    world.disconnect(1);
    world.switch().is_foreign = false;
    world.connect(1);
    assert_eq!(copies_to(&mut world, 3), ["actions=deliver:lossless(20 ms),output:3"]);
    assert_eq!(world.ledger("a").notes, Vec::<String>::new());
}

#[test]
fn a_switch_of_ours_that_is_too_old_for_contracts_gets_none() {
    use tapswitch_openflow::{Body, ErrorKind, MultipartRequestBody};
    let mut world = World::new(4);
    world.disconnect(1);
    world.switch().refuse = Some(|body| {
        let is_ours = match body {
            Body::MultipartRequest(request) => {
                matches!(request.body, MultipartRequestBody::Experimenter(_))
            }
            body => matches!(body, Body::Experimenter(_)),
        };
        is_ours.then_some(ErrorKind::OFPBRC_BAD_EXPERIMENTER)
    });
    world.connect(1);
    world.learn(2);
    world.events.clear();
    world.tap(with("a", "3", LOSSLESS));
    assert_eq!(copies_to(&mut world, 3), ["actions=output:3"]);
    assert_eq!(world.ledger("a").notes.len(), 2);
}

/// We only look at them. The switch forgets that with the connection.
#[test]
fn a_tapswitch_need_not_send_whole_packets() {
    let mut world = World::new(3);
    assert!(world.switch().starts_suffice);
    world.disconnect(1);
    world.connect(1);
    assert!(world.switch().starts_suffice);
    assert!(!World::foreign(3).switch().starts_suffice);
}

fn part(name: &str, monitor: &str) -> TapPolicy {
    let sample = "1/4".parse().ok();
    TapPolicy { snaplen: Some(64), sample, ..policy(name, monitor) }
}

#[test]
fn parts_of_frames_are_in_the_buckets_of_their_copies() {
    let mut world = World::new(5);
    world.learn(2);
    world.tap(part("part", "3"));
    let expected = ["actions=deliver:best-effort,truncate:64,sample:1/4,output:3"];
    assert_eq!(copies_to(&mut world, 3), expected);
    assert!(world.control.policy("part").unwrap().notes.is_empty());
    let before = world.switch().state();
    world.tap(policy("all", "3"));
    assert_eq!(
        copies_to(&mut world, 3),
        ["actions=deliver:best-effort,output:3"],
        "who wants more"
    );
    world.untap("all");
    assert_eq!(world.switch().state(), before);
}

#[test]
fn what_is_sampled_out_is_in_the_ledger() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(TapPolicy { sample: "1/4".parse().ok(), ..policy("some", "3") });
    let sent: usize = (0..40).map(|_| world.send(1, &tcp(1, 2).bytes()).len()).sum();
    assert_eq!(sent, 40 + 10, "each to its destination, one of four to the monitor");
    let report = world.ledger("some");
    assert_eq!((report.matched.packets, report.adds_up), (40, true), "{report:?}");
    let copied = &report.copied[0];
    let dropped: u64 = copied.dropped.values().sum();
    assert_eq!((copied.delivered.packets, dropped), (10, 30), "{report:?}");
}

#[test]
fn on_other_switches_a_note_says_that_copies_are_whole() {
    let mut world = World::foreign(4);
    world.learn(2);
    world.tap(part("part", "3"));
    assert_eq!(copies_to(&mut world, 3), ["actions=output:3"]);
    let notes = world.control.policy("part").unwrap().notes;
    let expected = "switch 0x1 is not a tapswitch and copies every frame whole, without snaplen \
                    64, sample 1/4";
    assert!(notes.iter().any(|note| note == expected), "{notes:?}");
}
