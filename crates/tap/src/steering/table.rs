//! Maps buckets to queues.

use std::cmp::Reverse;
use std::num::NonZeroU16;

use thiserror::Error;

/// Maps buckets to queues: an indirection table like those of NICs for RSS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    entries: Box<[u16; TABLE_LEN]>,
}

impl Table {
    /// Distributes the buckets evenly over queues 0 to `queues - 1`.
    pub(super) fn even(queues: NonZeroU16) -> Result<Self, TableError> {
        if queues.get() > MAX_QUEUES {
            return Err(TableError::TooManyQueues { queues: queues.get() });
        }
        Self::repeat(&(0..queues.get()).collect::<Vec<_>>())
    }

    /// The entries of `table`, repeated.
    pub(super) fn repeat(table: &[u16]) -> Result<Self, TableError> {
        if table.is_empty() || table.len() > TABLE_LEN {
            return Err(TableError::Length { len: table.len() });
        }
        if let Some(queue) = table.iter().find(|queue| **queue >= MAX_QUEUES) {
            return Err(TableError::NoSuchQueue { queue: *queue });
        }
        let mut entries = Box::new([0; TABLE_LEN]);
        for (entry, queue) in entries.iter_mut().zip(table.iter().cycle()) {
            *entry = *queue;
        }
        Ok(Self { entries })
    }

    /// The table without queue `index`, whose number now belongs to the last queue (`left`). Its
    /// buckets go to the queues with the fewest.
    pub(super) fn without_queue(&self, index: u16, left: u16) -> Self {
        let mut table = self.clone();
        if left == 0 {
            return table;
        }
        let orphans = self.buckets_of(|queue| queue == index || queue > left);
        for entry in table.entries.iter_mut().filter(|queue| **queue == left) {
            *entry = index.min(left - 1);
        }
        let mut shares = table.shares(left, &orphans);
        for bucket in orphans {
            if let Some((queue, share)) = shares.iter_mut().min_by_key(|(_, share)| *share) {
                table.entries[bucket] = *queue;
                *share += 1;
            }
        }
        table
    }

    /// The table with an additional queue, the last of `total`. It gets an even share, each bucket
    /// from the queue with the most.
    pub(super) fn with_queue(&self, total: NonZeroU16) -> Result<Self, TableError> {
        if total.get() > MAX_QUEUES {
            return Err(TableError::TooManyQueues { queues: total.get() });
        }
        let mut table = self.clone();
        let newcomer = total.get() - 1;
        let strays = self.buckets_of(|queue| queue >= newcomer);
        for bucket in &strays {
            table.entries[*bucket] = newcomer;
        }
        let mut shares = table.shares(newcomer, &[]);
        for _ in strays.len()..TABLE_LEN / usize::from(total.get()) {
            let richest = shares.iter_mut().max_by_key(|(queue, share)| (*share, Reverse(*queue)));
            let Some((queue, share)) = richest else { break };
            let Some(bucket) = table.entries.iter().position(|entry| entry == queue) else { break };
            table.entries[bucket] = newcomer;
            *share -= 1;
        }
        Ok(table)
    }

    pub(super) fn entries(&self) -> &[u16; TABLE_LEN] {
        &self.entries
    }

    fn buckets_of(&self, wanted: impl Fn(u16) -> bool) -> Vec<usize> {
        (0..TABLE_LEN).filter(|bucket| wanted(self.entries[*bucket])).collect()
    }

    /// Number of buckets of each of the first `queues` queues, not counting those in `except`.
    fn shares(&self, queues: u16, except: &[usize]) -> Vec<(u16, usize)> {
        let mut shares = (0..queues).map(|queue| (queue, 0)).collect::<Vec<_>>();
        let counted = (0..TABLE_LEN).filter(|bucket| except.binary_search(bucket).is_err());
        for bucket in counted {
            if let Some((_, share)) = shares.get_mut(usize::from(self.entries[bucket])) {
                *share += 1;
            }
        }
        shares
    }
}

/// Why a table is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// More queues than a device can have.
    #[error("{queues} queues; a tun device has at most {MAX_QUEUES}")]
    TooManyQueues {
        /// The requested number.
        queues: u16,
    },
    /// An entry names a queue that no device can have.
    #[error("no queue {queue}: queues of a tun device are counted from 0 to {}", MAX_QUEUES - 1)]
    NoSuchQueue {
        /// The entry.
        queue: u16,
    },
    /// The table is empty or too long.
    #[error("a table of {len} entries; give it 1 to {TABLE_LEN}")]
    Length {
        /// Number of entries.
        len: usize,
    },
}

/// Number of upper bits of the hash that form the bucket.
pub(super) const BUCKET_BITS: u32 = 9;
/// Number of buckets: two per queue with the maximum number of queues.
pub const TABLE_LEN: usize = 1 << BUCKET_BITS;
/// Maximum number of queues of a tun device (`MAX_TAP_QUEUES`).
pub const MAX_QUEUES: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn count(queues: u16) -> NonZeroU16 {
        NonZeroU16::new(queues).unwrap()
    }

    fn spread(table: &Table, queues: u16) -> (usize, usize) {
        let shares = table.shares(queues, &[]);
        assert_eq!(shares.iter().map(|(_, share)| share).sum::<usize>(), TABLE_LEN);
        let each = || shares.iter().map(|(_, share)| *share);
        (each().min().unwrap(), each().max().unwrap())
    }

    #[test]
    fn an_even_table_is_even() {
        for queues in [1, 2, 3, 7, 100, 256] {
            let (least, most) = spread(&Table::even(count(queues)).unwrap(), queues);
            assert!(most - least <= 1, "{queues}: {least} to {most}");
        }
        let error = Table::even(count(257)).unwrap_err();
        assert_eq!(error, TableError::TooManyQueues { queues: 257 });
    }

    #[test]
    fn a_short_table_is_repeated() {
        let table = Table::repeat(&[3, 1, 2]).unwrap();
        assert_eq!(table.entries[..7], [3, 1, 2, 3, 1, 2, 3]);
        assert_eq!(Table::repeat(&[]).unwrap_err(), TableError::Length { len: 0 });
        let long = [0; TABLE_LEN + 1];
        assert_eq!(Table::repeat(&long).unwrap_err(), TableError::Length { len: TABLE_LEN + 1 });
        let error = Table::repeat(&[0, 256]).unwrap_err();
        assert_eq!(error, TableError::NoSuchQueue { queue: 256 });
    }

    #[test]
    fn when_a_queue_goes_only_its_flows_move() {
        let before = Table::even(count(5)).unwrap();
        for index in 0..5 {
            let after = before.without_queue(index, 4);
            let (least, most) = spread(&after, 4);
            assert!(most - least <= 1, "{least} to {most}");
            for (old, new) in before.entries.iter().zip(after.entries.iter()) {
                // The kernel's renumbering: the last queue takes the position of the removed one.
                let renumbered = if *old == 4 { index } else { *old };
                assert!(*old == index || *new == renumbered, "{old} became {new}");
            }
        }
    }

    #[test]
    fn a_queue_that_comes_takes_its_share_and_no_more() {
        for total in [2, 3, 10, 256] {
            let before = Table::even(count(total - 1)).unwrap();
            let after = before.with_queue(count(total)).unwrap();
            let (least, most) = spread(&after, total);
            assert!(most - least <= 1, "{total}: {least} to {most}");
            let moved = before.entries.iter().zip(after.entries.iter()).filter(|(a, b)| a != b);
            assert_eq!(moved.count(), TABLE_LEN / usize::from(total));
        }
        assert!(Table::even(count(256)).unwrap().with_queue(count(257)).is_err());
    }

    #[test]
    fn any_coming_and_going_leads_to_live_queues_only() {
        let mut table = Table::even(count(4)).unwrap();
        let mut queues = 4;
        for step in 0..200_u16 {
            if step % 3 == 2 && queues < 9 || queues == 1 {
                queues += 1;
                table = table.with_queue(count(queues)).unwrap();
            } else {
                let index = step * 7 % queues;
                queues -= 1;
                table = table.without_queue(index, queues);
            }
            let (least, most) = spread(&table, queues);
            assert!(most - least <= 2, "step {step}: {least} to {most} of {queues}");
        }
        // The last queue is removed: there is no other one.
        assert_eq!(
            Table::even(count(1)).unwrap().without_queue(0, 0).entries,
            [0; TABLE_LEN].into()
        );
    }
}
