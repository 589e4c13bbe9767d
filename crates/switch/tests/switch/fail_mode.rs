//! Tests of the switch's behaviour while no controller is connected, and of reconnecting.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::*;
use tapswitch_openflow::PortNo;
use tapswitch_switch::{Config, Endpoint, FailMode};

fn with_controller(endpoint: Endpoint, fail_mode: FailMode) -> impl FnOnce(&mut Config) {
    move |config| (config.controllers, config.fail_mode) = (vec![endpoint], fail_mode)
}

#[test]
fn a_lost_controller_is_connected_to_again() {
    if !can_run() {
        return;
    }
    let (listener, endpoint) = listen();
    let lab = Lab::with(1, with_controller(endpoint, FailMode::Secure));
    let is_connected = || lab.switch.report().controllers[0].connected;
    for _ in 0..3 {
        let controller = Controller::accept(&listener);
        until("it is connected", is_connected);
        drop(controller);
        until("it is not", || !is_connected());
    }
    // The port has no listener for a while.
    drop(listener);
    let mut listener = None;
    eventually("the address is free again", || {
        listener = std::net::TcpListener::bind(endpoint.address).ok();
        listener.as_ref().map(|listener| listener.set_nonblocking(true).unwrap())
    });
    Controller::accept(&listener.unwrap()).barrier();
}

#[test]
fn a_silent_peer_is_asked_whether_it_is_there_as_configured() {
    if !can_run() {
        return;
    }
    let echo_interval = Duration::from_millis(50);
    let switch = Running::start(Config { echo_interval, ..config(&[]) });
    let mut stream = TcpStream::connect(switch.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said[said.len() - 8..][..4], [4, 2, 0, 8], "an echo request is the last");
}

#[test]
fn secure_goes_on_by_the_rules() {
    if !can_run() {
        return;
    }
    let (listener, endpoint) = listen();
    let lab = Lab::with(3, with_controller(endpoint, FailMode::Secure));
    ping_fails_by(&lab, "table_miss");
    let mut controller = Controller::accept(&listener);
    controller.apply(join(1, 2));
    ping(lab.host(1), lab.host(2));
    drop(controller);
    until("it is gone", || !lab.switch.report().controllers[0].connected);
    assert!(!lab.switch.report().standalone);
    ping(lab.host(1), lab.host(2));
    tcp(lab.host(1), lab.host(2), 1_000_000);
    assert_eq!(lab.switch.port(3).tx.frames, 0);
    let mut controller = Controller::accept(&listener);
    controller.barrier();
    ping(lab.host(1), lab.host(2));
}

#[test]
fn what_rules_send_to_a_controller_that_is_away_is_dropped_by_name() {
    if !can_run() {
        return;
    }
    let (listener, endpoint) = listen();
    let lab = Lab::with(1, with_controller(endpoint, FailMode::Secure));
    let mut controller = Controller::accept(&listener);
    controller.flow(all_to(PortNo::CONTROLLER));
    drop(controller);
    until("it is gone", || !lab.switch.report().controllers[0].connected);
    let socket = udp(lab.host(1), lab.host(1).ip(), 0);
    socket.send_to(b"x", ("10.0.0.77", 9)).unwrap();
    until("its ARP request is dropped", || lab.switch.drops(1, "no_controller") > 0);
}

#[test]
fn standalone_forwards_while_the_controller_is_away() {
    if !can_run() {
        return;
    }
    let (listener, endpoint) = listen();
    let lab = Lab::with(3, with_controller(endpoint, FailMode::Standalone));
    assert!(lab.switch.report().standalone);
    ping(lab.host(1), lab.host(2));

    // With a controller, its rules apply: there are none at first.
    let mut controller = Controller::accept(&listener);
    controller.barrier();
    assert!(!lab.switch.report().standalone);
    ping_fails_by(&lab, "table_miss");
    controller.apply(join(1, 3));
    ping(lab.host(1), lab.host(3));
    ping_fails_by_port(&lab, 2, "table_miss");

    drop(controller);
    until("it stands alone", || lab.switch.report().standalone);
    ping(lab.host(1), lab.host(2));

    let mut controller = Controller::accept(&listener);
    controller.barrier();
    assert!(!lab.switch.report().standalone, "the rules are there again");
    ping(lab.host(1), lab.host(3));
    ping_fails_by_port(&lab, 2, "table_miss");
}

#[test]
fn one_of_two_controllers_is_enough() {
    if !can_run() {
        return;
    }
    let ((first, one), (second, two)) = (listen(), listen());
    let lab = Lab::with(1, |config| {
        config.controllers = vec![one, two];
        config.fail_mode = FailMode::Standalone;
    });
    let mut kept = Controller::accept(&second);
    kept.barrier();
    let dropped = Controller::accept(&first);
    until("both are connected", || {
        lab.switch.report().controllers.iter().all(|controller| controller.connected)
    });
    drop(dropped);
    until("one is gone", || !lab.switch.report().controllers[0].connected);
    kept.barrier();
    assert!(lab.switch.report().controllers[1].connected && !lab.switch.report().standalone);
}

#[test]
fn a_controller_that_speaks_another_language_is_left() {
    if !can_run() {
        return;
    }
    let (listener, endpoint) = listen();
    let _lab = Lab::with(1, with_controller(endpoint, FailMode::Secure));
    // OpenFlow 1.0, other protocols and silence are not valid; the next attempt may succeed.
    let answers: [&[u8]; 2] = [&[1, 0, 0, 8, 0, 0, 0, 1], b"HTTP/1.1 400 Bad Request\r\n\r\n"];
    for answer in answers {
        let mut stream = accept(&listener);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(answer).unwrap();
        let mut said = Vec::new();
        let end = stream.read_to_end(&mut said);
        assert!(end.is_ok() || !said.is_empty(), "{end:?}");
        assert_eq!(said[..2], [4, 0], "it says hello with the only version that it has");
    }
    drop(accept(&listener));
    Controller::accept(&listener).barrier();
}

/// Checks that a frame of host 1 is dropped for this reason.
fn ping_fails_by(lab: &Lab, reason: &str) {
    ping_fails_by_port(lab, 1, reason);
}

fn ping_fails_by_port(lab: &Lab, port: u8, reason: &str) {
    let before = lab.switch.drops(port.into(), reason);
    let socket = udp(lab.host(port), lab.host(port).ip(), 0);
    let to = if port == 1 { 2 } else { 1 };
    socket.send_to(b"x", (lab.host(to).ip(), 9)).unwrap();
    until("the drop is counted", || lab.switch.drops(port.into(), reason) > before);
}
