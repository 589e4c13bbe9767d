//! Namespace → tap → switch → tap → namespace: TCP bulk and small datagrams, without and with every
//! frame copied to a monitor, beside the bare forwarder and Open vSwitch.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::cli::{Measure, TapForwardArgs};
use crate::hosts;
use crate::iperf;
use crate::process;
use crate::table::{print, table};

use super::candidate::{Candidate, Manner, Stage};
use super::flood;
use super::machine::Machine;
use super::ovs;
use super::paired::Ratio;
use super::statistics::median;
use super::{run, write_data};

type Failure = Box<dyn std::error::Error>;

/// Measures, prints, and writes data if asked.
pub(crate) fn main(args: &TapForwardArgs) -> Result<(), Failure> {
    process::require(&["iperf3", "ping"])?;
    run(bench(args))
}

async fn bench(args: &TapForwardArgs) -> Result<(), Failure> {
    hosts::sweep();
    let mut candidates = vec![Candidate::Bare, Candidate::Tapswitch];
    if !args.without_ovs {
        if ovs::is_installed() {
            candidates.push(Candidate::OpenVswitch);
        } else {
            eprintln!("SKIP: Open vSwitch is not installed; `apt-get install openvswitch-switch`");
        }
    }
    let length = Duration::from_secs(args.seconds);
    let mut results = Results::default();
    for round in 1..=args.rounds {
        for &candidate in &candidates {
            for copies in [false, true] {
                let stage = Stage::set_up(candidate, copies, args.manner()).await?;
                for measure in args.measures() {
                    let rate = measure.take(&stage, length).await?;
                    eprintln!(
                        "round {round}: {}{}: {} {rate:.2} {}",
                        candidate.name(),
                        if copies { " with a copy" } else { "" },
                        measure.name(),
                        measure.unit(),
                    );
                    results.add(Cell { candidate, copies, measure }, rate);
                }
            }
        }
    }
    let report = Report::new(args, &results, idle_percent().await?);
    report.print();
    write_data(args.json.as_deref(), &report)
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

    async fn take(self, stage: &Stage, length: Duration) -> Result<f64, Failure> {
        let (from, to) = (&stage.sender().namespace, stage.receiver().ipv4().into());
        let cores = stage.host_core().map(|core| format!("{core},{core}"));
        let tcp = async |flows: &str| {
            let _server = iperf::serve(&stage.receiver().namespace).await?;
            let mut more = vec!["-P", flows];
            more.extend(cores.iter().flat_map(|cores| ["-A", cores]));
            Ok(iperf::tcp(from, to, length, &more).await?.gbps())
        };
        match self {
            Self::TcpOneFlow => tcp("1").await,
            Self::TcpFourFlows => tcp("4").await,
            Self::SmallUdp => Ok(flood::rate(stage, length).await? / 1e3),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    candidate: Candidate,
    copies: bool,
    measure: Measure,
}

/// Rates of each cell, round by round.
#[derive(Debug, Default)]
struct Results(BTreeMap<Cell, Vec<f64>>);

impl Results {
    fn add(&mut self, cell: Cell, rate: f64) {
        self.0.entry(cell).or_default().push(rate);
    }

    fn rate(&self, cell: Cell) -> Option<f64> {
        self.0.get(&cell).map(|rates| median(rates.iter().copied()))
    }

    /// The ratio of two rates, round by round.
    fn ratio(&self, over: Cell, under: Cell) -> Option<Ratio> {
        let (over, under) = (self.0.get(&over)?, self.0.get(&under)?);
        Some(Ratio::of(over.iter().zip(under).map(|(over, under)| over / under).collect()))
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rounds: u64,
    seconds: u64,
    rows: Vec<Row>,
    /// Processor time of the whole process with four ports and no traffic, in percent of a core.
    idle_percent: f64,
}

/// One measurement of one candidate.
#[derive(Debug, Serialize)]
struct Row {
    candidate: Candidate,
    measure: Measure,
    /// Every frame was copied to a monitor as well.
    copies: bool,
    unit: &'static str,
    median: f64,
    /// Over the bare forwarder doing the same.
    to_bare: Option<Ratio>,
    /// Over Open vSwitch doing the same.
    to_ovs: Option<Ratio>,
    /// Over itself without the copy.
    to_no_copy: Option<Ratio>,
}

impl Report {
    fn new(args: &TapForwardArgs, results: &Results, idle_percent: f64) -> Self {
        let row = |&cell: &Cell| {
            let Cell { candidate, copies, measure } = cell;
            let against = |candidate| results.ratio(cell, Cell { candidate, ..cell });
            let no_copy = Cell { copies: false, ..cell };
            Row {
                candidate,
                measure,
                copies,
                unit: measure.unit(),
                median: results.rate(cell).unwrap_or_default(),
                to_bare: against(Candidate::Bare),
                to_ovs: against(Candidate::OpenVswitch),
                to_no_copy: copies.then(|| results.ratio(cell, no_copy)).flatten(),
            }
        };
        let mut rows: Vec<Row> = results.0.keys().map(row).collect();
        rows.sort_by_key(|row| (row.measure, row.copies, row.candidate));
        let (machine, rounds, seconds) = (Machine::look(), args.rounds, args.seconds);
        Self { machine, rounds, seconds, rows, idle_percent }
    }

    fn print(&self) {
        let Machine { processor, cores, kernel, .. } = &self.machine;
        say!(
            "{processor}, {cores} cores, Linux {kernel}; {} rounds of {} s, medians",
            self.rounds,
            self.seconds
        );
        let mut rows = table(&[
            "MEASUREMENT",
            "COPY",
            "CANDIDATE",
            "RATE ",
            "",
            "TO BARE ",
            "TO OVS ",
            "TO NO COPY ",
        ]);
        let ratio = |ratio: Option<Ratio>| ratio.map_or("-".to_owned(), |ratio| ratio.text());
        for row in &self.rows {
            rows.add_row([
                row.measure.name().to_owned(),
                if row.copies { "yes" } else { "no" }.to_owned(),
                row.candidate.name().to_owned(),
                format!("{:.2}", row.median),
                row.unit.to_owned(),
                ratio(row.to_bare),
                ratio(row.to_ovs),
                ratio(row.to_no_copy),
            ]);
        }
        print(&rows, "nothing was measured");
        say!("idle with four ports: {:.2} % of a core", self.idle_percent);
    }
}

/// Processor time of a switch and controller with four ports and no traffic.
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
