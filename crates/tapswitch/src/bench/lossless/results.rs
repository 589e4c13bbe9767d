//! Measurements of each case, round by round, and their summary.

use serde::Serialize;

use crate::bench::paired::{Paired, Ratio, Verdict};
use crate::bench::statistics::median;

use super::Failure;
use super::stage::Losses;
use super::traffic::Passed;

/// One measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) passed: Passed,
    pub(super) losses: Losses,
    /// Frames that the switch marked.
    pub(super) marked: u64,
}

/// All measurements of several cases.
#[derive(Debug)]
pub(super) struct Results {
    rates: Paired,
    samples: Vec<Vec<Sample>>,
}

/// Summary of the measurements of one case: medians of rates and times, sums of counters.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    /// Received payload in Mb/s.
    pub(super) mbps: f64,
    /// Datagrams sent; for TCP only the probes.
    pub(super) sent: u64,
    /// Datagrams received.
    pub(super) received: u64,
    /// Retransmitted TCP segments.
    pub(super) retransmits: u64,
    /// Frames that the switch marked (ECN); counted in part queue.
    pub(super) marked: u64,
    /// Median one-way delay of probes in ms; `None` if half of them were lost.
    pub(super) p50_ms: Option<f64>,
    /// The 99th percentile; `None` if more were lost.
    pub(super) p99_ms: Option<f64>,
    /// Losses by the counter that shows them.
    pub(super) losses: Losses,
}

impl Summary {
    /// Datagrams that were sent and not received, in percent.
    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(super) fn loss_percent(&self) -> f64 {
        let lost = self.sent.saturating_sub(self.received);
        if self.sent == 0 { 0.0 } else { lost as f64 / self.sent as f64 * 100.0 }
    }
}

impl Results {
    /// No measurements yet of `cases` cases.
    pub(super) fn new(cases: usize) -> Self {
        Self { rates: Paired::new(cases), samples: vec![Vec::new(); cases] }
    }

    /// Measures each case once.
    pub(super) async fn round(
        &mut self,
        mut take: impl AsyncFnMut(usize) -> Result<Sample, Failure>,
    ) -> Result<(), Failure> {
        let Self { rates, samples } = self;
        let take = async |case: usize| {
            let sample = take(case).await?;
            let mbps = sample.passed.mbps;
            samples[case].push(sample);
            Ok(mbps)
        };
        rates.round(take).await.map(drop)
    }

    /// Ratio of the rate of `over` to that of `under`, within rounds.
    pub(super) fn ratio(&self, over: usize, under: usize) -> Ratio {
        self.rates.ratio(over, under)
    }

    pub(super) fn summary(&self, case: usize) -> Summary {
        let samples = &self.samples[case];
        let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum();
        let mut losses = Losses::default();
        samples.iter().for_each(|sample| losses.add(&sample.losses));
        Summary {
            mbps: self.rates.rate(case),
            sent: sum(|sample| sample.passed.sent),
            received: sum(|sample| sample.passed.received),
            retransmits: sum(|sample| sample.passed.retransmits),
            marked: sum(|sample| sample.marked),
            p50_ms: percentile(samples, 0.5),
            p99_ms: percentile(samples, 0.99),
            losses,
        }
    }
}

/// The median over rounds; `None` if it is missing in half of them.
fn percentile(samples: &[Sample], share: f64) -> Option<f64> {
    let endless = |sample: &Sample| sample.passed.percentile_ms(share).unwrap_or(f64::INFINITY);
    Some(median(samples.iter().map(endless))).filter(|ms| ms.is_finite())
}

/// A ratio with its goal.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Judged {
    pub(super) ratio: Ratio,
    pub(super) goal: Option<f64>,
    pub(super) verdict: Option<Verdict>,
}

impl Judged {
    pub(super) fn new(ratio: Ratio, goal: Option<f64>) -> Self {
        Self { ratio, goal, verdict: goal.map(|goal| ratio.verdict(goal)) }
    }

    /// As three table cells.
    pub(super) fn cells(this: Option<&Self>) -> [String; 3] {
        let Some(Self { ratio, goal, verdict }) = this else {
            return [(); 3].map(|()| String::new());
        };
        [
            ratio.text(),
            goal.map(|goal| format!("{goal:.2}")).unwrap_or_default(),
            verdict.map_or("", Verdict::name).to_owned(),
        ]
    }
}

/// A time as a table cell.
pub(super) fn ms(time: Option<f64>) -> String {
    time.map_or_else(|| "lost".to_owned(), |ms| format!("{ms:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(mbps: f64, sent: u64, received: u64, delay_ms: Option<u64>) -> Sample {
        let delays = delay_ms.map(Duration::from_millis).into_iter().collect();
        let passed = Passed { mbps, sent, received, delays, probes: 1, ..Passed::default() };
        Sample { passed, ..Sample::default() }
    }

    #[test]
    fn rates_are_medians_and_counts_are_sums() {
        let mut results = Results::new(1);
        for it in
            [sample(1.0, 10, 9, Some(5)), sample(9.0, 10, 9, Some(7)), sample(2.0, 20, 20, None)]
        {
            results.rates.add(0, it.passed.mbps);
            results.samples[0].push(it);
        }
        let summary = results.summary(0);
        assert_eq!((summary.mbps, summary.sent, summary.received), (2.0, 40, 38));
        assert_eq!(summary.loss_percent(), 5.0);
        assert_eq!(summary.p99_ms, Some(7.0), "a lost probe is the slowest");
    }
}
