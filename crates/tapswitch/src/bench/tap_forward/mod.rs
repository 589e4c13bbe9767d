//! Namespace → tap → switch → tap → namespace: TCP bulk and small datagrams, with and without
//! copying every frame to a monitor, compared with the bare forwarder and Open vSwitch.
//!
//! All of them are running at once, because an idle one costs next to nothing, and are measured in
//! turn in short windows.

mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tapswitch_switch::Gro;

use crate::hosts;
use crate::iperf;
use crate::output::OutputFile;
use crate::process;

use super::candidate::{Candidate, Manner, Stage};
use super::flood;
use super::ovs;
use super::paired::Paired;
use super::{run, write_data};
use report::{Report, Row};

type Failure = Box<dyn std::error::Error>;

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

/// Runs the measurements, prints the results, and optionally writes them as data.
pub(crate) fn main(args: &TapForwardArgs) -> Result<(), Failure> {
    process::require(&["iperf3", "ping"])?;
    run(bench(args))
}

async fn bench(args: &TapForwardArgs) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    hosts::sweep();
    let contenders = contenders(args);
    let mut stages = Vec::new();
    for contender in &contenders {
        let Contender { candidate, copies } = *contender;
        stages.push(Stage::set_up(candidate, copies, args.manner()).await?);
    }
    let mut rows = Vec::new();
    for measure in args.measures() {
        let rates = rates(args, measure, &contenders, &stages).await?;
        rows.extend(Row::all(measure, &contenders, &rates));
    }
    drop(stages);
    let report = Report::new(args, rows, idle_percent().await?);
    report.print();
    write_data(json, &report)
}

/// One measurement, of all contenders in turn.
async fn rates(
    args: &TapForwardArgs,
    measure: Measure,
    contenders: &[Contender],
    stages: &[Stage],
) -> Result<Paired, Failure> {
    let mut rates = Paired::new(stages.len());
    for round in 1..=args.rounds {
        let latest = rates.round(async |at: usize| measure.take(&stages[at], args).await).await?;
        let name_each = contenders.iter().zip(latest);
        let told: Vec<_> =
            name_each.map(|(contender, rate)| format!("{contender} {rate:.2}")).collect();
        tell!("round {round}: {}, {}: {}", measure.name(), measure.unit(), told.join(", "));
    }
    Ok(rates)
}

/// A candidate, and whether every frame is copied to a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contender {
    candidate: Candidate,
    copies: bool,
}

impl std::fmt::Display for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let copies = if self.copies { " with a copy" } else { "" };
        write!(f, "{}{copies}", self.candidate.name())
    }
}

/// All contenders.
fn contenders(args: &TapForwardArgs) -> Vec<Contender> {
    let mut candidates = vec![Candidate::Bare, Candidate::Tapswitch];
    if !args.without_ovs {
        if ovs::is_installed() {
            candidates.push(Candidate::OpenVswitch);
        } else {
            tell!("SKIP: Open vSwitch is not installed; `apt-get install openvswitch-switch`");
        }
    }
    let both = |candidate| [false, true].map(|copies| Contender { candidate, copies });
    candidates.into_iter().flat_map(both).collect()
}

impl TapForwardArgs {
    fn manner(&self) -> Manner {
        let (hosts, forwarder) = if self.pin { (Some(0), Some(1)) } else { (None, None) };
        Manner { hosts, forwarder, gro: self.gro }
    }

    fn measures(&self) -> impl Iterator<Item = Measure> {
        let is_wanted = |measure: &Measure| self.only.is_empty() || self.only.contains(measure);
        Measure::value_variants().iter().copied().filter(is_wanted)
    }
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Self::TcpOneFlow => "TCP, one flow",
            Self::TcpFourFlows => "TCP, four flows",
            Self::SmallUdp => "UDP, 64-byte frames",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::SmallUdp => "kpps",
            _ => "Gb/s",
        }
    }

    async fn take(self, stage: &Stage, args: &TapForwardArgs) -> Result<f64, Failure> {
        let length = Duration::from_secs(args.seconds);
        match self {
            Self::TcpOneFlow => tcp(stage, length, &args.congestion, "1").await,
            Self::TcpFourFlows => tcp(stage, length, &args.congestion, "4").await,
            Self::SmallUdp => Ok(flood::rate(stage, length).await? / 1e3),
        }
    }
}

/// The TCP rate that iperf3 reports.
async fn tcp(
    stage: &Stage,
    length: Duration,
    congestion: &str,
    flows: &str,
) -> Result<f64, Failure> {
    let (from, to) = (&stage.sender().namespace, stage.receiver().ipv4().into());
    let cores = stage.host_core().map(|core| format!("{core},{core}"));
    let _server = iperf::serve(&stage.receiver().namespace).await?;
    let mut more = vec!["-P", flows, "-C", congestion];
    more.extend(cores.iter().flat_map(|cores| ["-A", cores]));
    Ok(iperf::tcp(from, to, length, &more).await?.gbps())
}

/// CPU usage of a switch and controller with four ports and no traffic.
async fn idle_percent() -> Result<f64, Failure> {
    let stage = Stage::set_up_idle().await?;
    let pid = stage.pid().ok_or("the switch is not running")?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = processor_time(pid)?;
    tokio::time::sleep(IDLE_LENGTH).await;
    let used = processor_time(pid)?.saturating_sub(before);
    Ok(used.as_secs_f64() / IDLE_LENGTH.as_secs_f64() * 100.0)
}

/// User and system time of a process (proc(5), fields 14 and 15 of `stat`, in ticks of 10 ms).
fn processor_time(pid: u32) -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 =
        behind_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

const IDLE_LENGTH: Duration = Duration::from_secs(10);
