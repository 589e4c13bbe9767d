//! Multipart messages that exceed one message, and that exceed all limits.

use tapswitch_channel::*;
use tapswitch_openflow::multipart::*;
use tapswitch_openflow::*;

use crate::pair::*;

fn flows(count: u64) -> MultipartReplyBody {
    let flow = |cookie| FlowStats {
        table_id: TableId(0),
        duration_sec: 0,
        duration_nsec: 0,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: FlowModFlags::empty(),
        cookie,
        packet_count: 0,
        byte_count: 0,
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        instructions: vec![],
    };
    MultipartReplyBody::Flow((0..count).map(flow).collect())
}

fn flow_request() -> Body {
    let body = MultipartRequestBody::Flow(FlowStatsRequest::default());
    Body::MultipartRequest(MultipartRequest::new(body))
}

fn table(table_id: u8) -> TableFeatures {
    TableFeatures { table_id: TableId(table_id), ..TableFeatures::default() }
}

#[test]
fn a_long_reply_is_cut_and_joined() {
    let mut pair = Pair::ready(Config::default());
    let (xid, _) = pair.ask(flow_request());
    let body = Body::MultipartReply(MultipartReply::new(flows(3000)));
    pair.switch.reply(xid, body.clone()).unwrap();
    assert!(messages(pair.switch.poll_transmit()).len() >= 3);
    pair.exchange();
    assert_eq!(pair.take_controller_events(), [ControllerEvent::Reply { xid, body }]);
    assert_eq!(pair.controller.pending_count(), 0);
}

#[test]
fn a_long_request_is_cut_and_joined() {
    let mut pair = Pair::ready(Config::default());
    let tables =
        MultipartRequestBody::TableFeatures((0..=254).cycle().take(2000).map(table).collect());
    let body = Body::MultipartRequest(MultipartRequest::new(tables));
    let (xid, events) = pair.ask(body.clone());
    assert_eq!(events, [SwitchEvent::Request(Message { xid, body: body.clone() })]);
    let SwitchEvent::Request(request) = &events[0] else { panic!("{events:?}") };
    pair.switch.refuse(request, ErrorKind::OFPTFFC_EPERM).unwrap();
    pair.exchange();
    let events = pair.take_controller_events();
    let [ControllerEvent::Error { error, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(error.data.len(), 64, "the first part is quoted");
}

#[test]
fn a_request_beyond_the_bound_overflows_once() {
    let config = Config { max_multipart_len: 70_000, ..Config::default() };
    let mut pair = Pair::ready(config);
    let tables =
        MultipartRequestBody::TableFeatures((0..=254).cycle().take(4000).map(table).collect());
    let (xid, events) = pair.ask(Body::MultipartRequest(MultipartRequest::new(tables)));
    let [SwitchEvent::Refused(refusal)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(refusal.kind, ErrorKind::OFPBRC_MULTIPART_BUFFER_OVERFLOW);
    let kind = ErrorKind::OFPBRC_MULTIPART_BUFFER_OVERFLOW;
    assert_eq!(errors(&pair.said_by_switch()), [(xid, kind)]);
    let (_, events) = pair.ask(Body::BarrierRequest);
    assert!(matches!(events.as_slice(), [SwitchEvent::Request(_)]), "{events:?}");
}

#[test]
fn a_reply_beyond_the_bound_is_lost_and_said_so() {
    let config = Config { max_multipart_parts: 2, ..Config::default() };
    let mut pair = Pair::ready(config);
    let (xid, _) = pair.ask(flow_request());
    pair.switch.reply(xid, Body::MultipartReply(MultipartReply::new(flows(3000)))).unwrap();
    pair.exchange();
    let events = pair.take_controller_events();
    let [ControllerEvent::Refused(refusal)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(refusal.xid, xid);
    assert_eq!(refusal.text, "the multipart message is longer than 67108864 bytes or 2 parts");
    assert_eq!(pair.controller.pending_count(), 0);
}

/// A list is not split inside an item.
#[test]
fn a_reply_that_fits_no_message_is_answered_by_an_error() {
    let mut pair = Pair::ready(Config::default());
    let (xid, _) = pair.ask(flow_request());
    let MultipartReplyBody::Flow(mut items) = flows(2) else { unreachable!() };
    let actions = vec![Action::output(PortNo(1)); 4094];
    items[1].instructions = vec![Instruction::ApplyActions(actions)];
    let reply = MultipartReply::new(MultipartReplyBody::Flow(items));
    let sent = pair.switch.reply(xid, Body::MultipartReply(reply));
    assert!(matches!(sent, Err(SendError::Encode(_))), "{sent:?}");
    let kind = ErrorKind::OFPBRC_MULTIPART_BUFFER_OVERFLOW;
    assert_eq!(errors(&pair.said_by_switch()), [(xid, kind)]);
    let (_, events) = pair.ask(Body::BarrierRequest);
    assert!(matches!(events.as_slice(), [SwitchEvent::Request(_)]), "{events:?}");
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let mut pair = Pair::ready(Config::default());
    let part = |more, body| Body::MultipartRequest(MultipartRequest { more, body });
    for (first, kind) in [
        (MultipartRequestBody::TableFeatures(vec![table(1)]), ErrorKind::OFPBRC_BAD_MULTIPART),
        (MultipartRequestBody::Desc, ErrorKind::OFPBRC_BAD_LEN),
    ] {
        let mut bytes = encode(1, part(true, first));
        bytes.extend(encode(1, part(false, MultipartRequestBody::Desc)));
        let events = pair.inject(&bytes);
        let [SwitchEvent::Refused(refusal)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(refusal.kind, kind);
        assert_eq!(errors(&pair.said_by_switch()), [(1, kind)]);
    }
}

#[test]
fn multiparts_without_an_end_are_bounded() {
    let mut pair = Pair::ready(Config::default());
    let body = MultipartRequestBody::TableFeatures(vec![table(1)]);
    let part = Body::MultipartRequest(MultipartRequest { more: true, body });
    for xid in 0..MAX_OPEN_MULTIPARTS as u32 {
        assert_eq!(pair.inject(&encode(xid, part.clone())), []);
    }
    let events = pair.inject(&encode(u32::MAX, part));
    let max = MAX_OPEN_MULTIPARTS;
    let [SwitchEvent::Refused(_), SwitchEvent::Closed(reason)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(*reason, CloseReason::TooManyMultiparts { max });
}

#[test]
fn parts_that_nobody_asked_for_are_not_kept() {
    let part = |more| {
        let body = MultipartReplyBody::Table(vec![TableStats::default()]);
        Body::MultipartReply(MultipartReply { more, body })
    };
    let is_refused = |event: &ControllerEvent| match event {
        ControllerEvent::Refused(refusal) => refusal.kind == ErrorKind::OFPBRC_BAD_MULTIPART,
        _ => false,
    };
    let mut pair = Pair::ready(Config::default());
    let (barrier, _) = pair.ask(Body::BarrierRequest);
    for (xid, more) in [(77, true), (77, true), (77, false), (78, false), (barrier, true)] {
        pair.controller.handle_bytes(&encode(xid, part(more)), pair.now);
        pair.poll_controller();
        let events = pair.take_controller_events();
        assert!(events.len() == 1 && events.iter().all(is_refused), "{xid}: {events:?}");
    }
    assert_eq!(pair.controller.pending_count(), 1, "the barrier is still waited for");
    // More than may be incomplete: none of them counts.
    for xid in 1000..1000 + 2 * MAX_OPEN_MULTIPARTS as u32 {
        pair.controller.handle_bytes(&encode(xid, part(true)), pair.now);
    }
    pair.poll_controller();
    assert!(!pair.controller.is_closed());
}

#[test]
fn no_parts_are_kept_before_it_is_known_who_sends_them() {
    let mut pair = Pair::new(Config::default());
    pair.controller.handle_bytes(&encode(1, Body::Hello(Hello::new())), pair.now);
    let body = MultipartReplyBody::Table(vec![TableStats::default()]);
    let part = encode(77, Body::MultipartReply(MultipartReply { more: true, body }));
    for _ in 0..1025 {
        pair.controller.handle_bytes(&part, pair.now);
    }
    pair.poll_controller();
    let closed = ControllerEvent::Closed(CloseReason::TooEarly { count: 1024 });
    assert_eq!(pair.take_controller_events(), [closed]);
}
