//! A switch with `vhost:` ports, and what runs in namespaces for tests with machines behind them.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tapswitch_netlink::{Namespace, OwnedNamespace};
use tempfile::TempDir;

use super::machine::{SINK_PORT, data};
use crate::support::*;

/// A switch, a directory for sockets, and the namespace in which it runs.
pub(super) struct Lab {
    switch: Option<Daemon>,
    pub(super) room: OwnedNamespace,
    pub(super) directory: TempDir,
}

impl Lab {
    /// Starts no switch yet.
    pub(super) fn new() -> Self {
        Self { switch: None, room: room(), directory: directory() }
    }

    /// The socket of a port.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.sock"))
    }

    /// Starts the switch and waits until it answers.
    pub(super) fn start_switch(&mut self, args: &[&str], ports: &[String]) {
        let socket = self.management();
        let ports = ports.iter().flat_map(|port| ["--port", port]);
        let args = ["switch", "--socket", &socket].into_iter().chain(args.iter().copied());
        let args: Vec<_> = args.chain(ports).collect();
        self.switch = Some(Daemon::tapswitch(&self.room, self.directory.path(), &args));
        until("the switch answers", || {
            let switch = self.switch.as_mut().unwrap();
            assert!(!switch.has_ended(), "{}", switch.log());
            tapswitch(&["show", "switch", "--socket", &socket]).code == Some(0)
        });
    }

    /// Stops the switch cleanly.
    pub(super) fn stop_switch(&mut self) {
        let mut switch = self.switch.take().unwrap();
        assert_eq!(switch.stop().code(), Some(0), "{}", switch.log());
    }

    /// Kills the switch.
    pub(super) fn kill_switch(&mut self) {
        self.switch.take().unwrap().kill();
    }

    /// The log of the switch.
    pub(super) fn log(&self) -> String {
        self.switch.as_ref().map_or_else(String::new, Daemon::log)
    }

    pub(super) fn show(&self, what: &str) -> Value {
        tapswitch(&["show", what, "--json", "--socket", &self.management()]).json()
    }

    /// The text output of `tapswitch show`.
    pub(super) fn show_text(&self, what: &str) -> String {
        tapswitch(&["show", what, "--socket", &self.management()]).well()
    }

    /// The report of a port.
    pub(super) fn port(&self, number: u8) -> Value {
        let (ports, number) = (self.show("ports"), number.to_string());
        let mut ports = ports.as_array().unwrap().iter();
        ports.find(|port| port["port"] == *number).unwrap().clone()
    }

    /// Waits until a port is in this state.
    pub(super) fn wait_for_state(&self, number: u8, state: &str) {
        until(&format!("port {number} is {state}"), || self.port(number)["state"] == state);
    }

    fn management(&self) -> String {
        self.directory.path().join("switch.socket").display().to_string()
    }
}

/// Counters of frames and bytes; a train is one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

impl Seen {
    /// What `port` counted in `direction`, `rx` or `tx`.
    pub(super) fn of(port: &Value, direction: &str) -> Self {
        let count = |what: &str| number(&port[direction][what]);
        Self { frames: count("frames"), bytes: count("bytes") }
    }

    /// Mean length of the frames since `before`.
    pub(super) fn mean_len_since(self, before: Self) -> u64 {
        (self.bytes - before.bytes) / (self.frames - before.frames).max(1)
    }
}

/// A host's end of connections: it compares what it receives with what was sent.
pub(super) struct Sink {
    /// Connections that brought all data unchanged.
    whole: Arc<AtomicU32>,
    /// Connections that brought anything else, of any length.
    broken: Arc<AtomicU32>,
}

impl Sink {
    /// Listens at all addresses of a namespace, until the process ends.
    pub(super) fn start(namespace: &Namespace) -> Self {
        let any = IpAddr::from([0, 0, 0, 0]);
        let listener = namespace.enter(|| TcpListener::bind((any, SINK_PORT)).unwrap()).unwrap();
        let sink = Self { whole: Arc::default(), broken: Arc::default() };
        let (whole, broken) = (sink.whole.clone(), sink.broken.clone());
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (whole, broken) = (whole.clone(), broken.clone());
                thread::spawn(move || receive(stream, &whole, &broken));
            }
        });
        sink
    }

    /// Number of connections that have brought all data so far; none has brought anything else.
    pub(super) fn whole(&self) -> u32 {
        assert_eq!(self.broken.load(Ordering::Relaxed), 0, "other bytes arrived");
        self.whole.load(Ordering::Relaxed)
    }

    /// Waits until `count` more connections have brought all data.
    pub(super) fn wait_for(&self, count: u32) {
        let goal = self.whole() + count;
        until("the machine's data", || self.whole() >= goal);
    }
}

/// Receives one connection. A connection of a killed machine may be short, but its data must be
/// right. The sender keeps its direction open while it waits for the answer.
fn receive(mut stream: TcpStream, whole: &AtomicU32, broken: &AtomicU32) {
    let (mut got, expected) = (Vec::new(), data());
    let is_timed = stream.set_read_timeout(Some(PATIENCE)).is_ok();
    let mut all = Read::by_ref(&mut stream).take(expected.len() as u64);
    let is_complete = is_timed && all.read_to_end(&mut got).is_ok() && got == expected;
    if is_complete {
        whole.fetch_add(1, Ordering::Relaxed);
    } else if !expected.starts_with(&got) {
        broken.fetch_add(1, Ordering::Relaxed);
    }
    let answer: &[u8] = if is_complete { b"same\n" } else { b"different\n" };
    // The peer may be gone.
    let _ = stream.write_all(answer);
}

/// Sends the data from a namespace to a machine, which must receive it unchanged.
pub(super) fn send_data(from: &Namespace, ip: &str) {
    let there = SocketAddr::new(ip.parse().unwrap(), SINK_PORT);
    let connect = || TcpStream::connect_timeout(&there, PATIENCE).ok();
    let stream = eventually("a connection", || from.enter(connect).unwrap());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut out = stream.try_clone().unwrap();
    out.write_all(&data()).unwrap();
    out.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    (&stream).read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "same\n", "what arrived at {ip}");
}

/// Continuous pings of a machine.
pub(super) struct Pings(Daemon);

impl Pings {
    pub(super) fn start(lab: &Lab, host: &Host, ip: &str) -> Self {
        let mut command = host.namespace.command("ping");
        command.args(["-D", "-n", "-i", "0.02", "-w", "300", ip]);
        Self(Daemon::start(command, lab.directory.path()))
    }

    /// Times of the replies, in seconds.
    fn times(&self) -> Vec<f64> {
        let time = |line: &str| {
            let (time, answer) = line.strip_prefix('[')?.split_once(']')?;
            answer.contains("time=").then(|| time.parse().ok())?
        };
        self.0.log().lines().filter_map(time).collect()
    }

    /// Waits for some more replies.
    pub(super) fn go_on(&self) {
        let goal = self.times().len() + 20;
        until("answers of the machine", || self.times().len() >= goal);
    }

    /// Stops; returns the longest time without a reply.
    pub(super) fn finish(self) -> Duration {
        let times = self.times();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_secs_f64(gaps.fold(0.0, f64::max))
    }
}

/// A vhost-user port.
pub(super) fn vhost(number: u8, socket: &Path, options: &str) -> String {
    format!("{number}=vhost:{}{options}", socket.display())
}
