//! Two hosts, a switch at each, and a link between the switches.
//!
//! ```text
//!  host ── tap ── switch ── link ── switch ── tap ── host
//!         MTU 1500   pushes │    tags    │ pops
//!                           pops         pushes
//! ```
//! The link is a tap device: frames written by one switch are read by the other from the device's
//! other side by a packet socket, and vice versa. That is one device and one pass through the
//! kernel's network core less than a veth pair between two packet sockets, which `--link veth`
//! measures.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_switch::report::PortReport;
use tempfile::TempDir;
use tokio::process::Child;

use crate::bench::openflow;
use crate::hosts::{self, INTERFACE};
use crate::management::{Request, Topic, ask};
use crate::process;

use super::rules::{HOST, LINK, MAX_TAGS, rules};

type Failure = Box<dyn std::error::Error>;

/// Link between the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LinkKind {
    /// One tap device: a tap port of one switch, an interface to the other.
    Tap,
    /// A veth pair: an interface to both.
    Veth,
}

/// Assignment of cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cores {
    /// Core for sending and receiving; with less than three cores, also of the first switch.
    pub(super) traffic: usize,
    pub(super) switches: [usize; 2],
}

impl Cores {
    /// Assigns `ours`, so that the two busiest are on different cores.
    pub(super) fn share(ours: &[usize]) -> Option<Self> {
        Some(match *ours {
            [] => return None,
            [only] => Self { traffic: only, switches: [only; 2] },
            [first, second] => Self { traffic: first, switches: [first, second] },
            [first, second, third, ..] => Self { traffic: first, switches: [second, third] },
        })
    }
}

/// Two hosts with two switches between them.
#[derive(Debug)]
pub(super) struct Stage {
    /// Dropped before what they are connected to.
    switches: [Switch; 2],
    pub(super) sender: OwnedNamespace,
    pub(super) receiver: OwnedNamespace,
    _link: OwnedNamespace,
    _directory: TempDir,
}

impl Stage {
    /// Starts it with `tags` tags on the link. The hosts reach each other when this returns.
    pub(super) async fn set_up(
        tags: usize,
        link: LinkKind,
        gro: &str,
        cores: &Cores,
    ) -> Result<Self, Failure> {
        let namespace = |role| hosts::quiet_namespace(&format!("{role}{tags}"));
        let (sender, receiver) = (namespace("sender")?, namespace("receiver")?);
        let (between, directory) = (namespace("link")?, hosts::directory()?);
        let start = |switch: usize, host| {
            let ports = [host_port(host), link.port(switch, &between)];
            let ports = ports.map(|port| format!("{port},gro={gro}"));
            Switch::start(host, &ports, cores.switches[switch], &directory)
        };
        let near = start(0, &sender)?;
        let ends = link.prepare(&between)?;
        wait_for(&between, ends[0]).await?;
        let far = start(1, &receiver)?;
        let switches = [near, far];
        for (switch, namespace) in switches.iter().zip([&sender, &receiver]) {
            openflow::install(switch.listens_at, rules(tags))?;
            wait_for(namespace, INTERFACE).await?;
        }
        configure(&sender, SENDER)?;
        configure(&receiver, RECEIVER)?;
        Ok(Self { switches, sender, receiver, _link: between, _directory: directory })
    }

    /// Frames over the link so far, and their cost.
    pub(super) fn passage(&self) -> Result<Passage, Failure> {
        let [near, far] = &self.switches;
        let (near_link, far_host) = (near.port(LINK.0)?, far.port(HOST.0)?);
        Ok(Passage {
            link_frames: near_link.tx.frames,
            link_packets: near_link.tx.packets,
            host_frames: far_host.tx.frames,
            host_packets: far_host.tx.packets,
            drops: self.drops()?,
            processor: near.processor_time()? + far.processor_time()?,
        })
    }

    fn drops(&self) -> Result<u64, Failure> {
        let ports = self.switches.iter().map(Switch::ports).collect::<Result<Vec<_>, _>>()?;
        Ok(ports.iter().flatten().flat_map(|port| port.drops.values()).sum())
    }
}

/// Running totals of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passage {
    /// Frames that the first switch sent over the link.
    pub(super) link_frames: u64,
    /// The same in wire packets.
    pub(super) link_packets: u64,
    /// Frames that the second switch sent to its host.
    pub(super) host_frames: u64,
    /// The same in wire packets.
    pub(super) host_packets: u64,
    /// Frames that either switch dropped, for any reason.
    pub(super) drops: u64,
    /// CPU time of both switches.
    pub(super) processor: Duration,
}

impl Passage {
    /// Difference to `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            link_frames: self.link_frames - before.link_frames,
            link_packets: self.link_packets - before.link_packets,
            host_frames: self.host_frames - before.host_frames,
            host_packets: self.host_packets - before.host_packets,
            drops: self.drops - before.drops,
            processor: self.processor.saturating_sub(before.processor),
        }
    }

    /// Nanoseconds of both switches per wire packet that reached the receiver's host.
    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(super) fn ns_per_packet(self) -> f64 {
        self.processor.as_nanos() as f64 / self.host_packets.max(1) as f64
    }
}

impl std::ops::AddAssign for Passage {
    fn add_assign(&mut self, more: Self) {
        self.link_frames += more.link_frames;
        self.link_packets += more.link_packets;
        self.host_frames += more.host_frames;
        self.host_packets += more.host_packets;
        self.drops += more.drops;
        self.processor += more.processor;
    }
}

impl LinkKind {
    /// The link as a port of one of the switches.
    fn port(self, switch: usize, namespace: &Namespace) -> String {
        let kind = if self == Self::Tap && switch == 0 { "tap" } else { "netdev" };
        let end = self.ends()[switch];
        format!("{LINK}={kind}:{end},netns={},mtu=1500,envelope={ENVELOPE}", namespace.label())
    }

    fn ends(self) -> [&'static str; 2] {
        match self {
            Self::Tap => ["link", "link"],
            Self::Veth => ["near", "far"],
        }
    }

    /// Creates what no switch creates.
    fn prepare(self, namespace: &Namespace) -> Result<[&'static str; 2], Failure> {
        let ends = self.ends();
        if self == Self::Veth {
            let mut netlink = Netlink::open(namespace)?;
            netlink.create_veth(ends[0], ends[1], namespace)?;
            ends.iter().try_for_each(|end| netlink.set_up(end))?;
        }
        Ok(ends)
    }
}

/// A running switch, which ends with this value.
#[derive(Debug)]
struct Switch {
    child: Child,
    socket: PathBuf,
    listens_at: SocketAddr,
}

impl Switch {
    /// Its socket is named after its host.
    fn start(
        host: &Namespace,
        [first, second]: &[String; 2],
        core: usize,
        directory: &TempDir,
    ) -> Result<Self, Failure> {
        let socket = directory.path().join(format!("{}.sock", host.label()));
        let listens_at = free_address()?;
        let (listen, core) = (format!("tcp:{listens_at}"), core.to_string());
        let management = socket.display().to_string();
        let args = ["switch", "--log", "error", "--fail-mode", "secure", "--workers", "1"]
            .into_iter()
            .chain(["--cores", &core, "--listen", &listen, "--socket", &management])
            .chain(["--port", first, "--port", second])
            .collect::<Vec<_>>();
        let program = std::env::current_exe()?;
        let mut command =
            process::command(&Namespace::current()?, &program.to_string_lossy(), &args);
        Ok(Self { child: command.spawn()?, socket, listens_at })
    }

    fn ports(&self) -> Result<Vec<PortReport>, Failure> {
        Ok(ask(Some(&self.socket), &Request::Show(Topic::Ports))?)
    }

    fn port(&self, number: u32) -> Result<PortReport, Failure> {
        let number = number.to_string();
        let port = self.ports()?.into_iter().find(|port| port.port == number);
        port.ok_or_else(|| format!("the switch has no port {number}").into())
    }

    /// CPU time of all its threads (proc(5), the first field of `schedstat`, nanoseconds).
    fn processor_time(&self) -> Result<Duration, Failure> {
        let pid = self.child.id().ok_or("a switch exited")?;
        let mut nanoseconds = 0;
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let text = match std::fs::read_to_string(thread?.path().join("schedstat")) {
                // A thread that has ended meanwhile, such as an idle worker of a thread pool.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                text => text?,
            };
            nanoseconds += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }
}

/// A host's port.
fn host_port(namespace: &Namespace) -> String {
    format!("{HOST}=tap:{INTERFACE},netns={}", namespace.label())
}

fn configure(namespace: &Namespace, ip: Ipv4Addr) -> Result<(), Failure> {
    Netlink::open(namespace)?.add_address(INTERFACE, IpAddr::V4(ip), 24)?;
    // A connection is idle between its windows and must continue at its rate.
    namespace.enter(|| std::fs::write(SLOW_START_AFTER_IDLE, "0"))??;
    Ok(())
}

/// Waits until an interface exists and is up.
async fn wait_for(namespace: &Namespace, name: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let link = Netlink::open(namespace).and_then(|mut netlink| netlink.link(name));
        if link.is_ok_and(|link| link.up) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{name} did not come up within {START_LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A free port on loopback.
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

pub(super) const SENDER: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 1);
pub(super) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 2);
/// Total length of all tags.
const ENVELOPE: usize = MAX_TAGS * tapswitch_wire::ethernet::TAG_LEN;
const START_LIMIT: Duration = Duration::from_secs(10);
const SLOW_START_AFTER_IDLE: &str = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switches_are_apart_where_there_are_cores() {
        let share = |cores: &[usize]| Cores::share(cores).map(|c| (c.traffic, c.switches));
        assert_eq!(share(&[]), None);
        assert_eq!(share(&[3]), Some((3, [3, 3])));
        assert_eq!(share(&[3, 5]), Some((3, [3, 5])));
        assert_eq!(share(&[0, 1, 2, 3]), Some((0, [1, 2])));
    }
}
