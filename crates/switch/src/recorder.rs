//! A file behind a port: what is sent there becomes packets of a pcapng file.
//!
//! ```text
//!  workers ── blocks in chunks ──> buffer ── writer thread ──> web.pcapng, web_00001_....pcapng
//! ```
//! A worker only copies packets to memory ([`buffer`]); the disk is the business of a thread of the
//! port's own ([`writer`]). A buffer that is full makes the port full, with what follows from that
//! for any port: copies are dropped, or their senders wait, as their contract says.
//!
//! A disk that is full, or fails, closes the port: its link is down until there is room again, and
//! what was taken waits in memory meanwhile. With `keep=`, the oldest finished files go first.
//!
//! What is in memory is queued, as what waits for any port. It counts as sent, and in the ledger of
//! its bucket as delivered, when it is written: so says the writer, a write at a time. What never
//! is counts as dropped: as `port_down` behind a limit, as `port_removed` in the end.
//!
//! Nothing ever comes in by such a port.

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

/// A file monitor that is open.
#[derive(Debug)]
pub(crate) struct Recorder {
    spec: PortSpec,
    file: PcapngSpec,
    buffer: Arc<Buffer>,
    status: Status,
    /// Until it has a thread of its own.
    writer: Option<Box<Writer>>,
    thread: Option<(JoinHandle<()>, Receiver<()>)>,
}

/// What the writer tells.
pub(crate) type Status = Arc<Mutex<FileReport>>;

impl Recorder {
    /// Opens the file that `spec` describes. Nothing is written but its head.
    pub(crate) fn open(spec: &PortSpec, file: &PcapngSpec) -> Result<Self, OpenFileError> {
        let buffer = Arc::new(Buffer::new(file.buffer_len));
        let status = Status::default();
        let writer = Writer::open(spec, file, buffer.clone(), status.clone())?;
        let (spec, file, writer) = (spec.clone(), file.clone(), Some(Box::new(writer)));
        Ok(Self { spec, file, buffer, status, writer, thread: None })
    }

    /// Starts to write. `news` hears when the port opens and closes; `counters` are the port's.
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

    /// How OpenFlow calls the state of its link.
    pub(crate) fn state(&self) -> PortState {
        let is_open = self.with_status(|status| status.state == WRITING);
        if is_open { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// The same for the same file at each start.
    pub(crate) fn mac(&self) -> MacAddr {
        let mut hasher = DefaultHasher::new();
        ("pcapng", &self.file.path).hash(&mut hasher);
        let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
        // Locally administered (IEEE 802-2014 §8.2.2).
        MacAddr([0x02, a, b, c, d, e])
    }

    /// Offloads in words, for reports.
    pub(crate) fn offloads(&self) -> String {
        self.takes().to_string()
    }

    /// Nothing comes any more: what was taken is written at once.
    pub(crate) fn close(&self) {
        self.buffer.close();
    }

    /// The handle by which `worker` sends.
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

/// What was taken is written, unless the disk takes too long for that.
impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
        let Some((thread, done)) = self.thread.take() else { return };
        let goes_on = |time| done.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if !goes_on(END_TIME) {
            // A panic has been reported by the thread itself.
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
    /// Bytes of each packet that the port keeps.
    snaplen: usize,
    /// Bytes that the bucket of the packets under way keeps; none for all.
    cut: Option<usize>,
    /// Packets of the frame under way that are in the buffer, each a block.
    count: u64,
    /// The worker's chunk, while a burst goes on.
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    chunk: Option<Chunk>,
}

/// Another handle, which holds nothing.
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

    /// Ends a burst: what it has put into the buffer is queued.
    pub(crate) fn end_burst(&mut self) {
        if let Some(Held { mut chunk }) = self.held.take() {
            chunk.iter_mut().for_each(|chunk| chunk.queue(self.worker));
            self.buffer.end(self.worker.0, chunk);
        }
    }

    /// Begins a frame, or what is left of one: the next packets are its. The caller holds the
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

    /// All packets are in the buffer of what was begun, which counts as `traffic`.
    pub(crate) fn end(&mut self, traffic: Traffic) {
        if let Some(chunk) = self.held.as_mut().and_then(|held| held.chunk.as_mut()) {
            let packets = traffic.packets.saturating_sub(self.count);
            chunk.add(Traffic { packets, ..traffic });
        }
    }

    /// The same of a frame that has waited for room.
    pub(crate) fn end_waiting(&mut self, receipt: Receipt) {
        let traffic = receipt.traffic();
        receipt.handed_over();
        self.end(traffic);
        self.queue();
    }

    /// The next packets of a frame that waits for room are in the buffer.
    pub(crate) fn end_waiting_part(&mut self, receipt: &mut Receipt, packets: u32) {
        receipt.handed_over_part(packets);
        self.queue();
    }

    /// Counts as queued what the burst has put into the buffer so far.
    fn queue(&mut self) {
        if let Some(chunk) = self.held.as_mut().and_then(|held| held.chunk.as_mut()) {
            chunk.queue(self.worker);
        }
    }

    /// Sets what is kept of each packet beside what the port keeps; none for all.
    pub(crate) fn set_cut(&mut self, cut: Option<usize>) {
        self.cut = cut;
    }

    /// Puts a frame into the buffer, the end of which is `beyond`. The caller holds the chunk.
    pub(crate) fn send(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>) -> Result<(), Full> {
        let parts = frame.parts().map(Part::Ours);
        let parts = std::iter::once(Part::Ours(frame.head())).chain(parts).chain(beyond.parts());
        self.put(frame.len(), parts)
    }

    /// Puts a packet into the buffer that lies in `pieces`. The caller holds the chunk.
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

    /// The chunk that has room for `len` bytes more of the frame under way.
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

/// Of [`FileReport::state`]: everything is as it should be.
const WRITING: &str = "writing";
/// The disk is full, or fails.
const STOPPED: &str = "stopped";
/// A limit was reached, or the port is gone.
const FINISHED: &str = "finished";
/// How long the end of a port waits for the disk: the server does nothing else meanwhile.
const END_TIME: Duration = Duration::from_secs(2);
/// How long it waits then for the write under way.
const GIVE_UP_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
