//! File monitors: frames sent to the port are written to a pcapng file.
//!
//! ```text
//!  workers ── blocks in chunks ──> buffer ── writer thread ──> web.pcapng, web_00001_....pcapng
//! ```
//! A worker only copies packets to memory ([`buffer`]); each port has a thread that writes to the
//! disk ([`writer`]). If the buffer is full, the port is full, with the usual consequences: copies
//! are dropped or their senders wait, by contract.
//!
//! If the disk is full or fails, the port's link goes down until writing works again, and the
//! buffered packets stay in memory. With `keep=`, the oldest finished files are deleted first.
//!
//! Packets in memory count as queued, as for any port. They count as sent, and as delivered in the
//! ledger of their bucket, when the writer has written them. Packets that are never written count
//! as dropped: as `port_down` after a limit, as `port_removed` at the end.
//!
//! Nothing is ever received from such a port.

mod buffer;
mod chunk;
mod files;
mod merge;
mod timeline;
mod writer;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tapswitch_datapath::{Claim, Frame, PortCounters, Receipt, Traffic, WorkerIndex};
use tapswitch_openflow::{PortNo, PortState};
use tapswitch_pcapng::{Packet, packet_block_len};
use tapswitch_vhost::Part;
use tapswitch_wire::MacAddr;
use tokio::sync::mpsc;

use crate::PortSpec;
use crate::beyond::Beyond;
use crate::port_spec::PcapngSpec;
use crate::report::FileReport;
use crate::tx::{Takes, TxDevice, TxPort};
use buffer::Buffer;
use chunk::{CHUNK_LEN, Chunk};
pub use files::OpenFileError;
use writer::Writer;

/// An open file monitor.
#[derive(Debug)]
pub(crate) struct Recorder {
    spec: PortSpec,
    file: PcapngSpec,
    buffer: Arc<Buffer>,
    status: Status,
    /// Until the writer's thread is started.
    writer: Option<Box<Writer>>,
    thread: Option<(JoinHandle<()>, Receiver<()>)>,
}

/// The writer's report.
pub(crate) type Status = Arc<Mutex<FileReport>>;

impl Recorder {
    /// Opens the file that `spec` describes, and writes only its header.
    pub(crate) fn open(spec: &PortSpec, file: &PcapngSpec) -> Result<Self, OpenFileError> {
        let buffer = Arc::new(Buffer::new(file.buffer_len));
        let status = Status::default();
        let writer = Writer::open(spec, file, buffer.clone(), status.clone())?;
        let (spec, file, writer) = (spec.clone(), file.clone(), Some(Box::new(writer)));
        Ok(Self { spec, file, buffer, status, writer, thread: None })
    }

    /// Starts the writer. `news` is notified when the port opens and closes; `counters` are the
    /// port's.
    pub(crate) fn start(
        &mut self,
        news: mpsc::Sender<PortNo>,
        counters: Arc<PortCounters>,
    ) -> io::Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let name = format!("tapswitch-f{}", self.spec.number);
        let (running, done) = channel();
        let run = move || {
            writer.run(&news, &counters);
            drop(running);
        };
        self.thread = Some((std::thread::Builder::new().name(name).spawn(run)?, done));
        Ok(())
    }

    /// The port's OpenFlow link state.
    pub(crate) fn state(&self) -> PortState {
        let is_open = self.with_status(|status| status.state == WRITING);
        if is_open { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// The port's address: the same for the same file at each start.
    pub(crate) fn mac(&self) -> MacAddr {
        let mut hasher = DefaultHasher::new();
        ("pcapng", &self.file.path).hash(&mut hasher);
        let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
        // Locally administered (IEEE 802-2014 §8.2.2).
        MacAddr([0x02, a, b, c, d, e])
    }

    /// The offloads as text, for reports.
    pub(crate) fn offloads(&self) -> String {
        self.takes().to_string()
    }

    /// Ends the input: the buffered packets are written at once.
    pub(crate) fn close(&self) {
        self.buffer.close();
    }

    /// The handle through which `worker` sends.
    pub(crate) fn tx_port(&self, worker: usize) -> TxPort {
        let snaplen = self.file.snaplen.map_or(usize::MAX, |len| len as usize);
        let tx = RecorderTx::new(self.buffer.clone(), WorkerIndex(worker), snaplen);
        TxPort::new(TxDevice::File(tx), self.takes())
    }

    pub(crate) fn report(&self) -> FileReport {
        let buffered = self.buffer.len();
        FileReport { buffered, buffer: self.file.buffer_len, ..self.with_status(Clone::clone) }
    }

    fn takes(&self) -> Takes {
        if self.file.wire_size { Takes::NOTHING } else { Takes::EVERYTHING }
    }

    fn with_status<T>(&self, ask: impl FnOnce(&FileReport) -> T) -> T {
        ask(&self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes the buffered packets, unless the disk takes too long.
impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
        let Some((thread, done)) = self.thread.take() else { return };
        let goes_on = |time| done.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if !goes_on(END_TIME) {
            // The thread itself has reported a panic.
            return drop(thread.join());
        }
        self.buffer.give_up();
        if !goes_on(GIVE_UP_TIME) {
            return drop(thread.join());
        }
        let left = self.buffer.len();
        tracing::error!(
            "port {}: the disk does not respond; {left} bytes of accepted packets wait for it, and \
             are lost if the switch exits before it responds",
            self.spec
        );
    }
}

/// A file as one worker sends to it.
#[derive(Debug)]
pub(crate) struct RecorderTx {
    buffer: Arc<Buffer>,
    worker: WorkerIndex,
    /// The port's limit of bytes per packet.
    snaplen: usize,
    /// The bucket's limit of bytes for the current packets; `None` for none.
    cut: Option<usize>,
    /// Packets of the current frame that are in the buffer, one block each.
    count: u64,
    /// The worker's chunk, during a burst.
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    chunk: Option<Chunk>,
}

/// A handle without a chunk.
impl Clone for RecorderTx {
    fn clone(&self) -> Self {
        Self::new(self.buffer.clone(), self.worker, self.snaplen)
    }
}

/// The buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl RecorderTx {
    fn new(buffer: Arc<Buffer>, worker: WorkerIndex, snaplen: usize) -> Self {
        Self { buffer, worker, snaplen, cut: None, count: 0, held: None }
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the worker's chunk for a burst.
    pub(crate) fn hold(&mut self) {
        self.held = Some(Held { chunk: self.buffer.begin(self.worker.0) });
    }

    /// Ends a burst: its packets in the buffer now count as queued.
    pub(crate) fn end_burst(&mut self) {
        if let Some(Held { mut chunk }) = self.held.take() {
            chunk.iter_mut().for_each(|chunk| chunk.queue(self.worker));
            self.buffer.end(self.worker.0, chunk);
        }
    }

    /// Begins a frame, or the rest of one: the next packets belong to it. The caller holds the
    /// chunk.
    pub(crate) fn begin(&mut self, claim: &Claim<'_>) -> Result<(), Full> {
        let held = self.held.as_mut().ok_or(Full)?;
        if held.chunk.is_none() {
            held.chunk = self.buffer.exchange(self.worker.0, None);
        }
        held.chunk.as_mut().ok_or(Full)?.begin(claim);
        self.count = 0;
        Ok(())
    }

    /// Ends the current frame, which counts as `traffic`: all of its packets are in the buffer.
    pub(crate) fn end(&mut self, traffic: Traffic) {
        if let Some(chunk) = self.held.as_mut().and_then(|held| held.chunk.as_mut()) {
            let packets = traffic.packets.saturating_sub(self.count);
            chunk.add(Traffic { packets, ..traffic });
        }
    }

    /// Ends a frame that has waited for room.
    pub(crate) fn end_waiting(&mut self, receipt: Receipt) {
        let traffic = receipt.traffic();
        receipt.handed_over();
        self.end(traffic);
        self.queue();
    }

    /// Notes that the next packets of a frame that waits for room are in the buffer.
    pub(crate) fn end_waiting_part(&mut self, receipt: &mut Receipt, packets: u32) {
        receipt.handed_over_part(packets);
        self.queue();
    }

    /// Counts the burst's packets in the buffer as queued.
    fn queue(&mut self) {
        if let Some(chunk) = self.held.as_mut().and_then(|held| held.chunk.as_mut()) {
            chunk.queue(self.worker);
        }
    }

    /// Sets the bytes kept of each packet, in addition to the port's limit; `None` for all.
    pub(crate) fn set_cut(&mut self, cut: Option<usize>) {
        self.cut = cut;
    }

    /// Puts a frame, whose remaining bytes are `beyond`, into the buffer. The caller holds the
    /// chunk.
    pub(crate) fn send(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>) -> Result<(), Full> {
        let parts = frame.parts().map(Part::Ours);
        let parts = std::iter::once(Part::Ours(frame.head())).chain(parts).chain(beyond.parts());
        self.put(frame.len(), parts)
    }

    /// Puts the packet in `pieces` into the buffer. The caller holds the chunk.
    pub(crate) fn send_pieces(&mut self, pieces: [&[u8]; 3]) -> Result<(), Full> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.put(len, pieces.into_iter().map(Part::Ours))
    }

    fn put<'p>(&mut self, len: usize, parts: impl Iterator<Item = Part<'p>>) -> Result<(), Full> {
        let snaplen = self.cut.map_or(self.snaplen, |cut| cut.min(self.snaplen));
        let now = self.buffer.now();
        let chunk = self.chunk(packet_block_len(len, snaplen)).ok_or(Full)?;
        let mut packet = Packet::begin(&mut chunk.bytes, now, snaplen, len);
        for part in parts {
            packet.push_with(part.len(), |room| {
                part.read(room);
            });
        }
        packet.end();
        chunk.note_block();
        self.count += 1;
        Ok(())
    }

    /// A chunk with room for `len` more bytes of the current frame.
    fn chunk(&mut self, len: usize) -> Option<&mut Chunk> {
        let held = self.held.as_mut()?;
        if held.chunk.as_ref()?.bytes.len() + len > CHUNK_LEN {
            let mut full = held.chunk.take()?;
            full.queue(self.worker);
            let claim = full.claim().cloned();
            held.chunk = self.buffer.exchange(self.worker.0, Some(full));
            held.chunk.as_mut()?.begin_lot(claim?);
        }
        held.chunk.as_mut()
    }
}

/// A [`FileReport::state`]: the file is written to.
const WRITING: &str = "writing";
/// A [`FileReport::state`]: the disk is full or fails.
const STOPPED: &str = "stopped";
/// A [`FileReport::state`]: a limit was reached, or the port is removed.
const FINISHED: &str = "finished";
/// How long removing a port waits for the disk: the server is blocked meanwhile.
const END_TIME: Duration = Duration::from_secs(2);
/// How long it then waits for the current write.
const GIVE_UP_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
