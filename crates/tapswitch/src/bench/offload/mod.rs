//! `tapswitch bench offload`: cost of deferred work on frames, in one process and without a device:
//! checksums, segmentation, coalescing, tags.
//!
//! All data is in the cache, as after reading a frame. Every candidate is measured once per round,
//! in turn, and compared within a round.

mod candidate;
mod checksum;
mod coalesce;
mod report;
mod results;
mod split;
mod tags;
mod train;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::output::OutputFile;

use super::machine::Machine;
use super::write_data;
use candidate::{Candidate, Part};
use report::Report;
use results::Results;

type Failure = Box<dyn std::error::Error>;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct OffloadArgs {
    /// Rounds; each measures every candidate once. At least 5 for medians.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=999))]
    rounds: u64,
    /// Length of each measurement in milliseconds.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    milliseconds: u64,
    /// Run only this measurement; may be repeated.
    #[arg(long, value_name = "MEASUREMENT")]
    only: Vec<Part>,
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the measurements, prints the results, and optionally writes them as data.
pub(crate) fn main(args: &OffloadArgs) -> Result<(), Failure> {
    let json = OutputFile::open(args.json.as_deref())?;
    let mut candidates = args.candidates()?;
    let length = Duration::from_millis(args.milliseconds);
    let mut results = Results::new(candidates.iter().map(|candidate| candidate.cell.clone()));
    for candidate in &mut candidates {
        candidate.warm_up(length);
    }
    for _ in 0..args.rounds {
        results.add_round(candidates.iter_mut().map(Candidate::measure));
    }
    let report = Report {
        machine: Machine::look(),
        rounds: args.rounds,
        milliseconds: args.milliseconds,
        rows: results.rows(),
    };
    report.print();
    write_data(json, &report)
}

impl OffloadArgs {
    fn candidates(&self) -> Result<Vec<Candidate>, Failure> {
        let mut all = Vec::new();
        for part in Part::ALL {
            if self.only.is_empty() || self.only.contains(&part) {
                all.extend(match part {
                    Part::Checksum => checksum::candidates(),
                    Part::Split => split::candidates()?,
                    Part::Coalesce => coalesce::candidates()?,
                    Part::Tags => tags::candidates(),
                });
            }
        }
        Ok(all)
    }
}
