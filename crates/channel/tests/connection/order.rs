//! Requests that wait for an answer, and the order of answers.

use std::time::Duration;

use tapswitch_channel::*;
use tapswitch_openflow::*;

use crate::pair::*;

fn port_desc() -> Body {
    Body::MultipartRequest(MultipartRequest::new(MultipartRequestBody::PortDesc))
}

fn no_ports() -> Body {
    Body::MultipartReply(MultipartReply::new(MultipartReplyBody::PortDesc(Vec::new())))
}

fn xids(events: &[SwitchEvent]) -> Vec<u32> {
    let xid = |event: &SwitchEvent| match event {
        SwitchEvent::Request(message) => message.xid,
        SwitchEvent::RoleRequest { xid, .. } => *xid,
        other => panic!("{other:?}"),
    };
    events.iter().map(xid).collect()
}

fn master(xid: u32) -> Vec<u8> {
    let request = RoleMessage { role: ControllerRole::Master, generation_id: 1 };
    encode(xid, Body::RoleRequest(request))
}

#[test]
fn who_asks_faster_than_the_switch_answers_has_to_wait() {
    let mut pair = Pair::ready(Config::default());
    let requests: Vec<_> = (1..=6000).flat_map(|xid| encode(xid, port_desc())).collect();
    let mut events = pair.inject(&requests);
    assert_eq!(xids(&events), [1, 2, 3, 4]);
    assert!(pair.switch.is_busy(), "no more is read");
    let mut told = Vec::new();
    while let Some(&xid) = xids(&events).first() {
        told.push(xid);
        pair.switch.reply(xid, no_ports()).unwrap();
        events.remove(0);
        events.extend(pair.inject(&[]));
        assert!(events.len() <= 4);
    }
    assert_eq!(told, (1..=6000).collect::<Vec<_>>());
    assert!(!pair.switch.is_busy());
}

#[test]
fn messages_without_an_answer_need_not_wait() {
    let mut pair = Pair::ready(Config::default());
    let changes: Vec<_> = (1..=6000).flat_map(|xid| encode(xid, flow_mod())).collect();
    assert_eq!(pair.inject(&changes).len(), 6000);
}

#[test]
fn messages_behind_an_answer_that_is_due_are_bounded() {
    let mut pair = Pair::ready(Config::default());
    let mut bytes = encode(1, port_desc());
    bytes.extend((2..=9000).flat_map(|xid| encode(xid, flow_mod())));
    let told = pair.inject(&bytes);
    assert!((1000..9000).contains(&told.len()), "{}", told.len());
    pair.switch.reply(1, no_ports()).unwrap();
    let rest = pair.inject(&[]);
    assert_eq!(xids(&[told, rest].concat()), (1..=9000).collect::<Vec<_>>());
}

#[test]
fn an_error_is_an_answer() {
    let mut pair = Pair::ready(Config::default());
    let bytes = [encode(1, Body::BarrierRequest), encode(2, port_desc())].concat();
    let events = pair.inject(&bytes);
    let [SwitchEvent::Request(barrier)] = events.as_slice() else { panic!("{events:?}") };
    pair.switch.refuse(barrier, ErrorKind::OFPBRC_EPERM).unwrap();
    assert_eq!(xids(&pair.inject(&[])), [2]);
}

#[test]
fn what_follows_an_election_is_judged_by_the_new_role() {
    let mut pair = Pair::ready(Config::default());
    pair.switch.set_role(ControllerRole::Slave);
    let rest =
        [encode(2, Body::BarrierRequest), encode(3, flow_mod()), encode(4, Body::BarrierRequest)];
    let events = pair.inject(&[master(1), rest.concat()].concat());
    let [SwitchEvent::RoleRequest { xid, request }] = events[..] else { panic!("{events:?}") };
    let answer = Roles::new().handle_request(ConnectionId(1), ControllerRole::Slave, request);
    pair.switch.answer_role(xid, request, answer).unwrap();
    assert_eq!(xids(&pair.inject(&[])), [2]);
    pair.switch.reply(2, Body::BarrierReply).unwrap();
    assert_eq!(xids(&pair.inject(&[])), [3, 4]);
    pair.switch.reply(4, Body::BarrierReply).unwrap();
    let said: Vec<_> = pair.said_by_switch();
    let said: Vec<_> = said.iter().map(|m| (m.xid, m.body.message_type())).collect();
    let barrier = MessageType::BarrierReply;
    assert_eq!(said, [(1, MessageType::RoleReply), (2, barrier), (4, barrier)]);
}

#[test]
fn nothing_overtakes_a_barrier_but_an_echo() {
    let mut pair = Pair::ready(Config::default());
    let unknown = [4, 18, 0, 16, 0, 0, 0, 21, 0, 99, 0, 0, 0, 0, 0, 0];
    let config = AsyncConfig { slave: AsyncConfig::default().master, ..AsyncConfig::default() };
    let bytes = [
        encode(20, Body::BarrierRequest),
        encode(9, Body::EchoRequest(Vec::new())),
        unknown.to_vec(),
        encode(22, Body::GetAsyncRequest),
        encode(0, Body::SetAsync(config)),
        encode(23, Body::BarrierRequest),
        encode(24, Body::GetAsyncRequest),
    ];
    assert_eq!(xids(&pair.inject(&bytes.concat())), [20]);
    let said: Vec<_> = pair.said_by_switch().iter().map(|message| message.xid).collect();
    assert_eq!(said, [9]);
    assert_eq!(*pair.switch.async_config(), AsyncConfig::default(), "it is not its turn");
    pair.switch.reply(20, Body::BarrierReply).unwrap();
    let events = pair.inject(&[]);
    assert!(matches!(&events[0], SwitchEvent::Refused(refusal) if refusal.xid == 21));
    assert_eq!(xids(&events[1..]), [23]);
    pair.switch.reply(23, Body::BarrierReply).unwrap();
    pair.inject(&[]);
    let said: Vec<_> = pair.said_by_switch().iter().map(|message| message.xid).collect();
    assert_eq!(said, [20, 21, 22, 23, 24]);
    assert_eq!(*pair.switch.async_config(), config);
}

#[test]
fn what_came_before_the_end_is_told_without_answers() {
    let mut pair = Pair::ready(Config::default());
    pair.switch.set_role(ControllerRole::Slave);
    let bytes = [encode(1, Body::BarrierRequest), master(2), encode(3, flow_mod())].concat();
    let questions: Vec<_> = (4..100).flat_map(|xid| encode(xid, port_desc())).collect();
    assert_eq!(xids(&pair.inject(&[bytes, questions, encode(100, flow_mod())].concat())), [1]);
    pair.switch.handle_eof();
    let mut events = pair.inject(&[]);
    assert_eq!(events.pop(), Some(SwitchEvent::Closed(CloseReason::Eof)));
    assert_eq!(xids(&events), [2, 3, 100], "nobody waits for the rest");
}

#[test]
fn a_peer_is_not_dead_because_the_switch_is_slow() {
    let mut pair = Pair::ready(Config::default());
    assert_eq!(xids(&pair.inject(&encode(1, Body::BarrierRequest))), [1]);
    for _ in 0..10 {
        pair.now += Duration::from_secs(6);
        pair.switch.handle_timeout(pair.now);
    }
    assert_eq!(pair.inject(&[]), []);
    pair.switch.reply(1, Body::BarrierReply).unwrap();
    for _ in 0..2 {
        pair.now += Duration::from_secs(6);
        pair.switch.handle_timeout(pair.now);
    }
    let events = pair.inject(&[]);
    assert!(matches!(events[..], [SwitchEvent::Closed(CloseReason::Dead { .. })]), "{events:?}");
}
