//! Linux VLAN devices, an 802.1Q one on an 802.1ad one, on one side of the switch; a customer with
//! a tag of its own behind a `dot1q-tunnel` port on the other. Linux is the peer: it pushes and
//! pops the same tags, makes trains under them, and verifies what it receives.
//!
//! The devices need the module 8021q, so these tests boot kernels that have it.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tapswitch_guest::{Error, Guest, Kernel, Outcome, Series};
use tapswitch_netlink::OwnedNamespace;
use tempfile::TempDir;

use crate::support::*;

#[test]
fn stacked_devices_talk_through_a_tunnel_port() {
    let Some(lab) = Tunnel::new("offload=on") else { return };
    lab.talk();
    let [provider, customer] = lab.traffic();
    // Their length depends on the machine; acknowledgements are counted, too.
    assert!(provider.0 > provider.1, "trains under two tags: {provider:?}");
    assert!(customer.0 > customer.1, "trains under one: {customer:?}");
}

/// Without offloads the kernel verifies every checksum, and none of its own trains reach the
/// switch.
#[test]
fn stacked_devices_talk_through_ports_without_offloads() {
    let Some(lab) = Tunnel::new("offload=off,gro=off") else { return };
    lab.talk();
    let [provider, customer] = lab.traffic();
    assert_eq!((provider.0, customer.0), (provider.1, customer.1), "frames are packets");
}

#[test]
fn what_stacked_devices_get_is_captured() {
    let Some(lab) = Tunnel::new("offload=on") else { return };
    let file = lab.directory.path().join("stack.pcapng");
    let path = file.display().to_string();
    let [host, _] = &lab.hosts;
    let place = ["capture", "-i", &host.interface, "--netns", host.name(), "-w", &path];
    let limit = ["--count", CAPTURED];
    let args = [&place[..], &limit].concat();
    let mut capture = Daemon::tapswitch(&lab.room, lab.directory.path(), &args);
    until("the capture is open", || file.exists());
    lab.talk();
    assert_eq!(capture.wait().code(), Some(0), "{}", capture.log());
    let captured = fs::read(&file).unwrap();
    if tapswitch_guest::inside().is_some() {
        send_out(&captured);
    } else {
        look_at(&file);
    }
}

#[test]
fn on_linux_6_1() {
    boot(Series::V6_1);
}

#[test]
fn on_linux_7_3() {
    boot(Series::V7_3);
}

/// Two hosts with VLAN devices, and the switch between them.
struct Tunnel {
    switch: Daemon,
    /// With two tags, and with one.
    hosts: [Host; 2],
    room: OwnedNamespace,
    directory: TempDir,
}

impl Tunnel {
    /// `None`, reported as skipped, if there are no VLAN devices.
    fn new(options: &str) -> Option<Self> {
        if !can_run(&["ping"]) {
            return None;
        }
        let (room, directory) = (room(), directory());
        let hosts = [1, 2].map(Host::new);
        let port = |host: &Host, mode| {
            let (number, interface, netns) = (host.number, &host.interface, host.name());
            format!("{number}=tap:{interface},netns={netns},{options},{mode}")
        };
        let provider = port(&hosts[0], "mode=provider,vlans=100");
        let customer = port(&hosts[1], "mode=dot1q-tunnel,vlan=100");
        let socket = directory.path().join("switch.sock").display().to_string();
        let args = ["switch", "--socket", &socket, "--port", &provider, "--port", &customer];
        let switch = Daemon::tapswitch(&room, directory.path(), &args);
        let lab = Self { switch, hosts, room, directory };
        lab.configure().then_some(lab)
    }

    /// MTU 1500 in all layers.
    fn configure(&self) -> bool {
        let [provider, customer] = &self.hosts;
        for host in &self.hosts {
            until("the device is up", || {
                host.netlink().link(&host.interface).is_ok_and(|link| link.up)
            });
        }
        let made = provider.netlink().create_service_vlan("s100", &provider.interface, 100);
        if let Err(error) = made {
            return skip(&format!("no VLANs here: {error}"));
        }
        provider.netlink().set_up("s100").unwrap();
        provider.netlink().create_vlan("c10", "s100", 10).unwrap();
        customer.netlink().create_vlan("c10", &customer.interface, 10).unwrap();
        for host in &self.hosts {
            let mut netlink = host.netlink();
            netlink.set_up("c10").unwrap();
            netlink.add_address("c10", host.ip(), 24).unwrap();
            assert_eq!(netlink.link("c10").unwrap().mtu, 1500);
        }
        true
    }

    /// Checks that all traffic of the hosts arrives unchanged, without losses.
    fn talk(&self) {
        let [a, b] = &self.hosts;
        a.ping(b.ip());
        for (from, to) in [(a, b), (b, a)] {
            full_size(from, to);
            send_by_tcp(from, to, LEN);
        }
        let errors = [a, b].map(|host| checksum_errors(&host.namespace));
        assert_eq!(errors, [0, 0], "{}", self.switch.log());
    }

    /// Packets and frames received by each port. Checks that there are no drops.
    fn traffic(&self) -> [(u64, u64); 2] {
        let socket = self.directory.path().join("switch.sock").display().to_string();
        let ports = tapswitch(&["show", "ports", "--json", "--socket", &socket]).json();
        let traffic = |port: &Value| {
            assert!(has_lost_nothing(port), "{port}");
            (number(&port["rx"]["packets"]), number(&port["rx"]["frames"]))
        };
        [traffic(&ports[0]), traffic(&ports[1])]
    }
}

/// A datagram that fills the MTU arrives in one packet: Linux sets "don't fragment" on it
/// (ip(7), `IP_MTU_DISCOVER`).
fn full_size(from: &Host, to: &Host) {
    let bind = |ip: IpAddr| move || UdpSocket::bind((ip, 0)).unwrap();
    let receiver = to.namespace.enter(bind(to.ip())).unwrap();
    let sender = from.namespace.enter(bind(from.ip())).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(1472).collect();
    sender.send_to(&sent, receiver.local_addr().unwrap()).unwrap();
    let mut buf = [0; 2000];
    let (len, _) = receiver.recv_from(&mut buf).unwrap();
    assert!(buf[..len] == sent, "{len} bytes");
}

/// Runs the tests above in a guest.
fn boot(series: Series) {
    if tapswitch_guest::inside().is_some() || !can_run(&[]) {
        return;
    }
    let directory = directory();
    let file = directory.path().join("stack.pcapng");
    let outcome = match in_guest(series, &file) {
        Ok(outcome) => outcome,
        Err(Error::Unavailable { what, remedy }) => {
            skip(&format!("{what}; {remedy}"));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let passed = "test result: ok. 3 passed";
    assert!(outcome.status == 0 && outcome.output.contains(passed), "{}", outcome.output);
    assert!(!outcome.output.contains("SKIP:"), "{}", outcome.output);
    look_at(&file);
}

/// The guest's fourth serial port is written to `file`.
fn in_guest(series: Series, file: &Path) -> Result<Outcome, Error> {
    let kernel = Kernel::of(series)?;
    let tests = std::env::current_exe().unwrap();
    Guest::new(&kernel, tests)
        .file(BINARY, BINARY)
        .modules(["tun", "8021q"])
        .args(["vlan_devices::", "--skip", "vlan_devices::on_linux"])
        .args(["--test-threads", "1", "--nocapture"])
        .env("TAPSWITCH_GUEST", kernel.release())
        .qemu_args(["-chardev", &format!("file,id=out,path={}", file.display())])
        .qemu_args(["-device", "isa-serial,chardev=out,index=3"])
        .memory_mib(1024)
        .cpus(2)
        .run()
}

fn send_out(bytes: &[u8]) {
    let raw = ["-F", WAY_OUT, "raw", "-echo"];
    assert!(Command::new("stty").args(raw).status().unwrap().success());
    fs::write(WAY_OUT, bytes).unwrap();
}

/// tshark finds two tags in front of each packet, no packet that is too long, and every checksum
/// right.
fn look_at(file: &Path) {
    if !can_run(&["tshark"]) {
        return;
    }
    let rows = dissect(file);
    assert_eq!(rows.len().to_string(), CAPTURED);
    for row in &rows {
        assert!(row.protocols.starts_with("eth:ethertype:ieee8021ad:ethertype:vlan"), "{row:?}");
        let is_right = row.checksums.iter().all(|status| ["", RIGHT].contains(&status.as_str()));
        assert!(row.frame_len <= 1500 + 14 + 8 && is_right, "{row:?}");
    }
    let [ip, tcp] = [0, 1];
    let of_stream = |row: &&Row| row.checksums[ip] == RIGHT && row.checksums[tcp] == RIGHT;
    let full = rows.iter().filter(of_stream).filter(|row| row.frame_len == 1500 + 14 + 8);
    // The number of acknowledgements between them depends on the guest's scheduler.
    let full = full.count();
    assert!(full > rows.len() / 8, "{full} packets of {} are full", rows.len());
}

/// tshark's fields of one packet.
#[derive(Debug)]
struct Row {
    frame_len: usize,
    protocols: String,
    /// Of IP, TCP and UDP: tshark's numbers, or nothing if there is none.
    checksums: Vec<String>,
}

fn dissect(file: &Path) -> Vec<Row> {
    let checks = ["ip", "tcp", "udp"];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file.to_str().unwrap(), "-T", "fields"]);
    command.args(["-e", "frame.len", "-e", "frame.protocols"]);
    for check in checks {
        command.args(["-e", &format!("{check}.checksum.status")]);
        command.args(["-o", &format!("{check}.check_checksum:TRUE")]);
    }
    let row = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        Row {
            frame_len: fields[0].parse().unwrap(),
            protocols: fields[1].to_owned(),
            checksums: fields[2..].iter().map(|&status| status.to_owned()).collect(),
        }
    };
    Said::by(&mut command).well().lines().map(row).collect()
}

/// tshark's number for a right checksum.
const RIGHT: &str = "1";
/// Captured packets: all of them are sent out over a serial port.
const CAPTURED: &str = "200";
/// The guest's fourth serial port.
const WAY_OUT: &str = "/dev/ttyS3";
/// Bytes of a connection: about a dozen trains.
const LEN: usize = 1 << 20;
