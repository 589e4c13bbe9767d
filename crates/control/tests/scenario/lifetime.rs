//! Expiry, schedules and exceptions of policies.

use tapswitch_control::*;

use crate::frames::{tcp, udp};
use crate::world::{World, policy};

/// Monday, 2026-11-23, 07:59:00 UTC.
const MONDAY: &str = "2026-11-23T07:59:00Z";

fn tell(world: &mut World, time: &str) {
    world.control.handle_clock(time.parse().unwrap(), world.now);
    world.run();
}

fn expiring(text: &str) -> TapPolicy {
    TapPolicy { expires: Some(text.parse().unwrap()), ..policy("short", "3") }
}

/// Advances time, and checks that nothing happens early.
fn pass(world: &mut World, ms: u64) -> Vec<String> {
    let due = world.now.plus(Millis(ms));
    world.pass(ms - 1);
    assert!(world.events.is_empty(), "{:?}", world.events);
    assert_eq!(world.control.poll_timeout(), Some(due));
    world.pass(1);
    names(world)
}

fn names(world: &mut World) -> Vec<String> {
    std::mem::take(&mut world.events)
        .into_iter()
        .map(|event| match event {
            Event::PolicyActive { name } => format!("{name} active"),
            Event::PolicyResting { name, reason } => format!("{name} rests: {reason}"),
            Event::PolicyExpired { name, .. } => format!("{name} expired"),
            Event::PolicyDeleted(report) => {
                format!("{} deleted after {}", report.policy.name, report.matched.packets)
            }
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_policy_ends_after_its_span_whatever_the_clock_does() {
    let mut world = World::with_limits(4, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    tell(&mut world, MONDAY);
    world.tap(expiring("30s"));
    let report = world.control.policy("short").unwrap();
    let end: Expiry = "2026-11-23T07:59:30Z".parse().unwrap();
    assert_eq!(report.policy.expires, Some(end), "the report says when");
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    tell(&mut world, "2030-01-01T00:00:00Z");
    assert_eq!(world.state("short"), PolicyState::Active);
    assert_eq!(pass(&mut world, 30_000), ["short expired", "short deleted after 1"]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2]);
    assert!(world.control.policies().is_empty());
}

#[test]
fn a_clock_that_is_set_back_does_not_stretch_a_span() {
    let mut world = World::with_limits(4, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    tell(&mut world, MONDAY);
    world.tap(expiring("30s"));
    tell(&mut world, "2026-11-23T06:59:00Z");
    assert_eq!(world.state("short"), PolicyState::Active);
    assert_eq!(pass(&mut world, 30_000), ["short expired", "short deleted after 0"]);
}

#[test]
fn a_policy_ends_at_its_time_wherever_the_clock_jumps() {
    let mut world = World::new(4);
    world.learn(2);
    tell(&mut world, MONDAY);
    let past = expiring("2026-11-23T07:59:00Z");
    let refused = world.control.add_policy(past, WhenMissing::Wait).unwrap_err();
    assert_eq!(refused.field(), Some("expires"));
    assert!(refused.to_string().contains("2026-11-23T07:59:00Z: in the past"), "{refused}");
    world.tap(expiring("2026-11-23T09:00:00Z"));
    tell(&mut world, "2026-11-23T08:59:59Z");
    assert_eq!(world.state("short"), PolicyState::Active);
    tell(&mut world, "2026-11-23T07:00:00Z");
    assert_eq!(world.state("short"), PolicyState::Active);
    tell(&mut world, "2026-11-23T09:00:00Z");
    assert_eq!(names(&mut world), ["short expired", "short deleted after 0"]);
}

/// A replacement of the policy is being sent when the first of the two expires.
fn pass_while_replaced(world: &mut World, (old, new): (&str, &str), ms: u64) -> Vec<String> {
    world.tap(expiring(old));
    world.events.clear();
    let heir = TapPolicy { ip_proto: Some(IpProto::TCP), ..expiring(new) };
    let heir = TapPolicy { monitor: policy("short", "0x1/4").monitor, ..heir };
    world.control.replace_policy(heir, WhenMissing::Refuse).unwrap();
    world.now = world.now.plus(Millis(ms));
    world.control.handle_timeout(world.now);
    world.run();
    names(world)
}

#[test]
fn a_policy_that_ends_leaves_its_place_to_the_next_one() {
    let mut world = World::with_limits(5, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    tell(&mut world, MONDAY);
    let events = pass_while_replaced(&mut world, ("30s", "60s"), 30_000);
    let told = |text: &str| events.iter().any(|event| event.contains(text));
    assert!(told("short expired") && told("short deleted after 0"), "{events:?}");
    assert!(told("PolicyReplaced"), "{events:?}");
    assert_eq!(world.state("short"), PolicyState::Active);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 4]);
    assert_eq!(world.control.policies().len(), 1);
    assert_eq!(pass(&mut world, 30_000), ["short expired", "short deleted after 1"]);
    assert!(world.control.policies().is_empty());
}

#[test]
fn a_policy_that_ends_before_it_is_in_force_leaves_the_old_one() {
    let mut world = World::with_limits(5, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    tell(&mut world, MONDAY);
    let events = pass_while_replaced(&mut world, ("60s", "30s"), 30_000);
    assert!(matches!(&events[..], [one] if one.contains("PolicyNotReplaced")), "{events:?}");
    assert_eq!(world.state("short"), PolicyState::Active);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(pass(&mut world, 30_000), ["short expired", "short deleted after 1"]);
}

#[test]
fn both_of_a_name_end_at_once() {
    let mut world = World::with_limits(5, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    tell(&mut world, MONDAY);
    let before = world.switch().state();
    let events = pass_while_replaced(&mut world, ("30s", "30s"), 30_000);
    let count = |text: &str| events.iter().filter(|event| event.contains(text)).count();
    assert_eq!((count("expired"), count("deleted")), (2, 2), "{events:?}");
    assert!(world.control.policies().is_empty() && !world.control.has_policy("short"));
    assert_eq!(world.switch().state(), before);
}

#[test]
fn a_policy_takes_the_place_of_one_that_took_that_of_one_that_ended() {
    let mut world = World::with_limits(5, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    tell(&mut world, MONDAY);
    let before = world.switch().state();
    world.tap(expiring("30s"));
    let next = |to: &str| TapPolicy { monitor: policy("short", to).monitor, ..expiring("1h") };
    world.control.replace_policy(next("0x1/4"), WhenMissing::Refuse).unwrap();
    world.now = world.now.plus(Millis(30_000));
    world.control.handle_timeout(world.now);
    world.control.replace_policy(next("0x1/5"), WhenMissing::Refuse).unwrap();
    world.run();
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 5]);
    assert_eq!(world.control.policies().len(), 1);
    world.untap("short");
    assert_eq!(world.switch().state(), before);
}

#[test]
fn a_schedule_follows_the_clock_wherever_it_jumps() {
    let mut world = World::with_limits(4, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    tell(&mut world, MONDAY);
    let schedule = Some("Mon-Fri 08:00-08:02".parse().unwrap());
    let hours = TapPolicy { schedule, ..policy("hours", "3") };
    world.control.add_policy(hours, WhenMissing::Refuse).unwrap();
    world.run();
    let rests = |world: &World| matches!(world.state("hours"), PolicyState::Resting { .. });
    for (time, is_resting) in [
        ("2026-11-23T08:01:00Z", false),
        ("2026-11-23T07:00:00Z", true),
        ("2026-11-23T08:00:00Z", false),
        ("2026-11-23T12:00:00Z", true),
        ("2026-11-24T08:01:59Z", false),
    ] {
        tell(&mut world, time);
        assert_eq!(rests(&world), is_resting, "{time}");
    }
    world.events.clear();
    assert_eq!(
        pass(&mut world, 1000),
        ["hours rests: its schedule resumes at 2026-11-25T08:00:00Z"]
    );
}

#[test]
fn a_policy_from_a_file_learns_the_time_later() {
    let mut world = World::new(4);
    world.control.add_policy(expiring("1h"), WhenMissing::Wait).unwrap();
    let old = TapPolicy { name: "old".into(), ..expiring("2026-11-22T00:00:00Z") };
    world.control.add_policy(old, WhenMissing::Wait).unwrap();
    world.run();
    assert_eq!(names(&mut world).len(), 3, "up, and both active: nobody knows what time it is");
    tell(&mut world, MONDAY);
    assert_eq!(names(&mut world), ["old expired", "old deleted after 0"]);
    let end: Expiry = "2026-11-23T08:59:00Z".parse().unwrap();
    assert_eq!(world.control.policy("short").unwrap().policy.expires, Some(end));
}

#[test]
fn a_policy_rests_outside_its_hours() {
    let mut world = World::with_limits(4, Limits { stats_interval: None, ..Limits::default() });
    world.learn(2);
    world.events.clear();
    let hours = TapPolicy {
        schedule: Some("Mon-Fri 08:00-08:02".parse().unwrap()),
        ..policy("hours", "3")
    };
    world.control.add_policy(hours, WhenMissing::Refuse).unwrap();
    world.run();
    let unknown = "hours rests: its schedule cannot start until the time of day is known";
    assert_eq!(names(&mut world), [unknown]);
    tell(&mut world, MONDAY);
    assert!(matches!(world.state("hours"), PolicyState::Resting { .. }));
    assert_eq!(names(&mut world), ["hours rests: its schedule resumes at 2026-11-23T08:00:00Z"]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2]);
    assert_eq!(pass(&mut world, 60_000), ["hours active"]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(
        pass(&mut world, 120_000),
        ["hours rests: its schedule resumes at 2026-11-24T08:00:00Z"]
    );
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2]);
    let report = world.untap("hours");
    assert_eq!((report.matched.packets, report.adds_up, report.is_complete), (1, true, true));
}

#[test]
fn what_a_filter_excepts_goes_its_way_uncopied() {
    let mut world = World::new(5);
    world.learn(2);
    let filter = Some("ip and not (udp or host 10.0.0.9)".to_owned());
    world.plan_and_tap(TapPolicy { filter, ..policy("most", "3") });
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.send(1, &udp(1, 2).bytes()), [2]);
    assert_eq!(world.send(1, &tcp(1, 9).bytes()), [2, 3, 4, 5], "flooded as ever");
    let report = world.ledger("most");
    assert_eq!((report.matched.packets, report.adds_up), (1, true));
    // Frames of another policy are copied to that one's monitor only.
    world.plan_and_tap(TapPolicy { filter: Some("udp".into()), ..policy("udp", "4") });
    let odd = "arp src host 10.0.0.1 or icmp[icmptype] != 8 or multicast and not vlan";
    world.plan_and_tap(TapPolicy { filter: Some(odd.into()), ..policy("odd", "5") });
    world.untap("odd");
    assert_eq!(world.send(1, &udp(1, 2).bytes()), [2, 4]);
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    world.untap("most");
    assert_eq!(world.send(1, &udp(1, 2).bytes()), [2, 4]);
    assert_eq!(world.untap("udp").matched.packets, 2);
}
