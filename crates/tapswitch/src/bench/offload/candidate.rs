//! One thing that is measured.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// The parts of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    /// The internet checksum, beside copying the same bytes.
    Checksum,
    /// Cutting trains, beside copying their payload once.
    Split,
    /// Making trains of packets.
    Coalesce,
    /// Tags on a train.
    Tags,
}

impl Part {
    pub(super) const ALL: [Self; 4] = [Self::Checksum, Self::Split, Self::Coalesce, Self::Tags];
}

/// What a candidate measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) part: Part,
    /// What the work is done on; candidates with the same subject are compared.
    pub(super) subject: String,
    /// Who does it, or how.
    pub(super) way: String,
    /// Bytes, packets or operations in one turn of the work.
    pub(super) units: u32,
    /// The others with the same subject are compared with this one.
    pub(super) is_baseline: bool,
}

/// Something that can be measured.
pub(super) struct Candidate {
    pub(super) cell: Cell,
    /// Does the work so many times.
    work: Box<dyn FnMut(u64)>,
    /// Times that take about as long as a measurement shall.
    turns: u64,
}

impl Candidate {
    /// One that does `work` again and again. What it gives back the compiler must not throw away.
    pub(super) fn new<T>(cell: Cell, mut work: impl FnMut() -> T + 'static) -> Self {
        let work = Box::new(move |turns| {
            for _ in 0..turns {
                std::hint::black_box(work());
            }
        });
        Self { cell, work, turns: 1 }
    }

    /// Finds out how often the work fits into `length`.
    pub(super) fn warm_up(&mut self, length: Duration) {
        while self.time() < length {
            self.turns *= 2;
        }
    }

    /// Nanoseconds of one turn.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds are shown with four digits")]
    pub(super) fn measure(&mut self) -> f64 {
        self.time().as_nanos() as f64 / self.turns as f64
    }

    /// Of this thread, while it is on a core: who else has one meanwhile does not count.
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
