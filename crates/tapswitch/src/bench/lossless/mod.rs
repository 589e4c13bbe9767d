//! `tapswitch bench lossless`: what is lost where a queue is full, and what it costs not to lose.
//!
//! Three parts. `queue` and `monitor` are for any kernel; `paper` needs one that can make a link
//! long (netem), and Linux 7.3 for the half with back-pressure: `make bench-guest` runs it in a
//! guest of that release, on an emulated processor, where ratios count and rates do not.
//!
//! Each measurement has a stage of its own, with namespaces, devices and processes that go with it.

mod monitor;
mod paper;
mod queue;
mod results;
mod stage;
mod traffic;
mod wireguard;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::device::Switch;
use crate::hosts;
use crate::output::OutputFile;
use crate::process;

use super::machine::Machine;
use super::{parse_seconds, run, write_data};
use monitor::Contract;
use paper::{Middle, Table};
use queue::DrainAhead;
use traffic::Window;

type Failure = Box<dyn std::error::Error>;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct LosslessArgs {
    /// Rounds; each measures every case once. Intervals want at least 6.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Seconds of each measurement, behind a warm-up of half as long.
    #[arg(long, default_value_t = 4.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Only these parts of the benchmark; may be given several times, as all that follow.
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// What the slow link takes in Mb/s; each part has a rate of its own otherwise.
    #[arg(long, value_name = "MBPS", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Only these lengths of rings, in frames, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queue: Vec<u32>,
    /// Part queue: whether the switch reads ahead of what it can send.
    #[arg(long, value_name = "WHEN", default_values = ["on", "off"])]
    drain_ahead: Vec<DrainAhead>,
    /// Part monitor: only these contracts.
    #[arg(long, value_name = "CONTRACT")]
    #[arg(default_values = ["best-effort", "lossless", "sample-on-pressure"])]
    contract: Vec<Contract>,
    /// Part paper: only these tables.
    #[arg(long, value_name = "TABLE")]
    table: Vec<Table>,
    /// Part paper: whether the hosts send trains, or packets as the paper's programs read them.
    #[arg(long, value_name = "WHETHER", default_values = ["off", "on"])]
    trains: Vec<Switch>,
    /// Part paper: what joins the two switches.
    #[arg(long, value_name = "WHAT", default_value = "vxlan")]
    middle: Middle,
    /// Part paper: wireguard-go's program, to be measured beside the switches; without it, the one
    /// that is installed, if there is one.
    #[arg(long, value_name = "FILE")]
    wireguard: Option<PathBuf>,
    /// Write the results as data too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The parts of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// TCP over long ways, by round trip and by the length of the ring.
    Paper,
    /// A link that is slower than its sender, by the length of the ring.
    Queue,
    /// A monitor that is slower than what it watches.
    Monitor,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=100_000.0).contains(rate));
    rate.ok_or_else(|| "expected Mb/s, from 0.1 to 100000".to_owned())
}

/// Measures, prints, and writes data if asked.
pub(crate) fn main(args: &LosslessArgs) -> Result<(), Failure> {
    process::require(&["tc"])?;
    run(bench(args))
}

async fn bench(args: &LosslessArgs) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    hosts::sweep();
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let mut report = Report::new(args);
    if wants(Part::Queue) {
        report.queue = queue::measure(args).await?;
    }
    if wants(Part::Monitor) {
        report.monitor = monitor::measure(args).await?;
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

    /// The lengths that are asked for, or all of them.
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

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rounds: u64,
    seconds: f64,
    queue: Vec<queue::Row>,
    monitor: Vec<monitor::Row>,
    paper: Vec<paper::Row>,
}

impl Report {
    /// Of a run that has measured nothing yet.
    fn new(args: &LosslessArgs) -> Self {
        let (machine, rounds, seconds) = (Machine::look(), args.rounds, args.seconds);
        let (queue, monitor, paper) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, rounds, seconds, queue, monitor, paper }
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
