//! Tests that strangers at the OpenFlow listener do not affect others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::common::*;
use tapswitch_openflow::{
    Body, FlowMod, FlowModCommand, Match, MultipartReplyBody, MultipartRequestBody, Oxm, PortNo,
};

const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];

/// Sends bytes and reads until the switch closes the connection or answers the last echo.
fn feed(lab: &Lab, bytes: &[u8]) {
    let mut stream = TcpStream::connect(lab.switch.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The switch may close the connection meanwhile.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the switch neither answers nor hangs up: {error}"),
    }
}

#[test]
fn any_bytes_are_survived() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    controller.apply(join(1, 2));
    let noise = noise(100_000);
    for (round, chunk) in noise.chunks(997).enumerate() {
        // Noise alone, after a hello, and as the body of each type of message.
        feed(&lab, chunk);
        feed(&lab, &[&HELLO, chunk].concat());
        let kind = u8::try_from(round % 32).unwrap();
        let [high, low] = (u16::try_from(chunk.len()).unwrap() + 8).to_be_bytes();
        let header = [4, kind, high, low, 0, 0, 0, 7];
        feed(&lab, &[&HELLO, &header, chunk, &HELLO].concat());
    }
    controller.barrier();
    ping(lab.host(1), lab.host(2));
}

#[test]
fn connections_that_say_nothing_do_not_matter() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    let open = || TcpStream::connect(lab.switch.address()).unwrap();
    let silent: Vec<_> = (0..100).map(|_| open()).collect();
    let mut half = open();
    half.write_all(&HELLO[..5]).unwrap();
    let mut message = open();
    message.write_all(&[&HELLO[..], &[4, 14, 0xff, 0xff, 0, 0, 0, 1]].concat()).unwrap();
    lab.switch.controller().apply(join(1, 2));
    ping(lab.host(1), lab.host(2));
    drop((silent, half, message));
    lab.switch.controller().barrier();
}

#[test]
fn connections_come_and_go_while_others_are_busy() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1);
    let done = Done::default();
    thread::scope(|scope| {
        for table in 1..=2 {
            let (lab, done) = (&lab, &done);
            scope.spawn(move || {
                let mut busy = lab.switch.controller();
                while !done.is_set() {
                    let table_id = tapswitch_openflow::TableId(table);
                    let flow = |port| FlowMod { table_id, ..rule(1, in_port(port), vec![]) };
                    let changes = (1..=500).map(|port| Body::FlowMod(flow(port))).collect();
                    busy.apply(changes);
                }
            });
        }
        // Each of these is answered although the server is never idle.
        for cookie in 1..=100 {
            let mut controller = lab.switch.controller();
            let added = FlowMod { cookie, ..rule(1, Match::new(), vec![]) };
            controller.flow(added);
            assert_eq!(cookies_of_table_0(&mut controller), [cookie]);
            assert!(lab.switch.report().controllers.is_empty(), "questions are answered too");
        }
        done.set();
    });
}

#[test]
fn a_flood_of_rules_does_not_disturb_the_traffic() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    let mut controller = lab.switch.controller();
    controller.apply(join(1, 2));
    let stream = Stream::start(lab.host(1), lab.host(2));
    for round in 0..20 {
        let address = |low| std::net::Ipv4Addr::new(10, 9, round, low);
        let matching = |low| {
            let ip = Match::new().with(Oxm::EthType(tapswitch_wire::EtherType::IPV4));
            ip.with(Oxm::Ipv4Dst(address(low).into()))
        };
        let rules = (0..200).map(|low| Body::FlowMod(rule(500, matching(low), vec![])));
        controller.apply(rules.collect());
    }
    assert!(stream.finish() > 0);
    let command = FlowModCommand::Delete;
    let ip = Match::new().with(Oxm::EthType(tapswitch_wire::EtherType::IPV4));
    controller.flow(FlowMod { command, match_fields: ip, ..FlowMod::new(command) });
    ping(lab.host(1), lab.host(2));
    assert!(lab.switch.ports().iter().all(|port| port.drops.is_empty()));
}

#[test]
fn a_port_that_floods_the_controller_does_not_keep_others_from_it() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(3);
    let mut controller = lab.switch.controller();
    controller.flow(all_to(PortNo::CONTROLLER));
    let done = Done::default();
    let quiet = udp(lab.host(3), lab.host(3).ip(), 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = udp(lab.host(1), lab.host(1).ip(), 0);
            while !done.is_set() {
                socket.send_to(&[0; 1000], (lab.host(2).ip(), 9)).unwrap();
            }
        });
        // The controller does not read meanwhile.
        until("no room", || lab.switch.drops(1, "controller_queue_full") > 0);
        for _ in 0..50 {
            quiet.send_to(&[0; 500], (lab.host(2).ip(), 9)).unwrap();
            controller.packet_in(|packet| packet.total_len == 542);
        }
        controller.packet_in(|packet| packet.total_len > 1000);
        controller.barrier();
        assert_eq!(lab.switch.report().name, "br0");
        assert_eq!(lab.switch.drops(3, "controller_queue_full"), 0);
        done.set();
    });
}

/// Ends a loop on another thread: on request, or when this thread fails.
struct Done {
    is_set: AtomicBool,
    deadline: Instant,
}

impl Default for Done {
    fn default() -> Self {
        // Long enough for everything that is waited for meanwhile.
        Self { is_set: AtomicBool::new(false), deadline: deadline() + PATIENCE }
    }
}

impl Done {
    fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed) || Instant::now() > self.deadline
    }
}

fn cookies_of_table_0(controller: &mut Controller) -> Vec<u64> {
    let table_id = tapswitch_openflow::TableId(0);
    let request = tapswitch_openflow::multipart::FlowStatsRequest {
        table_id,
        ..tapswitch_openflow::multipart::FlowStatsRequest::default()
    };
    match controller.statistics(MultipartRequestBody::Flow(request)) {
        MultipartReplyBody::Flow(flows) => flows.iter().map(|flow| flow.cookie).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn connections_have_a_bound_and_those_that_say_nothing_make_room() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1);
    let connect = || TcpStream::connect(lab.switch.address()).unwrap();
    // More than the limit. Their eviction shows only in that others are accepted.
    let _silent: Vec<_> = (0..200).map(|_| connect()).collect();
    let mut tools: Vec<_> = (0..128).map(|_| Controller::over(connect())).collect();
    let mut one_more = connect();
    one_more.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = Vec::new();
    let ended = one_more.read_to_end(&mut said);
    assert!(said.is_empty(), "all places are taken, and it is told nothing: {said:?} {ended:?}");
    tools.iter_mut().for_each(Controller::barrier);
    drop(tools.pop());
    eventually("there is room again", || {
        let mut stream = connect();
        let mut hello = [0; 8];
        stream.read_exact(&mut hello).ok()
    });
}
