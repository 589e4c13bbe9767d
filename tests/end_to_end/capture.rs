//! `tapswitch capture`: files that other tools read, with packets as on the wire.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tapswitch_netlink::Netlink;
use tapswitch_wire::MacAddr;

use crate::support::*;

#[test]
fn tshark_reads_what_was_captured() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    if !can_run(&["tshark"]) {
        return;
    }
    lab.introduce(&[1, 2]);
    let file = lab.directory.path().join("trains.pcapng");
    let mut capture = start(&lab, &file, &[]);
    send_by_tcp(lab.host(1), lab.host(2), LEN);
    let stream = Stream::new(lab.host(1), lab.host(2)).vlan(7);
    lab.flow(&stream, 1, 2).finish_after(20);
    capture.signal(Signal::INT);
    assert_eq!(capture.wait().code(), Some(0), "{}", capture.log());

    let rows = dissect(&file);
    let said = capture.log();
    assert!(said.contains(&format!("{} packets of", rows.len())), "{said}");
    assert!(said.contains("0 frames were lost, 0 trains could not be split"), "{said}");
    assert!(rows.iter().all(|row| row.frame_len <= 1518), "packets have the size of the wire");
    let tcp_len: usize = rows.iter().map(|row| row.tcp_len).sum();
    assert!(tcp_len >= LEN, "all bytes of the connection: {tcp_len}");
    assert!(rows.iter().all(|row| !row.has_bad_checksum), "all checksums are correct");
    assert!(rows.iter().filter(|row| row.vlan == "7").count() >= 20, "tags are in their place");
}

#[test]
fn a_capture_ends_by_its_limits() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    if !can_run(&["tshark"]) {
        return;
    }
    lab.introduce(&[1, 2]);
    let file = lab.directory.path().join("limits.pcapng");
    let mut capture = start(&lab, &file, &["--count", "5", "--snaplen", "60"]);
    let stream = Stream::new(lab.host(1), lab.host(2));
    lab.flow(&stream, 1, 2).finish_after(20);
    assert_eq!(capture.wait().code(), Some(0), "{}", capture.log());
    assert_eq!(dissect(&file).len(), 5);

    let mut capture = start(&lab, &file, &["--seconds", "1"]);
    assert_eq!(capture.wait().code(), Some(0), "{}", capture.log());
    // The hosts may send ARP, and the controller looks for links: neither belongs to the flow.
    let is_chatter = |row: &Row| row.udp_len == 0;
    assert!(dissect(&file).iter().all(is_chatter), "the file was replaced");
}

#[test]
fn a_policy_s_file_has_what_the_policy_names_once_and_nothing_else() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    if !can_run(&["tshark"]) {
        return;
    }
    let file = lab.directory.path().join("there.pcapng");
    lab.switch_says(&["port", "add", &format!("9=pcapng:{}", file.display())]);
    until("the controller knows what the port is for", || {
        let switches = lab.ask_controller(&["show", "switches"]).json();
        let ports = switches[0]["ports"].as_array().unwrap();
        ports.iter().any(|port| port["port"] == "9" && port["role"] == "monitor")
    });
    // So that address resolution of the hosts is not part of the policy's traffic.
    lab.introduce(&[1, 2, 3]);
    let there = ["--src-ip", "10.0.0.1", "--ip-proto", "udp", "--direction", "forward"];
    lab.add("there", &[&there[..], &["--monitor", "there"]].concat());
    let [one, other] = [1, 3].map(|number| Capture::open(lab.host(number)));
    let mut receiver = Capture::open(lab.host(2));
    let (mut named, mut others) =
        (Stream::new(lab.host(1), lab.host(2)), Stream::new(lab.host(3), lab.host(2)));
    (named.to.0, others.to.0) = (MacAddr::BROADCAST, MacAddr::BROADCAST);
    for number in 0..5 {
        one.send(&named.frame(number));
        other.send(&others.frame(number));
    }
    let mut frames = Vec::new();
    until("what is for all arrives", || {
        frames.extend(receiver.drain());
        [&named, &others].iter().all(|stream| stream.numbers(&frames).len() == 5)
    });
    let stream = Stream::new(lab.host(1), lab.host(2));
    let sent = lab.flow(&stream, 1, 2).finish_after(20) as usize;
    until("all is written", || lab.port(9)["file"]["packets"].as_u64().unwrap() >= sent as u64 + 5);
    let rows = dissect(&file);
    assert_eq!(rows.len(), sent + 5, "each once, also those that were for all");
    assert!(rows.iter().all(|row| row.udp_len > 0));
    let report = lab.policy("there");
    let copied = &report["copied"][0];
    assert_eq!((&copied["flooded"], &report["adds_up"]), (&0.into(), &true.into()), "{report}");
    lab.assert_conserved();
}

#[test]
fn what_cannot_be_captured_is_said() {
    if !can_run(&[]) {
        return;
    }
    let room = room();
    let capture = |args: &[&str]| tapswitch_in(&room, &[&["capture"], args].concat());
    capture(&["-i", "nosuch0", "-w", "/dev/null"]).refused(&["nosuch0"]);
    capture(&["-i", "lo", "-w", "/dev/null"]).refused(&["lo", "Ethernet"]);
    capture(&["-i", "lo", "--netns", "nosuch", "-w", "/dev/null"]).refused(&["nosuch", "ip netns"]);
}

#[test]
fn a_capture_goes_to_standard_output_and_says_what_it_waits_for() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let run = |args: &[&str]| {
        let mut command: Command = room.command(BINARY);
        command.args(args).current_dir(directory.path()).output().unwrap()
    };
    assert!(run(&["device", "create", "t0"]).status.success());
    let said = run(&["capture", "-i", "t0", "-w", "-", "--seconds", "1"]);
    assert_eq!(said.status.code(), Some(0));
    assert!(said.stdout.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "a section header comes first");
    let err = String::from_utf8(said.stderr).unwrap();
    assert!(err.contains("t0 is down") && err.contains("0 packets of 0 frames"), "{err}");
    assert!(!directory.path().join("-").exists(), "a dash is no name");
    for (option, what) in [("--count", "1.."), ("--seconds", "1..")] {
        let said = run(&["capture", "-i", "t0", "-w", "-", option, "0"]);
        assert_eq!(said.status.code(), Some(2), "nothing would be captured");
        assert!(String::from_utf8(said.stderr).unwrap().contains(what), "{option}");
    }
}

#[test]
fn a_capture_whose_interface_goes_has_failed_and_keeps_what_came() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let mut netlink = Netlink::open(&room).unwrap();
    netlink.create_veth("left", "right", &room).unwrap();
    let file = directory.path().join("gone.pcapng");
    let path = file.display().to_string();
    let args = ["capture", "-i", "left", "-w", &path, "--seconds", "600"];
    let mut capture = Daemon::tapswitch(&room, directory.path(), &args);
    until("the capture is open", || file.exists());
    netlink.delete("left").unwrap();
    assert_eq!(capture.wait().code(), Some(1), "its time is not over");
    let said = capture.log();
    assert!(
        said.contains("left: was deleted, or moved") && said.contains("0 packets of"),
        "{said}"
    );
}

/// Starts a capture at the second host, which misses nothing from now on.
fn start(lab: &Lab, file: &Path, args: &[&str]) -> Daemon {
    // An existing file would look like an open capture.
    let _ = std::fs::remove_file(file);
    let host = lab.host(2);
    let path = file.display().to_string();
    let place = ["capture", "-i", &host.interface, "--netns", host.name(), "-w", &path];
    let daemon = Daemon::tapswitch(&lab.room, lab.directory.path(), &[&place, args].concat());
    // The file is created when the socket is open.
    until("the capture is open", || file.exists());
    daemon
}

/// tshark's fields of one packet.
struct Row {
    frame_len: usize,
    tcp_len: usize,
    udp_len: usize,
    vlan: String,
    has_bad_checksum: bool,
}

fn dissect(file: &Path) -> Vec<Row> {
    let checksums = ["ip.checksum.status", "tcp.checksum.status"];
    let fields = [&["frame.len", "tcp.len", "udp.length", "vlan.id"][..], &checksums].concat();
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file.to_str().unwrap(), "-T", "fields"]).args(fields);
    for check in ["ip", "tcp"] {
        command.args(["-o", &format!("{check}.check_checksum:TRUE")]);
    }
    Said::by(&mut command).well().lines().map(row).collect()
}

fn row(line: &str) -> Row {
    let fields: Vec<_> = line.split('\t').collect();
    Row {
        frame_len: fields[0].parse().unwrap(),
        tcp_len: fields[1].parse().unwrap_or_default(),
        udp_len: fields[2].parse().unwrap_or_default(),
        vlan: fields[3].to_owned(),
        // tshark's number for a wrong checksum.
        has_bad_checksum: fields[4..].contains(&"0"),
    }
}

/// Bytes of the connection: about a dozen trains.
const LEN: usize = 1 << 20;
