//! A candidate of this benchmark.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// The parts of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    /// The internet checksum, compared with copying the same bytes.
    Checksum,
    /// Segmenting trains, compared with copying their payload once.
    Split,
    /// Coalescing packets into trains.
    Coalesce,
    /// Tags on a train.
    Tags,
}

impl Part {
    pub(super) const ALL: [Self; 4] = [Self::Checksum, Self::Split, Self::Coalesce, Self::Tags];
}

/// Description of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) part: Part,
    /// Subject of the work; candidates with the same subject are compared.
    pub(super) subject: String,
    /// Implementation or variant.
    pub(super) way: String,
    /// Bytes, packets or operations per iteration.
    pub(super) units: u32,
    /// Candidates with the same subject are compared with this one.
    pub(super) is_baseline: bool,
}

/// Something to measure.
pub(super) struct Candidate {
    pub(super) cell: Cell,
    /// Executes the work this number of times.
    work: Box<dyn FnMut(u64)>,
    /// Iterations that take about the length of a measurement.
    turns: u64,
}

impl Candidate {
    /// Creates a candidate that repeats `work`. The compiler must not optimise its result away.
    pub(super) fn new<T>(cell: Cell, mut work: impl FnMut() -> T + 'static) -> Self {
        let work = Box::new(move |turns| {
            for _ in 0..turns {
                std::hint::black_box(work());
            }
        });
        Self { cell, work, turns: 1 }
    }

    /// Determines the number of iterations for `length`.
    pub(super) fn warm_up(&mut self, length: Duration) {
        while self.time() < length {
            self.turns *= 2;
        }
    }

    /// Nanoseconds per iteration.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds are shown with four digits")]
    pub(super) fn measure(&mut self) -> f64 {
        self.time().as_nanos() as f64 / self.turns as f64
    }

    /// CPU time of this thread, which excludes other load.
    fn time(&mut self) -> Duration {
        let start = processor_time();
        (self.work)(self.turns);
        processor_time().saturating_sub(start)
    }
}

#[expect(clippy::cast_sign_loss, reason = "a clock that starts at zero")]
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_secs(now.tv_sec as u64) + Duration::from_nanos(now.tv_nsec as u64)
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("cell", &self.cell).finish_non_exhaustive()
    }
}
