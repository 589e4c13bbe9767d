//! Tests of timeouts of rules and stations, and of the notifications about them.

use tapswitch_openflow::{FlowRemoved, FlowRemovedReason};

use super::*;
use crate::agent::Gone;

fn removed(gone: Vec<Gone>) -> Vec<FlowRemoved> {
    let message = |gone: Gone| match gone.message() {
        Body::FlowRemoved(removed) => removed,
        other => panic!("{other:?}"),
    };
    gone.into_iter().map(message).collect()
}

fn timed(cookie: u64, idle_timeout: u16, hard_timeout: u16) -> FlowMod {
    let priority = u16::try_from(cookie).unwrap();
    let rule = rule(priority, Match::new(), output(2));
    FlowMod { cookie, idle_timeout, hard_timeout, ..rule }
}

#[test]
fn an_idle_rule_goes_and_tells_its_counts() {
    let mut agent = agent();
    add(&mut agent, telling(timed(5, 2, 0)));
    assert_eq!(agent.poll_timeout(), Some(after(2000)));
    forward(&agent, 1, after(1500));
    assert!(agent.handle_timeout(after(2000)).is_empty(), "it was used since");
    assert_eq!(agent.poll_timeout(), Some(after(3500)));
    let gone = removed(agent.handle_timeout(after(3500)));
    let [gone] = &gone[..] else { panic!("{gone:?}") };
    assert_eq!((gone.cookie, gone.priority, gone.table_id), (5, 5, TableId(0)));
    assert_eq!(gone.reason, FlowRemovedReason::IDLE_TIMEOUT);
    assert_eq!((gone.duration_sec, gone.duration_nsec), (3, 500_000_000));
    assert_eq!((gone.idle_timeout, gone.hard_timeout), (2, 0));
    assert_eq!((gone.packet_count, gone.byte_count), (1, 100));
    assert_eq!((all_cookies(&mut agent), agent.poll_timeout()), (vec![], None));
}

#[test]
fn a_rule_goes_by_its_hard_timeout_though_it_is_used() {
    let mut agent = agent();
    add(&mut agent, telling(timed(1, 2, 3)));
    for ms in [1000, 2000, 2999] {
        forward(&agent, 1, after(ms));
        assert!(agent.handle_timeout(after(ms)).is_empty());
    }
    let gone = removed(agent.handle_timeout(after(3000)));
    assert_eq!(gone[0].reason, FlowRemovedReason::HARD_TIMEOUT);
    assert_eq!((gone[0].duration_sec, gone[0].packet_count), (3, 3));
}

#[test]
fn only_rules_that_asked_tell_that_they_are_gone() {
    let mut agent = agent();
    add(&mut agent, timed(1, 0, 1));
    add(&mut agent, telling(timed(2, 0, 1)));
    add(&mut agent, telling(timed(3, 0, 9)));
    let gone = removed(agent.handle_timeout(after(1000)));
    assert_eq!(gone.iter().map(|gone| gone.cookie).collect::<Vec<_>>(), [2]);
    assert_eq!(all_cookies(&mut agent), [3]);
}

#[test]
fn a_deleted_rule_tells_and_a_replaced_one_does_not() {
    let mut agent = agent();
    add(&mut agent, telling(timed(1, 0, 0)));
    add(&mut agent, telling(FlowMod { idle_timeout: 7, ..timed(1, 0, 0) }));
    let delete = Body::FlowMod(FlowMod::new(FlowModCommand::Delete));
    let gone = removed(send_at(&mut agent, delete, after(2250)).gone);
    let [gone] = &gone[..] else { panic!("{gone:?}") };
    assert_eq!((gone.cookie, gone.reason), (1, FlowRemovedReason::DELETE));
    assert_eq!((gone.duration_sec, gone.duration_nsec), (2, 250_000_000));
}

#[test]
fn a_switch_without_timeouts_has_nothing_to_wait_for() {
    let mut agent = agent();
    add(&mut agent, timed(1, 0, 0));
    assert_eq!(agent.poll_timeout(), None);
}

#[test]
fn silent_stations_are_forgotten_however_busy_the_switch_is() {
    let mut agent = agent();
    agent.handle_sighting(Sighting { station: station(1), port: PortNo(1) }, START);
    // Other calls must not postpone the work.
    let due = agent.poll_timeout().unwrap();
    for ms in (0..20_000).step_by(1000) {
        agent.handle_timeout(after(ms));
        assert_eq!(agent.poll_timeout(), Some(due));
    }
    let (mut now, mut rounds) = (START, 0);
    while let Some(due) = agent.poll_timeout() {
        (now, rounds) = (due, rounds + 1);
        assert!(agent.handle_timeout(now).is_empty());
        assert!(rounds < 100 && now <= after(400_000), "it stays for ever");
    }
    assert!(now >= after(300_000), "forgotten too early");
    assert_eq!(agent.macs().table().count(), 0);
}

#[test]
fn a_station_that_speaks_stays() {
    let mut agent = agent();
    let sighting = Sighting { station: station(1), port: PortNo(1) };
    for minute in 0..20 {
        agent.handle_sighting(sighting, after(minute * 60_000));
        agent.handle_timeout(after(minute * 60_000 + 30_000));
    }
    assert_eq!(agent.macs().table().port(station(1)), Some(PortNo(1)));
}

#[test]
fn standalone_leaves_the_rules_aside_and_finds_them_again() {
    let mut agent = agent();
    add(&mut agent, rule(1, Match::new(), vec![]));
    let epoch = agent.pipeline().snapshot().epoch;
    agent.set_standalone(true);
    assert!(agent.pipeline().snapshot().standalone);
    assert!(agent.pipeline().snapshot().epoch > epoch, "what workers remember is void");
    forward(&agent, 1, START);
    let flooded = |agent: &Agent| {
        let ports = &agent.pipeline().snapshot().ports;
        ports.find(PortNo(2)).unwrap().counters.tx().frames
    };
    assert_eq!((flooded(&agent), all_cookies(&mut agent).len()), (1, 1));
    agent.set_standalone(false);
    forward(&agent, 1, START);
    assert_eq!(flooded(&agent), 1, "the rule drops");
}
