//! Latency of a frame of 64 bytes through a switch to guests and back, while idle and while another
//! flow saturates the switch.

use serde::Serialize;

use crate::bench::statistics::median;

use super::layout::Layout;
use super::probe::{PROBE_PORT, Series};
use super::stage::{Cores, Plan, Stage};
use super::switches::Candidate;
use super::{Failure, VhostArgs};

/// Result of one candidate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) candidate: Candidate,
    /// Another flow circulates through the same two guests.
    pub(super) busy: bool,
    /// Medians over rounds.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Over all rounds.
    pub(super) lost: usize,
}

/// Measures each switch, idle and busy.
pub(super) async fn measure(
    args: &VhostArgs,
    plan: Plan,
    cores: Cores,
) -> Result<Vec<Row>, Failure> {
    let plan = Plan { layout: Layout::PAIR, probed: true, ..plan };
    let mut stages = Vec::new();
    for candidate in args.candidates().into_iter().filter(|one| *one != Candidate::Bare) {
        let stage = Stage::set_up(candidate, plan, cores).await?;
        stage.switch.resume()?;
        for rule in rules() {
            stage.switch.ofctl("add-flow", &rule).await?;
        }
        stage.switch.pause()?;
        stages.push(stage);
    }
    let mut series = vec![[const { Vec::new() }; 2]; stages.len()];
    for round in 1..=args.rounds() {
        for (stage, series) in stages.iter_mut().zip(&mut series) {
            for busy in [false, true] {
                let taken = take(stage, busy).await?;
                say(round, stage.candidate, busy, taken);
                series[usize::from(busy)].push(taken);
            }
        }
    }
    let rows = stages.iter().zip(series).flat_map(|(stage, series)| {
        let candidate = stage.candidate;
        [false, true].map(|busy| row(candidate, busy, &series[usize::from(busy)]))
    });
    Ok(rows.collect())
}

/// From the interface to a guest, and back from another; and the circulation between the two.
fn rules() -> [String; 3] {
    [(PROBE_PORT, 1), (2, PROBE_PORT), (1, 2)]
        .map(|(from, to)| format!("in_port={from},actions=output:{to}"))
}

async fn take(stage: &mut Stage, busy: bool) -> Result<Series, Failure> {
    stage.switch.resume()?;
    let before = stage.loader.passage()?;
    match busy {
        false => stage.loader.start_empty().await?,
        true => stage.loader.start(FRAME_LEN).await?,
    }
    let prober = stage.prober.as_mut().ok_or("nobody to ask")?;
    let series = prober.series().await?;
    stage.loader.stop(&before, 0).await?;
    stage.switch.pause()?;
    Ok(series)
}

fn say(round: u64, candidate: Candidate, busy: bool, series: Series) {
    let (name, state) = (candidate.name(), if busy { "busy" } else { "idle" });
    let Series { p50_us, p99_us, lost } = series;
    let times = format!("{p50_us:.1} µs, 99 % {p99_us:.1} µs");
    tell!("round {round}: round trip, {name}, {state}: {times}, {lost} lost");
}

fn row(candidate: Candidate, busy: bool, series: &[Series]) -> Row {
    Row {
        candidate,
        busy,
        p50_us: median(series.iter().map(|series| series.p50_us)),
        p99_us: median(series.iter().map(|series| series.p99_us)),
        lost: series.iter().map(|series| series.lost).sum(),
    }
}

/// 64 bytes without the check sequence.
const FRAME_LEN: usize = 60;
