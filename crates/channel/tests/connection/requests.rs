//! Requests, their answers, and unsolicited messages.

use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

#[test]
fn an_answer_is_known_by_the_number_of_its_request() {
    let mut pair = Pair::ready(Config::default());
    let (barrier, events) = pair.ask(Body::BarrierRequest);
    let request = Message { xid: barrier, body: Body::BarrierRequest };
    assert_eq!(events, [SwitchEvent::Request(request)]);
    let (config, _) = pair.ask(Body::GetConfigRequest);
    assert_eq!(pair.controller.pending_count(), 2);
    let reply = Body::GetConfigReply(SwitchConfig::default());
    pair.switch.reply(config, reply.clone()).unwrap();
    pair.switch.reply(barrier, Body::BarrierReply).unwrap();
    pair.exchange();
    let expected = [
        ControllerEvent::Reply { xid: config, body: reply },
        ControllerEvent::Reply { xid: barrier, body: Body::BarrierReply },
    ];
    assert_eq!(pair.take_controller_events(), expected);
    assert_eq!(pair.controller.pending_count(), 0);
}

#[test]
fn an_error_ends_the_wait_and_quotes_the_request() {
    let mut pair = Pair::ready(Config::default());
    let body = Body::QueueGetConfigRequest(QueueGetConfigRequest { port: PortNo(9) });
    let (xid, events) = pair.ask(body.clone());
    let [SwitchEvent::Request(request)] = events.as_slice() else { panic!("{events:?}") };
    pair.switch.refuse(request, ErrorKind::OFPQOFC_BAD_PORT).unwrap();
    pair.exchange();
    let error = ErrorMessage { kind: ErrorKind::OFPQOFC_BAD_PORT, data: encode(xid, body) };
    assert_eq!(pair.take_controller_events(), [ControllerEvent::Error { xid, error }]);
    assert_eq!(pair.controller.pending_count(), 0);
}

#[test]
fn what_nobody_asked_for_is_a_message() {
    let mut pair = Pair::ready(Config::default());
    let (xid, _) = pair.ask(Body::BarrierRequest);
    let config = Body::GetConfigReply(SwitchConfig::default());
    pair.switch.reply(xid, config.clone()).unwrap();
    pair.switch.reply(77, Body::BarrierReply).unwrap();
    pair.exchange();
    let message = |xid, body| ControllerEvent::Message(Message { xid, body });
    let expected = [message(xid, config), message(77, Body::BarrierReply)];
    assert_eq!(pair.take_controller_events(), expected);
    assert_eq!(pair.controller.pending_count(), 1, "of another type than the one waited for");
}

#[test]
fn every_transaction_has_its_own_number() {
    let mut pair = Pair::ready(Config::default());
    let xids: Vec<_> = (0..100).map(|_| pair.controller.send(flow_mod()).unwrap()).collect();
    assert!(xids.is_sorted() && xids.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(pair.controller.pending_count(), 0, "nobody answers a flow-mod");
}

#[test]
fn requests_without_an_answer_are_bounded() {
    let config = Config { max_unsent_len: usize::MAX, ..Config::default() };
    let mut pair = Pair::ready(config);
    for _ in 0..MAX_PENDING {
        pair.controller.send(Body::BarrierRequest).unwrap();
    }
    let error = SendError::TooManyPending { count: MAX_PENDING };
    assert_eq!(pair.controller.send(Body::BarrierRequest), Err(error));
    assert!(pair.controller.send(flow_mod()).is_ok());
}

#[test]
fn a_message_that_cannot_be_bytes_is_not_sent() {
    let mut pair = Pair::ready(Config::default());
    let error = pair.controller.send(Body::EchoRequest(vec![0; 70_000]));
    assert!(matches!(error, Err(SendError::Encode(_))), "{error:?}");
    assert_eq!(pair.controller.poll_transmit(), b"");
    assert_eq!(pair.controller.pending_count(), 0);
}

#[test]
fn a_malformed_answer_ends_the_wait() {
    let mut pair = Pair::ready(Config::default());
    let (xid, _) = pair.ask(Body::GetConfigRequest);
    let mut reply = encode(xid, Body::GetConfigReply(SwitchConfig::default()));
    reply.pop();
    reply[3] = reply.len() as u8;
    pair.controller.handle_bytes(&reply, pair.now);
    pair.poll_controller();
    let events = pair.take_controller_events();
    assert!(matches!(events.as_slice(), [ControllerEvent::Refused(_)]), "{events:?}");
    assert_eq!(pair.controller.pending_count(), 0);
}
