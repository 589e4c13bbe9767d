//! Detects a leader that is partitioned from the switches but not from etcd: it would renew its
//! lease forever and could do nothing.
//!
//! The leader publishes its number of connected switches beside its key. A follower that has had
//! more than twice as many for a while revokes the leader's lease and leads. The former leader sees
//! fewer than half of them, so it does not take over again.

use std::time::{Duration, Instant};

/// A follower's view of the leader's connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// The lease whose leader sees too few switches, and since when.
    better_since: Option<(i64, Instant)>,
}

impl View {
    /// Whether this controller, with `ours` switches, should replace the holder of this lease, who
    /// published `theirs`.
    pub(super) fn is_better(
        &mut self,
        lease: i64,
        (theirs, ours): (Option<usize>, usize),
        now: Instant,
    ) -> bool {
        let is_better = theirs.is_some_and(|theirs| sees_far_more(ours, theirs));
        let before = self.better_since.filter(|(of, _)| *of == lease);
        let since = before.map_or(now, |(_, since)| since);
        self.better_since = is_better.then_some((lease, since));
        is_better && now.saturating_duration_since(since) >= PATIENCE
    }
}

/// Whether who has `ours` switches should lead instead of who has `theirs`.
pub(crate) const fn sees_far_more(ours: usize, theirs: usize) -> bool {
    theirs.saturating_mul(2) < ours
}

/// Switches that lost all their controllers, or have just started, try each again every two
/// seconds.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_more_than_twice_as_much_for_a_while_leads() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut view = View::default();
        let mut is_better = |lease, seen, at: u32| view.is_better(lease, seen, start + second * at);
        assert!(!is_better(7, (Some(0), 1), 0) && is_better(7, (Some(0), 1), 5));
        assert!(!is_better(8, (Some(0), 1), 6), "another leader has just begun");
        assert!(!is_better(8, (Some(1), 1), 10), "its switches are back");
        assert!(!is_better(8, (Some(1), 3), 20) && !is_better(8, (Some(1), 3), 24));
        assert!(is_better(8, (Some(1), 3), 25));
        for seen in [(Some(0), 0), (Some(1), 2), (Some(3), 3), (None, 3)] {
            assert!(!is_better(9, seen, 30) && !is_better(9, seen, 60), "{seen:?}");
        }
    }
}
