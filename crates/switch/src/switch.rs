//! Starting a switch: workers, server, and the ports one after the other.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tapswitch_channel::Roles;
use tapswitch_datapath::WorkerIndex;
use tapswitch_openflow::{Action, Body, FlowMod, FlowModCommand, Instruction, Message, PortNo};
use tapswitch_tls::TlsError;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::agent::{Agent, Identity};
use crate::clock;
use crate::config::ConfigError;
use crate::connect::{ACCEPTED_COUNT_MAX, Connector};
use crate::handle::Handle;
use crate::places::Places;
use crate::ports::{AddPortError, Ports};
use crate::server::{Barriers, Inputs, Server, WorkerEnded};
use crate::shared::Shared;
use crate::tls::{TlsClient, TlsServer};
use crate::worker::{WorkerHandle, WorkerSetup};
use crate::{Config, Endpoint, FailMode, Transport};

/// A started switch: its workers forward, and [`Switch::run`] serves everything else.
pub struct Switch {
    server: Server,
    handle: Handle,
    connector: Connector,
    listeners: Vec<(Endpoint, TcpListener)>,
    controllers: Vec<Endpoint>,
    /// TLS for [`Self::run`]'s connections, if configured.
    tls: Option<(TlsClient, TlsServer)>,
}

impl Switch {
    /// Opens ports and sockets and starts the workers. Must be called inside a tokio runtime.
    /// Cancelling it, which is possible between two ports, leaves nothing behind.
    ///
    /// # Errors
    /// [`StartError`], which names the cause and a remedy. Nothing is left behind.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        config.check()?;
        let tls = match &config.tls {
            None => None,
            Some(tls) => Some((TlsClient::open(tls)?, TlsServer::open(tls)?)),
        };
        let listeners = listen(&config.listen).await?;
        let worker_count = config.worker_count();
        let agent = new_agent(&config, worker_count);
        let pipeline = agent.pipeline().snapshot().clone();
        let (shared, reports) = Shared::new(pipeline, agent.macs().table().clone(), worker_count);
        let workers = start_workers(&config, worker_count, &shared)?;
        let (ports, news) = Ports::new(worker_count);

        let (to_server, peers) = mpsc::channel(CHANNEL_LEN);
        let (queries, questions) = mpsc::channel(CHANNEL_LEN);
        let inputs = Inputs { peers, reports, news, queries: questions };
        let mut server = Server {
            inputs,
            agent,
            shared,
            workers,
            ports,
            fail_mode: config.fail_mode,
            controllers: config.controllers.clone(),
            peers: HashMap::new(),
            roles: Roles::new(),
            barriers: Barriers::default(),
        };
        for spec in &config.ports {
            server.add_port(spec)?;
            // Opening a port may take a while, and the caller may want to cancel.
            tokio::task::yield_now().await;
        }
        let (next_id, places) = (Arc::new(AtomicU64::new(1)), Places::new(ACCEPTED_COUNT_MAX));
        let channel = tapswitch_channel::Config {
            echo_interval: config.echo_interval,
            ..tapswitch_channel::Config::default()
        };
        let connector = Connector { next_id, to_server, places, channel };
        let handle = Handle::new(queries);
        let controllers = config.controllers;
        Ok(Self { server, handle, connector, listeners, controllers, tls })
    }

    /// A handle for queries to the switch.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The endpoints on which it accepts OpenFlow connections, with the ports that the kernel
    /// chose.
    ///
    /// # Errors
    /// If the kernel does not report an address.
    pub fn local_endpoints(&self) -> io::Result<Vec<Endpoint>> {
        let at = |(endpoint, listener): &(Endpoint, TcpListener)| {
            Ok(Endpoint { address: listener.local_addr()?, ..*endpoint })
        };
        self.listeners.iter().map(at).collect()
    }

    /// Runs until `shutdown` completes; then stops the workers and removes what it created.
    ///
    /// # Errors
    /// If a worker has ended before.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerEnded> {
        let mut tasks = JoinSet::new();
        let by_tls = |at: &Endpoint| self.tls.clone().filter(|_| at.transport == Transport::Tls);
        for controller in self.controllers {
            let tls = by_tls(&controller).map(|(client, _)| client);
            tasks.spawn(self.connector.clone().keep(controller, tls));
        }
        for (endpoint, listener) in self.listeners {
            let tls = by_tls(&endpoint).map(|(_, server)| server);
            tasks.spawn(self.connector.clone().accept(listener, tls));
        }
        let ended = self.server.run(shutdown).await;
        tasks.shutdown().await;
        ended
    }
}

/// Why a switch did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is inconsistent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A port cannot be added.
    #[error(transparent)]
    Port(#[from] AddPortError),
    /// Keys or certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A listening socket cannot be opened.
    #[error("cannot listen on {endpoint}: {source}; choose another address or port with --listen")]
    Listen {
        /// The endpoint.
        endpoint: Endpoint,
        /// The kernel's error.
        source: io::Error,
    },
    /// A worker cannot be started.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

async fn listen(endpoints: &[Endpoint]) -> Result<Vec<(Endpoint, TcpListener)>, StartError> {
    let mut listeners = Vec::with_capacity(endpoints.len());
    for &endpoint in endpoints {
        let bound = TcpListener::bind(endpoint.address).await;
        let listener = bound.map_err(|source| StartError::Listen { endpoint, source })?;
        listeners.push((endpoint, listener));
    }
    Ok(listeners)
}

/// The agent. A standalone switch without controllers forwards as NORMAL, by a rule that tools can
/// see and replace.
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

fn start_workers(
    config: &Config,
    count: usize,
    shared: &Arc<Shared>,
) -> Result<Vec<WorkerHandle>, StartError> {
    if let Some(text) = config.spare_cores(count) {
        tracing::warn!("{text}");
    }
    let start = |index| {
        let core = config.cores.get(index).copied();
        WorkerSetup { index: WorkerIndex(index), core, shared: shared.clone() }.start()
    };
    (0..count).map(start).collect::<Result<_, _>>().map_err(StartError::Worker)
}

/// Messages that may be pending between two tasks.
pub(crate) const CHANNEL_LEN: usize = 256;
