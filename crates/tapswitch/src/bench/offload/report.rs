//! All results, as text and as data.

use serde::Serialize;

use crate::bench::machine::Machine;
use crate::table::{print, table};

use super::candidate::Part;
use super::results::Row;

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) rounds: u64,
    pub(super) milliseconds: u64,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Prints the report.
    pub(super) fn print(&self) {
        let Machine { processor, cores, kernel, .. } = &self.machine;
        let (rounds, length) = (self.rounds, self.milliseconds);
        say!(
            "{processor}, {cores} cores, Linux {kernel}; medians of {rounds} rounds of {length} ms"
        );
        for part in Part::ALL {
            self.print_part(part);
        }
    }

    fn print_part(&self, part: Part) {
        let mut rows = table(&match part {
            Part::Checksum => ["CHECKSUM", "BY", "GB/S ", "× SCALAR "],
            Part::Split => ["SPLIT", "BY", "NS/SEGMENT ", "TO ONE COPY "],
            Part::Coalesce => ["COALESCE", "CHECKSUMS", "NS/SEGMENT ", ""],
            Part::Tags => ["TAGS OF A TRAIN", "OPERATION", "NS ", ""],
        });
        for row in self.rows.iter().filter(|row| row.part == part) {
            rows.add_row([
                row.subject.clone(),
                row.way.clone(),
                match part {
                    Part::Checksum => format!("{:.1}", row.nanoseconds.recip()),
                    _ => format!("{:.1}", row.nanoseconds),
                },
                row.to_baseline.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            ]);
        }
        if !rows.is_empty() {
            say!();
            print(&rows, "");
        }
    }
}
