//! Tests of switches joined by GRE and ERSPAN, and of their packets with tshark and Open vSwitch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use tapswitch_netlink::Feature;
use tapswitch_openflow::{Body, Delivery, GroupModCommand, Shape};
use tapswitch_wire::{EtherType, NetHeader, Tag};

const GRE: &str = "gre:key=42";

#[test]
fn gre_joins_two_switches() {
    if !can_run() {
        return;
    }
    for (is_ipv6, tunnel, mtu) in [(false, GRE, 1458), (false, "gre:", 1462), (true, GRE, 1438)] {
        let fabric = Fabric::over(is_ipv6, tunnel, "", mtu);
        let [a, b] = &fabric.hosts[..] else { unreachable!() };
        ping(a, b);
        tcp(a, b, 5_000_000);
        tcp(b, a, 5_000_000);
        fabric.check_nothing_dropped();
        for at in [0, 1] {
            let (port, tunnel) = fabric.tunnel(at);
            assert_eq!((port.kind.as_str(), port.mtu, tunnel.path_mtu), ("gre", mtu, 1500));
            assert!(tunnel.refused.is_empty(), "{tunnel:?}");
            assert!(tunnel.sent > 3_400 && tunnel.received > 3_400, "{tunnel:?}");
            assert!(port.rx.packets > 2 * port.rx.frames, "trains are made of it: {port:?}");
        }
    }
}

#[test]
fn erspan_carries_frames_too() {
    if !can_run() {
        return;
    }
    for (tunnel, mtu) in
        [("erspan:session=7,version=2", 1450), ("erspan:session=1023,version=3", 1446)]
    {
        let fabric = Fabric::over(false, tunnel, "", mtu);
        let [a, b] = &fabric.hosts[..] else { unreachable!() };
        ping(a, b);
        tcp(a, b, 2_000_000);
        fabric.check_nothing_dropped();
        let (port, tunnel) = fabric.tunnel(1);
        assert_eq!((port.kind.as_str(), port.mtu), ("erspan", mtu));
        assert!(tunnel.refused.is_empty() && tunnel.received > 1_400, "{tunnel:?}");
    }
}

#[test]
fn what_does_not_fit_the_path_is_dropped_by_name_and_what_is_cut_short_fits() {
    if !can_run() {
        return;
    }
    for options in ["", ",mtu=1500"] {
        let fabric = Fabric::over(false, GRE, options, 1500);
        let [a, b] = &fabric.hosts[..] else { unreachable!() };
        ping(a, b);
        let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
        from.send_to(&[0; 1472], to.local_addr().unwrap()).unwrap();
        until("a drop", || fabric.switches[0].drops(TUNNEL, "oversize") == 1);
        from.send_to(&[0; 1430], to.local_addr().unwrap()).unwrap();
        assert_eq!(to.recv_from(&mut [0; 2000]).unwrap().0, 1430, "the next one passes");
    }
}

#[test]
fn a_slow_path_makes_the_ingress_wait() {
    if !can_run() {
        return;
    }
    Fabric::over(false, GRE, "", 1458).overrun();
}

#[test]
fn packets_of_another_key_are_counted_and_left_out() {
    if !can_run() {
        return;
    }
    let underlay = Underlay::new(false);
    let mut hosts: Vec<_> = (1..=2).map(Host::new).collect();
    let switches = [0, 1].map(|at| {
        let tap = format!("1=tap:eth0,netns={},mtu=1458", hosts[at].name());
        let key = format!("gre:key={at}");
        Running::start(config(&[tap, underlay.tunnel(at, &key, "")]))
    });
    hosts.iter_mut().for_each(Host::add_address);
    introduce(&mut hosts);
    switches.iter().for_each(|switch| switch.controller().apply(join(1, TUNNEL)));
    let from = udp(&hosts[0], hosts[0].ip(), 0);
    until("a packet is refused", || {
        from.send_to(b"marco", (hosts[1].ip(), 9)).unwrap();
        switches[1].port(TUNNEL).tunnel.unwrap().refused.contains_key("wrong_key")
    });
    assert_eq!(switches[1].port(1).tx.frames, 0);
}

#[test]
fn a_tunnel_needs_a_key_of_its_own_and_an_address_of_the_host() {
    let twice = ["1=gre:remote=127.0.0.2,key=1", "2=gre:remote=127.0.0.2,key=1"];
    let error = start_here(config(&twice.map(str::to_owned))).unwrap_err().to_string();
    assert!(error.contains("another key or session"), "{error}");
    if !can_run() {
        return;
    }
    // Each would receive all packets of the other one.
    let host = Host::new(1);
    let spec = |number, netns| format!("{number}=gre:remote=127.0.0.2,key=1,netns={netns}");
    let names = [spec(1, host.name()), spec(2, &format!("/run/netns/{}", host.name()))];
    let error = start_here(config(&names)).unwrap_err().to_string();
    assert!(error.contains("another key or session"), "{error}");
    let nowhere = ["1=gre:remote=127.0.0.2,local=192.0.2.9".to_owned()];
    let waiting = Running::start(config(&nowhere)).port(1);
    let warning = waiting.tunnel.unwrap().warning.unwrap();
    assert!(warning.contains("192.0.2.9") && warning.contains("`ip address add`"), "{warning}");
    for itself in ["1=gre:remote=127.0.0.1", "1=erspan:remote=127.0.0.1,session=1,version=2"] {
        let error = start_here(config(&[itself.to_owned()])).unwrap_err().to_string();
        assert!(error.contains("an address of this end"), "{error}");
    }
}

/// The packets of a tunnel as read by tshark: these fields of each.
fn on_the_wire(frames: &[Vec<u8>], fields: &[&str]) -> Vec<Vec<String>> {
    let mut bytes = Vec::new();
    tapswitch_pcapng::begin(&mut bytes, "tests", "eth0", 0);
    for frame in frames {
        tapswitch_pcapng::packet(&mut bytes, 1, usize::MAX, &[frame]);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mut command = Command::new("tshark");
    // Of a field that both headers have, the outer one.
    command.args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"]).arg(file.path());
    let output = command.args(fields.iter().flat_map(|field| ["-e", field])).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Frames that a switch copies to a tunnel of this kind, as on the wire: an untagged frame, one
/// with a tag of VLAN 100 and priority 5, and one truncated to 100 bytes.
fn copied(tunnel: &str) -> Vec<Vec<u8>> {
    let underlay = Underlay::new(false);
    let mut hosts: Vec<_> = (1..=2).map(Host::new).collect();
    let taps = [1, 2].map(|at| format!("{at}=tap:eth0,netns={}", hosts[at - 1].name()));
    let ports = [&taps[..], &[underlay.tunnel(0, tunnel, "")]].concat();
    let switch = Running::start(config(&ports));
    let truncate = Shape::Truncate { len: 100 }.action();
    let copy = vec![Delivery::BestEffort.action(), truncate, output(TUNNEL)];
    switch.controller().apply(vec![
        group_all(GroupModCommand::Add, 1, vec![vec![output(2)], copy]),
        Body::FlowMod(rule(100, in_port(1), vec![to_group(1)])),
    ]);
    let (from, to) = (hosts[0].mac(), hosts[1].mac());
    let wire = Capture::open(&underlay.sites[1]);
    let sender = Capture::open(&hosts[0]);
    let tag = Tag::new(EtherType::VLAN, 0xa064);
    for (tags, len) in [(&[][..], 60), (&[tag], 64), (&[], 1000)] {
        sender.send(&NetHeader::PLAIN, &frame(to, from, tags, len));
    }
    let is_gre = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 47;
    let mut seen = Vec::new();
    until("the copies are on the wire", || {
        let found = wire.drain(is_gre).into_iter().map(|(_, frame)| frame);
        // The hosts may send frames of their own.
        seen.extend(
            found.filter(|frame| frame.windows(12).any(|part| part == [to.0, from.0].concat())),
        );
        seen.len() >= 3
    });
    seen
}

fn has_tshark() -> bool {
    Command::new("tshark").arg("--version").output().is_ok() || skip("needs tshark")
}

#[test]
fn tshark_reads_what_is_on_the_wire() {
    if !can_run() || !has_tshark() {
        return;
    }
    let fields = ["gre.proto", "gre.key", "ip.flags.df", "frame.len"];
    let rows = on_the_wire(&copied(GRE), &fields);
    let lens: Vec<_> = [60, 64, 100].map(|len| (len + 14 + 20 + 8).to_string()).into();
    for (row, len) in rows.iter().zip(&lens) {
        assert_eq!(row[..3], ["0x6558", "0x0000002a", "1"], "{row:?}");
        assert_eq!(row[3], *len);
    }
    let fields = [
        "gre.proto",
        "gre.sequence_number",
        "erspan.version",
        "erspan.spanid",
        "erspan.vlan",
        "erspan.cos",
        "erspan.truncated",
    ];
    for (version, proto, shown) in [(2, "0x88be", "1"), (3, "0x22eb", "2")] {
        let tunnel = format!("erspan:session=7,version={version}");
        let rows = on_the_wire(&copied(&tunnel), &fields);
        let first: u32 = rows[0][1].parse().unwrap();
        let expected = [("0", "0", "0"), ("100", "5", "0"), ("0", "0", "1")];
        for ((row, (vlan, priority, cut)), number) in rows.iter().zip(expected).zip(first..) {
            let bit = |text: &str| if matches!(text, "1" | "True") { "1" } else { "0" };
            assert_eq!(row[..4], [proto, &number.to_string(), shown, "7"], "{row:?}");
            assert_eq!((&row[4][..], &row[5][..], bit(&row[6])), (vlan, priority, cut), "{row:?}");
        }
    }
}

/// An Open vSwitch with a directory of its own at a site, stopped on drop.
struct Ovs {
    folder: tempfile::TempDir,
    processes: Vec<std::process::Child>,
}

impl Ovs {
    /// `None`, with a message, if the programs are missing.
    fn start(underlay: &Underlay, site: usize) -> Option<Self> {
        let schema = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
        if !schema.exists() || !Path::new("/usr/sbin/ovs-vswitchd").exists() {
            skip("needs Open vSwitch; `apt-get install openvswitch-switch`");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut ovs = Self { folder, processes: Vec::new() };
        let (db, socket) = (ovs.path("conf.db"), ovs.path("db.sock"));
        let made = Command::new("ovsdb-tool").args(["create", &db]).arg(schema).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        ovs.spawn(underlay, site, "ovsdb-server", &[&db, &format!("--remote=punix:{socket}")]);
        until("the database listens", || UnixStream::connect(&socket).is_ok());
        let control = format!("--unixctl={}", ovs.path("vswitchd.ctl"));
        ovs.spawn(underlay, site, "ovs-vswitchd", &[&format!("unix:{socket}"), &control]);
        Some(ovs)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn spawn(&mut self, underlay: &Underlay, site: usize, program: &str, args: &[&str]) {
        let mut command = underlay.sites[site].namespace.command(program);
        command.args(args).env("OVS_RUNDIR", self.folder.path());
        let log = std::fs::File::create(self.path(&format!("{program}.log"))).unwrap();
        let command = command.stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(command.spawn().unwrap());
    }

    fn vsctl(&self, args: &[&str]) {
        let db = format!("--db=unix:{}", self.path("db.sock"));
        let output = Command::new("ovs-vsctl").args([&db, "--timeout=30"]).args(args).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Open vSwitch in user space implements tunnels itself: its bridge has the site's address, and
/// frames from the tunnel go to a host behind another bridge.
#[test]
fn a_host_behind_open_vswitch_is_reached() {
    if !can_run() {
        return;
    }
    let kinds: [(&str, &[&str], u32); 3] = [
        (GRE, &["type=gre", "options:key=42"], 1458),
        (
            "erspan:session=7,version=2",
            &["type=erspan", "options:key=7", "options:erspan_ver=1", "options:erspan_idx=0"],
            1450,
        ),
        (
            "erspan:session=7,version=3",
            &[
                "type=erspan",
                "options:key=7",
                "options:erspan_ver=2",
                "options:erspan_dir=0",
                "options:erspan_hwid=0",
            ],
            1446,
        ),
    ];
    for (tunnel, interface, mtu) in kinds {
        let underlay = Underlay::new(false);
        let mut hosts: Vec<_> = (1..=2).map(Host::new).collect();
        let tap = format!("1=tap:eth0,netns={},mtu={mtu}", hosts[0].name());
        let switch = Running::start(config(&[tap, underlay.tunnel(0, tunnel, "")]));
        switch.controller().apply(join(1, TUNNEL));
        let Some(ovs) = Ovs::start(&underlay, 1) else { return };
        let (near, far) = (underlay.ip(0).to_string(), underlay.ip(1).to_string());
        ovs.vsctl(&["add-br", "phy", "--", "set", "bridge", "phy", "datapath_type=netdev"]);
        ovs.vsctl(&["add-port", "phy", "eth0"]);
        assert!(underlay.run(1, "ip", &["addr", "flush", "dev", "eth0"]).status.success());
        let address = format!("{far}/24");
        assert!(underlay.run(1, "ip", &["addr", "add", &address, "dev", "phy"]).status.success());
        assert!(underlay.run(1, "ip", &["link", "set", "phy", "up"]).status.success());
        ovs.vsctl(&["add-br", "int", "--", "set", "bridge", "int", "datapath_type=netdev"]);
        let remote = format!("options:remote_ip={near}");
        let set =
            [&["add-port", "int", "tun0", "--", "set", "interface", "tun0", &remote], interface];
        ovs.vsctl(&set.concat());
        hosts[1].netlink.create_veth("eth0", "h1", &underlay.sites[1].namespace).unwrap();
        hosts[1].netlink.set_up("eth0").unwrap();
        // Open vSwitch supports neither trains nor partial checksums.
        hosts[1].netlink.set_feature("eth0", Feature::TxChecksum, false).unwrap();
        assert!(underlay.run(1, "ip", &["link", "set", "h1", "up"]).status.success());
        ovs.vsctl(&["add-port", "int", "h1"]);
        hosts.iter_mut().for_each(Host::add_address);
        introduce(&mut hosts);
        let [a, b] = &hosts[..] else { unreachable!() };
        ping(a, b);
        tcp(a, b, 500_000);
        tcp(b, a, 500_000);
        let report = switch.port(TUNNEL).tunnel.unwrap();
        assert!(report.received > 300 && report.sent > 300, "{report:?}");
        assert!(report.refused.is_empty(), "{report:?}");
    }
}
