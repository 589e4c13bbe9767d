//! Hosts: network namespaces with one interface each that leads to the switch.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_wire::MacAddr;

use super::{Said, unique, until};

/// A host. Its interface has the name of its port on the switch.
pub(crate) struct Host {
    pub(crate) namespace: OwnedNamespace,
    /// Number of its port, and last byte of its addresses.
    pub(crate) number: u8,
    pub(crate) interface: String,
}

impl Host {
    /// A namespace without the interface. IPv6 is off, so that the host sends nothing on its own.
    pub(crate) fn new(number: u8) -> Self {
        let namespace = room();
        let quiet = || {
            let defaults = "/proc/sys/net/ipv6/conf/default";
            fs::write(format!("{defaults}/disable_ipv6"), "1").unwrap();
            fs::write(format!("{defaults}/router_solicitations"), "0").unwrap();
        };
        namespace.enter(quiet).unwrap();
        Self { namespace, number, interface: format!("t{number}") }
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

    pub(crate) fn mac(&self) -> MacAddr {
        MacAddr(self.netlink().link(&self.interface).unwrap().mac.unwrap())
    }

    /// Waits for the interface and gives it its IPv4 address.
    pub(crate) fn configure(&self) {
        let mut netlink = self.netlink();
        netlink.set_up(&self.interface).unwrap();
        until("the interface runs", || netlink.link(&self.interface).unwrap().running);
        netlink.add_address(&self.interface, self.ip(), 24).unwrap();
    }

    /// Enables IPv6, with an address.
    pub(crate) fn configure6(&self) {
        let setting = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.interface);
        self.namespace.enter(|| fs::write(setting, "0").unwrap()).unwrap();
        self.netlink().add_address(&self.interface, self.ip6(), 64).unwrap();
    }

    /// Pings another host until it answers: rules for the first packets may not be installed yet.
    pub(crate) fn ping(&self, ip: IpAddr) {
        let ip = ip.to_string();
        let command = || {
            let mut command = self.namespace.command("ping");
            command.args(["-c", "1", "-W", "1", &ip]);
            command
        };
        until(&format!("{} answers", &ip), || Said::by(&mut command()).code == Some(0));
    }

    pub(crate) fn netlink(&self) -> Netlink {
        Netlink::open(&self.namespace).unwrap()
    }
}

/// A new namespace with loopback.
pub(crate) fn room() -> OwnedNamespace {
    let namespace = OwnedNamespace::create(&unique()).unwrap();
    Netlink::open(&namespace).unwrap().set_up("lo").unwrap();
    namespace
}

/// Joins the host's interface by a veth pair with `name` in `room`, which is set up.
pub(crate) fn join(host: &Host, room: &Namespace, name: &str) {
    host.netlink().create_veth(&host.interface, name, room).unwrap();
    Netlink::open(room).unwrap().set_up(name).unwrap();
    host.netlink().set_up(&host.interface).unwrap();
}

/// Packets with errors that the kernel counted (proc(5), `net/snmp`).
pub(crate) fn checksum_errors(namespace: &Namespace) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    count_checksum_errors(&namespace.enter(read).unwrap())
}

/// The same, from the text of the file.
pub(crate) fn count_checksum_errors(text: &str) -> u64 {
    let lines: Vec<&str> = text.lines().collect();
    let errors = |pair: &[&str]| -> u64 {
        let named = pair[0].split(' ').zip(pair[1].split(' '));
        let errors = named.filter(|(name, _)| *name == "InCsumErrors");
        errors.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    };
    lines.chunks_exact(2).map(errors).sum()
}
