//! Recent history of policies: one point a second while anyone looks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tapswitch_control::PolicyReport;

use crate::clock::now_text;

/// Series of policies.
#[derive(Debug, Default)]
pub(super) struct AllSeries {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Last counters of every policy, for the total.
    last: HashMap<String, Sums>,
    /// At most [`MAX_POLICIES`]; requested ones have precedence.
    by_policy: HashMap<String, Series>,
    /// Time of the last request.
    asked_at: Option<Instant>,
    total: Rates,
}

#[derive(Debug, Default)]
struct Series {
    asked_at: Option<Instant>,
    points: VecDeque<Point>,
}

/// Counters at one time.
#[derive(Clone, Copy, Debug)]
struct Sums {
    at: Instant,
    matched: u64,
    delivered_bytes: u64,
    dropped: u64,
}

/// Rates over a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Rates {
    /// Matched frames.
    matched_pps: u64,
    /// Bits of delivered copies.
    delivered_bps: u64,
    /// Dropped copies.
    dropped_pps: u64,
}

/// Rates at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Point {
    at: String,
    #[serde(flatten)]
    rates: Rates,
}

/// Points of one policy, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SeriesReport {
    interval_ms: u64,
    points: Vec<Point>,
}

impl AllSeries {
    /// Processes new counters.
    pub(super) fn take(&self, reports: &[PolicyReport], now: Instant) {
        let mut state = self.lock();
        let at = now_text();
        let mut known = std::mem::take(&mut state.last);
        let mut total = Rates::default();
        for report in reports {
            let (name, sums) = (&report.policy.name, Sums::of(report, now));
            let (name, last) = known.remove_entry(name).unwrap_or_else(|| (name.clone(), sums));
            if let Some(rates) = sums.since(last) {
                total = total.plus(rates);
                state.note(&name, Point { at: at.clone(), rates });
            }
            state.last.insert(name, sums);
        }
        state.total = total;
        let State { last, by_policy, .. } = &mut *state;
        by_policy.retain(|name, _| last.contains_key(name));
    }

    /// The series of a policy, if there is one. From now on all policies get points for a while, as
    /// far as there is room, and this one in any case.
    pub(super) fn report(&self, name: &str) -> Option<SeriesReport> {
        let mut state = self.lock();
        let now = Some(Instant::now());
        state.asked_at = now;
        if !state.last.contains_key(name) {
            return None;
        }
        if !state.by_policy.contains_key(name) {
            state.make_room();
        }
        let series = state.by_policy.entry(name.to_owned()).or_default();
        series.asked_at = now;
        let points = series.points.iter().cloned().collect();
        Some(SeriesReport { points, ..SeriesReport::empty() })
    }

    /// Sum over all policies in the last second.
    pub(super) fn total(&self) -> Rates {
        self.lock().total
    }

    /// Whether there was a recent request.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().asked_at.is_some_and(|at| at.elapsed() < WANTED)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The content is consistent whenever the lock is free.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a point, if there is room for its policy.
    fn note(&mut self, name: &str, point: Point) {
        if let Some(series) = self.by_policy.get_mut(name) {
            series.push(point);
        } else if self.by_policy.len() < MAX_POLICIES {
            self.by_policy.entry(name.to_owned()).or_default().push(point);
        }
    }

    /// Makes room by dropping the series that was never requested, or not for the longest time.
    fn make_room(&mut self) {
        if self.by_policy.len() < MAX_POLICIES {
            return;
        }
        let oldest = self.by_policy.iter().min_by_key(|(_, series)| series.asked_at);
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.by_policy.remove(&name);
        }
    }
}

impl Series {
    fn push(&mut self, point: Point) {
        if self.points.len() == MAX_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
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

    /// Rates since `last`, unless that is too old. Counters that were reset count from zero, as
    /// after a restart of the switch.
    fn since(self, last: Self) -> Option<Rates> {
        let passed = self.at.saturating_duration_since(last.at);
        if passed.is_zero() || passed > MAX_PAUSE {
            return None;
        }
        let rate = |new: u64, old: u64, factor: u64| {
            let grown = new.checked_sub(old).unwrap_or(new);
            let scaled = u128::from(grown) * u128::from(factor) * 1_000_000;
            u64::try_from(scaled / passed.as_micros().max(1)).unwrap_or(u64::MAX)
        };
        Some(Rates {
            matched_pps: rate(self.matched, last.matched, 1),
            delivered_bps: rate(self.delivered_bytes, last.delivered_bytes, 8),
            dropped_pps: rate(self.dropped, last.dropped, 1),
        })
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
    /// A series without points.
    pub(super) const fn empty() -> Self {
        Self { interval_ms: 1000, points: Vec::new() }
    }
}

/// Five minutes.
const MAX_POINTS: usize = 300;
/// Maximum series: some tens of megabytes.
const MAX_POLICIES: usize = 1000;
/// Time after a request for which points are still added.
const WANTED: Duration = Duration::from_secs(300);
/// A longer interval between points means that nobody looked, and gives no rate.
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

    #[test]
    fn the_total_is_of_all_and_who_is_asked_for_has_points() {
        let (series, start) = (AllSeries::default(), Instant::now());
        let count = MAX_POLICIES as u64 + 500;
        let name = |number: u64| format!("p{number:05}");
        let reports = |packets| (0..count).map(|n| named(&name(n), packets)).collect::<Vec<_>>();
        series.take(&reports(0), start);
        let last = name(count - 1);
        assert_eq!(series.report(&last), Some(SeriesReport::empty()));
        for second in 1..4 {
            series.take(&reports(second), start + Duration::from_secs(second));
            assert_eq!(series.total().matched_pps, count);
        }
        assert_eq!(series.report(&last).unwrap().points.len(), 3);
        assert_eq!(series.lock().by_policy.len(), MAX_POLICIES, "there is an end to it");
        (0..count).for_each(|number| _ = series.report(&name(number)));
        assert_eq!(series.lock().by_policy.len(), MAX_POLICIES);
        series.take(&[], start + Duration::from_secs(5));
        assert!(series.lock().by_policy.is_empty() && series.lock().last.is_empty());
    }

    fn report(packets: u64) -> PolicyReport {
        named("p", packets)
    }

    fn named(name: &str, packets: u64) -> PolicyReport {
        PolicyReport {
            number: 1,
            policy: TapPolicy::new(name, "3".parse().unwrap()),
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
