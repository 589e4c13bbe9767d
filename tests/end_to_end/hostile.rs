//! Hosts that send what no host should, full tables and full disks: the effect is bounded, counted,
//! and reported with a remedy, and others go on.

use std::fs::{self, File};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::Value;
use tapswitch_wire::MacAddr;

use crate::support::*;
use crate::taps::assert_whole;

#[test]
fn a_hostile_host_harms_nobody_at_our_switches() {
    assert_harmless(Kind::Ours);
}

#[test]
fn a_hostile_host_harms_nobody_at_open_vswitch() {
    assert_harmless(Kind::OpenVswitch);
}

/// The attacker uses the monitor's port of the first switch.
fn assert_harmless(kind: Kind) {
    let Some(fabric) = Fabric::line(&[kind; 2]) else { return };
    fabric.introduce();
    let links = ends(&fabric);
    fabric.add("udp", &["--ip-proto", "udp", "--src-ip", "10.0.0.1", "--monitor", "0x2/2"]);
    let mut attacker = Capture::open(fabric.monitor(1));
    let probe = eventually("the controller looks for a link there", || {
        attacker.wait();
        attacker.drain().into_iter().map(|(_, frame)| frame).find(|frame| is_lldp(frame))
    });
    let [one, two] = [1, 2].map(|number| fabric.host(number));
    forged_claims(&fabric).iter().for_each(|frame| attacker.send(frame));
    until("a claim is not believed", || count(&fabric, "address_conflicts") > 0);
    let stream = Stream::new(one, two);
    let mut monitor = Capture::open(fabric.monitor(2));
    let sent = fabric.flow(&stream).finish_after(60);
    assert_whole(&monitor.copies(&stream, sent), sent);
    // Those that are changed where nothing is signed close the port that they come back to: the
    // attacker's.
    forged_lldp(&probe).iter().for_each(|frame| attacker.send(frame));
    until("forged frames are counted", || count(&fabric, "lldp_forged") > 30);

    // While so many are learned, probes of links may be late; connections survive that.
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send_by_tcp(one, two, 1 << 20));
        until("stations without room are counted", || {
            for number in 0..STATIONS {
                attacker.send(&station(number));
                if number % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            count(&fabric, "hosts_refused") > 0
        });
        sending.join().unwrap();
    });
    fabric.wait_for_links(1);
    assert_eq!(ends(&fabric), links, "nobody made up a link");
    let stream = Stream::new(one, two);
    let (sender, mut receiver) = (Capture::open(one), Capture::open(two));
    let (mut arrived, mut copied) = (0, 0);
    until("frames go where they should, and so do copies", || {
        sender.send(&stream.frame(0));
        sender.wait();
        arrived += receiver.numbers(&stream).len();
        copied += monitor.numbers(&stream).len();
        arrived > 0 && copied > 0
    });
    assert!(count(&fabric, "hosts") <= 4096 + 2, "so many behind one port");
    let hosts = fabric.ask(&["show", "hosts"]).json();
    let has_it = |host: &&Value| host["addresses"].to_string().contains("\"10.0.0.1\"");
    let holders: Vec<_> = hosts.as_array().unwrap().iter().filter(has_it).collect();
    assert_eq!(holders.len(), 1, "the address stays where it was");
    assert_eq!(holders[0]["mac"], fabric.host(1).mac().to_string());
    let told = fabric.says(&["show", "switches"]);
    for words in ["did not fit", "another host were ignored", "LLDP frames were forged"] {
        assert!(told.contains(words), "'{words}' is not in:\n{told}");
    }
    one.ping(two.ip());
}

/// Both ends of each link.
fn ends(fabric: &Fabric) -> Vec<String> {
    let links = fabric.ask(&["show", "links"]).json();
    let end = |link: &Value, end: &str| format!("{}/{}", link[end]["switch"], link[end]["port"]);
    links.as_array().unwrap().iter().map(|link| end(link, "a") + &end(link, "b")).collect()
}

/// A counter about the attacker's switch.
fn count(fabric: &Fabric, what: &str) -> u64 {
    number(&fabric.ask(&["show", "switches"]).json()[0][what])
}

fn is_lldp(frame: &[u8]) -> bool {
    frame[12..14] == [0x88, 0xcc]
}

/// Frames like the controller's, but invalid: changed anywhere, cut anywhere; and nonsense.
fn forged_lldp(probe: &[u8]) -> Vec<Vec<u8>> {
    let flipped = |at: usize| {
        let mut frame = probe.to_vec();
        frame[at] ^= 1;
        frame
    };
    let changed = (14..probe.len()).map(flipped);
    let cut = (14..probe.len()).map(|len| probe[..len].to_vec());
    let endless = [&probe[..14], &[0xff; 40]].concat();
    changed.chain(cut).chain([endless]).collect()
}

/// ARP and neighbour discovery about addresses of others, also truncated.
fn forged_claims(fabric: &Fabric) -> Vec<Vec<u8>> {
    let own = fabric.monitor(1).mac();
    let arp = |sender: MacAddr, address: [u8; 4]| {
        let head = [&[0xff; 6][..], &own.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        [&head[..], &sender.0, &address, &[0; 6], &[10, 0, 0, 1]].concat()
    };
    let (first, nobody) = ([10, 0, 0, 1], Ipv4Addr::BROADCAST.octets());
    let claims = [arp(own, first), arp(fabric.host(1).mac(), first), arp(own, nobody)];
    let advertisement = {
        let head = [&[0x33, 0x33, 0, 0, 0, 1][..], &own.0, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
        let fixed = [&head[..], &[0, 32, 58, 255], &[0xfe; 16], &[0xff; 16]].concat();
        [&fixed[..], &[136, 0, 0, 0, 0x20, 0, 0, 0], &[0xfe; 16], &[2, 1], &own.0].concat()
    };
    let whole = claims.into_iter().chain([advertisement]);
    // Each also without its end.
    whole.flat_map(|frame| (14..=frame.len()).map(move |len| frame[..len].to_vec())).collect()
}

/// A frame of a nonexistent station.
fn station(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let head = [[0xff; 6], [0x02, 0xbb, 0, 0, high, low]].concat();
    [&head[..], &[0x88, 0xb5], &[0; 46]].concat()
}

/// More than the controller remembers behind one port.
const STATIONS: u16 = 4300;

#[test]
fn a_policy_that_a_switch_has_no_room_for_is_refused_and_the_rest_goes_on() {
    let Some(lab) = Lab::new(Peer::OpenVswitch, Ends::Veths, 3) else { return };
    lab.introduce(&[1, 2]);
    lab.add("small", &["--dst-port", "2000", "--ip-proto", "udp", "--monitor", "3"]);
    let rules = lab.flows();
    // The existing rules, and no more.
    lab.limit_rules(1, 16);
    let wide =
        ["policy", "add", "wide", "--filter", "udp dst portrange 1001-1100", "--monitor", "3"];
    lab.ask_controller(&wide).refused(&["policy wide", "it is full", "delete other policies"]);
    until("what there was room for is taken back", || lab.flows() == rules);
    assert_eq!(lab.ask_controller(&["policy", "list"]).json().as_array().unwrap().len(), 1);
    let stream = Stream::new(lab.host(1), lab.host(2));
    let mut monitor = Capture::open(lab.host(3));
    let count = lab.flow(&stream, 1, 2).finish_after(60);
    assert_whole(&monitor.copies(&stream, count), count);
    lab.assert_conserved();
}

#[test]
fn a_full_disk_stops_the_monitor_in_a_file_and_nothing_else() {
    if !can_run(&["unshare", "mount", "ping"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let hosts = [1, 2].map(Host::new);
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (disk, socket, own) = (path("disk"), path("c.sock"), path("s.sock"));
    fs::create_dir(&disk).unwrap();
    let args = ["controller", "--listen", CONTROLLER, "--store", "none", "--socket", &socket];
    let _controller = Daemon::tapswitch(&room, directory.path(), &args);
    // A disk in a mount namespace of its own, of which nothing stays.
    let script = format!(
        "mount -t tmpfs -o size=1m tmpfs {disk} && exec {BINARY} switch --controller {CONTROLLER} \
         --port 1=tap:t1,netns={} --port 2=tap:t2,netns={} --port 3=pcapng:{disk}/web.pcapng \
         --fail-mode secure --socket {own}",
        hosts[0].name(),
        hosts[1].name()
    );
    let mut command = room.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let mut switch = Daemon::start(command, directory.path());
    for host in &hosts {
        until("the device is there", || host.netlink().link(&host.interface).is_ok());
        host.configure();
    }
    hosts[0].ping(hosts[1].ip());
    let ask = |args: &[&str]| tapswitch(&[args, &["--json", "--socket", &socket]].concat());
    let file = || {
        let ports = tapswitch(&["show", "ports", "--json", "--socket", &own]).json();
        ports.as_array().unwrap().iter().find(|port| port["port"] == "3").unwrap().clone()
    };
    // By name: the port is named after its file.
    ask(&["policy", "add", "udp", "--ip-proto", "udp", "--monitor", "web"]).well();

    let filler = format!("/proc/{}/root{disk}/filler", switch.id());
    fill(Path::new(&filler));
    let stream = Stream::new(&hosts[0], &hosts[1]);
    let flow = Flow::start(&stream, &hosts[0], &hosts[1]);
    until("the disk is full", || file()["state"] == "no-link");
    flow.go_on(100);
    let said = tapswitch(&["show", "ports", "--socket", &own]).well();
    assert!(said.contains("the disk is full"), "{said}");
    let state = || ask(&["policy", "show", "udp"]).json()["state"]["is"].clone();
    until("the policy waits for its monitor", || state() == "pending");
    fs::remove_file(&filler).unwrap();
    until("there is room again", || file()["state"] == "up" && state() == "active");
    flow.finish_after(100);
    let reports = conservation::policies(|command| ask(command));
    assert_eq!(reports.len(), 1);
    assert!(!reports[0].to_string().contains("outcome_unknown"), "{}", reports[0]);
    let log = switch.log();
    assert!(log.contains("the disk is full"), "{log}");

    // Packets that wait for the disk when the switch ends are reported.
    fill(Path::new(&filler));
    let flow = Flow::start(&stream, &hosts[0], &hosts[1]);
    until("the disk is full again", || file()["state"] == "no-link");
    assert!(number(&file()["pressure"]["queued"]["packets"]) > 0, "{}", file());
    flow.finish_after(10);
    assert_eq!(switch.stop().code(), Some(0), "{}", switch.log());
    let log = switch.log();
    assert!(log.contains("could not be written, and are dropped as port_removed"), "{log}");
    let warned = log.lines().any(|line| {
        line.contains("port 3: ")
            && line.contains("frames that waited for it")
            && line.contains("WARN")
    });
    assert!(warned && !log.contains("are not accounted for"), "{log}");
}

/// Fills all free space.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for len in [4096, 1] {
        while file.write_all(&vec![0; len]).is_ok() {}
    }
}
