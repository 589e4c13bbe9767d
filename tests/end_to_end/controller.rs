//! Controller and switch lose each other, and strangers connect to the controller.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::*;
use crate::taps::{assert_run, assert_whole};

#[test]
fn garbage_on_the_controllers_port_disturbs_nobody() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    let stream = Stream::new(lab.host(1), lab.host(2));
    let flow = lab.flow(&stream, 1, 2);
    let mut strangers = Vec::new();
    for round in 0..20_u8 {
        for bytes in garbage(round) {
            let mut stranger = connect(&lab);
            // The controller may close the connection before it has read everything.
            let _ = stranger.write_all(&bytes);
            strangers.push(stranger);
        }
    }
    let mut monitor = Capture::open(lab.host(3));
    lab.add("all", ALL);
    let count = flow.finish_after(50);
    assert_run(&monitor.copies(&stream, count));
    let switches = lab.ask_controller(&["show", "switches"]).json();
    assert_eq!(switches.as_array().unwrap().len(), 1, "{switches}");
    assert_eq!(switches[0]["is_connected"], true, "{switches}");
    let log = lab.controller.log();
    assert!(!log.contains("panicked") && !log.contains("disconnected"), "{log}");
}

#[test]
fn a_switch_that_returns_gets_its_taps_back() {
    assert_returns(Peer::Tapswitch);
}

#[test]
fn open_vswitch_gets_its_taps_back_too() {
    assert_returns(Peer::OpenVswitch);
}

#[test]
fn a_controller_that_is_restarted_takes_over_what_its_predecessor_left() {
    assert_taken_over(Peer::Tapswitch);
}

#[test]
fn it_does_so_on_open_vswitch_too() {
    assert_taken_over(Peer::OpenVswitch);
}

#[test]
fn a_switch_does_without_a_controller_until_there_is_one() {
    if !can_run(&["ping"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let hosts = [1, 2].map(Host::new);
    let sockets = ["s", "c"].map(|name| directory.path().join(name).display().to_string());
    let ports =
        hosts.each_ref().map(|host| format!("{0}=tap:t{0},netns={1}", host.number, host.name()));
    let args = ["switch", "--controller", CONTROLLER, "--fail-mode", "standalone"];
    let more = ["--socket", &sockets[0], "--port", &ports[0], "--port", &ports[1]];
    let switch = Daemon::tapswitch(&room, directory.path(), &[&args[..], &more].concat());
    for host in &hosts {
        until("the device is there", || host.netlink().link(&host.interface).is_ok());
        host.configure();
    }
    hosts[0].ping(hosts[1].ip());
    let show = || tapswitch(&["show", "switch", "--json", "--socket", &sockets[0]]).json();
    assert_eq!(show()["standalone"], true);
    assert_eq!(show()["controllers"][0]["connected"], false);

    let args = ["controller", "--listen", CONTROLLER, "--store", "none", "--socket", &sockets[1]];
    let mut controller = Daemon::tapswitch(&room, directory.path(), &args);
    until("the switch connects", || show()["controllers"][0]["connected"] == true);
    until("its rules count now", || show()["standalone"] == false);
    hosts[0].ping(hosts[1].ip());

    controller.signal(Signal::TERM);
    assert_eq!(controller.wait().code(), Some(0));
    until("it does without again", || show()["standalone"] == true);
    hosts[1].ping(hosts[0].ip());
    drop(switch);
}

#[test]
fn a_switch_asks_for_its_controller_every_two_seconds_at_least() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let listener = room.enter(|| TcpListener::bind(address()).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let socket = directory.path().join("switch.sock").display().to_string();
    let args = ["switch", "--controller", CONTROLLER, "--socket", &socket];
    let _switch = Daemon::tapswitch(&room, directory.path(), &args);
    // Accepts and closes, each time.
    let accept = || eventually("another attempt", || listener.accept().ok()).0;
    drop(accept());
    for attempt in 0..6 {
        let since = Instant::now();
        drop(accept());
        // Two seconds, doubled for a busy machine; exponential backoff would have reached eight by
        // now.
        assert!(since.elapsed() < Duration::from_secs(4), "attempt {attempt} came late");
    }
}

/// A switch leaves and returns; its policy is in force again.
fn assert_returns(peer: Peer) {
    let Some(mut lab) = Lab::new(peer, Ends::Veths, 3) else { return };
    lab.introduce(&[1, 2]);
    lab.add("all", ALL);
    lab.stop_switch();
    until("the switch is missed", || lab.policy("all")["state"]["is"] == "partial");

    lab.start_switch();
    until("the policy is in force again", || lab.policy("all")["state"]["is"] == "active");
    assert_copied_once(&lab);
    lab.settle();
    conservation::policies_after_a_loss(|command| lab.ask_controller(command));
}

/// A controller is killed: the switch goes on. The next controller removes the rules of policies
/// that it does not have.
fn assert_taken_over(peer: Peer) {
    let Some(mut lab) = Lab::new(peer, Ends::Veths, 3) else { return };
    lab.introduce(&[1, 2]);
    let rules = lab.flows();
    lab.add("all", ALL);
    lab.controller.kill();
    assert_copied_once(&lab);

    lab.start_controller();
    lab.wait_for_switch();
    until("the TAP that nobody ordered is gone", || lab.groups().is_empty());
    until("the rules are those from before", || lab.flows() == rules);
    assert_eq!(lab.ask_controller(&["policy", "list"]).json(), serde_json::json!([]));

    lab.add("all", ALL);
    assert_copied_once(&lab);
    lab.assert_conserved();
}

/// The whole stream arrives at the monitor, each frame once.
fn assert_copied_once(lab: &Lab) {
    for (from, to) in [(1, 2), (2, 1)] {
        lab.host(from).ping(lab.host(to).ip());
    }
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let count = lab.flow(&stream, 1, 2).finish_after(40);
    assert_whole(&monitor.copies(&stream, count), count);
}

/// Bytes that no switch would send.
fn garbage(seed: u8) -> Vec<Vec<u8>> {
    let noise = (0..=u8::MAX).cycle().take(4096).map(|byte| byte.wrapping_mul(157) ^ seed);
    vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        noise.collect(),
        // OpenFlow 1.0's hello, and an incomplete one.
        vec![1, 0, 0, 8, 0, 0, 0, seed],
        vec![4, 0, 0, 16, 0, 0, 0, seed],
        // A message shorter than its header, one of an unknown type, and answers without a request.
        vec![4, 0, 0, 3, 0, 0, 0, seed],
        [[4, 0, 0, 8, 0, 0, 0, 1], [4, 200, 0, 8, 0, 0, 0, seed]].concat(),
        [[4, 0, 0, 8, 0, 0, 0, 1], [4, 6, 0, 8, 0, 0, 0, seed], [4, 21, 0, 8, 0, 0, 0, 9]].concat(),
    ]
}

fn connect(lab: &Lab) -> TcpStream {
    lab.room.enter(|| TcpStream::connect(address()).unwrap()).unwrap()
}

fn address() -> SocketAddr {
    CONTROLLER.strip_prefix("tcp:").unwrap().parse().unwrap()
}

/// All traffic between the first two hosts, to port 3.
const ALL: &[&str] = &[
    "--src-ip",
    "10.0.0.0/24",
    "--dst-ip",
    "10.0.0.2",
    "--direction",
    "forward",
    "--monitor",
    "3",
];
