//! Properties of tun and tap devices, and settings other than those of links.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use tapswitch_netlink::{
    LinkError, Namespace, Netlink, OwnedNamespace, QdiscSpec, Sysfs, TunInfo, TunKind,
    die_with_parent, survey,
};

mod common;
use common::{can_tap, is_root, namespace, skip, unprivileged};

/// A namespace with a persistent device `t0` in it, created by `ip tuntap` with these arguments.
struct Lab {
    namespace: OwnedNamespace,
    netlink: Netlink,
}

impl Lab {
    fn new(words: &[&str]) -> Option<Self> {
        if !can_tap() {
            return None;
        }
        let namespace = namespace();
        let args = [&["tuntap", "add", "name", "t0"], words].concat();
        let status = namespace.command("ip").args(args).status();
        if !status.is_ok_and(|status| status.success()) {
            skip("`ip tuntap` does not work here");
            return None;
        }
        let netlink = Netlink::open(&namespace).unwrap();
        Some(Self { namespace, netlink })
    }

    fn tun(&mut self) -> TunInfo {
        self.netlink.link("t0").unwrap().tun.unwrap()
    }
}

#[test]
fn a_tap_device_tells_what_it_is() {
    let words = ["mode", "tap", "user", "1000", "group", "1001", "vnet_hdr", "multi_queue"];
    let Some(mut lab) = Lab::new(&words) else { return };
    let tun = lab.tun();
    assert_eq!((tun.kind, tun.owner, tun.group), (TunKind::Tap, Some(1000), Some(1001)));
    assert!(tun.net_header && tun.persistent && tun.multi_queue && !tun.packet_info, "{tun:?}");
    assert_eq!((tun.queues, tun.disabled_queues), (Some(0), Some(0)));
    let link = lab.netlink.link("t0").unwrap();
    assert_eq!((link.link_type, link.tx_queues), (1, Some(256)));
    assert_eq!(link.tso_max_size, Some(65_536));
}

#[test]
fn a_tun_device_tells_what_it_is() {
    let Some(mut lab) = Lab::new(&["mode", "tun", "pi"]) else { return };
    let tun = lab.tun();
    assert_eq!((tun.kind, tun.owner, tun.group), (TunKind::Tun, None, None));
    assert!(tun.packet_info && !tun.net_header && !tun.multi_queue, "{tun:?}");
    assert_eq!((tun.queues, tun.disabled_queues), (None, None));
    let link = lab.netlink.link("t0").unwrap();
    assert_eq!((link.link_type, link.tx_queues, link.mac), (65_534, Some(1), None));
    assert!(lab.netlink.link("lo").unwrap().tun.is_none());
}

#[test]
fn a_vlan_tells_its_identifier_and_what_it_sits_on() {
    let Some(mut lab) = Lab::new(&["mode", "tap"]) else { return };
    if let Err(error) = lab.netlink.create_vlan("v7", "t0", 7) {
        skip(&format!("no VLANs here: {error}"));
        return;
    }
    let (vlan, lower) = (lab.netlink.link("v7").unwrap(), lab.netlink.link("t0").unwrap());
    assert_eq!((vlan.vlan, vlan.lower), (Some(7), Some(lower.index)));
    assert_eq!((lower.vlan, lower.lower), (None, None));
}

#[test]
fn the_root_qdisc_is_set_with_its_limit_and_taken_away() {
    let Some(mut lab) = Lab::new(&["mode", "tap"]) else { return };
    let netlink = &mut lab.netlink;
    netlink.set_up("t0").unwrap();
    let default = root(netlink);
    netlink.set_qdisc("t0", &QdiscSpec::new("pfifo").limit(7)).unwrap();
    assert_eq!((root(netlink).as_str(), said_by_tc(&lab.namespace)), ("pfifo", true));
    let netlink = &mut lab.netlink;
    netlink.set_qdisc("t0", &QdiscSpec::new("noqueue")).unwrap();
    assert_eq!(root(netlink), "noqueue");
    assert_eq!(netlink.link("t0").unwrap().qdisc.as_deref(), Some("noqueue"));
    netlink.delete_qdisc("t0").unwrap();
    assert_eq!(root(netlink), default);
    let refused = netlink.set_qdisc("t0", &QdiscSpec::new("noqueue").limit(1)).unwrap_err();
    assert!(refused.to_string().contains("noqueue takes no limit"), "{refused}");
    let unknown = netlink.set_qdisc("t0", &QdiscSpec::new("nosuch")).unwrap_err();
    assert!(matches!(unknown, LinkError::NotFound { .. } | LinkError::Refused { .. }), "{unknown}");
}

#[test]
fn a_qdisc_counts_what_goes_through() {
    let Some(mut lab) = Lab::new(&["mode", "tap"]) else { return };
    let netlink = &mut lab.netlink;
    netlink.set_qdisc("t0", &QdiscSpec::new("pfifo")).unwrap();
    netlink.set_up("t0").unwrap();
    netlink.add_address("t0", ip("10.0.0.1"), 24).unwrap();
    netlink.set_neighbour("t0", ip("10.0.0.2"), [2; 6]).unwrap();
    // The device has a carrier while a program holds it.
    let mut command = lab.namespace.command("python3");
    let Ok(mut holder) = die_with_parent(command.args(["-c", HOLD])).spawn() else {
        skip("no python3 to open the device with");
        return;
    };
    let socket = lab.namespace.enter(|| UdpSocket::bind("10.0.0.1:0").unwrap()).unwrap();
    let pfifo = common::eventually("twenty datagrams have gone through", || {
        socket.send_to(&[0; 100], "10.0.0.2:9").unwrap();
        let qdiscs = lab.netlink.qdiscs("t0").unwrap();
        qdiscs.into_iter().find(|qdisc| qdisc.kind == "pfifo" && qdisc.packets >= 20)
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(pfifo.is_root() && pfifo.bytes >= 20 * 100, "{pfifo:?}");
}

#[test]
fn a_multi_queue_device_has_a_qdisc_for_each_queue() {
    let Some(mut lab) = Lab::new(&["mode", "tap", "multi_queue"]) else { return };
    lab.netlink.set_up("t0").unwrap();
    let qdiscs = lab.netlink.qdiscs("t0").unwrap();
    assert!(qdiscs[0].is_root() && qdiscs[0].kind == "mq", "{qdiscs:?}");
    assert!(qdiscs[1..].iter().all(|qdisc| !qdisc.is_root()));
    assert!(qdiscs.len() > 1, "{qdiscs:?}");
    let index = lab.netlink.link("t0").unwrap().index;
    assert_eq!(lab.netlink.all_qdiscs().unwrap()[&index], qdiscs);
}

#[test]
fn features_are_read_and_set_by_the_kernels_names() {
    let Some(mut lab) = Lab::new(&["mode", "tap", "vnet_hdr"]) else { return };
    let netlink = &mut lab.netlink;
    for name in ["rx-udp-gro-forwarding", "rx-gro-list", "tx-nocache-copy"] {
        for on in [true, false] {
            let state = netlink.set_feature_by_name("t0", name, on).unwrap();
            assert_eq!((state.requested, state.active), (on, on), "{name}");
            let shown = ethtool(&lab.namespace);
            let line = shown.lines().find(|line| line.trim().starts_with(name));
            let expected = if on { "on" } else { "off" };
            // Without the program there is nothing to compare with.
            assert!(line.is_none_or(|line| line.contains(expected)), "{line:?}");
        }
    }
    // It depends on the following feature.
    let mangle = netlink.set_feature_by_name("t0", "tx-tcp-mangleid-segmentation", true).unwrap();
    assert!(mangle.requested && !mangle.active, "{mangle:?}");
    // Requested since the device was created, but its program has not enabled it.
    let csum = netlink.features("t0").unwrap();
    let csum = csum.iter().find(|state| state.name == "tx-checksum-ip-generic").unwrap();
    assert!(csum.requested && !csum.active && !csum.is_fixed(), "{csum:?}");
}

#[test]
fn features_that_cannot_be_changed_say_so() {
    let Some(mut lab) = Lab::new(&["mode", "tap"]) else { return };
    let refused = |lab: &mut Lab, name: &str| {
        lab.netlink.set_feature_by_name("t0", name, true).unwrap_err().to_string()
    };
    let text = refused(&mut lab, "no-such-feature");
    assert!(text.contains("no such feature") && text.contains("ethtool -k t0"), "{text}");
    let text = refused(&mut lab, "hw-tc-offload");
    assert!(text.contains("does not allow changing it"), "{text}");
    assert!(lab.netlink.features("t9").is_err());
}

#[test]
fn frames_are_gathered_as_many_as_was_said() {
    let Some(mut lab) = Lab::new(&["mode", "tap"]) else { return };
    assert_eq!(lab.netlink.rx_frames("t0").unwrap(), 0);
    lab.netlink.set_rx_frames("t0", 16).unwrap();
    assert_eq!(lab.netlink.rx_frames("t0").unwrap(), 16);
}

#[test]
fn sysfs_is_that_of_the_namespace_and_is_mounted_nowhere() {
    let Some(lab) = Lab::new(&["mode", "tap", "user", "1000"]) else { return };
    let mounts = || {
        let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        all.lines().filter(|line| line.contains(" - sysfs ")).count()
    };
    let before = mounts();
    let sysfs = Sysfs::open(&lab.namespace).unwrap();
    assert_eq!(sysfs.tun_flags("t0").unwrap() & 0xffff, 0x1802);
    assert_eq!(sysfs.read("t0", "owner").unwrap(), "1000");
    assert_eq!(sysfs.gro_flush_timeout_ns("t0").unwrap(), 0);
    sysfs.write("t0", "gro_flush_timeout", "20000").unwrap();
    sysfs.write("t0", "napi_defer_hard_irqs", "2").unwrap();
    assert_eq!(sysfs.gro_flush_timeout_ns("t0").unwrap(), 20_000);
    assert_eq!(sysfs.napi_defer_hard_irqs("t0").unwrap(), 2);
    assert_eq!(mounts(), before);

    assert!(matches!(sysfs.tun_flags("lo"), Err(LinkError::NotFound { .. })));
    let outside = sysfs.read("../../kernel", "uevent_seqnum").unwrap_err();
    assert!(matches!(outside, LinkError::NotFound { .. }), "{outside}");
    let refused = sysfs.write("t0", "gro_flush_timeout", "soon").unwrap_err();
    assert!(refused.to_string().contains("set gro_flush_timeout of t0 to soon"), "{refused}");
}

#[test]
fn without_privilege_only_the_visible_sysfs_is_used() {
    let Some(lab) = Lab::new(&["mode", "tap"]) else { return };
    let inside = lab
        .namespace
        .enter(|| unprivileged(|| Sysfs::open(&Namespace::current().unwrap()).map(drop)));
    // /sys shows another namespace here.
    let refused = inside.unwrap().unwrap_err().to_string();
    assert!(refused.contains("CAP_SYS_ADMIN"), "{refused}");
}

#[test]
fn addresses_are_listed_and_taken_away() {
    let Some(mut lab) = Lab::new(&["mode", "tap"]) else { return };
    let netlink = &mut lab.netlink;
    netlink.add_address("t0", ip("10.0.0.1"), 24).unwrap();
    netlink.add_address("t0", ip("fd00::1"), 64).unwrap();
    let listed = |netlink: &mut Netlink| {
        let addresses = netlink.addresses("t0").unwrap();
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // Linux reports success for the first, and adds nothing.
    for none in ["0.0.0.0", "::"] {
        assert!(netlink.add_address("t0", ip(none), 0).is_err(), "{none}");
    }
    assert_eq!(listed(netlink), ["10.0.0.1/24", "fd00::1/64"]);
    netlink.delete_address("t0", ip("10.0.0.1"), 24).unwrap();
    assert_eq!(listed(netlink), ["fd00::1/64"]);
    let again = netlink.delete_address("t0", ip("10.0.0.1"), 24).unwrap_err();
    assert!(again.to_string().contains("10.0.0.1/24"), "{again}");
}

#[test]
fn a_carrier_is_no_ones_to_set_without_a_queue() {
    let Some(mut lab) = Lab::new(&["mode", "tap"]) else { return };
    lab.netlink.set_up("t0").unwrap();
    assert_eq!(lab.netlink.link("t0").unwrap().carrier, Some(false));
    let refused = lab.netlink.set_carrier("t0", true).unwrap_err();
    assert!(refused.to_string().contains("without an attached queue"), "{refused}");
}

#[test]
fn namespaces_are_found_by_name_and_by_process_once_each() {
    if !is_root() {
        return;
    }
    let blue = namespace();
    let mut sleeper = Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap();
    let process = format!("/proc/{}/ns/net", sleeper.id());
    let here = Namespace::current().unwrap();
    common::eventually("it is in its own", || {
        (!Namespace::open_path(&process).unwrap().is_same(&here).unwrap()).then_some(())
    });
    let theirs = Namespace::open_path(&process).unwrap();
    let found = survey();
    let same = |one: &Namespace| {
        found.namespaces.iter().filter(|other| other.is_same(one).unwrap()).count()
    };
    let counts = [&here, &blue, &theirs].map(same);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(counts, [1, 1, 1]);
    assert!(found.namespaces[0].is_same(&here).unwrap());
    assert!(found.namespaces.iter().any(|namespace| namespace.label() == blue.label()));
}

fn root(netlink: &mut Netlink) -> String {
    let qdiscs = netlink.qdiscs("t0").unwrap();
    qdiscs.iter().find(|qdisc| qdisc.is_root()).unwrap().kind.clone()
}

/// True if `tc` shows the limit as well, or is not installed.
fn said_by_tc(namespace: &Namespace) -> bool {
    let output = namespace.command("tc").args(["qdisc", "show", "dev", "t0"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("limit 7p"))
        || namespace.command("tc").arg("-V").output().is_err()
}

fn ethtool(namespace: &Namespace) -> String {
    let output = namespace.command("ethtool").args(["-k", "t0"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Opens the device and waits to be killed.
const HOLD: &str = r#"
import fcntl, os, struct, time
tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"t0", 0x1002))
time.sleep(60)
"#;
