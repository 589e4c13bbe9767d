//! Changes of links, addresses and routes are those that `ip` shows.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use tapswitch_netlink::{Feature, Link, LinkError, Namespace, Netlink, OperState, OwnedNamespace};

mod common;
use common::{eventually, is_root, namespace, unprivileged};

/// Two namespaces connected by a veth pair `a`-`b`, both ends down.
struct Pair {
    left: OwnedNamespace,
    right: OwnedNamespace,
    a: Netlink,
    b: Netlink,
}

impl Pair {
    fn new() -> Self {
        let (left, right) = (namespace(), namespace());
        let mut a = Netlink::open(&left).unwrap();
        a.create_veth("a", "b", &right).unwrap();
        let b = Netlink::open(&right).unwrap();
        Self { left, right, a, b }
    }

    fn up() -> Self {
        let mut pair = Self::new();
        pair.a.set_up("a").unwrap();
        pair.b.set_up("b").unwrap();
        eventually("both ends run", || {
            (pair.a.link("a").unwrap().running && pair.b.link("b").unwrap().running).then_some(())
        });
        pair
    }
}

#[test]
fn packets_leave_where_the_route_leads() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::up();
    for (from, to, len) in [("192.0.2.1", "192.0.2.2", 24), ("fd00::1", "fd00::2", 64)] {
        let [from, to]: [IpAddr; 2] = [from, to].map(|ip| ip.parse().unwrap());
        assert!(matches!(pair.a.egress(to, from), Err(LinkError::Refused { .. })), "no route");
        pair.a.add_address("a", from, len).unwrap();
        let index = pair.a.link("a").unwrap().index;
        // An IPv6 address is not usable before duplicate address detection has completed.
        let found = eventually("a route", || pair.a.egress(to, from).ok());
        assert_eq!(found, index);
    }
}

#[test]
fn a_new_namespace_holds_only_a_loopback_that_is_down() {
    if !is_root() {
        return;
    }
    let blue = namespace();
    let mut netlink = Netlink::open(&blue).unwrap();
    let lo = netlink.link("lo").unwrap();
    assert_eq!((lo.index, lo.mtu, lo.up), (1, 65536, false));
    // Some kernels create ifb or tunnel devices in every namespace.
    assert!(netlink.links().unwrap().contains(&lo));
    netlink.set_up("lo").unwrap();
    assert!(netlink.link_by_index(1).unwrap().up);
}

#[test]
fn a_veth_pair_spans_two_namespaces() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new();
    let (a, b) = (pair.a.link("a").unwrap(), pair.b.link("b").unwrap());
    assert_eq!(a.kind.as_deref(), Some("veth"));
    assert_eq!((a.mtu, a.up, a.running, a.lower_up), (1500, false, false, false));
    assert!(a.mac.is_some() && a.mac != b.mac);

    pair.a.set_up("a").unwrap();
    let half = pair.a.link("a").unwrap();
    assert!(half.up && !half.lower_up, "the other end is down: {half:?}");
    pair.b.set_up("b").unwrap();
    let whole = eventually("a runs", || Some(pair.a.link("a").unwrap()).filter(|a| a.running));
    assert_eq!((whole.lower_up, whole.oper_state), (true, OperState::Up));

    pair.a.set_down("a").unwrap();
    assert!(!pair.a.link("a").unwrap().up);
    pair.a.delete("a").unwrap();
    let gone = pair.b.link("b").unwrap_err();
    assert!(matches!(gone, LinkError::NotFound { .. }), "{gone}");
}

#[test]
fn settings_are_kept_by_the_kernel() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new();
    pair.a.set_mtu("a", 9000).unwrap();
    pair.a.set_mac("a", [2, 0, 0, 0, 0, 0xa]).unwrap();
    pair.a.set_txqueuelen("a", 77).unwrap();
    let Link { mtu, mac, txqueuelen, .. } = pair.a.link("a").unwrap();
    assert_eq!((mtu, mac, txqueuelen), (9000, Some([2, 0, 0, 0, 0, 0xa]), 77));
    for (alias, kept) in [("to building 7", Some("to building 7")), ("", None)] {
        pair.a.set_alias("a", alias).unwrap();
        assert_eq!(pair.a.link("a").unwrap().alias.as_deref(), kept);
    }
}

#[test]
fn errors_name_the_interface_and_the_namespace() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new();
    let namespace = pair.left.label().to_owned();
    for error in [
        pair.a.link("eth9").unwrap_err(),
        pair.a.set_up("eth9").unwrap_err(),
        pair.a.delete("eth9").unwrap_err(),
        pair.a.feature("eth9", Feature::Tso).unwrap_err(),
    ] {
        assert!(matches!(error, LinkError::NotFound { .. }), "{error}");
        let start = format!("interface eth9: not found in namespace {namespace};");
        assert!(error.to_string().starts_with(&start), "{error}");
    }
    let taken = pair.a.create_veth("a", "c", &pair.right).unwrap_err();
    assert!(matches!(taken, LinkError::Exists { .. }), "{taken}");
    let refused = pair.a.set_mtu("a", 1_000_000).unwrap_err();
    assert!(refused.to_string().contains("set the MTU of a to 1000000"), "{refused}");
    assert!(
        refused.to_string().contains("mtu greater than device maximum"),
        "the kernel's own words are told: {refused}"
    );
    assert!(refused.to_string().contains("it allows 68 to 65535 bytes"), "{refused}");
}

#[test]
fn a_link_moves_between_namespaces() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new();
    let third = namespace();
    pair.a.move_to_namespace("a", &third).unwrap();
    assert!(pair.a.link("a").is_err());
    assert!(Netlink::open(&third).unwrap().link("a").is_ok());
}

#[test]
fn addresses_carry_traffic_in_both_families() {
    if !is_root() {
        return;
    }
    for (prefix_len, left, right) in [(24, "10.1.2.1", "10.1.2.2"), (64, "fd00::1", "fd00::2")] {
        let mut pair = Pair::up();
        let (left, right) = (ip(left), ip(right));
        pair.a.add_address("a", left, prefix_len).unwrap();
        pair.b.add_address("b", right, prefix_len).unwrap();
        let again = pair.a.add_address("a", left, prefix_len).unwrap_err();
        assert!(matches!(again, LinkError::Exists { .. }), "{again}");
        connect(&pair.left, &pair.right, right);
        let sent = pair.a.link("a").unwrap().stats;
        assert!(sent.tx_packets > 0 && sent.tx_bytes > 0 && sent.rx_packets > 0);
    }
}

#[test]
fn a_default_route_reaches_what_has_no_other() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::up();
    pair.a.add_address("a", ip("10.1.2.1"), 24).unwrap();
    pair.b.add_address("b", ip("10.1.2.2"), 24).unwrap();
    pair.b.add_address("b", ip("192.0.2.1"), 32).unwrap();
    pair.a.add_default_route(ip("10.1.2.2")).unwrap();
    connect(&pair.left, &pair.right, ip("192.0.2.1"));
    let unreachable = pair.a.add_default_route(ip("198.51.100.1")).unwrap_err();
    assert!(unreachable.to_string().contains("default route via 198.51.100.1"));
}

#[test]
fn a_permanent_neighbour_is_not_asked_for() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::up();
    let mac = pair.b.link("b").unwrap().mac.unwrap();
    pair.a.add_address("a", ip("10.1.2.1"), 24).unwrap();
    pair.b.add_address("b", ip("10.1.2.2"), 24).unwrap();
    pair.a.set_neighbour("a", ip("10.1.2.2"), [2; 6]).unwrap();
    pair.a.set_neighbour("a", ip("10.1.2.2"), mac).unwrap();
    connect(&pair.left, &pair.right, ip("10.1.2.2"));
    let table =
        pair.left.enter(|| std::fs::read_to_string("/proc/thread-self/net/arp").unwrap()).unwrap();
    // ATF_COM | ATF_PERM
    let entry = table.lines().find(|line| line.starts_with("10.1.2.2 "));
    assert_eq!(entry.unwrap().split_whitespace().nth(2), Some("0x6"));
}

#[test]
fn a_bridge_takes_ports() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new();
    pair.a.create_bridge("br0").unwrap();
    pair.a.set_bridge("a", "br0").unwrap();
    assert_eq!(pair.a.link("br0").unwrap().kind.as_deref(), Some("bridge"));
    assert!(pair.a.set_bridge("a", "br9").is_err());
}

#[test]
fn features_switch_and_take_their_dependents_along() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new();
    assert!(pair.a.feature("a", Feature::TxChecksum).unwrap());
    assert!(pair.a.feature("a", Feature::Tso).unwrap());
    pair.a.set_feature("a", Feature::TxChecksum, false).unwrap();
    assert!(!pair.a.feature("a", Feature::TxChecksum).unwrap());
    assert!(!pair.a.feature("a", Feature::Tso).unwrap());
    pair.a.set_feature("a", Feature::TxChecksum, true).unwrap();
    assert!(pair.a.feature("a", Feature::TxChecksum).unwrap());
}

#[test]
fn looking_around_needs_no_privilege_but_changing_does() {
    if !is_root() {
        return;
    }
    let blue = namespace();
    let (links, change) = blue
        .enter(|| {
            unprivileged(|| {
                let mut here = Netlink::open(&Namespace::current().unwrap()).unwrap();
                (here.links().unwrap(), here.set_up("lo").unwrap_err())
            })
        })
        .unwrap();
    assert!(links.iter().any(|link| link.name == "lo"));
    assert!(matches!(change, LinkError::NotPermitted { .. }), "{change}");
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A TCP connection from `left` to `to`, an address in `right`.
fn connect(left: &Namespace, right: &Namespace, to: IpAddr) {
    let listener = right.enter(|| TcpListener::bind((to, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let patience = Duration::from_secs(5);
    left.enter(|| TcpStream::connect_timeout(&address, patience).unwrap()).unwrap();
}
