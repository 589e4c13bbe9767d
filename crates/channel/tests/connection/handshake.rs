//! Hello, versions, features, and failures of the handshake.

use std::time::{Duration, Instant};

use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

#[test]
fn both_ends_get_to_know_each_other() {
    let pair = Pair::ready(Config::default());
    assert_eq!(pair.controller.pending_count(), 0);
    assert_eq!(pair.switch.role(), ControllerRole::Equal);
}

#[test]
fn nothing_is_sent_before() {
    let mut pair = Pair::new(Config::default());
    assert_eq!(pair.controller.send(Body::BarrierRequest), Err(SendError::NotOpen));
    assert_eq!(pair.switch.reply(1, Body::BarrierReply), Err(SendError::NotOpen));
    let notified = pair.switch.notify(packet_in(PacketInReason::NO_MATCH));
    assert_eq!(notified, Err(SendError::NotOpen));
}

#[test]
fn messages_before_the_features_follow_them() {
    let mut pair = Pair::new(Config::default());
    pair.switch.handle_bytes(&encode(1, Body::Hello(Hello::new())), pair.now);
    pair.poll_switch();
    pair.switch.notify(packet_in(PacketInReason::NO_MATCH)).unwrap();
    pair.carry_to_controller();
    assert_eq!(pair.take_controller_events(), []);
    pair.exchange();
    let early = Message { xid: 0, body: packet_in(PacketInReason::NO_MATCH) };
    let ready = ControllerEvent::Ready { features: features() };
    assert_eq!(pair.take_controller_events(), [ready, ControllerEvent::Message(early)]);
}

#[test]
fn too_many_messages_before_the_features_end_it() {
    let mut pair = Pair::new(Config::default());
    pair.controller.handle_bytes(&encode(1, Body::Hello(Hello::new())), pair.now);
    let message = encode(0, packet_in(PacketInReason::NO_MATCH));
    for _ in 0..1025 {
        pair.controller.handle_bytes(&message, pair.now);
    }
    pair.poll_controller();
    let closed = ControllerEvent::Closed(CloseReason::TooEarly { count: 1024 });
    assert_eq!(pair.take_controller_events(), [closed]);
}

#[test]
fn another_version_is_refused_with_a_text() {
    let mut pair = Pair::new(Config::default());
    let events = pair.inject(&encode(9, Body::Hello(Hello { version: 1, elements: vec![] })));
    assert_eq!(events, [SwitchEvent::Closed(CloseReason::Version { version: 1 })]);
    let said = pair.said_by_switch();
    let [Message { body: Body::Hello(_), .. }, Message { xid: 9, body: Body::Error(error) }] =
        said.as_slice()
    else {
        panic!("{said:?}");
    };
    assert_eq!(error.kind, ErrorKind::OFPHFC_INCOMPATIBLE);
    assert_eq!(error.text().as_deref(), Some("this end speaks OpenFlow 1.3 (0x04)"));
    assert_eq!(pair.inject(&encode(9, Body::Hello(Hello::new()))), [], "it is over");
}

#[test]
fn a_later_version_that_also_speaks_ours_is_welcome() {
    let mut pair = Pair::new(Config::default());
    let bitmap = HelloElement::VersionBitmap(vec![1 << 4 | 1 << 6]);
    let hello = Hello { version: 6, elements: vec![bitmap] };
    assert_eq!(pair.inject(&encode(1, Body::Hello(hello))), [SwitchEvent::Ready]);
}

#[test]
fn a_refused_hello_says_why() {
    let mut pair = Pair::new(Config::default());
    let error = ErrorMessage::with_text(ErrorKind::OFPHFC_INCOMPATIBLE, "only 1.0 here");
    let mut bytes = encode(1, Body::Error(error));
    bytes[0] = 1;
    let events = pair.inject(&bytes);
    let [SwitchEvent::Closed(reason)] = events.as_slice() else { panic!("{events:?}") };
    let text = "the peer refused the handshake: OFPHFC_INCOMPATIBLE: only 1.0 here";
    assert_eq!(reason.to_string(), text);
}

/// Text of a peer stays on one line of the log.
#[test]
fn the_text_of_a_refusal_forges_no_line_of_the_log() {
    let text = format!("no\n2026-11-25 INFO all is well\x1b[2J\u{202e}{}", "x".repeat(1_900));
    let error = ErrorMessage::with_text(ErrorKind::OFPHFC_INCOMPATIBLE, &text);
    let bytes = encode(1, Body::Error(error));
    let mut pair = Pair::new(Config::default());
    let events = pair.inject(&bytes);
    let [SwitchEvent::Closed(by_controller)] = events.as_slice() else { panic!("{events:?}") };
    let mut pair = Pair::new(Config::default());
    pair.controller.handle_bytes(&bytes, pair.now);
    pair.poll_controller();
    let events = pair.take_controller_events();
    let [ControllerEvent::Closed(by_switch)] = events.as_slice() else { panic!("{events:?}") };
    for reason in [by_controller, by_switch].map(ToString::to_string) {
        assert!(!reason.contains(char::is_control) && !reason.contains('\u{202e}'), "{reason}");
        assert!(reason.contains(r"no\u{a}2026-11-25 INFO all is well\u{1b}[2J"), "{reason}");
        assert!(reason.len() < 400, "{}", reason.len());
    }
}

#[test]
fn a_switch_that_refuses_to_describe_itself_is_left() {
    let mut pair = Pair::new(Config::default());
    pair.carry_to_switch();
    pair.carry_to_controller();
    let request = messages(pair.controller.poll_transmit()).pop().unwrap();
    let error = ErrorMessage::about(ErrorKind::OFPBRC_EPERM, &[]);
    pair.controller.handle_bytes(&encode(request.xid, Body::Error(error)), pair.now);
    pair.poll_controller();
    let kind = ErrorKind::OFPBRC_EPERM;
    let reason = CloseReason::Refused { kind, text: String::new() };
    assert_eq!(pair.take_controller_events(), [ControllerEvent::Closed(reason)]);
}

#[test]
fn a_peer_that_is_no_openflow_is_noticed_by_its_first_bytes() {
    let mut pair = Pair::new(Config::default());
    let events = pair.inject(b"GET / HTTP/1.1\r\n");
    let reason = CloseReason::NotOpenFlow { message_type: b'E', len: 0x5420 };
    assert_eq!(events, [SwitchEvent::Closed(reason)]);
    assert_eq!(errors(&pair.said_by_switch()), [], "it would not understand");
}

#[test]
fn a_hello_comes_first() {
    let mut pair = Pair::new(Config::default());
    let events = pair.inject(&encode(1, Body::FeaturesRequest));
    let reason = CloseReason::NotOpenFlow { message_type: 5, len: 8 };
    assert_eq!(events, [SwitchEvent::Closed(reason)]);
    assert_eq!(errors(&pair.said_by_switch()), [(1, ErrorKind::OFPHFC_INCOMPATIBLE)]);
}

#[test]
fn a_hello_that_cannot_be_read_ends_it() {
    let mut pair = Pair::new(Config::default());
    let events = pair.inject(&[4, 0, 0, 12, 0, 0, 0, 1, 0, 1, 0, 3]);
    assert!(
        matches!(events.as_slice(), [SwitchEvent::Closed(CloseReason::BadHello(_))]),
        "{events:?}"
    );
    assert_eq!(errors(&pair.said_by_switch()), [(1, ErrorKind::OFPBRC_BAD_LEN)]);
}

#[test]
fn silence_instead_of_a_hello_ends_it() {
    let config = Config::default();
    let start = Instant::now();
    let mut switch = SwitchConnection::new(config, start);
    assert_eq!(switch.poll_timeout(), Some(start + config.handshake_timeout));
    switch.handle_timeout(start + config.handshake_timeout - Duration::from_millis(1));
    assert_eq!(switch.poll_event(), None);
    switch.handle_timeout(start + config.handshake_timeout);
    let after = config.handshake_timeout;
    let closed = SwitchEvent::Closed(CloseReason::HandshakeTimeout { after });
    assert_eq!(switch.poll_event(), Some(closed));
    assert!(switch.is_closed());
    assert_eq!(switch.poll_timeout(), None);
}

#[test]
fn a_switch_that_does_not_describe_itself_in_time_is_left() {
    let config = Config::default();
    let start = Instant::now();
    let mut controller = ControllerConnection::new(config, start);
    let hello = encode(1, Body::Hello(Hello::new()));
    controller.handle_bytes(&hello, start + Duration::from_secs(9));
    assert_eq!(controller.poll_event(), None);
    controller.handle_timeout(start + config.handshake_timeout);
    let after = config.handshake_timeout;
    let closed = ControllerEvent::Closed(CloseReason::HandshakeTimeout { after });
    assert_eq!(controller.poll_event(), Some(closed));
}
