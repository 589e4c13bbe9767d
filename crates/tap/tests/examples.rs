//! The examples work as documented, and leave nothing behind.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tapswitch_netlink::{Namespace, die_with_parent};
use tapswitch_tap::EngineKind;

mod common;
use common::cable::kinds;
use common::raw::{NO_PI, TAP};
use common::{Host, PATIENCE, can_tap, knows_udp_trains, set_udp_segment, tcp_transfer, unique};

#[test]
fn echo_returns_datagrams_and_trains() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    for kind in kinds() {
        let engine = if kind == EngineKind::Uring { "uring" } else { "drain" };
        let mut host = Host::new();
        let example = Example::start(&host.namespace, "echo", &["echo0", engine]);
        exchange(&host.namespace, 1);
        let summary = example.stop();
        let frames = number_before(&summary, " frames");
        // A train is one frame.
        assert!((2..50).contains(&frames), "{engine}: {summary}");
        assert!(host.netlink.link("echo0").is_err());
    }
}

#[test]
fn async_echo_returns_datagrams_and_trains() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    let example = Example::start(&host.namespace, "async_echo", &["echo1"]);
    exchange(&host.namespace, 1);
    assert!(number_before(&example.stop(), " frames") >= 2);
    assert!(host.netlink.link("echo1").is_err());
}

#[test]
fn multi_queue_returns_each_flow_on_the_queue_of_the_flow() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let host = Host::new();
    let example = Example::start(&host.namespace, "multi_queue", &["echo2", "3"]);
    exchange(&host.namespace, 32);
    let summary = example.stop();
    let queues = summary.lines().filter(|line| line.starts_with("queue "));
    let frames = queues.map(|line| number_before(line, " frames")).collect::<Vec<_>>();
    assert_eq!(frames.len(), 3, "{summary}");
    assert!(frames.iter().sum::<u64>() >= 64, "{summary}");
    assert!(frames.iter().filter(|&&frames| frames > 0).count() > 1, "{summary}");
    assert_eq!(number_before(&summary, " frames on another queue"), 0, "{summary}");
}

#[test]
fn forward_passes_tcp_in_trains() {
    if !can_tap() {
        return;
    }
    let names = [unique("left"), unique("right")];
    let here = Namespace::current().unwrap();
    let example = Example::start(&here, "forward", &[&names[0], &names[1]]);
    let [left, right] = [&names[0], &names[1]].map(|name| Namespace::open(name).unwrap());
    let sent = (0..4 << 20).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>();
    let received = tcp_transfer(&left, &right, "10.99.0.2".parse().unwrap(), &sent);
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    drop((left, right));
    let summary = example.stop();
    assert!(number_before(&summary, " of them trains") > 10, "{summary}");
    assert!(number_before(&summary, " wire packets") > 2800, "{summary}");
    assert!(!names.iter().any(|name| Namespace::exists(name)));
}

#[test]
fn echo_opens_a_device_that_was_prepared() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    host.leave_behind("echo4", TAP | NO_PI, |_| ());
    let example = Example::start(&host.namespace, "echo", &["echo4"]);
    exchange(&host.namespace, 1);
    assert!(number_before(&example.stop(), " frames") >= 2);
    assert!(host.netlink.link("echo4").is_ok(), "it stays");
}

#[test]
fn an_example_ends_by_itself_when_its_time_is_over() {
    if !can_tap() {
        return;
    }
    for name in ["echo", "async_echo", "multi_queue"] {
        let host = Host::new();
        let example = Example::start(&host.namespace, name, &["tap0", "--seconds", "0"]);
        assert!(example.end().contains(" frames"), "{name}");
    }
}

#[test]
fn an_example_that_fails_says_why_in_words_for_people() {
    for (name, args, words) in [
        ("echo", &["sixteen-bytes-xy"][..], "error: interface name \"sixteen-bytes-xy\" is longer"),
        ("echo", &["tap0", "turbo"], "error: turbo: no such engine; drain, uring or vhost"),
        ("async_echo", &["a/b"], "error: interface name \"a/b\" contains"),
        ("multi_queue", &["tap0", "many"], "error: QUEUES many: invalid digit"),
        ("forward", &["--seconds", "soon"], "error: --seconds soon: invalid digit"),
    ] {
        let output = Command::new(path_of(name)).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.starts_with(words), "{name}: {said}");
    }
}

/// Lets each of `flows` sockets send a datagram and a train to the station behind the device, and
/// receive them back from there.
fn exchange(namespace: &Namespace, flows: u16) {
    for port in 7000..7000 + flows {
        let bind = || UdpSocket::bind(("10.99.0.1", port)).unwrap();
        let socket = namespace.enter(bind).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(("10.99.0.2", port)).unwrap();
        socket.send(b"hello").unwrap();
        let mut buf = [0; 2000];
        let mut next = || socket.recv(&mut buf).map(|len| buf[..len].to_vec()).unwrap();
        assert_eq!(next(), b"hello");
        set_udp_segment(&socket, 1000);
        socket.send(&[7; 2500]).unwrap();
        assert_eq!([(); 3].map(|()| next().len()), [1000, 1000, 500]);
    }
}

/// A running example.
struct Example {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Example {
    /// Starts it, and waits until it reports that it is up.
    fn start(namespace: &Namespace, name: &str, args: &[&str]) -> Self {
        let mut command = namespace.command(path_of(name));
        die_with_parent(command.args(args).stdout(Stdio::piped()));
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.contains(" up"), "{name}: {line:?}");
        Self { child, output }
    }

    /// Ends it as Ctrl-C does; returns the rest of its output.
    fn stop(self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.end()
    }

    /// Waits for its end.
    fn end(mut self) -> String {
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Directory in which Cargo builds examples: beside that of the tests.
fn path_of(example: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path =
        tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(example);
    assert!(path.exists(), "{}: build it by `cargo build --examples`", path.display());
    path
}

/// The number before `what`.
fn number_before(text: &str, what: &str) -> u64 {
    let before = text.split(what).next().unwrap();
    before.rsplit(|byte: char| !byte.is_ascii_digit()).next().unwrap().parse().unwrap()
}
