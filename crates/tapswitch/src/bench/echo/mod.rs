//! `tapswitch bench echo`: a device whose packets come back with their addresses exchanged, on one
//! core; TCP and UDP, offloads off and on, one queue and several.
//!
//! The kernel talks to itself through the device: what it sends to the other address of the
//! device's subnet comes back as if from there. It takes two cores at least: frames are moved on
//! the first, traffic is made on the last. Beside the crate of this project, a bare loop does the
//! same with the same flags, and `tun-rs` on tun devices.

mod cell;
mod chart;
mod forward;
mod means;
mod reflect;
mod report;
mod results;
mod stage;
mod swap;
mod task;
mod traffic;
mod write_cost;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::hosts;
use crate::output::OutputFile;

use super::machine::Machine;
use super::paired::turns;
use super::{parse_seconds, run, write_data};
use cell::Cell;
use means::Means;
use report::Report;
use results::{ForwardResults, Results, WriteResults};
use stage::{Cores, Stage};
use swap::Layer;
use traffic::Traffic;
use write_cost::QueueChoice;

type Failure = Box<dyn std::error::Error>;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct EchoArgs {
    /// Rounds; each measures every candidate once, in an order that changes. Medians want at least
    /// 5, and intervals 6.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Measure only this; may be given several times.
    #[arg(long, value_name = "WHAT")]
    only: Vec<Part>,
    /// Only these candidates; may be given several times, as all that follow.
    #[arg(long, value_name = "CANDIDATE")]
    by: Vec<Means>,
    /// Only this kind of device.
    #[arg(long, value_name = "KIND")]
    layer: Vec<Layer>,
    /// Only this traffic.
    #[arg(long, value_name = "TRAFFIC")]
    traffic: Vec<Traffic>,
    /// Number of queues; may be given several times.
    #[arg(long, value_name = "N", default_values_t = [1, 2])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MOST_QUEUES))]
    queues: Vec<u16>,
    /// Write the results as data too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the packets per second of the echo as well.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The parts of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The echo.
    Echo,
    /// TCP between two tun devices, through one thread.
    Forward,
    /// What a write costs, by who chooses the queue.
    Write,
}

/// What one process of a measurement does.
#[derive(Args, Clone, Debug)]
pub(crate) struct PartArgs {
    /// As JSON.
    task: String,
}

/// Runs one process of a measurement.
pub(crate) fn part(args: &PartArgs) -> Result<(), Failure> {
    serde_json::from_str::<task::Task>(&args.task)?.run()
}

/// Measures, prints, and writes data if asked.
pub(crate) fn main(args: &EchoArgs) -> Result<(), Failure> {
    run(bench(args))
}

async fn bench(args: &EchoArgs) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    let svg = OutputFile::open(args.svg.as_deref())?;
    hosts::sweep();
    let cores = Cores::look()?;
    let mut bench = Bench::new(Stage::new(cores.clone(), Duration::from_secs_f64(args.seconds))?);
    let means = args.means();
    for round in 1..=args.rounds {
        let means = in_turn(&means, round);
        if wants(&args.only, &Part::Echo) {
            bench.echo(round, args.cells(&means)).await?;
        }
        if wants(&args.only, &Part::Forward) {
            bench.forward(round, &means).await?;
        }
        if wants(&args.only, &Part::Write) {
            bench.write(round).await?;
        }
    }
    let report = bench.report(args, &cores);
    report.print();
    write_data(json, &report)?;
    if let Some(file) = svg {
        file.write(&chart::draw(&report.echo, &report.headline()))?;
    }
    Ok(())
}

/// The order of candidates in a round: what the machine does meanwhile shall favour none.
fn in_turn(means: &[Means], round: u64) -> Vec<Means> {
    let round = usize::try_from(round).unwrap_or(0);
    turns(means.len(), round).filter_map(|turn| means.get(turn).copied()).collect()
}

/// A run, and what it has given so far.
struct Bench {
    stage: Stage,
    echo: Results,
    forward: ForwardResults,
    write: WriteResults,
}

impl Bench {
    fn new(stage: Stage) -> Self {
        let (echo, forward, write) = Default::default();
        Self { stage, echo, forward, write }
    }

    async fn echo(&mut self, round: u64, cells: Vec<Cell>) -> Result<(), Failure> {
        for cell in cells {
            let rates = self.stage.echo(cell).await?;
            tell!(
                "round {round}: {}: {}: {:.0} kpps in {:.1} ktrains/s, {:.0} % of a core",
                cell.task(),
                cell.means.name(),
                rates.packets / 1e3,
                rates.trains / 1e3,
                rates.processor * 100.0
            );
            self.echo.add(cell, rates);
        }
        Ok(())
    }

    async fn forward(&mut self, round: u64, means: &[Means]) -> Result<(), Failure> {
        for means in std::iter::once(None).chain(means.iter().copied().map(Some)) {
            let throughput = self.stage.forward(means).await?;
            tell!(
                "round {round}: forward: {}: {:.2} Gb/s, {:.0} % of a core",
                means.map_or("a veth pair", Means::name),
                throughput.bits / 1e9,
                throughput.processor * 100.0
            );
            self.forward.add(means, throughput);
        }
        Ok(())
    }

    async fn write(&mut self, round: u64) -> Result<(), Failure> {
        for choice in QueueChoice::ALL {
            let written = self.stage.write(choice).await?;
            let (name, nanoseconds) = (choice.name(), written.nanoseconds);
            tell!("round {round}: write: {name}: {nanoseconds:.0} ns");
            self.write.add(choice, written);
        }
        Ok(())
    }

    fn report(&self, args: &EchoArgs, cores: &Cores) -> Report {
        Report {
            machine: Machine::look(),
            cores: cores.clone(),
            rounds: args.rounds,
            seconds: args.seconds,
            echo: self.echo.rows(),
            forward: self.forward.rows(),
            write: self.write.rows(),
        }
    }
}

impl EchoArgs {
    fn cells(&self, means: &[Means]) -> Vec<Cell> {
        let is_wanted =
            |cell: &Cell| wants(&self.layer, &cell.layer) && wants(&self.traffic, &cell.traffic);
        let queues: Vec<_> =
            self.queues.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        Cell::all(means, &queues).filter(is_wanted).collect()
    }

    /// The candidates that there are; says which are not.
    fn means(&self) -> Vec<Means> {
        let mut all = Means::available();
        all.retain(|means| wants(&self.by, means));
        if !cfg!(feature = "peers") {
            tell!("SKIP: built without tun-rs; build with `--features peers`");
        }
        all
    }
}

/// With more there is no core for each, on any machine that this was tried on.
const MOST_QUEUES: i64 = 64;

/// An empty list means everything.
fn wants<T: PartialEq>(list: &[T], item: &T) -> bool {
    list.is_empty() || list.contains(item)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn one_queue_and_two_are_measured_or_as_many_as_are_asked_for() {
        let queues = |line: &str| {
            let cells = parsed(line).unwrap().cells(&[Means::Bare]);
            cells
                .iter()
                .map(|cell| cell.queues)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(queues(""), [1, 2]);
        assert_eq!(queues("--queues 8 --queues 4 --queues 8"), [4, 8]);
        let error = parsed("--queues 0").unwrap_err().to_string();
        assert!(error.contains("1..=64"), "{error}");
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EchoArgs,
    }

    fn parsed(line: &str) -> Result<EchoArgs, clap::Error> {
        let words = std::iter::once("echo").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }
}
