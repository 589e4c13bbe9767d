//! Peers that do not read.

use std::time::Duration;

use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

fn small() -> Config {
    Config { max_unsent_len: 1000, ..Config::default() }
}

#[test]
fn a_switch_reads_no_requests_while_its_answers_wait() {
    let mut pair = Pair::ready(small());
    let requests: Vec<_> =
        (1..=100).flat_map(|xid| encode(xid, Body::EchoRequest(vec![0; 100]))).collect();
    pair.inject(&requests);
    assert!(pair.switch.is_busy());
    let waiting = pair.switch.poll_transmit().len();
    assert!((1000..1200).contains(&waiting), "{waiting}");
    let mut said = Vec::new();
    while !pair.switch.poll_transmit().is_empty() {
        said.extend(pair.said_by_switch());
        pair.poll_switch();
    }
    let xids: Vec<_> = said.iter().map(|message| message.xid).collect();
    assert_eq!(xids, (1..=100).collect::<Vec<_>>());
}

#[test]
fn asynchronous_messages_are_refused_while_too_much_waits() {
    let mut pair = Pair::ready(small());
    let mut sent = 0;
    let error = loop {
        match pair.switch.notify(packet_in(PacketInReason::NO_MATCH)) {
            Ok(wanted) => {
                assert!(wanted);
                sent += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SendError::Busy { .. }), "{error:?}");
    pair.exchange();
    assert_eq!(pair.take_controller_events().len(), sent);
    assert_eq!(pair.switch.notify(packet_in(PacketInReason::NO_MATCH)), Ok(true));
}

#[test]
fn only_packets_are_lost_while_too_much_waits() {
    let mut pair = Pair::ready(small());
    while pair.switch.notify(packet_in(PacketInReason::NO_MATCH)).is_ok() {}
    assert_eq!(pair.switch.notify(port_status()), Ok(true));
    assert_eq!(pair.switch.notify(flow_removed()), Ok(true));
    assert!(pair.switch.notify(packet_in(PacketInReason::NO_MATCH)).is_err());
    pair.exchange();
    let told = pair.take_controller_events();
    let message = |body| ControllerEvent::Message(Message { xid: 0, body });
    assert_eq!(told[told.len() - 2..], [message(port_status()), message(flow_removed())]);
}

#[test]
fn who_does_not_read_what_it_must_know_is_left() {
    let mut pair = Pair::ready(small());
    pair.switch.reply(1, Body::EchoReply(vec![0; 50_000])).unwrap();
    let mut count = 0;
    while pair.switch.notify(flow_removed()).is_ok() {
        pair.poll_switch();
        assert_eq!(pair.take_switch_events(), []);
        count += 1;
    }
    assert!(count * encode(0, flow_removed()).len() >= 8 * 1000, "after {count}");
    pair.poll_switch();
    let events = pair.take_switch_events();
    assert!(
        matches!(events.as_slice(), [SwitchEvent::Closed(CloseReason::NotReading { .. })]),
        "{events:?}"
    );
}

#[test]
fn a_controller_cannot_send_while_too_much_waits() {
    let mut pair = Pair::ready(small());
    while pair.controller.send(flow_mod()).is_ok() {}
    assert!(pair.controller.is_busy());
    pair.exchange();
    assert!(pair.controller.send(flow_mod()).is_ok());
}

#[test]
fn answers_are_taken_however_many_wait() {
    let mut pair = Pair::ready(small());
    for xid in 0..1000 {
        pair.switch.reply(xid, Body::BarrierReply).unwrap();
    }
    pair.exchange();
    assert_eq!(pair.take_controller_events().len(), 1000);
}

#[test]
fn a_switch_that_probes_but_does_not_read_is_left() {
    let mut pair = Pair::ready(small());
    for xid in 0..100 {
        let request = encode(xid, Body::EchoRequest(vec![0; 100]));
        pair.controller.handle_bytes(&request, pair.now);
    }
    pair.poll_controller();
    let events = pair.take_controller_events();
    assert!(
        matches!(events.as_slice(), [ControllerEvent::Closed(CloseReason::NotReading { .. })]),
        "{events:?}"
    );
}

#[test]
fn a_slow_reader_lives_and_one_that_stopped_is_dead() {
    let mut pair = Pair::ready(small());
    for xid in 0..1000 {
        pair.switch.reply(xid, Body::BarrierReply).unwrap();
    }
    for _ in 0..20 {
        pair.now += Duration::from_secs(6);
        pair.switch.handle_timeout(pair.now);
        pair.switch.handle_transmitted(8, pair.now);
        assert!(!pair.switch.is_closed());
        assert_eq!(pair.switch.poll_event(), None);
    }
    pair.switch.handle_timeout(pair.now + Duration::from_secs(5));
    pair.switch.handle_timeout(pair.now + Duration::from_secs(10));
    let event = pair.switch.poll_event();
    assert!(matches!(event, Some(SwitchEvent::Closed(CloseReason::Dead { .. }))), "{event:?}");
}
