//! Hosts for demonstrations and benchmarks: network namespaces with one interface each, and a
//! directory for files. All are removed on drop; the next process removes what a killed one left
//! behind.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tempfile::TempDir;

type Failure = Box<dyn std::error::Error>;

/// A host: a namespace with the kernel side of a tap device.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) namespace: OwnedNamespace,
    /// Number of its port, and last part of its addresses.
    pub(crate) number: u8,
}

impl Host {
    /// Creates host `number`, from 1, named after its role.
    pub(crate) fn create(number: u8, role: &str) -> Result<Self, Failure> {
        Ok(Self { namespace: namespace(role)?, number })
    }

    pub(crate) fn ipv4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 20, 0, self.number)
    }

    pub(crate) fn ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd20, 0, 0, 0, 0, 0, 0, self.number.into())
    }

    /// Number of frames that the host's kernel received from the switch.
    pub(crate) fn received_frames(&self) -> Result<u64, Failure> {
        Ok(Netlink::open(&self.namespace)?.link(INTERFACE)?.stats.rx_packets)
    }

    /// Number of datagrams that the host's kernel received, whether or not a socket had room for
    /// them. The datagrams of a train count individually.
    pub(crate) fn received_datagrams(&self) -> Result<u64, Failure> {
        datagrams_in(&self.namespace)
    }

    /// True while one of the host's TCP connections may still send.
    pub(crate) fn has_tcp_connections(&self) -> Result<bool, Failure> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let tables = self.namespace.enter(|| [read("tcp"), read("tcp6")])?;
        for table in tables {
            if has_open_connection(&table?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The host's port, as an argument of `tapswitch switch --port`.
    pub(crate) fn port_spec(&self) -> String {
        format!("{}=tap:{INTERFACE},netns={}", self.number, self.namespace.label())
    }

    /// Sets the addresses of the interface.
    pub(crate) fn configure(&self) -> Result<(), Failure> {
        let mut netlink = Netlink::open(&self.namespace)?;
        netlink.add_address(INTERFACE, IpAddr::V4(self.ipv4()), 24)?;
        netlink.add_address(INTERFACE, IpAddr::V6(self.ipv6()), 64)?;
        netlink.set_up("lo")?;
        Ok(())
    }
}

/// Creates a namespace named after its role.
pub(crate) fn namespace(role: &str) -> Result<OwnedNamespace, Failure> {
    Ok(OwnedNamespace::create(&format!("{PREFIX}{}-{role}", std::process::id()))?)
}

/// Creates a namespace without IPv6, and so without neighbour discovery and other unsolicited
/// traffic.
pub(crate) fn quiet_namespace(role: &str) -> Result<OwnedNamespace, Failure> {
    let namespace = namespace(role)?;
    namespace.enter(|| match std::fs::write(WITHOUT_IPV6, "1") {
        // A kernel without IPv6 is as quiet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    })??;
    Netlink::open(&namespace)?.set_up("lo")?;
    Ok(namespace)
}

/// Number of datagrams received in the namespace: see [`Host::received_datagrams`].
pub(crate) fn datagrams_in(namespace: &Namespace) -> Result<u64, Failure> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
    datagrams(&namespace.enter(read)??).ok_or_else(|| "no UDP counters".into())
}

/// `InDatagrams` and `InErrors` of `/proc/net/snmp`: delivered to a socket, and dropped by a full
/// one.
fn datagrams(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names = lines.next()?.split(' ');
    let counted = names.zip(lines.next()?.split(' '));
    let wanted = counted.filter(|(name, _)| matches!(*name, "InDatagrams" | "InErrors"));
    wanted.map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// A private directory for files, removed on drop.
pub(crate) fn directory() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir()
}

/// Removes what killed processes left behind.
pub(crate) fn sweep() {
    let namespaces = Namespace::list().unwrap_or_default();
    for name in namespaces.iter().filter(|name| is_orphan(name)) {
        if let Err(error) = Namespace::delete(name) {
            tracing::warn!("cannot remove the namespace {name} of an earlier run: {error}");
        }
    }
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_orphan(&entry.file_name().to_string_lossy())) {
        // Another process may be sweeping as well.
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// True for a name with our prefix whose process has ended.
fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let pid = rest.split('-').next().unwrap_or_default();
    pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// True if `table`, in the format of /proc/net/tcp, has a socket that is neither listening nor
/// closed.
fn has_open_connection(table: &str) -> bool {
    const TIME_WAIT: &str = "06";
    const LISTEN: &str = "0A";
    let states = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3));
    states.into_iter().any(|state| state != TIME_WAIT && state != LISTEN)
}

/// Prefix of the names of namespaces and directories, followed by the process ID.
const PREFIX: &str = "tapswitch-lab-";
const WITHOUT_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
/// The tap device inside each namespace.
pub(crate) const INTERFACE: &str = "eth0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_open_until_it_only_waits() {
        let table = |state| {
            format!(
                "  sl  local_address rem_address   st tx_queue\n   \
                 0: 0100140A:1451 0200140A:8F2C {state} 00000000:00000000\n"
            )
        };
        assert!(has_open_connection(&table("01")));
        assert!(has_open_connection(&table("09")));
        assert!(!has_open_connection(&table("06")));
        assert!(!has_open_connection(&table("0A")));
        assert!(!has_open_connection(""));
    }

    #[test]
    fn datagrams_count_with_a_socket_or_without_room() {
        let snmp = "Tcp: InSegs\nTcp: 7\nUdp: InDatagrams NoPorts InErrors OutDatagrams\n\
                    Udp: 40 3 2 1\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(datagrams(snmp), Some(42));
        assert_eq!(datagrams(""), None);
    }

    #[test]
    fn only_names_of_dead_processes_are_swept() {
        assert!(is_orphan("tapswitch-lab-4294967295-sender"));
        assert!(!is_orphan(&format!("tapswitch-lab-{}-sender", std::process::id())));
        assert!(!is_orphan("tapswitch-lab-x"));
        assert!(!is_orphan("blue"));
    }
}
