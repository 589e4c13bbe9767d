//! A host: a network namespace with an interface `eth0` connected to the switch.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_netlink::{Link, Namespace, Netlink, OwnedNamespace};
use tapswitch_wire::MacAddr;

use super::unique;

pub(crate) struct Host {
    pub(crate) netlink: Netlink,
    pub(crate) namespace: OwnedNamespace,
    /// Number of the host: the last byte of its addresses, and of its port.
    pub(crate) number: u8,
}

impl Host {
    /// A namespace without an interface, in which IPv6 sends nothing by itself.
    pub(crate) fn new(number: u8) -> Self {
        let namespace = OwnedNamespace::create(&unique("swt")).unwrap();
        let settings = [("disable_ipv6", "1"), ("router_solicitations", "0")];
        let quiet = || {
            for (name, value) in settings {
                fs::write(format!("/proc/sys/net/ipv6/conf/default/{name}"), value).unwrap();
            }
        };
        namespace.enter(quiet).unwrap();
        Self { netlink: Netlink::open(&namespace).unwrap(), namespace, number }
    }

    pub(crate) fn ip(&self) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, self.number).into()
    }

    pub(crate) fn ip6(&self) -> IpAddr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.number.into()).into()
    }

    pub(crate) fn name(&self) -> &str {
        self.namespace.label()
    }

    pub(crate) fn link(&mut self) -> Link {
        self.netlink.link("eth0").unwrap()
    }

    pub(crate) fn mac(&mut self) -> MacAddr {
        MacAddr(self.link().mac.unwrap())
    }

    /// Frames, counting trains as one, that the kernel received from `eth0` and sent to it.
    pub(crate) fn frames(&self) -> [u64; 2] {
        let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let devices = self.namespace.enter(read).unwrap();
        let mut lines = devices.lines().filter_map(|line| line.trim().strip_prefix("eth0:"));
        let numbers: Vec<_> = lines.next().unwrap().split_whitespace().collect();
        [numbers[1], numbers[9]].map(|number| number.parse().unwrap())
    }

    /// Gives `eth0` its IPv4 address.
    pub(crate) fn add_address(&mut self) {
        let ip = self.ip();
        self.netlink.add_address("eth0", ip, 24).unwrap();
    }

    /// Enables IPv6, with an address on `eth0`.
    pub(crate) fn add_address6(&mut self) {
        let allow = || fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0").unwrap();
        self.namespace.enter(allow).unwrap();
        let ip = self.ip6();
        self.netlink.add_address("eth0", ip, 64).unwrap();
    }

    /// Adds a static neighbour entry for another host.
    pub(crate) fn knows(&mut self, ip: IpAddr, mac: MacAddr) {
        self.netlink.set_neighbour("eth0", ip, mac.0).unwrap();
    }

    /// Connects `eth0` by a veth pair to `name` in `other`, both up.
    pub(crate) fn join(&mut self, other: &mut Self, name: &str) {
        let there: &Namespace = &other.namespace;
        self.netlink.create_veth("eth0", name, there).unwrap();
        self.netlink.set_up("eth0").unwrap();
        other.netlink.set_up(name).unwrap();
        super::until("both ends run", || {
            self.link().running && other.netlink.link(name).unwrap().running
        });
    }
}

/// Adds static neighbour entries for all hosts to each other.
pub(crate) fn introduce(hosts: &mut [Host]) {
    let known: Vec<_> = hosts.iter_mut().map(|h| (h.number, h.ip(), h.mac())).collect();
    for host in hosts {
        for &(number, ip, mac) in &known {
            if number != host.number {
                host.knows(ip, mac);
            }
        }
    }
}
