//! CPU usage of a switch with four idle guests.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::layout::Layout;
use super::stage::{Cores, Plan, Stage};
use super::switches::{Candidate, processor_times};
use super::{Failure, VhostArgs};

/// Result of one candidate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) candidate: Candidate,
    /// All threads together, in percent of a core.
    pub(super) percent: f64,
    /// Its maximum.
    pub(super) goal: Option<f64>,
    pub(super) met: Option<bool>,
}

/// Measures each switch.
pub(super) async fn measure(
    args: &VhostArgs,
    plan: Plan,
    cores: Cores,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let switches = args.candidates().into_iter().filter(|one| *one != Candidate::Bare);
    for candidate in switches {
        let plan = Plan { layout: Layout::FOUR, ..plan };
        let stage = Stage::set_up(candidate, plan, cores).await?;
        stage.switch.resume()?;
        tokio::time::sleep(SETTLING).await;
        let percent = percent(stage.switch.id()?).await?;
        tell!("idle, four guests: {}: {percent:.2} % of a core", candidate.name());
        let goal = (candidate == Candidate::Tapswitch).then_some(GOAL);
        rows.push(Row { candidate, percent, goal, met: goal.map(|goal| percent < goal) });
    }
    Ok(rows)
}

async fn percent(id: u32) -> Result<f64, Failure> {
    let total = |id| processor_times(id).map(|times| times.values().sum::<Duration>());
    let (before, start) = (total(id)?, Instant::now());
    tokio::time::sleep(LENGTH).await;
    let used = total(id)?.saturating_sub(before);
    Ok(used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0)
}

/// Percent of a core.
const GOAL: f64 = 1.0;
const SETTLING: Duration = Duration::from_secs(1);
const LENGTH: Duration = Duration::from_secs(2);
