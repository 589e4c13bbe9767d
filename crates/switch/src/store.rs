//! FIFO storage of frames in chunks of memory.
//!
//! Frames are stored contiguously in chunks of [`CHUNK_LEN`] bytes, which return to a pool when
//! their last frame is removed. So storing a frame costs a copy and, once there are chunks, no
//! allocation. After a flood, memory is released: a pool keeps [`POOL_COUNT`] chunks.

use std::collections::VecDeque;

/// Free chunks, for all stores of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Box<[u8]>>);

impl Pool {
    fn take(&mut self) -> Chunk {
        let bytes = self.0.pop().unwrap_or_else(|| vec![0; CHUNK_LEN].into());
        Chunk { bytes, end: 0, live: 0 }
    }

    fn give(&mut self, chunk: Chunk) {
        if self.0.len() < POOL_COUNT {
            self.0.push(chunk.bytes);
        }
    }
}

/// Frames in order, each with associated data.
#[derive(Debug)]
pub(crate) struct Store<T> {
    chunks: VecDeque<Chunk>,
    items: VecDeque<Item<T>>,
    len: usize,
}

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    /// Offset of the next frame.
    end: usize,
    /// Frames in it that are not yet removed.
    live: usize,
}

#[derive(Debug)]
struct Item<T> {
    start: usize,
    len: usize,
    tag: T,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), items: VecDeque::new(), len: 0 }
    }
}

impl<T> Store<T> {
    /// True when nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes in use: those of the frames, and the overhead of each.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends a frame of `len` bytes, at most [`CHUNK_LEN`]; `fill` writes it.
    pub(crate) fn push(
        &mut self,
        pool: &mut Pool,
        len: usize,
        tag: T,
        fill: impl FnOnce(&mut [u8]),
    ) {
        debug_assert!(len <= CHUNK_LEN, "a frame of {len} bytes");
        if self.chunks.back().is_none_or(|chunk| CHUNK_LEN - chunk.end < len) {
            self.chunks.push_back(pool.take());
        }
        let Some(chunk) = self.chunks.back_mut() else { return };
        let start = chunk.end;
        fill(&mut chunk.bytes[start..start + len]);
        chunk.end = (start + len).next_multiple_of(CACHE_LINE).min(CHUNK_LEN);
        chunk.live += 1;
        self.len += len + ITEM_LEN;
        self.items.push_back(Item { start, len, tag });
    }

    /// The first frame and its data.
    pub(crate) fn front(&mut self) -> Option<(&mut [u8], &mut T)> {
        let (item, chunk) = (self.items.front_mut()?, self.chunks.front_mut()?);
        Some((&mut chunk.bytes[item.start..item.start + item.len], &mut item.tag))
    }

    /// Removes the first frame.
    pub(crate) fn pop(&mut self, pool: &mut Pool) -> Option<T> {
        let Item { len, tag, .. } = self.items.pop_front()?;
        self.len -= len + ITEM_LEN;
        if let Some(chunk) = self.chunks.front_mut() {
            chunk.live -= 1;
            if chunk.live == 0 {
                self.chunks.pop_front().into_iter().for_each(|chunk| pool.give(chunk));
            }
        }
        Some(tag)
    }
}

/// Bytes of a chunk: a few trains of maximum length.
pub(crate) const CHUNK_LEN: usize = 256 * 1024;
/// Free chunks that a pool keeps.
const POOL_COUNT: usize = 8;
/// Frames do not share cache lines.
const CACHE_LINE: usize = 64;
/// Approximate overhead of a frame, so that many small ones are accounted for.
pub(crate) const ITEM_LEN: usize = 128;
const _: () = assert!(tapswitch_datapath::HEADROOM + tapswitch_tap::RECV_BUF_LEN <= CHUNK_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_and_chunks_are_used_again() {
        let (mut pool, mut store) = (Pool::default(), Store::default());
        for round in 0..50_u8 {
            for number in 0..20_u8 {
                let len = usize::from(number) * 4000 + 1;
                store.push(&mut pool, len, (round, number), |bytes| bytes.fill(number));
            }
            for number in 0..20 {
                let (bytes, tag) = store.front().unwrap();
                assert_eq!((*tag, bytes.len()), ((round, number), usize::from(number) * 4000 + 1));
                assert!(bytes.iter().all(|&byte| byte == number));
                assert_eq!(store.pop(&mut pool), Some((round, number)));
            }
            assert!(
                store.is_empty()
                    && (store.len(), store.items.len()) == (0, 0)
                    && store.chunks.is_empty()
            );
            assert!(pool.0.len() <= 4, "{} chunks", pool.0.len());
        }
        assert!(store.front().is_none() && store.pop(&mut pool).is_none());
    }

    #[test]
    fn what_a_flood_has_filled_is_given_back() {
        let (mut pool, mut store) = (Pool::default(), Store::default());
        (0..100).for_each(|_| store.push(&mut pool, 100_000, (), |_| {}));
        assert_eq!(store.chunks.len(), 50);
        while store.pop(&mut pool).is_some() {}
        assert_eq!(pool.0.len(), POOL_COUNT);
    }
}
