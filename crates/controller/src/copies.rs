//! Copies that came to the controller itself, for people to see: the last ones, and those that
//! come. Both are bounded; who reads too slowly misses some.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapswitch_control::ShownCopy;
use tokio::sync::broadcast;

use crate::clock::{now_text, now_us};

/// A copy, and when it came.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) copy: ShownCopy,
    /// RFC 3339.
    pub(crate) at: String,
    /// Nanoseconds since 1970.
    pub(crate) at_ns: u64,
}

impl Shown {
    /// Whether the policy wanted it here.
    pub(crate) fn is_of(&self, policy: &str) -> bool {
        self.copy.policies.iter().any(|name| name == policy)
    }
}

/// The last copies, of all policies.
#[derive(Debug)]
pub(crate) struct Copies {
    ring: Mutex<VecDeque<Arc<Shown>>>,
    sender: broadcast::Sender<Arc<Shown>>,
}

impl Default for Copies {
    fn default() -> Self {
        Self { ring: Mutex::default(), sender: broadcast::channel(MAX_COPIES).0 }
    }
}

impl Copies {
    /// A copy came.
    pub(crate) fn publish(&self, copy: ShownCopy) {
        let at_ns = now_us().saturating_mul(1000);
        let shown = Arc::new(Shown { copy, at: now_text(), at_ns });
        let mut ring = self.lock();
        while ring.len() >= MAX_COPIES {
            ring.pop_front();
        }
        ring.push_back(Arc::clone(&shown));
        // Perhaps nobody looks.
        let _ = self.sender.send(shown);
    }

    /// The last copies of a policy, and those that come, of all policies.
    pub(crate) fn watch(&self, policy: &str) -> (Vec<Arc<Shown>>, broadcast::Receiver<Arc<Shown>>) {
        let ring = self.lock();
        let last = ring.iter().filter(|shown| shown.is_of(policy)).cloned().collect();
        (last, self.sender.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Shown>>> {
        // What is in there is whole whenever the lock is free.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies that are kept; each has a few hundred bytes.
const MAX_COPIES: usize = 2048;

#[cfg(test)]
mod tests {
    use tapswitch_openflow::DatapathId;

    use super::*;

    fn copy(policy: &str, byte: u8) -> ShownCopy {
        let policies = vec![policy.to_owned()];
        ShownCopy { policies, switch: DatapathId(1), port: 2, len: 60, start: vec![byte] }
    }

    #[test]
    fn who_comes_later_sees_the_last_ones_of_the_policy() {
        let copies = Copies::default();
        (0..=255).for_each(|byte| copies.publish(copy("web", byte)));
        copies.publish(copy("dns", 0));
        let (last, mut coming) = copies.watch("web");
        assert_eq!(last.len(), 256);
        copies.publish(copy("dns", 7));
        let shown = coming.try_recv().unwrap();
        assert!(shown.is_of("dns") && !shown.is_of("web") && coming.try_recv().is_err());
    }

    #[test]
    fn there_are_so_many_only() {
        let copies = Copies::default();
        (0..MAX_COPIES + 10).for_each(|_| copies.publish(copy("web", 0)));
        assert_eq!(copies.watch("web").0.len(), MAX_COPIES);
    }
}
