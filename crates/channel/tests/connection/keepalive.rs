//! Silence, probes and timeouts, with a simulated clock.

use std::time::Duration;

use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

const INTERVAL: Duration = Duration::from_secs(5);

#[test]
fn idle_ends_keep_each_other_alive() {
    let mut pair = Pair::ready(Config::default());
    pair.pass(Duration::from_secs(3600));
    assert_eq!(pair.take_controller_events(), []);
    assert_eq!(pair.take_switch_events(), []);
    assert!(!pair.controller.is_closed() && !pair.switch.is_closed());
}

#[test]
fn a_lost_peer_is_dead_after_two_intervals() {
    let mut pair = Pair::ready(Config::default());
    let start = pair.now;
    assert!(pair.step(start + INTERVAL));
    let said = messages(pair.switch.poll_transmit());
    assert!(matches!(said[0].body, Body::EchoRequest(_)), "{said:?}");
    assert_eq!(pair.take_switch_events(), []);
    assert!(pair.step(start + 2 * INTERVAL));
    assert_eq!(pair.now, start + 2 * INTERVAL);
    let dead = CloseReason::Dead { after: INTERVAL };
    assert_eq!(pair.take_switch_events(), [SwitchEvent::Closed(dead.clone())]);
    assert_eq!(pair.take_controller_events(), [ControllerEvent::Closed(dead)]);
    assert!(!pair.step(start + 100 * INTERVAL), "no timer is left");
}

#[test]
fn any_message_is_a_sign_of_life() {
    let mut pair = Pair::ready(Config::default());
    for _ in 0..10 {
        pair.now += INTERVAL - Duration::from_millis(1);
        pair.switch.handle_timeout(pair.now);
        assert_eq!(pair.switch.poll_transmit(), b"");
        pair.inject(&encode(0, Body::Hello(Hello::new())));
    }
}

#[test]
fn echo_requests_are_answered_with_their_data() {
    let mut pair = Pair::ready(Config::default());
    let data = b"how are you?".to_vec();
    assert_eq!(pair.inject(&encode(5, Body::EchoRequest(data.clone()))), []);
    assert_eq!(pair.said_by_switch(), [Message { xid: 5, body: Body::EchoReply(data.clone()) }]);
    let xid = pair.controller.send(Body::EchoRequest(data.clone())).unwrap();
    pair.exchange();
    let reply = ControllerEvent::Reply { xid, body: Body::EchoReply(data) };
    assert_eq!(pair.take_controller_events(), [reply]);
}

#[test]
fn answers_to_old_probes_are_of_no_interest() {
    let mut pair = Pair::ready(Config::default());
    assert_eq!(pair.inject(&encode(99, Body::EchoReply(vec![]))), []);
    pair.controller.handle_bytes(&encode(99, Body::EchoReply(vec![])), pair.now);
    pair.poll_controller();
    assert_eq!(pair.take_controller_events(), []);
}
