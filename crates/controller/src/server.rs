//! Listening, accepting, starting and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tapswitch_control::{Control, Discovery, Limits, WhenMissing};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::clock::now_text;
use crate::connection::{Connection, ConnectionId};
use crate::hub::{Hub, Input};
use crate::journal::Journal;
use crate::keeper::Keeper;
use crate::reload::Reloader;
use crate::rest::{Facts, Rest};
use crate::store::{Contents, KeptPolicy, Store};
use crate::tls::Tls;
use crate::{BindError, Config, Handle, Identity};

/// Where switches connect, by TLS or without.
#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    tls: Option<Arc<Tls>>,
}

/// A controller that listens, and serves when it is run.
#[derive(Debug)]
pub struct Server {
    config: Config,
    control: Control,
    listeners: Vec<Listener>,
    to_hub: mpsc::Sender<Input>,
    inputs: mpsc::Receiver<Input>,
    keeper: Arc<Keeper>,
    journal: Arc<Journal>,
    identity: Identity,
    rest: Option<Rest>,
}

impl Server {
    /// Takes the addresses and reads the configured policies. Switches can connect from here on,
    /// but are answered only when the server runs.
    ///
    /// # Errors
    /// Which address cannot be listened on, or which policy cannot be, and what to do.
    pub async fn bind(config: Config) -> Result<Self, BindError> {
        let journal = Arc::new(Journal::new(config.max_events));
        let listeners = listen(&config).await?;
        let rest = match &config.rest {
            Some(rest) => Some(Rest::bind(rest).await?),
            None => None,
        };
        let (store, contents) = Store::open(&config.store, Arc::clone(&journal))?;
        let identity = contents.identity.clone();
        let mut control = Control::new(limits(&config, &identity));
        add_configured(&mut control, &config)?;
        let policies = add_kept(&mut control, &config, contents);
        let keeper = Keeper::new(store, policies);
        let (to_hub, inputs) = mpsc::channel(MAX_INPUTS);
        Ok(Self { config, control, listeners, to_hub, inputs, keeper, journal, identity, rest })
    }

    /// Where switches can connect, with the ports that were chosen for port 0.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.socket.local_addr().ok()).collect()
    }

    /// Where REST is, if it is wanted.
    pub fn rest_addr(&self) -> Option<SocketAddr> {
        self.rest.as_ref().and_then(Rest::local_addr)
    }

    /// Asks the server while it runs.
    pub fn handle(&self) -> Handle {
        let Config { request_timeout, stats_timeout, .. } = self.config;
        let kept = (Arc::clone(&self.keeper), Arc::clone(&self.journal));
        let timeouts = (request_timeout, stats_timeout);
        Handle::new(self.to_hub.clone(), kept, timeouts, self.reloader())
    }

    fn reloader(&self) -> Reloader {
        let tls = self.listeners.iter().find_map(|listener| listener.tls.clone());
        Reloader { rest: self.rest.as_ref().map(Rest::reloader), tls }
    }

    /// Who this controller is; the same after a restart with the same store.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Serves until `shutdown` is done, then closes all connections. Switches keep their rules.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let handle = self.handle();
        let Self { config, control, listeners, to_hub, inputs, keeper, journal, rest, .. } = self;
        for Listener { socket, tls } in &listeners {
            if let Ok(address) = socket.local_addr() {
                let scheme = if tls.is_some() { "tls" } else { "tcp" };
                tracing::info!("listening for switches on {scheme}:{address}");
            }
        }
        let mut tasks = JoinSet::new();
        let acceptor = Acceptor {
            bounds: (config.channel, config.max_waiting),
            to_hub,
            slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        };
        for listener in listeners {
            tasks.spawn(acceptor.clone().accept(listener));
        }
        drop(acceptor);
        // Event streams hear of it, the rest ends with its task.
        let (_end, ended) = watch::channel(false);
        if let Some(rest) = rest {
            tasks.spawn(rest.run(handle, Facts::of(&config), ended));
        }
        Hub::new(control, inputs, (keeper, journal), config.takeover_after).run(shutdown).await;
        // What was told to switches before is still on its way; what they say is not heard.
        tasks.shutdown().await;
        tracing::info!("stopped; the switches keep their rules");
    }
}

/// The limits, with the key that links are found by.
fn limits(config: &Config, identity: &Identity) -> Limits {
    let mut limits = config.limits.clone();
    if config.discover && limits.discovery.is_none() {
        limits.discovery = Some(Discovery::new(identity.lldp_key));
    }
    limits
}

/// Adds the policies of the configuration.
fn add_configured(control: &mut Control, config: &Config) -> Result<(), BindError> {
    for policy in &config.policies {
        let added = control.add_policy(policy.clone(), WhenMissing::Wait);
        added.map_err(|error| BindError::Policy { name: policy.name.clone(), error })?;
    }
    Ok(())
}

/// Adds the policies of the store. One that cannot be, perhaps since the configuration has its
/// name, is left out and said to be: the others are needed. Returns all that there are.
fn add_kept(control: &mut Control, config: &Config, contents: Contents) -> Vec<KeptPolicy> {
    for (name, error) in contents.unreadable {
        tracing::error!("policy {name} of the store is left out: it is not understood: {error}");
    }
    let configured = config.policies.iter().map(|policy| KeptPolicy {
        policy: policy.clone(),
        created_at: now_text(),
        owner: "configuration".to_owned(),
    });
    let mut all: Vec<_> = configured.collect();
    for kept in contents.policies {
        match control.add_policy(kept.policy.clone(), WhenMissing::Wait) {
            Ok(()) => all.push(kept),
            Err(error) => {
                tracing::error!("policy {} of the store is left out: {error}", kept.policy.name);
            }
        }
    }
    all
}

/// Takes the addresses. Those of TLS share one certificate.
async fn listen(config: &Config) -> Result<Vec<Listener>, BindError> {
    let tls = config.tls.clone().map(Tls::open).transpose()?.map(Arc::new);
    let mut listeners = Vec::new();
    for &address in &config.listen {
        listeners.push(Listener { socket: listen_on(address).await?, tls: None });
    }
    for &address in &config.listen_tls {
        let tls = Some(tls.clone().ok_or(BindError::NoCertificate { address })?);
        listeners.push(Listener { socket: listen_on(address).await?, tls });
    }
    if listeners.is_empty() {
        return Err(BindError::Nowhere);
    }
    Ok(listeners)
}

async fn listen_on(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|error| BindError::new(address, error))
}

/// Makes connections of what comes in.
#[derive(Clone, Debug)]
struct Acceptor {
    bounds: (tapswitch_channel::Config, usize),
    to_hub: mpsc::Sender<Input>,
    slots: Arc<Semaphore>,
}

impl Acceptor {
    /// Accepts connections until it is dropped, and with it the connections.
    async fn accept(self, listener: Listener) {
        let mut connections = JoinSet::new();
        let Listener { socket, tls } = listener;
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok((stream, peer)) => self.start(stream, peer, tls.clone(), &mut connections),
                    Err(error) => {
                        // Out of file descriptors, mostly: wait for some to be closed.
                        tracing::warn!("cannot accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn start(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        tls: Option<Arc<Tls>>,
        connections: &mut JoinSet<()>,
    ) {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            tracing::warn!(
                "{peer} is turned away: {MAX_CONNECTIONS} connections are as many as allowed"
            );
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("{peer}: no TCP_NODELAY: {error}");
        }
        let connection =
            Connection::new(ConnectionId::next(), peer, self.bounds, self.to_hub.clone());
        connections.spawn(async move {
            match tls {
                None => connection.run(stream).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => connection.run(stream).await,
                    Err(error) => tracing::warn!("{peer}: no TLS: {error}"),
                },
            }
            drop(slot);
        });
    }
}

/// Inputs that wait for the hub; with more, connections are read from later.
const MAX_INPUTS: usize = 1024;
/// Connections at a time, those among them that have not said yet who they are.
const MAX_CONNECTIONS: usize = 4096;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
