//! The writer thread: packets in order of time, rotation of files, and handling of a full disk.
//!
//! A file only ever contains whole blocks: a partly written block is cut off again. So a file can
//! be read at any time, and a crash loses only data that the kernel had not received.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tapswitch_datapath::{DropReason, PortCounters, WorkerIndex};
use tapswitch_openflow::PortNo;
use tapswitch_pcapng::{self as pcapng, Statistics};
use tokio::sync::mpsc;

use super::buffer::Buffer;
use super::files::{Files, OpenFileError};
use super::merge::Merge;
use super::timeline::{Timeline, wall_time};
use super::{FINISHED, STOPPED, Status, WRITING};
use crate::PortSpec;
use crate::clock;
use crate::port_spec::PcapngSpec;
use crate::report::FileReport;

/// Writes the files of one port.
#[derive(Debug)]
pub(super) struct Writer {
    spec: PortSpec,
    limits: PcapngSpec,
    buffer: Arc<Buffer>,
    status: Status,
    files: Files,
    current: Option<Current>,
    merge: Merge,
    timeline: Timeline,
    /// Blocks to write next.
    out: Vec<u8>,
    /// Number of packets in `out`.
    out_count: u64,
    began: Instant,
    /// Copies dropped by the port when the file was begun.
    dropped_before: u64,
    /// Copies dropped by the port now.
    dropped: u64,
    report: FileReport,
    /// The server is to be notified that the port has opened or closed.
    has_news: bool,
}

/// The current file.
#[derive(Debug)]
struct Current {
    file: File,
    /// Length of its complete blocks in bytes.
    len: u64,
    packets: u64,
    since: Instant,
}

impl Writer {
    /// Opens the file. A full disk is not an error: there may be room later.
    pub(super) fn open(
        spec: &PortSpec,
        limits: &PcapngSpec,
        buffer: Arc<Buffer>,
        status: Status,
    ) -> Result<Self, OpenFileError> {
        let files = Files::new(&limits.path, limits.keep)?;
        let path = files.path().display().to_string();
        let report = FileReport { path, state: WRITING.to_owned(), ..FileReport::default() };
        let mut writer = Self {
            spec: spec.clone(),
            limits: limits.clone(),
            buffer,
            status,
            files,
            current: None,
            merge: Merge::default(),
            timeline: Timeline::default(),
            out: Vec::new(),
            out_count: 0,
            began: Instant::now(),
            dropped_before: 0,
            dropped: 0,
            report,
            has_news: false,
        };
        match writer.begin_file() {
            Ok(()) => {}
            Err(OpenFileError::Io { source, .. }) if is_full(&source) => writer.stop(&source),
            Err(error) => return Err(error),
        }
        writer.tell_status();
        Ok(writer)
    }

    /// Writes until the port is removed.
    pub(super) fn run(mut self, news: &mpsc::Sender<PortNo>, counters: &PortCounters) {
        let mut is_over = false;
        while !is_over {
            match self.report.state.as_str() {
                STOPPED => self.buffer.pause(RETRY_TIME),
                _ => self.buffer.wait(TICK),
            }
            self.dropped = counters.drops().total();
            is_over = self.turn();
            self.tell_status();
            // If the server's channel is full, it is notified in a later turn.
            self.has_news = self.has_news && news.try_send(self.spec.number).is_err();
        }
        self.end(counters);
    }

    /// Writes what is available. Returns whether the input has ended.
    fn turn(&mut self) -> bool {
        if self.report.state == STOPPED && !self.try_again() {
            return self.buffer.is_over();
        }
        let collected = self.buffer.collect();
        let is_over = collected.is_over;
        self.merge.add(collected);
        let outcome = if self.report.state == WRITING { self.write() } else { Ok(()) };
        match outcome {
            Err(error) => self.stop(&error),
            Ok(()) if self.report.state == FINISHED => drop(self.lose(DropReason::PortDown)),
            Ok(()) => {}
        }
        self.buffer.give_back(self.merge.spent());
        is_over
    }

    /// Writes the packets that are known to be next.
    fn write(&mut self) -> io::Result<()> {
        self.timeline.adjust(|| self.buffer.now());
        self.look_after_file()?;
        while let Some(next) = self.merge.next() {
            if self.is_beyond_limits(next.len) {
                return self.finish("the limit of max-size or max-time is reached");
            }
            if self.is_file_done(next.len) {
                self.rotate()?;
            }
            let at = self.out.len();
            self.merge.take(next, &mut self.out);
            let time = self.timeline.wall_time(next.time);
            pcapng::set_packet_time(&mut self.out[at..], time);
            self.out_count += 1;
            if self.out.len() >= WRITE_LEN {
                self.flush()?;
                if self.buffer.is_given_up() {
                    return Ok(());
                }
            }
        }
        self.flush()
    }

    /// Checks the time limits, and begins a new file if the current one was removed.
    fn look_after_file(&mut self) -> io::Result<()> {
        if self.is_beyond_limits(0) {
            return self.finish("the limit of max-time is reached");
        }
        let Some(current) = &self.current else { return Ok(()) };
        if current.file.metadata()?.nlink() == 0 {
            tracing::warn!("port {}: the file was removed; starting a new one", self.spec);
            self.current = None;
        } else if self.is_file_done(0) {
            self.rotate()?;
        }
        Ok(())
    }

    fn is_beyond_limits(&self, len: usize) -> bool {
        let size = self.report.bytes + (self.out.len() + len) as u64;
        self.limits.max_size.is_some_and(|max| size > max)
            || self.limits.max_time.is_some_and(|max| self.began.elapsed() >= max)
    }

    /// True if the current file is not empty and must not grow by `len` bytes.
    fn is_file_done(&self, len: usize) -> bool {
        let Some(current) = &self.current else { return false };
        let size = current.len + (self.out.len() + len) as u64 + STATISTICS_LEN;
        let is_large = self.limits.rotate_size.is_some_and(|max| size > max);
        let is_old = self.limits.rotate_time.is_some_and(|max| current.since.elapsed() >= max);
        current.packets + self.out_count > 0 && (is_large || is_old)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.flush()?;
        let current = self.current.as_ref();
        let is_there = current.is_none_or(|current| self.files.is_at_its_path(&current.file));
        self.end_file();
        // A file that somebody has renamed keeps its name.
        if is_there {
            self.files.finish(SystemTime::now())?;
        }
        self.report.files += 1;
        self.with_room(Self::try_begin)
    }

    /// Writes the gathered blocks.
    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() { Ok(()) } else { self.with_room(Self::try_flush) }
    }

    /// Retries while the disk is full and finished files can be removed.
    fn with_room(&mut self, attempt: impl Fn(&mut Self) -> io::Result<()>) -> io::Result<()> {
        loop {
            match attempt(self) {
                Err(error) if is_full(&error) && self.make_room() => {}
                outcome => return outcome,
            }
        }
    }

    fn try_begin(&mut self) -> io::Result<()> {
        self.begin_file().map_err(|error| match error {
            OpenFileError::Io { source, .. } => source,
            error => io::Error::other(error),
        })
    }

    fn try_flush(&mut self) -> io::Result<()> {
        if self.current.is_none() {
            self.try_begin()?;
        }
        if let Some(current) = &mut self.current {
            current.append(&self.out)?;
            current.packets += self.out_count;
        }
        self.report.bytes += self.out.len() as u64;
        self.report.packets += self.out_count;
        self.out_count = 0;
        self.out.clear();
        let now = clock::coarse();
        self.merge.settle(|claim, traffic| {
            claim.delivered(WorkerIndex::NONE, traffic, now);
        });
        Ok(())
    }

    /// Drops all packets. Returns their number.
    fn lose(&mut self, reason: DropReason) -> u64 {
        let lost = self.out_count + self.merge.clear();
        self.out_count = 0;
        self.out.clear();
        self.merge.settle(|claim, traffic| claim.dropped(WorkerIndex::NONE, traffic, reason));
        self.report.lost += lost;
        lost
    }

    fn make_room(&mut self) -> bool {
        let removed = self.files.remove_oldest();
        if let Some(path) = &removed {
            let path = path.display();
            tracing::warn!("port {}: the disk is full; removed {path}", self.spec);
        }
        removed.is_some()
    }

    fn begin_file(&mut self) -> Result<(), OpenFileError> {
        let mut current = Current::new(self.files.open()?);
        let mut head = Vec::new();
        let snaplen = self.limits.snaplen.unwrap_or(0);
        pcapng::begin(&mut head, APPLICATION, self.spec.name(), snaplen);
        if let Err(source) = current.append(&head) {
            // A file without its header is useless.
            let _ = std::fs::remove_file(self.files.path());
            return Err(OpenFileError::Io { path: self.files.path().to_owned(), source });
        }
        self.report.bytes += head.len() as u64;
        (self.current, self.dropped_before) = (Some(current), self.dropped);
        Ok(())
    }

    /// Writes the statistics of the copies to the end of the file, if they fit.
    fn end_file(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        let dropped = self.dropped.wrapping_sub(self.dropped_before);
        let statistics = Statistics { written: current.packets, dropped, comment: Some(COMMENT) };
        let mut block = Vec::new();
        pcapng::statistics(&mut block, wall_time(), &statistics);
        // They are optional.
        let _ = current.append(&block);
        self.dropped_before = self.dropped;
    }

    /// Ends writing because a limit is reached.
    fn finish(&mut self, reason: &str) -> io::Result<()> {
        self.flush()?;
        self.end_file();
        tracing::info!("port {}: {reason}; no more packets are written", self.spec);
        self.set_state(FINISHED, Some(reason.to_owned()));
        Ok(())
    }

    /// Closes the port until there is room, or the disk works again.
    fn stop(&mut self, error: &io::Error) {
        let reason = match is_full(error) {
            true => "the disk is full; writing resumes when there is space".to_owned(),
            false => format!("{error}; trying again every second"),
        };
        if self.report.state != STOPPED {
            tracing::error!("port {}: writing stopped: {reason}", self.spec);
        }
        self.set_state(STOPPED, Some(reason));
    }

    /// Resumes writing if possible. Returns whether it did.
    fn try_again(&mut self) -> bool {
        let is_over = self.buffer.is_over();
        let has_room = has_room(&self.files, self.out.len() + RESUME_LEN);
        let outcome = if has_room || is_over { self.resume() } else { return false };
        match outcome {
            Ok(()) => {
                tracing::info!("port {}: writing resumed", self.spec);
                self.set_state(WRITING, None);
            }
            Err(error) => self.stop(&error),
        }
        self.report.state == WRITING
    }

    fn resume(&mut self) -> io::Result<()> {
        if self.current.is_none() && self.out.is_empty() {
            return self.try_begin();
        }
        self.flush()
    }

    /// The port is removed: the packets have been written, or are dropped.
    fn end(mut self, counters: &PortCounters) {
        let in_buffer = self.buffer.collect();
        self.merge.add(in_buffer);
        // After a limit this is intended.
        let is_finished = self.report.state == FINISHED;
        let reason = if is_finished { DropReason::PortDown } else { DropReason::PortRemoved };
        let lost = self.lose(reason);
        if lost > 0 && !is_finished {
            tracing::error!(
                "port {}: accepted packets could not be written, and are dropped as {reason}: \
                 {lost}",
                self.spec
            );
        }
        self.dropped = counters.drops().total();
        self.end_file();
        self.set_state(FINISHED, None);
        self.tell_status();
    }

    fn set_state(&mut self, state: &str, reason: Option<String>) {
        self.has_news |= self.report.state != state;
        (self.report.state, self.report.reason) = (state.to_owned(), reason);
    }

    fn tell_status(&self) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.clone_from(&self.report);
    }
}

impl Current {
    fn new(file: File) -> Self {
        Self { file, len: 0, packets: 0, since: Instant::now() }
    }

    /// Writes all of `bytes`, or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(bytes, self.len);
        match written {
            Ok(()) => self.len += bytes.len() as u64,
            // The part that was written may end within a block.
            Err(_) => self.file.set_len(self.len)?,
        }
        written
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// True unless the file system reports too little room.
fn has_room(files: &Files, len: usize) -> bool {
    rustix::fs::statvfs(files.folder())
        .map_or(true, |found| found.f_bavail.saturating_mul(found.f_frsize) >= len as u64)
}

const APPLICATION: &str = concat!("tapswitch ", env!("CARGO_PKG_VERSION"));
/// Explains the numbers at the end of a file.
const COMMENT: &str = "packets; a dropped train counts as one";
/// Bytes per write.
const WRITE_LEN: usize = 1 << 20;
/// Free space needed to resume, so that a port does not open and close with every block.
const RESUME_LEN: usize = 256 << 10;
/// Upper limit of the statistics block at the end of a file.
const STATISTICS_LEN: u64 = 200;
/// Interval of time checks while nothing arrives.
const TICK: Duration = Duration::from_secs(1);
/// Interval of retries.
const RETRY_TIME: Duration = Duration::from_secs(1);
