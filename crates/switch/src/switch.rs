//! Starting a switch: open the ports, share the queues out, start the workers and the server.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tapswitch_channel::Roles;
use tapswitch_datapath::WorkerIndex;
use tapswitch_netlink::Namespace;
use tapswitch_openflow::{Action, Body, FlowMod, FlowModCommand, Instruction, Message, PortNo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::agent::{Agent, Identity};
use crate::clock;
use crate::config::ConfigError;
use crate::connect::Connector;
use crate::device::{Device, OpenPortError};
use crate::handle::Handle;
use crate::links::{LinkWatch, WatchError};
use crate::rx::RxQueue;
use crate::server::{Barriers, Inputs, Server};
use crate::shared::Shared;
use crate::tx::TxPorts;
use crate::worker::{WorkerHandle, WorkerSetup};
use crate::{Config, Endpoint, FailMode};

/// A switch that has started: its workers forward, and [`Switch::run`] does the rest.
pub struct Switch {
    server: Server,
    handle: Handle,
    connector: Connector,
    listeners: Vec<TcpListener>,
    controllers: Vec<Endpoint>,
    watch: LinkWatch,
}

impl Switch {
    /// Opens ports and sockets and starts the workers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`], which names the cause and a remedy. Nothing is left behind.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        config.check()?;
        let listeners = listen(&config.listen).await?;
        let mut devices = open_devices(&config)?;
        let namespaces = number_namespaces(&mut devices);
        let (link_news, links) = mpsc::channel(CHANNEL_LEN);
        let (guest_news, guests) = mpsc::channel(CHANNEL_LEN);
        let watch = LinkWatch::start(&namespaces, link_news)?;
        let worker_count = config.worker_count();
        let mut agent = new_agent(&config, worker_count);
        for device in &devices {
            agent.handle_port(device.port(worker_count + 1));
        }
        let pipeline = agent.pipeline().snapshot().clone();
        let (shared, reports) = Shared::new(pipeline, agent.macs().table().clone(), worker_count);
        let shares = share_queues(&devices, worker_count);
        let worker_queues =
            shares.iter().map(|queues| queues.iter().map(RxQueue::label).collect()).collect();
        let workers = start_workers(&config, &devices, shares, &shared)?;
        for guest in devices.iter_mut().filter_map(Device::guest_mut) {
            guest.start(guest_news.clone()).map_err(StartError::Worker)?;
        }

        let (to_server, peers) = mpsc::channel(CHANNEL_LEN);
        let (queries, questions) = mpsc::channel(CHANNEL_LEN);
        let inputs = Inputs { peers, reports, links, guests, queries: questions };
        let server = Server {
            inputs,
            agent,
            shared,
            workers,
            worker_queues,
            devices,
            fail_mode: config.fail_mode,
            controllers: config.controllers.clone(),
            peers: HashMap::new(),
            roles: Roles::new(),
            barriers: Barriers::default(),
        };
        let connector = Connector { next_id: Arc::new(AtomicU64::new(1)), to_server };
        let handle = Handle::new(queries);
        let controllers = config.controllers;
        Ok(Self { server, handle, connector, listeners, controllers, watch })
    }

    /// A way to ask the switch about itself.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Where it accepts OpenFlow connections, with the port numbers that the kernel chose.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn local_endpoints(&self) -> io::Result<Vec<Endpoint>> {
        self.listeners.iter().map(|listener| listener.local_addr().map(Endpoint)).collect()
    }

    /// Runs until `shutdown` is done; then stops the workers and takes away what it made.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        for controller in self.controllers {
            tasks.spawn(self.connector.clone().keep(controller));
        }
        for listener in self.listeners {
            tasks.spawn(self.connector.clone().accept(listener));
        }
        self.server.run(shutdown).await;
        tasks.shutdown().await;
        drop(self.watch);
    }
}

/// Why a switch did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A port.
    #[error(transparent)]
    Port(#[from] OpenPortError),
    /// The watch over the interfaces.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A listening socket.
    #[error("cannot listen on {endpoint}: {source}; choose another address or port with --listen")]
    Listen {
        /// Where.
        endpoint: Endpoint,
        /// What the kernel said.
        source: io::Error,
    },
    /// A worker.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

async fn listen(endpoints: &[Endpoint]) -> Result<Vec<TcpListener>, StartError> {
    let mut listeners = Vec::with_capacity(endpoints.len());
    for &endpoint in endpoints {
        let bound = TcpListener::bind(endpoint.0).await;
        listeners.push(bound.map_err(|source| StartError::Listen { endpoint, source })?);
    }
    Ok(listeners)
}

fn open_devices(config: &Config) -> Result<Vec<Device>, StartError> {
    config.ports.iter().map(|spec| Ok(Device::open(spec)?)).collect()
}

/// The namespaces that ports are in, each once; the devices are told their place in it.
fn number_namespaces(devices: &mut [Device]) -> Vec<Namespace> {
    let mut names: Vec<Option<String>> = Vec::new();
    let mut namespaces = Vec::new();
    for device in devices {
        let netns = device.spec.netns.clone();
        let Some(interface) = device.interface_mut() else { continue };
        let known = names.iter().position(|name| *name == netns);
        interface.namespace_index = known.unwrap_or_else(|| {
            names.push(netns);
            namespaces.push(interface.namespace.clone());
            names.len() - 1
        });
    }
    namespaces
}

/// A switch that knows no controller and may stand alone forwards as NORMAL, by a rule that a tool
/// can see and replace.
fn new_agent(config: &Config, workers: usize) -> Agent {
    let Config { name, datapath_id, .. } = config;
    let identity = Identity { name: name.clone(), datapath_id: *datapath_id };
    let mut agent = Agent::new(identity, config.learning, workers, clock::coarse());
    if config.controllers.is_empty() && config.fail_mode == FailMode::Standalone {
        let normal = Instruction::ApplyActions(vec![Action::output(PortNo::NORMAL)]);
        let rule = FlowMod {
            priority: 0,
            instructions: vec![normal],
            ..FlowMod::new(FlowModCommand::Add)
        };
        let message = Message { xid: 0, body: Body::FlowMod(rule) };
        if let Err(refusal) = agent.handle_message(&message, clock::coarse()) {
            tracing::error!("the rule for NORMAL was refused: {}", refusal.text);
        }
    }
    agent
}

/// Which worker reads what: queue *i* of a port with several goes to worker *i*, so that both
/// directions of a flow, which keep to one queue number, meet on one worker; ports with one queue
/// take turns.
fn share_queues(devices: &[Device], workers: usize) -> Vec<Vec<RxQueue>> {
    let mut shares: Vec<Vec<RxQueue>> = (0..workers).map(|_| Vec::new()).collect();
    for (position, device) in devices.iter().enumerate() {
        let queues = device.rx_queues();
        let first = if queues.len() == 1 { position } else { 0 };
        for (index, queue) in queues.into_iter().enumerate() {
            shares[(first + index) % workers].push(queue);
        }
    }
    shares
}

fn start_workers(
    config: &Config,
    devices: &[Device],
    shares: Vec<Vec<RxQueue>>,
    shared: &Arc<Shared>,
) -> Result<Vec<WorkerHandle>, StartError> {
    let start = |(index, queues): (usize, Vec<RxQueue>)| {
        let mut ports = TxPorts::default();
        for device in devices {
            ports.insert(device.spec.number, device.tx_port(index));
        }
        let core = config.cores.get(index).copied();
        let shared = shared.clone();
        WorkerSetup { index: WorkerIndex(index), core, queues, ports, shared }.start()
    };
    shares.into_iter().enumerate().map(start).collect::<Result<_, _>>().map_err(StartError::Worker)
}

/// Messages that may wait between two tasks.
const CHANNEL_LEN: usize = 256;
