//! The memory of a switch, and how much of it its budgets explain.

use std::time::{Duration, Instant};
use std::{fs, thread};

use super::PATIENCE;

/// The memory of a switch, at the start and now.
pub(crate) struct Memory {
    id: u32,
    /// Bytes at the first reading.
    before: u64,
    workers: u64,
}

impl Memory {
    pub(crate) fn of(id: u32, workers: u64) -> Self {
        Self { id, before: own(id), workers }
    }

    /// Memory that faults have filled is freed, except what workers keep for reuse.
    pub(crate) fn assert_same(&self) {
        self.assert_within(0);
    }

    /// In addition to that, at most `budgets` bytes are used.
    pub(crate) fn assert_within(&self, budgets: u64) {
        let most = self.before + budgets + self.workers * (POOL_LEN + TRIM_LEN);
        let deadline = Instant::now() + PATIENCE;
        let mut now = own(self.id);
        while now > most {
            let before = self.before;
            assert!(Instant::now() < deadline, "{now} bytes, at most {most}, {before} before");
            thread::sleep(Duration::from_millis(20));
            now = own(self.id);
        }
    }
}

/// Resident bytes of a process: no files', and nothing that guests share (proc(5)).
fn own(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Limit of waiting frames for one port, per worker (`switch/src/tx/queue.rs`).
pub(crate) const QUEUE_LEN: u64 = 8 << 20;
/// Limit of frames that are read ahead from one queue (`drain-ahead`).
pub(crate) const AHEAD_LEN: u64 = 4 << 20;
/// Limit of the chunks that a worker keeps (`switch/src/store.rs`).
const POOL_LEN: u64 = 8 * CHUNK_LEN;
/// What the allocator keeps of freed memory: twice the largest piece (mallopt(3),
/// `M_MMAP_THRESHOLD`).
const TRIM_LEN: u64 = 2 * CHUNK_LEN;
const CHUNK_LEN: u64 = 256 << 10;
