//! `tapswitch device`: what it shows, what it sets, and what its doctor finds in devices that are
//! deliberately misconfigured. A command that the doctor suggests is run, and must remove the
//! finding.

mod doctor;

use std::fs;
use std::net::UdpSocket;
use std::num::NonZeroU16;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_tap::{Config, Device, Offloads};

use crate::support::*;

#[test]
fn a_device_is_made_as_told_and_stays() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device(
        "create t0 --owner 1234 --group 1235 --mac 02:00:00:00:00:77 --mtu 1600 \
         --txqueuelen 300 --address 10.9.0.1/24 --address 10.9.1.1/16 --qdisc pfifo,limit=9 \
         --feature rx-gro-list=on --rx-frames 8 --multi-queue --napi on \
         --gro-flush-timeout 20000 --napi-defer-hard-irqs 2 --up",
    )
    .well();
    let mut netlink = room.netlink();
    let link = netlink.link("t0").unwrap();
    let tun = link.tun.unwrap();
    assert_eq!((tun.owner, tun.group, tun.queues), (Some(1234), Some(1235), Some(0)));
    assert!(tun.persistent && tun.multi_queue && tun.net_header && !tun.packet_info);
    assert_eq!((link.mtu, link.txqueuelen, link.up), (1600, 300, true));
    assert_eq!(link.mac, Some([2, 0, 0, 0, 0, 0x77]));
    assert_eq!(link.qdisc.as_deref(), Some("pfifo"));
    let addresses: Vec<_> =
        netlink.addresses("t0").unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.9.0.1/24", "10.9.1.1/16"]);

    let view = room.show("t0");
    assert_eq!(words_of(&view["flags"]), ["net-header", "multi-queue", "persistent", "napi"]);
    assert_eq!(
        (&view["gro_flush_timeout_ns"], &view["napi_defer_hard_irqs"]),
        (&20_000.into(), &2.into())
    );
    assert_eq!((&view["rx_frames"], &view["state"]), (&8.into(), &"up".into()));
    let text = room.device("show t0").well();
    for word in ["user 1234 in group 1235", "pfifo, 0 dropped", "300 frames", "10.9.0.1/24"] {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
}

#[test]
fn a_tun_device_is_made_with_packet_information() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t0 --kind tun --pi on --vnet-hdr off").well();
    let view = room.show("t0");
    assert_eq!((&view["kind"], &view["mac"]), (&"tun".into(), &Value::Null));
    assert_eq!(words_of(&view["flags"]), ["packet-info", "persistent"]);
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    for (args, words) in [
        ("create t0 --mtu 10", &["MTU", "t0"][..]),
        ("create t0 --qdisc nosuch", &["qdisc of t0"]),
        ("create t0 --feature no-such-feature=on", &["no-such-feature", "ethtool -k t0"]),
        ("create t0 --address 10.0.0.1/24 --address 10.0.0.1/24", &["10.0.0.1/24"]),
        ("create t0 --mac 01:00:00:00:00:01", &["not a unicast address"]),
        ("create t0 --kind tun --mac 02:00:00:00:00:01", &["has no MAC address"]),
        ("create t0 --txqueuelen 100000000", &["ring is too long"]),
        ("create t0 --netns nosuch", &["nosuch", "ip netns list"]),
        ("create lo", &["lo", "taken"]),
        ("create t0 --vnet-hdr off --offloads all", &["no network header"]),
        ("create t0 --offloads csum,uso,tunnel", &["24 bytes"]),
    ] {
        room.device(args).refused(words);
        // The tool in another test may have it open at this moment.
        until(&format!("{args} has left nothing"), || {
            room.netlink().links().unwrap().iter().all(|link| link.tun.is_none())
        });
    }
}

#[test]
fn a_set_that_names_nothing_is_refused() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t0").well();
    room.device("set t0").refused(&["t0", "no setting was given", "--help"]);
    room.device("set t0 --up").well();
}

#[test]
fn back_pressure_is_had_or_refused_by_name() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    let said = room.device("create t0 --backpressure on");
    if said.code == Some(0) {
        assert!(words_of(&room.show("t0")["flags"]).contains(&"backpressure"));
        assert_eq!(room.show("t0")["backpressure"], "when-up");
        room.device("set t0 --up").well();
        assert_eq!(room.show("t0")["backpressure"], "in-force");
        room.device("set t0 --qdisc noqueue").well();
        assert_eq!(room.show("t0")["backpressure"], "no-queueing");
    } else {
        said.refused(&["t0", "IFF_BACKPRESSURE", "7.3"]);
        room.device("create t0").well();
        assert_eq!(room.show("t0")["backpressure"], "unavailable");
        room.device("set t0 --backpressure on").refused(&["IFF_BACKPRESSURE", "7.3"]);
    }
}

#[test]
fn a_program_uses_what_was_made_and_is_named() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t0 --multi-queue --up").well();
    let two = NonZeroU16::new(2).unwrap();
    let device = room.hold(&Config::new("t0".parse().unwrap()).exclusive(false).queues(two));
    let view = room.show("t0");
    // A process that another test starts shares our files until its execve(2).
    let holders = view["holders"].as_array().unwrap().iter();
    let ours: Vec<_> = holders.filter(|it| it["pid"] == std::process::id()).collect();
    assert_eq!((view["queues"].as_u64(), ours.len()), (Some(2), 2));
    assert!(ours.iter().all(|it| it["certain"] == true && it["header_len"] == 12));
    let on = view["offloads"].as_array().unwrap().iter().filter(|it| it["state"] == "on");
    let names: Vec<_> = on.map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["csum", "tso4", "tso6"]), "{names:?}");
    let row = room.device("list").well();
    assert!(row.contains(&format!("({})", std::process::id())), "{row}");
    drop(device);
    // An inspection by another test's program may hold its files for a moment.
    until("it stays, unused", || room.show("t0")["queues"] == 0);
}

#[test]
fn a_switch_takes_what_was_made_and_leaves_it() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (Room::new(), directory());
    let socket = directory.path().join("switch.sock").display().to_string();
    for (how, queues) in [("", ""), ("--multi-queue", ",queues=2")] {
        room.device(&format!("create t0 --mtu 1600 {how}")).well();
        let port = format!("1=tap:t0{queues}");
        let args = ["switch", "--socket", &socket, "--port", &port];
        let mut switch = Daemon::tapswitch(&room.namespace, directory.path(), &args);
        until("the switch holds it", || {
            let holders = room.show("t0")["holders"].clone();
            holders.as_array().unwrap().iter().any(|it| it["pid"] == switch.id())
        });
        assert_eq!(room.show("t0")["mtu"], 1600);
        switch.stop();
        until("nobody holds it", || room.show("t0")["queues"] == 0);
        room.device("delete t0").well();
    }
}

#[test]
fn settings_change_and_flags_only_while_nobody_holds_it() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t0 --address 10.9.0.1/24").well();
    room.device("set t0 --napi on --pi on --vnet-hdr off --owner 77 --mtu 1400 --up").well();
    let view = room.show("t0");
    assert_eq!(words_of(&view["flags"]), ["packet-info", "persistent", "napi"]);
    assert_eq!(
        (&view["owner"], &view["mtu"], &view["state"]),
        (&77.into(), &1400.into(), &"up".into())
    );
    room.device("set t0 --offloads all").refused(&["no network header"]);
    room.device("set t0 --vnet-hdr on --offloads csum,tso --delete-address 10.9.0.1/24").well();
    assert!(offload(&room, "tso6") == "on" && offload(&room, "uso") != "on");
    room.device("set t0 --qdisc noqueue").well();
    room.device("set t0 --qdisc default").well();
    assert_ne!(room.show("t0")["qdisc"]["kind"], "noqueue");
    room.device("set t0 --carrier on").refused(&["no program holds"]);

    let held = room.hold(&Config::new("t0".parse().unwrap()).exclusive(false));
    let who = format!("({})", std::process::id());
    room.device("set t0 --napi off").refused(&["held by", &who]);
    room.device("set t0 --owner 78 --persistent off").well();
    assert_eq!(room.show("t0")["owner"], 78);
    room.device("set t0 --carrier off").well();
    assert_eq!(room.show("t0")["carrier"], false);
    drop(held);
    until("it is gone", || room.netlink().link("t0").is_err());
}

#[test]
fn a_program_gets_no_offloads_that_it_did_not_ask_for_unless_forced() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    let config = Config::new("t0".parse().unwrap()).offloads(Offloads::CSUM);
    let _held = room.hold(&config);
    room.device("set t0 --offloads all").refused(&["held by", "--force"]);
    assert_ne!(offload(&room, "tso4"), "on");
    room.device("set t0 --offloads csum,tso --force").well();
    assert_eq!(offload(&room, "tso4"), "on");
    room.device("set t0 --offloads none").well();
    assert_ne!(offload(&room, "csum"), "on");
}

#[test]
fn only_devices_are_deleted_and_none_that_is_held() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t1").well();
    room.device("create t1").refused(&["no program holds", "`tapswitch device set`"]);
    room.device("delete t1").well();
    room.device("delete lo").refused(&["lo", "not a tun or tap device"]);
    room.device("delete t0").refused(&["t0", "not found"]);
    let held = room.hold(&Config::new("t0".parse().unwrap()));
    let who = format!("({})", std::process::id());
    room.device("delete t0").refused(&["held by", &who, "--force"]);
    room.device("delete t0 --force").well();
    assert!(room.netlink().link("t0").is_err());
    drop(held);
}

#[test]
fn the_same_name_elsewhere_is_told_apart() {
    if !can_run(&[]) {
        return;
    }
    let (here, there, empty) = (Room::new(), Room::new(), Room::new());
    here.device("create t0 --mtu 1111").well();
    there.device("create t0 --mtu 2222").well();
    let name = there.namespace.label();
    assert_eq!(here.show("t0")["mtu"], 1111);
    let said = here.device(&format!("show t0 --netns {name} --json")).json();
    assert_eq!((&said["mtu"], &said["namespace"]), (&2222.into(), &name.into()));
    let listed = here.device(&format!("list --netns {name} --json")).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    empty.device("show t0").refused(&["not found here", name, "--netns"]);
    let all = here.device("list --json").json();
    let mine = all.as_array().unwrap().iter().filter(|it| it["name"] == "t0");
    assert!(mine.filter(|it| [1111, 2222].map(Value::from).contains(&it["mtu"])).count() >= 2);
}

#[test]
fn who_is_not_root_is_told_what_that_hides() {
    if !can_run(&["setpriv"]) {
        return;
    }
    let (room, directory) = (Room::new(), directory());
    room.device("create t0 --owner 65534").well();
    let binary = copy_of_binary(directory.path());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = |args: &str| {
        let mut command = room.namespace.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"]);
        Said::by(command.arg(&binary).arg("device").args(args.split_whitespace()))
    };
    let said = nobody("show t0");
    assert_eq!(said.code, Some(0), "{}", said.err);
    // If every user may open it, as udev's rules allow, the kernel can be asked.
    let is_closed = fs::metadata("/dev/net/tun").unwrap().permissions().mode() & 0o006 == 0;
    let is_unknown = said.out.contains("unknown: the flags could not be read");
    assert_eq!(is_unknown, is_closed, "{}", said.out);
    assert!(
        said.err.contains("could not be examined:") && said.err.contains("root"),
        "{}",
        said.err
    );
    let refused = nobody("create t1").refused(&[]);
    assert!(refused.contains("CAP_NET_ADMIN") || refused.contains("must be readable"), "{refused}");
    nobody("set t0 --mtu 1400").refused(&["t0", "CAP_NET_ADMIN", "root"]);
    nobody("delete t0").refused(&["t0", "CAP_NET_ADMIN", "root"]);
    nobody("create t1 --netns nosuch").refused(&["nosuch"]);
    let said = nobody("doctor --json");
    assert_eq!(said.code, Some(1), "who sees little must not take it for sound");
    let findings: Value = serde_json::from_str(&said.out).unwrap();
    let unseen = findings.as_array().unwrap().iter().filter(|it| it["rule"] == "unseen");
    let text = |it: &Value| it["text"].as_str().unwrap().contains("run as root");
    assert!(unseen.clone().any(|it| it["severity"] == "warning" && text(it)), "{findings}");
}

#[test]
fn what_was_set_before_something_failed_is_named() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t0").well();
    let words = &["qdisc of t0", "already set: mac, mtu"];
    room.device("set t0 --mtu 1400 --mac 02:00:00:00:00:09 --qdisc nosuch").refused(words);
    assert_eq!(room.show("t0")["mtu"], 1400);
    let said = room.device("set t0 --qdisc nosuch").refused(&["qdisc of t0"]);
    assert!(!said.contains("already set"), "{said}");
}

#[test]
fn what_can_be_seen_to_be_wrong_changes_nothing() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t0").well();
    for (args, words) in [
        ("--mtu 1400 --persistent off", &["no program holds it", "`tapswitch device delete`"][..]),
        ("--vnet-hdr off --offloads csum", &["no network header"]),
        ("--mtu 1400 --offloads csum,tso,tunnel", &["24 bytes, and it has 10", "--vnet-hdr"]),
        ("--up --carrier on", &["that no program holds"]),
        ("--up --delete-address 9.9.9.9/24", &["no address 9.9.9.9/24", "`tapswitch device show`"]),
        ("--up --feature no-such-feature=on", &["no-such-feature", "ethtool -k t0"]),
    ] {
        let said = room.device(&format!("set t0 {args}")).refused(words);
        assert!(!said.contains("already set"), "{said}");
        let view = room.show("t0");
        assert_eq!((&view["mtu"], &view["state"]), (&1500.into(), &"down".into()), "{args}");
        assert_eq!(words_of(&view["flags"]), ["net-header", "persistent"], "{args}");
    }
}

#[test]
fn a_header_may_have_any_length_that_there_is() {
    if !can_run(&["python3"]) {
        return;
    }
    let room = Room::new();
    room.device("create t0 --vnet-hdr 24 --offloads csum,tso,tunnel").well();
    let has_tunnels = offload(&room, "tunnel") == "on";
    let rule = |rule: &str| {
        let said = room.device("doctor t0 --json");
        let found: Value = serde_json::from_str(&said.out).unwrap();
        found.as_array().unwrap().iter().find(|it| it["rule"] == rule).cloned()
    };
    assert_eq!(rule("short-tunnel-header"), None);
    room.device("set t0 --vnet-hdr 12").well();
    assert_ne!(offload(&room, "tunnel"), "on", "the header cannot tell of them any more");
    assert!(!has_tunnels || offload(&room, "tso4") == "on", "the others stay");
    room.device("set t0 --offloads csum,tso,tunnel").refused(&["and it has 12", "--vnet-hdr"]);
    room.device("set t0 --vnet-hdr 24 --offloads csum,tso,tunnel").well();

    let mut python: Command = room.namespace.command("python3");
    Said::by(python.args(["-c", ODD_HEADER])).well();
    room.device("set t0 --offloads csum").refused(&["set to 100000 bytes", "--vnet-hdr"]);
    let found = rule("odd-header").unwrap();
    assert_eq!(found["severity"], "warning", "nobody reads it: {found}");
    room.shell(found["mend"].as_str().unwrap()).well();
    assert_eq!(rule("odd-header"), None);
    let held = room.hold(&Config::new("t0".parse().unwrap()).exclusive(false));
    room.device("set t0 --vnet-hdr 20").refused(&["held by", "decides its flags"]);
    drop(held);
}

#[test]
fn features_have_the_names_of_ethtool() {
    if !can_run(&[]) {
        return;
    }
    let room = Room::new();
    room.device("create t0").well();
    let is_on = |name: &str| {
        let features = room.netlink().features("t0").unwrap();
        features.iter().find(|it| it.name == name).unwrap().active
    };
    for name in ["rx-gro", "generic-receive-offload", "gro"] {
        room.device(&format!("set t0 --feature {name}=off")).well();
        assert!(!is_on("rx-gro"), "{name}");
        room.device(&format!("set t0 --feature {name}=on")).well();
        assert!(is_on("rx-gro"), "{name}");
    }
    let _held = room.hold(&Config::new("t0".parse().unwrap()).exclusive(false));
    room.device("set t0 --feature tcp-segmentation-offload=off").well();
    assert!(!is_on("tx-tcp-segmentation") && !is_on("tx-tcp6-segmentation"));
    room.device("set t0 --feature tcp-segmentation-offload=on").well();
    assert!(is_on("tx-tcp-segmentation") && is_on("tx-tcp6-segmentation"));
    room.device("set t0 --feature large-receive-offload=on").refused(&["rx-lro"]);
}

#[test]
fn who_names_a_namespace_is_not_told_of_others() {
    if !can_run(&["setpriv"]) {
        return;
    }
    let room = Room::new();
    room.device("create t0").well();
    let label = room.namespace().label();
    let blind = |args: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-all", "--"]);
        Said::by(command.args([BINARY, "device"]).args(args.split_whitespace()))
    };
    let all = blind("list");
    let named = blind(&format!("list --netns {label}"));
    assert!(!named.err.contains("the namespaces of"), "{}", named.err);
    if all.err.contains("the namespaces of") {
        assert!(!all.err.contains("run as root,"), "it is root: {}", all.err);
    }
}

#[test]
fn command_lines_that_make_no_sense_are_refused_by_name() {
    for (args, word) in [
        ("create t0 --mtu many", "--mtu"),
        ("create a/b", "a/b"),
        ("create t0 --owner no-such-user", "no-such-user"),
        ("create t0 --offloads tso", "csum"),
        ("create t0 --qdisc pfifo,7", "limit="),
        ("create t0 --address 10.0.0.1", "10.0.0.1"),
        ("create t0 --feature gro", "NAME=on"),
        ("create t0 --pi yes", "--pi"),
        ("set t0 --up --down", "--down"),
        ("show", "NAME"),
        ("bogus", "bogus"),
    ] {
        let said =
            tapswitch(&[&["device"], &args.split_whitespace().collect::<Vec<_>>()[..]].concat());
        assert_eq!(said.code, Some(2), "{args}: {}", said.err);
        assert!(said.err.contains(word), "{args}: '{word}' is not in: {}", said.err);
    }
}

/// A namespace in which `tapswitch device` runs.
struct Room {
    namespace: OwnedNamespace,
}

impl Room {
    /// Without IPv6, so that the kernel sends nothing on its own.
    fn new() -> Self {
        let namespace = room();
        let quiet = || fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        namespace.enter(quiet).unwrap();
        Self { namespace }
    }

    fn device(&self, args: &str) -> Said {
        let args = [&["device"], &args.split_whitespace().collect::<Vec<_>>()[..]].concat();
        tapswitch_in(&self.namespace, &args)
    }

    fn show(&self, name: &str) -> Value {
        self.device(&format!("show {name} --json")).json()
    }

    fn netlink(&self) -> Netlink {
        Netlink::open(&self.namespace).unwrap()
    }

    /// Opens or creates a device, as a program would. The tool in another test may still have a
    /// device open that was just closed, so that it still exists.
    fn hold(&self, config: &Config) -> Device {
        let create = || self.namespace.enter(|| Device::create(config)).unwrap().ok();
        eventually("the device can be opened", create)
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Sends datagrams through `t0`, which nobody reads, until its ring has dropped some. The
    /// kernel passes them a moment after the interface is set up.
    fn flood(&self) {
        let mut netlink = self.netlink();
        netlink.add_address("t0", "10.9.0.1".parse().unwrap(), 24).unwrap();
        netlink.set_neighbour("t0", "10.9.0.2".parse().unwrap(), [2; 6]).unwrap();
        let socket = self.namespace.enter(|| UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
        until("the ring is full", || {
            socket.send_to(&[0; 100], "10.9.0.2:9").unwrap();
            netlink.link("t0").unwrap().stats.tx_dropped > 0
        });
    }

    /// Runs a command line in a shell.
    fn shell(&self, line: &str) -> Said {
        let line = line.replace("tapswitch ", &format!("'{BINARY}' "));
        let mut command: Command = self.namespace.command("sh");
        Said::by(command.args(["-c", &line]))
    }
}

fn words_of(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

/// The state of one offload of `t0`.
fn offload(room: &Room, name: &str) -> String {
    let view = room.show("t0");
    let found = view["offloads"].as_array().unwrap().iter().find(|it| it["name"] == name);
    found.unwrap()["state"].as_str().unwrap().to_owned()
}

/// Creates the persistent device `t0` with a header of 100,000 bytes.
const ODD_HEADER: &str = r#"
import fcntl, os, struct
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"t0", 0x5002))
fcntl.ioctl(tun, 0x400454d8, struct.pack("i", 100000))
"#;
