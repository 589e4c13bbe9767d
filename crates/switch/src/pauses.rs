//! Statistics of back-pressure: which port's queues were paused for which full port, how often and
//! for how long.
//!
//! A worker reports when it stops reading a queue because the port of its frames is full
//! (`lossless`), and when it resumes; the switch's handle reads the accounts for `show ports` and
//! the metrics. They are needed because a pause drops nothing, so no other counter shows it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tapswitch_openflow::PortNo;

/// The accounts of all pauses, shared by the workers and the switch's handle.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<Accounts>);

#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    /// The origin of the times at which pauses began.
    origin: Instant,
    /// By full port and port of the paused queue.
    pauses: BTreeMap<(PortNo, PortNo), Account>,
    /// Stalls per port.
    stalls: BTreeMap<PortNo, u64>,
    /// Marked frames by ingress port.
    marked: BTreeMap<PortNo, u64>,
}

/// The pauses of one port for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Finished pauses.
    pub(crate) count: u64,
    /// Their total time; in a report, including current pauses.
    pub(crate) total: Duration,
    /// Queues that are paused now.
    pub(crate) now: u32,
    /// The sum of their start times.
    begun: Duration,
}

impl Pauses {
    /// Notes that a queue of `sender` is paused from `since` on, because `full` is full.
    pub(crate) fn begin(&self, full: PortNo, sender: PortNo, since: Instant) {
        let mut accounts = self.accounts();
        let begun = accounts.time_of(since);
        let account = accounts.pauses.entry((full, sender)).or_default();
        account.now += 1;
        account.begun += begun;
    }

    /// Notes the end of the pause that began at `since`.
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

    /// Notes that a port has stalled.
    pub(crate) fn stalled(&self, port: PortNo) {
        *self.accounts().stalls.entry(port).or_default() += 1;
    }

    /// Counts marked frames with this ingress port.
    pub(crate) fn marked(&self, port: PortNo, count: u64) {
        *self.accounts().marked.entry(port).or_default() += count;
    }

    /// Removes a port.
    pub(crate) fn forget(&self, port: PortNo) {
        let mut accounts = self.accounts();
        accounts.pauses.retain(|&(full, sender), _| full != port && sender != port);
        accounts.stalls.remove(&port);
        accounts.marked.remove(&port);
    }

    /// The current accounts, for a report.
    pub(crate) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // After a panic the numbers are still usable.
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
    /// The account including the time of current pauses up to `now`.
    fn until(self, now: Duration) -> Self {
        Self { total: self.total + (now * self.now).saturating_sub(self.begun), ..self }
    }
}

impl Accounts {
    fn time_of(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.origin)
    }

    /// The ports that have waited for `full`.
    pub(crate) fn waiters(&self, full: PortNo) -> impl Iterator<Item = (PortNo, Account)> + '_ {
        let of = move |&(&(port, _), _): &(&(PortNo, PortNo), &Account)| port == full;
        let now = self.time_of(Instant::now());
        self.pauses.iter().filter(of).map(move |(&(_, sender), it)| (sender, it.until(now)))
    }

    /// The ports for which `sender` has waited.
    pub(crate) fn culprits(&self, sender: PortNo) -> impl Iterator<Item = (PortNo, Account)> + '_ {
        let of = move |&(&(_, port), _): &(&(PortNo, PortNo), &Account)| port == sender;
        let now = self.time_of(Instant::now());
        self.pauses.iter().filter(of).map(move |(&(full, _), it)| (full, it.until(now)))
    }

    /// Stalls of `port`.
    pub(crate) fn stalls(&self, port: PortNo) -> u64 {
        self.stalls.get(&port).copied().unwrap_or_default()
    }

    /// Marked frames that were received on `port`.
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
