//! Merging the packets of several workers in order of time.
//!
//! The packets of one worker are in order, so the next packet is at the head of one of the lanes.
//! It is known to be the next only if no worker can still deliver an older one: a worker within a
//! burst can, back to the start of the burst.

use std::collections::VecDeque;

use tapswitch_datapath::{OwnedClaim, Traffic};
use tapswitch_pcapng as pcapng;

use super::buffer::Collected;
use super::chunk::{Chunk, Lot};

/// Blocks of packets, one lane per worker.
#[derive(Debug, Default)]
pub(super) struct Merge {
    lanes: Vec<Lane>,
    complete_until: u64,
    /// Chunks of which all blocks were taken.
    spent: Vec<Chunk>,
    /// Their lots, until they are settled.
    lots: Vec<Lot>,
}

#[derive(Debug, Default)]
struct Lane {
    chunks: VecDeque<Chunk>,
    /// Offset of the next block in the first chunk.
    at: usize,
    /// Its index there.
    index: usize,
}

/// The next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    lane: usize,
    pub(super) time: u64,
    /// Length of its block in bytes.
    pub(super) len: usize,
}

impl Merge {
    /// Appends collected chunks to the lanes.
    pub(super) fn add(&mut self, collected: Collected) {
        self.complete_until = collected.complete_until;
        for (worker, chunk) in collected.chunks {
            if self.lanes.len() <= worker {
                self.lanes.resize_with(worker + 1, Lane::default);
            }
            self.lanes[worker].chunks.push_back(chunk);
        }
    }

    /// The next packet, if it is known.
    pub(super) fn next(&self) -> Option<Next> {
        let heads = self.lanes.iter().enumerate().filter_map(|(lane, queue)| {
            let block = queue.chunks.front()?.bytes.get(queue.at..)?;
            Some(Next { lane, time: pcapng::packet_time(block)?, len: pcapng::next_block(block)? })
        });
        heads.min_by_key(|next| next.time).filter(|next| next.time < self.complete_until)
    }

    /// Moves the block of `next`, which [`Self::next`] returned, to the end of `out`.
    pub(super) fn take(&mut self, next: Next, out: &mut Vec<u8>) {
        let Some(lane) = self.lanes.get_mut(next.lane) else { return };
        let Some(chunk) = lane.chunks.front_mut() else { return };
        let end = (lane.at + next.len).min(chunk.bytes.len());
        out.extend_from_slice(&chunk.bytes[lane.at..end]);
        chunk.take(lane.index);
        (lane.at, lane.index) = (end, lane.index + 1);
        if end == chunk.bytes.len() {
            (lane.at, lane.index) = (0, 0);
            self.lots.append(chunk.lots_mut());
            self.spent.extend(lane.chunks.pop_front());
        }
    }

    /// Settles all traffic that was taken out.
    pub(super) fn settle(&mut self, mut by: impl FnMut(&OwnedClaim, Traffic)) {
        let fronts = self.lanes.iter_mut().filter_map(|lane| lane.chunks.front_mut());
        let lots = fronts.flat_map(Chunk::lots_mut).chain(&mut self.lots);
        lots.for_each(|lot| lot.settle(&mut by));
        self.lots.clear();
    }

    /// Takes out all packets. Returns their number.
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

    /// The chunks of which all blocks were taken.
    pub(super) fn spent(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.spent.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tapswitch_datapath::{Claim, Port, WorkerIndex};
    use tapswitch_openflow::PortNo;
    use tapswitch_wire::MacAddr;

    use super::*;

    fn port(number: u32) -> Arc<Port> {
        Port::new(PortNo(number), "p".to_owned(), MacAddr::ZERO, 1500, 1).into()
    }

    fn chunk(times: &[u64]) -> Chunk {
        let mut chunk = Chunk::new();
        times.iter().for_each(|time| put(&mut chunk, *time, &port(1)));
        chunk
    }

    /// Adds a packet with this time, which is a frame for `port`.
    fn put(chunk: &mut Chunk, time: u64, port: &Arc<Port>) {
        chunk.begin(&Claim::new(WorkerIndex(0), port));
        pcapng::packet(&mut chunk.bytes, time, 100, &[&[1; 20]]);
        chunk.note_block();
        chunk.add(Traffic { frames: 1, packets: 0, bytes: 20 });
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
    fn what_was_taken_is_settled_for_whom_it_counts_and_once() {
        let ports = [port(1), port(2)];
        let mut chunk = Chunk::new();
        (0..10).for_each(|time| put(&mut chunk, time, &ports[usize::from(time % 3 == 0)]));
        chunk.queue(WorkerIndex(0));
        let queued = || ports.each_ref().map(|port| port.counters.queued().frames());
        assert_eq!(queued(), [6, 4]);
        let mut merge = Merge::default();
        let chunks = vec![(0, chunk)];
        merge.add(Collected { chunks, complete_until: u64::MAX, is_over: false });
        for (taken, left) in [(4, [4, 2]), (0, [4, 2]), (6, [0, 0]), (0, [0, 0])] {
            for _ in 0..taken {
                let next = merge.next().unwrap();
                merge.take(next, &mut Vec::new());
            }
            let mut settled = 0;
            merge.settle(|claim, traffic| {
                settled += traffic.frames;
                claim.delivered(WorkerIndex::NONE, traffic, NOW);
            });
            assert_eq!((settled, queued()), (taken, left));
        }
        assert_eq!(ports.map(|port| port.counters.tx().bytes), [120, 80]);
    }

    const NOW: tapswitch_datapath::Millis = tapswitch_datapath::Millis(1);

    #[test]
    fn what_is_taken_away_is_counted() {
        let mut merge = Merge::default();
        merge.add(collected(&[(0, &[1, 4]), (1, &[2])], 2));
        assert_eq!((merge.clear(), merge.next()), (3, None));
        assert_eq!(merge.spent().count(), 2);
    }
}
