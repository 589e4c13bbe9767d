//! State shared by the agent and the workers: tables from the agent, reports from the workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::credits::{Credit, Credits};
use crate::fate::PacketFate;
use crate::pauses::Pauses;
use arc_swap::ArcSwap;
use tapswitch_datapath::{DropReason, MacTable, PacketInOrigin, Sighting, Snapshot};
use tapswitch_openflow::PortNo;
use tokio::sync::{Notify, mpsc};

/// All shared state except errands.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The current tables, groups and ports.
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// The current MAC table.
    pub(crate) macs: ArcSwap<MacTable>,
    /// True while some controller wants packet-ins.
    pub(crate) has_controller: AtomicBool,
    /// True while the start of each packet suffices for all that want packet-ins.
    pub(crate) starts_suffice: AtomicBool,
    /// Wakes the agent after a worker has done a [`Errand::Sync`](crate::worker::Errand::Sync).
    pub(crate) synced: Notify,
    /// Wakes the agent when a worker's thread has ended.
    pub(crate) worker_ended: Notify,
    /// One for each worker.
    pub(crate) workers: Box<[WorkerCounters]>,
    /// Who waits for which port.
    pub(crate) pauses: Pauses,
    /// Space for reports, and for packet-ins until all connections have taken them.
    pub(crate) credits: Arc<Credits>,
    reports: mpsc::Sender<Report>,
}

/// A report from a worker to the agent.
#[derive(Debug)]
pub(crate) enum Report {
    /// A packet for the controllers, as it would be on the wire.
    PacketIn {
        /// The reason, table and port.
        origin: PacketInOrigin,
        /// Length of the whole frame in bytes.
        total_len: usize,
        /// All of it, or the part that suffices.
        data: Vec<u8>,
        /// Whether it is cut, or one of several, for controllers that only look.
        is_start: bool,
        /// The outcome to report.
        fate: Arc<PacketFate>,
    },
    /// A port has stalled.
    Stalled(PortNo),
    /// A station that is not in the MAC table at this port.
    Sighting(Sighting, Credit),
}

/// The counters of one worker, written by it alone.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct WorkerCounters {
    /// Frames processed.
    pub(crate) frames: AtomicU64,
    /// Bursts in which they were read.
    pub(crate) bursts: AtomicU64,
    /// Waits in the kernel without a timeout.
    pub(crate) wakeups: AtomicU64,
    /// Frames that were coalesced into trains.
    pub(crate) coalesced: AtomicU64,
    /// Trains made of them.
    pub(crate) trains: AtomicU64,
    /// Programs found by exact key.
    pub(crate) exact_hits: AtomicU64,
    /// Programs found by masked key.
    pub(crate) masked_hits: AtomicU64,
    /// Walks through the tables.
    pub(crate) walks: AtomicU64,
    /// Programs cached by masked key.
    pub(crate) cached: AtomicU64,
    /// Outcomes of controllers' packets.
    pub(crate) injected: AtomicU64,
    /// Number of the last completed sync.
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
            starts_suffice: AtomicBool::new(false),
            synced: Notify::new(),
            worker_ended: Notify::new(),
            workers: (0..workers).map(|_| WorkerCounters::default()).collect(),
            pauses: Pauses::default(),
            credits: Credits::new(REPORT_QUEUE_LEN),
            reports,
        };
        (Arc::new(shared), receiver)
    }

    /// Sends a report to the agent. Never blocks: a full queue refuses.
    pub(crate) fn report(&self, report: Report) -> Result<(), DropReason> {
        self.reports.try_send(report).map_err(|_| DropReason::ControllerQueueFull)
    }

    /// True if all workers have completed the sync with this number.
    pub(crate) fn is_synced(&self, number: u64) -> bool {
        self.workers.iter().all(|worker| worker.synced.load(Ordering::Acquire) >= number)
    }
}

/// Limit of reports that wait for the agent or, for packets, behind it. It bounds the memory that a
/// flood of new flows can take: at most 64 KiB each.
const REPORT_QUEUE_LEN: usize = 1024;
