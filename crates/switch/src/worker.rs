//! A worker: one thread that reads its queues, processes frames and sends them.
//!
//! ```text
//! sleep until a queue or an errand is ready, or poll the guests' rings (see `guests`)
//!   └ for each ready queue, at most one burst:
//!       └ read a batch: small frames, or up to the first large one
//!       └ process each frame, or coalesce the batch and process each train
//! ```
//! A train of 64 KiB is read, sent and copied while it is in the cache. Small frames are read in
//! batches, which uses the kernel's code and the caches better than alternating reads and sends
//! (`docs/adr/0010-small-frames-in-batches.md`). A batch never waits for frames: it ends when the
//! queue is empty. The worker loads the tables once per burst: a change takes effect within one
//! burst, and a burst sees one version. Errands arrive through a queue with an eventfd, so they are
//! executed in order and wake a sleeping worker.

mod guests;
mod lone;
mod pressure;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use tapswitch_datapath::{
    Arrival, CacheStats, DropReason, Forwarder, HEADROOM, MacTable, Parts, PortCounters, Snapshot,
    Traffic, View, WorkerIndex,
};
use tapswitch_offload::{Coalescer, coalesce};
use tapswitch_openflow::{Action, PortNo};
use tapswitch_tunnel::{Room, SLOT_ALIGN};
use tapswitch_wire::NetHeader;

use crate::bell;
use crate::clock;
use crate::cores::CORE_COUNT_MAX;
use crate::egress::WorkerEgress;
use crate::gro::{self, GroTrial};
use crate::peer::{PacketOutRoom, packet_out_weight};
use crate::rx::{self, Received, RxQueue};
use crate::shared::Shared;
use crate::store::ITEM_LEN;
use crate::tx::{BATCH_ROOM, TxPort, TxPorts};
use guests::Patience;
use turn::Turn;

pub use lone::LoneWorker;
pub(crate) use turn::BURST_COUNT;

/// A request from the agent to a worker.
#[derive(Debug)]
pub(crate) enum Errand {
    /// Execute the actions on a controller's packet, which is stored behind [`HEADROOM`] bytes.
    PacketOut { in_port: PortNo, buf: Vec<u8>, actions: Vec<Action>, room: Option<PacketOutRoom> },
    /// Handle a frame, which is stored behind [`HEADROOM`] bytes, as if it came in by this port.
    Frame { in_port: PortNo, buf: Vec<u8> },
    /// Confirm that all earlier errands are done and that the current tables are in use.
    Sync(u64),
    /// Read these queues of a port, and send to the port through `tx`.
    AddPort { number: PortNo, tx: Box<TxPort>, queues: Vec<RxQueue> },
    /// Release the port with this number. Frames that were read ahead from it are dropped and
    /// counted in the given counters; `None` if the tables have no such port.
    RemovePort(PortNo, Option<Arc<PortCounters>>),
    /// Stop.
    Stop,
}

/// A running worker, as seen by the agent.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    errands: Sender<Errand>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle {
    /// Queues an errand. Errands are executed in order.
    pub(crate) fn send(&self, errand: Errand) {
        // A worker that has stopped needs no errands.
        if self.errands.send(errand).is_ok() {
            bell::ring(&*self.wake);
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.send(Errand::Stop);
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported a panic.
            let _ = thread.join();
        }
    }
}

/// The parameters a worker starts with.
#[derive(Debug)]
pub(crate) struct WorkerSetup {
    pub(crate) index: WorkerIndex,
    /// The core to pin the thread to.
    pub(crate) core: Option<usize>,
    pub(crate) shared: Arc<Shared>,
}

impl WorkerSetup {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the kernel refuses an epoll instance, an eventfd or a thread.
    pub(crate) fn start(self) -> io::Result<WorkerHandle> {
        let (errands, inbox) = crossbeam_channel::unbounded();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let name = format!("tapswitch-w{}", self.index.0);
        let worker_wake = wake.clone();
        let body = move || {
            let _farewell = Farewell(self.shared.clone());
            Worker::new(self, poll, worker_wake, inbox).run();
        };
        let thread = Some(std::thread::Builder::new().name(name).spawn(body)?);
        Ok(WorkerHandle { errands, wake, thread })
    }
}

/// Notifies the server when the thread ends, also by a panic: its queues are unread from then on.
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.worker_ended.notify_one();
    }
}

struct Worker {
    index: WorkerIndex,
    queues: Vec<RxQueue>,
    ports: TxPorts,
    shared: Arc<Shared>,
    poll: OwnedFd,
    wake: Arc<OwnedFd>,
    inbox: Receiver<Errand>,
    forwarder: Forwarder,
    /// The batch that was read, one frame behind the other.
    buf: Box<[u8]>,
    batch: [Slot; gro::BATCH_COUNT],
    /// Indices of the queues that are guests' rings.
    guests: Vec<usize>,
    /// The position in `guests` to poll next.
    next_guest: usize,
    patience: Patience,
    /// Per queue, whether it is coalesced.
    trials: Vec<GroTrial>,
    /// Queues paused for a full port, or waiting for their turn after that, in order.
    paused: VecDeque<usize>,
    /// Scratch space for reordering them.
    waiting: VecDeque<usize>,
    coalescer: Coalescer,
    frames: u64,
    coalesced: u64,
    trains: u64,
    bursts: u64,
    wakeups: u64,
}

impl Worker {
    fn new(setup: WorkerSetup, poll: OwnedFd, wake: Arc<OwnedFd>, inbox: Receiver<Errand>) -> Self {
        let WorkerSetup { index, core, shared } = setup;
        if let Some(core) = core {
            pin(core);
        }
        Self {
            index,
            queues: Vec::new(),
            ports: TxPorts::default(),
            shared,
            poll,
            wake,
            inbox,
            forwarder: Forwarder::new(index),
            buf: vec![0; BUF_LEN].into(),
            batch: [Slot::default(); gro::BATCH_COUNT],
            guests: Vec::new(),
            next_guest: 0,
            patience: Patience::default(),
            trials: Vec::new(),
            paused: VecDeque::new(),
            waiting: VecDeque::new(),
            coalescer: Coalescer::new(gro::BATCH_COUNT),
            frames: 0,
            coalesced: 0,
            trains: 0,
            bursts: 0,
            wakeups: 0,
        }
    }

    fn run(mut self) {
        let mut events = Vec::new();
        while self.round(&mut events) == Running::GoesOn {}
        // Packets injected since the last sleep are part of the counters.
        self.settle_all();
        self.publish_counters();
    }

    /// Sleeps until there is work, and does it. `events` is a reusable buffer.
    #[inline]
    fn round(&mut self, events: &mut Vec<epoll::Event>) -> Running {
        events.clear();
        // One event per queue, so that no queue has to wait for another round.
        events.reserve(self.queues.len() + 1);
        let timeout = self.timeout();
        match epoll::wait(&self.poll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Running::GoesOn,
            Err(error) => {
                tracing::error!("worker {}: epoll: {error}", self.index.0);
                return Running::Ends;
            }
        }
        self.wakeups += u64::from(timeout.is_none());
        for event in &*events {
            match event.data.u64() {
                WAKE if self.do_errands() == Running::Ends => return Running::Ends,
                WAKE => {}
                #[expect(clippy::cast_possible_truncation, reason = "an index from start()")]
                index => self.burst(index as usize),
            }
        }
        self.poll_guests();
        self.follow_queues();
        self.publish_counters();
        Running::GoesOn
    }

    /// The longest time to sleep: unlimited if nothing is pending.
    fn timeout(&self) -> Option<Timespec> {
        if self.patience.is_awake() {
            return Some(AT_ONCE);
        }
        self.time_to_retry().map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        })
    }

    #[inline]
    fn burst(&mut self, index: usize) {
        match self.queues.get(index).map(RxQueue::guest) {
            Some(None) => {}
            Some(Some(_)) => return self.wake_for(index),
            None => return,
        }
        let is_behind = self.queues[index].intake.is_behind();
        let (snapshot, macs) = (self.shared.snapshot.load(), self.shared.macs.load());
        // The errand that removes the queue is under way: frames received now would be counted
        // nowhere.
        if snapshot.ports.find(self.queues[index].port()).is_none() {
            return;
        }
        if is_behind && self.queues[index].intake.pause.is_some() {
            return self.read_ahead(index, &snapshot);
        }
        let view = View { snapshot: &snapshot, macs: &macs, now: clock::coarse() };
        self.ports.begin_burst(self.queues[index].waits(), view.now);
        self.bursts += 1;
        if !is_behind || self.replay(index, view) {
            self.read(index, view);
        }
        self.book_refused(index, &snapshot);
        self.ports.end_burst();
        self.ports.cut_off_faulty();
        self.forwarder.end_burst(view.now);
        if self.ports.has_bridge() {
            self.queues[index].note_bridge();
        }
        if is_behind {
            self.line_up_for_more(index);
        }
    }

    /// Reads one queue until it is empty or a burst is full.
    #[inline]
    fn read(&mut self, index: usize, view: View<'_>) {
        let mut turn = Turn::new();
        while !turn.is_over() {
            let is_coalesced = self.trials[index].is_on();
            let (limit, len) = match is_coalesced {
                false => (BATCH_COUNT, BATCH_LEN),
                true => self.trials[index].batch(view.now),
            };
            let (count, end) = self.fill(index, limit.min(turn.left()), len, view.snapshot);
            if is_coalesced {
                self.coalesce(index, view, count);
            } else {
                for at in 0..count {
                    self.handle(index, view, at);
                }
            }
            match end {
                BatchEnd::Full => {
                    turn.note(count, self.weight_of(count));
                    // The kernel does not report frames again that it has already handed over.
                    turn.keep(self.queues[index].pending());
                    if !is_coalesced {
                        self.trials[index].note_plain(count);
                    }
                }
                BatchEnd::Empty => turn.end(),
                BatchEnd::Gone => {
                    turn.end();
                    self.queues[index].intake.is_gone = true;
                    self.forget(index);
                }
            }
            if self.ports.has_pressure() {
                return self.pause_reading(index);
            }
        }
    }

    /// Reads a batch of at most `limit` frames, the last of which begins within `len` bytes.
    /// Returns the number of frames and why the batch ended.
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn fill(
        &mut self,
        index: usize,
        limit: usize,
        len: usize,
        snapshot: &Snapshot,
    ) -> (usize, BatchEnd) {
        let (mut count, mut begin) = (0, 0);
        while count < limit && begin < len {
            let room = Room { count: limit - count, reach: len - begin };
            match self.queues[index].recv(&mut self.buf[begin..], room) {
                Received::Frame { meta, start, end } => {
                    self.batch[count] = Slot { meta, begin, start, len: end };
                    count += 1;
                    begin += end.next_multiple_of(CACHE_LINE);
                    if turn::is_crowded(&meta) {
                        break;
                    }
                }
                Received::Empty => return (count, BatchEnd::Empty),
                Received::Gone => return (count, BatchEnd::Gone),
                Received::Dropped(reason) => {
                    self.count_drop(index, snapshot, reason);
                    break;
                }
            }
        }
        (count, BatchEnd::Full)
    }

    /// The weight of the first `count` frames of the batch.
    fn weight_of(&self, count: usize) -> usize {
        self.batch[..count].iter().map(|place| turn::weight(&place.meta, place.len)).sum()
    }

    /// Processes the frame at `at` in the batch.
    #[inline]
    fn handle(&mut self, index: usize, view: View<'_>, at: usize) {
        self.frames += 1;
        if self.queues[index].mode().is_some() && !self.admit(index, view, at) {
            return;
        }
        let Slot { meta, begin, start, len } = self.batch[at];
        let arrival = Arrival {
            in_port: self.queues[index].port(),
            meta,
            buf: &mut self.buf[begin..begin + len],
            start,
            beyond_len: 0,
        };
        let mut egress = WorkerEgress::new(&mut self.ports, &self.shared);
        self.forwarder.handle(view, arrival, &mut egress);
    }

    /// Converts the frame at `at` in the batch to the inner form, by the mode of its port. Returns
    /// `false` if the port does not accept it. The slot is updated in place, so that ports without
    /// a mode pay nothing.
    #[inline(never)]
    fn admit(&mut self, index: usize, view: View<'_>, at: usize) -> bool {
        let queue = &self.queues[index];
        let Some(mode) = queue.mode() else { return true };
        let Slot { meta, begin, start, len } = self.batch[at];
        let buf = &mut self.buf[begin..begin + len];
        let arrival = Arrival { in_port: queue.port(), meta, buf, start, beyond_len: 0 };
        let Some(Arrival { meta, start, .. }) = self.forwarder.admit(view, mode, arrival, None)
        else {
            return false;
        };
        self.batch[at] = Slot { meta, begin, start, len };
        true
    }

    /// Coalesces the first `count` frames of the batch, and processes the trains and the frames
    /// that could not be joined.
    #[inline(never)]
    fn coalesce(&mut self, index: usize, view: View<'_>, count: usize) {
        let mut places = [coalesce::Place::default(); gro::BATCH_COUNT];
        let batch = &self.batch[..count];
        for (place, Slot { meta, begin, start, len }) in places.iter_mut().zip(batch) {
            *place = coalesce::Place { meta: *meta, start: begin + start, end: begin + len };
        }
        let units = self.coalescer.coalesce(&mut self.buf, &places[..count]);
        self.trials[index].note_coalesced(count, units.len());
        let (in_port, mode) = (self.queues[index].port(), self.queues[index].mode());
        let mut egress = WorkerEgress::new(&mut self.ports, &self.shared);
        for unit in units {
            let Slot { begin, start, len, .. } = batch[unit.first];
            let (head, tail) = self.buf.split_at_mut(begin + len);
            let (meta, buf) = (unit.meta, &mut head[begin..]);
            let arrival = Arrival { in_port, meta, buf, start, beyond_len: 0 };
            let parts = Parts::new(tail, begin + len, unit.parts);
            let more = (!unit.parts.is_empty()).then_some(&parts);
            let inner = match mode {
                Some(mode) => self.forwarder.admit(view, mode, arrival, more),
                None => Some(arrival),
            };
            if let Some(arrival) = inner {
                self.forwarder.handle_coalesced(view, arrival, more, &mut egress);
            }
            if more.is_some() {
                self.trains += 1;
                self.coalesced += unit.frames() as u64;
            }
        }
        self.frames += count as u64;
    }

    /// Counts the frames refused by the tunnel behind a queue.
    #[inline]
    fn book_refused(&mut self, index: usize, snapshot: &Snapshot) {
        if let Some(refused) = self.queues[index].take_refused() {
            for (reason, count) in refused {
                self.count_drops(index, snapshot, reason, count);
            }
        }
    }

    #[cold]
    fn count_drop(&self, index: usize, snapshot: &Snapshot, reason: DropReason) {
        self.count_drops(index, snapshot, reason, 1);
    }

    #[cold]
    fn count_drops(&self, index: usize, snapshot: &Snapshot, reason: DropReason, count: u64) {
        if let Some(port) = snapshot.ports.find(self.queues[index].port()) {
            let traffic = Traffic { frames: count, packets: count, bytes: 0 };
            port.counters.refuse(self.index, traffic, reason);
        }
    }

    /// Stops watching a queue whose device is gone; the agent learns this through netlink.
    #[cold]
    fn forget(&mut self, index: usize) {
        self.queues[index].intake.is_watched = false;
        match epoll::delete(&self.poll, &self.queues[index]) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => tracing::warn!("worker {}: cannot leave a queue: {error}", self.index.0),
        }
    }

    #[cold]
    fn do_errands(&mut self) -> Running {
        let mut count = [0; 8];
        // The errand queue below is read until it is empty, whatever the counter is.
        let _ = rustix::io::read(&*self.wake, &mut count);
        let mut budget = PACKET_OUT_BYTES;
        while let Ok(errand) = self.inbox.try_recv() {
            match errand {
                Errand::Stop => return Running::Ends,
                Errand::Sync(number) => self.sync(number),
                Errand::Frame { in_port, mut buf } => self.inject(in_port, &mut buf),
                Errand::AddPort { number, tx, queues } => self.add_port(number, *tx, queues),
                Errand::RemovePort(number, counters) => {
                    self.remove_port(number, counters.as_deref());
                }
                Errand::PacketOut { in_port, mut buf, actions, room } => {
                    self.packet_out(in_port, &mut buf, &actions);
                    drop(room);
                    budget = budget.saturating_sub(packet_out_weight(buf.len(), actions.len()));
                    if budget == 0 {
                        // Ports get a turn before the next errand.
                        bell::ring(&*self.wake);
                        break;
                    }
                }
            }
        }
        Running::GoesOn
    }

    fn add_port(&mut self, number: PortNo, tx: TxPort, queues: Vec<RxQueue>) {
        self.ports.insert(number, tx);
        for queue in queues {
            self.trials.push(GroTrial::new(queue.gro()));
            self.queues.push(queue);
            self.watch(self.queues.len() - 1);
        }
        self.note_queues();
    }

    /// Events already fetched may carry the index of a removed queue. The queue that has that index
    /// now is then read in vain, or is reported again.
    fn remove_port(&mut self, number: PortNo, counters: Option<&PortCounters>) {
        self.ports.remove(number);
        while let Some(index) = self.queues.iter().position(|queue| queue.port() == number) {
            self.forget(index);
            self.settle(index, counters);
            self.queues.swap_remove(index);
            self.trials.swap_remove(index);
            if let Some(moved) = self.queues.get(index).filter(|moved| moved.intake.is_watched) {
                let data = epoll::EventData::new_u64(index as u64);
                // It may have been deleted before, when its device went away.
                let _ = epoll::modify(&self.poll, moved, data, epoll::EventFlags::IN);
            }
        }
        self.note_queues();
    }

    /// Between bursts this worker has no frame in progress and all counters are up to date; the
    /// next burst loads new tables.
    fn sync(&mut self, number: u64) {
        self.publish_counters();
        self.counters().synced.store(number, Ordering::Release);
        self.shared.synced.notify_one();
    }

    fn packet_out(&mut self, in_port: PortNo, buf: &mut [u8], actions: &[Action]) {
        let (snapshot, macs): (Arc<Snapshot>, Arc<MacTable>) =
            (self.shared.snapshot.load_full(), self.shared.macs.load_full());
        let view = View { snapshot: &snapshot, macs: &macs, now: clock::coarse() };
        let arrival =
            Arrival { in_port, meta: NetHeader::PLAIN, buf, start: HEADROOM, beyond_len: 0 };
        self.ports.begin_burst(true, view.now);
        let mut egress = WorkerEgress::new(&mut self.ports, &self.shared);
        // The agent has checked the packet and its actions, but a group may have been deleted
        // since.
        if let Err(error) = self.forwarder.handle_packet_out(view, arrival, actions, &mut egress) {
            tracing::debug!("packet-out arrived too late: {error:?}");
        }
        // Controllers do not wait for full ports.
        self.ports.forgive_pressure();
        self.ports.end_burst();
        self.ports.cut_off_faulty();
    }

    /// Handles a frame as if it came in by a port, if that still exists.
    fn inject(&mut self, in_port: PortNo, buf: &mut [u8]) {
        let (snapshot, macs): (Arc<Snapshot>, Arc<MacTable>) =
            (self.shared.snapshot.load_full(), self.shared.macs.load_full());
        let view = View { snapshot: &snapshot, macs: &macs, now: clock::coarse() };
        let Some(port) = snapshot.ports.find(in_port) else { return };
        let arrival =
            Arrival { in_port, meta: NetHeader::PLAIN, buf, start: HEADROOM, beyond_len: 0 };
        let admitted = match &port.mode {
            Some(mode) => self.forwarder.admit(view, mode, arrival, None),
            None => Some(arrival),
        };
        self.ports.begin_burst(true, view.now);
        if let Some(arrival) = admitted {
            let mut egress = WorkerEgress::new(&mut self.ports, &self.shared);
            self.forwarder.handle_coalesced(view, arrival, None, &mut egress);
        }
        self.frames += 1;
        // No sender waits for full ports.
        self.ports.forgive_pressure();
        self.ports.end_burst();
        self.ports.cut_off_faulty();
        self.forwarder.end_burst(view.now);
    }

    fn counters(&self) -> &crate::shared::WorkerCounters {
        &self.shared.workers[self.index.0]
    }

    fn publish_counters(&self) {
        let CacheStats { exact_hits, masked_hits, walks, masked_count, injected } =
            self.forwarder.cache_stats();
        let counters = self.counters();
        let set = |counter: &AtomicU64, value| counter.store(value, Ordering::Relaxed);
        set(&counters.frames, self.frames);
        set(&counters.coalesced, self.coalesced);
        set(&counters.trains, self.trains);
        set(&counters.exact_hits, exact_hits);
        set(&counters.masked_hits, masked_hits);
        set(&counters.walks, walks);
        set(&counters.cached, masked_count as u64);
        set(&counters.injected, injected);
        set(&counters.bursts, self.bursts);
        set(&counters.wakeups, self.wakeups);
    }
}

/// The place of a frame of a batch in the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    meta: NetHeader,
    /// Where its headroom begins.
    begin: usize,
    /// Offset of the frame from `begin`.
    start: usize,
    /// Length of headroom and frame.
    len: usize,
}

/// Why a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchEnd {
    /// The batch is full; there may be more frames.
    Full,
    /// The queue is empty.
    Empty,
    /// The device is gone.
    Gone,
}

#[derive(PartialEq, Eq)]
enum Running {
    GoesOn,
    Ends,
}

/// Pins this thread to a core. A core that does not exist is ignored.
fn pin(core: usize) {
    if core >= CORE_COUNT_MAX {
        let last = CORE_COUNT_MAX - 1;
        return tracing::warn!("cannot pin a worker to core {core}: the last is {last}");
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!("cannot pin a worker to core {core}: {error}");
    }
}

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// The event data of the eventfd, which no queue's index equals.
const WAKE: u64 = u64::MAX;
/// Budget for packet-outs before the ports get a turn, in units of [`packet_out_weight`]: a
/// fraction of a millisecond, however much a controller sends.
const PACKET_OUT_BYTES: usize = 64 * 1024;
/// Frames that are read in one batch.
const BATCH_COUNT: usize = 16;
/// No further frame is read into a batch behind this many bytes, so that the batch is still in the
/// first-level cache when it is sent.
const BATCH_LEN: usize = 8 * 1024;
/// Frames of a batch share no cache line. Tunnels also receive at this alignment.
const CACHE_LINE: usize = SLOT_ALIGN;
/// Room for a batch, followed by the longest frame of a tap device with what is in front of it.
const BUF_LEN: usize = gro::BATCH_LEN + rx::START + tapswitch_tap::RECV_BUF_LEN;
const _: () = assert!(BATCH_LEN <= gro::BATCH_LEN && BATCH_COUNT <= gro::BATCH_COUNT);
const _: () = assert!(BUF_LEN + (HEADROOM + ITEM_LEN) * gro::BATCH_COUNT <= BATCH_ROOM);

#[cfg(test)]
mod tests;
