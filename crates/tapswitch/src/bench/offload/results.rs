//! Results round by round, and derived values: medians over rounds, of times and of the ratios
//! within a round.

use serde::Serialize;

use crate::bench::statistics::median;

use super::candidate::{Cell, Part};

/// Nanoseconds per iteration of each candidate, round by round.
#[derive(Clone, Debug)]
pub(super) struct Results(Vec<(Cell, Vec<f64>)>);

/// Result of one candidate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) part: Part,
    pub(super) subject: String,
    pub(super) way: String,
    /// Nanoseconds per byte, packet or operation.
    pub(super) nanoseconds: f64,
    /// For checksums, the speed relative to the scalar loop; otherwise the time relative to the
    /// baseline. `None` for the baseline itself.
    pub(super) to_baseline: Option<f64>,
    /// Nanoseconds per iteration in each round.
    pub(super) rounds: Vec<f64>,
}

impl Results {
    pub(super) fn new(cells: impl Iterator<Item = Cell>) -> Self {
        Self(cells.map(|cell| (cell, Vec::new())).collect())
    }

    /// Adds the times of the candidates, in order.
    pub(super) fn add_round(&mut self, times: impl Iterator<Item = f64>) {
        self.0.iter_mut().zip(times).for_each(|((_, rounds), time)| rounds.push(time));
    }

    /// One row per candidate.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.0.iter().map(|(cell, rounds)| self.row(cell, rounds)).collect()
    }

    fn row(&self, cell: &Cell, rounds: &[f64]) -> Row {
        Row {
            part: cell.part,
            subject: cell.subject.clone(),
            way: cell.way.clone(),
            nanoseconds: median(rounds.iter().copied()) / f64::from(cell.units),
            to_baseline: self.baseline(cell).map(|baseline| ratio(cell.part, rounds, baseline)),
            rounds: rounds.to_vec(),
        }
    }

    /// The rounds of the baseline of `cell`.
    fn baseline(&self, cell: &Cell) -> Option<&[f64]> {
        let is_it = |other: &Cell| {
            other.is_baseline && other.part == cell.part && other.subject == cell.subject
        };
        let (_, rounds) = self.0.iter().find(|(other, _)| is_it(other) && other != cell)?;
        Some(rounds)
    }
}

fn ratio(part: Part, rounds: &[f64], baseline: &[f64]) -> f64 {
    let ratios = rounds.iter().zip(baseline).map(|(time, baseline)| match part {
        Part::Checksum => baseline / time,
        _ => time / baseline,
    });
    median(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_compared_for_checksums_and_time_for_the_rest() {
        for (part, expected) in [(Part::Checksum, 2.0), (Part::Split, 0.5)] {
            let cell = |way: &str, subject: &str, is_baseline| Cell {
                part,
                subject: subject.to_owned(),
                way: way.to_owned(),
                units: 10,
                is_baseline,
            };
            let cells = [cell("old", "A", true), cell("new", "A", false), cell("new", "B", false)];
            let mut results = Results::new(cells.into_iter());
            for times in [[100.0, 50.0, 1.0], [10.0, 5.0, 1.0], [30.0, 90.0, 1.0]] {
                results.add_round(times.into_iter());
            }
            let rows = results.rows();
            assert_eq!((rows[0].nanoseconds, rows[0].to_baseline), (3.0, None));
            assert_eq!((rows[1].nanoseconds, rows[1].to_baseline), (5.0, Some(expected)));
            assert_eq!(rows[1].rounds, [50.0, 5.0, 90.0]);
            assert_eq!(rows[2].to_baseline, None, "it has another subject");
        }
    }
}
