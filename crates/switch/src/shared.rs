//! What the agent and the workers share: versions of the tables one way, reports the other way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::credits::{Credit, Credits};
use crate::fate::PacketFate;
use crate::pauses::Pauses;
use arc_swap::ArcSwap;
use tapswitch_datapath::{DropReason, MacTable, PacketInOrigin, Sighting, Snapshot};
use tapswitch_openflow::PortNo;
use tokio::sync::{Notify, mpsc};

/// Everything that crosses the line between agent and workers, but for errands.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The tables, groups and ports in force.
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// The MAC table in force.
    pub(crate) macs: ArcSwap<MacTable>,
    /// True while somebody listens to packet-ins.
    pub(crate) has_controller: AtomicBool,
    /// Wakes the agent after a worker has done a [`Errand::Sync`](crate::worker::Errand::Sync).
    pub(crate) synced: Notify,
    /// Wakes the agent when a worker's thread has ended.
    pub(crate) worker_ended: Notify,
    /// One for each worker.
    pub(crate) workers: Box<[WorkerCounters]>,
    /// Who waits for whom.
    pub(crate) pauses: Pauses,
    /// Room for reports, and for the packets among them until all connections have them.
    pub(crate) credits: Arc<Credits>,
    reports: mpsc::Sender<Report>,
}

/// What a worker tells the agent.
#[derive(Debug)]
pub(crate) enum Report {
    /// A frame for the controller, as it would be on the wire.
    PacketIn {
        /// Why and where.
        origin: PacketInOrigin,
        /// Length of the whole frame in bytes.
        total_len: usize,
        /// As much of it as was asked for.
        data: Vec<u8>,
        /// What becomes of it.
        fate: Arc<PacketFate>,
    },
    /// A port took nothing for longer than others wait for it.
    Stalled(PortNo),
    /// A station in a place that the MAC table does not know.
    Sighting(Sighting, Credit),
}

/// One worker's own counters; it alone writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct WorkerCounters {
    /// Frames handled.
    pub(crate) frames: AtomicU64,
    /// Bursts in which they were read.
    pub(crate) bursts: AtomicU64,
    /// Times that the worker asked the kernel what is ready.
    pub(crate) wakeups: AtomicU64,
    /// Frames that were made into trains.
    pub(crate) coalesced: AtomicU64,
    /// Trains that were made of them.
    pub(crate) trains: AtomicU64,
    /// Programs found by exact key.
    pub(crate) exact_hits: AtomicU64,
    /// Programs found by masked key.
    pub(crate) masked_hits: AtomicU64,
    /// Walks through the tables.
    pub(crate) walks: AtomicU64,
    /// Programs remembered by masked key.
    pub(crate) cached: AtomicU64,
    /// Ends of packets of the controllers'.
    pub(crate) injected: AtomicU64,
    /// Number of the last sync that was done.
    pub(crate) synced: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        snapshot: Arc<Snapshot>,
        macs: Arc<MacTable>,
        workers: usize,
    ) -> (Arc<Self>, mpsc::Receiver<Report>) {
        let (reports, receiver) = mpsc::channel(REPORT_QUEUE_LEN);
        let shared = Self {
            snapshot: ArcSwap::new(snapshot),
            macs: ArcSwap::new(macs),
            has_controller: AtomicBool::new(false),
            synced: Notify::new(),
            worker_ended: Notify::new(),
            workers: (0..workers).map(|_| WorkerCounters::default()).collect(),
            pauses: Pauses::default(),
            credits: Credits::new(REPORT_QUEUE_LEN),
            reports,
        };
        (Arc::new(shared), receiver)
    }

    /// Tells the agent. Never waits: a full queue refuses.
    pub(crate) fn report(&self, report: Report) -> Result<(), DropReason> {
        self.reports.try_send(report).map_err(|_| DropReason::ControllerQueueFull)
    }

    /// True when all workers have done the sync of this number.
    pub(crate) fn is_synced(&self, number: u64) -> bool {
        self.workers.iter().all(|worker| worker.synced.load(Ordering::Acquire) >= number)
    }
}

/// Reports that may wait for the agent, packets also behind it. Bounds what a flood of new flows
/// can hold in memory: at most 64 KiB each.
const REPORT_QUEUE_LEN: usize = 1024;
