//! The number of rules of each priority, and the highest priority.
//!
//! Indexed by the upper and the lower half of the priority: a new version shares the counts of all
//! other upper halves with the previous one. Each rule may have a priority of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers of rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Priorities(BTreeMap<u8, Arc<BTreeMap<u8, usize>>>);

impl Priorities {
    /// Adds a rule.
    pub(super) fn add(&mut self, priority: u16) {
        let [upper, lower] = priority.to_be_bytes();
        let counts = Arc::make_mut(self.0.entry(upper).or_default());
        *counts.entry(lower).or_default() += 1;
    }

    /// Removes a rule that was added.
    pub(super) fn remove(&mut self, priority: u16) {
        let [upper, lower] = priority.to_be_bytes();
        let Some(counts) = self.0.get_mut(&upper).map(Arc::make_mut) else { return };
        if let Some(count) = counts.get_mut(&lower) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&lower);
            }
        }
        if counts.is_empty() {
            self.0.remove(&upper);
        }
    }

    /// The highest priority; 0 if there are no rules.
    pub(super) fn highest(&self) -> u16 {
        let upper = self.0.last_key_value();
        let lower = upper.and_then(|(upper, counts)| Some((upper, counts.last_key_value()?.0)));
        lower.map_or(0, |(upper, lower)| u16::from_be_bytes([*upper, *lower]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_highest_is_that_of_all_that_are_there(
            changes in vec((any::<bool>(), 0u16..4, 0u16..4), 1..100),
        ) {
            let (mut priorities, mut all) = (Priorities::default(), Vec::new());
            for (is_added, upper, lower) in changes {
                let priority = upper << 8 | lower;
                match all.iter().position(|there| *there == priority) {
                    Some(at) if !is_added => {
                        all.swap_remove(at);
                        priorities.remove(priority);
                    }
                    _ => {
                        all.push(priority);
                        priorities.add(priority);
                    }
                }
                prop_assert_eq!(priorities.highest(), all.iter().copied().max().unwrap_or(0));
            }
        }
    }

    #[test]
    fn a_change_leaves_the_others_shared() {
        let mut priorities = Priorities::default();
        (0..=u16::MAX).for_each(|priority| priorities.add(priority));
        let before = priorities.clone();
        priorities.remove(0x1234);
        let shared = |upper: &u8| Arc::ptr_eq(&priorities.0[upper], &before.0[upper]);
        assert_eq!((0..=u8::MAX).filter(shared).count(), 255);
        assert_eq!((priorities.highest(), before.highest()), (u16::MAX, u16::MAX));
    }
}
