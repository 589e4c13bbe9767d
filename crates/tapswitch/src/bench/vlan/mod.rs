//! `tapswitch bench vlan`: cost of tags. Untagged, one 802.1Q tag, 802.1Q in 802.1ad, and three
//! tags, pushed at the ingress, carried over a link between two switches and popped at the far end;
//! TCP bulk, datagrams of 1472 and 18 bytes, one flow and a hundred.
//!
//! These are figures 2 and 3 of "Stacked Vlan: Performance Improvement and Challenges" (Makita,
//! netdev 1.2), where stacked tags lost offloads that single ones kept. The stages of all depths
//! are running at once, because an idle one costs nothing, and are measured in turn in short
//! windows.

mod flows;
mod report;
mod rules;
mod stage;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::task::spawn_blocking;

use crate::hosts;
use crate::output::OutputFile;

use super::cores;
use super::paired::Paired;
use super::{run, write_data};
use flows::{Flows, Window};
use report::{Report, Row};
use rules::MAX_TAGS;
use stage::{Cores, LinkKind, Passage, Stage};
use workload::{FLOWS, Traffic, Workload};

type Failure = Box<dyn std::error::Error>;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct VlanArgs {
    /// Rounds; each measures every depth once. At least 6 for confidence intervals.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=999))]
    rounds: u64,
    /// Length of each measurement in milliseconds, after a warm-up of a third of that.
    #[arg(long, value_name = "MS", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=60_000))]
    window: u64,
    /// Measure only this traffic; may be repeated.
    #[arg(long, value_name = "TRAFFIC")]
    only: Vec<Traffic>,
    /// Measure only this number of flows, 1 or 100.
    #[arg(long, value_name = "N", value_parser = parse_flows)]
    flows: Vec<usize>,
    /// Link between the switches.
    #[arg(long, value_name = "KIND", default_value = "tap")]
    link: LinkKind,
    /// Whether the switches join received packets into trains.
    #[arg(long, value_name = "on|off|auto", default_value = "auto")]
    #[arg(value_parser = ["on", "off", "auto"])]
    gro: String,
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl VlanArgs {
    fn workloads(&self) -> impl Iterator<Item = Workload> {
        let is_wanted = |workload: &Workload| {
            (self.only.is_empty() || self.only.contains(&workload.traffic))
                && (self.flows.is_empty() || self.flows.contains(&workload.flows))
        };
        Workload::all().filter(is_wanted)
    }

    fn window(&self) -> Window {
        let length = Duration::from_millis(self.window);
        Window { warm_up: length / 3, length }
    }
}

fn parse_flows(text: &str) -> Result<usize, String> {
    let flows = text.parse().ok().filter(|flows| FLOWS.contains(flows));
    flows.ok_or_else(|| format!("expected {} or {}", FLOWS[0], FLOWS[1]))
}

/// Runs the measurements, prints the results, and optionally writes them as data.
pub(crate) fn main(args: &VlanArgs) -> Result<(), Failure> {
    run(bench(args))
}

async fn bench(args: &VlanArgs) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    hosts::sweep();
    let cores = Cores::share(&cores::ours()?).ok_or("no core to run on")?;
    let mut stages = Vec::new();
    for tags in 0..=MAX_TAGS {
        stages.push(Stage::set_up(tags, args.link, &args.gro, &cores).await?);
    }
    let mut rows = Vec::new();
    for workload in args.workloads() {
        let bench = Bench { stages: &stages, workload, cores: &cores, window: args.window() };
        rows.extend(bench.rows(args.rounds).await?);
    }
    let report = Report::new(args, cores, rows);
    report.print();
    write_data(json, &report)
}

/// One workload at all stages.
struct Bench<'a> {
    /// By number of tags.
    stages: &'a [Stage],
    workload: Workload,
    cores: &'a Cores,
    window: Window,
}

impl Bench<'_> {
    async fn rows(&self, rounds: u64) -> Result<Vec<Row>, Failure> {
        let open = |stage| Flows::open(stage, self.workload).map(Some);
        let flows = self.stages.iter().map(open).collect::<Result<Vec<_>, _>>();
        let mut flows = flows.map_err(|error| error.to_string())?;
        let [mut rates, mut costs] = [(); 2].map(|()| Paired::new(self.stages.len()));
        let mut totals = vec![Total::default(); self.stages.len()];
        for round in 1..=rounds {
            let take = async |tags: usize| {
                let (rate, cost) = self.take(tags, &mut flows[tags], &mut totals[tags]).await?;
                costs.add(tags, cost);
                Ok(rate)
            };
            let latest = rates.round(take).await?;
            self.tell(round, &latest);
        }
        let row = |(tags, total)| Row::new(self.workload, tags, [&rates, &costs], total);
        Ok(totals.into_iter().enumerate().map(row).collect())
    }

    fn tell(&self, round: u64, rates: &[f64]) {
        let rates: Vec<_> = rates.iter().map(|rate| format!("{rate:.2}")).collect();
        let (name, unit) = (self.workload.name(), self.workload.traffic.unit());
        tell!("round {round}: {name}: {} {unit}", rates.join(", "));
    }

    /// One window at the stage with `tags`: the rate, and the switches' nanoseconds per packet.
    async fn take(
        &self,
        tags: usize,
        flows: &mut Option<Flows>,
        total: &mut Total,
    ) -> Result<(f64, f64), Failure> {
        let mut moved = flows.take().ok_or("the sockets are gone")?;
        let (stage, core, window) = (&self.stages[tags], self.cores.traffic, self.window);
        let before = stage.passage()?;
        let run = move || moved.run(core, window).map(|arrived| (moved, arrived));
        let (moved, arrived) = spawn_blocking(run).await?.map_err(|error| error.to_string())?;
        *flows = Some(moved);
        let passage = stage.passage()?.since(before);
        total.passage += passage;
        total.lost += arrived.lost;
        let rate = self.workload.traffic.rate(arrived.bytes, arrived.seconds);
        Ok((rate, passage.ns_per_packet()))
    }
}

/// Totals of all windows of one stage.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    passage: Passage,
    /// Bytes of payload that never arrived.
    lost: u64,
}
