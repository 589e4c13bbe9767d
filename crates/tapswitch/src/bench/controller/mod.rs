//! `tapswitch bench controller`: cost of the control plane, with simulated switches that speak real
//! OpenFlow over TCP. Two spines, and leaves with hosts; policies name a source and a destination
//! host, and monitors are distributed over the leaves.
//!
//! The controller has one thread and the switches another, so with two cores neither waits for the
//! other. Measured are: time from the first connection until all links, hosts and rules are
//! present; single policies from request to answer, which follows the barriers of all switches;
//! many policies at once; single ones again after that; all TAPs after a link failure; memory, and
//! CPU usage while idle.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tapswitch_control::{IpPrefix, Limits, MonitorSpec, TapPolicy};
use tapswitch_controller::{Caller, Config, Handle, How, RequestError, RestConfig, Server};
use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_wire::MacAddr;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

mod faucet;
mod lab;
mod switch;

use super::{Failure, run, write_data};
use crate::output::OutputFile;
use crate::table::{print, table};
use lab::{Lab, MONITOR_PORTS};
use switch::Input;

/// `tapswitch bench controller`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ControllerBenchArgs {
    /// Numbers of switches to measure with, in sequence; two of them are spines.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10, 30, 100])]
    switches: Vec<u64>,
    /// Number of hosts behind each leaf.
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=200))]
    hosts: u32,
    /// Number of other hosts that each host communicates with.
    #[arg(long, value_name = "N", default_value_t = 4)]
    peers: usize,
    /// Number of policies added at once.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    policies: usize,
    /// Number of policies added in sequence.
    #[arg(long, value_name = "N", default_value_t = 100)]
    singles: usize,
    /// Also measure Faucet with the same switches: path of the program, such as `venv/bin/faucet`.
    #[arg(long, value_name = "PROGRAM")]
    faucet: Option<PathBuf>,
    /// Serve REST and the page at this address. The last fabric stays, to be looked at, until a
    /// signal.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "faucet")]
    rest: Option<SocketAddr>,
    /// Also write the table to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Results at one size. Times are in seconds unless stated otherwise.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    switches: u64,
    hosts: u64,
    policies: usize,
    converged: f64,
    rules: u64,
    single_p50_ms: f64,
    single_p99_ms: f64,
    /// Number of them that were proved correct before they were applied.
    singles_proved: usize,
    /// The same after all others are present.
    later_p50_ms: f64,
    later_p99_ms: f64,
    later_proved: usize,
    bulk: f64,
    bulk_per_second: f64,
    bulk_proved: usize,
    rules_with_policies: u64,
    rerouted: f64,
    resident_mib: f64,
    idle_percent: f64,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
struct Report {
    tapswitch: Vec<Row>,
    faucet: Vec<faucet::Row>,
}

/// Runs it.
pub(crate) fn main(args: &ControllerBenchArgs) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    run(async {
        let (mut rows, mut faucets, mut kept) = (Vec::new(), Vec::new(), None);
        for (index, &switches) in args.switches.iter().enumerate() {
            if switches < 3 {
                return Err("--switches: at least 3 are needed: two spines and a leaf".into());
            }
            tell!("{switches} switches");
            let fabric = Fabric::start(switches, args).await?;
            rows.push(fabric.lab.measure(&fabric.handle, args).await?);
            match args.rest.filter(|_| index + 1 == args.switches.len()) {
                Some(rest) => kept = Some((fabric, rest)),
                None => fabric.stop().await?,
            }
            if let Some(program) = &args.faucet {
                let mirrors = args.singles.min(MIRRORS);
                faucets.push(faucet::measure(program, switches, args.hosts, mirrors).await?);
            }
        }
        show(&rows);
        if args.faucet.is_some() {
            say!("\nFaucet");
            show_faucet(&faucets);
        }
        write_data(json, &Report { tapswitch: rows, faucet: faucets })?;
        if let Some((_fabric, rest)) = kept {
            tell!("the last fabric stays: http://{rest}/; Ctrl-C ends it");
            std::future::pending::<()>().await;
        }
        Ok(())
    })
}

/// A controller and its switches.
struct Fabric {
    lab: Lab,
    handle: Handle,
    /// Dropped to end the controller.
    end: watch::Sender<()>,
    serving: JoinHandle<()>,
}

impl Fabric {
    async fn start(switches: u64, args: &ControllerBenchArgs) -> Result<Self, Failure> {
        let limits = Limits {
            max_policies: usize::MAX,
            max_regions: usize::MAX,
            max_tap_rules: usize::MAX,
            max_hosts: usize::MAX,
            host_burst: usize::MAX,
            stats_interval: None,
            ..Limits::default()
        };
        let rest = args.rest.map(|listen| RestConfig { listen, ..RestConfig::default() });
        let config = Config {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            rest,
            limits,
            max_waiting: 1 << 22,
            request_timeout: PATIENCE,
            ..Config::default()
        };
        let server = Server::bind(config).await?;
        let address =
            *server.local_addrs().first().ok_or("the controller does not listen for switches")?;
        let handle = server.handle();
        let (end, mut ended) = watch::channel(());
        let serving = tokio::spawn(server.run(async move { _ = ended.changed().await }));
        Ok(Self { lab: Lab::start(switches, args.hosts, address), handle, end, serving })
    }

    async fn stop(self) -> Result<(), Failure> {
        self.lab.stop();
        drop(self.end);
        Ok(self.serving.await?)
    }
}

impl Lab {
    async fn measure(&self, handle: &Handle, args: &ControllerBenchArgs) -> Result<Row, Failure> {
        let leaves = self.switches - 2;
        let mut row = Row {
            switches: self.switches,
            hosts: leaves * u64::from(self.hosts),
            policies: args.policies,
            ..Row::default()
        };
        self.until(async || Ok(handle.links().await?.len() as u64 == 2 * leaves)).await?;
        self.until(async || {
            Ok(handle.switches().await?.iter().filter(|s| s.is_connected).count() as u64
                == self.switches)
        })
        .await?;
        tell!("  links found: {:.2} s", self.start.elapsed().as_secs_f64());
        let (hosts, mut asked) = (row.hosts, None::<Instant>);
        self.until(async || {
            // Hosts repeat their requests: a switch may not have had the rule that reports them.
            if asked.is_none_or(|at| at.elapsed() > ASK_AGAIN) {
                self.announce_hosts();
                asked = Some(Instant::now());
            }
            Ok(handle.hosts().await?.len() as u64 == hosts)
        })
        .await?;
        tell!("  hosts found: {:.2} s", self.start.elapsed().as_secs_f64());
        self.let_hosts_talk(args.peers)?;
        row.converged = (self.quiet().await - self.start).as_secs_f64();
        tell!("  converged: {:.2} s", row.converged);
        row.rules = self.world.rules.load(Ordering::Relaxed);
        row.idle_percent = idle_percent().await?;
        (row.single_p50_ms, row.single_p99_ms, row.singles_proved) =
            self.add_singly(handle, "single", 0..args.singles).await?;
        let start = Instant::now();
        let mut adding = JoinSet::new();
        for index in 0..args.policies {
            let (handle, policy) = (handle.clone(), self.policy("bulk", index)?);
            let caller = Caller::unix("bench");
            adding.spawn(async move { add(&handle, &caller, policy).await });
        }
        while let Some(added) = adding.join_next().await {
            row.bulk_proved += usize::from(added??);
        }
        row.bulk = start.elapsed().as_secs_f64();
        tell!("  {} policies: {:.2} s, {} proved", args.policies, row.bulk, row.bulk_proved);
        row.bulk_per_second = f64::from(u32::try_from(args.policies)?) / row.bulk.max(1e-9);
        row.rules_with_policies = self.world.rules.load(Ordering::Relaxed);
        let others = args.policies..args.policies + args.singles;
        (row.later_p50_ms, row.later_p99_ms, row.later_proved) =
            self.add_singly(handle, "later", others).await?;
        row.rerouted = self.cut_a_link(handle).await?;
        row.resident_mib = resident_mib()?;
        Ok(row)
    }

    /// Adds policies in sequence: median and 99th percentile of their durations in milliseconds,
    /// and how many were proved.
    async fn add_singly(
        &self,
        handle: &Handle,
        name: &str,
        indices: Range<usize>,
    ) -> Result<(f64, f64, usize), Failure> {
        let caller = Caller::unix("bench");
        let (mut times, mut proved) = (Vec::new(), 0);
        for index in indices {
            let start = Instant::now();
            proved += usize::from(add(handle, &caller, self.policy(name, index)?).await?);
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
        tell!("  one policy: {p50:.1} ms, p99 {p99:.1} ms, {proved} proved");
        Ok((p50, p99, proved))
    }

    /// Takes down one of the two links of a leaf; all TAPs through it then use the other one.
    async fn cut_a_link(&self, handle: &Handle) -> Result<f64, Failure> {
        let leaf = 3;
        let port = self.hosts + MONITOR_PORTS + 1;
        let (spine, at) = *self.world.cables.get(&(leaf, port)).ok_or("no such link")?;
        let start = Instant::now();
        for (switch, port) in [(leaf, port), (spine, at)] {
            self.tell(switch, Input::Link { port, is_up: false });
        }
        let links = 2 * (self.switches - 2) - 1;
        self.until(async || Ok(handle.links().await?.len() as u64 == links)).await?;
        Ok((self.quiet().await - start).as_secs_f64())
    }

    fn announce_hosts(&self) {
        for leaf in 3..=self.switches {
            for port in 1..=self.hosts {
                let (mac, ip) = address(leaf, port);
                self.tell(leaf, Input::Host { port, mac, ip, to: None });
            }
        }
    }

    /// Lets each host answer some others.
    fn let_hosts_talk(&self, peers: usize) -> Result<(), Failure> {
        let hosts = usize::try_from(self.switches - 2)? * usize::try_from(self.hosts)?;
        for index in 0..hosts {
            let (leaf, port) = self.host(index)?;
            let (mac, ip) = address(leaf, port);
            for peer in 0..peers {
                let (leaf_of_peer, port_of_peer) = self.host(index * 7 + 1 + peer * 31)?;
                let to = Some(address(leaf_of_peer, port_of_peer).0);
                self.tell(leaf, Input::Host { port, mac, ip, to });
            }
        }
        Ok(())
    }

    /// The leaf and the port of a host; consecutive numbers are at different leaves.
    fn host(&self, number: usize) -> Result<(u64, u32), Failure> {
        let (leaves, hosts) = (usize::try_from(self.switches - 2)?, usize::try_from(self.hosts)?);
        let leaf = u64::try_from(number % leaves)? + 3;
        Ok((leaf, u32::try_from(number / leaves % hosts)? + 1))
    }

    /// Waits for a condition.
    async fn until(
        &self,
        mut is_so: impl AsyncFnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = Instant::now();
            if is_so().await? {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(
                    "the controller did not finish in time; see its log (--log info)".into()
                );
            }
            // Polling must not become the load.
            tokio::time::sleep(Duration::from_millis(5).max(asked.elapsed() * 4)).await;
        }
    }

    /// A policy between two hosts, the same ones for the same number; copies go to a third leaf.
    /// When each host has one destination, each gets another one, and so on.
    fn policy(&self, name: &str, index: usize) -> Result<TapPolicy, Failure> {
        let leaves = usize::try_from(self.switches - 2)?;
        let round = index / (leaves * usize::try_from(self.hosts)?);
        let address_of = |(leaf, port)| address(leaf, port);
        let from = address_of(self.host(index)?);
        let to = address_of(self.host(index * 7 + 1 + round * 31)?);
        let switch = Some(DatapathId(u64::try_from(index * 3 % leaves)? + 3));
        let monitor = MonitorSpec::Port { switch, port: PortNo(self.hosts + 1) };
        Ok(TapPolicy {
            src_mac: Some(from.0),
            dst_mac: Some(to.0),
            src_ip: Some(IpPrefix::host(IpAddr::from(from.1))),
            dst_ip: Some(IpPrefix::host(IpAddr::from(to.1))),
            ..TapPolicy::new(format!("{name}-{index}"), monitor)
        })
    }
}

/// Adds a policy. Returns whether it was proved correct.
async fn add(handle: &Handle, caller: &Caller, policy: TapPolicy) -> Result<bool, RequestError> {
    let applied = handle.apply_policy(caller, policy, How::default()).await?;
    Ok(applied.verdict.proof.is_some_and(|proof| proof.is_proved))
}

/// MAC and IP address of a host.
fn address(leaf: u64, port: u32) -> (MacAddr, [u8; 4]) {
    let [.., a, b] = leaf.to_be_bytes();
    let [.., port] = port.to_be_bytes();
    (MacAddr([2, 0, 0, a, b, port]), [10, a, b, port])
}

fn percentile(times: &mut [f64], percent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(index).copied().unwrap_or(0.0)
}

/// CPU usage of this process while idle, in percent of a core.
async fn idle_percent() -> Result<f64, Failure> {
    let before = processor_ticks()?;
    tokio::time::sleep(IDLE).await;
    let ticks = processor_ticks()? - before;
    let per_second = f64::from(u32::try_from(rustix::param::clock_ticks_per_second())?);
    Ok(100.0 * f64::from(u32::try_from(ticks)?) / per_second / IDLE.as_secs_f64())
}

/// User and system time (proc(5), `stat`, fields 14 and 15).
fn processor_ticks() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit_once(')').ok_or("/proc/self/stat has an unexpected format")?.1;
    let mut times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    times.try_fold(0, |sum, ticks| Ok(sum + ticks?))
}

fn resident_mib() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("/proc/self/status has no VmRSS")?.parse::<f64>()? / 1024.0)
}

fn show(rows: &[Row]) {
    let mut lines = table(&[
        "SWITCHES ",
        "HOSTS ",
        "RULES ",
        "CONVERGED ",
        "IDLE ",
        "ONE: P50 ",
        "P99 ",
        "POLICIES ",
        "ALL ",
        "PER SECOND ",
        "RULES ",
        "ONE MORE: P50 ",
        "P99 ",
        "PROVED ",
        "LINK CUT ",
        "MEMORY ",
    ]);
    for row in rows {
        lines.add_row([
            row.switches.to_string(),
            row.hosts.to_string(),
            row.rules.to_string(),
            format!("{:.2} s", row.converged),
            format!("{:.1} %", row.idle_percent),
            format!("{:.1} ms", row.single_p50_ms),
            format!("{:.1} ms", row.single_p99_ms),
            row.policies.to_string(),
            format!("{:.2} s", row.bulk),
            format!("{:.0}", row.bulk_per_second),
            row.rules_with_policies.to_string(),
            format!("{:.1} ms", row.later_p50_ms),
            format!("{:.1} ms", row.later_p99_ms),
            format!("{} + {} + {}", row.singles_proved, row.bulk_proved, row.later_proved),
            format!("{:.2} s", row.rerouted),
            format!("{:.0} MiB", row.resident_mib),
        ]);
    }
    print(&lines, "nothing was measured");
}

fn show_faucet(rows: &[faucet::Row]) {
    let mut lines = table(&["SWITCHES ", "RULES ", "CONVERGED ", "MIRRORS ", "ONE: P50 ", "P99 "]);
    for row in rows {
        lines.add_row([
            row.switches.to_string(),
            row.rules.to_string(),
            format!("{:.2} s", row.converged),
            row.mirrors.to_string(),
            format!("{:.1} ms", row.mirror_p50_ms),
            format!("{:.1} ms", row.mirror_p99_ms),
        ]);
    }
    print(&lines, "nothing was measured");
}

/// Number of Faucet's mirrors, each of which takes a while.
const MIRRORS: usize = 20;
/// How long a host waits for an answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Length of the idle measurement.
const IDLE: Duration = Duration::from_secs(2);
/// Time limit of any step.
const PATIENCE: Duration = Duration::from_secs(600);
