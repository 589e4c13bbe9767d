//! How policies were doing in the last minutes: one point a second while somebody looks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tapswitch_control::PolicyReport;

use crate::clock::now_text;

/// The last points of each policy.
#[derive(Debug, Default)]
pub(super) struct AllSeries {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_policy: HashMap<String, Series>,
    /// When somebody looked last.
    asked_at: Option<Instant>,
    total: Rates,
}

#[derive(Debug)]
struct Series {
    last: Sums,
    points: VecDeque<Point>,
}

/// Counters at a moment.
#[derive(Clone, Copy, Debug)]
struct Sums {
    at: Instant,
    matched: u64,
    delivered_bytes: u64,
    dropped: u64,
}

/// What passed in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Rates {
    /// Frames that matched.
    matched_pps: u64,
    /// Bits of copies that monitors took.
    delivered_bps: u64,
    /// Copies that were dropped.
    dropped_pps: u64,
}

/// Rates at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Point {
    at: String,
    #[serde(flatten)]
    rates: Rates,
}

/// The points of one policy, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SeriesReport {
    interval_ms: u64,
    points: Vec<Point>,
}

impl AllSeries {
    /// Counters came.
    pub(super) fn take(&self, reports: &[PolicyReport], now: Instant) {
        let mut state = self.lock();
        let at = now_text();
        let mut known = std::mem::take(&mut state.by_policy);
        let mut total = Rates::default();
        for report in reports.iter().take(MAX_POLICIES) {
            let sums = Sums::of(report, now);
            let name = &report.policy.name;
            let mut series = known.remove(name).unwrap_or_else(|| Series::new(sums));
            if let Some(rates) = series.advance(sums, &at) {
                total = total.plus(rates);
            }
            state.by_policy.insert(name.clone(), series);
        }
        state.total = total;
    }

    /// The points of this policy, if it is looked at. From now on all are, for a while.
    pub(super) fn report(&self, name: &str) -> Option<SeriesReport> {
        let mut state = self.lock();
        state.asked_at = Some(Instant::now());
        let points = state.by_policy.get(name)?.points.iter().cloned().collect();
        Some(SeriesReport { points, ..SeriesReport::empty() })
    }

    /// The sum over all policies in the last second.
    pub(super) fn total(&self) -> Rates {
        self.lock().total
    }

    /// Whether somebody looked lately.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().asked_at.is_some_and(|at| at.elapsed() < WANTED)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is in there is whole whenever the lock is free.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Series {
    const fn new(last: Sums) -> Self {
        Self { last, points: VecDeque::new() }
    }

    /// Counters came: what passed since they came before, unless that is too long ago to be told.
    fn advance(&mut self, sums: Sums, at: &str) -> Option<Rates> {
        let last = std::mem::replace(&mut self.last, sums);
        let passed = sums.at.saturating_duration_since(last.at);
        if passed.is_zero() || passed > MAX_PAUSE {
            return None;
        }
        let rates = sums.since(last, passed);
        if self.points.len() == MAX_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(Point { at: at.to_owned(), rates });
        Some(rates)
    }
}

impl Sums {
    fn of(report: &PolicyReport, at: Instant) -> Self {
        let copied = || report.copied.iter();
        Self {
            at,
            matched: report.matched.packets,
            delivered_bytes: copied().map(|copied| copied.delivered.bytes).sum(),
            dropped: copied().flat_map(|copied| copied.dropped.values()).sum(),
        }
    }

    /// Counters that were set back count from zero, as after a restart of the switch.
    fn since(self, last: Self, passed: Duration) -> Rates {
        let rate = |new: u64, old: u64, factor: u64| {
            let grown = new.checked_sub(old).unwrap_or(new);
            let scaled = u128::from(grown) * u128::from(factor) * 1_000_000;
            u64::try_from(scaled / passed.as_micros().max(1)).unwrap_or(u64::MAX)
        };
        Rates {
            matched_pps: rate(self.matched, last.matched, 1),
            delivered_bps: rate(self.delivered_bytes, last.delivered_bytes, 8),
            dropped_pps: rate(self.dropped, last.dropped, 1),
        }
    }
}

impl Rates {
    const fn plus(self, other: Self) -> Self {
        Self {
            matched_pps: self.matched_pps.saturating_add(other.matched_pps),
            delivered_bps: self.delivered_bps.saturating_add(other.delivered_bps),
            dropped_pps: self.dropped_pps.saturating_add(other.dropped_pps),
        }
    }
}

impl SeriesReport {
    /// No points yet.
    pub(super) const fn empty() -> Self {
        Self { interval_ms: 1000, points: Vec::new() }
    }
}

/// Five minutes.
const MAX_POINTS: usize = 300;
/// Policies whose points are kept: some megabytes.
const MAX_POLICIES: usize = 1000;
/// How long after somebody looked points are still made.
const WANTED: Duration = Duration::from_secs(300);
/// Between points that are further apart nothing is told: nobody looked.
const MAX_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_control::{Counts, PolicyState, TapPolicy};

    #[test]
    fn points_are_what_passed_between_counters() {
        let (series, start) = (AllSeries::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        series.take(&[report(100)], at(0));
        series.take(&[report(300)], at(2000));
        series.take(&[report(50)], at(3000));
        let report = series.report("p").unwrap();
        let told: Vec<_> = report.points.iter().map(|point| point.rates.matched_pps).collect();
        assert_eq!(told, [100, 50], "the second after a restart of the switch");
        assert_eq!(series.total().matched_pps, 50);
    }

    #[test]
    fn what_nobody_looked_at_is_no_point() {
        let (series, start) = (AllSeries::default(), Instant::now());
        series.take(&[report(0)], start);
        series.take(&[report(1_000_000)], start + Duration::from_secs(3600));
        assert!(series.report("p").unwrap().points.is_empty());
        series.take(&[], start);
        assert_eq!(series.report("p"), None, "it is gone");
    }

    #[test]
    fn points_are_bounded() {
        let (series, start) = (AllSeries::default(), Instant::now());
        for second in 0..MAX_POINTS as u64 + 9 {
            series.take(&[report(second)], start + Duration::from_secs(second));
        }
        assert_eq!(series.report("p").unwrap().points.len(), MAX_POINTS);
    }

    fn report(packets: u64) -> PolicyReport {
        PolicyReport {
            number: 1,
            policy: TapPolicy::new("p", "3".parse().unwrap()),
            state: PolicyState::Active,
            monitor: None,
            monitors: Vec::new(),
            matched: Counts { packets, bytes: packets },
            copied: Vec::new(),
            adds_up: true,
            is_complete: true,
            notes: Vec::new(),
        }
    }
}
