//! Outcome of copies: every matched frame is accounted for, whatever happens.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_control::*;
use tapswitch_helpers::cases;
use tapswitch_openflow::Delivery;

use crate::fabric::Fabric;
use crate::frames::{BROADCAST, arp_request, tcp};
use crate::world::{World, policy};

/// A world with hosts 1 and 2, and a policy that copies to port 3.
fn tapped() -> World {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(policy("all", "3"));
    world
}

fn flow(world: &mut World, count: u64) {
    for _ in 0..count {
        world.send(1, &tcp(1, 2).bytes());
    }
}

/// Delivered, flooded, in flight, and dropped by reason.
fn outcome(report: &PolicyReport) -> (u64, u64, u64, BTreeMap<String, u64>) {
    let [to] = &report.copied[..] else { panic!("{report:?}") };
    (to.delivered.packets, to.flooded, to.in_flight, to.dropped.clone())
}

fn dropped<const N: usize>(drops: [(&str, u64); N]) -> BTreeMap<String, u64> {
    drops.map(|(reason, count)| (reason.to_owned(), count)).into()
}

#[test]
fn copies_are_delivered_wait_or_are_dropped_for_a_reason() {
    let mut world = tapped();
    flow(&mut world, 5);
    world.switch().full = Some(3);
    flow(&mut world, 2);
    world.switch().full = None;
    world.switch().let_copies_wait(true);
    flow(&mut world, 4);
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (5, 0, 4, dropped([("egress_full", 2)])));
    assert_eq!((report.matched.packets, report.adds_up), (11, true));
    world.switch().let_copies_wait(false);
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (9, 0, 0, dropped([("egress_full", 2)])));
    assert!(report.adds_up && report.is_complete);
}

#[test]
fn what_is_flooded_reaches_the_monitor_with_everybody_else() {
    let mut world = tapped();
    flow(&mut world, 3);
    world.send(1, &tcp(1, 9).bytes());
    world.send(3, &tcp(3, 2).bytes());
    let report = world.ledger("all");
    // Frames sent by the monitor do not return to it.
    assert_eq!(outcome(&report), (3, 1, 0, dropped([("input_port", 1)])));
    assert_eq!((report.matched.packets, report.adds_up), (5, true));
}

#[test]
fn a_policy_is_not_gone_before_its_last_copies_are_out() {
    let mut world = tapped();
    world.switch().let_copies_wait(true);
    flow(&mut world, 4);
    world.control.delete_policy("all").unwrap();
    world.run();
    world.pass(50);
    assert_eq!(world.events, [], "copies wait");
    world.switch().let_copies_wait(false);
    world.pass(50);
    let Some(Event::PolicyDeleted(report)) = world.events.pop() else { panic!() };
    assert_eq!(outcome(&report), (4, 0, 0, dropped([])));
    assert!(report.adds_up && report.is_complete);
    assert_eq!(world.switch().groups().len(), 0);
}

#[test]
fn copies_that_wait_for_ever_are_not_waited_for() {
    let mut world = tapped();
    world.switch().let_copies_wait(true);
    flow(&mut world, 4);
    let report = delete_and_wait(&mut world, "all");
    assert_eq!(outcome(&report), (0, 0, 0, dropped([("outcome_unknown", 4)])));
    assert!(report.adds_up && !report.is_complete);
    assert_eq!(world.switch().groups().len(), 0);
}

/// Deletes a policy, waits for longer than its copies are waited for, and returns its last report.
fn delete_and_wait(world: &mut World, name: &str) -> PolicyReport {
    world.control.delete_policy(name).unwrap();
    world.run();
    (0..50).for_each(|_| world.pass(50));
    let Some(Event::PolicyDeleted(report)) = world.events.pop() else { panic!() };
    *report
}

/// As for a file on a full disk: the link of the monitor's port is down, and copies wait there.
fn fill_disk(world: &mut World) {
    world.switch().let_copies_wait(true);
    flow(world, 4);
    world.switch().set_link(3, false);
    world.run();
    (0..200).for_each(|_| world.pass(50));
}

/// There is room: the copies leave, and then the link comes up.
fn empty_disk(world: &mut World) {
    world.switch().let_copies_wait(false);
    world.switch().set_link(3, true);
    world.run();
    (0..100).for_each(|_| world.pass(50));
}

#[test]
fn what_waits_behind_a_link_that_is_down_is_followed_to_its_end() {
    let mut world = tapped();
    let groups = world.switch().groups().len();
    fill_disk(&mut world);
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (0, 0, 4, dropped([])));
    assert!(report.adds_up && report.is_complete, "{report:?}");
    empty_disk(&mut world);
    flow(&mut world, 2);
    let report = world.ledger("all");
    assert_eq!((report.matched.packets, outcome(&report)), (6, (6, 0, 0, dropped([]))));
    assert!(report.adds_up && report.is_complete, "{report:?}");
    assert_eq!(world.switch().groups().len(), groups, "the former ones are gone");
}

#[test]
fn a_deleted_policy_does_not_wait_for_a_disk() {
    let mut world = tapped();
    fill_disk(&mut world);
    let report = delete_and_wait(&mut world, "all");
    assert_eq!(outcome(&report), (0, 0, 0, dropped([("outcome_unknown", 4)])));
    assert!(report.adds_up && !report.is_complete);
    assert_eq!(world.switch().groups().len(), 0);
}

/// Both count the same copies, and one of them goes while these wait.
#[test]
fn a_policy_that_stays_waits_for_what_a_deleted_one_gives_up() {
    let mut world = tapped();
    world.tap(TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("web", "3") });
    fill_disk(&mut world);
    let report = delete_and_wait(&mut world, "web");
    assert_eq!(outcome(&report), (0, 0, 0, dropped([("outcome_unknown", 4)])));
    assert_eq!(outcome(&world.ledger("all")), (0, 0, 4, dropped([])));
    empty_disk(&mut world);
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (4, 0, 0, dropped([])));
    assert!(report.adds_up && report.is_complete, "{report:?}");
}

/// A controller that comes meanwhile counts none of it, and leaves no group behind.
#[test]
fn what_waits_for_a_disk_outlives_a_connection() {
    let mut world = tapped();
    fill_disk(&mut world);
    world.disconnect(1);
    world.pass(5000);
    world.connect(1);
    (0..100).for_each(|_| world.pass(50));
    assert_eq!(outcome(&world.ledger("all")), (0, 0, 4, dropped([])));
    empty_disk(&mut world);
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (4, 0, 0, dropped([])));
    assert!(report.adds_up && report.is_complete, "{report:?}");
    fill_disk(&mut world);
    world.disconnect(1);
    (0..300).for_each(|_| world.pass(50));
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (4, 0, 0, dropped([("outcome_unknown", 4)])));
    assert!(report.adds_up && !report.is_complete, "it may have ended: {report:?}");
    world.connect(1);
    world.restart_controller(&[policy("all", "3")]);
    (0..100).for_each(|_| world.pass(50));
    assert_eq!(world.switch().groups().len(), 0, "nobody counts by them");
}

#[test]
fn a_switch_that_is_lost_leaves_an_account_of_what_it_told() {
    let mut world = tapped();
    flow(&mut world, 3);
    world.switch().let_copies_wait(true);
    flow(&mut world, 2);
    world.ledger("all");
    world.disconnect(1);
    world.switch().lose_tables();
    world.switch().let_copies_wait(false);
    world.connect(1);
    flow(&mut world, 1);
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (4, 0, 0, dropped([("outcome_unknown", 2)])));
    assert!(report.adds_up && !report.is_complete);
}

#[test]
fn a_new_controller_does_not_count_what_waited_before_it_came() {
    let mut world = tapped();
    world.switch().let_copies_wait(true);
    flow(&mut world, 3);
    world.restart_controller(&[policy("all", "3")]);
    flow(&mut world, 2);
    assert_eq!(outcome(&world.ledger("all")), (0, 0, 2, dropped([])));
    world.switch().let_copies_wait(false);
    let report = world.ledger("all");
    assert_eq!(outcome(&report), (2, 0, 0, dropped([])));
    assert!(report.adds_up && report.is_complete);
}

#[test]
fn a_new_controller_says_when_it_does_not_know_where_counters_began() {
    let policies = [policy("all", "3")];
    let mut world = tapped();
    world
        .restart_controller_under(&policies, &mut |model| _ = model.receive(1, &tcp(1, 2).bytes()));
    let report = world.ledger("all");
    assert!(report.adds_up && !report.is_complete, "{report:?}");
    flow(&mut world, 3);
    let report = world.ledger("all");
    assert!(report.adds_up && !report.is_complete, "{report:?}");
    assert_eq!(report.matched.packets, report.copied[0].counts.packets, "{report:?}");
    world.restart_controller_under(&policies, &mut |_| {});
    flow(&mut world, 3);
    let report = world.ledger("all");
    assert!(report.is_complete && report.adds_up, "{report:?}");
    assert_eq!(report.matched.packets, 3);
}

/// The same for frames after any message, also if copies go to another port from then on.
#[test]
fn what_passes_while_a_controller_takes_over_adds_up() {
    let kinds = [(true, "3"), (false, "3"), (true, "4"), (false, "4")];
    for (behind, (is_foreign, monitor)) in (0..20).flat_map(|at| kinds.map(|kind| (at, kind))) {
        let mut world = if is_foreign { World::foreign(4) } else { World::new(4) };
        world.learn(2);
        world.tap(policy("all", "3"));
        flow(&mut world, 2);
        let mut messages = 0;
        world.restart_controller_under(&[policy("all", monitor)], &mut |model| {
            if messages == behind {
                (0..2).for_each(|_| _ = model.receive(1, &tcp(1, 2).bytes()));
            }
            messages += 1;
        });
        flow(&mut world, 3);
        let report = world.ledger("all");
        assert!(report.adds_up, "behind {behind}: {report:?}");
        assert!((3..=5).contains(&report.matched.packets), "behind {behind}: {report:?}");
        world.events.clear();
        world.control.delete_policy("all").unwrap();
        world.run();
        (0..50).for_each(|_| world.pass(50));
        let gone = world.events.iter().find_map(|event| match event {
            Event::PolicyDeleted(report) => Some(report),
            _ => None,
        });
        assert!(gone.is_some_and(|report| report.adds_up), "behind {behind}: {gone:?}");
    }
}

/// The same if the controller keeps running and monitors change while the switch is away: until it
/// is updated, its counters belong to the former monitors.
#[test]
fn what_passes_while_a_switch_comes_back_to_other_monitors_adds_up() {
    for (behind, is_foreign) in (0..20).flat_map(|at| [(at, false), (at, true)]) {
        let mut world = if is_foreign { World::foreign(4) } else { World::new(4) };
        world.learn(2);
        world.tap(policy("old", "3"));
        flow(&mut world, 2);
        world.disconnect(1);
        world.control.delete_policy("old").unwrap();
        world.control.add_policy(policy("new", "4"), WhenMissing::Wait).unwrap();
        let _ = world.switch().receive(1, &tcp(1, 2).bytes());
        let mut messages = 0;
        world.connect_under(1, &mut |model| {
            if messages == behind {
                (0..2).for_each(|_| _ = model.receive(1, &tcp(1, 2).bytes()));
                _ = model.receive(1, &tcp(1, BROADCAST).bytes());
            }
            messages += 1;
        });
        flow(&mut world, 3);
        let report = world.ledger("new");
        assert!(report.adds_up, "behind {behind}, {is_foreign}: {report:?}");
        assert!((3..=6).contains(&report.matched.packets), "behind {behind}: {report:?}");
    }
}

/// The same if the policy stays and its monitor moves: the controller learns that from a frame of
/// the monitor while it reads the switch.
#[test]
fn what_passes_while_a_switch_comes_back_and_the_monitor_moves_adds_up() {
    for (behind, is_foreign) in (0..20).flat_map(|at| [(at, false), (at, true)]) {
        let mut world = if is_foreign { World::foreign(5) } else { World::new(5) };
        world.learn(3);
        world.tap(policy("all", "02:00:00:00:00:03"));
        flow(&mut world, 2);
        world.disconnect(1);
        let _ = world.switch().receive(1, &tcp(1, 2).bytes());
        let mut messages = 0;
        world.connect_under(1, &mut |model| {
            if messages == behind {
                _ = model.receive(5, &arp_request(3, 99, None));
                (0..2).for_each(|_| _ = model.receive(1, &tcp(1, 2).bytes()));
            }
            messages += 1;
        });
        flow(&mut world, 3);
        let report = world.ledger("all");
        assert!(report.adds_up, "behind {behind}, {is_foreign}: {report:?}");
        assert!(report.matched.packets >= 6, "behind {behind}, {is_foreign}: {report:?}");
    }
}

/// Frames pass while switches connect one by one to a new controller: copies that a switch sent
/// before the counters at their destination were first read are not reported as lost.
#[test]
fn a_new_controller_takes_nothing_for_lost_that_arrived_before_it_looked() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let all = policy("all", "0x3/2");
    fabric.world.tap(all.clone());
    let send = |world: &mut World| {
        world.is_stopped = true;
        (0..5).for_each(|_| _ = world.inject(1, 1, &tcp(1, 2).bytes()));
        world.is_stopped = false;
    };
    send(&mut fabric.world);
    fabric.world.restart_controller_slowly(&[all], &mut |world| send(world));
    fabric.wait(500);
    send(&mut fabric.world);
    let report = fabric.world.ledger("all");
    let (delivered, .., drops) = outcome(&report);
    let missing = report.matched.packets - delivered;
    assert!(missing > 0 && report.adds_up && !report.is_complete, "{report:?}");
    assert_eq!(drops, dropped([("outcome_unknown", missing)]));
    // From here on losses are reported.
    let ends = [((2, 11), (3, 10)), ((3, 10), (2, 11))];
    ends.iter().for_each(|(from, _)| _ = fabric.world.cables.remove(from));
    (0..10).for_each(|_| send(&mut fabric.world));
    fabric.world.cables.extend(ends);
    let (.., drops) = outcome(&fabric.world.ledger("all"));
    assert_eq!(drops["outcome_unknown"] + drops["lost_between_switches"], missing + 50);
    assert!(drops["lost_between_switches"] >= 30, "{drops:?}");
}

/// Copies of a TCP stream in transit from switch 1 to the monitor at switch 2.
struct Crossing {
    fabric: Fabric,
    /// Copies on the link.
    copies: Vec<Vec<u8>>,
}

impl Crossing {
    /// `foreign` lists the switches that are not tapswitches.
    fn new(foreign: &[u64]) -> Self {
        let mut fabric = Fabric::line(2);
        for id in foreign {
            fabric.world.disconnect(*id);
            fabric.world.model(*id).is_foreign = true;
            fabric.world.connect(*id);
        }
        fabric.wait(4000);
        fabric.learn();
        fabric.world.tap(policy("all", "0x2/2"));
        Self { fabric, copies: Vec::new() }
    }

    /// The host sends `count` frames: trains of four packets, or packets.
    fn send(&mut self, count: usize, are_trains: bool) {
        let (model, frame) = (self.fabric.world.model(1), tcp(1, 2).bytes());
        for _ in 0..count {
            let sent = match are_trains {
                true => model.receive_train(GSO_SIZE, 1, &frame),
                false => model.receive(1, &frame),
            };
            let is_copy = |frame: &Vec<u8>| frame[12..14] == [0x88, 0xa8];
            self.copies.extend(sent.into_iter().map(|(_, frame)| frame).filter(is_copy));
        }
    }

    /// `count` of them arrive, each as `each` packets or trains.
    fn arrive(&mut self, count: usize, each: usize, are_trains: bool) {
        let model = self.fabric.world.model(2);
        for copy in self.copies.drain(..count) {
            for _ in 0..each {
                let sent = match are_trains {
                    true => model.receive_train(GSO_SIZE, 10, &copy),
                    false => model.receive(10, &copy),
                };
                assert_eq!(sent.len(), 1, "to the monitor");
            }
        }
    }

    fn ledger(&mut self) -> PolicyReport {
        self.fabric.world.ledger("all")
    }
}

/// Four packets carry the seven bytes of a frame.
const GSO_SIZE: u16 = 2;

#[test]
fn trains_that_a_link_cuts_are_as_many_packets_on_both_sides() {
    let mut crossing = Crossing::new(&[]);
    crossing.send(5, true);
    crossing.arrive(3, 4, false);
    crossing.arrive(1, 1, false);
    let report = crossing.ledger();
    assert_eq!(report.matched.packets, 20);
    assert_eq!(outcome(&report), (13, 0, 0, dropped([("lost_between_switches", 7)])));
    assert!(report.adds_up && report.is_complete, "{report:?}");
    // The switch after the link drops as many as it would have sent.
    crossing.fabric.world.model(2).full = Some(2);
    crossing.send(1, true);
    let copy = crossing.copies.pop().unwrap();
    assert_eq!(crossing.fabric.world.model(2).receive_train(GSO_SIZE, 10, &copy), []);
    let report = crossing.ledger();
    let drops = [("0x2:egress_full", 4), ("lost_between_switches", 7)];
    assert_eq!((report.matched.packets, outcome(&report)), (24, (13, 0, 0, dropped(drops))));
    assert!(report.adds_up && report.is_complete, "{report:?}");
}

/// The copies have crossed the link, and wait for a disk behind it.
#[test]
fn what_waits_for_a_disk_at_another_switch_is_followed_to_its_end() {
    for is_deleted in [false, true] {
        let mut crossing = Crossing::new(&[]);
        crossing.fabric.world.model(2).let_copies_wait(true);
        crossing.send(3, false);
        crossing.arrive(3, 1, false);
        crossing.fabric.world.model(2).set_link(2, false);
        crossing.fabric.wait(10_000);
        assert_eq!(outcome(&crossing.ledger()), (0, 0, 3, dropped([])));
        let world = &mut crossing.fabric.world;
        world.events.clear();
        if is_deleted {
            world.control.delete_policy("all").unwrap();
            crossing.fabric.wait(5000);
            let events = &crossing.fabric.world.events;
            let gone = events.iter().find_map(|event| match event {
                Event::PolicyDeleted(report) => Some(report),
                _ => None,
            });
            let (.., drops) = outcome(gone.expect("it does not wait"));
            assert_eq!(drops, dropped([("0x2:outcome_unknown", 3)]));
            continue;
        }
        world.model(2).let_copies_wait(false);
        world.model(2).set_link(2, true);
        crossing.fabric.wait(5000);
        let report = crossing.ledger();
        assert_eq!(outcome(&report), (3, 0, 0, dropped([])));
        assert!(report.adds_up && report.is_complete, "{report:?}");
    }
}

#[test]
fn packets_that_the_next_switch_joins_are_not_lost() {
    let mut crossing = Crossing::new(&[]);
    crossing.send(4, false);
    crossing.copies.truncate(1);
    crossing.arrive(1, 1, true);
    let report = crossing.ledger();
    assert_eq!((report.matched.packets, outcome(&report)), (4, (4, 0, 0, dropped([]))));
    assert!(report.adds_up && report.is_complete && report.notes.is_empty(), "{report:?}");
}

#[test]
fn what_a_switch_that_counts_trains_sent_does_not_add_up_with_their_packets() {
    let mut crossing = Crossing::new(&[1]);
    crossing.send(2, true);
    crossing.arrive(2, 1, true);
    // What it counts may be older than what has arrived.
    let report = crossing.ledger();
    assert_eq!((report.matched.packets, outcome(&report).0), (2, 2));
    assert!(report.adds_up && report.is_complete && report.notes.is_empty(), "{report:?}");
    crossing.fabric.wait(4000);
    let report = crossing.ledger();
    assert_eq!((report.matched.packets, outcome(&report).0), (2, 8));
    assert!(!report.adds_up && !report.is_complete, "{report:?}");
    let is_said = |report: &PolicyReport| {
        report.notes.iter().any(|note| note.contains("counts a train of packets as one"))
    };
    assert!(is_said(&report), "{report:?}");
    // Without trains nothing is uncertain.
    let mut crossing = Crossing::new(&[1]);
    crossing.send(3, false);
    crossing.arrive(3, 1, false);
    let report = crossing.ledger();
    assert_eq!(outcome(&report), (3, 0, 0, dropped([])));
    assert!(report.adds_up && report.is_complete && !is_said(&report), "{report:?}");
}

#[test]
fn what_a_switch_that_counts_trains_got_fewer_of_has_an_unknown_outcome() {
    let mut crossing = Crossing::new(&[2]);
    crossing.send(2, true);
    crossing.arrive(2, 1, true);
    let report = crossing.ledger();
    assert_eq!(report.matched.packets, 8);
    assert_eq!(outcome(&report), (2, 0, 0, dropped([("outcome_unknown", 6)])));
    assert!(report.adds_up && report.is_complete, "no counter is missing: {report:?}");
    assert!(report.notes.iter().any(|note| note.contains("counts a train of packets as one")));
}

/// A step of the test.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u32, Delivery),
    Delete(usize),
    Send(u8, u8, u64),
    /// Copies are held in queues, or no longer.
    Wait(bool),
    /// This port takes nothing, or all ports take everything.
    Full(Option<u32>),
    Ask,
    Pass(u64),
    Reconnect,
    RestartController,
    /// The switch restarts without rules.
    RestartSwitch,
}

fn step() -> impl Strategy<Value = Step> {
    let delivery = prop_oneof![
        Just(Delivery::BestEffort),
        (0..3u16).prop_map(|stall_ms| Delivery::Lossless { stall_ms }),
        Just(Delivery::SampleOnPressure),
    ];
    let full = prop::option::of(1..6u32);
    prop_oneof![
        3 => (3..6u32, delivery).prop_map(|(monitor, delivery)| Step::Add(monitor, delivery)),
        2 => (0..3usize).prop_map(Step::Delete),
        10 => (1..4u8, 1..6u8, 1..5u64).prop_map(|(src, dst, count)| Step::Send(src, dst, count)),
        3 => any::<bool>().prop_map(Step::Wait),
        2 => full.prop_map(Step::Full),
        2 => Just(Step::Ask),
        1 => (1..3000u64).prop_map(Step::Pass),
        1 => Just(Step::Reconnect),
        1 => Just(Step::RestartController),
        1 => Just(Step::RestartSwitch),
    ]
}

struct Trial {
    world: World,
    policies: Vec<TapPolicy>,
    added: usize,
}

impl Trial {
    fn take(&mut self, step: Step) {
        let world = &mut self.world;
        match step {
            Step::Add(monitor, delivery) if self.policies.len() < 3 => {
                self.added += 1;
                let name = format!("p{}", self.added);
                let policy = TapPolicy { delivery, ..policy(&name, &monitor.to_string()) };
                world.tap(policy.clone());
                self.policies.push(policy);
            }
            Step::Delete(index) if index < self.policies.len() => {
                let policy = self.policies.remove(index);
                self.delete(&policy.name);
            }
            Step::Send(src, dst, count) => {
                (0..count).for_each(|_| _ = world.send(src.into(), &tcp(src, dst).bytes()));
            }
            Step::Wait(wait) => world.switch().let_copies_wait(wait),
            Step::Full(port) => world.switch().full = port,
            Step::Ask => self.check(),
            Step::Pass(ms) => world.pass(ms),
            Step::Reconnect => {
                world.disconnect(1);
                world.connect(1);
            }
            Step::RestartController => world.restart_controller(&self.policies),
            Step::RestartSwitch => {
                world.disconnect(1);
                world.switch().lose_tables();
                world.connect(1);
            }
            Step::Add(..) | Step::Delete(_) => {}
        }
    }

    /// Deletes a policy, however long its queued copies delay that.
    fn delete(&mut self, name: &str) {
        self.world.events.clear();
        self.world.control.delete_policy(name).unwrap();
        self.world.run();
        let is_gone = |event: &Event| matches!(event, Event::PolicyDeleted(_));
        while !self.world.events.iter().any(is_gone) {
            self.world.pass(50);
        }
        let gone = self.world.events.drain(..).find_map(|event| match event {
            Event::PolicyDeleted(report) => Some(*report),
            _ => None,
        });
        check(&gone.unwrap());
    }

    fn check(&mut self) {
        for policy in &self.policies {
            check(&self.world.ledger(&policy.name));
        }
    }
}

/// A complete ledger adds up exactly.
fn check(report: &PolicyReport) {
    assert!(report.adds_up || !report.is_complete, "{report:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn the_ledger_adds_up_whatever_happens(steps in vec(step(), 1..60), is_foreign: bool) {
        let world = if is_foreign { World::foreign(5) } else { World::new(5) };
        let mut trial = Trial { world, policies: Vec::new(), added: 0 };
        steps.into_iter().for_each(|step| trial.take(step));
        trial.world.switch().let_copies_wait(false);
        trial.check();
        for policy in std::mem::take(&mut trial.policies) {
            trial.delete(&policy.name);
        }
    }
}

/// One frame after each message, from a host at switch 1 to one at switch 3 or to its neighbour.
/// The monitor takes the copies, or they are queued.
#[test]
fn the_ledger_adds_up_while_frames_pass() {
    let cases = [
        (false, "0x1/2", false),
        (false, "0x3/2", false),
        (true, "0x3/2", false),
        (false, "0x3/2", true),
    ];
    for (is_foreign, monitor, waits) in cases {
        let mut fabric = Fabric::line(3);
        fabric.world.switches.values_mut().for_each(|model| model.is_foreign = is_foreign);
        for id in 1..=3 {
            fabric.world.disconnect(id);
            fabric.world.connect(id);
        }
        fabric.wait(4000);
        fabric.learn();
        fabric.world.tap(policy("all", monitor));
        fabric.world.model(3).let_copies_wait(waits);
        let mut matched = 0;
        for _ in 0..3 {
            let report = fabric.world.ledger_under(
                "all",
                &mut |world| {
                    world.is_stopped = true;
                    world.inject(1, 1, &tcp(1, 3).bytes());
                    world.is_stopped = false;
                },
                &mut |report| {
                    let (.., lost) = outcome(report);
                    assert!(report.adds_up && lost.is_empty(), "{report:?}");
                },
            );
            assert!(report.matched.packets > matched, "{report:?}");
            let (delivered, _, in_flight, _) = outcome(&report);
            let found = if waits { in_flight } else { delivered };
            assert_eq!(found, report.matched.packets);
            matched = report.matched.packets;
        }
    }
}
