//! Faucet from PyPI as the controller of our switch: hosts reach each other, and both of its kinds
//! of mirrors make copies.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use tapswitch_netlink::OwnedNamespace;

use crate::support::*;

#[test]
fn faucet_joins_hosts_and_mirrors() {
    if !can_run(&["ping", "python3"]) {
        return;
    }
    let home = match install() {
        Ok(home) => home,
        Err(reason) => {
            skip(&reason);
            return;
        }
    };
    let (room, directory) = (room(), directory());
    let faucet = Faucet::start(&home, &room, directory.path());
    let hosts = [1, 2, 3, 4].map(Host::new);
    let switch = start_switch(&room, directory.path(), &hosts);
    hosts
        .iter()
        .for_each(|host| until("the device", || host.netlink().link(&host.interface).is_ok()));
    hosts.iter().for_each(Host::configure);
    let [one, two, by_acl, by_port] = &hosts;
    one.ping(two.ip());
    two.ping(one.ip());
    faucet.knows_a_host_of_each_port(&[1, 2]);

    let watched = Stream::new(one, two);
    let other = Stream::new(one, two).ports(1000, 2001);
    let back = Stream::new(two, one);
    let [mut at_three, mut at_four] = [by_acl, by_port].map(Capture::open);
    let counts = [(&watched, one, two), (&other, one, two), (&back, two, one)]
        .map(|(stream, from, to)| Flow::start(stream, from, to).finish_after(100));
    let at_three = at_three.until_last(&watched, counts[0]);
    let at_four = at_four.until_last(&back, counts[2]);
    let all = |at: usize| (0..counts[at]).collect::<Vec<_>>();
    assert_eq!(watched.numbers(&at_three), all(0), "what its ACL mirrors");
    assert!(other.numbers(&at_three).is_empty() && back.numbers(&at_three).is_empty());
    for (at, stream) in [&watched, &other, &back].into_iter().enumerate() {
        assert_eq!(stream.numbers(&at_four), all(at), "what its port mirrors");
    }
    send_by_tcp(one, two, 3 << 20);
    send_by_tcp(two, one, 3 << 20);

    assert_eq!(faucet.metric("of_errors_total"), "0.0", "our switch refused nothing");
    assert_eq!(faucet.metric("dp_status"), "1.0");
    faucet.assert_content();
    drop(switch);
}

/// A running Faucet, stopped on drop.
struct Faucet {
    _daemon: Daemon,
    room: tapswitch_netlink::Namespace,
    directory: PathBuf,
}

impl Faucet {
    /// Starts it, and waits until it accepts switches.
    fn start(home: &Path, room: &OwnedNamespace, directory: &Path) -> Self {
        let bin = home.join("venv/bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = room.command(bin.join("faucet").to_str().unwrap());
        command.args(["--ryu-ofp-listen-host=127.0.0.1", "--ryu-ofp-tcp-listen-port=6653"]);
        command.env("PATH", path).current_dir(directory);
        let files = [
            ("FAUCET_CONFIG", "faucet.yaml"),
            ("FAUCET_LOG", "faucet.log"),
            ("FAUCET_EXCEPTION_LOG", "exceptions.log"),
        ];
        command.envs(files.map(|(name, file)| (name, directory.join(file))));
        command.env("FAUCET_EVENT_SOCK", "0").env("FAUCET_PROMETHEUS_PORT", "9302");
        command.env("FAUCET_PROMETHEUS_ADDR", "127.0.0.1");
        fs::write(directory.join("faucet.yaml"), CONFIG).unwrap();
        let mut daemon = Daemon::start(command, directory);
        until("Faucet listens", || {
            assert!(!daemon.has_ended(), "{}", daemon.log());
            room.enter(|| TcpStream::connect("127.0.0.1:6653").is_ok()).unwrap()
        });
        let room: &tapswitch_netlink::Namespace = room;
        Self { _daemon: daemon, room: room.clone(), directory: directory.to_owned() }
    }

    /// Waits until it has learned a host behind each of these ports.
    fn knows_a_host_of_each_port(&self, ports: &[u8]) {
        for port in ports {
            until("Faucet learns the host", || {
                self.log().contains(&format!("L2 learned on Port {port} "))
            });
        }
    }

    /// Its metric with this name, for our switch.
    fn metric(&self, name: &str) -> String {
        let ask = || {
            let mut stream = TcpStream::connect("127.0.0.1:9302").unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let text = self.room.enter(ask).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("faucet.log")).unwrap_or_default()
    }

    /// Checks that it has logged no problem.
    fn assert_content(&self) {
        let log = self.log();
        let is_trouble = |line: &&str| line.contains(" ERROR ") || line.contains(" WARNING ");
        // It logs this whenever a switch connects, Open vSwitch too.
        let mut troubles =
            log.lines().filter(is_trouble).filter(|line| !line.ends_with(": DP not up"));
        assert_eq!(troubles.next(), None, "{log}");
        let exceptions = fs::read_to_string(self.directory.join("exceptions.log"));
        assert_eq!(exceptions.unwrap_or_default(), "");
    }
}

/// Our switch, with a tap device for each host.
fn start_switch(room: &OwnedNamespace, directory: &Path, hosts: &[Host]) -> Daemon {
    let socket = directory.join("switch.sock").display().to_string();
    let fixed = ["switch", "--datapath-id", "0x1", "--controller", CONTROLLER];
    let more = ["--fail-mode", "secure", "--socket", &socket];
    let port = |host: &Host| format!("{0}=tap:t{0},netns={1}", host.number, host.name());
    let ports: Vec<_> = hosts.iter().map(port).collect();
    let ports = ports.iter().flat_map(|port| ["--port", port]);
    let args: Vec<_> = fixed.into_iter().chain(more).chain(ports).collect();
    Daemon::tapswitch(room, directory, &args)
}

/// Two hosts in a VLAN; port 4 mirrors the second one, and port 3 gets what an ACL selects.
const CONFIG: &str = "vlans:
    office: {vid: 100}
acls:
    watched:
        - rule: {dl_type: 0x0800, ip_proto: 17, udp_dst: 2000, actions: {mirror: 3, allow: 1}}
        - rule: {actions: {allow: 1}}
dps:
    sw1:
        dp_id: 0x1
        hardware: Open vSwitch
        interfaces:
            1: {native_vlan: office, acls_in: [watched]}
            2: {native_vlan: office}
            3: {output_only: true}
            4: {output_only: true, mirror: 2}
";

/// Where Faucet is installed, once for all runs.
fn install() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faucet");
    let lock = fs::create_dir_all(&home).and_then(|()| fs::File::open(&home));
    let lock = lock.map_err(|error| error.to_string())?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let done = home.join("done");
    if done.exists() {
        return Ok(home);
    }
    let python = home.join("venv/bin/python");
    let python = python.to_str().ok_or("an odd path")?;
    let pip = [python, "-m", "pip", "--quiet", "--timeout=20", "--retries=2", "install", FAUCET];
    execute(&home, &["python3", "-m", "venv", "--clear", "venv"])?;
    execute(&home, &pip)?;
    fs::write(&done, "").unwrap();
    Ok(home)
}

fn execute(home: &Path, command: &[&str]) -> Result<(), String> {
    let failed =
        |reason: &str| format!("Faucet cannot be installed: {}: {reason}", command.join(" "));
    let output = Command::new(command[0]).args(&command[1..]).current_dir(home).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or_else(|| failed(why.trim()))
}

const FAUCET: &str = "faucet==1.10.12";
