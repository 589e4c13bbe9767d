//! Switches that connected, which a restarted controller or a new leader expects.
//!
//! Those of the last run or term are expected however long ago they connected, as they may have
//! stayed connected for many months; those of earlier ones for [`AGE_MS`].

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tapswitch_openflow::DatapathId;

/// A switch in a shared store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Met {
    /// The last term in which it connected to the leader.
    pub(crate) generation: u64,
    /// When it first did in that term: Unix time.
    pub(crate) at_ms: u64,
}

/// Sorts out who is expected, with the time of each: at most [`MAX_EXPECTED`], the most recent
/// ones.
pub(super) fn expected(mut met: Vec<(u64, DatapathId)>, now: u64) -> Vec<(u64, DatapathId)> {
    met.sort_unstable_by_key(|met| Reverse(*met));
    met.truncate(MAX_EXPECTED);
    met.retain(|(time, _)| *time >= now.saturating_sub(AGE_MS));
    met
}

/// The same for those of a shared store. Its last term is the last one in which any connected.
pub(crate) fn expected_of_terms(met: &[(DatapathId, Met)], now: u64) -> BTreeSet<DatapathId> {
    let last = met.iter().map(|(_, met)| met.generation).max();
    let time = |met: &Met| if Some(met.generation) == last { now } else { met.at_ms };
    let met = met.iter().map(|(switch, met)| (time(met), *switch)).collect();
    expected(met, now).into_iter().map(|(_, switch)| switch).collect()
}

/// The datapath id in keys.
pub(crate) fn key_of(switch: DatapathId) -> String {
    format!("{:016x}", switch.0)
}

/// The switch of such a key.
pub(crate) fn switch_of(key: &str) -> Option<DatapathId> {
    u64::from_str_radix(key, 16).map(DatapathId).ok()
}

/// A switch that did not connect for a month is no longer expected.
const AGE_MS: u64 = 30 * 24 * 3600 * 1000;
/// Maximum number of switches kept from one run to the next: as many as are stored in one.
const MAX_EXPECTED: usize = MAX_MET;
/// Maximum number of switches stored in one run or term: ten times the default limit of
/// connections.
pub(crate) const MAX_MET: usize = 40_960;

#[cfg(test)]
mod tests {
    use super::*;

    /// Switches 1, 2, ... that connected in the term of this generation, on this day.
    fn expected_on(day: u64, met: &[(u64, u64)]) -> Vec<u64> {
        let met = (1..).zip(met).map(|(id, &(generation, day))| {
            (DatapathId(id), Met { generation, at_ms: day * DAY_MS })
        });
        let expected = expected_of_terms(&met.collect::<Vec<_>>(), day * DAY_MS);
        expected.into_iter().map(|switch| switch.0).collect()
    }

    const DAY_MS: u64 = 24 * 3600 * 1000;

    #[test]
    fn switches_of_the_last_term_are_expected_however_long_it_took() {
        assert!(expected_on(100, &[]).is_empty());
        assert_eq!(expected_on(500, &[(7, 100), (7, 101)]), [1, 2]);
        assert_eq!(expected_on(140, &[(7, 100), (9, 120), (7, 119)]), [2, 3], "or for a month");
        assert_eq!(expected_on(90, &[(7, 100)]), [1], "the clock was put back");
    }

    #[test]
    fn the_most_recent_ones_are_expected() {
        let met: Vec<_> = (0..=MAX_EXPECTED as u64).map(|at| (at, DatapathId(at))).collect();
        let expected = expected(met, AGE_MS);
        assert_eq!(expected.len(), MAX_EXPECTED);
        assert!(!expected.contains(&(0, DatapathId(0))));
    }
}
