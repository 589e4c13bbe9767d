//! VLANs end to end: the worked example of docs/vlan.md with all its switches, and Open vSwitch at
//! the other end of an S-tagged trunk.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tapswitch_netlink::{Feature, Netlink, OwnedNamespace};
use tempfile::TempDir;

use crate::support::*;
use crate::taps::assert_whole;

#[test]
fn the_example_of_a_metro_network_works_and_leaves_nothing() {
    let Some(mut metro) = Metro::start() else { return };
    let [blue, office, phone] = [0, 2, 4].map(|at| [&metro.hosts[at], &metro.hosts[at + 1]]);
    for [west, east] in [blue, office, phone] {
        west.ping(east.ip());
        send_by_tcp(west, east, 3_000_000);
        send_by_tcp(east, west, 3_000_000);
    }
    for bridge in BRIDGES {
        for port in metro.ports(bridge) {
            assert!(has_lost_nothing(&port), "{bridge}: {port}");
        }
    }
    let core = metro.ports("west").into_iter().find(|port| port["port"] == "9").unwrap();
    let packets = |way: &str| core[way]["packets"].as_u64() > core[way]["frames"].as_u64();
    assert!(packets("tx") && packets("rx"), "trains stay whole behind two tags: {core}");
    assert_eq!(core["mode"], "mode=provider,vlans=100+200-201");
    let table = tapswitch(&["show", "ports", "--socket", metro.socket("west").to_str().unwrap()]);
    let table = table.well();
    for cell in ["MTU+TAGS", "1500+8", "mode=qinq,map=10:200+20:201", "mode=dot1q-tunnel,vlan=100"]
    {
        assert!(table.contains(cell), "{cell} is not in:\n{table}");
    }

    assert_eq!(metro.mtu("core-west"), 1508);
    metro.daemons[0].kill();
    metro.daemons[0] = metro.run("west");
    blue[0].configure_again(blue[1]);
    assert_eq!(metro.mtu("core-west"), 1508, "raised once, however often it starts");
    for daemon in &mut metro.daemons {
        assert_eq!(daemon.stop().code(), Some(0), "{}", daemon.log());
    }
    for name in CABLES.iter().flatten() {
        assert_eq!(metro.mtu(name), 1500, "{name} is as it was before");
    }
}

#[test]
fn the_page_quotes_the_example_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/vlan.md")).unwrap();
    let files: String = BRIDGES
        .iter()
        .map(|bridge| {
            fs::read_to_string(root.join(format!("examples/metro/{bridge}.toml"))).unwrap()
        })
        .collect();
    let blocks: Vec<_> = page.split("```toml").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for line in blocks.iter().flat_map(|block| block.split("```").next().unwrap().lines()) {
        assert!(files.contains(line), "'{line}' is in no file");
    }
}

#[test]
fn the_doctor_and_the_tables_say_what_to_set_for_frames_that_do_not_fit() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (quiet_room(), directory());
    let hosts = [Host::new(1), Host::new(2)];
    let port = |host: &Host, more: &str| {
        format!("{}=tap:{},netns={}{more}", host.number, host.interface, host.name())
    };
    let socket = directory.path().join("br.sock").display().to_string();
    let (one, two) = (port(&hosts[0], ",envelope=12"), port(&hosts[1], ""));
    let args = ["switch", "--socket", &socket, "--port", &one, "--port", &two];
    let _switch = Daemon::tapswitch(&room, directory.path(), &args);
    for host in &hosts {
        until("the device is there", || host.netlink().link(&host.interface).is_ok());
        host.configure();
    }
    let tags = [0x88, 0xa8, 0, 100, 0x88, 0xa8, 0, 101, 0x81, 0, 0, 10];
    let (to, from) = ([0xff; 6], hosts[0].mac().0);
    let frame = [&to[..], &from, &tags, &[0x88, 0xb5], &[0; 46]].concat();
    let sender = Capture::open(&hosts[0]);
    let ask = |args: &[&str]| tapswitch(&[args, &["--socket", &socket]].concat());
    until("it is dropped", || {
        // The device of a port exists a little before the port does.
        sender.send(&frame);
        ask(&["show", "drops"]).out.contains("oversize")
    });
    let remedy = "give the port envelope=12";
    for args in [&["show", "drops"][..], &["show", "ports"]] {
        let said = ask(args).well();
        assert!(said.contains(remedy), "{args:?}: {said}");
    }
    let said = ask(&["device", "doctor", "--netns", hosts[1].name()]);
    assert_eq!(said.code, Some(1), "frames are lost: {}", said.err);
    let found = said.out.lines().find(|line| line.contains("oversize: ")).unwrap();
    assert!(found.starts_with("error") && found.ends_with(remedy), "{found}");
    assert!(found.contains("port 2 of switch br0 dropped"), "{found}");
}

/// A controller learns hosts in the VLANs of their ports' modes, and its TAPs copy the inner form
/// to a monitor whose port has no mode.
#[test]
fn a_tap_in_a_vlan_of_access_ports_shows_the_tags_of_the_inside() {
    if !can_run(&["ping"]) {
        return;
    }
    let (room, directory) = (quiet_room(), directory());
    let hosts = [1, 2, 3].map(Host::new);
    let port = |host: &Host, more: &str| {
        format!("\"{}=tap:{},netns={}{more}\"", host.number, host.interface, host.name())
    };
    let access = ",mode=access,vlan=10";
    let ports = [port(&hosts[0], access), port(&hosts[1], access), port(&hosts[2], "")].join(",");
    let text = format!(
        "[switch]\nfail-mode = \"secure\"\nport = [{ports}]\n[controller]\n\
         [[policy]]\nname = \"ten\"\nvlan = 10\nip-proto = \"udp\"\nmonitor = \"3\"\n"
    );
    let path = directory.path().join("ten.toml");
    fs::write(&path, text).unwrap();
    let socket = directory.path().join("ten.sock").display().to_string();
    let args = ["run", "-c", path.to_str().unwrap(), "--socket", &socket];
    let _daemon = Daemon::tapswitch(&room, directory.path(), &args);
    for host in &hosts {
        until("the device is there", || host.netlink().link(&host.interface).is_ok());
        host.configure();
    }
    let ask = |args: &[&str]| tapswitch(&[args, &["--json", "--socket", &socket]].concat());
    until("the policy is in force", || {
        let said = ask(&["policy", "show", "ten"]);
        said.code == Some(0) && said.json()["state"]["is"] == "active"
    });
    hosts[0].ping(hosts[1].ip());
    let known = ask(&["show", "hosts"]).json();
    let mac = hosts[0].mac().to_string();
    let known = known.as_array().unwrap().iter().find(|host| host["mac"] == mac).unwrap();
    assert_eq!(known["vlan"], 10, "{known}");
    let mut monitor = Capture::open(&hosts[2]);
    let stream = Stream::new(&hosts[0], &hosts[1]);
    let count = Flow::start(&stream, &hosts[0], &hosts[1]).finish_after(20);
    let tagged = stream.vlan(10);
    assert_whole(&monitor.copies(&tagged, count), count);
}

/// The provider's two switches and Green's two, with all six hosts.
struct Metro {
    daemons: Vec<Daemon>,
    hosts: Vec<Host>,
    room: OwnedNamespace,
    directory: TempDir,
}

const BRIDGES: [&str; 4] = ["west", "east", "green-west", "green-east"];
const CABLES: [[&str; 2]; 3] =
    [["core-west", "core-east"], ["green-west", "up-west"], ["green-east", "up-east"]];
/// Hosts by their namespaces in the example, west and east alternating, with their interfaces.
const HOSTS: [(&str, &str); 6] = [
    ("blue-west", "blue0"),
    ("blue-east", "blue0"),
    ("office-west", "office0"),
    ("office-east", "office0"),
    ("phone-west", "phone0"),
    ("phone-east", "phone0"),
];

impl Metro {
    fn start() -> Option<Self> {
        if !can_run(&["ping"]) {
            return None;
        }
        let (room, directory) = (quiet_room(), directory());
        CABLES.iter().for_each(|[one, other]| lay(&room, one, other));
        let mut hosts: Vec<_> = (1..=6).map(Host::new).collect();
        for (host, (_, interface)) in hosts.iter_mut().zip(HOSTS) {
            host.interface = interface.to_owned();
        }
        let mut metro = Self { daemons: Vec::new(), hosts, room, directory };
        metro.daemons = BRIDGES.iter().map(|bridge| metro.run(bridge)).collect();
        for host in &metro.hosts {
            let link = || host.netlink().link(&host.interface);
            until("the device is there", || link().is_ok());
            host.configure();
        }
        Some(metro)
    }

    /// Runs the switch of this name from its file, with the hosts' real namespaces.
    fn run(&self, bridge: &str) -> Daemon {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/metro");
        let mut text = fs::read_to_string(root.join(bridge).with_extension("toml")).unwrap();
        for (host, (netns, _)) in self.hosts.iter().zip(HOSTS) {
            text = text.replace(&format!("netns={netns},"), &format!("netns={},", host.name()));
        }
        let path = self.directory.path().join(bridge).with_extension("toml");
        fs::write(&path, text).unwrap();
        let (path, socket) = (path.to_str().unwrap(), self.socket(bridge));
        let args = ["run", "-c", path, "--socket", socket.to_str().unwrap()];
        let daemon = Daemon::tapswitch(&self.room, self.directory.path(), &args);
        until("the switch answers", || self.show_ports(bridge).code == Some(0));
        daemon
    }

    fn ports(&self, bridge: &str) -> Vec<Value> {
        self.show_ports(bridge).json().as_array().unwrap().clone()
    }

    fn show_ports(&self, bridge: &str) -> Said {
        tapswitch(&["show", "ports", "--json", "--socket", self.socket(bridge).to_str().unwrap()])
    }

    fn socket(&self, bridge: &str) -> PathBuf {
        self.directory.path().join(bridge).with_extension("sock")
    }

    fn mtu(&self, name: &str) -> u32 {
        Netlink::open(&self.room).unwrap().link(name).unwrap().mtu
    }
}

impl Host {
    /// Waits for the interface to come back, and for the other host to answer.
    fn configure_again(&self, other: &Self) {
        until("the device is there", || self.netlink().link(&self.interface).is_ok());
        self.configure();
        self.ping(other.ip());
    }
}

/// A room whose interfaces send nothing on their own.
fn quiet_room() -> OwnedNamespace {
    let room = room();
    let setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    room.enter(|| fs::write(setting, "1").unwrap()).unwrap();
    room
}

/// Creates a veth pair in `room`, both ends up.
fn lay(room: &OwnedNamespace, one: &str, other: &str) {
    let mut netlink = Netlink::open(room).unwrap();
    netlink.create_veth(one, other, room).unwrap();
    [one, other].iter().for_each(|name| netlink.set_up(name).unwrap());
}

/// Hosts in a customer's VLAN 10, one behind our provider edge, one behind that of Open vSwitch: in
/// between are S-tags with C-tags inside.
#[test]
fn open_vswitch_is_the_other_end_of_a_trunk_with_s_tags() {
    if !can_run(&["ping"]) {
        return;
    }
    if !Ovs::is_there() {
        skip("Open vSwitch is not installed; install openvswitch-switch");
        return;
    }
    let (room, directory) = (quiet_room(), directory());
    let cables = [["c1", "u1"], ["p1", "p2"], ["u2", "c2"]];
    cables.iter().for_each(|[one, other]| lay(&room, one, other));
    plain_packets(&room, &["p1", "c2"]);
    let tunnel = ["vlan_mode=dot1q-tunnel", "tag=100", "other_config:qinq-ethtype=802.1ad"];
    let trunk = ["vlan_mode=trunk", "trunks=100"];
    let ports: [(&str, &[&str]); 2] = [("u2", &tunnel), ("p2", &trunk)];
    let _ovs = Ovs::start_learning(&room, directory.path(), 2, &ports);
    let hosts = [Host::new(1), Host::new(2)];
    let access =
        |host: &Host| format!("1=tap:{},netns={},mode=access,vlan=10", host.interface, host.name());
    let end = |name: &str, mode: &str| format!("9=netdev:{name},mtu=1500,{mode}");
    let start = |name: &str, ports: &[&str]| {
        let socket = directory.path().join(name).display().to_string();
        let mut args = vec!["switch", "--socket", &socket];
        ports.iter().for_each(|port| args.extend(["--port", port]));
        Daemon::tapswitch(&room, directory.path(), &args)
    };
    let _customers = [("west", "c1", &hosts[0]), ("east", "c2", &hosts[1])]
        .map(|(name, up, host)| start(name, &[&access(host), &end(up, "mode=trunk,vlans=10")]));
    let edge =
        ["1=netdev:u1,mtu=1500,mode=dot1q-tunnel,vlan=100", &end("p1", "mode=provider,vlans=100")];
    let _edge = start("edge", &edge);
    for host in &hosts {
        until("the device is there", || host.netlink().link(&host.interface).is_ok());
        host.configure();
    }
    hosts[0].ping(hosts[1].ip());
    hosts[1].ping(hosts[0].ip());
    send_by_tcp(&hosts[0], &hosts[1], 3_000_000);
    send_by_tcp(&hosts[1], &hosts[0], 3_000_000);
    let socket = directory.path().join("edge").display().to_string();
    let ports = tapswitch(&["show", "ports", "--json", "--socket", &socket]).json();
    for port in ports.as_array().unwrap() {
        assert!(has_lost_nothing(port), "{port}");
    }
}

/// Makes the kernel cut trains and complete checksums before Open vSwitch, which does not accept
/// them with two tags, and gives the interfaces room for the tags.
fn plain_packets(room: &OwnedNamespace, ends: &[&str]) {
    let mut netlink = Netlink::open(room).unwrap();
    for name in ends {
        for feature in [Feature::Tso, Feature::Gso, Feature::TxChecksum] {
            netlink.set_feature(name, feature, false).unwrap();
        }
    }
    ["p2", "u2"].iter().for_each(|name| netlink.set_mtu(name, 1508).unwrap());
}
