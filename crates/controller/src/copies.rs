//! Copies received by the controller itself, for display: recent ones, and a broadcast of new ones.
//! Both are bounded; a slow reader misses some.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapswitch_control::ShownCopy;
use tokio::sync::broadcast;

use crate::clock::{now_text, now_us};

/// A copy with its time of arrival.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) copy: ShownCopy,
    /// RFC 3339.
    pub(crate) at: String,
    /// Nanoseconds since 1970.
    pub(crate) at_ns: u64,
    pub(crate) id: CopyId,
}

/// Id of a copy for reconnecting readers. Numbers restart with each run of the controller, whose
/// clock may have been set back, so they include an id of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyId {
    run: u64,
    number: u64,
}

impl CopyId {
    /// Whether it comes after `seen`.
    pub(crate) fn is_after(self, seen: Self) -> bool {
        self.run != seen.run || self.number > seen.number
    }
}

impl fmt::Display for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.run, self.number)
    }
}

impl FromStr for CopyId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (run, number) = text.split_once('-').ok_or(())?;
        let run = u64::from_str_radix(run, 16).map_err(|_| ())?;
        Ok(Self { run, number: number.parse().map_err(|_| ())? })
    }
}

impl Shown {
    /// Whether it was made for the policy with this number.
    pub(crate) fn is_of(&self, policy: u64) -> bool {
        self.copy.policies.contains(&policy)
    }
}

/// News for readers.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Copy(Arc<Shown>),
    /// The policy with this number was deleted or replaced.
    Gone(u64),
}

/// Recent copies of all policies.
#[derive(Debug)]
pub(crate) struct Copies {
    ring: Mutex<Ring>,
    sender: broadcast::Sender<News>,
}

#[derive(Debug)]
struct Ring {
    copies: VecDeque<Arc<Shown>>,
    last: CopyId,
}

impl Default for Copies {
    fn default() -> Self {
        let ring = Ring { copies: VecDeque::new(), last: CopyId { run: now_us(), number: 0 } };
        Self { ring: Mutex::new(ring), sender: broadcast::channel(MAX_COPIES).0 }
    }
}

impl Copies {
    /// Publishes a copy.
    pub(crate) fn publish(&self, copy: ShownCopy) {
        let at_ns = now_us().saturating_mul(1000);
        let mut ring = self.lock();
        ring.last.number += 1;
        let shown = Arc::new(Shown { copy, at: now_text(), at_ns, id: ring.last });
        while ring.copies.len() >= MAX_COPIES {
            ring.copies.pop_front();
        }
        ring.copies.push_back(Arc::clone(&shown));
        // There may be no reader.
        let _ = self.sender.send(News::Copy(shown));
    }

    /// The policy with this number was deleted or replaced: its readers have seen everything.
    pub(crate) fn end(&self, policy: u64) {
        let _ = self.sender.send(News::Gone(policy));
    }

    /// Recent copies, and the broadcast, of all policies.
    pub(crate) fn watch(&self) -> (Vec<Arc<Shown>>, broadcast::Receiver<News>) {
        let ring = self.lock();
        (ring.copies.iter().cloned().collect(), self.sender.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // The content is consistent whenever the lock is free.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum copies kept; each has a few hundred bytes.
const MAX_COPIES: usize = 2048;

#[cfg(test)]
mod tests {
    use tapswitch_openflow::DatapathId;

    use super::*;

    fn copy(policy: u64, byte: u8) -> ShownCopy {
        let policies = vec![policy];
        ShownCopy { policies, switch: DatapathId(1), port: 2, len: 60, start: vec![byte] }
    }

    #[test]
    fn who_comes_later_sees_the_last_ones_of_the_policy() {
        let copies = Copies::default();
        (0..=255).for_each(|byte| copies.publish(copy(1, byte)));
        copies.publish(copy(2, 0));
        let (last, mut coming) = copies.watch();
        assert_eq!(last.iter().filter(|shown| shown.is_of(1)).count(), 256);
        copies.publish(copy(2, 7));
        copies.end(1);
        let Ok(News::Copy(shown)) = coming.try_recv() else { panic!() };
        assert!(shown.is_of(2) && !shown.is_of(1));
        assert!(matches!(coming.try_recv(), Ok(News::Gone(1))) && coming.try_recv().is_err());
    }

    #[test]
    fn who_comes_back_names_the_last_one_of_its_run() {
        let copies = Copies::default();
        (0..3).for_each(|_| copies.publish(copy(1, 0)));
        let (last, _) = copies.watch();
        let seen: CopyId = last[1].id.to_string().parse().unwrap();
        let news: Vec<_> = last.iter().map(|shown| shown.id.is_after(seen)).collect();
        assert_eq!(news, [false, false, true]);
        let other = CopyId { run: seen.run + 1, number: 9 };
        assert!(last[0].id.is_after(other), "another run has numbers of its own");
        for text in ["", "7", "x-1", "1-x", "1-1-1"] {
            assert!(text.parse::<CopyId>().is_err(), "{text}");
        }
    }

    #[test]
    fn there_are_so_many_only() {
        let copies = Copies::default();
        (0..MAX_COPIES + 10).for_each(|_| copies.publish(copy(1, 0)));
        assert_eq!(copies.watch().0.len(), MAX_COPIES);
    }
}
