//! Statistics of back-pressure: which port's queues were paused for which full port, how often and
//! for how long.
//!
//! A worker reports when it stops reading a queue since the port that its frames go to is full
//! (`lossless`), and when it reads on; the switch's handle reads the accounts for `show ports` and
//! the metrics. They exist since a pause drops nothing, so that no other counter shows it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tapswitch_openflow::PortNo;

/// The accounts of all pauses, shared by the workers and the switch's handle.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<Accounts>);

#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    /// What the times at which pauses began are counted from.
    origin: Instant,
    /// By the port that was full, and the one whose queue was not read meanwhile.
    pauses: BTreeMap<(PortNo, PortNo), Account>,
    /// Times that a port took nothing for too long.
    stalls: BTreeMap<PortNo, u64>,
    /// Frames that were marked, by the port where they came in.
    marked: BTreeMap<PortNo, u64>,
}

/// How a port has waited for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Pauses that are over.
    pub(crate) count: u64,
    /// How long they took; in a report, those that go on included.
    pub(crate) total: Duration,
    /// Queues that are paused now.
    pub(crate) now: u32,
    /// When these began, added up.
    begun: Duration,
}

impl Pauses {
    /// A queue of `sender` is not read any more from `since` on, until `full` is not full.
    pub(crate) fn begin(&self, full: PortNo, sender: PortNo, since: Instant) {
        let mut accounts = self.accounts();
        let begun = accounts.time_of(since);
        let account = accounts.pauses.entry((full, sender)).or_default();
        account.now += 1;
        account.begun += begun;
    }

    /// It is read again, since the pause that began at `since` is over.
    pub(crate) fn end(&self, full: PortNo, sender: PortNo, since: Instant) {
        let mut accounts = self.accounts();
        let begun = accounts.time_of(since);
        if let Some(account) = accounts.pauses.get_mut(&(full, sender)) {
            account.count += 1;
            account.total += since.elapsed();
            account.now = account.now.saturating_sub(1);
            account.begun = account.begun.saturating_sub(begun);
        }
    }

    /// A port took nothing for longer than others wait for it.
    pub(crate) fn stalled(&self, port: PortNo) {
        *self.accounts().stalls.entry(port).or_default() += 1;
    }

    /// So many more frames that came in by `port` were marked.
    pub(crate) fn marked(&self, port: PortNo, count: u64) {
        *self.accounts().marked.entry(port).or_default() += count;
    }

    /// Forgets a port that was taken away.
    pub(crate) fn forget(&self, port: PortNo) {
        let mut accounts = self.accounts();
        accounts.pauses.retain(|&(full, sender), _| full != port && sender != port);
        accounts.stalls.remove(&port);
        accounts.marked.remove(&port);
    }

    /// The accounts as they are, for a report.
    pub(crate) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Numbers that somebody was about to change are still numbers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Accounts {
    fn default() -> Self {
        let (pauses, stalls, marked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { origin: Instant::now(), pauses, stalls, marked }
    }
}

impl Account {
    /// The same with what the pauses that go on have taken up to `now`.
    fn until(self, now: Duration) -> Self {
        Self { total: self.total + (now * self.now).saturating_sub(self.begun), ..self }
    }
}

impl Accounts {
    fn time_of(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.origin)
    }

    /// Those who have waited for `full`.
    pub(crate) fn waiters(&self, full: PortNo) -> impl Iterator<Item = (PortNo, Account)> + '_ {
        let of = move |&(&(port, _), _): &(&(PortNo, PortNo), &Account)| port == full;
        let now = self.time_of(Instant::now());
        self.pauses.iter().filter(of).map(move |(&(_, sender), it)| (sender, it.until(now)))
    }

    /// Those that `sender` has waited for.
    pub(crate) fn culprits(&self, sender: PortNo) -> impl Iterator<Item = (PortNo, Account)> + '_ {
        let of = move |&(&(_, port), _): &(&(PortNo, PortNo), &Account)| port == sender;
        let now = self.time_of(Instant::now());
        self.pauses.iter().filter(of).map(move |(&(full, _), it)| (full, it.until(now)))
    }

    /// Times that `port` took nothing for too long.
    pub(crate) fn stalls(&self, port: PortNo) -> u64 {
        self.stalls.get(&port).copied().unwrap_or_default()
    }

    /// Frames that came in by `port` and were marked.
    pub(crate) fn marks(&self, port: PortNo) -> u64 {
        self.marked.get(&port).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_while_it_goes_on() {
        let (full, sender, pauses) = (PortNo(1), PortNo(2), Pauses::default());
        let origin = pauses.accounts().origin;
        let account = || pauses.accounts().waiters(full).next().unwrap().1;
        pauses.begin(full, sender, origin);
        pauses.begin(full, sender, origin);
        std::thread::sleep(Duration::from_millis(20));
        let so_far = account();
        assert!(so_far.now == 2 && so_far.total >= Duration::from_millis(40), "{so_far:?}");
        pauses.end(full, sender, origin);
        assert!(account().total >= so_far.total);
        pauses.end(full, sender, origin);
        let over = account();
        assert_eq!((over.count, over.now), (2, 0));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(account(), over, "nobody waits any more");
    }
}
