//! Adding ports to a running switch, and removing them.
//!
//! No worker waits for that: it receives the queues and the sending handle as an errand between two
//! bursts. A port is removed first from the tables, then from the workers, and its device is closed
//! when all workers have released it.

use std::sync::Arc;

use tapswitch_datapath::{DropReason, Millis, Port, PortCounters};

use tapswitch_netlink::Namespace;
use tapswitch_openflow::PortNo;
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::config::ConfigError;
use crate::device::Device;
use crate::guest::GuestNews;
use crate::interface::{self, InterfaceId};
use crate::links::{LinkNews, LinkWatch, MORE_THREADS, WatchError};
use crate::open_error::OpenPortError;
use crate::report::{BooksReport, STALLED};
use crate::rx::RxQueue;
use crate::server::{Server, Waiting};
use crate::switch::CHANNEL_LEN;
use crate::tx::Pacing;
use crate::worker::Errand;
use crate::{Handle, PortKind, PortSpec, Stopped};

/// The devices behind the ports, and the watches on them.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) devices: Vec<Device>,
    /// The queues that each worker reads, for reports.
    pub(crate) worker_queues: Vec<Vec<String>>,
    /// The namespaces of the ports' interfaces and tunnels, each once.
    watches: Vec<Watched>,
    /// Number of namespaces watched so far.
    watch_count: usize,
    /// Time of the next check of namespace names and tunnel routes; `None` while no port needs it.
    pub(crate) look_at: Option<Millis>,
    link_news: mpsc::Sender<LinkNews>,
    guest_news: mpsc::Sender<GuestNews>,
    file_news: mpsc::Sender<PortNo>,
    /// Number of ports added so far.
    count: usize,
    /// Counters of ports that are being removed.
    leaving: Vec<(PortNo, Arc<PortCounters>)>,
    /// Sums of the counters of removed ports.
    gone: BooksReport,
}

/// A namespace whose interfaces are watched.
#[derive(Debug)]
struct Watched {
    namespace: Namespace,
    /// Its number in notifications, which is never reused.
    number: usize,
    watch: LinkWatch,
}

/// The receivers of notifications about devices.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) links: mpsc::Receiver<LinkNews>,
    pub(crate) guests: mpsc::Receiver<GuestNews>,
    /// Ports whose file has opened or closed.
    pub(crate) files: mpsc::Receiver<PortNo>,
}

impl Ports {
    /// No ports, for this many workers, at least one; and the receivers of notifications.
    pub(crate) fn new(workers: usize) -> (Self, News) {
        let (link_news, links) = mpsc::channel(CHANNEL_LEN);
        let (guest_news, guests) = mpsc::channel(CHANNEL_LEN);
        let (file_news, files) = mpsc::channel(CHANNEL_LEN);
        let ports = Self {
            devices: Vec::new(),
            worker_queues: vec![Vec::new(); workers.max(1)],
            watches: Vec::new(),
            watch_count: 0,
            look_at: None,
            link_news,
            guest_news,
            file_news,
            count: 0,
            leaving: Vec::new(),
            gone: BooksReport::default(),
        };
        (ports, News { links, guests, files })
    }

    /// The device of the port with this number.
    pub(crate) fn find_mut(&mut self, number: PortNo) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.spec.number == number)
    }

    /// Logs a stalled port. Each worker reports it separately, and a port that takes a frame now
    /// and then stalls repeatedly.
    pub(crate) fn note_stall(&mut self, number: PortNo) {
        let Some(device) = self.find_mut(number) else { return };
        let text = format!(
            "port {}: it accepts no frames, or too few, and senders no longer wait for it: frames \
             for it are dropped as {} until its queue is empty; {STALLED}",
            device.spec,
            DropReason::EgressStalled.name()
        );
        if device.stalls.take() {
            tracing::warn!("{text}");
        } else {
            tracing::debug!("{text}");
        }
    }

    /// Whether a port does not conflict with the others.
    fn check(&self, spec: &PortSpec) -> Result<(), ConfigError> {
        let number = spec.number;
        if let Some(taken) = self.devices.iter().find(|device| device.spec.number == number) {
            let other = taken.spec.to_string();
            return Err(ConfigError::NumberTaken { number, other });
        }
        let id = InterfaceId::find(spec);
        self.devices.iter().try_for_each(|device| check_beside(spec, id, device))
    }

    /// Watches the namespace of a device's interface or tunnel, and records the watch's number in
    /// it.
    fn watch(&mut self, device: &mut Device) -> Result<(), WatchError> {
        let Some((namespace, _)) = device.watched() else { return Ok(()) };
        // Compared by identity, as the name may refer to another namespace by now.
        let is_it = |watched: &&Watched| watched.namespace.is_same(namespace).unwrap_or(false);
        if let Some(known) = self.watches.iter().find(is_it) {
            device.note_watch(known.number);
            return Ok(());
        }
        let (number, namespace) = (self.watch_count, namespace.clone());
        let watch =
            LinkWatch::start(std::slice::from_ref(&namespace), number, self.link_news.clone())?;
        self.watches.push(Watched { namespace, number, watch });
        self.watch_count += 1;
        device.note_watch(number);
        Ok(())
    }

    /// Ends watches on namespaces without interfaces or tunnels of ports: a watch keeps a namespace
    /// alive, even a deleted one.
    pub(crate) fn watch_less(&mut self) {
        let devices = &self.devices;
        let is_used = |number| {
            let mut watched = devices.iter().filter_map(Device::watched);
            watched.any(|(_, its)| its == number)
        };
        for unused in self.watches.extract_if(.., |watched| !is_used(watched.number)) {
            unused.watch.end();
        }
    }

    /// Assigns queues to workers. Queue *i* of a multi-queue tap or tun device goes to worker *i*,
    /// so that both directions of a flow, which use the same queue index, are processed by one
    /// worker. Other ports start at different workers in turn: those with one queue (a tun port's
    /// queue for its own answers does not count), and guests, most of which use only their first
    /// pair.
    fn share(&mut self, device: &Device) -> Vec<Vec<RxQueue>> {
        let queues = device.rx_queues();
        let workers = self.worker_queues.len();
        let is_steered = match device.spec.kind {
            PortKind::Tap { queues, .. } | PortKind::Tun { queues, .. } => queues.get() > 1,
            _ => false,
        };
        let first = if is_steered { 0 } else { self.count };
        self.count += 1;
        let mut shares: Vec<Vec<RxQueue>> = (0..workers).map(|_| Vec::new()).collect();
        for (index, queue) in queues.into_iter().enumerate() {
            let worker = (first + index) % workers;
            self.worker_queues[worker].push(queue.label());
            shares[worker].push(queue);
        }
        shares
    }

    /// The counters of ports that no longer exist.
    pub(crate) fn retired(&self) -> BooksReport {
        let mut books = self.gone;
        self.leaving.iter().for_each(|(_, counters)| books.add(counters));
        books
    }

    /// The workers have released a removed port, so its counters are final.
    pub(crate) fn retire(&mut self, number: PortNo) {
        let is_it = |(leaving, _): &(PortNo, _)| *leaving == number;
        if let Some(position) = self.leaving.iter().position(is_it) {
            let (_, counters) = self.leaving.remove(position);
            self.gone.add(&counters);
        }
    }

    /// Ends the files, when no worker sends to them any more: the data that they took is written,
    /// to all of them at once, or dropped by name.
    pub(crate) fn end_files(&mut self) {
        let files = self.devices.iter_mut().filter_map(Device::recorder_mut);
        files.for_each(|file| file.close());
        self.devices.retain_mut(|device| device.recorder_mut().is_none());
    }

    /// Removes a device.
    fn remove(&mut self, number: PortNo) -> Option<Device> {
        let position = self.devices.iter().position(|device| device.spec.number == number)?;
        let device = self.devices.remove(position);
        self.unread(&device);
        self.watch_less();
        Some(device)
    }

    /// Removes this device's queues from the workers' lists.
    pub(crate) fn unread(&mut self, device: &Device) {
        let labels: Vec<_> = device.rx_queues().iter().map(RxQueue::label).collect();
        for queues in &mut self.worker_queues {
            queues.retain(|queue| !labels.contains(queue));
        }
    }
}

/// Whether a port conflicts with `device`: in number, interface, socket or tunnel. The kernel
/// decides whether two interfaces or namespaces are the same, before one is opened, as opening
/// changes it. `id` is the interface of `spec`, if it exists.
fn check_beside(
    spec: &PortSpec,
    id: Option<InterfaceId>,
    device: &Device,
) -> Result<(), ConfigError> {
    spec.check_number(&device.spec)?;
    let interface = match device.interface() {
        Some(interface) if spec.kind.is_interface() => interface,
        // The device it had may exist again.
        _ if device.has_let_go() => return Ok(()),
        _ if is_same_tunnel(spec, device) => return Err(spec.twice(&device.spec)),
        _ => return spec.check_beside(&device.spec),
    };
    if id.is_none() || id != interface.id() { Ok(()) } else { Err(spec.twice(&device.spec)) }
}

/// Whether a port and `device` are one tunnel. The kernel gives each packet of GRE to both.
fn is_same_tunnel(spec: &PortSpec, device: &Device) -> bool {
    let Some((theirs, _)) = device.watched().filter(|_| spec.is_same_tunnel(&device.spec)) else {
        return false;
    };
    interface::namespace(spec).is_ok_and(|ours| ours.is_same(theirs).unwrap_or(false))
}

/// Why a port was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddPortError {
    /// It conflicts with another one.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenPortError),
    /// Its interface cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The kernel refuses a thread for a guest or a file.
    #[error("cannot start a thread for a guest or a file: {0}; {remedy}", remedy = MORE_THREADS)]
    Thread(#[from] std::io::Error),
    /// The switch has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a port was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemovePortError {
    /// There is no such port.
    #[error("there is no port {0}; `tapswitch show ports` lists the ports")]
    NotFound(PortNo),
    /// The switch has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A change of the set of ports.
#[derive(Debug)]
pub(crate) enum PortChange {
    Add(Box<PortSpec>, oneshot::Sender<Result<(), AddPortError>>),
    Remove(PortNo, oneshot::Sender<Result<(), RemovePortError>>),
}

impl Handle {
    /// Adds a port. If it conflicts with a port that is being removed, it is added after that.
    ///
    /// # Errors
    /// [`AddPortError`]; the switch is then unchanged.
    pub async fn add_port(&self, spec: PortSpec) -> Result<(), AddPortError> {
        self.change(|answer| PortChange::Add(Box::new(spec), answer)).await?
    }

    /// Removes a port, and what the switch created for it. When this returns, no worker uses the
    /// port any more. Rules that name it remain, and drop.
    ///
    /// # Errors
    /// [`RemovePortError`].
    pub async fn remove_port(&self, number: PortNo) -> Result<(), RemovePortError> {
        self.change(|answer| PortChange::Remove(number, answer)).await?
    }
}

impl Server {
    /// Adds a port, or changes nothing.
    pub(crate) fn add_port(&mut self, spec: &PortSpec) -> Result<(), AddPortError> {
        self.ports.check(spec)?;
        let mut device = Device::open(spec)?;
        self.ports.watch(&mut device)?;
        if let Some(guest) = device.guest_mut() {
            guest.start(self.ports.guest_news.clone())?;
        }
        let shares = self.ports.share(&device);
        let port = Port { created: clock::coarse(), ..device.port(self.workers.len() + 1) };
        if let Some(recorder) = device.recorder_mut() {
            recorder.start(self.ports.file_news.clone(), port.counters.clone())?;
        }
        let event = self.agent.handle_port(port);
        self.publish();
        self.notify(&event);
        self.hand_over(&device, shares);
        self.ports.follow(&device);
        self.ports.devices.push(device);
        Ok(())
    }

    /// Gives the receivers and the transmit side of a device to the workers, if it has them yet.
    fn hand_over(&self, device: &Device, shares: Vec<Vec<RxQueue>>) {
        let number = device.spec.number;
        let pacing = Arc::new(Pacing::of_rings(device.spec.ring_count()));
        for (index, (worker, queues)) in self.workers.iter().zip(shares).enumerate() {
            let Some(tx) = device.tx_port(index, self.workers.len()) else { continue };
            let tx = Box::new(tx.with_pacing(pacing.clone()));
            if index == 0 {
                tx.begin();
            }
            worker.send(Errand::AddPort { number, tx, queues });
        }
    }

    /// Gives the workers the device of an existing port, which was opened late.
    pub(crate) fn begin_port(&mut self, number: PortNo) {
        let devices = &self.ports.devices;
        let Some(at) = devices.iter().position(|it| it.spec.number == number) else { return };
        let device = self.ports.devices.remove(at);
        let shares = self.ports.share(&device);
        self.hand_over(&device, shares);
        self.ports.devices.insert(at, device);
    }

    /// Starts a change; it is answered when the workers have seen it.
    pub(crate) fn change_ports(&mut self, change: PortChange) {
        if matches!(change, PortChange::Add(..)) {
            self.follow_names();
        }
        match change {
            // Workers' last counts for the old port would be added to the new one, and the
            // interface or socket is not free yet.
            PortChange::Add(spec, answer) if self.is_leaving(&spec) => {
                self.wait_for_workers(Waiting::Change(PortChange::Add(spec, answer)));
            }
            PortChange::Add(spec, answer) => {
                // A receiver that is gone is ignored, here and below.
                let _ = answer.send(self.add_port(&spec));
            }
            PortChange::Remove(number, answer) => match self.ports.remove(number) {
                Some(device) => {
                    self.forget_port(number);
                    self.wait_for_workers(Waiting::Removed(Box::new(device), answer));
                }
                None => drop(answer.send(Err(RemovePortError::NotFound(number)))),
            },
        }
    }

    /// Whether `spec` conflicts with a port that is being removed.
    fn is_leaving(&self, spec: &PortSpec) -> bool {
        let mut leaving = self.barriers.leaving().peekable();
        // Usually there is none, and the kernel need not be asked.
        if leaving.peek().is_none() {
            return false;
        }
        let id = InterfaceId::find(spec);
        leaving.any(|device| check_beside(spec, id, device).is_err())
    }

    fn forget_port(&mut self, number: PortNo) {
        let port = self.agent.pipeline().snapshot().ports.find(number);
        let counters = port.map(|port| port.counters.clone());
        self.ports.leaving.extend(counters.clone().map(|counters| (number, counters)));
        let event = self.agent.handle_port_removed(number);
        self.publish();
        event.iter().for_each(|event| self.notify(event));
        for worker in &self.workers {
            worker.send(Errand::RemovePort(number, counters.clone()));
        }
    }
}
