//! Binding, accepting connections, starting and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapswitch_control::{Control, Discovery, Limits, Millis};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::server::TlsStream;

use crate::blueprint::{Blueprint, Built};
use crate::cluster::{Leader, Standing};
use crate::connection::Connection;
use crate::election::Elector;
use crate::etcd::{EtcdConfig, Way};
use crate::hub::{Hub, Inputs, Seat, ToHub};
use crate::journal::Journal;
use crate::keeper::{Configured, Keeper};
use crate::news::{ConnectionId, Input};
use crate::places::{MORE_FILES, Place, Places};
use crate::rehearsals::Rehearsals;
use crate::relay::{Dialler, Relays};
use crate::reload::Reloader;
use crate::rest::{Facts, Rest};
use crate::store::{Kept, Store};
use crate::tls::{HANDSHAKE, Tls};
use crate::{BindError, Config, Handle, Identity, StoreConfig, StoreError};

/// A listening address for switches, with or without TLS.
#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Its address with its transport, unless it is a wildcard.
    fn endpoint(&self) -> Option<String> {
        let address = self.socket.local_addr().ok()?;
        let transport = if self.tls.is_some() { "tls" } else { "tcp" };
        (!address.ip().is_unspecified()).then(|| format!("{transport}:{address}"))
    }
}

/// A bound controller; [`Self::run`] serves.
#[derive(Debug)]
pub struct Server {
    config: Config,
    control: Control,
    blueprint: Blueprint,
    seat: Seat,
    /// With a shared store.
    elector: Option<Elector>,
    relays: Option<Relays>,
    /// Identity among the controllers that share the store.
    me: Option<Leader>,
    listeners: Vec<Listener>,
    to_hub: ToHub,
    inputs: Inputs,
    keeper: Arc<Keeper>,
    journal: Arc<Journal>,
    identity: Identity,
    rest: Option<Rest>,
    rehearsals: Rehearsals,
}

impl Server {
    /// Binds the addresses and validates the configured policies. Switches can connect from now on,
    /// but are answered only while the server runs.
    ///
    /// # Errors
    /// Which address cannot be bound, or which policy is invalid, and the remedy.
    pub async fn bind(config: Config) -> Result<Self, BindError> {
        let journal = Arc::new(Journal::new(config.max_events));
        let listeners = listen(&config).await?;
        let rest = match &config.rest {
            Some(rest) => Some(Rest::bind(rest).await?),
            None => None,
        };
        let rest_url = rest.as_ref().and_then(Rest::url);
        let (to_hub, inputs) = Inputs::new();
        let (standing, _) = watch::channel(Standing::Alone);
        let mut elector = None;
        let (mut relays, mut me) = (None, None);
        let (store, identity, kept) = match &config.store {
            StoreConfig::Etcd(etcd) => {
                standing.send_replace(Standing::Follower { leader: None, remembers: false });
                let place = (etcd, Way::open(etcd).map_err(StoreError::from)?);
                let share = Store::share(place.clone(), standing.subscribe(), Arc::clone(&journal));
                let (store, identity) = share.await?;
                let leader = name(etcd, rest_url, &listeners)?;
                let following = standing.subscribe();
                let new = Elector::new(place.clone(), leader.clone(), to_hub.news.clone());
                let dialler = Dialler::new(config.tls.as_ref())?;
                let (who, seen) = ((&leader, dialler), (new.term(), following));
                relays = Some(Relays::new(place, who, seen, to_hub.news.clone()));
                elector = Some(new);
                me = Some(leader);
                // The elector reads the store when this controller becomes leader.
                (store, identity, Kept::default())
            }
            own => {
                let (store, contents) = Store::open(own, Arc::clone(&journal))?;
                (store, contents.identity, contents.kept)
            }
        };
        let limits = limits(&config, &identity);
        let (policies, start) = (config.policies.clone(), Instant::now());
        let met = kept.switches.clone();
        let blueprint = Blueprint { limits, policies, start, met };
        let mut built = blueprint.build(kept, Millis(0))?;
        let configured = Configured::take(&mut built, &blueprint);
        let Built { control, policies, .. } = built;
        let keeper = Keeper::new(store, policies);
        if elector.is_none() {
            keeper.record_start().await?;
            keeper.record_configured(&blueprint.configured()).await?;
            keeper.keep_configured(configured).await?;
        }
        let seat = Seat::new(standing, elector.as_ref().map(Elector::term));
        Ok(Self {
            config,
            control,
            blueprint,
            seat,
            elector,
            relays,
            me,
            listeners,
            to_hub,
            inputs,
            keeper,
            journal,
            identity,
            rest,
            rehearsals: Rehearsals::default(),
        })
    }

    /// Bound addresses for switches, with the actual ports in place of port 0.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.socket.local_addr().ok()).collect()
    }

    /// Bound address of REST, if it is enabled.
    pub fn rest_addr(&self) -> Option<SocketAddr> {
        self.rest.as_ref().and_then(Rest::local_addr)
    }

    /// Publishes the role of this controller.
    #[cfg(test)]
    pub(crate) fn standing(&self) -> watch::Sender<Standing> {
        self.seat.standing.clone()
    }

    /// From here on nothing can be written to the store.
    #[cfg(test)]
    pub(crate) fn lose_store(&mut self) {
        self.keeper = Keeper::new(Store::closed(), []);
    }

    /// A handle for requests to the running server.
    pub fn handle(&self) -> Handle {
        let Config { request_timeout, stats_timeout, .. } = self.config;
        let kept = (Arc::clone(&self.keeper), Arc::clone(&self.journal));
        let timeouts = (request_timeout, stats_timeout);
        let standing = (self.seat.standing.subscribe(), self.me.clone());
        let rehearsals = self.rehearsals.clone();
        Handle::new(self.to_hub.requests.clone(), kept, timeouts, standing, rehearsals)
    }

    /// Reloads the tokens and certificates of the running server.
    pub fn reloader(&self) -> Reloader {
        let tls = self.listeners.iter().find_map(|listener| listener.tls.clone());
        Reloader { rest: self.rest.as_ref().map(Rest::reloader), tls }
    }

    /// Identity of this controller; the same after a restart with the same store.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Serves until `shutdown` is done, then closes all connections. Switches keep their rules.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let handle = self.handle();
        let Self { config, control, blueprint, seat, elector, listeners, to_hub, .. } = self;
        let Self { inputs, keeper, journal, rest, relays, .. } = self;
        for Listener { socket, tls } in &listeners {
            if let Ok(address) = socket.local_addr() {
                let scheme = if tls.is_some() { "tls" } else { "tcp" };
                tracing::info!("listening for switches on {scheme}:{address}");
            }
        }
        let mut tasks = JoinSet::new();
        let places = Places::new("switches", config.max_connections);
        let acceptor = Acceptor {
            bounds: (config.channel, config.max_waiting),
            to_hub: to_hub.news,
            places: Arc::clone(&places),
        };
        for listener in listeners {
            tasks.spawn(acceptor.clone().accept(listener));
        }
        drop(acceptor);
        if let Some(relays) = relays {
            tasks.spawn(relays.run());
        }
        // REST and the writer of records are notified; the other tasks are dropped.
        let (end, ended) = watch::channel(false);
        let stopping = Arc::clone(&keeper);
        let paying = tokio::spawn(Arc::clone(&keeper).pay_debts(ended.clone()));
        let configured = (Arc::clone(&keeper), blueprint.clone());
        let elector = elector.map(|elector| elect(elector, configured, ended.clone()));
        let mut answering = JoinSet::new();
        if let Some(rest) = rest {
            answering.spawn(rest.run(handle, Facts::of(&config, places), ended));
        }
        let place = (blueprint, seat);
        let hub = Hub::new(control, place, inputs, (keeper, journal), config.takeover_after);
        let is_alone = elector.is_none();
        run_apart(hub, shutdown).await;
        if is_alone {
            stopping.note_stop();
        }
        end.send_replace(true);
        // Lets event streams report why they end.
        while answering.join_next().await.is_some() {}
        // Messages handed to connections are still sent; replies are not read.
        tasks.shutdown().await;
        if let Some(elector) = elector {
            // It revokes the lease. If it has panicked, the lease expires by itself.
            let _ = elector.await;
        }
        // Waits until the last records are written.
        let _ = paying.await;
        tracing::info!("stopped; the switches keep their rules");
    }
}

/// Runs the hub on a thread of its own: however long it computes, connections are served.
async fn run_apart(hub: Hub, shutdown: impl Future<Output = ()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let runtime = tokio::runtime::Handle::current();
    let mut running = tokio::task::spawn_blocking(move || {
        // Dropping the server's future also ends it.
        runtime.block_on(hub.run(async move { _ = stopped.await }));
    });
    let ended = tokio::select! {
        () = shutdown => {
            drop(stop);
            running.await
        }
        ended = &mut running => ended,
    };
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Runs the election on a thread of its own: however long planning takes, the lease is renewed.
fn elect(
    elector: Elector,
    configured: (Arc<Keeper>, Blueprint),
    ended: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(elector.run(configured, ended)),
            Err(error) => {
                tracing::error!("this controller cannot lead: cannot start a thread: {error}");
            }
        }
    })
}

/// The limits, with the key for link discovery.
fn limits(config: &Config, identity: &Identity) -> Limits {
    let mut limits = config.limits.clone();
    limits.max_waiting = limits.max_waiting.min(config.max_waiting);
    if config.discover && limits.discovery.is_none() {
        limits.discovery = Some(Discovery::new(identity.lldp_key));
    }
    limits
}

/// Identity of this controller for the others: a unique name, the URL of its REST, and where to
/// relay switches.
fn name(
    config: &EtcdConfig,
    rest: Option<String>,
    listeners: &[Listener],
) -> Result<Leader, BindError> {
    let mut id = [0; 8];
    crate::random::fill(&mut id).map_err(BindError::NoRandom)?;
    let rest = config.rest_url.clone().or(rest);
    let openflow = config.relay_address.clone();
    let openflow = openflow.or_else(|| listeners.iter().find_map(Listener::endpoint));
    Ok(Leader { id: crate::audit::hex(&id), rest, openflow, generation: 0 })
}

/// Binds the addresses. Those with TLS share one certificate.
async fn listen(config: &Config) -> Result<Vec<Listener>, BindError> {
    let tls = config.tls.clone().map(|files| Tls::open(files, "tcp:")).transpose()?.map(Arc::new);
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

/// Accepts connections.
#[derive(Clone, Debug)]
struct Acceptor {
    bounds: (tapswitch_channel::Config, usize),
    to_hub: mpsc::Sender<Input>,
    places: Arc<Places>,
}

impl Acceptor {
    /// Accepts connections until it is dropped, which also drops the connections.
    async fn accept(self, listener: Listener) {
        let mut connections = JoinSet::new();
        let Listener { socket, tls } = listener;
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok((stream, peer)) => self.start(stream, peer, tls.clone(), &mut connections),
                    Err(error) => {
                        // Usually out of file descriptors: waits until some are closed.
                        if self.places.make_room(Instant::now()) {
                            tracing::warn!("cannot accept connections: {error}; {MORE_FILES}");
                        }
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
        let Some((place, eviction)) = self.places.take(peer.ip()) else { return };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("{peer}: cannot set TCP_NODELAY: {error}");
        }
        let from = (ConnectionId::next(), peer, place);
        let connection = Connection::new(from, self.bounds, self.to_hub.clone());
        let serving = async move {
            match tls {
                None => connection.run(stream).await,
                Some(tls) => {
                    if let Some(stream) = shake_hands(stream, connection.place(), peer, &tls).await
                    {
                        connection.run(stream).await;
                    }
                }
            }
        };
        connections.spawn(async move {
            tokio::select! {
                () = serving => {}
                () = eviction.happens() => {
                    tracing::debug!(
                        "{peer}: closed to make room for another one, as it is not an identified \
                         switch yet");
                }
            }
        });
    }
}

/// Performs the TLS handshake, within [`HANDSHAKE`] and the bound on slow ones of a network.
async fn shake_hands(
    stream: TcpStream,
    place: &Place,
    peer: SocketAddr,
    tls: &Tls,
) -> Option<TlsStream<TcpStream>> {
    let _handshake = place.shake_hands();
    let deadline = tokio::time::Instant::now() + HANDSHAKE;
    tls.accept(stream, &peer.to_string(), deadline).await
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
