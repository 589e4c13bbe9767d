//! Candidates measured in turn, and compared within each round.
//!
//! On a shared machine a rate drifts by ten percent within seconds, and everything measured at the
//! same time drifts along. So the windows are short, compared candidates are measured directly
//! after each other, in an order that changes from round to round, and rates of the same round are
//! compared. The median of those ratios is reported with the interval that contains the true median
//! with 95 % confidence: by order statistics, without an assumption about the distribution.

use serde::Serialize;

use super::statistics::median;

type Failure = Box<dyn std::error::Error>;

/// The rates of some candidates, or other compared numbers, round by round.
#[derive(Clone, Debug)]
pub(crate) struct Paired {
    /// By candidate, then by round.
    rates: Vec<Vec<f64>>,
    rounds: usize,
}

impl Paired {
    /// No measurements yet of `candidates` candidates.
    pub(crate) fn new(candidates: usize) -> Self {
        Self { rates: vec![Vec::new(); candidates], rounds: 0 }
    }

    /// Measures each candidate once: `take` gets its number and returns its rate. Returns all rates
    /// of the round.
    pub(crate) async fn round(
        &mut self,
        mut take: impl AsyncFnMut(usize) -> Result<f64, Failure>,
    ) -> Result<Vec<f64>, Failure> {
        for candidate in turns(self.rates.len(), self.rounds) {
            let rate = take(candidate).await?;
            self.add(candidate, rate);
        }
        self.rounds += 1;
        Ok(self.rates.iter().filter_map(|rates| rates.last().copied()).collect())
    }

    /// Adds a value that was measured together with a rate; once per round for each candidate.
    pub(crate) fn add(&mut self, candidate: usize, value: f64) {
        self.rates[candidate].push(value);
    }

    /// The median rate of a candidate.
    pub(crate) fn rate(&self, candidate: usize) -> f64 {
        median(self.rates[candidate].iter().copied())
    }

    /// Ratio of the rate of `over` to that of `under`.
    pub(crate) fn ratio(&self, over: usize, under: usize) -> Ratio {
        let pairs = self.rates[over].iter().zip(&self.rates[under]);
        Ratio::of(pairs.map(|(over, under)| over / under).collect())
    }
}

/// The order of candidates in a round: each comes first equally often, and every other round runs
/// backwards, so that a drift within rounds favours none.
pub(crate) fn turns(candidates: usize, round: usize) -> impl Iterator<Item = usize> {
    let (first, backwards) = (round / 2, round % 2 == 1);
    (0..candidates).map(move |turn| {
        let turn = if backwards { candidates - 1 - turn } else { turn };
        (first + turn) % candidates
    })
}

/// The ratio of two rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    /// Median over rounds.
    pub(crate) median: f64,
    /// The interval that contains the true median with a confidence of 95 %; `None` below six
    /// rounds.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Ratio {
    /// From the ratios of all rounds.
    pub(crate) fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        let interval =
            rank(ratios.len()).map(|rank| (ratios[rank], ratios[ratios.len() - 1 - rank]));
        Self { median: median(ratios), interval }
    }

    /// In the format of tables: `0.970 (0.951 to 0.985)`.
    pub(crate) fn text(&self) -> String {
        let interval = self.interval_text().map(|interval| format!(" ({interval})"));
        self.median_text() + &interval.unwrap_or_default()
    }

    /// The median alone.
    pub(crate) fn median_text(&self) -> String {
        format!("{:.3}", self.median)
    }

    /// The interval alone.
    pub(crate) fn interval_text(&self) -> Option<String> {
        self.interval.map(|(low, high)| format!("{low:.3} to {high:.3}"))
    }

    /// Compares the ratio with `goal`, its minimum.
    pub(crate) fn verdict(&self, goal: f64) -> Verdict {
        match self.interval {
            _ if self.median >= goal => Verdict::Met,
            Some((_, high)) if high < goal => Verdict::Missed,
            _ => Verdict::Open,
        }
    }
}

/// Whether a goal is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The median reaches the goal.
    Met,
    /// The median does not, but the true one may: more rounds are needed.
    Open,
    /// The goal is outside the interval.
    Missed,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Open => "open",
            Self::Missed => "missed",
        }
    }
}

/// How many of `count` sorted values are outside, on either side, of the interval that contains the
/// median with 95 % confidence. A value is below the median with probability ½, so the number of
/// those values is binomially distributed.
fn rank(count: usize) -> Option<usize> {
    let (mut term, mut below) = (0.5_f64.powi(i32::try_from(count).ok()?), 0.0);
    for outside in 0..count {
        below += term;
        if below > (1.0 - CONFIDENCE) / 2.0 {
            return outside.checked_sub(1);
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
        let next = (count - outside) as f64 / (outside + 1) as f64;
        term *= next;
    }
    None
}

const CONFIDENCE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_has_every_turn_equally_often() {
        let mut counts = [[0; 4]; 4];
        for round in 0..8 {
            let order: Vec<_> = turns(4, round).collect();
            for (turn, &candidate) in order.iter().enumerate() {
                counts[candidate][turn] += 1;
            }
        }
        assert_eq!(counts, [[2; 4]; 4]);
        assert_eq!(turns(3, 0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(turns(3, 1).collect::<Vec<_>>(), [2, 1, 0]);
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        // Ranks from 1, from the table for the median in Conover, "Practical Nonparametric
        // Statistics": 6: 1, 9: 2, 20: 6, 50: 18.
        let ranks = [5, 6, 9, 20, 50].map(|count| rank(count).map(|rank| rank + 1));
        assert_eq!(ranks, [None, Some(1), Some(2), Some(6), Some(18)]);
    }

    #[test]
    fn a_ratio_is_that_of_one_round() {
        let mut paired = Paired::new(2);
        for (over, under) in [(10.0, 20.0), (5.0, 10.0), (100.0, 50.0)] {
            paired.add(0, over);
            paired.add(1, under);
        }
        assert_eq!(paired.ratio(0, 1), Ratio { median: 0.5, interval: None });
        assert_eq!(paired.rate(1), 20.0);
    }

    #[test]
    fn a_verdict_says_no_more_than_is_known() {
        let ratio = |median, interval| Ratio { median, interval };
        assert_eq!(ratio(0.99, Some((0.9, 1.1))).verdict(0.98), Verdict::Met);
        assert_eq!(ratio(0.97, Some((0.9, 1.1))).verdict(0.98), Verdict::Open);
        assert_eq!(ratio(0.97, Some((0.9, 0.975))).verdict(0.98), Verdict::Missed);
        assert_eq!(ratio(0.5, None).verdict(0.98), Verdict::Open);
    }
}
