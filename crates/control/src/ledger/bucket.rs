//! Outcome of the copies of one bucket.
//!
//! Any switch reports what a bucket processed. A tapswitch also reports what a port took, what is
//! queued and what was dropped for which reason. All are counters that may have started before us,
//! except for the queue, which is a current value.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use tapswitch_openflow::multipart::GroupStats;
use tapswitch_openflow::{BucketLedger, GroupId};

use super::reading::Reading;
use crate::report::Counts;

/// Reported values of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketValue {
    pub(crate) processed: Counts,
    /// `None` for a switch without ledgers.
    pub(crate) outcome: Option<OutcomeValue>,
}

/// Reported outcome of a bucket's copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutcomeValue {
    pub(crate) delivered: Counts,
    pub(crate) queued: u64,
    /// By reason.
    pub(crate) dropped: BTreeMap<String, u64>,
}

impl BucketValue {
    /// Buckets of a group from any switch.
    pub(crate) fn of_stats(stats: &GroupStats) -> Vec<Self> {
        let buckets = stats.bucket_stats.iter();
        let processed = buckets.map(|told| Counts::known(told.packet_count, told.byte_count));
        processed.map(|processed| Self { processed, outcome: None }).collect()
    }

    /// Buckets of groups of a tapswitch. Malformed entries are skipped: nothing is known of these
    /// buckets then.
    pub(crate) fn of_ledgers(ledgers: &[BucketLedger]) -> BTreeMap<GroupId, Vec<Self>> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ledger in ledgers {
            let buckets = groups.entry(ledger.group_id).or_default();
            if usize::try_from(ledger.bucket).is_ok_and(|index| index == buckets.len()) {
                buckets.push(Self::of_ledger(ledger));
            }
        }
        groups
    }

    fn of_ledger(ledger: &BucketLedger) -> Self {
        let counts = |told: &tapswitch_openflow::multipart::BucketCounter| Counts {
            packets: told.packet_count,
            bytes: told.byte_count,
        };
        let mut dropped = BTreeMap::new();
        for drops in &ledger.drops {
            add_bounded(&mut dropped, &reason_name(&drops.reason.to_string()), drops.count);
        }
        let (delivered, queued) = (counts(&ledger.delivered), ledger.queued);
        let outcome = Some(OutcomeValue { delivered, queued, dropped });
        Self { processed: counts(&ledger.processed), outcome }
    }
}

/// A bucket that is read repeatedly.
#[derive(Clone, Debug, Default)]
pub(super) struct BucketMeter {
    processed: Reading,
    delivered: Reading,
    /// Dropped copies, in the place of packets.
    dropped: BTreeMap<String, Reading>,
    queued: u64,
    /// Copies queued when we came, which are not ours: the first ones to leave the queue.
    foreign: u64,
    /// Copies whose outcome will never be reported.
    unknown: u64,
    /// Whether the switch reports outcomes.
    is_told: bool,
}

impl BucketMeter {
    /// A bucket whose current values are the starting point.
    pub(super) fn from_base(value: &BucketValue) -> Self {
        let outcome = value.outcome.clone().unwrap_or_default();
        let base = |count| Reading::from_base(Counts { packets: count, bytes: 0 });
        let dropped = outcome.dropped.into_iter().map(|(reason, count)| (reason, base(count)));
        Self {
            processed: Reading::from_base(value.processed),
            delivered: Reading::from_base(outcome.delivered),
            dropped: dropped.collect(),
            queued: outcome.queued,
            foreign: outcome.queued,
            unknown: 0,
            is_told: value.outcome.is_some(),
        }
    }

    /// Processes newly read values.
    pub(super) fn handle_value(&mut self, value: &BucketValue) {
        if self.processed.is_beyond(value.processed) {
            self.restart();
        }
        self.processed.handle_value(value.processed);
        let Some(outcome) = &value.outcome else { return };
        self.is_told = true;
        self.queued = outcome.queued;
        self.delivered.handle_value(outcome.delivered);
        for (reason, count) in &outcome.dropped {
            let value = Counts { packets: *count, bytes: 0 };
            if self.dropped.contains_key(reason) || self.dropped.len() <= MAX_REASONS {
                self.dropped.entry(reason.clone()).or_default().handle_value(value);
            }
        }
    }

    /// The outcome of queued copies will not be reported.
    pub(super) fn lose_track(&mut self) {
        self.unknown += self.copies().in_flight;
        self.foreign = self.foreign.min(self.all_copies().out());
        self.queued = 0;
    }

    /// All queued copies, ours or not.
    pub(super) const fn queued(&self) -> u64 {
        self.queued
    }

    /// Outcome of our copies.
    pub(super) fn copies(&self) -> Copies {
        let processed = self.processed.total();
        if !self.is_told {
            return Copies { copied: processed, delivered: processed, ..Copies::default() };
        }
        let mut copies = self.all_copies();
        copies.leave_out(self.foreign);
        if self.unknown > 0 {
            add_bounded(&mut copies.dropped, OUTCOME_UNKNOWN, self.unknown);
        }
        copies
    }

    /// The same including copies queued when we came, and excluding those with an unknown outcome.
    fn all_copies(&self) -> Copies {
        let mut dropped = BTreeMap::new();
        for (reason, reading) in &self.dropped {
            match reading.total().packets {
                0 => {}
                count => add_bounded(&mut dropped, reason, count),
            }
        }
        let (copied, delivered) = (self.processed.total(), self.delivered.total());
        Copies { copied, delivered, flooded: 0, in_flight: self.queued, dropped }
    }

    /// The switch has restarted its counters; the outcome of queued copies is unknown.
    fn restart(&mut self) {
        self.lose_track();
        self.processed.restart();
        self.delivered.restart();
        self.dropped.values_mut().for_each(Reading::restart);
    }
}

/// Outcome of the copies to one monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies {
    /// Copies made.
    pub(crate) copied: Counts,
    /// Copies accepted by the monitor's port; for a switch without ledgers, handed to it.
    pub(crate) delivered: Counts,
    /// Frames flooded, also to the monitor's port.
    pub(crate) flooded: u64,
    /// Copies queued for the monitor's port.
    pub(crate) in_flight: u64,
    /// Dropped copies by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
}

impl Copies {
    /// The same for a flooding bucket: its outcome at a single port is not reported, so everything
    /// counts as flooded only.
    pub(super) fn flooded(self) -> Self {
        let flooded = self.copied.packets;
        Self { copied: self.copied, flooded, ..Self::default() }
    }

    /// Adds drops for a reason.
    pub(crate) fn drop_more(&mut self, reason: &str, count: u64) {
        if count > 0 {
            add_bounded(&mut self.dropped, reason, count);
        }
    }

    /// Subtracts a part that is reported separately, whose reasons have this prefix here.
    pub(crate) fn take_out(&mut self, part: &Self, prefix: &str) {
        let less = |all: &mut u64, part: u64| *all = all.saturating_sub(part);
        for (all, part) in [(&mut self.copied, part.copied), (&mut self.delivered, part.delivered)]
        {
            less(&mut all.packets, part.packets);
            less(&mut all.bytes, part.bytes);
        }
        less(&mut self.in_flight, part.in_flight);
        for (reason, count) in &part.dropped {
            if let Some(all) = self.dropped.get_mut(&format!("{prefix}{reason}")) {
                less(all, *count);
            }
        }
        self.dropped.retain(|_, count| *count > 0);
    }

    /// Subtracts `foreign` copies that were queued before ours: the first to leave, delivered ones
    /// before dropped ones.
    fn leave_out(&mut self, foreign: u64) {
        let mut gone = foreign.min(self.out());
        self.in_flight = self.in_flight.saturating_sub(foreign - gone);
        let delivered = gone.min(self.delivered.packets);
        self.delivered.packets -= delivered;
        gone -= delivered;
        for count in self.dropped.values_mut() {
            let dropped = gone.min(*count);
            *count -= dropped;
            gone -= dropped;
        }
        self.dropped.retain(|_, count| *count > 0);
    }

    /// Copies that have left the queue.
    fn out(&self) -> u64 {
        self.delivered.packets.saturating_add(self.dropped.values().sum())
    }
}

impl AddAssign<&Self> for Copies {
    fn add_assign(&mut self, other: &Self) {
        self.copied += other.copied;
        self.delivered += other.delivered;
        self.flooded += other.flooded;
        self.in_flight += other.in_flight;
        for (reason, count) in &other.dropped {
            add_bounded(&mut self.dropped, reason, *count);
        }
    }
}

/// A reason as reported by a switch; invalid names are replaced, as they are printed on terminals.
fn reason_name(told: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = told.chars().map(|c| if is_plain(c) { c } else { '?' }).collect();
    if name.is_empty() { "?".to_owned() } else { name }
}

/// Adds to a reason, or to "other" if there are too many.
fn add_bounded(dropped: &mut BTreeMap<String, u64>, reason: &str, count: u64) {
    let is_known = dropped.contains_key(reason) || dropped.len() < MAX_REASONS;
    let reason = if is_known { reason } else { OTHER };
    let sum = dropped.entry(reason.to_owned()).or_default();
    *sum = sum.saturating_add(count);
}

/// Maximum distinct reasons of a bucket: more than exist.
const MAX_REASONS: usize = 64;
/// All further reasons.
const OTHER: &str = "other";
/// The switch or group disappeared while copies were queued, or outcomes are not reported.
pub(crate) const OUTCOME_UNKNOWN: &str = "outcome_unknown";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(packets: u64) -> Counts {
        Counts { packets, bytes: packets * 100 }
    }

    fn value(processed: u64, [delivered, dropped, queued]: [u64; 3]) -> BucketValue {
        let dropped = [("egress_full".to_owned(), dropped)].into();
        let delivered = counts(delivered);
        let outcome = Some(OutcomeValue { delivered, queued, dropped });
        BucketValue { processed: counts(processed), outcome }
    }

    fn adds_up(copies: &Copies) -> bool {
        copies.copied.packets == copies.out() + copies.flooded + copies.in_flight
    }

    #[test]
    fn a_switch_that_does_not_tell_delivers_what_it_copies() {
        let mut meter = BucketMeter::default();
        meter.handle_value(&BucketValue { processed: counts(7), outcome: None });
        let copies = meter.copies();
        assert_eq!((copies.copied, copies.delivered), (counts(7), counts(7)));
    }

    #[test]
    fn what_waited_before_we_came_is_not_ours() {
        let mut meter = BucketMeter::from_base(&value(10, [4, 1, 5]));
        assert_eq!(meter.copies(), Copies::default());
        meter.handle_value(&value(13, [6, 2, 5]));
        let copies = meter.copies();
        assert_eq!((copies.copied.packets, copies.out(), copies.in_flight), (3, 0, 3));
        meter.handle_value(&value(13, [11, 2, 0]));
        let copies = meter.copies();
        assert_eq!((copies.delivered.packets, copies.in_flight), (2, 0));
        assert_eq!(copies.dropped["egress_full"], 1);
    }

    #[test]
    fn what_waits_when_track_is_lost_has_an_unknown_end() {
        let mut meter = BucketMeter::default();
        meter.handle_value(&value(9, [4, 2, 3]));
        meter.lose_track();
        let copies = meter.copies();
        assert_eq!((copies.in_flight, copies.dropped["outcome_unknown"]), (0, 3));
        assert!(adds_up(&copies));
        meter.handle_value(&value(2, [1, 0, 1]));
        let copies = meter.copies();
        assert_eq!((copies.copied.packets, copies.delivered.packets), (11, 5));
        assert!(adds_up(&copies), "{copies:?}");
    }

    #[test]
    fn names_of_reasons_are_plain_and_not_too_many() {
        let drops = |name: &str| tapswitch_openflow::BucketDrops { reason: name.into(), count: 1 };
        let names: Vec<_> = (0..99).map(|number| format!("r{number}")).collect();
        let mut ledger = BucketLedger {
            group_id: GroupId(1),
            bucket: 0,
            processed: Default::default(),
            delivered: Default::default(),
            queued: 0,
            drops: names.iter().map(|name| drops(name)).collect(),
        };
        ledger.drops.push(drops("\u{1b}[2J"));
        let groups = BucketValue::of_ledgers(&[ledger.clone()]);
        let dropped = &groups[&GroupId(1)][0].outcome.as_ref().unwrap().dropped;
        assert_eq!((dropped.len(), dropped["other"]), (MAX_REASONS + 1, 36));
        assert_eq!(reason_name("\u{1b}[2J"), "??2J");
        let skipped = BucketLedger { bucket: 7, ..ledger };
        assert!(BucketValue::of_ledgers(&[skipped])[&GroupId(1)].is_empty());
    }

    proptest! {
        /// A consistent bucket, read at arbitrary times from an arbitrary start and possibly
        /// restarted: our share is consistent, and nothing is forgotten.
        #[test]
        fn what_counts_for_us_adds_up_whenever_it_is_read(
            before in (0..9u64, 0..9u64, 0..9u64),
            steps in prop::collection::vec((0..4u8, 1..5u64, any::<bool>()), 0..40),
        ) {
            let (mut delivered, mut dropped, mut queued) = before;
            let show = |delivered, dropped, queued| {
                value(delivered + dropped + queued, [delivered, dropped, queued])
            };
            let mut meter = BucketMeter::from_base(&show(delivered, dropped, queued));
            let mut came = 0;
            for (what, count, is_read) in steps {
                let out = count.min(queued);
                match what {
                    0 => (queued, came) = (queued + count, came + count),
                    1 => (queued, delivered) = (queued - out, delivered + out),
                    2 => (queued, dropped) = (queued - out, dropped + out),
                    _ => {
                        // It is read, restarts, and is read before its counters have caught up.
                        meter.handle_value(&show(delivered, dropped, queued));
                        if delivered + dropped + queued > 0 {
                            (delivered, dropped, queued) = (0, 0, 0);
                            meter.handle_value(&show(0, 0, 0));
                        }
                    }
                }
                if is_read {
                    meter.handle_value(&show(delivered, dropped, queued));
                    let copies = meter.copies();
                    prop_assert!(adds_up(&copies), "{:?}", copies);
                    prop_assert_eq!(copies.copied.packets, came);
                }
            }
        }
    }
}
