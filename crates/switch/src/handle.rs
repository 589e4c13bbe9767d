//! Queries to a running switch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tapswitch_datapath::Port;
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::inquiry::Inquiry;
use crate::ports::PortChange;
use crate::report::{
    self, BooksReport, ControllerReport, DropReport, FlowReport, GroupReport, MeterReport,
    OversizeReport, PortReport, PressureReport, RING_FULL, SwitchReport, TapReport, TunnelReport,
    WorkerReport,
};
use crate::server::Server;
use crate::shared::WorkerCounters;

/// A handle for queries to a running switch. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    queries: mpsc::Sender<Query>,
}

/// A query, with the channel for its answer.
#[derive(Debug)]
pub(crate) enum Query {
    Switch(oneshot::Sender<SwitchReport>),
    Ports(oneshot::Sender<Vec<PortReport>>),
    Flows(oneshot::Sender<Vec<FlowReport>>),
    Groups(oneshot::Sender<Vec<GroupReport>>),
    Meters(oneshot::Sender<Vec<MeterReport>>),
    Taps(oneshot::Sender<Vec<TapReport>>),
    Workers(oneshot::Sender<Vec<WorkerReport>>),
    Drops(oneshot::Sender<Vec<DropReport>>),
    /// Not a query but a request to change ports.
    Change(PortChange),
}

/// The switch has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the switch has stopped")]
pub struct Stopped;

impl Handle {
    pub(crate) fn new(queries: mpsc::Sender<Query>) -> Self {
        Self { queries }
    }

    /// The switch as a whole.
    ///
    /// # Errors
    /// [`Stopped`], as for all other queries.
    pub async fn switch(&self) -> Result<SwitchReport, Stopped> {
        self.ask(Query::Switch).await
    }

    /// All ports with their counters.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn ports(&self) -> Result<Vec<PortReport>, Stopped> {
        self.ask(Query::Ports).await
    }

    /// All rules, by table and priority.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn flows(&self) -> Result<Vec<FlowReport>, Stopped> {
        self.ask(Query::Flows).await
    }

    /// All groups.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn groups(&self) -> Result<Vec<GroupReport>, Stopped> {
        self.ask(Query::Groups).await
    }

    /// All meters.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn meters(&self) -> Result<Vec<MeterReport>, Stopped> {
        self.ask(Query::Meters).await
    }

    /// The ledgers of the groups that make copies.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn taps(&self) -> Result<Vec<TapReport>, Stopped> {
        self.ask(Query::Taps).await
    }

    /// All workers.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn workers(&self) -> Result<Vec<WorkerReport>, Stopped> {
        self.ask(Query::Workers).await
    }

    /// All drops that have occurred, by port and reason.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn drops(&self) -> Result<Vec<DropReport>, Stopped> {
        self.ask(Query::Drops).await
    }

    pub(crate) async fn change<T>(
        &self,
        change: impl FnOnce(oneshot::Sender<T>) -> PortChange,
    ) -> Result<T, Stopped> {
        self.ask(|answer| Query::Change(change(answer))).await
    }

    async fn ask<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        self.queries.send(query(answer)).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }
}

impl Server {
    /// Answers a query. A receiver that is gone is ignored.
    pub(crate) fn answer(&self, query: Query) {
        let snapshot = self.agent.pipeline().snapshot();
        match query {
            Query::Switch(answer) => drop(answer.send(self.switch_report())),
            Query::Ports(answer) => drop(answer.send(self.port_reports())),
            Query::Flows(answer) => drop(answer.send(report::flows(snapshot, clock::coarse()))),
            Query::Groups(answer) => drop(answer.send(report::groups(snapshot))),
            Query::Meters(answer) => {
                drop(answer.send(report::meters(self.agent.pipeline(), clock::coarse())));
            }
            Query::Taps(answer) => drop(answer.send(report::taps(snapshot, self.workers.len()))),
            Query::Workers(answer) => drop(answer.send(self.worker_reports())),
            Query::Drops(answer) => drop(answer.send(self.drop_reports())),
            // Done by the server itself.
            Query::Change(_) => {}
        }
    }

    fn switch_report(&self) -> SwitchReport {
        let controller = |endpoint: &crate::Endpoint| ControllerReport {
            endpoint: endpoint.to_string(),
            connected: self
                .peers
                .values()
                .any(|peer| peer.is_ready && peer.controller == Some(*endpoint)),
        };
        SwitchReport {
            name: self.agent.identity().name.clone(),
            datapath_id: self.agent.identity().datapath_id,
            fail_mode: self.fail_mode.to_string(),
            standalone: self.agent.pipeline().snapshot().standalone,
            controllers: self.controllers.iter().map(controller).collect(),
            stations: self.agent.macs().table().count(),
            books: self.books(),
        }
    }

    pub(crate) fn books(&self) -> BooksReport {
        let mut books = self.ports.retired();
        let ports = self.agent.pipeline().snapshot().ports.iter();
        ports.for_each(|port| books.add(&port.counters));
        let injected = |worker: &WorkerCounters| worker.injected.load(Ordering::Relaxed);
        books.injected = self.shared.workers.iter().map(injected).sum();
        books
    }

    fn port_reports(&self) -> Vec<PortReport> {
        // A copy, so that a worker that pauses a queue does not wait for the kernel queries below.
        let accounts = self.shared.pauses.accounts().clone();
        let snapshot = self.agent.pipeline().snapshot();
        let mut inquiry = Inquiry::default();
        let report = |device: &crate::device::Device| {
            let port = snapshot.ports.find(device.spec.number)?;
            let (ring, tunnel) = (device.ring(&mut inquiry), device.tunnel_report());
            let ring_full =
                ring.as_ref().map_or_else(|| device.ring_drops(), |ring| ring.ring_full);
            Some(PortReport {
                port: port.number.to_string(),
                name: port.name.clone(),
                kind: device.kind().to_owned(),
                netns: device.spec.netns.clone(),
                mac: port.hw_addr.to_string(),
                state: if device.is_gone() { "gone" } else { report::port_state(port) }.to_owned(),
                mtu: port.mtu,
                envelope: envelope(port, tunnel.as_ref()),
                mode: device.spec.mode_text(),
                oversize: OversizeReport::of(port, &device.spec),
                steered: device.steered(),
                queues: device.spec.queues().get(),
                offloads: device.offloads(),
                guest: device.guest_report(),
                queueing: device.queueing(&mut inquiry),
                tunnel,
                file: device.file_report(),
                rx: port.counters.rx().into(),
                tx: port.counters.tx().into(),
                drops: with_ring(report::drops(port.counters.drops()), ring_full),
                consumed: port.counters.consumed(),
                pressure: PressureReport::of(port.number, &port.counters, &accounts),
                ring,
            })
        };
        // They are stored in the order in which they were added.
        let mut devices: Vec<_> = self.ports.devices.iter().collect();
        devices.sort_unstable_by_key(|device| device.spec.number);
        devices.into_iter().filter_map(report).collect()
    }

    fn drop_reports(&self) -> Vec<DropReport> {
        let of_port = |port: PortReport| {
            let report = |(reason, count): (&String, &u64)| DropReport {
                port: port.port.clone(),
                name: port.name.clone(),
                reason: reason.clone(),
                count: *count,
                remedy: port.remedy(reason),
            };
            port.drops.iter().map(report).collect::<Vec<_>>()
        };
        self.port_reports().into_iter().flat_map(of_port).collect()
    }

    fn worker_reports(&self) -> Vec<WorkerReport> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let numbered = self.shared.workers.iter().zip(&self.ports.worker_queues).enumerate();
        let report = |(worker, (counters, queues)): (_, (&WorkerCounters, _))| WorkerReport {
            worker,
            queues: Vec::clone(queues),
            frames: read(&counters.frames),
            bursts: read(&counters.bursts),
            wakeups: read(&counters.wakeups),
            coalesced: read(&counters.coalesced),
            trains: read(&counters.trains),
            exact_hits: read(&counters.exact_hits),
            masked_hits: read(&counters.masked_hits),
            walks: read(&counters.walks),
            cached: read(&counters.cached),
        };
        numbered.map(report).collect()
    }
}

/// Limit of tags on a frame with a payload of the port's MTU.
fn envelope(port: &Port, tunnel: Option<&TunnelReport>) -> u16 {
    let room = tunnel.and_then(|tunnel| tunnel.room_beside(port.mtu));
    let room = room.map_or(u16::MAX, |room| u16::try_from(room).unwrap_or(u16::MAX));
    port.full_size_envelope().min(room)
}

/// Adds the frames that the kernel lost before the switch could read them, under a separate name.
fn with_ring(mut drops: BTreeMap<String, u64>, ring_drops: u64) -> BTreeMap<String, u64> {
    if ring_drops > 0 {
        drops.insert(RING_FULL.to_owned(), ring_drops);
    }
    drops
}
