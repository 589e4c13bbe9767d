//! A ring whose operations are all complete when a call returns.
//!
//! `unsafe` is needed because the kernel gets addresses that the compiler cannot check. One
//! invariant makes it sound: **[`Ring::run`] returns only when the kernel has completed every
//! operation that it accepted.** So the borrows of [`Ring::read`] and [`Ring::write`], which last
//! as long as the call, cover the time in which the kernel uses the memory.

use std::io::{self, ErrorKind::Interrupted};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{fmt, thread};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

/// Maximum number of operations per call.
pub(super) const BATCH: usize = ENTRIES as usize;
const ENTRIES: u32 = 32;

/// See the module.
pub(super) struct Ring {
    ring: IoUring,
    is_broken: bool,
}

/// Results of the operations of one call, in order: a length in bytes, or an error, which is
/// `ECANCELED` for an operation that was not tried.
pub(super) struct Results {
    values: [i32; BATCH],
    count: usize,
}

impl Ring {
    /// Creates a ring for operations on the queue `fd`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file does not support `RWF_NOWAIT`; otherwise the error of
    /// io_uring_setup(2).
    pub(super) fn open(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let ring = IoUring::new(ENTRIES).map_err(|error| errno_of(&error))?;
        let mut ring = Self { ring, is_broken: false };
        // An empty read consumes no frame, and shows whether the flag is supported.
        let results = ring.read(fd, [&mut [][..]].into_iter());
        match results.iter().next() {
            Some(Err(errno @ (Errno::OPNOTSUPP | Errno::INVAL | Errno::CANCELED))) => Err(errno),
            _ => Ok(ring),
        }
    }

    /// Reads a frame into each of `rooms`.
    pub(super) fn read<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        rooms: impl Iterator<Item = &'a mut [u8]>,
    ) -> Results {
        let fd = types::Fd(fd.as_raw_fd());
        let mut count = 0;
        for (room, index) in rooms.zip(0..u64::from(ENTRIES)) {
            let read = opcode::Read::new(fd, room.as_mut_ptr(), len_of(room));
            let entry = read.rw_flags(libc::RWF_NOWAIT).build().user_data(index);
            // SAFETY: the room is borrowed until this function returns, which is after `run`.
            unsafe { self.push(&entry) };
            count += 1;
        }
        self.run(count)
    }

    /// Writes each of `packets`, at most [`BATCH`]. With `linked`, a failed write cancels the
    /// following.
    pub(super) fn write(&mut self, fd: BorrowedFd<'_>, packets: &[&[u8]], linked: bool) -> Results {
        let fd = types::Fd(fd.as_raw_fd());
        let count = packets.len().min(BATCH);
        for ((packet, index), behind) in packets.iter().zip(0_u64..).zip((0..count).rev()) {
            let write = opcode::Write::new(fd, packet.as_ptr(), len_of(packet));
            let link = if linked && behind > 0 { squeue::Flags::IO_LINK } else { NO_FLAGS };
            let entry = write.rw_flags(libc::RWF_NOWAIT).build().flags(link).user_data(index);
            // SAFETY: the packet is borrowed until this function returns, which is after `run`.
            unsafe { self.push(&entry) };
        }
        self.run(count)
    }

    /// True after the kernel refused a call permanently. The ring is then unused.
    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// # Safety
    /// The memory that `entry` refers to must stay valid until [`Self::run`] has returned.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller promises it.
        let outcome = unsafe { self.ring.submission().push(entry) };
        debug_assert!(outcome.is_ok(), "the queue is empty between calls and has BATCH places");
    }

    /// Submits the `count` pushed operations, and returns when all that the kernel accepted are
    /// complete: all of them, unless the ring is broken.
    ///
    /// With `RWF_NOWAIT` each completes during submission, or (the later ones of a chain) while
    /// waiting, so this is one call and does not sleep.
    fn run(&mut self, count: usize) -> Results {
        let mut results = Results { values: [-libc::ECANCELED; BATCH], count };
        let mut done = 0;
        while done < count {
            let outcome = self.enter(count - done);
            done += self.reap(&mut results);
            if done < count && outcome.is_err_and(|error| error.kind() != Interrupted) {
                self.is_broken = true;
            }
            if self.is_broken && done + self.ring.submission().len() == count {
                break;
            }
        }
        results
    }

    fn enter(&mut self, missing: usize) -> io::Result<usize> {
        if !self.is_broken {
            return self.ring.submit_and_wait(missing);
        }
        // Submits nothing new: only waits for the operations that the kernel accepted.
        thread::yield_now();
        // SAFETY: there are no arguments.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, ENTER_GETEVENTS, None) }
    }

    /// Takes the completed operations and returns their number.
    fn reap(&mut self, results: &mut Results) -> usize {
        let mut count = 0;
        for completion in self.ring.completion() {
            let index = usize::try_from(completion.user_data()).ok();
            if let Some(value) = index.and_then(|index| results.values.get_mut(index)) {
                *value = completion.result();
            }
            count += 1;
        }
        count
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("is_broken", &self.is_broken).finish_non_exhaustive()
    }
}

impl Results {
    #[cfg(test)]
    pub(super) fn of(results: &[i32]) -> Self {
        let mut values = [0; BATCH];
        values[..results.len()].copy_from_slice(results);
        Self { values, count: results.len() }
    }

    #[inline]
    pub(super) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = Result<usize, Errno>> + ExactSizeIterator {
        let values = self.values[..self.count].iter();
        values.map(|&value| match usize::try_from(value) {
            Ok(len) => Ok(len),
            Err(_) => Err(Errno::from_raw_os_error(value.wrapping_neg())),
        })
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn len_of(memory: &[u8]) -> u32 {
    u32::try_from(memory.len()).unwrap_or(u32::MAX)
}

const NO_FLAGS: squeue::Flags = squeue::Flags::empty();
/// `IORING_ENTER_GETEVENTS` (`include/uapi/linux/io_uring.h`).
const ENTER_GETEVENTS: u32 = 1;
