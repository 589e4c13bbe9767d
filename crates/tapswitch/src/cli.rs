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

/// A virtual switch with virtual TAPs: it forwards packet trains whole between tap devices and
/// interfaces, and copies chosen flows to monitors without touching the original.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    /// How much to say on standard error: off, error, warn, info, debug or trace; info for what
    /// runs long, else warn.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<LevelFilter>,
    /// How to say it: text for people, or json, an object a line, for programs.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show it at work: three hosts, real traffic, one TAP; prints a table and checks it.
    Demo(DemoArgs),
    /// Run a switch, and a controller if wanted, from a configuration file.
    Run(RunArgs),
    /// Run the OpenFlow switch alone.
    Switch(SwitchArgs),
    /// Run the controller alone.
    Controller(Box<controller::ControllerArgs>),
    /// Add, list, show or delete TAP policies of a running controller.
    Policy(PolicyArgs),
    /// Make tokens for the REST interface of a controller.
    Token(controller::TokenArgs),
    /// Read, follow, export or check the audit log of a running controller.
    Audit(controller::AuditArgs),
    /// Add ports to a running switch, or take them away.
    Port(port::PortArgs),
    /// Show what a running switch or controller knows.
    Show(ShowArgs),
    /// Write what comes in on an interface to a pcapng file, trains cut into packets.
    Capture(CaptureArgs),
    /// List, make, change and examine tun and tap devices, whoever has made them.
    Device(device::DeviceArgs),
    /// Measure.
    Bench(BenchArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Write the table as data too.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Length of each measurement.
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Leave everything running for exploring, until Ctrl-C.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// The configuration file (TOML).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// Where a long-running command listens for `show` and `policy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// Management socket; /run/tapswitch/NAME.sock when not given.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Whom `show` and `policy` ask.
#[derive(Args, Clone, Debug)]
pub(crate) struct AskArgs {
    /// Management socket of the process to ask; the only one in /run/tapswitch when not given.
    #[arg(long, value_name = "PATH", env = "TAPSWITCH_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON for scripts instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SwitchArgs {
    /// Name of the bridge.
    #[arg(long, default_value = "br0", value_parser = parse_bridge_name)]
    pub(crate) name: String,
    /// Unique number of the datapath: decimal, or hexadecimal, with 0x or all sixteen digits.
    #[arg(long, value_name = "ID", default_value = "0x1", value_parser = parse_datapath_id)]
    pub(crate) datapath_id: DatapathId,
    /// Controller to connect to, as tcp:ADDRESS:PORT or tls:ADDRESS:PORT; may be given several
    /// times.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) controller: Vec<Endpoint>,
    /// Where to accept OpenFlow connections, such as ovs-ofctl's, in the same words; may be given
    /// several times.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) listen: Vec<Endpoint>,
    #[command(flatten)]
    pub(crate) tls: SwitchTlsArgs,
    /// What to do while no controller answers: standalone (forward as a learning switch) or secure
    /// (go on by the rules).
    #[arg(long, value_name = "MODE", default_value = "standalone")]
    pub(crate) fail_mode: FailMode,
    /// What tells VLANs apart where stations are learnt: outer (the outermost tag) or stack (the
    /// two outermost).
    #[arg(long, value_name = "WHAT", default_value = "outer")]
    pub(crate) learning: Learning,
    /// A port, as `NUMBER=tap:NAME[,netns=NS][,queues=N][,OPTIONS]` for a tap device,
    /// `NUMBER=tun:NAME[,peer=MAC][,netns=NS][,queues=N][,OPTIONS]` for a tun device, which has no
    /// Ethernet, or `NUMBER=netdev:IFNAME[,netns=NS][,OPTIONS]` for an interface that is there;
    /// NUMBER may be "local"; `NUMBER=vhost:PATH[,server|client][,queues=N][,OPTIONS]` for a
    /// virtual machine by vhost-user; `NUMBER=vxlan:remote=IP,vni=V[,OPTIONS]`,
    /// `NUMBER=gre:remote=IP[,key=K][,OPTIONS]` or
    /// `NUMBER=erspan:remote=IP,session=S,version=2|3[,OPTIONS]` for a tunnel;
    /// `NUMBER=pcapng:PATH[,rotate-size=SIZE][,rotate-time=TIME][,keep=N][,OPTIONS]` for a file
    /// that copies are written to; may be given several times. OPTIONS are mtu=BYTES for the
    /// payload, envelope=BYTES for tags on top of it (8 when not given; the MTU of a netdev
    /// interface is raised by as much, and put back in the end; 0 leaves it as it is),
    /// gro=on|off|auto for making trains of what comes in (auto, while it pays, when not given),
    /// offload=off for one that is sent whole packets with their checksums only, stall=MS for how
    /// long others wait for the port at a time when it takes nothing (50 when not given),
    /// drain-ahead=on|off|KIB for what is read ahead while the port waits for others,
    /// pause=on|off|auto for whether it waits for others at all (auto, unless a bridge is behind
    /// it, when not given), flood=on|off for whether what goes everywhere goes there (off for gre,
    /// erspan and pcapng, else on, when not given), txqueuelen=FRAMES and backpressure=on|off|auto
    /// for the rings of tap and tun devices, owner=USER, group=GROUP and permissions=MODE for the
    /// socket of a vhost port, and one of `mode=access,vlan=VID`,
    /// `mode=trunk[,vlans=VIDS][,native=VID]`,
    /// `mode=dot1q-tunnel,vlan=SVID[,vlans=VIDS]`,
    /// `mode=qinq,map=VIDS:SVID[/VID]+...[,untagged=SVID]` or
    /// `mode=provider[,vlans=SVIDS][,tpid=0x88a8|0x8100|0x9100][,translate=OUTSIDE:INSIDE+...]`,
    /// with VIDS as in 10+20-30. See docs/vlan.md.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Vec<PortSpec>,
    /// Number of workers; as many as the port with most queues has, and cores, when not given.
    #[arg(long, value_name = "N", value_parser = parse_worker_count)]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Cores that the workers stay on, separated by commas, each once.
    #[arg(long, value_name = "CORES", value_delimiter = ',', value_parser = parse_core)]
    pub(crate) cores: Vec<usize>,
    #[command(flatten)]
    pub(crate) socket: ServeArgs,
}

/// How a switch and its controllers know each other by TLS. The files are read again, when they
/// have changed, for each connection.
#[derive(Args, Clone, Debug)]
pub(crate) struct SwitchTlsArgs {
    /// The switch's certificate for tls: (PEM), with those that vouch for it.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Who vouches for controllers, and for tools that connect (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// What a controller's certificate is for, where that is not the address that is connected to:
    /// a host's name, or any for whomever the authority vouches for.
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
    /// Copy matching traffic to a monitor. Any field may be left out but the monitor.
    Add(Box<PolicyAddArgs>),
    /// Put a policy in the place of the one of its name: what both copy goes on without a gap, what
    /// is not given is as if it never was.
    Set(Box<PolicyAddArgs>),
    /// List all policies with their counters.
    List(AskArgs),
    /// Show one policy with its ledger.
    Show(PolicyNameArgs),
    /// Stop copying.
    Delete(PolicyDeleteArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyAddArgs {
    /// Name of the policy.
    pub(crate) name: String,
    /// Where the copies go: a port (3, or 0x1/3 for port 3 of datapath 1), the name of a port, or
    /// the MAC or IP address of a host; or several ports that share flows, as in
    /// one-of:0x1/3+0x2/4. Repeat it for several: each gets a copy.
    #[arg(long, value_name = "MONITOR", required = true)]
    pub(crate) monitor: Vec<MonitorSpec>,
    /// An expression in the syntax of tcpdump, beside the other fields; what OpenFlow 1.3 cannot
    /// match is refused.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Source MAC address.
    #[arg(long, value_name = "MAC")]
    pub(crate) src_mac: Option<MacAddr>,
    /// Destination MAC address.
    #[arg(long, value_name = "MAC")]
    pub(crate) dst_mac: Option<MacAddr>,
    /// Type of what is behind all tags: ipv4, ipv6, arp or a number as in 0x88b5. What is for the
    /// next bridge alone, as lldp is, is not copied.
    #[arg(long, value_name = "TYPE")]
    pub(crate) eth_type: Option<EthType>,
    /// Source IPv4 or IPv6 address, or prefix.
    #[arg(long, value_name = "IP[/LEN]")]
    pub(crate) src_ip: Option<IpPrefix>,
    /// Destination IPv4 or IPv6 address, or prefix.
    #[arg(long, value_name = "IP[/LEN]")]
    pub(crate) dst_ip: Option<IpPrefix>,
    /// IP protocol: tcp, udp, icmp, icmpv6, sctp or a number.
    #[arg(long, value_name = "PROTO")]
    pub(crate) ip_proto: Option<IpProto>,
    /// Identifier of the outermost VLAN tag, or "untagged", or "tagged".
    #[arg(long, value_name = "VID")]
    pub(crate) vlan: Option<Vlan>,
    /// TCP, UDP or SCTP source port, or a range: each port of that is a rule.
    #[arg(long, value_name = "PORT[-PORT]")]
    pub(crate) src_port: Option<PortRange>,
    /// TCP, UDP or SCTP destination port, or a range: each port of that is a rule.
    #[arg(long, value_name = "PORT[-PORT]")]
    pub(crate) dst_port: Option<PortRange>,
    /// Which way: forward (from the source to the destination) or both (and the answers: source
    /// and destination exchanged). Both when not given, as far as such frames are answered.
    #[arg(long, value_name = "WAY")]
    pub(crate) direction: Option<Direction>,
    /// Tell what each switch would be told, and whether it is proved that all frames go where they
    /// should; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Put it in force also when it was found that frames would not go where they should.
    #[arg(long)]
    pub(crate) force: bool,
    /// What copies are owed while the monitor cannot take them: best-effort, lossless (senders wait
    /// as long as the monitor's port allows), lossless:MS (at most so many milliseconds at a time)
    /// or sample-on-pressure.
    #[arg(long, value_name = "CONTRACT", default_value = "best-effort")]
    pub(crate) delivery: Delivery,
    /// Bytes of each packet that are kept.
    #[arg(long, value_name = "LEN")]
    pub(crate) snaplen: Option<u16>,
    /// Copy one of so many frames, as in 1/10.
    #[arg(long, value_name = "1/N")]
    pub(crate) sample: Option<Sample>,
    /// What becomes of the VLAN tags of copies: keep, or strip (the two outermost
    /// ones; at other switches than ours the outermost).
    #[arg(long, value_name = "HOW", default_value = "keep")]
    pub(crate) tags: Tagging,
    /// Where copies are taken, if rules of others rewrite frames on their way: ingress (as they
    /// come in, before that) or egress (as they go out to the host of dst-mac, after that).
    #[arg(long, value_name = "WHERE")]
    pub(crate) point: Option<Point>,
    /// How copies travel to a monitor at another switch: svlan (with one more tag on the way) or
    /// rewrite (taken at the egress, with another destination on the way).
    #[arg(long, value_name = "HOW", default_value = "svlan")]
    pub(crate) transport: Transport,
    /// Which policy gives way when a switch has no room for all: the lowest, and of equals the
    /// newest.
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub(crate) priority: u8,
    /// When the policy deletes itself: a span as in 30m or 7d, or a time as in
    /// 2026-11-22T18:00:00Z.
    #[arg(long, value_name = "WHEN")]
    pub(crate) expires: Option<Expiry>,
    /// When copies are made, in UTC, as in "Mon-Fri 08:00-18:00; Sat 10:00-12:00".
    #[arg(long, value_name = "HOURS")]
    pub(crate) schedule: Option<Schedule>,
    /// Who answers for it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// What it is for.
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
    /// Tell what each switch would be told, and whether it is proved that all other frames go where
    /// they should; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete it also when it was found that frames would not go where they should.
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
    /// The switch as a whole and its controllers.
    Switch,
    /// Ports: state, traffic, drops.
    Ports,
    /// Rules of all tables.
    Flows,
    /// Groups and their buckets.
    Groups,
    /// Meters and their bands: what they measured, dropped and marked.
    Meters,
    /// Workers: what they read, how they found their programs.
    Workers,
    /// All drops, by port and reason.
    Drops,
    /// TAPs: what they matched, delivered and dropped.
    Taps,
    /// Hosts that the controller has learnt.
    Hosts,
    /// Switches that are connected to the controller.
    Switches,
    /// Links between switches that the controller has found.
    Links,
    /// What the controller is among those that share its store, and who leads.
    Controller,
    /// Counters of ports and TAPs in the text format of Prometheus.
    Metrics,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CaptureArgs {
    /// Interface whose incoming frames are written.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) interface: String,
    /// Namespace of the interface: a name of `ip netns`, or a path such as /proc/PID/ns/net.
    #[arg(long, value_name = "NS")]
    pub(crate) netns: Option<String>,
    /// The file; replaced if it is there. - is standard output, for `| tshark -r -`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// Bytes of each packet that are kept; 0 for all.
    #[arg(short, long, value_name = "LEN", default_value_t = WHOLE_PACKET)]
    pub(crate) snaplen: usize,
    /// Stop after this many packets.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop after this many seconds.
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
    /// Namespace → tap → switch → tap → namespace, beside a bare forwarder and Open vSwitch.
    TapForward(TapForwardArgs),
    /// A tap device whose packets come back with their addresses exchanged, with offloads and
    /// without, beside a bare loop and tun-rs.
    Echo(EchoArgs),
    /// What tags cost: none to three of them between two switches, TCP and UDP, one flow and many.
    Vlan(VlanArgs),
    /// Guests on vhost-user ports: plain forwarding and copies, by size of frames, beside Open
    /// vSwitch with DPDK and a bare loop.
    Vhost(VhostArgs),
    /// Late work on frames, without any device: checksums, cutting trains, making trains of
    /// packets, tags.
    Offload(OffloadArgs),
    /// What is lost where a queue is full: rings of every length, slow links, slow monitors, long
    /// ways, with back-pressure and without.
    Lossless(LosslessArgs),
    /// The controller with many simulated switches, hosts and policies: how long until all is
    /// there, for one policy, for many, and around a link that is cut.
    Controller(ControllerBenchArgs),
    /// Who asks for round trips in vhost.
    #[command(hide = true)]
    VhostProbe(ProbeArgs),
    /// One of the processes that echo measures with.
    #[command(hide = true)]
    EchoPart(PartArgs),
    /// The bare forwarder that tap-forward compares with: two file descriptors, read and write.
    #[command(hide = true)]
    BareForwarder(BareForwarderArgs),
    /// The sender of small datagrams that tap-forward uses.
    #[command(hide = true)]
    UdpFlood(UdpFloodArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct TapForwardArgs {
    /// Rounds; each measures every candidate once. Intervals want at least 6.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=999))]
    pub(crate) rounds: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
    /// Measure only this; may be given several times.
    #[arg(long, value_name = "WHAT")]
    pub(crate) only: Vec<Measure>,
    /// Leave Open vSwitch out.
    #[arg(long)]
    pub(crate) without_ovs: bool,
    /// Keep the hosts' programs on the first core and the forwarder on the second, so that the
    /// scheduler's choices are not what is measured.
    #[arg(long)]
    pub(crate) pin: bool,
    /// Whether the switch makes trains of packets that arrive one by one: on, off or auto.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) gro: Gro,
    /// TCP's congestion control. One that paces, as bbr does, measures the timers of the kernel.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Write the results as data too.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// What `bench tap-forward` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    TcpOneFlow,
    TcpFourFlows,
    SmallUdp,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BareForwarderArgs {
    /// Tap devices to make, as NAME,NETNS: the first two are joined, all others get copies.
    #[arg(long, value_name = "NAME,NETNS")]
    pub(crate) tap: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct UdpFloodArgs {
    /// Where to send, as ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) to: SocketAddr,
    /// For how long; nothing floods for ever.
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

/// Sends the log to standard error, so that standard output stays data.
pub(crate) fn start_log(cli: &Cli) {
    let log = tracing_subscriber::fmt()
        .with_max_level(cli.log_level())
        .with_writer(std::io::stderr)
        // It would be told on standard error, by a macro that panics there.
        .log_internal_errors(false)
        .with_target(false);
    match cli.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// The name of a bridge, which is that of its socket too.
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

/// A number of workers.
pub(crate) fn parse_worker_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= WORKER_COUNT_MAX);
    count.ok_or_else(|| {
        format!("{text} is not a valid number of workers; expected 1 to {WORKER_COUNT_MAX}")
    })
}

/// The number of a core.
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

/// Numbers as lists of them are written, such as 0-3,8.
fn ranges(numbers: &[usize]) -> String {
    let chunks = numbers.chunk_by(|one, next| one + 1 == *next);
    let text = |chunk: &[usize]| match chunk {
        [first, .., last] => format!("{first}-{last}"),
        _ => chunk.iter().map(ToString::to_string).collect(),
    };
    chunks.map(text).collect::<Vec<_>>().join(",")
}

/// As long as a file's name may be with what is put behind it, and to spare.
const BRIDGE_NAME_LEN_MAX: usize = 64;
/// Each takes a few files and a thread: a process may have some thousand files.
const WORKER_COUNT_MAX: usize = 128;

/// A datapath number: decimal, or hexadecimal with 0x or with all sixteen digits, as switches and
/// controllers print it.
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
