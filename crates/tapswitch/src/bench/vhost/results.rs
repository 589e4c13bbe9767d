//! Rates of one frame size, round by round, and the resulting rows.

use std::fmt;

use serde::Serialize;

use crate::bench::paired::{Paired, Ratio, Verdict};

use super::Failure;
use super::cases::{Entry, Task};
use super::loader::{Load, Rings};
use super::stage::{CHECK_SEQUENCE_LEN, Ledger, Plan, Stage, Window};
use super::switches::Candidate;

/// All measurements with one frame size.
#[derive(Debug)]
pub(super) struct Size {
    size: usize,
    entries: Vec<Entry>,
    /// By entry.
    rates: Paired,
    /// Shares of their cores that the switch and the guests got.
    cores: [Paired; 2],
    totals: Vec<Total>,
}

/// Totals of an entry over all measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Total {
    pub(super) ledger: Ledger,
    /// True if the ledger of every measurement so far adds up.
    pub(super) adds_up: bool,
}

impl Total {
    /// Adds the ledger of a measurement.
    pub(super) fn add(&mut self, ledger: Ledger, task: Task) {
        self.ledger += ledger;
        self.adds_up &= ledger.adds_up(task.copies());
    }
}

impl Default for Total {
    fn default() -> Self {
        Self { ledger: Ledger::default(), adds_up: true }
    }
}

/// The rates of a round as text.
pub(super) struct Latest<'a>(pub(super) &'a [f64]);

impl fmt::Display for Latest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates: Vec<_> = self.0.iter().map(|rate| format!("{rate:.3}")).collect();
        write!(f, "{} Mpps", rates.join(", "))
    }
}

impl Size {
    pub(super) fn new(size: usize, entries: Vec<Entry>) -> Self {
        let count = entries.len();
        let cores = [(); 2].map(|()| Paired::new(count));
        let totals = vec![Total::default(); count];
        Self { size, entries, rates: Paired::new(count), cores, totals }
    }

    /// Measures each entry once.
    pub(super) async fn round(
        &mut self,
        round: u64,
        stages: &mut [Stage],
        window: Window,
    ) -> Result<(), Failure> {
        let Self { size, entries, rates, cores, totals } = self;
        let take = async |index: usize| {
            let entry = entries[index];
            let stage = stages.iter_mut().find(|stage| stage.candidate == entry.candidate);
            let measured = stage.ok_or("no such stage")?.take(entry, *size, window).await?;
            let [switch, guests] = measured.cores;
            cores[0].add(index, switch);
            cores[1].add(index, guests);
            totals[index].add(measured.ledger, entry.task);
            Ok(measured.rate / 1e6)
        };
        let latest = rates.round(take).await?;
        tell!("round {round}: {size} bytes: {}", Latest(&latest));
        Ok(())
    }

    /// One row for each entry.
    pub(super) fn rows(&self, plan: Plan) -> impl Iterator<Item = Row> {
        (0..self.entries.len()).map(move |index| self.row(index, plan))
    }

    fn row(&self, index: usize, plan: Plan) -> Row {
        let Entry { candidate, task } = self.entries[index];
        let ours = candidate == Candidate::Tapswitch;
        let against = |candidate, task| {
            let other = self.index(Entry { candidate, task }).filter(|other| *other != index);
            other.map(|other| self.rates.ratio(index, other))
        };
        let to_plain = (task != Task::Plain).then(|| against(candidate, Task::Plain)).flatten();
        let keeps_up = ours && KEEPS_UP_SIZES.contains(&self.size);
        Row {
            rings: plan.rings,
            flows: plan.flows,
            load: plan.load,
            size: self.size,
            task,
            candidate,
            mpps: self.rates.rate(index),
            gbps: self.rates.rate(index) * self.bits() / 1e3,
            to_bare: against(Candidate::Bare, Task::Plain).filter(|_| task == Task::Plain),
            to_ovs: Judged::new(against(Candidate::OpenVswitch, task), ours.then(|| task.goal())),
            to_mirror: against(Candidate::OpenVswitch, Task::Mirror).filter(|_| ours),
            to_plain: Judged::new(to_plain, keeps_up.then_some(KEEPS_UP)),
            switch_core: self.cores[0].rate(index),
            guests_core: self.cores[1].rate(index),
            ledger: self.totals[index].ledger,
            adds_up: (candidate != Candidate::Bare).then_some(self.totals[index].adds_up),
        }
    }

    /// Bits of a frame, without the check sequence.
    #[expect(clippy::cast_precision_loss, reason = "less than a million")]
    fn bits(&self) -> f64 {
        (8 * (self.size - CHECK_SEQUENCE_LEN)) as f64
    }

    fn index(&self, entry: Entry) -> Option<usize> {
        self.entries.iter().position(|other| *other == entry)
    }
}

/// Result of one candidate and task with one frame size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) rings: Rings,
    pub(super) flows: usize,
    pub(super) load: Load,
    pub(super) size: usize,
    pub(super) task: Task,
    pub(super) candidate: Candidate,
    /// Million frames per second at the receiver, median.
    pub(super) mpps: f64,
    /// The same in billion bits per second, without check sequences.
    pub(super) gbps: f64,
    /// Ratio to the bare loop.
    pub(super) to_bare: Option<Ratio>,
    /// Ratio to Open vSwitch doing the same.
    pub(super) to_ovs: Judged,
    /// Ratio to Open vSwitch's mirror.
    pub(super) to_mirror: Option<Ratio>,
    /// Ratio to the same candidate's plain rate.
    pub(super) to_plain: Judged,
    /// Share of its core that the switch's busiest thread got, median; less than one means that
    /// other processes were running.
    pub(super) switch_core: f64,
    /// The same for the guests.
    pub(super) guests_core: f64,
    /// Outcome of all frames of all rounds.
    pub(super) ledger: Ledger,
    /// In every round every frame arrived, or the switch counted the loss; `None` for the bare
    /// loop, which has no counters.
    pub(super) adds_up: Option<bool>,
}

/// A ratio with its goal, if they exist.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Judged {
    pub(super) ratio: Option<Ratio>,
    pub(super) goal: Option<f64>,
    pub(super) verdict: Option<Verdict>,
}

impl Judged {
    pub(super) fn new(ratio: Option<Ratio>, goal: Option<f64>) -> Self {
        let goal = goal.filter(|_| ratio.is_some());
        let verdict = ratio.zip(goal).map(|(ratio, goal)| ratio.verdict(goal));
        Self { ratio, goal, verdict }
    }
}

/// Goal of the rate with a copy, relative to that without.
const KEEPS_UP: f64 = 0.6;
/// Sizes to which the goal applies.
const KEEPS_UP_SIZES: std::ops::RangeInclusive<usize> = 64..=512;
