//! Who waits for whom, how often and for how long: told by the workers when it begins and ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tapswitch_openflow::PortNo;

/// The accounts of all pauses.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<Accounts>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
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
    /// How long they took.
    pub(crate) total: Duration,
    /// Queues that are paused now.
    pub(crate) now: u32,
}

impl Pauses {
    /// A queue of `sender` is not read any more until `full` is not full.
    pub(crate) fn begin(&self, full: PortNo, sender: PortNo) {
        self.accounts().pauses.entry((full, sender)).or_default().now += 1;
    }

    /// It is read again, since the pause that began at `since` is over.
    pub(crate) fn end(&self, full: PortNo, sender: PortNo, since: Instant) {
        if let Some(account) = self.accounts().pauses.get_mut(&(full, sender)) {
            account.count += 1;
            account.total += since.elapsed();
            account.now = account.now.saturating_sub(1);
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

impl Accounts {
    /// Those who have waited for `full`.
    pub(crate) fn waiters(&self, full: PortNo) -> impl Iterator<Item = (PortNo, Account)> + '_ {
        let of = move |&(&(port, _), _): &(&(PortNo, PortNo), &Account)| port == full;
        self.pauses.iter().filter(of).map(|(&(_, sender), &account)| (sender, account))
    }

    /// Those that `sender` has waited for.
    pub(crate) fn culprits(&self, sender: PortNo) -> impl Iterator<Item = (PortNo, Account)> + '_ {
        let of = move |&(&(_, port), _): &(&(PortNo, PortNo), &Account)| port == sender;
        self.pauses.iter().filter(of).map(|(&(full, _), &account)| (full, account))
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
