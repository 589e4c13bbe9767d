//! How long a term may go on without news from etcd.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When the lease of the leader was renewed last, shared by who renews it and who acts by it. A
/// process that was stopped for a while finds out here before it acts.
///
/// They are two threads: who acts may be busy for longer than a lease lasts, but not for good.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    /// `None` while this controller does not lead.
    renewed_at: Arc<Mutex<Option<Instant>>>,
    /// How long after that it goes on.
    patience: Duration,
    /// Since when who acts is busy with one thing.
    busy_since: Arc<Mutex<Option<Instant>>>,
    /// Switches that are connected, whoever leads.
    switch_count: Arc<AtomicUsize>,
}

impl Term {
    /// No term yet.
    pub(crate) fn new(patience: Duration) -> Self {
        let (renewed_at, busy_since) = (Arc::default(), Arc::default());
        Self { renewed_at, patience, busy_since, switch_count: Arc::default() }
    }

    /// Begins a term, with a lease that was asked for at this time.
    pub(crate) fn begin(&self, asked_at: Instant) {
        self.set(Some(asked_at));
    }

    /// The lease was renewed, which was asked for at this time. Returns whether the term goes on:
    /// one that has ended does not.
    pub(crate) fn renew(&self, asked_at: Instant) -> bool {
        let mut renewed_at = self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed_at.is_some() {
            *renewed_at = Some(asked_at);
        }
        renewed_at.is_some()
    }

    /// Whether it goes on at this time; if not, it has ended for all.
    pub(crate) fn goes_on(&self, now: Instant) -> bool {
        let mut renewed_at = self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        renewed_at.take_if(|at| now.saturating_duration_since(*at) >= self.patience);
        renewed_at.is_some()
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.set(None);
    }

    /// Who acts is busy since then, or waits for something to do.
    pub(crate) fn set_busy(&self, since: Option<Instant>) {
        *self.busy_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// So many switches are connected.
    pub(crate) fn set_switch_count(&self, count: usize) {
        self.switch_count.store(count, Ordering::Relaxed);
    }

    /// How many switches are connected.
    pub(crate) fn switch_count(&self) -> usize {
        self.switch_count.load(Ordering::Relaxed)
    }

    /// Whether who acts has been busy with one thing for so long that it will hardly end.
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        let busy_since = *self.busy_since.lock().unwrap_or_else(PoisonError::into_inner);
        busy_since.is_some_and(|since| now.saturating_duration_since(since) >= STUCK)
    }

    fn set(&self, at: Option<Instant>) {
        // There is one value in it, so it is whole.
        *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// What takes longer does not end: the plan of 10,000 policies takes some seconds.
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
