//! Cost of a slow monitor for the monitored hosts, by the contract of their TAP.
//!
//! The monitor takes a part of the copies: one tenth, one half, nothing that counts, or all, which
//! shows the cost of copying itself. It is behind a link of that rate, or it is a virtual machine
//! that reads at that rate. The emulated link does its work on the core that sends to it, the
//! virtual machine does not. The monitor's port gets copies only (`flood=off`): the hosts'
//! broadcasts make their senders wait for it as for any port.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use tapswitch_switch::report::{BucketReport, TapReport};

use crate::bench::candidate::free_endpoint;
use crate::hosts;
use crate::table::{drops_text, grouped, print, table};

use super::results::{Judged, Results, Sample, Summary, ms};
use super::slow_guest::SlowGuest;
use super::stage::{Switch, link_host, tap_host};
use super::traffic::{self, Load};
use super::{Failure, LosslessArgs};

/// Contract for copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contract {
    BestEffort,
    Lossless,
    SampleOnPressure,
}

/// The share of the untapped flow's rate that the monitor takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Pace {
    Stopped,
    Tenth,
    Half,
    /// Unlimited: the cost of copying, whatever the speed of the monitor.
    Whole,
}

/// What makes the monitor slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// A rate-limited link in front of it (tc-tbf(8)).
    Link,
    /// Its own reading, as a virtual machine.
    Guest,
}

/// A TAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tapped {
    contract: Contract,
    monitor: Kind,
    pace: Pace,
}

/// `None` is the flow without a TAP.
type Case = Option<Tapped>;

/// Results of one case.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// `None` without a TAP.
    contract: Option<Contract>,
    monitor: Option<Kind>,
    pace: Option<Pace>,
    #[serde(flatten)]
    summary: Summary,
    /// Loss of the probes.
    loss_percent: f64,
    /// Ratio to the same flow without a TAP.
    to_untapped: Option<Judged>,
    ledger: Ledger,
}

/// Outcome of the copies of all rounds.
#[derive(Clone, Debug, Default, Serialize)]
struct Ledger {
    /// Frames that the TAP matched.
    matched: u64,
    /// Frames that the monitor's port accepted.
    delivered: u64,
    /// Frames that it did not, by reason.
    drops: BTreeMap<String, u64>,
    /// Frames that were still queued at the end.
    waiting: u64,
    /// True if every copy had exactly one outcome in every round; true without a TAP.
    adds_up: bool,
}

/// Measures all cases, with the switch on `core` if pinned.
pub(super) async fn measure(args: &LosslessArgs, core: Option<usize>) -> Result<Vec<Row>, Failure> {
    let untapped = take(args, core, None, 0.0).await?.0.passed.mbps;
    tell!("without a TAP: {untapped:.0} Mb/s");
    let cases = cases(args);
    let mut results = Results::new(cases.len());
    let mut ledgers = vec![Ledger { adds_up: true, ..Ledger::default() }; cases.len()];
    for round in 1..=args.rounds {
        let take = async |index: usize| {
            let (sample, ledger) = take(args, core, cases[index], untapped).await?;
            tell!("round {round}: {}: {:.0} Mb/s", title(cases[index]), sample.passed.mbps);
            ledgers[index].add(&ledger);
            Ok(sample)
        };
        results.round(take).await?;
    }
    let row = |((index, &case), ledger): ((usize, &Case), Ledger)| {
        let summary = results.summary(index);
        let to_untapped = || Judged::new(results.ratio(index, 0), case.and_then(goal));
        Row {
            contract: case.map(|tapped| tapped.contract),
            monitor: case.map(|tapped| tapped.monitor),
            pace: case.map(|tapped| tapped.pace),
            loss_percent: summary.loss_percent(),
            summary,
            to_untapped: case.map(|_| to_untapped()),
            ledger,
        }
    };
    Ok(cases.iter().enumerate().zip(ledgers).map(row).collect())
}

/// The flow without a TAP comes first.
fn cases(args: &LosslessArgs) -> Vec<Case> {
    let paces = if args.pace.is_empty() { Pace::value_variants() } else { &args.pace };
    let mut cases = vec![None];
    for &contract in &args.contract {
        for &monitor in &args.monitor {
            cases.extend(paces.iter().map(|&pace| Some(Tapped { contract, monitor, pace })));
        }
    }
    cases
}

/// Maximum cost of a monitor that nobody waits for.
fn goal(tapped: Tapped) -> Option<f64> {
    (tapped.contract != Contract::Lossless).then_some(0.98)
}

/// Measures one case, in which the monitor takes its share of `untapped` Mb/s.
async fn take(
    args: &LosslessArgs,
    core: Option<usize>,
    case: Case,
    untapped: f64,
) -> Result<(Sample, Ledger), Failure> {
    let room = hosts::quiet_namespace("room")?;
    let (sender, first) = tap_host(1, "sender", "")?;
    let (receiver, second) = tap_host(2, "receiver", "")?;
    let mbps = case.map_or(Pace::Half, |tapped| tapped.pace).mbps(untapped);
    let directory = hosts::directory()?;
    let socket = directory.path().join("monitor");
    let is_guest = case.is_some_and(|tapped| tapped.monitor == Kind::Guest);
    let (watcher, third) = match is_guest {
        true => (None, format!("3=vhost:{},flood=off", socket.display())),
        false => {
            let (host, port) = link_host(3, "monitor", &room, mbps).await?;
            (Some(host), format!("{port},flood=off"))
        }
    };
    let endpoint = free_endpoint()?;
    let mut config =
        format!("switch.fail-mode = 'secure'\n[controller]\nlisten = ['{endpoint}']\n");
    if let Some(Tapped { contract, .. }) = case {
        let (from, to) = (sender.ipv4(), receiver.ipv4());
        let delivery = contract.text();
        config += &format!(
            "[[policy]]\nname = 'all'\nsrc-ip = '{from}'\ndst-ip = '{to}'\ndirection = 'both'\n\
             monitor = '3'\n{delivery}"
        );
    }
    let switch = Switch::start_on(core, &[first, second, third], &config).await?;
    let guest = is_guest.then(|| SlowGuest::start(&socket, mbps)).transpose()?;
    sender.configure()?;
    receiver.configure()?;
    traffic::wait_for_path(&sender, &receiver)?;
    if case.is_some() {
        wait_for_taps(&switch).await?;
    }
    let before = switch.losses()?;
    let passed = traffic::pass(&sender, &receiver, Load::Tcp, args.window()).await?;
    let ledger = Ledger::settle(&switch).await?;
    let losses = switch.losses()?.since(&before);
    drop((watcher, guest));
    Ok((Sample { passed, losses, ..Sample::default() }, ledger))
}

/// Waits until copies are made.
async fn wait_for_taps(switch: &Switch) -> Result<(), Failure> {
    let deadline = Instant::now() + LIMIT;
    while switch.taps()?.iter().all(|tap| tap.cookies.is_empty()) {
        if Instant::now() > deadline {
            return Err(format!("no TAP was installed within {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

impl Pace {
    fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Tenth => "10 %",
            Self::Half => "50 %",
            Self::Whole => "no limit",
        }
    }

    /// Rate of the monitor in Mb/s, if limited.
    fn mbps(self, untapped: f64) -> Option<f64> {
        match self {
            Self::Stopped => Some(0.008),
            Self::Tenth => Some((untapped / 10.0).max(1.0)),
            Self::Half => Some((untapped / 2.0).max(1.0)),
            Self::Whole => None,
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Guest => "guest",
        }
    }
}

impl Contract {
    fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::Lossless => "lossless",
            Self::SampleOnPressure => "sample-on-pressure",
        }
    }

    /// The value in a policy's configuration. Best effort is the default.
    fn text(self) -> String {
        match self {
            Self::BestEffort => String::new(),
            other => format!("delivery = '{}'\n", other.name()),
        }
    }
}

fn title(case: Case) -> String {
    case.map_or_else(
        || "without a TAP".to_owned(),
        |Tapped { contract, monitor, pace }| {
            format!("{}, {} {}", contract.name(), monitor.name(), pace.name())
        },
    )
}

impl Ledger {
    /// The switch's counters of copies when all are accounted for, or after a while. No more frames
    /// arrive, so they must be exact, which is not required under traffic.
    async fn settle(switch: &Switch) -> Result<Self, Failure> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let taps = switch.taps()?;
            let ledger = Self::of(&taps);
            if ledger.adds_up || Instant::now() > deadline {
                return Ok(ledger);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn of(taps: &[TapReport]) -> Self {
        let mut ledger = Self { adds_up: true, ..Self::default() };
        for tap in taps {
            ledger.matched += tap.matched.frames;
            for copy in &tap.copies {
                ledger.adds_up &= is_exact(tap.matched.frames, copy);
                ledger.delivered += copy.delivered.frames;
                ledger.waiting += copy.queued.frames;
                add_drops(&mut ledger.drops, &copy.drops);
            }
        }
        ledger
    }

    fn add(&mut self, more: &Self) {
        self.matched += more.matched;
        self.delivered += more.delivered;
        self.waiting += more.waiting;
        self.adds_up &= more.adds_up;
        add_drops(&mut self.drops, &more.drops);
    }
}

/// Whether there is a copy of each frame that was delivered, dropped, or is queued.
fn is_exact(matched: u64, copies: &BucketReport) -> bool {
    let ended = copies.delivered.frames + copies.drops.values().sum::<u64>();
    matched == copies.count.frames && matched == ended + copies.queued.frames
}

fn add_drops(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (reason, count) in more {
        *sum.entry(reason.clone()).or_default() += count;
    }
}

pub(super) fn print_rows(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    say!("\nA TCP flow that is copied to a slow monitor: behind a link, or a virtual machine");
    let mut shown = table(&[
        "CONTRACT",
        "MONITOR",
        "TAKES",
        "MB/S ",
        "TO NO TAP ",
        "GOAL ",
        "",
        "SENT AGAIN ",
        "PROBES LOST % ",
        "99 %, ms ",
        "MATCHED ",
        "DELIVERED ",
        "WAITING ",
        "DROPPED",
        "LEDGER",
    ]);
    for row in rows {
        let [ratio, goal, verdict] = Judged::cells(row.to_untapped.as_ref());
        shown.add_row([
            row.contract.map_or("no TAP", Contract::name).to_owned(),
            row.monitor.map_or("-", Kind::name).to_owned(),
            row.pace.map_or("-", Pace::name).to_owned(),
            format!("{:.0}", row.summary.mbps),
            ratio,
            goal,
            verdict,
            grouped(row.summary.retransmits),
            format!("{:.3}", row.loss_percent),
            ms(row.summary.p99_ms),
            grouped(row.ledger.matched),
            grouped(row.ledger.delivered),
            grouped(row.ledger.waiting),
            drops_text(&row.ledger.drops),
            if row.ledger.adds_up { "adds up" } else { "does not add up" }.to_owned(),
        ]);
    }
    print(&shown, "");
}

/// Time limit for a TAP to be installed, and for copies to arrive.
const LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tapswitch_switch::report::CountReport;

    use super::*;

    #[test]
    fn every_contract_meets_every_monitor_and_the_untapped_flow_is_first() {
        let args = LosslessArgs::for_tests();
        let cases = cases(&args);
        assert_eq!((cases[0], cases.len()), (None, 25));
        let (monitor, pace) = (Kind::Link, Pace::Half);
        assert_eq!(goal(Tapped { contract: Contract::Lossless, monitor, pace }), None);
    }

    #[test]
    fn ledgers_of_rounds_are_added_and_one_that_does_not_add_up_spoils_the_sum() {
        let ledger = |delivered, adds_up| Ledger {
            matched: 10,
            delivered,
            drops: [("egress_full".to_owned(), 8 - delivered)].into(),
            waiting: 2,
            adds_up,
        };
        let mut sum = ledger(4, true);
        sum.add(&ledger(3, true));
        assert_eq!((sum.matched, sum.delivered, sum.waiting), (20, 7, 4));
        assert_eq!(sum.drops["egress_full"], 9);
        assert!(sum.adds_up);
        sum.add(&ledger(3, false));
        assert!(!sum.adds_up);
    }

    #[test]
    fn a_single_copy_that_is_nowhere_is_missed() {
        let count = |frames| CountReport { frames, packets: frames, bytes: 60 * frames };
        let copies = |delivered| BucketReport {
            bucket: String::new(),
            weight: 0,
            watch_port: None,
            watch_group: None,
            actions: "output:3".to_owned(),
            count: count(1000),
            delivered: count(delivered),
            drops: [("egress_full".to_owned(), 100)].into(),
            packet_drops: [("egress_full".to_owned(), 100)].into(),
            queued: count(10),
        };
        assert!(is_exact(1000, &copies(890)) && !is_exact(1001, &copies(890)));
        assert!(!is_exact(1000, &copies(889)) && !is_exact(1000, &copies(891)));
    }
}
