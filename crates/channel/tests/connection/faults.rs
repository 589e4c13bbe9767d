//! Malformed, unknown and incomplete input.

use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

#[test]
fn a_malformed_message_is_answered_and_the_next_one_is_read() {
    let mut pair = Pair::ready(Config::default());
    let mut broken = encode(7, flow_mod());
    broken[25] = 9;
    let mut bytes = broken.clone();
    bytes.extend(encode(8, Body::BarrierRequest));
    let events = pair.inject(&bytes);
    let [SwitchEvent::Refused(refusal), SwitchEvent::Request(barrier)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!((refusal.xid, refusal.kind), (7, ErrorKind::OFPFMFC_BAD_COMMAND));
    assert_eq!(refusal.text, "flow_mod at byte 25: unknown command 9");
    assert_eq!(barrier.xid, 8);
    let error = ErrorMessage { kind: ErrorKind::OFPFMFC_BAD_COMMAND, data: broken };
    assert_eq!(pair.said_by_switch(), [Message { xid: 7, body: Body::Error(error) }]);
}

#[test]
fn versions_and_types_that_are_not_known_are_answered() {
    let mut pair = Pair::ready(Config::default());
    pair.inject(&[1, 2, 0, 8, 0, 0, 0, 1]);
    pair.inject(&[4, 77, 0, 9, 0, 0, 0, 2, 0]);
    let expected = [(1, ErrorKind::OFPBRC_BAD_VERSION), (2, ErrorKind::OFPBRC_BAD_TYPE)];
    assert_eq!(errors(&pair.said_by_switch()), expected);
    assert!(!pair.switch.is_closed());
}

#[test]
fn what_no_switch_can_do_is_answered() {
    let mut pair = Pair::ready(Config::default());
    let mut flow_mod = FlowMod::new(FlowModCommand::Add);
    flow_mod.match_fields = Match::new().with(Oxm::TcpDst(80));
    let (xid, events) = pair.ask(Body::FlowMod(flow_mod));
    assert!(matches!(events.as_slice(), [SwitchEvent::Refused(_)]), "{events:?}");
    pair.exchange();
    let events = pair.take_controller_events();
    let [ControllerEvent::Error { xid: failed, error }] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!((*failed, error.kind), (xid, ErrorKind::OFPBMC_BAD_PREREQ));
    assert_eq!(error.data.len(), 64);
}

#[test]
fn messages_for_the_other_end_are_answered() {
    let mut pair = Pair::ready(Config::default());
    pair.inject(&encode(1, Body::BarrierReply));
    assert_eq!(errors(&pair.said_by_switch()), [(1, ErrorKind::OFPBRC_BAD_TYPE)]);
    pair.controller.handle_bytes(&encode(2, flow_mod()), pair.now);
    pair.poll_controller();
    let said = messages(pair.controller.poll_transmit());
    assert_eq!(errors(&said), [(2, ErrorKind::OFPBRC_BAD_TYPE)]);
}

#[test]
fn errors_are_never_answered_with_errors() {
    let mut pair = Pair::ready(Config::default());
    let events = pair.inject(&[4, 1, 0, 10, 0, 0, 0, 1, 0, 1]);
    assert!(matches!(events.as_slice(), [SwitchEvent::Refused(_)]), "{events:?}");
    let error = ErrorMessage::about(ErrorKind::OFPBRC_EPERM, &[]);
    let events = pair.inject(&encode(3, Body::Error(error.clone())));
    assert_eq!(events, [SwitchEvent::Error { xid: 3, error }]);
    assert_eq!(pair.said_by_switch(), []);
}

#[test]
fn a_length_that_cannot_be_ends_it() {
    let mut pair = Pair::ready(Config::default());
    let events = pair.inject(&[4, 2, 0, 7, 0, 0, 0, 1]);
    let reason = CloseReason::Header(HeaderError::TooShort { len: 7 });
    assert_eq!(events, [SwitchEvent::Closed(reason)]);
    assert_eq!(errors(&pair.said_by_switch()), [(1, ErrorKind::OFPBRC_BAD_LEN)]);
    assert_eq!(pair.inject(&encode(1, Body::BarrierRequest)), []);
    assert_eq!(pair.switch.reply(1, Body::BarrierReply), Err(SendError::NotOpen));
}

#[test]
fn an_error_whose_length_cannot_be_is_not_answered() {
    let mut pair = Pair::ready(Config::default());
    let events = pair.inject(&[4, 1, 0, 7, 0, 0, 0, 1]);
    assert!(matches!(events.as_slice(), [SwitchEvent::Closed(_)]), "{events:?}");
    assert_eq!(pair.said_by_switch(), []);
}

#[test]
fn the_end_of_the_stream_comes_after_what_was_whole() {
    let mut pair = Pair::ready(Config::default());
    let whole = encode(1, Body::BarrierRequest);
    let bytes = [whole.as_slice(), &whole[..5]].concat();
    pair.switch.handle_bytes(&bytes, pair.now);
    pair.switch.handle_eof();
    pair.poll_switch();
    let barrier = Message { xid: 1, body: Body::BarrierRequest };
    let expected = [SwitchEvent::Request(barrier), SwitchEvent::Closed(CloseReason::Eof)];
    assert_eq!(pair.take_switch_events(), expected);
    pair.switch.handle_eof();
    pair.poll_switch();
    assert_eq!(pair.take_switch_events(), [], "it ended once");
}

#[test]
fn a_second_hello_changes_nothing() {
    let mut pair = Pair::ready(Config::default());
    assert_eq!(pair.inject(&encode(1, Body::Hello(Hello::new()))), []);
    assert_eq!(pair.said_by_switch(), []);
}
