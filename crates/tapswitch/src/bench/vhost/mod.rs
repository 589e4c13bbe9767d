//! `tapswitch bench vhost`: ports of virtual machines, compared with Open vSwitch with DPDK and a
//! bare DPDK loop; the tables of the thesis that this switch follows.
//!
//! One core runs all guests, the other the switch under test. All candidates are running at once,
//! each with its own guests, and are measured in turn in short windows; the others are stopped by a
//! signal, because two of the three poll permanently.

mod cases;
mod chart;
mod dpdk;
mod idle;
mod latency;
mod layout;
mod loader;
mod ovs_dpdk;
mod pairs;
mod probe;
mod report;
mod results;
mod setup;
mod stage;
mod switches;
mod telemetry;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::hosts;
use crate::output::OutputFile;
use crate::process;

use super::{cores, run, write_data};
use cases::{Entry, SIZES, Task};
use layout::Layout;
use loader::{Load, Rings};
use report::Report;
use results::{Row, Size};
use stage::{CHECK_SEQUENCE_LEN, Cores, Plan, Stage, Window};
use switches::Candidate;

pub(crate) use probe::{ProbeArgs, main as probe};

type Failure = Box<dyn std::error::Error>;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct VhostArgs {
    /// Rounds; each measures every candidate once. At least 6 for confidence intervals.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=999))]
    rounds: u64,
    /// Length of each measurement in milliseconds, after a warm-up of a third of that.
    #[arg(long, value_name = "MS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=60_000))]
    window: u64,
    /// Short run that shows that everything works: one round, 50 ms each, two sizes.
    #[arg(long, conflicts_with_all = ["rounds", "window", "sizes"])]
    quick: bool,
    /// Frame sizes with check sequence, separated by commas. Default: the thesis' seven.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(64..=1518))]
    sizes: Vec<u16>,
    /// Run only this measurement; may be repeated, as all following options.
    #[arg(long, value_name = "TASK")]
    only: Vec<Task>,
    /// Measure only this candidate.
    #[arg(long, value_name = "CANDIDATE")]
    by: Vec<Candidate>,
    /// Type of the guests' rings.
    #[arg(long, value_name = "KIND", default_value = "packed")]
    rings: Vec<Rings>,
    /// Number of flows, 1 or 256.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_flows)]
    flows: Vec<usize>,
    /// Run only this part of the benchmark.
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the rates into this directory, a file for each type of guests.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// The parts of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Plain forwarding and copies, by frame size.
    Rates,
    /// The same with TCP trains.
    Trains,
    /// Two pairs of guests and one monitor, by one thread and by two.
    Pairs,
    /// CPU usage while idle.
    Idle,
    /// Round trips.
    Latency,
}

fn parse_flows(text: &str) -> Result<usize, String> {
    let flows = text.parse().ok().filter(|flows| [1, 256].contains(flows));
    flows.ok_or_else(|| "expected 1 or 256".to_owned())
}

/// Runs the measurements, prints the results, and optionally writes them as data.
pub(crate) fn main(args: &VhostArgs) -> Result<(), Failure> {
    run(bench(args))
}

async fn bench(args: &VhostArgs) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    args.svg.iter().try_for_each(|directory| chart::check(directory))?;
    if !has_peers() {
        return Ok(());
    }
    hosts::sweep();
    let cores = Cores::share(&cores::ours()?).ok_or("two cores are needed")?;
    let mut report = Report::new(args, cores);
    let first = args.plan(args.rings[0], args.flows[0]);
    if wants(&args.part, &Part::Rates) {
        for &rings in &args.rings {
            for &flows in &args.flows {
                report.rates.extend(tables(args, args.plan(rings, flows), cores).await?);
            }
        }
    }
    if wants(&args.part, &Part::Trains) {
        report.rates.extend(tables(args, Plan { load: Load::Trains, ..first }, cores).await?);
    }
    if wants(&args.part, &Part::Pairs) {
        report.pairs = pairs::measure(args, first, cores).await?;
    }
    if wants(&args.part, &Part::Idle) {
        report.idle = idle::measure(args, first, cores).await?;
    }
    if wants(&args.part, &Part::Latency) {
        report.latency = latency::measure(args, first, cores).await?;
    }
    report.print();
    write_data(json, &report)?;
    args.svg.iter().try_for_each(|directory| chart::write(directory, &report))
}

/// True if all required programs are installed; prints which are not.
fn has_peers() -> bool {
    let missing = PEERS.iter().filter(|(program, _)| !process::is_installed(program));
    let packages: BTreeSet<_> = missing.map(|(_, package)| *package).collect();
    if !packages.is_empty() {
        let packages: Vec<_> = packages.into_iter().collect();
        let packages = packages.join(" ");
        tell!("SKIP: this needs DPDK and Open vSwitch with it; `apt-get install {packages}`");
    }
    PEERS.iter().all(|(program, _)| process::is_installed(program))
}

/// Programs, and the Debian packages that contain them. The drivers of DPDK are plug-ins.
const PEERS: [(&str, &str); 9] = [
    (dpdk::TESTPMD, "dpdk-dev"),
    (ovs_dpdk::PROGRAM, "openvswitch-switch-dpdk"),
    ("ovs-ofctl", "openvswitch-switch"),
    ("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_virtio.so.23", "librte-net-virtio23"),
    ("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_vhost.so.23", "librte-net-vhost23"),
    ("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_null.so.23", "librte-net-null23"),
    ("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_pcap.so.23", "librte-net-pcap23"),
    (
        "/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_af_packet.so.23",
        "librte-net-af-packet23",
    ),
    ("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_mempool_ring.so.23", "librte-mempool-ring23"),
];

/// The rates by size, or of trains, for one type of guests.
async fn tables(args: &VhostArgs, plan: Plan, cores: Cores) -> Result<Vec<Row>, Failure> {
    let mut stages = Vec::new();
    for candidate in args.candidates() {
        let monitored = candidate != Candidate::Bare;
        let layout = if monitored { plan.layout } else { Layout::PAIR };
        stages.push(Stage::set_up(candidate, Plan { layout, ..plan }, cores).await?);
    }
    let entries = args.entries();
    let mut sizes: Vec<_> =
        args.sizes(plan.load).into_iter().map(|size| Size::new(size, entries.clone())).collect();
    for round in 1..=args.rounds() {
        for size in &mut sizes {
            size.round(round, &mut stages, args.window()).await?;
        }
    }
    Ok(sizes.iter().flat_map(|size| size.rows(plan)).collect())
}

impl VhostArgs {
    fn plan(&self, rings: Rings, flows: usize) -> Plan {
        let (layout, load) = (Layout::MONITORED, Load::Frames);
        Plan { layout, rings, flows, load, workers: 1, probed: false }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let all = Candidate::value_variants().iter().copied();
        all.filter(|candidate| wants(&self.by, candidate)).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        let tasks = Task::value_variants().iter().filter(|task| wants(&self.only, task));
        let of = |&task: &Task| {
            let able = self.candidates().into_iter().filter(move |&one| task.is_for(one));
            able.map(move |candidate| Entry { candidate, task })
        };
        tasks.flat_map(of).collect()
    }

    fn rounds(&self) -> u64 {
        if self.quick { 1 } else { self.rounds }
    }

    fn sizes(&self, load: Load) -> Vec<usize> {
        if load == Load::Trains {
            return vec![loader::TRAIN_LEN + CHECK_SEQUENCE_LEN];
        }
        let given: Vec<_> = self.sizes.iter().copied().map(usize::from).collect();
        let all = if self.quick { &QUICK_SIZES[..] } else { &SIZES };
        if given.is_empty() { all.to_vec() } else { given }
    }

    fn window(&self) -> Window {
        let length = Duration::from_millis(if self.quick { 50 } else { self.window });
        Window { warm_up: length / 3, length }
    }
}

const QUICK_SIZES: [usize; 2] = [64, 1518];

/// An empty list means everything.
fn wants<T: PartialEq>(list: &[T], item: &T) -> bool {
    list.is_empty() || list.contains(item)
}
