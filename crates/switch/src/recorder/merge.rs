//! Putting the packets of several workers in order.
//!
//! What one worker gives is in order already, so the next packet is at the head of one of the
//! lanes. It is only known to be the next when no worker may yet give an older one: a worker that
//! is within a burst may, back to when that began.

use std::collections::VecDeque;

use tapswitch_pcapng as pcapng;

use super::buffer::Collected;

/// Blocks of packets, in lanes by worker.
#[derive(Debug, Default)]
pub(super) struct Merge {
    lanes: Vec<Lane>,
    complete_until: u64,
    /// Chunks of which all was taken.
    spent: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Lane {
    chunks: VecDeque<Vec<u8>>,
    /// Where the next block begins in the first chunk.
    at: usize,
}

/// The next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    lane: usize,
    pub(super) time: u64,
    /// Bytes of its block.
    pub(super) len: usize,
}

impl Merge {
    /// Puts what was collected behind what is there.
    pub(super) fn add(&mut self, collected: Collected) {
        self.complete_until = collected.complete_until;
        for (worker, chunk) in collected.chunks {
            if self.lanes.len() <= worker {
                self.lanes.resize_with(worker + 1, Lane::default);
            }
            self.lanes[worker].chunks.push_back(chunk);
        }
    }

    /// The next packet, when it is known.
    pub(super) fn next(&self) -> Option<Next> {
        let heads = self.lanes.iter().enumerate().filter_map(|(lane, queue)| {
            let block = queue.chunks.front()?.get(queue.at..)?;
            Some(Next { lane, time: pcapng::packet_time(block)?, len: pcapng::next_block(block)? })
        });
        heads.min_by_key(|next| next.time).filter(|next| next.time < self.complete_until)
    }

    /// Moves the block of `next`, the outcome of [`Self::next`], behind `out`.
    pub(super) fn take(&mut self, next: Next, out: &mut Vec<u8>) {
        let Some(lane) = self.lanes.get_mut(next.lane) else { return };
        let Some(chunk) = lane.chunks.front() else { return };
        let end = (lane.at + next.len).min(chunk.len());
        out.extend_from_slice(&chunk[lane.at..end]);
        lane.at = end;
        if end == chunk.len() {
            lane.at = 0;
            self.spent.extend(lane.chunks.pop_front());
        }
    }

    /// Takes everything away. Returns how many packets that were.
    pub(super) fn clear(&mut self) -> u64 {
        let (mut count, mut room) = (0, Vec::new());
        self.complete_until = u64::MAX;
        while let Some(next) = self.next() {
            room.clear();
            self.take(next, &mut room);
            count += 1;
        }
        count
    }

    /// The chunks of which all was taken.
    pub(super) fn spent(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.spent.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(times: &[u64]) -> Vec<u8> {
        let mut chunk = Vec::new();
        times.iter().for_each(|time| pcapng::packet(&mut chunk, *time, 100, &[&[1; 20]]));
        chunk
    }

    fn collected(chunks: &[(usize, &[u64])], complete_until: u64) -> Collected {
        let chunks = chunks.iter().map(|(worker, times)| (*worker, chunk(times))).collect();
        Collected { chunks, complete_until, is_over: false }
    }

    fn times(merge: &mut Merge) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(next) = merge.next() {
            let mut out = Vec::new();
            merge.take(next, &mut out);
            assert_eq!(pcapng::packet_time(&out), Some(next.time));
            assert_eq!(pcapng::next_block(&out), Some(out.len()));
            times.push(next.time);
        }
        times
    }

    #[test]
    fn packets_come_in_the_order_of_their_times() {
        let mut merge = Merge::default();
        merge.add(collected(&[(0, &[1, 4, 9]), (0, &[10]), (2, &[2, 3, 11])], u64::MAX));
        assert_eq!(times(&mut merge), [1, 2, 3, 4, 9, 10, 11]);
        assert_eq!(merge.spent().count(), 3);
    }

    #[test]
    fn what_may_not_be_the_next_one_waits() {
        let mut merge = Merge::default();
        merge.add(collected(&[(0, &[1, 4, 9])], 5));
        assert_eq!(times(&mut merge), [1, 4]);
        merge.add(collected(&[(1, &[5, 6])], 6));
        assert_eq!(times(&mut merge), [5]);
        merge.add(collected(&[], u64::MAX));
        assert_eq!(times(&mut merge), [6, 9]);
    }

    #[test]
    fn what_is_taken_away_is_counted() {
        let mut merge = Merge::default();
        merge.add(collected(&[(0, &[1, 4]), (1, &[2])], 2));
        assert_eq!((merge.clear(), merge.next()), (3, None));
        assert_eq!(merge.spent().count(), 2);
    }
}
