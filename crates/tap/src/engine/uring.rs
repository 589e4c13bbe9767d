//! The io_uring engine: one system call for the reads or writes of a burst.
//!
//! **Operations.** `READ` and `WRITE` with `RWF_NOWAIT`: the kernel performs each during
//! submission, in order, or returns `EAGAIN`; it never defers one. When io_uring_enter(2) returns,
//! all are complete. Nothing is in flight between calls, the caller keeps its memory, dropping the
//! engine has nothing to cancel, and the queue's descriptor shows readability as with
//! [`Drain`](super::Drain).
//!
//! **Alternatives**, measured and rejected: `READ` without `RWF_NOWAIT` waits in the kernel even on
//! a non-blocking file, and each frame wakes all waiters (a storm of `EAGAIN`). Registered buffers
//! gain little, because the frame is copied anyway, and tie the engine to one burst.
//! `READ_MULTISHOT` costs more per frame, and ends whenever its buffers run out. Links between the
//! writes cost over 100 ns each; they are used only if a write can return `EAGAIN` while the next
//! does not, which requires a limited send buffer (`TUNSETSNDBUF`).
//!
//! **Performance.** The engine saves the system call of all frames of a burst but one. Its own
//! bookkeeping costs more if system calls are cheap: an echo of queued frames of 60 bytes took 1.83
//! µs each with it and 1.53 µs with `Drain` (Linux 6.18, AMD EPYC, a virtual machine), of 1514
//! bytes 1.99 and 1.68 µs. Measure before choosing it.
//!
//! **The number of reads** per call adapts: it doubles after a call in which every read returned a
//! frame; otherwise it becomes the number of frames received plus one. It is limited by their mean
//! length, because a burst ends after [`BURST_LEN`] bytes.
//!
//! **A single read or write**, as with trains and on a queue that is mostly empty, is a read(2) or
//! write(2), which costs less than the same by the ring. For a while after trains every frame is:
//! the acknowledgements between them are too few for the ring to pay.
//!
//! **If the kernel refuses a call** permanently (out of memory, for example), the engine continues
//! with read(2) and write(2), and loses no frame.
//!
//! **Limits.** [`BATCH`] operations per call. A frame in parts, or with another prefix than the
//! queue's, is sent by a writev(2) of its own. Needs Linux 6.4, whose tun files support
//! `RWF_NOWAIT`.

mod ring;

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::drain::{fill, fill_one, send_frame};
use super::{EngineError, OpenError, SendLog, Sent, wait_readable};
use crate::ioctl;
use crate::{Burst, BurstSize, Outgoing, Prefix, Queue, RecvError, SendError};
use ring::{BATCH, Results, Ring};

/// Moves the frames of a burst by one io_uring_enter(2). See [`Engine`](crate::Engine) for the
/// contract, with one addition: if the send buffer was limited after the engine was opened, a
/// [`SendError::Full`] may be among the refused frames, once.
#[derive(Debug)]
pub struct Uring {
    queue: Queue,
    layout: Prefix,
    /// Unused after the kernel refused a call permanently.
    ring: Box<Ring>,
    /// Number of reads in the next call.
    reads: usize,
    /// Number of bursts whose frames are read and written by a system call each, after one with
    /// trains: their acknowledgements are too few for the ring to pay.
    singly: u32,
    /// True if a write may return `EAGAIN` while the next does not.
    linked: bool,
    /// Errors that occurred after the frames that the last call returned, last first.
    pending: Vec<RecvError>,
    log: SendLog,
}

impl Uring {
    /// Room for the maximum number of frames of one call: 2 MiB.
    pub const BURST_SIZE: BurstSize = BurstSize::spread(32);

    /// Opens an engine on `queue`.
    ///
    /// # Errors
    /// [`OpenError`] returns the queue and the reason.
    pub fn open(queue: Queue) -> Result<Self, OpenError> {
        match Ring::open(queue.as_fd()) {
            Ok(ring) => Ok(Self::new(queue, ring)),
            Err(errno) => Err(OpenError { queue, source: why_not(errno) }),
        }
    }

    fn new(queue: Queue, ring: Ring) -> Self {
        Self {
            layout: queue.prefix(),
            linked: is_send_buffer_limited(&queue),
            queue,
            ring: Box::new(ring),
            reads: 1,
            singly: 0,
            pending: Vec::with_capacity(BATCH),
            log: SendLog::default(),
        }
    }

    /// As [`Engine::recv`](crate::Engine::recv).
    ///
    /// # Errors
    /// As [`Engine::recv`](crate::Engine::recv).
    #[expect(clippy::inline_always, reason = "no return between system calls: see `drain`")]
    #[inline(always)]
    pub fn recv(&mut self, burst: &mut Burst) -> Result<usize, RecvError> {
        burst.begin(self.queue.kind(), self.layout);
        let mut bytes = 0;
        while self.pending.is_empty() && bytes < BURST_LEN {
            let is_alone = (self.singly > 0 || self.reads == 1) && !self.ring.is_broken();
            let more = if is_alone { self.recv_alone(burst) } else { self.recv_batch(burst) };
            let Some(more) = more else { break };
            bytes += more;
        }
        self.singly = singly_after(self.singly, burst.len(), bytes);
        self.received(burst)
    }

    /// As [`Engine::send`](crate::Engine::send).
    #[expect(clippy::inline_always, reason = "no return between system calls: see `drain`")]
    #[inline(always)]
    pub fn send<'a, I>(&mut self, frames: I) -> Sent<'_>
    where
        I: IntoIterator,
        I::Item: Into<Outgoing<'a>>,
    {
        self.log.begin();
        let mut batch = Batch::new();
        for (index, frame) in frames.into_iter().enumerate() {
            let frame = frame.into();
            let goes_on = match frame.packet_for(self.layout) {
                Some(packet) if self.singly > 0 => self.log.note(index, self.queue.send(packet)),
                Some(packet) => !batch.push(index, packet) || self.send_batch(&mut batch),
                None => self.send_batch(&mut batch) && self.send_alone(index, &frame),
            };
            if !goes_on {
                return self.log.report();
            }
        }
        match batch.alone() {
            Some((index, packet)) => {
                self.log.note(index, self.queue.send(packet));
            }
            None => {
                self.send_batch(&mut batch);
            }
        }
        self.log.report()
    }

    /// As [`Engine::wait`](crate::Engine::wait).
    ///
    /// # Errors
    /// As [`Engine::wait`](crate::Engine::wait).
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        Ok(!self.pending.is_empty() || wait_readable(self.as_fd(), timeout)?)
    }

    /// The queue of this engine.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Closes the engine and returns the queue.
    pub fn into_queue(self) -> Queue {
        self.queue
    }

    /// The end of [`Self::recv`]: frames first, errors by the next call.
    fn received(&mut self, burst: &Burst) -> Result<usize, RecvError> {
        match self.pending.pop() {
            Some(error) if burst.is_empty() => Err(error),
            Some(error) => {
                self.pending.push(error);
                Ok(burst.len())
            }
            None => Ok(burst.len()),
        }
    }

    /// Receives up to [`Self::reads`] frames after those in `burst`. Returns their bytes if more
    /// may be queued and the burst has room.
    #[inline(never)]
    fn recv_batch(&mut self, burst: &mut Burst) -> Option<usize> {
        if self.ring.is_broken() {
            self.pending.extend(fill(&self.queue, self.layout, burst));
            return None;
        }
        let rooms = burst.spread(self.layout).take(self.reads);
        let results = self.ring.read(rooms);
        let before = burst.len();
        let spoiled = burst.commit_spread(self.layout, results.iter().map(Result::ok));
        let received = burst.len() - before;
        let all_found = received == self.reads;
        let bytes: usize = results.iter().flatten().sum();
        self.reads = reads_after(self.reads, received, bytes);
        if received + spoiled < results.len() || spoiled > 0 {
            self.note_losses(&results, spoiled);
        }
        all_found.then_some(bytes)
    }

    /// As [`Self::recv_batch`], by read(2).
    #[expect(clippy::inline_always, reason = "no return between system calls: see `drain`")]
    #[inline(always)]
    fn recv_alone(&mut self, burst: &mut Burst) -> Option<usize> {
        match fill_one(&self.queue, self.layout, burst)? {
            Ok(len) => {
                self.reads = reads_after(1, 1, len);
                Some(len)
            }
            Err(error) => {
                self.pending.push(error);
                None
            }
        }
    }

    /// Records the frames that the kernel lost.
    fn note_losses(&mut self, results: &Results, spoiled: usize) {
        let no_frame = |errno: &Errno| matches!(*errno, Errno::AGAIN | Errno::CANCELED);
        let errors = results.iter().filter_map(Result::err).filter(|errno| !no_frame(errno));
        let too_long = (0..spoiled).map(|_| Errno::MSGSIZE);
        self.pending.extend(errors.chain(too_long).map(RecvError::new));
        self.pending.dedup_by(|later, earlier| [*later, *earlier] == [RecvError::Gone; 2]);
        self.pending.reverse();
    }

    /// Sends and empties `batch`. Returns `false` if that ends the call.
    #[inline(never)]
    fn send_batch(&mut self, batch: &mut Batch<'_>) -> bool {
        let first = batch.first;
        let packets = batch.take();
        let mut done = 0;
        while packets.len() - done > 1 && !self.ring.is_broken() {
            let results = self.ring.write(&packets[done..], self.linked);
            let why = |at: usize, errno| {
                let packet = packets.get(done + at).copied().unwrap_or_default();
                self.queue.why_not(errno, &[IoSlice::new(packet)])
            };
            match note_sent(&mut self.log, &mut self.linked, first + done, &results, why) {
                Some(tried) => done += tried,
                None => return false,
            }
        }
        let mut rest = packets.iter().enumerate().skip(done);
        rest.all(|(at, packet)| self.log.note(first + at, self.queue.send(packet)))
    }

    fn send_alone(&mut self, index: usize, frame: &Outgoing<'_>) -> bool {
        self.log.note(index, send_frame(&self.queue, self.layout, frame))
    }
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Bytes after which a burst ends, by one call or several: 32 frames of 1514 bytes, or one long
/// train, so that a frame is still in the cache when it is sent on.
const BURST_LEN: usize = 48 * 1024;

/// Mean length in bytes of the frames of a burst that has trains.
const LONG_LEN: usize = 4096;
/// Long enough for the acknowledgements of a train, and soon over when trains have ended.
const SINGLE_BURSTS: u32 = 16;

/// Packets to send by one call, whose frames are consecutive.
struct Batch<'a> {
    packets: [&'a [u8]; BATCH],
    count: usize,
    /// Index of the first frame.
    first: usize,
}

impl<'a> Batch<'a> {
    const fn new() -> Self {
        Self { packets: [&[]; BATCH], count: 0, first: 0 }
    }

    /// The only packet and the index of its frame.
    #[inline]
    fn alone(&self) -> Option<(usize, &'a [u8])> {
        let packet = *self.packets.first().filter(|_| self.count == 1)?;
        Some((self.first, packet))
    }

    /// Adds the packet of the frame at `index`. Returns whether the batch is then full.
    #[inline]
    fn push(&mut self, index: usize, packet: &'a [u8]) -> bool {
        if self.count == 0 {
            self.first = index;
        }
        if let Some(place) = self.packets.get_mut(self.count) {
            *place = packet;
            self.count += 1;
        }
        self.count == BATCH
    }

    /// Returns the packets and empties the batch.
    fn take(&mut self) -> &[&'a [u8]] {
        let count = std::mem::take(&mut self.count);
        &self.packets[..count]
    }
}

/// How many frames to ask for after a call that asked for `reads` and received `received`, of
/// `bytes` bytes in total.
fn reads_after(reads: usize, received: usize, bytes: usize) -> usize {
    let wanted = if received == reads { 2 * received } else { received + 1 };
    let fitting = BURST_LEN * received.max(1) / bytes.max(1);
    wanted.min(fitting).clamp(1, BATCH)
}

/// For how many more bursts frames are moved singly, if it was `singly`, after a burst of `frames`
/// and `bytes`.
#[inline]
fn singly_after(singly: u32, frames: usize, bytes: usize) -> u32 {
    if bytes > frames * LONG_LEN { SINGLE_BURSTS } else { singly.saturating_sub(1) }
}

/// Records in `log` the outcome of the frames from index `first` on, up to one that was cancelled
/// because the one before it failed; `why` converts an errno. Returns the number of frames that
/// were tried, or `None` if the call ends.
fn note_sent(
    log: &mut SendLog,
    linked: &mut bool,
    first: usize,
    results: &Results,
    why: impl Fn(usize, Errno) -> SendError,
) -> Option<usize> {
    let last_sent = results.iter().rposition(|result| result.is_ok());
    for (at, result) in results.iter().enumerate() {
        match result {
            Err(Errno::CANCELED) => return Some(at),
            Err(Errno::AGAIN) if Some(at) < last_sent => {
                // The following frames are already sent: from now on, links keep the order.
                *linked = true;
                log.pass_over(first + at, SendError::Full);
            }
            result => {
                let outcome = result.map(drop).map_err(|errno| why(at, errno));
                if !log.note(first + at, outcome) {
                    return None;
                }
            }
        }
    }
    Some(results.len())
}

/// True if a write can find the send buffer full. By default it cannot.
fn is_send_buffer_limited(queue: &Queue) -> bool {
    ioctl::send_buffer_len(queue) != Ok(i32::MAX.unsigned_abs())
}

/// Converts the error of creating a ring.
fn why_not(errno: Errno) -> EngineError {
    match errno {
        Errno::NOSYS => EngineError::UringMissing,
        Errno::PERM | Errno::ACCESS => EngineError::UringForbidden { disabled: disabled() },
        Errno::OPNOTSUPP => EngineError::UringBlocks,
        errno => EngineError::Uring { source: errno.into() },
    }
}

/// `kernel.io_uring_disabled`: 0 = allowed, 1 = only for a group, 2 = disabled. Absent before Linux
/// 6.6.
fn disabled() -> String {
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    setting.map_or_else(|_| "not there".into(), |setting| setting.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refused;

    /// Converts an errno without knowledge of the frame.
    fn why(_: usize, errno: Errno) -> SendError {
        SendError::new(errno)
    }

    #[test]
    fn behind_a_frame_that_was_refused_the_next_are_tried() {
        let (mut log, mut linked) = (SendLog::default(), true);
        let results = Results::of(&[72, 72, -libc::EINVAL, -libc::ECANCELED, -libc::ECANCELED]);
        assert_eq!(note_sent(&mut log, &mut linked, 10, &results, why), Some(3));
        let refused = Refused { index: 12, error: SendError::Rejected };
        assert_eq!((log.count, &log.refused[..], log.stopped), (2, &[refused][..], None));
    }

    #[test]
    fn a_full_queue_ends_the_call_where_nothing_passed_it() {
        for behind in [-libc::ECANCELED, -libc::EAGAIN] {
            let (mut log, mut linked) = (SendLog::default(), false);
            let results = Results::of(&[72, -libc::EAGAIN, behind]);
            assert_eq!(note_sent(&mut log, &mut linked, 10, &results, why), None);
            let stopped = Refused { index: 11, error: SendError::Full };
            assert_eq!((log.count, &log.refused[..], log.stopped), (1, &[][..], Some(stopped)));
        }
    }

    #[test]
    fn frames_that_pass_a_full_queue_do_so_once() {
        let (mut log, mut linked) = (SendLog::default(), false);
        let results = Results::of(&[72, -libc::EAGAIN, 72, -libc::EAGAIN]);
        assert_eq!(note_sent(&mut log, &mut linked, 10, &results, why), None);
        assert!(linked, "from now on the kernel keeps the order");
        let [passed, stopped] = [11, 13].map(|index| Refused { index, error: SendError::Full });
        assert_eq!((&log.refused[..], log.stopped), (&[passed][..], Some(stopped)));
    }

    #[test]
    fn as_many_frames_are_asked_for_as_there_were_and_fit_a_burst() {
        assert_eq!(reads_after(1, 0, 0), 1);
        assert_eq!(reads_after(4, 4, 4 * 72), 8);
        assert_eq!(reads_after(8, 3, 3 * 72), 4);
        assert_eq!(reads_after(32, 32, 32 * 1526), BATCH);
        assert_eq!(reads_after(2, 2, 2 * 64_000), 1, "a train is sent on before the next");
    }

    #[test]
    fn for_some_bursts_after_a_train_frames_are_moved_singly() {
        assert_eq!(singly_after(0, 1, 64_000), SINGLE_BURSTS);
        assert_eq!(singly_after(3, 4, 64_000 + 3 * 72), SINGLE_BURSTS, "behind acknowledgements");
        assert_eq!(singly_after(SINGLE_BURSTS, 2, 2 * 72), SINGLE_BURSTS - 1);
        assert_eq!(singly_after(1, 0, 0), 0, "nothing was queued");
        assert_eq!(singly_after(0, 32, 32 * 1526), 0, "no trains, however many frames");
    }

    #[test]
    fn a_refusal_names_the_setting() {
        let text = why_not(Errno::PERM).to_string();
        assert!(text.contains(&format!("kernel.io_uring_disabled is {}", disabled())), "{text}");
        assert!(why_not(Errno::OPNOTSUPP).to_string().contains("6.4"));
        assert!(why_not(Errno::MFILE).to_string().contains("Too many open files"));
    }
}
