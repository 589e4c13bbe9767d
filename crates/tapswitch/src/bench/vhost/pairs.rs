//! Two pairs of guests whose frames are all copied to one monitor, with one and with two threads of
//! a switch.
//!
//! With two cores the second thread shares one with the guests, who need it as well: the gain of a
//! second thread is then not representative of one with its own core.

use serde::Serialize;

use crate::bench::paired::Paired;

use super::cases::{Entry, Task};
use super::layout::Layout;
use super::results::{Judged, Latest, Total};
use super::stage::{Cores, Ledger, Plan, Stage};
use super::switches::Candidate;
use super::{Failure, VhostArgs};

/// Result of one candidate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) candidate: Candidate,
    pub(super) workers: usize,
    pub(super) size: usize,
    /// Million frames per second at both receivers together, median.
    pub(super) mpps: f64,
    /// Ratio to Open vSwitch with as many threads.
    pub(super) to_ovs: Judged,
    /// Ratio to the same with one thread.
    pub(super) to_one: Judged,
    pub(super) ledger: Ledger,
    pub(super) adds_up: bool,
}

/// Measures all candidates that can copy.
pub(super) async fn measure(
    args: &VhostArgs,
    plan: Plan,
    cores: Cores,
) -> Result<Vec<Row>, Failure> {
    let mut stages = Vec::new();
    for candidate in args.candidates() {
        for workers in [1, 2] {
            if Task::All.is_for(candidate) {
                let plan = Plan { layout: Layout::TWO_PAIRS, workers, ..plan };
                stages.push(Stage::set_up(candidate, plan, cores).await?);
            }
        }
    }
    let mut rates = Paired::new(stages.len());
    let mut totals = vec![Total::default(); stages.len()];
    for round in 1..=args.rounds() {
        let take = async |index: usize| {
            let entry = Entry { candidate: stages[index].candidate, task: Task::All };
            let measured = stages[index].take(entry, SIZE, args.window()).await?;
            totals[index].add(measured.ledger, Task::All);
            Ok(measured.rate / 1e6)
        };
        let latest = rates.round(take).await?;
        tell!("round {round}: two pairs, {SIZE} bytes: {}", Latest(&latest));
    }
    for stage in &stages {
        check_shares(stage).await?;
    }
    let row = |index| row(index, &stages, &rates, totals[index]);
    Ok((0..stages.len()).map(row).collect())
}

/// The comparison of thread counts is only meaningful if each thread has work.
async fn check_shares(stage: &Stage) -> Result<(), Failure> {
    stage.switch.resume()?;
    let shares = stage.switch.shares().await?;
    stage.switch.pause()?;
    if shares.len() == stage.plan.workers && shares.iter().all(|&frames| frames > 0) {
        return Ok(());
    }
    let (name, workers) = (stage.candidate.name(), stage.plan.workers);
    Err(format!("{name}: {workers} threads should forward; frames per thread: {shares:?}").into())
}

fn row(index: usize, stages: &[Stage], rates: &Paired, total: Total) -> Row {
    let what = |stage: &Stage| (stage.candidate, stage.plan.workers);
    let against = |other| {
        let other = stages.iter().position(|stage| what(stage) == other);
        other.filter(|other| *other != index).map(|other| rates.ratio(index, other))
    };
    let (candidate, workers) = what(&stages[index]);
    let ours = candidate == Candidate::Tapswitch;
    Row {
        candidate,
        workers,
        size: SIZE,
        mpps: rates.rate(index),
        to_ovs: Judged::new(against((Candidate::OpenVswitch, workers)), None),
        to_one: Judged::new(against((candidate, 1)), ours.then_some(SCALES)),
        ledger: total.ledger,
        adds_up: total.adds_up,
    }
}

/// Goal of the ratio of two threads to one.
const SCALES: f64 = 1.8;
const SIZE: usize = 64;
