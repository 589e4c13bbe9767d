//! Validity of a term without news from etcd.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapswitch_openflow::DatapathId;

/// Time of the last renewal of the leader's lease, shared by the thread that renews it and the hub.
/// A process that was stopped for a while detects here that its term is over, before it acts.
///
/// They are two threads, as the hub may be busy for longer than a lease lasts, but not forever.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    /// `None` while this controller does not lead.
    renewed_at: Arc<Mutex<Option<Instant>>>,
    /// Validity after a renewal.
    patience: Duration,
    /// Since when the hub has been busy with one task.
    busy_since: Arc<Mutex<Option<Instant>>>,
    /// Connected switches, whoever leads.
    switches: Arc<Mutex<BTreeSet<DatapathId>>>,
}

impl Term {
    /// No term yet.
    pub(crate) fn new(patience: Duration) -> Self {
        let (renewed_at, busy_since) = (Arc::default(), Arc::default());
        Self { renewed_at, patience, busy_since, switches: Arc::default() }
    }

    /// Begins a term with a lease requested at this time.
    pub(crate) fn begin(&self, asked_at: Instant) {
        self.set(Some(asked_at));
    }

    /// The lease was renewed by a request at this time. Returns whether the term is still valid:
    /// one that has ended is not revived.
    pub(crate) fn renew(&self, asked_at: Instant) -> bool {
        let mut renewed_at = self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed_at.is_some() {
            *renewed_at = Some(asked_at);
        }
        renewed_at.is_some()
    }

    /// Whether the term is valid at this time; if not, it has ended for all threads.
    pub(crate) fn goes_on(&self, now: Instant) -> bool {
        let mut renewed_at = self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        renewed_at.take_if(|at| now.saturating_duration_since(*at) >= self.patience);
        renewed_at.is_some()
    }

    /// Ends the term.
    pub(crate) fn end(&self) {
        self.set(None);
    }

    /// Records since when the hub is busy, or `None` while it waits.
    pub(crate) fn set_busy(&self, since: Option<Instant>) {
        *self.busy_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Notes whether a switch is connected.
    pub(crate) fn note_switch(&self, switch: DatapathId, is_connected: bool) {
        let mut switches = self.switches.lock().unwrap_or_else(PoisonError::into_inner);
        match is_connected {
            true => _ = switches.insert(switch),
            false => _ = switches.remove(&switch),
        }
    }

    /// The connected switches.
    pub(crate) fn switches(&self) -> BTreeSet<DatapathId> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of connected switches.
    pub(crate) fn switch_count(&self) -> usize {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether the hub has been busy with one task for so long that it is considered stuck.
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        let busy_since = *self.busy_since.lock().unwrap_or_else(PoisonError::into_inner);
        busy_since.is_some_and(|since| now.saturating_duration_since(since) >= STUCK)
    }

    fn set(&self, at: Option<Instant>) {
        // A single value cannot be inconsistent.
        *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// A longer task is considered endless: planning 10,000 policies takes some seconds.
pub(super) const STUCK: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_ended_is_not_renewed() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let term = Term::new(second * 5);
        assert!(!term.goes_on(start) && !term.renew(start));
        term.begin(start);
        assert!(term.goes_on(start + second * 4));
        assert!(term.renew(start + second * 4));
        assert!(term.goes_on(start + second * 8));
        assert!(!term.goes_on(start + second * 9), "nobody renewed it");
        assert!(!term.renew(start + second * 9), "who renews it is told");
        term.begin(start);
        term.end();
        assert!(!term.goes_on(start));
    }

    #[test]
    fn who_is_busy_for_too_long_is_stuck() {
        let start = Instant::now();
        let term = Term::new(Duration::from_secs(5));
        assert!(!term.is_stuck(start + STUCK));
        term.set_busy(Some(start));
        assert!(!term.is_stuck(start + STUCK / 2));
        assert!(term.is_stuck(start + STUCK));
        term.set_busy(None);
        assert!(!term.is_stuck(start + STUCK));
    }
}
