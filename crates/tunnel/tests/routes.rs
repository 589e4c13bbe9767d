//! What is told about routes and addresses, when a tunnel is opened, before, and afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic fails a test")]

use std::net::IpAddr;

use tapswitch_helpers::{is_root, unique};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_tunnel::{Carrier, Config, GreConfig, GrePort, OpenError, Probe, Vni, VxlanPort};

/// A namespace with one interface, `d0`, and one end of a tunnel of each kind.
struct Site {
    namespace: OwnedNamespace,
    local: IpAddr,
    remote: IpAddr,
}

impl Site {
    fn new(is_ipv6: bool) -> Self {
        let namespace = OwnedNamespace::create(&unique("tun-routes")).unwrap();
        let mut netlink = Netlink::open(&namespace).unwrap();
        netlink.create_veth("d0", "d1", &namespace).unwrap();
        ["lo", "d0", "d1"].iter().for_each(|name| netlink.set_up(name).unwrap());
        let (local, remote) =
            if is_ipv6 { ("fd09::1", "fd08::2") } else { ("10.9.0.1", "10.8.0.2") };
        let site =
            Self { namespace, local: local.parse().unwrap(), remote: remote.parse().unwrap() };
        site.set_address("add");
        site
    }

    fn ip(&self, command: &str) {
        let family = if self.remote.is_ipv6() { "-6" } else { "-4" };
        let words = std::iter::once(family).chain(command.split(' '));
        let output = self.namespace.command("ip").args(words).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }

    /// Adds or deletes the local address.
    fn set_address(&self, command: &str) {
        let (local, len) = (self.local, if self.remote.is_ipv6() { "64 nodad" } else { "24" });
        self.ip(&format!("addr {command} {local}/{len} dev d0"));
    }

    fn vxlan(&self) -> Config {
        Config::new(self.remote, Vni::new(42).unwrap()).local(Some(self.local))
    }

    fn gre(&self) -> GreConfig {
        GreConfig::new(self.remote, Carrier::Gre { key: Some(42) }).local(Some(self.local))
    }

    /// What opening each kind of tunnel says, and what is known before.
    fn told(&self, probes: &[Probe; 2]) -> [String; 4] {
        let opened = || {
            let vxlan = VxlanPort::open(&self.vxlan()).map(drop);
            [vxlan, GrePort::open(&self.gre()).map(drop)]
        };
        let [vxlan, gre] = self.namespace.enter(opened).unwrap();
        // From this thread, which is in another namespace.
        let [before, before_gre] = probes.each_ref().map(Probe::find_path);
        [vxlan, gre, before, before_gre].map(|outcome| match outcome {
            Ok(()) => "a path".to_owned(),
            Err(OpenError::NoRoute { .. }) => "no route".to_owned(),
            Err(OpenError::Refusing { kind, .. }) => kind.to_owned(),
            Err(OpenError::NotLocal { .. }) => "no address".to_owned(),
            Err(error) => panic!("{error}"),
        })
    }

    fn probes(&self) -> [Probe; 2] {
        let open = || [Probe::vxlan(&self.vxlan()).unwrap(), Probe::gre(&self.gre()).unwrap()];
        self.namespace.enter(open).unwrap()
    }
}

#[test]
fn what_a_route_is_like_is_known_before_a_tunnel_is_opened() {
    if !is_root() {
        return;
    }
    for is_ipv6 in [false, true] {
        let site = Site::new(is_ipv6);
        let (probes, remote) = (site.probes(), site.remote);
        assert_eq!(site.told(&probes), ["no route"; 4]);
        for kind in ["blackhole", "prohibit", "unreachable"] {
            site.ip(&format!("route add {kind} {remote}"));
            assert_eq!(site.told(&probes), [kind; 4]);
            site.ip(&format!("route del {kind} {remote}"));
        }
        site.ip(&format!("route add {remote} dev d0"));
        assert_eq!(site.told(&probes), ["a path"; 4]);
        assert!(probes.iter().all(|probe| probe.has_address(site.local)));
        site.set_address("del");
        assert_eq!(site.told(&probes), ["no address"; 4]);
        assert!(!probes.iter().any(|probe| probe.has_address(site.local)));
        site.set_address("add");
        assert!(probes.iter().all(|probe| probe.has_address(site.local)));
    }
}

/// The kernel copies each GRE packet to all raw sockets on its list.
#[test]
fn a_socket_that_asks_takes_no_packets() {
    if !is_root() {
        return;
    }
    for is_ipv6 in [false, true] {
        let site = Site::new(is_ipv6);
        let probes = site.probes();
        let listed = || {
            let files =
                ["raw", "raw6", "udp", "udp6"].map(|kind| format!("/proc/thread-self/net/{kind}"));
            let lines = files.map(|file| std::fs::read_to_string(file).unwrap_or_default());
            lines.iter().map(|text| text.lines().skip(1).count()).sum::<usize>()
        };
        assert_eq!(site.namespace.enter(listed).unwrap(), 0);
        probes.iter().for_each(|probe| assert!(probe.has_address(site.local)));
        site.told(&probes);
        assert_eq!(site.namespace.enter(listed).unwrap(), 0);
        drop(probes);
    }
}

#[test]
fn an_open_tunnel_says_what_has_become_of_its_route() {
    if !is_root() {
        return;
    }
    for is_ipv6 in [false, true] {
        let site = Site::new(is_ipv6);
        let remote = site.remote;
        site.ip(&format!("route add {remote} dev d0"));
        let open =
            || (VxlanPort::open(&site.vxlan()).unwrap(), GrePort::open(&site.gre()).unwrap());
        let (vxlan, gre) = site.namespace.enter(open).unwrap();
        assert_eq!([vxlan.path_mtu().unwrap(), gre.path_mtu().unwrap()], [1500; 2]);
        site.ip(&format!("route del {remote} dev d0"));
        let told = [vxlan.path_mtu().unwrap_err(), gre.path_mtu().unwrap_err()];
        assert!(told.iter().all(|it| matches!(it, OpenError::NoRoute { .. })), "{told:?}");
        site.ip(&format!("route add blackhole {remote}"));
        let told =
            [vxlan.path_mtu().unwrap_err(), gre.path_mtu().unwrap_err()].map(|it| it.to_string());
        assert!(told.iter().all(|it| it.contains("is of type blackhole")), "{told:?}");
    }
}

/// The kernel has the same error for it as for a route that prohibits.
#[test]
fn a_broadcast_address_is_told_from_a_route_that_prohibits() {
    if !is_root() {
        return;
    }
    let site = Site { remote: [10, 9, 0, 255].into(), ..Site::new(false) };
    let open = || {
        let probe = Probe::vxlan(&site.vxlan()).unwrap().find_path();
        [probe, VxlanPort::open(&site.vxlan()).map(drop), GrePort::open(&site.gre()).map(drop)]
    };
    for error in site.namespace.enter(open).unwrap().map(Result::unwrap_err) {
        assert!(matches!(error, OpenError::Address { .. }), "{error}");
    }
}
