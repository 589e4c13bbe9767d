//! `tapswitch run`: the shipped example works and stops cleanly; each broken file is reported with
//! the position and the remedy.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tapswitch_netlink::{Namespace, Netlink};
use tempfile::TempDir;

use crate::support::*;
use crate::taps::{assert_whole, copied, matched};

#[test]
fn the_example_runs_and_stops_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(mut example) = Example::start() else { return };
        let [web, db, watch] = &example.hosts;
        web.ping(db.ip());
        let policy = example.ask(&["policy", "show", "web-to-db"]);
        assert_eq!(policy["state"]["is"], "active", "{policy}");

        let mut monitor = Capture::open(watch);
        send_by_tcp(web, db, 1 << 20);
        until("both directions are copied", || {
            monitor.drain();
            let policy = example.ask(&["policy", "show", "web-to-db"]);
            matched(&policy) > 10 && matched(&policy) == copied(&policy)
        });
        let udp = Stream::new(web, db);
        Flow::start(&udp, web, db).finish_after(20);
        assert_eq!(monitor.numbers(&udp), [0_u32; 0], "the policy is about TCP");
        conservation::policies(|command| example.say(command));

        example.daemon.signal(signal);
        assert_eq!(example.daemon.wait().code(), Some(0), "{}", example.daemon.log());
        assert!(!example.socket.exists(), "the socket is gone");
        for host in &example.hosts {
            assert!(host.netlink().link(&host.interface).is_err(), "the device is gone");
        }
    }
}

#[test]
fn a_stopped_one_can_be_started_again_after_a_kill() {
    let Some(mut example) = Example::start() else { return };
    example.daemon.kill();
    assert!(example.socket.exists(), "nobody could remove it");
    example.restart();
    let [web, db, watch] = &example.hosts;
    web.ping(db.ip());
    let stream = Stream::new(web, db);
    let mut monitor = Capture::open(watch);
    example.ask(&["policy", "add", "udp", "--dst-port", "2000", "--monitor", "3"]);
    let count = Flow::start(&stream, web, db).finish_after(20);
    assert_whole(&monitor.copies(&stream, count), count);
}

#[test]
fn a_changed_file_is_told_when_others_are_read_again() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let (file, socket) = (directory.path().join("lab.toml"), directory.path().join("lab.sock"));
    let text = "[switch]\nport = [\"1=tap:t1\"]\n[controller]\nstore = \"none\"\n\
                rest = \"127.0.0.1:8653\"\n";
    fs::write(&file, text).unwrap();
    let (path, socket) = (file.display().to_string(), socket.display().to_string());
    let args = ["run", "-c", &path, "--socket", &socket];
    let daemon = Daemon::tapswitch(&room, directory.path(), &args);
    until("it runs", || daemon.log().contains("management socket"));
    fs::write(&file, text.replace("t1", "t2")).unwrap();
    daemon.signal(Signal::HUP);
    until("it tells", || daemon.log().contains("lab.toml has changed"));
    tapswitch(&["show", "ports", "--socket", &socket]).well();
}

#[test]
fn what_nohup_started_outlives_its_terminal() {
    if !can_run(&["nohup"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let socket = directory.path().join("s.sock").display().to_string();
    let mut command = room.command("nohup");
    command.arg(env!("CARGO_BIN_EXE_tapswitch"));
    command.args(["switch", "--port", "1=tap:t1", "--socket", &socket]);
    let mut daemon = Daemon::start(command, directory.path());
    until("it runs", || daemon.log().contains("management socket"));
    daemon.signal(Signal::HUP);
    for _ in 0..3 {
        tapswitch(&["show", "ports", "--socket", &socket]).well();
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert!(!daemon.log().contains("SIGHUP"), "{}", daemon.log());
}

/// A store that does not answer does not delay a stop.
#[test]
fn a_signal_is_heeded_while_it_starts() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = directory();
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let store = format!("etcd://{}/lab", silent.local_addr().unwrap());
        let socket = directory.path().join("c.sock").display().to_string();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tapswitch"));
        command.args(["controller", "--listen", "tcp:127.0.0.1:0", "--rest", "off"]);
        command.args(["--store", &store, "--socket", &socket]);
        let mut daemon = Daemon::start(command, directory.path());
        // It is now waiting for an answer.
        let _asks = silent.accept().unwrap();
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
        assert!(
            daemon.log().contains("stopping before everything has started"),
            "{}",
            daemon.log()
        );
    }
}

/// What is changed in the example, which part of it is reported, and words of the message.
const BROKEN: [(&str, &str, &str, &[&str]); 14] = [
    (
        "bridge = \"lab\"",
        "bridge = 7",
        "7",
        &["expected text; write it in quotes", "in: bridge = 7"],
    ),
    ("fail-mode", "fail-mood", "fail-mood", &["unknown field `fail-mood`", "`fail-mode`"]),
    ("= \"secure\"", "= \"safe\"", "\"safe\"", &["safe", "standalone", "secure"]),
    ("\"0x1\"", "\"0xg\"", "\"0xg\"", &["0xg", "expected decimal digits, or 0x"]),
    ("\"0x1\"", "0x", "0x", &["in: datapath-id = 0x"]),
    (
        "[\"tcp:127.0.0.1:6654\"]",
        "[\"udp:1\"]",
        "\"udp:1",
        &["switch.listen: 'udp:1' is not an endpoint", "tcp:ADDRESS"],
    ),
    ("1=tap:web0", "1=tub:web0", "\"1=tub:web0", &["expected tap, "]),
    (
        "2=tap:db0",
        "1=tap:db0",
        "\"1=tap:db0",
        &["switch.port: number 1 is already used by 1=tap:web0"],
    ),
    ("[[policy]]", "[policy]", "[policy]", &["double brackets, as in [[policy]]"]),
    ("\"tcp\"", "\"tpc\"", "\"tpc\"", &["tpc", "an IP protocol"]),
    ("monitor = \"watch0\"", "", "[[policy]]", &["missing field `monitor`"]),
    (
        "= \"watch0\"",
        "= \"m0\"",
        "monitor = \"m0\"",
        &["monitor 'm0' does not exist", "3 (watch0)"],
    ),
    ("[controller]", "[kontroller]", "kontroller", &["unknown field `kontroller`"]),
    ("[controller]\nlisten", "#\n#", "[[policy]]", &["add a [controller] section"]),
];

#[test]
fn a_broken_file_is_answered_with_its_place_and_what_was_expected() {
    let directory = directory();
    let path = directory.path().join("lab.toml");
    for (good, bad, blamed, words) in BROKEN {
        let text = example_text();
        assert!(text.contains(good), "'{good}' is in the example");
        let text = text.replacen(good, bad, 1);
        fs::write(&path, &text).unwrap();
        let said = run(&path);
        assert_eq!((said.code, &*said.out), (Some(1), ""), "{bad}: {}", said.err);
        let (line, column) = place(&text, blamed);
        let start = format!("tapswitch: {}:{line}:{column}: ", path.display());
        assert!(said.err.starts_with(&start), "{bad}: {start}\n{}", said.err);
        for word in words {
            assert!(said.err.contains(word), "{bad}: '{word}' is not in: {}", said.err);
        }
    }
}

/// Line and column of the reported text, from 1.
fn place(text: &str, blamed: &str) -> (usize, usize) {
    let is_code = |line: &&str| !line.starts_with('#');
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| is_code(line));
    lines.find_map(|(number, line)| Some((number, line.find(blamed)? + 1))).unwrap_or_default()
}

#[test]
fn a_missing_file_is_named() {
    run(Path::new("/nonexistent/lab.toml")).refused(&["/nonexistent/lab.toml", "No such file"]);
}

fn run(path: &Path) -> Said {
    tapswitch(&["--log", "off", "run", "-c", path.to_str().unwrap()])
}

fn example_text() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join("examples/tapswitch.toml")).unwrap()
}

/// The shipped example with unique names and namespaces, in a room of its own.
struct Example {
    daemon: Daemon,
    socket: PathBuf,
    hosts: [Host; 3],
    room: tapswitch_netlink::OwnedNamespace,
    directory: TempDir,
}

impl Example {
    fn start() -> Option<Self> {
        if !can_run(&["ping"]) {
            return None;
        }
        let (room, directory) = (room(), directory());
        let mut hosts = [1, 2, 3].map(Host::new);
        let bridge = format!("e2e{}", room.label().replace("e2e-", "-"));
        let mut text = example_text().replace("\"lab\"", &format!("\"{bridge}\""));
        for (host, name) in hosts.iter_mut().zip(["web", "db", "watch"]) {
            text = text.replace(&format!("netns={name}\""), &format!("netns={}\"", host.name()));
            host.interface = format!("{name}0");
        }
        fs::write(directory.path().join("lab.toml"), text).unwrap();
        let daemon = start(&room, directory.path());
        // The default path.
        let socket = Path::new("/run/tapswitch").join(bridge).with_extension("sock");
        let example = Self { daemon, socket, hosts, room, directory };
        example.configure();
        Some(example)
    }

    fn restart(&mut self) {
        self.daemon = start(&self.room, self.directory.path());
        self.configure();
    }

    /// Gives the hosts their addresses, as the example does.
    fn configure(&self) {
        for host in &self.hosts {
            let link = || Netlink::open(&host.namespace).unwrap().link(&host.interface);
            until("the device is there", || link().is_ok());
            host.configure();
        }
        until("the policy is in force", || {
            let said = self.say(&["policy", "show", "web-to-db"]);
            said.code == Some(0) && said.json()["state"]["is"] == "active"
        });
    }

    fn ask(&self, command: &[&str]) -> serde_json::Value {
        self.say(command).json()
    }

    fn say(&self, command: &[&str]) -> Said {
        tapswitch(&[command, &["--json", "--socket", self.socket.to_str().unwrap()]].concat())
    }
}

fn start(room: &Namespace, directory: &Path) -> Daemon {
    let path = directory.join("lab.toml");
    Daemon::tapswitch(room, directory, &["run", "-c", path.to_str().unwrap()])
}
