//! `tapswitch bench lossless`: loss where a queue is full, and the cost of avoiding it.
//!
//! Three parts. `queue` and `monitor` run on any kernel; `paper` needs one with netem, and Linux
//! 7.3 for the half with backpressure: `make bench-guest` runs it in a guest of that release, on an
//! emulated processor, by a clock that counts its instructions.
//!
//! Each measurement creates its own namespaces, devices and processes, and removes them.

mod monitor;
mod paper;
mod queue;
mod results;
mod slow_guest;
mod stage;
mod traffic;
mod wireguard;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::hosts;
use crate::on_off::OnOff;
use crate::output::OutputFile;
use crate::process;

use super::machine::Machine;
use super::{cores, parse_seconds, run, write_data};
use monitor::{Contract, Kind, Pace};
use paper::{Against, By, Middle, Table};
use queue::DrainAhead;
use traffic::Window;

type Failure = Box<dyn std::error::Error>;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct LosslessArgs {
    /// Rounds; each measures every case once. At least 6 for confidence intervals.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Length of each measurement in seconds, after a warm-up of half that length.
    #[arg(long, default_value_t = 4.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Run only this part; may be repeated, as all following options.
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// Rate of the slow link in Mb/s. Default: depends on the part.
    #[arg(long, value_name = "MBPS", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Only these ring lengths, in frames, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queue: Vec<u32>,
    /// Part queue: whether the switch reads ahead of what it can send.
    #[arg(long, value_name = "on|off|default", default_values = ["on", "off"])]
    drain_ahead: Vec<DrainAhead>,
    /// Part monitor: only this contract.
    #[arg(long, value_name = "CONTRACT")]
    #[arg(default_values = ["best-effort", "lossless", "sample-on-pressure"])]
    contract: Vec<Contract>,
    /// Part monitor: only monitors that this makes slow.
    #[arg(long, value_name = "WHAT", default_values = ["link", "guest"])]
    monitor: Vec<Kind>,
    /// Part monitor: only monitors of this rate.
    #[arg(long, value_name = "PACE")]
    pace: Vec<Pace>,
    /// Part monitor: pin the hosts to the first core and the switch to the last, to exclude effects
    /// of the scheduler.
    #[arg(long)]
    pin: bool,
    /// Part paper: only this table.
    #[arg(long, value_name = "TABLE")]
    table: Vec<Table>,
    /// Part paper: whether the hosts send trains, or single packets as the paper's programs read
    /// them.
    #[arg(long, value_name = "on|off", default_values = ["off", "on"])]
    trains: Vec<OnOff>,
    /// Part paper: only this program.
    #[arg(long, value_name = "PROGRAM")]
    by: Vec<By>,
    /// Part paper: only with this done about a full ring.
    #[arg(long, value_name = "WHAT")]
    against: Vec<Against>,
    /// Part paper: connection between the two switches.
    #[arg(long, value_name = "LINK", default_value = "vxlan")]
    middle: Middle,
    /// Part paper: path of wireguard-go, to be measured for comparison. Default: the installed one,
    /// if any.
    #[arg(long, value_name = "FILE")]
    wireguard: Option<PathBuf>,
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The parts of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// TCP over long paths, by round-trip time and ring length.
    Paper,
    /// A link slower than its sender, by ring length.
    Queue,
    /// A monitor slower than the traffic that it gets.
    Monitor,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=100_000.0).contains(rate));
    rate.ok_or_else(|| "expected Mb/s, from 0.1 to 100000".to_owned())
}

/// Runs the measurements, prints the results, and optionally writes them as data.
pub(crate) fn main(args: &LosslessArgs) -> Result<(), Failure> {
    process::require(&["tc"])?;
    let (machine, cores) = (Machine::look(), cores::ours()?);
    let ends = cores.first().zip(cores.last()).filter(|_| args.pin);
    if let Some((&first, _)) = ends {
        cores::stay_on(first)?;
    }
    run(bench(args, machine, ends.map(|(_, &last)| last)))
}

/// Runs the selected parts; `core` is that of the switch, if pinned.
async fn bench(args: &LosslessArgs, machine: Machine, core: Option<usize>) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    hosts::sweep();
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let mut report = Report::new(args, machine);
    if wants(Part::Queue) {
        report.queue = queue::measure(args).await?;
    }
    if wants(Part::Monitor) {
        report.monitor = monitor::measure(args, core).await?;
    }
    if wants(Part::Paper) {
        report.paper = paper::measure(args).await?;
    }
    report.print();
    write_data(json, &report)
}

impl LosslessArgs {
    fn window(&self) -> Window {
        let length = Duration::from_secs_f64(self.seconds);
        Window { warm_up: length / 2, length }
    }

    /// The selected ring lengths, or all of them.
    fn queues<'a>(&'a self, all: &'a [u32]) -> &'a [u32] {
        if self.queue.is_empty() { all } else { &self.queue }
    }

    #[cfg(test)]
    fn for_tests() -> Self {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: LosslessArgs,
        }
        Line::parse_from(["bench"]).args
    }
}

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rounds: u64,
    seconds: f64,
    pinned: bool,
    queue: Vec<queue::Row>,
    monitor: Vec<monitor::Row>,
    paper: Vec<paper::Row>,
}

impl Report {
    /// A report without results.
    fn new(args: &LosslessArgs, machine: Machine) -> Self {
        let LosslessArgs { rounds, seconds, pin: pinned, .. } = *args;
        let (queue, monitor, paper) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, rounds, seconds, pinned, queue, monitor, paper }
    }

    fn print(&self) {
        let Machine { processor, cores, kernel, .. } = &self.machine;
        let (rounds, seconds) = (self.rounds, self.seconds);
        say!("{processor}, {cores} cores, Linux {kernel}; {rounds} rounds of {seconds} s, medians");
        queue::print_rows(&self.queue);
        monitor::print_rows(&self.monitor);
        paper::print_rows(&self.paper);
    }
}
