//! Links between switches on ports with a mode: the controller finds them like all others, so
//! broadcasts do not loop, and TAPs use those that have room for the tags of copies.

use serde_json::Value;
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_wire::MacAddr;
use tempfile::TempDir;

use crate::support::*;

#[test]
fn trunks_are_links() {
    let Some(pair) = Pair::start(ACCESS, "mode=trunk,vlans=10") else { return };
    pair.assert_linked();
    pair.assert_tagged_copies_are_missed("cannot pass port 0x1/");
    pair.assert_copied_with_another_address((0x8100, 10));
}

#[test]
fn trunks_with_a_native_vlan_are_links() {
    let Some(pair) = Pair::start(ACCESS, "mode=trunk,vlans=20,native=10") else { return };
    pair.assert_linked();
    pair.assert_copied_with_another_address((0x8100, 10));
}

#[test]
fn access_ports_are_links() {
    let Some(pair) = Pair::start(ACCESS, "mode=access,vlan=10") else { return };
    pair.assert_linked();
    pair.assert_copied_with_another_address((0x8100, 10));
}

#[test]
fn provider_ports_are_links_and_carry_tagged_copies() {
    let Some(pair) = Pair::start(TUNNEL, "mode=provider,vlans=100+3072-4094") else { return };
    pair.assert_linked();
    assert_eq!(pair.add("tagged", &UDP)["state"]["is"], "active");
    pair.assert_copied((0x88a8, 100));
}

#[test]
fn provider_ports_that_do_not_list_the_vlans_of_copies_are_named() {
    let Some(pair) = Pair::start(TUNNEL, "mode=provider,vlans=100") else { return };
    pair.assert_linked();
    pair.assert_tagged_copies_are_missed("must include the VLANs of copies");
}

const UDP: [&str; 4] = ["--src-ip", "10.0.0.1", "--ip-proto", "udp"];
/// How hosts are attached: in VLAN 10, and in a provider's VLAN 100.
const ACCESS: &str = "mode=access,vlan=10";
const TUNNEL: &str = "mode=dot1q-tunnel,vlan=100";
/// Two cables between the same two switches.
const CABLES: [[&str; 2]; 2] = [["left1", "right1"], ["left2", "right2"]];
const CONTROLLER_SOCKET: &str = "controller.sock";

/// Two switches with two cables between them, a host at port 1 of each, and a monitor at port 2 of
/// the second one. Fields are dropped in this order.
struct Pair {
    _switches: [Daemon; 2],
    _controller: Daemon,
    hosts: [Host; 2],
    monitor: Host,
    _room: OwnedNamespace,
    directory: TempDir,
}

impl Pair {
    /// `None` if this is not root.
    fn start(hosts_mode: &str, cables_mode: &str) -> Option<Self> {
        if !can_run(&["ping"]) {
            return None;
        }
        let (room, directory) = (room(), directory());
        let mut netlink = Netlink::open(&room).unwrap();
        for [left, right] in CABLES {
            netlink.create_veth(left, right, &room).unwrap();
            [left, right].iter().for_each(|name| netlink.set_up(name).unwrap());
        }
        let run = |args: &[&str], socket: &str| {
            let socket = directory.path().join(socket).display().to_string();
            let args = [args, &["--socket", &socket]].concat();
            Daemon::tapswitch(&room, directory.path(), &args)
        };
        let control = ["controller", "--listen", CONTROLLER, "--store", "none"];
        let controller = run(&control, CONTROLLER_SOCKET);
        let (hosts, monitor) = ([Host::new(1), Host::new(2)], Host::new(102));
        let tap = |number: u8, host: &Host| {
            format!("{number}=tap:{},netns={}", host.interface, host.name())
        };
        let switches = [0, 1].map(|at| {
            let host = format!("{},{hosts_mode}", tap(1, &hosts[at]));
            let monitor = (at == 1).then(|| tap(2, &monitor));
            let cables = (3..).zip(CABLES).map(|(port, ends)| {
                format!("{port}=netdev:{},mtu=1500,envelope=12,{cables_mode}", ends[at])
            });
            let ports: Vec<_> = [host].into_iter().chain(monitor).chain(cables).collect();
            let id = format!("{:#x}", at + 1);
            let fixed = ["switch", "--datapath-id", &id, "--fail-mode", "secure"];
            let ports = ports.iter().flat_map(|port| ["--port", port]);
            let args = fixed.into_iter().chain(["--controller", CONTROLLER]).chain(ports);
            run(&args.collect::<Vec<_>>(), &format!("s{}.sock", at + 1))
        });
        let pair = Self {
            _switches: switches,
            _controller: controller,
            hosts,
            monitor,
            _room: room,
            directory,
        };
        for host in pair.hosts.iter().chain([&pair.monitor]) {
            until("the device is there", || host.netlink().link(&host.interface).is_ok());
            host.configure();
        }
        Some(pair)
    }

    /// Checks that both cables are links, broadcasts arrive once, and hosts reach each other.
    fn assert_linked(&self) {
        until("the controller finds both links", || {
            let links = self.ask(&["show", "links"]).json();
            links.as_array().unwrap().iter().filter(|link| link["is_sure"] == true).count() == 2
        });
        until("hosts may be at the other ports", || {
            let switches = self.ask(&["show", "switches"]).json();
            let ports = switches.as_array().unwrap().iter().flat_map(ports_of);
            ports.filter(|port| port["role"] == "edge").count() == 3
        });
        let mut stream = Stream::new(&self.hosts[0], &self.hosts[1]);
        stream.to.0 = MacAddr::BROADCAST;
        let ends = [0, 1].map(|at| Capture::open(&self.hosts[at]));
        (0..20).for_each(|number| ends[0].send(&stream.frame(number)));
        let [mut back, mut there] = ends;
        let mut arrived = Vec::new();
        until("every broadcast arrives", || {
            arrived.extend(there.numbers(&stream));
            arrived.len() >= 20
        });
        for (one, other) in [(0, 1), (1, 0)] {
            self.hosts[one].ping(self.hosts[other].ip());
        }
        arrived.extend(there.numbers(&stream));
        assert!(arrived.into_iter().eq(0..20), "each once");
        assert!(back.numbers(&stream).is_empty(), "and none comes back");
    }

    /// Copies with a tag of their own do not cross the link: that is counted, and reported with a
    /// remedy.
    fn assert_tagged_copies_are_missed(&self, remedy: &str) {
        self.add("missed", &UDP);
        let stream = Stream::new(&self.hosts[0], &self.hosts[1]);
        let count = Flow::start(&stream, &self.hosts[0], &self.hosts[1]).finish_after(50);
        let [report] = &conservation::policies(|command| self.ask(command))[..] else {
            panic!("there is one policy")
        };
        let dropped = &report["copied"][0]["dropped"]["vlan_not_member"];
        assert_eq!(dropped, count, "{report:#}");
        let is_partial = report["state"]["is"] == "partial";
        let told = if is_partial { &report["state"]["reason"] } else { &report["notes"][0] };
        assert!(told.as_str().unwrap().contains(remedy), "{report:#}");
        self.ask(&["policy", "delete", "missed"]).json();
    }

    /// Copies cross the link with another destination address, in the VLAN of their hosts.
    fn assert_copied_with_another_address(&self, tag: (u16, u16)) {
        let mac = self.hosts[1].mac().to_string();
        let fields = ["--dst-mac", &mac, "--ip-proto", "udp", "--transport", "rewrite"];
        assert_eq!(self.add("rewritten", &fields)["state"]["is"], "active");
        self.assert_copied(tag);
    }

    /// The monitor gets each frame from the first host to the second one, in the inner form.
    fn assert_copied(&self, tag: (u16, u16)) {
        let mut monitor = Capture::open(&self.monitor);
        let stream = Stream::new(&self.hosts[0], &self.hosts[1]);
        let count = Flow::start(&stream, &self.hosts[0], &self.hosts[1]).finish_after(50);
        let mut inside = stream;
        inside.tags = vec![tag];
        assert!(monitor.copies(&inside, count).into_iter().eq(0..count));
        conservation::policies(|command| self.ask(command));
    }

    /// Adds a policy whose monitor is behind the links. Returns its report.
    fn add(&self, name: &str, fields: &[&str]) -> Value {
        self.ask(&[&["policy", "add", name, "--monitor", "0x2/2"], fields].concat()).json()
    }

    fn ask(&self, command: &[&str]) -> Said {
        let socket = self.directory.path().join(CONTROLLER_SOCKET).display().to_string();
        tapswitch(&[command, &["--json", "--socket", &socket]].concat())
    }
}

fn ports_of(switch: &Value) -> &[Value] {
    switch["ports"].as_array().unwrap()
}
