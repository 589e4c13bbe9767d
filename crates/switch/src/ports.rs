//! Adding ports to a running switch, and taking them away.
//!
//! No worker waits for that: it is handed what it has to read and to send by, like any errand,
//! between two bursts. A port that goes is first gone from the tables, then from the workers, and
//! its device is closed when all of them have let go of it.

use std::sync::Arc;

use tapswitch_datapath::{DropReason, Millis, Port, PortCounters};

use tapswitch_netlink::Namespace;
use tapswitch_openflow::PortNo;
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::config::ConfigError;
use crate::device::Device;
use crate::guest::GuestNews;
use crate::interface::InterfaceId;
use crate::links::{LinkNews, LinkWatch, WatchError};
use crate::open_error::OpenPortError;
use crate::report::{BooksReport, STALLED};
use crate::rx::RxQueue;
use crate::server::{Server, Waiting};
use crate::switch::CHANNEL_LEN;
use crate::tx::Pacing;
use crate::worker::Errand;
use crate::{Handle, PortKind, PortSpec, Stopped};

/// The devices behind the ports, and who watches them.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) devices: Vec<Device>,
    /// What each worker reads, for reports.
    pub(crate) worker_queues: Vec<Vec<String>>,
    /// The namespaces that interfaces and tunnels of ports are in, each once.
    watches: Vec<Watched>,
    /// Namespaces that were watched so far.
    watch_count: usize,
    /// When to look next where the names of namespaces lead, and whether ways lead to the other
    /// ends of tunnels; `None` while no port has one.
    pub(crate) look_at: Option<Millis>,
    link_news: mpsc::Sender<LinkNews>,
    guest_news: mpsc::Sender<GuestNews>,
    file_news: mpsc::Sender<PortNo>,
    /// Ports that were added so far.
    count: usize,
    /// Counters of ports that are being taken away.
    leaving: Vec<(PortNo, Arc<PortCounters>)>,
    /// What those have counted that are gone.
    gone: BooksReport,
}

/// A namespace whose interfaces are watched.
#[derive(Debug)]
struct Watched {
    namespace: Namespace,
    /// What it is called in news; no other one ever is.
    number: usize,
    watch: LinkWatch,
}

/// Where news of what is behind the ports comes.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) links: mpsc::Receiver<LinkNews>,
    pub(crate) guests: mpsc::Receiver<GuestNews>,
    /// Ports that a file opened or closed.
    pub(crate) files: mpsc::Receiver<PortNo>,
}

impl Ports {
    /// None yet, for this many workers, one at least; and where news of them will come.
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

    /// The device behind the port of this number.
    pub(crate) fn find_mut(&mut self, number: PortNo) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.spec.number == number)
    }

    /// Tells of a port that others wait for no more. Each worker notices for itself, and a port
    /// that takes a little now and then stalls again and again.
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

    /// Whether a port can be beside all that are there.
    fn check(&self, spec: &PortSpec) -> Result<(), ConfigError> {
        let number = spec.number;
        if let Some(taken) = self.devices.iter().find(|device| device.spec.number == number) {
            let other = taken.spec.to_string();
            return Err(ConfigError::NumberTaken { number, other });
        }
        let id = InterfaceId::find(spec);
        self.devices.iter().try_for_each(|device| check_beside(spec, id, device))
    }

    /// Sees to it that changes of the interface, or of those beside a tunnel, are told, and that it
    /// is known by where it is.
    fn watch(&mut self, device: &mut Device) -> Result<(), WatchError> {
        let Some((namespace, _)) = device.watched() else { return Ok(()) };
        // Not by its name, which may be another one's by now.
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

    /// Forgets namespaces where no interface or tunnel of a port is any more: who watches one keeps
    /// it there, even if it was deleted.
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

    /// Which worker reads what: queue *i* of a tap or tun device with several goes to worker *i*,
    /// so that both directions of a flow, which keep to one queue number, meet on one worker. Other
    /// ports take turns with their first queue: those with one, whatever a tun port has beside it
    /// for its own answers, and guests, most of whom use but the first pair of those they may.
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

    /// What ports have counted that are not there any more.
    pub(crate) fn retired(&self) -> BooksReport {
        let mut books = self.gone;
        self.leaving.iter().for_each(|(_, counters)| books.add(counters));
        books
    }

    /// The workers have let go of a port that was taken away: what it has counted is final.
    pub(crate) fn retire(&mut self, number: PortNo) {
        let is_it = |(leaving, _): &(PortNo, _)| *leaving == number;
        if let Some(position) = self.leaving.iter().position(is_it) {
            let (_, counters) = self.leaving.remove(position);
            self.gone.add(&counters);
        }
    }

    /// Ends the files, when no worker sends to them any more: what was taken is written, all of
    /// them at once, or dropped by name.
    pub(crate) fn end_files(&mut self) {
        let files = self.devices.iter_mut().filter_map(Device::recorder_mut);
        files.for_each(|file| file.close());
        self.devices.retain_mut(|device| device.recorder_mut().is_none());
    }

    /// Takes a device out.
    fn remove(&mut self, number: PortNo) -> Option<Device> {
        let position = self.devices.iter().position(|device| device.spec.number == number)?;
        let device = self.devices.remove(position);
        self.unread(&device);
        self.watch_less();
        Some(device)
    }

    /// No worker reads this device any more.
    pub(crate) fn unread(&mut self, device: &Device) {
        let labels: Vec<_> = device.rx_queues().iter().map(RxQueue::label).collect();
        for queues in &mut self.worker_queues {
            queues.retain(|queue| !labels.contains(queue));
        }
    }
}

/// Whether a port can be beside `device`: that it has not its number, its interface or its socket.
/// Of interfaces the kernel knows which are the same, and before one is opened, as whoever opens
/// one changes it: that of `spec` is `id`, if it is there.
fn check_beside(
    spec: &PortSpec,
    id: Option<InterfaceId>,
    device: &Device,
) -> Result<(), ConfigError> {
    spec.check_number(&device.spec)?;
    let interface = match device.interface() {
        Some(interface) if spec.kind.is_interface() => interface,
        // What it was may be there again.
        _ if device.has_let_go() => return Ok(()),
        _ => return spec.check_beside(&device.spec),
    };
    if id.is_none() || id != interface.id() {
        return Ok(());
    }
    let (port, other) = (spec.to_string(), device.spec.to_string());
    Err(ConfigError::InterfaceTwice { port, other })
}

/// Why a port was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddPortError {
    /// It contradicts another one.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenPortError),
    /// Nobody would hear of changes of its interface.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The kernel gives no thread for a guest or a file.
    #[error("cannot start a thread for a guest or a file: {0}")]
    Thread(#[from] std::io::Error),
    /// The switch has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a port was not taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemovePortError {
    /// There is none.
    #[error("there is no port {0}; `tapswitch show ports` lists the ports")]
    NotFound(PortNo),
    /// The switch has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What is to become of the ports.
#[derive(Debug)]
pub(crate) enum PortChange {
    Add(Box<PortSpec>, oneshot::Sender<Result<(), AddPortError>>),
    Remove(PortNo, oneshot::Sender<Result<(), RemovePortError>>),
}

impl Handle {
    /// Adds a port. In the place of one that is being taken away it comes when that is gone.
    ///
    /// # Errors
    /// [`AddPortError`]; the switch is as it was then.
    pub async fn add_port(&self, spec: PortSpec) -> Result<(), AddPortError> {
        self.change(|answer| PortChange::Add(Box::new(spec), answer)).await?
    }

    /// Takes a port away, and with it what the switch made for it. When this is done, no worker has
    /// it any more. Rules that name it stay, and drop.
    ///
    /// # Errors
    /// [`RemovePortError`].
    pub async fn remove_port(&self, number: PortNo) -> Result<(), RemovePortError> {
        self.change(|answer| PortChange::Remove(number, answer)).await?
    }
}

impl Server {
    /// Adds a port. When it cannot be, everything is as it was.
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
        let pacing = Arc::new(Pacing::of_rings(spec.ring_count()));
        for (index, (worker, queues)) in self.workers.iter().zip(shares).enumerate() {
            let Some(tx) = device.tx_port(index, self.workers.len()) else { continue };
            let tx = Box::new(tx.with_pacing(pacing.clone()));
            if index == 0 {
                tx.begin();
            }
            worker.send(Errand::AddPort { number: spec.number, tx, queues });
        }
        self.ports.follow(&device);
        self.ports.devices.push(device);
        Ok(())
    }

    /// Carries out a change, and answers when the workers have seen it.
    pub(crate) fn change_ports(&mut self, change: PortChange) {
        if matches!(change, PortChange::Add(..)) {
            self.follow_names();
        }
        match change {
            // Whatever workers still count for the old one at its number would go to the new one,
            // and its interface or socket is not free yet.
            PortChange::Add(spec, answer) if self.is_leaving(&spec) => {
                self.wait_for_workers(Waiting::Change(PortChange::Add(spec, answer)));
            }
            PortChange::Add(spec, answer) => {
                // Who does not wait for the answer any more misses nothing, here and below.
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

    /// Whether a port that is being taken away is in the way of `spec`.
    fn is_leaving(&self, spec: &PortSpec) -> bool {
        let mut leaving = self.barriers.leaving().peekable();
        // Mostly there is none, and nothing to ask the kernel for.
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
