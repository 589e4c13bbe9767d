//! Tests of tunnels that wait for their path.

use std::net::{Ipv4Addr, UdpSocket};

use tapswitch_helpers::{Log, eventually, is_root, unique, unprivileged};
use tapswitch_netlink::{Netlink, OwnedNamespace};

use super::*;
use crate::PortKind;

/// A tunnel in a namespace that has its local address and no route to its remote end.
struct Site {
    namespace: OwnedNamespace,
    tunnel: Tunnel,
}

impl Site {
    fn new() -> Self {
        let name = unique("sw-tunnel");
        let namespace = OwnedNamespace::create(&name).unwrap();
        let mut netlink = Netlink::open(&namespace).unwrap();
        netlink.create_veth("d0", "d1", &namespace).unwrap();
        ["lo", "d0", "d1"].iter().for_each(|name| netlink.set_up(name).unwrap());
        netlink.add_address("d0", LOCAL.into(), 24).unwrap();
        let spec = format!("1=vxlan:remote=10.8.0.2,local=10.9.0.1,vni=42,netns={name}");
        let spec: PortSpec = spec.parse().unwrap();
        let PortKind::Vxlan(vxlan) = &spec.kind else { panic!("{spec}") };
        let tunnel = Tunnel::open(&spec, Kind::Vxlan(vxlan.clone())).unwrap();
        Self { namespace, tunnel }
    }

    fn ip(&self, command: &str) {
        let output = self.namespace.command("ip").args(command.split(' ')).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }

    fn why(&self) -> String {
        self.tunnel.report().warning.unwrap_or_default()
    }
}

/// Only privileged threads can enter a namespace.
#[test]
fn whether_there_is_a_path_is_found_out_without_a_thread() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert!(site.why().starts_with("there is no route to 10.8.0.2"), "{}", site.why());
    site.ip("route add blackhole 10.8.0.2");
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert!(site.why().contains("one of type blackhole"), "{}", site.why());
    site.ip("route replace 10.8.0.2 dev d0");
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert!(site.why().contains("CAP_SYS_ADMIN"), "opening needs a thread: {}", site.why());
    assert_eq!(site.tunnel.look(), Look::Opened);
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Same);
    assert_eq!(site.why(), "");
    site.ip("addr del 10.9.0.1/24 dev d0");
    assert_eq!(unprivileged(|| site.tunnel.look()), Look::Changed);
    assert!(site.why().starts_with("its local address 10.9.0.1 is gone"), "{}", site.why());
}

#[test]
fn the_log_says_what_keeps_a_tunnel_down_now() {
    if !is_root() {
        return;
    }
    let mut site = Site::new();
    let log = Log::default();
    let look = |site: &mut Site| {
        log.during(|| site.tunnel.look());
        log.take()
    };
    assert!(look(&mut site).is_empty(), "no news");
    site.ip("route add prohibit 10.8.0.2");
    let [line] = look(&mut site).try_into().unwrap();
    assert!(line.contains("is down: ") && line.contains("one of type prohibit"), "{line}");
    site.ip("route replace 10.8.0.2 dev d0");
    let taken = site.namespace.enter(|| UdpSocket::bind((LOCAL, 4789))).unwrap().unwrap();
    let [line] = look(&mut site).try_into().unwrap();
    assert!(line.contains("is down: 10.9.0.1:4789: the UDP port is used"), "{line}");
    assert!(look(&mut site).is_empty(), "no news");
    drop(taken);
    // A process that another test is starting may hold the socket for a moment.
    let news = || Some(look(&mut site)).filter(|news| !news.is_empty());
    let [line] = eventually("the port is free", news).try_into().unwrap();
    assert!(line.ends_with("is up: there is a route to 10.8.0.2"), "{line}");
}

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
