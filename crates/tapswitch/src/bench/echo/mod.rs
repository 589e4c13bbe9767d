//! `tapswitch bench echo`: a device that returns packets with exchanged addresses, on one core; TCP
//! and UDP, with and without offloads, one queue and several.
//!
//! The kernel communicates with itself through the device: packets to the other address of the
//! device's subnet return as if sent from there. At least two cores are needed: frames are moved on
//! the first, traffic is generated on the last. Besides this project's crate, a bare loop with the
//! same flags is measured, and `tun-rs` on tun devices.

mod cell;
mod chart;
mod forward;
mod means;
mod measure;
mod ready;
mod reflect;
mod report;
mod results;
mod stage;
mod swap;
mod task;
mod traffic;
mod turns;
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
use results::{ForwardResults, Results, TurnResults, WriteResults};
use stage::{Cores, Stage};
use swap::Layer;
use traffic::Traffic;
use turns::Share;
use write_cost::QueueChoice;

type Failure = Box<dyn std::error::Error>;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct EchoArgs {
    /// Rounds; each measures every candidate once, in a changing order. At least 5 for medians, and
    /// 6 for confidence intervals.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Length of each measurement in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Run only this measurement; may be repeated.
    #[arg(long, value_name = "MEASUREMENT")]
    only: Vec<Part>,
    /// Measure only this candidate; may be repeated, as all following options.
    #[arg(long, value_name = "CANDIDATE")]
    by: Vec<Means>,
    /// Measure only this type of device.
    #[arg(long, value_name = "KIND")]
    layer: Vec<Layer>,
    /// Measure only this traffic.
    #[arg(long, value_name = "TRAFFIC")]
    traffic: Vec<Traffic>,
    /// Number of queues; may be repeated.
    #[arg(long, value_name = "N", default_values_t = [1, 2])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MOST_QUEUES))]
    queues: Vec<u16>,
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the packets per second of the echo to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The parts of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The echo.
    Echo,
    /// This project's engines and the bare loop by turns on one device, which shows small
    /// differences.
    Turns,
    /// TCP between two tun devices, through one thread.
    Forward,
    /// The cost of a write, by selection of the queue.
    Write,
}

/// The task of one process of a measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct PartArgs {
    /// The task as JSON.
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
        if wants(&args.only, &Part::Turns) {
            bench.turns(round, args.shared_cells(&means)).await?;
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

/// The order of candidates in a round, which changes so that none is favoured.
fn in_turn(means: &[Means], round: u64) -> Vec<Means> {
    let round = usize::try_from(round).unwrap_or(0);
    turns(means.len(), round).filter_map(|turn| means.get(turn).copied()).collect()
}

/// A run, and its results so far.
struct Bench {
    stage: Stage,
    echo: Results,
    turns: TurnResults,
    forward: ForwardResults,
    write: WriteResults,
}

impl Bench {
    fn new(stage: Stage) -> Self {
        let (echo, turns, forward, write) = Default::default();
        Self { stage, echo, turns, forward, write }
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

    async fn turns(&mut self, round: u64, cells: Vec<(Cell, Vec<Means>)>) -> Result<(), Failure> {
        for (cell, means) in cells.into_iter().filter(|(_, means)| means.len() > 1) {
            let shares = self.stage.turns(cell, &means).await?;
            let nanoseconds = shares.into_iter().map(Share::nanoseconds_per_packet);
            let mut told = Vec::new();
            for (means, nanoseconds) in means.into_iter().zip(nanoseconds) {
                self.turns.add(cell.by(means), nanoseconds);
                told.push(format!("{} {nanoseconds:.0} ns", means.name()));
            }
            tell!("round {round}: by turns: {}: {}", cell.task(), told.join(", "));
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
            turns: self.turns.rows(),
            forward: self.forward.rows(),
            write: self.write.rows(),
        }
    }
}

impl EchoArgs {
    fn cells(&self, means: &[Means]) -> Vec<Cell> {
        Cell::all(means, &self.queues()).filter(|cell| self.is_wanted(cell)).collect()
    }

    /// What is measured by turns: these candidates, as far as they can share a device.
    fn shared_cells(&self, means: &[Means]) -> Vec<(Cell, Vec<Means>)> {
        Cell::shared(means, &self.queues()).filter(|(cell, _)| self.is_wanted(cell)).collect()
    }

    fn is_wanted(&self, cell: &Cell) -> bool {
        wants(&self.layer, &cell.layer) && wants(&self.traffic, &cell.traffic)
    }

    /// Numbers of queues, each once, in order.
    fn queues(&self) -> Vec<u16> {
        self.queues.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The available candidates; prints which are missing.
    fn means(&self) -> Vec<Means> {
        let mut all = Means::available();
        all.retain(|means| wants(&self.by, means));
        if !cfg!(feature = "peers") {
            tell!("SKIP: built without tun-rs; build with `--features peers`");
        }
        all
    }
}

/// With more queues there is not a core for each on any machine that this was tried on.
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
