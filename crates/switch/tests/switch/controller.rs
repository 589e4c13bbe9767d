//! Tests of a controller over TCP: its changes take effect, and it receives the switch's events.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::time::Instant;

use crate::common::*;
use tapswitch_channel::ControllerEvent;
use tapswitch_openflow::multipart::FlowStatsRequest;
use tapswitch_openflow::{
    Action, Body, BufferId, ControllerRole, DatapathId, ErrorKind, FlowMod, FlowModCommand,
    FlowModFlags, FlowRemovedReason, Match, MultipartReplyBody, MultipartRequest,
    MultipartRequestBody, PacketIn, PacketInReason, PacketOut, PortConfig, PortFeatures, PortMod,
    PortNo, PortReason, PortState, StartsSuffice,
};
use tapswitch_wire::NetHeader;

use crate::vlan::train;

#[test]
fn the_switch_connects_and_introduces_itself() {
    if !can_run() {
        return;
    }
    let (listener, endpoint) = listen();
    let lab = Lab::with(2, |config| config.controllers = vec![endpoint]);
    let mut controller = Controller::accept(&listener);
    assert_eq!(controller.features.datapath_id, DatapathId(0x42));
    assert_eq!((controller.features.n_tables, controller.features.n_buffers), (254, 0));
    let reply = controller.statistics(MultipartRequestBody::PortDesc);
    let MultipartReplyBody::PortDesc(ports) = reply else { panic!("{reply:?}") };
    let seen: Vec<_> = ports.iter().map(|p| (p.port_no.0, p.name.to_string(), p.state)).collect();
    let live = PortState::LIVE;
    assert_eq!(seen, [(1, "eth0".to_owned(), live), (2, "eth0".to_owned(), live)]);
    assert!(lab.switch.report().controllers[0].connected);
}

#[test]
fn a_rule_is_in_force_when_the_barrier_is_answered() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    for round in 0..20 {
        controller.apply(vec![wire(1, 2)]);
        let sent = frame(to, from, &[], 100 + round);
        a.send(&NetHeader::PLAIN, &sent);
        assert_eq!(b.receive(|f| f.starts_with(&to.0)).1, sent);
        controller.flow(FlowMod::new(FlowModCommand::Delete));
        let before = lab.switch.drops(1, "table_miss");
        a.send(&NetHeader::PLAIN, &sent);
        until("the frame is dropped", || lab.switch.drops(1, "table_miss") == before + 1);
    }
    assert_eq!(b.drain(|f| f.starts_with(&to.0)).len(), 0);
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1);
    let mut controller = lab.switch.controller();
    let asks = |body| Body::MultipartRequest(MultipartRequest::new(body));
    for _ in 0..50 {
        let bad = rule(1, Match::new(), vec![to_group(1)]);
        let sent = controller.send_all(vec![
            asks(MultipartRequestBody::Desc),
            Body::BarrierRequest,
            asks(MultipartRequestBody::Table),
            Body::FlowMod(bad),
            Body::BarrierRequest,
            Body::BarrierRequest,
            asks(MultipartRequestBody::Aggregate(FlowStatsRequest::default())),
        ]);
        let answered: Vec<_> = sent
            .iter()
            .map(|_| {
                controller.wait("an answer", |event| match event {
                    ControllerEvent::Reply { xid, .. } => Some(*xid),
                    ControllerEvent::Error { xid, .. } => Some(*xid),
                    _ => None,
                })
            })
            .collect();
        assert_eq!(answered, sent);
    }
}

#[test]
fn what_stands_behind_a_barrier_is_done_though_the_sender_goes() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1);
    for cookie in 1..=20 {
        let mut controller = lab.switch.controller();
        let flow = FlowMod { cookie, ..rule(1, in_port(1), vec![output(2)]) };
        controller.send_all(vec![
            Body::BarrierRequest,
            Body::FlowMod(FlowMod::new(FlowModCommand::Delete)),
            Body::BarrierRequest,
            Body::FlowMod(flow),
        ]);
        drop(controller);
        let mut other = lab.switch.controller();
        until("the rule is there", || cookies(&mut other) == [cookie]);
    }
}

#[test]
fn packets_go_to_the_controller_and_back() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    controller.flow(FlowMod { cookie: 9, ..all_to(PortNo::CONTROLLER) });
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let sent = frame(to, from, &[], 1000);
    a.send(&NetHeader::PLAIN, &sent);
    let packet = controller.packet_in(|packet| packet.data.starts_with(&to.0));
    assert_eq!((packet.reason, packet.cookie), (PacketInReason::NO_MATCH, 9));
    assert_eq!((packet.buffer_id, packet.total_len), (BufferId::NO_BUFFER, 1000));
    assert_eq!((packet.match_fields, &packet.data), (in_port(1), &sent));

    // To a port, through the tables, back to the ingress port, and to all other ports.
    let back = |in_port, actions, data| {
        let packet = PacketOut { in_port, ..PacketOut::new(data, actions) };
        Body::PacketOut(packet)
    };
    let reserved = |port| vec![Action::output(port)];
    let is_test = |f: &[u8]| f[12..14] == [0x88, 0xb5];
    controller.apply(vec![back(PortNo(1), vec![output(2)], sent.clone())]);
    assert_eq!(b.receive(is_test).1, sent);
    controller.apply(vec![back(PortNo(1), reserved(PortNo::IN_PORT), sent.clone())]);
    assert_eq!(a.receive(is_test).1, sent);
    controller.apply(vec![back(PortNo(1), reserved(PortNo::FLOOD), sent.clone())]);
    assert_eq!(b.receive(is_test).1, sent);
    controller.apply(vec![wire(2, 1), back(PortNo(2), reserved(PortNo::TABLE), sent.clone())]);
    assert_eq!(a.receive(is_test).1, sent);
    controller.apply(vec![back(PortNo::CONTROLLER, vec![output(1), output(2)], sent.clone())]);
    assert_eq!((a.receive(is_test).1, b.receive(is_test).1), (sent.clone(), sent));
}

/// A rule that sends frames from port 1 to the controller, and asks for so many bytes.
fn show(max_len: u16) -> FlowMod {
    rule(5, in_port(1), vec![Action::Output { port: PortNo::CONTROLLER, max_len }])
}

/// As a learning switch does with the default length of its library. Nothing is buffered, so the
/// data is all that there is (OpenFlow 1.3.5 §7.4.1).
#[test]
fn what_the_controller_sends_back_is_what_came_whatever_length_it_asked_for() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let is_test = |frame: &[u8]| frame.starts_with(&to.0);
    let mut there_and_back = || {
        let packet = controller.packet_in(|packet| is_test(&packet.data));
        assert_eq!(packet.buffer_id, BufferId::NO_BUFFER);
        assert_eq!(usize::from(packet.total_len), packet.data.len());
        controller.apply(vec![packet_out(packet.data.clone(), vec![output(2)])]);
        let (_, arrived) = b.receive(is_test);
        assert_eq!(arrived, packet.data);
        arrived
    };
    let sent = frame(to, from, &[], 1514);
    let (meta, train) = train(to, from, &[], 1460);
    for max_len in [0, 64, 0xffe5] {
        lab.switch.controller().flow(show(max_len));
        a.send(&NetHeader::PLAIN, &sent);
        assert_eq!(there_and_back(), sent, "max_len {max_len}");
        a.send(&meta, &train);
        let mut payload = Vec::new();
        while payload.len() < train.len() - 54 {
            payload.extend_from_slice(&there_and_back()[54..]);
        }
        assert_eq!(payload, train[54..], "max_len {max_len}, a train in packets");
    }
}

/// Our controller does: it wants hosts' addresses and something to show.
#[test]
fn a_controller_that_only_looks_gets_the_start_that_it_asked_for() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(1);
    let mut controller = lab.switch.controller();
    controller
        .apply(vec![Body::Experimenter(StartsSuffice.experimenter()), Body::FlowMod(show(60))]);
    let from = lab.host_mut(1).mac();
    let capture = Capture::open(lab.host(1));
    let sent = frame(from, from, &[], 1000);
    let is_test = |packet: &PacketIn| packet.data.starts_with(&from.0);
    capture.send(&NetHeader::PLAIN, &sent);
    let packet = controller.packet_in(is_test);
    assert_eq!((packet.total_len, &packet.data[..]), (1000, &sent[..60]));
    assert_eq!(packet.reason, PacketInReason::ACTION);
    let (meta, train) = train(from, from, &[], 1460);
    capture.send(&meta, &train);
    capture.send(&NetHeader::PLAIN, &sent);
    let lens = [(); 2].map(|()| controller.packet_in(is_test).total_len);
    assert_eq!(lens, [1514, 1000], "one packet of the train");

    // Another controller that says nothing gets what it can send back.
    let mut other = lab.switch.controller();
    // The switch knows that it listens.
    other.barrier();
    capture.send(&NetHeader::PLAIN, &sent);
    assert_eq!(other.packet_in(is_test).data, sent);
}

#[test]
fn an_idle_rule_goes_and_the_controller_hears_of_it() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let flags = FlowModFlags::SEND_FLOW_REM;
    let dies =
        FlowMod { idle_timeout: 1, cookie: 7, flags, ..rule(9, in_port(1), vec![output(2)]) };
    controller.flow(dies);
    Capture::open(lab.host(1)).send(&NetHeader::PLAIN, &frame(to, from, &[], 500));
    let gone = controller.flow_removed();
    assert_eq!((gone.cookie, gone.reason), (7, FlowRemovedReason::IDLE_TIMEOUT));
    assert!(gone.duration_sec >= 1, "{gone:?}");
    assert_eq!((gone.packet_count, gone.byte_count), (1, 500));
}

#[test]
fn rules_time_out_though_the_controller_never_ceases_to_ask() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1);
    let mut controller = lab.switch.controller();
    let flags = FlowModFlags::SEND_FLOW_REM;
    controller.flow(FlowMod { hard_timeout: 1, flags, ..rule(9, in_port(1), vec![]) });
    let deadline = deadline();
    let is_removed = |event: &ControllerEvent| match event {
        ControllerEvent::Message(message) => matches!(message.body, Body::FlowRemoved(_)),
        _ => false,
    };
    while !controller.events().any(is_removed) {
        assert!(Instant::now() < deadline, "the rule stays for as long as somebody asks");
        controller.barrier();
    }
}

#[test]
fn links_that_change_are_told() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    let (down, live) = (PortState::LINK_DOWN, PortState::LIVE);
    let two = lab.host_mut(2);
    two.netlink.set_down("eth0").unwrap();
    let status = controller.port_status(|status| status.desc.state == down);
    assert_eq!((status.reason, status.desc.port_no), (PortReason::MODIFY, PortNo(2)));
    two.netlink.set_up("eth0").unwrap();
    let status = controller.port_status(|status| status.desc.state == live);
    assert_eq!((status.reason, status.desc.port_no), (PortReason::MODIFY, PortNo(2)));
    two.netlink.delete("eth0").unwrap();
    let status = controller.port_status(|status| status.desc.state == down);
    assert_eq!((status.reason, status.desc.port_no), (PortReason::MODIFY, PortNo(2)));
    lab.wait_for_state(2, "gone");
    assert_eq!(lab.switch.port(1).state, "up");
}

#[test]
fn a_port_can_be_switched_off_and_on() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    controller.apply(join(1, 2));
    ping(lab.host(1), lab.host(2));
    let reply = controller.statistics(MultipartRequestBody::PortDesc);
    let MultipartReplyBody::PortDesc(ports) = reply else { panic!("{reply:?}") };
    let (down, advertise) = (PortConfig::PORT_DOWN, PortFeatures::empty());
    let change = |config| {
        let (port_no, hw_addr) = (PortNo(2), ports[1].hw_addr);
        Body::PortMod(PortMod { port_no, hw_addr, config, mask: down, advertise })
    };
    controller.apply(vec![change(down)]);
    let status = controller.port_status(|status| status.desc.port_no == PortNo(2));
    assert_eq!(status.desc.config, down);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    Capture::open(lab.host(1)).send(&NetHeader::PLAIN, &frame(to, from, &[], 100));
    until("the drop is counted", || lab.switch.drops(2, "port_down") == 1);
    assert_eq!(lab.switch.port(2).state, "disabled");
    controller.apply(vec![change(PortConfig::empty())]);
    ping(lab.host(1), lab.host(2));
}

#[test]
fn one_master_and_a_slave() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let (mut first, mut second) = (lab.switch.controller(), lab.switch.controller());
    assert_eq!(first.role(ControllerRole::NoChange, 0), ControllerRole::Equal);
    assert_eq!(first.role(ControllerRole::Master, 1), ControllerRole::Master);
    assert_eq!(second.role(ControllerRole::Slave, 1), ControllerRole::Slave);
    let kind = second.refused(wire(1, 2));
    assert_eq!(kind, ErrorKind::OFPBRC_IS_SLAVE);
    assert_eq!(cookies(&mut second), [0; 0], "a slave may look");

    assert_eq!(second.role(ControllerRole::Master, 2), ControllerRole::Master);
    assert_eq!(first.role(ControllerRole::NoChange, 0), ControllerRole::Slave);
    assert_eq!(first.refused(wire(1, 2)), ErrorKind::OFPBRC_IS_SLAVE);
    let stale = tapswitch_openflow::RoleMessage { role: ControllerRole::Master, generation_id: 1 };
    let kind = first.refused(Body::RoleRequest(stale));
    assert_eq!(kind, ErrorKind::OFPRRFC_STALE);

    second.flow(all_to(PortNo::CONTROLLER));
    let from = lab.host_mut(1).mac();
    Capture::open(lab.host(1)).send(&NetHeader::PLAIN, &frame(from, from, &[], 100));
    second.packet_in(|packet| packet.data.starts_with(&from.0));
    first.barrier();
    let to_slave = first.events().filter(|event| match event {
        ControllerEvent::Message(message) => matches!(message.body, Body::PacketIn(_)),
        _ => false,
    });
    assert_eq!(to_slave.count(), 0, "a slave gets no packets");
}

#[test]
fn frames_that_nobody_listens_to_are_counted() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(1);
    // A peer that connects and configures nothing is a tool that wants no packets.
    let stream = std::net::TcpStream::connect(lab.switch.address()).unwrap();
    let mut tool = Controller::over(stream);
    tool.flow(all_to(PortNo::CONTROLLER));
    let from = lab.host_mut(1).mac();
    let a = Capture::open(lab.host(1));
    a.send(&NetHeader::PLAIN, &frame(from, from, &[], 100));
    until("the frame is counted", || lab.switch.drops(1, "no_controller") == 1);
    tool.configure();
    tool.barrier();
    a.send(&NetHeader::PLAIN, &frame(from, from, &[], 101));
    assert_eq!(tool.packet_in(|_| true).total_len, 101);
    assert_eq!(tool.role(ControllerRole::Slave, 0), ControllerRole::Slave);
    tool.barrier();
    a.send(&NetHeader::PLAIN, &frame(from, from, &[], 102));
    until("the frame is counted", || lab.switch.drops(1, "no_controller") == 2);
}

#[test]
fn malformed_messages_are_answered_and_the_connection_goes_on() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1);
    let mut controller = lab.switch.controller();
    let cases: [(&[u8], ErrorKind); 5] = [
        // An invalid version, type and multipart type; a truncated flow-mod and packet-out.
        (&[9, 10, 0, 8, 0, 0, 0, 101], ErrorKind::OFPBRC_BAD_VERSION),
        (&[4, 99, 0, 8, 0, 0, 0, 102], ErrorKind::OFPBRC_BAD_TYPE),
        (&[4, 18, 0, 16, 0, 0, 0, 103, 0x77, 0, 0, 0, 0, 0, 0, 0], ErrorKind::OFPBRC_BAD_MULTIPART),
        (&[4, 14, 0, 16, 0, 0, 0, 104, 0, 0, 0, 0, 0, 0, 0, 0], ErrorKind::OFPBRC_BAD_LEN),
        (&[4, 13, 0, 12, 0, 0, 0, 105, 0, 0, 0, 0], ErrorKind::OFPBRC_BAD_LEN),
    ];
    for (bytes, kind) in cases {
        controller.send_bytes(bytes);
        assert_eq!(controller.error_for(bytes[7].into()), kind, "{bytes:?}");
    }
    let sent = FlowMod { buffer_id: BufferId(5), ..rule(1, Match::new(), vec![]) };
    let xid = controller.send(Body::FlowMod(sent));
    let quoted = controller.wait("an error", |event| match event {
        ControllerEvent::Error { xid: of, error } if *of == xid => Some(error.clone()),
        _ => None,
    });
    assert_eq!(quoted.kind, ErrorKind::OFPBRC_BUFFER_UNKNOWN);
    assert_eq!(quoted.data[..8], [4, 14, 0, 64, 0, 0, 0, u8::try_from(xid).unwrap()]);
    controller.barrier();
}

fn cookies(controller: &mut Controller) -> Vec<u64> {
    let request = MultipartRequestBody::Flow(FlowStatsRequest::default());
    match controller.statistics(request) {
        MultipartReplyBody::Flow(flows) => flows.iter().map(|flow| flow.cookie).collect(),
        other => panic!("{other:?}"),
    }
}
