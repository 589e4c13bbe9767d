//! The command line.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use tapswitch_control::{
    Direction, EthType, Expiry, IpPrefix, IpProto, MonitorSpec, Point, PortRange, Sample, Schedule,
    Tagging, Transport, Vlan,
};
use tapswitch_openflow::Delivery;
use tapswitch_switch::{
    CORE_COUNT_MAX, DatapathId, Endpoint, FailMode, Gro, Learning, PeerName, PortSpec, Tls,
    usable_cores,
};
use tapswitch_wire::MacAddr;
use tracing::level_filters::LevelFilter;

use crate::bench::{
    ControllerBenchArgs, EchoArgs, LosslessArgs, OffloadArgs, PartArgs, ProbeArgs, VhostArgs,
    VlanArgs,
};
use crate::capture::WHOLE_PACKET;

pub(crate) mod controller;
pub(crate) mod device;
pub(crate) mod port;

/// Virtual switch with virtual TAPs: forwards packet trains whole between tap devices, interfaces,
/// virtual machines and tunnels, and copies selected flows to monitors without affecting the
/// original traffic.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log level: off, error, warn, info, debug or trace. Default: info for long-running commands,
    /// warn for others.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<LevelFilter>,
    /// Log format: text, or json with one object per line.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a demonstration: three hosts, real traffic, one TAP, and a table of checked results.
    Demo(DemoArgs),
    /// Run a switch, and optionally a controller, from a configuration file.
    Run(RunArgs),
    /// Run the OpenFlow switch alone.
    Switch(SwitchArgs),
    /// Run the controller alone.
    Controller(Box<controller::ControllerArgs>),
    /// Add, replace, list, show or delete TAP policies of a running controller.
    Policy(PolicyArgs),
    /// Create tokens for the controller's REST interface.
    Token(controller::TokenArgs),
    /// Read, follow, export or verify the audit log of a running controller.
    Audit(controller::AuditArgs),
    /// Add ports to a running switch, or remove them.
    Port(port::PortArgs),
    /// Show the state of a running switch or controller.
    Show(ShowArgs),
    /// Write the packets that an interface receives to a pcapng file, with trains split into
    /// packets.
    Capture(CaptureArgs),
    /// List, create, change and diagnose the tun and tap devices of this machine.
    Device(device::DeviceArgs),
    /// Run benchmarks.
    Bench(BenchArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Also write the table to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Length of each measurement in seconds.
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Leave everything running for exploration, until Ctrl-C.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Configuration file (TOML).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// Where a long-running command listens for `show` and `policy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// Management socket. Default: /run/tapswitch/NAME.sock.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Which process `show` and `policy` query.
#[derive(Args, Clone, Debug)]
pub(crate) struct AskArgs {
    /// Management socket of the process to query. Default: the only one in /run/tapswitch.
    #[arg(long, value_name = "PATH", env = "TAPSWITCH_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SwitchArgs {
    /// Name of the bridge.
    #[arg(long, default_value = "br0", value_parser = parse_bridge_name)]
    pub(crate) name: String,
    /// Unique datapath ID: decimal, or hexadecimal with 0x or with all sixteen digits.
    #[arg(long, value_name = "ID", default_value = "0x1", value_parser = parse_datapath_id)]
    pub(crate) datapath_id: DatapathId,
    /// Controller to connect to: tcp:ADDRESS:PORT or tls:ADDRESS:PORT. May be repeated.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) controller: Vec<Endpoint>,
    /// Address to accept OpenFlow connections on, for ovs-ofctl for example: tcp:ADDRESS:PORT or
    /// tls:ADDRESS:PORT. May be repeated.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) listen: Vec<Endpoint>,
    #[command(flatten)]
    pub(crate) tls: SwitchTlsArgs,
    /// What to do while no controller answers: standalone (forward as a learning switch) or secure
    /// (continue with the installed rules).
    #[arg(long, value_name = "MODE", default_value = "standalone")]
    pub(crate) fail_mode: FailMode,
    /// Tags that distinguish VLANs in MAC learning: outer (the outermost tag) or stack (the two
    /// outermost tags).
    #[arg(long, value_name = "outer|stack", default_value = "outer")]
    pub(crate) learning: Learning,
    /// Port of the switch, as `NUMBER=KIND:ARGUMENT[,OPTION...]`; may be repeated.
    ///
    /// NUMBER is 1 to 4095, or "local". The kinds are:
    ///
    /// `tap:NAME[,netns=NS][,queues=N]`: tap device
    ///
    /// `tun:NAME[,peer=MAC][,netns=NS][,queues=N]`: tun device (IP without Ethernet)
    ///
    /// `netdev:IFNAME[,netns=NS]`: existing interface
    ///
    /// `vhost:PATH[,server|client][,queues=N][,owner=USER][,group=GROUP][,permissions=MODE]`:
    /// virtual machine by vhost-user
    ///
    /// `vxlan:remote=IP,vni=V`, `gre:remote=IP[,key=K]`, `erspan:remote=IP,session=S,version=2|3`:
    /// tunnel
    ///
    /// `pcapng:PATH[,rotate-size=SIZE][,rotate-time=TIME][,keep=N]`: capture file
    ///
    /// Options:
    ///
    /// mtu=BYTES: maximum payload of a packet
    ///
    /// envelope=BYTES: room for VLAN tags on top of the MTU (default 8); the MTU of a netdev
    /// interface is raised by this much and restored when the port closes; 0 leaves it unchanged
    ///
    /// gro=on|off|auto: join received packets into trains (default auto: while it pays; on for
    /// tunnels)
    ///
    /// offload=off: send only whole packets with complete checksums
    ///
    /// stall=MS: how long senders wait for this port while it takes nothing (default 50)
    ///
    /// drain-ahead=on|off|KIB: how much to read ahead from this port while it waits for another one
    ///
    /// pause=on|off|auto: whether traffic from this port waits for full ports (default auto: unless
    /// a bridge is behind it)
    ///
    /// flood=on|off: whether the port receives flooded frames (default off for gre, erspan and
    /// pcapng, else on)
    ///
    /// txqueuelen=FRAMES, backpressure=on|off|auto: rings of tap and tun devices
    ///
    /// `mode=access,vlan=VID`, `mode=trunk[,vlans=VIDS][,native=VID]`,
    /// `mode=dot1q-tunnel,vlan=SVID[,vlans=VIDS]`,
    /// `mode=qinq,map=VIDS:SVID[/VID]+...[,untagged=SVID]`,
    /// `mode=provider[,vlans=SVIDS][,tpid=0x88a8|0x8100|0x9100][,translate=OUTSIDE:INSIDE+...]`:
    /// VLAN mode, with VIDS as in 10+20-30
    ///
    /// See docs/ports.md and docs/vlan.md.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Vec<PortSpec>,
    /// Number of worker threads. Default: the number of queues of the port that has most, at most
    /// the number of cores.
    #[arg(long, value_name = "N", value_parser = parse_worker_count)]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Cores to pin the workers to, separated by commas, each once.
    #[arg(long, value_name = "CORES", value_delimiter = ',', value_parser = parse_core)]
    pub(crate) cores: Vec<usize>,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// TLS between a switch and its controllers. Changed files are read again for each connection.
#[derive(Args, Clone, Debug)]
pub(crate) struct SwitchTlsArgs {
    /// Certificate chain of the switch for tls: (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the switch (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// CA certificates that controllers and connecting tools must be signed by (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Name in the controller's certificate, if not the address: a host name, or any to accept
    /// every name that the CA signed.
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    pub(crate) tls_name: Option<PeerName>,
}

impl SwitchTlsArgs {
    pub(crate) fn tls(self) -> Option<Tls> {
        let name = self.tls_name.unwrap_or_default();
        Some(Tls { cert: self.tls_cert?, key: self.tls_key?, ca: self.tls_ca?, name })
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Copy matching traffic to a monitor. All fields but the monitor are optional.
    Add(Box<PolicyAddArgs>),
    /// Replace the policy of the same name. Frames that both policies copy are copied without a
    /// gap; omitted fields are reset to their defaults.
    Set(Box<PolicyAddArgs>),
    /// List all policies with their counters.
    List(AskArgs),
    /// Show one policy with its ledger.
    Show(PolicyNameArgs),
    /// Delete a policy and stop copying.
    Delete(PolicyDeleteArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyAddArgs {
    /// Name of the policy.
    pub(crate) name: String,
    /// Destination of the copies: a port (3, or 0x1/3 for port 3 of datapath 1), the name of a
    /// port, the MAC or IP address of a host, or several ports that share the flows
    /// (one-of:0x1/3+0x2/4). May be repeated: each monitor gets a copy.
    #[arg(long, value_name = "MONITOR", required = true)]
    pub(crate) monitor: Vec<MonitorSpec>,
    /// Filter expression in the syntax of tcpdump, in addition to the other fields. Refused if
    /// OpenFlow 1.3 cannot match it.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Source MAC address.
    #[arg(long, value_name = "MAC")]
    pub(crate) src_mac: Option<MacAddr>,
    /// Destination MAC address.
    #[arg(long, value_name = "MAC")]
    pub(crate) dst_mac: Option<MacAddr>,
    /// EtherType after all tags: ipv4, ipv6, arp or a number such as 0x88b5. Link-local protocols
    /// such as LLDP are not copied.
    #[arg(long, value_name = "TYPE")]
    pub(crate) eth_type: Option<EthType>,
    /// Source IPv4 or IPv6 address or prefix.
    #[arg(long, value_name = "IP[/LEN]")]
    pub(crate) src_ip: Option<IpPrefix>,
    /// Destination IPv4 or IPv6 address or prefix.
    #[arg(long, value_name = "IP[/LEN]")]
    pub(crate) dst_ip: Option<IpPrefix>,
    /// IP protocol: tcp, udp, icmp, icmpv6, sctp or a number.
    #[arg(long, value_name = "PROTO")]
    pub(crate) ip_proto: Option<IpProto>,
    /// VLAN ID of the outermost tag, "untagged" or "tagged".
    #[arg(long, value_name = "VID")]
    pub(crate) vlan: Option<Vlan>,
    /// TCP, UDP or SCTP source port or range; a range needs several rules.
    #[arg(long, value_name = "PORT[-PORT]")]
    pub(crate) src_port: Option<PortRange>,
    /// TCP, UDP or SCTP destination port or range; a range needs several rules.
    #[arg(long, value_name = "PORT[-PORT]")]
    pub(crate) dst_port: Option<PortRange>,
    /// Direction: forward (source to destination) or both (also replies, with source and
    /// destination exchanged). Default: both, if such frames have replies.
    #[arg(long, value_name = "DIRECTION")]
    pub(crate) direction: Option<Direction>,
    /// Print the changes on each switch, and whether it is proved that all frames reach their
    /// destinations; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Apply the policy even if the proof found frames that would not reach their destinations.
    #[arg(long)]
    pub(crate) force: bool,
    /// Contract for copies that the monitor cannot take: best-effort, lossless (senders wait as
    /// long as the monitor's port allows), lossless:MS (at most MS milliseconds at a time) or
    /// sample-on-pressure.
    #[arg(long, value_name = "CONTRACT", default_value = "best-effort")]
    pub(crate) delivery: Delivery,
    /// Bytes of each packet to keep.
    #[arg(long, value_name = "LEN")]
    pub(crate) snaplen: Option<u16>,
    /// Copy one of N frames, such as 1/10.
    #[arg(long, value_name = "1/N")]
    pub(crate) sample: Option<Sample>,
    /// VLAN tags of the copies: keep or strip (the two outermost tags; only the outermost on Open
    /// vSwitch).
    #[arg(long, value_name = "keep|strip", default_value = "keep")]
    pub(crate) tags: Tagging,
    /// Where frames are copied if other rules rewrite them: ingress (before) or egress (after, on
    /// the way to the host of dst-mac).
    #[arg(long, value_name = "ingress|egress")]
    pub(crate) point: Option<Point>,
    /// How copies reach a monitor on another switch: svlan (with an additional tag) or rewrite
    /// (copied at the egress, with another destination address).
    #[arg(long, value_name = "svlan|rewrite", default_value = "svlan")]
    pub(crate) transport: Transport,
    /// Priority. If a switch has no room for all policies, the lowest gives way; among equals, the
    /// newest.
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub(crate) priority: u8,
    /// When the policy deletes itself: a time span such as 30m or 7d, or a time such as
    /// 2026-11-22T18:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<Expiry>,
    /// When copies are made, in UTC: "Mon-Fri 08:00-18:00; Sat 10:00-12:00".
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<Schedule>,
    /// Person responsible for the policy.
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// Purpose of the policy.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyNameArgs {
    /// Name of the policy.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyDeleteArgs {
    /// Name of the policy.
    pub(crate) name: String,
    /// Print the changes on each switch, and whether it is proved that all other frames reach their
    /// destinations; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete it even if the proof found frames that would not reach their destinations.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// What to show.
    pub(crate) what: ShowWhat,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowWhat {
    /// The switch as a whole, and its controllers.
    Switch,
    /// Ports: state, traffic, drops.
    Ports,
    /// Rules of all tables.
    Flows,
    /// Groups and their buckets.
    Groups,
    /// Meters and their bands: measured, dropped and marked packets.
    Meters,
    /// Workers: frames read, and how their programs were found.
    Workers,
    /// All drops, by port and reason.
    Drops,
    /// TAPs: matched, delivered and dropped copies.
    Taps,
    /// Hosts that the controller has learned.
    Hosts,
    /// Switches connected to the controller.
    Switches,
    /// Links between switches that the controller has discovered.
    Links,
    /// Role of the controller among those that share its store, and the leader.
    Controller,
    /// Counters of ports and TAPs in Prometheus text format.
    Metrics,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CaptureArgs {
    /// Interface whose received frames are written.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) interface: String,
    /// Namespace of the interface: a name of `ip netns`, or a path such as /proc/PID/ns/net.
    #[arg(long, value_name = "NS")]
    pub(crate) netns: Option<String>,
    /// Output file, overwritten if it exists; - for standard output, as in `| tshark -r -`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// Bytes of each packet to keep; 0 for all.
    #[arg(short, long, value_name = "LEN", default_value_t = WHOLE_PACKET)]
    pub(crate) snaplen: usize,
    /// Stop after N packets.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop after N seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Forwarding between tap devices in two namespaces, compared with a bare forwarder and Open
    /// vSwitch.
    TapForward(TapForwardArgs),
    /// Tap device that returns packets with exchanged addresses, with and without offloads,
    /// compared with a bare loop and tun-rs.
    Echo(EchoArgs),
    /// Cost of VLAN tags: none to three tags between two switches, TCP and UDP, one flow and many.
    Vlan(VlanArgs),
    /// Guests on vhost-user ports: forwarding and copying by frame size, compared with Open vSwitch
    /// with DPDK and a bare loop.
    Vhost(VhostArgs),
    /// Processing of frames without a device: checksums, segmentation, coalescing, tags.
    Offload(OffloadArgs),
    /// Loss where a queue is full: rings of every length, slow links, slow monitors and long paths,
    /// with and without backpressure.
    Lossless(LosslessArgs),
    /// Controller with many simulated switches, hosts and policies: time until all are installed,
    /// for one policy, for many, and after a link failure.
    Controller(ControllerBenchArgs),
    /// Sender of the round trips that vhost measures.
    #[command(hide = true)]
    VhostProbe(ProbeArgs),
    /// One of the processes that echo measures with.
    #[command(hide = true)]
    EchoPart(PartArgs),
    /// The bare forwarder that tap-forward compares with: two file descriptors, read and write.
    #[command(hide = true)]
    BareForwarder(BareForwarderArgs),
    /// Sender of small datagrams that tap-forward uses.
    #[command(hide = true)]
    UdpFlood(UdpFloodArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct TapForwardArgs {
    /// Rounds; each measures every candidate once. At least 6 for confidence intervals.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=999))]
    pub(crate) rounds: u64,
    /// Length of each measurement in seconds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
    /// Run only this measurement; may be repeated.
    #[arg(long, value_name = "MEASUREMENT")]
    pub(crate) only: Vec<Measure>,
    /// Omit Open vSwitch.
    #[arg(long)]
    pub(crate) without_ovs: bool,
    /// Pin the programs of the hosts to the first core and the forwarder to the second, to exclude
    /// effects of the scheduler.
    #[arg(long)]
    pub(crate) pin: bool,
    /// Whether the switch joins single packets into trains: on, off or auto.
    #[arg(long, value_name = "on|off|auto", default_value = "auto")]
    pub(crate) gro: Gro,
    /// TCP congestion control. One that paces, such as bbr, measures the kernel's timers.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// A measurement of `bench tap-forward`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    TcpOneFlow,
    TcpFourFlows,
    SmallUdp,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BareForwarderArgs {
    /// Tap device to create, as NAME,NETNS; the first two are connected, all others get copies.
    #[arg(long, value_name = "NAME,NETNS")]
    pub(crate) tap: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct UdpFloodArgs {
    /// Destination, as ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) to: SocketAddr,
    /// Duration in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
}

impl Cli {
    fn log_level(&self) -> LevelFilter {
        let runs_long =
            matches!(self.command, Command::Run(_) | Command::Switch(_) | Command::Controller(_));
        self.log.unwrap_or(if runs_long { LevelFilter::INFO } else { LevelFilter::WARN })
    }
}

/// Writes the log to standard error, so that standard output contains only data.
pub(crate) fn start_log(cli: &Cli) {
    let log = tracing_subscriber::fmt()
        .with_max_level(cli.log_level())
        .with_writer(std::io::stderr)
        // It would write to standard error with a macro that panics on failure.
        .log_internal_errors(false)
        .with_target(false);
    match cli.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Parses the name of a bridge, which is also the name of its socket.
pub(crate) fn parse_bridge_name(text: &str) -> Result<String, String> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if is_name && text.len() <= BRIDGE_NAME_LEN_MAX && text.bytes().all(is_known) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is not a valid bridge name; expected up to {BRIDGE_NAME_LEN_MAX} letters, \
         digits, '-', '_' and '.', of which the first is a letter or a digit"
    ))
}

/// Parses a number of workers.
pub(crate) fn parse_worker_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= WORKER_COUNT_MAX);
    count.ok_or_else(|| {
        format!("{text} is not a valid number of workers; expected 1 to {WORKER_COUNT_MAX}")
    })
}

/// Parses a core number.
pub(crate) fn parse_core(text: &str) -> Result<usize, String> {
    let usable = usable_cores();
    let is_there = |core: &usize| match usable {
        [] => *core < CORE_COUNT_MAX,
        usable => usable.contains(core),
    };
    text.parse().ok().filter(is_there).ok_or_else(|| {
        let known = if usable.is_empty() { "a number".to_owned() } else { ranges(usable) };
        format!("this process may not use core '{text}'; expected {known}")
    })
}

/// Formats numbers as ranges, such as 0-3,8.
fn ranges(numbers: &[usize]) -> String {
    let chunks = numbers.chunk_by(|one, next| one + 1 == *next);
    let text = |chunk: &[usize]| match chunk {
        [first, .., last] => format!("{first}-{last}"),
        _ => chunk.iter().map(ToString::to_string).collect(),
    };
    chunks.map(text).collect::<Vec<_>>().join(",")
}

/// Leaves room in a file name for a suffix.
const BRIDGE_NAME_LEN_MAX: usize = 64;
/// Each worker takes a thread and a few files; a process may have some thousand files.
const WORKER_COUNT_MAX: usize = 128;

/// Parses a datapath ID: decimal, or hexadecimal with 0x or with all sixteen digits, as switches
/// and controllers print it.
pub(crate) fn parse_datapath_id(text: &str) -> Result<DatapathId, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() == 16 => (text, 16),
        None => (text, 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(digits, radix).ok().filter(|_| is_number);
    id.map(DatapathId).ok_or_else(|| {
        format!(
            "'{text}' is not a datapath ID; expected decimal digits, or 0x and up to 16 \
             hexadecimal digits, or exactly 16 of them"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_listed_in_ranges() {
        for (numbers, text) in [(&[0][..], "0"), (&[0, 1, 2, 5, 7, 8], "0-2,5,7-8"), (&[], "")] {
            assert_eq!(ranges(numbers), text);
        }
    }

    #[test]
    fn datapath_numbers_are_read_as_they_are_printed() {
        for (text, id) in [("16", 16), ("0x10", 16), ("0X1f", 31), ("0000000000000010", 16)] {
            assert_eq!(parse_datapath_id(text), Ok(DatapathId(id)), "{text}");
        }
        let id = DatapathId(0x42);
        assert_eq!(parse_datapath_id(&id.to_string()), Ok(id));
        for text in ["", "0x", "+1", "0x+1", "1f", "0x10000000000000000", "000000000000000g"] {
            assert!(parse_datapath_id(text).is_err(), "{text}");
        }
    }
}
